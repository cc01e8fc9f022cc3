"""Rows as different tuples with weights: from here on the cost does not depend on the number of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuples:
    """The different tuples of codes in ascending order, how many rows have each, and each row's tuple."""

    codes: NDArray[np.int32]
    rows: NDArray[np.int64]
    tuple_of_row: NDArray[np.int32]

    @property
    def size(self) -> int:
        """The number of different tuples."""
        return len(self.codes)


def collapse_rows(columns: Sequence[NDArray[np.int32]], sizes: Sequence[int]) -> Tuples:
    """The tuples of rows whose codes are `columns`, each below its size.

    >>> tuples = collapse_rows([np.array([1, 0, 1], np.int32), np.array([2, 2, 2], np.int32)], [2, 3])
    >>> tuples.codes.tolist(), tuples.rows.tolist(), tuples.tuple_of_row.tolist()
    ([[0, 2], [1, 2]], [1, 2], [1, 0, 1])
    """
    numbers, first = number_rows(columns, sizes)
    codes = np.stack([column[first] for column in columns], axis=1)
    order = np.lexsort(codes.T[::-1])
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    tuple_of_row = rank[numbers]
    rows = np.bincount(tuple_of_row, minlength=order.size)
    return Tuples(np.ascontiguousarray(codes[order]), rows.astype(np.int64), tuple_of_row)


def number_rows(
    columns: Sequence[NDArray[np.int32]], sizes: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(a number for every row, equal for equal rows; a row of each number), in order of appearance."""
    from sfumato.anonymity.kernels.collapse import pack_codes

    keys = np.zeros(len(columns[0]), np.uint64)
    numbers = np.zeros(len(keys), np.int32)
    first = np.arange(min(1, len(keys)), dtype=np.int64)
    room = 1
    for codes, size in zip(columns, sizes, strict=True):
        if room * size > 2**63:
            # The keys are full: numbers of the different ones so far take less room.
            numbers, first = _number(keys)
            keys = numbers.astype(np.uint64)
            room = max(1, first.size)
        pack_codes(keys, codes, size)
        room *= size
    return _number(keys)


def _number(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    from sfumato.anonymity.kernels.collapse import number_keys

    numbers = np.empty(keys.size, np.int32)
    most = max(4, int(keys.size).bit_length() + 1)
    # A small table that fits into the cache is tried first: most tables have few different tuples.
    for bits in range(min(20, most), most + 4, 4):
        count, first = number_keys(keys, numbers, min(bits, most))
        if count >= 0:
            return numbers, first
    raise AssertionError  # a table of twice the rows holds them all
