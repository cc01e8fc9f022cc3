"""APPROX_QUANTILES: all quantiles of a column at once, from noisy counts of a tree of intervals.

The steps between the bounds are the cells of the tree, and every level of it is a histogram of its own. They
are made consistent and read off by `sfumato.inference.models.cumulative`, as the recipe `quantiles` does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.algebra.measures import CELLS

if TYPE_CHECKING:
    from sfumato.sql.plan import Noise

# No share is exactly nothing or everything: there every cell before the first record would do.
_EDGE = 1e-9


@cache
def list_levels() -> tuple[int, ...]:
    """The widths of the intervals of every level, in steps: those of the least error with Laplace noise."""
    from sfumato.inference.models.cumulative import choose_widths

    return choose_widths(CELLS, deviation=float)[0]


def read_quantiles(
    noise: Noise, noisy_counts: NDArray[np.int64]
) -> list[tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """For every quantile the values of all groups, with the ends of their 95 % intervals.

    `noisy_counts` has all levels, one after the other, in rows; columns are groups.
    """
    measure, widths = noise.measure, list_levels()
    sizes = [-(-CELLS // width) for width in widths]
    levels = np.split(noisy_counts.T.astype(float), np.cumsum(sizes)[:-1], axis=1)
    variances = [noise.deviation**2] * len(widths)
    from sfumato.inference.models.cumulative import estimate_cumulative, find_cell

    found = estimate_cumulative(levels, widths, variances, reach=noise.shape.reach)
    low, high = float(measure.low), float(measure.high)
    quantiles = []
    for part in range(measure.parts + 1):
        share = min(max(part / measure.parts, _EDGE), 1 - _EDGE)
        cells = np.array(
            [
                find_cell(shares, lower, upper, share)
                # Where all counts together are within their noise, nothing is known.
                if not np.isnan(shares[0])
                else (CELLS // 2, 0, CELLS - 1)
                for shares, lower, upper in zip(found.shares, found.low, found.high, strict=True)
            ],
            np.int64,
        ).reshape(-1, 3)
        # The middle of the cell, from the lower end of the first to the upper end of the last possible one.
        value, first, last = (cells + np.array([0.5, 0, 1])).T * (high - low) / CELLS + low
        quantiles.append((value, first, last))
    return quantiles
