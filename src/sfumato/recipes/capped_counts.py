"""A histogram under a bound on the records of an individual that is chosen privately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.core.cost.cost import Cost
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_positive
from sfumato.core.law import make_law
from sfumato.core.questions.counts import CappedMarginal, IndividualCounts
from sfumato.core.questions.measurement import Measurement, Request, ask_cost
from sfumato.inference.people import find_people
from sfumato.recipes.base import Conversation, Expected, Plan, Product, Progress, expect_noise
from sfumato.recipes.shared.counts import (
    CountOptions,
    describe_threshold,
    finish_counts,
    request_laplace,
)

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


_MOST_CAPS = 32  # up to so many bounds all are offered, beyond it steps of an eighth
_SLIGHT = 0.05  # of all records: noise of which the number of records may have more, not to lack any
_MOST_CAPPED_CELLS = 2**24  # each is counted twice in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedCounts(CountOptions):
    """A histogram under a bound on the records of an individual, which a `share` of epsilon chooses."""

    own_bound: ClassVar[str] = "share"

    share: Any = "0.1"

    def __post_init__(self) -> None:
        CountOptions.__post_init__(self)
        self._keep(share=parse_positive(self.share, name=f"{self.kind}: share"))
        if self.share >= 1:
            raise RecipeError(f"{self.kind}: share is a part of epsilon, below 1")

    def ask_counts(self, table: Table, epsilon: Fraction, label: str, *, bound: int) -> tuple[Request, ...]:
        """Return the requests for counts under `bound`, for what is left of epsilon."""
        raise NotImplementedError

    def weigh_noise(self, table: Table, epsilon: Fraction, *, bound: int) -> Fraction | float:
        """Return the noise to be expected of a count under `bound`, in records."""
        raise NotImplementedError

    def left(self, table: Table, epsilon: Fraction) -> Fraction:
        """Return what is left of epsilon for the counts: all of it where there is no bound to choose."""
        return epsilon if table.unit.max_records == 1 else epsilon * (1 - self.share)

    def plan_bounded(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return all of every epsilon, charged before the first question."""
        costs = (cost for epsilon in epsilons for cost in self._costs(table, epsilon))
        return Plan(self, table, epsilons, delta, allowance=tuple(costs), counted=(tuple(self.by),))

    def choose_bound(self, table: Table, epsilon: Fraction, label: str) -> BoundChoice:
        """Return the choice of the bound, with the number of records."""
        caps = list_caps(table.unit.max_records)
        return BoundChoice(
            table=table,
            columns=tuple(self.by),
            caps=caps,
            noises=[self.weigh_noise(table, epsilon, bound=cap) for cap in caps],
            epsilon=epsilon * self.share,
            label=label,
        )

    def _costs(self, table: Table, epsilon: Fraction) -> tuple[Cost, ...]:
        """Return the cost of the first question, and the most that counts cost under any bound."""
        under = [
            [ask_cost(table, ask) for ask in self.ask_counts(table, epsilon, "", bound=cap)]
            for cap in list_caps(table.unit.max_records)
        ]
        most = tuple(max(costs, key=lambda cost: cost.rho) for costs in zip(*under, strict=True))
        if len(under) == 1:
            return most
        return (ask_cost(table, self.choose_bound(table, epsilon, "").ask), *most)


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedCounts(BoundedCounts):
    """A histogram over every combination of the columns `by`, held to as few records as serve it best.

    Noise grows with the bound on an individual's records, and a lower bound cuts records off. A `share` of
    epsilon counts individuals by their records, each once: the bound that spoils least in total follows, up
    to max_records, and the number of records, to which the counts are scaled. The rest is for the counts.

    Privacy: both parts are epsilon-DP together, by sequential composition (docs/proofs/capped-counts.md).

    >>> CappedCounts(table="incidents", by=("district", "month")).kind
    'capped-counts'
    """

    kind: ClassVar[str] = "capped-counts"

    threshold: Any = 3

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return all of every epsilon, charged before the first question."""
        self.check_names(table)
        self.refuse_cells(
            table, tuple(self.by), _MOST_CAPPED_CELLS, advice="use fewer columns or coarser domains"
        )
        if table.unit.max_records == 1:
            raise RecipeError(
                "capped-counts: nobody has more than one record that counts, so there is no bound to choose; "
                "use cell-counts"
            )
        return self.plan_bounded(table, epsilons=epsilons, delta=delta)

    def expect(self, plan: Plan, records: int | None) -> Sequence[Expected]:
        """Return the noise of the counts under the least and the largest bound; one between is chosen."""
        ends = (1, plan.table.unit.max_records)
        asks = (self.ask_counts(plan.table, plan.epsilons[0], "", bound=each) for each in ends)
        return [expect_noise(plan.table, ask) for (ask,) in asks]

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return every cell with its count, for every epsilon."""
        released, facts = [], []
        for epsilon in plan.epsilons:
            label = plan.label(epsilon)
            choice = self.choose_bound(plan.table, epsilon, label)
            bound, records = choice.read((yield (choice.ask,)))
            (counts,) = yield self.ask_counts(plan.table, epsilon, label, bound=bound)
            kept = int(counts.noisy_values.sum()) / counts.grid
            # How many records stand behind one that counted: at least 1, and no more than can be.
            most = plan.table.unit.max_records / bound
            factor = 1.0 if kept <= 0 else min(max(1.0, records / kept), most)
            deviation = counts.request.standard_deviation
            shown = finish_counts(counts.noisy_values, threshold=self.threshold, deviation=deviation)
            released.append(np.asarray(np.floor(shown * (factor / counts.grid) + 0.5), np.int64))
            facts.append({"epsilon": format_exact(epsilon), "records": bound, "scaled_by": f"{factor:.6f}"})
        return Product(table=self.tabulate(plan, released), varied=("count",), facts={"bounds": facts})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        return {
            "columns": ", ".join(self.by),
            "cells": plan.table.cells(tuple(self.by)),
            "most": plan.table.unit.max_records,
            "share": format_exact(self.share),
            "threshold": describe_threshold(self.threshold),
        }

    def ask_counts(self, table: Table, epsilon: Fraction, label: str, *, bound: int) -> tuple[Request, ...]:
        """Return the request for counts under `bound`, for what is left of epsilon."""
        name, counted = f"{label}counts of at most {bound} records", CappedMarginal(tuple(self.by), bound)
        return (request_laplace(table, name, counted, self.left(table, epsilon)),)

    def weigh_noise(self, table: Table, epsilon: Fraction, *, bound: int) -> Fraction | float:
        """Return the scale of the noise, which is about its expected absolute value."""
        (ask,) = self.ask_counts(table, epsilon, "", bound=bound)
        return ask.scale / table.grid


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

    def read(self, answers: tuple[Measurement, ...]) -> tuple[int, float]:
        """The bound that loses least, records that it cuts and noise, and the noisy number of records."""
        (counted,) = answers
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
