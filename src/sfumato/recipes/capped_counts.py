"""A histogram under a bound on the records of an individual that is chosen privately."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.core.cost.cost import Cost
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_positive
from sfumato.core.questions.choices import CapChoice, Chosen
from sfumato.core.questions.counts import CappedMarginal, Marginal
from sfumato.core.questions.measurement import Ask, Measurement, Request, ask_cost
from sfumato.core.questions.question import Queries
from sfumato.recipes.base import Conversation, Plan, Product
from sfumato.recipes.shared.budget import sum_groups
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
_MOST_CAPPED_CELLS = 2**24  # each is counted twice in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedCounts(CountOptions):
    """A histogram over every combination of the columns `by`, held to as few records as serve it best.

    Noise grows with the bound on an individual's records, and a lower bound cuts records off. Half of
    `share` of epsilon chooses the bound, up to max_records, that spoils least in total; half pays for
    the number of records, to which the counts are scaled; the rest for the counts.

    Privacy: the three parts are epsilon-DP together, by sequential composition
    (docs/proofs/capped-counts.md).

    >>> CappedCounts(table="incidents", by=("district", "month")).kind
    'capped-counts'
    """

    kind: ClassVar[str] = "capped-counts"

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

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Return every cell with its count, for every epsilon."""
        released, facts = [], []
        for epsilon in plan.epsilons:
            label = plan.label(epsilon)
            chosen, total = yield self._first_asks(plan.table, epsilon, label)
            assert isinstance(chosen, Chosen)
            assert isinstance(chosen.choice, CapChoice)
            assert isinstance(total, Measurement)
            bound = chosen.choice.caps[chosen.index]
            (counts,) = yield (self._counts(plan.table, epsilon, label, bound=bound),)
            assert isinstance(counts, Measurement)
            factor = _scale_up(counts, total, most=Fraction(plan.table.unit.max_records, bound))
            deviation = counts.request.standard_deviation
            kept = finish_counts(counts.noisy_values, threshold=self.threshold, deviation=deviation)
            released.append(np.asarray(np.floor(kept * (factor / counts.grid) + 0.5), np.int64))
            facts.append({"epsilon": format_exact(epsilon), "records": bound, "scaled_by": f"{factor:.6f}"})
        return Product(table=self.tabulate(plan, released), varied=("count",), facts={"bounds": facts})

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        most = plan.table.unit.max_records
        return {
            "table": plan.table.name,
            "columns": ", ".join(self.by),
            "cells": plan.table.cells(tuple(self.by)),
            "most": most,
            "moved": most - 1,
            "half": format_exact(self.share / 2),
            "threshold": describe_threshold(self.threshold),
        }

    def _costs(self, table: Table, epsilon: Fraction) -> tuple[Cost, ...]:
        """Return the cost of the first questions, and the most that counts cost under any bound."""
        first = tuple(ask_cost(table, ask) for ask in self._first_asks(table, epsilon, ""))
        counts = (
            ask_cost(table, self._counts(table, epsilon, "", bound=cap))
            for cap in list_caps(table.unit.max_records)
        )
        return (*first, max(counts, key=lambda cost: cost.rho))

    def _first_asks(self, table: Table, epsilon: Fraction, label: str) -> tuple[Ask, ...]:
        """Return the choice of the bound, and the number of records."""
        caps = list_caps(table.unit.max_records)
        scales = [self._counts(table, epsilon, label, bound=cap).scale / table.grid for cap in caps]
        return ask_bound(table, tuple(self.by), caps, scales, epsilon=epsilon * self.share, label=label)

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


@lru_cache(maxsize=4)
def sum_all(cells: int) -> Queries:
    """Return the sum of all cells, as one query."""
    return sum_groups(np.zeros(cells, np.int64), 1)


def _scale_up(counts: Measurement, total: Measurement, *, most: Fraction) -> float:
    """How many records stand behind one that counted, by noisy sums; at least 1, and no more than can be."""
    kept = int(counts.noisy_values.sum()) / counts.grid
    records = int(total.noisy_values.sum()) / total.grid
    if kept <= 0:
        return 1.0
    return min(max(1.0, records / kept), float(most))


def ask_bound(
    table: Table,
    columns: tuple[str, ...],
    caps: tuple[int, ...],
    noises: Sequence[Fraction | float],
    *,
    epsilon: Fraction,
    label: str,
) -> tuple[Ask, ...]:
    """The choice of one of `caps` as the bound on records, and the number of records, each at half epsilon.

    `noises` are the expected noise of a count under each cap, which the choice weighs against lost records.
    """
    cells, half = table.cells(columns), epsilon / 2
    choice = CapChoice(
        name=f"{label}bound on records",
        columns=columns,
        caps=caps,
        penalties=tuple(min(math.ceil(cells * noise), 2**61) for noise in noises),
        epsilon=half,
    )
    return choice, request_laplace(
        table, f"{label}number of records", Marginal(columns, sum_all(cells)), half
    )
