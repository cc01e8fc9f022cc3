"""Groups of columns for one histogram each, found in a public table.

Columns kept apart lose what they tell about each other. Columns put together lose the records in cells too
small for the noise. Both are distances in total variation, so they can be weighed: two groups are joined
while that brings the pairs of columns of the release, taken together, nearer to those of the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from sfumato.accounting import max_mu
from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_delta, parse_exact
from sfumato.recipes.grouping.association import (
    MEASURE,
    Partition,
    count_joint,
    diversity,
    join_partitions,
    make_partition,
    measure_association,
)
from sfumato.report.pages.words import list_names
from sfumato.tables.arrays import Floats, Whole

MOST_ROWS = 200_000
"""Of a larger public table, as many rows are looked at, evenly spaced."""

_MOST_APART = 10
_CUT = 2.3  # what field-groups cuts by unless it is told otherwise
_MOST_ERROR = 0.5  # beyond which a group is said to be lost
_DIGITS = 9  # to which gains are compared, so that the last bits of sums decide nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Columns that share a histogram; `association` is the mean over their pairs, None for one column.

    `error` is the expected distance of the released histogram from the true one, in total variation.
    """

    columns: tuple[str, ...]
    cells: int
    association: float | None
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Two associated columns of different groups, the cells these groups would have together, and why."""

    columns: tuple[str, str]
    association: float
    cells: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grouping:
    """The groups found, and what they were found by.

    `association` is the matrix for `columns`, which are in the order of the table. `error` is the
    expected distance of a pair of columns of the release from that of the table, `error_alone` the same
    with every column by itself.
    """

    groups: tuple[Group, ...]
    columns: tuple[str, ...]
    association: Floats
    measure: str
    rows: int
    apart: tuple[Apart, ...]
    error: float
    error_alone: float

    def note_limits(self, max_cells: int) -> tuple[str, ...]:
        """Which columns have more than `max_cells` cells by themselves, and which an error that is large."""
        large = [group.columns[0] for group in self.groups if group.cells > max_cells]
        lost = [name for group in self.groups if group.error > _MOST_ERROR for name in group.columns]
        notes = (
            (large, f"more than {max_cells:,} cells in one column, which stays alone"),
            (lost, "an expected error above 50 %; coarser domains, fewer columns or more epsilon would help"),
        )
        return tuple(f"{list_names(names)}: {text}" for names, text in notes if names)

    def to_record(self) -> dict[str, Any]:
        """Return the groups, the pairs kept apart and what they were found by, as plain values for JSON."""
        return {
            "groups": [{**asdict(group), "columns": list(group.columns)} for group in self.groups],
            "pairs": [{**asdict(pair), "columns": list(pair.columns)} for pair in self.apart],
            "measure": self.measure,
            "rows": self.rows,
            "error": self.error,
            "error_alone": self.error_alone,
        }


def find_groups(
    codes: Mapping[str, Whole],
    sizes: Mapping[str, int],
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    sensitivity: float = 1.0,
    records: int | None = None,
    max_cells: int = 1_000_000,
    max_columns: int | None = None,
    least: float = 0.1,
) -> Grouping:
    """Groups of associated columns, each of at most `max_cells` combinations of values and `max_columns`.

    `codes` holds, per column of a public table, a code for every row, negative where a row has no value
    of the domain; `sizes` the sizes of the domains. Two groups may be joined if the mean association between
    their columns is at least `least`. Of these joins the best is made, and then the next, as long as they
    help a release of `records` records (as many as the public table has, unless stated) at `epsilon`,
    where each group has an equal share, one individual moves its counts by at most `sensitivity` (L1), and
    small counts are cut as the recipe cuts them. With a `delta` the noise may be Gaussian.

    Privacy: groups are part of the recipe, so they must not depend on the private table. The codes must
    come from a table that is public and about nobody in the private one.

    >>> rows = np.arange(6000)
    >>> codes = {"month": rows % 12, "day": rows % 7, "quarter": rows % 12 // 3}
    >>> found = find_groups(codes, {"month": 12, "day": 7, "quarter": 4})
    >>> [(group.columns, group.cells) for group in found.groups]
    [(('month', 'quarter'), 48), (('day',), 7)]
    """
    names = tuple(codes)
    arrays = list(codes.values())
    for key, whole in (("records", records), ("max_cells", max_cells), ("max_columns", max_columns)):
        if whole is not None and whole < 1:
            raise RecipeError(f"{key} must be at least 1")
    if not 0 <= least <= 1:
        raise RecipeError("least must lie between 0 and 1: associations do")
    rows = arrays[0].size
    looked = min(rows, MOST_ROWS)
    if looked < rows:
        places = np.arange(looked) * rows // looked
        arrays = [each[places] for each in arrays]
    partitions = [make_partition(each) for each in arrays]
    association = measure_association(partitions)
    search = GroupSearch(
        partitions,
        [int(sizes[name]) for name in names],
        association,
        noise=Noise(
            epsilon=float(epsilon),
            mu=float(max_mu(parse_exact(epsilon, name="epsilon"), parse_delta(delta))) if delta else 0.0,
            sensitivity=float(sensitivity),
            records=float(rows if records is None else records),
            rows=looked,
        ),
        max_cells=max_cells,
        max_columns=max_columns,
        least=least,
    )
    alone = search.pair_error()
    search.join_all()
    groups = sorted(search.groups(), key=lambda each: (len(each[0].members) == 1, each[0].members))
    return Grouping(
        groups=tuple(
            Group(
                columns=tuple(names[place] for place in slot.members),
                cells=slot.cells,
                association=_mean_inside(association, slot.members),
                error=error,
            )
            for slot, error in groups
        ),
        columns=names,
        association=association,
        measure=MEASURE,
        rows=rows,
        apart=_find_apart(names, association, search, least=least),
        error=search.pair_error(),
        error_alone=alone,
    )


def _mean_inside(association: Floats, members: tuple[int, ...]) -> float | None:
    if len(members) == 1:
        return None
    inside = association[np.ix_(members, members)]
    return float(inside[np.triu_indices(len(members), 1)].mean())


def _find_apart(
    names: Sequence[str], association: Floats, search: GroupSearch, *, least: float
) -> tuple[Apart, ...]:
    """Return the strongest pairs of columns in different groups, and why their groups were not joined."""
    first, second = np.triu_indices(len(names), 1)
    values = association[first, second]
    groups = [slot for slot, _ in search.groups()]
    home = {place: number for number, each in enumerate(groups) for place in each.members}
    apart: list[Apart] = []
    for at in np.argsort(-values, kind="stable"):
        if values[at] < least or values[at] <= 0 or len(apart) == _MOST_APART:
            break
        i, j = int(first[at]), int(second[at])
        if home[i] == home[j]:
            continue
        apart.append(
            Apart(
                columns=(names[i], names[j]),
                association=float(values[at]),
                cells=groups[home[i]].cells * groups[home[j]].cells,
                reason=search.refusal(home[i], home[j]),
            )
        )
    return tuple(apart)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How records spread over the cells of a histogram: counts, and how many cells have each."""

    counts: Floats
    times: Floats


def spread_counts(counts: Whole) -> Spread:
    """Return the spread of the counts of occupied cells.

    >>> spread_counts(np.array([4, 1, 4]))
    Spread(counts=array([1., 4.]), times=array([1., 2.]))
    """
    values, times = np.unique(counts[counts > 0], return_counts=True)
    return Spread(values.astype(np.float64), times.astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The noise of the recipe: an equal share of `epsilon` for each group, then a cut.

    `records` is the size of the private table, `rows` that of the public one, whose counts are taken
    in proportion. Counts below _CUT x scale x log10(cells) are set to 0. With `mu`, the Gaussian privacy
    that epsilon and delta allow, noise as wide as Gaussian noise is taken for it where that is less.
    """

    epsilon: float
    sensitivity: float
    records: float
    rows: int
    mu: float = 0.0

    def expect_error(self, spread: Spread, *, cells: int, groups: int) -> float:
        """Return the expected distance, in total variation, of a released histogram from the true one.

        Three parts: records in cells that fall under the cut, the noise of cells that pass it, and
        empty cells that pass by their noise alone.

        >>> noise = Noise(epsilon=1, sensitivity=1, records=1000, rows=1000)
        >>> few, many = spread_counts(np.full(4, 250)), spread_counts(np.full(500, 2))
        >>> noise.expect_error(few, cells=4, groups=1) < 0.01
        True
        >>> noise.expect_error(many, cells=500, groups=1) > 0.9
        True
        """
        scale = groups * self.sensitivity / self.epsilon
        if self.mu:
            scale = min(scale, math.sqrt(groups / 2) * self.sensitivity / self.mu)
        counts = spread.counts * (self.records / self.rows)
        known = float((counts * spread.times).sum()) / self.records
        if cells == 1:
            return 1 - known
        threshold = _CUT * scale * math.log10(cells)
        above = (counts - threshold) / scale
        tail = np.exp(-np.abs(above)) / 2
        passing = np.where(above > 0, 1 - tail, tail) * spread.times
        kept = float((counts * passing).sum()) / self.records
        noisy = scale * float(passing.sum()) / 2 / self.records
        empty = math.exp(min(50.0, math.log(cells) - threshold / scale)) / 2
        false = empty * (threshold + scale) / 2 / self.records
        return min(1.0, 1 - kept + noisy + false)


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
        association: Floats,
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

    def groups(self) -> list[tuple[_Slot, float]]:
        """Return the groups as they are now, each with its expected error."""
        alive = self._alive()
        errors = self._errors(len(alive))
        return [(slot, float(errors[place])) for place, slot in alive]

    def join_all(self) -> None:
        """Makes the best join again and again, until none helps."""
        while self._joins:
            (first, second), gain = self._best_join()
            if gain <= 0:
                return
            self._join(first, second)

    def pair_error(self) -> float:
        """Return the expected distance of a pair of columns of the release from the truth, over all pairs."""
        columns = len(self._slots)
        pairs = columns * (columns - 1) / 2
        alive = len(self._alive())
        if not pairs:
            return float(self._errors(alive)[0])
        return 1 - self._quality(alive) / pairs

    def refusal(self, first: int, second: int) -> str:
        """Return why two of the groups, by their places in `groups()`, are not one."""
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
        """Return merge two groups, if they may be joined."""
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

    def _errors(self, groups: int) -> Floats:
        """Return the expected error of every group if there are that many."""
        return np.array(
            [
                1.0
                if slot is None
                else self._noise.expect_error(slot.spread, cells=slot.cells, groups=groups)
                for slot in self._slots
            ]
        )

    def _pairs_inside(self) -> Floats:
        counts = np.array([0 if slot is None else len(slot.members) for slot in self._slots])
        return np.asarray(counts * (counts - 1) / 2, np.float64)

    def _column_errors(self, errors: Floats, groups: int) -> Floats:
        """Return expected error of one column of every group: between that of the group and its own alone."""
        alone = np.array(
            [self._noise.expect_error(spread, cells=size, groups=groups) for spread, size in self._columns]
        )
        means = [1.0 if slot is None else alone[list(slot.members)].mean() for slot in self._slots]
        return np.asarray((errors + np.array(means)) / 2, np.float64)

    def _quality(self, groups: int) -> float:
        """Return what is kept of all pairs of columns, if the budget is for that many groups."""
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
