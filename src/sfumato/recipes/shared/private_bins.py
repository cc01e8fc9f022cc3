"""Bins that the records choose: columns with bounds and without a domain, as columns of synthetic rows.

Such a column is counted over a public grid between its bounds, fine at both scales: steps of equal width, and
steps that grow with the distance from zero, or from the nearer end. Once its noisy counts are there,
neighbouring cells are joined to bins of about equal counts, and marginals are measured over these. So bins
are noisy quantiles, and cost nothing beyond the measurement of a single column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_whole
from sfumato.core.facts.column import NULL
from sfumato.core.facts.domain import Bins

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

_CELLS = 128  # of equal width, and as many that grow
_REACH = 2.0**14  # the widest growing cell beside the narrowest
_MOST_BINS = 100  # each needs a count that stands out of its noise
_CLEAR = 3.0  # standard deviations of the noise of its count that a bin holds


def parse_bins(value: object, *, kind: str) -> dict[str, int] | None:
    """Return how many bins a recipe asks for, by column."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise RecipeError(f"{kind}: bins must name columns with bounds, such as {{income = 16}}")
    return {
        str(name): parse_whole(count, name=f"{kind}: bins of {name}", low=2, high=_MOST_BINS)
        for name, count in value.items()
    }


def describe_grids(table: Table, bins: Mapping[str, int] | None, *, kind: str) -> Table:
    """Return the table whose columns in `bins` have the public grid between their bounds for a domain."""
    if not bins:
        return table
    columns = dict(table.columns)
    for name in bins:
        column = table.columns[name] if name in table.columns else table.column(name)
        if column.bounds is None:
            raise RecipeError(
                f"{kind}: bins: column {name!r} needs bounds = [low, high] in the project file, and no domain"
            )
        grid = Bins(fine_edges(*column.bounds))
        # In a plan that reads back from its record the grid is there already.
        if column.domain not in (None, grid):
            raise RecipeError(f"{kind}: bins: column {name!r} has a domain; its bins are those")
        # A missing value is one of its own, because a record without it counts in other columns.
        columns[name] = replace(column, domain=grid, outside="clamp", nullable=True, missing_label=NULL)
    return replace(table, columns=columns)


def fine_edges(low: Fraction, high: Fraction) -> tuple[Fraction, ...]:
    """Return the edges of the grid between two bounds, whole where these are.

    >>> edges = fine_edges(Fraction(0), Fraction(1_000_000))
    >>> [int(edge) for edge in edges[:4]], int(edges[-1]), len(edges)
    ([0, 4, 9, 15], 1000000, 256)
    """
    start = min(max(low, Fraction(0)), high)  # zero, or the end that is nearer to it
    found = {low + (high - low) * Fraction(place, _CELLS) for place in range(_CELLS + 1)}
    for end in (low, high):
        if end != start:
            found |= {start + (end - start) * part for part in _growing(_CELLS)}
    if low.denominator == high.denominator == 1:
        found = {Fraction(round(edge)) for edge in found}
    return tuple(sorted({low, high} | found))


def join_cells(values: NDArray[np.float64], sigma: float, *, bins: int, cells: int) -> NDArray[np.int64]:
    """Return for every code of a column its bin: neighbouring cells of about equal noisy counts together.

    The first `cells` codes are those of the grid, the others stay by themselves. There are fewer bins than
    asked for where the noise of so many cells would drown them.
    """
    sums = np.maximum.accumulate(np.maximum(np.cumsum(values[:cells]), 0.0))
    total = float(sums[-1])
    clear = int(min(float(bins), (total / (_CLEAR * sigma)) ** 2 / cells)) if total > 0 else 0
    count = max(1, clear)
    middle = sums - np.diff(sums, prepend=0.0) / 2
    codes = (
        np.minimum((middle * (count / total)).astype(np.int64), count - 1) if total > 0 else np.zeros(cells)
    )
    _, codes = np.unique(codes, return_inverse=True)
    own = int(codes.max()) + 1 + np.arange(values.size - cells)
    return np.concatenate((codes.reshape(-1), own)).astype(np.int64)


def _growing(cells: int) -> list[Fraction]:
    """Return places from 0 to 1 whose distances grow by one factor, in decimals."""
    factor = math.exp(math.log(_REACH) / (cells - 1))
    places = [(factor**place - 1) / (factor**cells - 1) for place in range(cells + 1)]
    return [Fraction(round(place * 10**9), 10**9) for place in places]
