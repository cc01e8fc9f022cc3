"""Clusters from noisy counts and sums: places to begin with, centres, and whether they are more than noise.

Everything is in the cube [-1, 1]^d, to which columns are scaled by their public bounds. Nothing here is
random: the same noisy numbers give the same clusters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Label
from sfumato.inference.models.design import number_term, number_values, scale_numbers
from sfumato.tables.arrays import Floats, Whole

_KNOWN = 3.0  # standard deviations of its noise that a count must exceed, and the gain over one cluster
_ROUNDS = 100  # of k-means, which ends long before
_WORTH = 1e-3  # of the cost, that a swap of a centre must gain
_DIGITS = 9  # by which gains differ, or they are equal: libraries add up in another order


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clusters:
    """Centres with their noisy sizes, the largest first, and what they gain over one cluster.

    `middle` is the centre of all. `gain` is by how much the sum of squared distances to the nearest centre is
    less than that to the middle, and `error` the standard deviation of its noise. If they are not `found`
    there is one centre, the middle.
    """

    centres: Floats
    sizes: Floats
    middle: Floats
    gain: float
    error: float
    found: bool


def spread_places(count: int, dimensions: int) -> Floats:
    """Places that are spread evenly over the cube: multiples of irrational numbers, modulo one (Roberts).

    >>> spread_places(3, 1).round(3).tolist()
    [[-0.764], [0.472], [-0.292]]
    """
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = (1 / root) ** np.arange(1, dimensions + 1)
    return np.asarray(2 * ((0.5 + np.arange(1, count + 1)[:, None] * steps) % 1) - 1)


def locate(counts: Floats, sums: Floats, *, least: float) -> tuple[Floats, Floats]:
    """Return the means of groups with more than `least` records, held to the cube, and their counts."""
    kept = counts > least
    means = sums[kept] / counts[kept, None]
    return np.clip(means, -1.0, 1.0), counts[kept]


def choose_centres(points: Floats, weights: Floats, count: int) -> Floats:
    """Return centres of weighted points: weighted k-means that begins and goes on by what gains most.

    Centres are chosen one after another. As long as a point in the place of a centre gains something, they
    change places, since means alone would rest with two centres in one cluster.
    """
    count = min(count, len(points))
    distances = _squares(points, points)
    nearest = np.full(len(points), math.inf)
    chosen: list[int] = []
    for _ in range(count):
        chosen.append(_best((np.minimum(nearest[None, :], distances) * weights[None, :]).sum(axis=1))[0])
        nearest = np.minimum(nearest, distances[chosen[-1]])
    centres = _settle(points, weights, points[chosen])
    for _ in range(2 * count):
        reach = _squares(points, centres)
        cost = float((reach.min(axis=1) * weights).sum())
        swaps = []
        for place in range(count):
            others = np.delete(reach, place, axis=1).min(axis=1, initial=math.inf)
            swaps.append(_best((np.minimum(others[None, :], distances) * weights[None, :]).sum(axis=1)))
        place, left = _best(np.array([each[1] for each in swaps]))
        if left >= cost * (1 - _WORTH):
            break
        centres[place] = points[swaps[place][0]]
        centres = _settle(points, weights, centres)
    return centres


def _settle(points: Floats, weights: Floats, centres: Floats) -> Floats:
    """Return centres moved to the means of the points that are nearest to them, until they rest."""
    count = len(centres)
    for _ in range(_ROUNDS if count else 0):
        member = _squares(points, centres).argmin(axis=1)
        held = np.bincount(member, weights=weights, minlength=count)
        means = np.stack(
            [np.bincount(member, weights=weights * each, minlength=count) for each in points.T], axis=1
        )
        moved = np.where(held[:, None] > 0, means / np.maximum(held[:, None], 1e-300), centres)
        rests = bool(np.abs(moved - centres).max() < 1e-6)
        centres = moved
        if rests:
            break
    return np.asarray(centres)


def _squares(points: Floats, others: Floats) -> Floats:
    """Return the squared distance of every point to every other."""
    return np.asarray(((points[:, None, :] - others[None, :, :]) ** 2).sum(axis=2))


def _best(costs: Floats) -> tuple[int, float]:
    """Return place of the least cost, the first of those that are equal but for rounding, and that cost."""
    place = int(np.argmin(np.round(costs / max(float(costs.max()), 1e-300), _DIGITS)))
    return place, float(costs[place])


def judge_clusters(counts: Floats, sums: Floats, *, sigma: float) -> Clusters:
    """Return clusters that noisy `counts` and `sums` show, if they are more than noise of deviation `sigma`.

    The groups must have been chosen without these numbers, so that their noise is new.
    """
    total = float(counts.sum())
    known = total > _KNOWN * sigma * math.sqrt(counts.size)
    middle = np.clip(sums.sum(axis=0) / total, -1.0, 1.0) if known else np.zeros(sums.shape[1])
    kept = np.flatnonzero(counts > _KNOWN * sigma)
    sizes, centres = counts[kept], np.clip(sums[kept] / counts[kept, None], -1.0, 1.0)
    spread = sigma**2 * (sums.shape[1] + float((middle**2).sum()))  # of the noise of a sum less its share
    gaps = sums[kept] - sizes[:, None] * middle
    gain = float((((gaps**2).sum(axis=1) - spread) / sizes).sum())
    # Of |g + z|^2 / n, with g known and z normal: 4 |g|^2 s^2 / n^2 and 2 d s^4 / n^2.
    variance = 4 * (gaps**2).sum(axis=1) * sigma**2 * (1 + (middle**2).sum()) + 2 * spread**2
    error = math.sqrt(float((variance / sizes**2).sum()))
    if not known or kept.size < 2 or gain <= _KNOWN * error:
        one = np.array([total]) if known else np.zeros(1)
        centres, sizes, found = middle[None, :], one, False
    else:
        order = np.argsort(-sizes, kind="stable")
        centres, sizes, found = centres[order], sizes[order], True
    return Clusters(centres=centres, sizes=sizes, middle=middle, gain=gain, error=error, found=found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterModel:
    """Released centres in whole numbers, and for every column the features of its codes."""

    places: Whole
    scores: dict[str, Whole]
    family: str = "clusters"
    classes: tuple[Label, ...] = ()

    def numbers(self, codes: Mapping[str, Whole], rows: int) -> NDArray[Any]:
        """Return number of the nearest centre, from 1 on, of every row; 0 of rows with an unknown value."""
        costs = np.zeros((rows, self.places.shape[0]), np.int64)
        known = np.ones(rows, np.bool_)
        for place, (name, scores) in enumerate(self.scores.items()):
            costs += (scores[np.maximum(codes[name], 0)] - self.places[:, place]) ** 2
            known &= codes[name] >= 0
        return np.where(known, np.argmin(costs, axis=1) + 1, 0)

    probabilities = numbers


def read_clusters(document: Mapping[str, Any], columns: Mapping[str, Column], *, grid: int) -> ClusterModel:
    """Return the centres that a model.json describes; raises a ValueError if it describes none."""
    places = np.array(document["places"], np.int64)
    if places.ndim != 2 or places.shape[1] != len(columns) or not len(places) or np.abs(places).max() > grid:
        raise ValueError("a centre needs a number for every column")
    return ClusterModel(
        places=places, scores={name: scale_column(column, grid=grid) for name, column in columns.items()}
    )


def scale_column(column: Column, *, grid: int) -> Whole:
    """What every code of a column of numbers is scaled to, in a column of whole multiples of 1 / grid."""
    values = number_values(column)
    if values is None or column.extras:
        raise ValueError("no number for every code")
    return scale_numbers(values, number_term(column), extras=0, grid=grid)
