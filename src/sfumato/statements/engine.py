"""The engine of statements: sealed tables, aggregated as a plan of DP-SELECT states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from sfumato.core.engine.duckdb import DuckDBEngine
from sfumato.core.engine.encode import (
    connect,
    hide_failures,
    quote_name,
)
from sfumato.core.engine.sealed import (
    Sealed,
    clean_column,
    clean_schema,
    register_columns,
)
from sfumato.core.errors import SfumatoError, SourceError, UnsupportedQuery
from sfumato.core.facts.domain import Label
from sfumato.core.facts.table import (
    PublicTable,
    Table,
    cap_records,
)

if TYPE_CHECKING:
    from sqlglot import exp

    from sfumato.sql.plan import QueryPlan
    from sfumato.statements.execute import TrueAggregates


from sqlglot import exp

from sfumato.core.errors import refuse
from sfumato.sql.plan import QueryPlan

_PUBLIC_TEXT = 100_000


class StatementEngine(DuckDBEngine):
    """An engine that answers planned statements from sealed tables, and queries of public tables exactly."""

    def column_types(self, table: Table) -> dict[str, pa.DataType]:
        """The types of the stored columns that a query may name, as statements see them; reads no record."""
        if table.unit.period is not None:
            raise UnsupportedQuery(
                f"table {table.name!r} protects {table.unit.name}, and statements are answered for whole "
                "individuals only; use a recipe, or describe the table with another unit in another project"
            )
        kept = frozenset(name.lower() for name in self.describe(table))
        schema = clean_schema(self._open(table, kept).schema)
        return {field.name: field.type for field in schema}

    def list_labels(self, table: PublicTable) -> dict[str, tuple[Label, ...]]:
        """The values of the columns of a public table, of those that have at most a thousand."""
        labels: dict[str, tuple[Label, ...]] = {}
        with connect() as connection:
            scan = self._scan_public(table)
            for name, kind in self.describe(table).items():
                if kind in ("integer", "text"):
                    column = quote_name(name)
                    distinct = f"SELECT DISTINCT {column} FROM {scan} WHERE {column} IS NOT NULL"
                    rows = connection.sql(f"{distinct} ORDER BY 1 LIMIT 1001").fetchall()
                    if 0 < len(rows) <= 1000:
                        labels[name] = tuple(row[0] if kind == "integer" else str(row[0]) for row in rows)
        return labels

    def aggregate(
        self, plan: QueryPlan, tables: Mapping[str, Table | PublicTable], *, progress: Callable[[str], None]
    ) -> TrueAggregates:
        """The exact aggregates of a planned statement, bounded as the plan states.

        Privacy: docs/proofs/sql.md.
        """
        from sfumato.statements.execute import count_aggregates

        hidden = hide_failures(f"the tables {', '.join(plan.relation.tables)}")
        with hidden, connect(plainly=True) as connection:
            sealed = self._open_tables(connection, plan, tables, rows=True)
            progress("aggregating")
            return count_aggregates(connection, plan, sealed)

    def bind(self, plan: QueryPlan, tables: Mapping[str, Table | PublicTable]) -> None:
        """Refuses a statement that could only fail: it is run on sealed tables without a record.

        Nothing of people's records is read, so that whatever happens here may be told.
        """
        from sfumato.statements.execute import bind_aggregates, check_constants

        try:
            with connect(plainly=True) as connection:
                sealed = self._open_tables(connection, plan, tables, rows=False)
                check_constants(connection, plan)
                check_joins(connection, plan, tables)
                bind_aggregates(connection, plan, sealed)
        except SfumatoError:
            raise
        except Exception as error:
            reason = (
                str(error).splitlines()[0].partition(" Error: ")[2] if isinstance(error, duckdb.Error) else ""
            )
            reason = reason[:200].rstrip(". ") or f"it cannot be computed ({type(error).__name__})"
            raise UnsupportedQuery(f"not answered: {reason}. Nothing was spent") from None

    def select(self, tree: exp.Select, tables: Mapping[str, PublicTable], *, rows: bool = True) -> pa.Table:
        """The exact answer to a checked query of public tables; without `rows`, its columns alone."""
        try:
            with connect() as connection:
                for name, table in tables.items():
                    connection.execute(
                        f"CREATE TEMP VIEW {quote_name(name)} AS SELECT * FROM {self._scan_public(table)}"
                    )
                text = tree.sql(dialect="duckdb")
                return connection.sql(text if rows else f"SELECT * FROM ({text}) LIMIT 0").to_arrow_table()
        except duckdb.Error as error:
            raise SourceError(
                f"the public tables could not be read: {str(error).splitlines()[0][:200]}"
            ) from None

    def _open_tables(
        self,
        connection: duckdb.DuckDBPyConnection,
        plan: QueryPlan,
        tables: Mapping[str, Table | PublicTable],
        *,
        rows: bool,
    ) -> dict[str, Sealed]:
        """Makes relations of all tables that a plan reads; without `rows`, private ones have no record."""
        from sfumato.statements.execute import names_in, open_sealed

        names = frozenset(names_in(plan))
        opened = {}
        for name in dict.fromkeys(plan.relation.tables):
            table = tables[name]
            if isinstance(table, PublicTable):
                register_columns(connection, name, self._read_public(table))
                continue
            if table.unit.private_records:
                # What was chosen for the statement, which is about the records of this table alone.
                table = cap_records(table, plan.unit.max_records)
            sealed = self._seal(table, names) if rows else self._seal_nothing(table, names)
            open_sealed(connection, plan, table, sealed)
            opened[name] = sealed
        return opened

    def _read_public(self, table: PublicTable) -> pa.Table:
        """The rows of a public table, made plain as records are: what is compared with text is text."""
        kinds = self.describe(table)
        with connect() as connection:
            columns = [
                f"CAST({quote_name(each)} AS VARCHAR) AS {quote_name(each)}"
                if kind == "text"
                else quote_name(each)
                for each, kind in kinds.items()
            ]
            rows = connection.sql(
                f"SELECT {', '.join(columns)} FROM {self._scan_public(table)}"
            ).to_arrow_table()
        cleaned = {
            name: clean_column(rows[name].combine_chunks(), limit=_PUBLIC_TEXT) for name in rows.column_names
        }
        return pa.table(cleaned)


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
