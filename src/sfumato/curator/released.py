"""What the ledger's own answers tell: they were paid for, so looking at them again costs nothing."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.sql import sum_records

if TYPE_CHECKING:
    from sfumato.accounting import BudgetReport, Ledger

_MOST_LOOKED_AT = 100
_RECORDS = "records(*)"


def find_released_size(report: BudgetReport, ledger: Ledger, table: str) -> int | None:
    """About how many records `table` has by the last released count of all of them; None if none tells.

    `report` is what the `ledger` says.

    Privacy: post-processing of noisy answers that were paid for.
    """
    charges = [entry for entry in report.entries if entry.kind == "charge" and entry.table == table]
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
        tree = sqlglot.parse_one(statement.partition(" [then ")[0], dialect="duckdb")
    except SqlglotError:
        return False
    if not isinstance(tree, exp.Select) or any(tree.args.get(name) for name in ("where", "joins", "with_")):
        return False
    source = tree.args.get("from_")
    return source is not None and isinstance(source.this, exp.Table)
