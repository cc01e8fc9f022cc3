"""Accuracy first: the least epsilon whose noise stays within a wanted error."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.errors import UnsupportedQuery
from sfumato.sql.check import refuse
from sfumato.sql.intervals import half_width

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.sql.plan import QueryPlan

_STEP = Fraction(1, 10**6)
_MOST = Fraction(10**6)


def check_within(plan: QueryPlan) -> None:
    """Refuses aggregates whose error depends on the records."""
    if any(each.kind != "measure" for each in plan.aggregates) or any(
        noise.kind == "exponential" for noise in plan.noises
    ):
        raise refuse("WITHIN is for COUNT and SUM, whose error does not depend on the records")


def least_epsilon(plan_at: Callable[[Fraction], QueryPlan], amount: Fraction) -> Fraction:
    """The least multiple of 1e-6 at which 95 % of every COUNT and SUM are within `amount`."""

    def is_enough(epsilon: Fraction) -> bool:
        try:
            plan = plan_at(epsilon)
        except UnsupportedQuery:
            if epsilon < 1:  # so little epsilon that the noise does not fit the integers
                return False
            raise
        check_within(plan)
        return all(half_width(noise, 0.05) <= amount * noise.measure.grid for noise in plan.noises)

    low, high = 0, 1
    while not is_enough(high * _STEP):
        low, high = high, high * 2
        if high * _STEP > _MOST:
            raise refuse("WITHIN asks for less error than any budget buys")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle * _STEP) else (middle, high)
    return high * _STEP
