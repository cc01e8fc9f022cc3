"""What arrived in every period of a series, each individual held to its bound over all of them.

What was counted is kept in a private file: for every individual, under a keyed digest, how many records of
which cell counted in which period. So a period that was answered never changes, whatever becomes of its
records, and nobody counts for more than max_records in all periods together. Proof: docs/proofs/running.md.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.engine.base import TrueCounts, cell_code
from sfumato.core.engine.encode import quote_text
from sfumato.core.engine.sealed import make_private
from sfumato.core.errors import SourceError
from sfumato.core.files import write_file

if TYPE_CHECKING:
    import duckdb

    from sfumato.core.facts.table import Table
    from sfumato.core.questions.series import RunningSums

_LOG = pa.schema(
    [("individual", pa.string()), ("period", pa.int64()), ("cell", pa.int64()), ("n", pa.int64())]
)
_ENTRY = b"sfumato entry"


def load_log(folder: Path, stream: str, entries: tuple[str, ...], *, after: int = 0) -> pa.Table:
    """What counted in all periods so far, each as it was kept under the charge whose hash is in `entries`.

    Those of the first `after` periods are left out.
    """
    parts = [_LOG.empty_table()]
    for period, entry in list(enumerate(entries))[after:]:
        path = _locate(folder, stream, period)
        try:
            part = pq.read_table(path)
            kept = (part.schema.metadata or {}).get(_ENTRY, b"").decode()
        except (OSError, pa.ArrowException, UnicodeDecodeError):
            kept = None
        # A log of another charge would hold individuals to bounds that were used up elsewhere.
        if kept is None or kept != entry:
            raise SourceError(
                f"what counted in the earlier periods of this series is kept in .sfumato/{path.parent.name}, "
                f"and {path.name} is not there, or is not that of this ledger. Restore it from a backup: "
                "without it nobody can be held to max_records over all periods. Or begin another series, "
                "which is charged anew"
            )
        parts.append(part.replace_schema_metadata())
    return pa.concat_tables(parts)


def save_arrivals(folder: Path, stream: str, period: int, arrived: pa.Table, *, entry: str) -> None:
    """Keeps what counted in a period, durably, before its answer is drawn.

    Whoever is interrupted before the answer is stored counts the period again, and replaces this.
    """
    path = _locate(folder, stream, period)
    make_private(path.parent.parent)
    make_private(path.parent)
    sink = io.BytesIO()
    pq.write_table(arrived.replace_schema_metadata({_ENTRY: entry.encode()}), sink, compression="zstd")
    write_file(path, sink.getvalue(), force=True)
    path.chmod(0o600)


def find_arrivals(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    question: RunningSums,
    log: pa.Table,
    *,
    period: int,
    secret: bytes,
) -> pa.Table:
    """What arrives in `period` and counts, from the relation `encoded` of all records with every code.

    Privacy: of an individual, at most max_records count in the periods of the log and in this one together;
    which of them follows from its own records and its own part of the log alone.
    """
    columns = question.columns
    cell = cell_code(table, columns, columns[1:])
    when = "=" if question.late == "drop" else "<="
    if table.unit.column is None:
        found = connection.sql(
            f"SELECT '' AS individual, {cell} AS cell, count(*) AS n FROM encoded WHERE c0 = {period} "
            "GROUP BY ALL"
        )
    else:
        connection.register("logged", log)
        # The log outlives the run that wrote it: a keyed digest tells individuals apart, and names nobody.
        key = quote_text(secret.hex())
        name = f"substr(sha256(concat({key}, ':', CAST(u AS VARCHAR))), 1, 32)"
        fresh = "SELECT * FROM arrived"
        if question.late == "carry":
            counted = "SELECT individual, cell, sum(n) AS m FROM logged GROUP BY ALL"
            fresh = (
                "SELECT individual, cell, n - coalesce(m, 0) AS n FROM arrived "
                f"LEFT JOIN ({counted}) AS counted USING (individual, cell) WHERE n > coalesce(m, 0)"
            )
        # Cells in the order of a digest that nobody else moves, as far as the individual's bound goes.
        before = (
            "coalesce(sum(n) OVER (PARTITION BY individual ORDER BY md5(concat(individual, ':', cell)), cell "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)"
        )
        # Windows add up as wide integers in DuckDB, so that no number of records overflows.
        most = table.unit.max_records
        found = connection.sql(
            f"WITH arrived AS (SELECT {name} AS individual, {cell} AS cell, count(*) AS n FROM encoded "
            f"WHERE c0 {when} {period} GROUP BY ALL), fresh AS ({fresh}), "
            "used AS (SELECT individual, sum(n) AS used FROM logged GROUP BY ALL), "
            f"placed AS (SELECT individual, cell, n, {before} AS before FROM fresh) "
            f"SELECT individual, cell, least(n, {most} - coalesce(used, 0) - before) AS n "
            f"FROM placed LEFT JOIN used USING (individual) WHERE coalesce(used, 0) + before < {most}"
        )
    arrived = found.to_arrow_table()
    parts = {
        "individual": arrived["individual"],
        "period": pa.chunked_array([np.full(arrived.num_rows, period, np.int64)]),
        "cell": arrived["cell"],
        "n": arrived["n"],
    }
    return pa.table(parts).cast(_LOG)


def sum_log(table: Table, question: RunningSums, log: pa.Table, *, period: int) -> TrueCounts:
    """The weighted sums of all arrivals up to `period`, for every cell, in units of 1 / grid."""
    periods, cells, counts = (
        to_numpy(log[name].combine_chunks()) if log.num_rows else np.zeros(0, np.int64)
        for name in ("period", "cell", "n")
    )
    weights = np.array(question.weights, np.int64)
    sums = np.zeros(question.cells(table), np.int64)
    np.add.at(sums, cells, counts * weights[period - periods])
    return TrueCounts(question.columns, sums)


def _locate(folder: Path, stream: str, period: int) -> Path:
    return folder / ".sfumato" / f"series-{stream[:16]}" / f"period-{period + 1}.parquet"
