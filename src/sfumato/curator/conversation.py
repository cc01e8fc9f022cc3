"""A recipe's questions at the door: answered with noise, and kept before anybody sees an answer.

Part of the curator. The charge is durable before a conversation begins; after every batch all answers so
far are made durable, and only then may anything that depends on them be shown or asked.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.accounting import histogram_sensitivity
from sfumato.errors import RecipeError, ReleaseError, SfumatoError, SourceError
from sfumato.noise import add_noise, add_sparse_noise, exponential_choice
from sfumato.questions.measurement import (
    Answer,
    Ask,
    CapChoice,
    Choice,
    Chosen,
    Measurement,
    NormChoice,
    Request,
    is_dense,
    request_grid,
    request_size,
)
from sfumato.recipes import follow_recipe
from sfumato.release import PackedAnswers, pack_measurements
from sfumato.schema import hold_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sfumato.accounting import Entry, Ledger
    from sfumato.engines import Engine, TrueCounts
    from sfumato.noise import NoiseSource
    from sfumato.questions.measurement import Gap, HeadCounts, Queries
    from sfumato.recipes import Plan, Product
    from sfumato.schema import Table

_LARGEST_ESTIMATE = 2.0**60
_LEAST, _MOST = -(2**63), 2**63 - 1


class Conversation:
    """The answers to one recipe under the durable charge `entry`, from `kept` on.

    `kept` is the stored progress of the charge: None if there is none, empty if nothing is answered yet.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        engine: Engine,
        ledger: Ledger,
        entry: Entry,
        kept: bytes | None,
        progress: Callable[[str], None],
        noise: NoiseSource | None = None,
    ) -> None:
        self._noise = noise
        self._plan = plan
        self._engine = engine
        self._ledger = ledger
        self._entry = entry
        self._show = progress
        self._kept = kept
        self._rows = PackedAnswers(kept, plan.table) if kept else None
        self._true_counts: dict[tuple[str, ...], TrueCounts] | None = None
        self._true_occupied: dict[tuple[str, ...], TrueCounts] = {}
        self._true_heads: tuple[tuple[str, ...], HeadCounts, NDArray[np.int64]] | None = None
        self._true_sums: dict[tuple[str, ...], tuple[Queries, NDArray[np.int64]]] = {}
        self._answers: tuple[Answer, ...] = ()
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
            answers, product = follow_recipe(self._plan, answer=self._answer, progress=self._tell)
        except BaseException:
            self._settle()  # an error may tell of answers, too
            raise
        if self._rows is not None and self._rows.left:
            raise self._misfit()
        if not self._final:
            self._final = True
            self._store()
        return answers, product

    def packed(self) -> bytes:
        """All answers as they are stored, once they are."""
        self._settle()
        assert self._kept is not None
        return self._kept

    def _answer(self, asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        if self._rows is not None and self._rows.left:
            try:
                answers = self._rows.take(asks)
            except ReleaseError:
                raise self._misfit() from None
            self._answers += answers
            return answers
        self._settle()
        answers = self._draw(asks)
        self._answers += answers
        # Where every question was known beforehand, the last answer ends the conversation.
        complete = tuple(answer.ask for answer in self._answers) == self._plan.requests
        self._final = complete and self._plan.allowance is None
        self._store()
        if self._final:
            self._show("post-processing")
        return answers

    def _draw(self, asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        """Exact values in, noisy answers out. The caller has charged and checked `asks`."""
        plan, tell = self._plan, self._show
        clipped = tuple(ask for ask in asks if isinstance(ask, Request) and ask.norm is not None)
        true_values: dict[str, NDArray[np.int64]] = {}
        try:
            if self._true_counts is None and any(_needs_counts(ask) for ask in asks):
                counts = self._engine.count(plan.table, plan.marginals, occupied=plan.occupied, progress=tell)
                dense = len(plan.marginals)
                self._true_counts = dict(zip(plan.marginals, counts[:dense], strict=True))
                self._true_occupied = dict(zip(plan.occupied, counts[dense:], strict=True))
            if clipped:
                answers = self._engine.count_clipped(plan.table, clipped, progress=tell)
                for request, true_answer in zip(clipped, answers, strict=True):
                    true_values[request.name] = true_answer.true_values
            for ask in asks:
                if isinstance(ask, NormChoice):
                    within = self._engine.count_norms(plan.table, ask, progress=tell)
                    true_values[ask.name] = within.true_values
                elif isinstance(ask, CapChoice):
                    lost = self._engine.count_lost(plan.table, ask, progress=tell)
                    true_values[ask.name] = lost.true_values
                elif isinstance(ask, Request) and ask.records is not None:
                    held = hold_records(plan.table, ask.records)
                    (counts_held,) = self._engine.count(held, (ask.columns,), progress=tell)
                    true_values[ask.name] = counts_held.true_values
                elif isinstance(ask, Request) and ask.heads is not None:
                    true_values[ask.name] = self._count_heads(ask)
            if self._engine.version(plan.table, secret=self._ledger.secret) != self._entry.table_version:
                raise SourceError(
                    f"table {plan.table.name!r}: its source changed while it was read; run it again"
                )
        except SfumatoError as error:
            raise SourceError(
                f"{error}. The charge is kept, because a refund would tell about the records"
            ) from None
        tell("adding noise")
        return tuple(self._add_noise(ask, true_values.get(ask.name)) for ask in asks)

    def _add_noise(self, ask: Ask, true_values: NDArray[np.int64] | None) -> Answer:
        table = self._plan.table
        if isinstance(ask, Choice):
            return self._choose(ask)
        if isinstance(ask, NormChoice):
            assert true_values is not None
            return Chosen(choice=ask, index=self._draw_index(*_score_norms(table, ask, true_values)))
        if isinstance(ask, CapChoice):
            assert true_values is not None
            return Chosen(choice=ask, index=self._draw_index(*_score_caps(table, ask, true_values)))
        if ask.threshold is not None:
            return self._add_sparse_noise(ask, ask.threshold)
        if true_values is None:
            true_values = self._count(ask.columns)
            if ask.queries is not None:
                true_values = ask.queries.apply(true_values)
        assert true_values.size == request_size(table, ask)
        add = add_noise if self._noise is None else self._noise.add_noise
        noisy = add(true_values, kind=ask.noise, scale=ask.scale)
        noisy.flags.writeable = False  # it is stored while the recipe has it in hand
        return Measurement(request=ask, noisy_values=noisy, grid=request_grid(table, ask))

    def _add_sparse_noise(self, request: Request, threshold: int) -> Measurement:
        table, occupied = self._plan.table, self._true_occupied[request.columns]
        assert occupied.cells is not None
        add = add_sparse_noise if self._noise is None else self._noise.add_sparse_noise
        cells, noisy = add(
            occupied.cells,
            occupied.true_values,
            size=table.cells(request.columns),
            scale=request.scale,
            threshold=threshold,
        )
        noisy.flags.writeable = cells.flags.writeable = False
        return Measurement(
            request=request, noisy_values=noisy, grid=request_grid(table, request), cells=cells
        )

    def _choose(self, choice: Choice) -> Chosen:
        """The exponential mechanism over the gaps between counts and estimates.

        Privacy: an individual moves an L1 distance by at most the L1 sensitivity of the counts, and a
        score by its weight times that; holding a score within 64 bits moves it no further.
        """
        table = self._plan.table
        estimates = (self._estimate(choice, gap) for gap in choice.candidates)
        scores = [
            _hold(gap.weight * measure_distance(self._sum(gap), estimate) - gap.penalty)
            for gap, estimate in zip(choice.candidates, estimates, strict=True)
        ]
        sensitivity = histogram_sensitivity(
            contribution=Fraction(table.contribution), norm="L1", neighbours=table.unit.neighbours
        )
        rate = choice.epsilon / (2 * max(gap.weight for gap in choice.candidates) * sensitivity)
        return Chosen(choice=choice, index=self._draw_index(scores, rate))

    def _draw_index(self, scores: list[int], rate: Fraction) -> int:
        choose = exponential_choice if self._noise is None else self._noise.exponential_choice
        return int(choose(np.array([scores], np.int64), rate=rate)[0])

    def _estimate(self, choice: Choice, gap: Gap) -> NDArray[np.int64]:
        estimate = gap.estimate()
        size = self._plan.table.cells(gap.columns) if gap.queries is None else gap.queries.rows
        if not isinstance(estimate, np.ndarray) or estimate.dtype != np.int64 or estimate.shape != (size,):
            raise RecipeError(
                f"choice {choice.name!r}: an estimate must be {size:,} whole numbers of 64 bits"
            )
        if np.abs(estimate.astype(np.float64)).max() > _LARGEST_ESTIMATE:
            raise RecipeError(f"choice {choice.name!r}: an estimate holds a number beyond 2^60")
        return estimate

    def _count(self, columns: tuple[str, ...]) -> NDArray[np.int64]:
        assert self._true_counts is not None
        return self._true_counts[columns].true_values

    def _count_heads(self, request: Request) -> NDArray[np.int64]:
        """The counts of individuals, which requests at other epsilons ask for again."""
        assert request.heads is not None
        known = self._true_heads
        if known is None or known[0] != request.columns or known[1] is not request.heads:
            counts = self._engine.count_heads(self._plan.table, request, progress=self._show)
            known = self._true_heads = (request.columns, request.heads, counts.true_values)
        return known[2]

    def _sum(self, gap: Gap) -> NDArray[np.int64]:
        """The counts of a candidate, or their sums, which are kept because choices ask again and again."""
        if gap.queries is None:
            return self._count(gap.columns)
        known = self._true_sums.get(gap.columns)
        if known is None or known[0] is not gap.queries:
            known = (gap.queries, gap.queries.apply(self._count(gap.columns)))
            self._true_sums[gap.columns] = known
        return known[1]

    def _store(self) -> None:
        self._settle()
        self._storing = self._pool.submit(self._keep, self._answers, final=self._final)

    def _keep(self, answers: tuple[Answer, ...], *, final: bool) -> None:
        packed = pack_measurements(answers)
        store = self._ledger.store_answer if final else self._ledger.store_progress
        store(self._entry, packed, after=self._kept)
        self._kept = packed

    def _settle(self) -> None:
        """Waits until all answers so far are durable."""
        if self._storing is not None:
            self._storing.result()
            self._storing = None

    def _tell(self, stage: str) -> None:
        self._settle()
        self._show(stage)

    def _misfit(self) -> ReleaseError:
        return ReleaseError(
            f"what is kept of charge {self._entry.sequence} is not what recipe {self._plan.recipe.kind!r} "
            "asks now; finish it with the version of sfumato that began it"
        )


def _needs_counts(ask: Ask) -> bool:
    if isinstance(ask, Request):
        return is_dense(ask) or ask.threshold is not None
    return isinstance(ask, Choice)


def _score_norms(
    table: Table, choice: NormChoice, true_within: NDArray[np.int64]
) -> tuple[list[int], Fraction]:
    """Scores and rate of the choice of a norm, by how far the number within is from the quantile.

    Privacy: with quantile a / b, a score is -|b * within - a * all|. One individual more adds 1 to `all`
    and 0 or 1 to `within`, which moves it by at most max(a, b - a); one in place of another, by b.
    """
    a, b = choice.quantile.numerator, choice.quantile.denominator
    *within, everybody = true_within.tolist()
    assert len(within) == len(choice.norms)
    scores = [_hold(-abs(b * each - a * everybody)) for each in within]
    return scores, choice.epsilon / (2 * (b if table.unit.neighbours == "replace" else max(a, b - a)))


def _score_caps(table: Table, choice: CapChoice, true_lost: NDArray[np.int64]) -> tuple[list[int], Fraction]:
    """Scores and rate of the choice of a bound, by what it cuts off and its penalty.

    Privacy: one individual adds between 0 and max_records - caps[0] to every number of records cut off.
    """
    lost = true_lost.tolist()
    scores = [_hold(-cut - penalty) for cut, penalty in zip(lost, choice.penalties, strict=True)]
    return scores, choice.epsilon / (2 * (table.unit.max_records - choice.caps[0]))


def measure_distance(true_counts: NDArray[np.int64], estimate: NDArray[np.int64]) -> int:
    """The L1 distance, exactly: the halves of 2^27 words of 64 bits add up below 2^63."""
    gaps = np.abs(true_counts - estimate).view(np.uint64)
    low = int((gaps & np.uint64(2**32 - 1)).sum())
    return (int((gaps >> np.uint64(32)).sum()) << 32) + low


def _hold(score: int) -> int:
    return min(max(score, _LEAST), _MOST)
