"""The black-box audit (layer 3): a distinguisher learned on half of the runs, a bound from the other half.

One output is an `Observation`, the outputs of many runs on one table are a `Sample`. A `Distinguisher` is an
event that shows on one side more often than on the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.audit.bounds import epsilon_bound, largest_bound, wilson_bounds
from sfumato.core.errors import SourceError
from sfumato.tables.arrays import Flags, Floats, Whole
from sfumato.tables.read import read_table

SUMMARIES = ("number of values", "sum", "largest", "smallest", "lowest bit")
"""Statistics of all numbers of an output; the last is the exponent of the lowest bit set in any of them."""

# What is looked at of an output, and of all runs together: a mechanism may return anything.
_MOST_WORDS = 2000
_MOST_NAMES = 4096
_MOST_ELEMENTS = 2**25
_LONGEST = 200
_DEEPEST = 6
_NO_BIT = 5000.0  # beyond the exponent of every float

# How many events are tried: more cost power, since the best of many looks better than it is.
_THRESHOLDS = 48
_MOST_CELLS = 200
_LOWEST_BITS = 20  # cells whose last bits are looked at
_FARTHEST = 3.5

Sign = Literal[">=", "<=", "=", "has"]


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One output, taken apart: `numbers` with the `names` of their places (none: by position), and `words`.

    Words are keys, sizes, types and errors. The `summary` holds the SUMMARIES of all numbers.
    """

    numbers: Floats
    names: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    summary: tuple[float, ...] = (0.0, 0.0, math.nan, math.nan, _NO_BIT)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Many runs on one table: a row for each, a column for each number, and which rows have which word."""

    runs: int
    numbers: Floats
    names: tuple[str, ...]
    summaries: Floats
    words: Mapping[str, Flags]

    def take(self, rows: slice) -> Sample:
        """Returns the sample with the chosen runs only."""
        words = {word: shown[rows] for word, shown in self.words.items()}
        numbers = self.numbers[rows]
        return Sample(numbers.shape[0], numbers, self.names, self.summaries[rows], words)

    def shows(self, word: str) -> Flags:
        """For every run whether it shows the word."""
        shown = self.words.get(word)
        return np.zeros(self.runs, np.bool_) if shown is None else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """A lower bound on epsilon, the event behind it, how often each side showed it, the most to be proved."""

    epsilon: float
    event: str
    hits: tuple[int, int]
    runs: tuple[int, int]
    most: float

    def __str__(self) -> str:
        counts = ", ".join(f"{hits:,} of {runs:,}" for hits, runs in zip(self.hits, self.runs, strict=True))
        return f"{self.event}: {counts} runs"


def certify_samples(first: Sample, second: Sample, *, delta: float, miss: float) -> Certified:
    """Returns the bound on epsilon that two samples prove, wrong with a chance of at most `miss`.

    One event is chosen from the first half of each sample; the counts that enter the bound are those of
    the other half, which had no part in the choice, so that no correction for many events is due.
    """
    sides = (first, second)
    halves = [each.runs // 2 for each in sides]
    learned = [each.take(slice(0, half)) for each, half in zip(sides, halves, strict=True)]
    rest = [each.take(slice(half, None)) for each, half in zip(sides, halves, strict=True)]
    runs = (rest[0].runs, rest[1].runs)
    most = largest_bound(min(runs), delta=delta, miss=miss) if min(runs) else 0.0
    event = None
    if min(halves):
        # Among many events the luckiest is not the best: what looks good must look good from afar.
        afar = max(-NormalDist().inv_cdf(miss / 2), min(_FARTHEST, math.sqrt(min(halves)) / 3))
        event = learn_distinguisher(*learned, delta=delta, deviations=afar)
    if event is None:
        nothing = "no event tells the sides apart"
        return Certified(epsilon=0.0, event=nothing, hits=(0, 0), runs=runs, most=most)
    hits = tuple(int(event.shown_by(sample).sum()) for sample in rest)
    often, seldom = event.more, 1 - event.more
    bound = epsilon_bound(hits[often], runs[often], hits[seldom], runs[seldom], delta=delta, miss=miss)
    return Certified(epsilon=bound, event=str(event), hits=(hits[0], hits[1]), runs=runs, most=most)


def observe(output: object) -> Observation:
    """Returns what there is to see in `output`: an array, a number, text, a mapping, a table, or a mixture.

    >>> observe({"north": 2.5, "south": 1}).names
    ('.north', '.south')
    >>> sorted(observe("yes").words)
    ["='yes'", 'type str']
    """
    parts = _Parts()
    try:
        parts.take(output, "", depth=0)
    except Exception as error:  # an output may refuse to be looked at
        return observe_error(error)
    return parts.finish()


def observe_error(error: BaseException) -> Observation:
    """Returns what there is to see in a run that failed: the kind of the error and its text."""
    name = type(error).__name__
    try:
        text = str(error)[:_LONGEST]
    except Exception:  # an error may have no text
        text = "?"
    return Observation(np.empty(0), words=frozenset({"error", f"error {name}", f"error {name}: {text}"}))


def summarize(numbers: Floats) -> Floats:
    """Returns the SUMMARIES along the last axis, which must not be empty."""
    with np.errstate(all="ignore"):
        parts = (
            np.full(numbers.shape[:-1], float(numbers.shape[-1])),
            numbers.sum(axis=-1),
            numbers.max(axis=-1),
            numbers.min(axis=-1),
            lowest_bits(numbers).min(axis=-1),
        )
    return np.stack(parts, axis=-1)


def lowest_bits(numbers: Floats) -> Floats:
    """For each number the exponent of its lowest set bit; one beyond all for zero and what is not finite."""
    # Sign, 11 bits of exponent, 52 of fraction; the leading 1 of the fraction is stored for no normal number.
    bits = np.ascontiguousarray(numbers, np.float64).view(np.uint64)
    exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    fraction = bits & np.uint64((1 << 52) - 1)
    fraction = np.where(exponent > 0, fraction | np.uint64(1 << 52), fraction)
    lowest = fraction & (~fraction + np.uint64(1))
    place = np.log2(np.maximum(lowest, np.uint64(1)).astype(np.float64))
    result = np.maximum(exponent, 1) - 1075 + place
    return np.where((fraction == 0) | (exponent == 0x7FF), _NO_BIT, result)


class _Parts:
    """Collects numbers and words from an output of any make."""

    def __init__(self) -> None:
        self.arrays: list[Floats] = []
        self.names: list[str] = []
        self.words: set[str] = set()

    def note(self, word: str) -> None:
        if len(self.words) < _MOST_WORDS:
            self.words.add(word[:_LONGEST])

    def take(self, value: Any, path: str, *, depth: int) -> None:  # noqa: ANN401 - whatever a mechanism returns
        self.note(f"type {type(value).__name__}{_at(path)}" if depth <= 1 else "deep")
        if isinstance(value, (bool, np.bool_)):
            self.add(np.array([float(value)]), path)
        elif isinstance(value, (int, float, np.integer, np.floating, Fraction, Decimal)):
            self.add(np.array([_to_float(value)]), path)
        elif isinstance(value, np.ndarray):
            self.take_array(value, path, depth=depth)
        elif value is None or isinstance(value, (str, bytes, PurePath)):
            self.note(f"{path}={value!r}")
        elif isinstance(value, Mapping):
            self.take_mapping(value, path, depth=depth)
        elif isinstance(value, (set, frozenset)):
            self.note(f"size {len(value)}{_at(path)}")
            for item in value:
                self.note(f"has {item!r}{_at(path)}")
        elif isinstance(value, Sequence) and depth < _DEEPEST:
            self.take_sequence(value, path, depth=depth)
        else:
            self.take_other(value, path, depth=depth)

    def take_array(self, value: NDArray[Any], path: str, *, depth: int) -> None:
        self.note(f"shape {value.shape}{_at(path)}")
        self.note(f"dtype {value.dtype}{_at(path)}")
        if value.dtype.kind in "biuf":
            self.add(value.astype(np.float64).ravel(), path)
        elif value.dtype.kind == "c":
            self.add(np.concatenate([value.real.ravel(), value.imag.ravel()]).astype(np.float64), path)
        elif depth < _DEEPEST:
            self.take(value.ravel().tolist()[:_MOST_NAMES], path, depth=depth + 1)

    def take_mapping(self, value: Mapping[Any, Any], path: str, *, depth: int) -> None:
        self.note(f"size {len(value)}{_at(path)}")
        for key in sorted(value, key=repr)[:_MOST_NAMES]:
            place = f"{path}.{key if isinstance(key, str) else repr(key)}"
            self.note(f"has {place}")
            if depth < _DEEPEST:
                self.take(value[key], place, depth=depth + 1)

    def take_sequence(self, value: Sequence[Any], path: str, *, depth: int) -> None:
        self.note(f"size {len(value)}{_at(path)}")
        if all(isinstance(item, (int, float, np.integer, np.floating)) for item in value):
            self.add(np.array([_to_float(item) for item in value]), path)
            return
        for index, item in enumerate(value[:_MOST_NAMES]):
            self.take(item, f"{path}[{index}]", depth=depth + 1)

    def take_other(self, value: Any, path: str, *, depth: int) -> None:  # noqa: ANN401 - as above
        table = None
        with suppress(SourceError):  # it is no table
            table = read_table(value, side="output").to_pydict()
        if table is None or depth >= _DEEPEST:
            self.note(f"{path}={_spell(value)}")
            return
        rows = 0
        for name, column in table.items():
            rows = len(column)
            self.note(f"has {path}.{name}")
            if all(item is None or isinstance(item, (int, float)) for item in column):
                self.add(np.array([math.nan if item is None else _to_float(item) for item in column]), path)
            else:
                for item in set(map(_spell, column)):
                    self.note(f"{path}.{name} has {item}")
        self.note(f"rows {rows}{_at(path)}")

    def add(self, numbers: Floats, path: str) -> None:
        self.arrays.append(numbers)
        if len(self.names) < _MOST_NAMES:
            one = numbers.size == 1
            self.names += [path if one else f"{path}[{i}]" for i in range(min(numbers.size, _MOST_NAMES))]

    def finish(self) -> Observation:
        numbers = np.concatenate(self.arrays) if self.arrays else np.empty(0)
        if np.isnan(numbers).any():
            self.note("not a number")
        few = 0 < numbers.size <= 8 and bool(np.isfinite(numbers).all())
        if few and not (numbers % 1).any():
            self.note(f"whole {numbers.tolist()}")
        plain = len(self.arrays) == 1 and self.names[:1] in ([""], ["[0]"], [])
        names = () if plain else tuple(self.names)
        words = frozenset(self.words)
        if not numbers.size:
            return Observation(numbers, names, words)
        return Observation(numbers, names, words, tuple(summarize(numbers).tolist()))


def stack_observations(observations: Sequence[Observation]) -> Sample:
    """Returns all runs side by side; a number that a run does not have is not a number there."""
    runs = len(observations)
    words: dict[str, Flags] = {}
    for row, each in enumerate(observations):
        for word in each.words:
            if word in words or len(words) < 20 * _MOST_WORDS:
                words.setdefault(word, np.zeros(runs, np.bool_))[row] = True
    if any(each.names for each in observations):
        names = list(dict.fromkeys(name for each in observations for name in each.names))[:_MOST_NAMES]
    else:
        longest = max((each.numbers.size for each in observations), default=0)
        names = [f"[{index}]" for index in range(min(longest, _MOST_ELEMENTS // max(1, runs)))]
    places = {name: index for index, name in enumerate(names)}
    numbers = np.full((runs, len(names)), np.nan)
    for row, each in enumerate(observations):
        if each.names:
            for name, number in zip(each.names, each.numbers, strict=False):
                if name in places:
                    numbers[row, places[name]] = number
        else:
            kept = min(each.numbers.size, len(names))
            numbers[row, :kept] = each.numbers[:kept]
    summaries = np.array([each.summary for each in observations]).reshape(runs, len(SUMMARIES))
    return Sample(runs, numbers, tuple(names), summaries, words)


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _to_float(value: Any) -> float:  # noqa: ANN401 - any kind of number
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _spell(value: object) -> str:
    """Returns the value as text without the address of an object."""
    if value is None or isinstance(value, (str, bytes, int, float, bool)):
        return repr(value)[:_LONGEST]
    text = repr(value)[:_LONGEST]
    return type(value).__name__ if " at 0x" in text else text


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """A sum over cells, each clipped around the middle between its two usual values."""

    cells: Whole
    middles: Floats
    reaches: Floats
    weights: Floats

    def evaluate(self, numbers: Floats) -> Floats:
        """Returns the score of every row; not a number if rows lack one of the cells."""
        if int(self.cells.max()) >= numbers.shape[1]:
            return np.full(numbers.shape[0], np.nan)
        clipped = np.clip(numbers[:, self.cells] - self.middles, -self.reaches, self.reaches)
        return np.asarray(np.nan_to_num(clipped * self.weights).sum(axis=1))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Distinguisher:
    """An event: something that a run shows or does not show.

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

    def shown_by(self, sample: Sample) -> Flags:
        """For every run whether it shows the event."""
        if self.sign == "has":
            return sample.shows(self.statistic)
        values = _evaluate(sample, self.statistic, self.score)
        with np.errstate(invalid="ignore"):
            if self.sign == "=":
                return np.asarray(values == self.threshold)
            return np.asarray(values >= self.threshold if self.sign == ">=" else values <= self.threshold)


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Events of one statistic, by sign and threshold, and how many runs of either side show each."""

    statistic: str
    signs: list[Sign]
    thresholds: list[float]
    hits: tuple[Floats, ...]
    score: Score | None = None


def learn_distinguisher(
    first: Sample, second: Sample, *, delta: float, deviations: float
) -> Distinguisher | None:
    """Finds the event of the largest bound on epsilon at `delta`, None if there is none.

    It looks at words (keys, errors, sizes, types), at sums, extremes and numbers of values, at single
    cells, at the lowest bits that are set, and at a score of all cells that differ. Events are compared by
    bounds on their chances that are so many `deviations` off.
    """
    best, found = 0.0, None
    for tried in _list_candidates(first, second):
        bounds = [
            wilson_bounds(hits, sample.runs, deviations=deviations)
            for hits, sample in zip(tried.hits, (first, second), strict=True)
        ]
        for more in (0, 1):
            low, high = bounds[more][0], bounds[1 - more][1]
            with np.errstate(divide="ignore", invalid="ignore"):
                direct = np.log(np.maximum(low - delta, 0) / high)
                other = np.log(np.maximum(1 - high - delta, 0) / (1 - low))
            promise = np.nan_to_num(np.maximum(direct, other), nan=0.0)
            place = int(promise.argmax())
            if promise[place] > best:
                best = float(promise[place])
                found = Distinguisher(
                    statistic=tried.statistic,
                    sign=tried.signs[place],
                    threshold=tried.thresholds[place],
                    more=more,
                    score=tried.score,
                )
    return found


def _list_candidates(first: Sample, second: Sample) -> Iterator[_Candidates]:
    sides = (first, second)
    shares = {
        word: abs(first.shows(word).mean() - second.shows(word).mean())
        for word in {*first.words, *second.words}
    }
    # Of words that differ as much, an error is named before a type or a size.
    words = sorted(shares, key=lambda word: (-shares[word], not word.startswith("error"), len(word), word))
    for word in words[:_MOST_WORDS]:
        hits = tuple(np.array([float(sample.shows(word).sum())]) for sample in sides)
        yield _Candidates(word, ["has"], [0.0], hits)
    names = max(first.names, second.names, key=len)
    cells = [names[cell] for cell in _pick_cells(first, second)]
    statistics = [
        *SUMMARIES,
        *(f"cell {name}" for name in cells),
        *(f"lowest bit of cell {name}" for name in cells[:_LOWEST_BITS]),
    ]
    for statistic in statistics:
        yield from _cut(statistic, sides, None)
    score = _learn_score(first, second)
    if score is not None:
        yield from _cut("score of all cells", sides, score)


def _cut(statistic: str, sides: tuple[Sample, Sample], score: Score | None) -> Iterator[_Candidates]:
    """Yields the events that a statistic passes a threshold, or has one of few values."""
    values = [_evaluate(sample, statistic, score) for sample in sides]
    values = [np.sort(each[~np.isnan(each)]) for each in values]
    pooled = np.sort(np.concatenate(values))
    if not pooled.size:
        return
    distinct, counts = np.unique(pooled, return_counts=True)
    cuts = distinct
    if distinct.size > 2 * _THRESHOLDS:
        places = np.unique(np.linspace(0, pooled.size - 1, 2 * _THRESHOLDS).astype(int))
        cuts = np.unique(pooled[places])
    often = distinct[np.argsort(-counts, kind="stable")][: 4 * _THRESHOLDS]
    hits = []
    for each in values:
        at_least = each.size - np.searchsorted(each, cuts, side="left")
        at_most = np.searchsorted(each, cuts, side="right")
        equal = np.searchsorted(each, often, side="right") - np.searchsorted(each, often, side="left")
        hits.append(np.concatenate([at_least, at_most, equal]).astype(float))
    signs: list[Sign] = [">="] * cuts.size
    signs += ["<="] * cuts.size
    signs += ["="] * often.size
    thresholds = [*cuts.tolist(), *cuts.tolist(), *often.tolist()]
    yield _Candidates(statistic, signs, thresholds, tuple(hits), score)


def _evaluate(sample: Sample, statistic: str, score: Score | None) -> Floats:
    """Returns the value of a statistic in every run; not a number where a run does not have it."""
    if score is not None:
        return score.evaluate(sample.numbers)
    if statistic in SUMMARIES:
        return np.asarray(sample.summaries[:, SUMMARIES.index(statistic)])
    bits = statistic.startswith("lowest bit of ")
    name = statistic.removeprefix("lowest bit of ").removeprefix("cell ")
    if name not in sample.names:
        return np.full(sample.runs, np.nan)
    values = np.asarray(sample.numbers[:, sample.names.index(name)])
    return np.where(np.isnan(values), np.nan, lowest_bits(values)) if bits else values


def _same_cells(first: Sample, second: Sample) -> int:
    """Returns how many cells both samples have in the same places; 0 if their places differ."""
    width = min(first.numbers.shape[1], second.numbers.shape[1])
    return width if first.names[:width] == second.names[:width] else 0


def _pick_cells(first: Sample, second: Sample) -> list[int]:
    """Returns the cells that differ most, as far as both samples have them in the same place."""
    longest = max(len(first.names), len(second.names))
    width = _same_cells(first, second)
    if longest <= _MOST_CELLS or not width:
        return list(range(min(longest, _MOST_CELLS)))
    means = [
        np.clip(np.nan_to_num(each.numbers[:, :width]), -1e100, 1e100).mean(0) for each in (first, second)
    ]
    return [int(cell) for cell in np.argsort(-np.abs(means[0] - means[1]), kind="stable")[:_MOST_CELLS]]


def _learn_score(first: Sample, second: Sample) -> Score | None:
    """Returns a score of the cells whose medians surely differ, each weighted by how little it varies."""
    width = _same_cells(first, second)
    if width < 2:
        return None
    medians, spreads = [], []
    for sample in (first, second):
        clipped = np.clip(np.nan_to_num(sample.numbers[:, :width], nan=0.0), -1e300, 1e300)
        medians.append(np.median(clipped, axis=0))
        spreads.append(np.median(np.abs(clipped - medians[-1]), axis=0))
    moved = medians[0] - medians[1]
    spread = np.maximum((spreads[0] + spreads[1]) / 2, 1e-300)
    # About one standard deviation of the difference of two medians: cells below it add mostly noise.
    sure = 2.5 * spread / np.sqrt(min(first.runs, second.runs))
    cells = np.flatnonzero(np.abs(moved) > sure)
    if not cells.size:
        return None
    return Score(
        cells=cells,
        middles=(medians[0] + medians[1])[cells] / 2,
        reaches=np.abs(moved[cells]) / 2,
        weights=np.sign(moved[cells]) / spread[cells],
    )
