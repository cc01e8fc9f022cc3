"""Distances of all marginals of one, two and three columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.metrics.cells import align_counts, half_distance, pack_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.metrics.pair import CodedPair, Side

_LISTED = 200
ZEROS, UNIFORM, HALF, RELEASE = (
    "all-zero release",
    "uniform release",
    "half of the individuals",
    "this release",
)


@dataclass(frozen=True, slots=True)
class Marginal:
    """Columns, and the total variation distance of their joint distribution."""

    columns: tuple[str, ...]
    tvd: float


@dataclass(frozen=True, slots=True)
class Reference:
    """A table to compare with, and its mean distance over marginals of one, two and three columns."""

    name: str
    tvd: tuple[float | None, float | None, float | None]

    def to_record(self) -> dict[str, Any]:
        """The reference as a plain record."""
        return {"name": self.name, **{f"tvd{order}": mean for order, mean in enumerate(self.tvd, start=1)}}


@dataclass(frozen=True, slots=True)
class Marginals:
    """All distances, worst first, with the number of marginals there are of each order."""

    marginals: tuple[Marginal, ...]
    possible: tuple[int, int, int]
    references: tuple[Reference, ...]

    def of_order(self, order: int) -> tuple[Marginal, ...]:
        """The marginals of so many columns, worst first."""
        return tuple(each for each in self.marginals if len(each.columns) == order)

    def to_record(self) -> dict[str, Any]:
        """The distances as a plain record: a summary per order, and the worst."""
        record: dict[str, Any] = {}
        for order in (1, 2, 3):
            distances = [each.tvd for each in self.of_order(order)]
            record[str(order)] = {
                "mean": math.fsum(distances) / len(distances) if distances else None,
                "worst": max(distances, default=None),
                "count": len(distances),
                "of": self.possible[order - 1],
            }
        worst = self.marginals[:_LISTED]
        return record | {"list": [{"columns": list(each.columns), "tvd": each.tvd} for each in worst]}


def count_marginal(
    pair: CodedPair, columns: Sequence[str], sides: Sequence[Side]
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """(cells, counts of every side): all cells of a small domain, else those that occur."""
    sizes = [pair.sizes[name] for name in columns]
    keys = [pack_codes([side.codes[name] for name in columns], sizes) for side in sides]
    return align_counts(keys, math.prod(sizes), weights=[side.weights for side in sides])


def measure_marginals(
    pair: CodedPair, half: Side, *, domain: Sequence[int], seed: int, most_triples: int
) -> Marginals:
    """The distance of every marginal of one to three columns, beside those of the references.

    Of three columns, at most `most_triples` are measured, drawn from `seed`. `half` is a half of the
    truth's individuals, `domain` the sizes of the columns' domains.
    """
    sizes = dict(zip(pair.columns, domain, strict=True))
    found: list[Marginal] = []
    possible = []
    means: dict[str, list[float | None]] = {ZEROS: [], UNIFORM: [], HALF: [], RELEASE: []}
    for order in (1, 2, 3):
        chosen = _choose(pair.columns, order, most_triples, seed)
        possible.append(math.comb(len(pair.columns), order))
        distances: dict[str, list[float]] = {name: [] for name in means}
        for columns in chosen:
            _, (truth, release, halved) = count_marginal(pair, columns, (pair.truth, pair.release, half))
            distances[ZEROS].append(1.0)
            cells = math.prod(sizes[name] for name in columns)
            distances[UNIFORM].append(_uniform_distance(truth, cells))
            distances[HALF].append(half_distance(truth, halved))
            distances[RELEASE].append(half_distance(truth, release))
            found.append(Marginal(columns, distances[RELEASE][-1]))
        for name, listed in distances.items():
            means[name].append(math.fsum(listed) / len(listed) if listed else None)
    return Marginals(
        marginals=tuple(sorted(found, key=lambda each: -each.tvd)),
        possible=(possible[0], possible[1], possible[2]),
        references=tuple(Reference(name, (m[0], m[1], m[2])) for name, m in means.items()),
    )


def _choose(columns: tuple[str, ...], order: int, most: int, seed: int) -> list[tuple[str, ...]]:
    count = math.comb(len(columns), order)
    if order < 3 or count <= most:
        return list(combinations(columns, order))
    generator = np.random.default_rng([seed, 3])
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < most:
        chosen.add(tuple(sorted(generator.permutation(len(columns))[:order].tolist())))
    return [tuple(columns[place] for place in places) for places in sorted(chosen)]


def _uniform_distance(truth: NDArray[np.float64], cells: int) -> float:
    """The distance from the table that has the same count in each of `cells` cells."""
    shares = truth[truth > 0] / truth.sum()
    empty = (cells - int(shares.size)) / cells
    return (float(np.abs(shares - 1 / cells).sum()) + empty) / 2
