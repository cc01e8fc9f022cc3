"""What is counted, and the most that one individual can add to it: the sensitivity of every count.

Each record here is a kind of question that an engine answers exactly. It states the size of its answer, the
denominator of its numbers, and its contribution: how far one individual can move the answers, which the
engine enforces whatever the records hold. Adding a kind means one record here, one function of each engine,
one proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.curves import histogram_sensitivity, sqrt_up
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.exact import parse_positive, parse_whole
from sfumato.core.law import Norm
from sfumato.core.questions.question import (
    BOTH,
    L2,
    Queries,
    Question,
    Stated,
    add_records,
    check_cells,
    count_answers,
    count_grid,
    digest_numbers,
    tell_queries,
)

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

# An individual over its norm is scaled by whole multiples of 1 / NORM_GRID, so that sums are exact.
NORM_GRID = 2**20

MOST_CELLS = 2**62
"""A marginal with more cells has cells that no 64-bit number can name."""


@dataclass(frozen=True, slots=True)
class Marginal(Question):
    """The number of bounded records in every cell of `columns`, or with `queries` sums over these cells.

    Privacy: one individual adds at most `table.contribution` to the cells, in both norms, since all of it
    may fall into one cell; and no more to the answers of queries, whose columns have an L2 norm of at most
    1. In L1 that holds for sums of different cells. Proof: docs/proofs/bounds.md.
    """

    stated: ClassVar = Stated(bounding="records", tally="cells", norms=BOTH, signed=False, sampled=False)
    size, grid, contribution = count_answers, count_grid, add_records
    check, to_record = check_cells, tell_queries

    columns: tuple[str, ...]
    queries: Queries | None = None


@dataclass(frozen=True, slots=True)
class OccupiedCells(Question):
    """The number of bounded records in the cells of `columns` that have any, of up to 2^63 cells.

    Privacy: as a marginal. Which cells have records is as private as their numbers, so that every cell gets
    noise, and only those at or above a threshold are released (docs/proofs/field-groups.md).
    """

    stated: ClassVar = Stated(bounding="records", tally="occupied", norms=BOTH, signed=False, sampled=False)
    size, grid, contribution = count_answers, count_grid, add_records
    check, to_record = check_cells, tell_queries
    queries: ClassVar[None] = None  # type: ignore[misc]

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CappedMarginal(Question):
    """A marginal in which each individual counts with at most `max_records`, fewer than its table allows.

    With `queries`, which must be plain sums of different cells, it is these that are answered.

    Privacy: one individual adds at most so many records, in both norms, and no more to sums of different
    cells (docs/proofs/capped-counts.md).
    """

    stated: ClassVar = Stated(bounding="records", tally="capped", norms=BOTH, signed=False, sampled=False)
    size, grid, check = count_answers, count_grid, check_cells

    columns: tuple[str, ...]
    max_records: int
    queries: Queries | None = None

    def __post_init__(self) -> None:
        self.check_columns()
        if self.max_records < 1:
            raise RecipeError("a bound on the records of an individual is at least 1")
        if self.queries is not None and not self.queries.is_partition:
            raise RecipeError("the queries under a bound on records must be sums of different cells")

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        return Fraction(min(self.max_records * table.grid, table.contribution))

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns."""
        return {**tell_queries(self), "records": self.max_records}


@dataclass(frozen=True, slots=True)
class ClippedMarginal(Question):
    """A marginal in which each individual's contribution is scaled down to an L2 `norm`, in records.

    Privacy: the norm is enforced on the answers themselves (docs/proofs/contribution-norms.md), so that it
    bounds them in L2, and nothing bounds them in L1.
    """

    stated: ClassVar = Stated(bounding="norm", tally="clipped", norms=L2, signed=False, sampled=False)
    size = count_answers

    columns: tuple[str, ...]
    norm: Fraction
    queries: Queries | None = None

    def __post_init__(self) -> None:
        self.check_columns()
        object.__setattr__(self, "norm", parse_positive(self.norm, name="the norm of an individual"))

    def grid(self, table: Table) -> int:
        """The denominator of the answers."""
        return NORM_GRID * (1 if self.queries is None else self.queries.grid)

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        return self.norm * self.grid(table)

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        refuse_no_norm(table)
        check_cells(self, table)

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns."""
        return {**tell_queries(self), "norm": self.norm}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndividualCounts(Question):
    """How many individuals have `times` records in `cell`, for each pair of these.

    An individual with n records in a cell is counted by the pair with the largest `times` up to n, if there
    is one. Pairs ascend by cell, then by times. If they are asked `together`, all cells are one, cell 0.

    Privacy: an individual in more than `max_cells` of the cells that are asked about is counted in
    `max_cells` of them only, so it moves at most that many answers, each by 1: max_cells in L1, its square
    root in L2 (docs/proofs/user-counts.md).

    >>> cells, times = np.array([4, 4, 9]), np.array([1, 2, 1])
    >>> IndividualCounts(columns=("ward",), max_cells=2, cells=cells, times=times).rows
    3
    """

    stated: ClassVar = Stated(bounding="cells", tally="individuals", norms=BOTH, signed=False, sampled=False)
    queries: ClassVar[None] = None  # type: ignore[misc]

    columns: tuple[str, ...]
    max_cells: int
    cells: NDArray[np.int64]
    times: NDArray[np.int64]
    together: bool = False

    def __post_init__(self) -> None:
        self.check_columns()
        parse_whole(self.max_cells, name="max_cells", high=10**9)
        for name in ("cells", "times"):
            given = np.asarray(getattr(self, name))
            if given.dtype.kind not in "iu" or given.ndim != 1:
                raise RecipeError(f"the {name} of counts of individuals must be whole numbers")
            array = given.astype(np.int64)  # a copy: what was given may still be written to
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        cells, times = self.cells, self.times
        if not cells.size or cells.size != times.size or cells.min() < 0 or times.min() < 1:
            raise RecipeError(
                "counts of individuals need at least one cell, each with the times it is asked for"
            )
        later = (cells[1:] > cells[:-1]) | ((cells[1:] == cells[:-1]) & (times[1:] > times[:-1]))
        if not later.all():
            raise RecipeError(
                "counts of individuals must ascend by cell, then by times, and none be asked twice"
            )

    @property
    def placed(self) -> tuple[str, ...]:
        """The columns whose codes name the cell of a record."""
        return () if self.together else self.columns

    @property
    def rows(self) -> int:
        """The number of pairs."""
        return int(self.cells.size)

    def grid(self, table: Table) -> int:
        """The denominator of the answers."""
        return 1

    def size(self, table: Table) -> int:
        """The number of answers."""
        return self.rows

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds."""
        cells = Fraction(self.max_cells)
        return cells if norm == "L1" else sqrt_up(cells)

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        # Cells that do not fit into 64 bits would fail for the records that reach them.
        cells = table.cells(self.placed)
        if self.cells[-1] >= cells or cells > MOST_CELLS:
            shown = " x ".join(self.columns)
            raise RecipeError(f"{shown}: asks for individuals in cells that these columns do not have")

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: the number of pairs, their bound and their digest."""
        digest = digest_numbers(self.cells, self.times)
        heads = {"rows": self.rows, "max_cells": self.max_cells, "sha256": digest}
        return {"heads": {**heads, "together": True} if self.together else heads}


def list_norms(question: Question) -> tuple[Norm, ...]:
    """The norms in which a question is bounded: one of sums in L1 only if they are of different cells."""
    sums = question.queries is None or question.queries.is_partition
    return question.stated.norms if sums else L2


def find_sensitivity(table: Table, question: Question, *, norm: Norm) -> Fraction:
    """The most that the exact answers of neighbouring tables differ, in units of 1 / grid.

    One individual more moves them by its contribution; one in place of another by twice that in L1, and in L2
    by less, unless weights of queries or what is added up may be negative, so that the two may be opposite to
    each other.
    """
    if norm not in list_norms(question):
        raise RecipeError("this question, or its queries, are bounded in L2 only")
    queries = question.queries
    return histogram_sensitivity(
        contribution=question.contribution(table, norm),
        norm=norm,
        neighbours=table.unit.neighbours,
        signed=question.stated.signed or (queries is not None and queries.is_signed),
    )


def refuse_no_norm(table: Table) -> None:
    """Raises an error if the individuals of `table` have no norm to be held to."""
    if table.unit.column is None:
        raise SchemaError(
            f"table {table.name!r}: every row is an individual of norm 1, so there is nothing to hold to a "
            "norm; name a unit column, or leave the norm out"
        )
