"""Rows of a fitted model given some of their columns: a child given its parent and the sibling before it.

Exact for the model: what is known cuts every clique down to the cells that agree with it, messages go up the
tree once, and unknown columns are drawn clique by clique on the way down. Rows that know the same are drawn
together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.inference.kernels import find_steps, marginalise
from sfumato.inference.model import draw_scattered, number_cells

if TYPE_CHECKING:
    from sfumato.inference.domain import Columns
    from sfumato.inference.model import Model
    from sfumato.tables.arrays import Floats, Whole

_BLOCK = 2**22  # cells of one clique that are held at a time, for all rows together


class Conditional:
    """Draws the columns that are not `known` of rows of a model, given those that are.

    `excluded` has codes that no drawn row may have, by column. `void` has, for known columns, codes that
    stand for no value: what a value tells is then what it tells among values, and a void tells nothing. Where
    many columns are void together, each would tell the same once more.
    """

    def __init__(
        self,
        model: Model,
        known: Columns,
        *,
        excluded: Mapping[str, Whole] | None = None,
        void: Mapping[str, Whole] | None = None,
    ) -> None:
        self._domain = model.domain
        unknown = set(model.domain) - set(known)
        self._parts: list[_Part] = []
        places: dict[int, int] = {}
        for place, clique in enumerate(model.tree.cliques):
            drawn = tuple(name for name in clique if name in unknown)
            if not drawn:
                continue  # what is known altogether has no say in what is drawn
            given = tuple(name for name in clique if name not in unknown)
            shared = tuple(name for name in model.tree.separators[place] if name in unknown)
            places[place] = len(self._parts)
            self._parts.append(
                _Part(
                    given=given,
                    drawn=drawn,
                    shared=shared,
                    above=places[model.tree.parents[place]] if shared else -1,
                    table=self._condition(model, place, given, drawn, excluded or {}, void or {}),
                )
            )

    def weigh(self, columns: Columns, factors: Floats) -> None:
        """Makes cells of `columns`, which one clique holds, likelier by `factors`, shaped as their sizes."""
        for part in self._parts:
            names = part.given + part.drawn
            if set(columns) <= set(names):
                turned = factors.transpose([columns.index(name) for name in names if name in columns])
                shape = [self._domain[name] if name in columns else 1 for name in names]
                wide = part.table.reshape(self._domain.shape(names))
                wide *= turned.reshape(shape)
                return
        raise RecipeError(f"no clique of the model holds {' x '.join(columns)} and something that is drawn")

    def sample(self, known: Mapping[str, Whole], *, seed: int) -> dict[str, Whole]:
        """Return codes of the unknown columns, one for each row of `known`; the same seed gives the same."""
        rows = next(iter(known.values())).size
        needed = sorted({name for part in self._parts for name in part.given})
        group = np.zeros(rows, np.int64)
        for name in needed:
            group = group * self._domain[name] + known[name]
            group = np.unique(group, return_inverse=True)[1].astype(np.int64)
        order = np.argsort(group, kind="stable")
        # Strata of random numbers along rows that know the same, so that chance moves shares little.
        places = {number: draw_scattered(rows, seed=seed, turn=number) for number in range(len(self._parts))}
        result = {name: np.empty(rows, np.int64) for part in self._parts for name in part.drawn}
        largest = max((part.table.shape[1] for part in self._parts), default=1)
        sorted_group = group[order]
        starts = np.flatnonzero(np.concatenate(([True], sorted_group[1:] != sorted_group[:-1]))[:rows])
        step = max(1, _BLOCK // largest)
        for first in range(0, starts.size, step):
            firsts = starts[first : first + step]
            end = starts[first + step] if first + step < starts.size else rows
            chosen = order[firsts[0] : end]
            which = np.searchsorted(firsts, np.arange(firsts[0], end), side="right") - 1
            heads = order[firsts]
            tables = self._collect({name: known[name][heads] for name in needed}, heads.size)
            drawn: dict[str, Whole] = {}
            for number, part in enumerate(self._parts):
                self._draw(part, tables[number], which, drawn, places[number][firsts[0] : end])
            for name, codes in drawn.items():
                result[name][chosen] = codes
        return {name: result[name] for name in self._domain if name in result}

    def _condition(
        self,
        model: Model,
        place: int,
        given: Columns,
        drawn: Columns,
        excluded: Mapping[str, Whole],
        void: Mapping[str, Whole],
    ) -> Floats:
        """p(clique) over p(separator), with a row for every cell of what is given."""
        domain, clique = model.domain, model.tree.cliques[place]
        separator = model.tree.separators[place]
        table = model.table(place).reshape(domain.shape(clique))
        if separator:
            mass = marginalise(model.table(place), find_steps(domain, clique, separator))
            shape = [domain[name] if name in separator else 1 for name in clique]
            mass = mass.reshape(shape)
            table = np.divide(table, mass, out=np.ones(table.shape), where=mass > 0)
        table = _silence(table.copy(), clique, void)
        for axis, name in enumerate(clique):
            if name in excluded and name in drawn:
                np.moveaxis(table, axis, 0)[excluded[name]] = 0.0
        table = table.transpose([clique.index(name) for name in (*given, *drawn)])
        return np.ascontiguousarray(table.reshape(math.prod(domain.shape(given)), -1))

    def _collect(self, known: Mapping[str, Whole], rows: int) -> list[Floats]:
        """For every clique and row, what it and all cliques below it say about the columns it draws."""
        tables = [
            part.table[number_cells(known, part.given, self._domain) if part.given else np.zeros(rows, int)]
            for part in self._parts
        ]
        for number in range(len(self._parts) - 1, -1, -1):
            part = self._parts[number]
            if not part.shared:
                continue
            own = tables[number].reshape(rows, *self._domain.shape(part.drawn))
            gone = tuple(1 + axis for axis, name in enumerate(part.drawn) if name not in part.shared)
            message = own.sum(axis=gone)
            # Only proportions matter, and products of many small ones would vanish.
            highest = message.reshape(rows, -1).max(axis=1).reshape(-1, *[1] * len(part.shared))
            message = np.divide(message, highest, out=np.ones(message.shape), where=highest > 0)
            above = self._parts[part.above]
            shape = [self._domain[name] if name in part.shared else 1 for name in above.drawn]
            # Both are in the order of the domain, so that axes need not be turned.
            wide = tables[part.above].reshape(rows, *self._domain.shape(above.drawn))
            tables[part.above] = (wide * message.reshape(rows, *shape)).reshape(rows, -1)
        return tables

    def _draw(
        self,
        part: _Part,
        table: Floats,
        which: Whole,
        drawn: dict[str, Whole],
        places: Floats,
    ) -> None:
        """Draws what a clique adds, for rows that know what row `which` of `table` does."""
        fresh = tuple(name for name in part.drawn if name not in part.shared)
        if not fresh:
            return
        shaped = table.reshape(table.shape[0], *self._domain.shape(part.drawn))
        turned = shaped.transpose([0, *(1 + part.drawn.index(name) for name in part.shared + fresh)]).reshape(
            table.shape[0], math.prod(self._domain.shape(part.shared)), -1
        )
        cell = number_cells(drawn, part.shared, self._domain) if part.shared else np.zeros(which.size, int)
        running = np.cumsum(turned, axis=2)
        mass = running[:, :, -1:]
        even = np.broadcast_to(np.arange(1, running.shape[2] + 1) / running.shape[2], running.shape)
        running = np.divide(running, mass, out=even.copy(), where=mass > 0)
        codes = _search(running.reshape(-1, running.shape[2]), which * turned.shape[1] + cell, places)
        for name in reversed(fresh):
            codes, drawn[name] = np.divmod(codes, self._domain[name])


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A clique that something is drawn in: of what is `given`, `drawn`, and `shared` with the one above."""

    given: Columns
    drawn: Columns
    shared: Columns
    above: int
    table: Floats


def _silence(table: Floats, clique: Columns, void: Mapping[str, Whole]) -> Floats:
    """Return table in which values of columns with voids tell what they tell among values, voids nothing."""
    axes = tuple(axis for axis, name in enumerate(clique) if name in void and void[name].size)
    if not axes:
        return table
    valued = table.copy()
    empty = np.zeros(table.shape, np.bool_)
    for axis in axes:
        np.moveaxis(valued, axis, 0)[void[clique[axis]]] = 0.0
        np.moveaxis(empty, axis, 0)[void[clique[axis]]] = True
    every, some = (each.sum(axis=axes, keepdims=True) for each in (table, valued))
    told = np.divide(table * every, some, out=np.zeros(table.shape), where=some > 0)
    return np.asarray(np.where(empty, every, told), np.float64)


def _search(running: Floats, rows: Whole, places: Floats) -> Whole:
    """Return for each of `places`, the first entry of its row of `running` above it, found by halving."""
    low = np.zeros(rows.size, np.int64)
    high = np.full(rows.size, running.shape[1] - 1, np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        above = running[rows, middle] > places
        high = np.where(above, middle, high)
        low = np.where(above, low, np.minimum(middle + 1, high))
    return low
