"""The filter of a ledger: every rule at once, each with its own part of delta.

A charge is admitted if one of the rules admits the whole history with it:

- *pure*: the epsilons add up to at most the budget's. It needs no part of delta.
- *Gaussian*: the Gaussian parameters, squared, add up to at most what the budget's epsilon allows at
  nearly all of delta. Pure mechanisms count for less as long as a reserve is left.
- *orders*: at one order of Renyi divergence, what was added up allows epsilon at a small part of
  delta. This is for pure and Gaussian charges side by side.

The first charge is chosen before any answer, so it may choose among rules at no price. If it is pure and
large it is set aside: its epsilon is taken off the budget's, and the Gaussian rule counts the rest. If it
fits no rule with its part, it may have all of delta for the Gaussian rule, then the only one with a part.
Proof: docs/proofs/filter.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sfumato.accounting.curves import ORDERS, RESERVES, UNIT, renyi_costs, reserve_costs
from sfumato.accounting.gaussian import largest_mu, log_of, mu_to_delta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sfumato.accounting.cost import Cost

# The Gaussian rule's part of delta; the orders share the rest. A first charge that is large and pure makes
# a mixture likely, and the orders are for mixtures. benchmarks/premium.py measures what the parts cost.
_MAIN = Fraction(19, 20)
_MAIN_ASIDE = Fraction(4, 5)
_WIDTH = 6
_RESERVES = tuple(int(reserve * UNIT) for reserve in RESERVES)


class Trail:
    """All charges in order, as a chain of links, with what the rules have made of them so far.

    Every link remembers the sums up to itself, so that one more charge costs one more step.
    """

    __slots__ = ("_left", "_orders", "costs", "first", "previous")

    first: Trail

    def __init__(self, costs: tuple[Cost, ...], previous: Trail | None) -> None:
        self.costs = costs
        self.previous = previous
        self.first = self if previous is None else previous.first
        self._left: dict[tuple[int, bool], int | None] = {}
        self._orders: tuple[int, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, ([link.costs for link in self._links(lambda _: False)],)

    def gaussian_left(self, limit: int, *, aside: bool = False) -> int | None:
        """What is left of a squared Gaussian parameter of `limit` units; None if it was exceeded.

        With `aside` the first charge is not counted.
        """
        key = limit, aside
        for link in self._links(lambda link: key in link._left):
            if link.previous is None:
                link._left[key] = limit if aside else _pay(limit, link.costs)
            else:
                link._left[key] = _pay(link.previous._left[key], link.costs)
        return self._left[key]

    def orders(self) -> tuple[int, ...]:
        """The sums of Renyi divergence at each order, in units."""
        for link in self._links(lambda link: link._orders is not None):
            before = (0,) * len(ORDERS) if link.previous is None else link.previous._orders
            assert before is not None
            for cost in link.costs:
                before = tuple(map(sum, zip(before, renyi_costs(cost), strict=True)))
            link._orders = before
        assert self._orders is not None
        return self._orders

    def _links(self, done: Callable[[Trail], bool]) -> list[Trail]:
        """The links up to this one that are not `done`, the earliest first."""
        links: list[Trail] = []
        link: Trail | None = self
        while link is not None and not done(link):
            links.append(link)
            link = link.previous
        return links[::-1]


def _restore(charges: Iterable[tuple[Cost, ...]]) -> Trail | None:
    trail: Trail | None = None
    for costs in charges:
        trail = Trail(costs, trail)
    return trail


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the rules allow, in units: a squared Gaussian parameter, and a divergence at each order.

    With `aside` the Gaussian parameter is for all charges but the first.
    """

    gaussian: int
    orders: tuple[int, ...]
    aside: bool = False


@lru_cache(maxsize=256)
def share_delta(
    epsilon: Fraction, delta: Fraction, *, aside: Fraction = Fraction(0)
) -> tuple[Fraction, tuple[Fraction, ...]]:
    """The parts of `delta` for the Gaussian rule and for each order; together at most `delta`.

    Only public facts decide: the orders that matter begin where Gaussian noise alone would
    use up `epsilon` less what is set `aside`, and go up to where it uses a small part of it.

    >>> main, orders = share_delta(Fraction(1), Fraction(1, 10**6))
    >>> main + sum(orders) == Fraction(1, 10**6)
    True
    """
    main = delta * (_MAIN_ASIDE if aside else _MAIN)
    mu = max(largest_mu(epsilon - aside, delta), 1e-9)
    best = math.sqrt(2 * max(1.0, -log_of(delta))) / mu
    near = min(range(len(ORDERS)), key=lambda k: abs(math.log(float(ORDERS[k] - 1) / best)))
    first = min(near, len(ORDERS) - _WIDTH)
    part = (delta - main) / _WIDTH
    chosen = range(first, first + _WIDTH)
    return main, tuple(part if k in chosen else Fraction(0) for k in range(len(ORDERS)))


@lru_cache(maxsize=256)
def find_limits(epsilon: Fraction, delta: Fraction, *, aside: Fraction = Fraction(0)) -> Limits:
    """What the rules allow for `epsilon` at their parts of `delta`, the first charge set `aside` or not."""
    main, parts = share_delta(epsilon, delta, aside=aside)
    return Limits(
        gaussian=_gaussian_limit(epsilon - aside, main),
        orders=tuple(_order_limit(epsilon, part, order) for part, order in zip(parts, ORDERS, strict=True)),
        aside=aside > 0,
    )


@lru_cache(maxsize=256)
def find_whole_limits(epsilon: Fraction, delta: Fraction) -> Limits:
    """What the Gaussian rule allows for `epsilon` at all of `delta`."""
    return Limits(gaussian=_gaussian_limit(epsilon, delta), orders=(-1,) * len(ORDERS))


def choose_limits(epsilon: Fraction, delta: Fraction, first: Trail) -> Limits | None:
    """The limits that the first charge chooses; None if it fits none of the rules at their parts."""
    limits = find_limits(epsilon, delta)
    amounts = [cost.epsilon for cost in first.costs]
    pure = None if None in amounts else sum((each for each in amounts if each is not None), Fraction(0))
    if pure is not None and pure < epsilon:
        asided = find_limits(epsilon, delta, aside=pure)
        if asided.gaussian > (first.gaussian_left(limits.gaussian) or 0):
            return asided
        return limits
    return limits if pure == epsilon or admits_trail(limits, first) else None


def admits_trail(limits: Limits, trail: Trail) -> bool:
    """Whether the Gaussian rule or one of the orders admits all of `trail`."""
    if trail.gaussian_left(limits.gaussian, aside=limits.aside) is not None:
        return True
    return any(spent <= limit for spent, limit in zip(trail.orders(), limits.orders, strict=True))


def guess_pure(limits: Limits, trail: Trail) -> float:
    """About the largest pure epsilon that one of the rules would still admit after `trail`."""
    rest = trail.gaussian_left(limits.gaussian, aside=limits.aside)
    spans = [(limit - spent) / UNIT for limit, spent in zip(limits.orders, trail.orders(), strict=True)]

    def fits(epsilon: float) -> bool:
        if rest is not None and any(_fits_beside(epsilon, rest / UNIT, float(r)) for r in RESERVES):
            return True
        return any(
            span > 0 and _response_divergence(epsilon, float(order - 1)) <= span
            for span, order in zip(spans, ORDERS, strict=True)
        )

    low, high = 0.0, 1e-6
    while fits(high) and high < 1e10:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fits_beside(epsilon: float, rest: float, reserve: float) -> bool:
    if rest < reserve or epsilon > 700:
        return False
    beside = mu_to_delta(math.sqrt(reserve), epsilon) if reserve > 0 else 0.0
    return 2 / (1 + math.exp(epsilon)) * (1 - beside) >= math.erfc(math.sqrt(rest / 8))


def _response_divergence(epsilon: float, x: float) -> float:
    first, other = math.log1p(math.exp(-epsilon)), math.log1p(math.exp(-(2 * x + 1) * epsilon))
    return epsilon - (first - other) / x


def _pay(before: int | None, costs: tuple[Cost, ...]) -> int | None:
    """What is left of `before` after `costs`, each use paid beside the largest reserve that stays whole."""
    for cost in costs:
        taken = reserve_costs(cost)
        if before is None or taken is None:
            return None
        count = cost.count
        for reserve, price in zip(_RESERVES, taken, strict=True):
            uses = min(count, max(0, before - reserve) // price)
            before -= uses * price
            count -= uses
            if count == 0:
                break
        else:
            return None
    return before


def _gaussian_limit(epsilon: Fraction, delta: Fraction) -> int:
    mu = Fraction(largest_mu(epsilon, delta))
    return math.floor(mu * mu * UNIT)


def _order_limit(epsilon: Fraction, delta: Fraction, order: Fraction) -> int:
    """The largest divergence at `order` that gives (epsilon, delta), in units, rounded down; -1 if none.

    With x = order - 1 it is epsilon - (ln(1 / delta) - x ln(1 + 1/x) - ln(1 + x)) / x.
    """
    if delta == 0:
        return -1
    with localcontext(Context(prec=100, Emin=-(10**9), Emax=10**9)):
        x = _decimal(order - 1)
        need = -_decimal(delta).ln() - x * (1 + 1 / x).ln() - (1 + x).ln()
        # A divergence that is negative or zero at most would admit nothing that costs anything.
        most = Fraction(_decimal(epsilon) - need / x) - Fraction(1, 10**40)
    return max(-1, math.floor(most * UNIT))


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
