"""Certain bounds from counted events: binomial tails, and what they say about epsilon.

Every bound is rounded away from a violation. The proofs are in docs/proofs/audit.md.
"""

from __future__ import annotations

import math

import numpy as np

from sfumato.core.errors import AuditError
from sfumato.tables.arrays import Floats

_TINY = 1e-300
_HAIR = 1e-9  # relative, well above the errors of the functions below: bounds stay on the safe side
_STEPS = 100


def binomial_tail(hits: int, runs: int, chance: float) -> float:
    """P(X >= hits) for X the number of hits in `runs` independent runs of this `chance`."""
    if hits <= 0:
        return 1.0
    if hits > runs:
        return 0.0
    if not 0 < chance < 1:
        return float(chance >= 1)
    return _incomplete_beta(hits, runs - hits + 1, chance)


def lower_chance(hits: int, runs: int, *, miss: float) -> float:
    """Returns the largest chance that so many hits refute at level `miss`: Clopper and Pearson's lower bound.

    >>> round(lower_chance(5, 10, miss=0.025), 4)
    0.1871
    """
    if hits <= 0 or runs <= 0:
        return 0.0
    low, high = 0.0, hits / runs
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(hits, runs, middle) < miss else (low, middle)
    return low * (1 - _HAIR)


def upper_chance(hits: int, runs: int, *, miss: float) -> float:
    """Returns the smallest chance that so few hits refute at level `miss`.

    >>> round(upper_chance(0, 100, miss=0.025), 4)
    0.0362
    """
    if runs <= 0:
        return 1.0
    return min(1.0, (1 - lower_chance(runs - hits, runs, miss=miss) / (1 - _HAIR)) * (1 + _HAIR))


def epsilon_bound(
    hits: int, runs: int, other_hits: int, other_runs: int, *, delta: float, miss: float
) -> float:
    """Returns the epsilon below which no mechanism gives an event so often here and so seldom there.

    The event showed in `hits` of `runs` runs on one table and in `other_hits` of `other_runs` on its
    neighbour; `delta` is claimed. The bound is wrong with a chance of `miss` at most; 0 if nothing is proved.

    >>> round(epsilon_bound(50, 100, 0, 100, delta=0.0, miss=0.05), 3)
    2.398
    """
    low = lower_chance(hits, runs, miss=miss / 2)
    high = upper_chance(other_hits, other_runs, miss=miss / 2)
    bound = 0.0
    # The event, and what is left when it does not happen, with the sides exchanged.
    for much, little in ((low, high), (1 - high, 1 - low)):
        if much > delta and little > 0:
            bound = max(bound, math.log((much - delta) / little))
    return bound


def largest_bound(runs: int, *, delta: float, miss: float) -> float:
    """Returns the most that `runs` runs on each side can prove, whatever the mechanism does."""
    return epsilon_bound(runs, runs, 0, runs, delta=delta, miss=miss)


def one_run_epsilon(correct: int, guesses: int, *, canaries: int, delta: float, miss: float) -> float:
    """Returns the epsilon that `correct` of `guesses` about `canaries` in one run refute at level `miss`.

    Each canary was in the table by the throw of a fair coin; guesses may leave canaries out. `delta` is
    claimed. The bound is that of Steinke, Nasr and Jagielski (2023).

    >>> round(one_run_epsilon(100, 100, canaries=100, delta=0.0, miss=0.05), 3)
    3.493
    >>> one_run_epsilon(50, 100, canaries=100, delta=0.0, miss=0.05)
    0.0
    """
    if not 0 <= correct <= guesses <= canaries:
        raise AuditError("of the canaries some are guessed, and of the guesses some are correct")
    low, high = 0.0, 1.0
    while _one_run_chance(correct, guesses, canaries, high, delta) < miss:
        low, high = high, 2 * high
        if high > 1000:  # beyond any claim worth refuting
            return low
    if _one_run_chance(correct, guesses, canaries, 0.0, delta) >= miss:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        refuted = _one_run_chance(correct, guesses, canaries, middle, delta) < miss
        low, high = (middle, high) if refuted else (low, middle)
    return low


def _one_run_chance(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    chance = 1 / (1 + math.exp(-epsilon))
    tail = binomial_tail(correct, guesses, chance)
    if delta == 0 or correct == 0:
        return tail
    # The main theorem of the paper: delta adds the largest mean mass of the outcomes just below `correct`.
    counts = np.arange(correct - 1, -1, -1)
    choose = [-math.lgamma(each + 1) - math.lgamma(guesses - each + 1) for each in counts.tolist()]
    logs = math.lgamma(guesses + 1) + np.array(choose)
    masses = np.exp(logs + counts * math.log(chance) + (guesses - counts) * math.log1p(-chance))
    worst = float((np.cumsum(masses) / np.arange(1, correct + 1)).max())
    return min(1.0, tail + 2 * canaries * delta * worst)


def wilson_bounds(hits: Floats, runs: int, *, deviations: float) -> tuple[Floats, Floats]:
    """Near bounds of many chances at once, to look for a promising event; they certify nothing."""
    square = deviations**2
    share = hits / runs
    centre = (share + square / (2 * runs)) / (1 + square / runs)
    half = deviations / (1 + square / runs) * np.sqrt(share * (1 - share) / runs + square / (4 * runs**2))
    return np.maximum(0.0, centre - half), np.minimum(1.0, centre + half)


def chi_square_tail(statistic: float, degrees: int) -> float:
    """P(X >= statistic) for X a chi-square variable with so many degrees of freedom.

    By Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1) for the incomplete gamma function Q.
    """
    x = statistic / 2
    if x < _TINY:
        return 1.0
    start, tail = (0.5, math.erfc(math.sqrt(x))) if degrees % 2 else (0.0, 0.0)
    orders = [start + step for step in range(degrees // 2)]
    return min(1.0, tail + math.fsum(math.exp(a * math.log(x) - x - math.lgamma(a + 1)) for a in orders))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Returns the regularised incomplete beta function, by its continued fraction."""
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    front = math.exp(log) if log > -700 else 0.0
    if x < (a + 1) / (a + b + 2):
        return min(1.0, front * _beta_fraction(a, b, x) / a)
    return max(0.0, 1 - front * _beta_fraction(b, a, 1 - x) / b)


def _beta_fraction(a: float, b: float, x: float) -> float:
    # Lentz's method: numerator c and denominator d of the convergents, neither of which may become zero.
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 100_000):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + part * d)
            c = _away(1 + part / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _away(number: float) -> float:
    """Returns `number`, kept away from zero."""
    return number if abs(number) > _TINY else _TINY
