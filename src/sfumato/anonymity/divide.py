"""The methods that divide tuples into equivalence classes, and the choice of one.

What all of them take: `tuples`, the different rows of codes; `people`, how many people k counts in each tuple
(its records, or those of a register); `space`, what codes mean and lose; `k`, the least people of a class.
`progress` is called with a few words now and then.

The lattice is walked column by column, the one with most values first. A choice of the first levels is given
up

- if its loss so far, with the other columns at no loss, is not below the best that is known;
- if too many rows violate k even with the other columns at the top. Records that join a class of k leave
  it one of k, so coarser levels never violate more, and finer ones of the same columns are given up too.

Distinct diversity is like k. Other models are not, once classes may be suppressed: then they are judged at
each node that is good enough without them, and give up nothing.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymity.encode import (
    NUMBER,
    Partition,
    Quasi,
    Space,
    Tuples,
    encode_values,
    number_rows,
    value_type,
)
from sfumato.anonymity.models import Model, ModelKind, Models, Sensitive, count_values
from sfumato.core.errors import AnonymityError
from sfumato.tables.read import is_text

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.anonymity.options import Options


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
    search.walk((), 0.0)
    search.refine()
    return search.finish()


@dataclass(slots=True, eq=False, repr=False)
class _Search:
    """A walk over the lattice, and the best so far. Places are in the order of the walk."""

    tuples: Tuples
    people: NDArray[np.int64]
    columns: Sequence[Quasi]
    k: int
    models: Models
    limit: int
    units: NDArray[np.float64]
    order: list[int] = field(init=False)
    tops: tuple[int, ...] = field(init=False)
    codes: list[NDArray[np.int32]] = field(init=False)
    floors: list[list[float]] = field(init=False)
    close: float = field(init=False)
    best: float = field(init=False, default=np.inf)
    levels: tuple[int, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        rows = self.tuples.rows
        self.order = sorted(range(len(self.columns)), key=lambda each: (-self.columns[each].size, each))
        self.tops = tuple(len(self.columns[each].nodes) - 1 for each in self.order)
        self.close = _CLOSE * float(self.units.sum() * rows.sum())
        self.codes = [np.ascontiguousarray(codes) for codes in self.tuples.codes.T]
        self.floors = [
            [self._lose(each, level, rows.astype(np.float64)) for level in range(top + 1)]
            for each, top in zip(self.order, self.tops, strict=True)
        ]

    @property
    def monotone(self) -> bool:
        """Whether coarser levels never violate more rows, models included."""
        return self.models.monotone or self.limit == 0

    def start(self) -> None:
        """Begins with everything at the top, and goes down where the loss falls most, to know a good loss."""
        levels = self.tops
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
        classes, satisfied = self._classify(self.levels)
        number = np.cumsum(satisfied) - 1
        kept = np.where(satisfied[classes], number[classes], -1).astype(np.int32)
        levels = tuple(self.levels[self.order.index(each)] for each in range(len(self.order)))
        entries = np.arange(self.tuples.size, dtype=np.int32)
        return Partition(entries, self.tuples.rows, kept, int(satisfied.sum()), levels)

    def walk(self, fixed: tuple[int, ...], floor: float) -> None:
        """Visits all levels that could be better than the best known; the `fixed` ones lose `floor`."""
        place = len(fixed)
        last = place + 1 == len(self.order)
        ahead: list[tuple[float, int]] = []
        for level in range(self.tops[place], -1, -1):
            if floor + self.floors[place][level] >= self.best - self.close:
                continue  # even if nothing else were lost
            levels = (*fixed, level, *self.tops[place + 1 :])
            short, loss = self._judge(levels, place + 1, with_models=False)
            if short > self.limit:
                break  # finer levels violate no less
            if loss >= self.best - self.close:
                continue
            if self.models and (last or self.monotone):
                short, loss = self._judge(levels, place + 1)
                if short > self.limit and self.monotone:
                    break
            if last:
                self._take(levels, short, loss)
            else:
                ahead.append((loss, level))
        for loss, level in sorted(ahead):
            if loss < self.best - self.close:
                self.walk((*fixed, level), floor + self.floors[place][level])

    def _take(self, levels: tuple[int, ...], short: int, loss: float) -> None:
        """Makes these levels the best if they are."""
        if short > self.limit or loss >= self.best - self.close:
            return
        if short and self.models.relative and not self._fits_alone(levels):
            return
        self.best, self.levels = loss, levels

    def _judge(
        self, levels: tuple[int, ...], lossy: int | None = None, *, with_models: bool = True
    ) -> tuple[int, float]:
        """Returns (rows in classes that violate k or a model, the loss if they are suppressed).

        Cells of the first `lossy` columns lose, by default those of all.
        """
        classes, satisfied = self._classify(levels, with_models=with_models)
        rows = np.where(satisfied[classes], self.tuples.rows, 0.0)
        short = int(self.tuples.rows.sum() - rows.sum())
        lost = (self._lose(*each, rows) for each in list(zip(self.order, levels, strict=True))[:lossy])
        return short, float(self.units.sum()) * short + sum(lost)

    def _lose(self, each: int, level: int, rows: NDArray[np.float64]) -> float:
        """Returns what the cells of so many `rows` of each tuple lose in a column at a level."""
        lost = self.columns[each].losses[level][self.codes[each]]
        return float(self.units[each] * (rows * lost).sum())  # a product of vectors would wake threads

    def _fits_alone(self, levels: tuple[int, ...]) -> bool:
        """Returns whether the classes that are left satisfy the models compared with what is left."""
        classes, satisfied = self._classify(levels)
        kept = satisfied[classes] & (self.tuples.rows > 0)
        if not kept.any():
            return False
        alone = self.models.restrict(kept)
        classes = np.where(kept, classes, -1).astype(np.int32)
        return bool(alone.find_satisfied(classes, satisfied.size).all())

    def _classify(
        self, levels: tuple[int, ...], *, with_models: bool = True
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Returns the class of every tuple, and whether each class has k people and satisfies the models."""
        chosen = list(zip(self.order, levels, self.tops, strict=True))
        # A column at the top tells nothing apart.
        chosen = [each for each in chosen if each[1] < each[2]] or chosen[:1]
        nodes = [self.columns[each].nodes[level] for each, level, _ in chosen]
        own = [node[self.codes[each]] for node, (each, *_) in zip(nodes, chosen, strict=True)]
        classes, first = number_rows(own, [int(node.max()) + 1 for node in nodes])
        satisfied: NDArray[np.bool_] = np.bincount(classes, self.people, minlength=first.size) >= self.k
        if with_models and self.models:
            satisfied &= self.models.find_satisfied(classes, first.size)
        return classes, satisfied


_MOST_NODES = 2**16  # a lattice of more is not walked; classes are grown instead
_SMALLEST_BLOCK = 100  # people of a block in which classes are grown, or 5k: the cost is quadratic in it
_SMALLEST_CLUSTERED = 200  # the same for microaggregation, or 10k
_ONE_PIECE, _PIECES = 2**15, 16  # so many tuples are cut into pieces, to be worked on by several threads
_FIRST_WINDOW, _WINDOW_GROWTH = 0.05, 1.12  # losses that a walk looks at together, see _plan_visits
_UNIT = 2**40  # losses are whole multiples of 1 over this where sums must be exact
_FOLDED = 2**15  # columns are folded into one while it has at most so many codes times levels
_REPORTED = 1000  # classes between two reports of progress


def _find_classes(
    tuples: Tuples, people: NDArray[np.int64], space: Space, *, k: int, progress: Callable[[str], None]
) -> Partition:
    """Local recoding: classes of at least `k` of the `people`, with little loss in `space`.

    Where every column has a hierarchy, records that share cheap nodes become classes, cheapest first.
    Elsewhere the tuples are cut into blocks by the cuts with the lowest loss, and in every block classes
    are grown one tuple at a time.
    """
    nodes = math.prod(int(count) for count in space.levels)
    # A node is looked up by one number of 64 bits, made of the nodes of all columns.
    fits = nodes <= _MOST_NODES and math.prod(int(size) for size in space.sizes) <= 2**63
    if (space.levels > 0).all() and fits:
        progress(f"looking for classes at {nodes:,} nodes of the hierarchies")
        return _peel(tuples, people, space, k)
    progress("growing classes")
    pieces = _cut_pieces(tuples, people, space, k)
    with ThreadPoolExecutor() as pool:
        grown = list(pool.map(lambda piece: _grow(tuples, people, space, k, piece), pieces))
    classes = np.empty(tuples.size, np.int32)
    count = 0
    for piece, (own, made) in zip(pieces, grown, strict=True):
        classes[piece] = own + count
        count += made
    return _whole(tuples, classes, count)


def _cut_pieces(tuples: Tuples, people: NDArray[np.int64], space: Space, k: int) -> list[NDArray[np.int64]]:
    """Cuts the tuples into pieces that are worked on at once; few tuples are one piece."""
    if tuples.size < _ONE_PIECE:
        return [np.arange(tuples.size)]
    smallest = max(int(people.sum()) // _PIECES, 10 * k, _SMALLEST_BLOCK)
    order, starts = _cut(tuples.codes, people, tuples.rows, space, smallest, lowest=True)
    return np.split(order, starts[1:-1])


def _grow(
    tuples: Tuples, people: NDArray[np.int64], space: Space, k: int, piece: NDArray[np.int64]
) -> tuple[NDArray[np.int32], int]:
    """Returns (the class of every tuple of the piece, the number of its classes)."""
    from sfumato.anonymity.kernels.grow import grow_classes

    codes, counted, rows = tuples.codes[piece], people[piece], tuples.rows[piece]
    order, starts = _cut(codes, counted, rows, space, max(5 * k, _SMALLEST_BLOCK), lowest=True)
    classes, count = grow_classes(codes, counted, rows, space, k, order, starts)
    return classes, int(count)


def _cut_classes(
    tuples: Tuples, people: NDArray[np.int64], space: Space, *, k: int, lowest: bool
) -> Partition:
    """Returns the parts left by the cuts that lose least (`lowest`), or by Mondrian's at the median."""
    order, starts = _cut(tuples.codes, people, tuples.rows, space, k, lowest=lowest)
    classes = np.empty(tuples.size, np.int32)
    classes[order] = np.repeat(np.arange(starts.size - 1, dtype=np.int32), np.diff(starts))
    return _whole(tuples, classes, starts.size - 1)


def _cut(
    codes: NDArray[np.int32],
    people: NDArray[np.int64],
    rows: NDArray[np.int64],
    space: Space,
    k: int,
    *,
    lowest: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns (an order of the tuples, where in it each part begins, and the last ends)."""
    from sfumato.anonymity.kernels.mondrian import cut_tuples, make_cuts, make_scratch

    order, starts = cut_tuples(codes, people, rows, space, k, lowest, make_scratch(space), make_cuts(space))
    return order, starts


def _peel(tuples: Tuples, people: NDArray[np.int64], space: Space, k: int) -> Partition:
    """Returns classes of records that share nodes of their hierarchies, cheapest nodes first."""
    from sfumato.anonymity.kernels.grow import Folds, join_rest, peel_classes

    nodes, lows, highs = _plan_visits(tuples, space)
    groups = _group_columns(space)
    codes, keys, losses = zip(*(_fold(tuples, space, group) for group in groups), strict=True)
    sizes = [each.shape[1] for each in keys]
    strides = itertools.accumulate(sizes, operator.mul, initial=1)
    levels = [
        np.ravel_multi_index(nodes[:, group].T, [int(space.levels[each]) for each in group])
        for group in groups
    ]
    folded = Folds(
        codes=np.stack(codes, axis=1),
        keys=np.concatenate([each.ravel() * np.uint64(by) for each, by in zip(keys, strides, strict=False)]),
        losses=np.concatenate([each.ravel() for each in losses]),
        starts=np.cumsum([0, *(each.size for each in losses[:-1])], dtype=np.int64),
        sizes=np.array(sizes, np.int64),
    )
    classes, count = peel_classes(folded, people, np.stack(levels, axis=1), lows, highs, k)
    join_rest(tuples.codes, tuples.rows, classes, count, space)
    return _whole(tuples, classes, count)


def _group_columns(space: Space) -> list[list[int]]:
    """Returns columns in groups of few combinations, the largest first."""
    groups: list[list[int]] = []
    room: list[int] = []  # codes times levels of each group: what its table of keys takes
    for column in np.argsort(-space.sizes, kind="stable"):
        needed = int(space.sizes[column] * space.levels[column])
        for place, group in enumerate(groups):
            if room[place] * needed <= _FOLDED:
                group.append(int(column))
                room[place] *= needed
                break
        else:
            groups.append([int(column)])
            room.append(needed)
    return groups


def _fold(
    tuples: Tuples, space: Space, group: list[int]
) -> tuple[NDArray[np.int32], NDArray[np.uint64], NDArray[np.int64]]:
    """Returns several columns as one, so that fewer are looked up: codes, and by level keys and losses."""
    codes = np.zeros(tuples.size, np.int64)
    keys = np.zeros((1, 1), np.uint64)
    losses = np.zeros((1, 1), np.int64)
    for column in group:
        size, levels = int(space.sizes[column]), int(space.levels[column])
        start = int(space.tree_offsets[column])
        nodes = space.nodes[start : start + size * levels].reshape(levels, size).astype(np.uint64)
        lost = space.losses[start : start + size * levels].reshape(levels, size) * space.units[column]
        codes = codes * size + tuples.codes[:, column]
        # All levels and codes so far with all of this column: levels are rows, codes are columns.
        wide = keys[:, None, :, None] * np.uint64(size) + nodes[None, :, None, :]
        keys = wide.reshape(keys.shape[0] * levels, -1)
        summed = losses[:, None, :, None] + np.rint(lost * _UNIT).astype(np.int64)[None, :, None, :]
        losses = summed.reshape(keys.shape)
    return codes.astype(np.int32), keys, losses


def _plan_visits(
    tuples: Tuples, space: Space
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns which nodes to look at in which order, and between which losses.

    Losses are divided into windows that grow; within a window, nodes with a small mean loss come first.
    """
    nodes = np.array(list(itertools.product(*(range(int(count)) for count in space.levels))), np.int64)
    least, most, mean = np.zeros((3, len(nodes)))
    every = float(tuples.rows.sum())
    for column, (start, size, levels, unit) in enumerate(
        zip(space.tree_offsets, space.sizes, space.levels, space.units, strict=True)
    ):
        losses = space.losses[start : start + size * levels].reshape(levels, size) * unit
        shares = np.bincount(tuples.codes[:, column], tuples.rows, minlength=size) / every
        least += losses.min(axis=1)[nodes[:, column]]
        most += losses.max(axis=1)[nodes[:, column]]
        mean += (losses @ shares)[nodes[:, column]]
    top = float(space.units.sum())
    edges = [0.0, _FIRST_WINDOW]
    while edges[-1] < top:
        edges.append(edges[-1] * _WINDOW_GROWTH)
    edges[-1] = top * 1.001
    visits, lows, highs = [], [], []
    for low, high in zip([-1.0, *edges], edges, strict=False):
        within = np.flatnonzero((least <= high) & (most > low))
        within = within[np.argsort(mean[within], kind="stable")]
        visits.append(nodes[within])
        lows.append(np.full(within.size, round(low * _UNIT), np.int64))
        highs.append(np.full(within.size, round(high * _UNIT), np.int64))
    return np.concatenate(visits), np.concatenate(lows), np.concatenate(highs)


def _whole(tuples: Tuples, classes: NDArray[np.int32], count: int) -> Partition:
    """Returns the partition in which all rows of a tuple are in one class."""
    own = np.arange(tuples.size, dtype=np.int32)
    return Partition(own, tuples.rows, classes.astype(np.int32), int(count))


def cut_with_models(
    tuples: Tuples,
    people: NDArray[np.int64],
    space: Space,
    k: int,
    models: Models,
    progress: Callable[[str], None] = lambda _: None,
) -> Partition:
    """Returns classes of at least `k` of the `people` that satisfy all `models`, by the cuts that lose least.

    A part's cuts are tried in the order of their loss, all of them if need be; of equal losses the first
    column's and lowest code's is first. A part without a cut that fits is a class. The whole table satisfies
    the models, or they could not have been made, so every part does.
    """
    from sfumato.anonymity.kernels.models import find_cut
    from sfumato.anonymity.kernels.mondrian import cut_part, make_cuts, make_scratch, score_cuts

    codes, rows = tuples.codes, tuples.rows
    order = np.arange(tuples.size)
    spare = np.empty(tuples.size, np.int64)
    scratch, cuts = make_scratch(space), make_cuts(space)
    classes = np.empty(tuples.size, np.int32)
    count = 0
    waiting = [(0, tuples.size)]
    while waiting:
        start, end = waiting.pop()
        # More than the part has: losses are exact here, since cuts are tried in their order.
        made = score_cuts(codes, people, rows, space, order, start, end, k, tuples.size + 1, scratch, cuts)
        chosen = -1
        if made:
            sequence = np.argsort(cuts.scores[:made], kind="stable")
            chosen = find_cut(codes, order, start, end, cuts, sequence, models.arrays)
        if chosen < 0:
            classes[order[start:end]] = count
            count += 1
            if count % _REPORTED == 0:
                progress(f"{count:,} classes")
            continue
        mark, alone = cuts.codes[chosen], cuts.alone[chosen]
        middle = cut_part(codes, order, start, end, cuts.columns[chosen], mark, alone, spare)
        waiting += [(middle, end), (start, middle)]
    return _whole(tuples, classes, count)


def divide_relaxed(tuples: Tuples, space: Space, k: int) -> Partition:
    """Makes classes of k to 2k - 1 rows; a tuple of equal records may be in several.

    Of all columns, the one is halved whose halves lose least. Records that are all equal are not parted
    from each other: such a class may be larger.
    """
    from sfumato.anonymity.kernels.mondrian import halve_parts

    numbers, starts = halve_parts(tuples.codes, np.repeat(np.arange(tuples.size), tuples.rows), space, k)
    count = starts.size - 1
    entries, weights = np.unique(
        np.repeat(np.arange(count), np.diff(starts)) * tuples.size + numbers, return_counts=True
    )
    classes, number = np.divmod(entries, tuples.size)
    return Partition(number.astype(np.int32), weights, classes.astype(np.int32), count)


def microaggregate(tuples: Tuples, people: NDArray[np.int64], space: Space, k: int) -> Partition:
    """Returns classes of at least k people that are near each other (MDAV), all rows of a tuple in one.

    Numbers are as far apart as their share of the column's range, other values 0 or 1; so is a missing
    number from any other. The table is first cut into blocks of at least 10k people, so that the cost
    grows with the table and not with its square.
    """
    order, starts = _cut(
        tuples.codes, people, tuples.rows, space, max(10 * k, _SMALLEST_CLUSTERED), lowest=True
    )
    points = tuples.codes.astype(np.float64)
    for column in np.flatnonzero(space.kinds == NUMBER):
        places = space.places[space.offsets[column] :][tuples.codes[:, column]]
        points[:, column] = np.where(places > 1, np.nan, places)  # a missing one lies beyond all others
    # Rows of the table and people of a register both say where the middle is.
    weights = people + tuples.rows
    blocks = np.split(order, starts[1:-1])
    found = [each for block in blocks for each in _gather(block, people, weights, points, space, k)]
    classes = np.empty(tuples.size, np.int32)
    for number, members in enumerate(found):
        classes[members] = number
    return _whole(tuples, classes, len(found))


def _gather(
    block: NDArray[np.int64],
    people: NDArray[np.int64],
    weights: NDArray[np.int64],
    points: NDArray[np.float64],
    space: Space,
    k: int,
) -> list[NDArray[np.int64]]:
    """Returns the classes of a block of tuples, whose `weights` say how much each moves a middle.

    A tuple of `k` people is a class. Then, while 2k people are left, the tuple farthest from the middle and
    its nearest are one, and so are the tuple farthest from it and its nearest. Who is left is the last
    class, or, if fewer than k, joins the class whose middle is nearest. Of equals, the lowest tuple is taken.
    """
    is_number = space.kinds == NUMBER

    def measure(members: NDArray[np.int64], centre: NDArray[np.float64]) -> NDArray[np.float64]:
        gaps = points[members] - centre
        apart = np.where(is_number, gaps**2, gaps != 0)
        odd = np.isnan(gaps)
        apart[odd] = (np.isnan(points[members]) != np.isnan(centre))[odd]
        return np.asarray((apart * space.units).sum(axis=1))

    def find_middle(members: NDArray[np.int64]) -> NDArray[np.float64]:
        centre = np.full(is_number.size, np.nan)
        for column, own in enumerate(points[members].T):
            known = ~np.isnan(own)
            if is_number[column] and known.any():
                centre[column] = np.average(own[known], weights=weights[members][known])
            elif not is_number[column]:
                centre[column] = np.bincount(own.astype(np.int64), weights[members]).argmax()
        return centre

    block = np.sort(block)
    classes = [each[None] for each in block[people[block] >= k]]
    left = block[people[block] < k]
    while people[left].sum() >= 2 * k:
        centre = find_middle(left)
        for _ in range(2):
            if people[left].sum() >= 2 * k:
                seed = int(measure(left, centre).argmax())
                centre = points[left[seed]]
                apart = measure(left, centre)
                apart[seed] = -1.0
                nearest = np.argsort(apart, kind="stable")
                taken = nearest[: 1 + int(np.searchsorted(np.cumsum(people[left[nearest]]), k))]
                classes.append(left[taken])
                left = np.delete(left, taken)
    if people[left].sum() >= k:
        classes.append(left)
    elif left.size:
        apart = np.stack([measure(left, find_middle(each)) for each in classes])
        for each, number in zip(left, apart.argmin(axis=0), strict=True):
            classes[number] = np.append(classes[number], each)
    return classes


def divide_tuples(
    options: Options,
    table: pa.Table,
    columns: Sequence[Quasi],
    tuples: Tuples,
    people: NDArray[np.int64],
    space: Space,
    *,
    progress: Callable[[str], None],
) -> Partition:
    """Returns the classes that the method of `options` finds; each satisfies every model that is asked for.

    `columns` are the quasi-identifiers of `table`, `tuples` its rows in their codes, with the `people` of
    each; `space` says what codes mean. `progress` is called with a few words now and then.
    """
    if options.method == "relaxed":
        return divide_relaxed(tuples, space, options.k)
    if options.method == "microaggregate":
        return microaggregate(tuples, people, space, options.k)
    models = _build_models(options, table, tuples)
    if options.method == "lattice":
        progress("looking for the best levels")
        return find_optimum(tuples, people, columns, options.k, models, options.max_suppressed, space.units)
    if models:
        return cut_with_models(tuples, people, space, options.k, models, progress)
    if options.method == "local":
        return _find_classes(tuples, people, space, k=options.k, progress=progress)
    return _cut_classes(tuples, people, space, k=options.k, lowest=options.method == "cuts")


def _build_models(options: Options, table: pa.Table, tuples: Tuples) -> Models:
    """Returns what every class must be, of each sensitive column and of the individuals."""
    models: list[Model] = []
    sensitives = []
    if options.individual is not None:
        models.append(Model("distinct", options.individual, options.k))
        sensitives.append(_count(options.individual, table, tuples))
    for name in options.sensitive if options.needs_sensitive else ():
        sensitives.append(_count(name, table, tuples))
        distance = options.distance_of(name)
        if options.t is not None and distance == "ordered" and is_text(value_type(table.column(name))):
            raise AnonymityError(
                f"column {name!r} is text, which has no order; use the equal distance, or store it as "
                "numbers in their order"
            )
        c, number = options.recursive or (None, 1)
        limits: dict[ModelKind, float | None] = {
            "distinct": options.l,
            "entropy": options.entropy_l,
            "recursive": c,
            distance: options.t,
            "delta": options.delta,
        }
        models += [Model(kind, name, limit, number) for kind, limit in limits.items() if limit is not None]
    return Models(tuple(models), tuple(sensitives))


def _count(name: str, table: pa.Table, tuples: Tuples) -> Sensitive:
    codes, _ = encode_values(name, table.column(name))
    return count_values(name, tuples.tuple_of_row, codes, tuples=tuples.size)
