"""EXPLAIN: the plan, the price and the expected error of a statement, before anything is read or spent.

What was released before helps: it was paid for, so looking at it again costs nothing. A statement WITHIN n%,
whose price nobody knows before, is asked again with more epsilon until every value is within that share of
itself, as far as noise tells; every try is charged as a statement of its own, before its records are read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.core.algebra.measures import ADDED, CAPS
from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import BudgetExceeded, UnsupportedQuery
from sfumato.core.exact import format_exact, round_up
from sfumato.curator.reuse import finish_measured
from sfumato.sql.clips import explain_clips, explain_cutting, explain_noise
from sfumato.sql.expected import SIZES, expected_errors, note_conditions, note_noise
from sfumato.sql.finish import Answer, Price, note_cuts, sum_records
from sfumato.sql.magnitudes import INTERVALS
from sfumato.sql.plan import (
    Noise,
    NoisyAggregates,
    QueryPlan,
    check_within,
    describe_noise,
    show_short,
    stray_threshold,
)
from sfumato.sql.reuse import average_answers, find_lack
from sfumato.sql.rollups import spread_of
from sfumato.tables.arrays import text_array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.sql.reuse import Derived
    from sfumato.sql.rollups import GroupingSet, GroupingSets
    from sfumato.sql.statement import Within

    PlanAt = Callable[[Fraction], QueryPlan]
    Measured = Callable[..., tuple[NoisyAggregates, Fraction, object]]


_FIRST_TRY = Fraction(1, 10_000)
_GRAIN = Fraction(1, 10**6)  # of the epsilons of tries
_MOST = Fraction(5, 2)
# Steps of Gaussian noise cost nothing, and epsilon grows by what is lacking though values are larger by so
# many deviations. Epsilons of Laplace noise add up: they grow by so much that earlier ones are small beside
# the last, but to no more than what values that are smaller by half a deviation lack.
_LEAST_GROWTH, _SURE = 0.03, 2.0
_MOST_GROWTH, _UNSURE = 8, -0.5
# Noisy values decide when to stop, and those that noise makes large stop too early. Intervals miss in 5 % of
# all answers if at every level they miss in these: for a share up to the first number, the second
# (docs/proofs/refinement.md).
_MISSES = ((0.3, 0.045), (0.5, 0.027), (0.7, 0.012), (math.inf, 0.001))

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
    return Answer(
        table=pa.table({"plan": text_array(text.splitlines())}), explanation=text, price=price, notes=notes
    )


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
        lines += explain_cutting(plan) if plan.tally is None else []
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
            lines += [f"               {line}" for line in explain_noise(each)]
        else:
            lines.append(f"               {describe_noise(each, reach=False)}")
    told = [f"{name}: {words}" for name, words in errors.items()]
    lines += [f"  {'expected' if place == 0 else '':13}{line}" for place, line in enumerate(told)]
    pure = [cost.epsilon for cost in plan.costs]
    if None in pure:
        spent = f"(epsilon {show_short(plan.epsilon)}, delta {show_short(plan.delta)})"
    else:
        spent = f"epsilon {show_short(sum((each for each in pure if each is not None), Fraction(0)))}"
    lines.append(f"  cost         {spent}")
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
    for entry in reversed(report.list_last(100)):
        if entry.table != table:
            continue
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


def explain_within(goal: Within, plan_at: PlanAt, explain: Callable[..., Answer]) -> Answer:
    """The answer to EXPLAIN: that of the first try, and the most that all of them may cost."""
    plan = _plan_try(goal, plan_at, _FIRST_TRY)
    how = "grows by what is surely lacking" if _is_normal(plan) else "grows by what is lacking"
    more = f"\n  WITHIN       begins with this and {how} until reached: at most {float(_MOST)} in all"
    first = explain((plan,), more=more)
    assert first.price is not None
    return replace(first, price=replace(first.price, most=_MOST))


def _plan_try(goal: Within, plan_at: PlanAt, epsilon: Fraction) -> QueryPlan:
    """The plan at an epsilon, or at the next power of ten of it at which noise fits into integers."""
    miss = next(share for most, share in _MISSES if goal.amount <= most)
    try:
        plan = replace(plan_at(epsilon), miss=miss)
    except UnsupportedQuery:
        if epsilon >= 1:
            raise
        return _plan_try(goal, plan_at, epsilon * 10)
    check_within(plan)
    return plan


def _is_normal(plan: QueryPlan) -> bool:
    return plan.selection is None and all(noise.is_normal for noise in plan.noises)


def answer_within(goal: Within, delta: Fraction, plan_at: PlanAt, measure: Measured) -> Answer:
    """Asks again until every value is within the wanted share of itself, as far as noise tells.

    `plan_at` gives the plan at an epsilon; `measure` its noisy answer and what that cost, given what the
    statement has cost so far. Answers for public groups are averaged by their precision.

    Privacy: every try is charged as a statement of its own, and what decides is noisy. A Gaussian answer that
    is to be as good as one at mu, where one at mu' is there, costs a fresh one at sqrt(mu^2 - mu'^2), and
    nothing is lost by going in steps (docs/proofs/refinement.md).
    """
    plan = _plan_try(goal, plan_at, _FIRST_TRY)
    growth = 1 + max(_LEAST_GROWTH, float(goal.amount) / 5)
    parts: list[tuple[QueryPlan, NoisyAggregates]] = []
    asked: list[QueryPlan] = []
    charged: list[QueryPlan] = []
    while True:
        try:
            noisy, cost, _ = measure(plan, spent=_add_up(charged, delta))
        except BudgetExceeded:  # of the whole, of a share, or of what this statement may cost
            if not parts:
                raise
            return _conclude(goal, parts, _add_up(charged, delta), reached=False)
        asked.append(plan)
        charged += [plan] if cost else []
        parts = [*(parts if plan.selection is None else ()), (plan, noisy)]
        normal = _is_normal(plan)
        lack, wanted = find_lack(*average_answers(parts), goal.amount, _SURE if normal else _UNSURE)
        left = _MOST - _add_up(asked, delta)
        # A value near zero is never within a share of itself; its interval says how near it is.
        if lack <= 1 or left <= 0:
            return _conclude(goal, parts, _add_up(charged, delta), reached=lack <= 1)
        # Precision grows as the square of what intervals lack.
        seen = sum(_precision(each) for each, _ in parts)
        more = seen * max(wanted, growth) ** 2 - (seen if plan.selection is None else 0)
        last, epsilon = plan, plan.epsilon
        # The deviation of Gaussian noise does not quite fall as epsilon grows.
        for _ in range(3 if normal else 1):
            step = float(last.epsilon) * math.sqrt(more / _precision(last))
            if not normal:
                step = min(max(step, float(plan.epsilon) / 10), _MOST_GROWTH * float(plan.epsilon))
            epsilon = min(round_up(step, places=6), left)
            last = _plan_try(goal, plan_at, epsilon)
        # The same plan would bring its stored answer again, with the same noise, which is no second one.
        while last.epsilon in {each.epsilon for each in asked}:
            last = _plan_try(goal, plan_at, last.epsilon - _GRAIN)
        plan = last


def _conclude(
    goal: Within, parts: list[tuple[QueryPlan, NoisyAggregates]], spent: Fraction, *, reached: bool
) -> Answer:
    """The mean of all tries, with a note if they ended before intervals were as narrow as they should be."""
    answer = finish_measured(*average_answers(parts), spent)
    if reached:
        return answer
    share = format_exact(goal.amount * 100)
    note = f"not every interval is within {share} % of its value: no more was to be spent on this statement"
    return replace(answer, notes=(*answer.notes, note))


def _precision(plan: QueryPlan) -> float:
    return 1 / plan.added[0].deviation ** 2


def _add_up(plans: list[QueryPlan], delta: Fraction) -> Fraction:
    """What answers to plans cost together: Gaussian ones are charged by the sum of mu squared."""
    squares = sum(
        (cost.mu_squared or Fraction(0) for each in plans for cost in each.costs if _is_normal(each)),
        Fraction(0),
    )
    others = sum((each.epsilon for each in plans if not _is_normal(each)), Fraction(0))
    return others + (round_up(mu_to_epsilon(math.sqrt(squares), delta), places=6) if squares else 0)
