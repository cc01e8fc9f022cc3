"""Exact counts of individuals by cell and by how often they are in it, with DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.engines import portable
from sfumato.engines.base import TrueCounts
from sfumato.errors import RecipeError
from sfumato.tables.arrays import to_arrow, to_numpy

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from sfumato.headcounts import HeadCounts
    from sfumato.measurement import CapChoice, Request
    from sfumato.schema import Table


def count_heads(connection: duckdb.DuckDBPyConnection, table: Table, request: Request) -> TrueCounts:
    """The number of individuals for every question of `request.heads`; reads `encoded`.

    Privacy: an individual is kept in at most max_cells cells, chosen by its own records alone, and
    counts 1 for at most one question of each. Proof: docs/proofs/user-counts.md.
    """
    heads = check_heads(table, request)
    cell = portable.cell_code(table, request.columns, request.columns)
    connection.register("questions", _list_questions(heads))
    if table.unit.column is None:
        # Every row is an individual of its own, once in one cell.
        numbers = (
            f"SELECT question, count(*) AS n FROM (SELECT {cell} AS cell FROM encoded) "
            "JOIN questions USING (cell) WHERE times = 1 GROUP BY question"
        )
        return _fill(connection, request, numbers, heads)
    connection.execute(
        f"CREATE TEMP TABLE shares AS SELECT u, {cell} AS cell, count(*) AS n FROM encoded GROUP BY ALL"
    )
    # The questions are many and are sorted for the join, so those of empty cells are left out of it.
    connection.execute(
        "CREATE TEMP TABLE met AS SELECT u, shares.cell, times, question FROM shares "
        "ASOF JOIN (SELECT * FROM questions SEMI JOIN shares USING (cell)) AS reached "
        "ON shares.cell = reached.cell AND shares.n >= reached.times"
    )
    connection.execute(
        f"CREATE TEMP TABLE beyond AS SELECT u FROM met GROUP BY u HAVING count(*) > {heads.max_cells}"
    )
    numbers = portable.cut_ranks(heads.max_cells)
    return _fill(connection, request, numbers, heads)


def check_heads(table: Table, request: Request) -> HeadCounts:
    """The questions of `request`, or an error about public facts: cells that its columns do not have."""
    heads = request.heads
    cells = table.cells(request.columns)
    # Cells that do not fit into 64 bits would fail for the records that reach them.
    if heads is None or heads.cells[-1] >= cells or cells > portable.MOST_CELLS:
        raise RecipeError(
            f"request {request.name!r} asks for individuals in cells that its columns do not have"
        )
    return heads


def check_bounds(table: Table, choice: CapChoice) -> None:
    """Raises an error about public facts: a table of rows has no bound to choose."""
    if table.unit.column is None:
        raise RecipeError(
            f"choice {choice.name!r}: every row is an individual, so there is no bound to choose"
        )


def count_lost(connection: duckdb.DuckDBPyConnection, table: Table, choice: CapChoice) -> TrueCounts:
    """The number of records that each bound of `choice` cuts off; reads `encoded`.

    Privacy: an individual adds max(0, min(n, max_records) - bound) to each number, for its n records.
    """
    query = portable.render(portable.lost_query(table, choice), dialect="duckdb")
    (row,) = connection.execute(query).fetchall()
    values = np.array(row, np.int64)
    values.flags.writeable = False
    return TrueCounts(choice.columns, values)


def _fill(
    connection: duckdb.DuckDBPyConnection, request: Request, numbers: str, heads: HeadCounts
) -> TrueCounts:
    values = np.zeros(heads.rows, np.int64)
    counted = connection.sql(numbers).to_arrow_table()
    questions, counts = (to_numpy(column.combine_chunks()) for column in counted.columns)
    values[questions] = counts
    values.flags.writeable = False
    return TrueCounts(request.columns, values)


def _list_questions(heads: HeadCounts) -> pa.Table:
    import pyarrow as pa

    places = np.arange(heads.rows, dtype=np.int64)
    return pa.table(
        {"cell": to_arrow(heads.cells), "times": to_arrow(heads.times), "question": to_arrow(places)}
    )
