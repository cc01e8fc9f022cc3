"""Contrasts: differences between the values of columns, in place of counts of them.

Once the parts of a marginal are known, what it tells beyond them is all that need be asked. Of columns with
few values that is little: a difference in place of two counts, one number in place of the four or eight
counts of a pair or triple of yes and no. Differences cost less than counts with the same noise, by 1 - 1 / m
for every column of m values along which they are taken. They are the residuals of an analysis of variance,
by which marginals are measured best (Xiao, He, Zhang and Kifer 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.questions.counts import Queries
from sfumato.inference.domain import Sparse

if TYPE_CHECKING:
    from sfumato.inference.domain import Columns
    from sfumato.recipes.selection import Compression

_FEW = 4  # values of a column along which differences are taken; of more values they save less than a fifth
_GRID = 2**12  # weights of counts are whole multiples of 1 / _GRID


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contrasts:
    """The counts of a marginal less their means along some columns, times `scale`.

    `queries` are the weights of the records' counts, `fitted` those of counts over joined values.

    Privacy: the weights of any one cell have an L2 norm of at most 1, as `Queries` checks in whole numbers.
    """

    along: Columns
    scale: float
    queries: Queries
    fitted: Sparse


def take_contrasts(compression: Compression, columns: Columns) -> Contrasts | None:
    """The differences along all of `columns` that have few values and none joined; None if there are none."""
    domain = compression.domain
    along = _find_along(compression, columns)
    if not along:
        return None
    sizes = [domain[name] for name in along]
    factor = math.isqrt(_GRID**2 // math.prod(size * (size - 1) for size in sizes))
    rows, cells, weights = np.zeros(1, np.int64), np.zeros(1, np.int64), np.full(1, factor)
    for name in columns:
        size = domain[name]
        matrix = size * np.eye(size, dtype=np.int64) - 1 if name in along else None
        places = np.arange(size)
        row, cell = (
            (places, places) if matrix is None else (each.reshape(-1) for each in np.indices((size, size)))
        )
        rows = np.add.outer(rows * size, row).reshape(-1)
        cells = np.add.outer(cells * size, cell).reshape(-1)
        weights = np.multiply.outer(
            weights, np.ones(size, np.int64) if matrix is None else matrix.reshape(-1)
        )
        weights = weights.reshape(-1)
    order = np.lexsort((cells, rows))
    rows, cells, weights = rows[order], cells[order], weights[order]
    total = domain.cells(columns)
    fitted = Sparse(starts=_starts(rows, total), members=cells, weights=weights / _GRID)
    joined = compression.queries(columns)
    if joined is not None:  # every cell stands for those that were joined to it
        counts = np.diff(joined.starts)[cells]
        first = np.repeat(joined.starts[cells] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        rows, weights = np.repeat(rows, counts), np.repeat(weights, counts)
        cells = joined.members[first + np.arange(first.size)]
    queries = Queries(
        cells=compression.full.cells(columns),
        grid=_GRID,
        starts=_starts(rows, total),
        members=cells,
        weights=weights,
    )
    return Contrasts(along=along, scale=factor * math.prod(sizes) / _GRID, queries=queries, fitted=fitted)


def count_told(compression: Compression, columns: Columns) -> int:
    """How many numbers a marginal of `columns` tells in differences along those of few values."""
    along = _find_along(compression, columns)
    return math.prod(compression.domain[name] - (name in along) for name in columns)


def _find_along(compression: Compression, columns: Columns) -> Columns:
    sizes = compression.domain
    return tuple(name for name in columns if 1 < sizes[name] <= _FEW and name not in compression.maps)


def _starts(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Where each of so many rows begins, for sorted numbers of rows."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count))))
