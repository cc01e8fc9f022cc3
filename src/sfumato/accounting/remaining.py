"""What is left, by kind of charge: how many more of one kind fit, and how large the next may be."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.accounting.budget import Budget, Spent, add_costs, admits
from sfumato.accounting.convert import mu_to_epsilon, rho_to_epsilon
from sfumato.errors import RecipeError
from sfumato.exact import format_exact, format_short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sfumato.accounting.cost import Cost

MANY = 10**6
"""Nobody counts further than this."""

_STEPS = 1000


def count_more(budget: Budget, spent: Spent, costs: Sequence[Cost]) -> int:
    """How many more charges like `costs` fit after `spent`, at most `MANY`.

    >>> from sfumato.accounting.cost import Cost
    >>> count_more(Budget(1), Spent(), [Cost(kind="pure", scale=Fraction(1, 3))])
    3
    """

    def fits(times: int) -> bool:
        try:
            more = [replace(cost, count=cost.count * times) for cost in costs]
        except RecipeError:  # more repetitions than a cost can hold
            return False
        return admits(budget, spent, more)

    return _largest(fits, MANY)


def largest_like(budget: Budget, spent: Spent, costs: Sequence[Cost]) -> tuple[Cost, ...] | None:
    """The costs of the same kind that fit after `spent`, all with more noise; None if none fit.

    Found to a thousandth: epsilon, or the ratio of sensitivity and noise, is scaled.
    """

    def fits(part: int) -> bool:
        return admits(budget, spent, [_scale(cost, Fraction(part, _STEPS)) for cost in costs])

    part = _largest(fits, _STEPS)
    return tuple(_scale(cost, Fraction(part, _STEPS)) for cost in costs) if part else None


def read_epsilon(costs: Sequence[Cost], delta: Fraction) -> Fraction | None:
    """The epsilon of one charge: exact if it is pure, else the least that is known at `delta`."""
    total = add_costs(Spent(), costs)
    if total.epsilon is not None:
        return total.epsilon
    if delta == 0:
        return None
    readings = [rho_to_epsilon(total.rho, delta)]
    if total.mu_squared is not None:
        readings.append(mu_to_epsilon(math.sqrt(total.mu_squared), delta))
    return Fraction(min(readings))


def describe_costs(costs: Sequence[Cost], delta: Fraction) -> str:
    """One charge in the words of a budget with `delta`.

    >>> from sfumato.accounting.cost import Cost
    >>> describe_costs([Cost(kind="laplace", scale=Fraction(10))], Fraction(0))
    'epsilon 0.1'
    >>> describe_costs([Cost(kind="filter", scale=Fraction(1, 5))], Fraction(1, 10**6))
    'epsilon 0.834 at delta 0.000001'
    """
    epsilon = read_epsilon(costs, delta)
    if epsilon is None:
        return f"rho {format_short(add_costs(Spent(), costs).rho)}"
    if all(cost.epsilon is not None for cost in costs):
        return f"epsilon {format_short(epsilon)}"
    return f"epsilon {_few_digits(epsilon)} at delta {format_exact(delta)}"


def _scale(cost: Cost, part: Fraction) -> Cost:
    """`cost` with `part` of its epsilon, or of its Gaussian parameter."""
    noisy = cost.kind in ("laplace", "gaussian", "selection")
    return replace(cost, scale=cost.scale / part if noisy else cost.scale * part)


def _few_digits(number: Fraction) -> str:
    """`number` rounded down to three digits, so that what is said to fit does."""
    power = 2 - math.floor(math.log10(number)) if number > 0 else 0
    unit = Fraction(10) ** power
    return format_exact(math.floor(number * unit) / unit)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest whole number up to `most` that fits; whatever is below one that fits does, too."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
