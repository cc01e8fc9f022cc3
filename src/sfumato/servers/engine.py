"""What the engines of servers share: all portable queries run there, and columns are known by their types."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar

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
from sfumato.core.engine.bounded import finish_sums
from sfumato.core.engine.counts import (
    PortableEngine,
    bounded_query,
    fill_counts,
    individuals_query,
    list_pairs,
    with_relations,
)
from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.table import Table
from sfumato.core.questions.counts import IndividualCounts
from sfumato.core.questions.residuals import Residuals

if TYPE_CHECKING:
    from sfumato.core.algebra.measures import Checked
    from sfumato.core.engine.aggregates import TrueAggregates
    from sfumato.core.engine.base import Fetched
    from sfumato.core.engine.counts import Beside
    from sfumato.core.engine.encode import Stored
    from sfumato.core.facts.table import Table
    from sfumato.core.questions.question import Question
    from sfumato.servers.push.plan import PushedPlan

_MOST_MASKED = 62  # columns that the bits of one number can tell apart
_MOST_SETS = 512


class ServerEngine(PortableEngine):
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
        refuse_reading_keys(table, marginals)
        with self._describe(table) as (where, stored):
            columns = check_columns(table, marginals, stored, where=where, other=self.unplain)
            self._check_encoding(table, columns, stored)

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

    def _add_streamed(
        self, table: Table, questions: tuple[Question, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        columns = questions[0].columns
        tallies = [question.start(table) for question in questions]
        with self._ask(table, columns) as ask:
            progress("bounding contributions")
            progress("counting")
            for part in ask(bounded_query(table, columns), {}):
                *arrays, weights = part
                codes = dict(zip(columns, arrays, strict=True))
                for tally in tallies:
                    tally.add(codes, weights, rows=weights.size)
        return tuple(TrueCounts(columns, tally.finish()) for tally in tallies)

    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        with self._ask(table, question.columns) as ask:
            progress("counting individuals")
            parts = ask(individuals_query(table, question), {"questions": list_pairs(question)})
            return fill_counts(question.columns, question.rows, parts)

    def _sum_residuals(
        self, table: Table, question: Residuals, progress: Callable[[str], None]
    ) -> TrueCounts:
        with self._ask(table, question.known) as ask:
            progress("adding up residuals")
            query = residuals_query(table, question, bounded_query(table, question.known))
            parts = ask(query, list_tables(question))
            sums = fill_counts(question.columns, table.cells(question.columns), parts)
            return finish_sums(question, np.array(sums.true_values))


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


def residuals_query(table: Table, question: Residuals, bounded: str) -> str:
    """The sums a by cell r, of the records that `bounded` selects; cells without records have no row.

    `bounded` gives codes c0, c1, ... of the columns `known`, and the weight w. Beside it are relations of
    `list_tables`.
    """
    cell = partial(cell_code, table, question.known)
    joins, scores = "", f"CAST({question.intercept} AS BIGINT)"
    for place, term in enumerate(question.terms):
        joins += f" JOIN term{place} ON term{place}.cell = {cell(term.columns)}"
        scores += f" + term{place}.score"
    scored = (
        f"SELECT {cell(question.columns)} AS r, targets.value AS y, {scores} AS s, w "
        f"FROM ({bounded}) AS bounded JOIN targets ON targets.cell = {cell((question.target,))}{joins}"
    )
    predicted, linked = "s", ""
    if question.link is not None:
        low, last = question.link.low, question.link.values.size - 1
        linked = f" JOIN link ON link.cell = least(greatest(s - ({low}), 0), {last})"
        predicted = "link.value"
    residual = f"y - {predicted}"
    if question.absolute:
        residual = f"abs({residual})"
    clipped = f"least(greatest({residual}, -{question.clip}), {question.clip})"
    return (
        f"SELECT r, CAST(sum(a) AS BIGINT) AS a FROM (SELECT r, CAST({clipped} AS BIGINT) * w AS a "
        f"FROM ({scored}) AS scored{linked}) AS residuals GROUP BY r"
    )


def list_tables(question: Residuals) -> Beside:
    """The lookup tables that `residuals_query` joins."""
    tables = {"targets": {"cell": np.arange(question.targets.size), "value": question.targets}}
    for place, term in enumerate(question.terms):
        tables[f"term{place}"] = {"cell": np.arange(term.scores.size), "score": term.scores}
    if question.link is not None:
        values = question.link.values
        tables["link"] = {"cell": np.arange(values.size), "value": values}
    return tables


def refuse_reading_keys(table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
    """Refuses columns whose description says how values are written: on a server, a view says it."""
    for name in all_columns(marginals):
        column = table.column(name)
        written = column.format or column.decimal != "." or column.missing or column.calendar is not None
        if written or column.missing_label is not None:
            raise SchemaError(
                f"table {table.name!r}: column {name!r} has format, decimal, missing, missing_label or a "
                "range of days, weeks or months, which are read of files and by DP-SELECT; make a view on "
                "the server that holds plain values"
            )
