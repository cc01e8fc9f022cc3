"""The conjunction part of the taxi metric: how many taxis work like a drawn one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHIFTS = tuple(range(21))
AREAS = (-1, *range(1, 78))
_WIDTH = len(SHIFTS) + len(AREAS)
_LIMITS = (5, 51)
_CHUNK = 2**15


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trips:
    """Trips of taxis: who drove, in which shift, from which area, and how many such trips."""

    taxi: NDArray[np.int64]
    shift: NDArray[np.int64]
    area: NDArray[np.int64]
    trips: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Conjunction:
    """The share of similar taxis in truth and release, one row per round, and the part they give."""

    shares: NDArray[np.float64]

    @property
    def part(self) -> float:
        """1 if the shares agree in every round."""
        return 1 - float(np.abs(self.shares[:, 0] - self.shares[:, 1]).mean())


def draw_rounds(taxis: int, *, rounds: int, seed: int) -> list[tuple[int, NDArray[np.int64]]]:
    """A taxi and a limit for each of its 99 counts, per round, drawn as the contest draws them.

    >>> [(row, limits[:3].tolist()) for row, limits in draw_rounds(7, rounds=2, seed=123456)]
    [(1, [47, 48, 48]), (1, [11, 7, 12])]
    """
    generator = np.random.RandomState(seed)  # the contest's own generator
    drawn = []
    for _ in range(rounds):
        row = int(generator.randint(0, taxis))
        drawn.append((row, generator.randint(*_LIMITS, size=_WIDTH).astype(np.int64)))
    return drawn


def measure_conjunction(
    truth: Trips, release: Trips, *, rounds: int = 50, seed: int = 123456, official_alignment: bool = False
) -> Conjunction:
    """The shares of taxis similar to a drawn truth taxi, in truth and release, in every round.

    A taxi has 99 counts: its trips per shift and per pickup area. `official_alignment` repeats what
    the contest's code does where the release lacks an area or a shift with a number from 1 to 20: the
    column of the other kind with that number is read as zero as well.
    """
    true_taxis, true_rows = np.unique(truth.taxi, return_inverse=True)
    drawn = draw_rounds(true_taxis.size, rounds=rounds, seed=seed)
    picked = _count(truth, true_rows, true_taxis.size, [row for row, _ in drawn])
    bounds = [(counts - limits, counts + limits) for counts, (_, limits) in zip(picked, drawn, strict=True)]
    lost = _lost_columns(release) if official_alignment else np.empty(0, np.int64)
    taxis, rows = np.unique(release.taxi, return_inverse=True)
    ours = _similar(truth, true_rows, true_taxis.size, bounds, np.empty(0, np.int64))
    theirs = _similar(release, rows, taxis.size, bounds, lost)
    return Conjunction(np.stack([ours / max(true_taxis.size, 1), theirs / max(taxis.size, 1)], axis=1))


def _similar(
    trips: Trips,
    rows: NDArray[np.int64],
    taxis: int,
    bounds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
    lost: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The number of taxis within the bounds of every round, some thousand taxis at a time."""
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(0, taxis + _CHUNK, _CHUNK))
    similar = np.zeros(len(bounds))
    for index, (start, end) in enumerate(pairwise(starts.tolist())):
        first = index * _CHUNK
        part = order[start:end]
        counts = _fill(trips, part, rows[part] - first, min(_CHUNK, taxis - first))
        counts[:, lost] = 0
        for round_, (low, high) in enumerate(bounds):
            similar[round_] += np.count_nonzero(((counts >= low) & (counts <= high)).all(axis=1))
    return similar


def _count(trips: Trips, rows: NDArray[np.int64], taxis: int, wanted: list[int]) -> NDArray[np.int64]:
    """The 99 counts of the wanted taxis."""
    place = np.full(taxis, -1, np.int64)
    found = np.unique(np.array(wanted, np.int64))
    place[found] = np.arange(found.size)
    part = np.flatnonzero(place[rows] >= 0)
    counts = _fill(trips, part, place[rows[part]], found.size)
    return counts[place[np.array(wanted, np.int64)]]


def _fill(trips: Trips, part: NDArray[np.intp], rows: NDArray[np.int64], taxis: int) -> NDArray[np.int64]:
    counts = np.zeros(taxis * _WIDTH)
    weights = None if trips.trips is None else trips.trips[part].astype(np.float64)
    area = trips.area[part]
    for column, known in (
        (trips.shift[part], (trips.shift[part] >= 0) & (trips.shift[part] < len(SHIFTS))),
        (len(SHIFTS) + np.where(area == -1, 0, area), (area == -1) | ((area >= 1) & (area <= AREAS[-1]))),
    ):
        keys = (rows * _WIDTH + column)[known]
        counts += np.bincount(keys, None if weights is None else weights[known], minlength=counts.size)
    return counts.astype(np.int64).reshape(taxis, _WIDTH)


def _lost_columns(release: Trips) -> NDArray[np.int64]:
    present = release.trips is None or release.trips > 0
    shifts = set(np.unique(release.shift[present]).tolist())
    areas = set(np.unique(release.area[present]).tolist())
    lost = [number for number in SHIFTS[1:] if number not in areas]
    lost += [len(SHIFTS) + number for number in SHIFTS[1:] if number not in shifts]
    return np.array(lost, np.int64)
