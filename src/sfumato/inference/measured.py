"""Measurements of marginals, and what becomes of several of the same marginal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import RecipeError
from sfumato.inference.axes import rearrange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from sfumato.inference.domain import Domain

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sparse:
    """Sparse linear queries: row i gives cell members[k] weights[k], for k in starts[i] : starts[i + 1]."""

    starts: NDArray[np.int64]
    members: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """The number of queries."""
        return int(self.starts.size - 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement:
    """Noisy answers about the counts of one marginal, each with noise of standard deviation `sigma`.

    Without `queries` the answers are the counts themselves, in row-major order of `columns`. Queries
    are a matrix with one column per cell: dense, or anything with the `tocsr` of scipy.

    >>> Measurement(columns=("a",), values=np.array([3.0, 4.0]), sigma=1.0).values.size
    2
    """

    columns: Columns
    values: NDArray[np.float64]
    sigma: float
    queries: Any = None

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """Answers about one marginal with columns in the order of the domain; no queries means every cell."""

    columns: Columns
    values: NDArray[np.float64]
    variance: float
    queries: Sparse | None = None


def merge_measurements(domain: Domain, measurements: Iterable[Measurement]) -> list[Part]:
    """The measurements with columns in the order of the domain, repetitions averaged by their precision."""
    counts: dict[Columns, tuple[NDArray[np.float64], float]] = {}
    parts: list[Part] = []
    for measurement in measurements:
        columns = domain.order(measurement.columns)
        domain.shape(measurement.columns)  # every column must be there
        cells = domain.cells(columns)
        variance = float(measurement.sigma) ** 2
        if measurement.queries is not None:
            sparse = _to_sparse(measurement, domain, columns, cells)
            parts.append(Part(columns=columns, values=measurement.values, variance=variance, queries=sparse))
            continue
        if measurement.values.size != cells:
            raise RecipeError(
                f"the measurement of {' x '.join(measurement.columns)} has {measurement.values.size:,} "
                f"values, its marginal {cells:,} cells"
            )
        given = measurement.columns
        values = rearrange(measurement.values, given, columns, domain.shape(given))
        if columns in counts:
            before, old = counts[columns]
            merged = 1 / (1 / old + 1 / variance)
            counts[columns] = (before * (merged / old) + values * (merged / variance), merged)
        else:
            counts[columns] = (values, variance)
    merged_parts = [
        Part(columns=columns, values=values, variance=variance)
        for columns, (values, variance) in counts.items()
    ]
    return merged_parts + parts


def _to_sparse(measurement: Measurement, domain: Domain, columns: Columns, cells: int) -> Sparse:
    queries = measurement.queries
    name = " x ".join(measurement.columns)
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
