"""Private quantiles: which ranks the exponential mechanism aims at, and how cells are scored.

Between the public bounds lie CELLS + 1 cells; one more candidate stands for the lower bound itself and one
for the upper. A cell with L records below it and h inside covers the ranks from d L to d (L + h), for the
quantile k/d; the bounds cover all ranks below 0 and above d n. The score of a candidate is minus the
distance of the wanted rank k n + shift from what it covers. One record moves a score by at most
max(k, d - k), an individual with r records in the group by r times that, and over all groups r adds up to
max_records at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.sql.calibrate import Noise
from sfumato.sql.plan import CELLS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.unit import PrivacyUnit

__all__ = ["Ranks", "cell_edges", "quantile_ranks", "quantile_scores"]

_MISS = 0.025
_CANDIDATES = CELLS + 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One choice: how far from the wanted rank it aims, and the rate of the exponential mechanism."""

    shift: int
    rate: Fraction


def quantile_ranks(noise: Noise, unit: PrivacyUnit) -> tuple[Ranks, Ranks, Ranks]:
    """The three choices of a quantile: the answer, then a cell below it and one above it.

    The mechanism misses its aim by more than ln(candidates / p) / rate with probability p at most. The
    ends aim that far off, so that each lies on its side of the true quantile with 97.5 %.
    """
    share = noise.measure.quantile or Fraction(0)
    largest = max(share.numerator, share.denominator - share.numerator)
    sensitivity = Fraction(unit.max_records * largest * (2 if unit.neighbours == "replace" else 1))
    answer, low, high = (cost.scale / (2 * sensitivity) for cost in noise.costs)
    edge = 0
    if share in (0, 1):
        # Aimed at the extreme itself, half of all misses would be at the bound; aim inside.
        edge = math.ceil(math.log(_CANDIDATES) / float(answer))
        edge = edge if share == 0 else -edge
    reach = math.ceil(math.log(_CANDIDATES / _MISS) / float(low))
    return Ranks(shift=edge, rate=answer), Ranks(shift=-reach, rate=low), Ranks(shift=reach, rate=high)


def quantile_scores(true_histogram: NDArray[np.int64], noise: Noise, ranks: Ranks) -> NDArray[np.int64]:
    """The score of every candidate, for every group."""
    share = noise.measure.quantile or Fraction(0)
    total = true_histogram.sum(axis=1, keepdims=True)
    upto = np.cumsum(true_histogram, axis=1)
    far = np.full_like(total, 2**60)
    first = np.hstack([-far, share.denominator * (upto - true_histogram), share.denominator * total])
    last = np.hstack([np.zeros_like(total), share.denominator * upto, far])
    wanted = share.numerator * total + ranks.shift
    scores: NDArray[np.int64] = -np.maximum(0, np.maximum(first - wanted, wanted - last))
    return scores


def cell_edges(
    chosen: NDArray[np.int64], low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The interval that each chosen candidate stands for."""
    width = (high - low) / CELLS
    lower = np.clip(low + (chosen - 1) * width, low, high)
    upper = np.clip(low + chosen * width, low, high)
    upper = np.where(chosen == 0, low, upper)
    return lower, upper
