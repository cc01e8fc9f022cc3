"""The privacy filter: rules that keep charges chosen on seeing earlier answers within (epsilon, delta).

Each charge is a link of a `Trail`. The Gaussian rule adds up squared Gaussian-DP parameters, a pure charge
at less where a reserve is left beside it; the Renyi rules add up divergences at fixed orders. Every rule has
a part of delta for itself, so that one of them is enough. All amounts are whole numbers of 1 / UNIT, rounded
up for costs and down for limits. The proof is docs/proofs/filter.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any

from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import (
    PLACES,
    bisect_floats,
    largest_mu,
    log_delta,
    log_of,
    mu_to_delta,
    pure_to_mu,
    to_decimal,
)
from sfumato.core.errors import LedgerError
from sfumato.core.exact import round_up

UNIT: int = 10**PLACES
"""Amounts in this module are whole numbers of 1 / UNIT."""

_ROOTS = tuple(Fraction(2) ** k for k in range(3, -15, -1))
RESERVES = (*(round_up(root**2, places=PLACES) for root in _ROOTS), Fraction(0))
"""The reserves of Gaussian privacy, squared parameters, from the largest to none."""

ORDERS = tuple(1 + Fraction(2) ** k for k in range(-3, 13))
"""The orders of Renyi divergence that are added up."""

_FLOATS = tuple(map(float, RESERVES))
_EXPONENTS = tuple(float(order - 1) for order in ORDERS)

# The Gaussian rule's part of delta; the orders share the rest. A first charge that is large and pure makes
# a mixture likely, and the orders are for mixtures. benchmarks/premium.py measures what the parts cost.
_MAIN = Fraction(19, 20)
_MAIN_ASIDE = Fraction(4, 5)
_WIDTH = 6
_RESERVES = tuple(int(reserve * UNIT) for reserve in RESERVES)
_RELATIVE = 1e-12  # hundreds of times the error of erf and erfc in any C library in use
_CONTEXT = Context(prec=100, Emin=-(10**9), Emax=10**9)
_MARGIN = Fraction(1, 10**40)


class Trail:
    """All charges in order, as a chain of links, with what the rules have made of them so far.

    Every link remembers the sums up to itself, so that one more charge costs one more step. A link that
    `restore` made has no costs and stands for all charges up to it: it knows its sums at the limits for which
    they were kept, and refuses others.
    """

    __slots__ = ("_left", "_orders", "costs", "first", "previous")

    first: Trail

    def __init__(self, costs: tuple[Cost, ...] | None, previous: Trail | None) -> None:
        self.costs = costs
        self.previous = previous
        self.first = self if previous is None else previous.first
        self._left: dict[tuple[int, bool], int | None] = {}
        self._orders: tuple[int, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, ([(link.costs, link._left, link._orders) for link in self._links(lambda _: False)],)

    def list_costs(self) -> tuple[Cost, ...]:
        """The costs of the last charge; refused where it stands for several."""
        if self.costs is None:
            raise LedgerError("what earlier charges leave of another limit is known from all of them alone")
        return self.costs

    def keep(self, limits: Limits | None) -> dict[str, Any]:
        """What `restore` needs to go on from here: the first charge, and the sums at these limits."""
        kept: dict[str, Any] = {"first": [cost.to_record() for cost in self.first.list_costs()]}
        if limits is not None:
            left = self.gaussian_left(limits.gaussian, aside=limits.aside)
            kept |= {"left": [limits.gaussian, limits.aside, left], "orders": self.orders()}
        return kept

    @classmethod
    def restore(cls, kept: Mapping[str, Any]) -> Trail:
        """The trail that goes on from what was kept of one."""
        trail = cls(None, cls(tuple(map(Cost.from_record, kept["first"])), None))
        if "left" in kept:
            limit, aside, left = kept["left"]
            trail._left[(limit, aside)], trail._orders = left, tuple(kept["orders"])
        return trail

    def gaussian_left(self, limit: int, *, aside: bool = False) -> int | None:
        """What is left of a squared Gaussian parameter of `limit` units; None if it was exceeded.

        With `aside` the first charge is not counted.
        """
        key = limit, aside
        for link in self._links(lambda link: key in link._left):
            before = limit if link.previous is None else link.previous._left[key]
            apart = aside and link.previous is None
            link._left[key] = limit if apart else _pay(before, link.list_costs())
        return self._left[key]

    def orders(self) -> tuple[int, ...]:
        """The sums of Renyi divergence at each order, in units."""
        for link in self._links(lambda link: link._orders is not None):
            before = (0,) * len(ORDERS) if link.previous is None else link.previous._orders
            assert before is not None
            for cost in link.list_costs():
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the rules allow, in units: a squared Gaussian parameter, and a divergence at each order.

    With `aside` the Gaussian parameter is for all charges but the first.
    """

    gaussian: int
    orders: tuple[int, ...]
    aside: bool = False


def choose_limits(epsilon: Fraction, delta: Fraction, first: Trail) -> Limits | None:
    """The limits that the first charge chooses; None if it fits none of the rules at their parts."""
    limits = find_limits(epsilon, delta)
    amounts = [cost.epsilon for cost in first.list_costs()]
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


def guess_pure(limits: Limits, trail: Trail, *, most: float) -> float:
    """About the largest pure epsilon, at most `most`, that one of the rules would admit after `trail`."""
    rest = trail.gaussian_left(limits.gaussian, aside=limits.aside)
    pairs = zip(limits.orders, trail.orders(), _EXPONENTS, strict=True)
    spans = [((limit - spent) / UNIT, x) for limit, spent, x in pairs if limit > spent]

    def fits(epsilon: float) -> bool:
        if rest is not None and any(_fits_beside(epsilon, rest / UNIT, each) for each in _FLOATS):
            return True
        return any(_response_divergence(epsilon, x) <= span for span, x in spans)

    if fits(most):
        return most
    low, high = 0.0, most
    # It is rounded down to a millionth and then asked of the filter itself; large numbers lie further apart.
    while high - low > 1e-7 and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def renyi_costs(cost: Cost) -> tuple[int, ...]:
    """The Renyi divergence of all repetitions at each of `ORDERS`, in units, rounded up.

    At order a it is at most a * rho and, for a pure mechanism, at most that of randomised response.

    >>> renyi_costs(Cost(kind="filter", scale=Fraction(1)))[ORDERS.index(3)] / UNIT
    1.5
    """
    if cost.epsilon is None:
        return tuple(_units(order * cost.rho) for order in ORDERS)
    once = _response_divergences(cost.epsilon / cost.count)
    pairs = zip(ORDERS, once, strict=True)
    return tuple(_units(min(order * cost.rho, cost.count * divergence)) for order, divergence in pairs)


def reserve_costs(cost: Cost) -> tuple[int, ...] | None:
    """What one use of `cost` takes beside each of `RESERVES`, in units; None if no bound is known."""
    once = cost if cost.uses == 1 else replace(cost, count=1)
    return None if once.mu_squared is None else _reserve_costs(once.mu_squared, once.epsilon)


def reserved_mu_squared(epsilon: Fraction, root: Fraction) -> Fraction:
    """What any `epsilon`-private mechanism adds to a Gaussian parameter, squared, of at least `root`^2.

    With v = root^2 it is the least c such that randomised response beside N(0, 1) against N(root, 1)
    is at least as hard to tell as N(0, 1) against N(sqrt(v + c), 1), rounded up. The two trade-off
    functions need to be compared at one point only: c = 8 t^2 - v with
    erfc(t) = 2 (1 - delta_root(epsilon)) / (1 + e^epsilon). About epsilon^2 (1 + epsilon^2 / 6v -
    epsilon^2 / 24) for small epsilon, and never more than `pure_to_mu` squared, its value beside nothing.

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

    def enough(t: float) -> bool:
        return math.erf(t) >= near if near < 0.5 else math.erfc(t) <= rest

    _, t = bisect_floats(enough, 0.0, 8.0)
    total = Fraction(2 * math.sqrt(2) * t * (1 + _RELATIVE))
    return min(alone, round_up(total**2 - root**2, places=PLACES))


@lru_cache(maxsize=4096)
def _reserve_costs(alone: Fraction, epsilon: Fraction | None) -> tuple[int, ...]:
    """The costs of one use beside each of `RESERVES`; it costs `alone` beside none, and may be pure."""
    if epsilon is None:
        return (_units(alone),) * len(RESERVES)
    beside = (min(alone, reserved_mu_squared(epsilon, root)) for root in _ROOTS)
    return (*(_units(each) for each in beside), _units(alone))


# Most charges repeat amounts that were charged before.
@lru_cache(maxsize=4096)
def _response_divergences(epsilon: Fraction) -> tuple[Fraction, ...]:
    """D_a of randomised response: e - ln((1 + exp(-e)) / (1 + exp(-(2a - 1) e))) / (a - 1), rounded up."""
    divergences = []
    with localcontext(_CONTEXT):
        value = to_decimal(epsilon)
        first = (1 + (-value).exp()).ln()
        for order in ORDERS:
            other = (1 + (-value * to_decimal(2 * order - 1)).exp()).ln()
            divergence = Fraction(value - (first - other) / to_decimal(order - 1))
            divergences.append(min(epsilon, divergence + _MARGIN))
    return tuple(divergences)


def _units(amount: Fraction) -> int:
    return math.ceil(amount * UNIT)


def _unpickle(links: list[tuple[Any, ...]]) -> Trail | None:
    trail: Trail | None = None
    for costs, left, orders in links:
        trail = Trail(costs, trail)
        trail._left, trail._orders = left, orders
    return trail


def _pay(before: int | None, costs: tuple[Cost, ...]) -> int | None:
    """What is left of `before` after `costs`, each use paid beside the largest reserve that stays whole."""
    for cost in costs:
        taken = reserve_costs(cost)
        if before is None or taken is None:
            return None
        count = cost.uses
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
    with localcontext(_CONTEXT):
        x = to_decimal(order - 1)
        need = -to_decimal(delta).ln() - x * (1 + 1 / x).ln() - (1 + x).ln()
        # A divergence that is negative or zero at most would admit nothing that costs anything.
        most = Fraction(to_decimal(epsilon) - need / x) - _MARGIN
    return max(-1, math.floor(most * UNIT))


def _fits_beside(epsilon: float, rest: float, reserve: float) -> bool:
    if rest < reserve or epsilon > 700:
        return False
    beside = math.exp(log_delta(math.sqrt(reserve), epsilon)) if reserve > 0 else 0.0
    return 2 / (1 + math.exp(epsilon)) * (1 - beside) >= math.erfc(math.sqrt(rest / 8))


def _response_divergence(epsilon: float, x: float) -> float:
    first, other = math.log1p(math.exp(-epsilon)), math.log1p(math.exp(-(2 * x + 1) * epsilon))
    return epsilon - (first - other) / x
