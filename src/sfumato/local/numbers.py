"""Numbers on a grid: what a client's value becomes before any noise, and what a mean is reported as.

A value is held to its stated range and laid on a grid of 2^24 steps; from there on everything is whole
numbers. Answers are whole numbers too, so that no spare bits of a float tell the value.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sfumato.errors import RecipeError, SchemaError
from sfumato.exact import format_exact, parse_exact
from sfumato.local.checks import as_array
from sfumato.local.results import MeanEstimate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from sfumato.exact import ExactLike
    from sfumato.local.mechanism import MeanMechanism

STEPS: Final = 1 << 24
"""Steps of the grid over [low, high]; a value is moved by half a step at most."""


def check_range(low: ExactLike, high: ExactLike) -> tuple[Fraction, Fraction]:
    """The ends of a range as rationals, low below high.

    >>> check_range(0, "2.5")
    (Fraction(0, 1), Fraction(5, 2))
    """
    ends = parse_exact(low, name="low"), parse_exact(high, name="high")
    most = max(abs(ends[0]), abs(ends[1]))
    if ends[0] >= ends[1] or most > Fraction(10) ** 300 or (ends[1] - ends[0]) * 2**20 < most / 2**20:
        raise RecipeError(
            "a range needs two numbers, low below high, not above 1e300 and not too close for doubles"
        )
    return ends


def check_numbers(
    values: ArrayLike, *, low: Fraction, high: Fraction, default: float | None
) -> NDArray[np.int64]:
    """The grid place 0 .. 2^24 of each value, held to the range; NaN becomes `default` or is refused.

    >>> check_numbers([-5, 0.5, 9], low=Fraction(0), high=Fraction(1), default=None).tolist()
    [0, 8388608, 16777216]
    """
    numbers = as_array(values, "the values")
    if numbers.size == 0 and numbers.ndim == 1:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise SchemaError("the values must be a one-dimensional array of numbers")
    numbers = numbers.astype(np.float64)
    missing = np.isnan(numbers)
    if missing.any():
        if default is None or math.isnan(default):
            raise SchemaError("a value is missing (NaN); leave it out, or state a default for such values")
        numbers[missing] = default
    ends = float(low), float(high)
    middle, half = ends[0] / 2 + ends[1] / 2, ends[1] / 2 - ends[0] / 2
    places = np.rint(((np.clip(numbers, *ends) - middle) / half + 1) * (STEPS / 2))
    held: NDArray[np.int64] = np.clip(places, 0, STEPS).astype(np.int64)
    return held


def check_integers(responses: ArrayLike, least: int, most: int) -> NDArray[np.int64]:
    """The responses as whole numbers from least to most, or an error that says what is wrong.

    >>> check_integers([-1, 5], -2, 9).tolist()
    [-1, 5]
    """
    answers = as_array(responses, "the responses")
    if answers.ndim == 1 and answers.size == 0:
        raise SchemaError("there are no responses; nothing can be estimated")
    if answers.ndim != 1 or answers.dtype.kind not in "iu":
        raise SchemaError("responses of this mechanism are a one-dimensional array of whole numbers")
    if int(answers.min()) < least or int(answers.max()) > most:
        raise SchemaError("a response lies outside what this mechanism answers with these parameters")
    return answers.astype(np.int64)


def make_mean(place: float, variance: float, *, mechanism: MeanMechanism, people: int) -> MeanEstimate:
    """The record of a mean, given as a place in the range and the variance of one answer there."""
    width = float(mechanism.high - mechanism.low)
    return MeanEstimate(
        mechanism=mechanism.name,
        epsilon=mechanism.exact_epsilon,
        people=people,
        low=mechanism.low,
        high=mechanism.high,
        mean=float(mechanism.low) + place * width,
        standard_error=math.sqrt(variance / people) * width,
    )


def mean_record(mechanism: MeanMechanism) -> dict[str, Any]:
    """What the server of a mean must know, as a plain record."""
    return {
        "mechanism": mechanism.name,
        "epsilon": format_exact(mechanism.epsilon),
        "low": format_exact(mechanism.low),
        "high": format_exact(mechanism.high),
    }
