"""Confidence intervals: where the noise-free value of an answer lies, with a stated confidence.

They speak of the noise alone. The value they enclose is the exact answer to the bounded question:
clamped values, and no more records of an individual than the bounds let count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.sql.plan import group_widths, normal_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sfumato.sql.plan import Noise

    Numbers = NDArray[np.float64]
    Tests = NDArray[np.bool_]

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
    if all(term.noise.kind == "gaussian" for term in terms):
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
