"""What recipes that release histograms share: their options, their noise, and whole counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import pyarrow as pa

from sfumato.accounting import calibrate_scale
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_exact
from sfumato.core.law import Kind
from sfumato.core.questions.counts import IndividualCounts, Marginal
from sfumato.core.questions.measurement import Measurement, Request, request_sensitivity
from sfumato.core.questions.question import Question
from sfumato.recipes.base import (
    Conversation,
    Plan,
    Product,
    Progress,
    Recipe,
    cell_columns,
    released_names,
    write_part,
)
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table


Noise = Kind | Literal["auto"]
_LARGEST_THRESHOLD = 10**6  # far beyond which no count is ever released


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions(Recipe):
    """What recipes that release a histogram over the columns `by` have in common."""

    by: Sequence[str]

    def __post_init__(self) -> None:
        by = self.by
        if not isinstance(by, (list, tuple)) or not all(isinstance(name, str) for name in by):
            raise RecipeError(f"{self.kind}: by must be a list of columns, such as ['district', 'month']")
        if not by or len(set(by)) != len(by):
            raise RecipeError(f"{self.kind}: by must list at least one column, and none twice")
        self._keep(by=tuple(by))
        if hasattr(self, "threshold"):
            self._keep(threshold=parse_threshold(self.threshold, kind=self.kind))

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return every cell with its count, for every epsilon."""
        answers = yield plan.requests
        counts = [self.finish(plan.table, each) for each in answers]
        return Product(table=self.tabulate(plan, counts), varied=("count",))

    def finish(self, table: Table, measurement: Measurement) -> Whole:
        """Return the count of every cell, from the answer to one request."""
        raise NotImplementedError

    def check_names(self, table: Table) -> None:
        """Raises an error if two columns of the release would have one name."""
        self.refuse_clash(["epsilon", "count", *released_names(table, tuple(self.by))])

    def tabulate(self, plan: Plan, counts: Sequence[Whole]) -> pa.Table:
        """Return every cell with its count; one table for all epsilons, named in a column if several."""
        columns = cell_columns(plan.table, tuple(self.by))
        tables = [pa.table({**columns, "count": to_arrow(each)}) for each in counts]
        return plan.stack(tables)


def check_noise(value: object, *, kind: str) -> None:
    """Raises an error if `value` names no noise."""
    if value not in ("auto", *get_args(Kind)):
        raise RecipeError(f"{kind}: noise must be auto, laplace or gaussian, got {value!r}")


def list_kinds(noise: Noise, delta: Fraction) -> tuple[Kind, ...]:
    """Returns the kinds of noise among which a recipe chooses; without delta there is one only."""
    if noise == "gaussian" and delta == 0:
        raise RecipeError(
            "Gaussian noise needs delta above zero: set delta in the recipe, and [budget] delta in the "
            "project file"
        )
    return ("laplace",) if delta == 0 else get_args(Kind) if noise == "auto" else (noise,)


def parse_threshold(value: object, *, kind: str) -> Fraction:
    """Return the threshold that `value` stands for, in standard deviations of the noise.

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
    """Return a sentence about `threshold` for a write-up, or nothing if there is none."""
    return write_part("counts", "threshold", threshold=format_exact(threshold)) if threshold else ""


def request_counts(
    table: Table,
    name: str,
    counted: Marginal | IndividualCounts,
    *,
    noise: Noise,
    epsilon: Fraction,
    delta: Fraction,
) -> Request:
    """Return request `name` for `counted` whose noise, of those allowed, has the smaller standard deviation.

    Privacy: both scales follow from the sensitivity to the noise and from epsilon and delta; the choice
    compares public figures.
    """

    def ask(kind: Kind, scale: Fraction) -> Request:
        return Request(name=name, counted=counted, noise=kind, scale=scale)

    found = []
    for kind in list_kinds(noise, delta):
        bound = request_sensitivity(table, ask(kind, Fraction(1)))
        found.append(ask(kind, calibrate_scale(kind, sensitivity=bound, epsilon=epsilon, delta=delta)))
    return min(found, key=lambda each: each.standard_deviation)  # of equals the first


def request_laplace(table: Table, name: str, counted: Question, epsilon: Fraction) -> Request:
    """Return a request with the Laplace noise that `epsilon` asks for."""
    probe = Request(name=name, counted=counted, noise="laplace", scale=Fraction(1))
    return replace(probe, scale=request_sensitivity(table, probe) / epsilon)


def finish_counts(
    noisy_values: Whole,
    *,
    threshold: Fraction,
    deviation: float | Floats,
    grid: int = 1,
) -> Whole:
    """Return whole, non-negative counts: rounded halves up, and 0 below `threshold` standard deviations.

    Values and `deviation`, one or one per value, are in units of 1 / grid.

    >>> finish_counts(np.array([-3, 4, 9]), threshold=Fraction(2), deviation=2.5).tolist()
    [0, 0, 9]
    """
    records = noisy_values if grid == 1 else (noisy_values + grid // 2) // grid
    counts = np.maximum(records, 0)
    if threshold:
        counts[noisy_values < float(threshold) * deviation] = 0
    return counts
