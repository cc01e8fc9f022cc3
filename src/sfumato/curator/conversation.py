"""A recipe's questions at the door: answered with noise, and kept before anybody sees an answer.

Part of the curator. The charge is durable before a conversation begins; after every batch the answers to it
are made durable, and only then may anything that depends on them be shown or asked.

A series has one charge for its whole horizon, and one answer for every period, never another. A period is
named by what is asked and by its place, not by the version of its table: the table grows from one to the
next, and what was answered of a period stays its answer. Proof: docs/proofs/running.md.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.budget import Spent, add_costs
from sfumato.core.cost.curves import sqrt_up
from sfumato.core.door import Records, open_charge, refuse_most
from sfumato.core.engine.base import sign_version
from sfumato.core.errors import ReleaseError, SourceError
from sfumato.core.exact import digest
from sfumato.core.questions.measurement import Answer, Ask, Measurement, Request, ask_cost, request_grid
from sfumato.core.questions.series import Period, RunningSums
from sfumato.recipes.base import Plan, Product, follow_recipe
from sfumato.release.folder import (
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
    from sfumato.core.law import NoiseSource
    from sfumato.core.ledger.chain import ChargeEntry
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.servers.project import Engine


class Conversation:
    """The answers to one recipe under a durable charge, from what is kept of it on."""

    def __init__(
        self, plan: Plan, charge: Charged, *, engine: Engine, progress: Callable[[str], None]
    ) -> None:
        self._plan, self._show = plan, progress
        self._records = open_records(plan, engine=engine, progress=progress)
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
        if self._kept is not None and self._kept.left:
            self._charge.admit(asks)
            try:
                answers = self._kept.take(asks)
            except ReleaseError:
                raise self._misfit() from None
            self._answers += answers
            return answers
        self._settle()
        answers = self._charge.ask(asks, self._records)
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


class Steps:
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
        self._plan, self._engine, self._show = plan, engine, progress
        self._records = open_records(plan, engine=engine, progress=progress)
        self._bill, self._ledger, self._noise = bill, ledger, noise
        self.entries: tuple[ChargeEntry, ...] = ()
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
            purpose="other",  # a step of a release is none by itself
            description=record,
            costs=tuple(ask_cost(self._plan.table, ask) for ask in asks),
            at_most=None,  # what may be spent on all of it was compared before the first charge
        )
        with open_charge(
            bill, ledger=self._ledger, noise=self._noise, prepare=self._prepare, progress=self._show
        ) as charge:
            self.entries += (charge.entry,)
            self._given += asks
            if charge.answer is not None:
                return unpack_step(charge.answer, asks, self._plan.table)
            answers = charge.ask(asks, self._records)
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


def open_records(plan: Plan, *, engine: Engine, progress: Callable[[str], None]) -> Records:
    """Returns what answers the questions of a plan; all that it may count is counted in one pass."""
    return Records(
        plan.table,
        engine=engine,
        parts=plan.parts,
        marginals=plan.marginals,
        occupied=plan.occupied,
        progress=progress,
    )


class Series(Steps):
    """The answers to the periods of a series, each under its part of one durable charge, or found again.

    Privacy: the first period charges for all of them, before a record is read. Every period is answered once,
    after the one before it, from what arrived until then; noise is drawn for it alone.
    """

    @cached_property
    def _stream(self) -> str:
        return _name_stream(self._plan)

    def _answer(self, asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        (request,) = asks
        assert isinstance(request, Request)
        assert isinstance(request.counted, RunningSums)
        periods = range(request.counted.periods)
        # What was answered before is never another, and is found at once: there may be thousands of periods.
        known = self._ledger.find_answers(
            (digest(self._plan.period_record(each)) for each in periods),
            table_version=_sign_stream(self._stream, self._ledger.secret),
        )
        self.entries = tuple(entry for entry, _ in known)
        answers = [np.frombuffer(payload, "<i8").astype(np.int64) for _, payload in known]
        answers += [self._answer_period(request, each) for each in periods[len(known) :]]
        values = np.concatenate(answers)
        grid = request_grid(self._plan.table, request)
        return (Measurement(request=request, noisy_values=values, grid=grid),)

    def _answer_period(self, request: Request, period: int) -> NDArray[np.int64]:
        record = self._plan.period_record(period)
        before = tuple(each.hash for each in self.entries)
        bill = replace(
            self._bill,
            digest=digest(record),
            purpose="other",  # a period of a release is none by itself
            description=record,
            costs=() if period else self._plan.costs,
            part_of=self.entries[0] if period else None,
            at_most=None if period else self._bill.at_most,
            version=lambda secret: _sign_stream(self._stream, secret),
        )

        def prepare() -> None:
            self._engine.check_arrivals(self._stream, before)

        with open_charge(
            bill, ledger=self._ledger, noise=self._noise, prepare=prepare, progress=self._show
        ) as charge:
            self.entries += (charge.entry,)
            if charge.answer is not None:
                return np.frombuffer(charge.answer, "<i8").astype(np.int64)
            self.charged = self.charged or not charge.resumed
            self.resumed = self.resumed or charge.resumed
            paid = Period(self._stream, (*before, charge.entry.hash), self._ledger.secret)
            records = Records(self._plan.table, engine=self._engine, period=paid, progress=self._show)
            (measured,) = charge.ask((request,), records)
            assert isinstance(measured, Measurement)
            noisy = measured.noisy_values
            charge.store(noisy.astype("<i8").tobytes())
            return noisy


def find_series(plan: Plan, ledger: Ledger) -> tuple[bool, bool]:
    """Whether all periods of a series were answered before, and whether it was begun, so that it is paid."""
    (request,) = plan.requests
    assert isinstance(request.counted, RunningSums)
    version = _sign_stream(_name_stream(plan), ledger.secret)

    def find(period: int) -> bool:
        name = digest(plan.period_record(period))
        return ledger.find_answer(plan_digest=name, table_version=version) is not None

    first = digest(plan.period_record(0))
    begun = ledger.find_progress(plan_digest=first, table_version=version) is not None or find(0)
    return begun and find(request.counted.periods - 1), begun


def _name_stream(plan: Plan) -> str:
    return digest({key: value for key, value in plan.period_record(0).items() if key != "period"})


def _sign_stream(stream: str, secret: bytes) -> str:
    """In place of the version of a table, which changes as it grows: a digest that stays."""
    return sign_version(f"series {stream}", secret=secret)
