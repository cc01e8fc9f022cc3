"""Generalized values: what a published cell may stand for, and which rows of two tables may mean the same.

    170        this value, also written 170.0
    180-190    a number from 180 to 190, both included; dates too, 1950-01-01-1954-12-31, and moments
    60+        60 or more
    12*        a text that begins with 12, of any length
    a|b        one of several, each of them any of these
    *          anything; so is an empty cell

Numbers have no leading zeros: 06-07 is a day of the year and 02138 a code. Two cells are compatible if
some value fits both, which for an exact value is containment.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.core.dates import read_moment
from sfumato.core.engine.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]

_NUMBER = r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d+)?"
_DATE = r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d+)?)?"
_ONE = re.compile(_NUMBER, re.ASCII)
_SPAN = re.compile(rf"({_NUMBER})\s*-\s*({_NUMBER})", re.ASCII)
_OPEN = re.compile(rf"({_NUMBER})\s*\+", re.ASCII)
_DATES = re.compile(rf"({_DATE})\s*-\s*({_DATE})", re.ASCII)
_DAY = re.compile(_DATE, re.ASCII)
_PREFIX = re.compile(r"([^*]*)\*+")

_LAST = "\U0010ffff"  # no text that begins with a prefix comes after the prefix and this
_LARGE = 1 << 18  # blocks of more pairs are joined by sets of bits
_BATCH = 1 << 21  # pairs that are compared at a time
_MOST_BYTES = 1 << 27  # of a table of what fits what
MOST_NUMBERS = 2**62
"""Numbers of rows stay below it, so that none leaves 64 bits."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What one cell may stand for: an exact text, a range of numbers, a prefix, or one of several.

    Exactly one of `text`, `prefix` and `members` is given, or none for a range alone; an exact text
    that is a number or a date has the range of that one point too.
    """

    text: str | None = None
    low: float = math.inf
    high: float = -math.inf
    prefix: str | None = None
    members: tuple[Pattern, ...] = ()

    @property
    def has_range(self) -> bool:
        """Whether it is a number or a range of numbers."""
        return self.low <= self.high


ANY = Pattern(prefix="")
"""The pattern that fits everything."""


def parse_pattern(cell: str | None) -> Pattern:
    """Returns the pattern that a published cell is.

    >>> parse_pattern("180-190")
    Pattern(text=None, low=180.0, high=190.0, prefix=None, members=())
    >>> parse_pattern("12*").prefix, parse_pattern("").prefix, parse_pattern("06-07").text
    ('12', '', '06-07')
    """
    text = "" if cell is None else cell.strip()
    if not text:
        return ANY
    if "|" in text:
        return _join(tuple(parse_pattern(part) for part in text.split("|") if part.strip()))
    return _parse_one(text)


def is_exact(pattern: Pattern) -> bool:
    """Returns whether the pattern is one value.

    >>> is_exact(parse_pattern("1001")), is_exact(parse_pattern("1*"))
    (True, False)
    """
    return pattern.text is not None


def compatible(first: Pattern, second: Pattern) -> bool:
    """Returns whether some value fits both.

    >>> compatible(parse_pattern("180-190"), parse_pattern("185"))
    True
    >>> compatible(parse_pattern("1*"), parse_pattern("6732"))
    False
    >>> compatible(parse_pattern("60+"), parse_pattern("50-70"))
    True
    """
    if first.members or second.members:
        return any(compatible(a, b) for a in first.members or (first,) for b in second.members or (second,))
    if first.prefix is not None and second.prefix is not None:
        return first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)
    if first.prefix is not None:
        return _begins(first.prefix, second)
    if second.prefix is not None:
        return _begins(second.prefix, first)
    if first.text is not None and first.text == second.text:
        return True
    return first.has_range and second.has_range and first.low <= second.high and second.low <= first.high


def _begins(prefix: str, other: Pattern) -> bool:
    """Returns whether the other, an exact text or a range, may begin so."""
    if not prefix:
        return True
    if other.text is not None:
        return other.text.startswith(prefix) or other.text == _written_out(prefix)
    return _range_begins(prefix, other.low, other.high)


def _written_out(prefix: str) -> str | None:
    """Reads the number of a prefix with more zeros than it needs: 2.5 of 2.50*, 0 of -*."""
    number = "-0" if prefix == "-" else prefix.removesuffix(".")
    if not _ONE.fullmatch(number) or _plain(number) == prefix:
        return None
    return _plain(number)


def _range_begins(prefix: str, low: float, high: float) -> bool:
    """Returns whether a whole number from low to high begins with `prefix`; yes, where it cannot be told."""
    if not prefix.isdecimal() or prefix.startswith("0") or low < 0:
        return True
    if math.isinf(high):
        return True  # there is always a longer number
    # Numbers that begin with 12 are 12, 120-129, 1200-1299, ...
    start = int(prefix)
    scale = 1
    while start * scale <= high:
        if (start + 1) * scale > low:
            return True
        scale *= 10
    return False


def _parse_one(text: str) -> Pattern:
    if found := _PREFIX.fullmatch(text):
        return Pattern(prefix=found[1])
    if _ONE.fullmatch(text):
        return Pattern(text=_plain(text), low=float(text), high=float(text))
    if text in ("inf", "-inf"):
        return Pattern(text=text, low=float(text), high=float(text))
    if found := _OPEN.fullmatch(text):
        return Pattern(low=float(found[1]), high=math.inf)
    if found := _SPAN.fullmatch(text):
        low, high = float(found[1]), float(found[2])
        if low <= high:
            return Pattern(low=low, high=high)
    if _DAY.fullmatch(text) and (day := _ordinal(text)) is not None:
        return Pattern(text=_plain(text), low=day, high=day)
    if found := _DATES.fullmatch(text):
        first, last = _ordinal(found[1]), _ordinal(found[2])
        if first is not None and last is not None and first <= last:
            return Pattern(low=first, high=last)
    return Pattern(text=text)


def _plain(number: str) -> str:
    """Returns the number without zeros that say nothing, so that 180.0 and 180 are one text."""
    if "e" in number:
        return number
    plain = number.rstrip("0").rstrip(".") if "." in number else number
    return "0" if plain == "-0" else plain


def _ordinal(text: str) -> float | None:
    """Returns the day, counted from the year 1, and the part of it that has gone by."""
    found = read_moment(text, local=True)
    if found is None:
        return None
    moment = datetime(found.year, found.month, found.day) if not isinstance(found, datetime) else found
    gone = timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second)
    return moment.toordinal() + (gone.total_seconds() + moment.microsecond / 1e6) / 86_400


def _join(members: tuple[Pattern, ...]) -> Pattern:
    flat = tuple(dict.fromkeys(each for member in members for each in member.members or (member,)))
    if not flat or ANY in flat:
        return ANY
    return flat[0] if len(flat) == 1 else Pattern(members=flat)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Classes:
    """The distinct rows of a table on its quasi-identifiers.

    `codes` has a row per class and a column per quasi-identifier, a code of `patterns`; `of_row` is the
    class of each row of the table, `weights` the number of records of each class.
    """

    codes: NDArray[np.int64]
    patterns: tuple[tuple[Pattern, ...], ...]
    of_row: NDArray[np.int64]
    weights: NDArray[np.int64]


class ValueIndex:
    """Looks up which of the given patterns are compatible with another one, for all of them at once."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._lows = np.array([each.low for each in self._patterns])
        self._highs = np.array([each.high for each in self._patterns])
        self._odd = [
            place for place, each in enumerate(self._patterns) if each.members or each.prefix is not None
        ]
        self._bare = [
            place for place, each in enumerate(self._patterns) if each.text is None and each.has_range
        ]

    def __len__(self) -> int:
        return len(self._patterns)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {each.text: place for place, each in enumerate(self._patterns) if each.text is not None}

    @cached_property
    def _texts(self) -> list[str]:
        return sorted(self._places)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.array([self._places[text] for text in self._texts], np.int64)

    def fits(self, pattern: Pattern) -> NDArray[np.bool_]:
        """Returns whether each of the patterns of the index is compatible with `pattern`.

        >>> index = ValueIndex([parse_pattern(text) for text in ("6732", "1001", "1243")])
        >>> index.fits(parse_pattern("1*")).tolist()
        [False, True, True]
        """
        if pattern.members:
            several = np.array([self.fits(member) for member in pattern.members])
            return np.asarray(several.any(axis=0))
        if pattern.prefix == "":
            return np.ones(len(self._patterns), bool)
        found = np.zeros(len(self._patterns), bool)
        others = self._odd
        if pattern.prefix is not None:
            start = bisect_left(self._texts, pattern.prefix)
            stop = bisect_left(self._texts, pattern.prefix + _LAST)
            found[self._order[start:stop]] = True
            longer = self._places.get(_written_out(pattern.prefix) or "")
            if longer is not None:
                found[longer] = True
            others = [*self._odd, *self._bare]
        elif pattern.has_range:
            found |= (self._lows <= pattern.high) & (pattern.low <= self._highs)
        if pattern.text is not None and pattern.text in self._places:
            found[self._places[pattern.text]] = True
        for place in others:
            found[place] = compatible(self._patterns[place], pattern)
        return found


def build_classes(table: pa.Table, on: Sequence[str], *, weights: NDArray[np.int64] | None = None) -> Classes:
    """Returns the classes of the rows of `table`, a table of text, on the columns `on`.

    >>> rows = pa.table({"age": ["61", "61.0", "4*"], "sex": ["m", "m", "f"]})
    >>> build_classes(rows, ["age", "sex"]).of_row.tolist()
    [0, 0, 1]
    """
    encoded = [_encode(table[name]) for name in on]
    codes = np.stack([each for each, _ in encoded], axis=1)
    numbers = number_rows([each for each, _ in encoded], [len(patterns) for _, patterns in encoded])
    _, first, of_row = np.unique(numbers, return_index=True, return_inverse=True)
    counted = np.ones(table.num_rows, np.int64) if weights is None else weights
    return Classes(
        codes=codes[first],
        patterns=tuple(patterns for _, patterns in encoded),
        of_row=of_row.reshape(-1),
        weights=np.bincount(of_row.reshape(-1), counted, minlength=first.size).astype(np.int64),
    )


def number_rows(codes: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> NDArray[np.int64]:
    """Returns one number per row from 0 without gaps, the same for rows with the same codes only.

    >>> number_rows([np.array([1, 0, 1]), np.array([4, 4, 4])], [2, 5]).tolist()
    [1, 0, 1]
    """
    keys = np.zeros(codes[0].size, np.int64)
    room = 1
    for code, size in zip(codes, sizes, strict=True):
        if room * size >= MOST_NUMBERS:  # numbers of the rows so far take less room than their codes
            found, keys = np.unique(keys, return_inverse=True)
            room = found.size
        keys = keys * size + code
        room *= size
    return np.unique(keys, return_inverse=True)[1].astype(np.int64)


def _encode(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], tuple[Pattern, ...]]:
    """Returns the code of each cell and the patterns they number; spellings of one pattern share a code."""
    texts = column.combine_chunks().fill_null("").dictionary_encode()
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    found: dict[Pattern, int] = {}
    places = [found.setdefault(parse_pattern(cell), len(found)) for cell in texts.dictionary.to_pylist()]
    codes = to_numpy(texts.indices).astype(np.int64)
    return np.array(places, np.int64)[codes] if places else codes, tuple(found)


def join_classes(left: Classes, right: Classes) -> Iterator[Pairs]:
    """Arrays of the classes of `left` and `right` that are compatible in every column, batch by batch.

    Not each is compared with each. Classes are sorted by which of their quasi-identifiers are exact. For two
    such sorts, the columns that are exact in both are joined by hashing; within a block of equal values the
    other columns are compared: pair by pair in small blocks. In a large block each value of each column gets
    the set of rows it fits, as bits, and a class the intersection of its sets.

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
            keys = _hash_keys(left, right, exact, hashed, left_rows, right_rows)
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
            yield from self._intersect(left[members], right[starts[first] : starts[first] + counts[first]])

    def _compare_pairs(
        self,
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        starts: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> Iterator[Pairs]:
        """Finds the pairs of each class and its run of `right` that fit."""
        ends = np.cumsum(counts)
        first = 0
        while first < left.size:
            base = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, base + _BATCH, "right")))
            many = counts[first:last]
            mine = np.repeat(left[first:last], many)
            offsets = np.arange(mine.size) - np.repeat(np.cumsum(many) - many, many)
            yield self._keep(mine, right[np.repeat(starts[first:last], many) + offsets])
            first = last

    def _keep(self, mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> Pairs:
        for column, index in self.indexes.items():
            codes = self.left.codes[mine, column]
            used, place = np.unique(codes, return_inverse=True)
            place = place.reshape(-1)
            kept = np.zeros(mine.size, bool)
            most = max(1, _MOST_BYTES // max(1, len(index)))
            # A table of which values fit which codes, some values at a time, is looked up pair by pair.
            for start in range(0, used.size, most):
                some = used[start : start + most]
                table = np.stack([index.fits(self.left.patterns[column][code]) for code in some.tolist()])
                here = np.flatnonzero((place >= start) & (place < start + most))
                kept[here] = table[place[here] - start, self.right.codes[theirs[here], column]]
            mine, theirs = mine[kept], theirs[kept]
        return mine, theirs

    def _intersect(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> Iterator[Pairs]:
        """Yields the pairs of one large block, of all its classes in turn."""
        codes = {column: self.right.codes[right, column] for column in self.indexes}

        # The rows of the block that a value fits, as bits; kept while there is room.
        @lru_cache(maxsize=max(1, 2 * len(codes) * _MOST_BYTES // (1 + right.size // 8)))
        def fitting(column: int, code: int) -> NDArray[np.uint8]:
            fits = self.indexes[column].fits(self.left.patterns[column][code])
            return np.packbits(fits[codes[column]])

        mine: list[NDArray[np.int64]] = []
        theirs: list[NDArray[np.int64]] = []
        waiting = 0
        for each in left.tolist():
            sets = [fitting(column, int(self.left.codes[each, column])) for column in codes]
            common = reduce(np.bitwise_and, sets)
            found = np.flatnonzero(np.unpackbits(common, count=right.size))
            mine.append(np.full(found.size, each, np.int64))
            theirs.append(right[found])
            waiting += found.size
            if waiting >= _BATCH:
                yield np.concatenate(mine), np.concatenate(theirs)
                mine, theirs, waiting = [], [], 0
        if waiting:
            yield np.concatenate(mine), np.concatenate(theirs)


def _exact_ids(left: Classes, right: Classes, column: int) -> Pairs:
    """Returns a number for every exact pattern of the column, shared by both sides; -1 for others."""
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
    """Yields which columns are exact, and the classes of which that is so."""
    exact = np.stack([ids[column][codes[:, column]] >= 0 for column in range(codes.shape[1])], axis=1)
    for sort in np.unique(exact, axis=0):
        yield tuple(sort.tolist()), np.flatnonzero((exact == sort).all(axis=1))


def _hash_keys(
    left: Classes,
    right: Classes,
    exact: list[Pairs],
    hashed: list[int],
    left_rows: NDArray[np.int64],
    right_rows: NDArray[np.int64],
) -> Pairs:
    """Returns one number per class of each side, the same where all `hashed` columns are."""
    if not hashed:
        return np.zeros(left_rows.size, np.int64), np.zeros(right_rows.size, np.int64)
    both = []
    for column in hashed:
        mine, theirs = exact[column]
        both.append(
            np.concatenate([mine[left.codes[left_rows, column]], theirs[right.codes[right_rows, column]]])
        )
    keys = number_rows(both, [int(each.max(initial=0)) + 1 for each in both])
    return keys[: left_rows.size], keys[left_rows.size :]
