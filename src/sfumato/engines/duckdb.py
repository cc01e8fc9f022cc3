"""Exact bounded counts of files, with DuckDB embedded.

DuckDB reads, encodes to small integers and bounds contributions; numpy counts the codes as they
stream by, all marginals in one pass. Only individuals over their bound take the slower road through
a window, so that the cost of bounding is one grouping by individual.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from sfumato.arrays import to_numpy
from sfumato.engines.base import TrueCounts, refuse_large_marginals
from sfumato.engines.encode import encode_column, quote_name, quote_text, value_list
from sfumato.engines.source import FileSource, file_version, find_files
from sfumato.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.schema import Column, Table

__all__ = ["DuckDBEngine"]

_BATCH_ROWS = 2**20
_MEMORY_LIMIT = "600MB"


class DuckDBEngine:
    """An engine over Parquet, CSV and CSV.gz files, looked up from one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Nothing, or an error that names the table, the column and the remedy. Reads no record."""
        refuse_large_marginals(table, marginals)
        columns = _all_columns(marginals)
        source = self._find(table)
        stored = [name for column in columns for name in table.column(column).stored]
        if table.unit.column is not None:
            stored.append(table.unit.column)
        for name in stored:
            if name not in source.columns:
                what = "its unit column" if name == table.unit.column else "column"
                # A text file without a header line would show its first record here.
                known = f" (it has: {', '.join(source.columns)})" if source.format == "parquet" else ""
                message = f"table {table.name!r}: source {table.source!r} has no {what} {name!r}{known}"
                raise SourceError(message)
            if source.columns[name].kind == "other":
                message = f"table {table.name!r}: column {name!r} has a nested or binary type; leave it out"
                raise SourceError(message)
        if table.unit.column is not None and not source.columns[table.unit.column].is_identifier:
            message = (
                f"table {table.name!r}: the unit column {table.unit.column!r} must hold text, whole numbers, "
                "decimals, booleans or dates: values of other types cannot be told apart exactly"
            )
            raise SourceError(message)
        for column in columns:
            encode_column(table.column(column), source.columns, list_type="unused")

    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest of the files' names, sizes and modification times."""
        return file_version(self._find(table), secret=secret)

    def count(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        *,
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        """The counts of every marginal in units of 1 / table.grid, in two or three scans of the source.

        Privacy: one individual adds at most `table.contribution` to the counts of each marginal,
        whatever the records hold; proof in docs/proofs/bounds.md.
        """
        source = self._find(table)
        columns = _all_columns(marginals)
        tallies = [_Tally(table, marginal) for marginal in marginals]
        try:
            with _connect() as connection:
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
        except Exception:
            # Any message from below may quote a record.
            message = f"table {table.name!r}: source {table.source!r} could not be read to the end"
            raise SourceError(message) from None
        return tuple(tally.finish() for tally in tallies)

    def _find(self, table: Table) -> FileSource:
        return find_files(table.source, folder=self._folder, table=table.name)


def _all_columns(marginals: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for marginal in marginals for name in marginal))


class _Tally:
    """The running counts of one marginal."""

    def __init__(self, table: Table, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._sizes = [table.column(name).size for name in columns]
        self._grid = table.grid
        self._counts = np.zeros(table.cells(columns), np.int64)

    def add(
        self,
        codes: dict[str, NDArray[np.int64]],
        weights: NDArray[np.int64] | None,
        *,
        rows: int,
    ) -> None:
        """Counts one batch: every record for one whole, or for its weight in units of 1 / grid."""
        cells = np.zeros(rows, np.int64)
        for name, size in zip(self._columns, self._sizes, strict=True):
            cells *= size
            cells += codes[name]
        if weights is not None:
            np.add.at(self._counts, cells, weights)
        elif cells.size * 4 < self._counts.size:
            np.add.at(self._counts, cells, self._grid)
        else:
            self._counts += np.bincount(cells, minlength=self._counts.size) * self._grid

    def finish(self) -> TrueCounts:
        """The counts, read-only from here on."""
        self._counts.flags.writeable = False
        return TrueCounts(self._columns, self._counts)


@contextmanager
def _connect() -> Iterator[duckdb.DuckDBPyConnection]:
    with tempfile.TemporaryDirectory(prefix="sfumato-") as spill:
        connection = duckdb.connect()
        try:
            # What does not fit into memory spills to a folder that only this user can read.
            for setting in (
                f"temp_directory = {quote_text(spill)}",
                f"memory_limit = '{_MEMORY_LIMIT}'",
                "preserve_insertion_order = false",
                "TimeZone = 'UTC'",
                "autoinstall_known_extensions = false",
            ):
                connection.execute(f"SET {setting}")
            yield connection
        finally:
            connection.close()


def _create_encoded(
    connection: duckdb.DuckDBPyConnection, source: FileSource, table: Table, columns: tuple[str, ...]
) -> None:
    """Creates `encoded`: the individual as u, the codes as c0, c1, ..., without dropped records."""
    codes = []
    for index, name in enumerate(columns):
        column = table.column(name)
        _create_list_type(connection, column, f"list{index}")
        code = encode_column(column, source.columns, list_type=f"list{index}")
        codes.append(f"{code} AS c{index}")
    selected = list(codes)
    kept = [f"c{index} IS NOT NULL" for index in range(len(columns))]
    if table.unit.column is not None:
        selected.insert(0, f"{quote_name(table.unit.column)} AS u")
        kept.append("u IS NOT NULL")
    used = {name for column in columns for name in table.column(column).stored}
    counted = {name for name in used if source.columns[name].counted}
    if counted:
        connection.register("stored", _read_counted(source, used | {table.unit.column or ""}, counted))
    scan = "stored" if counted else _scan(source)
    query = f"SELECT * FROM (SELECT {', '.join(selected)} FROM {scan}) WHERE {' AND '.join(kept)}"
    # Columnar files are cheaper to scan again than to keep; what is dear to read is read once.
    kind = "TABLE" if counted or source.format == "csv" else "VIEW"
    connection.execute(f"CREATE TEMP {kind} encoded AS {query}")


def _create_list_type(connection: duckdb.DuckDBPyConnection, column: Column, name: str) -> None:
    texts = value_list(column)
    if texts is not None:
        listed = ", ".join(quote_text(text) for text in texts)
        connection.execute(f"CREATE TEMP TYPE {name} AS ENUM ({listed})")


def _read_counted(source: FileSource, used: set[str], counted: set[str]) -> pa.RecordBatchReader:
    """The used columns as a stream, those of `counted` as whole numbers."""
    import pyarrow as pa
    import pyarrow.dataset

    dataset = pyarrow.dataset.dataset([str(path) for path in source.paths], format="parquet")
    columns = {}
    for name in source.columns:
        if name in used:
            field = pyarrow.dataset.field(name)
            columns[name] = field.cast(pa.int64()) if name in counted else field
    return dataset.scanner(columns=columns, use_threads=True).to_reader()


def _scan(source: FileSource) -> str:
    files = ", ".join(quote_text(_escape_pattern(str(path))) for path in source.paths)
    if source.format == "parquet":
        return f"read_parquet([{files}], hive_partitioning=false)"
    columns = ", ".join(f"{quote_text(name)}: 'VARCHAR'" for name in source.columns)
    return (
        f"read_csv([{files}], auto_detect=false, header=true, delim={quote_text(source.delimiter)}, "
        f"""quote='"', escape='"', columns={{{columns}}}, ignore_errors=true, strict_mode=false, """
        "hive_partitioning=false)"
    )


def _escape_pattern(path: str) -> str:
    # The engine takes a path for a pattern of paths.
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


def _bounded_queries(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: tuple[str, ...]
) -> list[str]:
    """The queries whose rows, together, are the bounded records: codes, then a weight if it is not one.

    Individuals within the bound are read as they are. Of the others, `truncate` keeps max_records
    records in the order of a digest of that individual and the record's codes, which no other
    individual's records can change; records with equal codes are interchangeable.
    """
    codes = ", ".join(f"c{index}" for index in range(len(columns)))
    if table.unit.column is None:
        return [f"SELECT {codes} FROM encoded"]
    most = table.unit.max_records
    # Individuals that are numbered densely are grouped by position instead of by hash.
    connection.execute("SET perfect_ht_threshold = 20")
    connection.execute(
        f"CREATE TEMP TABLE over AS SELECT u, count(*) AS n FROM encoded GROUP BY u HAVING count(*) > {most}"
    )
    connection.execute("RESET perfect_ht_threshold")
    within = f"SELECT {codes} FROM encoded ANTI JOIN over USING (u)"
    if table.bounding == "weight":
        weight = f"CAST({table.contribution} // n AS BIGINT)"
        return [within, f"SELECT {codes}, {weight} AS w FROM encoded JOIN over USING (u)"]
    order = f"md5(concat_ws(':', TRY_CAST(u AS VARCHAR), {codes}))"
    ranked = (
        f"SELECT {codes}, row_number() OVER (PARTITION BY u ORDER BY {order}) AS place "
        "FROM encoded SEMI JOIN over USING (u)"
    )
    return [within, f"SELECT {codes} FROM ({ranked}) WHERE place <= {most}"]
