"""Equivalence classes from below: grown tuple by tuple, or peeled off a hierarchy.

`codes`, `people`, `rows`, `order`, `space` are as in `mondrian`; block i is order[starts[i]:starts[i + 1]].
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202, FBT003
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sfumato.anonymity.encode import CATEGORY
from sfumato.anonymity.kernels.mondrian import join_code, lose_extent

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads keys over a hash table
_PLACE_TAKEN = 1 << 40  # added to the people of a hash place, so that one without people is taken too
_PEOPLE = _PLACE_TAKEN - 1


class Extents(NamedTuple):
    """What classes hold, by class and column, in the terms of the column's kind.

    number, tree  first and second are the extent (see `mondrian.join_extents`)
    category      first is the number of different codes, and `bits` are the codes themselves
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    bits: NDArray[np.uint64]


class Folds(NamedTuple):
    """Columns folded into few: their codes by tuple, and by fold, level and code a key and a loss.

    The key and the loss of `code` in a fold at a level are at starts[fold] + level * sizes[fold] + code.
    The sum of the keys of all folds tells nodes apart. Losses are whole numbers, so that sums are exact.
    """

    codes: NDArray[np.int32]
    keys: NDArray[np.uint64]
    losses: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


@njit(cache=True, nogil=True)
def _loss_with(codes, number, extents, each, space):
    """Returns the loss of the class `each` once the tuple `number` has joined it."""
    first, second = extents.first, extents.second
    total = 0.0
    for column in range(codes.shape[1]):
        code = codes[number, column]
        if space.kinds[column] == CATEGORY:
            word = extents.bits[each, space.words[column] + (code >> 6)]
            new = 1 - ((word >> np.uint64(code & 63)) & np.uint64(1))
            loss = (first[each, column] - 1 + np.int64(new)) / (space.sizes[column] - 1)
        else:
            own, other = join_code(space, column, first[each, column], second[each, column], code)
            loss = lose_extent(space, column, own, other)
        total += space.units[column] * loss
    return total


@njit(cache=True, nogil=True)
def _join_class(codes, number, extents, each, space, begin):
    """The tuple joins the class, or with `begin` is its first."""
    first, second, bits = extents.first, extents.second, extents.bits
    for column in range(codes.shape[1]):
        code = codes[number, column]
        if space.kinds[column] == CATEGORY:
            if begin:
                first[each, column] = 0
                for word in range(space.words[column], space.words[column + 1]):
                    bits[each, word] = np.uint64(0)
            at = space.words[column] + (code >> 6)
            bit = np.uint64(1) << np.uint64(code & 63)
            if not bits[each, at] & bit:
                bits[each, at] |= bit
                first[each, column] += 1
        else:
            own = -1 if begin else first[each, column]
            own, other = join_code(space, column, own, second[each, column], code)
            first[each, column], second[each, column] = own, other


@njit(cache=True, nogil=True)
def _make_extents(count, space):
    shape = (count, space.sizes.size)
    bits = np.zeros((count, max(1, space.words[-1])), np.uint64)
    return Extents(np.zeros(shape, np.int64), np.zeros(shape, np.int64), bits)


@njit(cache=True, nogil=True)
def describe_classes(codes, tuple_of_entry, classes, count, space):
    """The extents of `count` classes: entry i is the tuple tuple_of_entry[i] in classes[i], -1 for none.

    `codes` are by tuple and column, `space` says what they mean, `tuple_of_entry` may name a tuple twice.
    """
    extents = _make_extents(count, space)
    begun = np.zeros(count, np.bool_)
    for entry in range(classes.size):
        each = classes[entry]
        if each < 0:
            continue
        _join_class(codes, tuple_of_entry[entry], extents, each, space, not begun[each])
        begun[each] = True
    return extents


@njit(cache=True, nogil=True)
def _find_farthest_tuple(codes, order, start, end, from_, space):
    """Returns the place of the tuple that is farthest from one of them."""
    best, found = -1.0, start
    for place in range(start, end):
        number = order[place]
        distance = 0.0
        for column in range(codes.shape[1]):
            code, other = codes[number, column], codes[from_, column]
            if code == other:
                continue
            if space.kinds[column] == CATEGORY:
                apart = 1.0 / (space.sizes[column] - 1)
            else:
                low, high = join_code(space, column, -1, 0, code)
                low, high = join_code(space, column, low, high, other)
                apart = lose_extent(space, column, low, high)
            distance += space.units[column] * apart
        if distance > best:
            best, found = distance, place
    return found


@njit(cache=True, nogil=True)
def _join_cheapest(codes, number, rows, extents, count, weights, lost, space):
    """Returns the class, of the first `count`, whose loss in records grows least by a tuple, which joins it.

    `weights` and `lost` are the rows of every class and the loss of each of them.
    """
    best, found = np.inf, -1
    for each in range(count):
        grown = _loss_with(codes, number, extents, each, space)
        score = grown * (weights[each] + rows[number]) - lost[each] * weights[each]
        if score < best:
            best, found = score, each
    lost[found] = _loss_with(codes, number, extents, found, space)
    _join_class(codes, number, extents, found, space, False)
    weights[found] += rows[number]
    return found


@njit(cache=True, nogil=True)
def _swap(order, place, end):
    """Exchanges two numbers, and returns that which is at the `end` then."""
    order[place], order[end] = order[end], order[place]
    return order[end]


@njit(cache=True, nogil=True)
def grow_classes(codes, people, rows, space, k, order, starts):
    """Returns (the class of every tuple, the number of classes): each block is divided by itself.

    A class begins with the tuple that is farthest from the last class's first, and takes tuples until `k`
    people are in it. Those who are left at the end join the class whose loss grows least. `codes`, `people`,
    `rows`, `space`, and the blocks by `order` and `starts` are as above; `order` is changed.
    """
    class_of = np.full(len(codes), -1, np.int32)
    count = 0
    # The largest block decides how many classes wait at once for those who are left.
    largest = max(1, np.diff(starts).max())
    extents = _make_extents(largest, space)
    weights = np.empty(largest)
    lost = np.empty(largest)
    for block in range(starts.size - 1):
        start, end = starts[block], starts[block + 1]
        left = 0
        for place in range(start, end):
            left += people[order[place]]
        made = 0
        last = order[start]
        while left >= k:
            # Far tuples first: they would cost most as the last ones. Who has a class moves behind `end`,
            # so that order[start:end] are those without one.
            end -= 1
            last = _swap(order, _find_farthest_tuple(codes, order, start, end + 1, last, space), end)
            _join_class(codes, last, extents, made, space, True)
            inside, weight, loss = people[last], float(rows[last]), 0.0
            class_of[last] = count + made
            while inside < k:
                best, found = np.inf, -1
                for place in range(start, end):
                    number = order[place]
                    grown = _loss_with(codes, number, extents, made, space)
                    score = grown * (weight + rows[number])  # all rows of the class lose as much
                    if score < best:
                        best, found = score, place
                end -= 1
                number = _swap(order, found, end)
                loss = _loss_with(codes, number, extents, made, space)
                _join_class(codes, number, extents, made, space, False)
                class_of[number] = count + made
                inside += people[number]
                weight += rows[number]
            weights[made], lost[made] = weight, loss
            left -= inside
            made += 1
        for place in range(start, end):
            number = order[place]
            found = _join_cheapest(codes, number, rows, extents, made, weights, lost, space)
            class_of[number] = count + found
        count += made
    return class_of, count


@njit(cache=True, nogil=True)
def peel_classes(folds, people, levels, lows, highs, k):
    """Returns (the class of every tuple, -1 of those who are left; the number of classes).

    A visit looks at the tuples that are left and whose loss at its `levels` of the folds is above its low and
    at most its high; those of them who share all nodes with k people are a class. Cheap visits come first.
    """
    n, q = folds.codes.shape
    class_of = np.full(n, -1, np.int32)
    left = np.arange(n)
    codes_left = folds.codes.copy()
    people_left = people.copy()
    count, remaining = 0, n
    # A hash table from nodes to the people who share them; made for all tuples, cleared after each visit.
    size = 16
    while size < 2 * n:
        size *= 2
    key_at = np.empty(size, np.uint64)
    people_at = np.zeros(size, np.int64)
    class_at = np.empty(size, np.int32)
    slots = np.empty(n + 1, np.int64)
    chosen = np.empty(n + 1, np.int64)
    base = np.empty(q, np.int64)
    for visit in range(levels.shape[0]):
        if remaining == 0:
            break
        low, high = lows[visit], highs[visit]
        for column in range(q):
            base[column] = folds.starts[column] + levels[visit, column] * folds.sizes[column]
        picked = 0
        for place in range(remaining):
            loss = np.int64(0)
            for column in range(q):
                loss += folds.losses[base[column] + codes_left[place, column]]
            chosen[picked] = place
            picked += (loss > low) & (loss <= high)  # without a branch, which would be guessed wrong
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
                key += folds.keys[base[column] + codes_left[place, column]]
            slot = ((key * _MIX) >> np.uint64(20)) & mask  # the lowest bits of a product are poorly mixed
            while people_at[slot] > 0 and key_at[slot] != key:
                slot = (slot + np.uint64(1)) & mask
            if people_at[slot] == 0:
                key_at[slot] = key
                class_at[slot] = -1
            people_at[slot] += people_left[place] + _PLACE_TAKEN
            slots[pick] = slot
            if people_at[slot] & _PEOPLE >= k:
                enough = True
        if enough:
            pick, kept = 0, 0
            for place in range(remaining):
                leaves = False
                if pick < picked and chosen[pick] == place:
                    slot = slots[pick]
                    pick += 1
                    if people_at[slot] & _PEOPLE >= k:
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
def join_rest(codes, rows, class_of, count, space):
    """Every tuple whose `class_of` is -1 joins the one of `count` classes whose loss grows least by it.

    `codes`, `rows` and `space` are as above; `class_of` is changed.
    """
    n = codes.shape[0]
    extents = describe_classes(codes, np.arange(n), class_of, count, space)
    weights = np.zeros(count)
    lost = np.zeros(count)
    for number in range(n):
        each = class_of[number]
        if each >= 0:
            weights[each] += rows[number]
            # A tuple that is in the class already adds nothing: this is the loss of the class.
            lost[each] = _loss_with(codes, number, extents, each, space)
    for number in range(n):
        if class_of[number] < 0:
            class_of[number] = _join_cheapest(codes, number, rows, extents, count, weights, lost, space)
