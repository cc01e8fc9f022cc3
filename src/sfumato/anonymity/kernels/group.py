"""Hash tables over codes: rows with equal codes are numbered, and groups of tuples merged."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# Odd numbers without a pattern in their bits: a product's highest bits then depend on all bits of a key.
_MIX = np.uint64(0x9E3779B97F4A7C15)
_TURN = np.uint64(0xC2B2AE3D27D4EB4F)  # an odd constant with bits all over, from xxHash


class Groups(NamedTuple):
    """Groups of tuples during a walk over the lattice of generalizations, one column after the other.

    A group is what the columns before have become, its prefix, and the codes of the columns still to come,
    its suffix; of every group there are its people, its rows, and what these have lost so far.
    """

    prefix: NDArray[np.int64]
    suffix: NDArray[np.int32]
    people: NDArray[np.int64]
    rows: NDArray[np.int64]
    lost: NDArray[np.float64]


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


@njit(cache=True, nogil=True)
def sort_by_code(order, codes, size):
    """Returns a new order of rows, by code; rows of one code stay as they were."""
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
    """Returns the class of every row, where the rows of one tuple are dealt to several entries.

    Entry i is weights[i] rows of the tuple tuple_of_entry[i] in classes[i]; there are so many `tuples`, and
    row i has the tuple tuple_of_row[i]. Rows are dealt in their order, entries filled in theirs.
    """
    starts = np.zeros(tuples + 1, np.int64)  # a counting sort of the entries by tuple
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
    place = starts[:-1].copy()  # of every tuple: the entry at hand, and how many of its rows are dealt
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


@njit(cache=True, nogil=True)
def _make_table(groups):
    bits = 4
    while (1 << bits) < 2 * groups:
        bits += 1
    return np.full(1 << bits, -1, np.int32), np.uint64(64 - bits), np.uint64((1 << bits) - 1)


@njit(cache=True, nogil=True)
def merge_groups(groups, code_of_suffix, rest_of_suffix, nodes, losses, count):
    """Returns (the new group of each of `groups`, the new groups) once the next column is at a level.

    A suffix is a code of that column, `code_of_suffix`, and what comes after it, `rest_of_suffix`. `nodes`,
    `count` of them, and `losses` are those of the column's codes at the level.
    """
    n = groups.prefix.size
    table, shift, mask = _make_table(n)
    target = np.empty(n, np.int32)
    prefix, suffix = np.empty(n, np.int64), np.empty(n, np.int32)
    people, rows, lost = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    made = 0
    for group in range(n):
        code = code_of_suffix[groups.suffix[group]]
        key = groups.prefix[group] * count + nodes[code]  # the prefix with one digit more
        rest = rest_of_suffix[groups.suffix[group]]
        extra = groups.lost[group] + groups.rows[group] * losses[code]
        slot = ((np.uint64(key) * _MIX + np.uint64(rest)) * _TURN) >> shift
        while True:
            at = table[slot]
            if at < 0:
                table[slot] = made
                prefix[made], suffix[made] = key, rest
                people[made], rows[made], lost[made] = groups.people[group], groups.rows[group], extra
                target[group] = made
                made += 1
                break
            if prefix[at] == key and suffix[at] == rest:
                people[at] += groups.people[group]
                rows[at] += groups.rows[group]
                lost[at] += extra
                target[group] = at
                break
            slot = (slot + np.uint64(1)) & mask
    merged = Groups(
        prefix[:made].copy(),
        suffix[:made].copy(),
        people[:made].copy(),
        rows[:made].copy(),
        lost[:made].copy(),
    )
    return target, merged


@njit(cache=True, nogil=True)
def number_prefixes(prefix):
    """(the number of each group's prefix, how many there are): classes, with later columns at the top."""
    n = prefix.size
    table, shift, mask = _make_table(n)
    keys = np.empty(n, np.int64)
    class_of = np.empty(n, np.int32)
    made = 0
    for group in range(n):
        key = prefix[group]
        slot = (np.uint64(key) * _MIX * _TURN) >> shift
        while table[slot] >= 0 and keys[table[slot]] != key:
            slot = (slot + np.uint64(1)) & mask
        if table[slot] < 0:
            table[slot] = made
            keys[made] = key
            made += 1
        class_of[group] = table[slot]
    return class_of, made


@njit(cache=True, nogil=True)
def judge_classes(class_of, count, groups, k, satisfied, whole):
    """(rows of classes with fewer than `k` people or not `satisfied`, the loss if they are suppressed).

    `class_of` is the class of each of `groups`, `count` how many classes there are. `whole` is what a
    suppressed row loses; `satisfied` without any entry means that all classes are.
    """
    people = np.zeros(count, np.int64)
    rows = np.zeros(count, np.int64)
    lost = np.zeros(count)
    for group in range(class_of.size):
        each = class_of[group]
        people[each] += groups.people[group]
        rows[each] += groups.rows[group]
        lost[each] += groups.lost[group]
    short, total = 0, 0.0
    for each in range(count):
        if people[each] < k or (satisfied.size > 0 and not satisfied[each]):
            short += rows[each]
        else:
            total += lost[each]
    return short, total + whole * short
