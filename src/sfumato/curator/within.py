"""WITHIN n%: statements asked again with more epsilon until every value is within a share of itself.

Part of the curator. Every attempt is charged as a statement of its own, before its records are read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.accounting import max_mu
from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import BudgetExceeded, RecipeError
from sfumato.core.exact import round_up
from sfumato.curator.reuse import finish_measured
from sfumato.sql.finish import Answer
from sfumato.sql.plan import NoisyAggregates, QueryPlan, check_within, half_width
from sfumato.sql.reuse import average_answers, can_average, find_lack

if TYPE_CHECKING:
    from sfumato.sql.statement import Within

    PlanAt = Callable[[Fraction], QueryPlan]
    Measured = Callable[..., tuple[NoisyAggregates, Fraction, object]]

FIRST_TRY = Fraction(1, 100)
_LAST_TRY = Fraction(5, 2)
_LEAST_GROWTH = Fraction(26, 25)
# Noisy values decide when to stop, and those that noise makes large stop too early. Intervals miss in 5 % of
# all answers if at every level they miss in these: for a share up to the first number, the second
# (docs/proofs/refinement.md).
_MISSES = ((0.3, 0.033), (0.5, 0.027), (0.7, 0.012), (math.inf, 0.001))


def plan_first(goal: Within, plan_at: PlanAt) -> tuple[QueryPlan, str]:
    """The plan that the tries begin with, and what EXPLAIN adds to it."""
    plan = replace(plan_at(FIRST_TRY), miss=_find_miss(goal))
    check_within(plan)
    averaged = can_average(plan)
    how = "grows by what is surely lacking" if averaged else "doubles"
    most = "2.5" if averaged else "5.11"
    return plan, f"\n  WITHIN       begins with this and {how} until reached: at most {most} in all"


def answer_within(goal: Within, delta: Fraction, plan_at: PlanAt, measure: Measured) -> Answer:
    """Answers with doubled epsilon until every value is within the wanted share of itself.

    `plan_at` gives the plan at an epsilon; `measure` its noisy answer and what that cost, given what the
    statement has cost so far.
    """
    epsilon, spent, miss = FIRST_TRY, Fraction(0), _find_miss(goal)
    last: tuple[QueryPlan, NoisyAggregates] | None = None
    while True:
        plan = replace(plan_at(epsilon), miss=miss)
        check_within(plan)
        if can_average(plan):
            return _refine(goal, delta, plan_at, measure)
        try:
            noisy, cost, _ = measure(plan, spent=spent)
        except BudgetExceeded:  # of the whole, of a share, or of what this statement may cost
            if last is None:
                raise
            return finish_measured(*last, spent)
        spent += cost
        last = plan, noisy
        pairs = zip(plan.added, noisy.values, strict=True)
        reached = all((half_width(n, miss) <= goal.amount * np.abs(v)).all() for n, v in pairs)
        # A value near zero is never within a share of itself; its interval says how near it is.
        if reached or epsilon >= _LAST_TRY:
            return finish_measured(plan, noisy, spent)
        epsilon *= 2


def _find_miss(goal: Within) -> float:
    return next(share for most, share in _MISSES if goal.amount <= most)


def _refine(goal: Within, delta: Fraction, plan_at: PlanAt, measure: Measured) -> Answer:
    """Averages fresh Gaussian answers until every value is within the wanted share of itself.

    Privacy: an answer that is to be as good as one at mu, where one at mu' is there, costs a fresh one at
    sqrt(mu^2 - mu'^2), and nothing is lost by going in steps (docs/proofs/refinement.md).
    """
    level, spent, seen = FIRST_TRY, Fraction(0), Fraction(0)
    charged, miss = Fraction(0), _find_miss(goal)
    parts: list[tuple[QueryPlan, NoisyAggregates]] = []
    while True:
        wanted = max_mu(level, delta) ** 2 - float(seen)
        step = mu_to_epsilon(math.sqrt(wanted), delta) if wanted > 0 else float(FIRST_TRY)
        epsilon = round_up(min(step, float(level)), places=6)
        plan = replace(plan_at(epsilon), miss=miss)
        if not can_average(plan):
            raise RecipeError("WITHIN n% of this statement cannot be refined; state epsilon instead")
        try:
            noisy, cost, _ = measure(plan, spent=spent)
        except BudgetExceeded:  # of the whole, of a share, or of what this statement may cost
            if not parts:
                raise
            return finish_measured(*average_answers(parts), spent)
        parts.append((plan, noisy))
        price = sum((each.mu_squared or Fraction(0) for each in plan.costs), Fraction(0))
        seen += price
        charged += price if cost else 0
        if charged:
            spent = round_up(mu_to_epsilon(math.sqrt(charged), delta), places=6)
        combined, values = average_answers(parts)
        lack, least = find_lack(combined, values, goal.amount)
        if lack <= 1 or level >= _LAST_TRY:
            return finish_measured(combined, values, spent)
        level = min(level * max(_LEAST_GROWTH, Fraction(least).limit_denominator(1000)), _LAST_TRY)
