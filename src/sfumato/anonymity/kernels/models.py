"""Whether equivalence classes satisfy models: sensitive values are counted and compared with the table's.

`arrays` are `models.ModelArrays`. Counts are whole numbers or, for tables
so large that products of counts would not fit, floats: a zero is written `count - count` to be of the same
type. Shares are compared as products of counts, a / b < c / d as a * d < c * b: whole numbers stay exact.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202, SIM110
from __future__ import annotations

import math

import numpy as np
from numba import njit

DISTINCT, ENTROPY, RECURSIVE, EQUAL, ORDERED, DELTA = range(6)
"""The kinds of models as compiled loops know them, in the order of `models.ModelKind`."""


@njit(cache=True, nogil=True)
def _measure_order(counts, values, inside, whole, cumulated, areas):
    """Returns the ordered distance of a class from the whole table.

    Between two values that the class has, its cumulative share does not change, and the table's only
    rises: where the two cross is searched for, and what lies on either side is a difference of sums.
    """
    size = cumulated.size
    if size < 2:
        return 0.0
    moved = whole - whole
    so_far = inside - inside
    low = 0
    for place in range(values.size + 1):
        high = values[place] if place < values.size else size
        level = so_far * whole  # the class's cumulative share, times both totals
        left, right = low, high
        while left < right:
            middle = (left + right) // 2
            if inside * cumulated[middle] >= level:
                right = middle
            else:
                left = middle + 1
        moved += level * (left - low) - inside * (areas[left] - areas[low])
        moved += inside * (areas[high] - areas[left]) - level * (high - left)
        if place < values.size:
            so_far += counts[values[place]]
        low = high
    return moved / (inside * whole * (size - 1))


@njit(cache=True, nogil=True)
def _satisfies(kind, limit, wholes, counts, values, inside, totals, cumulated, areas):
    """Returns whether a class satisfies one model.

    `values` are those it has, in order, `counts` how often, `inside` how many they are together; `totals`,
    `cumulated` and `areas` are the whole table's.
    """
    whole = cumulated[-1]
    if kind == DISTINCT:
        return values.size >= wholes[0]
    if kind == ENTROPY:
        total = 0.0
        for value in values:
            total += counts[value] * math.log(counts[value])
        return math.log(inside) - total / inside >= limit
    if kind == RECURSIVE:
        found = np.empty(values.size, counts.dtype)
        for place in range(values.size):
            found[place] = counts[values[place]]
        found.sort()
        rest = inside - inside
        for place in range(values.size - wholes[0] + 1):  # all but the l - 1 most frequent
            rest += found[place]
        return values.size >= wholes[0] and found[-1] * wholes[2] < rest * wholes[1]
    if kind == EQUAL:
        # Values that the class lacks differ by all they have: what is left of the whole.
        apart = inside * whole
        for value in values:
            apart += abs(counts[value] * whole - totals[value] * inside) - totals[value] * inside
        return apart / (2.0 * (inside * whole)) <= limit
    if kind == ORDERED:
        return _measure_order(counts, values, inside, whole, cumulated, areas) <= limit
    if values.size < totals.size:  # delta-disclosure: a value that is lacking says as much as any
        return False
    for value in values:
        if abs(math.log((counts[value] * whole) / (totals[value] * inside))) >= limit:
            return False
    return True


@njit(cache=True, nogil=True)
def _holds_in_column(column, counts, values, arrays):
    """Returns whether a class whose values are counted satisfies the models of one sensitive column."""
    if values.size == 0:
        return True  # nobody of it is released
    first, last = arrays.offsets[column], arrays.offsets[column + 1]
    totals, cumulated = arrays.totals[first:last], arrays.cumulated[first:last]
    # Every column before has one sum more than it has values.
    areas = arrays.areas[first + column : last + column + 1]
    inside = counts[values[0]] - counts[values[0]]
    for value in values:
        inside += counts[value]
    for model in range(arrays.kinds.size):
        if arrays.columns[model] == column and not _satisfies(
            arrays.kinds[model], arrays.limits[model], arrays.wholes[model],
            counts, values, inside, totals, cumulated, areas,
        ):  # fmt: skip
            return False
    return True


@njit(cache=True, nogil=True)
def _make_room(arrays):
    """Returns room for the values of two classes: how often each occurs, and which do."""
    most = 0
    for column in range(arrays.offsets.size - 1):
        most = max(most, arrays.offsets[column + 1] - arrays.offsets[column])
    return np.zeros((2, most), arrays.totals.dtype), np.zeros((2, most), np.int64)


@njit(cache=True, nogil=True)
def _tally_tuple(number, column, arrays, counts, touched, used):
    """Returns the number of values seen so far, after counting those of one tuple."""
    for place in range(arrays.starts[column, number], arrays.starts[column, number + 1]):
        code = arrays.codes[place]
        if counts[code] == 0:
            touched[used] = code
            used += 1
        counts[code] += arrays.counts[place]
    return used


@njit(cache=True, nogil=True)
def judge_classes(order, starts, arrays):
    """For every class whether it satisfies all models; class i is order[starts[i]:starts[i + 1]]."""
    rooms, lists = _make_room(arrays)
    counts, touched = rooms[0], lists[0]
    satisfied = np.ones(starts.size - 1, np.bool_)
    for each in range(satisfied.size):
        for column in range(arrays.starts.shape[0]):
            used = 0
            for place in range(starts[each], starts[each + 1]):
                used = _tally_tuple(order[place], column, arrays, counts, touched, used)
            found = touched[:used]
            found.sort()  # the ordered distance goes from the lowest value to the highest
            fits = _holds_in_column(column, counts, found, arrays)
            for value in found:
                counts[value] = 0
            if not fits:
                satisfied[each] = False
                break
    return satisfied


@njit(cache=True, nogil=True)
def find_cut(codes, order, start, end, cuts, sequence, arrays):
    """The first of `cuts`, in the order of `sequence`, both of whose sides satisfy all models; -1 if none is.

    The part that is cut is order[start:end], `codes` are by tuple and column.
    """
    counts, touched = _make_room(arrays)
    for cut in sequence:
        column, mark, alone = cuts.columns[cut], cuts.codes[cut], cuts.alone[cut]
        fits = True
        for sensitive in range(arrays.starts.shape[0]):
            used = np.zeros(2, np.int64)
            for place in range(start, end):
                number = order[place]
                code = codes[number, column]
                side = 0 if code == mark or (alone == 0 and code < mark) else 1
                used[side] = _tally_tuple(number, sensitive, arrays, counts[side], touched[side], used[side])
            for side in range(2):
                found = touched[side, : used[side]]
                found.sort()
                fits = fits and _holds_in_column(sensitive, counts[side], found, arrays)
                for value in found:
                    counts[side, value] = 0
            if not fits:
                break
        if fits:
            return cut
    return -1
