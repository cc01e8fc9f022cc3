"""Counts of every combination of columns, each with its own noise: the Laplace histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from sfumato.errors import RecipeError
from sfumato.exact import format_exact
from sfumato.measurement import Measurement, Request, request_sensitivity
from sfumato.recipes.base import Plan, Product
from sfumato.recipes.counts import (
    Noise,
    finish_counts,
    parse_by,
    parse_noise,
    parse_threshold,
    request_counts,
    tabulate_counts,
    tell_threshold,
)
from sfumato.recipes.layout import refuse_clash, released_names

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from sfumato.measurement import Answer
    from sfumato.recipes.base import Conversation
    from sfumato.schema import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCounts:
    """A histogram over every combination of the columns `by`.

    Privacy: one individual adds at most max_records to the counts, so Laplace noise of scale
    max_records / epsilon on every cell is epsilon-DP (docs/proofs/cell-counts.md). With delta above
    zero the noise is Gaussian where that is the smaller of the two, unless `noise` names one. Counts
    below `threshold` standard deviations of their noise become 0, which looks at noisy counts only.

    >>> CellCounts(table="incidents", by=("district", "month")).kind
    'cell-counts'
    """

    kind: ClassVar[str] = "cell-counts"

    table: str
    by: Sequence[str]
    noise: Noise = "auto"
    threshold: Any = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", parse_by(self.by, kind=self.kind))
        parse_noise(self.noise, kind=self.kind)
        object.__setattr__(self, "threshold", parse_threshold(self.threshold, kind=self.kind))

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record; a threshold of 0 is left out."""
        record = {"recipe": self.kind, "table": self.table, "by": list(self.by), "noise": self.noise}
        return record if not self.threshold else {**record, "threshold": format_exact(self.threshold)}

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """One request per epsilon, all for the same marginal."""
        table.cells(tuple(self.by))
        names = ["epsilon", "count", *released_names(table, tuple(self.by))]
        refuse_clash(self.kind, names)
        if self.noise == "gaussian" and delta == 0:
            raise RecipeError("cell-counts: Gaussian noise needs delta above zero")
        requests = tuple(self._request(table, epsilon, delta) for epsilon in epsilons)
        return Plan(recipe=self, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Every cell with its count: rounded to whole records, 0 below the threshold and below zero."""
        answers = yield plan.requests
        return Product(table=self._tabulate(plan, answers), varied=("count",))

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        cells = plan.table.cells(tuple(self.by))
        sizes = ", ".join(f"{name} ({plan.table.column(name).size})" for name in self.by)
        rounding = "" if plan.table.grid == 1 else "divided by the weight grid and rounded, then "
        return {
            "idea": (
                f"The release is a histogram: the number of records of table `{plan.table.name}` in every "
                f"combination of {sizes}, {cells:,} cells in all. Every cell, occupied or empty, gets noise "
                "of its own before anything is looked at."
            ),
            "preprocessing": (
                f"An empty histogram with {cells:,} cells is laid out from the described domains alone. "
                "No record is touched, so the step costs nothing."
            ),
            "postprocessing": (
                f"The noisy counts are {rounding}set to 0 where they are negative."
                f"{tell_threshold(self.threshold)} This uses the noisy "
                "counts only, so it costs nothing; it biases small counts upwards, and "
                "`measurements.parquet` keeps the counts as they were."
            ),
        }

    def _tabulate(self, plan: Plan, answers: tuple[Answer, ...]) -> pa.Table:
        counts = []
        for measurement in answers:
            assert isinstance(measurement, Measurement)
            counts.append(
                finish_counts(
                    measurement.noisy_values,
                    threshold=self.threshold,
                    deviation=measurement.request.standard_deviation,
                    grid=measurement.grid,
                )
            )
        return tabulate_counts(plan, tuple(self.by), counts)

    def _request(self, table: Table, epsilon: Fraction, delta: Fraction) -> Request:
        return request_counts(
            f"counts at epsilon {format_exact(epsilon)}",
            tuple(self.by),
            noise=self.noise,
            epsilon=epsilon,
            delta=delta,
            sensitivity=lambda probe: request_sensitivity(table, probe),
        )
