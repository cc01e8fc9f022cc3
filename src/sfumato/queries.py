"""Linear queries over the cells of a marginal: sparse, in whole numbers, with columns of norm 1 at most."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Queries"]


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
    members: NDArray[np.int64]
    weights: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("starts", "members", "weights"):
            array = np.ascontiguousarray(getattr(self, name), dtype=np.int64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if not 1 <= self.grid <= 2**20:
            message = "the grid of queries must lie between 1 and 2^20"
            raise RecipeError(message)
        starts, members = self.starts, self.members
        if starts.size < 2 or starts[0] != 0 or starts[-1] != members.size or (np.diff(starts) < 0).any():
            message = "queries need at least one row, and starts that cut their members into rows"
            raise RecipeError(message)
        if members.size != self.weights.size or (
            members.size and (members.min() < 0 or members.max() >= self.cells)
        ):
            message = "every member of a query needs a weight and a cell of the marginal"
            raise RecipeError(message)
        # The least 64-bit number has no absolute value, so both ends are compared.
        if members.size and not -self.grid <= self.weights.min() <= self.weights.max() <= self.grid:
            message = "the weight of a query exceeds 1"
            raise RecipeError(message)
        keys = np.repeat(np.arange(self.rows), np.diff(starts)) * self.cells + members
        if np.unique(keys).size != keys.size:
            message = "a query names a cell twice"
            raise RecipeError(message)
        # Sums of squares below 2^53 are exact in the floats of bincount: 2^40 times at most 2^12 rows.
        squares = np.bincount(members, weights=(self.weights**2).astype(np.float64), minlength=1)
        if squares.max() > self.grid**2:
            message = "the weights of a cell have an L2 norm above 1, so the noise would not cover them"
            raise RecipeError(message)

    @property
    def rows(self) -> int:
        """The number of queries."""
        return int(self.starts.size - 1)

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
