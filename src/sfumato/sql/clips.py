"""Clipping people and not records: when a plan holds individuals to a norm, and which bound is chosen.

Where people may have many records, noise is that of max_records times what a record adds, although almost
nobody adds so much. In place of cutting records, what an individual adds to each measure is then held to a
norm, whose bound is chosen from noisy counts of individuals by that norm: an individual counts once there,
however many records it has. Proof: docs/proofs/sql.md, section 3a.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.measures import ADDED, LARGEST, NORMS, Clip, Measure
from sfumato.core.facts.table import PrivacyUnit
from sfumato.core.law import Norm
from sfumato.sql.aggregates import Key
from sfumato.sql.plan import (
    AnyNoise,
    Noise,
    QueryPlan,
    add_laplace,
    calibrate_noise,
    half_width,
    normal_width,
    show_short,
)

GAIN = 3.1
"""By which factor less noise must be expected before a part of epsilon is spent on choosing a bound."""

JOINED = 2**8
"""The most records of an individual that enter a join of several tables that state no bound."""

_SHARE = Fraction(1, 5)
_MOST_UNSEEN = 1000  # a choice that needs more individuals than this to see anything gains nothing
_FINEST = 2**10  # of what one record adds at most, the smallest part that is a bound
_STRAY = 1e-3
_MOST_RECORDS = 2**16  # of an individual, among which bounds are looked for
_ABOVE = 2  # intervals above the last in which people are seen
_BIAS = 4.0  # what is cut lies outside of intervals, so that it weighs more than noise


def can_clip(measures: tuple[Measure, ...], keys: tuple[Key, ...], unit: PrivacyUnit) -> bool:
    """Whether all measures of a statement are sums over records, or need no bound on records.

    Groups that are not public are chosen among those that records have, and bounds on values that are to be
    chosen need bounded records first.
    """
    plain = all(
        (each.statistic in ADDED and each.private is None) or (each.statistic == "individuals" and not keys)
        for each in measures
    )
    added = any(each.statistic in ADDED for each in measures)
    return plain and added and unit.column is not None and not any(key.is_open for key in keys)


def expected_gain(most: int) -> float:
    """How many times less noise a chosen bound is expected to need than `most` records.

    By public facts alone: the bound that suits people is taken for as likely between 1 and 2 records as
    between 50 and 100, and choosing it takes its share of epsilon.

    >>> round(expected_gain(4), 1), round(expected_gain(200), 1)
    (1.5, 4.3)
    """
    suits = 1.0 if most == 1 else (most - 1) / math.log(most)
    return most * float(1 - _SHARE) / suits


def calibrate_clips(
    measures: tuple[Measure, ...], unit: PrivacyUnit, *, epsilon: Fraction, delta: Fraction, groups: int
) -> tuple[tuple[AnyNoise, ...], tuple[Noise, ...]]:
    """The noise of measures that are held to a norm, in steps, and of counts by which bounds are chosen."""
    added = [each for each in measures if each.statistic in ADDED]
    share = epsilon * _SHARE * len(added) / len(measures)
    # A clip costs the same whatever it is, and whichever measure it is of.
    held = {replace(each, clip=Clip("L1", LARGEST)) if each in added else each: each for each in measures}
    noises = calibrate_noise(tuple(held), unit, groups, epsilon=epsilon - share, delta=delta)
    norm: Norm = "L2" if any(noise.is_normal for noise in noises) else "L1"
    tallies = tuple(
        add_laplace(replace(each, clip=Clip(norm)), unit, 1, share / len(added)) for each in added
    )
    return tuple(replace(noise, measure=held[noise.measure]) for noise in noises), tallies


def hold_noises(noises: tuple[AnyNoise, ...], clips: tuple[tuple[int, int], ...]) -> tuple[AnyNoise, ...]:
    """The noises of clipped measures, told as of measures without a clip once the clips are known."""
    places = iter(clips)
    return tuple(
        replace(noise, scale=read_scale(noise.measure, next(places)[0], noise.scale))
        if isinstance(noise, Noise) and noise.measure.statistic in ADDED
        else noise
        for noise in noises
    )


def is_worth_its_epsilon(tallies: tuple[Noise, ...], unit: PrivacyUnit) -> bool:
    """Whether bounds that are chosen so gain over cutting records, by public facts."""
    seen = all(half_width(each, _STRAY) <= _MOST_UNSEEN for each in tallies)
    return seen and expected_gain(unit.max_records) >= GAIN


def hold(measure: Measure, norm: Norm, place: int) -> Measure:
    """The measure with a clip of so many steps whatever was chosen: steps are as long as that asks for."""
    grid = max(1, LARGEST * measure.grid // NORMS[place])
    return replace(measure, grid=grid, clip=Clip(norm, LARGEST))


def read_scale(measure: Measure, place: int, scale: Fraction) -> Fraction:
    """The scale of the noise of a clipped measure, told as of one without; half a unit is for rounding."""
    return scale * measure.grid / hold(measure, "L1", place).grid + Fraction(1, 2)


def read_values(measure: Measure, place: int, noisy_values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Noisy values of a clipped measure as of one without."""
    told: NDArray[np.int64] = np.rint(noisy_values * (measure.grid / hold(measure, "L1", place).grid))
    return told.astype(np.int64)


def choose_clip(
    noisy_counts: NDArray[np.int64], tally: Noise, *, noise: Noise, groups: int
) -> tuple[int, int]:
    """The place of the bound that loses least, what is cut and noise together, and how much is cut.

    The latter in thousandths of all that individuals add, as far as noise tells. Where nobody is seen, the
    bound is that of one record.
    """
    record = int(np.searchsorted(NORMS, tally.measure.largest))
    first = int(np.searchsorted(NORMS, max(1, tally.measure.largest // _FINEST)))
    last = min(
        len(NORMS), int(np.searchsorted(NORMS, min(NORMS[-1], _MOST_RECORDS * tally.measure.largest))) + 1
    )
    counts = np.zeros(len(NORMS))
    noisy = noisy_counts.astype(float)
    _find_people(noisy, counts, first, last, tally)
    if counts.any():
        # The few who are just above all that is seen for certain would be cut without a word.
        top = int(np.flatnonzero(counts)[-1]) + 1
        counts[top : min(top + _ABOVE, last)] = np.maximum(noisy[top : min(top + _ABOVE, last)], 0)
    # Of those between two norms the middle is taken; small whole numbers are known.
    edges = np.array(NORMS, float)
    below = np.concatenate([[0.0], edges[:-1]])
    middle = np.where(edges - below <= 1, edges, (below + edges) / 2)
    relative = groups * noise.deviation / LARGEST
    cut = np.array([(counts * np.maximum(middle - bound, 0)).sum() for bound in edges])
    losses = _BIAS * cut + relative * edges
    place = int(first + np.argmin(losses[first:last])) if counts.any() else record
    whole = float((counts * middle).sum())
    return place, round(1000 * cut[place] / whole) if whole else 0


def _find_people(
    noisy: NDArray[np.float64], counts: NDArray[np.float64], first: int, last: int, tally: Noise
) -> None:
    """Writes into `counts` where individuals are between `first` and `last`, by halves as noise allows."""
    width, total = last - first, float(noisy[first:last].sum())
    # One threshold for the sums of all sizes that may be looked at.
    share = _STRAY / (2 * len(NORMS))
    reach = (
        half_width(tally, share) if width == 1 else normal_width(share) * tally.deviation * math.sqrt(width)
    )
    if width < 1 or total <= reach:
        return
    if width > 1:
        middle = (first + last) // 2
        _find_people(noisy, counts, first, middle, tally)
        _find_people(noisy, counts, middle, last, tally)
    if not counts[first:last].any():
        counts[(first + last - 1) // 2] = total


def note_clip(measure: Measure, place: int, cut: int) -> str:
    """What a bound that was chosen leaves out of an answer, in words.

    >>> note_clip(Measure(statistic="records"), NORMS.index(8), 130)
    'at most 8 records of an individual counted, chosen privately: about 13 % of all lay beyond, noisily'
    """
    most = NORMS[place] / measure.grid
    if measure.tree is None:
        name = f"{most:g} {'record' if most == 1 else 'records'}"
    else:
        columns = ", ".join(dict.fromkeys(each.name for each in measure.tree.find_all(exp.Column)))[:60]
        if measure.statistic == "present":
            name = f"{most:g} records with {columns}"
        else:
            beyond = f" beyond {float(measure.centre):g} each" if measure.centre else ""
            name = f"{most:.4g} in the {measure.statistic} of {columns}{beyond}"
    told = f": about {cut / 10:g} % of all lay beyond, noisily" if cut else ""
    return f"at most {name} of an individual counted, chosen privately{told}"


def explain_clips(plan: QueryPlan) -> list[str]:
    """What EXPLAIN says of bounding: that people are clipped and not records, and why."""
    first = plan.tallies[0]
    lines = [
        "  bounding     no record is cut: what an individual adds to each measure, in all groups together,",
        f"               is held to an {first.measure.clip.norm if first.measure.clip else ''} norm, chosen "
        "first from a noisy count of individuals by that norm:",
        f"               laplace noise, scale {show_short(first.scale)}, epsilon "
        f"{show_short(first.costs[0].epsilon or Fraction(0))} for each measure",
    ]
    if plan.entering is None:
        most = plan.unit.max_records
        lines.append(
            f"               expected to need about {expected_gain(most):.1f} times less noise than cutting "
            f"at {most} records, if people have anything from 1 to {most}"
        )
    elif plan.relation.joined:
        lines.append(f"               at most {plan.entering} records of an individual enter a join")
    return lines


def explain_noise(noise: Noise) -> str:
    """The noise of a measure whose bound is still to be chosen."""
    times = float(noise.scale) / LARGEST
    width = half_width(noise) / LARGEST
    return f"discrete {noise.kind} noise, scale {times:.4g} times the norm, 95 % within +-{width:.4g} times"
