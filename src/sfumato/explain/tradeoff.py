"""Tests of one hypothesis against another: false alarms against missed detections.

An adversary who knows everybody else's data tests from the answers whether a person's record is the one
or the other. A test has two errors: it says yes though the answer is no (a false alarm), and no though it
is yes (a missed detection). A guarantee says how far both can be small together.

    pure epsilon        missed >= max(0, 1 - e^eps a, e^-eps (1 - a))         exact
    (epsilon, delta)    missed >= max(0, 1 - delta - e^eps a, e^-eps (1 - delta - a))   exact
    Gaussian mu         missed >= Phi(Phi^-1(1 - a) - mu)                     exact
    rho                 see below                                             exact but for a grid of orders

with a the rate of false alarms. A test turns the answer into yes or no, so what it says under the two
hypotheses is a pair of coins, and no Renyi divergence of the coins is above that of the answers: D_alpha
<= rho alpha, both ways, for every order alpha above one. Whatever pair of coins keeps that is itself a
mechanism of zero-concentrated privacy with rate rho, so the bound is the best there is. Fewer orders
only make it looser, and any (epsilon, delta) that follows from rho is implied.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.report.posterior import largest_power

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from sfumato.explain.guarantee import Guarantee

_ORDERS = np.concatenate([np.geomspace(1e-3, 1e3, 140), np.geomspace(1.2e3, 1e7, 60)])
"""The orders above one at which divergences are compared, less one."""

_HALVINGS = 58
_ROUNDING = 4e-16


def largest_detection(guarantee: Guarantee, false_alarm: float) -> float:
    """The largest share of true cases that a test finds, if it accuses `false_alarm` of the others.

    >>> from sfumato.explain import Guarantee
    >>> round(largest_detection(Guarantee(kind="epsilon", amount=1), 0.05), 4)
    0.1359
    >>> round(largest_detection(Guarantee(kind="mu", amount=1), 0.05), 4)
    0.2595
    """
    if not 0 <= false_alarm <= 1:
        raise RecipeError("the rate of false alarms must lie between 0 and 1")
    failure = float(guarantee.failure)
    if false_alarm >= 1 - failure:
        return 1.0
    # A failed answer tells all, and never lets an innocent be accused.
    return failure + (1 - failure) * _unfailing(guarantee, false_alarm / (1 - failure))


def least_missed(guarantee: Guarantee, false_alarm: float) -> float:
    """The least share of true cases that a test misses, if it accuses `false_alarm` of the others.

    >>> from sfumato.explain import Guarantee
    >>> round(least_missed(Guarantee(kind="rho", amount=0.5), 0.05), 4)
    0.6644
    """
    return max(0.0, 1 - largest_detection(guarantee, false_alarm))


def _unfailing(guarantee: Guarantee, false_alarm: float) -> float:
    if false_alarm in (0, 1):
        return float(false_alarm)
    total = guarantee.total
    if guarantee.kind == "rho" and total.rho is not None:
        # The conversions look at orders between those of the grid.
        return min(_one_power(total.rho, false_alarm), largest_power(total, false_alarm))
    return largest_power(total, false_alarm)


@lru_cache(maxsize=256)
def _one_power(rho: Fraction, false_alarm: float) -> float:
    return float(concentrated_powers(float(rho), np.array([false_alarm]))[0])


def concentrated_powers(rho: float, false_alarms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest share of true cases found under rho-zCDP, for each rate of false alarms inside 0 to 1.

    >>> concentrated_powers(0.5, np.array([0.05])).round(3).tolist()
    [0.336]
    """
    alarms = np.asarray(false_alarms, np.float64)[:, None]
    low, high = alarms.copy(), np.ones_like(alarms)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        fits = _fits(rho, middle, alarms)
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.asarray(np.minimum(high[:, 0] * (1 + 1e-12), 1.0))


def _fits(rho: float, power: NDArray[np.float64], alarms: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether two coins keep every divergence, as far as the floats can tell."""
    with np.errstate(divide="ignore"):
        yes, no = (np.log(power), np.log1p(-power)), (np.log(alarms), np.log1p(-alarms))
    limit = _ORDERS * (_ORDERS + 1) * rho
    fits = np.ones_like(power, dtype=bool)
    for first, second in ((yes, no), (no, yes)):
        terms = [(_ORDERS + 1) * a - _ORDERS * b for a, b in zip(first, second, strict=True)]
        size = (_ORDERS + 1) * sum(np.abs(np.clip(each, -800, 0)) for each in (*first, *second))
        kept = np.logaddexp(*terms) <= limit * (1 + 1e-12) + _ROUNDING * (1 + size)
        fits &= kept.all(axis=1, keepdims=True)
    return fits
