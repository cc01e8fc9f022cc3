"""A recipe's questions at the door: answered with noise, and kept before anybody sees an answer.

Part of the curator. The charge is durable before a conversation begins; after every batch the answers to it
are made durable, and only then may anything that depends on them be shown or asked.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import ReleaseError
from sfumato.questions import (
    Answer,
    AnyChoice,
    Ask,
    Candidate,
    CapChoice,
    Choice,
    Chosen,
    IndividualCounts,
    Marginal,
    Measurement,
    NormChoice,
    OccupiedCells,
    Queries,
    Question,
    Request,
    request_grid,
    request_size,
)
from sfumato.recipes import Plan, Product, follow_recipe
from sfumato.release import PackedAnswers, append_answers, pack_measurements, split_answers

if TYPE_CHECKING:
    from sfumato.curator.door import Charged
    from sfumato.engines import Engine, TrueCounts
    from sfumato.noise import NoiseSource


class Conversation:
    """The answers to one recipe under a durable charge, from what is kept of it on."""

    def __init__(
        self, plan: Plan, charge: Charged, *, engine: Engine, progress: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._charge = charge
        self._engine = engine
        self._show = progress
        self._kept = PackedAnswers(split_answers(charge.kept), plan.table) if charge.kept else None
        self._true_counts: dict[Question, TrueCounts] = {}
        self._true_sums: dict[tuple[str, ...], tuple[Queries, NDArray[np.int64]]] = {}
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
        if self._kept is not None and self._kept.left:
            try:
                answers = self._kept.take(asks)
            except ReleaseError:
                raise self._misfit() from None
            self._answers += answers
            return answers
        self._settle()
        answers = self._charge.measure(
            lambda: self._read(asks), lambda exact, noise: self._draw(asks, exact, noise)
        )
        self._answers += answers
        # Where every question was known beforehand, the last answer ends the conversation.
        complete = tuple(answer.ask for answer in self._answers) == self._plan.requests
        self._final = complete and self._plan.allowance is None
        self._store(self._answers if self._final else answers, final=self._final)
        if self._final:
            self._show("post-processing")
        return answers

    def _read(self, asks: tuple[Ask, ...]) -> dict[Question, TrueCounts]:
        """The exact counts that `asks` need. Marginals are counted once, all of the plan in one pass."""
        plan = self._plan
        needed = [question for ask in asks for question in _list_questions(ask)]
        cells = [each for each in needed if isinstance(each, Marginal | OccupiedCells)]
        if any(each not in self._true_counts for each in cells):
            needed += [*map(Marginal, plan.marginals), *map(OccupiedCells, plan.occupied)]
        fresh = tuple(dict.fromkeys(each for each in needed if each not in self._true_counts))
        found = self._engine.count(plan.table, fresh, progress=self._show) if fresh else ()
        counted = self._true_counts | dict(zip(fresh, found, strict=True))
        # Recipes ask again for these; for the others they ask once.
        again = Marginal | OccupiedCells | IndividualCounts
        self._true_counts = {each: counts for each, counts in counted.items() if isinstance(each, again)}
        return counted

    def _draw(
        self, asks: tuple[Ask, ...], true_counts: dict[Question, TrueCounts], noise: NoiseSource
    ) -> tuple[Answer, ...]:
        """Noisy answers to `asks`, which are charged and checked."""
        self._show("adding noise")
        return tuple(
            self._choose(ask, true_counts, noise)
            if isinstance(ask, Choice | NormChoice | CapChoice)
            else self._add_noise(ask, true_counts[_list_questions(ask)[0]], noise)
            for ask in asks
        )

    def _choose(
        self, choice: AnyChoice, true_counts: dict[Question, TrueCounts], noise: NoiseSource
    ) -> Chosen:
        """The exponential mechanism; a choice scores its candidates and states the rate that these allow."""
        if isinstance(choice, Choice):
            scores = choice.score(self._sum(each, true_counts) for each in choice.candidates)
        else:
            scores = choice.score(true_counts[choice].true_values)
        drawn = noise.exponential_choice(np.array([scores], np.int64), rate=choice.rate(self._plan.table))
        return Chosen(choice=choice, index=int(drawn[0]))

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

    def _sum(self, candidate: Candidate, true_counts: dict[Question, TrueCounts]) -> NDArray[np.int64]:
        """The counts of a candidate, or their sums, which are kept because choices ask again and again."""
        counts = true_counts[Marginal(candidate.columns)].true_values
        if candidate.queries is None:
            return counts
        known = self._true_sums.get(candidate.columns)
        if known is None or known[0] is not candidate.queries:
            known = self._true_sums[candidate.columns] = (candidate.queries, candidate.queries.apply(counts))
        return known[1]

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


def _list_questions(ask: Ask) -> tuple[Question, ...]:
    """What an engine counts for `ask`. Queries are applied to the counts of a marginal, which is kept."""
    if isinstance(ask, Choice):
        return tuple(Marginal(each.columns) for each in ask.candidates)
    if isinstance(ask, NormChoice | CapChoice):
        return (ask,)
    return (Marginal(ask.columns),) if isinstance(ask.counted, Marginal) else (ask.counted,)
