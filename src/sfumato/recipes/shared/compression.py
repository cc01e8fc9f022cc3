"""Marginals made smaller before they are measured: rare values joined, and differences in place of counts.

`Compression` joins the values of a column that are too rare to be told from noise. `Contrasts` are for
columns of few values.

Once the parts of a marginal are known, what it tells beyond them is all that need be asked. Of columns with
few values that is little: a difference in place of two counts, one number in place of the four or eight
counts of a pair or triple of yes and no. Differences cost less than counts with the same noise, by 1 - 1 / m
for every column of m values along which they are taken. They are the residuals of an analysis of variance,
by which marginals are measured best (Xiao, He, Zhang and Kifer 2023).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.questions.question import Queries
from sfumato.inference.domain import Columns, Domain, Sparse
from sfumato.inference.domain import Measurement as Noisy
from sfumato.inference.model import Model, draw_codes
from sfumato.inference.tree import Tree
from sfumato.recipes.shared.budget import sum_groups
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.column import Column


_TURNS = 2**20  # of draws, for each group of joined values of a column
_RARE = 3.0  # standard deviations of a count's noise, below which a value is rare, and that a bin holds


class Compression:
    """For every column with rare values, a smaller one in which they are the last value together.

    Made of noisy counts only, so it costs nothing. `shares` keeps in which proportion joined values were
    seen, for rows to be spread over them again. Columns in `whole` stay as they are. Of the cells of `grids`
    neighbours are joined to so many bins.
    """

    def __init__(
        self,
        domain: Domain,
        singles: Mapping[str, tuple[Floats, float]],
        *,
        whole: Collection[str] = (),
        grids: Mapping[str, tuple[int, Column]] | None = None,
    ) -> None:
        self.full = domain
        self.maps: dict[str, Whole] = {}
        self.shares: dict[str, list[tuple[int, Whole, Floats]]] = {}
        sizes: dict[str, int] = {}
        self._queries: dict[Columns, Queries | None] = {}
        for name, size in domain.items():
            sizes[name] = size
            values, sigma = singles[name]
            if grids and name in grids:
                count, column = grids[name]
                cells = size - len(column.extras)
                self.maps[name] = join_cells(values, sigma, bins=count, cells=cells)
                sizes[name] = int(self.maps[name].max()) + 1
                continue
            rare = np.flatnonzero(values < _RARE * sigma)
            if rare.size < 2 or name in whole:
                continue
            kept = np.flatnonzero(values >= _RARE * sigma)
            codes = np.full(size, kept.size, np.int64)
            codes[kept] = np.arange(kept.size)
            self.maps[name] = codes
            sizes[name] = int(kept.size) + 1
        self.domain = Domain(sizes)
        self._grids = set(grids or ())
        self.expected: dict[str, Floats] = {}
        self.share_out(singles)

    def share_out(self, singles: Mapping[str, tuple[Floats, float]]) -> None:
        """Takes the proportions of joined values from measurements of single columns."""
        for name, codes in self.maps.items():
            values, sigma = singles[name]
            self.shares[name] = []
            for code in np.flatnonzero(np.bincount(codes) > 1).tolist():
                joined = np.flatnonzero(codes == code)
                seen = values[joined]
                if name in self._grids or name in self.expected:
                    expected = self.expected.get(name)
                    seen = _shrink(seen, sigma, None if expected is None else expected[joined])
                self.shares[name].append((code, joined, np.maximum(seen, 0.0)))

    def queries(self, columns: Columns) -> Queries | None:
        """Return sums over the marginal of `columns` that are the compressed one; None if they are equal."""
        if columns not in self._queries:
            self._queries[columns] = self._sum_joined(columns)
        return self._queries[columns]

    def single(self, name: str, values: Floats, sigma: float) -> Noisy:
        """Return the measurement of one full column as one of the compressed column.

        The sum of r rare counts has r times the noise of one, so it is stated divided by the root of r.
        """
        if name not in self.maps:
            return Noisy(columns=(name,), values=values, sigma=sigma)
        codes = self.maps[name]
        sums = np.bincount(codes, weights=values, minlength=self.domain[name])
        weights = 1 / np.sqrt(np.bincount(codes, minlength=self.domain[name]).astype(np.float64))
        places = np.arange(self.domain[name])
        queries = Sparse(starts=np.arange(self.domain[name] + 1), members=places, weights=weights)
        return Noisy(columns=(name,), values=sums * weights, sigma=sigma, queries=queries)

    def expand(self, codes: Mapping[str, Whole], *, seed: int) -> dict[str, Whole]:
        """Return codes of the full domain: rare values are drawn in the proportions they were seen in."""
        expanded = {}
        for turn, (name, column) in enumerate(codes.items()):
            if name not in self.maps:
                expanded[name] = column
                continue
            back = np.empty(self.domain[name], np.int64)
            back[self.maps[name][::-1]] = np.arange(self.full[name])[::-1]  # the first value of each
            values = back[column]
            for place, (code, joined, shares) in enumerate(self.shares[name]):
                rows = np.flatnonzero(column == code)
                drawn = draw_codes(shares, rows.size, seed=seed, turn=turn + _TURNS * place)
                values[rows] = joined[drawn]
            expanded[name] = values
        return expanded

    def expand_model(self, model: Model, *, limit: int) -> Model | None:
        """The model over the full domain, if it has at most `limit` cells: joined values by their shares."""
        tree = model.tree
        if sum(self.full.cells(clique) for clique in tree.cliques) > limit:
            return None
        tables = []
        for place, clique in enumerate(tree.cliques):
            table = model.table(place).reshape(self.domain.shape(clique))
            for axis, name in enumerate(clique):
                if name in self.maps:
                    part = self._parts(name).reshape(
                        [-1 if each == axis else 1 for each in range(len(clique))]
                    )
                    table = np.take(table, self.maps[name], axis=axis) * part
            tables.append(table.reshape(-1))
        whole = Tree(domain=self.full, cliques=tree.cliques, parents=tree.parents, separators=tree.separators)
        return replace(model, tree=whole, values=np.concatenate(tables))

    def _parts(self, name: str) -> Floats:
        """Return for every value of the full column, its part of the value it became."""
        parts = np.ones(self.full[name])
        for _, joined, shares in self.shares[name]:
            total = float(shares.sum())
            parts[joined] = shares / total if total > 0 else 1 / joined.size
        return parts

    def _sum_joined(self, columns: Columns) -> Queries | None:
        if not any(name in self.maps for name in columns):
            return None
        # For every cell of the full marginal, its cell of the compressed one.
        places = np.zeros(1, np.int64)
        for name in columns:
            codes = self.maps.get(name, np.arange(self.full[name]))
            places = np.add.outer(places * self.domain[name], codes).reshape(-1)
        return sum_groups(places, self.domain.cells(columns))


def join_cells(values: Floats, sigma: float, *, bins: int, cells: int) -> Whole:
    """Return for every code of a column its bin: neighbouring cells of about equal noisy counts together.

    The first `cells` codes are those of the grid, the others stay by themselves. There are fewer bins than
    asked for where the noise of so many cells would drown them.
    """
    sums = np.maximum.accumulate(np.maximum(np.cumsum(values[:cells]), 0.0))
    total = float(sums[-1])
    clear = int(min(float(bins), (total / (_RARE * sigma)) ** 2 / cells)) if total > 0 else 0
    count = max(1, clear)
    middle = sums - np.diff(sums, prepend=0.0) / 2
    codes = (
        np.minimum((middle * (count / total)).astype(np.int64), count - 1) if total > 0 else np.zeros(cells)
    )
    _, codes = np.unique(codes, return_inverse=True)
    own = int(codes.max()) + 1 + np.arange(values.size - cells)
    return np.concatenate((codes.reshape(-1), own)).astype(np.int64)


def _shrink(values: Floats, sigma: float, expected: Floats | None) -> Floats:
    """Return noisy values, drawn to their centre by the part of their variance that is noise.

    The centre is their mean or, if that is nearer, their sum in the proportions that are `expected`.
    """
    centre: Floats | float = float(values.mean())
    distance = float(((values - centre) ** 2).sum())
    if expected is not None and expected.sum() > 0:
        other = expected * (max(0.0, float(values.sum())) / expected.sum())
        if float(((values - other) ** 2).sum()) < distance:
            centre, distance = other, float(((values - other) ** 2).sum())
    variance = distance / max(1, values.size - 1)
    part = max(0.0, 1 - sigma**2 / variance) if variance > 0 else 0.0
    return np.asarray(centre + part * (values - centre))


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
    """Return how many numbers a marginal of `columns` tells in differences along those of few values."""
    along = _find_along(compression, columns)
    return math.prod(compression.domain[name] - (name in along) for name in columns)


def _find_along(compression: Compression, columns: Columns) -> Columns:
    sizes = compression.domain
    return tuple(name for name in columns if 1 < sizes[name] <= _FEW and name not in compression.maps)


def _starts(rows: Whole, count: int) -> Whole:
    """Return where each of so many rows begins, for sorted numbers of rows."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count))))
