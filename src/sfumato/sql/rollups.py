"""Grouping sets: which of them are measured, and how all of them follow, consistent with each other.

A grouping set is a tuple of numbers of keys. Records are counted once, by all keys; a level of noise is
added to sums of these counts. What is not measured is added up, and what is measured several times is
combined by weighted least squares, so that the groups of a finer set always add up to those of a coarser one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.errors import refuse

GroupingSet = tuple[int, ...]
Values = NDArray[Any]

_MOST_KEYS = 6
_MOST_SETS = 64
_NESTED = (exp.Rollup, exp.Cube, exp.GroupingSets)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingSets:
    """The sets that are answered, in the order of their rows, and the levels that are measured.

    `sizes` has the number of labels of every key.
    """

    sizes: tuple[int, ...]
    answered: tuple[GroupingSet, ...]
    levels: tuple[GroupingSet, ...]

    def cells(self, each: GroupingSet) -> int:
        """The number of groups of a set."""
        return math.prod(self.sizes[key] for key in each)

    @property
    def rows(self) -> int:
        """The number of rows of the answer."""
        return sum(map(self.cells, self.answered))

    @property
    def is_chain(self) -> bool:
        """Whether every answered set is a part of the next larger one, as in ROLLUP."""
        ordered = sorted(map(set, self.answered), key=len)
        return all(one <= other for one, other in pairwise(ordered))

    @property
    def is_fitted(self) -> bool:
        """Whether answers come out of a fit as fractions, not of sums of whole numbers."""
        return len(self.levels) > 1 and not self.is_chain

    def describe(self) -> str:
        """What is answered and measured, in one line."""
        plain = [f"({', '.join(str(key + 1) for key in each)})" for each in self.answered]
        measured = [f"({', '.join(str(key + 1) for key in each)})" for each in self.levels]
        return f"{' '.join(plain)} from {' '.join(measured)}"


def list_leaves(group: exp.Group) -> list[exp.Expr]:
    """The expressions of GROUP BY, those inside ROLLUP, CUBE and GROUPING SETS too."""
    leaves: list[exp.Expr] = []
    for item in group.expressions:
        leaves += _leaves(item)
    return leaves


def has_sets(group: exp.Group) -> bool:
    """Whether a GROUP BY asks for several groupings."""
    return any(isinstance(item, _NESTED) for item in group.expressions)


def read_sets(group: exp.Group, numbers: dict[int, int]) -> tuple[GroupingSet, ...]:
    """The grouping sets that GROUP BY stands for; `numbers` has the key that each leaf stands for, by its id.

    Several items of GROUP BY multiply: each set of one is joined with each of the others.
    """

    def names(node: exp.Expr) -> GroupingSet:
        return tuple(numbers[id(leaf)] for leaf in _leaves(node))

    def expand(item: exp.Expr) -> list[GroupingSet]:
        if not isinstance(item, _NESTED):
            return [names(item)]
        parts = [names(each) for each in item.expressions if not isinstance(each, _NESTED)]
        if isinstance(item, exp.GroupingSets):
            inner = (expand(each) for each in item.expressions)
            return list(chain.from_iterable(inner))
        if isinstance(item, exp.Rollup):
            return [_join(parts[:stop]) for stop in range(len(parts), -1, -1)]
        if len(parts) > _MOST_KEYS:
            raise refuse(f"CUBE of more than {_MOST_KEYS} columns; list the GROUPING SETS that are needed")
        return [_join(some) for size in range(len(parts), -1, -1) for some in combinations(parts, size)]

    sets = [_join(some) for some in product(*map(expand, group.expressions))]
    if len(sets) > _MOST_SETS:
        raise refuse(f"{len(sets):,} grouping sets, more than {_MOST_SETS}; ask for fewer")
    return tuple(sets)


def choose_levels(
    sizes: tuple[int, ...], answered: tuple[GroupingSet, ...], *, deviation: dict[int, float]
) -> GroupingSets:
    """The levels that promise the least error: all sets, or all keys together and everything added up.

    `deviation` has the standard deviation of a count for each number of levels that share epsilon. The
    error of a plan is the sum over all sets of the deviation of one of their groups.
    """
    finest = tuple(range(len(sizes)))
    plans = [
        GroupingSets(sizes=sizes, answered=answered, levels=levels)
        for levels in ((finest,), tuple(dict.fromkeys(answered)))
    ]

    def error(sets: GroupingSets) -> float:
        variance = deviation[len(sets.levels)] ** 2
        return sum(math.sqrt(variance * spread_of(sets, each)) for each in answered)

    return min(plans, key=error)


def spread_of(sets: GroupingSets, answered: GroupingSet) -> float:
    """The variance of a group of an answered set, where one measured group has variance 1."""
    total = 0.0
    for part in _parts(answered):
        weight = sum(_weights(sets, part))
        share = math.prod(1 - 1 / sets.sizes[key] for key in part)
        total += share / weight / sets.cells(_without(answered, part)) ** 2
    return total


def combine_levels(noisy_values: NDArray[np.int64], sets: GroupingSets) -> list[Values]:
    """For each answered set the values of its groups, by least squares over all measured levels.

    A table of counts is a sum of parts, one for each subset of the keys, that are orthogonal: the part of
    a subset is what its marginal says beyond smaller ones. Every level that holds the subset measures that
    part, with independent noise of a known size, and their weighted mean is the best estimate.
    """
    measured, start = {}, 0
    for level in sets.levels:
        measured[level] = noisy_values[start : start + sets.cells(level)]
        start += sets.cells(level)
    if len(sets.levels) == 1:
        return [_marginal(noisy_values, sets, each, held=sets.levels[0]) for each in sets.answered]
    parts: dict[GroupingSet, NDArray[np.float64]] = {}
    for part in dict.fromkeys(part for each in sets.answered for part in _parts(each)):
        weights = _weights(sets, part)
        total = np.zeros([sets.sizes[key] for key in part])
        for weight, (level, values) in zip(weights, measured.items(), strict=True):
            if weight:
                total += weight / sum(weights) * _beyond(values, sets, level, part)
        parts[part] = total
    found = [_rebuild(parts, sets, each).reshape(-1) for each in sets.answered]
    return list(_round_chain(found, sets)) if sets.is_chain else list(found)


def _leaves(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Paren):
        return _leaves(node.this)
    if isinstance(node, (*_NESTED, exp.Tuple)):
        return [leaf for each in node.expressions for leaf in _leaves(each)]
    return [node]


def _join(some: Sequence[GroupingSet]) -> GroupingSet:
    return tuple(sorted({key for each in some for key in each}))


def _parts(each: GroupingSet) -> list[GroupingSet]:
    return [part for size in range(len(each) + 1) for part in combinations(each, size)]


def _without(each: GroupingSet, part: GroupingSet) -> GroupingSet:
    return tuple(key for key in each if key not in part)


def _weights(sets: GroupingSets, part: GroupingSet) -> list[float]:
    """How well each level knows a part: the inverse of the variance that adding up to it leaves."""
    return [
        1 / sets.cells(_without(level, part)) if set(part) <= set(level) else 0.0 for level in sets.levels
    ]


def _marginal(
    values: Values, sets: GroupingSets, wanted: GroupingSet, *, held: GroupingSet | None = None
) -> Values:
    """Values by the keys `held` (all of them by default), added up to those `wanted`."""
    keys = tuple(range(len(sets.sizes))) if held is None else held
    table = values.reshape([sets.sizes[key] for key in keys])
    axes = tuple(place for place, key in enumerate(keys) if key not in wanted)
    added: Values = table.sum(axis=axes).reshape(-1)
    return added


def _beyond(
    values: NDArray[np.int64], sets: GroupingSets, level: GroupingSet, part: GroupingSet
) -> NDArray[np.float64]:
    """What a level says of a part: its marginal, less the mean along every axis."""
    table = _marginal(values, sets, part, held=level).astype(float).reshape([sets.sizes[key] for key in part])
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def _rebuild(
    parts: dict[GroupingSet, NDArray[np.float64]], sets: GroupingSets, wanted: GroupingSet
) -> NDArray[np.float64]:
    """The marginal of a set from all its parts, each spread evenly over the keys that it has not."""
    table = np.zeros([sets.sizes[key] for key in wanted])
    for part in _parts(wanted):
        shape = [sets.sizes[key] if key in part else 1 for key in wanted]
        table = table + parts[part].reshape(shape) / sets.cells(_without(wanted, part))
    return table


def _round_chain(found: list[NDArray[np.float64]], sets: GroupingSets) -> list[NDArray[np.int64]]:
    """Whole numbers, from the coarsest set on: every group is divided among its own by largest remainders."""
    order = sorted(range(len(found)), key=lambda place: len(sets.answered[place]))
    rounded: dict[int, NDArray[np.int64]] = {}
    above: tuple[GroupingSet, NDArray[np.int64]] | None = None
    for place in order:
        keys = sets.answered[place]
        if above is None:
            rounded[place] = np.rint(found[place]).astype(np.int64)
        else:
            outer = above[0]
            axes = [keys.index(key) for key in (*outer, *_without(keys, outer))]
            table = found[place].reshape([sets.sizes[key] for key in keys]).transpose(axes)
            whole = _divide(table.reshape(above[1].size, -1), above[1]).reshape(table.shape)
            rounded[place] = whole.transpose(np.argsort(axes)).reshape(-1)
        above = keys, rounded[place]
    return [rounded[place] for place in range(len(found))]


def _divide(values: NDArray[np.float64], totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Every row rounded up or down so that it adds up to its total; the largest remainders are rounded up."""
    low = np.floor(values)
    missing = totals - low.sum(axis=1).astype(np.int64)
    ranks = np.argsort(np.argsort(low - values, axis=1, kind="stable"), axis=1, kind="stable")
    # The total of a row was rounded itself, so that it may ask for less than nothing or more than one each.
    base = np.floor_divide(missing, values.shape[1])
    rest = missing - base * values.shape[1]
    more = base[:, None] + (ranks < rest[:, None])
    return np.asarray(low.astype(np.int64) + more, np.int64)
