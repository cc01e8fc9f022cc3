"""EXPLAIN: the plan, the price and the expected error of a statement, before anything is read or spent.

What was released before helps: it was paid for, so looking at it again costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.core.algebra.measures import CAPS
from sfumato.core.exact import format_exact
from sfumato.sql.expected import SIZES, expected_errors, note_conditions, note_noise
from sfumato.sql.finish import Answer, Price, note_cuts, sum_records
from sfumato.sql.magnitudes import INTERVALS
from sfumato.sql.plan import describe_noise, show_short, stray_threshold
from sfumato.sql.rollups import spread_of

if TYPE_CHECKING:
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.sql.plan import QueryPlan
    from sfumato.sql.reuse import Derived
    from sfumato.sql.rollups import GroupingSet, GroupingSets

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
    protected = unit.describe() if plan.tally is None else f"{unit.column}, {unit.neighbours}"
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
    elif unit.column is not None and plan.keys:
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
