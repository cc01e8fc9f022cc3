"""What people are shown about a project, as plain records: its tables, its charges, what an answer cost."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sfumato.core.cost.budget import read_epsilon
from sfumato.core.errors import SfumatoError
from sfumato.core.exact import format_exact, format_short
from sfumato.core.facts.table import table_spec
from sfumato.core.ledger.chain import AnswerEntry, ChargeEntry
from sfumato.core.ledger.report import describe_cost
from sfumato.serve.catalog import Catalog
from sfumato.serve.state import LIMITS
from sfumato.serve.wire.values import find_oid

if TYPE_CHECKING:
    from sfumato.curator import Curator
    from sfumato.serve.state import State
    from sfumato.sql.finish import Answer


AUDIT_FILE = "audit.jsonl"


def list_audit_files(folder: Path) -> list[Path]:
    """Returns the files of the audit log that are there, the oldest first."""
    return [*sorted(folder.glob("audit-*.jsonl")), *folder.glob(AUDIT_FILE)]


def describe_tables(curator: Curator) -> list[dict[str, Any]]:
    """Returns the tables of a project: public facts of its file, and names and kinds of stored columns."""
    found = []
    for name, table in curator.project.tables.items():
        spec = table_spec(table, tuple(table.columns))
        described = {column: {"name": column, **facts} for column, facts in spec["columns"].items()}
        for column, facts in table.columns.items():
            if facts.domain is not None:
                described[column]["size"] = facts.size
        for column, kind in curator.describe_table(name).items():
            described.setdefault(column, {"name": column})["kind"] = kind
        found.append(
            {
                "name": name,
                "public": False,
                "unit": spec["unit"],
                "max_records": spec["max_records"],
                "columns": list(described.values()),
            }
        )
    for name in curator.project.public:
        columns = curator.describe_table(name).items()
        found.append({"name": name, "public": True, "columns": [{"name": c, "kind": k} for c, k in columns]})
    return found


def make_catalog(curator: Curator) -> Catalog:
    """Returns the system tables of a project: its stored columns, with their types in answers."""
    named = [*curator.project.tables, *curator.project.public]
    types: dict[str, dict[str, int]] = {}
    for name in named:
        text = exp.select("*").from_(exp.to_table(exp.to_identifier(name, quoted=True).sql())).limit(0)
        with contextlib.suppress(SfumatoError):  # of a table that no statement may name
            found = curator.describe(text.sql(dialect="duckdb"), epsilon=1).columns
            types[name] = {column: find_oid(kind) for column, kind in found}
    stored = {name: curator.describe_table(name) for name in named}
    return Catalog(curator.project, stored=stored, types=types)


def list_charges(curator: Curator, person: str | None) -> list[dict[str, Any]]:
    """Returns the charges of `person`, or of everybody for None, the newest first."""
    report = curator.budget()
    answered = {entry.charge for entry in report.entries if isinstance(entry, AnswerEntry)}
    return [
        _describe_charge(entry, report.budget.delta, answered=entry.sequence in answered)
        for entry in reversed(report.charges)
        if person in (None, entry.asked_by)
    ]


def sum_day(curator: Curator, person: str) -> Fraction:
    """Returns the epsilon of what `person` was charged in 24 hours; where none can be told, all there is."""
    report = curator.budget()
    ago = [(datetime.now(UTC) - timedelta(days=each)).isoformat(timespec="microseconds") for each in (1, 8)]
    # Further back than a day, since a clock that was set back must not hide what was charged before.
    recent = takewhile(lambda entry: entry.recorded_at > ago[1], reversed(report.entries))
    charged = (each for each in recent if isinstance(each, ChargeEntry) and each.recorded_at > ago[0])
    mine = (each for each in charged if each.asked_by == person)
    readings = (read_epsilon(each.costs, report.budget.delta) for each in mine)
    return sum((Fraction(report.total) if each is None else each for each in readings), Fraction(0))


def list_users(state: State, curator: Curator) -> list[dict[str, Any]]:
    """Gives everybody whom `state` knows; those with a share with what they spent of it and what is left."""
    found = []
    for user in state.users():
        share = curator.share(user.name)
        limits = {} if share is None else {"share": share.total, "left": share.left, "spent": share.spent}
        texts = {key: str(amount) for key, amount in limits.items()}
        texts |= {key: format_exact(each) for key in LIMITS if (each := getattr(user, key)) is not None}
        found.append({"name": user.name, "role": user.role, **texts})
    return found


def explain_cost(answer: Answer, left: Fraction) -> tuple[str, ...]:
    """Returns what an answer cost, what is `left` to who asked, and how to read it, in sentences."""
    if answer.explanation is not None or answer.public:
        return ()
    if answer.repeated:
        spent = "a stored answer: nothing was spent"
    elif answer.spent == 0:
        return ("nothing was spent",)
    else:
        spent = describe_cost(f"epsilon {format_short(answer.spent)}", int(left / answer.spent))
    notes = [f"{spent}; epsilon {format_short(left)} is left to you"]
    if answer.synthetic:
        notes.append("the rows are synthetic: none of them is a record")
    elif any(name.endswith("_low") for name in answer.table.column_names):
        notes.append(
            "_low and _high hold the answer without noise, of what the bounds let count, with 95 % confidence"
        )
    return tuple(notes)


def _describe_charge(entry: ChargeEntry, delta: Fraction, *, answered: bool) -> dict[str, Any]:
    epsilon = read_epsilon(entry.costs, delta)
    return {
        "sequence": entry.sequence,
        "at": entry.recorded_at,
        "asked_by": entry.asked_by,
        "table": entry.table,
        "subject": entry.subject,
        "epsilon": None if epsilon is None else format_short(epsilon),
        "answered": answered,
    }
