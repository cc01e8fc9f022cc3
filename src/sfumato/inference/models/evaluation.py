"""How good a model is, from noisy numbers of people it was not fitted to: figures with intervals.

Intervals hold with about 95 %, over the draw of the people and the noise together. Where the noise is as
large as what it hides, there is no figure, and a sentence says so. A pure function of noisy numbers; figures
are rounded, so that libraries that add in another order give the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sfumato.core.exact import NORMAL_95
from sfumato.tables.arrays import Floats, Whole

Record = dict[str, Any]

ENOUGH = 5.0
"""Standard deviations of its noise that a number of records must reach, before anything is said of it."""
_DIGITS = 5
_FEWEST, _MOST = 6, 64
_POINTS = 10  # of a curve, each of people enough to stand out of the noise
_SEEN = 3.0  # standard deviations of noise above which a tail is believed
_UNSEEN = 0.06  # of the people, who may be beyond what was seen
_MARGIN = 1.7  # beyond the farthest residual that was seen
_BORNE = 1.5  # of a sum of squares over the root of its number, about as much as the draw of people makes
ROWS = (0.5, 0.5, 0.6, 0.37)
"""What a record gives to a count, its first, second and fourth power; their squares add up to less than 1."""


def count_places(total: float, deviation: float) -> int:
    """Return how many places of predictions to tell apart: more people bear more, the noise fewer.

    >>> count_places(6000, 4.4), count_places(20, 40)
    (18, 6)
    """
    borne: float = max(total / deviation, 1.0) ** 0.4
    return round(min(max(borne, _FEWEST), _MOST))


def place_edges(counts: Floats, edges: Whole, *, places: int) -> Whole:
    """Return edges, of `edges`, that cut noisy counts between them into about equal places.

    >>> place_edges(np.array([1.0, 9, 0, 9, 1]), np.array([10, 20, 30, 40]), places=2).tolist()
    [20]
    """
    below = np.cumsum(counts)[:-1]
    # What is below an edge grows with it: between the least and the largest that noise leaves possible.
    below = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
    wanted = np.arange(1, places) / places * max(float(counts.sum()), 1e-9)
    return np.unique(edges[np.minimum(np.searchsorted(below, wanted), edges.size - 1)])


def place_middles(edges: Whole) -> Floats:
    """A prediction for every place: the middle of its edges; beyond the last ones, as far as these are apart.

    >>> place_middles(np.array([0, 2, 8])).tolist()
    [-2.0, 1.0, 5.0, 14.0]
    """
    if edges.size < 2:
        return np.array([float(edges[0]), float(edges[0])]) if edges.size else np.zeros(1)
    inner = (edges[1:] + edges[:-1]) / 2
    return np.concatenate(([2 * edges[0] - edges[1]], inner, [2 * edges[-1] - edges[-2]]))


def place_widths(counts: Floats, fine: Whole, edges: Whole) -> Floats:
    """Return how far apart the predictions of a place are: at most as its middle is from the next ones.

    `counts` are those between `fine` edges, of which `edges` are some: they tell of places whose predictions
    are nearly the same.

    >>> place_widths(np.array([0.0, 8, 0, 0, 4, 4, 0]), np.arange(6), np.array([3])).round(2).tolist()
    [0.0, 1.73]
    """
    apart = np.gradient(place_middles(edges)) if edges.size > 1 else np.full(edges.size + 1, np.inf)
    step = float(np.diff(fine).min())
    values = np.concatenate(([fine[0] - step / 2], (fine[1:] + fine[:-1]) / 2, [fine[-1] + step / 2]))
    places = np.searchsorted(edges, values)
    found = []
    for place, most in enumerate(apart.tolist()):
        kept, mine = counts[places == place], values[places == place]
        number = max(float(kept.sum()), 1.0)
        mean = float((kept * mine).sum()) / number
        variance = max(float((kept * (mine - mean) ** 2).sum()) / number, 0.0)
        found.append(min(math.sqrt(12 * variance), most, float(np.ptp(mine))))
    return np.array(found)


def judge_classes(
    counts: Floats,
    deviation: float,
    chances: Floats,
    widths: Floats,
    *,
    effect: float = 1.0,
    right: bool = False,
) -> Record:
    """Return figures of a classification, from noisy `counts` by place and outcome.

    `chances` is the probability that is predicted at every place, and `widths` are those of places in log
    odds. `deviation` is the standard deviation of the noise of a count, `effect` the most records of one
    individual, which may be all alike. With `right` the outcome is whether the likeliest of several classes
    was the right one, and chances are of that.
    """
    places = len(counts)
    totals = counts.sum(axis=0)
    total = float(totals.sum())
    hidden = ENOUGH * deviation * math.sqrt(places)
    found: Record = {"records": max(round(total), 0), "noise": _short(deviation)}
    if total <= hidden * math.sqrt(2):
        return {**found, "note": "too noisy to say: the noise may explain all held-out records"}
    share = float(totals[1]) / total
    correct = np.stack([chances <= 0.5, chances > 0.5], axis=1).astype(np.float64)
    if right:
        correct = np.stack([np.zeros(places), np.ones(places)], axis=1)
    found["accuracy"] = _weigh(counts, correct, deviation, effect)
    if not right:
        found["baseline"] = _short(min(max(share, 1 - share), 1.0))
        lost = -np.stack([np.log1p(-chances), np.log(chances)], axis=1)
        rounded = np.maximum(counts.sum(axis=1), 0.0) / total * chances * (1 - chances) * widths**2
        doubt = float(rounded.sum()) / 24
        found["log_loss"] = _weigh(counts, lost, deviation, effect, most=math.inf, doubt=doubt)
        if min(totals) > hidden:
            found["auroc"] = _measure_auroc(counts, deviation, widths, effect)
        else:
            found["note"] = (
                "a class has too few held-out records to be told from the noise: no AUROC, and calibration "
                "is that of the other class"
            )
    found["overall"] = _observe(counts, deviation, chances, effect)
    found["calibration"] = _calibrate(counts, deviation, chances, effect)
    return found


def _measure_auroc(counts: Floats, deviation: float, widths: Floats, effect: float) -> Record:
    """Return the area under the curve: how often a record of the class scores higher than another.

    Of two in the same place it is not known: between half of the time, and as often as log odds that differ
    evenly by the width of the place would have it.
    """
    negative, positive = counts[:, 0], counts[:, 1]
    below = np.cumsum(negative) - negative / 2
    above = positive.sum() - np.cumsum(positive) + positive / 2
    all_negative, all_positive = float(negative.sum()), float(positive.sum())
    area = float((positive * below).sum()) / (all_negative * all_positive)
    tied = np.maximum(positive, 0.0) * np.maximum(negative, 0.0) * np.minimum(widths / 12, 0.5)
    doubt = float(tied.sum()) / (all_negative * all_positive) / 2
    slopes = np.stack(
        [(above / all_positive - area) / all_negative, (below / all_negative - area) / all_positive], axis=1
    )
    products = len(counts) ** 2 / 2 * deviation**4 / (all_negative * all_positive) ** 2
    variance = _vary(counts, slopes, deviation, effect) + products
    # On the scale of log odds the interval stays within 0 and 1.
    held = min(max(area + doubt, 0.001), 0.999)
    half = (NORMAL_95 * math.sqrt(variance) + doubt) / (held * (1 - held))
    middle = math.log(held / (1 - held))
    low, high = (1 / (1 + math.exp(-(middle + side))) for side in (-half, half))
    return _interval(held, low, high)


def _weigh(
    counts: Floats, weights: Floats, deviation: float, effect: float, *, most: float = 1.0, doubt: float = 0.0
) -> Record:
    """The mean of `weights` over all records, held between 0 and `most`; it may be less by twice `doubt`."""
    total = float(counts.sum())
    mean = float((counts * weights).sum()) / total
    half = NORMAL_95 * math.sqrt(_vary(counts, (weights - mean) / total, deviation, effect)) + doubt
    mean -= doubt
    return _interval(*(min(max(each, 0.0), most) for each in (mean, mean - half, mean + half)))


def _vary(counts: Floats, slopes: Floats, deviation: float, effect: float) -> float:
    """Return variance of a function of counts with these slopes: by the draw of people, and by the noise."""
    squares = slopes**2
    drawn = float((np.maximum(counts, 0.0) * squares).sum())
    return effect * drawn + deviation**2 * float(squares.sum())


def _calibrate(counts: Floats, deviation: float, chances: Floats, effect: float) -> list[Record]:
    """Return neighbouring places together, so that the noise of each point is small, or all of them."""
    totals = np.maximum(counts.sum(axis=1), 0.0)
    least = max(ENOUGH * deviation * math.sqrt(2 * len(counts) / _POINTS), float(totals.sum()) / _POINTS)
    points: list[tuple[int, Record]] = []
    start = 0
    for stop in range(1, len(counts) + 1):
        part = slice(start, stop)
        if float(counts[part].sum()) < least and stop < len(counts):
            continue
        if stop == len(counts) and points and float(counts[part].sum()) < least / 2:
            start = points.pop()[0]
            part = slice(start, stop)
        points.append((start, _observe(counts[part], deviation, chances[part], effect)))
        start = stop
    return [each for _, each in points]


def _observe(counts: Floats, deviation: float, chances: Floats, effect: float) -> Record:
    totals = np.maximum(counts.sum(axis=1), 1e-9)
    predicted = float((totals * chances).sum() / totals.sum())
    number = max(float(counts.sum()), 1.0)
    share = min(max(float(counts[:, 1].sum()) / number, 0.0), 1.0)
    # An observed share of 0 or 1 is one of a small number of people, not of none.
    likely = (share * number + 2 * effect) / (number + 4 * effect)
    noise = deviation**2 * len(counts) * (share**2 + (1 - share) ** 2) / number**2
    half = NORMAL_95 * math.sqrt(effect * likely * (1 - likely) / number + noise)
    low, high = (min(max(share + side, 0.0), 1.0) for side in (-half, half))
    return {"predicted": _short(predicted), "observed": _interval(share, low, high), "records": round(number)}


def find_reach(counts: Floats, deviation: float, sizes: Floats, *, later: float) -> float | None:
    """Where to clip residuals: beyond what noisy counts show, as far as the noise of a sum of squares bears.

    `counts` are those up to each of `sizes`, which ascend, and one beyond all. `later` is the deviation of
    the noise that a sum of squares gets, for residuals clipped at 1. None if the counts show too little.
    """
    beyond = np.cumsum(counts[::-1])[::-1]
    noise = deviation * np.sqrt(np.arange(len(counts), 0, -1))
    seen = np.flatnonzero(beyond > _SEEN * noise)
    last = min(int(seen[-1]), len(sizes) - 1) if seen.size else 0
    if not seen.size or _SEEN * noise[last] > _UNSEEN * beyond[0]:
        return None
    squares = float((np.maximum(counts[: last + 1], 0.0) * sizes[: last + 1] ** 2).sum())
    borne = math.sqrt(_BORNE / math.sqrt(float(beyond[0])) * squares / later)
    return float(min(max(_MARGIN * sizes[last], borne), sizes[-1]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Powers:
    """Noisy sums over records of the powers 0, 1, 2 and 4 of a number, and the deviations of their noise."""

    sums: Floats
    deviations: Floats

    @property
    def means(self) -> Floats:
        """Return the means of the powers 1, 2 and 4."""
        return np.asarray(self.sums[1:] / max(float(self.sums[0]), 1.0))


def judge_numbers(residuals: Powers, around: Powers, *, effect: float = 1.0) -> Record:
    """Return figures of a model of numbers: of its `residuals`, and of the target `around` a constant.

    R2 compares the residuals with the deviations from the mean. The variances of sampling of both are theirs,
    and they vary together as the residuals alone do.
    """
    precisions = np.array([float(each.deviations[0]) ** -2 for each in (residuals, around)])
    counts = np.array([float(each.sums[0]) for each in (residuals, around)])
    total, noise = float(counts @ precisions / precisions.sum()), float(precisions.sum()) ** -0.5
    found: Record = {"records": max(round(total), 0), "noise": _short(noise)}
    if total <= ENOUGH * noise:
        return {**found, "note": "too noisy to say: the noise may explain all held-out records"}
    error, variance = (
        float(residuals.sums[2]) / total,
        float(around.sums[2]) / total - (float(around.sums[1]) / total) ** 2,
    )
    error_noise, variance_noise = (each.deviations[2] / total for each in (residuals, around))
    if error <= 3 * error_noise:
        return {**found, "note": "too noisy to say: the noise may explain all residuals"}
    spread, wide = (
        max(float(each.sums[3]) / total - float(each.sums[2] / total) ** 2, 0.0)
        for each in (residuals, around)
    )
    half = NORMAL_95 * math.sqrt(effect * spread / total + error_noise**2)
    low, high = (math.sqrt(max(error + side, 0.0)) for side in (-half, half))
    found["rmse"] = _interval(math.sqrt(error), low, high)
    if variance > 4 * variance_noise:
        ratio = error / variance
        drawn = max(spread * (1 - 2 * ratio) + ratio**2 * wide, 0.1 * (spread + ratio**2 * wide))
        noisy = error_noise**2 + ratio**2 * variance_noise**2
        half = NORMAL_95 * math.sqrt(effect * drawn / total + noisy) / variance
        found["r_squared"] = _interval(1 - ratio, 1 - ratio - half, min(1 - ratio + half, 1.0))
    else:
        found["note"] = "too noisy to say how much the target varies: no R2"
    return found


def observe_numbers(
    counts: Floats, sums: Floats, predicted: Floats, *, noise: float, sum_noise: float, variance: float
) -> Record:
    """Return the mean of the target over all, and at every place that the noise shows.

    It is what is `predicted` and the mean residual: `sums` are those of residuals, whose variance is about
    `variance`.
    """
    kept = np.maximum(counts, 0.0)
    middle = float((kept * predicted).sum() / max(float(kept.sum()), 1e-9))
    rows = [(float(counts.sum()), float(sums.sum()), middle, math.sqrt(counts.size))]
    rows += [(*each, 1.0) for each in zip(counts.tolist(), sums.tolist(), predicted.tolist(), strict=True)]
    points: list[Record | None] = []
    for number, residuals, middle, several in rows:
        if number <= ENOUGH * noise * several:
            points.append(None)
            continue
        mean = residuals / number
        noisy = several**2 * (sum_noise**2 + (mean * noise) ** 2) / number**2
        half = NORMAL_95 * math.sqrt(variance / number + noisy)
        observed = _interval(middle + mean, middle + mean - half, middle + mean + half)
        points.append({"predicted": _short(middle), "observed": observed, "records": round(number)})
    overall, *places = points
    calibration = [each for each in places if each is not None]
    return {**({} if overall is None else {"overall": overall}), "calibration": calibration}


def _interval(value: float, low: float, high: float) -> Record:
    return {"value": _short(value), "low_95": _short(low), "high_95": _short(high)}


def _short(number: float) -> float:
    return float(f"{number:.{_DIGITS - 1}e}") + 0.0
