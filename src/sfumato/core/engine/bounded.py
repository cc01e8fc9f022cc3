"""The bounded records of a sealed table as DuckDB reads them, and how it counts individuals in cells.

Everything here reads the relation `encoded` that is made on one connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.engine.base import TrueCounts, cell_code
from sfumato.core.engine.counts import (
    bound_records,
    cut_ranks,
    fill_counts,
    individuals_query,
    list_pairs,
    number_table,
    render,
)
from sfumato.core.engine.encode import quote_name
from sfumato.core.engine.sealed import register_columns
from sfumato.core.facts.table import UNIT, code_name

if TYPE_CHECKING:
    from sfumato.core.engine.residuals import BoundedCodes
    from sfumato.core.engine.sealed import Sealed
    from sfumato.core.facts.table import Table
    from sfumato.core.questions.counts import IndividualCounts

_Read = tuple[dict[str, NDArray[Any]], NDArray[np.int64] | None, int]

_BATCH_ROWS = 2**20
_RANKED_ROWS = 3_000_000  # what is ranked at once: a window does not spill all that it holds


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
    complete: bool = True,
) -> None:
    """Creates a relation of the records: the individual as u, the codes as c0, c1, ...

    If it is `complete`, of those that have all codes; else some are NULL.
    """
    register_columns(connection, f"sealed {name}", records)
    selected = _spell_codes(columns) if unit is None else [f"{quote_name(unit)} AS u", *_spell_codes(columns)]
    tested = columns if complete else ()
    kept = " AND ".join(f"{quote_name(code_name(column))} IS NOT NULL" for column in tested)
    query = f"SELECT {', '.join(selected) or '1 AS one'} FROM {quote_name(f'sealed {name}')}"
    connection.execute(f"CREATE TEMP VIEW {name} AS {query}" + (f" WHERE {kept}" if kept else ""))


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
    from sfumato.core.engine.residuals import BoundedCodes as Codes  # here, since few questions need it

    return Codes(codes, weights)


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
        return fill_counts(question.columns, question.rows, [read_columns(connection, query)])
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
    numbers = read_columns(connection, cut_ranks(question.max_cells))
    return fill_counts(question.columns, question.rows, [numbers])


def _spell_codes(columns: tuple[str, ...]) -> list[str]:
    return [f"{quote_name(code_name(name))} AS c{index}" for index, name in enumerate(columns)]


def read_columns(connection: duckdb.DuckDBPyConnection, query: str) -> list[NDArray[Any]]:
    """The columns of the answer to a query."""
    return [to_numpy(column.combine_chunks()) for column in connection.sql(query).to_arrow_table().columns]
