// node-postgres as ask.py uses the others: "metadata" or "ask", then FACTS; prints rows as JSON.
const { Client } = require("pg");

async function main() {
  const [stage, given] = process.argv.slice(2);
  const facts = JSON.parse(given);
  const { host, port, user, password, dbname: database } = facts;
  const client = new Client({ host, port, user, password, database });
  await client.connect();
  const text =
    stage === "metadata"
      ? "SELECT table_name FROM information_schema.tables WHERE table_schema = $1 ORDER BY 1"
      : `DP-SELECT ${facts.epsilon} clinic, COUNT(*) AS n FROM visits WHERE fee > $1 GROUP BY clinic ORDER BY clinic`;
  const found = await client.query({ text, values: [stage === "metadata" ? "public" : 20], rowMode: "array" });
  console.log(JSON.stringify(found.rows));
  await client.end();
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
