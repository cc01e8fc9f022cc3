"""How much two columns tell about each other: normalised mutual information, less what chance tells.

The information that two columns share is divided by the most they could share, the entropy of the poorer
one: 0 for independent columns, 1 if one follows from the other. Where values are many and rows are few,
independent columns seem to share much, so the same is measured after shuffling one of the columns: what a
shuffle shows is chance, and it is taken off both sides of the ratio. Unlike chi-squared measures such as
Cramer's V, a rare value counts by the rows that have it, so that a few odd rows make no strong pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from sfumato.tables.arrays import Floats, Whole

MEASURE = "normalised mutual information, corrected for chance"

_MOST_SHUFFLES = 8
_SHUFFLED_ROWS = 200_000
_LEAST_ROOM = 0.02  # of a column's entropy; where chance explains all but this, nothing can be told

_GOLDEN, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
_DENSE = 4  # combinations per row up to which a table of all of them is the faster way


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """A number from 0 to distinct - 1 for every row, the same for rows that are alike; -1 for none."""

    labels: Whole
    distinct: int

    @property
    def complete(self) -> bool:
        """Return whether every row has a number."""
        return not self.labels.size or int(self.labels.min()) >= 0

    def count(self) -> Whole:
        """Return the number of rows of each kind."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.distinct)


def make_partition(codes: Whole) -> Partition:
    """Return the rows told apart by `codes`, where a negative code means that the row has none.

    >>> make_partition(np.array([70, -1, 70, 9]))
    Partition(labels=array([ 1, -1,  1,  0]), distinct=2)
    """
    values, labels = np.unique(codes, return_inverse=True)
    unknown = int((values < 0).sum())
    labels = np.maximum(labels.reshape(-1).astype(np.int64) - unknown, -1)
    return Partition(labels, values.size - unknown)


def join_partitions(first: Partition, second: Partition) -> Partition:
    """Return the rows told apart by both; a row that has no number in one has none in both.

    >>> left, right = make_partition(np.array([0, 0, 1])), make_partition(np.array([5, 6, 6]))
    >>> join_partitions(left, right).distinct
    3
    """
    known = (first.labels >= 0) & (second.labels >= 0)
    return make_partition(np.where(known, first.labels * second.distinct + second.labels, -1))


def count_joint(first: Whole, second: Whole, *, shape: tuple[int, int]) -> Whole:
    """Return how often each combination occurs, for those that do, in no order that matters.

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


def measure_association(columns: Sequence[Partition]) -> Floats:
    """Return association of every pair of columns, from 0 to 1: a symmetric matrix with 1 on its diagonal.

    Of every pair, only rows that have a value in both columns are looked at. A column with one value
    tells nothing and has association 0 with all others. The shuffles are fixed ones, so that equal
    columns give equal figures.

    >>> from sfumato.recipes.grouping.association import make_partition
    >>> day, month = np.arange(600) % 7, np.arange(600) % 12
    >>> table = [make_partition(each) for each in (day, month, month // 3)]
    >>> measure_association(table).round(1).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    """
    rows = columns[0].labels.size if columns else 0
    shuffles = max(1, min(_MOST_SHUFFLES, _SHUFFLED_ROWS // max(1, rows)))
    orders = [_shuffle(rows, turn) for turn in range(shuffles)]
    matrix = np.eye(len(columns))
    for i, j in combinations(range(len(columns)), 2):
        matrix[i, j] = matrix[j, i] = _associate(columns[i], columns[j], orders)
    return matrix


def diversity(column: Partition) -> float:
    """Return the chance that two rows differ, among those that have a value.

    Two columns that follow from each other are this far, in total variation, from independent ones.

    >>> diversity(Partition(np.array([0, 1, 0, 1, -1]), 2))
    0.5
    """
    counts = column.count()
    total = int(counts.sum())
    return 1 - float(np.square(counts / total).sum()) if total else 0.0


def _associate(first: Partition, second: Partition, orders: Sequence[Whole]) -> float:
    """Return the association of two columns in the rows that have a value in both."""
    known = (first.labels >= 0) & (second.labels >= 0)
    left, right = first.labels[known], second.labels[known]
    entropies = _entropy(np.bincount(left)), _entropy(np.bincount(right))
    if not min(entropies) > 0:
        return 0.0
    shape = (first.distinct, second.distinct)
    joint = _entropy(count_joint(left, right, shape=shape))
    # The shuffle that shows most is taken, so that a pair must show more than chance did in any of them.
    chance = min(
        _entropy(count_joint(left, second.labels[order[known[order]]], shape=shape)) for order in orders
    )
    return _ratio(joint, chance, entropies)


def _ratio(joint: float, chance: float, entropies: tuple[float, float]) -> float:
    """What the columns share beyond chance, of what they could; `joint` and `chance` are joint entropies."""
    most = min(entropies)
    expected = sum(entropies) - chance
    room = most - expected
    if room < _LEAST_ROOM * most:
        return 0.0
    return min(1.0, max(0.0, (chance - joint) / room))


def _entropy(counts: Whole) -> float:
    counts = counts[counts > 0]
    total = int(counts.sum())
    if counts.size < 2:
        return 0.0
    return float(np.log(total) - (counts * np.log(counts)).sum() / total)


def _shuffle(rows: int, turn: int) -> Whole:
    """Return an order of the rows that has nothing to do with them: by the digits of a mixed counter."""
    mixed = (np.arange(rows, dtype=np.uint64) + np.uint64(1 + turn * rows)) * _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.argsort(mixed ^ (mixed >> np.uint64(31)), kind="stable")
