"""Top-down cuts: a part of the tuples is cut in two wherever both sides are large enough.

A space is what the codes of all columns mean, as flat arrays: kinds, sizes, where a column begins in
`places`, places, where it begins in `nodes` and `losses`, nodes, losses, units. A column's share of the
loss is its loss, from 0 to 1, times its unit.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202
from __future__ import annotations

import numpy as np
from numba import njit

NUMBER, CATEGORY, TREE = 0, 1, 2
_LOOKED_AT = 256  # tuples of a part that decide where it is cut
_MOST_SINGLES = 64  # one value against the rest is tried for columns with at most so many values


@njit(cache=True, nogil=True)
def _list_present(codes, order, start, end, column, size, present, rank):
    """The number of different codes in the part; sets `present` to them and `rank` to their places."""
    count = 0
    for place in range(start, end):
        code = codes[order[place], column]
        if rank[code] == 0:
            rank[code] = 1
            present[count] = code
            count += 1
    if size > 8 * count:
        present[:count] = np.sort(present[:count])
    else:
        count = 0
        for code in range(size):
            if rank[code]:
                present[count] = code
                count += 1
    for place in range(count):
        rank[present[place]] = place
    return count


@njit(cache=True, nogil=True)
def _clear_present(present, count, rank):
    for place in range(count):
        rank[present[place]] = 0


@njit(cache=True, nogil=True)
def _add_number(codes, order, start, end, step, ranks, column, other, count, places, offset, unit, out):
    """Adds what a numeric column loses on either side of every cut of another column."""
    low, high, left, right, inside, rest = out[4], out[5], out[0], out[1], out[2], out[3]
    for place in range(count):
        low[place] = 9.0
        high[place] = -9.0
    for place in range(start, end, step):
        number = order[place]
        at = ranks[codes[number, column]]
        where = places[offset + codes[number, other]]
        low[at] = min(low[at], where)
        high[at] = max(high[at], where)
    for place in range(count):
        inside[place] += unit * min(1.0, max(0.0, high[place] - low[place]))
    least, most = 9.0, -9.0
    for place in range(count):
        before_least, before_most = least, most
        least = min(least, low[place])
        most = max(most, high[place])
        left[place] += unit * min(1.0, max(0.0, most - least))
        out[6][place] = before_least
        out[7][place] = before_most
    least, most = 9.0, -9.0
    for place in range(count - 1, -1, -1):
        right[place] += unit * min(1.0, max(0.0, most - least))
        all_least = min(least, out[6][place])
        all_most = max(most, out[7][place])
        rest[place] += unit * min(1.0, max(0.0, all_most - all_least))
        least = min(least, low[place])
        most = max(most, high[place])


@njit(cache=True, nogil=True)
def _add_category(codes, order, start, end, step, ranks, column, other, count, seen, stamp, unit, out):
    """Adds what a set-valued column loses on either side of every cut of another column.

    A value is on the left of every cut after the first place that has it, and on the right of every cut
    before the last one.
    """
    left, right, inside, rest, begins, ends, only = out[0], out[1], out[2], out[3], out[4], out[5], out[6]
    first, last = out[8], out[9]
    for place in range(count):
        begins[place] = 0.0
        ends[place] = 0.0
        only[place] = 0.0
    for place in range(start, end, step):
        code = codes[order[place], other]
        first[code] = count
        last[code] = -1.0
    singles = count <= _MOST_SINGLES
    for place in range(start, end, step):
        number = order[place]
        at = ranks[codes[number, column]]
        code = codes[number, other]
        first[code] = min(first[code], at)
        last[code] = max(last[code], at)
        if singles and seen[at, code] != stamp:
            seen[at, code] = stamp
            inside[at] += unit
    different = 0
    for place in range(start, end, step):
        code = codes[order[place], other]
        if last[code] >= 0:
            different += 1
            begins[int(first[code])] += 1
            ends[int(last[code])] += 1
            if first[code] == last[code]:
                only[int(first[code])] += 1
            last[code] = -1.0
    so_far, gone = 0.0, 0.0
    for place in range(count):
        so_far += begins[place]
        gone += ends[place]
        left[place] += unit * (so_far - 1)
        right[place] += unit * (different - gone - 1)
        inside[place] -= unit
        rest[place] += unit * (different - only[place] - 1)


@njit(cache=True, nogil=True)
def join_nodes(nodes, offset, size, first, level, second, other):
    """The level at which two nodes, each a code and a level, are one."""
    level = max(level, other)
    while nodes[offset + level * size + first] != nodes[offset + level * size + second]:
        level += 1
    return level


@njit(cache=True, nogil=True)
def _add_tree(
    codes, order, start, end, step, ranks, column, other, count, nodes, losses, offset, size, unit, out, held
):
    """Adds what a column with a hierarchy loses on either side of every cut of another column."""
    left, right, inside, rest = out[0], out[1], out[2], out[3]
    code_at, level_at, code_before, level_before = held[0], held[1], held[2], held[3]
    for place in range(count):
        code_at[place] = -1
        level_at[place] = 0
    for place in range(start, end, step):
        number = order[place]
        at = ranks[codes[number, column]]
        code = codes[number, other]
        if code_at[at] < 0:
            code_at[at] = code
        else:
            level_at[at] = join_nodes(nodes, offset, size, code_at[at], level_at[at], code, 0)
    code, level = -1, 0
    for place in range(count):
        code_before[place] = code
        level_before[place] = level
        if code_at[place] >= 0:
            inside[place] += unit * losses[offset + level_at[place] * size + code_at[place]]
            if code < 0:
                code, level = code_at[place], level_at[place]
            else:
                level = join_nodes(nodes, offset, size, code, level, code_at[place], level_at[place])
        if code >= 0:
            left[place] += unit * losses[offset + level * size + code]
    code, level = -1, 0
    for place in range(count - 1, -1, -1):
        if code >= 0:
            right[place] += unit * losses[offset + level * size + code]
        both, at = code_before[place], level_before[place]
        if code >= 0:
            at = join_nodes(nodes, offset, size, code, level, both, at) if both >= 0 else level
            both = code
        if both >= 0:
            rest[place] += unit * losses[offset + at * size + both]
        if code_at[place] < 0:
            continue
        if code < 0:
            code, level = code_at[place], level_at[place]
        else:
            level = join_nodes(nodes, offset, size, code, level, code_at[place], level_at[place])


@njit(cache=True, nogil=True)
def score_cuts(codes, people, rows, space, order, start, end, k, looked_at, scratch, found):
    """The number of feasible cuts of a part; sets `found` to their scores, columns, codes and kinds.

    A score is the loss of both sides in records; that of a large part is estimated from `looked_at` of
    its tuples or a few more, spread over it. A cut of kind 0 keeps the codes up to its own on one side,
    one of kind 1 its own code alone.
    """
    kinds, sizes, offsets, places, tree_offsets, nodes, losses, units = space
    out, held, present, ranks, seen, stamps, people_at, rows_at = scratch
    scores, columns, marks, singles = found
    everybody = 0
    every_row = 0
    for place in range(start, end):
        everybody += people[order[place]]
        every_row += rows[order[place]]
    cuts = 0
    if everybody < 2 * k:
        return 0
    step = 1 + (end - start) // looked_at
    for column in range(codes.shape[1]):
        size = sizes[column]
        count = _list_present(codes, order, start, end, column, size, present, ranks)
        for place in range(count):
            people_at[place] = 0
            rows_at[place] = 0
        for place in range(start, end):
            at = ranks[codes[order[place], column]]
            people_at[at] += people[order[place]]
            rows_at[at] += rows[order[place]]
        feasible = False
        so_far = 0
        one_of_many = kinds[column] == CATEGORY and 3 <= count <= _MOST_SINGLES
        for place in range(count - 1):
            so_far += people_at[place]
            if so_far >= k and everybody - so_far >= k:
                feasible = True
        if one_of_many:
            for place in range(count):
                if people_at[place] >= k and everybody - people_at[place] >= k:
                    feasible = True
        if feasible:
            for place in range(count):
                for part in range(4):
                    out[part][place] = 0.0
            for other in range(codes.shape[1]):
                if kinds[other] == NUMBER:
                    _add_number(
                        codes, order, start, end, step, ranks, column, other, count, places, offsets[other],
                        units[other], out,
                    )  # fmt: skip
                elif kinds[other] == CATEGORY:
                    stamps[0] += 1
                    _add_category(
                        codes, order, start, end, step, ranks, column, other, count, seen,
                        stamps[0], units[other] / (sizes[other] - 1), out,
                    )  # fmt: skip
                else:
                    _add_tree(
                        codes, order, start, end, step, ranks, column, other, count, nodes, losses,
                        tree_offsets[other], sizes[other], units[other], out, held,
                    )  # fmt: skip
            so_far, rows_so_far = 0, 0
            for place in range(count - 1):
                so_far += people_at[place]
                rows_so_far += rows_at[place]
                if so_far >= k and everybody - so_far >= k:
                    scores[cuts] = out[0][place] * rows_so_far + out[1][place] * (every_row - rows_so_far)
                    columns[cuts] = column
                    marks[cuts] = present[place]
                    singles[cuts] = 0
                    cuts += 1
            if one_of_many:
                for place in range(count):
                    if people_at[place] >= k and everybody - people_at[place] >= k:
                        alone = out[2][place] * rows_at[place]
                        scores[cuts] = alone + out[3][place] * (every_row - rows_at[place])
                        columns[cuts] = column
                        marks[cuts] = present[place]
                        singles[cuts] = 1
                        cuts += 1
        _clear_present(present, count, ranks)
    return cuts


@njit(cache=True, nogil=True)
def cut_part(codes, order, start, end, column, mark, single, held):
    """Where the second side begins, after moving the tuples of the first to the front."""
    middle = start
    moved = 0
    for place in range(start, end):
        number = order[place]
        code = codes[number, column]
        if code == mark or (not single and code < mark):
            order[middle] = number
            middle += 1
        else:
            held[moved] = number
            moved += 1
    for place in range(moved):
        order[middle + place] = held[place]
    return middle


@njit(cache=True, nogil=True)
def _find_middle(codes, people, order, start, end, column, size, k, present, ranks, weights):
    """The code after which a cut of a column is feasible and nearest to the median; -1 if none is."""
    count = _list_present(codes, order, start, end, column, size, present, ranks)
    for place in range(count):
        weights[place] = 0
    everybody = 0
    for place in range(start, end):
        weights[ranks[codes[order[place], column]]] += people[order[place]]
        everybody += people[order[place]]
    best, found, so_far = everybody + 1, -1, 0
    for place in range(count):
        so_far += weights[place]
        if so_far >= k and everybody - so_far >= k and abs(2 * so_far - everybody) < best:
            best = abs(2 * so_far - everybody)
            found = present[place]
    _clear_present(present, count, ranks)
    return found


@njit(cache=True, nogil=True)
def _measure_width(codes, order, start, end, column, space, present, ranks):
    """The loss of a column over the whole part, times its unit."""
    kinds, sizes, offsets, places, tree_offsets, nodes, losses, units = space
    if kinds[column] == CATEGORY:
        count = _list_present(codes, order, start, end, column, sizes[column], present, ranks)
        _clear_present(present, count, ranks)
        return units[column] * (count - 1) / (sizes[column] - 1)
    first = codes[order[start], column]
    low, high, level = first, first, 0
    for place in range(start, end):
        code = codes[order[place], column]
        low = min(low, code)
        high = max(high, code)
        if kinds[column] == TREE:
            level = join_nodes(nodes, tree_offsets[column], sizes[column], first, level, code, 0)
    if kinds[column] == TREE:
        return units[column] * losses[tree_offsets[column] + level * sizes[column] + first]
    return units[column] * min(1.0, places[offsets[column] + high] - places[offsets[column] + low])


@njit(cache=True, nogil=True)
def cut_tuples(codes, people, rows, space, k, lowest, scratch, found):
    """(an order of the tuples, where each part begins in it), cut until no cut is feasible.

    With `lowest` the cut with the lowest loss is taken, else the one nearest to the median of the widest
    column that has one.
    """
    n, q = codes.shape
    order = np.arange(n)
    held = np.empty(n, np.int64)
    present, ranks, people_at = scratch[2], scratch[3], scratch[6]
    widths = np.empty(q)
    stack = np.empty((n + 1, 2), np.int64)
    stack[0, 0], stack[0, 1] = 0, n
    waiting = 1
    starts = np.empty(n, np.int64)
    finished = 0
    while waiting:
        waiting -= 1
        start, end = stack[waiting, 0], stack[waiting, 1]
        column, mark, single = -1, -1, 0
        if lowest:
            cuts = score_cuts(codes, people, rows, space, order, start, end, k, _LOOKED_AT, scratch, found)
            best = np.inf
            for cut in range(cuts):
                if found[0][cut] < best:
                    best = found[0][cut]
                    column, mark, single = found[1][cut], found[2][cut], found[3][cut]
        else:
            for each in range(q):
                widths[each] = _measure_width(codes, order, start, end, each, space, present, ranks)
            for _ in range(q):
                widest = np.argmax(widths)
                if widths[widest] <= 0.0:
                    break
                mark = _find_middle(
                    codes, people, order, start, end, widest, space[1][widest], k, present, ranks, people_at
                )
                if mark >= 0:
                    column = int(widest)
                    break
                widths[widest] = -1.0
        if column < 0:
            starts[finished] = start
            finished += 1
            continue
        middle = cut_part(codes, order, start, end, column, mark, single, held)
        stack[waiting, 0], stack[waiting, 1] = middle, end
        stack[waiting + 1, 0], stack[waiting + 1, 1] = start, middle
        waiting += 2
    return order, starts[:finished].copy()
