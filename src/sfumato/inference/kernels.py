"""Loops over cells, compiled once and kept on disk.

A clique's table is a flat array in row-major order. Marginalising keeps some axes and sums the others;
neighbouring axes of one kind are merged, so that every pattern is (keep, sum) up to three times. The loops
over patterns treat a last sum over one cell apart: then cells lie side by side, and the loop is vectorised,
which makes it twice as fast. For the same reason adding and multiplying are two kernels and not one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.tables.arrays import Floats

Columns = tuple[str, ...]
Pattern = tuple[int, int, int, int, int, int]
"""The sizes of axes, alternately kept and summed: one kernel call from a table to a marginal, or back."""

_PAIRS = 3


def find_steps(sizes: Mapping[str, int], columns: Columns, kept: Columns) -> tuple[Pattern, ...]:
    """Return the kernel calls from a table over `columns` to its marginal over `kept`, in the same order."""
    return _steps(tuple(sizes[name] for name in columns), tuple(name in kept for name in columns))


def marginalise(table: Floats, steps: tuple[Pattern, ...], out: Floats | None = None) -> Floats:
    """Return the marginal of the flat `table`."""
    for place, pattern in enumerate(steps):
        final = place == len(steps) - 1
        target = out if final and out is not None else np.empty(_kept_cells(pattern))
        sum_out(table, pattern, target)
        table = target
    return table


def spread(small: Floats, steps: tuple[Pattern, ...], table: Floats) -> None:
    """Adds the marginal `small` to every cell of `table` that it covers."""
    add_over(_widen(small, steps), steps[0], table)


def multiply(small: Floats, steps: tuple[Pattern, ...], table: Floats) -> None:
    """Multiplies every cell of `table` by its entry of the marginal `small`."""
    multiply_over(_widen(small, steps), steps[0], table)


def rearrange(values: NDArray[Any], names: Columns, order: Columns, shape: tuple[int, ...]) -> NDArray[Any]:
    """The flat table `values` of columns `names`, of this `shape`, with the columns in the order `order`."""
    if names == order:
        return values
    axes = [names.index(name) for name in order]
    return np.ascontiguousarray(values.reshape(shape).transpose(axes)).reshape(-1)


def _widen(small: Floats, steps: tuple[Pattern, ...]) -> Floats:
    """Return the marginal `small`, spread back to what the first of `steps` gives."""
    for place in range(len(steps) - 1, 0, -1):
        wider = np.zeros(_kept_cells(steps[place - 1]))
        add_over(small, steps[place], wider)
        small = wider
    return small


def _kept_cells(pattern: Pattern) -> int:
    return pattern[0] * pattern[2] * pattern[4]


@lru_cache(maxsize=65536)
def _steps(shape: tuple[int, ...], kept: tuple[bool, ...]) -> tuple[Pattern, ...]:
    """Return the kernel calls for a table of this `shape`; `kept` says which axes are not summed."""
    groups: list[list[int]] = []  # alternately kept and summed, beginning with kept
    for size, keep in zip(shape, kept, strict=True):
        if size == 1:  # it makes no difference whether it is summed
            continue
        side = 0 if keep else 1
        if not groups:
            groups = [[1], [1]][: side + 1]
            groups[-1][0] = size
        elif (len(groups) - 1) % 2 == side:
            groups[-1][0] *= size
        else:
            groups.append([size])
    sizes = [group[0] for group in groups]
    if len(sizes) % 2:
        sizes.append(1)
    if len(sizes) <= 2 * _PAIRS:
        padded = [1] * (2 * _PAIRS - len(sizes)) + sizes
        return ((padded[0], padded[1], padded[2], padded[3], padded[4], padded[5]),)
    # Too many turns for one call: the last summed axes go first, then the rest.
    last = next(place for place in range(len(shape) - 1, -1, -1) if not kept[place] and shape[place] > 1)
    first = last
    while first > 0 and (not kept[first - 1] or shape[first - 1] == 1):
        first -= 1
    mask = tuple(not first <= place <= last for place in range(len(shape)))
    rest = tuple(place for place in range(len(shape)) if mask[place])
    return (
        *_steps(shape, mask),
        *_steps(tuple(shape[place] for place in rest), tuple(kept[place] for place in rest)),
    )


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return function, compiled when it is first called: numba takes longer to import than most commands."""
    compiled: Callable[..., Any] | None = None

    @wraps(function)
    def call(*arguments: Any) -> Any:  # noqa: ANN401 - whatever the kernel takes and gives
        nonlocal compiled
        if compiled is None:
            import numba

            # Sums may be reordered, so that loops are vectorised; what is not finite keeps its meaning.
            relaxed = {"reassoc", "contract", "nsz"}
            compiled = numba.njit(cache=True, nogil=True, fastmath=relaxed)(function)
        return compiled(*arguments)

    return call


@_compile
def sum_out(table, pattern, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Sets `out` to the sums of `table` over the summed axes of `pattern`."""
    k0, s0, k1, s1, k2, s2 = pattern
    out[:] = 0.0
    place = 0
    for a in range(k0):
        for _ in range(s0):
            for b in range(k1):
                start = (a * k1 + b) * k2
                for _ in range(s1):
                    if s2 == 1:  # cells lie side by side: one loop that is vectorised
                        for c in range(k2):
                            out[start + c] += table[place + c]
                        place += k2
                    else:
                        for c in range(k2):
                            total = 0.0  # in a register, not in memory
                            for d in range(s2):
                                total += table[place + d]
                            out[start + c] += total
                            place += s2


def _combine(*, multiplies: bool) -> Callable[..., Any]:
    """Return a kernel that adds `small` to `table` along the kept axes of `pattern`, or multiplies it."""

    def over(small, pattern, table):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        k0, s0, k1, s1, k2, s2 = pattern
        place = 0
        for a in range(k0):
            for _ in range(s0):
                for b in range(k1):
                    start = (a * k1 + b) * k2
                    for _ in range(s1):
                        if s2 == 1 and multiplies:
                            for c in range(k2):
                                table[place + c] *= small[start + c]
                            place += k2
                        elif s2 == 1:
                            for c in range(k2):
                                table[place + c] += small[start + c]
                            place += k2
                        else:
                            for c in range(k2):
                                value = small[start + c]
                                for d in range(s2):
                                    if multiplies:
                                        table[place + d] *= value
                                    else:
                                        table[place + d] += value
                                place += s2

    return _compile(over)


add_over, multiply_over = _combine(multiplies=False), _combine(multiplies=True)


@_compile
def weigh(answers, values, variances, weighted):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Half the weighted squared distance; `weighted` is set to the differences over their variances."""
    total = 0.0
    for place in range(answers.size):
        off = answers[place] - values[place]
        scaled = off / variances[place]
        weighted[place] = scaled
        total += off * scaled
    return 0.5 * total


@_compile
def advance(at, weighted, size, before, momentum, stepped, trial):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return a step of `size` from `at` along `weighted` into `stepped`, and beyond it into `trial`.

    How far beyond is `momentum` times the way from `before`, where the last step ended.
    """
    for place in range(at.size):
        value = at[place] - size * weighted[place]
        stepped[place] = value
        trial[place] = value + momentum * (value - before[place])


@_compile
def eliminate(adjacency, sizes, rule, cliques, maximal):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Return the cells of the maximal cliques of a greedy elimination of columns of these `sizes`.

    `adjacency` says which columns stand in one measurement.
    Row i of `cliques` is set to the clique of the i-th column that is eliminated, `maximal` to which of
    them no other holds. Rule 0 eliminates the column with the smallest clique first, rule 1 the one with
    the fewest new edges, rule 2 the one whose new edges weigh least.
    """
    count = sizes.size
    near = adjacency.copy()
    left = np.ones(count, np.bool_)
    cliques[:] = False
    maximal[:] = True
    total = 0.0
    for step in range(count):
        best = -1
        best_cost = np.inf
        best_tie = np.inf
        for v in range(count):
            if not left[v]:
                continue
            cells = sizes[v]
            for u in range(count):
                if near[v, u]:
                    cells *= sizes[u]  # in floats: of a wide table it is beyond any whole number
            cost = 0.0
            if rule == 0:
                cost = cells
            else:
                for u in range(count):
                    if near[v, u]:
                        for w in range(u + 1, count):
                            if near[v, w] and not near[u, w]:
                                cost += 1.0 if rule == 1 else sizes[u] * sizes[w]
            if cost < best_cost or (cost == best_cost and cells < best_tie):
                best, best_cost, best_tie = v, cost, cells
        left[best] = False
        for u in range(count):
            if near[best, u]:
                cliques[step, u] = True
                for w in range(count):
                    if near[best, w] and u != w:
                        near[u, w] = True
        cliques[step, best] = True
        # Only an earlier clique can hold this one: later ones lack the column that is eliminated here.
        for earlier in range(step):
            inside = True
            for u in range(count):
                if cliques[step, u] and not cliques[earlier, u]:
                    inside = False
                    break
            if inside:
                maximal[step] = False
                break
        if maximal[step]:
            total += best_tie
        for u in range(count):
            near[u, best] = False
            near[best, u] = False
    return total


@_compile
def apply_rows(starts, members, weights, table, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Sets `out` to the answers of sparse queries over `table`.

    Query i has the cells `members` with `weights`, from starts[i] up to starts[i + 1].
    """
    for row in range(starts.size - 1):
        total = 0.0
        for place in range(starts[row], starts[row + 1]):
            total += weights[place] * table[members[place]]
        out[row] = total


@_compile
def spread_rows(starts, members, weights, answers, table):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Adds to `table` each of `answers` along its query; `starts`, `members` and `weights` as above."""
    for row in range(starts.size - 1):
        value = answers[row]
        for place in range(starts[row], starts[row + 1]):
            table[members[place]] += weights[place] * value


@_compile
def draw_counts(prior, noise, sums, levels, places, uniforms, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Draws an index x for every cell, with weight prior[level, x] * noise[place, x] of their `sums`."""
    last = prior.shape[1] - 1
    for cell in range(levels.size):
        level, place = levels[cell], places[cell]
        left = uniforms[cell] * sums[level, place]
        x = 0
        while x < last:  # rounding may leave some weight beyond the last index, which is that index then
            left -= prior[level, x] * noise[place, x]
            if left <= 0.0:
                break
            x += 1
        out[cell] = x


@_compile
def draw_components(prior, table, weights, steps, levels, found, uniforms, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Draws the component k of the prior behind x: with weight weights[k] * table[level + steps[k], x]."""
    for cell in range(levels.size):
        level, x = levels[cell], found[cell]
        left = uniforms[cell] * prior[level, x]
        k = 0
        while k < steps.size:
            left -= weights[k] * table[level + steps[k], x]
            if left <= 0.0:
                break
            k += 1
        out[cell] = k
