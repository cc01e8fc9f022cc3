"""Noisy values with intervals around them, and how arithmetic carries both.

A band encloses what the values would be without noise. Every operation here keeps that: where a function
never falls it is applied to the ends, elsewhere the ends are those of a box around all that may be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.asks import Ranked
from sfumato.core.algebra.measures import Measure
from sfumato.core.errors import refuse
from sfumato.sql.plan import AnyNoise, Noise, PrivateChoice, group_widths, half_width, normal_width

if TYPE_CHECKING:
    from sfumato.sql.aggregates import Aggregate

    Numbers = NDArray[np.float64]
    Tests = NDArray[np.bool_]

_BLOCK = 2000
# Errors of variances that are smaller than so much of them are taken to first order.
_SURE = 0.25
# Tuned on made-up values of ten laws, 300 to 20,000 of them, at epsilon .1 and 1, and tried on others
# (benchmarks/quantiles.py). The window is noisy, and what lies between so few values differs by itself.
_WIDER = 1.15
_SPACING = 0.6
# A quantile above the middle has less dense values above it than the window tells, and the other way round.
_TAIL = 0.8
# If the end would lie beyond such a part of the records on that side, that side is unknown.
_LOST = 1 / 3
_SURELY = math.log(20)
# An end between whole numbers goes to the next if it lies so much beyond the last.
_WHOLE = 0.3


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
    aggregate: Aggregate, parts: list[tuple[AnyNoise, NDArray[np.int64]]], share: float, *, rehearse: bool
) -> Band:
    """The band of an aggregate from the noisy values of its measures.

    To `rehearse`, types matter and values do not, and no interval is looked for.
    """
    if rehearse:
        noise, values = parts[0]
        whole = aggregate.kind == "measure" and (
            noise.measure.grid == 1 if isinstance(noise, Noise) else noise.measure.whole
        )
        whole = whole and values.dtype == np.int64
        shape = values[0].shape if values.ndim > 1 else values.shape
        return Band(*[np.zeros(shape, np.int64 if whole else np.float64)] * 3)
    if aggregate.kind == "measure":
        return _measured(*parts[0], share)
    corners = [
        _band_of(aggregate, list(each), share)
        for each in itertools.product(*(_shift(*part, share) for part in parts))
    ]
    lows, highs = [each.low for each in corners], [each.high for each in corners]
    return Band(
        _band_of(aggregate, parts, share).value if len(corners) > 1 else corners[0].value,
        np.fmin.reduce(lows),
        np.fmax.reduce(highs),
    )


def _shift(
    noise: AnyNoise, noisy: NDArray[np.int64], share: float
) -> list[tuple[AnyNoise, NDArray[np.int64]]]:
    """The least and the most that a measure may be with what a clip cut; as it is if that is nothing."""
    if not isinstance(noise, Noise) or not noise.beyond:
        return [(noise, noisy)]
    less, more = (
        np.rint(each).astype(np.int64) for each in _find_cut(noise, noisy + half_width(noise, share))
    )
    return [(noise, noisy - less), (noise, noisy + more)]


def _find_cut(noise: Noise, highest: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How much a clip may have cut of each group, below and above, as far as noise tells.

    No group lacks more than all that was cut. Where nothing is negative, each part of what a group has, which
    is up to `highest`, was scaled down by no more than the largest norm asks for.
    """
    if noise.measure.is_signed:
        most = np.full(highest.shape, float(noise.beyond))
        return most, most
    above = np.minimum(float(noise.beyond), (noise.times - 1) * np.maximum(highest, 0))
    return np.zeros(highest.shape), above


def _band_of(aggregate: Aggregate, parts: list[tuple[AnyNoise, NDArray[np.int64]]], share: float) -> Band:
    """The band of an aggregate that is made of several measures."""
    added = [(noise, noisy) for noise, noisy in parts if isinstance(noise, Noise)]
    if aggregate.kind == "average":
        return _average(added, share)
    if aggregate.kind in ("variance", "deviation"):
        return _spread(added, share, sample=aggregate.sample, root=aggregate.kind == "deviation")
    return _paired(aggregate, added, share)


def sum_widths(noise: Noise, share: float, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each count a width that the sum of so many noises exceeds with a probability of at most `share`.

    Chernoff's bound for Laplace noise, P(|sum| > w) <= 2 exp(-tw) / (1 - t^2 b^2)^count for every t below
    1 / b; normal noise adds up to normal noise.
    """
    scale = float(noise.scale)
    if noise.is_normal:
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


def _measured(noise: AnyNoise, noisy: NDArray[np.int64], share: float) -> Band:
    measure = noise.measure
    if isinstance(noise, PrivateChoice):
        return Band(*find_quantile(noise, noisy, share))
    width = group_widths(noise, share)
    less, more = _find_cut(noise, noisy + width)
    if measure.grid == 1:
        low, high = (np.ceil(width + each).astype(np.int64) for each in (less, more))
        return Band(noisy, noisy - low, noisy + high)
    value = noisy / measure.grid
    return Band(value, value - (width + less) / measure.grid, value + (width + more) / measure.grid)


def find_quantile(
    choice: PrivateChoice, steps: NDArray[np.int64], share: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The quantile of every group, with the ends of an interval that misses the true one in `share`.

    `steps` are those of the answer, and how many the window around it reaches to both sides. Values are taken
    to be as dense near the answer as in the window. If that reaches beyond the bounds on both sides, there
    may be too few records to tell, and the interval goes from bound to bound.
    """
    assert isinstance(choice.drawn, Ranked)
    measure, ranks = choice.measure, choice.drawn.ranks
    asked = measure.quantile or Fraction(0)
    value, lower, upper = _read_steps(measure, steps[0])
    low, high = (np.full_like(value, float(each)) for each in (measure.low, measure.high))
    if asked in (0, 1):
        # The one choice lies inside with 95 %: the extreme is between it and the bound.
        low, high = (low, upper) if asked == 0 else (lower, high)
    elif len(ranks) == 2:
        wanted = math.log(1 / share) / float(ranks[0].rate) / asked.denominator
        wanted = _WIDER * wanted + _SPACING * math.sqrt(wanted)
        below, above = steps[0] - steps[1], steps[0] + steps[1]
        width = np.minimum(above, measure.steps + 1) - np.maximum(below, 1) + 1
        reach = wanted / ranks[1].nearest * width * float(measure.high - measure.low) / measure.steps
        known = (below >= 1) | (above <= measure.steps + 1)
        beyond = np.full_like(value, np.inf)
        if choice.drawn.scale is not None:
            # Records beyond the quantile: at least so many, but for one answer in forty.
            surely = np.maximum(steps[2] - _SURELY * float(choice.drawn.scale), 1e-9)
            beyond = float(min(asked, 1 - asked)) * surely
        # Values that fall off exponentially are so much farther apart at the answer than in the window, and
        # so much farther again at the end.
        sparser, part = np.maximum(ranks[1].nearest / beyond / 2, 1e-9), np.minimum(wanted / beyond, _LOST)
        sparser = np.maximum(sparser / np.arcsinh(sparser), 1) * (1 + _TAIL * abs(float(1 - 2 * asked)))
        sparser *= np.where(part > 0, -np.log1p(-part) / np.maximum(part, 1e-9), 1)
        down, up = (sparser, 1.0) if asked < Fraction(1, 2) else (1.0, sparser)
        down, up = (np.ceil(part * reach - _WHOLE) if measure.whole else part * reach for part in (down, up))
        # The answer may lie beyond all records: they are in the window, and nothing is known of the tail.
        lost = wanted > _LOST * beyond
        ends = _read_steps(measure, np.maximum(below, 0))[1], _read_steps(measure, above)[2]
        first = np.where(lost, low if asked < Fraction(1, 2) else ends[0], np.maximum(lower - down, low))
        last = np.where(lost, ends[1] if asked < Fraction(1, 2) else high, np.minimum(upper + up, high))
        low, high = np.where(known, first, low), np.where(known, last, high)
    kind = np.int64 if measure.whole else np.float64
    return value.astype(kind), np.minimum(low, value).astype(kind), np.maximum(high, value).astype(kind)


def _read_steps(
    measure: Measure, steps: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The middle of the interval that each candidate stands for, and its ends; of whole numbers, whole."""
    low, high = float(measure.low), float(measure.high)
    width = (high - low) / measure.steps
    lower = np.clip(low + (steps - 1) * width, low, high)
    upper = np.where(steps == 0, low, np.clip(low + steps * width, low, high))
    if not measure.whole:
        return (lower + upper) / 2, lower, upper
    # The upper end of a step belongs to the next one; the upper bound is one of its own.
    lower = np.ceil(lower)
    upper = np.where(steps > measure.steps, high, np.maximum(lower, np.ceil(upper) - 1))
    return np.floor((lower + upper) / 2), lower, upper


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
        low, high = np.where(unsure, -np.inf, found.low), np.where(unsure, np.inf, found.high)
        return _narrow(Band(found.value, low, high), parts, share * bands, steep=slope.value)
    other = _spread([first, squares[1], count], share, sample=False, root=False)
    scale = combine(exp.Mul(), spread, other).apply(lambda numbers: np.sqrt(np.maximum(numbers, 0)))
    found = combine(exp.Div(), shared, scale).apply(lambda numbers: np.clip(numbers, -1, 1))
    found = _narrow(found, parts, share * bands)
    if aggregate.kind == "correlation":
        return found
    return absolute(found).apply(np.square)


def _narrow(
    wide: Band,
    parts: list[tuple[Noise, NDArray[np.int64]]],
    share: float,
    *,
    steep: NDArray[np.float64] | None = None,
) -> Band:
    """A slope, an intercept or a correlation with the interval of the delta method, where that holds.

    `wide` has what divides the misses among all that it is made of; of an intercept, `steep` is the slope.
    The delta method takes the errors of all sums together, to first order. It holds where the variances are
    many times their noise.
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
    normal = all(noise.is_normal for noise in noises)
    reach = normal_width(share) if normal else max(normal_width(share), -math.log(share) / math.sqrt(2))
    with np.errstate(all="ignore"):
        m, k = first / count, second / count
        spreads = [squares[0] / count - k**2, *(each / count - m**2 for each in squares[1:])]
        slope = len(spreads) == 1
        scale = spreads[0] if slope else np.sqrt(spreads[0] * spreads[1])
        two = (wide.value if steep is None else steep) * (1.0 if slope else 0.5 * scale / spreads[0])
        one = 0.0 if slope else 0.5 * wide.value * scale / spreads[1]
        weights = [2 * one * m - k, 2 * two * k - m, 1.0, m * k - one * m**2 - two * k**2, two, one]
        if steep is not None:  # the mean of y, less the slope times the mean of x
            place = k + float(noises[1].measure.centre)
            own = [scale, -two * scale, 0.0, (two * k - m) * scale, 0.0]
            weights = [each - place * weight for each, weight in zip(own, weights, strict=False)]
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


_STEPS = 60
# Scales closer than this are taken apart, and smaller ones enlarged, so that the law of a sum of noises
# can be computed from its partial fractions without cancellation. Widths grow by a thousandth or two.
_APART = 1e-3
# Of the misses of a variance, what the mean that it is taken about may have.
_MEAN_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Term:
    """Noisy values of one measure, with their noise, in a unit of its own."""

    noisy: Numbers
    noise: Noise
    unit: float = 1.0

    @property
    def values(self) -> Numbers:
        """The noisy values in plain numbers."""
        return self.noisy * self.unit


def ratio_interval(
    top: Term, bottom: Term, ends: tuple[float, float], share: float
) -> tuple[Numbers, Numbers]:
    """The ratios between `ends` that the noisy `top` and `bottom` do not speak against.

    A ratio r is kept if top - r * bottom is no further from zero than its noise is, but for a share of
    the draws. That set holds the true ratio with probability 1 - share whatever the size of the bottom
    (Fieller's argument), also where few records or none are behind it.
    """
    above, below = top.values, bottom.values
    guess = np.clip(np.divide(above, below, out=np.zeros_like(above), where=below > 0), *ends)
    # The best ratio is kept by itself; between it and an end that is not kept there is one edge.
    guess = np.where(np.abs(above - guess * below) <= np.abs(above), guess, np.clip(0.0, *ends))

    def speaks_against(ratio: Numbers) -> Tests:
        weights = (np.ones_like(ratio), np.abs(ratio))
        return _exceeds(np.abs(above - ratio * below), (top, bottom), weights, share)

    return _find_edges(guess, ends, speaks_against)


def variance_interval(
    total: Term, square: Term, count: Term, half: float, share: float, *, sample: bool
) -> tuple[Numbers, Numbers]:
    """The variances that noisy sums, sums of squares and counts of values in [-half, half] allow.

    With the true mean m and variance v, square - 2 m total + (m^2 - v) count is noise alone, whose law is
    known; with `sample` there is one v more. First the means are found that the sums do not speak
    against, with a tenth of the share. A variance is kept if for one of these means the expression is no
    further from zero than its noise is, but for the rest of the share. By the union bound the variances
    that are kept hold the true one with probability 1 - share, however few records there are.

    For large groups that is hardly more than 1 - 0.9 share: about the mean the expression has its least
    value, so which mean near it is taken matters little.
    """
    sums, squares, counts = total.values, square.values, count.values
    first, last = ratio_interval(total, count, (-half, half), _MEAN_SHARE * share)
    middle = np.clip(np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0), first, last)
    means = np.stack([first, middle, last])
    outermost = np.maximum(np.abs(first), np.abs(last))
    innermost = np.where(first * last <= 0, 0, np.minimum(np.abs(first), np.abs(last)))
    about_means = squares - 2 * means * sums + means**2 * counts
    ends = 0.0, half**2 * (2 if sample else 1)

    def distance(variance: Numbers) -> Numbers:
        # One variance for every group, or several.
        means_first = about_means.reshape((3, *([1] * (variance.ndim - 1)), -1))
        rest = means_first - variance * counts + (variance if sample else 0)
        apart: Numbers = np.maximum(0, np.maximum(rest.min(0), -rest.max(0)))
        return apart

    def speaks_against(variance: Numbers) -> Tests:
        weights = (
            2 * outermost + np.zeros_like(variance),
            np.ones_like(variance),
            np.maximum(np.abs(outermost**2 - variance), np.abs(innermost**2 - variance)),
        )
        return _exceeds(distance(variance), (total, square, count), weights, (1 - _MEAN_SHARE) * share)

    plain = np.divide(about_means[1], counts, out=np.zeros_like(sums), where=counts > 0)
    guesses = np.clip(np.stack([plain, np.zeros_like(plain), np.full_like(plain, ends[1])]), *ends)
    nearest = np.argmin([distance(guess) for guess in guesses], axis=0)
    guess = np.take_along_axis(guesses, nearest[None], axis=0)[0]
    return _find_edges(guess, ends, speaks_against)


def covariance_interval(
    sums: tuple[Term, Term],
    product: Term,
    count: Term,
    halves: tuple[float, float],
    share: float,
    *,
    sample: bool,
) -> tuple[Numbers, Numbers]:
    """The covariances that noisy sums, sums of products and counts of values in [-half, half] allow.

    With the true means m and l and covariance c, product - l sum - m other sum + (m l - c) count is noise
    alone; with `sample` there is one c more. As for a variance, means are found first, with a tenth of the
    share each; the expression is least and largest at the ends of these, because it is linear in each mean.
    """
    ranges = [
        ratio_interval(each, count, (-half, half), _MEAN_SHARE * share)
        for each, half in zip(sums, halves, strict=True)
    ]
    first, second, products, counts = sums[0].values, sums[1].values, product.values, count.values
    corners = [(one, other) for one in ranges[0] for other in ranges[1]]
    about = np.stack([products - b * first - a * second + a * b * counts for a, b in corners])
    largest = [np.maximum(np.abs(low), np.abs(high)) for low, high in ranges]
    most = halves[0] * halves[1] * (2 if sample else 1)

    def distance(covariance: Numbers) -> Numbers:
        corners_first = about.reshape((4, *([1] * (covariance.ndim - 1)), -1))
        rest = corners_first - covariance * counts + (covariance if sample else 0)
        apart: Numbers = np.maximum(0, np.maximum(rest.min(0), -rest.max(0)))
        return apart

    def speaks_against(covariance: Numbers) -> Tests:
        weights = (
            largest[1] + np.zeros_like(covariance),
            largest[0] + np.zeros_like(covariance),
            np.ones_like(covariance),
            largest[0] * largest[1] + np.abs(covariance),
        )
        return _exceeds(distance(covariance), (*sums, product, count), weights, (1 - 2 * _MEAN_SHARE) * share)

    plain = np.divide(about.mean(0), counts, out=np.zeros_like(counts), where=counts > 0)
    guesses = np.clip(np.stack([plain, np.zeros_like(plain)]), -most, most)
    nearest = np.argmin([distance(guess) for guess in guesses], axis=0)
    guess = np.take_along_axis(guesses, nearest[None], axis=0)[0]
    return _find_edges(guess, (-most, most), speaks_against)


def find_edge(
    inside: Numbers,
    end: Numbers,
    speaks_against: Callable[[Numbers], Tests],
) -> Numbers:
    """Where, from a value that is kept towards an end, values begin that are spoken against; or the end."""
    refused, outside = speaks_against(end), end
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        against = speaks_against(middle)
        outside, inside = np.where(against, middle, outside), np.where(against, inside, middle)
    return np.where(refused, outside, end)


def _find_edges(
    guess: Numbers,
    ends: tuple[float, float],
    speaks_against: Callable[[Numbers], Tests],
) -> tuple[Numbers, Numbers]:
    """Both edges, looked for at once."""
    outermost = np.stack([np.full_like(guess, end) for end in ends])
    low, high = find_edge(np.stack([guess, guess]), outermost, speaks_against)
    return low, high


def _exceeds(distance: Numbers, terms: tuple[Term, ...], weights: tuple[Numbers, ...], share: float) -> Tests:
    """Whether the sum of independent noises, each times its weight, is rarely so far from zero."""
    steps = [term.unit * weight for term, weight in zip(terms, weights, strict=True)]
    if any(term.noise.parts for term in terms):
        # What follows from earlier answers need not be independent: each has its part of the share.
        widths = [group_widths(term.noise, share / len(terms)) for term in terms]
        apart: Tests = distance > sum(step * width for step, width in zip(steps, widths, strict=True))
        return apart
    scales = [step * float(term.noise.scale) for step, term in zip(steps, terms, strict=True)]
    if all(term.noise.is_normal for term in terms):
        beyond: Tests = distance > normal_width(share) * np.sqrt(sum(scale**2 for scale in scales))
        return beyond
    # Sorted by exchanging neighbours: there are two or three, and how they lie differs from group to group.
    for last in range(len(scales) - 1, 0, -1):
        for place in range(last):
            one, other = scales[place], scales[place + 1]
            scales[place], scales[place + 1] = np.minimum(one, other), np.maximum(one, other)
    largest = np.maximum(scales[-1], np.finfo(float).tiny * 2**60)
    scales = [scale / largest for scale in scales]
    scales[0] = np.maximum(scales[0], _APART)
    for index in range(1, len(scales)):
        scales[index] = np.maximum(scales[index], scales[index - 1] * (1 + _APART))
    # Half a step of each lattice is taken off, because the noise is discrete.
    far = np.maximum(0, distance - 0.5 * sum(steps)) / largest
    # For two-sided exponentials of different scales b_i, P(|sum| > t) = sum of A_i exp(-t / b_i), where
    # A_i is the product of b_i^2 / (b_i^2 - b_j^2) over all other j.
    squares = [scale**2 for scale in scales]
    tail: Numbers | float = 0.0
    for i, scale in enumerate(scales):
        part = np.exp(-far / scale)
        for j, square in enumerate(squares):
            if j != i:
                part = part * (squares[i] / (squares[i] - square))
        tail = tail + part
    rare: Tests = (far > 0) & (tail <= share)
    return rare
