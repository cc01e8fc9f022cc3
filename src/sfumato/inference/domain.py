"""What a model is made of: columns with their numbers of values, and noisy answers about them.

Answers come as `Measurement`s of one marginal each. Before a fit they are brought into the order of the
domain, and repeated ones are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.inference.kernels import apply_rows, rearrange, spread_rows
from sfumato.tables.arrays import Floats, Whole

Columns = tuple[str, ...]


class Domain(Mapping[str, int]):
    """Columns by name, each with its number of values, in a fixed order.

    >>> domain = Domain({"a": 10, "b": 2})
    >>> domain.shape(("b", "a")), domain.cells(("a", "b"))
    ((2, 10), 20)
    """

    __slots__ = ("_sizes",)

    def __init__(self, sizes: Mapping[str, int]) -> None:
        if not sizes:
            raise RecipeError("a domain needs at least one column")
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise RecipeError(f"column {name!r} needs a whole number of values, at least 1")
        self._sizes = dict(sizes)

    def __getitem__(self, name: str) -> int:
        if name not in self._sizes:
            raise RecipeError(f"the domain has no column {name!r} (it has: {', '.join(self._sizes)})")
        return self._sizes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"Domain({self._sizes})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self._sizes.items()))

    def __contains__(self, name: Any) -> bool:  # noqa: ANN401 - as Mapping has it
        return name in self._sizes

    def shape(self, columns: Columns) -> tuple[int, ...]:
        """Return the sizes of `columns`, in their order."""
        try:
            return tuple([self._sizes[name] for name in columns])
        except KeyError:
            return tuple(self[name] for name in columns)  # the error names the column

    def cells(self, columns: Columns) -> int:
        """Return the number of combinations of `columns`."""
        return math.prod(self.shape(columns))

    def order(self, columns: Iterable[str]) -> Columns:
        """Return `columns` in the order of the domain."""
        chosen = set(columns)
        return tuple([name for name in self._sizes if name in chosen])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sparse:
    """Sparse linear queries: row i gives cell members[k] weights[k], for k in starts[i] : starts[i + 1]."""

    starts: Whole
    members: Whole
    weights: Floats

    @property
    def rows(self) -> int:
        """Return the number of queries."""
        return int(self.starts.size - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """Noisy answers about the counts of one marginal, each with noise of standard deviation `sigma`.

    Without `queries` the answers are the counts themselves, in row-major order of `columns`. Queries
    are a matrix with one column per cell: dense, or anything with the `tocsr` of scipy. `variance` is
    sigma squared; averages state it, because squaring a root again would change its last bits.

    >>> Measurement(columns=("a",), values=np.array([3.0, 4.0]), sigma=1.0).values.size
    2
    """

    columns: Columns
    values: Floats
    sigma: float
    queries: Any = None
    variance: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise RecipeError("a measurement needs at least one column and none twice")
        values = np.ascontiguousarray(self.values, dtype=np.float64).reshape(-1)
        name = " x ".join(self.columns)
        if not np.isfinite(values).all():
            raise RecipeError(f"the measurement of {name} holds values that are not finite")
        object.__setattr__(self, "values", values)
        if not 0 < float(self.sigma) < math.inf:
            raise RecipeError(f"the measurement of {name} needs a sigma above zero")
        object.__setattr__(self, "variance", self.variance or float(self.sigma) ** 2)


def merge_measurements(domain: Domain, measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return measurements with columns in the order of the domain and queries as `Sparse`, or none at all.

    Repeated measurements of the counts of one marginal are averaged by their precision, and come first.
    """
    counts: dict[Columns, Measurement] = {}
    others: list[Measurement] = []
    for measurement in measurements:
        given, variance = measurement.columns, measurement.variance
        domain.shape(given)  # every column must be there
        columns = domain.order(given)
        if measurement.queries is not None:
            others.append(replace(measurement, columns=columns, queries=_to_sparse(measurement, domain)))
            continue
        values = measurement.values
        if values.size != domain.cells(columns):
            raise RecipeError(
                f"the measurement of {' x '.join(given)} has {values.size:,} values, its marginal "
                f"{domain.cells(columns):,} cells"
            )
        values = rearrange(values, given, columns, domain.shape(given))
        if columns in counts:
            before = counts[columns]
            merged = 1 / (1 / before.variance + 1 / variance)
            values = before.values * (merged / before.variance) + values * (merged / variance)
            variance = merged
        counts[columns] = Measurement(
            columns=columns, values=values, sigma=math.sqrt(variance), variance=variance
        )
    return [*counts.values(), *others]


def estimate_total(domain: Domain, measurements: Iterable[Measurement]) -> float:
    """Return the average of what every measurement says of the total, by precision; at least one record.

    Queries speak of the total if some combination of them adds up to the sum of all cells.
    """
    weights, weighted = 0.0, 0.0
    for each in measurements:
        if each.queries is None:
            value, variance = float(each.values.sum()), each.variance * each.values.size
        else:
            combination = _sum_of_all(each.queries, domain.cells(each.columns))
            if combination is None:
                continue
            value = float(np.dot(combination, each.values))
            variance = each.variance * float(np.dot(combination, combination))
        weights += 1 / variance
        weighted += value / variance
    if weights == 0:
        raise RecipeError("no measurement adds up to the number of records; give the total")
    return max(1.0, weighted / weights)


def _to_sparse(measurement: Measurement, domain: Domain) -> Sparse:
    """Return the queries of a measurement over the cells of its columns in the order of the domain."""
    queries, columns = measurement.queries, domain.order(measurement.columns)
    cells, name = domain.cells(columns), " x ".join(measurement.columns)
    if isinstance(queries, Sparse):
        sparse = queries
    elif hasattr(queries, "tocsr"):
        matrix = queries.tocsr()
        sparse = Sparse(
            starts=np.asarray(matrix.indptr, np.int64),
            members=np.asarray(matrix.indices, np.int64),
            weights=np.asarray(matrix.data, np.float64),
        )
        if matrix.shape[1] != cells:
            raise RecipeError(
                f"the queries over {name} have {matrix.shape[1]:,} columns, its marginal {cells:,} cells"
            )
    else:
        dense = np.asarray(queries, np.float64)
        if dense.ndim != 2 or dense.shape[1] != cells:
            raise RecipeError(
                f"the queries over {name} must be a matrix with {cells:,} columns, one per cell"
            )
        rows, members = np.nonzero(dense)
        starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=dense.shape[0]))))
        sparse = Sparse(starts=starts, members=members, weights=dense[rows, members])
    if sparse.rows != measurement.values.size:
        raise RecipeError(
            f"the measurement of {name} has {measurement.values.size:,} values and {sparse.rows:,} queries"
        )
    if sparse.members.size and not 0 <= int(sparse.members.min()) <= int(sparse.members.max()) < cells:
        raise RecipeError(f"a query over {name} names a cell that its marginal does not have")
    if columns == measurement.columns:
        return sparse
    # Cells are numbered anew where the columns came in another order.
    renumbered = rearrange(np.arange(cells), columns, measurement.columns, domain.shape(columns))
    return Sparse(starts=sparse.starts, members=renumbered[sparse.members], weights=sparse.weights)


def _sum_of_all(queries: Sparse, cells: int) -> Floats | None:
    """Return the shortest combination of queries that is the sum of all cells, by conjugate gradients."""
    rows = (queries.starts, queries.members, queries.weights)
    combination = np.zeros(queries.rows)
    left = np.ones(cells)
    residual = np.empty(queries.rows)
    apply_rows(*rows, left, residual)
    direction, norm = residual.copy(), float(np.dot(residual, residual))
    for _ in range(200):
        if norm <= 1e-24 * cells:
            break
        image = np.zeros(cells)
        spread_rows(*rows, direction, image)
        step = norm / float(np.dot(image, image))
        combination += step * direction
        left -= step * image
        apply_rows(*rows, left, residual)
        last, norm = norm, float(np.dot(residual, residual))
        direction = residual + (norm / last) * direction
    return combination if float(np.abs(left).max()) < 1e-6 else None
