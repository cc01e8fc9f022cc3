"""The histogram: counts of every combination of columns, each with its own noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.core.exact import format_exact
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Measurement
from sfumato.recipes.base import Plan
from sfumato.recipes.shared.counts import (
    CountOptions,
    Noise,
    check_noise,
    describe_threshold,
    finish_counts,
    request_counts,
)
from sfumato.tables.arrays import Whole

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

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one request per epsilon, all for the same marginal."""
        by = tuple(self.by)
        table.cells(by)
        self.check_names(table)
        requests = tuple(
            request_counts(
                table,
                f"counts at epsilon {format_exact(epsilon)}",
                Marginal(by),
                noise=self.noise,
                epsilon=epsilon,
                delta=delta,
            )
            for epsilon in epsilons
        )
        return Plan(recipe=self, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def finish(self, table: Table, measurement: Measurement) -> Whole:
        """Return counts rounded to whole records, 0 below the threshold and below zero."""
        values, deviation = measurement.noisy_values, measurement.request.standard_deviation
        return finish_counts(values, threshold=self.threshold, deviation=deviation, grid=measurement.grid)

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        return {
            "cells": plan.table.cells(tuple(self.by)),
            "sizes": ", ".join(f"{name} ({plan.table.column(name).size})" for name in self.by),
            "rounded": "" if plan.table.grid == 1 else "divided by the weight grid and rounded, then ",
            "threshold": describe_threshold(self.threshold),
        }
