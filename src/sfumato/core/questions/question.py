"""What every kind of question states: all that the core must know of it, and nothing by default.

Adding a kind means one record with these members, one function of the engine that answers it, and one proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.law import Norm

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

Bounding = Literal["records", "norm", "cells", "gradient", "arrivals"]
# `CountingEngine.count` has a branch for each that it answers.
_Counts = Literal["cells", "occupied", "capped", "clipped", "individuals", "within"]
_Sums = Literal["streamed", "residuals", "gradients", "arrivals", "scores"]
Tally = Literal[_Counts, _Sums]

BOTH: Final[tuple[Norm, ...]] = ("L1", "L2")
L2: Final[tuple[Norm, ...]] = ("L2",)
MEMBERS = ("columns", "queries", "stated", "size", "grid", "contribution", "check", "to_record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What holds for all questions of a kind: what each individual is held to, and how answers may move then.

    An engine enforces the `bounding` and adds up by `tally`. The contribution is known in the `norms`; one
    individual may lower an answer if they are `signed`, and is read by chance if they are `sampled`.
    """

    bounding: Bounding
    tally: Tally
    norms: tuple[Norm, ...]
    signed: bool
    sampled: bool


Codes = dict[str, NDArray[np.int64]]


class Adder(Protocol):
    """The running sums of one question that is streamed: it is shown the codes of bounded records."""

    def add(self, codes: Codes, weights: NDArray[np.int64] | None, *, rows: int) -> None:
        """Adds one batch: every record whole, or for its weight in units of 1 / table.grid."""

    def finish(self) -> NDArray[np.int64]:
        """The exact answers."""


class Question:
    """A kind of question about the cells of `columns`, or about sums of them by `queries`.

    Privacy: a class that leaves out a member cannot be made, so that nothing fails open.
    """

    __slots__ = ()

    stated: ClassVar[Stated]
    columns: tuple[str, ...]
    queries: Queries | None

    def __init_subclass__(cls) -> None:
        # Of the class alone: what it inherits was stated for another kind. Slots make the class anew, which
        # asks again and finds the same.
        known = {*vars(cls), *vars(cls).get("__annotations__", {})}
        streamed = getattr(vars(cls).get("stated"), "tally", None) == "streamed"
        missing = [name for name in (*MEMBERS, *(("start",) if streamed else ())) if name not in known]
        if missing:
            raise TypeError(f"question {cls.__name__} does not state {', '.join(missing)}")

    def __post_init__(self) -> None:
        self.check_columns()

    def check_columns(self) -> None:
        """Raises an error unless there are columns, none of them twice."""
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise RecipeError("a marginal needs at least one column and none twice")

    @property
    def tally(self) -> Tally:
        """How an engine adds it up."""
        return self.stated.tally

    def size(self, table: Table) -> int:
        """The number of answers."""
        raise NotImplementedError

    def grid(self, table: Table) -> int:
        """The denominator of the answers: they are whole multiples of 1 / grid."""
        raise NotImplementedError

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """The most that one individual adds, in units of 1 / grid."""
        raise NotImplementedError

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        raise NotImplementedError

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns; queries by their number and their digest."""
        raise NotImplementedError

    def start(self, table: Table) -> Adder:
        """What adds up its answers, if it is streamed."""
        raise NotImplementedError


# What several kinds state alike, each by naming it.
def count_answers(self: Question, table: Table) -> int:
    """The number of answers: of cells, or of queries over them."""
    return table.cells(self.columns) if self.queries is None else self.queries.rows


def count_grid(self: Question, table: Table) -> int:
    """The denominator of answers that are numbers of records, or sums of them."""
    return table.grid * (1 if self.queries is None else self.queries.grid)


def add_records(self: Question, table: Table, norm: Norm) -> Fraction:
    """The most that one individual adds to numbers of records, in units of 1 / grid: in both norms."""
    return Fraction(table.contribution * (1 if self.queries is None else self.queries.grid))


def tell_queries(self: Question) -> dict[str, Any]:
    """What is told of queries: their number and their digest."""
    return {} if self.queries is None else {"queries": self.queries.to_record()}


def check_cells(self: Question, table: Table) -> None:
    """Raises an error if queries are over another number of cells than the columns have."""
    cells, queries = table.cells(self.columns), self.queries
    if queries is not None and queries.cells != cells:
        shown = " x ".join(self.columns)
        raise RecipeError(f"queries are over {queries.cells:,} cells, and {shown} has {cells:,}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queries:
    """Weighted sums of cells.

    Query i gives cell members[k] the weight weights[k] / grid, for k from starts[i] up to starts[i + 1].

    Privacy: the weights of any one cell have an L2 norm of at most 1, checked in whole numbers when the
    queries are made. An individual that adds C to the cells adds at most C to the answers, in L2.

    >>> sums = Queries(cells=3, grid=1, starts=np.array([0, 2, 3]), members=np.array([0, 1, 2]),
    ...                weights=np.array([1, 1, 1]))
    >>> sums.rows, sums.apply(np.array([5, 6, 7])).tolist()
    (2, [11, 7])
    """

    cells: int
    grid: int
    starts: NDArray[np.int64]
    members: NDArray[np.integer[Any]]
    weights: NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        # There may be ten million members, and several queries of that size at a time.
        for name, dtype in (("starts", np.int64), ("members", np.int32), ("weights", np.int32)):
            given = np.asarray(getattr(self, name))
            array = np.ascontiguousarray(given, dtype=dtype)
            if array.dtype != given.dtype and not np.array_equal(array, given):
                raise RecipeError(f"the {name} of queries must be whole numbers, and no weight exceeds 1")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if not 1 <= self.grid <= 2**20:
            raise RecipeError("the grid of queries must lie between 1 and 2^20")
        starts, members = self.starts, self.members
        if starts.size < 2 or starts[0] != 0 or starts[-1] != members.size or (np.diff(starts) < 0).any():
            raise RecipeError("queries need at least one row, and starts that cut their members into rows")
        if members.size != self.weights.size or (
            members.size and (members.min() < 0 or members.max() >= self.cells)
        ):
            raise RecipeError("every member of a query needs a weight and a cell of the marginal")
        # The least number has no absolute value, so both ends are compared.
        if members.size and not -self.grid <= self.weights.min() <= self.weights.max() <= self.grid:
            raise RecipeError("the weight of a query exceeds 1")
        if _repeats(starts, members, self.cells):
            raise RecipeError("a query names a cell twice")
        # Sums of squares below 2^53 are exact in the floats of bincount: 2^40 times at most 2^12 rows.
        squares = np.bincount(members, weights=self.weights.astype(np.float64) ** 2, minlength=1)
        if squares.max() > self.grid**2:
            raise RecipeError(
                "the weights of a cell have an L2 norm above 1, so the noise would not cover them"
            )

    @property
    def rows(self) -> int:
        """The number of queries."""
        return int(self.starts.size - 1)

    @property
    def is_partition(self) -> bool:
        """Whether all weights are 1 and no cell is in two queries."""
        once = np.bincount(self.members, minlength=1).max() <= 1
        return bool(once and (self.weights == self.grid).all() and self.grid == 1)

    @property
    def is_signed(self) -> bool:
        """Whether some weight is negative, so that the answers of two individuals may be opposite."""
        return bool((self.weights < 0).any())

    def apply(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The exact answers for `counts`, in units of 1 / grid of those of the counts, held to 2^62.

        A sum that wrapped would move by far more than its sensitivity.
        """
        counted = counts[self.members]
        sums = np.concatenate(([0], np.cumsum(counted * self.weights)))
        answers = np.asarray(sums[self.starts[1:]] - sums[self.starts[:-1]], dtype=np.int64)
        # Modulo 2^64 the above is exact, so only sums that may be as large as that are added up again.
        if float(np.abs(counted.astype(float)).sum()) * self.grid >= 2.0**61:
            sizes = np.concatenate(([0], np.cumsum(np.abs(counted.astype(float) * self.weights))))
            for row in np.flatnonzero(np.diff(sizes[self.starts]) >= 2.0**61).tolist():
                start, stop = self.starts[row : row + 2]
                terms = zip(counted[start:stop].tolist(), self.weights[start:stop].tolist(), strict=True)
                answers[row] = max(-(2**62), min(2**62, sum(count * weight for count, weight in terms)))
        return answers

    def to_record(self) -> dict[str, Any]:
        """The queries as a plain record: their number, grid and digest."""
        digest = digest_numbers(self.starts, self.members, self.weights)
        return {"rows": self.rows, "cells": self.cells, "grid": self.grid, "sha256": digest}


def _repeats(starts: NDArray[np.int64], members: NDArray[np.integer[Any]], cells: int) -> bool:
    """Whether some row names a cell twice; rows in ascending order are seen at once."""
    rising = members[1:] > members[:-1]
    rising[starts[(starts > 0) & (starts < members.size)] - 1] = True  # from one row to the next
    if rising.all():
        return False
    keys = np.repeat(np.arange(starts.size - 1), np.diff(starts)) * cells + members
    keys.sort()
    return bool((keys[1:] == keys[:-1]).any())


def digest_numbers(*arrays: NDArray[np.integer[Any]], about: Iterable[object] = ()) -> str:
    """The SHA-256 of what is said `about` whole numbers, and of these."""
    content = hashlib.sha256("".join(map(repr, about)).encode())
    for array in arrays:
        content.update(array.astype("<i8").tobytes())
    return content.hexdigest()
