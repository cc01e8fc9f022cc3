"""The door: the one place where exact values meet noise, and only under a charge that is on disk.

Recipes, statements, scores and whatever else is answered goes through it in one order. What was answered
before is found and costs nothing. Otherwise the charge is written to the ledger; only then are records
read; that they did not change meanwhile is seen by their version; noise is added; and the noisy answer is
stored before anybody sees it. A failure before the charge costs nothing, a failure after it keeps the
charge: a refund would tell about the records. Whoever asks the same again goes on under that charge.
Proof: docs/proofs/ledger.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from sfumato.core.cost.budget import (
    Budget,
    Spent,
    admits,
    describe_charge,
    describe_costs,
    explain_refusal,
    read_epsilon,
)
from sfumato.core.cost.parallel import Allowance
from sfumato.core.engine.base import TrueCounts
from sfumato.core.engine.opening import check_whole
from sfumato.core.errors import (
    BudgetExceeded,
    ChargeKept,
    LedgerError,
    ReleaseError,
    SfumatoError,
    SourceError,
)
from sfumato.core.exact import Withheld, format_short
from sfumato.core.questions.choices import AnyChoice, Choice, Chosen
from sfumato.core.questions.counts import Marginal, OccupiedCells
from sfumato.core.questions.measurement import (
    Answer,
    Ask,
    Measurement,
    Request,
    check_asks,
    find_part,
    list_costs,
    request_grid,
    request_size,
)
from sfumato.core.questions.moments import Moments
from sfumato.core.questions.question import Queries

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sfumato.core.algebra.asks import Aggregation, Drawn, Labelled, NoisyGroups
    from sfumato.core.algebra.measures import Measure, Query
    from sfumato.core.algebra.rows import Tables
    from sfumato.core.cost.cost import Cost
    from sfumato.core.engine.aggregates import TrueAggregates
    from sfumato.core.engine.gradients import TrueRecords
    from sfumato.core.facts.part import Part, Window
    from sfumato.core.facts.table import Table
    from sfumato.core.law import NoiseSource
    from sfumato.core.ledger.chain import ChargeEntry, Purpose
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.ledger.report import BudgetReport
    from sfumato.core.questions.choices import AnyQuestion, Candidate
    from sfumato.core.questions.gradients import Gradients
    from sfumato.core.questions.scores import ReleaseScore
    from sfumato.core.questions.series import Period, RunningSums

    Counted = dict[tuple[Part | None, AnyQuestion], TrueCounts]

Exact = TypeVar("Exact")
Noisy = TypeVar("Noisy")
Costs = Iterable[tuple["Cost", str | None]]
"""What is asked under a charge: costs, each with the name of the part of the people that pays, if not all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What is to be charged: public facts about a question, and how to tell the version of its tables.

    `digest` names the question; `purpose`, `subject` and `description` are what the ledger keeps of it;
    `tables` are their names and `units` the individuals that they protect, where they are several. `version`
    gives the keyed digest of what is read. What is asked under the charge is about `table`, of all its people
    or of one of the disjoint `parts`; statements are about the `described` tables. `asked_by` is who asks,
    and `at_most` the most epsilon that they would spend on it. By `labels`, given the
    version, the answer is found. With `part_of`, a charge was made before that
    has paid for this one, too, and there are no costs. `window` is that of the table: the periods that are
    read of it. `packed` gives the files that must be whole.
    """

    digest: str
    description: dict[str, Any]
    tables: str
    costs: tuple[Cost, ...]
    version: Callable[[bytes], str]
    units: Mapping[str, str] | None = None
    asked_by: str | None = None
    at_most: Fraction | None = None
    part_of: ChargeEntry | None = None
    window: Window | None = None
    packed: Callable[[], tuple[Path, ...]] = tuple
    table: Table | None = None
    parts: tuple[Part, ...] = ()
    described: Tables = field(default_factory=dict)
    purpose: Purpose = "other"
    subject: str = ""
    labels: Callable[[str], tuple[str, ...]] = lambda _: ()


class Reader(Protocol):
    """What answers questions exactly, each individual held to the bounds that they state."""

    def count(
        self, table: Table, questions: tuple[AnyQuestion, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """The exact answer to every question, in their order."""

    def read_records(
        self, table: Table, columns: tuple[str, ...], *, progress: Callable[[str], None]
    ) -> TrueRecords:
        """The codes of all bounded records, for gradients of them."""

    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest of what the table holds."""

    def sum_arrivals(
        self, table: Table, question: RunningSums, *, until: Period, progress: Callable[[str], None]
    ) -> TrueCounts:
        """The sums of what arrived up to a period of a series, and what is new of it kept."""


class Aggregator(Protocol):
    """What answers checked queries exactly, each individual held to the bounds that follow for it."""

    def aggregate(self, query: Query, tables: Tables, *, progress: Callable[[str], None]) -> TrueAggregates:
        """The exact aggregates of a query."""


class Records(Withheld):
    """The exact counts of one table that asks need, and the noise on them; what is asked again is kept.

    `parts` are the disjoint parts of the people that may be asked; `marginals` and `occupied` are counted in
    one pass with the first of them that is asked. A series is asked of one `period` after the other. Several
    charges may share it.
    """

    def __init__(
        self,
        table: Table,
        *,
        engine: Reader,
        parts: tuple[Part, ...] = (),
        marginals: tuple[tuple[str, ...], ...] = (),
        occupied: tuple[tuple[str, ...], ...] = (),
        period: Period | None = None,
        progress: Callable[[str], None],
    ) -> None:
        self.table = table
        self._period = period
        self._engine = engine
        self._show = progress
        self._together: tuple[AnyQuestion, ...] = (*map(Marginal, marginals), *map(OccupiedCells, occupied))
        # One object for every part, by which an engine knows what it keeps.
        self._tables: dict[Part | None, Table] = {None: table}
        self._tables |= {part: replace(table, part=part) for part in parts}
        self._true_counts: Counted = {}
        self._true_records: dict[tuple[Part | None, tuple[str, ...]], TrueRecords] = {}
        self._true_sums: dict[tuple[Part | None, tuple[str, ...]], tuple[Queries, NDArray[np.int64]]] = {}
        self._true_scores: dict[tuple[Part | None, Candidate], int] = {}

    def read(self, asks: tuple[Ask, ...]) -> Counted:
        """The exact counts that `asks` need, each of its part of the people.

        Marginals are counted once, all of the plan in one pass.
        """
        counted = self._true_counts
        for part in dict.fromkeys(map(find_part, asks)):
            fresh = self._read_part(part, [ask for ask in asks if find_part(ask) == part])
            counted = counted | fresh if fresh else counted
        for ask in asks:  # a network asks again and again of the same records
            if not isinstance(ask, Request) or ask.counted.tally != "gradients":
                continue
            key = find_part(ask), ask.columns
            if key not in self._true_records:
                table = self._tables[key[0]]
                read = self._engine.read_records(table, ask.columns, progress=self._show)
                self._true_records = {key: read}
        if counted is not self._true_counts:
            self._true_counts = {each: true for each, true in counted.items() if _is_asked_again(each[1])}
        return counted

    def _list_unscored(self, ask: Ask) -> tuple[AnyQuestion, ...]:
        """What an engine counts for `ask`; candidates that competed before are known."""
        if isinstance(ask, Choice) and self._true_scores:
            known = self._true_scores
            fresh = (each for each in ask.candidates if (ask.part, each) not in known)
            return tuple(Marginal(each.columns) for each in fresh)
        return _list_questions(ask)

    def _read_part(self, part: Part | None, asks: list[Ask]) -> Counted:
        known = self._true_counts
        needed = [question for ask in asks for question in self._list_unscored(ask)]
        if any((part, each) not in known for each in needed if each.stated.tally in ("cells", "occupied")):
            needed += self._together
        fresh = tuple(dict.fromkeys(each for each in needed if (part, each) not in known))
        if any(each.stated.tally == "arrivals" for each in fresh):
            return {(None, each): self._sum_arrivals(cast("RunningSums", each)) for each in fresh}
        # A score is made of the counts that it compares with what was released.
        asked = tuple(Marginal(each.columns) if each.stated.tally == "scores" else each for each in fresh)
        counted = self._engine.count(self._tables[part], asked, progress=self._show) if fresh else ()
        found = {(part, each): counts for each, counts in zip(fresh, counted, strict=True)}
        for each in fresh:
            if each.stated.tally == "scores":
                score = cast("ReleaseScore", each).evaluate(self.table, found[part, each].true_values)
                found[part, each] = TrueCounts(each.columns, score)
        return found

    def _sum_arrivals(self, question: RunningSums) -> TrueCounts:
        """The sums of one period, from a source that stays the same while it is read."""
        assert self._period is not None, "a series is asked by its periods"
        engine, secret = self._engine, self._period.secret
        version = engine.version(self.table, secret=secret)
        sums = engine.sum_arrivals(self.table, question, until=self._period, progress=self._show)
        if engine.version(self.table, secret=secret) != version:
            raise SourceError(
                f"table {self.table.name!r}: its source changed while it was read; run it again"
            )
        return sums

    def draw(self, asks: tuple[Ask, ...], true_counts: Counted, noise: NoiseSource) -> tuple[Answer, ...]:
        """Noisy answers to `asks`, which are charged and checked."""
        self._show("adding noise")
        answers: list[Answer] = []
        for ask in asks:
            if not isinstance(ask, Request):
                answers.append(self._choose(ask, true_counts, noise))
            elif ask.counted.tally == "gradients":
                answers.append(self._sample(ask, cast("Gradients", ask.counted), noise))
            else:
                exact = true_counts[find_part(ask), _list_questions(ask)[0]]
                noisy = add_noise(self.table, ask, exact, noise)
                whole = noisy.cells is None and self._period is None
                assert not whole or noisy.noisy_values.size == request_size(self.table, ask)
                answers.append(noisy)
        return tuple(answers)

    def _sample(self, request: Request, question: Gradients, noise: NoiseSource) -> Measurement:
        """The noisy sum over a sample, drawn anew: everybody with the same chance, whoever else is there."""
        true_records = self._true_records[find_part(request), question.columns]
        drawn = noise.poisson_sample(size=true_records.individuals, rate=question.sampling)
        sums = TrueCounts(question.columns, true_records.sum_gradients(question, drawn))
        return add_noise(self.table, request, sums, noise)

    def _choose(self, choice: AnyChoice, true_counts: Counted, noise: NoiseSource) -> Chosen:
        """The exponential mechanism; a choice scores its candidates and states the rate that these allow."""
        if isinstance(choice, Choice):
            scores = self._score(choice, true_counts)
        else:
            scores = choice.score(true_counts[None, choice].true_values)
        drawn = noise.exponential_choice(np.array([scores], np.int64), rate=choice.rate(self.table))
        return Chosen(choice=choice, index=int(drawn[0]))

    def _score(self, choice: Choice, true_counts: Counted) -> list[int]:
        """The scores of a choice; a candidate that competed before keeps the one it had."""
        keys = [(choice.part, each) for each in choice.candidates]
        if not any(key in self._true_scores for key in keys):
            self._true_scores = {}  # a recipe that makes its candidates anew has done with the old ones
        for part, each in keys:
            if (part, each) not in self._true_scores:
                self._true_scores[part, each] = each.score(self._sum(each, part, true_counts))
        return [self._true_scores[key] for key in keys]

    def _sum(self, candidate: Candidate, part: Part | None, true_counts: Counted) -> NDArray[np.int64]:
        """The counts of a candidate, or their sums, which are kept because choices ask again and again."""
        counts = true_counts[part, Marginal(candidate.columns)].true_values
        if candidate.queries is None:
            return counts
        key = (part, candidate.columns)
        known = self._true_sums.get(key)
        if known is None or known[0] is not candidate.queries:
            known = self._true_sums[key] = (candidate.queries, candidate.queries.apply(counts))
        return known[1]


def add_noise(table: Table, request: Request, true_counts: TrueCounts, noise: NoiseSource) -> Measurement:
    """Returns the exact answer to `request` with noise by its law, or what of it reaches its threshold."""
    values, cells = true_counts.true_values, true_counts.cells
    if request.threshold is not None:
        assert cells is not None
        size = table.cells(request.columns)
        cells, noisy = noise.add_sparse_noise(
            cells, values, size=size, scale=request.scale, threshold=request.threshold
        )
        cells.flags.writeable = False
    else:
        if request.counted.tally == "cells" and request.queries is not None:
            values = request.queries.apply(values)
        noisy = noise.add_noise(values, kind=request.noise, scale=request.scale)
    noisy.flags.writeable = False  # it is stored while the recipe has it in hand
    return Measurement(request=request, noisy_values=noisy, grid=request_grid(table, request), cells=cells)


def draw_groups(asked: Aggregation, true_aggregates: TrueAggregates, noise: NoiseSource) -> NoisyGroups:
    """Returns the noisy answer to what a statement asks, which is charged and checked.

    Privacy: every vector and every choice has its cost, in this order (`list_costs` in algebra/asks.py).
    """
    from sfumato.core.algebra.asks import NoisyGroups

    true_values, keys = true_aggregates.true_values, None
    if asked.kept is not None:
        true_people, true_keys = true_aggregates.true_individuals, true_aggregates.true_keys
        assert true_people is not None
        assert true_keys is not None
        people = noise.add_noise(true_people, kind="laplace", scale=asked.kept.scale)
        places = np.flatnonzero(people >= asked.kept.threshold).tolist()
        # In an order of their own: that in which groups were found tells about the records.
        places.sort(key=lambda place: [str(part) for part in true_keys[place]])
        keys = tuple(true_keys[place] for place in places)
        true_values = tuple(values[np.array(places, np.int64)] for values in true_values)
    measured = zip(asked.query.measures, asked.drawn, true_values, strict=True)
    values = tuple(_draw_measure(asked, *each, noise) for each in measured)
    return NoisyGroups(values=values, keys=keys)


def _draw_measure(
    asked: Aggregation, measure: Measure, drawn: Drawn, true_values: NDArray[np.int64], noise: NoiseSource
) -> NDArray[np.int64]:
    """The noisy values of one measure, for all groups."""
    from sfumato.core.algebra.asks import (
        Divided,
        Labelled,
        Ranked,
        list_vectors,
        list_windows,
        score_steps,
    )

    if isinstance(drawn, Labelled):
        return _pick_labels(true_values[:, : len(measure.labels or ())], drawn, noise)
    if isinstance(drawn, Ranked):
        steps: list[NDArray[np.int64]] = []
        for rank in drawn.ranks:
            true_scores = score_steps(true_values, measure, rank, steps[0] if rank.nearest else None)
            places = noise.permute_and_flip(true_scores, rate=rank.rate)
            steps.append(list_windows(measure.steps)[places] if rank.nearest else places)
        if drawn.scale is not None:
            steps.append(noise.add_noise(true_values.sum(axis=1), kind="laplace", scale=drawn.scale))
        return np.stack(steps)
    vectors = list_vectors(asked, measure, drawn, true_values)
    noisy = [noise.add_noise(each, kind=drawn.kind, scale=drawn.scale) for each in vectors]
    if isinstance(drawn, Divided):
        return np.hstack(noisy).T
    return noisy[0] if len(noisy) == 1 else np.concatenate(noisy)


def _pick_labels(true_counts: NDArray[np.int64], drawn: Labelled, noise: NoiseSource) -> NDArray[np.int64]:
    """For every group the codes of the chosen labels: each is taken out before the next is chosen."""
    from sfumato.core.algebra.asks import take_out

    groups = np.arange(len(true_counts))
    codes = np.broadcast_to(np.arange(true_counts.shape[1]), true_counts.shape)
    chosen = []
    for _ in range(drawn.times):
        places = noise.exponential_choice(true_counts, rate=drawn.rate)
        chosen.append(codes[groups, places])
        true_counts, codes = take_out(true_counts, places), take_out(codes, places)
    return np.stack(chosen)


class Charged:
    """A durable charge. `answer` is the stored answer once there is one, `kept` the parts so far.

    `drawn` says whether noise was drawn under it now, `failure` is what it refused last, in words of its own.
    """

    def __init__(
        self,
        bill: Bill,
        entry: ChargeEntry,
        *,
        ledger: Ledger,
        noise: NoiseSource | None,
        answer: bytes | None = None,
        kept: bytes | None = None,
        resumed: bool = False,
    ) -> None:
        self.entry = entry
        self.answer = answer
        self.kept = kept
        self.resumed = resumed
        self.drawn = False
        self.failure: Exception | None = None
        self._bill = bill
        self._ledger = ledger
        if noise is None:
            from sfumato.core import noise as system_noise  # here, since few commands draw any

            noise = system_noise
        self._noise: NoiseSource = noise
        # What the ledger has, not what the bill says: a charge that goes on was made from another bill.
        self._allowance = Allowance(entry.costs if bill.part_of is None else bill.part_of.costs)

    def pay(self, costs: Costs) -> None:
        """Takes what is asked from what was charged, and refuses what that does not pay for."""
        if self.answer is not None:
            raise LedgerError(f"charge {self.entry.sequence} has its answer, and pays for no other")
        if not all(self._allowance.pay(cost, part=part) for cost, part in costs):
            raise self._refuse(
                "more is asked than was charged; no record was read for it. The charge is kept"
            )

    def _refuse(self, words: str) -> ChargeKept:
        self.failure = ChargeKept(words)
        return self.failure

    def admit(self, asks: tuple[Ask, ...]) -> None:
        """Refuses all of `asks` unless they fit the table and are paid for, item by item; reads nothing.

        Privacy: what an ask costs is derived here, by `ask_cost`, and never taken from whoever asks.
        """
        table = self._bill.table
        if table is None:
            raise LedgerError(f"charge {self.entry.sequence} is for no table that could be asked")
        try:
            check_asks(table, asks, parts=self._bill.parts)
        except SfumatoError as error:
            raise self._refuse(f"{error}; no record was read for it. The charge is kept") from None
        periods = all(isinstance(ask, Request) and ask.counted.tally == "arrivals" for ask in asks)
        if self._bill.part_of is not None and not periods:
            # Only the periods of a series are paid for with the first of them.
            raise LedgerError(f"charge {self.entry.sequence} was made before, and pays for periods only")
        self.pay(list_costs(table, asks))

    def ask(self, asks: tuple[Ask, ...], records: Records) -> tuple[Answer, ...]:
        """Returns the noisy answers to `asks`: the one way from exact counts to what anybody sees.

        Privacy: nothing is read unless `admit` finds it paid for. `records` enforces the bounds that the
        sensitivities state, and noise is drawn at the scales, and choices at the rates, that they cost.
        """
        # Another description of the same records, with larger bounds say, would have other costs.
        if records.table is not self._bill.table:
            raise LedgerError(f"charge {self.entry.sequence} is for another table")
        self.admit(asks)
        return self._read(lambda: records.read(asks), lambda exact, noise: records.draw(asks, exact, noise))

    def ask_groups(
        self, asked: Aggregation, *, engine: Aggregator, progress: Callable[[str], None]
    ) -> NoisyGroups:
        """Returns the noisy answer to what a statement asks: the same way, for measures of groups.

        Privacy: the query is checked against the described tables of the bill, and costs what `list_costs`
        derives; `engine` is given the same query and tables, and enforces the bounds that follow from them.
        """
        from sfumato.core.algebra.asks import list_costs as list_group_costs
        from sfumato.core.algebra.measures import check_query

        # What is priced is what is read and drawn: nobody else has this copy, and could change its trees.
        asked, tables = deepcopy(asked), self._bill.described
        try:
            costs = list_group_costs(check_query(asked.query, tables), asked)
        except SfumatoError as error:
            raise self._refuse(f"{error}; no record was read for it. The charge is kept") from None
        self.pay((cost, None) for cost in costs)
        return self._read(
            lambda: engine.aggregate(asked.query, tables, progress=progress),
            lambda exact, noise: draw_groups(asked, exact, noise),
        )

    def _read(self, read: Callable[[], Exact], draw: Callable[[Exact, NoiseSource], Noisy]) -> Noisy:
        failed = None
        try:
            true_values = read()
            self._refuse_changed()
        except SfumatoError as error:
            failed = f"{error}. The charge is kept, because a refund would tell about the records"
        except Exception:
            failed = (
                "the records could not be read. The charge is kept, because a refund would tell about them"
            )
        if failed is not None:
            raise self._refuse(failed)  # here, without a cause whose frames hold exact values
        self.drawn = True
        return draw(true_values, self._noise)

    def _refuse_changed(self) -> None:
        if self._bill.version(self._ledger.secret) != self.entry.table_version:
            raise SourceError(
                f"table {self._bill.tables!r}: its source changed while it was read; run it again"
            )

    def store(self, payload: bytes, *, final: bool = True) -> None:
        """Makes noisy answers durable: the whole answer, or if not `final` what there is of it so far."""
        if final:
            labels = self._bill.labels(self.entry.table_version)
            self._ledger.store_answer(self.entry, payload, after=self.kept, labels=labels)
            self.answer = payload
        else:
            self._ledger.store_progress(self.entry, payload, after=self.kept)
        self.kept = payload


@contextmanager
def open_charge(
    bill: Bill,
    *,
    ledger: Ledger,
    noise: NoiseSource | None = None,
    prepare: Callable[[], None] = lambda: None,
    may_charge: bool = True,
    progress: Callable[[str], None],
) -> Iterator[Charged]:
    """The charge for `bill`: of an answer given before, of one begun and not finished, or a new one.

    All who ask the same of one `ledger` wait for each other, so that equal questions are charged once.
    `prepare` raises what can be known to fail before a new charge is made; with `may_charge=False` there is
    none. `noise` is what audits draw from in place of the system's; `progress` is called with each stage.

    Raises BudgetExceeded, having spent nothing, if the costs do not fit.
    """
    with ledger.exclusively(plan_digest=bill.digest):
        # Taken when it is our turn: the source may have changed while others were answered.
        version = bill.version(ledger.secret)
        found = ledger.find_answer(plan_digest=bill.digest, table_version=version)
        if found is not None:
            yield Charged(bill, found[0], ledger=ledger, noise=noise, answer=found[1])
            return
        begun = ledger.find_progress(plan_digest=bill.digest, table_version=version)
        if begun is not None:
            progress("going on under an earlier charge")
            yield Charged(bill, begun[0], ledger=ledger, noise=noise, kept=begun[1], resumed=True)
            return
        if not may_charge:
            raise ReleaseError(
                "nothing is kept of this release: its table, its project file or its ledger is not what "
                "it was. Nothing was spent; run `sfumato release` again, which is a new charge"
            )
        prepare()
        _refuse_beyond(bill, ledger.budget)
        packed = bill.packed()
        # How long it takes tells how large they are: nobody waits for it whose charge does not fit.
        if packed and (not bill.costs or all(each.admits(bill.costs) for each in _report(bill, ledger))):
            for path in packed:
                check_whole(path)
        progress("charging the ledger")
        entry = ledger.charge(
            purpose=bill.purpose,
            subject=bill.subject,
            description=bill.description,
            plan_digest=bill.digest,
            table=bill.tables,
            table_version=version,
            costs=bill.costs,
            resumable=True,
            units=bill.units,
            asked_by=bill.asked_by,
            part_of=bill.part_of,
            window=bill.window,
        )
        yield Charged(bill, entry, ledger=ledger, noise=noise, kept=b"")


def answer_under_charge(
    bill: Bill,
    *,
    ledger: Ledger,
    noise: NoiseSource | None,
    prepare: Callable[[], None] = lambda: None,
    measure: Callable[[Charged], Noisy],
    pack: Callable[[Noisy], bytes],
    unpack: Callable[[bytes], Noisy],
    progress: Callable[[str], None],
    pace: Callable[[], None] = lambda: None,
    under: Callable[[ChargeEntry], None] = lambda _: None,
) -> tuple[Noisy, bool]:
    """The noisy answer to a question that is asked at once, and whether it was charged now.

    It was not if it is stored, or if a charge was made whose answer nobody has seen: that one is finished.
    `bill`, `ledger`, `noise`, `prepare` and `progress` are those of `open_charge`; `measure` is given the
    charge and measures under it, once or in steps that look at the noisy answers before. The ledger keeps
    what `pack` makes of the answer; `unpack` is its inverse. `pace` is called when the reading has ended,
    well or not, and returns when that may be seen. `under` is told the entry of the charge before anything
    else is called.
    """
    with open_charge(bill, ledger=ledger, noise=noise, prepare=prepare, progress=progress) as charge:
        under(charge.entry)
        if charge.answer is not None:
            return unpack(charge.answer), False
        hidden = None
        try:
            noisy = measure(charge)
            payload = pack(noisy)
        except Exception as error:
            if not charge.drawn or error is charge.failure:
                raise
            hidden = type(error).__name__
        finally:
            # Here, because whoever waits for the same, or looks whether it is stored, sees what comes next.
            pace()
        if hidden is not None:
            # Whoever asks again has noise drawn anew: no words of what looked at this noise may come out.
            raise ChargeKept(
                f"the noisy answer could not be used ({hidden}). The charge is kept, and nobody has seen the "
                "answer; ask again to go on under the charge"
            )
        try:
            charge.store(payload)
        except LedgerError as error:
            raise ChargeKept(f"{error}. The charge is kept, and nobody has seen its answer") from None
        return noisy, not charge.resumed


def refuse_most(bill: Bill, ledger: Ledger) -> None:
    """Raises BudgetExceeded if the costs of `bill`, the most that its steps may cost, do not fit now.

    Every step is compared again when it is charged: others may spend meanwhile.
    """
    _refuse_beyond(bill, ledger.budget)
    for report in _report(bill, ledger):
        if not report.admits(bill.costs):
            raise BudgetExceeded(
                f"this may cost up to {describe_charge(report.budget, bill.costs)}, and epsilon "
                f"{report.left} is left. Nothing more was spent; state a smaller epsilon as the most",
                left=report.left,
            )


def refuse_first(bill: Bill, budget: Budget, *, name: str) -> None:
    """Raises BudgetExceeded if `bill` cannot be the first charge of a new ledger: then none need be made."""
    _refuse_beyond(bill, budget)
    if not admits(budget, Spent(), bill.costs):
        raise explain_refusal(budget, Spent(), bill.costs, name=name, window=bill.window is not None)


def _report(bill: Bill, ledger: Ledger) -> list[BudgetReport]:
    """What is left of the budget, and of the share of who asks if they have one."""
    share = None if bill.asked_by is None else ledger.report_share(bill.asked_by, bill.window)
    return [ledger.report(bill.window), *([] if share is None else [share])]


def _refuse_beyond(bill: Bill, budget: Budget) -> None:
    if bill.at_most is None:
        return
    delta = budget.delta
    epsilon = read_epsilon(bill.costs, delta)
    if epsilon is None or epsilon > bill.at_most:
        raise BudgetExceeded(
            f"this would cost {describe_costs(bill.costs, delta)}, and at most epsilon "
            f"{format_short(bill.at_most)} was to be spent on it. Nothing was spent; raise the limit or ask "
            "for less",
            left=bill.at_most,
        )


def _is_asked_again(question: AnyQuestion) -> bool:
    """Whether recipes ask again for the same exact counts; for others they ask once."""
    if isinstance(question, Moments):
        return question.link is None
    return question.stated.tally in ("cells", "occupied", "individuals")


def _list_questions(ask: Ask) -> tuple[AnyQuestion, ...]:
    """What an engine counts for `ask`. Queries are applied to the counts of a marginal, which is kept."""
    if isinstance(ask, Choice):
        return tuple(Marginal(each.columns) for each in ask.candidates)
    if not isinstance(ask, Request):
        return (ask,)
    if ask.counted.tally == "gradients":
        return ()  # these are added up over the records themselves, which are read once
    return (Marginal(ask.columns),) if ask.counted.tally == "cells" else (ask.counted,)
