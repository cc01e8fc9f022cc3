"""Bounds that are chosen under the charge of a statement: what is measured for them, and what follows.

A statement with such bounds is measured in steps, and each step looks at the noisy answers before it. What
all of them cost is known, and charged, before the first one (docs/proofs/sql.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.measures import CAPS, Measure
from sfumato.core.facts.table import PrivacyUnit
from sfumato.sql.aggregates import measure_magnitudes
from sfumato.sql.magnitudes import INTERVALS, choose_cap, choose_interval
from sfumato.sql.plan import Noise, QueryPlan, histogram_cost, stray_threshold


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
