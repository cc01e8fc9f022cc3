"""Arrow tables in a PostgreSQL server of the tests: every column in the type that holds the same values."""

import pyarrow as pa

TYPES = {
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("ms"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamptz",
}


def column_type(kind):
    if pa.types.is_dictionary(kind):
        return column_type(kind.value_type)
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    return TYPES[kind]


def quote(name):
    return '"' + name.replace('"', '""') + '"'


def write_table(connection, name, table, *, schema="public"):
    """Creates `schema`.`name` with the rows of an Arrow table."""
    listed = ", ".join(f"{quote(field.name)} {column_type(field.type)}" for field in table.schema)
    place = f"{quote(schema)}.{quote(name)}"
    connection.execute(f"DROP TABLE IF EXISTS {place} CASCADE")
    connection.execute(f"CREATE TABLE {place} ({listed})")
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    texts = [_texts(column) for column in columns]
    with connection.cursor() as cursor, cursor.copy(f"COPY {place} FROM STDIN") as copy:
        for row in zip(*texts, strict=True):
            copy.write_row(row)


def _texts(column):
    if pa.types.is_floating(column.type):
        return [None if value is None else repr(value) for value in column.to_pylist()]
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return [None if value is None else value.isoformat() for value in column.to_pylist()]
    return [None if value is None else str(value) for value in column.to_pylist()]
