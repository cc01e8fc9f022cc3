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
from sfumato.core.law import Law, Norm
from sfumato.sql.aggregates import Key
from sfumato.sql.laws import Held
from sfumato.sql.plan import (
    AnyNoise,
    Noise,
    QueryPlan,
    add_laplace,
    calibrate_noise,
    half_width,
    show_short,
)

GAIN = 3.1
"""By which factor less noise must be expected before a part of epsilon is spent on choosing a bound."""

JOINED = 2**8
"""The most records of an individual that enter a join of several tables that state no bound."""

UNSEEN = -1
"""What stands for the share that is cut where noise hides everybody."""

_SHARE = Fraction(1, 5)
_MOST_UNSEEN = 1000  # a choice that needs more individuals than this to see anything gains nothing
_FINEST = 2**10  # of what one record adds at most, the smallest part that is a bound
_STRAY = 1e-3
_SUCH = (1, 8)  # records of an individual, as examples of what a bound may be
_MOST_RECORDS = 2**16  # of an individual, among which bounds are looked for
_ONE_SIDE = 1.645  # standard deviations that noise exceeds on one side with 5 %
_BIAS = 4.0  # what is cut makes answers too small, in all draws alike, so that it weighs more than noise
_DOUBT = 0.25  # what may be cut makes intervals wider
_NOBODY = 0.05
_NO_NOISE = 0.25


def find_obstacle(measures: tuple[Measure, ...], keys: tuple[Key, ...], unit: PrivacyUnit) -> str | None:
    """Why the measures of a statement are not held to a norm; None if they can be.

    All must be sums over records, or need no bound on records.
    """
    if unit.column is None:
        return "every row is an individual"
    if any(key.is_open for key in keys):
        return "groups that are not public are chosen among those of bounded records"
    if any(each.private is not None for each in measures):
        return "bounds on values are chosen from bounded records"
    added = [each.statistic in ADDED for each in measures]
    heads = [each.statistic == "individuals" and not keys for each in measures]
    if not any(added) or not all(map(max, added, heads)):
        return "not all that is asked is a sum over records"
    return None


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
    measures: tuple[Measure, ...],
    unit: PrivacyUnit,
    *,
    epsilon: Fraction,
    delta: Fraction,
    groups: int,
    levels: int = 1,
) -> tuple[tuple[AnyNoise, ...], tuple[Noise, ...]]:
    """The noise of measures that are held to a norm, in steps, and of counts by which bounds are chosen."""
    added = [each for each in measures if each.statistic in ADDED]
    share = epsilon * _SHARE * len(added) / len(measures)
    # A clip costs the same whatever it is, and whichever measure it is of.
    held = {replace(each, clip=Clip("L1", LARGEST)) if each in added else each: each for each in measures}
    noises = calibrate_noise(tuple(held), unit, groups, epsilon=epsilon - share, delta=delta, levels=levels)
    norm: Norm = "L2" if any(noise.is_normal for noise in noises) else "L1"
    tallies = tuple(
        add_laplace(replace(each, clip=Clip(norm)), unit, 1, share / len(added)) for each in added
    )
    return tuple(replace(noise, measure=held[noise.measure]) for noise in noises), tallies


def hold_noises(noises: tuple[AnyNoise, ...], clips: tuple[Held, ...]) -> tuple[AnyNoise, ...]:
    """The noises of clipped measures, told as of measures without a clip once the clips are known."""
    places = iter(clips)

    def hold_one(noise: Noise) -> Noise:
        held = next(places)
        scale = read_scale(noise.measure, held.place, noise.scale)
        times = max(1.0, NORMS[held.top] / NORMS[held.place])
        return replace(noise, scale=scale, beyond=held.beyond, times=times)

    return tuple(
        hold_one(noise) if isinstance(noise, Noise) and noise.measure.statistic in ADDED else noise
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
    noisy_counts: NDArray[np.int64], tally: Noise, *, noise: Noise, groups: int, most: int
) -> Held:
    """The bound that loses least, what is cut and noise together, and what it may leave out.

    Where nobody is seen, the bound is that of one record. `most` records bound what noise may hide.
    """
    from sfumato.inference.people import find_people, fit_tail  # not needed by statements without clips

    unit, law = tally.measure.largest, Law(tally.kind, tally.scale)
    edges = np.array(NORMS, float)
    below = np.concatenate([[0.0], edges[:-1]])
    record, first, last, end = (
        int(np.searchsorted(NORMS, min(NORMS[-1], max(1, each))))
        for each in (unit, unit // _FINEST, _MOST_RECORDS * unit, most * unit)
    )
    counts = np.zeros(len(NORMS))
    counts[first : last + 1] = find_people(noisy_counts[first : last + 1], law)
    seen = np.flatnonzero(counts)
    top = max(record, int(seen[-1])) if seen.size else record
    # Where more are seen than was stated, that bounds nothing.
    end = min(end, last) if top <= end else last
    # Discrete noise of less vanishes in 99 of 100 draws.
    doubt = _ONE_SIDE * (tally.deviation if tally.deviation > _NO_NOISE else 0.0)
    cut = np.maximum(edges - edges[:, None], 0)  # of one individual in each interval, by each bound
    # Whatever the tail is like, noise hides no more people than this, with 95 %.
    possible = np.where(np.arange(len(NORMS)) <= end, cut, 0)
    hidden = np.maximum(0, possible @ noisy_counts)
    hidden += doubt * np.sqrt((possible**2).sum(axis=1))
    if not seen.size:
        return Held(record, UNSEEN, math.ceil(hidden[record]), end, 0)
    likely, largest, reach = counts.copy(), top, hidden
    looked = slice(first, end + 1)
    # Numbers of records are whole: n stands for what lies between n and n + 1.
    whole = unit if tally.measure.statistic in ("records", "present") else 0
    spans = np.diff(np.log(np.maximum(1, np.append(below[looked], edges[end]) + whole)))
    fit = fit_tail(noisy_counts[looked], law, last=top - first, spans=spans, weights=cut[top][looked])
    if fit is not None:
        place, *found = fit
        tail = np.zeros((2, len(NORMS)))
        tail[:, looked] = found
        above = np.arange(len(NORMS)) > top
        likely[above] = np.minimum(tail[0], np.maximum(noisy_counts, 0) + doubt)[above]
        greatest = np.where(np.arange(len(NORMS)) >= first + place, np.maximum(tail[1], counts), counts)
        # Where fewer than one in twenty is expected nobody is, with 95 %.
        there = np.cumsum(greatest[::-1])[::-1] >= _NOBODY
        largest = int(np.flatnonzero(there)[-1])
        missed = np.where(there, cut, 0)
        reach = np.minimum(missed @ greatest + _ONE_SIDE * np.sqrt(missed**2 @ greatest), hidden)
    # Of those between two norms the middle is taken; small whole numbers are known.
    middle = np.where(edges - below <= 1, edges, (below + edges) / 2)
    lost = np.maximum(middle - edges[:, None], 0) @ likely
    # What is cut may be of one group or of all, and most groups may be empty: nobody knows which, so the
    # noise of so many of them weighs as lies between.
    total = float(likely @ middle)
    losses = _BIAS * lost + math.sqrt(groups) * noise.deviation / LARGEST * edges
    losses += _DOUBT * np.minimum(reach, total)
    chosen = int(first + np.argmin(losses[first : last + 1]))
    if reach[chosen] >= hidden[chosen]:
        largest = end
    return Held(
        chosen,
        round(1000 * lost[chosen] / total),
        math.ceil(reach[chosen]),
        max(chosen, largest),
        math.ceil(hidden[chosen] - reach[chosen]),
    )


def count_most(plan: QueryPlan) -> int:
    """The most records of an individual by public facts, or among which bounds are looked for."""
    return plan.unit.max_records if plan.entering is None or plan.relation.joined else _MOST_RECORDS


def note_clip(measure: Measure, held: Held) -> str:
    """What a bound that was chosen leaves out of an answer, in words.

    >>> note_clip(Measure(statistic="records"), Held(NORMS.index(8), 130, 0, 9, 0))
    'at most 8 records of an individual counted, chosen privately: about 13 % of all lay beyond, noisily'
    """
    cut = held.cut
    most = NORMS[held.place] / measure.grid
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
    if cut == UNSEEN:
        told = ": noise hides everybody here, so that most may lie beyond"
    if held.hidden:
        more = held.hidden / measure.grid
        told += (
            f"; intervals expect ever fewer with more: if noise hides others, {more:,.4g} more may be missing"
        )
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


def explain_cutting(plan: QueryPlan) -> list[str]:
    """What EXPLAIN says where clipping people would gain by public facts, and records are cut."""
    unit, measures = plan.unit, tuple(noise.measure for noise in plan.noises)
    if unit.column is None or plan.relation.individuals or expected_gain(unit.max_records) < GAIN:
        return []
    why = find_obstacle(measures, plan.keys, unit) or (
        "groups of an individual are stated, an error is (WITHIN), or noise would hide 1,000 individuals"
    )
    return [f"               people are not clipped to a norm instead: {why}"]


def explain_noise(noise: Noise) -> tuple[str, str]:
    """The noise of a measure whose bound is still to be chosen, and how wide it is if few records suit."""
    times = float(noise.scale) / LARGEST
    width = half_width(noise) / LARGEST
    one = width * noise.measure.largest / noise.measure.grid
    told = " and ".join(f"+-{one * records:.4g} if {records}" for records in _SUCH)
    return (
        f"discrete {noise.kind} noise, scale {times:.4g} times the norm, 95 % within +-{width:.4g} times",
        f"that is {told} records of an individual at their largest suit most people",
    )
