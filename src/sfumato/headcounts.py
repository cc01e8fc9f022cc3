"""Counts of individuals, by the cell they are in and by how often they are in it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadCounts:
    """Questions of how many individuals have `times` records in `cell`.

    An individual with n records in a cell is counted by the question with the largest `times` up to n,
    if there is one. Questions ascend by cell, then by times.

    Privacy: an individual in more than `max_cells` of the cells that are asked about is counted in
    `max_cells` of them only, so it moves at most that many answers, each by 1.

    >>> heads = HeadCounts(max_cells=2, cells=np.array([4, 4, 9]), times=np.array([1, 2, 1]))
    >>> heads.rows
    3
    """

    max_cells: int
    cells: NDArray[np.int64]
    times: NDArray[np.int64]

    def __post_init__(self) -> None:
        whole = isinstance(self.max_cells, int) and not isinstance(self.max_cells, bool)
        if not whole or not 1 <= self.max_cells <= 10**9:
            raise RecipeError("max_cells must be a whole number from 1 to 10^9")
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
    def rows(self) -> int:
        """The number of questions."""
        return int(self.cells.size)

    def to_record(self) -> dict[str, Any]:
        """The questions as a plain record: their number, their bound and their digest."""
        content = hashlib.sha256()
        for array in (self.cells, self.times):
            content.update(array.astype("<i8").tobytes())
        return {"rows": self.rows, "max_cells": self.max_cells, "sha256": content.hexdigest()}
