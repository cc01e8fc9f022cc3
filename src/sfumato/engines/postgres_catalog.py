"""What PostgreSQL's catalogues tell of a table: its columns, their types, and whether it has changed.

No record is read here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sfumato.engines.postgres_types import PostgresColumn, describe_type
from sfumato.errors import SourceError

if TYPE_CHECKING:
    import psycopg

    from sfumato.engines.postgres_source import PostgresSource

_RELATION = """
SELECT c.oid::bigint, c.relkind::text, current_setting('server_encoding')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""

# A domain is taken for the type it is made of.
_COLUMNS = """
WITH RECURSIVE resolved(place, name, type, modifier) AS (
    SELECT attnum, attname::text, atttypid, atttypmod FROM pg_attribute
    WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT place, name, t.typbasetype, CASE WHEN modifier < 0 THEN t.typtypmod ELSE modifier END
    FROM resolved JOIN pg_type AS t ON t.oid = resolved.type WHERE t.typtype = 'd'
)
SELECT r.name, t.typname::text, r.modifier, t.typtype::text, n.nspname::text
FROM resolved AS r JOIN pg_type AS t ON t.oid = r.type JOIN pg_namespace AS n ON n.oid = t.typnamespace
WHERE t.typtype <> 'd' ORDER BY r.place
"""

# The table, its parts and children, and all that a view is made of.
_MEMBERS = """
WITH RECURSIVE members(oid) AS (
    SELECT %s::oid
    UNION
    SELECT edge.oid FROM members CROSS JOIN LATERAL (
        SELECT inhrelid FROM pg_inherits WHERE inhparent = members.oid
        UNION ALL
        SELECT d.refobjid FROM pg_rewrite AS r JOIN pg_depend AS d
            ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        WHERE r.ev_class = members.oid
    ) AS edge(oid)
)
SELECT c.oid::bigint, c.relkind::text, pg_relation_filenode(c.oid)::bigint,
    CASE WHEN c.relkind IN ('r', 'm') THEN pg_relation_size(c.oid) END,
    pg_stat_get_tuples_inserted(c.oid), pg_stat_get_tuples_updated(c.oid), pg_stat_get_tuples_deleted(c.oid),
    CASE WHEN c.relkind = 'v' THEN md5(pg_get_viewdef(c.oid)) END,
    c.relkind = 'f' OR c.relrowsecurity OR EXISTS (
        SELECT 1 FROM pg_rewrite AS r JOIN pg_depend AS d
            ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_proc'::regclass
        WHERE r.ev_class = c.oid)
FROM members JOIN pg_class AS c ON c.oid = members.oid ORDER BY c.oid
"""
_ANYTHING = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text, current_user::text"


@dataclass(frozen=True, slots=True)
class Described:
    """A table or view as the catalogues have it."""

    oid: int
    columns: dict[str, PostgresColumn]


def describe_relation(connection: psycopg.Connection[tuple[Any, ...]], source: PostgresSource) -> Described:
    """The columns of a table or view, or an error about public facts."""
    row = connection.execute(_RELATION, [source.schema, source.table]).fetchone()
    if row is None:
        raise SourceError(
            f"{source.name} has no such table or view; check the schema, the name and the database"
        )
    oid, kind, encoding = row
    if kind not in ("r", "p", "m", "v"):
        raise SourceError(f"{source.name} is no table or view, such as a foreign table; copy it into a table")
    if encoding != "UTF8":
        raise SourceError(
            f"{source.name}: its database is in {encoding}; only UTF8 keeps all texts apart, convert it"
        )
    columns: dict[str, PostgresColumn] = {}
    seen: dict[str, str] = {}
    for name, kind, modifier, category, schema in connection.execute(_COLUMNS, [oid]).fetchall():
        twin = seen.setdefault(name.casefold(), name)
        if twin != name:
            raise SourceError(f"{source.name}: columns {twin!r} and {name!r} differ in case only; rename one")
        known = kind if schema == "pg_catalog" and category == "b" else ""
        columns[name] = describe_type(known, modifier, is_enum=category == "e")
    return Described(oid, columns)


def relation_facts(
    connection: psycopg.Connection[tuple[Any, ...]], source: PostgresSource
) -> tuple[Any, ...]:
    """What changes when the table does: its columns, its files, and the server's counters of changes.

    The counters are those of the whole life of the table, of its parts and of what a view is made of. A
    server may tell of a change some seconds late, after a crash it begins anew, and a view that looks at
    the clock or at a sequence changes without a trace. Where functions, foreign tables or row
    security come in, any change to anything on the server counts. Too old a version gives a stored
    answer once more, which tells nothing new; a needless new one costs a new charge.
    """
    described = describe_relation(connection, source)
    connection.execute("SELECT pg_stat_clear_snapshot()")
    members = connection.execute(_MEMBERS, [described.oid]).fetchall()
    columns = [(name, column.type, column.digits) for name, column in described.columns.items()]
    strict = connection.execute(_ANYTHING).fetchone() if any(row[-1] for row in members) else None
    return (source.conninfo, columns, members, strict)


def sign_facts(facts: tuple[Any, ...], *, secret: bytes) -> str:
    """A keyed digest, because sizes and counters say how many people are in a table."""
    return hmac.new(secret, json.dumps(facts).encode(), hashlib.sha256).hexdigest()
