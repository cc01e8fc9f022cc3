"""Histograms: counts of every combination of columns, each with its own noise.

`CellCounts` is the Laplace (or Gaussian) histogram under the stated bound on an individual's records,
`CappedCounts` the one under a bound that is chosen privately. What histograms share follows them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import calibrate_scale
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_exact, parse_positive
from sfumato.core.law import Kind
from sfumato.core.questions.choices import CapChoice, Chosen
from sfumato.core.questions.counts import CappedMarginal, IndividualCounts, Marginal, Queries
from sfumato.core.questions.measurement import Ask, Measurement, Request, ask_cost, request_sensitivity
from sfumato.recipes.base import (
    Conversation,
    Options,
    Plan,
    Product,
    cell_columns,
    label_epsilon,
    refuse_clash,
    released_names,
    stack_epsilons,
)

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

Noise = Kind | Literal["auto"]

_LARGEST_THRESHOLD = 10**6
_MOST_CAPS = 32
_MOST_CAPPED_CELLS = 2**24


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions(Options):
    """What recipes that release a histogram over the columns `by` have in common."""

    by: Sequence[str]

    def __post_init__(self) -> None:
        by = self.by
        if not isinstance(by, (list, tuple)) or not all(isinstance(name, str) for name in by):
            raise RecipeError(f"{self.kind}: by must be a list of columns, such as ['district', 'month']")
        if not by or len(set(by)) != len(by):
            raise RecipeError(f"{self.kind}: by must list at least one column, and none twice")
        self._keep(by=tuple(by))

    def check_names(self, table: Table) -> None:
        """Raises an error if two columns of the release would have one name."""
        refuse_clash(self.kind, ["epsilon", "count", *released_names(table, tuple(self.by))])

    def tabulate(self, plan: Plan, counts: Sequence[NDArray[np.int64]]) -> pa.Table:
        """Every cell with its count; one table for all epsilons, named in a column if several."""
        columns = cell_columns(plan.table, tuple(self.by))
        tables = [pa.table({**columns, "count": to_arrow(each)}) for each in counts]
        return stack_epsilons(plan.epsilons, tables)


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

    noise: Noise = "auto"
    threshold: Any = 0

    def __post_init__(self) -> None:
        CountOptions.__post_init__(self)
        check_noise(self.noise, kind=self.kind)
        self._keep(threshold=parse_threshold(self.threshold, kind=self.kind))

    def to_record(self) -> dict[str, Any]:
        """The recipe as a plain record; a threshold of 0 is left out."""
        record = Options.to_record(self)
        if not self.threshold:
            del record["threshold"]
        return record

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """One request per epsilon, all for the same marginal."""
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

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        facts = {
            "table": plan.table.name,
            "cells": plan.table.cells(tuple(self.by)),
            "sizes": ", ".join(f"{name} ({plan.table.column(name).size})" for name in self.by),
            "rounded": "" if plan.table.grid == 1 else "divided by the weight grid and rounded, then ",
            "threshold": describe_threshold(self.threshold),
        }
        return {key: text.format(**facts) for key, text in _CELL_COUNTS.items()}


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
        """All of every epsilon, charged before the first question."""
        by = tuple(self.by)
        self.check_names(table)
        if table.cells(by) > _MOST_CAPPED_CELLS:
            raise RecipeError(
                f"capped-counts: {' x '.join(by)} has {table.cells(by):,} cells, more than "
                f"{_MOST_CAPPED_CELLS:,}; use fewer columns or coarser domains"
            )
        if table.unit.max_records == 1:
            raise RecipeError(
                "capped-counts: nobody has more than one record that counts, so there is no bound to choose; "
                "use cell-counts"
            )
        return Plan(
            recipe=self,
            table=table,
            requests=(),
            epsilons=epsilons,
            delta=delta,
            allowance=tuple(cost for epsilon in epsilons for cost in self._costs(table, epsilon)),
            counted=(by,),
        )

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Every cell with its count, for every epsilon."""
        released, facts = [], []
        for epsilon in plan.epsilons:
            label = label_epsilon(plan.epsilons, epsilon)
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

    def describe(self, plan: Plan) -> dict[str, str]:
        """The paragraphs of the privacy write-up that are this recipe's own."""
        most = plan.table.unit.max_records
        facts = {
            "table": plan.table.name,
            "columns": ", ".join(self.by),
            "cells": plan.table.cells(tuple(self.by)),
            "most": most,
            "moved": most - 1,
            "half": format_exact(self.share / 2),
            "threshold": describe_threshold(self.threshold),
        }
        return {key: text.format(**facts) for key, text in _CAPPED_COUNTS.items()}

    def _costs(self, table: Table, epsilon: Fraction) -> tuple[Cost, ...]:
        """The cost of the first questions, and the most that counts cost under any bound."""
        first = tuple(ask_cost(table, ask) for ask in self._first_asks(table, epsilon, ""))
        counts = (
            ask_cost(table, self._counts(table, epsilon, "", bound=cap))
            for cap in list_caps(table.unit.max_records)
        )
        return (*first, max(counts, key=lambda cost: cost.rho))

    def _first_asks(self, table: Table, epsilon: Fraction, label: str) -> tuple[Ask, ...]:
        """The choice of the bound, and the number of records."""
        caps = list_caps(table.unit.max_records)
        scales = [self._counts(table, epsilon, label, bound=cap).scale / table.grid for cap in caps]
        return ask_bound(table, tuple(self.by), caps, scales, epsilon=epsilon * self.share, label=label)

    def _counts(self, table: Table, epsilon: Fraction, label: str, *, bound: int) -> Request:
        """The request for counts under `bound`, for what is left of epsilon."""
        probe = Request(
            name=f"{label}counts of at most {bound} records",
            counted=CappedMarginal(tuple(self.by), bound),
            noise="laplace",
            scale=Fraction(1),
        )
        return replace(probe, scale=request_sensitivity(table, probe) / (epsilon * (1 - self.share)))


def check_noise(value: object, *, kind: str) -> None:
    """Raises an error if `value` names no noise."""
    if value not in ("auto", *get_args(Kind)):
        raise RecipeError(f"{kind}: noise must be auto, laplace or gaussian, got {value!r}")


def list_kinds(noise: Noise, delta: Fraction) -> tuple[Kind, ...]:
    """Returns the kinds of noise among which a recipe chooses; without delta there is one only."""
    return ("laplace",) if delta == 0 else get_args(Kind) if noise == "auto" else (noise,)


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


def describe_threshold(threshold: Fraction) -> str:
    """A sentence about `threshold` for a write-up, or nothing if there is none."""
    return _THRESHOLD.format(threshold=format_exact(threshold)) if threshold else ""


def request_counts(
    name: str,
    counted: Marginal | IndividualCounts,
    *,
    noise: Noise,
    epsilon: Fraction,
    delta: Fraction,
    sensitivity: Callable[[Request], Fraction],
) -> Request:
    """The request `name` for `counted` whose noise, of those allowed, has the smaller standard deviation.

    Privacy: both scales follow from `sensitivity`, which gives that of a request for its noise, and from
    epsilon and delta; the choice compares public figures.
    """

    def ask(kind: Kind, scale: Fraction) -> Request:
        return Request(name=name, counted=counted, noise=kind, scale=scale)

    found = []
    for kind in list_kinds(noise, delta):
        bound = sensitivity(ask(kind, Fraction(1)))
        found.append(ask(kind, calibrate_scale(kind, sensitivity=bound, epsilon=epsilon, delta=delta)))
    return min(found, key=lambda each: each.standard_deviation)  # of equals the first


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
    records = noisy_values if grid == 1 else (noisy_values + grid // 2) // grid
    counts = np.maximum(records, 0)
    if threshold:
        counts[noisy_values < float(threshold) * deviation] = 0
    return counts


def list_caps(most: int) -> tuple[int, ...]:
    """The bounds that may be chosen: all up to `most`, or steps of about an eighth where that is many.

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
    """The sum of all cells, as one query."""
    ones = np.ones(cells, np.int32)
    return Queries(cells=cells, grid=1, starts=np.array([0, cells]), members=np.arange(cells), weights=ones)


def _scale_up(counts: Measurement, total: Measurement, *, most: Fraction) -> float:
    """How many records stand behind one that counted, by noisy sums; at least 1, and no more than can be."""
    kept = int(counts.noisy_values.sum()) / counts.grid
    records = int(total.noisy_values.sum()) / total.grid
    if kept <= 0:
        return 1.0
    return min(max(1.0, records / kept), float(most))


_THRESHOLD = (
    " A count below {threshold} standard deviations of its noise is then set to 0: the table shows fewer "
    "counts that are noise alone, and loses small ones that are not."
)

_CELL_COUNTS = {
    "idea": (
        "The release is a histogram: the number of records of table `{table}` in every combination of "
        "{sizes}, {cells:,} cells in all. Every cell, occupied or empty, gets noise of its own before "
        "anything is looked at."
    ),
    "preprocessing": (
        "An empty histogram with {cells:,} cells is laid out from the described domains alone. No record is "
        "touched, so the step costs nothing."
    ),
    "postprocessing": (
        "The noisy counts are {rounded}set to 0 where they are negative.{threshold} This uses the noisy "
        "counts only, so it costs nothing; it biases small counts upwards, and `measurements.parquet` keeps "
        "the counts as they were."
    ),
}

_CAPPED_COUNTS = {
    "idea": (
        "The release is a histogram of table `{table}` over {columns}, {cells:,} cells. How many records of "
        "one individual count, up to {most}, is chosen privately: few records need little noise, many "
        "records lose nothing."
    ),
    "preprocessing": (
        "An empty histogram with {cells:,} cells is laid out from the described domains alone, which costs "
        "nothing."
    ),
    "privatisation": (
        "A part of {half} of each epsilon chooses the bound c by the exponential mechanism. Its score is "
        "minus the number of records cut off by c, of at most {most} per individual, minus the sum over all "
        "cells of the noise to be expected, which is public. An individual moves a score by at most {moved}. "
        "A part of {half} pays for the number of records, at the full bound of {most}. The rest pays for the "
        "histogram with every individual held to c records, and noise to match."
    ),
    "postprocessing": (
        "The noisy counts are multiplied by one factor, the noisy number of all records over the sum of the "
        "noisy counts, so that what the bound cut off is made up for in total; then they are rounded and set "
        "to 0 where they are negative.{threshold} All of it uses noisy counts only, so it costs nothing; "
        "`measurements.parquet` keeps the counts as they were."
    ),
}


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
    total = Request(
        name=f"{label}number of records",
        counted=Marginal(columns, sum_all(cells)),
        noise="laplace",
        scale=Fraction(1),
    )
    return choice, replace(total, scale=request_sensitivity(table, total) / half)
