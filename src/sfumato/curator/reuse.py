"""What the ledger has paid for, ready to be used again: answered charges, and the plans that they were for.

Part of the curator. Only noisy answers and public facts are looked at here, so it costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from sfumato.errors import SfumatoError
from sfumato.sql.expected import note_conditions
from sfumato.sql.finish import (
    Answer,
    finish_query,
    note_bounds,
    note_counts,
    note_cuts,
    note_edges,
    note_selection,
    unpack_noisy,
)
from sfumato.sql.plan import describe_scales
from sfumato.sql.question import Question, digest_question, read_question, short
from sfumato.sql.reuse import Derived, Earlier
from sfumato.sql.statement import read_statement

if TYPE_CHECKING:
    from sfumato.accounting import Entry, Ledger
    from sfumato.curator.released import Released
    from sfumato.sql.plan import NoisyAggregates, QueryPlan
    from sfumato.sql.statement import Statement

_MOST_CANDIDATES = 200
_MOST_RELEASES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    entry: Entry
    question: dict[str, Any]
    answered: int


class StoredQuestions:
    """The answered questions of a ledger, read once and then as they come.

    Kept by a curator. `plans` are remembered by their digest: it names all that they depend on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: tuple[Entry, ...] = ()
        self._open: dict[int, Entry] = {}
        self._charges: dict[str, list[_Charge]] = {}
        self._recipes: dict[str, list[_Charge]] = {}
        self._plans: dict[str, tuple[QueryPlan, Question] | None] = {}
        self._released: dict[str, Released | None] = {}

    def find(
        self, entries: tuple[Entry, ...], question: Question, *, version: str, before: int | None
    ) -> list[_Charge]:
        """Charges whose answers may help with `question`, the latest first.

        Only those of this version of the tables; with `before`, those answered before that entry.
        """
        with self._lock:
            self._update(entries)
            found = self._charges.get(short(question.source), [])[::-1]
        measured = {short(each.text) for each in question.asked}
        # A sum follows from one about another centre, too, which has another text.
        moved = any(each.measure.statistic == "sum" for each in question.asked)
        return [
            charge
            for charge in found
            if charge.entry.table_version == version
            and (before is None or charge.answered < before)
            and (moved or measured & set(charge.question["measures"]))
        ][:_MOST_CANDIDATES]

    def plan(
        self, entry: Entry, make: Callable[[Statement], QueryPlan], tables: object
    ) -> tuple[QueryPlan, Question] | None:
        """The plan that a charge was for, made again from its record; None if that is not what comes out."""
        if entry.plan_digest not in self._plans:
            self._plans[entry.plan_digest] = _plan_again(entry, make, tables)
        return self._plans[entry.plan_digest]

    def find_released(
        self,
        entries: tuple[Entry, ...],
        table: str,
        *,
        version: str,
        before: int | None,
        open_released: Callable[[Entry], Released | None],
    ) -> list[Released]:
        """The answered releases of a `table` in this version, the latest first; `before` as in `find`."""
        with self._lock:
            self._update(entries)
            found = self._recipes.get(table, [])[::-1]
        releases = []
        for charge in found[:_MOST_RELEASES]:
            entry = charge.entry
            if entry.table_version != version or (before is not None and charge.answered >= before):
                continue
            if entry.hash not in self._released:
                self._released[entry.hash] = open_released(entry)
            released = self._released[entry.hash]
            releases += [] if released is None else [released]
        return releases

    def _update(self, entries: tuple[Entry, ...]) -> None:
        seen = len(self._seen)
        if seen > len(entries) or (seen and entries[seen - 1].hash != self._seen[-1].hash):
            self._open, self._charges, self._recipes, seen = {}, {}, {}, 0  # another ledger
        for entry in entries[seen:]:
            text = entry.description_json
            if entry.kind == "charge" and (b'"question"' in text or b'"recipe"' in text):
                self._open[entry.sequence] = entry
            elif entry.kind == "answer":
                charge = self._open.pop(entry.description["charge"], None)
                if charge is not None:
                    self._enter(charge, answered=entry.sequence)
        self._seen = entries

    def _enter(self, charge: Entry, *, answered: int) -> None:
        question = charge.description.get("question")
        if isinstance(question, dict):
            known = _Charge(entry=charge, question=question, answered=answered)
            self._charges.setdefault(str(question["source"]), []).append(known)
        elif "epsilons" in charge.description:  # a step of a recipe has none, and is no release by itself
            known = _Charge(entry=charge, question={}, answered=answered)
            self._recipes.setdefault(charge.table, []).append(known)


def _plan_again(
    entry: Entry, make: Callable[[Statement], QueryPlan], tables: object
) -> tuple[QueryPlan, Question] | None:
    description = entry.description
    # What is done to the rows of the answer stands behind the query that aggregates.
    text = description["statement"].partition(" [then ")[0]
    try:
        statement = replace(
            read_statement(text),
            mode="private",
            epsilon=Fraction(description["epsilon"]),
            delta=Fraction(description["delta"]),
            max_groups=description["max_groups"],
        )
        plan = make(statement)
    except (SfumatoError, ValueError):
        return None
    question = read_question(plan, tables)
    # What is read out of a record is trusted only if it is the very question that was charged.
    return (plan, question) if digest_question(plan, question) == entry.plan_digest else None


def load_earlier(entry: Entry, plan: QueryPlan, question: Question, ledger: Ledger) -> Earlier:
    """An earlier answer whose noisy values are read when they are needed."""

    @cache
    def load() -> NoisyAggregates:
        found = ledger.find_answer(plan_digest=entry.plan_digest, table_version=entry.table_version)
        assert found is not None, "an answer that was there is gone"
        return unpack_noisy(found[1], plan)

    return Earlier(entry=entry.sequence, plan=plan, question=question, load=load)


def finish_measured(plan: QueryPlan, noisy: NoisyAggregates, spent: Fraction) -> Answer:
    """The answer to a plan from the noisy values that were measured for it."""
    return Answer(
        table=finish_query(plan, noisy),
        spent=spent,
        delta=plan.charged_delta if spent else Fraction(0),
        repeated=spent == 0,
        scales=describe_scales(plan),
        notes=(
            *note_conditions(plan),
            *note_bounds(plan),
            *note_cuts(plan),
            *note_edges(plan, noisy),
            *note_selection(plan),
            *note_counts(plan, noisy),
        ),
    )


def finish_derived(
    derived: Derived,
    *,
    spent: Fraction = Fraction(0),
    delta: Fraction = Fraction(0),
    entry: int | None = None,
) -> Answer:
    """The answer that follows from earlier ones, alone or together with what `entry` paid for."""
    plan, noisy = derived.plan, derived.noisy
    return Answer(
        table=finish_query(plan, noisy),
        spent=spent,
        delta=delta if spent else Fraction(0),
        repeated=spent == 0,
        scales=describe_scales(plan),
        notes=(
            *derived.notes(entry),
            *note_cuts(plan),
            *note_edges(plan, noisy),
            *note_selection(plan),
            *note_counts(plan, noisy),
        ),
        entries=derived.entries if entry is None else (*derived.entries, entry),
    )
