"""A privacy guarantee as a record (what one query costs, how often it is asked), and what it lets one learn.

Amounts add up over queries: pure epsilons, rates rho and squares of mu, and the probabilities delta with
which a query may fail. `posterior.py` has the bounds and their reasons. The adversary knows everybody else's
data; an answer multiplies the odds of a belief by the ratio of its probabilities, and the
logarithm of that ratio is the privacy loss of the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Literal, get_args

from sfumato.core.cost.curves import mu_to_epsilon, pure_to_mu, pure_to_rho, rho_to_epsilon, sqrt_up
from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, format_exact, parse_exact, parse_positive
from sfumato.report.explain.posterior import Total, largest_power, posterior_bounds, pure_bounds

Kind = Literal["epsilon", "rho", "mu"]

_LEAST, _MOST = Fraction(1, 10**12), Fraction(10**6)
_MOST_TIMES = 10**9
_NORMAL = NormalDist()
_GUARD = 1e-9  # above the rounding of floats, so that a bound stays one


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The guarantee of one query, asked `times` times: pure, zero-concentrated (rho) or Gaussian (mu).

    `delta` goes with epsilon only.

    >>> Guarantee(kind="epsilon", amount="0.1", times=10).total.epsilon
    Fraction(1, 1)
    """

    kind: Kind
    amount: Fraction
    delta: Fraction = Fraction(0)
    times: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise RecipeError(
                f"a guarantee is one of {', '.join(get_args(Kind))}, got {str(self.kind)[:40]!r}"
            )
        object.__setattr__(self, "amount", _parse_amount(self.amount, self.kind))
        object.__setattr__(self, "delta", _parse_delta(self.delta, self.kind))
        if isinstance(self.times, bool) or not isinstance(self.times, int):
            raise RecipeError("times must be a whole number")
        if not 1 <= self.times <= _MOST_TIMES:
            raise RecipeError(f"times must lie between 1 and {_MOST_TIMES:,}, got {self.times}")

    @property
    def total(self) -> Total:
        """What all queries cost together.

        Pure privacy is zero-concentrated and Gaussian too, which is less for many queries. Gaussian
        privacy is zero-concentrated, with half the square of mu.
        """
        times = self.times
        if self.kind == "rho":
            return Total(epsilon=None, rho=times * self.amount, mu_squared=None)
        if self.kind == "mu":
            squared = times * self.amount**2
            return Total(epsilon=None, rho=squared / 2, mu_squared=squared)
        return Total(
            epsilon=times * self.amount,
            rho=times * pure_to_rho(self.amount),
            mu_squared=times * pure_to_mu(self.amount) ** 2,
            failure=min(Fraction(1), times * self.delta),
        )

    def describe(self) -> str:
        """Returns the guarantee of one query in a few words.

        >>> Guarantee(kind="epsilon", amount=1, delta="1e-6").describe()
        'epsilon 1, delta 0.000001'
        """
        kinds = {"epsilon": "pure", "rho": "zero-concentrated", "mu": "Gaussian"}
        if self.delta:
            return f"epsilon {format_exact(self.amount)}, delta {format_exact(self.delta)}"
        return f"{self.kind} {format_exact(self.amount)} ({kinds[self.kind]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A guarantee read as an epsilon at a delta, and the way by which it was read."""

    epsilon: float
    delta: Fraction
    way: str


def parse_probability(value: ExactLike, *, name: str) -> Fraction:
    """Returns the probability from 0 to 1 that `value` stands for.

    >>> parse_probability("0.5", name="prior")
    Fraction(1, 2)
    """
    number = parse_exact(value, name=name)
    if not 0 <= number <= 1:
        raise RecipeError(f"{name} must lie between 0 and 1, got {str(value)[:40]!r}")
    return number


def belief_bounds(
    guarantee: Guarantee, prior: ExactLike, *, rarity: Fraction | None = None
) -> tuple[float, float]:
    """Returns the least and the largest belief after the answers, for a `prior` belief.

    Without `rarity`, after any answers: only pure epsilon bounds that, others give 0 and 1. With it,
    after evidence that is so rare if the belief is false (for the upper end; for the lower, if true).

    >>> [round(bound, 4) for bound in belief_bounds(Guarantee(kind="epsilon", amount=1), 0.5)]
    [0.2689, 0.7311]
    >>> belief_bounds(Guarantee(kind="rho", amount=1), 0.5)
    (0.0, 1.0)
    """
    return posterior_bounds(guarantee.total, float(parse_probability(prior, name="prior")), rarity=rarity)


def best_guess(guarantee: Guarantee, prior: ExactLike) -> float:
    """Returns the largest share of right guesses, if the one table is true with chance `prior`.

    >>> round(best_guess(Guarantee(kind="epsilon", amount=1), 0.5), 4)
    0.7311
    >>> round(best_guess(Guarantee(kind="mu", amount=1), 0.5), 4)
    0.6915
    """
    before = float(parse_probability(prior, name="prior"))
    plain = max(before, 1 - before)
    if plain == 1:
        return 1.0
    total = guarantee.total
    rights = [1.0]
    if total.epsilon is not None:
        # The corner of the trade-off, where both errors are 1 / (1 + e^epsilon).
        rights.append(pure_bounds(float(total.epsilon), 0.5)[1])
    if total.mu_squared is not None:
        rights.append(_gaussian_right(math.sqrt(total.mu_squared), before))
    elif total.rho is not None:
        rights.append(_concentrated_right(float(total.rho), before))
    right = max(plain, min(rights))
    failure = float(total.failure)
    return min(1.0, failure + (1 - failure) * right)


def read_epsilon(guarantee: Guarantee, delta: ExactLike) -> Reading | None:
    """Returns the least epsilon that is known to hold at `delta`, rounded up; None if a failure is likelier.

    Pure epsilons add up; over many queries, what they are as Gaussian and zero-concentrated privacy adds
    up to less.

    >>> reading = read_epsilon(Guarantee(kind="epsilon", amount=0.1, times=100), 1e-6)
    >>> round(reading.epsilon, 2), reading.way
    (5.22, 'zero-concentrated')
    """
    at = parse_probability(delta, name="delta")
    total = guarantee.total
    left = at - total.failure
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


def largest_detection(guarantee: Guarantee, false_alarm: float) -> float:
    """Returns the largest share of true cases that a test finds, if it accuses `false_alarm` of the others.

    >>> round(largest_detection(Guarantee(kind="epsilon", amount=1), 0.05), 4)
    0.1359
    >>> round(largest_detection(Guarantee(kind="mu", amount=1), 0.05), 4)
    0.2595
    """
    if not 0 <= false_alarm <= 1:
        raise RecipeError("the rate of false alarms must lie between 0 and 1")
    return largest_power(guarantee.total, false_alarm)


def least_missed(guarantee: Guarantee, false_alarm: float) -> float:
    """Returns the least share of true cases that a test misses, if it accuses `false_alarm` of the others.

    >>> round(least_missed(Guarantee(kind="rho", amount=0.5), 0.05), 4)
    0.6644
    """
    return max(0.0, 1 - largest_detection(guarantee, false_alarm))


def _parse_amount(value: ExactLike, kind: Kind) -> Fraction:
    number = parse_positive(value, name=kind)
    if not _LEAST <= number <= _MOST:
        raise RecipeError(f"{kind} must lie between 1e-12 and 1e6 to be explained")
    return number


def _parse_delta(value: ExactLike, kind: Kind) -> Fraction:
    number = parse_exact(value, name="delta")
    if not 0 <= number < 1:
        raise RecipeError("delta must be 0 or more, and below one")
    if number and kind != "epsilon":
        raise RecipeError(f"{kind} has no delta of its own; state at which delta to read it as an epsilon")
    return number


def _gaussian_right(mu: float, prior: float) -> float:
    """Returns the test at the likelihood ratio (1 - prior) / prior, which no other test beats."""
    cut = (math.log1p(-prior) - math.log(prior)) / mu
    found, alarms = _NORMAL.cdf(mu / 2 - cut), _NORMAL.cdf(-mu / 2 - cut)
    return prior * found + (1 - prior) * (1 - alarms) + _GUARD


def _concentrated_right(rho: float, prior: float) -> float:
    """Bounds from above on a grid: the detections of one rate with the alarms of the next."""
    import numpy as np

    from sfumato.report.explain.powers import concentrated_powers

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
