"""Truth and release as codes of the same columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from sfumato.errors import MetricError
from sfumato.metrics.codes import Label

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Side:
    """The records of one side: a code per column, and how many records a row stands for."""

    codes: Mapping[str, NDArray[np.int64]]
    rows: int
    weights: NDArray[np.float64] | None = None

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.rows) if self.weights is None else float(self.weights.sum())

    def __repr__(self) -> str:
        return f"Side({len(self.codes)} columns, values withheld)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("records cannot be pickled")

    def take(self, rows: NDArray[np.intp], weights: NDArray[np.float64] | None = None) -> Side:
        """The rows of these numbers, which stand for one record each unless `weights` says otherwise."""
        return Side({name: codes[rows] for name, codes in self.codes.items()}, rows.size, weights)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CodedPair:
    """Truth and release in the same codes: names, numbers of codes, what a code stands for, both sides.

    `unit` numbers the individual behind every row of the truth, if one is known.
    """

    columns: tuple[str, ...]
    sizes: Mapping[str, int]
    labels: Mapping[str, Sequence[Label]]
    truth: Side
    release: Side
    unit: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not self.columns:
            raise MetricError("truth and release have no column in common")
        if self.truth.total <= 0:
            raise MetricError("truth has no records within the described domains")

    def __repr__(self) -> str:
        return f"CodedPair(columns={self.columns}, values withheld)"

    def compact(self) -> CodedPair:
        """The same pair with codes that occur only, for columns with more than a million codes."""
        wide = [name for name in self.columns if self.sizes[name] > 2**20]
        if not wide:
            return self
        truth, release, labels = dict(self.truth.codes), dict(self.release.codes), dict(self.labels)
        for name in wide:
            found, inverse = np.unique(np.concatenate([truth[name], release[name]]), return_inverse=True)
            truth[name], release[name] = np.split(inverse.reshape(-1), [truth[name].size])
            labels[name] = [self.labels[name][code] for code in found.tolist()]
        return CodedPair(
            columns=self.columns,
            sizes={name: len(labels[name]) for name in self.columns},
            labels=labels,
            truth=Side(truth, self.truth.rows, self.truth.weights),
            release=Side(release, self.release.rows, self.release.weights),
            unit=self.unit,
        )


def draw_records(side: Side, size: int, generator: np.random.Generator) -> Side:
    """At most `size` records of `side`, drawn without replacement, one row each.

    Weights that are not whole are drawn from at even distances, so that no row comes more often than
    its share asks for.
    """
    if side.weights is None:
        rows = np.arange(side.rows)
        if side.rows > size:
            rows = np.sort(generator.choice(side.rows, size=size, replace=False))
        return side.take(rows)
    ends = np.cumsum(side.weights)
    count = int(min(size, round(float(ends[-1])))) if ends.size else 0
    if count == 0:
        return side.take(np.empty(0, np.intp))
    if (side.weights == np.floor(side.weights)).all():
        places = np.sort(generator.choice(int(ends[-1]), size=count, replace=False)) + 0.5
    else:
        places = (np.arange(count) + generator.random()) * (ends[-1] / count)
    return side.take(np.minimum(np.searchsorted(ends, places, side="right"), ends.size - 1))
