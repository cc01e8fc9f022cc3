"""The bounded records of a sealed table as DuckDB reads them, and what it counts of individuals.

Everything here reads relations that are made on one connection: `encoded`, of records that have all codes, or
`numbered`, whose individuals are numbers i. The SQL of `counts` is portable; what is here is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engines.base import TrueCounts, cell_code
from sfumato.engines.counts import (
    SATURATED,
    bound_records,
    cut_ranks,
    fill_counts,
    floor_square,
    individuals_query,
    list_pairs,
    list_weights,
    lost_query,
    number_table,
    render,
    scale_factor,
)
from sfumato.engines.encode import quote_name
from sfumato.engines.residuals import BoundedCodes
from sfumato.engines.sealed import NUMBER, register_columns
from sfumato.questions import NORM_GRID
from sfumato.schema.table import UNIT, code_name
from sfumato.tables.arrays import to_numpy

if TYPE_CHECKING:
    from sfumato.engines.sealed import Sealed
    from sfumato.questions import CapChoice, ClippedMarginal, IndividualCounts, NormChoice, Queries
    from sfumato.schema import Table

_Read = tuple[dict[str, NDArray[Any]], NDArray[np.int64] | None, int]

_BATCH_ROWS = 2**20
_RANKED_ROWS = 3_000_000  # what is ranked at once: a window does not spill all that it holds
_SQUARED = "sum(CAST(a AS HUGEINT) * a)"  # in what DuckDB is fastest with


def list_codes(columns: tuple[str, ...]) -> frozenset[str]:
    """What must be sealed of a table for the codes of `columns`."""
    return frozenset(code_name(name).lower() for name in columns)


def create_encoded(
    connection: duckdb.DuckDBPyConnection,
    records: pa.Table,
    columns: tuple[str, ...],
    *,
    unit: str | None,
    name: str = "encoded",
) -> None:
    """Creates a relation of the records that have all codes: the individual as u, the codes as c0, c1, ..."""
    register_columns(connection, f"sealed {name}", records)
    selected = _spell_codes(columns) if unit is None else [f"{quote_name(unit)} AS u", *_spell_codes(columns)]
    kept = " AND ".join(f"{quote_name(code_name(column))} IS NOT NULL" for column in columns)
    query = f"SELECT {', '.join(selected) or '1 AS one'} FROM {quote_name(f'sealed {name}')}"
    connection.execute(f"CREATE TEMP VIEW {name} AS {query}" + (f" WHERE {kept}" if kept else ""))


def number_records(connection: duckdb.DuckDBPyConnection, sealed: Sealed, columns: tuple[str, ...]) -> None:
    """Creates `numbered`: the individual as a number i, the codes as c0, c1, ..., some of them NULL."""
    register_columns(connection, "sealed", sealed.everything)
    selected = ", ".join([f"{quote_name(NUMBER)} AS i", *_spell_codes(columns)])
    connection.execute(f"CREATE TEMP VIEW numbered AS SELECT {selected} FROM sealed")


def bounded_queries(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: tuple[str, ...], sealed: Sealed
) -> list[str]:
    """The queries whose rows, together, are the bounded records: codes, then a weight if it is not one."""
    codes = ", ".join(f"c{index}" for index in range(len(columns))) or "1 AS one"
    if table.unit.column is None:
        create_encoded(connection, sealed.inside, columns, unit=None)
        return [f"SELECT {codes} FROM encoded"]
    # Who has no more records than may count is never cut, whatever else is left out.
    create_encoded(connection, sealed.inside, columns, unit=None, name="inside")
    create_encoded(connection, sealed.crowd, columns, unit=UNIT)
    parts = bound_records(table, columns)
    assert parts.cut is not None
    # Individuals that are numbered densely are grouped by position instead of by hash.
    connection.execute("SET perfect_ht_threshold = 20")
    connection.execute(f"CREATE TEMP TABLE beyond AS {parts.beyond}")
    connection.execute("RESET perfect_ht_threshold")
    queries = [f"SELECT {codes} FROM inside", parts.within]
    if table.bounding == "weight":
        return [*queries, parts.cut]
    ((over,),) = connection.execute("SELECT coalesce(sum(n), 0) FROM beyond").fetchall()
    groups = 1 + int(over) // _RANKED_ROWS
    for group in range(groups):
        chosen = f"SELECT u FROM beyond WHERE hash(u) % {groups} = {group}"
        connection.execute(f"CREATE TEMP VIEW beyond{group} AS {chosen}")
        queries.append(bound_records(table, columns, chosen=f"beyond{group}").cut or "")
    return queries


def read_codes(
    connection: duckdb.DuckDBPyConnection, query: str, columns: tuple[str, ...]
) -> Iterator[_Read]:
    """Batches of bounded records: the codes of `columns`, weights if these are not one, and their number."""
    for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
        arrays = [to_numpy(column) for column in batch.columns]
        weights = arrays[len(columns)] if len(arrays) > len(columns) else None
        yield dict(zip(columns, arrays, strict=False)), weights, batch.num_rows


def join_codes(table: Table, columns: tuple[str, ...], read: list[_Read]) -> BoundedCodes:
    """The codes of all batches that were `read`, put together."""
    codes = {
        name: np.concatenate([each[name] for each, _, _ in read]) if read else np.empty(0, np.int32)
        for name in columns
    }
    weights = None
    if table.bounding == "weight":
        whole = [np.full(rows, table.grid, np.int64) if given is None else given for _, given, rows in read]
        weights = np.concatenate([np.empty(0, np.int64), *whole])
    return BoundedCodes(codes, weights)


def count_individuals(
    connection: duckdb.DuckDBPyConnection, table: Table, question: IndividualCounts
) -> TrueCounts:
    """The number of individuals for every pair of cell and times; reads `encoded`.

    Privacy: an individual is kept in at most max_cells cells, chosen by its own records alone, and
    counts 1 for at most one question of each. Proof: docs/proofs/user-counts.md.
    """
    connection.register("questions", number_table(list_pairs(question)))
    if table.unit.column is None:
        query = render(individuals_query(table, question), dialect="duckdb")
        return fill_counts(question.columns, question.rows, [_read_columns(connection, query)])
    cell = cell_code(table, question.columns, question.columns)
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
        f"CREATE TEMP TABLE beyond AS SELECT u FROM met GROUP BY u HAVING count(*) > {question.max_cells}"
    )
    numbers = _read_columns(connection, cut_ranks(question.max_cells))
    return fill_counts(question.columns, question.rows, [numbers])


def count_lost(connection: duckdb.DuckDBPyConnection, table: Table, choice: CapChoice) -> TrueCounts:
    """The number of records that each bound of `choice` cuts off; reads `encoded`.

    Privacy: an individual adds max(0, min(n, max_records) - bound) to each number, for its n records.
    """
    query = render(lost_query(table, choice), dialect="duckdb")
    (row,) = connection.execute(query).fetchall()
    return TrueCounts(choice.columns, np.array(row, np.int64))


def count_within(
    connection: duckdb.DuckDBPyConnection, table: Table, columns: tuple[str, ...], choice: NormChoice
) -> TrueCounts:
    """The number of individuals within each norm of `choice`, then the number of all of them.

    Privacy: an individual adds 0 or 1 to each number, as its own records decide.
    """
    _create_shares(connection, table, columns, choice.columns, None)
    within = [f"count(*) FILTER (s <= {floor_square(norm)})" for norm in choice.norms]
    (row,) = connection.execute(
        f"SELECT {', '.join([*within, 'count(*)'])} FROM (SELECT i, {_SQUARED} AS s FROM shares GROUP BY i)"
    ).fetchall()
    return TrueCounts(choice.columns, np.array(row, np.int64))


def clip_counts(
    connection: duckdb.DuckDBPyConnection,
    table: Table,
    columns: tuple[str, ...],
    questions: tuple[ClippedMarginal, ...],
) -> Iterator[TrueCounts]:
    """The answers to each question, in units of 1 / grid; `columns` are those of `numbered`.

    Privacy: an individual adds a vector of L2 norm at most norm * grid to the answers of a question,
    whatever its records hold, and the vector depends on its own records alone. Proof:
    docs/proofs/contribution-norms.md.
    """
    for question in questions:
        _create_shares(connection, table, columns, question.columns, question.queries)
        bound = question.norm * (1 if question.queries is None else question.queries.grid)
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE factors AS SELECT i, {scale_factor(bound)} AS f "
            f"FROM (SELECT i, {_SQUARED} AS s FROM shares GROUP BY i) WHERE s > {floor_square(bound)}"
        )
        total = f"sum(CAST(COALESCE(f, {NORM_GRID}) AS HUGEINT) * a)"
        answers = (
            f"SELECT r, CAST(least(greatest({total}, -{SATURATED}), {SATURATED}) AS BIGINT) AS a "
            "FROM shares LEFT JOIN factors USING (i) GROUP BY r"
        )
        yield fill_counts(question.columns, question.size(table), [_read_columns(connection, answers)])


def _spell_codes(columns: tuple[str, ...]) -> list[str]:
    return [f"{quote_name(code_name(name))} AS c{index}" for index, name in enumerate(columns)]


def _read_columns(connection: duckdb.DuckDBPyConnection, query: str) -> list[NDArray[Any]]:
    return [to_numpy(column.combine_chunks()) for column in connection.sql(query).to_arrow_table().columns]


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
    connection.register("weights", number_table(list_weights(queries)))
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE shares AS SELECT i, weights.r AS r, CAST(sum(a * w) AS BIGINT) AS a "
        f"FROM ({cells}) AS cells JOIN weights ON cells.r = weights.cell GROUP BY ALL"
    )
    connection.unregister("weights")
