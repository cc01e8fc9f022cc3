"""The answers of a released model by group: what the model expects, and intervals from measurements.

An interval is that of the noise in an unbiased estimate from the measurements alone; nothing in it rests on
the model. It is stretched to hold the model's answer, which is usually the better guess.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from sfumato.inference.evidence import Cells
from sfumato.release.ask.question import keep_cells
from sfumato.sql.bands import find_edge
from sfumato.sql.plan import MISS, normal_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sfumato.release.ask.measured import Source
    from sfumato.release.ask.question import Field, Output, ReleaseQuestion

    _Numbers = NDArray[np.float64]
    _Codes = NDArray[np.int64]


class Groups:
    """The cells that a question keeps, parted by its keys.

    `expected` are the model's counts of the cells of its columns, flat. With `population` intervals are about
    the population that the records are drawn from.
    """

    def __init__(
        self,
        question: ReleaseQuestion,
        sizes: Mapping[str, int],
        expected: _Numbers,
        sources: list[Source],
        *,
        population: bool = False,
    ) -> None:
        shape = tuple(sizes[name] for name in question.columns)
        kept = np.flatnonzero(np.broadcast_to(keep_cells(question, sizes), shape))
        places = np.unravel_index(kept, shape) if shape else ()
        self._question, self._sizes, self._kept = question, sizes, kept
        self._codes = dict(zip(question.columns, places, strict=True))
        self._expected = expected[kept]
        groups = np.zeros(kept.size, np.int64)
        spans = [len(key.distinct) for key in question.keys]
        for key, span in zip(question.keys, spans, strict=True):
            groups = groups * span + self._place(key)
        # Without keys there is one group, even of no cell; with them, those that have a cell.
        present = np.unique(groups) if question.keys else np.zeros(1, np.int64)
        self._inverse = np.searchsorted(present, groups)
        self.rows = present.size
        self._keys: dict[Field, _Codes] = {}
        for key, span in reversed(list(zip(question.keys, spans, strict=True))):
            present, self._keys[key] = np.divmod(present, span)
        cells = Cells(columns=question.columns, codes=self._codes, groups=self._inverse, rows=self.rows)
        self._sums = [Sums(source, cells, sizes, self._expected, population=population) for source in sources]

    def values(self, output: Output) -> _Numbers:
        """Return an output per group; a key by the place of its label."""
        if output.kind == "key" and output.field is not None:
            return self._keys[output.field].astype(np.float64)
        count = self._sum(self._expected)
        if output.kind == "count":
            return count
        lows, highs = self._weights(output)
        total = self._sum(self._expected * (lows + highs) / 2)
        if output.kind == "sum":
            return total
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def interval(self, output: Output) -> tuple[_Numbers, _Numbers]:
        """Return the ends that hold the exact value with 95 %, and the model's value in any case."""
        low, high = np.full((2, self.rows), np.nan)
        for sums in self._sums:
            missing = np.isnan(low)
            if missing.any():
                found = sums.interval(output, *self._weights(output))
                low, high = (np.where(missing, new, old) for new, old in zip(found, (low, high), strict=True))
        if output.kind == "average":
            # Also where no cell is left.
            least, most = output.range
            low, high = np.maximum(low, least), np.minimum(high, most)
        # A group without a record has no average, but its interval stands.
        values = np.where(np.isnan(low), np.nan, self.values(output))
        return np.fmin(low, values), np.fmax(high, values)

    def _weights(self, output: Output) -> tuple[_Numbers, _Numbers]:
        """Return the least and the largest that a record of each cell adds to an output."""
        if output.condition is not None:
            shape = tuple(self._sizes[name] for name in self._question.columns)
            mask = np.broadcast_to(keep_cells(self._question, self._sizes, output.condition), shape)
            ones = mask.reshape(-1)[self._kept].astype(np.float64)
            return ones, ones
        if output.field is None:
            ones = np.ones(self._kept.size)
            return ones, ones
        assert output.field.ends is not None
        codes = self._codes[output.field.column]
        lows, highs = (np.array([float(pair[end]) for pair in output.field.ends])[codes] for end in (0, 1))
        return lows, highs

    def _sum(self, values: _Numbers) -> _Numbers:
        return np.bincount(self._inverse, weights=values, minlength=self.rows).astype(np.float64)

    def _place(self, key: Field) -> _Codes:
        places = {label: place for place, label in enumerate(key.distinct)}
        return np.array([places[label] for label in key.labels], np.int64)[self._codes[key.column]]


class Sums:
    """Sums over groups of cells as one source knows them.

    Where values are joined in the source, cells are joined, too. A group that has a part of such a cell has
    no interval.
    """

    def __init__(
        self, source: Source, cells: Cells, sizes: Mapping[str, int], expected: _Numbers, *, population: bool
    ) -> None:
        self._source, self._population, self._rows = source, population, cells.rows
        self._broken = np.zeros(cells.rows, np.bool_)
        columns = cells.columns
        if source.maps:
            cells = self._join(cells, sizes)
        else:
            self._fold = np.arange(cells.groups.size)
        self._cells = cells
        self._expected = np.bincount(self._fold, weights=expected, minlength=cells.groups.size)
        shape = source.shape(columns, sizes)
        flat = np.ravel_multi_index([cells.codes[name] for name in columns], shape) if columns else 0
        self._noisy = np.broadcast_to(source.evidence.expect(columns)[flat], cells.groups.shape)

    def _join(self, cells: Cells, sizes: Mapping[str, int]) -> Cells:
        """Return cells of joined values that `cells` are parts of; groups with a part of one are broken."""
        maps, columns = self._source.maps, cells.columns
        shape = self._source.shape(columns, sizes)
        codes = [maps[name][cells.codes[name]] if name in maps else cells.codes[name] for name in columns]
        present, self._fold = np.unique(np.ravel_multi_index(codes, shape), return_inverse=True)
        joined = dict(zip(columns, np.unravel_index(present, shape), strict=True))
        groups = np.full(present.size, cells.rows, np.int64)
        np.minimum.at(groups, self._fold, cells.groups)
        members = np.ones(present.size, np.int64)
        for name in maps.keys() & joined.keys():
            members = members * np.bincount(maps[name])[joined[name]]
        divided = np.bincount(self._fold, minlength=present.size) != members
        divided[self._fold[cells.groups != groups[self._fold]]] = True
        self._broken[cells.groups[divided[self._fold]]] = True
        return Cells(columns=columns, codes=joined, groups=groups, rows=cells.rows)

    def interval(self, output: Output, lows: _Numbers, highs: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the ends that hold the exact value of an output with 95 %, whatever the model says of it.

        `lows` and `highs` are the least and the largest that a record of a cell can add.
        """
        low_weights, high_weights = (np.full(self._cells.groups.size, start) for start in (np.inf, -np.inf))
        np.minimum.at(low_weights, self._fold, lows)
        np.maximum.at(high_weights, self._fold, highs)
        if output.kind == "average":
            low, high = self._enclose_average(low_weights, high_weights)
        elif output.field is None and not self._source.has_laplace and not self._population:
            # A number of records is never below zero, which is known beforehand.
            count, deviation = self._estimate(low_weights)
            low, high = enclose_positive(count, deviation)
            step = self._source.step / 2
            low, high = np.maximum(low - step, 0), high + step
        else:
            # The sum is at least that of the exact counts with low weights, at most that with high ones.
            (below, under), (above, over) = self._estimate(low_weights), self._estimate(high_weights)
            low = below - self._width * under - self._half_step(low_weights)
            high = above + self._width * over + self._half_step(high_weights)
            low = np.maximum(low, 0) if output.field is None else low
        return np.where(self._broken, np.nan, low), np.where(self._broken, np.nan, high)

    @property
    def _width(self) -> float:
        """How many standard deviations noise reaches with 95 %; a sum of Laplace noises has lighter tails."""
        return math.log(1 / MISS) / math.sqrt(2) if self._source.has_laplace else normal_width(MISS)

    def _estimate(self, weights: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the weighted sum of every group, and the standard deviation of its noise."""
        return self._sum(weights * self._noisy), np.sqrt(np.maximum(self._spread(weights, weights), 0))

    def _spread(self, one: _Numbers, other: _Numbers) -> _Numbers:
        """The covariance of two weighted sums: of their noise, and of drawing records from a population."""
        noise = self._source.evidence.covariance(self._cells, one, other)
        return noise + self._sum(one * other * self._expected) if self._population else noise

    def _half_step(self, weights: _Numbers) -> _Numbers:
        """Return half of what one step of the noise, which is discrete, can move a sum by."""
        largest = np.zeros(self._rows)
        np.maximum.at(largest, self._cells.groups, np.abs(weights))
        return largest * self._source.step / 2

    def _enclose_average(self, lows: _Numbers, highs: _Numbers) -> tuple[_Numbers, _Numbers]:
        if not lows.size:
            return np.full(self._rows, -np.inf), np.full(self._rows, np.inf)
        least, most = float(lows.min()), float(highs.max())
        # Weights are taken from the middle: squares of far numbers would lose what they differ by.
        centre, half = (least + most) / 2, (most - least) / 2
        smallest, largest = np.full(self._rows, half), np.full(self._rows, -half)
        np.minimum.at(smallest, self._cells.groups, lows - centre)
        np.maximum.at(largest, self._cells.groups, highs - centre)
        low = self._least_average(lows - centre, smallest, largest)
        high = -self._least_average(centre - highs, -largest, -smallest)
        return centre + low, centre + high

    def _least_average(self, weights: _Numbers, low: _Numbers, high: _Numbers) -> _Numbers:
        """Return the least average from `low` to `high`, per group, that the evidence does not speak against.

        An average r is spoken against if the evidence for the sum of (weight - r) is further above zero
        than noise reaches. The exact average is not, with 97.5 % (Fieller's argument), also where few
        records or none are behind it.
        """
        ones = np.ones_like(weights)
        weighted, count = self._sum(weights * self._noisy), self._sum(self._noisy)
        squares, crossed, counts = (
            self._spread(*pair) for pair in ((weights, weights), (weights, ones), (ones, ones))
        )
        step = self._source.step / 2 * (high - low)

        def speaks_above(ratio: _Numbers) -> NDArray[np.bool_]:
            spread = np.maximum(squares - 2 * ratio * crossed + ratio**2 * counts, 0)
            above: NDArray[np.bool_] = weighted - ratio * count > self._width * np.sqrt(spread) + step
            return above

        found = find_edge(high, low, speaks_above)
        return np.where(np.isnan(squares + counts), np.nan, found)

    def _sum(self, values: _Numbers) -> _Numbers:
        return np.bincount(self._cells.groups, weights=values, minlength=self._rows).astype(np.float64)


def enclose_positive(values: _Numbers, deviations: _Numbers) -> tuple[_Numbers, _Numbers]:
    """95 % intervals of what is at least zero, from unbiased normal estimates of it.

    They hold it with 95 % whatever it is, and are never empty (Feldman and Cousins 1998, "Unified approach to
    the classical statistical analysis of small signals"). Far from zero they are the usual ones; cut at zero,
    the usual ones would hold nothing with 97.5 %.

    >>> low, high = enclose_positive(np.array([-1.0, 1.0, 30.0]), np.array([1.0, 1.0, 3.0]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0, 0.0, 24.12], [1.1, 2.96, 35.88])
    """
    centres, firsts, lasts = _acceptance()
    width = normal_width(MISS)
    scaled = np.divide(values, deviations, out=np.zeros_like(values), where=deviations > 0)
    low = np.where(scaled >= lasts[-1], scaled - width, np.interp(scaled, lasts, centres))
    high = np.where(scaled >= 0, scaled + width, np.interp(scaled, firsts[1:], centres[1:]))
    return low * deviations, high * deviations


@cache
def _acceptance() -> tuple[_Numbers, _Numbers, _Numbers]:
    """For true values from zero up to the width of noise, the least and the largest estimate that fit them.

    What fits a true value are estimates with 95 % of its probability, those first whose likelihood is
    largest beside that of the best value for them, which is zero for estimates below. Where the least one
    is below zero, both ratios are equal at first = last - last^2 / (2 centre).
    """
    normal, width = NormalDist(), normal_width(MISS)
    centres = np.concatenate(([0.0], np.geomspace(1e-3, 1.0, 400) * width))
    firsts, lasts = [-np.inf], [normal.inv_cdf(1 - MISS)]
    for centre in centres[1:].tolist():
        low, high = centre, centre + width
        for _ in range(60):
            last = (low + high) / 2
            first = last - last**2 / (2 * centre)
            inside = normal.cdf(last - centre) - normal.cdf(first - centre)
            low, high = (last, high) if inside < 1 - MISS else (low, last)
        firsts.append(last - last**2 / (2 * centre))
        lasts.append(last)
    return centres, np.array(firsts), np.array(lasts)
