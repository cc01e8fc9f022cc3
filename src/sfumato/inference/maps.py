"""Maps of counts by place, period and kind: from noisy marginals to expected counts, likely maps and pies.

Every level of the map is shrunk towards the one above it (`shrinkage.py`): places, periods and kinds towards
the flat map, their pairs towards the products of these, and the cells towards what the three pairs make of
them. Where there is a guide, the counts of a public map, a level is predicted with its help if its noisy
values are then the likelier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sfumato.inference.shrinkage import Shrinkage, fit_shrinkage
from sfumato.tables.arrays import Flags, Floats, Whole

Noisy = tuple[Floats, float]
"""Noisy counts and the scale of their Laplace noise, both in records."""

AXES = (0, 1, 2)  # place, period, kind
PLACES, PERIODS, KINDS = ((each,) for each in AXES)
PLACE_PERIOD, PLACE_KIND, PERIOD_KIND, CELLS = (0, 1), (0, 2), (1, 2), AXES

DRAWS = 64  # maps of counts over which the score of a pie is averaged
_RAKES = 5  # rounds of fitting cells to the three pairs, which agree but for noise
_TINY = 1e-9  # in place of nothing, so that ratios are finite
# The score of a pie is that of docs/metrics.md, `metrics.pie` being on the other side of the wall.
_SLICES = 20  # a slice has at least a twentieth of its pie
_MISLEADING = 0.2
_BIAS, _FREE_BIAS = 0.25, 500
_CHUNK = 2**22  # numbers that are drawn at once, for memory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MapModel:
    """A fitted map: the shrinkage of every level, and what predicts it.

    `guided` holds, for the levels where the guide is trusted, the factors by which it corrects predictions.
    `expected` are the counts of the records that counted; `factor` is how many records stand behind one.
    """

    shape: tuple[int, int, int]
    total: float
    factor: float
    levels: Mapping[tuple[int, ...], Shrinkage]
    guided: Mapping[tuple[int, ...], Floats]
    margins: Mapping[tuple[int, ...], Floats]
    expected: Floats

    def draw(self, random: np.random.Generator) -> Floats:
        """Return a map as it may be, of all records: places first, then their pairs, then cells."""
        kinds, periods = self.margins[KINDS], self.margins[PERIODS]
        _, places = self.levels[PLACES].draw(self._guide(PLACES, _flat(self.shape[0], self.total)), random)
        mixes, times = (
            self.levels[pair].draw(self._guide(pair, np.outer(places, other) / self.total), random)[1]
            for pair, other in ((PLACE_KIND, kinds), (PLACE_PERIOD, periods))
        )
        seasons = self.margins[PERIOD_KIND]
        cells = mixes[:, None, :] * (seasons / seasons.sum(axis=0))
        rows = cells.sum(axis=2)
        cells *= (times / np.maximum(rows, _TINY))[:, :, None]
        counts, means = self.levels[CELLS].draw(self._guide(CELLS, np.maximum(cells, _TINY)), random)
        # Whom the bound cut off is drawn from the same law.
        return counts + random.poisson((self.factor - 1) * means) if self.factor > 1 else counts

    def _guide(self, level: tuple[int, ...], predicted: Floats) -> Floats:
        return predicted * self.guided[level] if level in self.guided else predicted


def fit_map(
    measured: Mapping[tuple[int, ...], Noisy], *, records: float | None, most: float, guide: Floats | None
) -> MapModel:
    """Return the map behind noisy counts of kinds, of all pairs of place, period and kind, and of cells.

    `records` is the noisy number of all records, of which only some counted; None if all did. No more than
    `most` stand behind one that counted.
    """
    cells = measured[CELLS]
    pairs = {
        pair: _pool(measured[pair], _add_up(cells, CELLS, pair))
        for pair in (PLACE_PERIOD, PLACE_KIND, PERIOD_KIND)
    }
    ones = {
        PLACES: _pool(
            _add_up(pairs[PLACE_KIND], PLACE_KIND, PLACES), _add_up(pairs[PLACE_PERIOD], PLACE_PERIOD, PLACES)
        ),
        PERIODS: _pool(
            _add_up(pairs[PERIOD_KIND], PERIOD_KIND, PERIODS),
            _add_up(pairs[PLACE_PERIOD], PLACE_PERIOD, PERIODS),
        ),
        KINDS: _pool(
            measured[KINDS],
            _add_up(pairs[PLACE_KIND], PLACE_KIND, KINDS),
            _add_up(pairs[PERIOD_KIND], PERIOD_KIND, KINDS),
        ),
    }
    sums = _pool(
        *((np.array(values.sum()), scale * math.sqrt(values.size)) for values, scale in ones.values())
    )
    total = max(1.0, float(sums[0]))
    shape = cells[0].shape
    assert len(shape) == 3
    fitting = _Fitting(total=total, guide=guide)
    for one in (PLACES, PERIODS, KINDS):
        fitting.add(one, ones[one], _flat(shape[one[0]], total))
    for pair in (PLACE_PERIOD, PLACE_KIND, PERIOD_KIND):
        margins = [fitting.margins[(axis,)] for axis in pair]
        fitting.add(pair, pairs[pair], np.outer(*margins) / total)
    predicted = _rake(fitting.margins)
    expected = fitting.add(CELLS, cells, predicted)
    return MapModel(
        shape=shape,
        total=total,
        factor=1.0 if records is None else min(max(1.0, records / total), most),
        levels=fitting.levels,
        guided=fitting.guided,
        margins=fitting.margins,
        expected=expected,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class _Fitting:
    """The levels fitted so far."""

    total: float
    guide: Floats | None
    levels: dict[tuple[int, ...], Shrinkage] = field(default_factory=dict)
    guided: dict[tuple[int, ...], Floats] = field(default_factory=dict)
    margins: dict[tuple[int, ...], Floats] = field(default_factory=dict)

    def add(self, level: tuple[int, ...], noisy: Noisy, predicted: Floats) -> Floats:
        """Fits a level; returns its expected counts, which add up to the total above the cells."""
        values, scale = noisy
        shrinkage = fit_shrinkage(values, predicted, scale=scale)
        if self.guide is not None:
            guide = _sum_to(self.guide, CELLS, level)
            # How far its counts are from predictions brought to its size, as if one record more agreed.
            factors = (guide + 1) / (predicted * (guide.sum() / predicted.sum()) + 1)
            other = fit_shrinkage(values, predicted * factors, scale=scale)
            if other.likelihood > shrinkage.likelihood:
                shrinkage, predicted = other, predicted * factors
                self.guided[level] = factors
        self.levels[level] = shrinkage
        expected = shrinkage.expect(predicted)
        if level != CELLS:
            expected = np.maximum(expected * (self.total / max(float(expected.sum()), _TINY)), _TINY)
            self.margins[level] = expected
        return expected


def choose_pies(model: MapModel, *, seed: int, draws: int = DRAWS) -> Whole:
    """Return for every place and period, the counts whose pie has the best expected score among likely maps.

    Candidates are no slice at all, and the one, two, ... up to twenty slices that are expected to be largest.
    The maps are drawn with a public seed.
    """
    places, periods, kinds = model.shape
    expected = (model.expected * model.factor).reshape(-1, kinds)
    random = np.random.Generator(np.random.PCG64(seed))
    likely = np.empty((draws, places * periods, kinds), np.float32)
    for each in range(draws):
        likely[each] = model.draw(random).reshape(-1, kinds)
    chosen = np.zeros((places * periods, kinds), np.int64)
    rows = max(1, _CHUNK // (draws * kinds))
    for start in range(0, places * periods, rows):
        part = slice(start, start + rows)
        chosen[part] = choose_slices(likely[:, part].astype(np.float64), expected[part].sum(axis=1))
    return chosen


def choose_slices(likely: Floats, totals: Floats) -> Whole:
    """Return the counts of rows with these `totals` that score best on average over the draws `likely`.

    >>> sure = np.array([[[6.0, 3.0, 0.0]], [[6.0, 3.0, 0.0]]])
    >>> choose_slices(sure, np.array([9.0])).tolist()
    [[6, 3, 0]]
    """
    shares, empty = _share_out(likely)
    sums = likely.sum(axis=2)
    best = _score_nothing(shares, empty, sums).mean(axis=0)
    mean = shares.mean(axis=0)
    most = min(_SLICES, mean.shape[1])
    order = np.argsort(-mean, axis=1, kind="stable")[:, :most]
    seen = np.take_along_axis(shares, np.broadcast_to(order, (*shares.shape[:2], most)), axis=2)
    sizes = np.take_along_axis(mean, order, axis=1)
    slices = np.zeros(mean.shape[0], np.int64)
    for number in range(1, most + 1):
        pie = sizes[:, :number] / np.maximum(sizes[:, :number].sum(axis=1, keepdims=True), _TINY)
        scores = _score_slices(seen[:, :, :number], pie, empty, sums - totals).mean(axis=0)
        better = (scores > best) & (pie[:, -1] * _SLICES >= 1)
        best, slices = np.where(better, scores, best), np.where(better, number, slices)
    shown = np.arange(most) < slices[:, None]
    pie = np.where(shown, sizes, 0)
    pie /= np.maximum(pie.sum(axis=1, keepdims=True), _TINY)
    whole = np.floor(pie * np.maximum(np.rint(totals), slices)[:, None] + 0.5)
    chosen = np.zeros(mean.shape, np.int64)
    np.put_along_axis(chosen, order, np.where(shown, np.maximum(whole, 1), 0).astype(np.int64), axis=1)
    return chosen


def _share_out(likely: Floats) -> tuple[Floats, Flags]:
    """Return the shares of the slices that show, and where nothing does."""
    totals = likely.sum(axis=2, keepdims=True)
    shown = np.where(likely * _SLICES >= totals, likely, 0)
    sums = shown.sum(axis=2)
    return shown / np.maximum(sums, _TINY)[:, :, None], sums == 0


def _score_nothing(shares: Floats, empty: Flags, sums: Floats) -> Floats:
    """Return the score of a row without slices, which is compared as a flat one."""
    flat = 1 / shares.shape[2]
    middle = shares + flat
    terms = shares * np.log2(2 * np.maximum(shares, _TINY) / middle) + flat * np.log2(2 * flat / middle)
    distance = np.sqrt(np.clip(terms.sum(axis=2) / 2, 0, 1))
    return np.asarray(np.where(empty, 1.0, np.clip(1 - distance - _BIAS * (sums > _FREE_BIAS), 0, 1)))


def _score_slices(seen: Floats, pie: Floats, empty: Flags, gaps: Floats) -> Floats:
    """Return score of the slices `pie`, of which the draws have the shares `seen`; `gaps` are of totals."""
    middle = np.maximum(seen + pie, _TINY)
    terms = seen * np.log2(2 * np.maximum(seen, _TINY) / middle) + pie * np.log2(
        2 * np.maximum(pie, _TINY) / middle
    )
    distance = np.sqrt(np.clip((terms.sum(axis=2) + 1 - seen.sum(axis=2)) / 2, 0, 1))
    scores = 1 - distance - _MISLEADING * (seen == 0).sum(axis=2) - _BIAS * (np.abs(gaps) > _FREE_BIAS)
    return np.asarray(np.where(empty, 0.0, np.clip(scores, 0, 1)))


def _pool(*estimates: Noisy) -> Noisy:
    """Return several noisy values of the same counts as one, each weighted by how exact it is."""
    weights = [scale**-2 for _, scale in estimates]
    values = sum(weight * values for weight, (values, _) in zip(weights, estimates, strict=True))
    return np.asarray(values / sum(weights)), sum(weights) ** -0.5


def _add_up(noisy: Noisy, level: tuple[int, ...], kept: tuple[int, ...]) -> Noisy:
    sums = _sum_to(noisy[0], level, kept)
    return sums, noisy[1] * math.sqrt(noisy[0].size / sums.size)


def _sum_to(values: Floats, level: tuple[int, ...], kept: tuple[int, ...]) -> Floats:
    return np.asarray(values.sum(axis=tuple(place for place, axis in enumerate(level) if axis not in kept)))


def _rake(margins: Mapping[tuple[int, ...], Floats]) -> Floats:
    """Return cells that have the three pairs as their sums, and nothing of their own beyond these."""
    seasons = margins[PERIOD_KIND]
    cells = margins[PLACE_KIND][:, None, :] * (seasons / seasons.sum(axis=0))
    for _ in range(_RAKES):
        for pair in (PERIOD_KIND, PLACE_PERIOD, PLACE_KIND):
            axis = next(each for each in AXES if each not in pair)
            sums = cells.sum(axis=axis)
            cells = cells * np.expand_dims(margins[pair] / np.maximum(sums, _TINY), axis)
    return np.asarray(np.maximum(cells, _TINY))


def _flat(size: int, total: float) -> Floats:
    return np.full(size, total / size)
