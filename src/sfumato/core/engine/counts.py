"""How exact counts are made: by numpy as codes stream by, and by SQL that bounds every individual.

The portable queries read a relation `encoded`: the individual as u, the codes of columns as c0, c1, ..., NULL
outside a domain. `CountingEngine` asks them of any database, `ServerEngine` sends all of them to PostgreSQL
and Spark. For individuals in cells DuckDB has a variant of its own in `bounded`: over two million records the
portable one takes 1.6 to 2.2 times as long where a thousand numbers of records are asked of every cell.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow
from sfumato.core.engine.base import TrueCounts, all_columns, cell_code, check_part, refuse_large_marginals
from sfumato.core.engine.encode import quote_text
from sfumato.core.facts.part import SALT
from sfumato.core.facts.table import Table, cap_records
from sfumato.core.questions.choices import NormChoice
from sfumato.core.questions.counts import NORM_GRID, ClippedMarginal, IndividualCounts
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Residuals

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sfumato.core.facts.table import PublicTable, Table
    from sfumato.core.questions.choices import AnyQuestion, NormChoice
    from sfumato.core.questions.counts import (
        CappedMarginal,
        ClippedMarginal,
        IndividualCounts,
        Marginal,
        OccupiedCells,
    )
    from sfumato.core.questions.question import Question


Dialect = Literal["duckdb", "postgres", "spark"]

Beside = Mapping[str, Mapping[str, NDArray[Any]]]
Ask = Callable[[str, Beside], Iterable[Iterable[NDArray[np.int64]]]]
"""Answers a query that reads `encoded` and relations of whole numbers beside it: columns, in parts."""

MOST_RECORDS = 2**40
"""An individual with more records counts for nothing under a norm, so that no sum can overflow."""
LARGEST_SQUARE = 2**120
_HELD = 2**22  # cells of single records that wait to be merged
_SATURATED = 2**62
_SHRUNK = Fraction(1, 2**40)
_HALF = 2**60  # the words into which a sum of squares is cut
_WIDE = "DECIMAL(38, 0)"
_SQUARED = f"sum(CAST(a AS {_WIDE}) * a)"


class Tally:
    """The running counts of one marginal, every cell in its place."""

    def __init__(self, table: Table, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._sizes = [table.column(name).size for name in columns]
        self._grid = table.grid
        self._counts = np.zeros(table.cells(columns), np.int64)

    def add(
        self, codes: dict[str, NDArray[np.int64]], weights: NDArray[np.int64] | None, *, rows: int
    ) -> None:
        """Counts one batch: every record for one whole, or for its weight in units of 1 / grid."""
        cells = _find_cells(self._columns, self._sizes, codes, rows=rows)
        if weights is not None:
            np.add.at(self._counts, cells, weights)
        elif cells.size * 4 < self._counts.size:
            np.add.at(self._counts, cells, self._grid)
        else:
            self._counts += np.bincount(cells, minlength=self._counts.size) * self._grid

    def finish(self) -> TrueCounts:
        """The counts of all cells."""
        return TrueCounts(self._columns, self._counts)


class OccupiedTally:
    """The running counts of one marginal that may have up to 2^63 cells: only those with records."""

    def __init__(self, table: Table, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._sizes = [table.column(name).size for name in columns]
        self._grid = table.grid
        self._cells = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._waiting: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._held = 0

    def add(
        self, codes: dict[str, NDArray[np.int64]], weights: NDArray[np.int64] | None, *, rows: int
    ) -> None:
        """Counts one batch, as a Tally does."""
        cells = _find_cells(self._columns, self._sizes, codes, rows=rows)
        counted = _sum_by_cell(cells, np.full(rows, self._grid, np.int64) if weights is None else weights)
        self._waiting.append(counted)
        self._held += counted[0].size
        if self._held > max(_HELD, self._cells.size):
            self._merge()

    def finish(self) -> TrueCounts:
        """The counts and their cells in ascending order."""
        self._merge()
        return TrueCounts(self._columns, self._counts, self._cells)

    def _merge(self) -> None:
        parts = [(self._cells, self._counts), *self._waiting]
        cells, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self._cells, self._counts = _sum_by_cell(cells, counts)
        self._waiting, self._held = [], 0


@dataclass(frozen=True, slots=True)
class BoundedParts:
    """Queries for the bounded records: of individuals `within` the bound, and what is `cut` of the others.

    Both read `beyond`, the individuals over the bound. Under `weight`, `cut` ends in a weight w; all other
    records are whole. For a table of rows, `within` is all.
    """

    within: str
    beyond: str | None = None
    cut: str | None = None


def bound_records(
    table: Table, columns: tuple[str, ...], *, source: str = "encoded", chosen: str = "beyond"
) -> BoundedParts:
    """The parts of the bounded records of `source`, which has no NULL among its codes.

    With `chosen`, the name of a part of `beyond`, what is cut is of these individuals only.

    Individuals within the bound are read as they are. Of the others, `truncate` keeps max_records
    records in the order of a digest of that individual and the record's codes, which no other
    individual's records can change; records with equal codes are interchangeable.
    """
    codes = [f"c{index}" for index in range(len(columns))]
    listed = ", ".join(codes) or "1 AS one"
    if table.unit.column is None:
        return BoundedParts(f"SELECT {listed} FROM {source}")
    most = table.unit.max_records
    beyond = f"SELECT u, count(*) AS n FROM {source} GROUP BY u HAVING count(*) > {most}"
    met = f"SELECT 1 FROM beyond WHERE beyond.u = {source}.u"
    within = f"SELECT {listed} FROM {source} WHERE NOT EXISTS ({met})"
    of_these = met.replace("beyond", chosen)
    if table.bounding == "weight":
        owned = ", ".join(f"{source}.{code}" for code in codes) or "1 AS one"
        weight = f"CAST({table.contribution} // beyond.n AS BIGINT)"
        cut = f"SELECT {owned}, {weight} AS w FROM {source} JOIN beyond ON beyond.u = {source}.u"
        return BoundedParts(within, beyond, cut)
    ranked = (
        f"SELECT {listed}, row_number() OVER (PARTITION BY u ORDER BY {_digest(codes)}) AS place "
        f"FROM {source} WHERE EXISTS ({of_these})"
    )
    kept = ", ".join(codes) or "one"
    cut = f"SELECT {kept} FROM ({ranked}) AS ranked WHERE place <= {most}"
    return BoundedParts(within, beyond, cut)


def bounded_query(table: Table, columns: tuple[str, ...]) -> str:
    """The rows of bounded records: codes c0, c1, ..., then the weight w in units of 1 / table.grid.

    Records with a NULL among their codes, and those of nobody, are left out.
    """
    parts = bound_records(table, columns, source="kept")
    relations = {"kept": _kept(table, columns)}
    codes = ", ".join(f"c{index}" for index in range(len(columns))) or "one"
    whole = f"{codes}, CAST({table.grid} AS BIGINT) AS w"
    rows = f"SELECT {whole} FROM ({parts.within}) AS inside"
    if parts.beyond is not None:
        relations["beyond"] = parts.beyond
        listed = f"{codes}, w" if table.bounding == "weight" else whole
        rows += f" UNION ALL SELECT {listed} FROM ({parts.cut}) AS outside"
    return with_relations(relations, rows)


def individuals_query(table: Table, question: IndividualCounts) -> str:
    """The number n of individuals for every `question` that counts any.

    Reads `encoded`, with the columns of `question`, and `questions` (cell, times, question), which ascend by
    cell, then by times.
    """
    kept = _kept(table, question.columns)
    cell = cell_code(table, question.columns, question.placed)
    if table.unit.column is None:
        # Every row is an individual of its own, once in one cell.
        return (
            f"SELECT question, count(*) AS n FROM (SELECT {cell} AS cell FROM ({kept}) AS kept) AS rows_in "
            "JOIN questions ON questions.cell = rows_in.cell WHERE times = 1 GROUP BY question"
        )
    relations = {
        "shares": f"SELECT u, cell, count(*) AS n FROM (SELECT u, {cell} AS cell FROM ({kept}) AS kept) "
        "AS placed GROUP BY u, cell",
        # The question with the largest `times` of a cell is the last one.
        "met": "SELECT u, shares.cell AS cell, max(times) AS times, max(question) AS question FROM shares "
        "JOIN questions ON questions.cell = shares.cell AND shares.n >= questions.times "
        "GROUP BY u, shares.cell",
        "beyond": f"SELECT u FROM met GROUP BY u HAVING count(*) > {question.max_cells}",
    }
    return with_relations(relations, cut_ranks(question.max_cells))


def cut_ranks(most: int) -> str:
    """The number n of individuals for every question, each in `most` cells; reads `met` and `beyond`."""
    # Cells that count for more records first, so that little is lost; ties by a digest nobody else moves.
    order = f"times DESC, {_digest(['cell'])}, cell"
    among = "(SELECT 1 FROM beyond WHERE beyond.u = met.u)"
    ranked = (
        f"SELECT question, row_number() OVER (PARTITION BY u ORDER BY {order}) AS place "
        f"FROM met WHERE EXISTS {among}"
    )
    return (
        f"SELECT question, count(*) AS n FROM (SELECT question FROM met WHERE NOT EXISTS {among} UNION ALL "
        f"SELECT question FROM ({ranked}) AS ranked WHERE place <= {most}) AS counted GROUP BY question"
    )


def within_query(table: Table, columns: tuple[str, ...], choice: NormChoice, *, crowds: bool = True) -> str:
    """One row: the number of individuals within each norm of `choice`, then that of all individuals."""
    within = [
        f"count(*) FILTER (WHERE s <= {floor_square(norm)}) AS k{place}"
        for place, norm in enumerate(choice.norms)
    ]
    squares = f"SELECT u, {_SQUARED} AS s FROM shares GROUP BY u"
    rows = f"SELECT {', '.join([*within, 'count(*) AS everybody'])} FROM ({squares}) AS squares"
    return with_relations(_shares(table, columns, choice.columns, weighted=False, crowds=crowds), rows)


def clipped_query(
    table: Table, columns: tuple[str, ...], question: ClippedMarginal, *, crowds: bool = True
) -> str:
    """The answers to a question with a norm: its place r and the sum a, in units of 1 / grid.

    Reads `encoded`, with `columns`, and `weights` (cell, r, w) if the question has queries. Answers that
    nobody adds to have no row. Without `crowds`, nobody has more than MOST_RECORDS records.
    """
    bound = question.norm * (1 if question.queries is None else question.queries.grid)
    weighted = question.queries is not None
    relations = _shares(table, columns, question.columns, weighted=weighted, crowds=crowds)
    relations["factors"] = (
        f"SELECT u, {scale_factor(bound)} AS f FROM (SELECT u, {_SQUARED} AS s FROM shares GROUP BY u) "
        f"AS squares WHERE s > {floor_square(bound)}"
    )
    total = f"sum(CAST(coalesce(f, {NORM_GRID}) AS {_WIDE}) * a)"
    rows = (
        f"SELECT r, CAST(least(greatest({total}, -{_SATURATED}), {_SATURATED}) AS BIGINT) AS a "
        "FROM shares LEFT JOIN factors ON factors.u = shares.u GROUP BY r"
    )
    return with_relations(relations, rows)


def scale_factor(bound: Fraction) -> str:
    """A whole number f with f * sqrt(s) <= NORM_GRID * bound, where s is a sum of squares above bound^2.

    The root is off by less than one part in 2^50, and is taken of a number that is smaller by one part
    in 2^40, so that its floor is certain. Casts of wide numbers round as each engine likes, so s is
    put together from two words of 60 bits, whose casts and sum round in one way only.
    """
    square = (NORM_GRID * bound) ** 2 * (1 - _SHRUNK)
    # A square below one gives the factor zero. From 2^160 on no individual is over the bound.
    constant = 0.0 if square < 1 else float(min(square, Fraction(2**160)))
    high, low = (f"CAST(CAST({word} AS BIGINT) AS DOUBLE)" for word in (f"s // {_HALF}", f"s % {_HALF}"))
    put = f"({high} * {_double(float(_HALF))} + {low})"
    return f"CAST(floor(sqrt({_double(constant)} / {put})) AS BIGINT)"


def floor_square(bound: Fraction) -> int:
    """The largest sum of squares of whole numbers within `bound`; no larger one than 2^120 occurs."""
    return min(math.floor(bound**2), LARGEST_SQUARE)


@lru_cache(maxsize=64)
def render(sql: str, *, dialect: Dialect) -> str:
    """`sql` in the words of `dialect`.

    >>> render("SELECT CAST(md5(a) AS VARCHAR) FROM t", dialect="spark")
    'SELECT CAST(MD5(a) AS STRING) FROM t'
    """
    import sqlglot  # slow to load, and not needed before something is counted
    from sqlglot import exp

    def change(node: exp.Expr) -> exp.Expr:
        # Digests are compared by their bytes, whatever the language of a database.
        is_digest = isinstance(node, exp.MD5) and not isinstance(node.parent, exp.Collate)
        if dialect == "postgres" and is_digest:
            return exp.Collate(this=node.copy(), expression=exp.to_identifier("C", quoted=True))
        # There, whole numbers of 128 bits are faster than decimals, and are divided exactly.
        is_wide = isinstance(node, exp.DataType) and node.sql(dialect="duckdb") == _WIDE
        if dialect == "duckdb" and is_wide:
            return exp.DataType.build("HUGEINT", dialect="duckdb")
        return node

    return sqlglot.parse_one(sql, read="duckdb").transform(change).sql(dialect=dialect)


def fill_counts(
    columns: tuple[str, ...], size: int, parts: Iterable[Iterable[NDArray[np.int64]]]
) -> TrueCounts:
    """Counts that are zero but at the places that the parts name: each is places, then their counts."""
    values = np.zeros(size, np.int64)
    for places, counts in parts:
        values[places] = counts
    return TrueCounts(columns, values)


def list_pairs(question: IndividualCounts) -> dict[str, NDArray[np.int64]]:
    """The pairs of cell and times, numbered, as columns of whole numbers."""
    places = np.arange(question.rows, dtype=np.int64)
    return {"cell": question.cells, "times": question.times, "question": places}


def list_weights(queries: Queries) -> dict[str, NDArray[np.integer[Any]]]:
    """The weights w of cells in queries r, as columns of whole numbers."""
    rows = np.repeat(np.arange(queries.rows, dtype=np.int64), np.diff(queries.starts))
    return {"cell": queries.members, "r": rows, "w": queries.weights}


def number_table(columns: Mapping[str, NDArray[Any]]) -> pa.Table:
    """A relation of public whole numbers."""
    return pa.table({name: to_arrow(values) for name, values in columns.items()})


def _find_cells(
    columns: tuple[str, ...], sizes: list[int], codes: dict[str, NDArray[np.int64]], *, rows: int
) -> NDArray[np.int64]:
    """The cell of every record, in row-major order."""
    cells = np.zeros(rows, np.int64)
    for name, size in zip(columns, sizes, strict=True):
        cells *= size
        cells += codes[name]
    return cells


def _sum_by_cell(
    cells: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The different cells in ascending order, and the sum of the counts of each."""
    order = np.argsort(cells, kind="stable")
    ordered = cells[order]
    first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    if not starts.size:
        return ordered, counts
    return ordered[starts], np.add.reduceat(counts[order], starts)


def _kept(table: Table, columns: tuple[str, ...]) -> str:
    codes = [f"c{index}" for index in range(len(columns))]
    if table.unit.column is not None:
        codes.insert(0, "u")
    filters = " AND ".join(f"{code} IS NOT NULL" for code in codes)
    source = select_part(table, encoded_columns(table, columns))
    return f"SELECT {', '.join(codes) or '1 AS one'} FROM {source}" + (f" WHERE {filters}" if filters else "")


def _digest(columns: list[str]) -> str:
    return f"md5(concat_ws(':', {', '.join(f'CAST({name} AS VARCHAR)' for name in ['u', *columns])}))"


def _shares(
    table: Table, columns: tuple[str, ...], marginal: tuple[str, ...], *, weighted: bool, crowds: bool
) -> dict[str, str]:
    """Relations that end in `shares`: what individual u adds to answer r, a whole number a, unscaled.

    A record without a code in a column of this marginal is left out of it, and of it only. Where there may
    be `crowds`, individuals with more than MOST_RECORDS records are left out.
    """
    filters = ["u IS NOT NULL", *(f"c{columns.index(name)} IS NOT NULL" for name in marginal)]
    placed = (
        f"SELECT u, {cell_code(table, columns, marginal)} AS r FROM encoded WHERE {' AND '.join(filters)}"
    )
    relations = {}
    few = ""
    if crowds:
        many = f"SELECT u FROM encoded WHERE u IS NOT NULL GROUP BY u HAVING count(*) > {MOST_RECORDS}"
        relations["crowds"] = many
        few = "WHERE NOT EXISTS (SELECT 1 FROM crowds WHERE crowds.u = placed.u) "
    cells = f"SELECT u, r, count(*) AS a FROM ({placed}) AS placed {few}GROUP BY u, r"
    if not weighted:
        return {**relations, "shares": cells}
    sums = (
        "SELECT u, weights.r AS r, CAST(sum(a * w) AS BIGINT) AS a "
        "FROM cells JOIN weights ON weights.cell = cells.r GROUP BY u, weights.r"
    )
    return {**relations, "cells": cells, "shares": sums}


def _double(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"


def with_relations(relations: dict[str, str], query: str) -> str:
    """Returns `query` with the relations that it reads, each by its name."""
    listed = ", ".join(f"{name} AS ({text})" for name, text in relations.items())
    return f"WITH {listed} {query}"


def encoded_columns(table: Table, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that `encoded` needs for a question about `columns`: those of the digest come after."""
    if table.part is None or table.unit.column is not None:
        return columns
    return tuple(dict.fromkeys((*columns, *table.part.columns)))


def select_part(table: Table, columns: tuple[str, ...], *, source: str = "encoded") -> str:
    """The relation of those records of `source` that are in the part of `table`; of all if it is no part.

    `columns` are those of the codes c0, c1, ... of `source`, of which a table of rows has all of the digest.
    """
    part = table.part
    if part is None:
        return source
    if table.unit.column is not None:
        rows, digested = source, ["CAST(u AS VARCHAR)"]
    else:
        codes = [f"c{columns.index(name)}" for name in part.columns]
        listed = ", ".join(codes)
        # Equal records are numbered; which of them has which number makes no difference.
        rows = (
            f"(SELECT *, row_number() OVER (PARTITION BY {listed} ORDER BY {listed}) AS copy FROM {source})"
        )
        digested = [f"CAST(coalesce(CAST({code} AS BIGINT), -1) AS VARCHAR)" for code in codes]
        digested.append("CAST(copy AS VARCHAR)")
    digest = f"substr(md5(concat_ws(':', {quote_text(SALT)}, {', '.join(digested)})), 1, 8)"
    within = f"{digest} >= '{part.first}'"
    if part.beyond is not None:
        within += f" AND {digest} < '{part.beyond}'"
    return f"(SELECT * FROM {rows} AS all_parts WHERE {within}) AS in_part"


class CountingEngine(ABC):
    """The contract that every engine keeps: exact counts out, each individual held to its bounds.

    What holds individuals to norms, and chooses among bounds, are the queries of this module.
    """

    crowds: ClassVar[bool] = True
    """Whether somebody may have more than MOST_RECORDS records."""

    def count(
        self, table: Table, questions: tuple[AnyQuestion, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The exact answer to every question, in their order, each individual bounded as the question states.

        All cells are counted in one pass over the records. Of a choice of a norm, the answer is the number of
        individuals within each norm, then that of all; of a choice of a bound, the number of records that
        each bound cuts off.
        """
        asked = defaultdict[str, list[Any]](list)
        # Before a record is read: what fails later, for the records that it meets, would tell about them.
        for question in questions:
            question.check(table)
            check_part(table, question)
            if question.stated.bounding == "norm":
                refuse_large_marginals(table, (question.columns,))
            asked[question.stated.tally].append(question)
        found = self._count_marginals(table, asked["cells"], asked["occupied"], progress)
        if asked["clipped"]:
            clipped = tuple(asked["clipped"])
            found |= zip(clipped, self._count_clipped(table, clipped, progress), strict=True)
        # One pass over the records for all that are about the same columns.
        for columns in dict.fromkeys(each.columns for each in asked["streamed"]):
            together = tuple(each for each in asked["streamed"] if each.columns == columns)
            found |= zip(together, self._add_streamed(table, together, progress), strict=True)
        found |= self._count_capped(table, asked["capped"], progress)
        apart: dict[str, Callable[..., TrueCounts]] = {
            "individuals": self._count_individuals,
            "within": self._count_within,
            "residuals": self._sum_residuals,
        }
        for tally, count in apart.items():
            found |= {each: count(table, each, progress) for each in asked[tally]}
        return tuple(found[each] for each in questions)

    def _count_marginals(
        self,
        table: Table,
        plain: list[Marginal],
        sparse: list[OccupiedCells],
        progress: Callable[[str], None],
    ) -> dict[AnyQuestion, TrueCounts]:
        if not plain and not sparse:
            return {}
        marginals = tuple(dict.fromkeys(each.columns for each in plain))
        occupied = tuple(dict.fromkeys(each.columns for each in sparse))
        counts = self._count_cells(table, marginals, occupied, progress)
        dense = dict(zip(marginals, counts, strict=False))
        with_records = dict(zip(occupied, counts[len(marginals) :], strict=True))
        found: dict[AnyQuestion, TrueCounts] = {each: with_records[each.columns] for each in sparse}
        for each in plain:
            counted = dense[each.columns]
            if each.queries is not None:
                counted = TrueCounts(each.columns, each.queries.apply(counted.true_values))
            found[each] = counted
        return found

    def _count_capped(
        self, table: Table, capped: list[CappedMarginal], progress: Callable[[str], None]
    ) -> dict[AnyQuestion, TrueCounts]:
        """Marginals under bounds of their own; of those that differ in their sums only, the cells once."""
        found: dict[AnyQuestion, TrueCounts] = {}
        for columns, most in dict.fromkeys((each.columns, each.max_records) for each in capped):
            (counted,) = self._count_cells(cap_records(table, most), (columns,), (), progress)
            for each in capped:
                if (each.columns, each.max_records) == (columns, most):
                    sums = None if each.queries is None else each.queries.apply(counted.true_values)
                    found[each] = counted if sums is None else TrueCounts(columns, sums)
        return found

    @abstractmethod
    def snapshot(self, table: Table) -> AbstractContextManager[None]:
        """Within it, all that is read of the table is as it was at the beginning, or its version differs."""

    @abstractmethod
    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error about public facts: sizes, the source, its columns and types. Reads no record."""

    def packed(self, table: Table | PublicTable) -> tuple[Path, ...]:
        """The files of a table that must be unpacked to know whether they are damaged."""
        return ()

    @abstractmethod
    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest that changes when the source does, and says nothing else about it."""

    @abstractmethod
    def describe(self, table: Table) -> dict[str, str]:
        """The kinds of the stored columns that a query may name."""

    @abstractmethod
    def _count_cells(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        occupied: tuple[tuple[str, ...], ...],
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        """The counts of `marginals` over all their cells, then those of `occupied` where records are.

        Privacy: one individual adds at most `table.contribution` to the counts of each marginal, whatever
        the records hold; proofs in docs/proofs/bounds.md and docs/proofs/engines.md.
        """

    @abstractmethod
    def _add_streamed(
        self, table: Table, questions: tuple[Question, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The sums of products, or the outcomes, of bounded records, of questions about the same columns.

        Privacy: one individual has at most `table.contribution` records, in units of 1 / table.grid, and a
        record adds what the question's tables hold for its codes; proof in docs/proofs/linear.md.
        """

    @abstractmethod
    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        """The number of individuals for every pair of cell and times.

        Privacy: one individual adds 1 to at most max_cells of the numbers, whatever the records hold; proof
        in docs/proofs/user-counts.md.
        """

    @abstractmethod
    def _sum_residuals(
        self, table: Table, question: Residuals, progress: Callable[[str], None]
    ) -> TrueCounts:
        """The sums of clipped residuals by cell, or the answers of queries over them.

        Privacy: one individual adds at most clip * table.contribution to the cells, in L1, whatever the
        records hold; proof in docs/proofs/additive.md.
        """

    @abstractmethod
    def _ask(self, table: Table, columns: tuple[str, ...]) -> AbstractContextManager[Ask]:
        """Within it, the database can be asked about the records, encoded in `columns`."""

    def _count_clipped(
        self, table: Table, questions: tuple[ClippedMarginal, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The answers in units of 1 / grid, each individual scaled down to the norm.

        Privacy: one individual adds at most norm * grid to the answers of each question, in L2, whatever the
        records hold; proof in docs/proofs/contribution-norms.md.
        """
        columns = all_columns(tuple(question.columns for question in questions))
        answers = []
        with self._ask(table, columns) as ask:
            progress("bounding contributions")
            progress("counting")
            for question in questions:
                beside = {} if question.queries is None else {"weights": list_weights(question.queries)}
                query = clipped_query(table, columns, question, crowds=self.crowds)
                answers.append(fill_counts(question.columns, question.size(table), ask(query, beside)))
        return tuple(answers)

    def _count_within(self, table: Table, choice: NormChoice, progress: Callable[[str], None]) -> TrueCounts:
        """The number of individuals within each norm, then that of all individuals.

        Privacy: one individual adds 0 or 1 to each number; docs/proofs/choice.md.
        """
        query = within_query(table, choice.columns, choice, crowds=self.crowds)
        with self._ask(table, choice.columns) as ask:
            progress("bounding contributions")
            (row,) = ask(query, {})
            return TrueCounts(choice.columns, np.concatenate(list(row)).astype(np.int64))
