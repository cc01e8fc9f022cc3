"""The histogram: counts of every combination of columns, each with its own noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Measurement, request_sensitivity
from sfumato.recipes.base import Conversation, Plan, Product
from sfumato.recipes.shared.counts import (
    CountOptions,
    Noise,
    check_noise,
    describe_threshold,
    finish_counts,
    parse_threshold,
    request_counts,
)

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCounts(CountOptions):
    """A histogram over every combination of the columns `by`.

    Privacy: one individual adds at most max_records to the counts, so Laplace noise of scale
    max_records / epsilon on every cell is epsilon-DP (docs/proofs/cell-counts.md). With delta above
    zero the noise is Gaussian where that is the smaller of the two, unless `noise` names one. Counts
    below `threshold` standard deviations of their noise become 0, which looks at noisy counts only.

    >>> CellCounts(table="incidents", by=("district", "month")).kind
    'cell-counts'
    """

    kind: ClassVar[str] = "cell-counts"
    optional: ClassVar[tuple[str, ...]] = ("threshold",)

    noise: Noise = "auto"
    threshold: Any = 0

    def __post_init__(self) -> None:
        CountOptions.__post_init__(self)
        check_noise(self.noise, kind=self.kind)
        self._keep(threshold=parse_threshold(self.threshold, kind=self.kind))

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one request per epsilon, all for the same marginal."""
        by = tuple(self.by)
        table.cells(by)
        self.check_names(table)
        if self.noise == "gaussian" and delta == 0:
            raise RecipeError("cell-counts: Gaussian noise needs delta above zero")
        requests = tuple(
            request_counts(
                f"counts at epsilon {format_exact(epsilon)}",
                Marginal(by),
                noise=self.noise,
                epsilon=epsilon,
                delta=delta,
                sensitivity=lambda probe: request_sensitivity(table, probe),
            )
            for epsilon in epsilons
        )
        return Plan(recipe=self, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Every cell with its count: rounded to whole records, 0 below the threshold and below zero."""
        answers = yield plan.requests
        counts = []
        for measurement in answers:
            assert isinstance(measurement, Measurement)
            values, deviation = measurement.noisy_values, measurement.request.standard_deviation
            counts.append(
                finish_counts(values, threshold=self.threshold, deviation=deviation, grid=measurement.grid)
            )
        return Product(table=self.tabulate(plan, counts), varied=("count",))

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        return {
            "table": plan.table.name,
            "cells": plan.table.cells(tuple(self.by)),
            "sizes": ", ".join(f"{name} ({plan.table.column(name).size})" for name in self.by),
            "rounded": "" if plan.table.grid == 1 else "divided by the weight grid and rounded, then ",
            "threshold": describe_threshold(self.threshold),
        }
