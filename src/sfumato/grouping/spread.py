"""What noise and cut would do to a histogram, guessed from the counts of a public table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How records spread over the cells of a histogram: counts, and how many cells have each."""

    counts: NDArray[np.float64]
    times: NDArray[np.float64]


def spread_counts(counts: NDArray[np.int64]) -> Spread:
    """The spread of the counts of occupied cells.

    >>> spread_counts(np.array([4, 1, 4]))
    Spread(counts=array([1., 4.]), times=array([1., 2.]))
    """
    values, times = np.unique(counts[counts > 0], return_counts=True)
    return Spread(values.astype(np.float64), times.astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of the recipe: an equal share of `epsilon` for each group, then a cut.

    `records` is the size of the private table, `rows` that of the public one, whose counts are taken
    in proportion. Counts below cut x scale x log10(cells) are set to 0.
    """

    epsilon: float
    sensitivity: float
    records: float
    rows: int
    cut: float

    def expect_error(self, spread: Spread, *, cells: int, groups: int) -> float:
        """The expected distance, in total variation, of a released histogram from the true one.

        Three parts: records in cells that fall under the cut, the noise of cells that pass it, and
        empty cells that pass by their noise alone.

        >>> noise = Noise(epsilon=1, sensitivity=1, records=1000, rows=1000, cut=2.3)
        >>> few, many = spread_counts(np.full(4, 250)), spread_counts(np.full(500, 2))
        >>> noise.expect_error(few, cells=4, groups=1) < 0.01
        True
        >>> noise.expect_error(many, cells=500, groups=1) > 0.9
        True
        """
        scale = groups * self.sensitivity / self.epsilon
        counts = spread.counts * (self.records / self.rows)
        known = float((counts * spread.times).sum()) / self.records
        if cells == 1:
            return 1 - known
        threshold = self.cut * scale * math.log10(cells)
        above = (counts - threshold) / scale
        tail = np.exp(-np.abs(above)) / 2
        passing = np.where(above > 0, 1 - tail, tail) * spread.times
        kept = float((counts * passing).sum()) / self.records
        noisy = scale * float(passing.sum()) / 2 / self.records
        empty = math.exp(min(50.0, math.log(cells) - threshold / scale)) / 2
        false = empty * (threshold + scale) / 2 / self.records
        return min(1.0, 1 - kept + noisy + false)
