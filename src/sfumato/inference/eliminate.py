"""Marginals over columns that no one clique holds, by passing them along the tree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.inference.axes import find_steps, marginalise, rearrange

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sfumato.inference.tree import Tree

Columns = tuple[str, ...]

_LARGEST = 2**27
_REMEMBERED = 2**15  # cells of a table that is kept for the next question
_LARGE = 2**20  # cells from which it pays to look for a better root


class Elimination:
    """Answers for one calibrated tree; what single columns pass on is remembered.

    Towards any root, a clique hands over p(separator, wanted columns beyond it). The receiver divides
    by p(separator), multiplies its own table and sums out what nobody needs any more.
    """

    def __init__(self, tree: Tree, table: Callable[[int], NDArray[np.float64]]) -> None:
        self._tree = tree
        self._table = table
        self._near: list[dict[int, Columns]] = [{} for _ in tree.cliques]
        self._component: dict[str, int] = {}
        components: list[int] = []
        for place, (parent, separator) in enumerate(zip(tree.parents, tree.separators, strict=True)):
            components.append(components[parent] if separator else place)
            self._component |= dict.fromkeys(tree.cliques[place], components[place])
            if separator:
                self._near[place][parent] = separator
                self._near[parent][place] = separator
        self._known: dict[tuple[int, int, Columns], tuple[Columns, NDArray[np.float64]]] = {}
        self._schedules: dict[
            tuple[int, int, Columns], tuple[Columns, list[tuple[int, Columns, set[str]]]]
        ] = {}
        self._sides: dict[tuple[int, int], set[str]] = {}
        self._projected: dict[tuple[int, Columns], NDArray[np.float64]] = {}

    def marginal(self, columns: Columns) -> NDArray[np.float64]:
        """The counts of `columns`, in the order of the domain, as a flat array."""
        groups: dict[int, list[str]] = {}
        for name in columns:
            groups.setdefault(self._component[name], []).append(name)
        names: Columns = ()
        values = np.ones(1)
        for group in groups.values():
            # What shares nothing is independent.
            part = self._connected(tuple(group))
            total = part.sum()
            values = np.multiply.outer(values, part / total if names else part).reshape(-1)
            names += tuple(group)
        return rearrange(values, names, columns, self._tree.domain.shape(names))

    def _connected(self, columns: Columns) -> NDArray[np.float64]:
        """The same for columns of one component."""
        wanted = set(columns)
        cliques = self._tree.cliques
        best = max(len(wanted & set(clique)) for clique in cliques)
        roots = [place for place, clique in enumerate(cliques) if len(wanted & set(clique)) == best]
        root = min(roots, key=lambda place: (self._distance(place, wanted), place))
        if self._peak(root, -1, columns) > _LARGE:
            component = self._component[columns[0]]
            inside = [
                place for place in range(len(cliques)) if self._component[cliques[place][0]] == component
            ]
            root = min(inside, key=lambda place: (self._peak(place, -1, columns), place))
        names, values = self._collect(root, -1, columns)
        return rearrange(values, names, columns, self._tree.domain.shape(names))

    def _distance(self, root: int, wanted: set[str]) -> int:
        """How many other cliques must speak when `root` collects."""
        return sum(
            1
            for place in self._near[root]
            if (wanted & self._beyond(place, root)) - set(self._tree.cliques[root])
        )

    def _beyond(self, place: int, sender: int) -> set[str]:
        """The columns on the far side of the edge from `sender` to `place`."""
        if (place, sender) not in self._sides:
            found = set(self._tree.cliques[place])
            for other in self._near[place]:
                if other != sender:
                    found |= self._beyond(other, place)
            self._sides[place, sender] = found
        return self._sides[place, sender]

    def _collect(self, place: int, towards: int, wanted: Columns) -> tuple[Columns, NDArray[np.float64]]:
        """p(separator towards the asker, wanted columns from here on), as names and a flat array."""
        key = (place, towards, wanted)
        if key in self._known:
            return self._known[key]
        names, turns = self._schedule(place, towards, wanted)
        values = self._project(place, names)
        for other, there, needed in turns:
            below, table = self._collect(other, place, there)
            separator = self._near[place][other]
            names, values = self._join(names, values, below, table, separator, needed)
        if len(wanted) == 1 and towards >= 0 and values.size <= _REMEMBERED:
            self._known[key] = (names, values)
        return names, values

    def _schedule(
        self, place: int, towards: int, wanted: Columns
    ) -> tuple[Columns, list[tuple[int, Columns, set[str]]]]:
        """What a clique keeps of its own, and which neighbours speak in turn: of what, and what stays."""
        key = (place, towards, wanted)
        if key in self._schedules:
            return self._schedules[key]
        domain, own, near = self._tree.domain, set(self._tree.cliques[place]), self._near[place]
        final = set(near.get(towards, ())) | set(wanted)
        keep, left = final & own, set(wanted) - own
        asked: list[tuple[int, Columns]] = []
        for other, separator in near.items():
            there = () if other == towards else domain.order(left & self._beyond(other, place))
            if there:
                left -= set(there)
                asked.append((other, there))
                keep |= set(separator)
        names = kept = domain.order(keep)
        turns: list[tuple[int, Columns, set[str]]] = []
        while asked:
            # Whoever leaves the smallest table speaks first.
            options = []
            for which, (other, there) in enumerate(asked):
                needed = final.union(*(near[each] for each, _ in asked if each != other))
                after = (*(name for name in kept if name in needed or name not in near[other]), *there)
                options.append((domain.cells(after), which, after, needed))
            _, which, kept, needed = min(options, key=lambda option: option[:2])
            turns.append((*asked.pop(which), needed))
        self._schedules[key] = (names, turns)
        return names, turns

    def _peak(self, place: int, towards: int, wanted: Columns) -> int:
        """The cells of the largest table on the way when the clique at `place` collects."""
        domain = self._tree.domain
        names, turns = self._schedule(place, towards, wanted)
        peak = domain.cells(names)
        for other, there, needed in turns:
            names = (
                *(name for name in names if name in needed or name not in self._near[place][other]),
                *there,
            )
            peak = max(peak, domain.cells(names), self._peak(other, place, there))
        return peak

    def _project(self, place: int, names: Columns) -> NDArray[np.float64]:
        key = (place, names)
        if key in self._projected:
            return self._projected[key]
        steps = find_steps(self._tree.domain, self._tree.cliques[place], names)
        projected = marginalise(self._table(place), steps)
        if projected.size <= _REMEMBERED:
            self._projected[key] = projected
        return projected

    def _join(
        self,
        names: Columns,
        values: NDArray[np.float64],
        below: Columns,
        table: NDArray[np.float64],
        separator: Columns,
        needed: set[str],
    ) -> tuple[Columns, NDArray[np.float64]]:
        """Both tables joined over `separator`, of which only what is needed is kept."""
        domain = self._tree.domain
        batch = tuple(name for name in separator if name in needed)
        summed = tuple(name for name in separator if name not in needed)
        left = tuple(name for name in names if name not in separator)
        right = tuple(name for name in below if name not in separator)
        sizes = [math.prod(domain.shape(each)) for each in (batch, left, summed, right)]
        if sizes[0] * sizes[1] * sizes[3] > _LARGEST:
            raise RecipeError(f"the marginal over {' x '.join((*batch, *left, *right))} is too large")
        first = rearrange(values, names, (*batch, *left, *summed), domain.shape(names))
        second = rearrange(table, below, (*batch, *summed, *right), domain.shape(below))
        second = second.reshape(sizes[0], sizes[2], sizes[3])
        mass = second.sum(axis=2, keepdims=True)
        shares = np.divide(second, mass, out=np.zeros_like(second), where=mass > 0)
        product = np.matmul(first.reshape(sizes[0], sizes[1], sizes[2]), shares)
        return (*batch, *left, *right), product.reshape(-1)
