"""What a plan asks of the core: every measure with its noise or its choices, and what is chosen before.

A statement with bounds that are chosen is asked in steps, and each step looks at the noisy answers before it.
What all of them cost is known, and charged, before the first one (docs/proofs/sql.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.asks import (
    Aggregation,
    Divided,
    Drawn,
    Kept,
    Levelled,
    Noised,
    NoisyGroups,
)
from sfumato.core.algebra.measures import ADDED, CAPS, Measure
from sfumato.core.facts.table import PrivacyUnit
from sfumato.sql.aggregates import measure_magnitudes
from sfumato.sql.clips import choose_clip, count_most, hold, read_values
from sfumato.sql.magnitudes import INTERVALS, bounds_around, choose_cap, choose_interval
from sfumato.sql.plan import (
    AnyNoise,
    Noise,
    NoisyAggregates,
    PrivateChoice,
    QueryPlan,
    add_laplace,
    list_levels,
    stray_threshold,
)


def ask_plan(plan: QueryPlan) -> Aggregation:
    """What the core is asked for a plan whose bounds are known."""
    chosen = plan.selection
    return Aggregation(
        query=plan.query,
        drawn=tuple(_draw(noise, plan) for noise in plan.noises),
        kept=None if chosen is None else Kept(chosen.scale, chosen.threshold, chosen.cost.delta),
    )


def _draw(noise: AnyNoise, plan: QueryPlan) -> Drawn:
    if isinstance(noise, PrivateChoice):
        return noise.drawn
    if noise.measure.parts:
        return Divided(noise.kind, noise.scale, list_levels())
    if plan.sets is not None:
        return Levelled(noise.kind, noise.scale, plan.sets.levels)
    return Noised(noise.kind, noise.scale)


def list_asks(
    plan: QueryPlan, *, bind: Callable[..., QueryPlan] | None
) -> Generator[Aggregation, NoisyGroups, NoisyAggregates]:
    """Yields what a plan asks, is sent the noisy answer to each, and returns the answer to the plan.

    A number of records and bounds are asked for first if they are to be chosen; `bind` gives the plan with
    those that were.

    Privacy: adaptive composition. The costs of all steps are those of `plan`, which are charged, whatever is
    chosen; docs/proofs/sql.md.
    """
    bound, cap = plan, None
    bounds: tuple[tuple[int, int], ...] = ()
    if plan.tallies:
        return (yield from _list_clipped(plan))
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


def _list_clipped(
    plan: QueryPlan,
) -> Generator[Aggregation, NoisyGroups, NoisyAggregates]:
    """The same for a plan that holds individuals to norms: first who adds how much, then the measures."""
    counted = (yield ask_plan(plan.tallied_plan)).values
    added = [noise for noise in plan.added if noise.measure.statistic in ADDED]
    clips = {
        noise.measure: choose_clip(counts, tally, noise=noise, groups=plan.groups, most=count_most(plan))
        for counts, tally, noise in zip(counted, plan.tallies, added, strict=True)
    }
    norm = plan.tallies[0].measure.clip
    assert norm is not None
    held = tuple(
        replace(each, measure=hold(each.measure, norm.norm, clips[each.measure][0]))
        if each.measure in clips
        else each
        for each in plan.noises
    )
    noisy = yield ask_plan(replace(plan, noises=held))
    values = tuple(
        read_values(each.measure, clips[each.measure][0], found) if each.measure in clips else found
        for each, found in zip(plan.noises, noisy.values, strict=True)
    )
    return NoisyAggregates(values=values, clips=tuple(clips.values()))


def read_bounds(plan: QueryPlan, bounds: tuple[tuple[int, int], ...]) -> dict[str, tuple[Fraction, Fraction]]:
    """The bounds that were chosen, by the text of their operand."""
    pairs = zip(plan.unbounded, bounds, strict=True)
    return {operand.sql(dialect="duckdb"): bounds_around(*chosen) for operand, chosen in pairs}


def plan_choices(
    operands: Sequence[exp.Expr], unit: PrivacyUnit, epsilon: Fraction, *, parts: int
) -> tuple[tuple[Noise, ...], Fraction]:
    """The histograms from which bounds are chosen, and the epsilon that is left for the measures.

    Each takes one of `parts` equal shares.
    """
    share = epsilon / parts
    noises = tuple(add_laplace(measure_magnitudes(each), unit, 1, share) for each in operands)
    return noises, epsilon - share * len(noises)


def plan_tally(unit: PrivacyUnit, epsilon: Fraction, *, parts: int) -> tuple[Noise | None, Fraction]:
    """How individuals are counted by their records, if `unit` has no bound, and the epsilon that is left.

    It takes one of `parts` equal shares. An individual counts once, whatever its records are.
    """
    if not unit.private_records:
        return None, epsilon
    share = epsilon / parts
    return add_laplace(Measure(statistic="records per individual"), unit, 1, share), epsilon - share


def choose_records(noisy_counts: NDArray[np.int64], plan: QueryPlan) -> int:
    """The bound on the records of an individual that `plan` is measured with."""
    assert plan.tally is not None
    threshold = stray_threshold(plan.tally, len(CAPS))
    # What one more record allows in noise, in records: in every group, for the first measure.
    first = plan.noises[0]
    noise = plan.groups * first.law[1] / first.measure.largest
    return choose_cap(noisy_counts, threshold, noise=noise)


def choose_bounds(noisy_counts: NDArray[np.int64], noise: Noise) -> tuple[int, int]:
    """The first and the last interval of magnitudes that holds more than noise."""
    return choose_interval(noisy_counts.reshape(-1), stray_threshold(noise, INTERVALS))
