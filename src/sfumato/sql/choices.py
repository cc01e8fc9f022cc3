"""The scores by which quantiles and labels are chosen, and what a chosen candidate stands for.

The curator hands these functions exact histograms and draws from the scores; nothing else in this room
is given an exact value. docs/proofs/choice.md bounds how far one individual moves a score.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core.algebra.measures import CELLS
from sfumato.sql.plan import MISS, Noise, QueryPlan, find_aggregate_numbers

_CANDIDATES = CELLS + 3
_LAST = _CANDIDATES - 1
# Offsets from the answer at which blocks begin; the last block reaches beyond every candidate.
_STARTS = np.array([0, *(2**power for power in range(_LAST.bit_length()))])
_ENDS = np.array([*(_STARTS[1:] - 1), 2 ** _LAST.bit_length() - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One choice: how far from the target rank it aims, and the rate of the exponential mechanism."""

    shift: int
    rate: Fraction
    side: Literal["answer", "low", "high"] = "answer"


def quantile_ranks(noise: Noise, plan: QueryPlan) -> tuple[Ranks, ...]:
    """The choices of a quantile: the answer, then a block of cells below it and one above it.

    Only an end on the side where the true quantile lies can miss it, and does so with a probability of at
    most exp(-rate * shift) / (1 + exp(-rate * shift)). The ends aim far enough for that to be 5 %; less if
    an output is made of several aggregates, whose intervals must hold at once.

    MIN and MAX take one choice. It aims so far inside that it lies beyond the extreme with 5 % at most; on
    the other side one record more could lie anywhere, so the interval goes to the bound.
    """
    share, unit = noise.measure.quantile or Fraction(0), plan.unit
    largest = max(share.numerator, share.denominator - share.numerator)
    sensitivity = Fraction(unit.max_records * largest * (2 if unit.neighbours == "replace" else 1))
    rates = [cost.scale / (2 * sensitivity) for cost in noise.costs]
    odds = _count_parts(noise, plan) / MISS - 1
    if share in (0, 1):
        edge = math.ceil(math.log(_CANDIDATES * odds) / float(rates[0]))
        return (Ranks(shift=edge if share == 0 else -edge, rate=rates[0]),)
    answer, low, high = rates
    reach = math.ceil(math.log(odds) / float(low))
    return (
        Ranks(shift=0, rate=answer),
        Ranks(shift=-reach, rate=low, side="low"),
        Ranks(shift=reach, rate=high, side="high"),
    )


def answer_reach(noise: Noise, plan: QueryPlan) -> int:
    """The number of ranks that a quantile is wrong by at most, in 95 of 100 answers.

    A choice misses the best score by more than t with probability at most (candidates) * exp(-rate * t), and
    the best score is 0: some cell holds the target rank. MIN and MAX aim inside on purpose.
    """
    ranks = quantile_ranks(noise, plan)[0]
    far = math.log(_CANDIDATES / MISS) / float(ranks.rate) + abs(ranks.shift)
    return math.ceil(far / (noise.measure.quantile or Fraction(0)).denominator)


def quantile_scores(
    true_histogram: NDArray[np.int64], noise: Noise, ranks: Ranks, answers: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The score of every candidate for every group; those of an end lie next to the chosen `answers`."""
    share = noise.measure.quantile or Fraction(0)
    total = true_histogram.sum(axis=1, keepdims=True)
    upto = np.cumsum(true_histogram, axis=1)
    far = np.full_like(total, 2**60)
    first = np.hstack([-far, share.denominator * (upto - true_histogram), share.denominator * total])
    last = np.hstack([np.zeros_like(total), share.denominator * upto, far])
    if answers is not None:
        lower, upper = _blocks(answers, ranks)
        first, last = np.take_along_axis(first, lower, axis=1), np.take_along_axis(last, upper, axis=1)
    target = share.numerator * total + ranks.shift
    scores: NDArray[np.int64] = -np.maximum(0, np.maximum(first - target, target - last))
    if answers is not None:
        return np.repeat(scores, _ENDS - _STARTS + 1, axis=1)
    return scores


def choose_step(
    places: NDArray[np.int64], ranks: Ranks, answers: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The cell that a chosen candidate stands for: of a block of cells the outermost."""
    if answers is None:
        return places
    outermost = _ENDS[np.searchsorted(_ENDS, places)]
    steps: NDArray[np.int64] = answers - outermost if ranks.side == "low" else answers + outermost
    return np.clip(steps, 0, _LAST)


def cell_edges(
    chosen: NDArray[np.int64], low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The interval that each chosen candidate stands for."""
    width = (high - low) / CELLS
    lower = np.clip(low + (chosen - 1) * width, low, high)
    upper = np.clip(low + chosen * width, low, high)
    upper = np.where(chosen == 0, low, upper)
    return lower, upper


def label_counts(true_histogram: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
    """The exact counts of every label, for every group: what the labels are scored by."""
    return true_histogram[:, : len(noise.measure.labels or ())]


def take_out(values: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every row without the entry at its place.

    >>> take_out(np.array([[1, 2, 3], [4, 5, 6]]), np.array([0, 2])).tolist()
    [[2, 3], [4, 5]]
    """
    rows, width = values.shape
    kept = np.ones((rows, width), np.bool_)
    kept[np.arange(rows), places] = False
    return values[kept].reshape(rows, width - 1)


def _count_parts(noise: Noise, plan: QueryPlan) -> int:
    """The most aggregates that one output is made of together with the measure of `noise`."""
    parts = 1
    for output in plan.outputs:
        used = set(find_aggregate_numbers(output.tree))
        if any(noise.measure in plan.aggregates[number].measures for number in used):
            parts = max(parts, len(used))
    return parts


def _blocks(answers: NDArray[np.int64], ranks: Ranks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last cell of every block beside the answers; beyond a bound it is the bound."""
    if ranks.side == "low":
        lower, upper = answers[:, None] - _ENDS, answers[:, None] - _STARTS
    else:
        lower, upper = answers[:, None] + _STARTS, answers[:, None] + _ENDS
    return np.clip(lower, 0, _LAST), np.clip(upper, 0, _LAST)
