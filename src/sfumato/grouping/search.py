"""The search for groups: the best join first, as long as one helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sfumato.grouping.association import diversity
from sfumato.grouping.partition import count_joint, join_partitions
from sfumato.grouping.spread import spread_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.grouping.partition import Partition
    from sfumato.grouping.spread import Noise, Spread

_DIGITS = 9  # to which gains are compared, so that the last bits of sums decide nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroup:
    """A group of columns by their places in the table, its cells and its expected error."""

    members: tuple[int, ...]
    cells: int
    error: float


class _Slot(NamedTuple):
    """A group while groups are sought."""

    members: tuple[int, ...]
    cells: int
    rows: Partition
    spread: Spread


class _Join(NamedTuple):
    """Two groups as if they were one."""

    cells: int
    spread: Spread


class GroupSearch:
    """Groups of columns on their way from single columns to the joins that pay.

    What a release keeps of a pair of columns is 1 minus its distance from the truth. In one group that is
    1 - e, where e is the group's expected error; in two groups (1 - d)(1 - f)(1 - f'), where d is what
    independence loses and f the error of one column of a group. A join is measured by the sum of this
    over all pairs of columns: it saves d for the pairs it brings together, costs the larger error of the
    joint histogram for all pairs of its columns, and leaves more of the budget to every group.
    """

    def __init__(
        self,
        columns: Sequence[Partition],
        sizes: Sequence[int],
        association: NDArray[np.float64],
        *,
        noise: Noise,
        max_cells: int,
        max_columns: int | None,
        least: float,
    ) -> None:
        self._noise = noise
        self._max_cells = max_cells
        self._max_columns = len(columns) if max_columns is None else max_columns
        self._least = least
        self._slots: list[_Slot | None] = [
            _Slot((place,), size, column, spread_counts(column.count()))
            for place, (column, size) in enumerate(zip(columns, sizes, strict=True))
        ]
        self._columns = [(slot.spread, slot.cells) for slot in self._slots if slot is not None]
        # Information grows with the square of the distance from independence, and one column that follows
        # from another is as far from it as it is diverse: so this is exact at both ends.
        diverse = np.array([diversity(column) for column in columns])
        self._kept = 1 - np.minimum.outer(diverse, diverse) * np.sqrt(association)
        self._linked = association.copy()
        for matrix in (self._kept, self._linked):
            np.fill_diagonal(matrix, 0)
        self._joins: dict[tuple[int, int], _Join] = {}
        for first in range(len(columns)):
            for second in range(first + 1, len(columns)):
                self._consider(first, second)

    def groups(self) -> list[FoundGroup]:
        """The groups as they are now."""
        alive = self._alive()
        errors = self._errors(len(alive))
        return [
            FoundGroup(members=slot.members, cells=slot.cells, error=float(errors[place]))
            for place, slot in alive
        ]

    def join_all(self) -> None:
        """Makes the best join again and again, until none helps."""
        while self._joins:
            (first, second), gain = self._best_join()
            if gain <= 0:
                return
            self._join(first, second)

    def pair_error(self) -> float:
        """The expected distance of a pair of columns of the release from the truth, over all pairs."""
        columns = len(self._slots)
        pairs = columns * (columns - 1) / 2
        alive = len(self._alive())
        if not pairs:
            return float(self._errors(alive)[0])
        return 1 - self._quality(alive) / pairs

    def refusal(self, first: int, second: int) -> str:
        """Why two of the groups, by their places in `groups()`, are not one."""
        alive = self._alive()
        (left, one), (right, other) = alive[first], alive[second]
        if one.cells * other.cells > self._max_cells:
            return "too many cells"
        if len(one.members) + len(other.members) > self._max_columns:
            return "too many columns"
        if self._mean_link(left, right) < self._least:
            return "weak links to the rest"
        return "too few records per cell"

    def _alive(self) -> list[tuple[int, _Slot]]:
        return [(place, slot) for place, slot in enumerate(self._slots) if slot is not None]

    def _mean_link(self, first: int, second: int) -> float:
        one, other = self._slots[first], self._slots[second]
        assert one is not None
        assert other is not None
        return float(self._linked[first, second]) / (len(one.members) * len(other.members))

    def _consider(self, first: int, second: int) -> None:
        """Counts two groups together, if they may be joined."""
        one, other = self._slots[first], self._slots[second]
        if one is None or other is None:
            return
        cells = one.cells * other.cells
        columns = len(one.members) + len(other.members)
        if cells > self._max_cells or columns > self._max_columns:
            return
        # A whisker below, because the sum of equal links may come out a bit short.
        if self._mean_link(first, second) < self._least - 1e-12:
            return
        left, right = one.rows, other.rows
        labels = left.labels, right.labels
        if not (left.complete and right.complete):
            known = (left.labels >= 0) & (right.labels >= 0)
            labels = left.labels[known], right.labels[known]
        counts = count_joint(*labels, shape=(left.distinct, right.distinct))
        self._joins[first, second] = _Join(cells, spread_counts(counts))

    def _errors(self, groups: int) -> NDArray[np.float64]:
        """The expected error of every group if there are that many."""
        return np.array(
            [
                1.0
                if slot is None
                else self._noise.expect_error(slot.spread, cells=slot.cells, groups=groups)
                for slot in self._slots
            ]
        )

    def _pairs_inside(self) -> NDArray[np.float64]:
        counts = np.array([0 if slot is None else len(slot.members) for slot in self._slots])
        return np.asarray(counts * (counts - 1) / 2, np.float64)

    def _column_errors(self, errors: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
        """The expected error of one column of every group: between that of the group and its own alone."""
        alone = np.array(
            [self._noise.expect_error(spread, cells=size, groups=groups) for spread, size in self._columns]
        )
        means = [1.0 if slot is None else alone[list(slot.members)].mean() for slot in self._slots]
        return np.asarray((errors + np.array(means)) / 2, np.float64)

    def _quality(self, groups: int) -> float:
        """What is kept of all pairs of columns, if the budget is for that many groups."""
        errors = self._errors(groups)
        seen = 1 - self._column_errors(errors, groups)
        return float(seen @ self._kept @ seen / 2 + self._pairs_inside() @ (1 - errors))

    def _best_join(self) -> tuple[tuple[int, int], float]:
        groups = len(self._alive()) - 1
        shared = self._quality(groups) - self._quality(groups + 1)
        errors = self._errors(groups)
        columns = self._column_errors(errors, groups)
        counts = np.array([0 if slot is None else len(slot.members) for slot in self._slots])
        whole = self._pairs_inside() * (1 - errors)
        outside = self._kept @ (1 - columns)
        best, most = (0, 0), -np.inf
        for (first, second), join in self._joins.items():
            left, right = 1 - columns[first], 1 - columns[second]
            across = self._kept[first, second]
            others = outside[first] - across * right, outside[second] - across * left
            apart = (
                whole[first] + whole[second] + left * others[0] + right * others[1] + left * right * across
            )
            one, other, both = counts[first], counts[second], counts[first] + counts[second]
            joint = self._noise.expect_error(join.spread, cells=join.cells, groups=groups)
            # The mean error of the columns alone, from those of the two groups: 2 f - e of each.
            alone = one * (2 * columns[first] - errors[first]) + other * (
                2 * columns[second] - errors[second]
            )
            seen = 1 - (joint + alone / both) / 2
            together = (1 - joint) * both * (both - 1) / 2 + seen * sum(others)
            gain = round(float(together - apart + shared), _DIGITS)
            if gain > most or (gain == most and (first, second) < best):
                best, most = (first, second), gain
        return best, float(most)

    def _join(self, first: int, second: int) -> None:
        """Puts the second group into the first."""
        one, other = self._slots[first], self._slots[second]
        assert one is not None
        assert other is not None
        rows = join_partitions(one.rows, other.rows)
        self._slots[first] = _Slot(
            tuple(sorted((*one.members, *other.members))),
            one.cells * other.cells,
            rows,
            spread_counts(rows.count()),
        )
        self._slots[second] = None
        for matrix in (self._kept, self._linked):
            matrix[first] += matrix[second]
            matrix[:, first] += matrix[:, second]
            matrix[second] = matrix[:, second] = 0
            matrix[first, first] = 0
        touched = {first, second}
        self._joins = {pair: join for pair, join in self._joins.items() if not touched & set(pair)}
        for place in range(len(self._slots)):
            if place != first:
                self._consider(min(first, place), max(first, place))
