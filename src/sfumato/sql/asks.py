"""What a plan asks of the core: every measure with its noise or its choices, and what is chosen before.

A statement with bounds that are chosen is asked in steps, and each step looks at the noisy answers before it.
What all of them cost is known, and charged, before the first one (docs/proofs/sql.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.asks import (
    CANDIDATES,
    Asked,
    Divided,
    Drawn,
    Kept,
    Levelled,
    Noised,
    NoisyGroups,
    Picked,
    Rank,
    Ranked,
)
from sfumato.core.algebra.measures import CAPS, Measure
from sfumato.core.facts.table import PrivacyUnit
from sfumato.sql.aggregates import measure_magnitudes
from sfumato.sql.magnitudes import INTERVALS, bounds_around, choose_cap, choose_interval
from sfumato.sql.plan import (
    MISS,
    Noise,
    NoisyAggregates,
    QueryPlan,
    find_aggregate_numbers,
    histogram_cost,
    stray_threshold,
)
from sfumato.sql.quantiles import list_levels


def ask_plan(plan: QueryPlan) -> Asked:
    """What the core is asked for a plan whose bounds are known."""
    chosen = plan.selection
    return Asked(
        query=plan.query,
        drawn=tuple(_draw(noise, plan) for noise in plan.noises),
        kept=None if chosen is None else Kept(chosen.scale, chosen.threshold, chosen.cost.delta),
    )


def _draw(noise: Noise, plan: QueryPlan) -> Drawn:
    if noise.kind == "exponential":
        if noise.measure.labels is not None:
            return Picked(1 / noise.scale, len(noise.costs))
        return Ranked(quantile_ranks(noise, plan))
    if noise.measure.parts:
        return Divided(noise.kind, noise.scale, list_levels())
    if plan.sets is not None:
        return Levelled(noise.kind, noise.scale, plan.sets.levels)
    return Noised(noise.kind, noise.scale)


def list_asks(
    plan: QueryPlan, *, bind: Callable[..., QueryPlan] | None
) -> Generator[Asked, NoisyGroups, NoisyAggregates]:
    """Yields what a plan asks, is sent the noisy answer to each, and returns the answer to the plan.

    A number of records and bounds are asked for first if they are to be chosen; `bind` gives the plan with
    those that were.

    Privacy: adaptive composition. The costs of all steps are those of `plan`, which are charged, whatever is
    chosen; docs/proofs/sql.md.
    """
    bound, cap = plan, None
    bounds: tuple[tuple[int, int], ...] = ()
    if plan.tally is not None:
        assert bind is not None
        (counts,) = (yield ask_plan(plan.tally_plan)).values
        cap = choose_records(counts, plan)
        bound = bind(cap=cap)
    if bound.choices:
        assert bind is not None
        pairs = zip((yield ask_plan(bound.choice_plan)).values, bound.choices, strict=True)
        bounds = tuple(choose_bounds(values, noise) for values, noise in pairs)
        bound = bind(chosen=read_bounds(plan, bounds), cap=cap)
    noisy = yield ask_plan(bound)
    return NoisyAggregates(values=noisy.values, keys=noisy.keys, bounds=bounds, cap=cap)


def read_bounds(plan: QueryPlan, bounds: tuple[tuple[int, int], ...]) -> dict[str, tuple[Fraction, Fraction]]:
    """The bounds that were chosen, by the text of their operand."""
    pairs = zip(plan.unbounded, bounds, strict=True)
    return {operand.sql(dialect="duckdb"): bounds_around(*chosen) for operand, chosen in pairs}


def quantile_ranks(noise: Noise, plan: QueryPlan) -> tuple[Rank, ...]:
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
        edge = math.ceil(math.log(CANDIDATES * odds) / float(rates[0]))
        return (Rank(shift=edge if share == 0 else -edge, rate=rates[0]),)
    answer, low, high = rates
    reach = math.ceil(math.log(odds) / float(low))
    return (
        Rank(shift=0, rate=answer),
        Rank(shift=-reach, rate=low, side="low"),
        Rank(shift=reach, rate=high, side="high"),
    )


def answer_reach(noise: Noise, plan: QueryPlan) -> int:
    """The number of ranks that a quantile is wrong by at most, in 95 of 100 answers.

    A choice misses the best score by more than t with probability at most (candidates) * exp(-rate * t), and
    the best score is 0: some cell holds the target rank. MIN and MAX aim inside on purpose.
    """
    ranks = quantile_ranks(noise, plan)[0]
    far = math.log(CANDIDATES / MISS) / float(ranks.rate) + abs(ranks.shift)
    return math.ceil(far / (noise.measure.quantile or Fraction(0)).denominator)


def _count_parts(noise: Noise, plan: QueryPlan) -> int:
    """The most aggregates that one output is made of together with the measure of `noise`."""
    parts = 1
    for output in plan.outputs:
        used = set(find_aggregate_numbers(output.tree))
        if any(noise.measure in plan.aggregates[number].measures for number in used):
            parts = max(parts, len(used))
    return parts


def plan_choices(
    operands: Sequence[exp.Expr], unit: PrivacyUnit, epsilon: Fraction, *, parts: int
) -> tuple[tuple[Noise, ...], Fraction]:
    """The histograms from which bounds are chosen, and the epsilon that is left for the measures.

    Each takes one of `parts` equal shares.
    """
    share = epsilon / parts
    cost = histogram_cost(unit, unit.max_records, share)
    noises = tuple(
        Noise(measure=measure_magnitudes(each), kind="laplace", scale=cost.scale, costs=(cost,))
        for each in operands
    )
    return noises, epsilon - share * len(noises)


def plan_tally(unit: PrivacyUnit, epsilon: Fraction, *, parts: int) -> tuple[Noise | None, Fraction]:
    """How individuals are counted by their records, if `unit` has no bound, and the epsilon that is left.

    It takes one of `parts` equal shares. An individual counts once, whatever its records are.
    """
    if not unit.private_records:
        return None, epsilon
    share = epsilon / parts
    cost = histogram_cost(unit, 1, share)
    measure = Measure(statistic="records per individual")
    return Noise(measure=measure, kind="laplace", scale=cost.scale, costs=(cost,)), epsilon - share


def choose_records(noisy_counts: NDArray[np.int64], plan: QueryPlan) -> int:
    """The bound on the records of an individual that `plan` is measured with."""
    assert plan.tally is not None
    threshold = stray_threshold(plan.tally, len(CAPS))
    # What one more record allows in noise, in records: in every group, for the first measure.
    noise = plan.groups * plan.noises[0].scale / plan.noises[0].measure.largest
    return choose_cap(noisy_counts, threshold, noise=noise)


def choose_bounds(noisy_counts: NDArray[np.int64], noise: Noise) -> tuple[int, int]:
    """The first and the last interval of magnitudes that holds more than noise."""
    return choose_interval(noisy_counts.reshape(-1), stray_threshold(noise, INTERVALS))
