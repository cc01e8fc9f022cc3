"""Noisy values with intervals around them, and how arithmetic carries both.

A band encloses what the values would be without noise. Every operation here keeps that: where a function
never falls it is applied to the ends, elsewhere the ends are those of a box around all that may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.sql.check import refuse
from sfumato.sql.choices import cell_edges
from sfumato.sql.intervals import Term, covariance_interval, ratio_interval, variance_interval
from sfumato.sql.plan import Noise, group_widths, half_width, normal_width

if TYPE_CHECKING:
    from sfumato.sql.aggregates import Aggregate

_BLOCK = 2000
# Errors of variances that are smaller than so much of them are taken to first order.
_SURE = 0.25


@dataclass(frozen=True, slots=True)
class Band:
    """Values with the interval that encloses what they would be without noise."""

    value: NDArray[Any]
    low: NDArray[Any]
    high: NDArray[Any]

    def apply(self, rising: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Band:
        """The band of a function that never falls."""
        return Band(*(rising(each.astype(float)) for each in (self.value, self.low, self.high)))

    def where(self, test: NDArray[np.bool_], other: Band) -> Band:
        """A band that is this one where the test holds, and the other one elsewhere."""
        mine, others = (self.value, self.low, self.high), (other.value, other.low, other.high)
        return Band(*(np.where(test, one, two) for one, two in zip(mine, others, strict=True)))


def constant_band(value: float, rows: int) -> Band:
    """A number that is known, for every row."""
    numbers = np.full(rows, value)
    return Band(numbers, numbers, numbers)


def join_bands(bands: list[Band]) -> Band:
    """The bands of several blocks of rows, one after the other."""
    parts = [[each.value for each in bands], [each.low for each in bands], [each.high for each in bands]]
    return Band(*(np.concatenate(each) for each in parts))


def aggregate_band(
    aggregate: Aggregate, parts: list[tuple[Noise, NDArray[np.int64]]], share: float, *, rehearse: bool
) -> Band:
    """The band of an aggregate from the noisy values of its measures.

    To `rehearse`, types matter and values do not, and no interval is looked for.
    """
    if rehearse:
        noise, values = parts[0]
        whole = aggregate.kind == "measure" and noise.kind != "exponential" and noise.measure.grid == 1
        whole = whole and values.dtype == np.int64
        shape = values[0].shape if values.ndim > 1 else values.shape
        return Band(*[np.zeros(shape, np.int64 if whole else np.float64)] * 3)
    if aggregate.kind == "measure":
        return _measured(*parts[0], share)
    if aggregate.kind == "average":
        return _average(parts, share)
    if aggregate.kind in ("variance", "deviation"):
        return _spread(parts, share, sample=aggregate.sample, root=aggregate.kind == "deviation")
    return _paired(aggregate, parts, share)


def sum_widths(noise: Noise, share: float, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each count a width that the sum of so many noises exceeds with a probability of at most `share`.

    Chernoff's bound for Laplace noise, P(|sum| > w) <= 2 exp(-tw) / (1 - t^2 b^2)^count for every t below
    1 / b; normal noise adds up to normal noise.
    """
    scale = float(noise.scale)
    if noise.kind == "gaussian":
        found = normal_width(share) * scale * np.sqrt(counts)
    else:
        rates = np.linspace(0.001, 0.999, 999)
        falls, begin = -np.log1p(-(rates**2)) / rates, math.log(2 / share) / rates
        found = np.empty(counts.size)
        for start in range(0, counts.size, _BLOCK):
            some = counts[start : start + _BLOCK]
            # Discrete noise has no larger moments: sinh(t / 2) <= tb sinh(1 / 2b), as sinh(x) / x grows.
            found[start : start + _BLOCK] = (begin + some[:, None] * falls).min(axis=1) * scale
    return np.where(counts <= 1, half_width(noise, share), found)


def absolute(inner: Band) -> Band:
    """The band of ABS."""
    crosses = (inner.low <= 0) & (inner.high >= 0)
    ends = np.stack([np.abs(inner.low), np.abs(inner.high)])
    return Band(np.abs(inner.value), np.where(crosses, 0, ends.min(0)), ends.max(0))


def combine(tree: exp.Expr, left: Band, right: Band) -> Band:
    """The band of `+ - * /`, of GREATEST and of LEAST."""
    match tree:
        case exp.Add():
            return Band(left.value + right.value, left.low + right.low, left.high + right.high)
        case exp.Sub():
            return Band(left.value - right.value, left.low - right.high, left.high - right.low)
        case exp.Mul():
            corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
            return Band(left.value * right.value, np.min(corners, 0), np.max(corners, 0))
        case exp.Greatest() | exp.Least():
            pick = np.maximum if isinstance(tree, exp.Greatest) else np.minimum
            return Band(pick(left.value, right.value), pick(left.low, right.low), pick(left.high, right.high))
        case exp.Div() | exp.IntDiv():
            unsure = (right.low <= 0) & (right.high >= 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                corners = [a / b for a in (left.low, left.high) for b in (right.low, right.high)]
                low = np.where(unsure, -np.inf, np.min(corners, 0))
                high = np.where(unsure, np.inf, np.max(corners, 0))
                zero = right.value == 0
                return Band(np.where(zero, np.nan, left.value / np.where(zero, 1, right.value)), low, high)
    raise refuse(f"{tree.key.upper()} over aggregates")


def _measured(noise: Noise, noisy: NDArray[np.int64], share: float) -> Band:
    measure = noise.measure
    if noise.kind == "exponential":
        cells = [cell_edges(chosen, float(measure.low), float(measure.high)) for chosen in noisy]
        lower, upper = cells[0]
        value = (lower + upper) / 2
        if len(cells) > 1:
            return Band(value, np.minimum(value, cells[1][0]), np.maximum(value, cells[2][1]))
        # MIN or MAX, whose one choice lies inside with 95 %: the extreme is between it and the bound.
        if measure.quantile == 0:
            return Band(value, np.full_like(value, float(measure.low)), upper)
        return Band(value, lower, np.full_like(value, float(measure.high)))
    width = group_widths(noise, share)
    if measure.grid == 1:
        whole = np.ceil(width).astype(np.int64)
        return Band(noisy, noisy - whole, noisy + whole)
    value = noisy / measure.grid
    return Band(value, value - width / measure.grid, value + width / measure.grid)


def _average(parts: list[tuple[Noise, NDArray[np.int64]]], share: float) -> Band:
    (top_noise, top), (bottom_noise, bottom) = parts
    measure = top_noise.measure
    centre, grid = float(measure.centre), measure.grid
    low, high = float(measure.low), float(measure.high)
    ends = (low - centre) * grid, (high - centre) * grid
    total, count = top.astype(float), bottom.astype(float)
    ratio = np.divide(total, count, out=np.zeros_like(total), where=count >= 1)
    first, last = ratio_interval(Term(total, top_noise), Term(count, bottom_noise), ends, share)
    return Band(*(np.clip(centre + each / grid, low, high) for each in (ratio, first, last)))


def _spread(parts: list[tuple[Noise, NDArray[np.int64]]], share: float, *, sample: bool, root: bool) -> Band:
    """Variance or standard deviation from noisy sums, sums of squares and counts."""
    (sum_noise, sums), (square_noise, squares), (count_noise, counts) = parts
    half = float(sum_noise.measure.high - sum_noise.measure.low) / 2
    total = Term(sums.astype(float), sum_noise, 1 / sum_noise.measure.grid)
    square = Term(squares.astype(float), square_noise, half**2 / square_noise.measure.grid)
    count = np.maximum(counts.astype(float), 1)
    value = square.values / count - np.clip(total.values / count, -half, half) ** 2
    value = value * count / np.maximum(count - 1, 1) if sample else value
    value = np.clip(value, 0, half**2 * (2 if sample else 1))
    low, high = variance_interval(
        total, square, Term(counts.astype(float), count_noise), half, share, sample=sample
    )
    if root:
        value, low, high = np.sqrt(value), np.sqrt(low), np.sqrt(high)
    return Band(value, np.minimum(low, value), np.maximum(high, value))


def _paired(aggregate: Aggregate, parts: list[tuple[Noise, NDArray[np.int64]]], share: float) -> Band:
    """Covariance and what follows from it; the share is divided among all intervals that are needed."""
    first, second, product, count, *squares = parts
    if aggregate.kind == "covariance":
        return _covariance(first, second, product, count, share, sample=aggregate.sample)
    bands = {"slope": 2, "intercept": 4}.get(aggregate.kind, 3)
    share = share / bands
    shared = _covariance(first, second, product, count, share, sample=False)
    spread = _spread([second, squares[0], count], share, sample=False, root=False)
    if aggregate.kind in ("slope", "intercept"):
        slope = combine(exp.Div(), shared, spread)
        if aggregate.kind == "slope":
            return _narrow(slope, parts, share * bands)
        means = [_average([each, count], share) for each in (first, second)]
        with np.errstate(invalid="ignore"):
            found = combine(exp.Sub(), means[0], combine(exp.Mul(), slope, means[1]))
        # Where the slope is open, so is the intercept, whatever the mean it is multiplied by.
        unsure = ~np.isfinite(slope.low) | ~np.isfinite(slope.high)
        return Band(found.value, np.where(unsure, -np.inf, found.low), np.where(unsure, np.inf, found.high))
    other = _spread([first, squares[1], count], share, sample=False, root=False)
    scale = combine(exp.Mul(), spread, other).apply(lambda numbers: np.sqrt(np.maximum(numbers, 0)))
    found = combine(exp.Div(), shared, scale).apply(lambda numbers: np.clip(numbers, -1, 1))
    found = _narrow(found, parts, share * bands)
    if aggregate.kind == "correlation":
        return found
    return absolute(found).apply(np.square)


def _narrow(wide: Band, parts: list[tuple[Noise, NDArray[np.int64]]], share: float) -> Band:
    """A slope or a correlation with the interval of the delta method, where that holds.

    `wide` has what divides the misses among all that it is made of. The delta method takes the errors of
    all sums together, to first order. It holds where the variances are many times their noise.
    """
    noises = [noise for noise, _ in parts]
    if any(noise.parts for noise in noises):
        return wide
    halves = [float(noise.measure.high - noise.measure.low) / 2 for noise in noises[:2]]
    # In the order of measures: sums, products, records, squares of the second and of the first.
    sizes = [1.0, 1.0, halves[0] * halves[1], 1.0, halves[1] ** 2, halves[0] ** 2][: len(parts)]
    units = [size / noise.measure.grid for size, noise in zip(sizes, noises, strict=True)]
    errors = [noise.deviation * unit for noise, unit in zip(noises, units, strict=True)]
    first, second, _, count, *squares = (
        values * unit for (_, values), unit in zip(parts, units, strict=True)
    )
    # Of Laplace noises together, the tail is at most that of one.
    normal = all(noise.kind == "gaussian" for noise in noises)
    reach = normal_width(share) if normal else max(normal_width(share), -math.log(share) / math.sqrt(2))
    with np.errstate(all="ignore"):
        m, k = first / count, second / count
        spreads = [squares[0] / count - k**2, *(each / count - m**2 for each in squares[1:])]
        slope = len(spreads) == 1
        scale = spreads[0] if slope else np.sqrt(spreads[0] * spreads[1])
        two = wide.value * (1.0 if slope else 0.5 * scale / spreads[0])
        one = 0.0 if slope else 0.5 * wide.value * scale / spreads[1]
        weights = [2 * one * m - k, 2 * two * k - m, 1.0, m * k - one * m**2 - two * k**2, two, one]
        squared = sum((weight * error) ** 2 for weight, error in zip(weights, errors, strict=False))
        width = reach * np.sqrt(squared) / (count * scale)
        noisy = [reach * error / (count * each) for each, error in zip(spreads, errors[4:], strict=True)]
        noisy.append(reach * errors[3] / count)
        sure = (np.max(noisy, axis=0) < _SURE) & (count > 0) & (np.min(spreads, axis=0) > 0)
    low, high = np.maximum(wide.value - width, wide.low), np.minimum(wide.value + width, wide.high)
    return Band(wide.value, np.where(sure, low, wide.low), np.where(sure, high, wide.high))


def _covariance(
    first: tuple[Noise, NDArray[np.int64]],
    second: tuple[Noise, NDArray[np.int64]],
    product: tuple[Noise, NDArray[np.int64]],
    counted: tuple[Noise, NDArray[np.int64]],
    share: float,
    *,
    sample: bool,
) -> Band:
    halves = tuple(float(noise.measure.high - noise.measure.low) / 2 for noise, _ in (first, second))
    sums = tuple(
        Term(values.astype(float), noise, 1 / noise.measure.grid) for noise, values in (first, second)
    )
    unit = halves[0] * halves[1] / product[0].measure.grid
    products = Term(product[1].astype(float), product[0], unit)
    counts = Term(counted[1].astype(float), counted[0])
    count = np.maximum(counts.values, 1)
    means = [np.clip(each.values / count, -half, half) for each, half in zip(sums, halves, strict=True)]
    value = products.values / count - means[0] * means[1]
    value = value * count / np.maximum(count - 1, 1) if sample else value
    most = halves[0] * halves[1] * (2 if sample else 1)
    value = np.clip(value, -most, most)
    low, high = covariance_interval(
        (sums[0], sums[1]), products, counts, (halves[0], halves[1]), share, sample=sample
    )
    return Band(value, np.minimum(low, value), np.maximum(high, value))
