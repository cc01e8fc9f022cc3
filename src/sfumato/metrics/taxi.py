"""The taxi metric: marginals per area and shift, trips between areas, and taxis that work alike."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.metrics.columns import (
    SIDES,
    Label,
    align_counts,
    code_pair,
    pack_codes,
    read_sides,
    total_variation,
    whole_numbers,
)
from sfumato.metrics.k_marginal import FARTHEST, Coded, code_column_pair, measure_places, require_records
from sfumato.tables.arrays import Flags, Floats, Whole

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.tables.read import TableLike

SHIFTS = tuple(range(21))
AREAS = (-1, *range(1, 78))

_PICKUP, _DROPOFF, _SHIFT, _TAXI = "pickup_community_area", "dropoff_community_area", "shift", "taxi_id"
_AMOUNTS = ("fare", "tips", "trip_total", "trip_seconds", "trip_miles")
_COMPARED = ("company_id", _DROPOFF, "payment_type", *_AMOUNTS)
_PAIRS = tuple(combinations(_COMPARED, 2))
_WIDTH = len(SHIFTS) + len(AREAS)
_LIMITS = (5, 51)  # of the contest: how far a count of a similar taxi may be off
_CHUNK = 2**15  # taxis counted at once, so that their counts fit a small memory


@dataclass(frozen=True, slots=True, eq=False)
class Taxi:
    """The three parts, each from 0 to 1, and the distance of every area and shift."""

    k_marginal: float
    graph_edge: float
    conjunction: float
    places: tuple[tuple[Label, ...], ...]
    distances: Floats
    biased: Flags
    shares: Floats

    @property
    def score(self) -> float:
        """1000 times the mean of the three parts."""
        return 1000 * (self.k_marginal + self.graph_edge + self.conjunction) / 3

    def __repr__(self) -> str:
        return (
            f"Taxi(score={self.score:.6g}, k_marginal={self.k_marginal:.6g}, "
            f"graph_edge={self.graph_edge:.6g}, conjunction={self.conjunction:.6g})"
        )

    def to_record(self) -> dict[str, Any]:
        """Returns the score as a plain record."""
        named = ("score", "k_marginal", "graph_edge", "conjunction")
        return {name: getattr(self, name) for name in named} | {"places": len(self.places)}


def taxi(
    truth: TableLike,
    release: TableLike,
    *,
    bias_cutoff: int | None = None,
    official_alignment: bool = False,
    seed: int = 123456,
) -> Taxi:
    """Returns the score of released taxi trips: the contest's third sprint.

    Both tables, `truth` and `release`, have trips in the contest's columns. `bias_cutoff` (250 in an older
    copy of the code) sets an area and shift to the worst distance if the numbers of trips differ by that
    much. `seed` draws the taxis that others are compared with; the default is the contest's.
    `official_alignment` repeats a trait of the contest's code, to compare with published scores;
    without it, a shift or area that the release lacks is a column of zeros and nothing else.

    >>> trips = {name: [1, 2] for name in _COMPARED} | {"taxi_id": [7, 8], "shift": [0, 1]}
    >>> taxi(trips | {"pickup_community_area": [8, -1]}, trips | {"pickup_community_area": [8, -1]}).score
    1000.0
    """
    ours, theirs = read_sides(truth, release)
    require_records(ours, theirs, (_TAXI, _SHIFT, _PICKUP, *_COMPARED))
    columns = {
        name: code_column_pair(ours, theirs, name, cut=bin_trips if name in _AMOUNTS else None)
        for name in _COMPARED
    }
    place = (_PICKUP, _SHIFT)
    marginals = measure_places(
        ours, theirs, place=place, columns=columns, column_sets=_PAIRS, bias_cutoff=bias_cutoff
    )
    trips = [
        Trips(*(whole_numbers(table, name, side=side) for name in (_TAXI, _SHIFT, _PICKUP)))
        for table, side in zip((ours, theirs), SIDES, strict=True)
    ]
    shares = measure_conjunction(*trips, seed=seed, official_alignment=official_alignment)
    return Taxi(
        k_marginal=(FARTHEST - float(marginals.distances.mean())) / FARTHEST,
        graph_edge=_compare_edges(ours, theirs, columns[_DROPOFF]),
        conjunction=1 - float(np.abs(shares[:, 0] - shares[:, 1]).mean()),
        places=marginals.places,
        distances=marginals.distances,
        biased=marginals.biased,
        shares=shares,
    )


def bin_trips(name: str, values: NDArray[Any]) -> Whole:
    """Returns the official intervals of an amount, closed on the left, as codes 0 to 10.

    >>> bin_trips("fare", np.array([-1, 0, 10, 90])).tolist()
    [0, 1, 2, 10]
    """
    step = 200 if name == "trip_seconds" else 10
    return np.searchsorted(step * np.arange(10.0), values, side="right").astype(np.int64)


def _compare_edges(truth: pa.Table, release: pa.Table, dropoff: Coded) -> float:
    """1 less the distance of the distributions of trips over pairs of pickup and dropoff area."""
    first, second, labels = code_pair(truth, release, _PICKUP)
    sizes = [len(labels), dropoff.size]
    keys = [pack_codes([first, dropoff.truth], sizes), pack_codes([second, dropoff.release], sizes)]
    _, (ours, theirs) = align_counts(keys, sizes[0] * sizes[1])
    return 1 - total_variation(ours, theirs)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trips:
    """Trips of taxis: who drove, in which shift, from which area, and how many such trips."""

    taxi: Whole
    shift: Whole
    area: Whole
    trips: Whole | None = None


def draw_rounds(taxis: int, *, rounds: int, seed: int) -> list[tuple[int, Whole]]:
    """Returns a taxi and a limit for each of its 99 counts, per round, drawn as the contest draws them.

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
) -> Floats:
    """Gives the shares of taxis similar to a drawn one, in `truth` and `release`, a row for each of `rounds`.

    A taxi has 99 counts: its trips per shift and per pickup area. Taxis and limits are drawn from the
    public `seed`. `official_alignment` repeats what
    the contest's code does where the release lacks an area or a shift with a number from 1 to 20: the
    column of the other kind with that number is read as zero as well.
    """
    true_taxis, true_rows = np.unique(truth.taxi, return_inverse=True)
    drawn = draw_rounds(true_taxis.size, rounds=rounds, seed=seed)
    picked = _count_taxis(truth, true_rows, true_taxis.size, [row for row, _ in drawn])
    bounds = [(counts - limits, counts + limits) for counts, (_, limits) in zip(picked, drawn, strict=True)]
    lost = _lost_columns(release) if official_alignment else np.empty(0, np.int64)
    taxis, rows = np.unique(release.taxi, return_inverse=True)
    ours = _count_similar(truth, true_rows, true_taxis.size, bounds, np.empty(0, np.int64))
    theirs = _count_similar(release, rows, taxis.size, bounds, lost)
    return np.stack([ours / max(true_taxis.size, 1), theirs / max(taxis.size, 1)], axis=1)


def _count_similar(
    trips: Trips,
    rows: Whole,
    taxis: int,
    bounds: list[tuple[Whole, Whole]],
    lost: Whole,
) -> Floats:
    """Returns the number of taxis within the bounds of every round, some thousand taxis at a time."""
    order = np.argsort(rows, kind="stable")
    starts = np.searchsorted(rows[order], np.arange(0, taxis + _CHUNK, _CHUNK))
    similar = np.zeros(len(bounds))
    for index, (start, end) in enumerate(pairwise(starts.tolist())):
        first = index * _CHUNK
        part = order[start:end]
        counts = _count_trips(trips, part, rows[part] - first, min(_CHUNK, taxis - first))
        counts[:, lost] = 0  # what the contest's code loses, see measure_conjunction
        for round_, (low, high) in enumerate(bounds):
            similar[round_] += np.count_nonzero(((counts >= low) & (counts <= high)).all(axis=1))
    return similar


def _count_taxis(trips: Trips, rows: Whole, taxis: int, chosen: list[int]) -> Whole:
    """Returns the 99 counts of the chosen taxis."""
    place = np.full(taxis, -1, np.int64)
    found = np.unique(np.array(chosen, np.int64))
    place[found] = np.arange(found.size)
    part = np.flatnonzero(place[rows] >= 0)
    counts = _count_trips(trips, part, place[rows[part]], found.size)
    return counts[place[np.array(chosen, np.int64)]]


def _count_trips(trips: Trips, part: NDArray[np.intp], rows: Whole, taxis: int) -> Whole:
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


def _lost_columns(release: Trips) -> Whole:
    present = release.trips is None or release.trips > 0
    shifts = set(np.unique(release.shift[present]).tolist())
    areas = set(np.unique(release.area[present]).tolist())
    lost = [number for number in SHIFTS[1:] if number not in areas]
    lost += [len(SHIFTS) + number for number in SHIFTS[1:] if number not in shifts]
    return np.array(lost, np.int64)
