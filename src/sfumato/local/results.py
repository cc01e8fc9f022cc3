"""What a server knows after an estimate: shares or a mean, with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from sfumato.errors import RecipeError
from sfumato.exact import format_exact

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Projection = Literal["none", "sum", "clip", "simplex"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Estimate:
    """Estimated shares of the categories among the people who answered.

    `epsilon` is the delivered one. `frequencies` are unbiased with `project="none"` and `"sum"`, may then
    be negative, and have the normal intervals of `interval`. `standard_errors` measure the randomness of
    the answers; `population_errors` add that the people are a random sample of a larger population. Both
    belong to the unbiased estimate; a projection leaves them as they are.
    """

    mechanism: str
    epsilon: Fraction
    people: int
    frequencies: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    population_errors: NDArray[np.float64]
    project: Projection

    @property
    def counts(self) -> NDArray[np.float64]:
        """The estimated numbers of people, frequencies times people."""
        return self.frequencies * self.people

    def interval(self, *, confidence: float = 0.95, population: bool = False) -> NDArray[np.float64]:
        """One row (low, high) per category, normal, around the frequencies."""
        errors = self.population_errors if population else self.standard_errors
        reach = normal_reach(confidence) * errors
        return np.column_stack([self.frequencies - reach, self.frequencies + reach])

    def to_record(self) -> dict[str, Any]:
        """The estimate as a plain record for JSON."""
        return {
            "mechanism": self.mechanism,
            "epsilon": format_exact(self.epsilon),
            "people": self.people,
            "project": self.project,
            "frequencies": self.frequencies.tolist(),
            "counts": self.counts.tolist(),
            "standard_errors": self.standard_errors.tolist(),
            "population_errors": self.population_errors.tolist(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEstimate:
    """An unbiased mean of numbers held to [low, high], with its standard error.

    The error comes from the spread of the answers, so it holds the noise and the sampling of people.
    """

    mechanism: str
    epsilon: Fraction
    people: int
    low: Fraction
    high: Fraction
    mean: float
    standard_error: float

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """The normal interval (low, high) around the mean."""
        reach = normal_reach(confidence) * self.standard_error
        return self.mean - reach, self.mean + reach

    def to_record(self) -> dict[str, Any]:
        """The estimate as a plain record for JSON."""
        return {
            "mechanism": self.mechanism,
            "epsilon": format_exact(self.epsilon),
            "people": self.people,
            "low": format_exact(self.low),
            "high": format_exact(self.high),
            "mean": self.mean,
            "standard_error": self.standard_error,
        }


def make_estimate(
    *,
    mechanism: str,
    epsilon: Fraction,
    people: int,
    frequencies: NDArray[np.float64],
    variances: NDArray[np.float64],
    project: Projection,
) -> Estimate:
    """The record of unbiased shares whose mean per answer has these variances, projected as told."""
    inside = np.clip(frequencies, 0.0, 1.0)
    sampled = variances + inside * (1 - inside)
    return Estimate(
        mechanism=mechanism,
        epsilon=epsilon,
        people=people,
        frequencies=project_shares(frequencies, project=project),
        standard_errors=np.sqrt(variances / people),
        population_errors=np.sqrt(sampled / people),
        project=project,
    )


def check_projection(project: str) -> Projection:
    """The name of a projection, or an error that lists them."""
    for known in get_args(Projection):
        if project == known:
            return known  # type: ignore[no-any-return]
    raise RecipeError(f"project must be one of {', '.join(get_args(Projection))}, got {str(project)[:40]!r}")


def project_shares(shares: ArrayLike, *, project: Projection = "simplex") -> NDArray[np.float64]:
    """The shares made consistent: as they are, of sum 1, not negative, or both.

    `"sum"` adds the same number to each, which keeps them unbiased. `"clip"` sets negative ones to
    zero. `"simplex"` is the nearest vector of non-negative shares of sum 1; it is biased, but never
    farther from the truth.

    >>> project_shares([0.7, 0.5, -0.1]).tolist()
    [0.6, 0.4, 0.0]
    """
    given = np.asarray(shares, np.float64)
    if project == "none":
        return given
    if project == "sum":
        return given + (1 - float(given.sum())) / given.size
    if project == "clip":
        shift = 0.0
    else:
        falling = np.sort(given)[::-1]
        shifts = (np.cumsum(falling) - 1) / np.arange(1, given.size + 1)
        shift = float(shifts[np.flatnonzero(falling > shifts)[-1]])
    positive: NDArray[np.float64] = np.maximum(given - shift, 0.0)
    return positive


def normal_reach(confidence: float) -> float:
    """How many standard errors a two-sided normal interval of this confidence reaches."""
    if not isinstance(confidence, int | float) or not 0 < confidence < 1:
        raise RecipeError(f"confidence must lie between 0 and 1, got {str(confidence)[:40]!r}")
    return NormalDist().inv_cdf((1 + confidence) / 2)
