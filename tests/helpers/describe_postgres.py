"""Makes src/sfumato/serve/catalog/postgres.txt from a running PostgreSQL 15.

python describe_postgres.py "host=... user=..." > src/sfumato/serve/catalog/postgres.txt
"""

import sys

# Domains of the information schema travel as the types they stand for. Types with one letter are frequent.
PLAIN = {
    "sql_identifier": "name",
    "character_data": "varchar",
    "cardinal_number": "int4",
    "yes_or_no": "varchar",
    "time_stamp": "timestamptz",
}
LETTERS = {"n": "name", "o": "oid", "8": "int8", "t": "text", "b": "bool", "v": "varchar", "4": "int4"}
LETTERS |= {"z": "timestamptz", "c": "char", "p": "regproc", "2": "int2"}

RELATIONS = """
SELECT c.oid, n.nspname, c.relkind::text, c.relname,
    array_agg(a.attname::text ORDER BY a.attnum), array_agg(t.typname::text ORDER BY a.attnum),
    array_agg(a.attnotnull ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
    JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v') AND a.attnum > 0
GROUP BY 1, 2, 3, 4 ORDER BY n.nspname DESC, c.relname
"""
TYPES = """
SELECT oid, typname, replace(format_type(oid, NULL), ' ', '~'), typarray, typlen, typbyval, typtype,
    typcategory, typispreferred, typdelim, typalign, typstorage, typelem, typcollation, typsubscript,
    typinput, typoutput, typreceive, typsend, typmodin, typmodout, typanalyze
FROM pg_type WHERE typnamespace = 11 AND typrelid = 0 AND typinput <> 'array_in'::regproc ORDER BY oid
"""
FUNCTIONS = """
SELECT DISTINCT p.oid, p.proname FROM pg_proc p JOIN pg_type t ON p.oid IN (t.typsubscript, t.typinput,
    t.typoutput, t.typreceive, t.typsend, t.typmodin, t.typmodout, t.typanalyze) ORDER BY 1
"""
RANGES = "SELECT rngtypid, rngsubtype, rngmultitypid FROM pg_range ORDER BY 1"


def describe(connection):
    """The lines of the file: relations (R), types (T), functions of types (F) and ranges (G)."""
    short = {name: letter for letter, name in LETTERS.items()}
    yield "L " + " ".join(f"{letter}={name}" for letter, name in LETTERS.items())
    for oid, schema, kind, name, columns, types, filled in connection.execute(RELATIONS):
        plain = (PLAIN.get(each, each) for each in types)
        parts = (
            f"{column}:{short.get(each, each)}{'!' * full}"
            for column, each, full in zip(columns, plain, filled, strict=True)
        )
        yield f"R {oid} {schema[0]}{kind} {name} " + " ".join(parts)
    for letter, query in (("T", TYPES), ("F", FUNCTIONS), ("G", RANGES)):
        for row in connection.execute(query):
            words = ("ft"[each] if isinstance(each, bool) else str(each) for each in row)
            yield f"{letter} " + " ".join(words)


if __name__ == "__main__":
    import psycopg

    with psycopg.connect(sys.argv[1]) as connected:
        print(*describe(connected), sep="\n")
