"""Whether classes satisfy models: their sensitive values are counted and compared with the whole table's."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202, SIM110
from __future__ import annotations

import math

import numpy as np
from numba import njit

_DISTINCT, _ENTROPY, _RECURSIVE, _EQUAL, _ORDERED = 0, 1, 2, 3, 4


@njit(cache=True, nogil=True)
def _measure_order(counts, values, inside, whole, below, area):
    """The ordered distance of a class from the whole table.

    Between two values that the class has, its cumulative share does not change, and the table's only
    rises: where the two cross is searched for, and what lies on either side is a difference of sums.
    """
    size = below.size
    if size < 2:
        return 0.0
    moved = whole - whole
    so_far = inside - inside
    low = 0
    for place in range(values.size + 1):
        high = values[place] if place < values.size else size
        level = so_far * whole
        left, right = low, high
        while left < right:
            middle = (left + right) // 2
            if inside * below[middle] >= level:
                right = middle
            else:
                left = middle + 1
        moved += level * (left - low) - inside * (area[left] - area[low])
        moved += inside * (area[high] - area[left]) - level * (high - left)
        if place < values.size:
            so_far += counts[values[place]]
        low = high
    return moved / (inside * whole * (size - 1))


@njit(cache=True, nogil=True)
def _satisfies(kind, limit, wholes, counts, values, inside, totals, below, area):
    """Whether a class satisfies one model; `values` are those it has, in order."""
    whole = below[-1]
    if kind == _DISTINCT:
        return values.size >= wholes[0]
    if kind == _ENTROPY:
        total = 0.0
        for value in values:
            total += counts[value] * math.log(counts[value])
        return math.log(inside) - total / inside >= limit
    if kind == _RECURSIVE:
        found = np.empty(values.size, counts.dtype)
        for place in range(values.size):
            found[place] = counts[values[place]]
        found.sort()
        rest = inside - inside
        for place in range(values.size - wholes[0] + 1):
            rest += found[place]
        return values.size >= wholes[0] and found[-1] * wholes[2] < rest * wholes[1]
    if kind == _EQUAL:
        # Values that the class lacks differ by all they have: what is left of the whole.
        apart = inside * whole
        for value in values:
            apart += abs(counts[value] * whole - totals[value] * inside) - totals[value] * inside
        return apart / (2.0 * (inside * whole)) <= limit
    if kind == _ORDERED:
        return _measure_order(counts, values, inside, whole, below, area) <= limit
    if values.size < totals.size:  # delta-disclosure: a value that is lacking says as much as any
        return False
    for value in values:
        if abs(math.log((counts[value] * whole) / (totals[value] * inside))) >= limit:
            return False
    return True


@njit(cache=True, nogil=True)
def _side_holds(column, counts, values, arrays):
    """Whether a class whose values are counted satisfies the models of one sensitive column."""
    kinds, which, limits, wholes, bases = arrays[0], arrays[1], arrays[2], arrays[3], arrays[7]
    totals, below, area = arrays[8], arrays[9], arrays[10]
    if values.size == 0:
        return True  # nobody of it is released
    first, last = bases[column], bases[column + 1]
    inside = counts[values[0]] - counts[values[0]]
    for value in values:
        inside += counts[value]
    for model in range(kinds.size):
        if which[model] == column and not _satisfies(
            kinds[model], limits[model], wholes[model], counts, values, inside,
            totals[first:last], below[first:last], area[first + column : last + column + 1],
        ):  # fmt: skip
            return False
    return True


@njit(cache=True, nogil=True)
def _count(number, column, arrays, counts, touched, used):
    """The number of values seen so far, after counting one tuple's."""
    starts, codes, tallies = arrays[4], arrays[5], arrays[6]
    for place in range(starts[column, number], starts[column, number + 1]):
        code = codes[place]
        if counts[code] == 0:
            touched[used] = code
            used += 1
        counts[code] += tallies[place]
    return used


@njit(cache=True, nogil=True)
def class_holds(order, start, end, arrays, scratch):
    """Whether the class of these tuples satisfies all models."""
    counts, touched = scratch[0][0], scratch[1][0]
    for column in range(arrays[4].shape[0]):
        used = 0
        for place in range(start, end):
            used = _count(order[place], column, arrays, counts, touched, used)
        values = touched[:used]
        values.sort()
        held = _side_holds(column, counts, values, arrays)
        for value in values:
            counts[value] = 0
        if not held:
            return False
    return True


@njit(cache=True, nogil=True)
def _sort_members(class_of, count):
    """(members in order of their classes, where each class begins)."""
    starts = np.zeros(count + 1, np.int64)
    for number in range(class_of.size):
        if class_of[number] >= 0:
            starts[class_of[number] + 1] += 1
    for each in range(count):
        starts[each + 1] += starts[each]
    filled = starts[:-1].copy()
    order = np.empty(starts[-1], np.int64)
    for number in range(class_of.size):
        each = class_of[number]
        if each >= 0:
            order[filled[each]] = number
            filled[each] += 1
    return order, starts


@njit(cache=True, nogil=True)
def classes_hold(class_of, count, arrays, scratch):
    """For every class whether it satisfies all models."""
    order, starts = _sort_members(class_of, count)
    held = np.empty(count, np.bool_)
    for each in range(count):
        held[each] = class_holds(order, starts[each], starts[each + 1], arrays, scratch)
    return held


@njit(cache=True, nogil=True)
def merge_values(class_of, count, arrays, scratch):
    """(starts, codes, counts) of the values of classes, as the tuples' own are written."""
    counts, touched = scratch[0][0], scratch[1][0]
    order, members = _sort_members(class_of, count)
    starts = np.empty((arrays[4].shape[0], count + 1), np.int64)
    codes = np.empty(arrays[5].size, np.int32)
    tallies = np.empty(arrays[6].size, arrays[6].dtype)
    filled = 0
    for column in range(arrays[4].shape[0]):
        for each in range(count):
            starts[column, each] = filled
            used = 0
            for place in range(members[each], members[each + 1]):
                used = _count(order[place], column, arrays, counts, touched, used)
            for value in touched[:used]:
                codes[filled] = value
                tallies[filled] = counts[value]
                counts[value] = 0
                filled += 1
        starts[column, count] = filled
    return starts, codes[:filled].copy(), tallies[:filled].copy()


@njit(cache=True, nogil=True)
def find_fitting(codes, order, start, end, found, sequence, arrays, scratch):
    """The first cut in the sequence both of whose sides satisfy all models; -1 if none is."""
    counts, touched = scratch
    for cut in sequence:
        column, mark, single = found[1][cut], found[2][cut], found[3][cut]
        fits = True
        for sensitive in range(arrays[4].shape[0]):
            used = np.zeros(2, np.int64)
            for place in range(start, end):
                code = codes[order[place], column]
                side = 0 if code == mark or (single == 0 and code < mark) else 1
                used[side] = _count(order[place], sensitive, arrays, counts[side], touched[side], used[side])
            for side in range(2):
                values = touched[side, : used[side]]
                values.sort()
                fits = fits and _side_holds(sensitive, counts[side], values, arrays)
                for value in values:
                    counts[side, value] = 0
            if not fits:
                break
        if fits:
            return cut
    return -1
