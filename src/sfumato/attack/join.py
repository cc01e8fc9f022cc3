"""All compatible pairs of classes of two tables, without comparing each with each.

Classes are sorted by which of their quasi-identifiers are exact. For two such sorts, the columns that are
exact in both are joined by hashing; within a block of equal values the other columns are compared: pair
by pair in small blocks. In a large block one column is put in an order in which every value fits a run of
rows, and only the rows of the run are compared in the others; where no column has short runs, each value
of each column gets the set of rows it fits, as bits, and a class the intersection of its sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.attack.classes import Classes, ValueIndex, combine_codes
from sfumato.attack.patterns import Pattern, is_exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]

_LARGE = 1 << 18
"""Blocks of more pairs are joined by runs or by sets of bits."""

_SHORT = 16
"""Runs are short if they hold less than this part of a block."""

_BATCH = 1 << 21
_MOST_BYTES = 1 << 27


def join_classes(left: Classes, right: Classes) -> Iterator[Pairs]:
    """Arrays of the classes of `left` and `right` that are compatible in every column, batch by batch.

    >>> import pyarrow as pa
    >>> from sfumato.attack.classes import build_classes
    >>> rows = build_classes(pa.table({"age": ["60+", "20-40"], "sex": ["m", "m"]}), ["age", "sex"])
    >>> people = build_classes(pa.table({"age": ["61", "33"], "sex": ["m", "f"]}), ["age", "sex"])
    >>> [(a.tolist(), b.tolist()) for a, b in join_classes(rows, people)]
    [([0], [0])]
    """
    columns = left.codes.shape[1]
    exact = [_exact_ids(left, right, column) for column in range(columns)]
    indexes: dict[int, ValueIndex] = {}
    for left_sort, left_rows in _sorts([ids for ids, _ in exact], left.codes):
        for right_sort, right_rows in _sorts([ids for _, ids in exact], right.codes):
            hashed = [column for column in range(columns) if left_sort[column] and right_sort[column]]
            loose = [column for column in range(columns) if column not in hashed]
            for column in loose:
                if column not in indexes:
                    indexes[column] = ValueIndex(right.patterns[column])
            chosen = {column: indexes[column] for column in loose}
            block = _Blocks(left=left, right=right, indexes=chosen)
            keys = _keys(left, right, exact, hashed, left_rows, right_rows)
            yield from block.join(left_rows, right_rows, *keys)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Blocks:
    """Joins rows of equal keys whose columns in `indexes` are compatible."""

    left: Classes
    right: Classes
    indexes: dict[int, ValueIndex]

    def join(
        self,
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        left_keys: NDArray[np.int64],
        right_keys: NDArray[np.int64],
    ) -> Iterator[Pairs]:
        order = np.argsort(left_keys, kind="stable")
        left, left_keys = left[order], left_keys[order]
        order = np.argsort(right_keys, kind="stable")
        right, right_keys = right[order], right_keys[order]
        starts = np.searchsorted(right_keys, left_keys, "left")
        counts = np.searchsorted(right_keys, left_keys, "right") - starts
        # The size of a class's block is the same for all classes of its key.
        _, place, alike = np.unique(left_keys, return_inverse=True, return_counts=True)
        pairs = counts * alike[place.reshape(-1)]
        large = (pairs > _LARGE) & bool(self.indexes)
        small = np.flatnonzero((counts > 0) & ~large)
        yield from self._compare_pairs(left[small], right, starts[small], counts[small])
        chosen = np.flatnonzero(large & (counts > 0))
        edges = np.flatnonzero(np.diff(left_keys[chosen], prepend=-1))
        for members in np.split(chosen, edges[1:]) if chosen.size else ():
            first = members[0]
            yield from self._join_large(left[members], right[starts[first] : starts[first] + counts[first]])

    def _join_large(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> Iterator[Pairs]:
        best: tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None = None
        least = left.size * right.size // _SHORT
        for column, index in self.indexes.items():
            used, place = np.unique(self.left.codes[left, column], return_inverse=True)
            spans = index.spans([self.left.patterns[column][code] for code in used.tolist()])
            if spans is None:
                continue
            ranks = spans.ranks[self.right.codes[right, column]]
            order = np.argsort(ranks, kind="stable")
            starts = np.searchsorted(ranks[order], spans.starts, "left")[place.reshape(-1)]
            counts = np.searchsorted(ranks[order], spans.stops, "left")[place.reshape(-1)] - starts
            if int(counts.sum()) < least:
                best, least = (column, right[order], starts, counts), int(counts.sum())
        if best is None:
            yield from self._intersect(left, right)
        else:
            known, rows, starts, counts = best
            yield from self._compare_pairs(left, rows, starts, counts, known=known)

    def _compare_pairs(
        self,
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        starts: NDArray[np.int64],
        counts: NDArray[np.int64],
        *,
        known: int | None = None,
    ) -> Iterator[Pairs]:
        """The pairs among each class and its run of `right` that fit in all columns but the `known` one."""
        ends = np.cumsum(counts)
        first = 0
        while first < left.size:
            base = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, base + _BATCH, "right")))
            many = counts[first:last]
            mine = np.repeat(left[first:last], many)
            offsets = np.arange(mine.size) - np.repeat(np.cumsum(many) - many, many)
            yield self._keep(mine, right[np.repeat(starts[first:last], many) + offsets], known)
            first = last

    def _keep(self, mine: NDArray[np.int64], theirs: NDArray[np.int64], known: int | None) -> Pairs:
        for column, index in self.indexes.items():
            if column == known:
                continue
            codes = self.left.codes[mine, column]
            used, place = np.unique(codes, return_inverse=True)
            place = place.reshape(-1)
            kept = np.zeros(mine.size, bool)
            most = max(1, _MOST_BYTES // max(1, len(index)))
            for start in range(0, used.size, most):
                some = used[start : start + most]
                table = np.stack([index.fits(self.left.patterns[column][code]) for code in some.tolist()])
                here = np.flatnonzero((place >= start) & (place < start + most))
                kept[here] = table[place[here] - start, self.right.codes[theirs[here], column]]
            mine, theirs = mine[kept], theirs[kept]
        return mine, theirs

    def _intersect(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> Iterator[Pairs]:
        """The pairs of one large block, of all its classes in turn."""
        bits = {
            column: _BitSets(index, self.left.patterns[column], self.right.codes[right, column])
            for column, index in self.indexes.items()
        }
        mine: list[NDArray[np.int64]] = []
        theirs: list[NDArray[np.int64]] = []
        waiting = 0
        for each in left.tolist():
            sets = [bits[column].of(int(self.left.codes[each, column])) for column in bits]
            common = sets[0]
            for other in sets[1:]:
                common = common & other
            found = np.flatnonzero(np.unpackbits(common, count=right.size))
            mine.append(np.full(found.size, each, np.int64))
            theirs.append(right[found])
            waiting += found.size
            if waiting >= _BATCH:
                yield np.concatenate(mine), np.concatenate(theirs)
                mine, theirs, waiting = [], [], 0
        if waiting:
            yield np.concatenate(mine), np.concatenate(theirs)


class _BitSets:
    """The rows of a block that are compatible with a value, as bits; kept while there is room."""

    def __init__(self, index: ValueIndex, patterns: tuple[Pattern, ...], codes: NDArray[np.int64]) -> None:
        self._index, self._patterns, self._codes = index, patterns, codes
        self._room = max(1, 2 * _MOST_BYTES // (1 + codes.size // 8))
        self._kept: dict[int, NDArray[np.uint8]] = {}

    def of(self, code: int) -> NDArray[np.uint8]:
        found = self._kept.get(code)
        if found is None:
            if len(self._kept) >= self._room:
                self._kept.clear()
            fits = self._index.fits(self._patterns[code])
            found = self._kept[code] = np.packbits(fits[self._codes])
        return found


def _exact_ids(left: Classes, right: Classes, column: int) -> Pairs:
    """A number for every exact pattern of the column, shared by both sides; -1 for others."""
    known: dict[str, int] = {}
    sides = []
    for side in (left, right):
        ids = [
            known.setdefault(str(each.text), len(known)) if is_exact(each) else -1
            for each in side.patterns[column]
        ]
        sides.append(np.array(ids, np.int64))
    return sides[0], sides[1]


def _sorts(
    ids: list[NDArray[np.int64]], codes: NDArray[np.int64]
) -> Iterator[tuple[tuple[bool, ...], NDArray[np.int64]]]:
    """Which columns are exact, and the classes of which that is so."""
    exact = np.stack([ids[column][codes[:, column]] >= 0 for column in range(codes.shape[1])], axis=1)
    for sort in np.unique(exact, axis=0):
        yield tuple(sort.tolist()), np.flatnonzero((exact == sort).all(axis=1))


def _keys(
    left: Classes,
    right: Classes,
    exact: list[Pairs],
    hashed: list[int],
    left_rows: NDArray[np.int64],
    right_rows: NDArray[np.int64],
) -> Pairs:
    """One number per class of each side, the same where all `hashed` columns are."""
    if not hashed:
        return np.zeros(left_rows.size, np.int64), np.zeros(right_rows.size, np.int64)
    mine = [exact[column][0][left.codes[left_rows, column]] for column in hashed]
    theirs = [exact[column][1][right.codes[right_rows, column]] for column in hashed]
    both = np.concatenate([np.stack(mine, axis=1), np.stack(theirs, axis=1)])
    combined = combine_codes(both)
    return combined[: left_rows.size], combined[left_rows.size :]
