"""Counts and running totals from noisy weighted sums of all arrivals: a factorisation of running totals.

The matrix A of running totals (ones up to the diagonal) is L R, where row t of R has the weights of the sums
that are measured. With x the arrivals and z independent noise, y = R x + z is measured, and L y = A x + L z
are the totals. The square root of A has the weights binom(2k, k) / 4^k: then L = R, and the noise of a total
is about ln(periods) / pi, where that of independent counts is the root of the number of periods
(Fichtenberger, Henzinger and Upadhyay 2023). Weights here are whole numbers, and L follows from them as they
are. Noise that is paid in L1 goes with R = 1 instead: there the square root costs more than it spares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.exact import NORMAL_95
from sfumato.tables.arrays import Floats

if TYPE_CHECKING:
    from sfumato.core.law import Norm, Shape


# The quantile of a sum of n equal Laplace draws, in its deviations, is below that of the normal law and this
# by n: its excess kurtosis is 3 / n, and (z^3 - 3 z) / 24 is 0.069 (Cornish and Fisher).
_HEAVIER = 0.21


def choose_weights(norm: Norm, periods: int, *, grid: int) -> tuple[int, ...]:
    """Return the weights for noise whose sensitivity counts in `norm`: each period alone, or the square root.

    >>> choose_weights("L1", 3, grid=1024)
    (1024, 0, 0)
    """
    return root_weights(periods, grid=grid) if norm == "L2" else (grid, *(0,) * (periods - 1))


def root_weights(periods: int, *, grid: int) -> tuple[int, ...]:
    """Return the weights of the square root of running totals, as whole multiples of 1 / grid.

    >>> root_weights(4, grid=1024)
    (1024, 512, 384, 320)
    """
    weights, weight = [], 1.0
    for lag in range(periods):
        weight *= (2 * lag - 1) / (2 * lag) if lag else 1.0
        weights.append(round(weight * grid))
    return tuple(weights)


def invert(weights: Floats) -> Floats:
    """Return the power series whose product with that of `weights` is 1.

    >>> invert(np.array([1.0, 0.5, 0.375])).tolist()
    [1.0, -0.5, -0.125]
    """
    inverse = np.zeros(weights.size)
    inverse[0] = 1 / weights[0]
    for lag in range(1, weights.size):
        inverse[lag] = -float((weights[1 : lag + 1] * inverse[lag - 1 :: -1]).sum()) / weights[0]
    return inverse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """Estimates by period and cell, and the standard deviation of the noise of every period's."""

    values: Floats
    deviations: Floats


def estimate_sums(noisy_sums: Floats, weights: Floats, deviation: float, *, answer: Floats) -> Estimate:
    """Estimates of sum over k of answer[k] x (arrivals k periods before), for every period and cell.

    `noisy_sums` has a row per period, `deviation` is that of their noise, `answer` a weight for every lag:
    1, 0, 0, ... for the counts of periods, 1, 1, 1, ... for running totals. What would reach back before the
    first period counts what there is.

    >>> sums = np.array([[2.0], [4.0]])  # 2 and 3 arrived; weights 1 and 1/2
    >>> estimate_sums(sums, np.array([1.0, 0.5]), 1.0, answer=np.ones(2)).values.ravel().tolist()
    [2.0, 5.0]
    """
    periods = noisy_sums.shape[0]
    inverse = invert(weights[:periods])
    # Rounded, so that another order of adding up is not seen.
    factor = np.round([float((answer[: lag + 1] * inverse[lag::-1]).sum()) for lag in range(periods)], 12)
    values = np.zeros(noisy_sums.shape)
    for lag in range(periods):  # in this order wherever it runs, so that the same bytes come out
        if factor[lag]:
            values[lag:] += factor[lag] * noisy_sums[: periods - lag]
    return Estimate(values=values, deviations=deviation * np.sqrt(np.cumsum(factor**2)))


def half_widths(found: Estimate, deviation: float, *, shape: Shape) -> Floats:
    """Half the widths of 95 % intervals of every period's estimates, of noise of this deviation."""
    if shape.normal:
        return NORMAL_95 * found.deviations
    draws = (found.deviations / deviation) ** 2  # of equal weight, or their negatives
    return np.minimum(shape.reach, NORMAL_95 + _HEAVIER / draws) * found.deviations
