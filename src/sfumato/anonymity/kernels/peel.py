"""Classes of records that share nodes of their hierarchies, cheapest nodes first."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

import numpy as np
from numba import njit

_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def peel_classes(codes, people, keys, losses, starts, sizes, visits, lows, highs, k):
    """(the class of every tuple, -1 of those who are left; the number of classes).

    A visit is the level of every column. It looks at the tuples that are left and whose loss at these
    levels is above its low and at most its high; those of them who share all nodes with k people are a
    class. `losses` are whole numbers and `keys` digits of a number that tells nodes apart.
    """
    n, q = codes.shape
    class_of = np.full(n, -1, np.int32)
    left = np.arange(n)
    codes_left = codes.copy()
    people_left = people.copy()
    count, remaining = 0, n
    size = 16
    while size < 2 * n:
        size *= 2
    key_at = np.empty(size, np.uint64)
    people_at = np.zeros(size, np.int64)
    class_at = np.empty(size, np.int32)
    slots = np.empty(n + 1, np.int64)
    chosen = np.empty(n + 1, np.int64)
    base = np.empty(q, np.int64)
    for visit in range(visits.shape[0]):
        if remaining == 0:
            break
        low, high = lows[visit], highs[visit]
        for column in range(q):
            base[column] = starts[column] + visits[visit, column] * sizes[column]
        picked = 0
        for place in range(remaining):
            loss = np.int64(0)
            for column in range(q):
                loss += losses[base[column] + codes_left[place, column]]
            chosen[picked] = place
            picked += (loss > low) & (loss <= high)
        everybody = 0
        for pick in range(picked):
            everybody += people_left[chosen[pick]]
        if everybody < k:
            continue
        size = 16
        while size < 2 * picked:
            size *= 2
        mask = np.uint64(size - 1)
        enough = False
        for pick in range(picked):
            place = chosen[pick]
            key = np.uint64(0)
            for column in range(q):
                key += keys[base[column] + codes_left[place, column]]
            slot = ((key * _MIX) >> np.uint64(20)) & mask
            while people_at[slot] > 0 and key_at[slot] != key:
                slot = (slot + np.uint64(1)) & mask
            if people_at[slot] == 0:
                key_at[slot] = key
                class_at[slot] = -1
            # Nobody may be behind a tuple, but its place is taken.
            people_at[slot] += people_left[place] + (1 << 40)
            slots[pick] = slot
            if people_at[slot] & ((1 << 40) - 1) >= k:
                enough = True
        if enough:
            pick, kept = 0, 0
            for place in range(remaining):
                leaves = False
                if pick < picked and chosen[pick] == place:
                    slot = slots[pick]
                    pick += 1
                    if people_at[slot] & ((1 << 40) - 1) >= k:
                        leaves = True
                        if class_at[slot] < 0:
                            class_at[slot] = count
                            count += 1
                        class_of[left[place]] = class_at[slot]
                if not leaves:
                    left[kept] = left[place]
                    people_left[kept] = people_left[place]
                    for column in range(q):
                        codes_left[kept, column] = codes_left[place, column]
                    kept += 1
            remaining = kept
        for pick in range(picked):
            people_at[slots[pick]] = 0
    return class_of, count


@njit(cache=True, nogil=True)
def join_rest(codes, rows, class_of, count, nodes, losses, starts, sizes, units):
    """Every tuple without a class joins the one whose loss grows least by it."""
    n, q = codes.shape
    code_of = np.full((count, q), -1, np.int64)
    level_of = np.zeros((count, q), np.int64)
    weights = np.zeros(count)
    for number in range(n):
        each = class_of[number]
        if each < 0:
            continue
        weights[each] += rows[number]
        for column in range(q):
            code, base, size = codes[number, column], starts[column], sizes[column]
            if code_of[each, column] < 0:
                code_of[each, column] = code
            own = code_of[each, column]
            level = level_of[each, column]
            while nodes[base + level * size + own] != nodes[base + level * size + code]:
                level += 1
            level_of[each, column] = level
    for number in range(n):
        if class_of[number] >= 0:
            continue
        best, found = np.inf, -1
        for each in range(count):
            lost, grown = 0.0, 0.0
            for column in range(q):
                code, base, size = codes[number, column], starts[column], sizes[column]
                own, level = code_of[each, column], level_of[each, column]
                lost += units[column] * losses[base + level * size + own]
                while nodes[base + level * size + own] != nodes[base + level * size + code]:
                    level += 1
                grown += units[column] * losses[base + level * size + own]
            score = grown * (weights[each] + rows[number]) - lost * weights[each]
            if score < best:
                best, found = score, each
        class_of[number] = found
        weights[found] += rows[number]
        for column in range(q):
            code, base, size = codes[number, column], starts[column], sizes[column]
            own, level = code_of[found, column], level_of[found, column]
            while nodes[base + level * size + own] != nodes[base + level * size + code]:
                level += 1
            level_of[found, column] = level
