"""Rows told apart by columns, counted without a table of all combinations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DENSE = 4  # combinations per row up to which a table of all of them is the faster way


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A number from 0 to distinct - 1 for every row, the same for rows that are alike; -1 for none."""

    labels: NDArray[np.int64]
    distinct: int

    @property
    def complete(self) -> bool:
        """Whether every row has a number."""
        return not self.labels.size or int(self.labels.min()) >= 0

    def count(self) -> NDArray[np.int64]:
        """The number of rows of each kind."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.distinct)


def make_partition(codes: NDArray[np.int64]) -> Partition:
    """The rows told apart by `codes`, where a negative code means that the row has none.

    >>> make_partition(np.array([70, -1, 70, 9]))
    Partition(labels=array([ 1, -1,  1,  0]), distinct=2)
    """
    values, labels = np.unique(codes, return_inverse=True)
    unknown = int((values < 0).sum())
    labels = np.maximum(labels.reshape(-1).astype(np.int64) - unknown, -1)
    return Partition(labels, values.size - unknown)


def join_partitions(first: Partition, second: Partition) -> Partition:
    """The rows told apart by both; a row that has no number in one has none in both.

    >>> left, right = make_partition(np.array([0, 0, 1])), make_partition(np.array([5, 6, 6]))
    >>> join_partitions(left, right).distinct
    3
    """
    known = (first.labels >= 0) & (second.labels >= 0)
    return make_partition(np.where(known, first.labels * second.distinct + second.labels, -1))


def count_joint(
    first: NDArray[np.int64], second: NDArray[np.int64], *, shape: tuple[int, int]
) -> NDArray[np.int64]:
    """How often each combination occurs, for those that do, in no order that matters.

    The numbers are below `shape`, and none is negative.

    >>> count_joint(np.array([0, 0, 1, 0]), np.array([1, 1, 0, 0]), shape=(2, 2)).tolist()
    [1, 2, 1]
    """
    keys = first * shape[1] + second
    if shape[0] * shape[1] <= _DENSE * keys.size:
        counts = np.bincount(keys)
        return counts[counts > 0]
    keys.sort()
    ends = np.flatnonzero(keys[1:] != keys[:-1])
    return np.diff(ends, prepend=-1, append=keys.size - 1)
