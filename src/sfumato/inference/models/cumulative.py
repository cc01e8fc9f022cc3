"""Cumulative counts of ordered cells, from noisy counts of a tree of intervals over them.

The counts of every level have independent noise. Levels are made to agree by weighted least squares, which
goes up and down the tree once; then cumulative counts are made monotone. The variances that least squares
leaves are public, since they depend on the tree and the noise alone: they choose the branching before
anything is asked, and give the band. `DistributionModel` is a released distribution as it is read back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.core.errors import ReleaseError
from sfumato.core.exact import parse_exact
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Label
from sfumato.tables.arrays import Floats, Whole

_MOST_BRANCHES = 64  # of a node: more are a level of single cells


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """What least squares leaves of the noise in the count P of the cells up to each, and in the total N.

    The variance of P - f N is `rest` + (`slope` - f)^2 `total`, for any number f.
    """

    slope: Floats
    rest: Floats
    total: float

    def variance(self, shares: Floats | float) -> Floats:
        """Return the variance of the counts up to each cell less `shares` of the total."""
        return np.asarray(self.rest + (self.slope - shares) ** 2 * self.total)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cumulative:
    """Cumulative counts with the shares they make of the total, and a band of 95 % for each share.

    Rows are groups. Where the total of a group lies within its noise, shares are not known: NaN.
    """

    counts: Floats
    shares: Floats
    low: Floats
    high: Floats


def list_widths(size: int, branching: int) -> tuple[int, ...]:
    """Return the widths of the intervals of every level in cells, from the widest to single cells.

    >>> list_widths(100, 4)
    (64, 16, 4, 1)
    """
    widths = [1]
    while widths[-1] * branching < size:
        widths.append(widths[-1] * branching)
    return tuple(reversed(widths))


def choose_widths(size: int, *, deviation: Callable[[int], float]) -> tuple[tuple[int, ...], float]:
    """Return the tree with the least mean square error of shares for even counts, and its root, in records.

    `deviation` is that of the noise of a count if so many levels share the budget.

    >>> choose_widths(512, deviation=lambda levels: levels)[0]
    (26, 1)
    """
    even = (np.arange(size) + 1) / size
    best: tuple[float, tuple[int, ...]] | None = None
    for branching in sorted({min(each, size) for each in (*range(2, _MOST_BRANCHES + 1), size)}):
        widths = list_widths(size, max(branching, 2))
        spread = find_spread(size, widths, [deviation(len(widths)) ** 2] * len(widths))
        error = float(spread.variance(even).mean())
        if best is None or error < best[0] * (1 - 1e-9):
            best = error, widths
    assert best is not None
    return best[1], math.sqrt(best[0])


def find_spread(size: int, widths: Sequence[int], variances: Sequence[float]) -> Spread:
    """Return spread of cumulative counts over `size` cells, for noise of these variances at every level."""
    slope, rest = np.ones(size), np.zeros(size)
    cells = np.arange(size)
    known = np.full(size, variances[-1])
    uppers = [*list(zip(widths[:-1], variances[:-1], strict=True))[::-1], (size, math.inf)]
    width = 1
    for upper, variance in uppers:
        starts = np.arange(0, known.size, -(-upper // width))
        sums = np.add.reduceat(known, starts)
        child, parent = cells // width, cells // upper
        before = np.concatenate(([0.0], np.cumsum(known)))
        earlier = before[child] - before[starts[parent]]
        shared = earlier + slope * known[child]
        rest = np.maximum(earlier + slope**2 * known[child] + rest - shared**2 / sums[parent], 0.0)
        slope = shared / sums[parent]
        known = 1 / (1 / variance + 1 / sums) if math.isfinite(variance) else sums
        width = upper
    return Spread(slope=slope, rest=rest, total=float(known[0]))


def fuse_levels(values: Sequence[Floats], widths: Sequence[int], variances: Sequence[float]) -> Floats:
    """Return the counts of all cells that fit the counts of all levels best: weighted least squares.

    `values` has an array per level, groups by intervals.
    """
    found, known = values[-1], np.full(values[-1].shape[1], variances[-1])
    lower: list[tuple[Floats, Floats, Floats, Floats, Whole]] = []
    for level in range(len(widths) - 2, -1, -1):
        starts = np.arange(0, known.size, widths[level] // widths[level + 1])
        sums, below = np.add.reduceat(known, starts), np.add.reduceat(found, starts, axis=1)
        lower.append((found, known, sums, below, np.diff(np.append(starts, known.size))))
        known = 1 / (1 / variances[level] + 1 / sums)
        found = known * (values[level] / variances[level] + below / sums)
    for part, spread, sums, below, children in reversed(lower):
        found = part + np.repeat((found - below) / sums, children, axis=1) * spread
    return found


def rise(heights: Floats) -> Floats:
    """Return the nearest sequence that never falls and is never below zero: pooling adjacent violators.

    >>> rise(np.array([-1.0, 3.0, 1.0, 5.0])).tolist()
    [0.0, 2.0, 2.0, 5.0]
    """
    means: list[float] = []
    sizes: list[int] = []
    for height in heights.tolist():
        mean, size = height, 1
        while means and means[-1] > mean:
            mean = (mean * size + means[-1] * sizes[-1]) / (size + sizes[-1])
            size += sizes.pop()
            means.pop()
        means.append(mean)
        sizes.append(size)
    return np.asarray(np.maximum(np.repeat(means, sizes), 0.0), np.float64)


def estimate_cumulative(
    values: Sequence[Floats], widths: Sequence[int], variances: Sequence[float], *, reach: float
) -> Cumulative:
    """Return cumulative counts from noisy counts of every level, in records.

    `reach` is how many standard deviations of the noise a band of 95 % goes.
    """
    plain = np.cumsum(fuse_levels(values, widths, variances), axis=1)
    counts = np.stack([rise(each) for each in plain])
    spread = find_spread(counts.shape[1], widths, variances)
    totals = counts[:, -1:]
    known = totals > reach * math.sqrt(spread.total)
    shares = np.where(known, counts / np.where(known, totals, 1.0), np.nan)
    half = reach * np.sqrt(spread.variance(shares)) / np.where(known, totals, 1.0)
    low, high = np.maximum(shares - half, 0.0), np.minimum(shares + half, 1.0)
    return Cumulative(counts=counts, shares=shares, low=low, high=high)


def find_cell(shares: Floats, low: Floats, high: Floats, share: float) -> tuple[int, int, int]:
    """Return cell of the quantile at `share`, and the first and the last one that the band leaves possible.

    >>> shares = np.array([0.2, 0.6, 1.0])
    >>> find_cell(shares, shares - 0.15, shares + 0.15, 0.5)
    (1, 1, 2)
    """
    last = shares.size - 1
    cell = min(int(np.searchsorted(shares, share)), last)
    possible = np.flatnonzero(high >= share)
    below = np.flatnonzero(low < share)
    first = int(possible[0]) if possible.size else last
    final = min(int(below[-1]) + 1, last) if below.size else 0
    return cell, min(first, cell), max(final, cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A quantile, and the ends of an interval that holds that of the table with 95 %, given the noise."""

    value: float
    low_95: float
    high_95: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DistributionModel:
    """Shares of the records up to the end of every cell, a row for each group.

    Cells are whole numbers, or bins (`whole` is false) whose first begins at `least`. Shares of a group whose
    total the noise hides are NaN.
    """

    groups: tuple[Label | None, ...]
    ends: Floats
    least: float
    whole: bool
    counts: Whole
    shares: Floats
    low: Floats
    high: Floats
    family: str = "distribution"
    classes: tuple[Label, ...] = ()

    def is_known(self, row: int) -> bool:
        """Return whether the shares of a group are known."""
        return not bool(np.isnan(self.shares[row, 0]))

    def quantile(self, row: int, share: float) -> Quantile:
        """Return value at `share` with the ends of its interval; within a bin, records are spread evenly."""
        shares = self.shares[row]
        cell, first, last = find_cell(shares, self.low[row], self.high[row], share)
        if self.whole:
            value, low, high = (float(self.ends[each]) for each in (cell, first, last))
            return Quantile(value=value, low_95=low, high_95=high)
        starts = np.concatenate(([self.least], self.ends[:-1]))
        before = float(shares[cell - 1]) if cell else 0.0
        inside = float(shares[cell]) - before
        part = min(max((share - before) / inside, 0.0), 1.0) if inside > 0 else 1.0
        value = float(starts[cell] + part * (self.ends[cell] - starts[cell]))
        return Quantile(value=value, low_95=float(starts[first]), high_95=float(self.ends[last]))

    def share_upto(self, row: int, value: float) -> float:
        """Return the share up to the last end that is not above `value`."""
        place = int(np.searchsorted(self.ends, value, side="right"))
        return float(self.shares[row, place - 1]) if place else 0.0

    def numbers(self, codes: Mapping[str, Whole], rows: int) -> Floats:
        """Raises an error: a distribution predicts nothing."""
        raise ReleaseError("a distribution predicts nothing; ask it for `quantile(0.5)`")

    probabilities = numbers


def read_distribution(document: Mapping[str, Any], columns: Mapping[str, Column]) -> DistributionModel:
    """Return the distribution that a model.json describes; raises a ValueError if it describes none."""
    groups = next((column.labels for column in columns.values()), (None,))
    ends = np.array(document["ends"], np.float64)
    shape = len(groups), ends.size
    parts = {
        name: np.array(document[name], np.float64).reshape(shape) for name in ("share", "low_95", "high_95")
    }
    if (np.diff(ends) <= 0).any() or (np.diff(parts["share"], axis=1) < 0).any():
        raise ValueError("ends and shares must rise")
    return DistributionModel(
        groups=groups,
        ends=ends,
        least=float(parse_exact(document["low"], name="low")),
        whole=bool(document["whole"]),
        counts=np.array(document["count"], np.int64).reshape(shape),
        shares=parts["share"],
        low=parts["low_95"],
        high=parts["high_95"],
    )
