"""Exact bounded counts of files, with DuckDB embedded.

DuckDB reads, encodes to small integers and bounds contributions; numpy counts the codes as they
stream by, all marginals in one pass. Only individuals over their bound take the slower road through
a window, so that the cost of bounding is one grouping by individual.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from sfumato.arrays import to_numpy
from sfumato.engines import heads, norms, portable
from sfumato.engines.base import TrueCounts, refuse_large_marginals
from sfumato.engines.connection import (
    connect,
    create_list_type,
    escape_pattern,
    hide_failures,
    ignore_statistics,
    read_counted,
    scan_files,
    sql_kind,
)
from sfumato.engines.encode import encode_column, quote_name, quote_text, value_list
from sfumato.engines.fetched import keep_fetched
from sfumato.engines.source import FileSource, check_unit, file_version, find_files
from sfumato.engines.tally import OccupiedTally, Tally
from sfumato.errors import SourceError, UnsupportedQuery
from sfumato.schema import PublicTable
from sfumato.schema.location import find_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from sqlglot import exp

    from sfumato.engines.fetched import Fetch
    from sfumato.engines.query import TrueAggregates
    from sfumato.measurement import CapChoice, NormChoice, Request
    from sfumato.schema import Label, Table
    from sfumato.sql import QueryPlan

__all__ = ["DuckDBEngine"]

_BATCH_ROWS = 2**20
_RANKED_ROWS = 3_000_000  # what is ranked at once: a window does not spill all that it holds


class DuckDBEngine:
    """An engine over Parquet, CSV and CSV.gz files, looked up from one folder.

    Statements are computed here for every engine: `fetch` gets the columns of tables that are not files.
    """

    def __init__(self, folder: Path, *, fetch: Fetch | None = None) -> None:
        self._folder = folder
        self._fetch = fetch

    def hold(self, table: Table) -> AbstractContextManager[None]:
        """Nothing to hold: that a file did not change while it was read is seen by its version."""
        return nullcontext()

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Nothing, or an error that names the table, the column and the remedy. Reads no record."""
        refuse_large_marginals(table, marginals)
        columns = portable.all_columns(marginals)
        source = self._find(table)
        stored = [name for column in columns for name in table.column(column).stored]
        if table.unit.column is not None:
            stored.append(table.unit.column)
        for name in stored:
            if name not in source.columns:
                what = "unit column" if name == table.unit.column else "column"
                # A text file without a header line would show its first record here.
                known = f" (it has: {', '.join(source.columns)})" if source.format == "parquet" else ""
                message = f"table {table.name!r}: source {table.source!r} has no {what} {name!r}{known}"
                raise SourceError(message)
            if source.columns[name].kind == "other":
                message = f"table {table.name!r}: column {name!r} has a nested or binary type; leave it out"
                raise SourceError(message)
        check_unit(table, source.columns, where=_name(table))
        for column in columns:
            encode_column(table.column(column), source.columns, list_type="unused")
            if source.format == "csv" and "" in (value_list(table.column(column)) or ()):
                message = (
                    f"table {table.name!r}: column {column!r} lists an empty text, but an empty field of a "
                    'text file is a missing value; leave it out, and set outside = "other" to count it'
                )
                raise SourceError(message)

    def version(self, table: Table | PublicTable, *, secret: bytes) -> str:
        """A keyed digest of the files' names, sizes and modification times."""
        return file_version(self._find(table), secret=secret)

    def count(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        *,
        occupied: tuple[tuple[str, ...], ...] = (),
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        """The counts of every marginal in units of 1 / table.grid, in two or three scans of the source.

        Those of `marginals` over all their cells, then those of `occupied` where records are.

        Privacy: one individual adds at most `table.contribution` to the counts of each marginal,
        whatever the records hold; proof in docs/proofs/bounds.md.
        """
        source = self._find(table)
        columns = portable.all_columns((*marginals, *occupied))
        tallies: list[Tally | OccupiedTally] = [Tally(table, marginal) for marginal in marginals]
        tallies += [OccupiedTally(table, marginal) for marginal in occupied]
        with hide_failures(_name(table)), connect() as connection:
            _create_encoded(connection, source, table, columns)
            progress("bounding contributions")
            queries = _bounded_queries(connection, table, columns)
            progress("counting")
            for query in queries:
                for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
                    arrays = [to_numpy(column) for column in batch.columns]
                    codes = dict(zip(columns, arrays, strict=False))
                    weights = arrays[len(columns)] if len(arrays) > len(columns) else None
                    for tally in tallies:
                        tally.add(codes, weights, rows=batch.num_rows)
        return tuple(tally.finish() for tally in tallies)

    def count_clipped(
        self, table: Table, requests: tuple[Request, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The answers to requests with a norm, each in units of 1 / request_grid(table, request).

        Privacy: one individual adds at most norm * request_grid to the answers of each request, in L2,
        whatever the records hold; proof in docs/proofs/contribution-norms.md.
        """
        norms.check_clipped(table, requests)
        columns = portable.all_columns(tuple(request.columns for request in requests))
        with self._number_individuals(table, columns, progress) as connection:
            return tuple(norms.clip_counts(connection, table, columns, requests))

    def count_heads(self, table: Table, request: Request, *, progress: Callable[[str], None]) -> TrueCounts:
        """The number of individuals for every question of `request.heads`.

        Privacy: one individual adds 1 to at most max_cells of the numbers, whatever the records hold;
        proof in docs/proofs/user-counts.md.
        """
        source = self._find(table)
        with hide_failures(_name(table)), connect() as connection:
            _create_encoded(connection, source, table, request.columns)
            progress("counting individuals")
            return heads.count_heads(connection, table, request)

    def count_norms(self, table: Table, choice: NormChoice, *, progress: Callable[[str], None]) -> TrueCounts:
        """The number of individuals within each norm of `choice`, then that of all individuals.

        Privacy: one individual adds 0 or 1 to each number; docs/proofs/choice.md.
        """
        norms.check_choice(table, choice)
        with self._number_individuals(table, choice.columns, progress) as connection:
            return norms.count_within(connection, table, choice.columns, choice)

    def count_lost(self, table: Table, choice: CapChoice, *, progress: Callable[[str], None]) -> TrueCounts:
        """The number of records that each bound of `choice` cuts off, of max_records of each individual.

        Privacy: an individual adds max(0, min(n, max_records) - bound) for its n records, and nothing
        else does; docs/proofs/capped-counts.md.
        """
        heads.check_bounds(table, choice)
        source = self._find(table)
        with hide_failures(_name(table)), connect() as connection:
            _create_encoded(connection, source, table, choice.columns)
            progress("bounding contributions")
            return heads.count_lost(connection, table, choice)

    def describe(self, table: Table | PublicTable) -> dict[str, str]:
        """The kinds of the stored columns that a query may name, from headers and footers alone."""
        if isinstance(table, PublicTable):
            with connect() as connection:
                rows = connection.sql(f"DESCRIBE SELECT * FROM {self._scan_public(table)}").fetchall()
            return {name: sql_kind(kind) for name, kind, *_ in rows}
        source = self._find(table)
        check_unit(table, source.columns, where=_name(table))
        return {name: stored.kind for name, stored in source.columns.items() if stored.kind != "other"}

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
        from sfumato.engines.query import count_aggregates, names_in

        hidden = hide_failures(f"the tables {', '.join(plan.relation.tables)}")
        with hidden, connect(plainly=True) as connection:
            self._create_tables(connection, plan.relation.tables, tables, names_in(plan))
            progress("aggregating")
            return count_aggregates(connection, plan)

    def bind(self, plan: QueryPlan, tables: Mapping[str, Table | PublicTable]) -> None:
        """Nothing, or a refusal if the types of a statement do not fit. Reads no record."""
        from sfumato.engines.query import bind_plan, names_in

        try:
            with connect(plainly=True) as connection:
                self._create_tables(connection, plan.relation.tables, tables, names_in(plan), rows=False)
                bind_plan(connection, plan)
        except duckdb.BinderException as error:
            # A binder knows types and names only. Any other error may come from what a file holds.
            reason = str(error).splitlines()[0].removeprefix("Binder Error: ")[:200].rstrip(". ")
            message = f"not answered: {reason}. Nothing was spent"
            raise UnsupportedQuery(message) from None
        except Exception:
            # Not about types: it may come from what a file holds, and must not be a refusal for free.
            return

    def select(self, tree: exp.Select, tables: Mapping[str, PublicTable]) -> pa.Table:
        """The exact answer to a checked query of public tables."""
        try:
            with connect() as connection:
                self._create_tables(connection, tuple(tables), tables, set())
                return connection.sql(tree.sql(dialect="duckdb")).to_arrow_table()
        except duckdb.Error as error:
            message = f"the public tables could not be read: {str(error).splitlines()[0][:200]}"
            raise SourceError(message) from None

    @contextmanager
    def _number_individuals(
        self, table: Table, columns: tuple[str, ...], progress: Callable[[str], None]
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        source = self._find(table)
        with hide_failures(_name(table)), connect() as connection:
            _create_encoded(connection, source, table, columns, drop=False)
            progress("bounding contributions")
            norms.number_individuals(connection, columns)
            progress("counting")
            yield connection

    def _create_tables(
        self,
        connection: duckdb.DuckDBPyConnection,
        wanted: tuple[str, ...],
        tables: Mapping[str, Table | PublicTable],
        names: set[str],
        *,
        rows: bool = True,
    ) -> None:
        from sfumato.engines.query import create_table
        from sfumato.sql import UNIT, code_name

        for name in dict.fromkeys(wanted):
            table = tables[name]
            if isinstance(table, PublicTable):
                scan = self._scan_public(table)
                columns = [
                    # What is compared as text is text: a conversion could fail for some private record.
                    f"CAST({quote_name(each)} AS VARCHAR) AS {quote_name(each)}"
                    if kind == "text"
                    else quote_name(each)
                    for each, kind in self.describe(table).items()
                ]
                connection.execute(
                    f"CREATE TEMP VIEW {quote_name(name)} AS SELECT {', '.join(columns)} FROM {scan}"
                )
                continue
            used = {
                stored
                for each, column in table.columns.items()
                if each.lower() in names or code_name(each).lower() in names
                for stored in column.stored
            }
            if self._fetch is not None and find_place(table.source) != "file":
                fetched = self._fetch(table, frozenset({*used, *names}))
                keep_fetched(connection, fetched, f"stored {name}", rows=rows)
                scan = quote_name(f"stored {name}")
                create_table(connection, table, fetched.columns, scan, names=names, keep=rows)
                continue
            source = self._find(table)
            counted = {
                each
                for each, stored in source.columns.items()
                if stored.counted and (each in used or each.lower() in names)
            }
            scan = scan_files(source)
            if counted:
                readable = {each for each, stored in source.columns.items() if stored.kind != "other"}
                connection.register(f"stored {name}", read_counted(source, readable, counted))
                scan = quote_name(f"stored {name}")
            # Numbered rows must keep their numbers from one scan to the next.
            numbered = table.unit.column is None and UNIT in names
            keep = rows and (bool(counted) or numbered or source.format == "csv")
            create_table(connection, table, source.columns, scan, names=names, keep=keep)

    def _scan_public(self, table: PublicTable) -> str:
        source = find_files(table.source, folder=self._folder, table=table.name)
        files = ", ".join(quote_text(escape_pattern(str(path))) for path in source.paths)
        # The rows of a public table are public, so that its types may be guessed from them.
        return (
            f"read_parquet([{files}])" if source.format == "parquet" else f"read_csv([{files}], header=true)"
        )

    def _find(self, table: Table | PublicTable) -> FileSource:
        return find_files(table.source, folder=self._folder, table=table.name)


def _name(table: Table) -> str:
    return f"table {table.name!r}: source {table.source!r}"


def _create_encoded(
    connection: duckdb.DuckDBPyConnection,
    source: FileSource,
    table: Table,
    columns: tuple[str, ...],
    *,
    drop: bool = True,
) -> None:
    """Creates `encoded`: the individual as u, the codes as c0, c1, ..., NULL outside a domain.

    With `drop`, records with a NULL among their codes are left out. Those of nobody always are.
    """
    codes = []
    for index, name in enumerate(columns):
        column = table.column(name)
        create_list_type(connection, column, f"list{index}")
        code = encode_column(column, source.columns, list_type=f"list{index}")
        codes.append(f"{code} AS c{index}")
    selected = list(codes)
    kept = [f"c{index} IS NOT NULL" for index in range(len(columns))] if drop else []
    if table.unit.column is not None:
        selected.insert(0, f"{quote_name(table.unit.column)} AS u")
        kept.append("u IS NOT NULL")
    used = {name for column in columns for name in table.column(column).stored}
    counted = {name for name in used if source.columns[name].counted}
    if counted:
        connection.register("stored", read_counted(source, used | {table.unit.column or ""}, counted))
    scan = "stored" if counted else scan_files(source)
    query = f"SELECT * FROM (SELECT {', '.join(selected)} FROM {scan}) WHERE {' AND '.join(kept)}"
    fractional = any(source.columns[name].kind == "number" for name in used)
    # Columnar files are cheaper to scan again than to keep; what is dear to read is read once.
    kind = "TABLE" if counted or fractional or source.format == "csv" else "VIEW"
    with ignore_statistics(connection) if fractional else nullcontext():
        connection.execute(f"CREATE TEMP {kind} encoded AS {query}")


def _bounded_queries(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: tuple[str, ...]
) -> list[str]:
    """The queries whose rows, together, are the bounded records: codes, then a weight if it is not one."""
    parts = portable.bound_records(table, columns)
    if parts.beyond is None or parts.cut is None:
        return [parts.within]
    # Individuals that are numbered densely are grouped by position instead of by hash.
    connection.execute("SET perfect_ht_threshold = 20")
    connection.execute(f"CREATE TEMP TABLE beyond AS {parts.beyond}")
    connection.execute("RESET perfect_ht_threshold")
    if table.bounding == "weight":
        return [parts.within, parts.cut]
    (over,) = connection.execute("SELECT coalesce(sum(n), 0) FROM beyond").fetchone() or (0,)
    queries = [parts.within]
    groups = 1 + int(over) // _RANKED_ROWS
    for group in range(groups):
        chosen = f"SELECT u FROM beyond WHERE hash(u) % {groups} = {group}"
        connection.execute(f"CREATE TEMP VIEW beyond{group} AS {chosen}")
        queries.append(portable.bound_records(table, columns, chosen=f"beyond{group}").cut or "")
    return queries
