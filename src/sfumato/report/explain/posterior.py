"""What a guarantee lets an adversary learn about one individual: tests and posterior beliefs.

An adversary who knows everybody else's data holds two tables possible that differ in one individual, and
believes with probability p, the prior, in the one. After the release the belief is the posterior. With
pure epsilon every output moves the odds by a factor between e^-epsilon and e^epsilon, so that

    p e^-eps / (1 - p + p e^-eps)  <=  posterior  <=  p e^eps / (1 - p + p e^eps).

Gaussian and zero-concentrated privacy bound no single output, since ever rarer outputs tell ever more.
They bound how often a test can be right: evidence that comes up with probability a if the hypothesis is
false (a false alarm) comes up with probability power(a) at most if it is true:

    pure epsilon        power <= min(1, e^eps a, 1 - e^-eps (1 - a))          exact
    Gaussian mu         power <= Phi(Phi^-1(a) + mu)                          exact
    rho                 see below                                             exact but for a grid of orders

Bayes' rule then gives the posterior for evidence of that rarity, p power(a) / (p power(a) + (1 - p) a),
and the same turned round is the lower end.

Zero-concentrated privacy: a test turns the answer into yes or no, so what it says under the two hypotheses
is a pair of coins, and no Renyi divergence of the coins is above that of the answers: D_alpha <= rho alpha,
both ways, for every order alpha above one. Whatever pair of coins keeps that is itself a mechanism of
zero-concentrated privacy with rate rho, so the bound is the best there is. Fewer orders only make it looser.

A guarantee that may fail with probability delta is as good as the other unless it fails, and then it may
tell everything: no mechanism with that guarantee tells more than the one that does just this (Kairouz, Oh
and Viswanath 2015). A failed answer never lets an innocent be accused, so that
power <= delta + (1 - delta) power(a / (1 - delta)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from sfumato.accounting import rho_to_delta

RARITIES = (Fraction(1, 20), Fraction(1, 1000), Fraction(1, 10**6))
"""How rare evidence is without the individual, where no output by itself is bounded."""

_NORMAL = NormalDist()
_LARGEST = 700.0  # the exponential of more is no float


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The privacy total of one or many answers; None where it has no finite amount of that kind.

    It may fail with the probability `failure`, and then tell everything. `at_delta` are readings as an
    epsilon at a delta.
    """

    epsilon: Fraction | None
    rho: Fraction | None
    mu_squared: Fraction | None
    failure: Fraction = Fraction(0)
    at_delta: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_pure(self) -> bool:
        """Whether every single output is bounded."""
        return self.epsilon is not None and not self.failure


def read_total(record: Mapping[str, Any]) -> Total:
    """Returns the total that a certificate states.

    >>> read_total({"epsilon": "1/2", "rho": "0.1"}).epsilon
    Fraction(1, 2)
    """
    return Total(
        epsilon=_fraction(record.get("epsilon")),
        rho=_fraction(record.get("rho")),
        mu_squared=_fraction(record.get("mu_squared")),
        failure=_fraction(record.get("failure")) or Fraction(0),
        at_delta=dict(record.get("epsilon_at_delta") or {}),
    )


def pure_bounds(epsilon: float, prior: float) -> tuple[float, float]:
    """Returns the least and the largest posterior that pure `epsilon` allows after `prior`.

    >>> [round(bound, 4) for bound in pure_bounds(1, 0.5)]
    [0.2689, 0.7311]
    >>> [round(bound, 4) for bound in pure_bounds(1, 0.1)]
    [0.0393, 0.232]
    """
    if prior in (0, 1):
        return float(prior), float(prior)
    odds = math.log(prior) - math.log1p(-prior)
    return _logistic(odds - epsilon), _logistic(odds + epsilon)


def posterior_bounds(total: Total, prior: float, *, rarity: Fraction | None = None) -> tuple[float, float]:
    """Returns the least and the largest posterior after `prior`.

    Without `rarity`, after any output, which only pure privacy bounds; with it, on evidence so rare.
    """
    if prior in (0, 1):  # who is certain stays so
        return float(prior), float(prior)
    if rarity is None:
        return pure_bounds(float(total.epsilon or 0), prior) if total.is_pure else (0.0, 1.0)
    chance = float(rarity)
    power = largest_power(total, chance)
    low = prior * chance / (prior * chance + (1 - prior) * power)
    high = prior * power / (prior * power + (1 - prior) * chance)
    return low, high


def largest_power(total: Total, rarity: float) -> float:
    """Returns the most often that evidence comes up if the hypothesis is true, for `rarity` if it is false.

    The smallest of what pure, Gaussian and zero-concentrated privacy say, each where there is one. A
    probability of 1 where nothing is known.
    """
    failure = float(total.failure)
    if rarity >= 1 - failure:
        return 1.0
    if rarity == 0:
        return failure
    rarity /= 1 - failure
    bounds = [1.0]
    if total.epsilon is not None:
        ratio = math.exp(min(float(total.epsilon), _LARGEST))
        bounds += [ratio * rarity, 1 - (1 - rarity) / ratio]
    if total.mu_squared is not None:
        # Dong, Roth and Su 2022: the trade-off curve of mu-Gaussian privacy.
        shift = math.sqrt(total.mu_squared) * (1 + 1e-12)
        bounds.append(_NORMAL.cdf(_NORMAL.inv_cdf(rarity) + shift) * (1 + 1e-9))
    elif total.rho is not None and total.rho > 0:
        bounds.append(_concentrated_power(total.rho, rarity))
    return failure + (1 - failure) * min(bounds)


@lru_cache(maxsize=256)
def _concentrated_power(rho: Fraction, rarity: float) -> float:
    """Returns what zero-concentrated privacy says of one rate, by coins and by conversions.

    Any epsilon with its delta is a bound, and conversions look at orders between those of the grid.
    """
    import numpy as np

    from sfumato.report.explain.powers import concentrated_powers

    rate = float(rho)
    center = rate + 2 * math.sqrt(rate * -math.log(rarity))
    bounds = [float(concentrated_powers(rate, np.array([rarity]))[0])]
    for step in range(1, 61):
        epsilon = center * step / 40
        delta = rho_to_delta(rho, Fraction(epsilon).limit_denominator(10**9))
        bounds.append(math.exp(min(epsilon * (1 + 1e-8), _LARGEST)) * rarity + delta)
    return min(bounds)


def _logistic(odds: float) -> float:
    if odds < 0:
        raised = math.exp(odds)
        return raised / (1 + raised)
    return 1 / (1 + math.exp(-odds))


def _fraction(value: object) -> Fraction | None:
    return None if value is None else Fraction(str(value))
