"""What a cost takes under the rules that add up more than one number per charge.

Beside a *reserve* of Gaussian privacy: a pure mechanism is less than a Gaussian one as long as some
Gaussian privacy is certain to be left unspent. And at each *order* of Renyi divergence.
Proofs: docs/proofs/filter.md.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from sfumato.accounting.constants import PLACES, pure_to_mu
from sfumato.accounting.gaussian import mu_to_delta
from sfumato.exact import round_up

if TYPE_CHECKING:
    from sfumato.accounting.cost import Cost

UNIT: int = 10**PLACES
"""Amounts in this module are whole numbers of 1 / UNIT."""

_ROOTS = tuple(Fraction(2) ** k for k in range(3, -15, -1))
RESERVES = (*(round_up(root**2, places=PLACES) for root in _ROOTS), Fraction(0))
"""The reserves of Gaussian privacy, squared parameters, from the largest to none."""

ORDERS = tuple(1 + Fraction(2) ** k for k in range(-3, 13))
"""The orders of Renyi divergence that are added up."""

_RELATIVE = 1e-12  # hundreds of times the error of erf and erfc in any C library in use
_CONTEXT = Context(prec=100, Emin=-(10**9), Emax=10**9)
_MARGIN = Fraction(1, 10**40)


def reserved_mu_squared(epsilon: Fraction, root: Fraction) -> Fraction:
    """What any `epsilon`-private mechanism adds to a Gaussian parameter, squared, of at least `root`^2.

    With v = root^2 it is the least c such that randomised response beside N(0, 1) against N(root, 1)
    is at least as hard to tell as N(0, 1) against N(sqrt(v + c), 1), rounded up. The two trade-off
    functions need to be compared at one point only: c = 8 t^2 - v with
    erfc(t) = 2 (1 - delta_root(epsilon)) / (1 + e^epsilon). About epsilon^2 (1 + epsilon^2 / 6v) for
    small epsilon, and never more than `pure_to_mu` squared, its value beside nothing.

    >>> round(float(reserved_mu_squared(Fraction(1, 10), Fraction(1))), 6)
    0.010012
    >>> round(float(pure_to_mu(Fraction(1, 10)) ** 2), 6)
    0.015702
    """
    alone = round_up(pure_to_mu(epsilon) ** 2, places=PLACES)
    value = float(epsilon)
    if not 1e-12 < value < 30:  # too small to be told from rounding, or so large that nothing is gained
        return alone
    likely = 2 / (1 + math.exp(value))
    beside = min(1.0, mu_to_delta(root, epsilon))
    near = math.tanh(value / 2) + likely * beside
    rest = likely * (1 - beside)
    low, high = 0.0, 8.0
    while low < (middle := (low + high) / 2) < high:
        enough = math.erf(middle) >= near if near < 0.5 else math.erfc(middle) <= rest
        low, high = (low, middle) if enough else (middle, high)
    total = Fraction(2 * math.sqrt(2) * high * (1 + _RELATIVE))
    return min(alone, round_up(total**2 - root**2, places=PLACES))


def reserve_costs(cost: Cost) -> tuple[int, ...] | None:
    """What one use of `cost` takes beside each of `RESERVES`, in units; None if no bound is known."""
    if cost.mu_squared is None:
        return None
    return _reserve_costs(cost.kind, cost.scale, cost.sensitivity)


@lru_cache(maxsize=4096)
def _reserve_costs(kind: str, scale: Fraction, sensitivity: Fraction) -> tuple[int, ...]:
    from sfumato.accounting.cost import Cost

    delta = Fraction(1, 2) if kind == "selection" else Fraction(0)
    once = Cost(kind=kind, scale=scale, sensitivity=sensitivity, delta=delta)  # type: ignore[arg-type]
    alone = once.mu_squared
    assert alone is not None
    if once.epsilon is None:
        return (_units(alone),) * len(RESERVES)
    beside = (min(alone, reserved_mu_squared(once.epsilon, root)) for root in _ROOTS)
    return (*(_units(each) for each in beside), _units(alone))


def renyi_costs(cost: Cost) -> tuple[int, ...]:
    """The Renyi divergence of all repetitions at each of `ORDERS`, in units, rounded up.

    At order a it is at most a * rho and, for a pure mechanism, at most that of randomised response.

    >>> from sfumato.accounting.cost import Cost
    >>> renyi_costs(Cost(kind="filter", scale=Fraction(1)))[ORDERS.index(3)] / UNIT
    1.5
    """
    if cost.epsilon is None:
        return tuple(_units(order * cost.rho) for order in ORDERS)
    once = _response_divergences(cost.epsilon / cost.count)
    pairs = zip(ORDERS, once, strict=True)
    return tuple(_units(min(order * cost.rho, cost.count * divergence)) for order, divergence in pairs)


# Most charges repeat amounts that were charged before.
@lru_cache(maxsize=4096)
def _response_divergences(epsilon: Fraction) -> tuple[Fraction, ...]:
    """D_a of randomised response: e - ln((1 + exp(-e)) / (1 + exp(-(2a - 1) e))) / (a - 1), rounded up."""
    divergences = []
    with localcontext(_CONTEXT):
        value = _decimal(epsilon)
        first = (1 + (-value).exp()).ln()
        for order in ORDERS:
            other = (1 + (-value * _decimal(2 * order - 1)).exp()).ln()
            divergence = Fraction(value - (first - other) / _decimal(order - 1))
            divergences.append(min(epsilon, divergence + _MARGIN))
    return tuple(divergences)


def _units(amount: Fraction) -> int:
    return math.ceil(amount * UNIT)


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
