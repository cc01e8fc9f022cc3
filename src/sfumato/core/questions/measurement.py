"""Exact counts with noise: requests and their costs, measurements, and what their totals say.

All of it is public. A request says what is counted and which noise it gets; its cost follows from the table's
description alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.cost import Cost
from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95, parse_positive
from sfumato.core.questions.choices import AnyChoice, Choice, Chosen
from sfumato.core.questions.counts import (
    CappedMarginal,
    ClippedMarginal,
    Counted,
    Marginal,
    OccupiedCells,
    Queries,
    find_sensitivity,
)
from sfumato.core.questions.gradients import Gradients
from sfumato.core.questions.moments import Moments
from sfumato.core.questions.outcomes import Outcomes
from sfumato.core.questions.residuals import Residuals
from sfumato.core.questions.series import RunningSums

if TYPE_CHECKING:
    from sfumato.core.facts.part import Part
    from sfumato.core.facts.table import Table

NoiseKind = Literal["laplace", "gaussian"]

LARGEST_SCALE = 2**50

# Beyond so many scales the chance to pass a threshold takes too many bits to be certified.
MOST_SCALES = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Exact counts to be answered with noise.

    `scale` is in units of 1 / request_grid(table, request): the scale of Laplace noise or the standard
    deviation of Gaussian noise. With `threshold`, in the same units, only cells whose noisy value is at
    least that are released: every cell gets noise all the same, so that there may be more cells than can be
    listed. With `part`, it is asked of that part of the people only.
    """

    name: str
    counted: Counted
    noise: NoiseKind
    scale: Fraction
    threshold: int | None = None
    part: Part | None = None

    def __post_init__(self) -> None:
        if self.noise not in ("laplace", "gaussian"):
            raise RecipeError(f"request {self.name!r}: unknown noise {self.noise!r}")
        if parse_positive(self.scale, name=f"the noise scale of {self.name!r}") > LARGEST_SCALE:
            raise RecipeError(
                f"{self.name!r} needs noise beyond 2^50, more than any count; spend more epsilon"
            )
        queries = self.queries
        # Sums of different cells move by no more than the cells, in L1 too.
        sums = not isinstance(self.counted, ClippedMarginal | Moments | Gradients | RunningSums) and (
            queries is None or queries.is_partition
        )
        if not sums and self.noise != "gaussian":
            raise RecipeError(
                f"request {self.name!r}: norms, moments, gradients, series, and queries other than sums of "
                "different cells, are bounded in L2, so their noise is gaussian"
            )
        if isinstance(self.counted, OccupiedCells) != (self.threshold is not None):
            raise RecipeError(
                f"request {self.name!r}: a threshold goes with occupied cells, and only with these"
            )
        if self.threshold is not None:
            self._check_threshold(self.threshold)

    def _check_threshold(self, threshold: int) -> None:
        if self.noise != "laplace":
            raise RecipeError(f"request {self.name!r}: a threshold needs laplace noise")
        if not isinstance(threshold, int) or not 1 <= threshold <= LARGEST_SCALE:
            raise RecipeError(f"the threshold of {self.name!r} must be a whole number from 1 to 2^50")
        if threshold > MOST_SCALES * self.scale:
            raise RecipeError(
                f"{self.name!r}: nothing empty ever passes {MOST_SCALES:,} noise scales; spend or cut less"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the marginal."""
        return self.counted.columns

    @property
    def queries(self) -> Queries | None:
        """The queries over the cells, if it is not the cells that are answered."""
        counted = self.counted
        kinds = Marginal | CappedMarginal | ClippedMarginal | Outcomes | Residuals
        return counted.queries if isinstance(counted, kinds) else None

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
        """The request as a plain record."""
        record: dict[str, Any] = {
            "name": self.name,
            "columns": list(self.columns),
            "noise": self.noise,
            "scale": self.scale,
            **self.counted.facts(),
        }
        if self.part is not None:
            record["part"] = self.part.name
        return record if self.threshold is None else {**record, "threshold": self.threshold}


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


Ask = Request | AnyChoice
Answer = Measurement | Chosen


def take_part(ask: Ask, part: Part, *, label: str = "") -> Ask:
    """`ask`, asked of a part of the people; its name begins with `label`."""
    if not isinstance(ask, Request | Choice):
        raise RecipeError(f"{ask.name!r} cannot be asked of a part of the people")
    return replace(ask, part=part, name=f"{label}{ask.name}")


def request_grid(table: Table, request: Request) -> int:
    """The denominator of the answers to `request`: they are whole multiples of 1 / grid."""
    return request.counted.grid(table)


def request_size(table: Table, request: Request) -> int:
    """The number of answers to `request`; with a threshold, of empty cells that are expected to pass it."""
    size = request.counted.size(table)
    return size if request.threshold is None else math.ceil(size * request.passing)


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
        if isinstance(request.counted, Moments):
            if request.counted.link is None:  # the first product is 1 for every record
                counts = (
                    values[:: request.counted.features] if request.counted.centres is not None else values[:1]
                )
                reach = request.interval * math.sqrt(counts.size)
                found.append((reach / measurement.grid, int(counts.sum(dtype=object)) / measurement.grid))
            continue
        weight = _weight_of_cells(request.queries)
        if weight is None or isinstance(request.counted, Residuals | Outcomes | Gradients | RunningSums):
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
    """The most that answers of neighbouring tables differ, in L1 for Laplace noise, in L2 for Gaussian."""
    return find_sensitivity(table, request.counted, norm="L1" if request.noise == "laplace" else "L2")


def request_cost(table: Table, request: Request) -> Cost:
    """What answering `request` costs an individual of `table`."""
    sampling = request.counted.sampling if isinstance(request.counted, Gradients) else Fraction(1)
    return Cost(
        kind=request.noise if sampling == 1 else "sampled",
        sampling=sampling,
        scale=request.scale,
        sensitivity=request_sensitivity(table, request),
        norm="L1" if request.noise == "laplace" else "L2",
        neighbours=table.unit.neighbours,
        unit=table.unit.name,
    )


def ask_cost(table: Table, ask: Ask) -> Cost:
    """What answering `ask` costs an individual of `table`."""
    if isinstance(ask, Request):
        return request_cost(table, ask)
    return Cost(
        kind="exponential",
        scale=ask.epsilon,
        neighbours=table.unit.neighbours,
        unit=table.unit.name,
    )
