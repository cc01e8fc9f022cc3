"""Linear queries over the cells of a marginal: sparse, in whole numbers, with columns of norm 1 at most."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


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

    def apply(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The exact answers for `counts`, in units of 1 / grid of those of the counts."""
        sums = np.concatenate(([0], np.cumsum(counts[self.members] * self.weights)))
        return np.asarray(sums[self.starts[1:]] - sums[self.starts[:-1]], dtype=np.int64)

    def to_record(self) -> dict[str, Any]:
        """The queries as a plain record: their number, grid and digest."""
        content = hashlib.sha256()
        for array in (self.starts, self.members, self.weights):
            content.update(array.astype("<i8").tobytes())
        return {
            "rows": self.rows,
            "cells": self.cells,
            "grid": self.grid,
            "sha256": content.hexdigest(),
        }


def _repeats(starts: NDArray[np.int64], members: NDArray[np.integer[Any]], cells: int) -> bool:
    """Whether some row names a cell twice; rows in ascending order are seen at once."""
    rising = members[1:] > members[:-1]
    rising[starts[(starts > 0) & (starts < members.size)] - 1] = True  # from one row to the next
    if rising.all():
        return False
    keys = np.repeat(np.arange(starts.size - 1), np.diff(starts)) * cells + members
    keys.sort()
    return bool((keys[1:] == keys[:-1]).any())
