"""Classes that are found one by one: the methods that lose least.

Where every column has a hierarchy, records that share cheap nodes become classes, cheapest first.
Elsewhere the tuples are cut into blocks by the cuts with the lowest loss, and in every block classes are
grown one tuple at a time.
"""

from __future__ import annotations

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.anonymity.models import Partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.space import Space

MOST_NODES = 2**16
"""A lattice of more nodes than this is not walked; classes are grown instead."""

_SMALLEST_BLOCK = 100
_ONE_PIECE, _PIECES = 2**15, 16
_FIRST_WINDOW, _WINDOW_GROWTH = 0.05, 1.12
_UNIT = 2**40
_FOLDED = 2**15


def find_classes(
    tuples: Tuples, people: NDArray[np.int64], space: Space, *, k: int, tell: Callable[[str], None]
) -> Partition:
    """Classes of at least k people with little loss.

    Every class has k people, because a class ends with the tuple that brings it to k, and who is left
    joins one that has.
    """
    nodes = math.prod(int(count) for count in space.levels)
    # What tells nodes apart is one number of 64 bits.
    fits = nodes <= MOST_NODES and math.prod(int(size) for size in space.sizes) <= 2**63
    if (space.levels > 0).all() and fits:
        tell(f"looking for classes at {nodes:,} nodes of the hierarchies")
        return _peel(tuples, people, space, k)
    tell("growing classes")
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
    """The tuples in pieces that are worked on by themselves, several at once; few tuples are one piece."""
    if tuples.size < _ONE_PIECE:
        return [np.arange(tuples.size)]
    smallest = max(int(people.sum()) // _PIECES, 10 * k, _SMALLEST_BLOCK)
    order, starts = _cut(tuples.codes, people, tuples.rows, space, smallest, lowest=True)
    return np.split(order, starts[1:])


def _grow(
    tuples: Tuples, people: NDArray[np.int64], space: Space, k: int, piece: NDArray[np.int64]
) -> tuple[NDArray[np.int32], int]:
    """(the class of every tuple of the piece, the number of its classes)."""
    from sfumato.anonymity.kernels.grow import grow_classes

    codes, counted, rows = tuples.codes[piece], people[piece], tuples.rows[piece]
    order, starts = _cut(codes, counted, rows, space, max(5 * k, _SMALLEST_BLOCK), lowest=True)
    classes, count = grow_classes(codes, counted, rows, space.arrays, k, order, starts, space.words)
    return classes, int(count)


def cut_classes(
    tuples: Tuples, people: NDArray[np.int64], space: Space, *, k: int, lowest: bool
) -> Partition:
    """Classes by cuts alone: those with the lowest loss, or the classic ones near the median."""
    order, starts = _cut(tuples.codes, people, tuples.rows, space, k, lowest=lowest)
    classes = np.empty(tuples.size, np.int32)
    sizes = np.diff(np.append(starts, tuples.size))
    classes[order] = np.repeat(np.arange(starts.size, dtype=np.int32), sizes)
    return _whole(tuples, classes, starts.size)


def _cut(
    codes: NDArray[np.int32],
    people: NDArray[np.int64],
    rows: NDArray[np.int64],
    space: Space,
    k: int,
    *,
    lowest: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(an order of the tuples, where in it each part begins)."""
    from sfumato.anonymity.kernels.cuts import cut_tuples

    order, starts = cut_tuples(
        codes,
        people,
        rows,
        space.arrays,
        k,
        lowest,
        space.scratch(),
        space.room(),
    )
    return order, np.sort(starts)


def _peel(tuples: Tuples, people: NDArray[np.int64], space: Space, k: int) -> Partition:
    from sfumato.anonymity.kernels.peel import join_rest, peel_classes

    visits, lows, highs = _plan_visits(tuples, space)
    groups = _group_columns(space)
    folds = [_fold(tuples, space, group) for group in groups]
    stride = 1
    keys, losses, folded = [], [], []
    for group, fold in zip(groups, folds, strict=True):
        keys.append(fold.keys.ravel() * np.uint64(stride))
        losses.append(fold.losses.ravel())
        folded.append(np.ravel_multi_index(visits[:, group].T, [int(space.levels[each]) for each in group]))
        stride *= fold.size
    starts = np.cumsum([0, *(fold.losses.size for fold in folds[:-1])], dtype=np.int64)
    classes, count = peel_classes(
        np.stack([fold.codes for fold in folds], axis=1),
        people,
        np.concatenate(keys),
        np.concatenate(losses),
        starts,
        np.array([fold.size for fold in folds], np.int64),
        np.stack(folded, axis=1),
        lows,
        highs,
        k,
    )
    join_rest(
        tuples.codes,
        tuples.rows,
        classes,
        count,
        space.nodes,
        space.losses,
        space.tree_offsets,
        space.sizes,
        space.units,
    )
    return _whole(tuples, classes, count)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Fold:
    """Several columns as one, so that fewer have to be looked up: its codes, keys and losses by level."""

    size: int
    codes: NDArray[np.int32]
    keys: NDArray[np.uint64]
    losses: NDArray[np.int64]


def _group_columns(space: Space) -> list[list[int]]:
    """Columns in groups of few combinations, the largest first."""
    groups: list[list[int]] = []
    room: list[int] = []
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


def _fold(tuples: Tuples, space: Space, group: list[int]) -> _Fold:
    codes = np.zeros(tuples.size, np.int64)
    keys = np.zeros((1, 1), np.uint64)
    losses = np.zeros((1, 1), np.int64)
    for column in group:
        size, levels = int(space.sizes[column]), int(space.levels[column])
        start = int(space.tree_offsets[column])
        nodes = space.nodes[start : start + size * levels].reshape(levels, size).astype(np.uint64)
        lost = space.losses[start : start + size * levels].reshape(levels, size) * space.units[column]
        codes = codes * size + tuples.codes[:, column]
        wide = keys[:, None, :, None] * np.uint64(size) + nodes[None, :, None, :]
        keys = wide.reshape(keys.shape[0] * levels, -1)
        summed = losses[:, None, :, None] + np.rint(lost * _UNIT).astype(np.int64)[None, :, None, :]
        losses = summed.reshape(keys.shape)
    return _Fold(keys.shape[1], codes.astype(np.int32), keys, losses)


def _plan_visits(
    tuples: Tuples, space: Space
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Which nodes to look at in which order, and between which losses.

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
    """The partition in which all rows of a tuple are in one class."""
    own = np.arange(tuples.size, dtype=np.int32)
    return Partition(own, tuples.rows, classes.astype(np.int32), int(count))
