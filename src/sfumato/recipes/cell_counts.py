"""Counts of every combination of columns, each with its own noise: the Laplace histogram."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from sfumato.accounting import discrete_gaussian_sigma
from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_exact, round_up
from sfumato.questions import Answer, Marginal, Measurement, Request, request_sensitivity
from sfumato.recipes.base import Conversation, Plan, Product, cell_columns, refuse_clash, released_names
from sfumato.tables.arrays import to_arrow

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.questions import IndividualCounts
    from sfumato.schema import Table


Noise = Literal["auto", "laplace", "gaussian"]

_LARGEST_THRESHOLD = 10**6


def parse_by(value: object, *, kind: str) -> tuple[str, ...]:
    """The columns that `by` lists."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise RecipeError(f"{kind}: by must be a list of columns, such as ['district', 'month']")
    if not value or len(set(value)) != len(value):
        raise RecipeError(f"{kind}: by must list at least one column, and none twice")
    return tuple(value)


def parse_noise(value: object, *, kind: str) -> None:
    """Raises an error if `value` names no noise."""
    if value not in ("auto", "laplace", "gaussian"):
        raise RecipeError(f"{kind}: noise must be auto, laplace or gaussian, got {value!r}")


def parse_threshold(value: object, *, kind: str) -> Fraction:
    """The threshold that `value` stands for, in standard deviations of the noise.

    >>> parse_threshold(2.5, kind="cell-counts")
    Fraction(5, 2)
    """
    threshold = parse_exact(value, name=f"{kind}: threshold")
    if not 0 <= threshold <= _LARGEST_THRESHOLD:
        raise RecipeError(
            f"{kind}: threshold counts standard deviations of the noise, from 0 to {_LARGEST_THRESHOLD}"
        )
    return threshold


def request_counts(
    name: str,
    counted: Marginal | IndividualCounts,
    *,
    noise: Noise,
    epsilon: Fraction,
    delta: Fraction,
    sensitivity: Callable[[Request], Fraction],
) -> Request:
    """The request for counts whose noise, of those allowed, has the smaller standard deviation.

    Privacy: both scales follow from `sensitivity`, which gives that of a request for its noise, and from
    epsilon and delta; the choice compares public figures.
    """

    def ask(kind: Literal["laplace", "gaussian"], scale: Fraction) -> Request:
        return Request(name=name, counted=counted, noise=kind, scale=scale)

    laplace = ask("laplace", sensitivity(ask("laplace", Fraction(1))) / epsilon)
    if delta == 0 or noise == "laplace":
        return laplace
    bound = sensitivity(ask("gaussian", Fraction(1)))
    sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=bound)
    gaussian = ask("gaussian", round_up(sigma, places=6))
    better = gaussian.standard_deviation < laplace.standard_deviation
    return gaussian if better or noise == "gaussian" else laplace


def round_to_records(values: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
    """`values` in units of 1 / grid as the nearest whole records, halves up."""
    return values if grid == 1 else (values + grid // 2) // grid


def finish_counts(
    noisy_values: NDArray[np.int64],
    *,
    threshold: Fraction,
    deviation: float | NDArray[np.float64],
    grid: int = 1,
) -> NDArray[np.int64]:
    """Whole, non-negative counts: rounded halves up, and 0 below `threshold` standard deviations.

    Values and `deviation`, one or one per value, are in units of 1 / grid.

    >>> finish_counts(np.array([-3, 4, 9]), threshold=Fraction(2), deviation=2.5).tolist()
    [0, 0, 9]
    """
    counts = np.maximum(round_to_records(noisy_values, grid), 0)
    if threshold:
        counts[noisy_values < float(threshold) * deviation] = 0
    return counts


def tabulate_counts(plan: Plan, by: tuple[str, ...], counts: Sequence[NDArray[np.int64]]) -> pa.Table:
    """Every cell of `by` with its count; one table for all epsilons, named in a column if several."""
    columns = cell_columns(plan.table, by)
    parts = []
    for epsilon, values in zip(plan.epsilons, counts, strict=True):
        named = {**columns, "count": to_arrow(values)}
        if len(plan.epsilons) > 1:
            named = {"epsilon": to_arrow(np.full(values.size, float(epsilon))), **named}
        parts.append(pa.table(named))
    return pa.concat_tables(parts, promote_options="default")


def tell_threshold(threshold: Fraction) -> str:
    """A sentence about `threshold` for a write-up, or nothing if there is none."""
    if not threshold:
        return ""
    return (
        f" A count below {format_exact(threshold)} standard deviations of its noise is then set to 0: the "
        "table shows fewer counts that are noise alone, and loses small ones that are not."
    )


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
            Marginal(tuple(self.by)),
            noise=self.noise,
            epsilon=epsilon,
            delta=delta,
            sensitivity=lambda probe: request_sensitivity(table, probe),
        )
