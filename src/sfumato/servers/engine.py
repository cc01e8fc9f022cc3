"""What the engines of servers share: all portable queries run there, and columns are known by their types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Never

import numpy as np
from numpy.typing import NDArray

from sfumato.core.engine.base import (
    TrueCounts,
    all_columns,
    cell_code,
    check_columns,
    describe_columns,
    refuse_large_marginals,
)
from sfumato.core.engine.counts import (
    CountingEngine,
    bounded_query,
    fill_counts,
    individuals_query,
    list_pairs,
    with_relations,
)
from sfumato.core.errors import SourceError
from sfumato.core.facts.table import Table
from sfumato.core.questions.counts import IndividualCounts
from sfumato.servers.push.words import is_plain

if TYPE_CHECKING:
    from sfumato.core.algebra.measures import Checked
    from sfumato.core.engine.aggregates import TrueAggregates
    from sfumato.core.engine.base import Fetched
    from sfumato.core.engine.encode import Stored
    from sfumato.core.facts.table import Table
    from sfumato.servers.push.plan import PushedPlan

_MOST_MASKED = 62  # columns that the bits of one number can tell apart
_MOST_SETS = 512


class ServerEngine(CountingEngine):
    """An engine whose server runs all of the portable queries."""

    unplain: ClassVar[str]
    """What is wrong with a column of a type that is no plain value, and what to do about it."""

    @contextmanager
    @abstractmethod
    def _describe(self, table: Table) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        """Yields how errors call the source of a table, and its stored columns, from public facts alone."""
        yield "", {}

    @abstractmethod
    def _check_encoding(self, table: Table, columns: tuple[str, ...], stored: Mapping[str, Stored]) -> None:
        """Raises an error if the columns cannot be encoded as their domains say. Reads no record."""

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error that names the table, the column and the remedy. Reads no record."""
        refuse_large_marginals(table, marginals)
        with self._describe(table) as (where, stored):
            columns = check_columns(table, marginals, stored, where=where, other=self.unplain)
            plain = tuple(name for name in columns if is_plain(table.column(name), stored))
            self._check_encoding(table, plain, stored)

    def encodes(self, table: Table, columns: Iterable[str]) -> bool:
        """Returns whether the server can tell the codes of `columns`; else they are fetched."""
        with self._describe(table) as (_, stored):
            return all(is_plain(table.column(name), stored) for name in columns)

    def describe(self, table: Table) -> dict[str, str]:
        """Returns the kinds of the stored columns that a query may name, from the catalogue alone."""
        with self._describe(table) as (where, stored):
            return describe_columns(table, stored, where=where)

    @abstractmethod
    def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """Returns the wanted columns of a table for statements; they are read when asked for."""

    def push(self, table: Table, checked: Checked) -> PushedPlan | None:
        """Returns the query as the server runs it, None if its columns are fetched; public facts decide."""
        return None

    def aggregate(
        self, table: Table, pushed: PushedPlan, wanted: frozenset[str]
    ) -> tuple[TrueAggregates, Fetched | None]:
        """The aggregates of all individuals within their bound, and the wanted columns of the others."""
        raise NotImplementedError

    def _add_streamed(self, *_: object) -> Never:
        raise NotImplementedError  # what reads record by record is counted here: see `ProjectEngine`

    def _sum_residuals(self, *_: object) -> Never:
        raise NotImplementedError

    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        with self._ask(table, question.columns) as ask:
            progress("counting individuals")
            parts = ask(individuals_query(table, question), {"questions": list_pairs(question)})
            return fill_counts(question.columns, question.rows, parts)


def counted_query(table: Table, marginals: tuple[tuple[str, ...], ...]) -> str:
    """Returns the sparse counts of many marginals: the place m of a marginal, a cell, and its count n.

    `encoded` has the columns `all_columns(marginals)`. The bounded records are read once for every few
    hundred marginals. Cells without records have no row.
    """
    columns = all_columns(marginals)
    parts = [_count_chunk(table, columns, marginals, chunk) for chunk in _cut_chunks(marginals)]
    return with_relations({"bounded": bounded_query(table, columns)}, " UNION ALL ".join(parts))


def collect_cells(
    table: Table,
    marginals: tuple[tuple[str, ...], ...],
    occupied: tuple[tuple[str, ...], ...],
    parts: Iterable[Iterable[NDArray[np.int64]]],
) -> tuple[TrueCounts, ...]:
    """Returns the counts of `marginals` over all their cells, then those of `occupied` where records are.

    Each part has the places of marginals, cells of them, and the counts there; no cell is in two parts.
    """
    dense = [np.zeros(table.cells(columns), np.int64) for columns in marginals]
    sparse: list[list[NDArray[np.int64]]] = [[np.empty((2, 0), np.int64)] for _ in occupied]
    for places, cells, counts in parts:
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(len(dense) + len(sparse) + 1))
        for place in range(len(dense) + len(sparse)):
            mine = order[ends[place] : ends[place + 1]]
            if place < len(dense):
                dense[place][cells[mine]] = counts[mine]
            else:
                sparse[place - len(dense)].append(np.stack((cells[mine], counts[mine])).astype(np.int64))
    found = [TrueCounts(columns, values) for columns, values in zip(marginals, dense, strict=True)]
    for columns, listed in zip(occupied, sparse, strict=True):
        cells, counts = np.concatenate(listed, axis=1)
        order = np.argsort(cells)
        found.append(TrueCounts(columns, counts[order], cells[order]))
    return tuple(found)


def _cut_chunks(marginals: tuple[tuple[str, ...], ...]) -> list[list[int]]:
    """The places of the marginals in parts that one scan can tell apart by the columns they group by."""
    chunks: list[list[int]] = []
    for place, marginal in enumerate(marginals):
        for chunk in chunks:
            sets = [frozenset(marginals[other]) for other in chunk]
            names = frozenset(marginal).union(*sets)
            if len(names) <= _MOST_MASKED and len(sets) < _MOST_SETS and frozenset(marginal) not in sets:
                chunk.append(place)
                break
        else:
            chunks.append([place])
    return chunks


def _count_chunk(
    table: Table, columns: tuple[str, ...], marginals: tuple[tuple[str, ...], ...], places: list[int]
) -> str:
    used = list(all_columns(tuple(marginals[place] for place in places)))
    codes = [f"c{columns.index(name)}" for name in used]
    # Where no record is weighted, rows are counted, which is faster than adding up.
    counted = f"CAST({'sum(w)' if table.bounding == 'weight' else f'count(*) * {table.grid}'} AS BIGINT) AS n"
    if len(places) == 1:
        (place,) = places
        cell = cell_code(table, columns, marginals[place])
        return (
            f"SELECT CAST({place} AS BIGINT) AS m, cell, {counted} "
            f"FROM (SELECT {cell} AS cell, w FROM bounded) AS placed GROUP BY cell"
        )
    sets = ", ".join(
        f"({', '.join(f'c{columns.index(name)}' for name in marginals[place])})" for place in places
    )
    # A bit for every column that a row is not grouped by tells the marginals apart.
    mask = " + ".join(f"CAST(GROUPING({code}) AS BIGINT) * {2**bit}" for bit, code in enumerate(codes))
    grouped = (
        f"SELECT {mask} AS g, {', '.join(codes)}, {counted} FROM bounded "
        f"GROUP BY GROUPING SETS ({sets}) HAVING count(*) > 0"
    )
    masks = {
        place: sum(2**bit for bit, name in enumerate(used) if name not in marginals[place])
        for place in places
    }
    which = " ".join(f"WHEN {mask} THEN {place}" for place, mask in masks.items())
    cells = " ".join(
        f"WHEN {mask} THEN {cell_code(table, columns, marginals[place])}" for place, mask in masks.items()
    )
    return (
        f"SELECT CAST(CASE g {which} END AS BIGINT) AS m, CASE g {cells} END AS cell, n "
        f"FROM ({grouped}) AS grouped"
    )


def wanted_columns(stored: Mapping[str, Stored], wanted: frozenset[str], unit: str | None) -> list[str]:
    """Gives the stored columns among those that are `wanted`, and `unit`, the one that names individuals."""
    asked = {*wanted, unit}
    return [
        name
        for name, each in stored.items()
        if each.kind != "other" and not asked.isdisjoint((name, name.lower()))
    ]


def refuse_twins(names: Iterable[str], *, where: str) -> None:
    """Refuses columns that differ in case at most: statements could not tell them apart."""
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.get(name.casefold())
        if twin is not None:
            raise SourceError(f"{where}: columns {twin!r} and {name!r} differ in case at most; rename one")
        seen[name.casefold()] = name
