"""What the ledger has paid for, ready to be used again: answered charges, and the plans that they were for.

Part of the curator. Only noisy answers and public facts are looked at here, so it costs nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

from sfumato.core.errors import SfumatoError
from sfumato.core.exact import canonical_json, digest
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

    from sfumato.core.ledger.chain import ChargeEntry
    from sfumato.core.ledger.ledger import Index, Ledger
    from sfumato.curator.released import Released
    from sfumato.sql.listing import PublicFacts
    from sfumato.sql.plan import NoisyAggregates, QueryPlan
    from sfumato.sql.reuse import Derived, Earlier
    from sfumato.sql.statement import Statement

    _Find = Callable[..., set[tuple[int, int]]]

_MOST_CANDIDATES = 200
_MOST_RELEASES = 50
# As questions spell the columns of their tables.
_COLUMN = re.compile(r'"t\d+"\.(?:"(?:[^"]|"")*"|\w+)')


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

    def to_label(self) -> str:
        """The shape as text."""
        conditions = sorted(sorted(each) for each in self.conditions)
        return canonical_json([conditions, sorted(self.keys), self.more is None]).decode()

    @classmethod
    def from_label(cls, text: str) -> _Shape:
        """The shape that `to_label` spelled."""
        conditions, keys, filtered = json.loads(text)
        more = None if filtered else frozenset[frozenset[str]]()
        return cls(frozenset(map(frozenset, conditions)), frozenset(keys), more)


def label_question(question: Question, version: str) -> tuple[str, ...]:
    """Return what the answer to a question on a version of its tables is found by: `find` reads it."""
    record = question.to_record()
    where = record["where"]
    filtered = record["asked"] != record["measures"]
    source, shape = (
        _name_source(record["source"], version),
        _read_shape(where, record["keys"], filtered=filtered),
    )
    alike = f"{source} {shape.to_label()}"
    conditions = (_name_condition(source, shape, text) for text in where)
    return alike, _name_where(source, shape, where), *conditions


class StoredQuestions:
    """What a curator remembers of a ledger's answers: plans, by digests that name all that they depend on.

    What `public` tables hold is remembered until their files change.
    """

    def __init__(self) -> None:
        self.public: dict[tuple[object, ...], PublicFacts] = {}
        self._plans: dict[str, tuple[QueryPlan, Question] | None] = {}
        self._released: dict[str, Released | None] = {}
        self._last: tuple[QueryPlan, Question | None] | None = None

    def find(
        self, ledger: Ledger, question: Question, *, rows: bool, version: str, before: int | None
    ) -> list[ChargeEntry]:
        """Charges whose answers may help with `question`, the latest first.

        Only those of this version of the tables; with `before`, those answered before that entry. `rows` says
        that nobody is held to a bound.
        """
        measured = {short(each.text) for each in question.asked}
        # A sum follows from one about another centre, too, which has another text.
        moved = any(each.measure.statistic == "sum" for each in question.asked)
        source = _name_source(short(question.source), version)
        found: list[ChargeEntry] = []
        with ledger.look_up() as index:
            places: set[tuple[int, int]] = set()
            for label in index.list_labels(f"{source} "):
                shape = _Shape.from_label(label[len(source) + 1 :])
                places |= _pick(question, shape, partial(_find_places, index, source, shape), rows=rows)
            for answered, sequence in sorted(places, reverse=True):
                if len(found) == _MOST_CANDIDATES:
                    break
                if answered and (before is None or answered < before):
                    entry = index.read(sequence)
                    asked = set(entry.description["question"]["measures"])
                    found += [entry] if moved or measured & asked else []
        return found

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
        ledger: Ledger,
        table: str,
        *,
        version: str,
        before: int | None,
        open_released: Callable[[ChargeEntry], Released | None],
    ) -> list[Released]:
        """The answered releases of a `table` in this version, the latest first; `before` as in `find`."""
        with ledger.look_up() as index:
            places = index.find_purpose("release", table, version)[::-1]
            wanted = [place for place in places if place[0] and (before is None or place[0] < before)]
            entries = [index.read(sequence) for _, sequence in wanted[:_MOST_RELEASES]]
        releases = []
        for entry in entries:
            if entry.hash not in self._released:
                self._released[entry.hash] = open_released(entry)
            released = self._released[entry.hash]
            releases += [] if released is None else [released]
        return releases


@lru_cache(4096)
def _columns(text: str) -> frozenset[str]:
    return frozenset(_COLUMN.findall(text))


def _read_shape(where: Iterable[str], keys: Iterable[str], *, filtered: bool = False) -> _Shape:
    return _Shape(frozenset(map(_columns, where)), frozenset(keys), None if filtered else frozenset())


def _pick(question: Question, shape: _Shape, find: _Find, *, rows: bool) -> set[tuple[int, int]]:
    """The charges of a shape from which `question` may follow, or that are sums of its groups."""
    where = frozenset(question.conditions)
    more = frozenset(_columns(spell(each)) for asked in question.asked for each in asked.conditions)
    mine = replace(_read_shape(where, question.keys), more=more)
    found: set[tuple[int, int]] = set()
    if shape.may_give(mine):
        needed = {text for text in where if not shape.touches(_columns(text))}
        found |= find(() if shape.more is None else needed)
    # Sums of groups are used only if they are the same quantity: of the same records, where some are cut.
    fine = replace(mine, more=None) if more else mine
    if fine.may_give(shape):
        every = rows and (fine.more is None or all(map(fine.touches, shape.conditions)))
        if every:
            found |= find(())
        elif rows and where:
            found.update(*(find((text,)) for text in where))
        else:
            found |= find(where, exactly=True)
    return found


def _find_places(
    index: Index, source: str, shape: _Shape, where: Iterable[str], *, exactly: bool = False
) -> set[tuple[int, int]]:
    """The charges of a shape under all of these conditions, or `exactly` these."""
    if exactly:
        return set(index.find(_name_where(source, shape, where)))
    named = [_name_condition(source, shape, text) for text in where] or [f"{source} {shape.to_label()}"]
    return set.intersection(*(set(index.find(each)) for each in named))


def _name_source(source: str, version: str) -> str:
    return f"? {digest([source, version])}"


def _name_condition(source: str, shape: _Shape, text: str) -> str:
    return f"& {digest([source, shape.to_label(), text])}"


def _name_where(source: str, shape: _Shape, where: Iterable[str]) -> str:
    return f"&& {digest([source, shape.to_label(), sorted(where)])}"


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
