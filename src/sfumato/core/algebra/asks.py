"""What a statement asks: measures of groups, each with its noise or its choices, and what that costs.

Whoever asks says by which noise, or at which rate of a choice, each measure is answered; the core adds the
sensitivity that it derived and gets the cost. A planner that is wrong about a sensitivity asks for what its
charge does not pay, and nothing is read. The door draws, on the exact
vectors and scores that are made here. Proof: docs/proofs/sql.md, sections 3 to 6, and docs/proofs/choice.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from sfumato.core.algebra.measures import Checked, Measure, Query, bound_measure
from sfumato.core.cost.cost import Cost, CostKind
from sfumato.core.cost.curves import histogram_sensitivity, selection_threshold
from sfumato.core.errors import refuse
from sfumato.core.facts.table import PrivacyUnit
from sfumato.core.law import SHAPES, Kind

GROWTH = 4
"""A window around an answer has about 1 / GROWTH more steps than the next smaller one."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Noised:
    """Noise on the value of every group; of a histogram, on the counts of all labels."""

    kind: Kind
    scale: Fraction


@dataclass(frozen=True, slots=True)
class Levelled:
    """Noise on sums over groups: each level holds the numbers of the keys that are not added up."""

    kind: Kind
    scale: Fraction
    levels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Divided:
    """Noise on counts of the steps between bounds: for each width, of intervals of so many steps."""

    kind: Kind
    scale: Fraction
    widths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labels by exponential choices, the more frequent the likelier; each is taken out before the next."""

    rate: Fraction
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A choice by permute-and-flip, at a rate: of a step, so far from the target rank.

    With a number of the `nearest` records it is one of the windows around the first answer
    (`list_windows`), the smallest that holds so many.
    """

    rate: Fraction
    shift: int = 0
    nearest: int = 0


@dataclass(frozen=True, slots=True)
class Ranked:
    """Steps of a quantile by one choice after the other: the answer, then how far a window reaches.

    With a `scale` the number of records is told, too, with Laplace noise.
    """

    ranks: tuple[Rank, ...]
    scale: Fraction | None = None


Drawn = Noised | Levelled | Divided | Labelled | Ranked
"""How one measure is answered."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Groups are kept whose number of individuals, with Laplace noise of `scale`, reaches the threshold.

    One that a single individual is in is kept with a probability of at most `delta`.
    """

    scale: Fraction
    threshold: int
    delta: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """A query, how each of its measures is answered, and which groups are kept if they are not public."""

    query: Query
    drawn: tuple[Drawn, ...]
    kept: Kept | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class NoisyGroups:
    """Noisy values per measure and group, with the keys of groups that were kept.

    For a quantile the chosen steps (answer, low end, high end), for labels their codes; of several levels all
    values, one level after the other.
    """

    values: tuple[NDArray[Any], ...]
    keys: tuple[tuple[Any, ...], ...] | None = None


def list_costs(checked: Checked, asked: Aggregation) -> tuple[Cost, ...]:
    """Return every cost of answering a query so, in the order in which the answers are drawn.

    Privacy: sensitivities are those of `bound_measure`, and of ranks and counts that choices look at.
    """
    kept, groups = asked.kept, checked.most_groups
    if (kept is not None) != checked.is_open:
        raise refuse("groups that are not public are chosen privately, and no others are")
    for each in asked.drawn:
        if isinstance(each, Levelled):
            keys = set(range(0 if checked.is_open else len(checked.query.groups)))
            if not all(set(level) <= keys and len(set(level)) == len(level) for level in each.levels):
                raise refuse("sums over groups by keys that are no public ones")
    first = () if kept is None else (cost_selection(checked.unit, groups, kept),)
    pairs = zip(checked.query.measures, asked.drawn, strict=True)
    return (
        *first,
        *(cost for each, drawn in pairs for cost in cost_measure(each, drawn, checked.unit, groups)),
    )


def cost_measure(measure: Measure, drawn: Drawn, unit: PrivacyUnit, groups: int) -> tuple[Cost, ...]:
    """Return every cost of answering a measure so, for rows of a unit that is in at most so many groups."""
    whom: dict[str, Any] = {"neighbours": unit.neighbours, "unit": unit.name}
    if isinstance(drawn, Labelled | Ranked):
        if measure.statistic != "quantile" or isinstance(drawn, Labelled) != (measure.labels is not None):
            raise refuse("a choice among what is no histogram of labels, or of steps")
        costs = []
        if isinstance(drawn, Labelled):
            if not 0 < drawn.times <= len(measure.labels or ()):
                raise refuse("more labels than there are")
            costs = [drawn.rate * score_range(measure, unit)] * drawn.times
        else:
            share = measure.quantile or Fraction(0)
            # Beyond this a score could leave 64 bits, and would move by more than is charged.
            farthest = max((max(abs(each.shift), each.nearest) for each in drawn.ranks), default=0)
            if share.denominator > 2**30 or farthest > 2**59:
                raise refuse("a rank that cannot be counted to; spend more epsilon, or ask for another share")
            near = [each.nearest > 0 for each in drawn.ranks]
            if any(near[:1]):
                raise refuse("a window around no answer")
            ranges = [score_range(measure, unit, near=each) for each in near]
            costs = [each.rate * moved for each, moved in zip(drawn.ranks, ranges, strict=True)]
        kind: CostKind = "exponential" if isinstance(drawn, Labelled) else "permute-and-flip"
        found = [Cost(kind=kind, scale=scale, **whom) for scale in costs]
        if isinstance(drawn, Ranked) and drawn.scale is not None:
            moved = Fraction(count_moved(unit))
            found.append(Cost(kind="laplace", scale=drawn.scale, sensitivity=moved, **whom))
        return tuple(found)
    times = _count_vectors(measure, drawn)
    sensitivity = bound_measure(measure, unit, groups, norm=SHAPES[drawn.kind].norm)
    return (Cost(kind=drawn.kind, scale=drawn.scale, sensitivity=sensitivity, **whom),) * times


def score_range(measure: Measure, unit: PrivacyUnit, *, near: bool = False) -> int:
    """Return the epsilon of a choice at rate 1: twice the most that a score moves, for labels that most.

    A rank moves by the larger part of the share, a number of records, of a label or `near` an answer, by 1,
    for every row that comes or goes; those of labels all move to the same side.
    """
    moved = count_moved(unit)
    if measure.labels is not None:
        return moved
    share = measure.quantile or Fraction(0)
    most = 1 if near else max(share.numerator, share.denominator - share.numerator)
    return 2 * moved * most


def count_moved(unit: PrivacyUnit) -> int:
    """Return how many rows of an individual come or go between neighbours, over all groups."""
    return unit.max_records * (2 if unit.neighbours == "replace" else 1)


def _count_vectors(measure: Measure, drawn: Noised | Levelled | Divided) -> int:
    """Return the number of vectors that get noise, none of which moves by more than the measure does."""
    is_steps = measure.statistic == "quantile" and measure.labels is None
    is_norms = measure.clip is not None and measure.clip.bound is None
    match drawn:
        case Noised() if not is_steps:
            return 1
        case Levelled() if is_norms or measure.statistic in ("individuals", "records per individual"):
            raise refuse("numbers of individuals do not add up over groups")
        case Levelled() if measure.clip is not None and measure.clip.norm == "L2":
            raise refuse("sums over groups of what is held to an L2 norm, which they may exceed")
        case Levelled(levels=levels) if measure.statistic != "quantile":
            return len(levels)
        case Divided(widths=widths) if is_steps and all(1 <= width <= measure.steps for width in widths):
            return len(widths)
    raise refuse("noise on what is not added up so")


def cost_selection(unit: PrivacyUnit, groups: int, kept: Kept) -> Cost:
    """Return what choosing groups so costs, where an individual is in at most so many of them."""
    if kept.threshold < selection_threshold(scale=kept.scale, sensitivity=groups, delta=kept.delta):
        raise refuse("groups that are kept with fewer individuals than delta allows")
    return Cost(
        kind="selection",
        scale=kept.scale,
        sensitivity=histogram_sensitivity(
            contribution=Fraction(groups), norm="L1", neighbours=unit.neighbours
        ),
        delta=kept.delta,
        neighbours=unit.neighbours,
        unit=unit.name,
    )


def list_vectors(
    asked: Aggregation, measure: Measure, drawn: Noised | Levelled | Divided, true_values: Counts
) -> list[Counts]:
    """Return the exact vectors that noise is added to for a measure, one for each of its costs."""
    match drawn:
        case Noised():
            return [true_values if measure.labels is None else true_values[:, : len(measure.labels)]]
        case Levelled(levels=levels):
            return sum_levels(true_values, [group.size or 1 for group in asked.query.groups], levels)
        case Divided(widths=widths):
            return count_intervals(true_values, widths)
    assert_never(drawn)


def sum_levels(true_values: Counts, sizes: Sequence[int], levels: Sequence[tuple[int, ...]]) -> list[Counts]:
    """Return exact values of all keys together, which have so many labels, added up to each level.

    >>> sum_levels(np.array([2**62, 2**62, 1]), [3], [(), (0,)])[0].tolist() == [2**62]
    True
    """
    table = true_values.reshape(sizes)
    left = [tuple(key for key in range(len(sizes)) if key not in level) for level in levels]
    return [_add_saturating(table, axes).reshape(-1) for axes in left]


def _add_saturating(values: Counts, axes: tuple[int, ...]) -> Counts:
    """Return exact sums over axes, held to 2^62: a sum that wraps would tell of one individual for sure.

    The halves of 2^24 numbers of 64 bits add up without wrapping, where the numbers may not.
    """
    low = np.asarray((values & 0xFFFFFFFF).sum(axis=axes))
    high = np.asarray((values >> 32).sum(axis=axes)) + (low >> 32)
    exact = (np.clip(high, -(2**30), 2**30 - 1) << 32) + (low & 0xFFFFFFFF)
    return np.where(high >= 2**30, 2**62, np.where(high < -(2**30), -(2**62), exact)).astype(np.int64)


def count_intervals(true_histogram: Counts, widths: tuple[int, ...]) -> list[Counts]:
    """Return exact counts of intervals of each width; the upper bound is in the last. Rows are groups."""
    cells = true_histogram[:, :-1].copy()
    cells[:, -1] += true_histogram[:, -1]
    return [np.add.reduceat(cells, np.arange(0, cells.shape[1], width), axis=1) for width in widths]


def take_out(values: Counts, places: Counts) -> Counts:
    """Return every row without the entry at its place.

    >>> take_out(np.array([[1, 2, 3], [4, 5, 6]]), np.array([0, 2])).tolist()
    [[2, 3], [4, 5]]
    """
    rows, width = values.shape
    kept = np.ones((rows, width), np.bool_)
    kept[np.arange(rows), places] = False
    return values[kept].reshape(rows, width - 1)


@cache
def list_windows(steps: int) -> Counts:
    """Return how many steps every window reaches to both sides of an answer, until beyond all candidates."""
    ends = [0]
    while ends[-1] <= steps + 1:
        ends.append(ends[-1] - (-(ends[-1] + 1) // GROWTH))
    return np.array(ends)


def score_steps(
    true_histogram: Counts, measure: Measure, rank: Rank, answers: Counts | None = None
) -> Counts:
    """Return how deep the target lies in what each candidate covers, or minus how far it is from that.

    A step covers the ranks of its records; a window around one of the `answers` the numbers of records above
    that of the next smaller window, up to its own.
    """
    total = true_histogram.sum(axis=1, keepdims=True)
    upto = np.cumsum(true_histogram, axis=1)
    far = np.full_like(total, 2**60)
    if answers is not None:
        ends = list_windows(measure.steps)
        inside = np.hstack([np.zeros_like(total), upto, total])
        above = np.minimum(answers[:, None] + ends, measure.steps + 2)
        below = np.maximum(answers[:, None] - ends - 1, 0)
        held = np.take_along_axis(inside, above, axis=1) - np.take_along_axis(inside, below, axis=1)
        first, last = np.hstack([np.zeros_like(total), held[:, :-1]]), np.hstack([held[:, :-1], far])
        return np.asarray(np.minimum(rank.nearest - first, last - rank.nearest))
    share = measure.quantile or Fraction(0)
    first = np.hstack([-far, share.denominator * (upto - true_histogram), share.denominator * total])
    last = np.hstack([np.zeros_like(total), share.denominator * upto, far])
    target = share.numerator * total + rank.shift
    return np.asarray(np.minimum(target - first, last - target))
