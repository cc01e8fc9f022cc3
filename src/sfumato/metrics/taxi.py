"""The taxi metric: marginals per area and shift, trips between areas, and taxis that work alike."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import MetricError
from sfumato.metrics.cells import align_counts, half_distance, pack_codes
from sfumato.metrics.codes import Label, number_pair
from sfumato.metrics.conjunction import Conjunction, Trips, measure_conjunction
from sfumato.metrics.places import FARTHEST, Coded, hold_codes, measure_places, number_places
from sfumato.metrics.tables import TableLike, measure, read_table, require_columns, whole_numbers

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_PICKUP, _DROPOFF, _SHIFT, _TAXI = "pickup_community_area", "dropoff_community_area", "shift", "taxi_id"
_AMOUNTS = ("fare", "tips", "trip_total", "trip_seconds", "trip_miles")
_COMPARED = ("company_id", _DROPOFF, "payment_type", *_AMOUNTS)
_PAIRS = tuple(combinations(_COMPARED, 2))


@dataclass(frozen=True, slots=True, eq=False)
class Taxi:
    """The three parts, each from 0 to 1, and the distance of every area and shift."""

    k_marginal: float
    graph_edge: float
    conjunction: float
    places: tuple[tuple[Label, ...], ...]
    distances: NDArray[np.float64]
    biased: NDArray[np.bool_]
    shares: NDArray[np.float64]

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
        """The score as a plain record."""
        return {
            "score": self.score,
            "k_marginal": self.k_marginal,
            "graph_edge": self.graph_edge,
            "conjunction": self.conjunction,
            "places": len(self.places),
        }


def taxi(
    truth: TableLike,
    release: TableLike,
    *,
    bias_cutoff: int | None = None,
    official_alignment: bool = False,
    seed: int = 123456,
) -> Taxi:
    """The score of released taxi trips: the contest's third sprint.

    Both tables hold trips in the contest's columns. `bias_cutoff` (250 in an older copy of the code)
    sets an area and shift to the worst distance if the numbers of trips differ by that much.
    `official_alignment` repeats a trait of the contest's code, to compare with published scores;
    without it, a shift or area that the release lacks is a column of zeros and nothing else.

    >>> trips = {name: [1, 2] for name in _COMPARED} | {"taxi_id": [7, 8], "shift": [0, 1]}
    >>> taxi(trips | {"pickup_community_area": [8, -1]}, trips | {"pickup_community_area": [8, -1]}).score
    1000.0
    """
    ours, theirs = read_table(truth, side="truth"), read_table(release, side="release")
    for table, side in ((ours, "truth"), (theirs, "release")):
        require_columns(table, (_TAXI, _SHIFT, _PICKUP, *_COMPARED), side=side)
        if table.num_rows == 0:
            raise MetricError(f"{side} has no records")
    places = number_places(ours, theirs, (_PICKUP, _SHIFT))
    columns = {name: _code(ours, theirs, name) for name in _COMPARED}
    distances = measure_places(places, columns, _PAIRS).mean(axis=1)
    biased = np.zeros(distances.size, np.bool_)
    if bias_cutoff is not None:
        biased = np.abs(places.truth - places.release) >= bias_cutoff
        distances = np.where(biased, FARTHEST, distances)
    conjunction = _conjunction(ours, theirs, seed=seed, official=official_alignment)
    return Taxi(
        k_marginal=(FARTHEST - float(distances.mean())) / FARTHEST,
        graph_edge=_graph_edge(ours, theirs, columns[_DROPOFF]),
        conjunction=conjunction.part,
        places=places.values,
        distances=distances,
        biased=biased,
        shares=conjunction.shares,
    )


def bin_trips(name: str, values: NDArray[Any]) -> NDArray[np.int64]:
    """The official intervals of an amount, closed on the left, as codes 0 to 10.

    >>> bin_trips("fare", np.array([-1, 0, 10, 90])).tolist()
    [0, 1, 2, 10]
    """
    step = 200 if name == "trip_seconds" else 10
    return np.searchsorted(step * np.arange(10.0), values, side="right").astype(np.int64)


def _code(truth: pa.Table, release: pa.Table, name: str) -> Coded:
    if name in _AMOUNTS:
        first = bin_trips(name, measure(truth, name, side="truth"))
        second = bin_trips(name, measure(release, name, side="release"))
        return hold_codes(first, second, 11)
    ours, theirs, labels = number_pair(truth, release, name)
    return hold_codes(ours, theirs, len(labels))


def _graph_edge(truth: pa.Table, release: pa.Table, dropoff: Coded) -> float:
    first, second, labels = number_pair(truth, release, _PICKUP)
    sizes = [len(labels), dropoff.size]
    keys = [pack_codes([first, dropoff.truth], sizes), pack_codes([second, dropoff.release], sizes)]
    _, (ours, theirs) = align_counts(keys, sizes[0] * sizes[1])
    return 1 - half_distance(ours, theirs)


def _conjunction(truth: pa.Table, release: pa.Table, *, seed: int, official: bool) -> Conjunction:
    trips = [
        Trips(*(whole_numbers(table, name, side=side) for name in (_TAXI, _SHIFT, _PICKUP)))
        for table, side in ((truth, "truth"), (release, "release"))
    ]
    return measure_conjunction(trips[0], trips[1], seed=seed, official_alignment=official)
