"""What noisy marginals say by themselves of sums of counts: unbiased estimates, and the noise in them.

Every table of counts is a sum of residuals, as in an analysis of variance: of its total, of what each column
adds to it, of what each pair of columns adds to these, and so on. A marginal whose cells have independent
noise of one variance measures the residual of every set of its columns, and its noise is independent between
sets. So what several marginals say of a residual is averaged by precision, which is the least squares
estimate from all of them (Xiao, He, Zhang and Kifer 2023, "An optimal and scalable matrix mechanism for noisy
marginals"; Mullins and others 2024, "Efficient and private marginal reconstruction"). No columns are taken to
be independent, and no count is kept from being negative: that is why estimates are unbiased. Of a residual
that nobody measured nothing is known, and what needs it has no estimate. docs/proofs/intervals.md has the
argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np

from sfumato.inference.domain import Columns
from sfumato.tables.arrays import Floats, Whole

Numbers = Floats

_ROUNDING = 1e-9  # the share of a sum of squares below which it is zero but for rounding
_DENSE = 2**22  # numbers up to which sums by group and cell are listed whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyCounts:
    """Noisy counts of the cells of `columns`, an array with one axis for each.

    A cell has noise of `variance`. In counts of one column that were added up it has `added` times that; they
    tell how the values of the column differ, and nothing of the total. Of counts less their means along some
    columns, `along`, only residuals of sets that hold these columns are told.
    """

    columns: Columns
    values: Numbers
    variance: float
    added: Numbers | None = None
    along: Columns = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Residual:
    """An estimate of a residual; its noise has the covariance variance * I + diag(more), then centred."""

    values: Numbers
    variance: float
    more: Numbers | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Some cells of `columns`, by the code of each in every column, parted into groups 0 to `rows` - 1."""

    columns: Columns
    codes: Mapping[str, Whole]
    groups: Whole
    rows: int


class Evidence:
    """Noisy counts over columns of these `sizes`, for questions about any sums of cells.

    >>> half = NoisyCounts(columns=("a",), values=np.array([10.0, 20.0]), variance=2.0)
    >>> both = Evidence({"a": 2}, [half, half])
    >>> both.expect(("a",)).tolist()
    [10.0, 20.0]
    >>> one = Cells(columns=("a",), codes={"a": np.array([0])}, groups=np.zeros(1, np.int64), rows=1)
    >>> both.covariance(one, np.ones(1), np.ones(1)).tolist()
    [1.0]
    """

    def __init__(self, sizes: Mapping[str, int], measured: Iterable[NoisyCounts]) -> None:
        self.sizes = sizes
        self.measured = tuple(measured)
        self._residuals: dict[Columns, _Residual | None] = {}
        self.has_contrasts = any(each.along for each in self.measured)

    def knows(self, columns: Columns) -> bool:
        """Return whether the residual of `columns` was measured."""
        return self._residual(columns) is not None

    def expect(self, columns: Columns) -> Numbers:
        """Return estimated counts of the cells of `columns`, flat; residuals that nobody measured are 0."""
        result = np.zeros(self._shape(columns))
        for part in _subsets(columns):
            residual = self._residual(part)
            if residual is not None:
                axes = [size if name in part else 1 for name, size in self._pairs(columns)]
                result += residual.values.reshape(axes) / self._rest(columns, part)
        return result.reshape(-1)

    def covariance(self, cells: Cells, one: Numbers, other: Numbers) -> Numbers:
        """Return the covariance of the estimates of two weighted sums of counts, for each group.

        The weights of the cells are `one` and `other`. It is not a number where a sum needs a residual that
        nobody measured.
        """
        columns = cells.columns
        # Sums of squares of centred weights are written as sums over all parts of them that are not centred.
        squares = {part: self._product(cells, part, one, other) for part in _subsets(columns)}
        result = np.zeros(cells.rows)
        for part in _subsets(columns):
            residual = self._residual(part)
            centred = np.zeros(cells.rows)
            for less in _subsets(part):
                sign = (-1) ** (len(part) - len(less))
                centred += sign * squares[less] / self._rest(part, less)
            if residual is None:
                needed = np.abs(centred) > _ROUNDING * np.abs(squares[part])
                result[needed] = np.nan
                continue
            weight = 1 / self._rest(columns, part) ** 2
            result += weight * residual.variance * centred
            if residual.more is not None:
                result += weight * self._uneven(cells, part, residual.more, one, other)
        return result

    def estimate(self, weights: Mapping[Columns, Numbers]) -> tuple[Numbers, Numbers, list[Columns]]:
        """The estimates of several sums over cells of several marginals, and the covariance of their noise.

        `weights` has for the cells of each marginal an array with one axis for each of its columns, and a
        last one for the sums. At last come the sets of columns whose residual is needed and not known.
        """
        places = {name: place for place, name in enumerate(self.sizes)}
        parts: dict[Columns, Numbers] = {}
        for columns, given in weights.items():
            for part in _subsets(columns):
                left = given.mean(axis=tuple(at for at, name in enumerate(columns) if name not in part))
                ordered = tuple(sorted(part, key=places.__getitem__))
                left = left.transpose([*(part.index(name) for name in ordered), left.ndim - 1])
                parts[ordered] = parts.get(ordered, 0.0) + left
        sums = next(iter(weights.values())).shape[-1]
        values, covariance, missing = np.zeros(sums), np.zeros((sums, sums)), []
        for part, given in parts.items():
            residual = self._residual(part)
            centred = np.moveaxis(given, -1, 0)
            for axis in range(1, centred.ndim):
                centred = centred - centred.mean(axis=axis, keepdims=True)
            flat = centred.reshape(sums, -1)
            if residual is None:
                if (np.abs(flat).max(axis=1) > _ROUNDING * np.abs(given).max()).any():
                    missing.append(part)
                continue
            values += flat @ residual.values.reshape(-1)
            scale = residual.variance + (0.0 if residual.more is None else residual.more)
            covariance += (flat * scale) @ flat.T
        return values, covariance, missing

    def deviation(self, columns: Columns) -> float:
        """The standard deviation of the estimate of one cell of `columns`; not a number if there is none."""
        cell = {name: np.zeros(1, np.int64) for name in columns}
        single = Cells(columns=columns, codes=cell, groups=np.zeros(1, np.int64), rows=1)
        return float(np.sqrt(np.maximum(self.covariance(single, np.ones(1), np.ones(1))[0], 0.0)))

    def _residual(self, columns: Columns) -> _Residual | None:
        if columns not in self._residuals:
            self._residuals[columns] = self._find_residual(columns)
        return self._residuals[columns]

    def _find_residual(self, columns: Columns) -> _Residual | None:
        values, precision, uneven = np.zeros(self._shape(columns)), 0.0, None
        for each in self.measured:
            if not set(each.along) <= set(columns) <= set(each.columns):
                continue
            summed = each.values.sum(
                axis=tuple(at for at, name in enumerate(each.columns) if name not in columns)
            )
            left = [name for name in each.columns if name in columns]
            summed = np.asarray(summed).transpose([left.index(name) for name in columns])
            if each.added is not None:
                # Of the total it says nothing here: its noise would not be independent of that of the column.
                uneven = (summed, each.variance * each.added) if columns else uneven
                continue
            cells = self._rest(each.columns, columns)
            values += summed / (each.variance * cells)
            precision += 1 / (each.variance * cells)
        if precision == 0 and uneven is None:
            return None
        mean = values / precision if precision else values
        if uneven is None:
            return _Residual(values=_centre(mean), variance=1 / precision)
        # Two estimates, one of them with noise that differs by value: any fixed weights are unbiased.
        summed, variances = uneven
        share = 1 / (1 + precision * float(variances.mean()))
        return _Residual(
            values=_centre((1 - share) * mean + share * summed),
            variance=(1 - share) ** 2 / precision if precision else 0.0,
            more=share**2 * variances,
        )

    def _product(self, cells: Cells, part: Columns, one: Numbers, other: Numbers) -> Numbers:
        """Return for each group the product of both weights, summed up to the cells of `part`."""
        groups, _, first, second = self._sum_up(cells, part, one, other)
        return np.bincount(groups, weights=first * second, minlength=cells.rows).astype(np.float64)

    def _uneven(self, cells: Cells, part: Columns, more: Numbers, one: Numbers, other: Numbers) -> Numbers:
        """For each group the same of centred weights of one column, each value times its entry of `more`."""
        groups, places, first, second = self._sum_up(cells, part, one, other)

        def add(values: Numbers) -> Numbers:
            return np.bincount(groups, weights=values, minlength=cells.rows).astype(np.float64)

        means = add(first) / more.size, add(second) / more.size
        scale = more[places]
        product = add(scale * first * second) + means[0] * means[1] * more.sum()
        return np.asarray(product - means[0] * add(scale * second) - means[1] * add(scale * first))

    def _sum_up(
        self, cells: Cells, part: Columns, one: Numbers, other: Numbers
    ) -> tuple[Whole, Whole, Numbers, Numbers]:
        """Return pairs of a group and a cell of `part`, and the sums of both weights in each."""
        size = math.prod(self._shape(part))
        place = reduce(lambda so_far, name: so_far * self.sizes[name] + cells.codes[name], part, cells.groups)
        if cells.rows * size <= _DENSE:
            pairs = np.arange(cells.rows * size)
        else:
            pairs, place = np.unique(place, return_inverse=True)
        first, second = (
            np.bincount(place, weights=each, minlength=pairs.size).astype(np.float64) for each in (one, other)
        )
        groups, places = np.divmod(pairs, size)
        return groups, places, first, second

    def _shape(self, columns: Columns) -> tuple[int, ...]:
        return tuple(self.sizes[name] for name in columns)

    def _pairs(self, columns: Columns) -> Iterator[tuple[str, int]]:
        return zip(columns, self._shape(columns), strict=True)

    def _rest(self, columns: Columns, part: Columns) -> float:
        """Return the number of cells of `columns` for each cell of its `part`."""
        return float(math.prod(size for name, size in self._pairs(columns) if name not in part))


def _subsets(columns: Columns) -> Iterator[Columns]:
    for size in range(len(columns) + 1):
        yield from combinations(columns, size)


def _centre(values: Numbers) -> Numbers:
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values
