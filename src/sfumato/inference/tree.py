"""Junction trees: the cliques in which a model is exact, joined by what they share.

`build_tree` finds the cliques by greedy elimination (Koller and Friedman 2009, chapter 9), `Beliefs` computes
the marginals of all cliques from their potentials by one pass up and one pass down the tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.errors import NoMass, RecipeError
from sfumato.inference.kernels import eliminate, find_steps, marginalise, multiply, spread
from sfumato.tables.arrays import Flags, Floats

if TYPE_CHECKING:
    from sfumato.inference.domain import Columns, Domain

_RULES = (0, 1, 2)  # of greedy elimination, as `eliminate` numbers them
_LEAST = -60.0  # a cell this far below its clique's largest is as good as empty, and products stay finite
_TINY = 1e-250  # in place of nothing, whose logarithm would not add up


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Cliques in an order in which every clique comes after its parent.

    `parents[i]` is the place of clique i's parent, -1 for the first of all; `separators[i]` is what
    the two share, possibly nothing. All columns are in the order of the domain.
    """

    domain: Domain
    cliques: tuple[Columns, ...]
    parents: tuple[int, ...]
    separators: tuple[Columns, ...]
    holding: dict[str, list[int]] = field(init=False, compare=False, repr=False)
    """For every column, the places of the cliques that hold it."""

    def __post_init__(self) -> None:
        holding: dict[str, list[int]] = {}
        for place, clique in enumerate(self.cliques):
            for name in clique:
                holding.setdefault(name, []).append(place)
        object.__setattr__(self, "holding", holding)

    def connect(self) -> tuple[list[dict[int, Columns]], dict[str, int]]:
        """Return what every clique shares with others, by place, and the component of every column."""
        near: list[dict[int, Columns]] = [{} for _ in self.cliques]
        component: dict[str, int] = {}
        components: list[int] = []
        for place, (parent, separator) in enumerate(zip(self.parents, self.separators, strict=True)):
            components.append(components[parent] if separator else place)
            component |= dict.fromkeys(self.cliques[place], components[place])
            if separator:
                near[place][parent] = near[parent][place] = separator
        return near, component

    @property
    def cells(self) -> int:
        """Return the number of cells of all cliques."""
        return sum(self.domain.cells(clique) for clique in self.cliques)

    def home(self, columns: Iterable[str]) -> int | None:
        """Return the place of the smallest clique that holds `columns`, if one does."""
        first, *others = (self.holding[name] for name in columns)
        holding = [place for place in first if all(place in each for each in others)]
        return min(holding, key=lambda place: self.domain.cells(self.cliques[place]), default=None)


def build_tree(domain: Domain, marginals: Iterable[Columns], *, limit: int | None = None) -> Tree:
    """Return the smallest junction tree found whose cliques hold every one of `marginals`.

    Three rules of elimination are tried. A tree of more than `limit` cells is refused with its largest
    clique named and the marginal whose removal shrinks it most.
    """
    sets = sorted({frozenset(columns) for columns in marginals}, key=sorted)
    tree = _assemble(domain, sets)
    if limit is not None and tree.cells > limit:
        _refuse(domain, sets, tree, limit)
    return tree


def tree_cells(domain: Domain, marginals: Iterable[Columns]) -> int:
    """Return the number of cells of the tree that `marginals` need, without building it."""
    return int(min(_eliminate(domain, marginals)[0], 2.0**62))


class Growth:
    """How many cells a tree would have if one more marginal were in it; `build_tree` often finds fewer.

    Two columns of one component are joined by taking one of them along the path between their cliques:
    next to it only separators are needed. Columns that the tree does not connect become a clique. What
    joins several pairs at once within a component is eliminated anew.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.joined = {pair for clique in tree.cliques for pair in combinations(clique, 2)}
        self._near, self._component = tree.connect()
        self._base = tree.cells
        self._reached: dict[str, dict[str, int]] = {}
        self._eliminated: dict[tuple[Columns, ...], int] = {}

    def cells(self, columns: Columns) -> int:
        """Return the cells of the tree with `columns`, in the order of the domain, in one clique."""
        domain = self._tree.domain
        added = tuple(pair for pair in combinations(columns, 2) if pair not in self.joined)
        if not added:
            return self._base
        apart = all(self._component[left] != self._component[right] for left, right in added)
        if apart:
            return self._base + domain.cells(columns)
        if len(added) == 1:
            ((left, right),) = added
            return self._base + min(self._reach(left)[right], self._reach(right)[left])
        if added not in self._eliminated:
            self._eliminated[added] = tree_cells(domain, [*self._tree.cliques, *added])
        return self._eliminated[added]

    def _reach(self, name: str) -> dict[str, int]:
        """Return for every column of the component, the cells that taking `name` to it would add."""
        if name in self._reached:
            return self._reached[name]
        tree, domain = self._tree, self._tree.domain
        found = self._reached[name] = {}
        ways: list[tuple[int, Columns, int]] = [
            (place, (), 0) for place, clique in enumerate(tree.cliques) if name in clique
        ]
        seen = {place for place, _, _ in ways}
        for place, entered, added in ways:  # grows while it is gone through
            for other, separator in self._near[place].items():
                if other in seen:
                    continue
                seen.add(other)
                between = domain[name] * domain.cells(domain.order({*entered, *separator})) if entered else 0
                ways.append((other, separator, added + between))
            if entered:
                for column in tree.cliques[place]:
                    cost = added + domain[name] * domain.cells(domain.order({*entered, column}))
                    found[column] = min(cost, found.get(column, cost))
        return found


class Beliefs:
    """The tables of a tree's cliques, in one array, and the passes that calibrate them.

    One exponential per cell, then sums and products: upwards every clique hands its marginal over the
    separator to its parent, downwards it gets the parent's back.
    """

    __slots__ = ("_down", "_empty", "_up", "slices", "tree", "values")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._empty: Flags | None = None
        ends = np.cumsum([tree.domain.cells(clique) for clique in tree.cliques]).tolist()
        self.slices = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        self.values = np.empty(ends[-1])
        self._up = [
            find_steps(tree.domain, clique, separator)
            for clique, separator in zip(tree.cliques, tree.separators, strict=True)
        ]
        self._down = [
            find_steps(tree.domain, tree.cliques[max(parent, 0)], separator)
            for parent, separator in zip(tree.parents, tree.separators, strict=True)
        ]

    def table(self, place: int) -> Floats:
        """Return the flat table of one clique."""
        return self.values[self.slices[place]]

    def forbid(self, zeros: Iterable[tuple[Columns, Flags]]) -> None:
        """Keeps impossible cells empty from now on."""
        for columns, mask in zeros:
            place = self.tree.home(columns)
            if place is None:
                raise RecipeError(f"the tree has no clique for the zeros of {' x '.join(columns)}")
            if self._empty is None:
                self._empty = np.zeros(self.values.size, np.bool_)
            steps = find_steps(self.tree.domain, self.tree.cliques[place], columns)
            spread_mask = np.zeros(self.slices[place].stop - self.slices[place].start)
            spread(mask.astype(np.float64), steps, spread_mask)
            self._empty[self.slices[place]] |= spread_mask > 0

    def express(self, tables: Sequence[Floats]) -> Floats:
        """Potentials of the model with these marginals of the cliques: each given what its parent tells."""
        potentials = np.empty(self.values.size)
        for place, (part, table) in enumerate(zip(self.slices, tables, strict=True)):
            np.log(np.maximum(table, _TINY), out=potentials[part])
            if place:
                shared = np.log(np.maximum(marginalise(table, self._up[place]), _TINY))
                spread(-shared, self._up[place], potentials[part])
        return potentials

    def calibrate(self, potentials: Floats, *, total: float) -> float:
        """Return the log-normaliser of `potentials`; the tables become marginals that sum to `total`."""
        tree = self.tree
        log_normaliser = 0.0
        for part in self.slices:
            highest = float(potentials[part].max())
            np.subtract(potentials[part], highest, out=self.values[part])
            np.maximum(self.values[part], _LEAST, out=self.values[part])
            log_normaliser += highest
        np.exp(self.values, out=self.values)
        if self._empty is not None:
            self.values[self._empty] = 0.0
        upward: list[Floats] = [np.empty(0)] * len(tree.cliques)
        for place in range(len(tree.cliques) - 1, 0, -1):
            message = marginalise(self.table(place), self._up[place])
            highest = _check_mass(float(message.max()))
            log_normaliser += math.log(highest)
            upward[place] = message.copy()
            message /= highest
            multiply(message, self._down[place], self.table(tree.parents[place]))
        root = self.table(0)
        mass = _check_mass(float(root.sum()))
        root *= total / mass
        for place in range(1, len(tree.cliques)):
            message = marginalise(self.table(tree.parents[place]), self._down[place])
            reached = upward[place] > 0
            np.divide(message, upward[place], out=message, where=reached)
            message[~reached] = 0.0
            multiply(message, self._up[place], self.table(place))
        return log_normaliser + math.log(mass)


def _eliminate(domain: Domain, marginals: Iterable[Iterable[str]]) -> tuple[float, Flags, Flags]:
    """Return cells, all cliques and which of them are maximal, of the best of three greedy eliminations."""
    place = {name: index for index, name in enumerate(domain)}
    count = len(place)
    adjacency = np.zeros((count, count), np.bool_)
    for columns in marginals:
        for left, right in combinations(columns, 2):
            adjacency[place[left], place[right]] = adjacency[place[right], place[left]] = True
    sizes = np.array([float(size) for size in domain.values()])
    found = []
    for rule in _RULES:
        cliques, maximal = np.empty((count, count), np.bool_), np.empty(count, np.bool_)
        found.append((eliminate(adjacency, sizes, rule, cliques, maximal), cliques, maximal))
    return min(found, key=lambda each: each[0])


def _assemble(domain: Domain, sets: Sequence[frozenset[str]]) -> Tree:
    """Return a maximum spanning tree of what the cliques of `sets` share, grown from the largest clique."""
    names = tuple(domain)
    _, cliques, maximal = _eliminate(domain, sets)
    found = (tuple(names[index] for index in np.flatnonzero(row)) for row in cliques[maximal])
    ordered = sorted(found, key=lambda each: (-domain.cells(each), each))
    left = dict(enumerate(ordered))
    placed: list[int] = []
    parents: list[int] = []
    separators: list[Columns] = []
    nearest: dict[int, tuple[int, Columns]] = dict.fromkeys(left, (-1, ()))
    while left:
        pick = max(left, key=lambda index: (len(nearest[index][1]), -index))
        parent, shared = nearest[pick]
        clique = set(left.pop(pick))
        parents.append(parent)
        separators.append(shared)
        placed.append(pick)
        for index, other in left.items():
            common = domain.order(clique & set(other))
            if len(common) > len(nearest[index][1]) or nearest[index][0] < 0:
                nearest[index] = (len(placed) - 1, common)
    return Tree(
        domain=domain,
        cliques=tuple(ordered[index] for index in placed),
        parents=tuple(parents),
        separators=tuple(separators),
    )


def _refuse(domain: Domain, sets: Sequence[frozenset[str]], tree: Tree, limit: int) -> None:
    largest = max(tree.cliques, key=domain.cells)
    wide = [each for each in sets if len(each) > 1]
    without = {
        each: tree_cells(domain, [tuple(other) for other in sets if other is not each]) for each in wide[:200]
    }
    advice = "use coarser domains"
    if without:
        drop = min(without, key=lambda each: without[each])
        if without[drop] < tree.cells:
            advice = f"leave out {' x '.join(domain.order(drop))}, which leaves {without[drop]:,}"
    raise RecipeError(
        f"the model would need {tree.cells:,} cells, more than {limit:,}: its largest clique is "
        f"{' x '.join(largest)} with {math.prod(domain[name] for name in largest):,}; {advice}"
    )


def _check_mass(mass: float) -> float:
    if not 0 < mass < math.inf:
        raise NoMass("the model has no cell left that may hold records; check the structural zeros")
    return mass
