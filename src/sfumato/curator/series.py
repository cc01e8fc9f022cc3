"""The answers to a series: one charge for its whole horizon, one answer for every period, never another.

A period is named by what is asked and by its place, not by the version of its table: the table grows from one
to the next, and what was answered of a period stays its answer. Proof: docs/proofs/running.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.door import Period, Records, open_charge
from sfumato.core.engine.base import sign_version
from sfumato.core.exact import digest
from sfumato.core.questions.measurement import Answer, Ask, Measurement, Request, request_grid
from sfumato.core.questions.series import RunningSums
from sfumato.recipes.base import Plan, Product, follow_recipe

if TYPE_CHECKING:
    from sfumato.core.door import Bill
    from sfumato.core.law import NoiseSource
    from sfumato.core.ledger.chain import ChargeEntry
    from sfumato.core.ledger.ledger import Ledger
    from sfumato.servers.project import Engine


class Series:
    """The answers to the periods of a series, each under its part of one durable charge, or found again.

    Privacy: the first period charges for all of them, before a record is read. Every period is answered once,
    after the one before it, from what arrived until then; noise is drawn for it alone.
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
        self._plan, self._bill, self._ledger = plan, bill, ledger
        self._noise, self._engine, self._show = noise, engine, progress
        self._stream = _name_stream(plan)
        self.entries: tuple[ChargeEntry, ...] = ()
        self.charged = self.resumed = False

    def run(self) -> tuple[tuple[Answer, ...], Product]:
        """The answers of all periods so far, and what the recipe made of them."""
        return follow_recipe(self._plan, answer=self._answer, progress=self._show)

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
