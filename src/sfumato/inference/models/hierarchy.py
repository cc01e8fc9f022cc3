"""Counts of a tree that agree at every level, from noisy counts of its levels.

Least squares goes up the tree once and down once; then whole numbers that are never negative are dealt out
from the top, so that the children of every node add up to it. A level that is known has variance 0, one that
was not measured has none. The variances that least squares leaves depend on the tree and the noise alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sfumato.tables.arrays import Floats, Whole

Places = Whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """The nodes of one level: their noisy counts, the variance of the noise, and the parent of each.

    A variance of 0 says that the counts are known. `parents` are places in the level above; of the first
    level there are none.
    """

    values: Floats
    variance: float
    parents: Places | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fitted:
    """What is found for one level: whole counts that add up, the estimates behind them, their variances."""

    counts: Whole
    estimates: Floats
    variances: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Below:
    """What a level and all below it say of each node, and the sums of that over the children of a parent."""

    estimates: Floats
    variances: Floats
    sums: Floats
    spreads: Floats


def fit_levels(levels: Sequence[Level]) -> tuple[Fitted, ...]:
    """Return counts of all levels that add up: weighted least squares, then whole numbers from the top down.

    >>> top = Level(values=np.array([9.0]), variance=1.0)
    >>> low = Level(values=np.array([5.0, -2.0]), variance=1.0, parents=np.array([0, 0]))
    >>> [level.counts.tolist() for level in fit_levels([top, low])]
    [[7], [7, 0]]
    """
    fitted: list[Fitted] = []
    for place, (estimates, variances, below) in enumerate(_least_squares(levels)):
        parents = levels[place].parents
        if parents is None:
            counts = np.rint(np.maximum(estimates, 0.0)).astype(np.int64)
        elif not below.variances.any():
            counts = np.rint(estimates).astype(np.int64)  # known, or the sums of what is known
        else:
            counts = divide(estimates, below.variances, parents, fitted[-1].counts)
        fitted.append(Fitted(counts=counts, estimates=estimates, variances=variances))
    return tuple(fitted)


def _least_squares(levels: Sequence[Level]) -> list[tuple[Floats, Floats, _Below]]:
    """For every level the best estimates of all counts, their variances, and what its subtrees say alone."""
    found: list[_Below] = []
    for place in range(len(levels) - 1, -1, -1):
        level = levels[place]
        estimates, variances = level.values, np.full(level.values.size, level.variance)
        if found:
            estimates, variances = _combine(level, found[-1])
        parents = level.parents
        if parents is None:
            sums = spreads = np.zeros(0)
        else:
            above = levels[place - 1].values.size
            sums, spreads = _sum(parents, estimates, above), _sum(parents, variances, above)
        found.append(_Below(estimates=estimates, variances=variances, sums=sums, spreads=spreads))
    found.reverse()
    results: list[tuple[Floats, Floats, _Below]] = []
    for level, below in zip(levels, found, strict=True):
        if level.parents is None:
            results.append((below.estimates, below.variances, below))
            continue
        upper, certain, _ = results[-1]
        # What the parent's count exceeds the children's sum by is divided in proportion to variances.
        spreads = np.where(below.spreads > 0, below.spreads, 1.0)
        share = below.variances / spreads[level.parents]
        excess = (upper - below.sums)[level.parents]
        shrunk = (below.spreads - certain)[level.parents]
        results.append(
            (below.estimates + share * excess, np.maximum(below.variances - share**2 * shrunk, 0.0), below)
        )
    return results


def _combine(level: Level, below: _Below) -> tuple[Floats, Floats]:
    """The counts of a level by its own noisy values and by the sums of its children, and their variances."""
    if level.variance == 0:
        return level.values, np.zeros(level.values.size)
    both = level.variance + below.spreads
    estimates = (level.values * below.spreads + below.sums * level.variance) / both
    return estimates, level.variance * below.spreads / both


def _sum(parents: Places, values: Floats, size: int) -> Floats:
    """Return the sums of values by parent."""
    return np.asarray(np.bincount(parents, values, size), np.float64)


def divide(values: Floats, variances: Floats, parents: Places, totals: Whole) -> Whole:
    """Return whole counts, none negative, that add up to `totals` by parent and are near to `values`.

    First the nearest point of that simplex, where a value counts by the inverse of its variance; then every
    parent's remainders are rounded up from the largest on.

    >>> divide(np.array([2.6, 0.6, -1.0]), np.ones(3), np.zeros(3, np.int64), np.array([3])).tolist()
    [3, 0, 0]
    """
    shares = _project(values, variances, parents, totals)
    counts = np.floor(shares).astype(np.int64)
    sums = np.bincount(parents, counts, totals.size).astype(np.int64)
    missing = totals - sums
    order = np.lexsort((counts - shares, parents))
    ordered = parents[order]
    starts = np.searchsorted(ordered, np.arange(totals.size))
    places = np.arange(parents.size) - starts[ordered]
    counts[order[places < missing[ordered]]] += 1
    return counts


def _project(values: Floats, variances: Floats, parents: Places, totals: Whole) -> Floats:
    """Return the nearest point with no negative count whose sums by parent are `totals`.

    It is max(0, value + shift * variance) with one shift for the children of a parent (Michelot 1986): who
    falls below zero under the shift of all that are left is zero in the end, so each round drops some.
    """
    shares = np.zeros(values.size)
    left = np.flatnonzero(totals[parents] > 0)
    while left.size:
        those = parents[left]
        weights = np.bincount(those, variances[left], totals.size)
        lacking = totals - np.bincount(those, values[left], totals.size)
        shift = lacking / np.where(weights > 0, weights, 1.0)
        found = values[left] + shift[those] * variances[left]
        keep = found >= 0
        shares[left] = np.where(keep, found, 0.0)
        # A parent none of whose children fell is done.
        fallen = np.bincount(those[~keep], minlength=totals.size) > 0
        left = left[keep & fallen[those]]
    return shares
