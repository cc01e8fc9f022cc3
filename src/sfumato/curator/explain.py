"""EXPLAIN: the plan, the price and the expected error of a statement, before anything is read or spent.

What was released before helps: it was paid for, so looking at it again costs nothing. A statement WITHIN n%,
whose price nobody knows before, is asked again with more epsilon until every value is within that share of
itself; every attempt is charged as a statement of its own, before its records are read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.accounting import max_mu
from sfumato.core.algebra.measures import ADDED, CAPS
from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import BudgetExceeded, RecipeError
from sfumato.core.exact import format_exact, round_up
from sfumato.curator.reuse import finish_measured
from sfumato.sql.clips import explain_clips, explain_noise
from sfumato.sql.expected import SIZES, expected_errors, note_conditions, note_noise
from sfumato.sql.finish import Answer, Price, note_cuts, sum_records
from sfumato.sql.magnitudes import INTERVALS
from sfumato.sql.plan import (
    Noise,
    NoisyAggregates,
    QueryPlan,
    check_within,
    describe_noise,
    half_width,
    show_short,
    stray_threshold,
)
from sfumato.sql.reuse import average_answers, can_average, find_lack
from sfumato.sql.rollups import spread_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.sql.reuse import Derived
    from sfumato.sql.rollups import GroupingSet, GroupingSets
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

_MOST_LOOKED_AT = 100
_RECORDS = "records(*)"
_LONGEST_NAME = 100


def explain_plans(
    plans: tuple[QueryPlan, ...],
    *,
    report: BudgetReport,
    open_ledger: Callable[[], Ledger],
    stored: bool,
    more: str = "",
    free: Derived | None = None,
) -> Answer:
    """The answer to EXPLAIN of a statement with these plans.

    `report` is what the ledger says that `open_ledger` opens. `stored` says that it was answered before,
    `more` is added to the text, `free` is the answer that follows from earlier ones, if there is one.
    """
    costs = tuple(cost for plan in plans for cost in plan.costs)
    admitted = report.admits(costs)
    tables = plans[0].relation.tables
    known = len(tables) == 1 and bool(report.entries)
    likely = find_released_size(report, open_ledger(), tables[0]) if known else None
    errors = [expected_errors(plan, sizes=_list_sizes(plan, likely)) for plan in plans]
    text = "\n".join(
        explain_query(
            plan,
            errors={name: each.describe() for name, each in found.items()},
            left=report.left,
            admitted=admitted,
        )
        for plan, found in zip(plans, errors, strict=True)
    )
    bought = not stored and free is None
    noted = ((*note_conditions(plan), *note_noise(plan, likely)) for plan in plans) if bought else ()
    cuts = (note_cuts(plan) for plan in plans)
    notes = tuple(dict.fromkeys(note for each in (*noted, *cuts) for note in each))
    text += more + "".join(f"\n  note         {note}" for note in notes)
    if free is not None:
        text += f"\n  free         {free.describe()}, for nothing: DP-SELECT FREE ..."
        text += "".join(f"\n               but {rule}" for rule in free.rules)
    derived = {} if free is None else expected_errors(free.plan)
    price = Price(
        epsilon=sum((plan.epsilon for plan in plans), Fraction(0)),
        delta=sum((plan.charged_delta for plan in plans), Fraction(0)),
        errors={name: each.width for name, each in errors[0].items()},
        expected=errors[0],
        groups=None if plans[0].selection is not None else plans[0].rows,
        admitted=admitted,
        stored=stored,
        free=None if free is None else {name: each.width for name, each in derived.items()},
        costs=costs,
    )
    return Answer(table=pa.table({"plan": text.splitlines()}), explanation=text, price=price, notes=notes)


def explain_query(plan: QueryPlan, *, errors: Mapping[str, str], left: Fraction, admitted: bool) -> str:
    """The plan, its sensitivities, expected `errors` in words and cost, as text."""
    unit = plan.unit
    protected = (
        unit.describe() if plan.tally is None and not plan.tallies else f"{unit.column}, {unit.neighbours}"
    )
    lines = [
        plan.text,
        *(f"  then         {each}" for each in plan.around),
        f"  protects     one individual: {protected}",
        f"  reads        {', '.join(dict.fromkeys(plan.relation.tables))}; nothing is read for EXPLAIN",
    ]
    if unit.column is None:
        lines.append("  bounding     every row is an individual")
    elif plan.relation.individuals and unit.max_records == 1:
        lines.append("  bounding     one row for each individual, made of its own records")
    elif plan.tallies:
        lines += explain_clips(plan)
    else:
        most = f"{unit.max_records}" if plan.tally is None else f"1, 2, 4, ... or {CAPS[-1]}"
        lines.append(f"  bounding     at most {most} rows of an individual are aggregated")
    if plan.tally is not None:
        lines += [
            "               chosen first, from a noisy count of individuals by their records: laplace noise, "
            f"scale {show_short(plan.tally.scale)}, epsilon "
            f"{show_short(plan.tally.costs[0].epsilon or Fraction(0))}",
            "               what follows is for 1, and noise grows with the number that is chosen",
        ]
    elif unit.column is not None and plan.keys and not plan.tallies:
        lines.append(f"               in at most {plan.max_groups} groups")
    if plan.keys:
        names = ", ".join(_brief(key.node) for key in plan.keys)
        count = "chosen privately" if plan.selection else f"{plan.groups:,}, public, each answered"
        lines.append(f"  groups       {names}: {count}")
    if plan.sets is not None:
        lines += _explain_sets(plan, plan.sets)
    if plan.selection is not None:
        chosen = plan.selection
        lines.append(
            f"  selection    noisy number of individuals at or above {chosen.threshold}, "
            f"noise scale {show_short(chosen.scale)}, delta {show_short(chosen.cost.delta)}"
            + (f", for {chosen.min_individuals} individuals or more" if chosen.min_individuals > 1 else "")
        )
    for noise, operand in zip(plan.choices, plan.unbounded, strict=True):
        lines += [
            f"  bounds       of {operand.sql(dialect='duckdb')} are chosen first, for all groups together",
            f"               from {len(noise.measure.labels or ())} public intervals of magnitude: all of at "
            f"least {stray_threshold(noise, INTERVALS):.0f} records, noisy; laplace noise, scale "
            f"{show_short(noise.scale)}, epsilon {show_short(noise.costs[0].epsilon or Fraction(0))}",
        ]
    for each in plan.noises:
        lines.append(f"  measures     {each.measure.describe()}")
        if plan.tallies and isinstance(each, Noise) and each.measure.statistic in ADDED:
            lines.append(f"               {explain_noise(each)}")
        else:
            lines.append(f"               {describe_noise(each, reach=False)}")
    told = [f"{name}: {words}" for name, words in errors.items()]
    lines += [f"  {'expected' if place == 0 else '':13}{line}" for place, line in enumerate(told)]
    pure = [cost.epsilon for cost in plan.costs]
    rho = sum((cost.rho for cost in plan.costs), Fraction(0))
    if None in pure:
        spent = f"(epsilon {show_short(plan.epsilon)}, delta {show_short(plan.delta)})"
    else:
        spent = f"epsilon {show_short(sum((each for each in pure if each is not None), Fraction(0)))}"
    lines.append(f"  cost         {spent}; rho {float(rho):.6g}")
    verdict = "fits" if admitted else "does NOT fit"
    lines.append(
        f"  budget       epsilon {format_exact(left)} left; this statement {verdict}; nothing was spent"
    )
    return "\n".join(lines)


def _explain_sets(plan: QueryPlan, sets: GroupingSets) -> list[str]:
    names = [_brief(key.node) for key in plan.keys]

    def tell(each: GroupingSet) -> str:
        return f"({', '.join(names[key] for key in each)})"

    how = "measured by all keys together, and added up"
    if len(sets.levels) > 1:
        how = f"each measured with 1/{len(sets.levels)} of epsilon, and made consistent by least squares"
    lines = [f"  sets         {how}"]
    for each in dict.fromkeys(sets.answered):
        spread = math.sqrt(spread_of(sets, each))
        lines.append(
            f"               {tell(each)}: {sets.cells(each):,} groups, noise {spread:.3g} times that below"
        )
    return lines


def _brief(node: exp.Expr) -> str:
    text = node.sql(dialect="duckdb")
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."


def explain_facts() -> Answer:
    """The answer to EXPLAIN of what public facts answer."""
    text = "public facts answer this: no record is read, and nothing is spent"
    return Answer(table=pa.table({"plan": [text]}), explanation=text, public=True)


def _list_sizes(plan: QueryPlan, likely: int | None) -> tuple[int, ...]:
    """The sizes of groups for which errors are told: usual ones, and the likely one if it is known."""
    known = () if likely is None or plan.selection is not None else (max(1, round(likely / plan.groups)),)
    return tuple(sorted({*SIZES, *known}))


def find_released_size(report: BudgetReport, ledger: Ledger, table: str) -> int | None:
    """About how many records `table` has by the last released count of all of them; None if none tells.

    `report` is what the `ledger` says.

    Privacy: post-processing of noisy answers that were paid for.
    """
    charges = [entry for entry in report.charges if entry.table == table]
    for entry in reversed(charges[-_MOST_LOOKED_AT:]):
        description = entry.description
        noises = description.get("noise")
        if not isinstance(noises, list) or description.get("selection") is not None:
            continue
        places = [place for place, each in enumerate(noises) if each.get("measure") == _RECORDS]
        if not places or not _counts_all(str(description.get("statement", ""))):
            continue
        found = ledger.find_answer(plan_digest=entry.plan_digest, table_version=entry.table_version)
        if found is None:
            continue
        total, groups = sum_records(found[1], places[0])
        # The sum of many noisy groups may itself be noise, which tells nothing.
        if total > 4 * math.sqrt(2 * groups) * Fraction(noises[places[0]]["scale"]):
            return total
    return None


def _counts_all(statement: str) -> bool:
    """Whether a planned statement is about all records of one table."""
    try:
        tree = sqlglot.parse_one(statement, dialect="duckdb")
    except SqlglotError:
        return False
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in ("where", "joins", "with_")):
        return False
    source = tree.args.get("from_")
    return source is not None and isinstance(source.this, exp.Table)


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
