"""Compiled loops, and a hash table over codes. They load numba, so they are imported where first needed."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

import numpy as np
from numba import njit

# An odd number without a pattern in its bits: a product's highest bits then depend on all bits of a key.
_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def number_keys(keys, numbers, bits):
    """(number of different keys, a row of each); sets `numbers` to each row's, in order of appearance.

    None of it if there are more than fit into 2^bits places half full: (-1, nothing).
    """
    size = 1 << bits
    mask = np.uint64(size - 1)
    shift = np.uint64(64 - bits)
    table = np.full(size, -1, np.int32)
    first = np.empty(size // 2, np.int64)  # at most half full, so that a free slot is near
    count = 0
    for row in range(keys.size):
        key = keys[row]
        slot = (key * _MIX) >> shift  # the highest bits of a product are the best mixed
        while True:
            at = table[slot]
            if at < 0:
                if count == first.size:
                    return -1, first[:0]
                table[slot] = count
                first[count] = row
                numbers[row] = count
                count += 1
                break
            if keys[first[at]] == key:
                numbers[row] = at
                break
            slot = (slot + np.uint64(1)) & mask
    return count, first[:count].copy()
