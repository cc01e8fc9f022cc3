"""Intervals for what a model answers, from the measurements of the release and not from the model.

A model is fitted, so nothing is known about the error of a single answer of it. A measurement is: exact
counts plus noise of a known law. So the interval is that of the measurement which tells most about the
question, stretched to hold the model's answer where that lies outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.exact import NORMAL_95

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.measurement import NoiseKind

_STEPS = 60

Ends = tuple["NDArray[np.float64]", "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Noisy counts of every cell that a question looks at, in records.

    The noise of a cell has the standard deviation `deviation`, in steps of `step`; the noises of cells
    are independent.
    """

    name: str
    values: NDArray[np.float64]
    deviation: float
    step: float
    noise: NoiseKind

    @property
    def reach(self) -> float:
        """How far a cell's noise reaches to one side, with 97.5 %; that of a sum of n, sqrt(n) times.

        A sum of Laplace noises has lighter tails than one of them. Half a step is added because the
        noise is discrete.
        """
        far = math.log(20) / math.sqrt(2) if self.noise == "laplace" else NORMAL_95
        return far * self.deviation + self.step / 2


def enclose_sum(evidence: Evidence, lows: Ends, highs: Ends) -> Ends:
    """The 95 % interval of a sum over cells whose weights lie between low and high ones.

    Of each, in groups: the weighted sum of the evidence, and the sum of squared weights. The sum is at
    least that of the exact counts with low weights and at most that with high ones.
    """
    return lows[0] - evidence.reach * np.sqrt(lows[1]), highs[0] + evidence.reach * np.sqrt(highs[1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Moments:
    """Sums over groups of cells: weight times evidence, evidence, weights, their squares, and ones."""

    weighted: NDArray[np.float64]
    count: NDArray[np.float64]
    weights: NDArray[np.float64]
    squares: NDArray[np.float64]
    cells: NDArray[np.float64]

    def speak_above(self, ratio: NDArray[np.float64], reach: float) -> NDArray[np.bool_]:
        """Whether the evidence for an average above `ratio` is more than noise."""
        squares = np.maximum(self.squares - 2 * ratio * self.weights + ratio**2 * self.cells, 0)
        above: NDArray[np.bool_] = self.weighted - ratio * self.count > reach * np.sqrt(squares)
        return above


def least_average(moments: Moments, reach: float, ends: Ends) -> NDArray[np.float64]:
    """The least average between `ends`, per group, that the evidence does not speak against.

    An average r is spoken against if the evidence for the sum of (weight - r) is further above zero than
    noise reaches. The exact average is not, with 97.5 % (Fieller's argument), also where few records or
    none are behind it.
    """
    outside, inside = ends
    refused = moments.speak_above(outside, reach)
    for _ in range(_STEPS):
        middle = (outside + inside) / 2
        against = moments.speak_above(middle, reach)
        outside, inside = np.where(against, middle, outside), np.where(against, inside, middle)
    return np.where(refused, outside, ends[0])
