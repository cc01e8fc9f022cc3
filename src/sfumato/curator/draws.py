"""Noise and choices for the exact aggregates of a statement, drawn under its charge.

Part of the curator: what the door calls with the exact values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.algebra.asks import Drawn, Kept, Noised, Picked
from sfumato.core.errors import refuse
from sfumato.sql.choices import choose_step, label_counts, quantile_ranks, quantile_scores, take_out
from sfumato.sql.chosen import choose_bounds, choose_records
from sfumato.sql.magnitudes import bounds_around
from sfumato.sql.plan import NoisyAggregates, QueryPlan
from sfumato.sql.quantiles import count_levels
from sfumato.sql.rollups import sum_levels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.core.engine.aggregates import TrueAggregates
    from sfumato.core.noise.samplers import NoiseSource
    from sfumato.sql.plan import Noise

    _Choose = Callable[..., NDArray[np.int64]]


def draw_noisy(
    plan: QueryPlan, true_aggregates: TrueAggregates, noise_source: NoiseSource
) -> NoisyAggregates:
    """Noise on every measure of the groups that are answered. The caller has charged `plan.costs`."""
    add, choose = noise_source.add_noise, noise_source.exponential_choice
    true_values, keys = true_aggregates.true_values, None
    if plan.selection is not None and true_aggregates.true_individuals is not None:
        people = add(true_aggregates.true_individuals, kind="laplace", scale=plan.selection.scale)
        kept = np.flatnonzero(people >= plan.selection.threshold)
        true_keys = true_aggregates.true_keys or ()
        kept = np.array(
            sorted(kept.tolist(), key=lambda row: [str(part) for part in true_keys[row]]), np.int64
        )
        keys = tuple(true_keys[row] for row in kept)
        true_values = tuple(values[kept] for values in true_values)
    noisy = []
    for noise, values in zip(plan.noises, true_values, strict=True):
        if noise.kind != "exponential":
            levels = _list_levels(values, noise, plan)
            # Each draw has its cost: a plan that adds up more levels than it pays for gets no answer.
            pairs = zip(levels, noise.costs, strict=True)
            drawn = [add(each, kind=noise.kind, scale=noise.scale) for each, _ in pairs]
            if noise.measure.parts:
                noisy.append(np.hstack(drawn).T)
            else:
                noisy.append(drawn[0] if len(drawn) == 1 else np.concatenate(drawn))
        elif noise.measure.labels is not None:
            noisy.append(choose_labels(label_counts(values, noise), noise, choose))
        else:
            steps: list[NDArray[np.int64]] = []
            for ranks in quantile_ranks(noise, plan):
                answers = steps[0] if steps else None
                places = choose(quantile_scores(values, noise, ranks, answers), rate=ranks.rate)
                steps.append(choose_step(places, ranks, answers))
            noisy.append(np.stack(steps))
    return NoisyAggregates(values=tuple(noisy), keys=keys)


def list_draws(plan: QueryPlan) -> tuple[tuple[Drawn, ...], Kept | None]:
    """How the measures of a plan are answered: by these noises and rates, and which groups are kept."""
    drawn: list[Drawn] = []
    for noise in plan.noises:
        if plan.sets is not None and noise.measure.statistic == "individuals":
            raise refuse("numbers of individuals do not add up over groups")
        if noise.kind != "exponential":
            drawn.append(Noised(noise.kind, noise.scale, len(noise.costs)))
        elif noise.measure.labels is not None:
            drawn.append(Picked((1 / noise.scale,) * len(noise.costs)))
        else:
            drawn.append(Picked(tuple(ranks.rate for ranks in quantile_ranks(noise, plan))))
    chosen = plan.selection
    kept = None if chosen is None else Kept(chosen.scale, chosen.threshold, chosen.cost.delta)
    return tuple(drawn), kept


def _list_levels(true_values: NDArray[np.int64], noise: Noise, plan: QueryPlan) -> list[NDArray[np.int64]]:
    """The exact vectors that noise is added to for a measure: one for each of its costs."""
    if noise.measure.parts:
        return count_levels(true_values)
    if noise.measure.is_histogram:
        return [label_counts(true_values, noise)]
    return [true_values] if plan.sets is None else sum_levels(true_values, plan.sets)


def choose_labels(true_counts: NDArray[np.int64], noise: Noise, choose: _Choose) -> NDArray[np.int64]:
    """For every group the codes of the chosen labels: each is taken out before the next is chosen."""
    groups = np.arange(len(true_counts))
    codes = np.broadcast_to(np.arange(true_counts.shape[1]), true_counts.shape)
    chosen = []
    for _ in noise.costs:
        places = choose(true_counts, rate=1 / noise.scale)
        chosen.append(codes[groups, places])
        true_counts, codes = take_out(true_counts, places), take_out(codes, places)
    return np.stack(chosen)


def list_steps(
    plan: QueryPlan, *, bind: Callable[..., QueryPlan] | None
) -> Generator[QueryPlan, NoisyAggregates, NoisyAggregates]:
    """Yields what a plan measures, is sent the noisy answer to each, and returns the answer to the plan.

    A number of records and bounds are measured first if they are to be chosen; `bind` gives the plan with
    those that were.

    Privacy: adaptive composition. The costs of all steps are those of `plan`, which are charged, whatever is
    chosen; docs/proofs/sql.md.
    """
    if not (plan.choices or plan.tally):
        return (yield plan)
    assert bind is not None
    bound, cap = plan, None
    bounds: tuple[tuple[int, int], ...] = ()
    if plan.tally is not None:
        (counts,) = (yield plan.tally_plan).values
        cap = choose_records(counts, plan)
        bound = bind(cap=cap)
    if bound.choices:
        pairs = zip((yield bound.choice_plan).values, bound.choices, strict=True)
        bounds = tuple(choose_bounds(values, noise) for values, noise in pairs)
        bound = bind(chosen=read_bounds(plan, bounds), cap=cap)
    return replace((yield replace(bound, choices=(), tally=None)), bounds=bounds, cap=cap)


def read_bounds(plan: QueryPlan, bounds: tuple[tuple[int, int], ...]) -> dict[str, tuple[Fraction, Fraction]]:
    """The bounds that were chosen, by the text of their operand."""
    pairs = zip(plan.unbounded, bounds, strict=True)
    return {operand.sql(dialect="duckdb"): bounds_around(*chosen) for operand, chosen in pairs}
