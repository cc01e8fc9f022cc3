"""Counts of cells: dense where a domain is small, by sorted keys where it is not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import MetricError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DENSE = 2**17
_PER_ROW = 4


def pack_codes(codes: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> NDArray[np.int64]:
    """One key per row, in row-major order of the codes; the product of `sizes` must stay below 2^63.

    >>> pack_codes([np.array([0, 1]), np.array([2, 0])], [2, 3]).tolist()
    [2, 3]
    """
    if math.prod(sizes) >= 2**63:
        raise MetricError(
            "these columns have too many combinations of values to be told apart; compare fewer"
        )
    keys = codes[0].astype(np.int64)
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        keys *= size
        keys += code
    return keys


def align_counts(
    keys: Sequence[NDArray[np.int64]],
    cells: int,
    *,
    weights: Sequence[NDArray[np.float64] | None] | None = None,
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """(the cells, the count of every side in each): all cells of a small domain, else the occupied ones.

    >>> places, (left, right) = align_counts([np.array([1, 1]), np.array([0])], 3)
    >>> places.tolist(), left.tolist(), right.tolist()
    ([0, 1, 2], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0])
    """
    weights = weights or [None] * len(keys)
    if cells <= max(_DENSE, _PER_ROW * sum(key.size for key in keys)):
        places = np.arange(cells, dtype=np.int64)
        inverses = list(keys)
    else:
        places, inverse = np.unique(np.concatenate(keys), return_inverse=True)
        inverses = np.split(inverse.reshape(-1), np.cumsum([key.size for key in keys])[:-1])
    counts = [
        np.bincount(inverse, weight, minlength=places.size).astype(np.float64)
        for inverse, weight in zip(inverses, weights, strict=True)
    ]
    return places, counts


def half_distance(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The total variation distance of two arrays of counts, 1 if one of them is empty.

    >>> half_distance(np.array([1.0, 1.0]), np.array([3.0, 1.0]))
    0.25
    """
    totals = float(first.sum()), float(second.sum())
    if totals[0] <= 0 or totals[1] <= 0:
        return 1.0
    return min(1.0, float(np.abs(first / totals[0] - second / totals[1]).sum()) / 2)
