"""A small logistic regression over columns of codes.

Every code of every column is a feature, but no matrix of features is ever made: sums over records
become counts of codes, and the curvature counts of pairs of codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.metrics.pair import CodedPair

_MOST_FEATURES = 400
_MOST_LEVELS = 50
_RIDGE = 0.01
_STEPS = 40
_ANEW = (0, 1, 3, 6, 10, 15, 20, 25, 30, 35)
_CLOSE = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """How codes become features: per column, the feature of every code; rare codes share one."""

    columns: tuple[str, ...]
    tables: tuple[NDArray[np.int64], ...]
    sizes: tuple[int, ...]

    @property
    def parameters(self) -> int:
        """The number of free parameters: one, and for every column one less than it has features."""
        return 1 + sum(size - 1 for size in self.sizes)

    def apply(self, codes: dict[str, NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """The feature of every record in every column."""
        return [table[codes[name]] for name, table in zip(self.columns, self.tables, strict=True)]


def choose_features(pair: CodedPair, columns: Sequence[str], codes: dict[str, NDArray[np.int64]]) -> Features:
    """Features for `columns`: the most frequent codes among `codes` one each, the others one together.

    At most 50 per column, and fewer if there are so many columns that all would be more than 400.
    """
    counts = {name: np.bincount(codes[name], minlength=pair.sizes[name]) for name in columns}
    present = [int(np.count_nonzero(count)) for count in counts.values()]
    levels = next(
        (most for most in range(_MOST_LEVELS, 2, -1) if sum(min(n, most) for n in present) <= _MOST_FEATURES),
        2,
    )
    tables, sizes = [], []
    for count in counts.values():
        occupied = int(np.count_nonzero(count))
        kept = np.argsort(-count, kind="stable")[: occupied if occupied <= levels else levels - 1]
        rest = 0 if occupied <= levels else kept.size
        table = np.full(count.size, rest, np.int64)
        table[kept] = np.arange(kept.size)
        tables.append(table)
        sizes.append(kept.size + (occupied > levels))
    return Features(tuple(columns), tuple(tables), tuple(sizes))


def fit_logistic(
    features: Sequence[NDArray[np.int64]], sizes: Sequence[int], outcome: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Coefficients, the constant first, that maximise the penalised likelihood; by Newton's method.

    The curvature is dear and changes little near the maximum, so it is measured anew in the steps of
    _ANEW only, and when a step had to be shortened.

    >>> fit = fit_logistic([np.array([0, 0, 1, 1])], [2], np.array([False, True, True, True]))
    >>> bool(fit[1] < fit[2])
    True
    """
    offsets = np.cumsum([1, *sizes])
    width = int(offsets[-1])
    coefficients = np.zeros(width)
    target = outcome.astype(np.float64)
    loss = _loss(_linear(features, offsets, coefficients), target, coefficients)
    inverse: NDArray[Any] = np.empty(0)
    scale = 1.0
    for turn in range(_STEPS):
        chance = _chance(_linear(features, offsets, coefficients))
        gradient = _sums(features, sizes, target - chance) - _penalty(coefficients)
        if turn in _ANEW or scale < 1:
            inverse = np.linalg.inv(_curvature(features, sizes, offsets, chance * (1 - chance)))
        step = inverse @ gradient
        scale = 1.0
        while scale > _CLOSE:
            tried = coefficients + scale * step
            reached = _loss(_linear(features, offsets, tried), target, tried)
            if reached <= loss:
                break
            scale /= 2
        else:
            break
        gained, loss, coefficients = loss - reached, reached, tried
        if gained < _CLOSE * target.size:
            break
    return coefficients


def predict(
    features: Sequence[NDArray[np.int64]], sizes: Sequence[int], coefficients: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The chance of every record, between 0 and 1."""
    return _chance(_linear(features, np.cumsum([1, *sizes]), coefficients))


def _linear(
    features: Sequence[NDArray[np.int64]], offsets: NDArray[np.int64], coefficients: NDArray[np.float64]
) -> NDArray[np.float64]:
    total = np.full(features[0].size, coefficients[0])
    for feature, offset in zip(features, offsets, strict=False):
        total += coefficients[offset:][feature]
    return total


def _chance(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-np.clip(linear, -500, 500))))


def _loss(
    linear: NDArray[np.float64], target: NDArray[np.float64], coefficients: NDArray[np.float64]
) -> float:
    fit = float((np.logaddexp(0, linear) - target * linear).sum())
    return fit + float(coefficients @ _penalty(coefficients)) / 2


def _penalty(coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    penalty = _RIDGE * coefficients
    penalty[0] = 0.0  # the constant is free
    return penalty


def _sums(
    features: Sequence[NDArray[np.int64]], sizes: Sequence[int], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    parts = [np.bincount(each, weights, minlength=size) for each, size in zip(features, sizes, strict=True)]
    return np.concatenate([[weights.sum()], *parts])


def _curvature(
    features: Sequence[NDArray[np.int64]],
    sizes: Sequence[int],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    width = int(offsets[-1])
    matrix = np.zeros((width, width))
    sums = _sums(features, sizes, weights)
    matrix[0], matrix[:, 0] = sums, sums
    np.fill_diagonal(matrix, sums)
    for i, first in enumerate(features):
        for j in range(i + 1, len(features)):
            keys = first * sizes[j] + features[j]
            block = np.bincount(keys, weights, minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])
            rows, columns = slice(offsets[i], offsets[i + 1]), slice(offsets[j], offsets[j + 1])
            matrix[rows, columns], matrix[columns, rows] = block, block.T
    matrix[np.diag_indices(width)] += np.where(np.arange(width) == 0, 1e-9, _RIDGE)
    return matrix
