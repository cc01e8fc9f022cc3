"""Microaggregation within blocks: the records farthest from the middle gather the nearest around them."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

import numpy as np
from numba import njit

from sfumato.anonymity.kernels.cuts import NUMBER

_MISSING = 2.0  # beyond it lies no value: the place of a missing one


@njit(cache=True, nogil=True)
def _set_centre(codes, weights, order, start, end, space, tally, centre):
    """`centre` becomes the mean place or the most frequent code, by column."""
    kinds, offsets, places = space[0], space[2], space[3]
    for column in range(codes.shape[1]):
        if kinds[column] == NUMBER:
            total, weight = 0.0, 0.0
            for place in range(start, end):
                where = places[offsets[column] + codes[order[place], column]]
                if where < _MISSING:
                    total += weights[order[place]] * where
                    weight += weights[order[place]]
            centre[column] = total / weight if weight > 0 else _MISSING
            continue
        for place in range(start, end):
            tally[codes[order[place], column]] += weights[order[place]]
        most = -1
        for place in range(start, end):
            code = codes[order[place], column]
            if most < 0 or tally[code] > tally[most] or (tally[code] == tally[most] and code < most):
                most = code
        for place in range(start, end):
            tally[codes[order[place], column]] = 0
        centre[column] = most


@njit(cache=True, nogil=True)
def _measure(codes, number, centre, space):
    """The squared distance of a tuple from a centre."""
    kinds, offsets, places, units = space[0], space[2], space[3], space[7]
    total = 0.0
    for column in range(codes.shape[1]):
        code = codes[number, column]
        if kinds[column] == NUMBER:
            where = places[offsets[column] + code]
            if where < _MISSING and centre[column] < _MISSING:
                total += units[column] * (where - centre[column]) ** 2
            elif where < _MISSING or centre[column] < _MISSING:
                total += units[column]
        elif code != centre[column]:
            total += units[column]
    return total


@njit(cache=True, nogil=True)
def _find_farthest(codes, order, start, end, centre, space):
    best, found = -1.0, start
    for place in range(start, end):
        apart = _measure(codes, order[place], centre, space)
        # The order within a block changes as classes leave it: of equals the lowest tuple is taken.
        if apart > best or (apart == best and order[place] < order[found]):
            best, found = apart, place
    return found


@njit(cache=True, nogil=True)
def _gather(codes, people, order, start, end, seed, k, space, centre, apart):
    """Where those who are left end, after a seed and its nearest have been moved behind them."""
    number = order[seed]
    # The middle of one tuple is the tuple itself.
    kinds, offsets, places = space[0], space[2], space[3]
    for column in range(codes.shape[1]):
        code = codes[number, column]
        where = places[offsets[column] + code]
        centre[column] = min(where, _MISSING) if kinds[column] == NUMBER else code
    for place in range(start, end):
        apart[place] = _measure(codes, order[place], centre, space)
    inside = 0
    found = seed
    while True:
        number = order[found]
        end -= 1
        order[found], apart[found] = order[end], apart[end]
        order[end] = number
        inside += people[number]
        if inside >= k:
            return end
        found = start
        for place in range(start, end):
            closer = apart[place] < apart[found]
            if closer or (apart[place] == apart[found] and order[place] < order[found]):
                found = place


@njit(cache=True, nogil=True)
def gather_classes(codes, people, weights, space, k, order, starts):
    """(the class of every tuple, the number of classes): each block is divided by itself.

    A tuple of k people is a class. Then, while 2k people are left, the tuple farthest from the middle and
    its nearest are one, and so are the tuple farthest from it and its nearest. Who is left is the last
    class, or, if fewer than k, joins the class whose middle is nearest.
    """
    n, q = codes.shape
    class_of = np.full(n, -1, np.int32)
    tally = np.zeros(space[1].max(), np.int64)
    centre, apart = np.empty(q), np.empty(n)
    count = 0
    for block in range(starts.size):
        start = starts[block]
        finish = starts[block + 1] if block + 1 < starts.size else n
        end, left = finish, 0
        place = start
        ends = [finish]
        while place < end:
            number = order[place]
            if people[number] >= k:
                end -= 1
                order[place] = order[end]
                order[end] = number
                ends.append(end)
            else:
                left += people[number]
                place += 1
        while left >= 2 * k:
            _set_centre(codes, weights, order, start, end, space, tally, centre)
            for _ in range(2):
                if left >= 2 * k:
                    # The second seed is the one farthest from the first, which `centre` is by now.
                    seed = _find_farthest(codes, order, start, end, centre, space)
                    before = end
                    end = _gather(codes, people, order, start, end, seed, k, space, centre, apart)
                    for place in range(end, before):
                        left -= people[order[place]]
                    ends.append(end)
        if left >= k:
            end = start
            ends.append(end)
        made = len(ends) - 1
        centres = np.empty((made, q))
        for each in range(made):
            for place in range(ends[each + 1], ends[each]):
                class_of[order[place]] = count + each
            _set_centre(codes, weights, order, ends[each + 1], ends[each], space, tally, centres[each])
        for place in range(start, end):
            best, found = np.inf, 0
            for each in range(made):
                distance = _measure(codes, order[place], centres[each], space)
                if distance < best:
                    best, found = distance, each
            class_of[order[place]] = count + found
        count += made
    return class_of, count
