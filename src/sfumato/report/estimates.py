"""Counts with their noise: from the measurements where they hold every cell, else from the table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core.exact import NORMAL_95

if TYPE_CHECKING:
    from sfumato.report.facts import Facts, Measured
    from sfumato.report.fields import Field

_GAUSSIAN = math.sqrt(2 / math.pi)  # the mean of the absolute value of a standard Gaussian
_MOST_COLUMNS = 8
_MOST_CELLS = 2**24  # more are not laid out to be added up


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """Counts of every combination of some columns.

    `halves` are half the widths of their 95 % intervals, where their noise is known.
    """

    values: NDArray[np.float64]
    source: Literal["measurements", "table"]
    halves: NDArray[np.float64] | None = None

    @property
    def half(self) -> float | None:
        """The half of the widest interval."""
        return None if self.halves is None or not self.halves.size else float(self.halves.max())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The noise that is to be expected in a marginal: of one answer, and as a share of all records."""

    columns: tuple[str, ...]
    answers: int
    half: float
    share: float


def matches(measured: Measured, epsilon: str | None) -> bool:
    """Returns whether `measured` belongs to `epsilon`; all do if there is one only."""
    return epsilon is None or measured.epsilon is None or measured.epsilon == epsilon


def estimate_counts(facts: Facts, fields: tuple[Field, ...]) -> Estimate:
    """Returns the counts of every combination of `fields`, at the best epsilon.

    A table of counts is clipped at zero, which lifts every sum. So sums are taken of the measurements
    where one holds all cells, and of the table else; where that states the interval of every cell, it is
    the cell's. Rows are counted as they are. Levels that were made to agree are told as they were released,
    with the noise that their sums would have without it, which is no less.
    """
    names = tuple(field.name for field in fields)
    best: tuple[float, Measured] | None = None
    if facts.weight is not None:
        for measured in facts.measured:
            if measured.is_plain and matches(measured, facts.best) and set(names) <= set(measured.columns):
                cells = math.prod(measured.size_of(field) for field in fields)
                deviation = measured.deviation_of(names, cells)
                if best is None or deviation < best[0]:
                    best = deviation, measured
    if best is None:
        return Estimate(values=facts.count(fields), source="table", halves=facts.stated_halves(fields))
    deviation, measured = best
    known = [field for name in measured.columns if (field := facts.field(name)) is not None]
    sizes = [measured.size_of(field) for field in known]
    if len(known) < len(measured.columns) or math.prod(sizes) != measured.cells:
        return Estimate(values=facts.count(fields), source="table")
    others = tuple(axis for axis, name in enumerate(measured.columns) if name not in names)
    counts = measured.values.reshape(sizes)
    # Periods of a series that are still to come have no records yet.
    counts = np.pad(counts, [(0, field.size - size) for field, size in zip(known, sizes, strict=True)])
    summed = counts.sum(axis=others)
    left = [name for name in measured.columns if name in names]
    half = NORMAL_95 * deviation if others else measured.half
    values = np.transpose(summed, [left.index(name) for name in names])
    if facts.adds_up:
        halves = facts.stated_halves(fields)
        halves = np.full(values.shape, half) if halves is None else halves
        return Estimate(values=facts.count(fields), source="table", halves=halves)
    return Estimate(values=values, source="measurements", halves=np.full(values.shape, half))


def expect_noise(facts: Facts) -> list[Expected]:
    """Returns what noise is to be expected in the marginals that were measured, the noisiest first.

    Of a table of counts, all combinations of up to three of its columns; of rows, what was measured.
    `share` is half the sum of the expected noise over all answers, as a share of all records: how many
    records noise alone would seem to move.
    """
    plain = [each for each in facts.measured if each.is_plain and matches(each, facts.best)]
    sets: dict[tuple[str, ...], None] = {}
    if facts.weight is not None:
        for each in plain:
            if len(each.columns) <= _MOST_COLUMNS:
                for size in (1, 2, 3):
                    sets |= dict.fromkeys(combinations(each.columns, size))
    else:
        sets = {each.columns: None for each in plain}
    total = max(count_records(facts), 1.0)
    found = [one for columns in sets if (one := _expect(facts, columns, plain, total)) is not None]
    for each in facts.measured:
        if each.about == "sums" and matches(each, facts.best) and each.columns not in sets and each.answers:
            share = each.answers * each.mean_noise / (2 * total)
            found.append(Expected(columns=each.columns, answers=each.answers, half=each.half, share=share))
    return sorted(_least(found), key=lambda each: (-each.share, each.columns))


def _least(found: list[Expected]) -> list[Expected]:
    """Of several measurements of the same columns, the one with the least noise."""
    best: dict[tuple[str, ...], Expected] = {}
    for each in found:
        if each.columns not in best or each.share < best[each.columns].share:
            best[each.columns] = each
    return list(best.values())


def _expect(facts: Facts, columns: tuple[str, ...], plain: list[Measured], total: float) -> Expected | None:
    known = [field for name in columns if (field := facts.field(name)) is not None]
    holding = [each for each in plain if set(columns) <= set(each.columns)]
    if not holding or len(known) < len(columns):
        return None
    cells = math.prod(holding[0].size_of(field) for field in known)
    if cells > _MOST_CELLS:
        return None
    deviation = _combine([each.deviation_of(columns, cells) for each in holding])
    single = holding[0].mean_noise / holding[0].deviation if holding[0].deviation else _GAUSSIAN
    alone = len(holding) == 1 and holding[0].cells == cells
    mean = deviation * (single if alone else _GAUSSIAN)
    half = holding[0].half if alone else NORMAL_95 * deviation
    return Expected(columns=columns, answers=cells, half=half, share=cells * mean / (2 * total))


def count_records(facts: Facts) -> float:
    """Returns the number of records, estimated by the measurement whose sum has the least noise."""
    plain = [each for each in facts.measured if each.is_plain and matches(each, facts.best)]
    if facts.weight is None or not plain or facts.adds_up:
        return facts.size
    return float(min(plain, key=lambda each: each.deviation_of((), 1)).values.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """The noisy number of records with half its interval, and the share of answers that noise explains."""

    total: float
    half: float
    near_zero: float
    individuals: bool

    @property
    def is_noise(self) -> bool:
        """Whether the whole release might as well be about nobody."""
        return abs(self.total) <= self.half or self.total < 0


def judge_signal(facts: Facts) -> Signal | None:
    """Gives how far the release stands out from its noise, by the measurement whose sum has the least of it.

    None if no measurement has an answer for every cell.
    """
    full = [
        each
        for each in facts.measured
        if each.about in ("cells", "bounded", "individuals")
        and each.answers == each.cells > 0
        and matches(each, facts.best)
    ]
    if not full:
        return None
    best = min(full, key=lambda each: each.deviation_of((), 1))
    half = best.half if best.cells == 1 else NORMAL_95 * best.deviation_of((), 1)
    return Signal(
        total=float(best.values.sum()),
        half=half,
        near_zero=max(full, key=lambda each: each.cells).near_zero,
        individuals=best.about == "individuals",
    )


def _combine(deviations: list[float]) -> float:
    """Returns the standard deviation of the average of measurements of the same, weighted by precision.

    >>> _combine([3, 4])
    2.4
    """
    if any(each == 0 for each in deviations):
        return 0.0
    return 1 / math.sqrt(sum(1 / each**2 for each in deviations))
