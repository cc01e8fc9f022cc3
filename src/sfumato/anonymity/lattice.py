"""The best full-domain generalization: one level for every column, found without trying all of them.

Levels are fixed column by column, the one with most values first, and groups of equal tuples are merged
on the way, so that deep in the walk there are few of them. A choice of the first levels is given up

- if its loss so far, with the other columns at no loss, is not below the best that is known;
- if too many rows violate k even with the other columns at the top. Records that join a class of k leave
  it one of k, so coarser levels never violate more, and finer ones of the same columns are given up too.

Distinct diversity is like k. Other models are not, once classes may be suppressed: then they are judged at
each node that is good enough without them, and give up nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymity.encode import Partition, Quasi, Tuples, number_rows
from sfumato.anonymity.models import Models, Values

_CLOSE = 1e-12  # losses that differ by less, of all there is to lose, are one summed in another order


def find_optimum(
    tuples: Tuples,
    people: NDArray[np.int64],
    columns: Sequence[Quasi],
    k: int,
    models: Models,
    max_suppressed: float,
    units: NDArray[np.float64] | None = None,
) -> Partition:
    """Returns the levels of `columns` with the lowest loss, and their classes; of equal losses finer levels.

    A class has `k` of the `people` and satisfies the `models`. `units` say how much the loss of each column
    counts, 1 by default. Rows in classes that violate k or a model are suppressed and lose every cell; they
    are at most the share `max_suppressed` of all rows. What t-closeness and delta-disclosure compare with is
    the whole table, and if rows are suppressed, what is left of it too: both must hold.
    """
    limit = int(Fraction(str(max_suppressed)) * int(tuples.rows.sum()))
    weights = np.ones(len(columns)) if units is None else np.asarray(units, np.float64)
    search = _Search(tuples, people, columns, k, models, limit, weights)
    search.start()
    search.walk(search.root, (), 0.0)
    search.refine()
    return search.finish()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Groups:
    """Groups of tuples once some columns are fixed.

    A group is what these have become, its `prefix`, and the codes of the columns still to come, its `suffix`;
    of each there are its people, its rows, what these have lost so far, and their sensitive values. Prefixes
    are numbered without gaps: with the other columns at the top they are classes.
    """

    prefix: NDArray[np.int32]
    suffix: NDArray[np.int32]
    people: NDArray[np.int64]
    rows: NDArray[np.int64]
    lost: NDArray[np.float64]
    values: Values


@dataclass(slots=True, eq=False, repr=False)
class _Search:
    """A walk over the lattice: what is fixed, and the best so far. Places are in the order of the walk."""

    tuples: Tuples
    people: NDArray[np.int64]
    columns: Sequence[Quasi]
    k: int
    models: Models
    limit: int
    units: NDArray[np.float64]
    order: list[int] = field(init=False)
    tops: list[int] = field(init=False)
    steps: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = field(init=False)
    root: _Groups = field(init=False)
    floors: list[list[float]] = field(init=False)
    close: float = field(init=False)
    best: float = field(init=False, default=np.inf)
    levels: tuple[int, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        codes, rows = self.tuples.codes, self.tuples.rows
        self.order = sorted(range(len(self.columns)), key=lambda each: (-self.columns[each].size, each))
        self.tops = [len(self.columns[each].nodes) - 1 for each in self.order]
        # Suffixes are numbered from the last column on: each is a code and the number of a shorter suffix.
        suffix, size = np.zeros(len(codes), np.int32), 1
        self.steps = []
        for each in reversed(self.order):
            own = np.ascontiguousarray(codes[:, each])
            numbers, at = number_rows([own, suffix], [self.columns[each].size, size])
            self.steps.insert(0, (own[at], suffix[at]))
            suffix, size = numbers, at.size
        none = np.zeros(len(codes), np.int32)
        values = self.models.arrays.values
        self.root = _Groups(none, suffix, self.people, rows, np.zeros(len(codes)), values)
        self.close = _CLOSE * float(self.units.sum() * rows.sum())
        self.floors = []
        for each in self.order:
            counts = np.bincount(codes[:, each], rows, minlength=self.columns[each].size)
            self.floors.append(
                [float(self.units[each] * (level @ counts)) for level in self.columns[each].losses]
            )

    @property
    def monotone(self) -> bool:
        """Whether coarser levels never violate more rows, models included."""
        return self.models.monotone or self.limit == 0

    def start(self) -> None:
        """Begins with everything at the top, and goes down where the loss falls most, to know a good loss."""
        levels = tuple(self.tops)
        self._take(levels, *self._judge(levels))
        while True:
            before = self.best
            for place, level in enumerate(levels):
                if level > 0:
                    finer = (*levels[:place], level - 1, *levels[place + 1 :])
                    self._take(finer, *self._judge(finer))
            if self.best >= before:
                return
            levels = self.levels

    def refine(self) -> None:
        """Goes down where it costs nothing: of equal losses, finer levels are the better ones."""
        place = 0
        while place < len(self.levels):
            level = self.levels[place]
            finer = (*self.levels[:place], level - 1, *self.levels[place + 1 :])
            best = self.best
            self.best += 2 * self.close  # so that an equal loss counts as better
            if level > 0:
                self._take(finer, *self._judge(finer))
            if self.levels != finer:
                self.best = best
                place += 1

    def finish(self) -> Partition:
        """Returns the best levels as a partition."""
        classes, count = self._classify(self.levels)
        satisfied = self._find_satisfied(classes, count)
        number = np.cumsum(satisfied) - 1
        kept = np.where(satisfied[classes], number[classes], -1).astype(np.int32)
        levels = [0] * len(self.order)
        for each, level in zip(self.order, self.levels, strict=True):
            levels[each] = level
        entries = np.arange(self.tuples.size, dtype=np.int32)
        return Partition(entries, self.tuples.rows, kept, int(satisfied.sum()), tuple(levels))

    def walk(self, groups: _Groups, fixed: tuple[int, ...], floor: float) -> None:
        """Visits all levels that could be better than the best known; the `fixed` ones lose `floor`."""
        place = len(fixed)
        last = place + 1 == len(self.order)
        ahead: list[tuple[float, int, _Groups]] = []
        for level in range(self.tops[place], -1, -1):
            if floor + self.floors[place][level] >= self.best - self.close:
                continue  # even if nothing else were lost
            target, merged = self._merge(groups, place, level)
            short, loss = self._judge_groups(merged, with_models=False)
            if short > self.limit:
                break  # finer levels violate no less
            if loss >= self.best - self.close:
                continue
            if self.models:
                values = self.models.merge_values(target, merged.rows.size, groups.values)
                merged = replace(merged, values=values)
                if last or self.monotone:
                    short, loss = self._judge_groups(merged, with_models=True)
                if short > self.limit and self.monotone:
                    break
            if last:
                self._take((*fixed, level), short, loss)
            else:
                ahead.append((loss, level, merged))
        for loss, level, coarser in sorted(ahead, key=lambda each: each[:2]):
            if loss < self.best - self.close:
                self.walk(coarser, (*fixed, level), floor + self.floors[place][level])

    def _merge(self, groups: _Groups, place: int, level: int) -> tuple[NDArray[np.int32], _Groups]:
        """Returns (the new group of each group, the new groups) with a column at a level, values unmerged."""
        column, unit = self.columns[self.order[place]], self.units[self.order[place]]
        code_of_suffix, rest_of_suffix = self.steps[place]
        codes, rest = code_of_suffix[groups.suffix], rest_of_suffix[groups.suffix]
        prefix, found = number_rows(
            [groups.prefix, column.nodes[level][codes]], [groups.prefix.size, column.size]
        )
        target, first = number_rows([prefix, rest], [found.size, self.tuples.size])
        lost = groups.lost + groups.rows * (column.losses[level] * unit)[codes]
        people, rows = (np.bincount(target, each).astype(np.int64) for each in (groups.people, groups.rows))
        lost = np.bincount(target, lost).astype(np.float64)
        return target, _Groups(prefix[first], rest[first], people, rows, lost, groups.values)

    def _judge_groups(self, groups: _Groups, *, with_models: bool) -> tuple[int, float]:
        """Returns (rows that violate with all others at the top, the loss if they are suppressed)."""
        people, rows, lost = (
            np.bincount(groups.prefix, each) for each in (groups.people, groups.rows, groups.lost)
        )
        satisfied = people >= self.k
        if with_models:
            satisfied &= self.models.find_satisfied(groups.prefix, people.size, groups.values)
        short = int(rows[~satisfied].sum())
        return short, float(lost[satisfied].sum() + self.units.sum() * short)

    def _take(self, levels: tuple[int, ...], short: int, loss: float) -> None:
        """Makes these levels the best if they are."""
        if short > self.limit or loss >= self.best - self.close:
            return
        if short and self.models.relative and not self._fits_alone(levels):
            return
        self.best, self.levels = loss, levels

    def _judge(self, levels: tuple[int, ...]) -> tuple[int, float]:
        """Returns (rows in classes that violate k or a model, the loss if they are suppressed)."""
        classes, count = self._classify(levels)
        suppressed = ~self._find_satisfied(classes, count)[classes]
        rows = np.where(suppressed, 0, self.tuples.rows)
        short = int(self.tuples.rows.sum() - rows.sum())
        loss = float(self.units.sum()) * short
        for each, level in zip(self.order, levels, strict=True):
            column = self.columns[each]
            counts = np.bincount(self.tuples.codes[:, each], rows, minlength=column.size)
            loss += float(self.units[each] * (column.losses[level] @ counts))
        return short, loss

    def _fits_alone(self, levels: tuple[int, ...]) -> bool:
        """Returns whether the classes that are left satisfy the models compared with what is left."""
        classes, count = self._classify(levels)
        kept = self._find_satisfied(classes, count)[classes] & (self.tuples.rows > 0)
        if not kept.any():
            return False
        alone = self.models.restrict(kept)
        return bool(alone.find_satisfied(np.where(kept, classes, -1).astype(np.int32), count).all())

    def _find_satisfied(self, classes: NDArray[np.int32], count: int) -> NDArray[np.bool_]:
        """For every class whether it has k people and satisfies the models."""
        satisfied: NDArray[np.bool_] = np.bincount(classes, self.people, minlength=count) >= self.k
        if self.models:
            satisfied &= self.models.find_satisfied(classes, count)
        return satisfied

    def _classify(self, levels: tuple[int, ...]) -> tuple[NDArray[np.int32], int]:
        """Returns the class of every tuple, and how many there are."""
        nodes, sizes = [], []
        for each, level in zip(self.order, levels, strict=True):
            own = self.columns[each].nodes[level]
            nodes.append(own[self.tuples.codes[:, each]])
            sizes.append(int(own.max()) + 1)
        classes, first = number_rows(nodes, sizes)
        return classes, first.size
