"""EXPLAIN: the plan, the price and the expected error of a statement, before anything is read or spent.

What was released before helps: it was paid for, so looking at it again costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.sql.expected import SIZES, expected_errors, note_conditions, note_noise
from sfumato.sql.finish import Answer, Price, note_cuts, sum_records
from sfumato.sql.plan import explain_query

if TYPE_CHECKING:
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.sql.plan import QueryPlan
    from sfumato.sql.reuse import Derived

_MOST_LOOKED_AT = 100
_RECORDS = "records(*)"


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
