"""How many rows a join may make of one individual, by public numbers alone."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
from sqlglot import exp

from sfumato.core.facts.table import PublicTable, Table
from sfumato.sql.check import refuse
from sfumato.sql.plan import QueryPlan

_MOST_JOINED = 2**16
"""The most rows that a join may make of one individual."""


def check_joins(
    connection: duckdb.DuckDBPyConnection, plan: QueryPlan, tables: Mapping[str, Table | PublicTable]
) -> None:
    """Refuses joins that could make more rows of one individual than anybody needs.

    Otherwise how long an answer takes would tell of one individual's records.
    """
    most = _most_rows(connection, plan.relation.tree, tables) if plan.relation.multiplied else None
    if most is not None and most > _MOST_JOINED:
        raise refuse(
            f"the join could make {most:,} rows of one individual, and at most {_MOST_JOINED:,} are made; "
            "join fewer times, on more columns, or lower max_records"
        )


def _most_rows(
    connection: duckdb.DuckDBPyConnection, item: exp.Expr, tables: Mapping[str, Table | PublicTable]
) -> int | None:
    """The most rows of one individual in a part of FROM, None if it is public."""
    if isinstance(item, exp.Table):
        table = tables[item.name]
        return table.unit.max_records if not isinstance(table, PublicTable) else None
    select = item.this if isinstance(item, exp.Subquery) else item
    if isinstance(select, exp.Union):
        parts = [_most_rows(connection, each, tables) for each in (select.this, select.expression)]
        return None if None in parts else sum(each or 0 for each in parts)
    group = select.args.get("group")
    if group is not None and len(group.expressions) == 1:
        return 1
    first = select.args["from_"].this
    rows, before = _most_rows(connection, first, tables), [first]
    for join in select.args.get("joins") or []:
        right, on = _most_rows(connection, join.this, tables), join.args["on"]
        if right is None:
            # A record meets at most as many public rows as share one key.
            repeats = _most_repeats(connection, [join.this], on)
            rows = None if rows is None else rows * repeats
        else:
            rows = right * (_most_repeats(connection, before, on) if rows is None else rows)
        before.append(join.this)
    return rows


def _most_repeats(connection: duckdb.DuckDBPyConnection, items: list[exp.Expr], on: exp.Expr) -> int:
    """How often a key of the join stands in public rows; all rows of those that have none."""
    repeats = 1
    for item in items:
        name = item.alias_or_name
        sides = [side for match in on.find_all(exp.EQ) for side in (match.this, match.expression)]
        # As they are compared: two keys may be one after their conversion.
        keys = {side.sql(dialect="duckdb") for side in sides if side.find(exp.Column).table == name}
        grouped = f" GROUP BY {', '.join(sorted(keys))}" if keys else ""
        counts = f"SELECT count(*) AS n FROM {item.sql(dialect='duckdb')}{grouped}"
        ((found,),) = connection.execute(f"SELECT COALESCE(max(n), 0) FROM ({counts})").fetchall()
        repeats *= max(1, int(found))
    return repeats
