"""A fitted model: exact marginals of its cliques, any other by elimination, likelihoods and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.inference.axes import find_steps, marginalise
from sfumato.inference.eliminate import Elimination

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sfumato.inference.domain import Domain
    from sfumato.inference.tree import Tree

Columns = tuple[str, ...]


class Model:
    """Calibrated tables of a tree's cliques, which sum to `total` records each.

    `loss` is half the weighted squared distance to the measurements it was fitted to, `depth` how far the
    fit went.
    """

    __slots__ = ("_elimination", "_ends", "depth", "evaluations", "loss", "seed", "total", "tree", "values")

    def __init__(
        self,
        tree: Tree,
        values: NDArray[np.float64],
        *,
        total: float,
        loss: float = 0.0,
        evaluations: int = 0,
        depth: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.tree = tree
        self.values = values
        self.total = total
        self.loss = loss
        self.evaluations = evaluations
        self.depth = depth
        self.seed = seed
        self._ends = np.cumsum([0, *(tree.domain.cells(clique) for clique in tree.cliques)]).tolist()
        if self._ends[-1] != values.size:
            raise RecipeError(
                f"the tables of the model have {values.size:,} cells, its tree {self._ends[-1]:,}"
            )
        self._elimination: Elimination | None = None

    def __repr__(self) -> str:
        return (
            f"Model({len(self.tree.cliques)} cliques, {self.values.size:,} cells, {self.total:,.0f} records)"
        )

    @property
    def domain(self) -> Domain:
        """The columns of the model."""
        return self.tree.domain

    def table(self, place: int) -> NDArray[np.float64]:
        """The flat marginal of one clique."""
        return self.values[self._ends[place] : self._ends[place + 1]]

    def marginal(self, columns: Columns) -> NDArray[np.float64]:
        """The expected counts of every combination of `columns`, shaped by their sizes in that order."""
        columns = tuple(columns)
        ordered = self.domain.order(columns)
        if len(ordered) != len(columns):
            unknown = [name for name in columns if name not in self.domain]
            raise RecipeError(
                f"the model has no column {unknown[0]!r}" if unknown else "a column is named twice"
            )
        flat = self.flat_marginal(ordered)
        shaped = flat.reshape(self.domain.shape(ordered))
        return shaped.transpose([ordered.index(name) for name in columns])

    def flat_marginal(self, columns: Columns) -> NDArray[np.float64]:
        """The expected counts of `columns`, which are in the order of the domain, as a flat array."""
        if not columns:
            return np.array([self.total])
        home = self.tree.home(columns)
        if home is not None:
            steps = find_steps(self.domain, self.tree.cliques[home], columns)
            return marginalise(self.table(home), steps)
        if self._elimination is None:
            self._elimination = Elimination(self.tree, self.table)
        return self._elimination.marginal(columns)

    def log_likelihood(self, columns: Mapping[str, NDArray[np.int64]]) -> float:
        """The logarithm of the probability that the model gives to rows, all together."""
        domain, tree = self.domain, self.tree
        missing = [name for name in domain if name not in columns]
        if missing:
            raise RecipeError(f"the rows have no column {missing[0]!r}")
        result = 0.0
        with np.errstate(divide="ignore"):
            for place, clique in enumerate(tree.cliques):
                result += float(np.log(self.table(place) / self.total)[self._codes(columns, clique)].sum())
                if result == -np.inf:
                    return result
                separator = tree.separators[place]
                if separator:
                    shared = marginalise(self.table(place), find_steps(domain, clique, separator))
                    result -= float(np.log(shared / self.total)[self._codes(columns, separator)].sum())
        return result

    def sample(self, rows: int | None = None, *, seed: int | None = None) -> dict[str, NDArray[np.int64]]:
        """`rows` rows, by default as many as the model has records, as codes by column.

        The marginals of cliques agree with the model to within rounding; columns that no clique joins
        are independent given what separates them. The same seed gives the same rows.
        """
        from sfumato.inference.sampling import sample_rows

        count = round(self.total) if rows is None else rows
        return sample_rows(self, count, seed=self.seed if seed is None else seed)

    def _codes(self, columns: Mapping[str, NDArray[np.int64]], names: Columns) -> NDArray[np.int64]:
        codes = np.zeros(len(columns[names[0]]), np.int64)
        for name in names:
            codes = codes * self.domain[name] + columns[name]
        return codes
