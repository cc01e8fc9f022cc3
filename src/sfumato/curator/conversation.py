"""A recipe's questions at the door: answered with noise, and kept before anybody sees an answer.

Part of the curator. The charge is durable before a conversation begins; after every batch the answers to it
are made durable, and only then may anything that depends on them be shown or asked.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.budget import Spent, add_costs
from sfumato.core.cost.cost import sqrt_up
from sfumato.core.door import open_charge, refuse_most
from sfumato.core.engine.base import TrueCounts
from sfumato.core.errors import ReleaseError, SourceError
from sfumato.core.exact import digest
from sfumato.core.questions.choices import (
    AnyChoice,
    Candidate,
    CapChoice,
    Choice,
    Chosen,
    NormChoice,
    Question,
)
from sfumato.core.questions.counts import IndividualCounts, Marginal, OccupiedCells, Queries
from sfumato.core.questions.gradients import Gradients
from sfumato.core.questions.measurement import Answer, Ask, Measurement, Request, request_grid, request_size
from sfumato.core.questions.moments import Moments
from sfumato.recipes.base import Plan, Product, find_part, follow_recipe, list_costs
from sfumato.release.files import (
    PackedAnswers,
    append_answers,
    pack_measurements,
    pack_step,
    split_answers,
    unpack_step,
)

if TYPE_CHECKING:
    from sfumato.core.cost.cost import Cost
    from sfumato.core.door import Bill, Charged
    from sfumato.core.engine.gradients import TrueRecords
    from sfumato.core.facts.part import Part
    from sfumato.core.facts.table import Table
    from sfumato.core.ledger.chain import Entry
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.core.noise.samplers import NoiseSource
    from sfumato.servers.project import Engine

    Exact = dict[tuple[Part | None, Question], TrueCounts]


class _Answering:
    """The exact counts that a plan asks for, and noise on them: what every way to charge for it needs."""

    def __init__(self, plan: Plan, *, engine: Engine, progress: Callable[[str], None]) -> None:
        self._plan = plan
        self._engine = engine
        self._show = progress
        # One object for every part, by which an engine knows what it keeps.
        self._tables: dict[Part | None, Table] = {None: plan.table}
        self._tables |= {part: replace(plan.table, part=part) for part in plan.parts}
        self._true_counts: Exact = {}
        self._true_records: dict[tuple[Part | None, tuple[str, ...]], TrueRecords] = {}
        self._true_sums: dict[tuple[Part | None, tuple[str, ...]], tuple[Queries, NDArray[np.int64]]] = {}
        self._true_scores: dict[tuple[Part | None, int], tuple[Candidate, int]] = {}

    def _read(self, asks: tuple[Ask, ...]) -> Exact:
        """The exact counts that `asks` need, each of its part of the people.

        Marginals are counted once, all of the plan in one pass.
        """
        counted = self._true_counts
        for part in dict.fromkeys(map(find_part, asks)):
            fresh = self._read_part(part, [ask for ask in asks if find_part(ask) == part])
            counted = counted | fresh if fresh else counted
        for ask in asks:  # a network asks again and again of the same records
            counts = ask.counted if isinstance(ask, Request) else None
            if not isinstance(counts, Gradients):
                continue
            key = find_part(ask), counts.columns
            if key not in self._true_records:
                table = self._tables[key[0]]
                read = self._engine.read_records(table, counts.columns, progress=self._show)
                self._true_records = {key: read}
        if counted is not self._true_counts:
            self._true_counts = {each: true for each, true in counted.items() if _is_asked_again(each[1])}
        return counted

    def _list_unscored(self, ask: Ask) -> tuple[Question, ...]:
        """What an engine counts for `ask`; candidates that competed before are known."""
        if isinstance(ask, Choice) and self._true_scores:
            known = self._true_scores
            fresh = (each for each in ask.candidates if (ask.part, id(each)) not in known)
            return tuple(Marginal(each.columns) for each in fresh)
        return _list_questions(ask)

    def _read_part(self, part: Part | None, asks: list[Ask]) -> Exact:
        plan, known = self._plan, self._true_counts
        needed = [question for ask in asks for question in self._list_unscored(ask)]
        cells = [each for each in needed if isinstance(each, Marginal | OccupiedCells)]
        if any((part, each) not in known for each in cells):
            needed += [*map(Marginal, plan.marginals), *map(OccupiedCells, plan.occupied)]
        fresh = tuple(dict.fromkeys(each for each in needed if (part, each) not in known))
        found = self._engine.count(self._tables[part], fresh, progress=self._show) if fresh else ()
        return {(part, each): counts for each, counts in zip(fresh, found, strict=True)}

    def _draw(self, asks: tuple[Ask, ...], true_counts: Exact, noise: NoiseSource) -> tuple[Answer, ...]:
        """Noisy answers to `asks`, which are charged and checked."""
        self._show("adding noise")
        answers: list[Answer] = []
        for ask in asks:
            if isinstance(ask, Choice | NormChoice | CapChoice):
                answers.append(self._choose(ask, true_counts, noise))
            elif isinstance(ask.counted, Gradients):
                answers.append(self._sample(ask, ask.counted, noise))
            else:
                exact = true_counts[find_part(ask), _list_questions(ask)[0]]
                answers.append(self._add_noise(ask, exact, noise))
        return tuple(answers)

    def _sample(self, request: Request, question: Gradients, noise: NoiseSource) -> Measurement:
        """The noisy sum over a sample, drawn anew: everybody with the same chance, whoever else is there."""
        true_records = self._true_records[find_part(request), question.columns]
        drawn = noise.poisson_sample(size=true_records.individuals, rate=question.sampling)
        sums = TrueCounts(question.columns, true_records.sum_gradients(question, drawn))
        return self._add_noise(request, sums, noise)

    def _choose(self, choice: AnyChoice, true_counts: Exact, noise: NoiseSource) -> Chosen:
        """The exponential mechanism; a choice scores its candidates and states the rate that these allow."""
        if isinstance(choice, Choice):
            scores = self._score(choice, true_counts)
        else:
            scores = choice.score(true_counts[None, choice].true_values)
        drawn = noise.exponential_choice(np.array([scores], np.int64), rate=choice.rate(self._plan.table))
        return Chosen(choice=choice, index=int(drawn[0]))

    def _score(self, choice: Choice, true_counts: Exact) -> list[int]:
        """The scores of a choice; a candidate that competed before keeps the one it had."""
        # The candidate is kept beside its score, so that no other has its id.
        keys = [(choice.part, id(each)) for each in choice.candidates]
        if not any(key in self._true_scores for key in keys):
            self._true_scores = {}  # a recipe that makes its candidates anew has done with the old ones
        for key, each in zip(keys, choice.candidates, strict=True):
            if key not in self._true_scores:
                score = each.score(self._sum(each, choice.part, true_counts))
                self._true_scores[key] = (each, score)
        return [self._true_scores[key][1] for key in keys]

    def _add_noise(self, request: Request, true_counts: TrueCounts, noise: NoiseSource) -> Measurement:
        table, values, cells = self._plan.table, true_counts.true_values, true_counts.cells
        if request.threshold is not None:
            assert cells is not None
            size = table.cells(request.columns)
            cells, noisy = noise.add_sparse_noise(
                cells, values, size=size, scale=request.scale, threshold=request.threshold
            )
            cells.flags.writeable = False
        else:
            if isinstance(request.counted, Marginal) and request.queries is not None:
                values = request.queries.apply(values)
            assert values.size == request_size(table, request)
            noisy = noise.add_noise(values, kind=request.noise, scale=request.scale)
        noisy.flags.writeable = False  # it is stored while the recipe has it in hand
        grid = request_grid(table, request)
        return Measurement(request=request, noisy_values=noisy, grid=grid, cells=cells)

    def _sum(self, candidate: Candidate, part: Part | None, true_counts: Exact) -> NDArray[np.int64]:
        """The counts of a candidate, or their sums, which are kept because choices ask again and again."""
        counts = true_counts[part, Marginal(candidate.columns)].true_values
        if candidate.queries is None:
            return counts
        key = (part, candidate.columns)
        known = self._true_sums.get(key)
        if known is None or known[0] is not candidate.queries:
            known = self._true_sums[key] = (candidate.queries, candidate.queries.apply(counts))
        return known[1]


class Conversation(_Answering):
    """The answers to one recipe under a durable charge, from what is kept of it on."""

    def __init__(
        self, plan: Plan, charge: Charged, *, engine: Engine, progress: Callable[[str], None]
    ) -> None:
        super().__init__(plan, engine=engine, progress=progress)
        self._charge = charge
        self._kept = PackedAnswers(split_answers(charge.kept), plan.table) if charge.kept else None
        self._answers: tuple[Answer, ...] = ()
        self._packed: bytes | None = None
        self._final = False
        self._pool = ThreadPoolExecutor(1)
        self._storing: Future[None] | None = None

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def run(self) -> tuple[tuple[Answer, ...], Product]:
        """All answers and what the recipe made of them; their storing may still be under way."""
        try:
            answers, product = follow_recipe(self._plan, answer=self._answer, progress=self._report)
        except BaseException:
            self._settle()  # an error may depend on answers, too
            raise
        if self._kept is not None and self._kept.left:
            raise self._misfit()
        if not self._final:
            self._store(self._answers, final=True)
        return answers, product

    def packed(self) -> bytes:
        """All answers as they are stored, once they are."""
        self._settle()
        assert self._packed is not None
        return self._packed

    def _answer(self, asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        costs = list_costs(self._plan.table, asks)
        if self._kept is not None and self._kept.left:
            self._charge.pay(costs)
            try:
                answers = self._kept.take(asks)
            except ReleaseError:
                raise self._misfit() from None
            self._answers += answers
            return answers
        self._settle()
        answers = self._charge.measure(
            costs, lambda: self._read(asks), lambda exact, noise: self._draw(asks, exact, noise)
        )
        self._answers += answers
        # Where every question was known beforehand, the last answer ends the conversation.
        complete = tuple(answer.ask for answer in self._answers) == self._plan.requests
        self._final = complete and self._plan.allowance is None
        self._store(self._answers if self._final else answers, final=self._final)
        if self._final:
            self._show("post-processing")
        return answers

    def _store(self, answers: tuple[Answer, ...], *, final: bool) -> None:
        """Begins to make `answers` durable: all of them if they are final, else those of the last batch."""
        self._settle()
        self._storing = self._pool.submit(self._keep, answers, final=final)

    def _keep(self, answers: tuple[Answer, ...], *, final: bool) -> None:
        if final:
            self._packed = pack_measurements(answers)
            self._charge.store(self._packed)
        else:
            self._charge.store(append_answers(self._charge.kept or b"", answers), final=False)

    def _settle(self) -> None:
        """Waits until all answers so far are durable."""
        if self._storing is not None:
            self._storing.result()
            self._storing = None

    def _report(self, stage: str) -> None:
        self._settle()
        self._show(stage)

    def _misfit(self) -> ReleaseError:
        return ReleaseError(
            f"what is kept of charge {self._charge.entry.sequence} is not what recipe "
            f"{self._plan.recipe.kind!r} asks now; finish it with the version of sfumato that began it"
        )


class Steps(_Answering):
    """The answers to a stepwise plan: every batch under a durable charge of its own, or found again.

    Privacy: a batch is charged at the cost of its own questions before its records are read or noise is
    drawn for it. An answer that is stored is given again, and a charge without an answer is finished.
    """

    def __init__(
        self,
        plan: Plan,
        bill: Bill,
        *,
        ledger: Ledger,
        noise: NoiseSource | None,
        engine: Engine,
        progress: Callable[[str], None],
    ) -> None:
        super().__init__(plan, engine=engine, progress=progress)
        self._bill, self._ledger, self._noise = bill, ledger, noise
        self.entries: tuple[Entry, ...] = ()
        self.charged = self.resumed = False
        self._given: tuple[Ask, ...] = ()

    def run(self) -> tuple[tuple[Answer, ...], Product]:
        """All answers and what the recipe made of them."""
        return follow_recipe(self._plan, answer=self._answer, progress=self._show)

    def _answer(self, asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        record = self._plan.step_record(asks)
        bill = replace(
            self._bill,
            digest=digest(record),
            description=record,
            costs=self._plan.charged(asks),
            at_most=None,  # what may be spent on all of it was compared before the first charge
        )
        with open_charge(
            bill, ledger=self._ledger, noise=self._noise, prepare=self._prepare, progress=self._show
        ) as charge:
            self.entries += (charge.entry,)
            self._given += asks
            if charge.answer is not None:
                return unpack_step(charge.answer, asks, self._plan.table)
            answers = charge.measure(
                list_costs(self._plan.table, asks),
                lambda: self._read(asks),
                lambda exact, noise: self._draw(asks, exact, noise),
            )
            charge.store(pack_step(answers))
            return answers

    def _prepare(self) -> None:
        """Before a charge: there is room for all that may be spent, and the records are still the same."""
        if not self.charged:
            refuse_most(replace(self._bill, costs=self._left()), self._ledger)
        if self.entries and self._bill.version(self._ledger.secret) != self.entries[0].table_version:
            raise SourceError(
                f"table {self._plan.table.name!r}: its source changed between two steps; run it again"
            )
        self.charged = True

    def _left(self) -> tuple[Cost, ...]:
        """The most that may still be charged, where earlier steps were found."""
        most, given = (
            add_costs(Spent(), each) for each in (self._plan.costs, self._plan.charged(self._given))
        )
        if not self._given or most.mu_squared is None or given.mu_squared is None:
            return self._plan.costs
        return (replace(self._plan.costs[0], scale=sqrt_up(most.mu_squared - given.mu_squared)),)


def _is_asked_again(question: Question) -> bool:
    """Whether recipes ask again for the same exact counts; for others they ask once."""
    if isinstance(question, Moments):
        return question.link is None
    return isinstance(question, Marginal | OccupiedCells | IndividualCounts)


def _list_questions(ask: Ask) -> tuple[Question, ...]:
    """What an engine counts for `ask`. Queries are applied to the counts of a marginal, which is kept."""
    if isinstance(ask, Choice):
        return tuple(Marginal(each.columns) for each in ask.candidates)
    if isinstance(ask, NormChoice | CapChoice):
        return (ask,)
    if isinstance(ask.counted, Gradients):
        return ()  # these are added up over the records themselves, which are read once
    return (Marginal(ask.columns),) if isinstance(ask.counted, Marginal) else (ask.counted,)
