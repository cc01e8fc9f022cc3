"""Exact counts with noise: requests and their costs, measurements, and what their totals say.

All of it is public. A request says what is counted and which noise it gets; its cost follows from the table's
description alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.cost.cost import Cost
from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_positive
from sfumato.core.law import MAX_SCALE, SPARSE_KIND, Kind, Law
from sfumato.core.questions.choices import AnyChoice, Candidate, Choice, Chosen, NormChoice
from sfumato.core.questions.counts import (
    CappedMarginal,
    ClippedMarginal,
    IndividualCounts,
    Marginal,
    OccupiedCells,
    find_sensitivity,
    list_norms,
)
from sfumato.core.questions.gradients import Gradients
from sfumato.core.questions.moments import Moments
from sfumato.core.questions.question import Queries, Question
from sfumato.core.questions.residuals import Outcomes, Residuals
from sfumato.core.questions.scores import ReleaseScore
from sfumato.core.questions.series import RunningSums

if TYPE_CHECKING:
    from sfumato.core.facts.part import Part
    from sfumato.core.facts.table import Table

COUNTS = (Marginal, OccupiedCells, CappedMarginal, ClippedMarginal, IndividualCounts)
SUMS = (Moments, Residuals, Outcomes, Gradients, RunningSums, ReleaseScore)
"""With COUNTS all kinds of questions: a class of any other place would state its own sensitivity."""

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
    counted: Question
    noise: Kind
    scale: Fraction
    threshold: int | None = None
    part: Part | None = None

    def __post_init__(self) -> None:
        check_kind(self.counted)
        if parse_positive(self.scale, name=f"the noise scale of {self.name!r}") > MAX_SCALE:
            raise RecipeError(
                f"{self.name!r} needs noise beyond 2^50, more than any count; spend more epsilon"
            )
        if self.law.norm not in list_norms(self.counted):
            raise RecipeError(
                f"request {self.name!r}: norms, moments, gradients, and queries other than sums of different "
                "cells, are bounded in L2, so their noise is gaussian"
            )
        if (self.counted.tally == "occupied") != (self.threshold is not None):
            raise RecipeError(
                f"request {self.name!r}: a threshold goes with occupied cells, and only with these"
            )
        if self.threshold is not None:
            self._check_threshold(self.threshold)

    def _check_threshold(self, threshold: int) -> None:
        if self.noise != SPARSE_KIND:
            raise RecipeError(f"request {self.name!r}: a threshold needs {SPARSE_KIND} noise")
        if not isinstance(threshold, int) or not 1 <= threshold <= MAX_SCALE:
            raise RecipeError(f"the threshold of {self.name!r} must be a whole number from 1 to 2^50")
        if threshold > MOST_SCALES * self.scale:
            raise RecipeError(
                f"{self.name!r}: nothing empty ever passes {MOST_SCALES:,} noise scales; spend or cut less"
            )

    @property
    def law(self) -> Law:
        """The law of its noise."""
        return Law(self.noise, self.scale)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the marginal."""
        return self.counted.columns

    @property
    def queries(self) -> Queries | None:
        """The queries over the cells, if it is not the cells that are answered."""
        return self.counted.queries

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
        return self.law.deviation

    def check(self, table: Table) -> None:
        """Raises an error about public facts if what is counted does not fit `table`."""
        self.counted.check(table)

    def to_record(self) -> dict[str, Any]:
        """The request as a plain record."""
        record: dict[str, Any] = {
            "name": self.name,
            "columns": list(self.columns),
            "noise": self.noise,
            "scale": self.scale,
            **self.counted.to_record(),
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


def check_kind(question: Question) -> None:
    """Raises an error unless `question` is of a kind whose sensitivity the core states, not of a subclass."""
    if type(question) not in (*COUNTS, *SUMS) or type(question.queries) not in (Queries, type(None)):
        raise RecipeError(f"{type(question).__name__} is no kind of question that has a known sensitivity")


Ask = Request | AnyChoice
Answer = Measurement | Chosen


def find_part(ask: Ask) -> Part | None:
    """The part of the people that `ask` is asked of; None if it is all of them."""
    return ask.part if isinstance(ask, Request | Choice) else None


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


def request_sensitivity(table: Table, request: Request) -> Fraction:
    """The most that answers of neighbouring tables differ, in L1 for Laplace noise, in L2 for Gaussian."""
    return find_sensitivity(table, request.counted, norm=request.law.norm)


def ask_cost(table: Table, ask: Ask) -> Cost:
    """What answering `ask` costs an individual of `table`."""
    # The scale of a choice is its epsilon: `rate` divides it by what one individual moves the scores.
    whom: dict[str, Any] = {"neighbours": table.unit.neighbours, "unit": table.unit.name}
    if not isinstance(ask, Request):
        return Cost(kind="exponential", scale=ask.epsilon, **whom)
    sampling = ask.counted.sampling if ask.counted.stated.sampled else Fraction(1)  # type: ignore[attr-defined]
    kind, sensitivity = ask.noise if sampling == 1 else "sampled", request_sensitivity(table, ask)
    return Cost(kind=kind, scale=ask.scale, sensitivity=sensitivity, sampling=sampling, **whom)


def list_costs(table: Table, asks: Iterable[Ask]) -> list[tuple[Cost, str | None]]:
    """What each of `asks` costs, and the name of the part of the people that pays for it."""
    parts = ((ask, find_part(ask)) for ask in asks)
    return [(ask_cost(table, ask), None if part is None else part.name) for ask, part in parts]


def check_asks(table: Table, asks: Iterable[object], *, parts: tuple[Part, ...]) -> None:
    """Raises an error about public facts unless all of `asks` can be asked of `table` and of these parts.

    Their costs are for tables that they fit, and add up by parts only if these have nobody in common.
    """
    # Whoever is in two parts would pay for one of them alone.
    for one, other in combinations(parts, 2):
        if one.meets(other) or one.name == other.name:
            raise RecipeError(f"parts {one.name!r} and {other.name!r} of a plan have people in common")
    for ask in asks:
        if type(ask) not in (Request, Choice, NormChoice):
            raise RecipeError("asked something that is neither a request nor a choice")
        assert isinstance(ask, Ask)
        if isinstance(ask, Request):
            check_kind(ask.counted)
        elif isinstance(ask, Choice) and any(type(each) is not Candidate for each in ask.candidates):
            raise RecipeError(f"asked {ask.name!r} among what are no candidates of a choice")
        part = find_part(ask)
        if part is not None and part not in parts:
            raise RecipeError(f"asked {ask.name!r} of people who are no part of its plan")
        ask.check(table)
