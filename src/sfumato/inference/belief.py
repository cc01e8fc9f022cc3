"""Belief propagation: from potentials of cliques to their exact marginals, in probability space."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import NoMass, RecipeError
from sfumato.inference.axes import find_steps, marginalise, multiply, spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from sfumato.inference.tree import Tree

_LEAST = -60.0  # a cell this far below its clique's largest is as good as empty, and products stay finite


_TINY = 1e-250


class Beliefs:
    """The tables of a tree's cliques, in one array, and the passes that calibrate them.

    One exponential per cell, then sums and products: upwards every clique hands its marginal over the
    separator to its parent, downwards it gets the parent's back.
    """

    __slots__ = ("_down", "_empty", "_up", "slices", "tree", "values")

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._empty: NDArray[np.bool_] | None = None
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

    def table(self, place: int) -> NDArray[np.float64]:
        """The flat table of one clique."""
        return self.values[self.slices[place]]

    def forbid(self, zeros: Iterable[tuple[tuple[str, ...], NDArray[np.bool_]]]) -> None:
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

    def express(self, tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Potentials of the model with these marginals of the cliques: each given what its parent tells."""
        potentials = np.empty(self.values.size)
        for place, (part, table) in enumerate(zip(self.slices, tables, strict=True)):
            np.log(np.maximum(table, _TINY), out=potentials[part])
            if place:
                shared = np.log(np.maximum(marginalise(table, self._up[place]), _TINY))
                spread(-shared, self._up[place], potentials[part])
        return potentials

    def calibrate(self, potentials: NDArray[np.float64], *, total: float) -> float:
        """The log-normaliser of `potentials`; the tables become marginals that sum to `total`."""
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
        upward: list[NDArray[np.float64]] = [np.empty(0)] * len(tree.cliques)
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


def _check_mass(mass: float) -> float:
    if not 0 < mass < math.inf:
        raise NoMass("the model has no cell left that may hold records; check the structural zeros")
    return mass
