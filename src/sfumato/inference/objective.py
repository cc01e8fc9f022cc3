"""The distance between a model and its measurements, and how both map to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.inference.axes import Step, find_steps, marginalise, spread
from sfumato.inference.kernels import apply_rows, spread_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.inference.belief import Beliefs
    from sfumato.inference.measured import Part
    from sfumato.inference.tree import Tree

Columns = tuple[str, ...]


class _Node:
    """A measured marginal: where it is summed from, and which answers it gives."""

    __slots__ = ("cells", "columns", "members", "source", "steps")

    def __init__(self, columns: Columns, source: int, steps: tuple[Step, ...], cells: int) -> None:
        self.columns = columns
        self.source = source  # place of another node, or -1 - place of a clique
        self.steps = steps
        self.cells = cells
        self.members: list[tuple[Part, slice]] = []


class Objective:
    """Half the weighted squared distance between answers and a tree's marginals.

    The answers of all parts lie in one vector, in the order of `parts`. Marginals are summed from the
    smallest measured marginal that holds them, or from their clique.
    """

    __slots__ = ("_nodes", "slices", "tree", "values", "variances")

    def __init__(self, tree: Tree, parts: list[Part]) -> None:
        self.tree = tree
        domain = tree.domain
        ends = np.cumsum([0, *(part.values.size for part in parts)]).tolist()
        self.slices = [slice(ends[place], ends[place + 1]) for place in range(len(parts))]
        self.values = np.concatenate([part.values for part in parts])
        self.variances = np.concatenate([np.full(part.values.size, part.variance) for part in parts])
        self._nodes: list[_Node] = []
        known: dict[Columns, int] = {}
        for columns in sorted({part.columns for part in parts}, key=lambda each: (-domain.cells(each), each)):
            wanted = set(columns)
            source = min(
                (place for other, place in known.items() if wanted < set(other)),
                key=lambda place: self._nodes[place].cells,
                default=None,
            )
            if source is None:
                home = tree.home(columns)
                if home is None:
                    raise RecipeError(f"the tree has no clique for {' x '.join(columns)}")
                steps = find_steps(domain, tree.cliques[home], columns)
                source = -1 - home
            else:
                steps = find_steps(domain, self._nodes[source].columns, columns)
            known[columns] = len(self._nodes)
            self._nodes.append(_Node(columns, source, steps, domain.cells(columns)))
        for part, place in zip(parts, self.slices, strict=True):
            self._nodes[known[part.columns]].members.append((part, place))

    def predict(
        self, beliefs: Beliefs, out: NDArray[np.float64], curvature: NDArray[np.float64] | None = None
    ) -> None:
        """Sets `out` to the answers of the marginals in `beliefs`.

        `curvature`, if given, is set to how fast each answer moves with its multiplier, in units of the
        counts: the sum of its cells' counts times their squared weights.
        """
        tables: list[NDArray[np.float64]] = []
        for node in self._nodes:
            source = beliefs.table(-1 - node.source) if node.source < 0 else tables[node.source]
            whole = next((place for part, place in node.members if part.queries is None), None)
            target = np.empty(node.cells) if whole is None else out[whole]
            tables.append(marginalise(source, node.steps, target))
            for part, place in node.members:
                if part.queries is not None:
                    queries = part.queries
                    apply_rows(queries.starts, queries.members, queries.weights, tables[-1], out[place])
                    if curvature is not None:
                        squares = queries.weights**2
                        apply_rows(queries.starts, queries.members, squares, tables[-1], curvature[place])
                elif curvature is not None:
                    curvature[place] = tables[-1]

    def potentials(
        self, multipliers: NDArray[np.float64], beliefs: Beliefs, out: NDArray[np.float64]
    ) -> None:
        """Sets `out`, the potentials of the cliques, to the sum of all multipliers' queries."""
        out[:] = 0.0
        tables = [np.empty(0)] * len(self._nodes)
        for place in range(len(self._nodes)):
            node = self._nodes[place]
            whole = next((part for each, part in node.members if each.queries is None), None)
            tables[place] = np.zeros(node.cells) if whole is None else multipliers[whole].copy()
            for part, where in node.members:
                if part.queries is not None:
                    queries = part.queries
                    spread_rows(
                        queries.starts, queries.members, queries.weights, multipliers[where], tables[place]
                    )
        for place in range(len(self._nodes) - 1, -1, -1):
            node = self._nodes[place]
            if node.source < 0:
                spread(tables[place], node.steps, out[beliefs.slices[-1 - node.source]])
            else:
                spread(tables[place], node.steps, tables[node.source])
            tables[place] = np.empty(0)
