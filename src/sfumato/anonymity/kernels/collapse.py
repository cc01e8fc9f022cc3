"""Loops that number keys, sort codes and gather rows."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

import numpy as np
from numba import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def pack_codes(keys, codes, size):
    """Appends one column's codes to the keys, as a digit in base `size`."""
    base = np.uint64(size)
    for row in range(keys.size):
        keys[row] = keys[row] * base + np.uint64(codes[row])


@njit(cache=True, nogil=True)
def number_keys(keys, numbers, bits):
    """(number of different keys, a row of each); sets `numbers` to each row's, in order of appearance.

    None of it if there are more than fit into 2^bits places half full: (-1, nothing).
    """
    size = 1 << bits
    mask = np.uint64(size - 1)
    shift = np.uint64(64 - bits)
    table = np.full(size, -1, np.int32)
    first = np.empty(size // 2, np.int64)
    count = 0
    for row in range(keys.size):
        key = keys[row]
        slot = (key * _MIX) >> shift
        while True:
            held = table[slot]
            if held < 0:
                if count == first.size:
                    return -1, first[:0]
                table[slot] = count
                first[count] = row
                numbers[row] = count
                count += 1
                break
            if keys[first[held]] == key:
                numbers[row] = held
                break
            slot = (slot + np.uint64(1)) & mask
    return count, first[:count].copy()


@njit(cache=True, nogil=True)
def sort_by_code(order, codes, size):
    """A new order of rows, by code; rows of one code stay as they were."""
    starts = np.zeros(size + 1, np.int64)
    for place in range(order.size):  # not all rows need be in the order
        starts[codes[order[place]] + 1] += 1
    for code in range(size):
        starts[code + 1] += starts[code]
    sorted_rows = np.empty_like(order)
    for place in range(order.size):
        row = order[place]
        code = codes[row]
        sorted_rows[starts[code]] = row
        starts[code] += 1
    return sorted_rows


@njit(cache=True, nogil=True)
def deal_rows(tuple_of_row, tuple_of_entry, weights, classes, tuples):
    """The class of every row, where the rows of one tuple are dealt to several entries."""
    starts = np.zeros(tuples + 1, np.int64)
    for entry in range(tuple_of_entry.size):
        starts[tuple_of_entry[entry] + 1] += 1
    for number in range(tuples):
        starts[number + 1] += starts[number]
    entries = np.empty(tuple_of_entry.size, np.int64)
    filled = starts[:-1].copy()
    for entry in range(tuple_of_entry.size):
        number = tuple_of_entry[entry]
        entries[filled[number]] = entry
        filled[number] += 1
    place = starts[:-1].copy()
    used = np.zeros(tuples, np.int64)
    class_of_row = np.empty(tuple_of_row.size, np.int32)
    for row in range(tuple_of_row.size):
        number = tuple_of_row[row]
        while used[number] >= weights[entries[place[number]]]:
            place[number] += 1
            used[number] = 0
        used[number] += 1
        class_of_row[row] = classes[entries[place[number]]]
    return class_of_row
