"""Distances of marginals within every place and time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.metrics.cells import align_counts, pack_codes
from sfumato.metrics.codes import Label, number_pair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

FARTHEST = 2.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coded:
    """A column as codes of truth and release, and the number of codes."""

    truth: NDArray[np.int32]
    release: NDArray[np.int32]
    size: int


def hold_codes(truth: NDArray[np.int64], release: NDArray[np.int64], size: int) -> Coded:
    """A coded column in half of the memory."""
    return Coded(truth.astype(np.int32), release.astype(np.int32), size)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlaceTimes:
    """The places and times of both sides: their values, every record's code, the records of each."""

    values: tuple[tuple[Label, ...], ...]
    code: Coded
    truth: NDArray[np.int64]
    release: NDArray[np.int64]


def number_places(truth: pa.Table, release: pa.Table, names: Sequence[str]) -> PlaceTimes:
    """Every place and time that occurs in truth or release, in the order of its values."""
    columns = [number_pair(truth, release, name) for name in names]
    sizes = [len(labels) for _, _, labels in columns]
    keys = [
        pack_codes([first for first, _, _ in columns], sizes),
        pack_codes([second for _, second, _ in columns], sizes),
    ]
    found, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    first, second = np.split(inverse.reshape(-1).astype(np.int64), [keys[0].size])
    parts = np.unravel_index(found, sizes)
    values = tuple(
        tuple(columns[at][2][int(part)] for at, part in enumerate(place))
        for place in zip(*parts, strict=True)
    )
    return PlaceTimes(
        values=values,
        code=hold_codes(first, second, found.size),
        truth=np.bincount(first, minlength=found.size),
        release=np.bincount(second, minlength=found.size),
    )


def group_distance(truth: NDArray[np.float64], release: NDArray[np.float64]) -> float:
    """The sum of absolute differences of shares, from 0 to 2; 2 if one side has no record.

    >>> group_distance(np.array([1.0, 3.0]), np.array([3.0, 1.0]))
    1.0
    """
    totals = float(truth.sum()), float(release.sum())
    if not totals[0] or not totals[1]:
        return FARTHEST
    return float(np.abs(truth / totals[0] - release / totals[1]).sum())


def measure_places(
    places: PlaceTimes, columns: Mapping[str, Coded], column_sets: Sequence[Sequence[str]]
) -> NDArray[np.float64]:
    """The distance of every place and time (rows) in every set of columns (columns of the result)."""
    counts = places.truth, places.release
    empty = (counts[0] == 0) | (counts[1] == 0)
    scales = [1.0 / np.maximum(count, 1) for count in counts]
    known: dict[tuple[str, ...], NDArray[np.float64]] = {}
    distances = np.empty((len(places.values), len(column_sets)))
    for index, names in enumerate(column_sets):
        same = tuple(sorted(names))  # the order within a set does not matter
        if same not in known:
            known[same] = _measure_set(places, [columns[name] for name in same], scales)
            known[same][empty] = FARTHEST
        distances[:, index] = known[same]
    return distances


def _measure_set(
    places: PlaceTimes, columns: Sequence[Coded], scales: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    coded = [places.code, *columns]
    sizes = [column.size for column in coded]
    keys = [
        pack_codes([column.truth for column in coded], sizes),
        pack_codes([column.release for column in coded], sizes),
    ]
    inner = math.prod(sizes[1:])
    cells, (ours, theirs) = align_counts(keys, inner * sizes[0])
    place = cells // inner
    difference = np.abs(ours * scales[0][place] - theirs * scales[1][place])
    return np.bincount(place, difference, minlength=sizes[0]).astype(np.float64)
