"""Domains compressed by what single columns showed: values too rare to be told from noise become one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sfumato.inference import Domain, Model, Sparse, Tree
from sfumato.inference import Measurement as Noisy
from sfumato.inference.scatter import draw_codes
from sfumato.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

Columns = tuple[str, ...]

_RARE = 3.0  # standard deviations of a count's noise


class Compression:
    """For every column with rare values, a smaller one in which they are the last value together.

    Made of noisy counts only, so it costs nothing. `shares` keeps in which proportion rare values were
    seen, for rows to be spread over them again. Columns in `whole` stay as they are.
    """

    def __init__(
        self,
        domain: Domain,
        singles: Mapping[str, tuple[NDArray[np.float64], float]],
        *,
        whole: Collection[str] = (),
    ) -> None:
        self.full = domain
        self.maps: dict[str, NDArray[np.int64]] = {}
        self.shares: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        sizes: dict[str, int] = {}
        self._queries: dict[Columns, Queries | None] = {}
        for name, size in domain.items():
            sizes[name] = size
            values, sigma = singles[name]
            rare = np.flatnonzero(values < _RARE * sigma)
            if rare.size < 2 or name in whole:
                continue
            kept = np.flatnonzero(values >= _RARE * sigma)
            codes = np.full(size, kept.size, np.int64)
            codes[kept] = np.arange(kept.size)
            self.maps[name] = codes
            self.shares[name] = (rare, np.maximum(values[rare], 0.0))
            sizes[name] = int(kept.size) + 1
        self.domain = Domain(sizes)

    def queries(self, columns: Columns) -> Queries | None:
        """The sums over the marginal of `columns` that are the compressed one; None if they are equal."""
        if columns not in self._queries:
            self._queries[columns] = self._build(columns)
        return self._queries[columns]

    def single(self, name: str, values: NDArray[np.float64], sigma: float) -> Noisy:
        """The measurement of one full column as one of the compressed column.

        The sum of r rare counts has r times the noise of one, so it is stated divided by the root of r.
        """
        if name not in self.maps:
            return Noisy(columns=(name,), values=values, sigma=sigma)
        codes = self.maps[name]
        sums = np.bincount(codes, weights=values, minlength=self.domain[name])
        weights = 1 / np.sqrt(np.bincount(codes, minlength=self.domain[name]).astype(np.float64))
        places = np.arange(self.domain[name])
        queries = Sparse(starts=np.arange(self.domain[name] + 1), members=places, weights=weights)
        return Noisy(columns=(name,), values=sums * weights, sigma=sigma, queries=queries)

    def expand(self, codes: Mapping[str, NDArray[np.int64]], *, seed: int) -> dict[str, NDArray[np.int64]]:
        """Codes of the full domain: rare values are drawn in the proportions they were seen in."""
        expanded = {}
        for turn, (name, column) in enumerate(codes.items()):
            if name not in self.maps:
                expanded[name] = column
                continue
            rare, shares = self.shares[name]
            back = np.full(self.domain[name], -1, np.int64)
            kept = np.flatnonzero(self.maps[name] < self.domain[name] - 1)
            back[self.maps[name][kept]] = kept
            values = back[column]
            missing = np.flatnonzero(values < 0)
            values[missing] = rare[draw_codes(shares, missing.size, seed=seed, turn=turn)]
            expanded[name] = values
        return expanded

    def expand_model(self, model: Model, *, limit: int) -> Model | None:
        """The model over the full domain, if it has at most `limit` cells: joined values by their shares."""
        tree = model.tree
        if sum(self.full.cells(clique) for clique in tree.cliques) > limit:
            return None
        tables = []
        for place, clique in enumerate(tree.cliques):
            table = model.table(place).reshape(self.domain.shape(clique))
            for axis, name in enumerate(clique):
                if name in self.maps:
                    part = self._parts(name).reshape(
                        [-1 if each == axis else 1 for each in range(len(clique))]
                    )
                    table = np.take(table, self.maps[name], axis=axis) * part
            tables.append(table.reshape(-1))
        whole = Tree(domain=self.full, cliques=tree.cliques, parents=tree.parents, separators=tree.separators)
        return Model(
            whole,
            np.concatenate(tables),
            total=model.total,
            loss=model.loss,
            evaluations=model.evaluations,
            seed=model.seed,
        )

    def _parts(self, name: str) -> NDArray[np.float64]:
        """For every value of the full column, its part of the value it became."""
        rare, shares = self.shares[name]
        parts = np.ones(self.full[name])
        total = float(shares.sum())
        parts[rare] = shares / total if total > 0 else 1 / rare.size
        return parts

    def _places(self, columns: Columns) -> NDArray[np.int64]:
        """For every cell of the full marginal, its cell of the compressed one."""
        places = np.zeros(1, np.int64)
        for name in columns:
            codes = self.maps.get(name, np.arange(self.full[name]))
            places = np.add.outer(places * self.domain[name], codes).reshape(-1)
        return places

    def _build(self, columns: Columns) -> Queries | None:
        if not any(name in self.maps for name in columns):
            return None
        places = self._places(columns)
        rows = math.prod(self.domain[name] for name in columns)
        starts = np.concatenate(([0], np.cumsum(np.bincount(places, minlength=rows))))
        members = np.argsort(places, kind="stable")
        weights = np.ones(members.size, np.int64)
        return Queries(cells=places.size, grid=1, starts=starts, members=members, weights=weights)
