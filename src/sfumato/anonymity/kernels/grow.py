"""Classes grown one tuple at a time: within a block, the tuple that makes a class's loss least joins it."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202, FBT003, RUF059
from __future__ import annotations

import numpy as np
from numba import njit

from sfumato.anonymity.kernels.cuts import CATEGORY, NUMBER, join_nodes


@njit(cache=True, nogil=True)
def _loss_with(codes, number, first, second, bits, words, space):
    """The loss of a class once a tuple has joined it.

    A class is, by column, its lowest and highest code, the number of its values and their bits, or a
    code and a level.
    """
    kinds, sizes, offsets, places, tree_offsets, nodes, losses, units = space
    total = 0.0
    for column in range(codes.shape[1]):
        code = codes[number, column]
        if kinds[column] == NUMBER:
            low, high = min(first[column], code), max(second[column], code)
            loss = min(1.0, places[offsets[column] + high] - places[offsets[column] + low])
        elif kinds[column] == CATEGORY:
            word = bits[words[column] + (code >> 6)]
            new = 1 - ((word >> np.uint64(code & 63)) & np.uint64(1))
            loss = (first[column] - 1 + np.int64(new)) / (sizes[column] - 1)
        else:
            offset, size = tree_offsets[column], sizes[column]
            level = join_nodes(nodes, offset, size, first[column], second[column], code, 0)
            loss = losses[offset + level * size + first[column]]
        total += units[column] * loss
    return total


@njit(cache=True, nogil=True)
def join_class(codes, number, first, second, bits, words, space, begin):
    """The tuple joins the class, or with `begin` is its first."""
    kinds, sizes, offsets, places, tree_offsets, nodes, losses, units = space
    for column in range(codes.shape[1]):
        code = codes[number, column]
        if kinds[column] == NUMBER:
            first[column] = code if begin else min(first[column], code)
            second[column] = code if begin else max(second[column], code)
        elif kinds[column] == CATEGORY:
            if begin:
                first[column] = 0
                for word in range(words[column], words[column + 1]):
                    bits[word] = np.uint64(0)
            at = words[column] + (code >> 6)
            bit = np.uint64(1) << np.uint64(code & 63)
            if not bits[at] & bit:
                bits[at] |= bit
                first[column] += 1
        elif begin:
            first[column], second[column] = code, 0
        else:
            second[column] = join_nodes(
                nodes, tree_offsets[column], sizes[column], first[column], second[column], code, 0
            )


@njit(cache=True, nogil=True)
def _find_farthest(codes, order, start, end, from_, space):
    """The place of the tuple that is farthest from one of them."""
    kinds, sizes, offsets, places, tree_offsets, nodes, losses, units = space
    best, found = -1.0, start
    for place in range(start, end):
        number = order[place]
        distance = 0.0
        for column in range(codes.shape[1]):
            code, other = codes[number, column], codes[from_, column]
            if code == other:
                continue
            if kinds[column] == NUMBER:
                apart = min(1.0, abs(places[offsets[column] + code] - places[offsets[column] + other]))
            elif kinds[column] == CATEGORY:
                apart = 1.0 / (sizes[column] - 1)
            else:
                offset, size = tree_offsets[column], sizes[column]
                apart = losses[offset + join_nodes(nodes, offset, size, code, 0, other, 0) * size + code]
            distance += units[column] * apart
        if distance > best:
            best, found = distance, place
    return found


@njit(cache=True, nogil=True)
def grow_classes(codes, people, rows, space, k, order, starts, words):
    """(the class of every tuple, the number of classes): each block is divided by itself.

    A class begins with the tuple that is farthest from the last class's first, and takes tuples until k
    people are in it. Those who are left at the end join the class whose loss grows least.
    """
    n, q = codes.shape
    class_of = np.full(n, -1, np.int32)
    count = 0
    # The largest block decides how many classes wait at once for those who are left.
    largest = 1
    for block in range(starts.size):
        end = starts[block + 1] if block + 1 < starts.size else n
        largest = max(largest, end - starts[block])
    first = np.empty((largest, q), np.int64)
    second = np.empty((largest, q), np.int64)
    bits = np.empty((largest, max(1, words[q])), np.uint64)
    weights = np.empty(largest)
    lost = np.empty(largest)
    for block in range(starts.size):
        start = starts[block]
        end = starts[block + 1] if block + 1 < starts.size else n
        left = 0
        for place in range(start, end):
            left += people[order[place]]
        made = 0
        last = order[start]
        while left >= k:
            place = _find_farthest(codes, order, start, end, last, space)
            last = order[place]
            end -= 1
            order[place] = order[end]
            order[end] = last
            join_class(codes, last, first[made], second[made], bits[made], words, space, True)
            inside, weight, loss = people[last], float(rows[last]), 0.0
            class_of[last] = count + made
            while inside < k:
                best, found = np.inf, -1
                for place in range(start, end):
                    number = order[place]
                    grown = _loss_with(codes, number, first[made], second[made], bits[made], words, space)
                    score = grown * (weight + rows[number])
                    if score < best:
                        best, found = score, place
                number = order[found]
                end -= 1
                order[found] = order[end]
                order[end] = number
                loss = _loss_with(codes, number, first[made], second[made], bits[made], words, space)
                join_class(codes, number, first[made], second[made], bits[made], words, space, False)
                class_of[number] = count + made
                inside += people[number]
                weight += rows[number]
            weights[made], lost[made] = weight, loss
            left -= inside
            made += 1
        for place in range(start, end):
            number = order[place]
            best, found = np.inf, -1
            for each in range(made):
                grown = _loss_with(codes, number, first[each], second[each], bits[each], words, space)
                score = grown * (weights[each] + rows[number]) - lost[each] * weights[each]
                if score < best:
                    best, found = score, each
            lost[found] = _loss_with(codes, number, first[found], second[found], bits[found], words, space)
            join_class(codes, number, first[found], second[found], bits[found], words, space, False)
            weights[found] += rows[number]
            class_of[number] = count + found
        count += made
    return class_of, count
