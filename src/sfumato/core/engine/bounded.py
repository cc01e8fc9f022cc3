"""The bounded records of a sealed table as DuckDB reads them, and how it counts individuals in cells.

What begins with a connection reads the relation `encoded` that is made on it. At the end individuals are
held to a norm, in arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.engine.base import TrueCounts, cell_code
from sfumato.core.engine.counts import (
    bound_records,
    cut_ranks,
    fill_counts,
    individuals_query,
    list_pairs,
    number_table,
    render,
    select_part,
)
from sfumato.core.engine.encode import connect, quote_name
from sfumato.core.engine.sealed import Sealed, register_columns
from sfumato.core.exact import Withheld
from sfumato.core.facts.table import UNIT, code_name

if TYPE_CHECKING:
    from sfumato.core.algebra.measures import Clip
    from sfumato.core.engine.sealed import Sealed
    from sfumato.core.facts.table import Table
    from sfumato.core.questions.counts import IndividualCounts
    from sfumato.core.questions.residuals import Residuals, Term

_Read = tuple[dict[str, NDArray[Any]], NDArray[np.int64] | None, int]

_BATCH_ROWS = 2**20
_SATURATED = 2**62
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
        return fill_counts(question.columns, question.rows, [read_columns(connection, query)])
    cell = cell_code(table, question.columns, question.placed)
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


_ROW = "row of sfumato"


def restrict_sealed(sealed: Sealed, table: Table) -> Sealed:
    """The individuals of a sealed table that are in the part of `table`, with all their records."""
    assert table.part is not None
    if table.unit.column is not None:
        columns: tuple[str, ...] = ()
        selected = [f"{quote_name(UNIT)} AS u"]
    else:
        columns = table.part.columns
        selected = [f"{quote_name(code_name(name))} AS c{place}" for place, name in enumerate(columns)]

    def restrict(records: pa.Table) -> pa.Table:
        if not records.num_rows:
            return records
        with connect() as connection:
            numbered = records.append_column(_ROW, to_arrow(np.arange(records.num_rows)))
            register_columns(connection, "sealed", numbered)
            listed = ", ".join([*selected, f"{quote_name(_ROW)} AS place"])
            connection.execute(f"CREATE TEMP VIEW encoded AS SELECT {listed} FROM sealed")
            found = connection.sql(f"SELECT place FROM {select_part(table, columns)}").to_arrow_table()
            places = to_numpy(found.column(0).combine_chunks())
        return records.take(pa.array(np.sort(places)))

    return Sealed(
        sealed.names, sealed.most, restrict(sealed.inside), restrict(sealed.crowd), sealed.individuals
    )


class BoundedCodes(Withheld):
    """The codes of bounded records, and their weights in units of 1 / grid where these are not all one.

    It keeps the scores of the last model that was asked about: the next one differs from it in a term or
    two. Never leaves the private room.
    """

    def __init__(self, codes: Mapping[str, NDArray[Any]], weights: NDArray[np.int64] | None) -> None:
        self._codes = codes
        self._weights = weights
        self._rows = len(next(iter(codes.values()))) if codes else 0
        self._scores = np.zeros(self._rows, np.int64)
        self._terms: dict[tuple[str, ...], Term] = {}

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return sum(each.nbytes for each in self._codes.values()) + 2 * self._scores.nbytes

    def add(self, sums: NDArray[np.int64], question: Residuals, table: Table) -> None:
        """Adds the clipped residuals of all records to `sums`, each to the cell of its record.

        Privacy: what a record adds is at most clip times its weight, whatever the model and the record are.
        """
        scores = self._score(question, table) + question.intercept
        predicted = scores if question.link is None else question.link.apply(scores)
        residuals = question.targets[self._codes[question.target]] - predicted
        if question.absolute:
            residuals = np.abs(residuals)
        residuals = np.clip(residuals, -question.clip, question.clip)
        residuals = residuals * (table.grid if self._weights is None else self._weights)
        if not question.columns:
            sums[0] += residuals.sum()
            return
        cells = self._cells(question.columns, table)
        # Sums below 2^53 are exact in the floats of bincount.
        if question.clip * table.contribution < 2**53 // max(1, self._rows):
            sums += np.bincount(cells, weights=residuals, minlength=sums.size).astype(np.int64)
        else:
            np.add.at(sums, cells, residuals)

    def _score(self, question: Residuals, table: Table) -> NDArray[np.int64]:
        wanted = {term.columns: term for term in question.terms}
        if len(wanted) != len(question.terms):  # two terms of the same columns
            self._terms, self._scores = {}, np.zeros(self._rows, np.int64)
            return sum(
                (term.scores[self._cells(term.columns, table)] for term in question.terms), self._scores
            )
        for columns in {**self._terms, **wanted}:
            old, new = self._terms.get(columns), wanted.get(columns)
            if old is new or (old is not None and new is not None and old.scores is new.scores):
                continue
            size = table.cells(columns)
            change = np.zeros(size, np.int64) if new is None else new.scores
            change = change if old is None else change - old.scores
            if change.any():
                self._scores = self._scores + change[self._cells(columns, table)]
        self._terms = wanted
        return self._scores

    def _cells(self, columns: tuple[str, ...], table: Table) -> NDArray[Any]:
        if len(columns) == 1:
            return self._codes[columns[0]]
        first, second = columns
        cells = self._codes[first].astype(np.int64) * table.column(second).size
        return np.asarray(cells + self._codes[second])


def sum_residuals(question: Residuals, table: Table, parts: Iterable[BoundedCodes]) -> TrueCounts:
    """The sums of all parts, or the answers of queries over them."""
    sums = np.zeros(table.cells(question.columns), np.int64)
    for part in parts:
        part.add(sums, question, table)
    return finish_sums(question, sums)


def finish_sums(question: Residuals, sums: NDArray[np.int64]) -> TrueCounts:
    """The sums, or with queries their answers."""
    if question.queries is not None:
        sums = question.queries.apply(sums)
    return TrueCounts(question.columns, sums)


def number_people(people: pa.Array) -> NDArray[np.int64]:
    """A number for each individual, by its number or its stored name."""
    if not pa.types.is_integer(people.type):
        people = people.dictionary_encode().indices
    numbers = to_numpy(people).astype(np.int64)
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < 2**31:
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers


def sort_places(pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers in order, and the place of each: sorted as one number where both fit, which is faster."""
    bits = int(pairs.size).bit_length()
    if not pairs.size or int(pairs.max()).bit_length() + bits > 63:
        order = np.argsort(pairs, kind="stable")
        return pairs[order], order
    packed = (pairs << bits) | np.arange(pairs.size)
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def find_starts(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places where numbers in order become other ones, the first among them."""
    first = np.ones(numbers.size, np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return np.flatnonzero(first)


def add_up(values: NDArray[Any], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[Any]:
    """The sums of values from each start on; in numbers without end where they could be too large."""
    if not values.size:
        return np.zeros(0, np.int64)
    farthest = max(int(values.max()), -int(values.min())) * int(sizes.max())
    return np.add.reduceat(values.astype(np.int64 if farthest < 2**62 else object), starts)


def hold_to_norm(
    shares: NDArray[np.int64],
    clip: Clip,
    *,
    firsts: NDArray[np.int64],
    cells: NDArray[np.int64],
    groups: int,
) -> NDArray[np.int64]:
    """The sums over individuals of their shares, each from one of `firsts` on; or who has which norm."""
    sizes = np.diff(firsts, append=shares.size)
    if clip.norm == "L1" or groups == 1:
        norms = add_up(np.abs(shares), firsts, sizes)
    else:
        # Exact sums, since what doubles round must not depend on who else is there.
        high, low = np.divmod(np.abs(shares), 2**26)
        parts = (add_up(each, firsts, sizes) for each in (high * high, high * low, low * low))
        first, second, third = (each.astype(np.float64) for each in parts)
        # Never less than the root: 2^-50 is more than all that doubles round.
        root = np.sqrt(first * 2.0**52 + second * 2.0**27 + third)
        norms = np.floor(root * (1 + 2.0**-50)).astype(np.int64) + 1
    if clip.bound is None:
        # Here, since most commands count cells, and need no statement's language.
        from sfumato.core.algebra.measures import MOST_STEPS, tally_norms

        return tally_norms(np.minimum(norms, MOST_STEPS).astype(np.int64))
    norms = np.repeat(norms, sizes)
    over = norms > clip.bound
    scaled = shares.copy()
    scaled[over] = np.sign(shares[over]) * divide(np.abs(shares[over]), clip.bound, norms[over])
    large = clip.bound * max(1, firsts.size) >= 2**62
    values = np.zeros(groups, object if large else np.int64)
    np.add.at(values, cells, scaled.astype(values.dtype))
    return np.clip(values, -_SATURATED, _SATURATED).astype(np.int64)


def divide(shares: NDArray[np.int64], bound: int, norms: NDArray[Any]) -> NDArray[np.int64]:
    """Return shares * bound // norms, exactly; shares are up to 2^51, and the norms beyond the bound."""
    if norms.size and (norms.dtype == object or int(norms.max()) >= 2**60):
        large: NDArray[np.int64] = (shares.astype(object) * bound // norms).astype(np.int64)
        return large
    # Doubles are off by less than one. The rest is below 2^62, so that it is right although products wrap.
    guess = np.floor(shares * (bound / norms)).astype(np.int64)
    rest = shares * np.int64(bound) - guess * norms
    exact: NDArray[np.int64] = guess + rest // norms
    return exact
