"""A histogram under a bound on the records of an individual that is chosen privately."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.core.cost.cost import Cost
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_positive
from sfumato.core.law import make_law
from sfumato.core.questions.counts import CappedMarginal, IndividualCounts
from sfumato.core.questions.measurement import Answer, Measurement, Request, ask_cost
from sfumato.inference.people import find_people
from sfumato.recipes.base import Conversation, Expected, Plan, Product, expect_noise
from sfumato.recipes.shared.counts import (
    CountOptions,
    describe_threshold,
    finish_counts,
    parse_threshold,
    request_laplace,
)

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


_MOST_CAPS = 32  # up to so many bounds all are offered, beyond it steps of an eighth
_SLIGHT = 0.05  # of all records: noise of which the number of records may have more, not to lack any
_MOST_CAPPED_CELLS = 2**24  # each is counted twice in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedCounts(CountOptions):
    """A histogram over every combination of the columns `by`, held to as few records as serve it best.

    Noise grows with the bound on an individual's records, and a lower bound cuts records off. A `share` of
    epsilon counts individuals by their records, each once: the bound that spoils least in total follows, up
    to max_records, and the number of records, to which the counts are scaled. The rest is for the counts.

    Privacy: both parts are epsilon-DP together, by sequential composition (docs/proofs/capped-counts.md).

    >>> CappedCounts(table="incidents", by=("district", "month")).kind
    'capped-counts'
    """

    kind: ClassVar[str] = "capped-counts"
    own_bound: ClassVar[str] = "share"

    share: Any = "0.1"
    threshold: Any = 3

    def __post_init__(self) -> None:
        CountOptions.__post_init__(self)
        self._keep(
            share=parse_positive(self.share, name="capped-counts: share"),
            threshold=parse_threshold(self.threshold, kind=self.kind),
        )
        if self.share >= 1:
            raise RecipeError("capped-counts: share is a part of epsilon, below 1")

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return all of every epsilon, charged before the first question."""
        by = tuple(self.by)
        self.check_names(table)
        self.refuse_cells(table, by, _MOST_CAPPED_CELLS, advice="use fewer columns or coarser domains")
        if table.unit.max_records == 1:
            raise RecipeError(
                "capped-counts: nobody has more than one record that counts, so there is no bound to choose; "
                "use cell-counts"
            )
        return Plan(
            recipe=self,
            table=table,
            epsilons=epsilons,
            delta=delta,
            allowance=tuple(cost for epsilon in epsilons for cost in self._costs(table, epsilon)),
            counted=(by,),
        )

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of the counts under the least and the largest bound; one between is chosen."""
        ends = (1, plan.table.unit.max_records)
        asks = (self._counts(plan.table, plan.epsilons[0], "", bound=each) for each in ends)
        return [expect_noise(plan.table, each) for each in asks]

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Return every cell with its count, for every epsilon."""
        released, facts = [], []
        for epsilon in plan.epsilons:
            label = plan.label(epsilon)
            choice = self._choice(plan.table, epsilon, label)
            bound, records = choice.read((yield (choice.ask,)))
            (counts,) = yield (self._counts(plan.table, epsilon, label, bound=bound),)
            assert isinstance(counts, Measurement)
            factor = _scale_up(counts, records, most=plan.table.unit.max_records / bound)
            deviation = counts.request.standard_deviation
            kept = finish_counts(counts.noisy_values, threshold=self.threshold, deviation=deviation)
            released.append(np.asarray(np.floor(kept * (factor / counts.grid) + 0.5), np.int64))
            facts.append({"epsilon": format_exact(epsilon), "records": bound, "scaled_by": f"{factor:.6f}"})
        return Product(table=self.tabulate(plan, released), varied=("count",), facts={"bounds": facts})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        return {
            "table": plan.table.name,
            "columns": ", ".join(self.by),
            "cells": plan.table.cells(tuple(self.by)),
            "most": plan.table.unit.max_records,
            "share": format_exact(self.share),
            "threshold": describe_threshold(self.threshold),
        }

    def _costs(self, table: Table, epsilon: Fraction) -> tuple[Cost, ...]:
        """Return the cost of the first questions, and the most that counts cost under any bound."""
        first = ask_cost(table, self._choice(table, epsilon, "").ask)
        counts = (
            ask_cost(table, self._counts(table, epsilon, "", bound=cap))
            for cap in list_caps(table.unit.max_records)
        )
        return (first, max(counts, key=lambda cost: cost.rho))

    def _choice(self, table: Table, epsilon: Fraction, label: str) -> BoundChoice:
        """Return the choice of the bound, with the number of records."""
        caps = list_caps(table.unit.max_records)
        scales = [self._counts(table, epsilon, label, bound=cap).scale / table.grid for cap in caps]
        return BoundChoice(
            table=table,
            columns=tuple(self.by),
            caps=caps,
            noises=scales,
            epsilon=epsilon * self.share,
            label=label,
        )

    def _counts(self, table: Table, epsilon: Fraction, label: str, *, bound: int) -> Request:
        """Return the request for counts under `bound`, for what is left of epsilon."""
        name, counted = f"{label}counts of at most {bound} records", CappedMarginal(tuple(self.by), bound)
        return request_laplace(table, name, counted, epsilon * (1 - self.share))


def list_caps(most: int) -> tuple[int, ...]:
    """Return the bounds that may be chosen: all up to `most`, or steps of about an eighth where that is many.

    >>> list_caps(4)
    (1, 2, 3, 4)
    """
    if most <= _MOST_CAPS:
        return tuple(range(1, most + 1))
    caps = [1]
    while caps[-1] < most:
        caps.append(min(most, max(caps[-1] + 1, caps[-1] * 9 // 8)))
    return tuple(caps)


def _scale_up(counts: Measurement, records: float, *, most: float) -> float:
    """How many records stand behind one that counted, by noisy sums; at least 1, and no more than can be."""
    kept = int(counts.noisy_values.sum()) / counts.grid
    return 1.0 if kept <= 0 else min(max(1.0, records / kept), most)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundChoice:
    """The choice of one of `caps` as the bound on records over `columns`, and the number of records.

    Both follow from noisy counts of individuals by their records, in which each counts once. `noises` are
    the expected noise of a count under each cap, which is weighed against lost records.
    """

    table: Table
    columns: tuple[str, ...]
    caps: tuple[int, ...]
    noises: Sequence[Fraction | float]
    epsilon: Fraction
    label: str

    @property
    def ask(self) -> Request:
        """How many individuals have how many records."""
        times = np.array(self.caps)
        people = IndividualCounts(
            columns=self.columns, max_cells=1, cells=0 * times, times=times, together=True
        )
        return request_laplace(self.table, f"{self.label}individuals by records", people, self.epsilon)

    def read(self, answers: tuple[Answer, ...]) -> tuple[int, float]:
        """The bound that loses least, records that it cuts and noise, and the noisy number of records."""
        (counted,) = answers
        assert isinstance(counted, Measurement)
        people = find_people(counted.noisy_values, make_law(counted.request.noise, counted.request.scale))
        caps, cells = np.array(self.caps, float), self.table.cells(self.columns)
        records = np.append((caps[:-1] + caps[1:] - 1) / 2, caps[-1])
        losses = [
            cells * float(noise) + float(people @ np.maximum(records - cap, 0))
            for cap, noise in zip(self.caps, self.noises, strict=True)
        ]
        unseen = np.where(people == 0, records, 0)
        total = float(people @ records)
        # Of few classes all count, so that the number is without bias.
        if float(np.linalg.norm(unseen)) * counted.request.standard_deviation < _SLIGHT * total:
            total += float(unseen @ counted.noisy_values)
        return self.caps[losses.index(min(losses))], total
