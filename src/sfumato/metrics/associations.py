"""Associations of pairs of columns, in truth and release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.metrics.marginals import count_marginal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.metrics.pair import CodedPair

_LISTED = 50


@dataclass(frozen=True, slots=True, eq=False)
class Associations:
    """Cramer's V of every pair of columns, from 0 (independent) to 1, as two symmetric matrices."""

    columns: tuple[str, ...]
    truth: NDArray[np.float64]
    release: NDArray[np.float64]

    def worst(self) -> list[tuple[str, str, float, float]]:
        """Pairs of columns with their association in truth and release, most changed first."""
        pairs = [
            (self.columns[i], self.columns[j], float(self.truth[i, j]), float(self.release[i, j]))
            for i, j in combinations(range(len(self.columns)), 2)
        ]
        return sorted(pairs, key=lambda each: -abs(each[2] - each[3]))

    def to_record(self) -> dict[str, Any]:
        """The matrices and the pairs that changed most, as a plain record."""
        return {
            "columns": list(self.columns),
            "truth": self.truth.tolist(),
            "release": self.release.tolist(),
            "worst": [
                {"columns": [first, second], "truth": ours, "release": theirs}
                for first, second, ours, theirs in self.worst()[:_LISTED]
            ],
        }


def measure_associations(pair: CodedPair) -> Associations:
    """Cramer's V of every pair of columns on both sides."""
    width = len(pair.columns)
    matrices = np.stack([np.eye(width), np.eye(width)])
    for (i, first), (j, second) in combinations(enumerate(pair.columns), 2):
        cells, counts = count_marginal(pair, (first, second), (pair.truth, pair.release))
        rows, columns = np.divmod(cells, pair.sizes[second])
        for side, count in enumerate(counts):
            matrices[side, i, j] = matrices[side, j, i] = cramers_v(rows, columns, count)
    return Associations(pair.columns, matrices[0], matrices[1])


def cramers_v(rows: NDArray[np.int64], columns: NDArray[np.int64], counts: NDArray[np.float64]) -> float:
    """Cramer's V of a table given by its cells; 0 if one of the two takes a single value.

    >>> cells = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> cramers_v(*cells, np.array([5.0, 0, 0, 5])), cramers_v(*cells, np.array([1.0, 1, 1, 1]))
    (1.0, 0.0)
    """
    occupied = counts > 0
    rows, columns, counts = rows[occupied], columns[occupied], counts[occupied]
    if not counts.size:
        return 0.0
    row_sums, column_sums = np.bincount(rows, counts), np.bincount(columns, counts)
    freedom = min(np.count_nonzero(row_sums), np.count_nonzero(column_sums)) - 1
    if freedom < 1:
        return 0.0
    fit = float((counts / row_sums[rows] * (counts / column_sums[columns])).sum())
    return math.sqrt(min(1.0, max(0.0, fit - 1) / freedom))
