"""The tables of a ledger in PostgreSQL, and whether a schema holds exactly them."""

from __future__ import annotations

_TABLES = {
    "answers": (("sequence", "bigint"), ("payload", "bytea"), ("sha256", "text")),
    "entries": (
        ("sequence", "bigint"),
        ("recorded_at", "text"),
        ("kind", "text"),
        ("description", "bytea"),
        ("plan_digest", "text"),
        ("table_name", "text"),
        ("table_version", "text"),
        ("previous", "text"),
        ("hash", "text"),
    ),
    "meta": (("format", "integer"), ("secret", "bytea")),
    "progress": (("sequence", "bigint"), ("payload", "bytea"), ("sha256", "text")),
}

EXISTS = """
SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s
"""

# One line for everything that decides what a row written to the schema becomes. Foreign keys and
# rules, policies, triggers, heirs and further indexes can all run another's code or hide rows.
LAYOUT = """
WITH held AS (
    SELECT c.* FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s
)
SELECT pg_catalog.concat_ws(' ', 'relation', relname, relkind, relpersistence,
        relrowsecurity, relforcerowsecurity)
    FROM held
UNION ALL
SELECT pg_catalog.concat_ws(' ', 'column', c.relname, a.attnum, a.attname,
        pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.atthasdef,
        a.attidentity, a.attgenerated)
    FROM held c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
    WHERE c.relkind <> 'i' AND a.attnum > 0
UNION ALL
SELECT pg_catalog.concat_ws(' ', 'constraint', c.relname, pg_catalog.pg_get_constraintdef(k.oid))
    FROM held c JOIN pg_catalog.pg_constraint k ON k.conrelid = c.oid WHERE k.contype <> 'n'
UNION ALL
SELECT 'trigger' FROM held c JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid
UNION ALL
SELECT 'rule' FROM held c JOIN pg_catalog.pg_rewrite r ON r.ev_class = c.oid
UNION ALL
SELECT 'policy' FROM held c JOIN pg_catalog.pg_policy p ON p.polrelid = c.oid
UNION ALL
SELECT 'heir' FROM held c JOIN pg_catalog.pg_inherits i ON c.oid IN (i.inhrelid, i.inhparent)
"""


def _create(table: str) -> str:
    columns = [f"{name} {kind} NOT NULL" for name, kind in _TABLES[table]]
    if table != "meta":
        columns.append("PRIMARY KEY (sequence)")
    return f"CREATE TABLE {table} ({', '.join(columns)})"


CREATE = tuple(_create(table) for table in _TABLES)


def expected_layout() -> list[str]:
    """The lines that `LAYOUT` has for a ledger, sorted."""
    lines = []
    for table, columns in _TABLES.items():
        lines.append(f"relation {table} r p f f")
        lines += [
            f"column {table} {number} {name} {kind} t f  "
            for number, (name, kind) in enumerate(columns, start=1)
        ]
        if table != "meta":
            lines.append(f"relation {table}_pkey i p f f")
            lines.append(f"constraint {table} PRIMARY KEY (sequence)")
    return sorted(lines)
