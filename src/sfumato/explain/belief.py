"""Beliefs before and after: how far answers move an adversary who knows everybody else's data.

The adversary holds two tables possible that differ in one person, and believes in the one with
probability `prior`. An answer multiplies the odds by the ratio of its probabilities under the two. The
logarithm of that ratio is the privacy loss of the answer: for pure epsilon it lies between -epsilon and
epsilon, whatever the answer, and the losses of several answers add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from sfumato.accounting import mu_to_epsilon, rho_to_epsilon, sqrt_up
from sfumato.explain.guarantee import parse_probability
from sfumato.explain.tradeoff import concentrated_powers, largest_detection
from sfumato.report.posterior import pure_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sfumato.exact import ExactLike
    from sfumato.explain.guarantee import Guarantee

_NORMAL = NormalDist()
_GUARD = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A guarantee read as an epsilon at a delta, and the way by which it was read."""

    epsilon: float
    delta: Fraction
    way: str


def posterior_after(prior: ExactLike, losses: Iterable[float]) -> float:
    """The belief after answers with these privacy losses, for a `prior` belief.

    >>> posterior_after(0.5, [])
    0.5
    >>> round(posterior_after(0.5, [1.0, -0.4, 0.4]), 4)
    0.7311
    """
    return pure_bounds(math.fsum(losses), float(parse_probability(prior, name="prior")))[1]


def belief_bounds(
    guarantee: Guarantee, prior: ExactLike, *, rarity: Fraction | None = None
) -> tuple[float, float]:
    """The least and the largest belief after the answers, for a `prior` belief.

    Without `rarity`, after any answers: only pure epsilon bounds that, others give 0 and 1. With it,
    after evidence that is so rare if the belief is false (for the upper end; for the lower, if true).

    >>> from sfumato.explain import Guarantee
    >>> [round(bound, 4) for bound in belief_bounds(Guarantee(kind="epsilon", amount=1), 0.5)]
    [0.2689, 0.7311]
    >>> belief_bounds(Guarantee(kind="rho", amount=1), 0.5)
    (0.0, 1.0)
    """
    before = float(parse_probability(prior, name="prior"))
    if before in (0, 1):  # who is certain stays so
        return before, before
    if rarity is None:
        epsilon = guarantee.total.epsilon
        if epsilon is None or guarantee.failure:
            return 0.0, 1.0
        return pure_bounds(float(epsilon), before)
    chance = float(rarity)
    power = largest_detection(guarantee, chance)
    low = before * chance / (before * chance + (1 - before) * power)
    high = before * power / (before * power + (1 - before) * chance)
    return low, high


def best_guess(guarantee: Guarantee, prior: ExactLike) -> float:
    """The largest share of right guesses between the two tables, if the one is true with chance `prior`.

    >>> from sfumato.explain import Guarantee
    >>> round(best_guess(Guarantee(kind="epsilon", amount=1), 0.5), 4)
    0.7311
    >>> round(best_guess(Guarantee(kind="mu", amount=1), 0.5), 4)
    0.6915
    """
    before = float(parse_probability(prior, name="prior"))
    plain = max(before, 1 - before)
    if plain == 1:
        return 1.0
    total, failure = guarantee.total, float(guarantee.failure)
    rights = [1.0]
    if total.epsilon is not None:
        # The corner of the trade-off, where both errors are 1 / (1 + e^epsilon).
        rights.append(pure_bounds(float(total.epsilon), 0.5)[1])
    if total.mu_squared is not None:
        rights.append(_gaussian_right(math.sqrt(total.mu_squared), before))
    elif total.rho is not None:
        rights.append(_concentrated_right(float(total.rho), before))
    right = max(plain, min(rights))
    return min(1.0, failure + (1 - failure) * right)


def read_epsilon(guarantee: Guarantee, delta: ExactLike) -> Reading | None:
    """The least epsilon that is known to hold at `delta`, rounded up; None if a failure is likelier.

    Pure epsilons add up; over many queries, what they are as Gaussian and zero-concentrated privacy adds
    up to less.

    >>> from sfumato.explain import Guarantee
    >>> reading = read_epsilon(Guarantee(kind="epsilon", amount=0.1, times=100), 1e-6)
    >>> round(reading.epsilon, 2), reading.way
    (5.22, 'zero-concentrated')
    """
    at = parse_probability(delta, name="delta")
    left = at - guarantee.failure
    total = guarantee.total
    ways: list[tuple[float, str]] = []
    if total.epsilon is not None and left >= 0:
        ways.append((float(total.epsilon), "sum"))
    if 0 < left < 1 and total.mu_squared is not None:
        ways.append((mu_to_epsilon(sqrt_up(total.mu_squared), left), "Gaussian"))
    if 0 < left < 1 and total.rho is not None:
        ways.append((rho_to_epsilon(total.rho, left), "zero-concentrated"))
    if not ways:
        return None
    epsilon, way = min(ways, key=lambda each: each[0])
    return Reading(epsilon=epsilon, delta=at, way=way)


def _gaussian_right(mu: float, prior: float) -> float:
    """The test at the likelihood ratio (1 - prior) / prior, which no other test beats."""
    cut = (math.log1p(-prior) - math.log(prior)) / mu
    found, alarms = _NORMAL.cdf(mu / 2 - cut), _NORMAL.cdf(-mu / 2 - cut)
    return prior * found + (1 - prior) * (1 - alarms) + _GUARD


def _concentrated_right(rho: float, prior: float) -> float:
    """An upper bound on a grid: between two rates, the detections of the one with the alarms of the other."""
    edges = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(-16, 16, 160))), [1.0]])
    for _ in range(2):
        inside = (edges > 0) & (edges < 1)
        powers = edges.copy()
        powers[inside] = concentrated_powers(rho, edges[inside])
        at = prior * powers + (1 - prior) * (1 - edges)
        above = prior * powers[1:] + (1 - prior) * (1 - edges[:-1])
        best = float(above.max())
        keep = np.flatnonzero(above >= at.max() - _GUARD)
        edges = np.linspace(edges[keep[0]], edges[keep[-1] + 1], 160)
    return best + _GUARD
