"""Rows with the same quasi-identifiers as one class, and an index of what their values may stand for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.attack.patterns import Pattern, compatible, is_exact, parse_pattern
from sfumato.tables.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LAST = "\U0010ffff"


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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Spans:
    """The rank of each pattern of an index, and the run of ranks from start to stop that others fit."""

    ranks: NDArray[np.int64]
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


class ValueIndex:
    """Looks up which of the given patterns are compatible with another one, for all of them at once."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._lows = np.array([each.low for each in self._patterns])
        self._highs = np.array([each.high for each in self._patterns])
        self._odd = [place for place, each in enumerate(self._patterns) if _is_odd(each)]
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
        """Whether each of the patterns of the index is compatible with `pattern`.

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
            others = [*self._odd, *self._bare]
        elif pattern.has_range:
            found |= (self._lows <= pattern.high) & (pattern.low <= self._highs)
        if pattern.text is not None and pattern.text in self._places:
            found[self._places[pattern.text]] = True
        for place in others:
            found[place] = compatible(self._patterns[place], pattern)
        return found

    def spans(self, patterns: Sequence[Pattern]) -> Spans | None:
        """An order of the index in which each of `patterns` fits a run, and these runs; None if none.

        Ranges and points are runs of points in order of size, prefixes and texts of texts in order.

        >>> index = ValueIndex([parse_pattern(text) for text in ("33", "71", "61")])
        >>> spans = index.spans([parse_pattern("60+"), parse_pattern("20-40")])
        >>> spans.ranks.tolist(), spans.starts.tolist(), spans.stops.tolist()
        ([0, 2, 1], [1, 0], [3, 1])
        """
        if self._odd or self._bare or any(each.members for each in patterns):
            return None
        if all(each.has_range for each in patterns) and (self._lows <= self._highs).all():
            ordered = np.sort(self._lows)
            starts = np.searchsorted(ordered, [each.low for each in patterns], "left")
            stops = np.searchsorted(ordered, [each.high for each in patterns], "right")
            return Spans(np.searchsorted(ordered, self._lows), starts, stops)
        if any(each.text is None and each.prefix is None for each in patterns):
            return None
        ranks = np.empty(len(self._patterns), np.int64)
        ranks[self._order] = np.arange(ranks.size)
        ends = [
            (each.prefix, each.prefix + _LAST) if each.prefix is not None else (each.text or "",) * 2
            for each in patterns
        ]
        starts = np.array([bisect_left(self._texts, low) for low, _ in ends], np.int64)
        stops = np.array([bisect_right(self._texts, high) for _, high in ends], np.int64)
        return Spans(ranks, starts, stops)


def build_classes(table: pa.Table, on: Sequence[str], *, weights: NDArray[np.int64] | None = None) -> Classes:
    """The classes of the rows of `table`, a table of text, on the columns `on`.

    >>> rows = pa.table({"age": ["61", "61.0", "4*"], "sex": ["m", "m", "f"]})
    >>> build_classes(rows, ["age", "sex"]).of_row.tolist()
    [0, 0, 1]
    """
    encoded = [_encode(table[name]) for name in on]
    codes = np.stack([each for each, _ in encoded], axis=1)
    _, first, of_row = np.unique(combine_codes(codes), return_index=True, return_inverse=True)
    counted = np.ones(table.num_rows, np.int64) if weights is None else weights
    return Classes(
        codes=codes[first],
        patterns=tuple(patterns for _, patterns in encoded),
        of_row=of_row.reshape(-1),
        weights=np.bincount(of_row.reshape(-1), counted, minlength=first.size).astype(np.int64),
    )


def combine_codes(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """One number per row of `codes`, the same for the same rows only.

    >>> combine_codes(np.array([[0, 5], [1, 5], [0, 5]])).tolist()
    [0, 1, 0]
    """
    combined = np.zeros(codes.shape[0], np.int64)
    for column in codes.T:
        # Numbered anew at every column, so that no product leaves the range.
        _, dense = np.unique(column, return_inverse=True)
        combined = combined * (int(dense.max(initial=0)) + 1) + dense.reshape(-1)
        _, combined = np.unique(combined, return_inverse=True)
    return combined.reshape(-1)


def _encode(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], tuple[Pattern, ...]]:
    """The code of each cell and the patterns they number; spellings of one pattern share a code."""
    texts = column.combine_chunks().fill_null("").dictionary_encode()
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    found: dict[Pattern, int] = {}
    places = [found.setdefault(parse_pattern(cell), len(found)) for cell in texts.dictionary.to_pylist()]
    codes = to_numpy(texts.indices).astype(np.int64)
    return np.array(places, np.int64)[codes] if places else codes, tuple(found)


def _is_odd(pattern: Pattern) -> bool:
    return not is_exact(pattern) and (bool(pattern.members) or pattern.prefix is not None)
