"""What may be asked of a table and what comes back: a request, and its noisy measurement.

Both are public. A request says which marginal and which noise; its cost follows from the table's
description alone. A measurement is the request with the noisy values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from sfumato.accounting import Cost, histogram_sensitivity
from sfumato.errors import RecipeError
from sfumato.exact import parse_positive

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.schema import Table

__all__ = ["LARGEST_SCALE", "Measurement", "NoiseKind", "Request", "request_cost", "request_sensitivity"]

NoiseKind = Literal["laplace", "gaussian"]

LARGEST_SCALE = 2**50


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A marginal to be counted and the noise to be added to each of its cells.

    `scale` is in units of 1 / grid of the table: the scale of Laplace noise or the standard deviation
    of Gaussian noise.
    """

    name: str
    columns: tuple[str, ...]
    noise: NoiseKind
    scale: Fraction

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            message = f"request {self.name!r} needs at least one column and none twice"
            raise RecipeError(message)
        if self.noise not in ("laplace", "gaussian"):
            message = f"request {self.name!r}: unknown noise {self.noise!r}"
            raise RecipeError(message)
        if parse_positive(self.scale, name=f"the noise scale of {self.name!r}") > LARGEST_SCALE:
            message = f"{self.name!r} needs noise beyond 2^50, more than any count; spend more epsilon"
            raise RecipeError(message)

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
            return 1.959964 * float(self.scale)
        return math.log(20) * float(self.scale)

    def to_record(self) -> dict[str, Any]:
        """The request as a plain record."""
        return {
            "name": self.name,
            "columns": list(self.columns),
            "noise": self.noise,
            "scale": self.scale,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """A request and its noisy values, one whole number per cell, in units of 1 / grid."""

    request: Request
    noisy_values: NDArray[np.int64]
    grid: int = 1


def request_sensitivity(table: Table, request: Request) -> Fraction:
    """The most that the counts of neighbouring tables differ, in the norm that the noise needs.

    Laplace noise needs the L1 norm, Gaussian noise L2. One individual adds at most
    `table.contribution` to the cells of a marginal, in both norms (all of it may fall into one cell).
    """
    return histogram_sensitivity(
        contribution=Fraction(table.contribution),
        norm="L1" if request.noise == "laplace" else "L2",
        neighbours=table.unit.neighbours,
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
