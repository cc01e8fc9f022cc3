"""What may be asked of a table and what comes back: requests and measurements, choices and outcomes.

All of it is public. A request says which marginal, which queries over it and which noise; a choice says
which marginals compete and how they are scored. Their costs follow from the table's description alone.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.accounting import Cost, histogram_sensitivity, sqrt_up
from sfumato.errors import RecipeError
from sfumato.exact import NORMAL_95, parse_positive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sfumato.schema import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A marginal that competes in a choice by how far its counts are from a public estimate of them.

    The score is weight * (L1 distance between counts and estimate) - penalty, all in whole units of
    1 / grid of the table. `estimate` is called when the score is needed, so that estimates of many
    marginals need not lie in memory together. With `queries`, which must be plain sums of different
    cells, sums and their estimates are compared in place of cells.
    """

    columns: tuple[str, ...]
    estimate: Callable[[], NDArray[np.int64]]
    weight: int = 1
    penalty: int = 0
    queries: Queries | None = None

    def __post_init__(self) -> None:
        if self.weight < 1:
            raise RecipeError("the weight of a candidate must be a whole number of at least 1")
        # Sums of different cells move by no more than the cells, in L1.
        if self.queries is not None and not self.queries.is_partition:
            raise RecipeError("the queries of a candidate must be sums of different cells with weight 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Marginals of which one is to be chosen, the farther from its estimate the more likely.

    Privacy: one individual moves each score by at most the largest weight times its contribution, so
    the exponential mechanism at `epsilon` has the cost of kind "exponential" (docs/proofs/choice.md).
    """

    name: str
    candidates: tuple[Gap, ...]
    epsilon: Fraction

    def __post_init__(self) -> None:
        parse_positive(self.epsilon, name=f"the epsilon of {self.name!r}")
        if not self.candidates:
            raise RecipeError(f"choice {self.name!r} has no candidate")

    @property
    def options(self) -> int:
        """The number of candidates."""
        return len(self.candidates)

    def to_record(self) -> dict[str, Any]:
        """The choice as a plain record, without its estimates."""
        return {
            "name": self.name,
            "candidates": [list(each.columns) for each in self.candidates],
            "epsilon": self.epsilon,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NormChoice:
    """L2 norms, ascending, of which one is to be chosen: about `quantile` of all individuals are within it.

    An individual is within a norm if its contribution to the marginal of `columns` is.

    Privacy: with quantile = a / b, a norm scores -|(b - a) * (individuals within) - a * (the others)|,
    which one individual moves by at most max(a, b - a), or b if it is replaced (docs/proofs/choice.md).
    """

    name: str
    columns: tuple[str, ...]
    norms: tuple[Fraction, ...]
    quantile: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        parse_positive(self.epsilon, name=f"the epsilon of {self.name!r}")
        if not self.norms or list(self.norms) != sorted(set(self.norms)) or self.norms[0] <= 0:
            raise RecipeError(f"choice {self.name!r} needs norms above zero, ascending")
        if not 0 < self.quantile < 1:
            raise RecipeError(f"the quantile of {self.name!r} must lie between 0 and 1")

    @property
    def options(self) -> int:
        """The number of candidates."""
        return len(self.norms)

    def to_record(self) -> dict[str, Any]:
        """The choice as a plain record."""
        return {
            "name": self.name,
            "columns": list(self.columns),
            "norms": list(self.norms),
            "quantile": self.quantile,
            "epsilon": self.epsilon,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CapChoice:
    """Bounds on the records of one individual, ascending, of which one is to be chosen.

    A bound scores minus the number of records that it cuts off, minus its public penalty: what the
    noise that goes with it is expected to spoil. Records of an individual beyond max_records are not
    looked at.

    Privacy: one individual, added, removed or replaced, moves the number of records that any bound cuts
    off by at most max_records less the smallest bound (docs/proofs/capped-counts.md).
    """

    name: str
    columns: tuple[str, ...]
    caps: tuple[int, ...]
    penalties: tuple[int, ...]
    epsilon: Fraction

    def __post_init__(self) -> None:
        parse_positive(self.epsilon, name=f"the epsilon of {self.name!r}")
        if len(self.caps) < 2 or list(self.caps) != sorted(set(self.caps)) or self.caps[0] < 1:
            raise RecipeError(f"choice {self.name!r} needs at least two bounds above zero, ascending")
        if len(self.penalties) != len(self.caps) or not all(0 <= each < 2**62 for each in self.penalties):
            raise RecipeError(f"choice {self.name!r} needs a penalty from 0 to 2^62 for every bound")

    @property
    def options(self) -> int:
        """The number of candidates."""
        return len(self.caps)

    def to_record(self) -> dict[str, Any]:
        """The choice as a plain record."""
        return {
            "name": self.name,
            "columns": list(self.columns),
            "caps": list(self.caps),
            "penalties": list(self.penalties),
            "epsilon": self.epsilon,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A choice and the index of the candidate that was drawn."""

    choice: Choice | NormChoice | CapChoice
    index: int

    @property
    def ask(self) -> Choice | NormChoice | CapChoice:
        """What this is the answer to."""
        return self.choice


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queries:
    """Weighted sums of cells.

    Query i gives cell members[k] the weight weights[k] / grid, for k from starts[i] up to starts[i + 1].

    Privacy: the weights of any one cell have an L2 norm of at most 1, checked in whole numbers when the
    queries are made. An individual that adds C to the cells adds at most C to the answers, in L2.

    >>> sums = Queries(cells=3, grid=1, starts=np.array([0, 2, 3]), members=np.array([0, 1, 2]),
    ...                weights=np.array([1, 1, 1]))
    >>> sums.rows, sums.apply(np.array([5, 6, 7])).tolist()
    (2, [11, 7])
    """

    cells: int
    grid: int
    starts: NDArray[np.int64]
    members: NDArray[np.integer[Any]]
    weights: NDArray[np.integer[Any]]

    def __post_init__(self) -> None:
        # There may be ten million members, and several queries of that size at a time.
        for name, dtype in (("starts", np.int64), ("members", np.int32), ("weights", np.int32)):
            given = np.asarray(getattr(self, name))
            array = np.ascontiguousarray(given, dtype=dtype)
            if array.dtype != given.dtype and not np.array_equal(array, given):
                raise RecipeError(f"the {name} of queries must be whole numbers, and no weight exceeds 1")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if not 1 <= self.grid <= 2**20:
            raise RecipeError("the grid of queries must lie between 1 and 2^20")
        starts, members = self.starts, self.members
        if starts.size < 2 or starts[0] != 0 or starts[-1] != members.size or (np.diff(starts) < 0).any():
            raise RecipeError("queries need at least one row, and starts that cut their members into rows")
        if members.size != self.weights.size or (
            members.size and (members.min() < 0 or members.max() >= self.cells)
        ):
            raise RecipeError("every member of a query needs a weight and a cell of the marginal")
        # The least number has no absolute value, so both ends are compared.
        if members.size and not -self.grid <= self.weights.min() <= self.weights.max() <= self.grid:
            raise RecipeError("the weight of a query exceeds 1")
        if _repeats(starts, members, self.cells):
            raise RecipeError("a query names a cell twice")
        # Sums of squares below 2^53 are exact in the floats of bincount: 2^40 times at most 2^12 rows.
        squares = np.bincount(members, weights=self.weights.astype(np.float64) ** 2, minlength=1)
        if squares.max() > self.grid**2:
            raise RecipeError(
                "the weights of a cell have an L2 norm above 1, so the noise would not cover them"
            )

    @property
    def rows(self) -> int:
        """The number of queries."""
        return int(self.starts.size - 1)

    @property
    def is_partition(self) -> bool:
        """Whether all weights are 1 and no cell is in two queries."""
        once = np.bincount(self.members, minlength=1).max() <= 1
        return bool(once and (self.weights == self.grid).all() and self.grid == 1)

    def apply(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The exact answers for `counts`, in units of 1 / grid of those of the counts."""
        sums = np.concatenate(([0], np.cumsum(counts[self.members] * self.weights)))
        return np.asarray(sums[self.starts[1:]] - sums[self.starts[:-1]], dtype=np.int64)

    def to_record(self) -> dict[str, Any]:
        """The queries as a plain record: their number, grid and digest."""
        content = hashlib.sha256()
        for array in (self.starts, self.members, self.weights):
            content.update(array.astype("<i8").tobytes())
        return {
            "rows": self.rows,
            "cells": self.cells,
            "grid": self.grid,
            "sha256": content.hexdigest(),
        }


def _repeats(starts: NDArray[np.int64], members: NDArray[np.integer[Any]], cells: int) -> bool:
    """Whether some row names a cell twice; rows in ascending order are seen at once."""
    rising = members[1:] > members[:-1]
    rising[starts[(starts > 0) & (starts < members.size)] - 1] = True  # from one row to the next
    if rising.all():
        return False
    keys = np.repeat(np.arange(starts.size - 1), np.diff(starts)) * cells + members
    keys.sort()
    return bool((keys[1:] == keys[:-1]).any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeadCounts:
    """Questions of how many individuals have `times` records in `cell`.

    An individual with n records in a cell is counted by the question with the largest `times` up to n,
    if there is one. Questions ascend by cell, then by times.

    Privacy: an individual in more than `max_cells` of the cells that are asked about is counted in
    `max_cells` of them only, so it moves at most that many answers, each by 1.

    >>> heads = HeadCounts(max_cells=2, cells=np.array([4, 4, 9]), times=np.array([1, 2, 1]))
    >>> heads.rows
    3
    """

    max_cells: int
    cells: NDArray[np.int64]
    times: NDArray[np.int64]

    def __post_init__(self) -> None:
        whole = isinstance(self.max_cells, int) and not isinstance(self.max_cells, bool)
        if not whole or not 1 <= self.max_cells <= 10**9:
            raise RecipeError("max_cells must be a whole number from 1 to 10^9")
        for name in ("cells", "times"):
            given = np.asarray(getattr(self, name))
            if given.dtype.kind not in "iu" or given.ndim != 1:
                raise RecipeError(f"the {name} of counts of individuals must be whole numbers")
            array = given.astype(np.int64)  # a copy: what was given may still be written to
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        cells, times = self.cells, self.times
        if not cells.size or cells.size != times.size or cells.min() < 0 or times.min() < 1:
            raise RecipeError(
                "counts of individuals need at least one cell, each with the times it is asked for"
            )
        later = (cells[1:] > cells[:-1]) | ((cells[1:] == cells[:-1]) & (times[1:] > times[:-1]))
        if not later.all():
            raise RecipeError(
                "counts of individuals must ascend by cell, then by times, and none be asked twice"
            )

    @property
    def rows(self) -> int:
        """The number of questions."""
        return int(self.cells.size)

    def to_record(self) -> dict[str, Any]:
        """The questions as a plain record: their number, their bound and their digest."""
        content = hashlib.sha256()
        for array in (self.cells, self.times):
            content.update(array.astype("<i8").tobytes())
        return {"rows": self.rows, "max_cells": self.max_cells, "sha256": content.hexdigest()}
