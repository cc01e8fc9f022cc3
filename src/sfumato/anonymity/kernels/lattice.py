"""Groups of tuples made coarser, one column after the other: what a walk over a lattice does at each step.

A group is what the columns before have become, its prefix, and the columns still to come, its suffix.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

import numpy as np
from numba import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)
_TURN = np.uint64(0xC2B2AE3D27D4EB4F)


@njit(cache=True, nogil=True)
def _make_table(groups):
    bits = 4
    while (1 << bits) < 2 * groups:
        bits += 1
    return np.full(1 << bits, -1, np.int32), np.uint64(64 - bits), np.uint64((1 << bits) - 1)


@njit(cache=True, nogil=True)
def merge_groups(prefix, suffix, people, rows, lost, heads, tails, nodes, losses, count):
    """(new group of each, prefixes, suffixes, people, rows, losses) once the next column is at a level.

    The column's code and what follows it are `heads` and `tails` of a suffix; `nodes`, `count` of them,
    and `losses` are the level's, by code.
    """
    n = prefix.size
    table, shift, mask = _make_table(n)
    target = np.empty(n, np.int32)
    new_prefix = np.empty(n, np.int64)
    new_suffix = np.empty(n, np.int32)
    new_people = np.empty(n, np.int64)
    new_rows = np.empty(n, np.int64)
    new_lost = np.empty(n)
    made = 0
    for group in range(n):
        code = heads[suffix[group]]
        key = prefix[group] * count + nodes[code]
        tail = tails[suffix[group]]
        extra = lost[group] + rows[group] * losses[code]
        slot = ((np.uint64(key) * _MIX + np.uint64(tail)) * _TURN) >> shift
        while True:
            at = table[slot]
            if at < 0:
                table[slot] = made
                new_prefix[made], new_suffix[made] = key, tail
                new_people[made], new_rows[made], new_lost[made] = people[group], rows[group], extra
                target[group] = made
                made += 1
                break
            if new_prefix[at] == key and new_suffix[at] == tail:
                new_people[at] += people[group]
                new_rows[at] += rows[group]
                new_lost[at] += extra
                target[group] = at
                break
            slot = (slot + np.uint64(1)) & mask
    return (
        target,
        new_prefix[:made].copy(),
        new_suffix[:made].copy(),
        new_people[:made].copy(),
        new_rows[:made].copy(),
        new_lost[:made].copy(),
    )


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
def judge_classes(class_of, count, people, rows, lost, k, held, whole):
    """(rows of classes with fewer than k people or not held, the loss if they are suppressed).

    `whole` is what a suppressed row loses; no `held` at all means that all are.
    """
    all_people = np.zeros(count, np.int64)
    all_rows = np.zeros(count, np.int64)
    all_lost = np.zeros(count)
    for group in range(class_of.size):
        each = class_of[group]
        all_people[each] += people[group]
        all_rows[each] += rows[group]
        all_lost[each] += lost[group]
    short, total = 0, 0.0
    for each in range(count):
        if all_people[each] < k or (held.size > 0 and not held[each]):
            short += all_rows[each]
        else:
            total += all_lost[each]
    return short, total + whole * short
