"""Mondrian: a part of the tuples is cut in two, again and again, while both sides keep k people.

After LeFevre, DeWitt and Ramakrishnan, "Mondrian multidimensional k-anonymity" (2006): strict cuts are those
of the paper, near the median of the widest column; relaxed ones may put equal records on both sides; cuts
with the lowest loss look at every feasible cut of every column instead.

What all loops take:

codes          by tuple and column
people, rows   by tuple: how many people k counts in it, and how many records of the table it stands for
space          what codes mean, an `encode.Space`
order          numbers of tuples; a part is order[start:end], and a cut only changes the order within it
scratch        room for the loops, a `Scratch`, made once because a part may be small and parts are many
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sfumato.anonymity.encode import CATEGORY, NUMBER, Space

_LOOKED_AT = 256  # tuples of a part that decide where it is cut: more cost time and hardly lower the loss
_MOST_SINGLES = 64  # one value against the rest is tried for columns with at most so many values


class Scratch(NamedTuple):
    """Room in which the cuts of one column are scored.

    The different codes of the column in the part are its places, 0, 1, ... in their order. A cut after a
    place has that place and those before it on its left side.

    present, ranks                 the code at each place, and the place of each code
    people_at, rows_at             sums at each place
    left, right                    the loss of either side of the cut after each place
    alone, rest                    the loss of each place's tuples alone, and of all others together
    first_at, second_at            the extent of another column, a number or a tree, at each place
    first_before, second_before    the same of all places before
    first, last                    by code of another column: the first and the last place that has it
    begins, ends, only             how many codes have their first place, their last, or their one place here
    seen, stamp                    whether a place has a code of another column: it does if it holds the stamp
    """

    present: NDArray[np.int64]
    ranks: NDArray[np.int64]
    people_at: NDArray[np.int64]
    rows_at: NDArray[np.int64]
    left: NDArray[np.float64]
    right: NDArray[np.float64]
    alone: NDArray[np.float64]
    rest: NDArray[np.float64]
    first_at: NDArray[np.int64]
    second_at: NDArray[np.int64]
    first_before: NDArray[np.int64]
    second_before: NDArray[np.int64]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    only: NDArray[np.int64]
    seen: NDArray[np.int64]
    stamp: NDArray[np.int64]


class Cuts(NamedTuple):
    """Room for the feasible cuts of one part: the codes up to `codes` on one side, or that code `alone`.

    A score is the loss of both sides in records.
    """

    scores: NDArray[np.float64]
    columns: NDArray[np.int64]
    codes: NDArray[np.int64]
    alone: NDArray[np.int64]


class _Part(NamedTuple):
    """Some tuples: order[start:end] of `codes`. Losses are estimated from every `step`-th of them."""

    codes: NDArray[np.int32]
    order: NDArray[np.int64]
    start: int
    end: int
    step: int


def make_scratch(space: Space) -> Scratch:
    """Returns room for the columns of a space; the one with most codes decides how much."""
    most = int(space.sizes.max())
    floats = {"left", "right", "alone", "rest"}
    shapes = {"seen": (_MOST_SINGLES, most), "stamp": (1,)}
    arrays: dict[str, Any] = {
        name: np.zeros(shapes.get(name, (most,)), np.float64 if name in floats else np.int64)
        for name in Scratch._fields
    }
    return Scratch(**arrays)


def make_cuts(space: Space) -> Cuts:
    """Returns room for all cuts of a part: after every code, and of every code alone."""
    most = int(2 * space.sizes.sum())
    return Cuts(np.zeros(most), *(np.zeros(most, np.int64) for _ in range(3)))


@njit(cache=True, nogil=True)
def join_extents(space, column, first, second, other, other_second):
    """Returns the least extent of a column that holds two others.

    The extent of a number is its lowest and its highest code, that of a tree any code in a node and the
    node's level. A first of -1 is an extent of nothing.
    """
    if first < 0:
        return other, other_second
    if other < 0:
        return first, second
    if space.kinds[column] == NUMBER:
        return min(first, other), max(second, other_second)
    offset, size, level = space.tree_offsets[column], space.sizes[column], max(second, other_second)
    while space.nodes[offset + level * size + first] != space.nodes[offset + level * size + other]:
        level += 1
    return first, level


@njit(cache=True, nogil=True)
def join_code(space, column, first, second, code):
    """Returns the least extent of a column that holds an extent and a code."""
    return join_extents(space, column, first, second, code, code if space.kinds[column] == NUMBER else 0)


@njit(cache=True, nogil=True)
def lose_extent(space, column, first, second):
    """Returns the loss of an extent, from 0 to 1; nothing loses nothing."""
    if first < 0:
        return 0.0
    if space.kinds[column] == NUMBER:
        begin = space.offsets[column]
        return min(1.0, space.places[begin + second] - space.places[begin + first])
    return space.losses[space.tree_offsets[column] + second * space.sizes[column] + first]


@njit(cache=True, nogil=True)
def _list_present(part, column, size, scratch):
    """The number of different codes in the part; sets `present` to them and `ranks` to their places."""
    present, ranks = scratch.present, scratch.ranks
    count = 0
    for place in range(part.start, part.end):
        code = part.codes[part.order[place], column]
        if ranks[code] == 0:
            ranks[code] = 1  # seen; the places follow once all codes are known
            present[count] = code
            count += 1
    # Few of many codes are sorted; else it is faster to go through all of them.
    if size > 8 * count:
        present[:count] = np.sort(present[:count])
    else:
        count = 0
        for code in range(size):
            if ranks[code]:
                present[count] = code
                count += 1
    for place in range(count):
        ranks[present[place]] = place
    return count


@njit(cache=True, nogil=True)
def _clear_present(count, scratch):
    """Sets `ranks` back to 0; only the codes of the part, since there may be far more."""
    for place in range(count):
        scratch.ranks[scratch.present[place]] = 0


@njit(cache=True, nogil=True)
def _add_extents(part, column, other, count, space, scratch):
    """Adds what a number or a tree, the column `other`, loses on either side of every cut of `column`."""
    first_at, second_at, unit = scratch.first_at, scratch.second_at, space.units[other]
    first_at[:count] = -1
    for place in range(part.start, part.end, part.step):
        number = part.order[place]
        at = scratch.ranks[part.codes[number, column]]
        code = part.codes[number, other]
        first_at[at], second_at[at] = join_code(space, other, first_at[at], second_at[at], code)
    first, second = -1, 0
    for place in range(count):
        scratch.alone[place] += unit * lose_extent(space, other, first_at[place], second_at[place])
        scratch.first_before[place], scratch.second_before[place] = first, second
        first, second = join_extents(space, other, first, second, first_at[place], second_at[place])
        scratch.left[place] += unit * lose_extent(space, other, first, second)
    first, second = -1, 0
    for place in range(count - 1, -1, -1):
        scratch.right[place] += unit * lose_extent(space, other, first, second)
        # All but this place: what comes before it, and what comes after.
        least, most = scratch.first_before[place], scratch.second_before[place]
        least, most = join_extents(space, other, least, most, first, second)
        scratch.rest[place] += unit * lose_extent(space, other, least, most)
        first, second = join_extents(space, other, first, second, first_at[place], second_at[place])


@njit(cache=True, nogil=True)
def _add_category(part, column, other, count, space, scratch):
    """Adds what the set-valued column `other` loses on either side of every cut of `column`.

    A value is on the left of every cut after the first place that has it, and on the right of every cut
    before the last one.
    """
    begins, ends, only = scratch.begins, scratch.ends, scratch.only
    first, last = scratch.first, scratch.last
    # Each value beyond the first loses as much.
    unit = space.units[other] / (space.sizes[other] - 1)
    scratch.stamp[0] += 1  # a new stamp clears `seen` at no cost
    stamp = scratch.stamp[0]
    begins[:count] = 0
    ends[:count] = 0
    only[:count] = 0
    # Only the codes that occur are set back: a column may have far more than a part has tuples.
    for place in range(part.start, part.end, part.step):
        code = part.codes[part.order[place], other]
        first[code] = count
        last[code] = -1
    singles = count <= _MOST_SINGLES
    for place in range(part.start, part.end, part.step):
        number = part.order[place]
        at = scratch.ranks[part.codes[number, column]]
        code = part.codes[number, other]
        first[code] = min(first[code], at)
        last[code] = max(last[code], at)
        if singles and scratch.seen[at, code] != stamp:
            scratch.seen[at, code] = stamp
            scratch.alone[at] += unit  # one too many at every place, taken off below
    different = 0
    for place in range(part.start, part.end, part.step):
        code = part.codes[part.order[place], other]
        if last[code] >= 0:
            different += 1
            begins[first[code]] += 1
            ends[last[code]] += 1
            if first[code] == last[code]:
                only[first[code]] += 1
            last[code] = -1  # the code is counted
    so_far, gone = 0, 0
    for place in range(count):
        so_far += begins[place]
        gone += ends[place]
        scratch.left[place] += unit * (so_far - 1)
        scratch.right[place] += unit * (different - gone - 1)
        scratch.alone[place] -= unit
        scratch.rest[place] += unit * (different - only[place] - 1)


@njit(cache=True, nogil=True)
def _is_feasible(count, everybody, k, singles, people_at):
    """Returns whether a column has a cut with k people on both sides."""
    so_far = 0
    for place in range(count - 1):
        so_far += people_at[place]
        if so_far >= k and everybody - so_far >= k:
            return True
    if singles:
        for place in range(count):
            if people_at[place] >= k and everybody - people_at[place] >= k:
                return True
    return False


@njit(cache=True, nogil=True)
def _measure_sides(part, column, count, space, scratch):
    """Sets what all columns together lose on either side of every cut of a column."""
    scratch.left[:count] = 0.0
    scratch.right[:count] = 0.0
    scratch.alone[:count] = 0.0
    scratch.rest[:count] = 0.0
    for other in range(part.codes.shape[1]):
        if space.kinds[other] == CATEGORY:
            _add_category(part, column, other, count, space, scratch)
        else:
            _add_extents(part, column, other, count, space, scratch)


@njit(cache=True, nogil=True)
def _note_cut(cuts, made, score, column, code, alone):
    cuts.scores[made], cuts.columns[made], cuts.codes[made], cuts.alone[made] = score, column, code, alone
    return made + 1


@njit(cache=True, nogil=True)
def score_cuts(codes, people, rows, space, order, start, end, k, looked_at, scratch, cuts):
    """Returns the number of feasible cuts of the part order[start:end], which are written to `cuts`.

    A cut is feasible if `k` people are on both sides. The loss of a large part is estimated from `looked_at`
    of its tuples or a few more, spread over it. `codes`, `people`, `rows`, `space`, `order` and `scratch` are
    as above.
    """
    everybody = 0
    every_row = 0
    for place in range(start, end):
        everybody += people[order[place]]
        every_row += rows[order[place]]
    if everybody < 2 * k:
        return 0  # no cut leaves k people on both sides
    part = _Part(codes, order, start, end, 1 + (end - start) // looked_at)
    people_at, rows_at = scratch.people_at, scratch.rows_at
    made = 0
    for column in range(codes.shape[1]):
        count = _list_present(part, column, space.sizes[column], scratch)
        people_at[:count] = 0
        rows_at[:count] = 0
        for place in range(start, end):
            at = scratch.ranks[codes[order[place], column]]
            people_at[at] += people[order[place]]
            rows_at[at] += rows[order[place]]
        # With two values, one alone is the same cut as after the first.
        singles = space.kinds[column] == CATEGORY and 3 <= count <= _MOST_SINGLES
        if _is_feasible(count, everybody, k, singles, people_at):
            _measure_sides(part, column, count, space, scratch)
            so_far, rows_so_far = 0, 0
            for place in range(count - 1):
                so_far += people_at[place]
                rows_so_far += rows_at[place]
                if so_far >= k and everybody - so_far >= k:
                    score = scratch.left[place] * rows_so_far
                    score += scratch.right[place] * (every_row - rows_so_far)
                    made = _note_cut(cuts, made, score, column, scratch.present[place], 0)
            if singles:
                for place in range(count):
                    if people_at[place] >= k and everybody - people_at[place] >= k:
                        score = scratch.alone[place] * rows_at[place]
                        score += scratch.rest[place] * (every_row - rows_at[place])
                        made = _note_cut(cuts, made, score, column, scratch.present[place], 1)
        _clear_present(count, scratch)
    return made


@njit(cache=True, nogil=True)
def cut_part(codes, order, start, end, column, mark, alone, spare):
    """Where the second side of order[start:end] begins, after moving the tuples of the first to the front.

    On the first side are the `codes` of `column` up to `mark`, or `mark` if it is `alone`; `spare` is room
    for tuples. Both sides keep their order.
    """
    middle = start
    moved = 0
    for place in range(start, end):
        number = order[place]
        code = codes[number, column]
        if code == mark or (not alone and code < mark):
            order[middle] = number
            middle += 1
        else:
            spare[moved] = number
            moved += 1
    for place in range(moved):
        order[middle + place] = spare[place]
    return middle


@njit(cache=True, nogil=True)
def _find_middle(part, people, column, size, k, scratch):
    """Returns the code after which a cut of a column is feasible and nearest to the median; -1 if none is."""
    count = _list_present(part, column, size, scratch)
    people_at = scratch.people_at
    people_at[:count] = 0
    everybody = 0
    for place in range(part.start, part.end):
        number = part.order[place]
        people_at[scratch.ranks[part.codes[number, column]]] += people[number]
        everybody += people[number]
    best, found, so_far = everybody + 1, -1, 0
    for place in range(count):
        so_far += people_at[place]
        if so_far >= k and everybody - so_far >= k and abs(2 * so_far - everybody) < best:
            best = abs(2 * so_far - everybody)
            found = scratch.present[place]
    _clear_present(count, scratch)
    return found


@njit(cache=True, nogil=True)
def _measure_column(codes, order, start, end, column, space, seen, stamp):
    """Returns the loss of one column, times its unit, of a class of the tuples order[start:end]."""
    if space.kinds[column] == CATEGORY:
        stamp[0] += 1
        different = 0
        for place in range(start, end):
            code = codes[order[place], column]
            if seen[code] != stamp[0]:
                seen[code] = stamp[0]
                different += 1
        return space.units[column] * (different - 1) / (space.sizes[column] - 1)
    first, second = -1, 0
    for place in range(start, end):
        first, second = join_code(space, column, first, second, codes[order[place], column])
    return space.units[column] * lose_extent(space, column, first, second)


@njit(cache=True, nogil=True)
def cut_tuples(codes, people, rows, space, k, lowest, scratch, cuts):
    """Returns (an order of the tuples, where each part begins in it, and the last ends), cut while it can be.

    With `lowest` the cut with the lowest loss is taken, else the one nearest to the median of the widest
    column that has one. Both sides keep `k` people. `cuts` is room for the cuts of a part; `codes`, `people`,
    `rows`, `space` and `scratch` are as above.
    """
    n, q = codes.shape
    order = np.arange(n)
    spare = np.empty(n, np.int64)
    widths = np.empty(q)
    stack = np.empty((n + 1, 2), np.int64)  # of parts; recursion could go as deep as there are tuples
    stack[0, 0], stack[0, 1] = 0, n
    waiting = 1
    starts = np.full(n + 1, n)
    finished = 0
    while waiting:
        waiting -= 1
        start, end = stack[waiting, 0], stack[waiting, 1]
        column, mark, alone = -1, -1, 0
        if lowest:
            made = score_cuts(codes, people, rows, space, order, start, end, k, _LOOKED_AT, scratch, cuts)
            best = np.inf
            for cut in range(made):
                if cuts.scores[cut] < best:
                    best = cuts.scores[cut]
                    column, mark, alone = cuts.columns[cut], cuts.codes[cut], cuts.alone[cut]
        else:
            part = _Part(codes, order, start, end, 1)
            for each in range(q):
                widths[each] = _measure_column(
                    codes, order, start, end, each, space, scratch.seen[0], scratch.stamp
                )
            for _ in range(q):
                widest = np.argmax(widths)
                if widths[widest] <= 0.0:
                    break
                mark = _find_middle(part, people, widest, space.sizes[widest], k, scratch)
                if mark >= 0:
                    column = int(widest)
                    break
                widths[widest] = -1.0  # it has no cut: the next widest
        if column < 0:
            starts[finished] = start
            finished += 1
            continue
        middle = cut_part(codes, order, start, end, column, mark, alone, spare)
        # The first side is on top, so that parts are finished from the first to the last.
        stack[waiting, 0], stack[waiting, 1] = middle, end
        stack[waiting + 1, 0], stack[waiting + 1, 1] = start, middle
        waiting += 2
    return order, starts[: finished + 1].copy()


@njit(cache=True, nogil=True)
def _measure_loss(codes, numbers, start, end, space, seen, stamp):
    """Returns the loss of a class of these tuples, all columns together."""
    total = 0.0
    for column in range(codes.shape[1]):
        total += _measure_column(codes, numbers, start, end, column, space, seen, stamp)
    return total


@njit(cache=True, nogil=True)
def _find_order(codes, rows, half, space, seen, stamp):
    """The order of rows whose two halves lose least, by one column; none if all rows are equal."""
    best = np.inf
    chosen = np.empty(0, np.int64)
    own = np.empty(rows.size, np.int64)
    for column in range(codes.shape[1]):
        for place in range(rows.size):
            own[place] = codes[rows[place], column]
        if own.min() == own.max():
            continue
        ordered = rows[np.argsort(own, kind="mergesort")]
        score = half * _measure_loss(codes, ordered, 0, half, space, seen, stamp)
        score += (rows.size - half) * _measure_loss(codes, ordered, half, rows.size, space, seen, stamp)
        if score < best:
            best, chosen = score, ordered
    return chosen


@njit(cache=True, nogil=True)
def halve_parts(codes, rows, space, k):
    """Returns (the tuples of `rows` in a new order, where in it each class begins, and the last ends).

    Parts are halved where they lose least in `space`, while both halves keep `k` rows. `codes` are by tuple
    and column.
    """
    rows = rows.copy()
    seen, stamp = np.zeros(space.sizes.max(), np.int64), np.zeros(1, np.int64)
    stack = [(0, rows.size)]
    starts = [0]
    while len(stack) > 0:
        start, end = stack.pop()
        half = (end - start) // 2
        ordered = np.empty(0, np.int64)
        if half >= k:
            ordered = _find_order(codes, rows[start:end], half, space, seen, stamp)
        if ordered.size == 0:  # too few, or all equal: a class
            starts.append(end)
            continue
        rows[start:end] = ordered
        stack.append((start + half, end))
        stack.append((start, start + half))
    return rows, np.array(starts)
