"""Counts of every combination of columns, each with its own noise: the Laplace histogram."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from sfumato.accounting import discrete_gaussian_sigma
from sfumato.arrays import to_arrow
from sfumato.errors import RecipeError
from sfumato.exact import format_exact, round_up
from sfumato.measurement import Measurement, Request, request_sensitivity
from sfumato.recipes.base import Plan, Product
from sfumato.recipes.layout import cell_columns, refuse_clash, released_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfumato.measurement import Answer
    from sfumato.recipes.base import Conversation
    from sfumato.schema import Table

__all__ = ["CellCounts"]

Noise = Literal["auto", "laplace", "gaussian"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCounts:
    """A histogram over every combination of the columns `by`.

    Privacy: one individual adds at most max_records to the counts, so Laplace noise of scale
    max_records / epsilon on every cell is epsilon-DP (docs/proofs/cell-counts.md). With delta above
    zero the noise is Gaussian where that is the smaller of the two, unless `noise` names one.

    >>> CellCounts(table="incidents", by=("district", "month")).kind
    'cell-counts'
    """

    kind: ClassVar[str] = "cell-counts"

    table: str
    by: Sequence[str]
    noise: Noise = "auto"

    def __post_init__(self) -> None:
        if not isinstance(self.by, (list, tuple)) or not all(isinstance(name, str) for name in self.by):
            message = "cell-counts: by must be a list of columns, such as ['district', 'month']"
            raise RecipeError(message)
        if not self.by or len(set(self.by)) != len(self.by):
            message = "cell-counts: by must list at least one column, and none twice"
            raise RecipeError(message)
        object.__setattr__(self, "by", tuple(self.by))  # a recipe file gives a list
        if self.noise not in ("auto", "laplace", "gaussian"):
            message = f"cell-counts: noise must be auto, laplace or gaussian, got {self.noise!r}"
            raise RecipeError(message)

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record."""
        return {"recipe": self.kind, "table": self.table, "by": list(self.by), "noise": self.noise}

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """One request per epsilon, all for the same marginal."""
        table.cells(tuple(self.by))
        names = ["epsilon", "count", *released_names(table, tuple(self.by))]
        refuse_clash(self.kind, names)
        if self.noise == "gaussian" and delta == 0:
            message = "cell-counts: Gaussian noise needs delta above zero"
            raise RecipeError(message)
        requests = tuple(self._request(table, epsilon, delta) for epsilon in epsilons)
        return Plan(recipe=self, table=table, requests=requests, epsilons=epsilons, delta=delta)

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Every cell with its count: rounded to whole records, negatives set to 0."""
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
                f"The noisy counts are {rounding}set to 0 where they are negative. This uses the noisy "
                "counts only, so it costs nothing; it biases small counts upwards, and "
                "`measurements.parquet` keeps the counts as they were."
            ),
        }

    def _tabulate(self, plan: Plan, answers: tuple[Answer, ...]) -> pa.Table:
        columns = cell_columns(plan.table, tuple(self.by))
        parts = []
        for epsilon, measurement in zip(plan.epsilons, answers, strict=True):
            assert isinstance(measurement, Measurement)
            counts = np.maximum(round_to_records(measurement.noisy_values, measurement.grid), 0)
            named = {**columns, "count": to_arrow(counts)}
            if len(plan.epsilons) > 1:
                named = {"epsilon": to_arrow(np.full(counts.size, float(epsilon))), **named}
            parts.append(pa.table(named))
        return pa.concat_tables(parts, promote_options="default")

    def _request(self, table: Table, epsilon: Fraction, delta: Fraction) -> Request:
        name = f"counts at epsilon {format_exact(epsilon)}"
        probe = Request(name=name, columns=tuple(self.by), noise="laplace", scale=Fraction(1))
        laplace = Request(
            name=name,
            columns=tuple(self.by),
            noise="laplace",
            scale=request_sensitivity(table, probe) / epsilon,
        )
        if delta == 0 or self.noise == "laplace":
            return laplace
        probe = Request(name=name, columns=tuple(self.by), noise="gaussian", scale=Fraction(1))
        sensitivity = request_sensitivity(table, probe)
        sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        gaussian = Request(
            name=name, columns=tuple(self.by), noise="gaussian", scale=round_up(sigma, places=6)
        )
        better = gaussian.standard_deviation < laplace.standard_deviation
        return gaussian if better or self.noise == "gaussian" else laplace


def round_to_records(
    values: np.ndarray[Any, np.dtype[np.int64]], grid: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """`values` in units of 1 / grid as the nearest whole records, halves up."""
    if grid == 1:
        return values
    return (values + grid // 2) // grid
