"""What may be asked of a table and what comes back: requests and measurements, choices and outcomes.

All of it is public. A request says which marginal, which queries over it and which noise; a choice says
which marginals compete and how they are scored. Their costs follow from the table's description alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.accounting import Cost, histogram_sensitivity, sqrt_up
from sfumato.choices import CapChoice, Choice, Chosen, Gap, NormChoice
from sfumato.errors import RecipeError
from sfumato.exact import NORMAL_95, parse_positive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sfumato.headcounts import HeadCounts
    from sfumato.queries import Queries
    from sfumato.schema import Table

__all__ = [
    "LARGEST_SCALE",
    "NORM_GRID",
    "Answer",
    "Ask",
    "CapChoice",
    "Choice",
    "Chosen",
    "Gap",
    "Measurement",
    "NoiseKind",
    "NormChoice",
    "Request",
    "ask_cost",
    "in_records",
    "is_dense",
    "note_total",
    "request_cost",
    "request_grid",
    "request_sensitivity",
    "request_size",
    "total_in_records",
]

NoiseKind = Literal["laplace", "gaussian"]

LARGEST_SCALE = 2**50

# Beyond so many scales the chance to pass a threshold takes too many bits to be certified.
MOST_SCALES = 5000

# An individual over its norm is scaled by whole multiples of 1 / NORM_GRID, so that sums are exact.
NORM_GRID = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A marginal to be counted, queries over its cells, and the noise to be added to each answer.

    Without `queries` every cell is an answer. With `norm`, each individual's contribution to the
    answers is scaled down to that L2 norm, in records, instead of being held to max_records. With
    `heads`, individuals are counted in place of records. With `threshold`, only cells whose noisy value
    is at least that, in units of 1 / grid, are told: every cell gets noise all the same, so that a
    marginal may have more cells than can be listed. With `records`, each individual is held to so many
    records in place of max_records, which are more.
    `scale` is in units of 1 / request_grid(table, request): the scale of Laplace noise or the standard
    deviation of Gaussian noise.
    """

    name: str
    columns: tuple[str, ...]
    noise: NoiseKind
    scale: Fraction
    queries: Queries | None = None
    norm: Fraction | None = None
    heads: HeadCounts | None = None
    threshold: int | None = None
    records: int | None = None

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise RecipeError(f"request {self.name!r} needs at least one column and none twice")
        if self.noise not in ("laplace", "gaussian"):
            raise RecipeError(f"request {self.name!r}: unknown noise {self.noise!r}")
        if parse_positive(self.scale, name=f"the noise scale of {self.name!r}") > LARGEST_SCALE:
            raise RecipeError(
                f"{self.name!r} needs noise beyond 2^50, more than any count; spend more epsilon"
            )
        # Sums of different cells move by no more than the cells, in L1 too.
        sums = self.norm is None and (self.queries is None or self.queries.is_partition)
        if not sums and self.noise != "gaussian":
            raise RecipeError(
                f"request {self.name!r}: norms, and queries other than sums of different cells, are bounded "
                "in L2, so their noise is gaussian"
            )
        if self.norm is not None:
            object.__setattr__(self, "norm", parse_positive(self.norm, name=f"the norm of {self.name!r}"))
        if self.heads is not None and (self.queries is not None or self.norm is not None):
            raise RecipeError(f"request {self.name!r}: individuals are counted without queries and norms")
        if self.threshold is not None:
            self._check_threshold(self.threshold)
        if self.records is not None:
            others = (self.queries, self.norm, self.heads, self.threshold)
            if self.records < 1 or any(other is not None for other in others):
                raise RecipeError(f"request {self.name!r}: a bound on records is at least 1 and stands alone")

    def _check_threshold(self, threshold: int) -> None:
        if self.noise != "laplace" or self.queries is not None or self.heads is not None:
            raise RecipeError(
                f"request {self.name!r}: a threshold needs the counts of records with laplace noise"
            )
        if not isinstance(threshold, int) or not 1 <= threshold <= LARGEST_SCALE:
            raise RecipeError(f"the threshold of {self.name!r} must be a whole number from 1 to 2^50")
        if threshold > MOST_SCALES * self.scale:
            raise RecipeError(
                f"{self.name!r}: nothing empty ever passes {MOST_SCALES:,} noise scales; spend or cut less"
            )

    @property
    def passing(self) -> float:
        """The chance that the noise of an empty cell reaches the threshold."""
        if self.threshold is None:
            return 1.0
        rate = float(1 / self.scale)
        return math.exp(-rate * self.threshold) / (1 + math.exp(-rate))

    @property
    def standard_deviation(self) -> float:
        """The standard deviation of the noise, in units of 1 / grid."""
        if self.noise == "gaussian":
            return float(self.scale)
        # Var = 2q / (1 - q)^2 with q = exp(-1 / scale).
        return 1 / (math.sqrt(2) * math.sinh(min(350.0, float(1 / (2 * self.scale)))))

    @property
    def interval(self) -> float:
        """Half the width of an interval that holds the noise with 95 %, in units of 1 / grid."""
        if self.noise == "gaussian":
            return NORMAL_95 * float(self.scale)
        # The least k with P(|X| > k) = 2 q^(k + 1) / (1 + q) of at most a twentieth.
        rate = float(1 / self.scale)
        return max(0, math.ceil(math.log(40 / (1 + math.exp(-rate))) / rate) - 1)

    def to_record(self) -> dict[str, Any]:
        """The request as a plain record; queries are told by their number and their digest."""
        record: dict[str, Any] = {
            "name": self.name,
            "columns": list(self.columns),
            "noise": self.noise,
            "scale": self.scale,
        }
        if self.queries is not None:
            record["queries"] = self.queries.to_record()
        if self.norm is not None:
            record["norm"] = self.norm
        if self.heads is not None:
            record["heads"] = self.heads.to_record()
        if self.threshold is not None:
            record["threshold"] = self.threshold
        if self.records is not None:
            record["records"] = self.records
        return record


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """A request and its noisy values, one whole number per cell, in units of 1 / grid.

    Of a request with a threshold, `cells` are the cells that reached it, in ascending order.
    """

    request: Request
    noisy_values: NDArray[np.int64]
    grid: int = 1
    cells: NDArray[np.int64] | None = None

    @property
    def ask(self) -> Request:
        """What this is the answer to."""
        return self.request


Ask = Request | Choice | NormChoice | CapChoice
Answer = Measurement | Chosen


def request_grid(table: Table, request: Request) -> int:
    """The denominator of the answers to `request`: they are whole multiples of 1 / grid."""
    if request.heads is not None:
        return 1
    grid = table.grid if request.norm is None else NORM_GRID
    return grid if request.queries is None else grid * request.queries.grid


def is_dense(request: Request) -> bool:
    """Whether `request` is about the counts of bounded records in every cell of its marginal."""
    return all(other is None for other in (request.norm, request.heads, request.threshold, request.records))


def request_size(table: Table, request: Request) -> int:
    """The number of answers to `request`; with a threshold, of empty cells that are expected to pass it."""
    if request.heads is not None:
        return request.heads.rows
    if request.queries is not None:
        return request.queries.rows
    cells = table.cells(request.columns)
    return cells if request.threshold is None else math.ceil(cells * request.passing)


def in_records(measurement: Measurement) -> tuple[NDArray[np.float64], float]:
    """The noisy values and the standard deviation of their noise, in records."""
    grid = measurement.grid
    return measurement.noisy_values / grid, measurement.request.standard_deviation / grid


def total_in_records(table: Table, answers: Iterable[Answer]) -> tuple[float, float] | None:
    """The noisy total of all counts, and what the total of an empty table stays below with 97.5 %.

    Of the measurements whose answers add up to all that was counted, the one with the least noise of the
    sum is taken. None if there is no such measurement: queries need not give all cells the same weight.
    """
    found = []
    for measurement in answers:
        if not isinstance(measurement, Measurement):
            continue
        request, values = measurement.request, measurement.noisy_values
        weight = _weight_of_cells(request.queries)
        if weight is None:
            continue
        if request.threshold is not None:
            width = _reach_of_passing(request, table.cells(request.columns))
        elif values.size == 1:
            width = request.interval
        else:
            width = NORMAL_95 * request.standard_deviation * math.sqrt(values.size)
        unit = weight * measurement.grid
        found.append((width / unit, int(values.sum(dtype=object)) / unit))
    if not found:
        return None
    reach, total = min(found)
    return total, reach


def note_total(total: float, reach: float, *, of: str) -> str | None:
    """What is said of a total that its noise alone may explain; None of any other."""
    if total > reach:
        return None
    return (
        f"the total of this {of}, {total:,.0f}, lies within its noise (+-{reach:,.0f}): it may be noise "
        "alone; if you expected more records, check `source`, formats and domains with `sfumato doctor`"
    )


def _reach_of_passing(request: Request, cells: int) -> float:
    """What the sum of the noise that passes the threshold of `request` in empty cells stays below."""
    # Noise that passes is the threshold and more, and how much more has a geometric law.
    step = math.expm1(min(300.0, float(1 / request.scale)))  # its square must not overflow
    mean = (request.threshold or 0) + 1 / step
    square = mean**2 + (1 + step) / step**2
    passing = cells * request.passing
    return passing * mean + NORMAL_95 * math.sqrt(passing * square)


def _weight_of_cells(queries: Queries | None) -> float | None:
    """The weight of a cell in the sum of all answers, if it is the same for all cells."""
    if queries is None:
        return 1.0
    sums = np.bincount(queries.members, weights=queries.weights, minlength=queries.cells)
    return float(sums[0]) / queries.grid if sums[0] > 0 and (sums == sums[0]).all() else None


def request_sensitivity(table: Table, request: Request) -> Fraction:
    """The most that the answers of neighbouring tables differ, in the norm that the noise needs.

    Laplace noise needs the L1 norm, Gaussian noise L2. One individual adds at most
    `table.contribution` to the cells of a marginal, in both norms (all of it may fall into one cell),
    and no more to the answers of queries, whose columns have norm 1 at most. A `norm` is enforced on
    the answers themselves. Answers of queries with negative weights may be opposite to each other.
    Where individuals are counted, one adds 1 to at most max_cells answers: max_cells in L1, its square
    root in L2.
    """
    if request.heads is not None:
        cells = Fraction(request.heads.max_cells)
        contribution = cells if request.noise == "laplace" else sqrt_up(cells)
    elif request.norm is None:
        held = table.contribution if request.records is None else request.records * table.grid
        contribution = Fraction(min(held, table.contribution) * request_grid(table, request), table.grid)
    else:
        contribution = request.norm * request_grid(table, request)
    return histogram_sensitivity(
        contribution=contribution,
        norm="L1" if request.noise == "laplace" else "L2",
        neighbours=table.unit.neighbours,
        signed=request.queries is not None and bool((request.queries.weights < 0).any()),
    )


def request_cost(table: Table, request: Request) -> Cost:
    """What answering `request` costs an individual of `table`."""
    return Cost(
        kind=request.noise,
        scale=request.scale,
        sensitivity=request_sensitivity(table, request),
        norm="L1" if request.noise == "laplace" else "L2",
        neighbours=table.unit.neighbours,
        unit=table.unit.column or "row",
    )


def ask_cost(table: Table, ask: Ask) -> Cost:
    """What answering `ask` costs an individual of `table`."""
    if isinstance(ask, Request):
        return request_cost(table, ask)
    return Cost(
        kind="exponential",
        scale=ask.epsilon,
        neighbours=table.unit.neighbours,
        unit=table.unit.column or "row",
    )
