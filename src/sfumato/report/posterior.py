"""What a release can teach about one individual: posterior against prior, from its privacy total.

An attacker believes with probability p, the prior, that one hypothesis about an individual holds and
not the other. After the release the belief is the posterior. With pure epsilon every output moves the
odds by a factor between e^-epsilon and e^epsilon, so that

    p e^-eps / (1 - p + p e^-eps)  <=  posterior  <=  p e^eps / (1 - p + p e^eps).

Gaussian and zero-concentrated privacy bound no single output, since ever rarer outputs tell ever more.
They bound how often a test can be right: evidence that comes up with probability a if the hypothesis is
false comes up with probability power(a) at most if it is true. Bayes' rule then gives the posterior for
evidence of that rarity, p power(a) / (p power(a) + (1 - p) a), and the same turned round is the lower
end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from sfumato.accounting import rho_to_delta

if TYPE_CHECKING:
    from collections.abc import Mapping

RARITIES = (Fraction(1, 20), Fraction(1, 1000), Fraction(1, 10**6))
"""How rare evidence is without the individual, where no output by itself is bounded."""

_NORMAL = NormalDist()
_LARGEST = 700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The privacy total of a release; None where it has no finite amount of that kind."""

    epsilon: Fraction | None
    rho: Fraction | None
    mu_squared: Fraction | None
    at_delta: Mapping[str, str]

    @property
    def is_pure(self) -> bool:
        """Whether every single output is bounded."""
        return self.epsilon is not None


def read_total(record: Mapping[str, Any]) -> Total:
    """The total that a certificate states.

    >>> read_total({"epsilon": "1/2", "rho": "0.1"}).epsilon
    Fraction(1, 2)
    """
    return Total(
        epsilon=_fraction(record.get("epsilon")),
        rho=_fraction(record.get("rho")),
        mu_squared=_fraction(record.get("mu_squared")),
        at_delta={str(key): str(value) for key, value in dict(record.get("epsilon_at_delta") or {}).items()},
    )


def pure_bounds(epsilon: float, prior: float) -> tuple[float, float]:
    """The least and the largest posterior that pure `epsilon` allows after `prior`.

    >>> [round(bound, 4) for bound in pure_bounds(1, 0.5)]
    [0.2689, 0.7311]
    >>> [round(bound, 4) for bound in pure_bounds(1, 0.1)]
    [0.0393, 0.232]
    """
    if prior in (0, 1):
        return float(prior), float(prior)
    odds = math.log(prior) - math.log1p(-prior)
    return _logistic(odds - epsilon), _logistic(odds + epsilon)


def largest_power(total: Total, rarity: float) -> float:
    """The most often that evidence comes up if the hypothesis is true, for `rarity` if it is false.

    The smallest of what pure, Gaussian and zero-concentrated privacy say, each where there is one. A
    probability of 1 where nothing is known.
    """
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
    return min(1.0, *bounds)


@lru_cache(maxsize=64)
def _concentrated_power(rho: Fraction, rarity: float) -> float:
    """What zero-concentrated privacy says: any epsilon with its delta is a bound, so is the least of many."""
    rate = float(rho)
    center = rate + 2 * math.sqrt(rate * -math.log(rarity))
    bounds = []
    for step in range(1, 61):
        epsilon = center * step / 40
        delta = rho_to_delta(rho, Fraction(epsilon).limit_denominator(10**9))
        bounds.append(math.exp(min(epsilon * (1 + 1e-8), _LARGEST)) * rarity + delta)
    return min(bounds)


def posterior_bounds(total: Total, prior: float, *, rarity: Fraction | None = None) -> tuple[float, float]:
    """The least and the largest posterior after `prior`.

    Without `rarity`, after any output, which only pure privacy bounds; with it, on evidence so rare.
    """
    if rarity is None:
        return (0.0, 1.0) if total.epsilon is None else pure_bounds(float(total.epsilon), prior)
    chance = float(rarity)
    power = largest_power(total, chance)
    high = prior * power / (prior * power + (1 - prior) * chance)
    low = prior * chance / (prior * chance + (1 - prior) * power)
    return low, high


def _logistic(odds: float) -> float:
    if odds < 0:
        raised = math.exp(odds)
        return raised / (1 + raised)
    return 1 / (1 + math.exp(-odds))


def _fraction(value: object) -> Fraction | None:
    try:
        return None if value is None else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None
