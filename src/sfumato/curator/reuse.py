"""What the ledger has paid for, ready to be used again: answered charges, and the plans that they were for.

Part of the curator. Only noisy answers and public facts are looked at here, so it costs nothing.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from sfumato.core.errors import SfumatoError
from sfumato.core.ledger.chain import AnswerEntry, ChargeEntry
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
from sfumato.sql.question import Question, can_reuse, digest_question, read_question, short, spell
from sfumato.sql.statement import read_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sfumato.core.ledger.chain import Entry
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.curator.released import Released
    from sfumato.sql.listing import PublicFacts
    from sfumato.sql.plan import NoisyAggregates, QueryPlan
    from sfumato.sql.reuse import Derived, Earlier
    from sfumato.sql.statement import Statement

_MOST_CANDIDATES = 200
_MOST_RELEASES = 50
# As questions spell the columns of their tables.
_COLUMN = re.compile(r'"t\d+"\.(?:"(?:[^"]|"")*"|\w+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    entry: ChargeEntry
    question: dict[str, Any]
    answered: int
    where: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Shape:
    """What tells whether answers may help, without their plans: the columns of each condition, and keys.

    `more` are the columns of conditions that single measures have, None if they are not known.
    """

    conditions: frozenset[frozenset[str]]
    keys: frozenset[str]
    more: frozenset[frozenset[str]] | None = frozenset()

    def touches(self, columns: frozenset[str]) -> bool:
        """Whether the labels of the keys may decide something about `columns`."""
        return not columns or any(not known or known & columns for known in map(_columns, self.keys))

    def may_give(self, other: _Shape) -> bool:
        """Whether sums of groups may answer a question of another shape.

        Its conditions must imply those that were measured under, by the same columns, and its keys and its
        further conditions must be decided by the labels of what was measured.
        """
        given = None if other.more is None else (*other.conditions, *other.more)
        return (
            (given is None or all(any(each <= held for each in given) for held in self.conditions))
            and all(key in self.keys or self.touches(_columns(key)) for key in other.keys)
            and (self.more is None or all(map(self.touches, other.conditions - self.conditions)))
        )


@dataclass(frozen=True, slots=True)
class _Alike:
    """The charges of one shape: all, and by each of their conditions, those without any by ""."""

    all: list[_Charge] = field(default_factory=list)
    under: dict[str, list[_Charge]] = field(default_factory=dict)

    def add(self, charge: _Charge) -> None:
        self.all.append(charge)
        for text in charge.where or ("",):
            self.under.setdefault(text, []).append(charge)


class StoredQuestions:
    """The answered questions of a ledger, read once and then as they come.

    Kept by a curator. `plans` are remembered by their digest: it names all that they depend on. What `public`
    tables hold is remembered until their files change.
    """

    def __init__(self) -> None:
        self.public: dict[tuple[object, ...], PublicFacts] = {}
        self._lock = threading.Lock()
        self._seen: tuple[Entry, ...] = ()
        self._open: dict[int, ChargeEntry] = {}
        self._charges: dict[str, dict[_Shape, _Alike]] = {}
        self._recipes: dict[str, list[_Charge]] = {}
        self._plans: dict[str, tuple[QueryPlan, Question] | None] = {}
        self._released: dict[str, Released | None] = {}
        self._last: tuple[QueryPlan, Question | None] | None = None

    def find(
        self, entries: tuple[Entry, ...], question: Question, *, rows: bool, version: str, before: int | None
    ) -> list[_Charge]:
        """Charges whose answers may help with `question`, the latest first.

        Only those of this version of the tables; with `before`, those answered before that entry. `rows` says
        that nobody is held to a bound.
        """
        measured = {short(each.text) for each in question.asked}
        # A sum follows from one about another centre, too, which has another text.
        moved = any(each.measure.statistic == "sum" for each in question.asked)
        with self._lock:
            self._update(entries)
            found = {
                charge.answered: charge
                for shape, alike in self._charges.get(short(question.source), {}).items()
                for charge in _pick(question, shape, alike, rows=rows)
                if charge.entry.table_version == version
                and (before is None or charge.answered < before)
                and (moved or measured & set(charge.question["measures"]))
            }
        return [found[place] for place in sorted(found, reverse=True)][:_MOST_CANDIDATES]

    def read(self, plan: QueryPlan, describe: Callable[[], object]) -> Question | None:
        """What a plan asks, None if it is found again by its text alone; the last one is remembered."""
        last = self._last
        if last is None or last[0] is not plan:
            question = read_question(plan, describe()) if can_reuse(plan) else None
            last = self._last = plan, question
        return last[1]

    def plan(
        self, entry: ChargeEntry, make: Callable[[Statement], QueryPlan], tables: object
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
        open_released: Callable[[ChargeEntry], Released | None],
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
            if isinstance(entry, ChargeEntry) and entry.purpose != "other":
                self._open[entry.sequence] = entry
            elif isinstance(entry, AnswerEntry):
                charge = self._open.pop(entry.charge, None)
                if charge is not None:
                    self._enter(charge, answered=entry.sequence)
        self._seen = entries

    def _enter(self, charge: ChargeEntry, *, answered: int) -> None:
        question = charge.description.get("question") if charge.purpose == "statement" else None
        if question is not None:
            where = frozenset(question["where"])
            known = _Charge(entry=charge, question=question, answered=answered, where=where)
            shape = _read_shape(where, question["keys"], filtered=question["asked"] != question["measures"])
            self._charges.setdefault(question["source"], {}).setdefault(shape, _Alike()).add(known)
        elif charge.purpose == "release":
            known = _Charge(entry=charge, question={}, answered=answered)
            self._recipes.setdefault(charge.table, []).append(known)


@lru_cache(4096)
def _columns(text: str) -> frozenset[str]:
    return frozenset(_COLUMN.findall(text))


def _read_shape(where: Iterable[str], keys: Iterable[str], *, filtered: bool = False) -> _Shape:
    return _Shape(frozenset(map(_columns, where)), frozenset(keys), None if filtered else frozenset())


def _pick(question: Question, shape: _Shape, alike: _Alike, *, rows: bool) -> Iterable[_Charge]:
    """The charges of a shape from which `question` may follow, or that are sums of its groups."""
    where = frozenset(question.conditions)
    more = frozenset(_columns(spell(each)) for asked in question.asked for each in asked.conditions)
    mine = replace(_read_shape(where, question.keys), more=more)
    if shape.may_give(mine):
        needed = {text for text in where if not shape.touches(_columns(text))}
        if shape.more is None or not needed:
            yield from alike.all
        else:
            listed = min((alike.under.get(text, ()) for text in needed), key=len)
            yield from (charge for charge in listed if needed <= charge.where)
    # Sums of groups are used only if they are the same quantity: of the same records, where some are cut.
    fine = replace(mine, more=None) if more else mine
    if fine.may_give(shape):
        every = rows and (fine.more is None or all(map(fine.touches, shape.conditions)))
        listed = (
            alike.all if every else [each for text in where or ("",) for each in alike.under.get(text, ())]
        )
        yield from (charge for charge in listed if rows or charge.where == where)


def _plan_again(
    entry: ChargeEntry, make: Callable[[Statement], QueryPlan], tables: object
) -> tuple[QueryPlan, Question] | None:
    description = entry.description
    try:
        statement = replace(
            read_statement(description["statement"]),
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


def load_earlier(entry: ChargeEntry, plan: QueryPlan, question: Question, ledger: Ledger) -> Earlier:
    """Return an earlier answer whose noisy values are read when they are needed."""
    from sfumato.sql.reuse import Earlier

    @cache
    def load() -> NoisyAggregates:
        found = ledger.find_answer(plan_digest=entry.plan_digest, table_version=entry.table_version)
        assert found is not None, "an answer that was there is gone"
        return unpack_noisy(found[1], plan)

    return Earlier(entry=entry.sequence, plan=plan, question=question, load=load)


def finish_measured(plan: QueryPlan, noisy: NoisyAggregates, spent: Fraction) -> Answer:
    """The answer to a plan from the noisy values that were measured for it."""
    first = (*note_conditions(plan), *note_bounds(plan))
    return _finish(plan, noisy, first, spent=spent, delta=plan.charged_delta)


def finish_derived(
    derived: Derived,
    *,
    spent: Fraction = Fraction(0),
    delta: Fraction = Fraction(0),
    entry: int | None = None,
) -> Answer:
    """The answer that follows from earlier ones, alone or together with what `entry` paid for."""
    answer = _finish(derived.plan, derived.noisy, derived.notes(entry), spent=spent, delta=delta)
    return replace(answer, entries=derived.entries if entry is None else (*derived.entries, entry))


def _finish(
    plan: QueryPlan, noisy: NoisyAggregates, first: tuple[str, ...], *, spent: Fraction, delta: Fraction
) -> Answer:
    """The answer from noisy values, with the notes that come `first` and those of any plan."""
    notes = (*note_cuts(plan), *note_edges(plan, noisy), *note_selection(plan), *note_counts(plan, noisy))
    return Answer(
        table=finish_query(plan, noisy),
        spent=spent,
        delta=delta if spent else Fraction(0),
        repeated=spent == 0,
        scales=describe_scales(plan),
        notes=(*first, *notes),
    )
