import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.util.Properties;

/** JDBC as ask.py uses the others: URL, user, password, "metadata" or "ask", epsilon; prints rows as JSON. */
public class Ask {
    public static void main(String[] given) throws Exception {
        Properties login = new Properties();
        login.setProperty("user", given[1]);
        login.setProperty("password", given[2]);
        StringBuilder rows = new StringBuilder("[");
        try (Connection connection = DriverManager.getConnection(given[0], login)) {
            if (given[3].equals("metadata")) {
                DatabaseMetaData facts = connection.getMetaData();
                int columns = 0;
                try (ResultSet found = facts.getColumns(null, "public", "visits", null)) {
                    while (found.next()) columns++;
                }
                facts.getPrimaryKeys(null, "public", "visits").close();
                facts.getIndexInfo(null, "public", "visits", false, false).close();
                facts.getTypeInfo().close();
                facts.getSchemas().close();
                if (columns < 4) throw new IllegalStateException("columns: " + columns);
                boolean extended = given[0].contains("extended"); // the simple mode describes nothing
                try (PreparedStatement prepared = connection.prepareStatement(text(given[4]))) {
                    if (extended && !prepared.getMetaData().getColumnName(1).equals("clinic"))
                        throw new IllegalStateException("the first column is clinic");
                }
                try (ResultSet found = facts.getTables(null, "public", "%", new String[] {"TABLE"})) {
                    while (found.next()) rows.append("[\"").append(found.getString("TABLE_NAME")).append("\"],");
                }
            } else {
                connection.setAutoCommit(false); // so that rows are fetched from a portal, two at a time
                try (PreparedStatement prepared = connection.prepareStatement(text(given[4]))) {
                    prepared.setFetchSize(2);
                    prepared.setDouble(1, 20);
                    try (ResultSet found = prepared.executeQuery()) {
                        while (found.next())
                            rows.append("[\"").append(found.getString(1)).append("\",").append(found.getLong(2)).append("],");
                    }
                }
                connection.commit();
            }
        }
        System.out.println(rows.toString().replaceAll(",$", "") + "]");
    }

    static String text(String epsilon) {
        return "DP-SELECT " + epsilon + " clinic, COUNT(*) AS n FROM visits WHERE fee > ? GROUP BY clinic ORDER BY clinic";
    }
}
