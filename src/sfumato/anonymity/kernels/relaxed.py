"""Cuts at the median record: rows of one tuple may fall on both sides."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

import numpy as np
from numba import njit

from sfumato.anonymity.kernels.cuts import CATEGORY, NUMBER, join_nodes


@njit(cache=True, nogil=True)
def _measure(codes, numbers, start, end, space, seen, stamps):
    """The loss of a class of these entries, all columns together."""
    kinds, sizes, offsets, places, tree_offsets, nodes, losses, units = space
    total = 0.0
    for column in range(codes.shape[1]):
        first = codes[numbers[start], column]
        if kinds[column] == CATEGORY:
            stamps[0] += 1
            different = 0
            for place in range(start, end):
                code = codes[numbers[place], column]
                if seen[code] != stamps[0]:
                    seen[code] = stamps[0]
                    different += 1
            total += units[column] * (different - 1) / (sizes[column] - 1)
            continue
        low, high, level = first, first, 0
        for place in range(start, end):
            code = codes[numbers[place], column]
            low = min(low, code)
            high = max(high, code)
            if kinds[column] != NUMBER:
                level = join_nodes(nodes, tree_offsets[column], sizes[column], first, level, code, 0)
        if kinds[column] == NUMBER:
            apart = places[offsets[column] + high] - places[offsets[column] + low]
            total += units[column] * min(1.0, apart)
        else:
            total += units[column] * losses[tree_offsets[column] + level * sizes[column] + first]
    return total


@njit(cache=True, nogil=True)
def _find_half(weights, order, half):
    """(the place of the entry that holds the last row of the first half, how many of its rows are in it)."""
    so_far = 0
    for place in range(order.size):
        weight = weights[order[place]]
        if so_far + weight >= half:
            return place, half - so_far
        so_far += weight
    return order.size - 1, 0


@njit(cache=True, nogil=True)
def _find_order(codes, numbers, weights, half, rest, space, seen, stamps):
    """The order of entries whose two halves lose least, by one column; none if all entries are equal."""
    best = np.inf
    chosen = np.empty(0, np.int64)
    own = np.empty(numbers.size, np.int64)
    for column in range(codes.shape[1]):
        differ = False
        for place in range(numbers.size):
            own[place] = codes[numbers[place], column]
            differ = differ or own[place] != own[0]
        if not differ:
            continue
        order = np.argsort(own, kind="mergesort")
        place, taken = _find_half(weights, order, half)
        ordered = numbers[order]
        score = half * _measure(codes, ordered, 0, place + 1, space, seen, stamps)
        begin = place if taken < weights[order[place]] else place + 1
        score += rest * _measure(codes, ordered, begin, numbers.size, space, seen, stamps)
        if score < best:
            best, chosen = score, order
    return chosen


@njit(cache=True, nogil=True)
def halve_parts(codes, rows, space, k, most):
    """(tuple, rows, class) of all entries, and the number of classes: parts are halved while both keep k.

    All parts of one size are halved in one pass from one buffer to the other; `most` is the room they need.
    """
    numbers, weights = np.empty(most, np.int64), np.empty(most, np.int64)
    new_numbers, new_weights = np.empty(most, np.int64), np.empty(most, np.int64)
    out_numbers, out_weights = np.empty(most, np.int32), np.empty(most, np.int64)
    out_classes = np.empty(most, np.int32)
    seen, stamps = np.zeros(space[1].max(), np.int64), np.zeros(1, np.int64)
    used = 0
    for number in range(rows.size):
        if rows[number] > 0:
            numbers[used], weights[used] = number, rows[number]
            used += 1
    starts = np.array([0, used])
    written, count = 0, 0
    while starts.size > 1:
        new_starts = np.zeros(2 * starts.size, np.int64)
        filled, parts = 0, 0
        for part in range(starts.size - 1):
            inside = numbers[starts[part] : starts[part + 1]]
            weight = weights[starts[part] : starts[part + 1]]
            total = weight.sum()
            order = np.empty(0, np.int64)
            half = total // 2
            if total >= 2 * k:
                order = _find_order(codes, inside, weight, half, total - half, space, seen, stamps)
            if order.size == 0:
                for place in range(inside.size):
                    out_numbers[written], out_weights[written] = inside[place], weight[place]
                    out_classes[written] = count
                    written += 1
                count += 1
                continue
            middle, taken = _find_half(weight, order, half)
            for place in range(order.size):
                new_numbers[filled] = inside[order[place]]
                new_weights[filled] = taken if place == middle else weight[order[place]]
                filled += 1
                if place == middle:
                    parts += 1
                    new_starts[parts] = filled
                    if taken < weight[order[place]]:
                        new_numbers[filled] = inside[order[place]]
                        new_weights[filled] = weight[order[place]] - taken
                        filled += 1
            parts += 1
            new_starts[parts] = filled
        numbers, new_numbers = new_numbers, numbers
        weights, new_weights = new_weights, weights
        starts = new_starts[: parts + 1].copy()
    return out_numbers[:written].copy(), out_weights[:written].copy(), out_classes[:written].copy(), count
