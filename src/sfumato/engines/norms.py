"""Exact sums of contributions that are held to an L2 norm, with DuckDB.

Every individual's answers are added up by themselves, in whole numbers. Those within the norm count as
they are, the others scaled down by whole multiples of 1 / NORM_GRID. One grouping by individual and
answer serves for the norms and for the sums.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.engines.base import TrueCounts, refuse_large_marginals
from sfumato.engines.portable import floor_square as _floor_square
from sfumato.engines.portable import scale_factor as _factor
from sfumato.errors import RecipeError, SchemaError
from sfumato.measurement import NORM_GRID, request_size
from sfumato.tables.arrays import to_arrow, to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb
    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.measurement import NormChoice, Request
    from sfumato.queries import Queries
    from sfumato.schema import Table

_SATURATED = 2**62


def check_clipped(table: Table, requests: tuple[Request, ...]) -> None:
    """Raises an error about public facts: the unit, a norm that is missing, queries that do not fit."""
    refuse_large_marginals(table, tuple(request.columns for request in requests))
    _refuse_rows(table)
    for request in requests:
        if request.norm is None:
            raise RecipeError(f"request {request.name!r} has no norm, so nothing would bound its answers")
        if request.queries is not None and request.queries.cells != table.cells(request.columns):
            raise RecipeError(
                f"request {request.name!r}: its queries are over {request.queries.cells:,} cells, and "
                f"{' x '.join(request.columns)} has {table.cells(request.columns):,}"
            )


def check_choice(table: Table, choice: NormChoice) -> None:
    """Raises an error about public facts: the unit, or a marginal that is too large."""
    refuse_large_marginals(table, (choice.columns,))
    _refuse_rows(table)


def _refuse_rows(table: Table) -> None:
    if table.unit.column is None:
        raise SchemaError(
            f"table {table.name!r}: every row is an individual of norm 1, so there is nothing to hold to a "
            "norm; name a unit column, or leave the norm out"
        )


def clip_counts(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    columns: tuple[str, ...],
    requests: tuple[Request, ...],
) -> Iterator[TrueCounts]:
    """The answers to each request, in units of 1 / request_grid; `columns` are those of `numbered`.

    Privacy: an individual adds a vector of L2 norm at most norm * grid to the answers of a request,
    whatever its records hold, and the vector depends on its own records alone. Proof:
    docs/proofs/contribution-norms.md.
    """
    for request in requests:
        norm = request.norm or Fraction(0)  # a missing norm was refused; zero would count nothing
        _create_shares(connection, table, columns, request.columns, request.queries)
        bound = norm * (1 if request.queries is None else request.queries.grid)
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE factors AS SELECT i, {_factor(bound)} AS f "
            f"FROM (SELECT i, {_SQUARE} AS s FROM shares GROUP BY i) WHERE s > {_floor_square(bound)}"
        )
        total = f"sum(CAST(COALESCE(f, {NORM_GRID}) AS HUGEINT) * a)"
        answers = connection.sql(
            f"SELECT r, CAST(least(greatest({total}, -{_SATURATED}), {_SATURATED}) AS BIGINT) AS a "
            "FROM shares LEFT JOIN factors USING (i) GROUP BY r"
        ).to_arrow_table()
        values = np.zeros(request_size(table, request), np.int64)
        rows, sums = (to_numpy(column.combine_chunks()) for column in answers.columns)
        values[rows] = sums
        values.flags.writeable = False
        yield TrueCounts(request.columns, values)


def count_within(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: tuple[str, ...], choice: NormChoice
) -> TrueCounts:
    """The number of individuals within each norm of `choice`, then the number of all of them.

    Privacy: an individual adds 0 or 1 to each number, as its own records decide.
    """
    _create_shares(connection, table, columns, choice.columns, None)
    within = [f"count(*) FILTER (s <= {_floor_square(norm)})" for norm in choice.norms]
    (row,) = connection.execute(
        f"SELECT {', '.join([*within, 'count(*)'])} FROM (SELECT i, {_SQUARE} AS s FROM shares GROUP BY i)"
    ).fetchall()
    values = np.array(row, np.int64)
    values.flags.writeable = False
    return TrueCounts(choice.columns, values)


_SQUARE = "sum(CAST(a AS HUGEINT) * a)"


def _create_shares(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    columns: tuple[str, ...],
    marginal: tuple[str, ...],
    queries: Queries | None,
) -> None:
    """Creates `shares`: what individual i adds to answer r, a whole number a, unscaled.

    A record without a code in a column of this marginal is left out of it, and of it only.
    """
    cell = "CAST(0 AS INTEGER)"
    for name in marginal:
        cell = f"({cell} * {table.column(name).size} + CAST(c{columns.index(name)} AS INTEGER))"
    kept = " AND ".join(f"c{columns.index(name)} IS NOT NULL" for name in marginal)
    cells = f"SELECT i, {cell} AS r, count(*) AS a FROM numbered WHERE {kept} GROUP BY ALL"
    if queries is None:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE shares AS {cells}")
        return
    connection.register("weights", _list_weights(queries))
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE shares AS SELECT i, weights.r AS r, CAST(sum(a * w) AS BIGINT) AS a "
        f"FROM ({cells}) AS cells JOIN weights ON cells.r = weights.cell GROUP BY ALL"
    )
    connection.unregister("weights")


def _list_weights(queries: Queries) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: to_arrow(values) for name, values in list_weights(queries).items()})


def list_weights(queries: Queries) -> dict[str, NDArray[np.integer[Any]]]:
    """The weights w of cells in queries r, as columns of whole numbers."""
    rows = np.repeat(np.arange(queries.rows, dtype=np.int64), np.diff(queries.starts))
    return {"cell": queries.members, "r": rows, "w": queries.weights}
