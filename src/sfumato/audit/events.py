"""Events by which two samples are told apart: learned on one part of the runs, to be certified on another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.audit.bounds import wilson_bounds
from sfumato.audit.observe import Sample, lowest_bits

SUMMARIES = ("number of values", "sum", "largest", "smallest", "lowest bit")

_THRESHOLDS = 48
_MOST_CELLS = 200
_MOST_WORDS = 2000
_LOWEST_BITS = 20

Sign = Literal[">=", "<=", "=", "has"]


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """A sum over cells, each held near the middle between its two usual values."""

    cells: NDArray[np.int64]
    middles: NDArray[np.float64]
    reaches: NDArray[np.float64]
    weights: NDArray[np.float64]

    def evaluate(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """The score of every row."""
        moved = numbers[:, self.cells] - self.middles
        held = np.clip(moved, -self.reaches, self.reaches) * self.weights
        return np.asarray(np.nan_to_num(held).sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Event:
    """Something that a run shows or does not show.

    `more` is the side, 0 or 1, on which it was seen more often while learning.
    """

    statistic: str
    sign: Sign
    threshold: float = 0.0
    more: int = 0
    score: Score | None = None

    def __str__(self) -> str:
        if self.sign == "has":
            return f"the output shows {self.statistic!r}"
        return f"{self.statistic} {self.sign} {self.threshold:.6g}"

    def holds(self, sample: Sample) -> NDArray[np.bool_]:
        """For every run whether it shows the event."""
        if self.sign == "has":
            return sample.words.get(self.statistic, np.zeros(sample.runs, np.bool_))
        values = _evaluate(sample, self.statistic, self.score)
        with np.errstate(invalid="ignore"):
            if self.sign == "=":
                return np.asarray(values == self.threshold)
            return np.asarray(values >= self.threshold if self.sign == ">=" else values <= self.threshold)


def take_rows(sample: Sample, rows: slice) -> Sample:
    """The sample with the chosen runs only."""
    words = {word: held[rows] for word, held in sample.words.items()}
    numbers = sample.numbers[rows]
    return Sample(numbers.shape[0], numbers, sample.names, sample.summaries[rows], words)


def learn_event(first: Sample, second: Sample, *, delta: float, deviations: float) -> Event | None:
    """The event that promises the largest bound on epsilon at `delta`, or None if there is nothing to see.

    It looks at words (keys, errors, sizes, types), at sums, extremes and numbers of values, at single
    cells, at the lowest bits that are set, and at a score of all cells that differ.
    """
    best, found = 0.0, None
    for event, hits in _list_events(first, second):
        lows, highs = zip(
            *(
                wilson_bounds(hits[side], sample.runs, deviations=deviations)
                for side, sample in enumerate((first, second))
            ),
            strict=True,
        )
        for more in (0, 1):
            low, high = lows[more], highs[1 - more]
            with np.errstate(divide="ignore", invalid="ignore"):
                direct = np.log(np.maximum(low - delta, 0) / high)
                other = np.log(np.maximum(1 - high - delta, 0) / (1 - low))
            promise = np.nan_to_num(np.maximum(direct, other), nan=0.0)
            place = int(promise.argmax())
            if promise[place] > best:
                best = float(promise[place])
                found = event(place, more)
    return found


class _Maker:
    """Makes the event behind a place of a list of thresholds."""

    def __init__(
        self, statistic: str, signs: list[Sign], thresholds: list[float], score: Score | None = None
    ) -> None:
        self.statistic, self.signs, self.thresholds, self.score = statistic, signs, thresholds, score

    def __call__(self, place: int, more: int) -> Event:
        return Event(
            statistic=self.statistic,
            sign=self.signs[place],
            threshold=self.thresholds[place],
            more=more,
            score=self.score,
        )


Hits = tuple[NDArray[np.float64], NDArray[np.float64]]


def _list_events(first: Sample, second: Sample) -> Iterator[tuple[_Maker, Hits]]:
    nothing = (np.zeros(first.runs, np.bool_), np.zeros(second.runs, np.bool_))
    shares = {
        word: abs(first.words.get(word, nothing[0]).mean() - second.words.get(word, nothing[1]).mean())
        for word in {*first.words, *second.words}
    }
    # Of words that tell as much, an error is named before a type or a size.
    words = sorted(shares, key=lambda word: (-shares[word], not word.startswith("error"), len(word), word))
    for word in words[:_MOST_WORDS]:
        hits = tuple(
            np.array([float(sample.words.get(word, none).sum())])
            for sample, none in zip((first, second), nothing, strict=True)
        )
        yield _Maker(word, ["has"], [0.0]), (hits[0], hits[1])
    score = _learn_score(first, second)
    statistics: list[tuple[str, Score | None]] = [(name, None) for name in SUMMARIES]
    cells = _pick_cells(first, second)
    statistics += [(f"cell {first_name(first, second, cell)}", None) for cell in cells]
    statistics += [
        (f"lowest bit of cell {first_name(first, second, cell)}", None) for cell in cells[:_LOWEST_BITS]
    ]
    if score is not None:
        statistics.append(("score of all cells", score))
    for name, each in statistics:
        yield from _cut(name, _evaluate(first, name, each), _evaluate(second, name, each), each)


def first_name(first: Sample, second: Sample, cell: int) -> str:
    """The name of a cell, which the longer of two samples knows."""
    names = first.names if len(first.names) >= len(second.names) else second.names
    return names[cell]


def _cut(
    name: str, one: NDArray[np.float64], two: NDArray[np.float64], score: Score | None
) -> Iterator[tuple[_Maker, Hits]]:
    """The events that a statistic passes a threshold, or has one of few values."""
    one, two = np.sort(one[~np.isnan(one)]), np.sort(two[~np.isnan(two)])
    pooled = np.concatenate([one, two])
    if not pooled.size:
        return
    values, counts = np.unique(pooled, return_counts=True)
    cuts = values
    if values.size > 2 * _THRESHOLDS:
        places = np.unique(np.linspace(0, pooled.size - 1, 2 * _THRESHOLDS).astype(int))
        cuts = np.unique(np.sort(pooled)[places])
    at_least = tuple(
        (each.size - np.searchsorted(each, cuts, side="left")).astype(float) for each in (one, two)
    )
    at_most = tuple(np.searchsorted(each, cuts, side="right").astype(float) for each in (one, two))
    often = values[np.argsort(-counts, kind="stable")][: 4 * _THRESHOLDS]
    equal = tuple(
        (np.searchsorted(each, often, side="right") - np.searchsorted(each, often, side="left")).astype(float)
        for each in (one, two)
    )
    signs: list[Sign] = [">="] * cuts.size
    signs += ["<="] * cuts.size
    signs += ["="] * often.size
    thresholds = [*cuts.tolist(), *cuts.tolist(), *often.tolist()]
    hits = tuple(np.concatenate([at_least[side], at_most[side], equal[side]]) for side in (0, 1))
    yield _Maker(name, signs, thresholds, score), (hits[0], hits[1])


def _evaluate(sample: Sample, statistic: str, score: Score | None) -> NDArray[np.float64]:
    if score is not None:
        if int(score.cells.max()) >= sample.numbers.shape[1]:
            return np.full(sample.runs, np.nan)
        return score.evaluate(sample.numbers)
    if statistic in SUMMARIES:
        return np.asarray(sample.summaries[:, SUMMARIES.index(statistic)])
    bits = statistic.startswith("lowest bit of ")
    name = statistic.removeprefix("lowest bit of ").removeprefix("cell ")
    if name not in sample.names:
        return np.full(sample.runs, np.nan)
    values = np.asarray(sample.numbers[:, sample.names.index(name)])
    return np.where(np.isnan(values), np.nan, lowest_bits(values)) if bits else values


def _usual(sample: Sample, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The median of every cell, and how far its values usually are from it."""
    numbers = sample.numbers[:, :width]
    held = np.clip(np.nan_to_num(numbers, nan=0.0), -1e300, 1e300)
    middle = np.median(held, axis=0)
    return middle, np.median(np.abs(held - middle), axis=0)


def _same_cells(first: Sample, second: Sample) -> int:
    width = min(first.numbers.shape[1], second.numbers.shape[1])
    return width if first.names[:width] == second.names[:width] else 0


def _pick_cells(first: Sample, second: Sample) -> list[int]:
    """The cells that differ most, as far as both samples have them in the same place."""
    longest = max(len(first.names), len(second.names))
    width = _same_cells(first, second)
    if longest <= _MOST_CELLS or not width:
        return list(range(min(longest, _MOST_CELLS)))
    means = [
        np.clip(np.nan_to_num(each.numbers[:, :width]), -1e100, 1e100).mean(0) for each in (first, second)
    ]
    return [int(cell) for cell in np.argsort(-np.abs(means[0] - means[1]), kind="stable")[:_MOST_CELLS]]


def _learn_score(first: Sample, second: Sample) -> Score | None:
    width = _same_cells(first, second)
    if width < 2:
        return None
    (one, spread_one), (two, spread_two) = _usual(first, width), _usual(second, width)
    moved = one - two
    spread = np.maximum((spread_one + spread_two) / 2, 1e-300)
    sure = 2.5 * spread / np.sqrt(min(first.runs, second.runs))
    cells = np.flatnonzero(np.abs(moved) > np.maximum(sure, 0))
    if not cells.size:
        return None
    return Score(
        cells=cells,
        middles=(one[cells] + two[cells]) / 2,
        reaches=np.abs(moved[cells]) / 2,
        weights=np.sign(moved[cells]) / spread[cells],
    )
