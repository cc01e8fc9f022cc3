"""Sensitivities of measures, and the noise that covers them: docs/proofs/sql.md has the derivations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from sfumato.accounting import Cost, discrete_gaussian_sigma, histogram_sensitivity, selection_threshold
from sfumato.exact import round_up
from sfumato.measurement import LARGEST_SCALE
from sfumato.sql.check import refuse
from sfumato.sql.modes import mode_scale

if TYPE_CHECKING:
    from sfumato.schema.unit import PrivacyUnit
    from sfumato.sql.aggregates import Measure
    from sfumato.sql.keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How one measure is answered: by noise of a scale, or by exponential choices, one for each cost.

    The scale of a quantile is the epsilon of its choices; that of a mode is in records: a label that
    leads by so many weighs e times as much.
    """

    measure: Measure
    kind: Literal["laplace", "gaussian", "exponential"]
    scale: Fraction
    costs: tuple[Cost, ...]

    def to_record(self) -> dict[str, Any]:
        """The noise as a plain record."""
        return {"measure": self.measure.describe(), "kind": self.kind, "scale": self.scale}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Groups that are in the records only: kept if enough individuals are in them, after noise."""

    scale: Fraction
    threshold: int
    cost: Cost


def plan_selection(
    unit: PrivacyUnit,
    keys: tuple[Key, ...],
    groups: int,
    epsilon: Fraction,
    delta: Fraction,
    reserve: Fraction,
    *,
    parts: int,
) -> tuple[Selection | None, Fraction, Fraction]:
    """The selection of open groups, and the epsilon and delta that are left for the measures."""
    open_keys = [key for key in keys if key.is_open]
    if not open_keys:
        return None, epsilon, delta
    name = open_keys[0].node.sql()
    if delta == 0 or reserve == 0:
        raise refuse(
            f"GROUP BY {name}: its groups are not public, so they are chosen privately, which needs delta "
            "(DP-SELECT 0.5 DELTA 1e-9 ..., and delta in [budget]); or declare its values in the project file"
        )
    share = epsilon / (parts + 1)
    sensitivity = histogram_sensitivity(contribution=Fraction(groups), norm="L1", neighbours=unit.neighbours)
    # A hundredth of the ledger's reserve at most, so that a hundred such statements fit.
    chance = min(delta / 2, reserve / 100)
    scale = sensitivity / share
    cost = Cost(
        kind="selection",
        scale=scale,
        sensitivity=sensitivity,
        neighbours=unit.neighbours,
        unit=unit.column or "row",
        delta=chance,
    )
    threshold = selection_threshold(scale=scale, sensitivity=sensitivity, delta=chance)
    return Selection(scale=scale, threshold=threshold, cost=cost), epsilon - share, delta - chance


def calibrate_noise(
    measures: tuple[Measure, ...],
    unit: PrivacyUnit,
    groups: int,
    *,
    epsilon: Fraction,
    delta: Fraction,
) -> tuple[Noise, ...]:
    """The noise of every measure: epsilon shared equally, or Gaussian for all where that is smaller."""
    share = epsilon / len(measures)
    facts = {"neighbours": unit.neighbours, "unit": unit.column or "row"}
    noises = []
    for measure in measures:
        if measure.labels is not None:
            noises.append(_mode_noise(measure, share, unit, facts))
            continue
        if measure.statistic == "quantile":
            noises.append(_quantile_noise(measure, share, facts))
            continue
        first = _sensitivity(measure, unit, groups, norm="L1")
        cost = Cost(kind="laplace", scale=first / share, sensitivity=first, **facts)  # type: ignore[arg-type]
        noise = Noise(measure=measure, kind="laplace", scale=cost.scale, costs=(cost,))
        if delta > 0 and not any(each.statistic == "quantile" for each in measures):
            second = _sensitivity(measure, unit, groups, norm="L2")
            sigma = round_up(
                discrete_gaussian_sigma(
                    epsilon=epsilon, delta=delta, sensitivity=second, count=len(measures)
                ),
                places=6,
            )
            if float(sigma) < math.sqrt(2) * float(noise.scale):
                cost = Cost(kind="gaussian", scale=sigma, sensitivity=second, **facts)  # type: ignore[arg-type]
                noise = Noise(measure=measure, kind="gaussian", scale=sigma, costs=(cost,))
        if noise.scale > LARGEST_SCALE:
            raise refuse("the noise would be beyond 2^50, more than any answer; spend more epsilon")
        noises.append(noise)
    kinds = {noise.kind for noise in noises}
    if len(kinds) > 1 and "gaussian" in kinds:
        # Each Gaussian was calibrated as one of many; beside Laplace noise that would not add up.
        return calibrate_noise(measures, unit, groups, epsilon=epsilon, delta=Fraction(0))
    return tuple(noises)


def _mode_noise(measure: Measure, share: Fraction, unit: PrivacyUnit, facts: dict[str, Any]) -> Noise:
    cost = Cost(kind="exponential", scale=share / measure.chosen, **facts)
    scale = mode_scale(unit, cost.scale)
    return Noise(measure=measure, kind="exponential", scale=scale, costs=(cost,) * measure.chosen)


def _quantile_noise(measure: Measure, share: Fraction, facts: dict[str, Any]) -> Noise:
    # Three fifths for the answer, a fifth for each end of its interval. The interval of MIN and MAX goes from
    # the answer to the bound and needs no choice of its own.
    parts = (share,) if measure.quantile in (0, 1) else (share * 3 / 5, share / 5, share / 5)
    costs = tuple(Cost(kind="exponential", scale=part, **facts) for part in parts)
    return Noise(measure=measure, kind="exponential", scale=share, costs=costs)


def _sensitivity(measure: Measure, unit: PrivacyUnit, groups: int, *, norm: Literal["L1", "L2"]) -> Fraction:
    """The most that neighbouring tables differ in `measure`, over all groups, in units of 1 / grid."""
    if measure.statistic == "individuals":
        contribution = Fraction(groups)
        if norm == "L2":
            contribution = round_up(math.sqrt(groups) * (1 + 1e-15), places=9)
    else:
        contribution = Fraction(unit.max_records * measure.largest)
    return histogram_sensitivity(
        contribution=contribution, norm=norm, neighbours=unit.neighbours, signed=measure.is_signed
    )
