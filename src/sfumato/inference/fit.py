"""The state of one fit: multipliers, potentials, marginals and answers, and the steps that move them."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import NoMass, RecipeError
from sfumato.inference.kernels import (
    Step,
    advance,
    apply_rows,
    find_steps,
    marginalise,
    spread,
    spread_rows,
    weigh,
)
from sfumato.inference.model import Model
from sfumato.inference.tree import Beliefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from sfumato.inference.domain import Part
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


_MEMORY = (4, 24)  # pairs that curvature is learnt from, as many as fit into the next figure
_REMEMBERED = 2**23
_CLOSE = 0.2  # an implicit step is done when the gradient is this small beside the residual
_PATIENCE = 25  # steps of mirror descent before curvature is tried
_STEPS = 80  # steps of one implicit step
_LOOK = 5  # steps between two looks at whether to stop
_GROWTH = 1.5
_SLOW_GROWTH = 1.02  # with momentum
_SHALLOWER = 64  # a fit that goes on from another begins with steps this much shallower
_REACH = 3.0  # the most that a multiplier moves in one step
_EXPLAINED = 1.25


class Fit:
    """The state of one fit: multipliers, potentials, marginals and answers."""

    def __init__(
        self,
        tree: Tree,
        parts: list[Part],
        *,
        total: float,
        zeros: Iterable[tuple[Columns, NDArray[np.bool_]]],
        start: Model | None,
    ) -> None:
        self.beliefs = Beliefs(tree)
        self.objective = Objective(tree, parts)
        self.total = total
        self.size = self.objective.values.size
        self.beliefs.forbid(zeros)
        self.values, self.beyond = _center(self.objective, parts, total)
        self.potentials = np.empty(self.beliefs.values.size)
        self.answers = np.empty(self.size)
        self.curvature = self.answers
        if any(part.queries is not None for part in parts):
            self.curvature = np.empty(self.size)
        self.pairs: deque[tuple[NDArray[Any], NDArray[Any]]] = deque(
            maxlen=max(_MEMORY[0], min(_MEMORY[1], _REMEMBERED // self.size))
        )
        self.evaluations = 0
        self.base = np.zeros(self.beliefs.values.size)
        self.depth = self.stride = 0.0
        if start is not None:
            self.base = self.beliefs.express([start.flat_marginal(clique) for clique in tree.cliques])
            self.depth, self.stride = start.depth / 2, start.depth / _SHALLOWER
        self.multipliers = np.zeros(self.size)  # since the base
        self.log_normaliser = self._evaluate(self.multipliers)

    @property
    def loss(self) -> float:
        """Half the weighted squared distance."""
        residual = self.answers - self.values
        return self.beyond + float(0.5 * np.dot(residual, residual / self.objective.variances))

    @property
    def fitted(self) -> float:
        """The effective number of parameters: near 1 for an answer above its noise, near 0 below."""
        if self.depth == 0:
            return 0.0
        return float((self.curvature / (self.curvature + self.objective.variances / self.depth)).sum())

    def explained(self, before: tuple[float, float]) -> bool:
        """Whether the loss is no more than noise explains, and falls no faster than by fitting noise."""
        loss, fitted = self.loss, self.fitted
        gained, freed = before[0] - loss, fitted - before[1]
        # Overlapping answers share parameters, so that `fitted` is somewhat too large.
        if 2 * loss > _EXPLAINED * (self.size - fitted):
            return gained <= max(0.1 * freed, 1e-3 * loss)
        return gained <= max(2 * freed, 0.1 * math.sqrt(self.size))

    def rush(self, *, most: int, target: float | None, progress: Callable[[str], None]) -> None:
        """Mirror descent with momentum, which is dropped whenever the loss rises.

        It gets to a low loss soonest, fitting noise on the way, and asks no stopping rule.
        """
        weighted, stepped, trial = (np.empty(self.size) for _ in range(3))
        loss = self._weigh(weighted)
        size = 1 / (float(np.abs(weighted).max()) + 1e-300)
        at, pace, depths = self.multipliers.copy(), 1.0, (0.0, 0.0)
        while self.evaluations < most and size > 1e-300 and not (target is not None and loss <= target):
            faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
            momentum = (pace - 1) / faster
            advance(at, weighted, size, self.multipliers, momentum, stepped, trial)
            found = self._try(trial, weighted)
            if found <= loss:
                self.multipliers, stepped = stepped, self.multipliers
                at, trial = trial, at
                loss, pace = found, faster
                deeper = depths[1] + size
                depths = (deeper, deeper + momentum * (deeper - depths[0]))
                size *= _SLOW_GROWTH
            else:
                size /= 2
                if pace > 1:
                    at[:] = self.multipliers
                    pace, depths = 1.0, (depths[0], depths[0])
                loss = self._try(at, weighted)
                if size * float(np.abs(weighted).max()) < 1e-12:
                    break
            self.depth = depths[1]
            if self.evaluations % 20 == 0:
                progress(f"fitting: {self.evaluations} evaluations, loss {loss:.6g}")

    def _weigh(self, weighted: NDArray[np.float64]) -> float:
        """The loss; `weighted` is set to the differences over their variances."""
        return self.beyond + float(weigh(self.answers, self.values, self.objective.variances, weighted))

    def _try(self, multipliers: NDArray[np.float64], weighted: NDArray[np.float64]) -> float:
        """The loss at `multipliers`, infinite where no model is; `weighted` is set to the differences."""
        try:
            self.log_normaliser = self._evaluate(multipliers)
        except NoMass:
            return math.inf
        return self._weigh(weighted)

    def descend(self, *, most: int, progress: Callable[[str], None]) -> bool:
        """Whether mirror descent got to the end: steps along the residual, longer while they succeed."""
        weighted, fresh = np.empty(self.size), np.empty(self.size)
        loss = self._weigh(weighted)
        size = 1 / (float(np.abs(weighted).max()) + 1e-300)
        before, steps = (loss, self.fitted), 0
        while self.evaluations < most:
            trial = self.multipliers - size * weighted
            found = self._try(trial, fresh)
            if not found <= loss:
                size /= 2
                if size * float(np.abs(weighted).max()) < 1e-12 or self.evaluations >= most:
                    self.log_normaliser = self._evaluate(self.multipliers)
                    return True
                continue
            self.multipliers, loss = trial, found
            self.depth += size
            size *= _GROWTH
            steps += 1
            if steps % _LOOK == 0:
                progress(f"fitting: {self.evaluations} evaluations, loss {loss:.6g}")
                if self.explained(before):
                    return True
                if steps >= _PATIENCE and 2 * loss > 1.1 * self.size:
                    return False  # the noise is low: curvature pays
                before = (loss, self.fitted)
            weighted, fresh = fresh, weighted
        return True

    def settle(self, *, most: int) -> bool:
        """Whether one implicit step was solved: twice as deep as the last one."""
        self.stride = 2 * self.stride if self.stride else self.depth
        self._rebase()
        self.before = (self.base, self.depth)
        self.depth += self.stride
        return self._solve(self.objective.variances / self.stride, most=most)

    def go_back(self) -> None:
        """Forgets the last implicit step."""
        self.base, self.depth = self.before
        self.multipliers = np.zeros(self.size)
        self.log_normaliser = self._evaluate(self.multipliers)

    def _rebase(self) -> None:
        """The model as it stands becomes the base, its potentials expressed by its marginals.

        Contradictions between measurements pull multipliers apart without end; expressed anew, potentials
        stay as small as the model allows.
        """
        tables = [self.beliefs.table(place) for place in range(len(self.beliefs.slices))]
        self.base = self.beliefs.express(tables)
        self.multipliers = np.zeros(self.size)
        self.log_normaliser = self._evaluate(self.multipliers)

    def _solve(self, stiffness: NDArray[np.float64], *, most: int) -> bool:
        objective = self.objective
        for _ in range(_STEPS):
            residual = self.answers - self.values
            gradient = residual + stiffness * self.multipliers
            loss = self.loss
            off = float(np.dot(gradient, gradient / objective.variances))
            if off <= _CLOSE**2 * 2 * (loss - self.beyond):
                return True
            if self.evaluations >= most or not self._step(gradient, stiffness):
                return False
        return False

    def _step(self, gradient: NDArray[np.float64], stiffness: NDArray[np.float64]) -> bool:
        """Whether a step was found that lowers the dual; learnt curvature is dropped if it misleads."""
        metric = 1 / (self.curvature + stiffness)
        direction = self._direction(gradient, stiffness, metric)
        if self._search(direction, gradient, stiffness):
            return True
        if not self.pairs:
            return False
        self.pairs.clear()
        return self._search(-metric * gradient / 4, gradient, stiffness)

    def _search(
        self, direction: NDArray[np.float64], gradient: NDArray[np.float64], stiffness: NDArray[np.float64]
    ) -> bool:
        slope = float(np.dot(gradient, direction))
        if not slope < 0:
            return False
        value = self._dual(self.log_normaliser, self.multipliers, stiffness)
        size = min(1.0, _REACH / float(np.abs(direction).max()))
        before = self.answers.copy()
        for _ in range(8):
            trial = self.multipliers + size * direction
            try:
                log_normaliser = self._evaluate(trial)
                found = self._dual(log_normaliser, trial, stiffness)
            except NoMass:
                found = math.inf
            if found <= value + 1e-4 * size * slope + 1e-13 * abs(value):
                kind = np.float64 if self.size <= _REMEMBERED // _MEMORY[1] else np.float32
                self.pairs.append(((size * direction).astype(kind), (self.answers - before).astype(kind)))
                self.multipliers, self.log_normaliser = trial, log_normaliser
                return True
            # The minimum of the parabola through what is known of this line.
            bend = found - value - size * slope
            size *= min(0.5, max(0.05, -0.5 * slope * size / bend)) if 0 < bend < math.inf else 0.5
        self.log_normaliser = self._evaluate(self.multipliers)
        return False

    def _direction(
        self, gradient: NDArray[np.float64], stiffness: NDArray[np.float64], metric: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        vector = gradient.copy()
        bent = []
        for move, change in self.pairs:
            bend = change + stiffness * move
            bent.append((move, bend, float(np.dot(move, bend))))
        # Steps that vanish, or whose bend does, teach nothing about the curvature.
        bent = [each for each in bent if each[2] > 0 and float(np.dot(each[1], metric * each[1])) > 0]
        weights = []
        for move, bend, product in reversed(bent):
            weight = float(np.dot(move, vector)) / product
            weights.append(weight)
            vector -= weight * bend
        scale = 0.25
        if bent:
            _, bend, product = bent[-1]
            scale = product / float(np.dot(bend, metric * bend))
        vector *= scale
        vector *= metric
        for (move, bend, product), weight in zip(bent, reversed(weights), strict=True):
            vector += (weight - float(np.dot(bend, vector)) / product) * move
        return -vector

    def _dual(
        self, log_normaliser: float, multipliers: NDArray[np.float64], stiffness: NDArray[np.float64]
    ) -> float:
        linear = float(np.dot(multipliers, self.values))
        return (
            self.total * log_normaliser - linear + 0.5 * float(np.dot(multipliers, stiffness * multipliers))
        )

    def _evaluate(self, multipliers: NDArray[np.float64]) -> float:
        self.objective.potentials(multipliers, self.beliefs, self.potentials)
        self.potentials += self.base
        log_normaliser = self.beliefs.calibrate(self.potentials, total=self.total)
        own = self.curvature is not self.answers
        self.objective.predict(self.beliefs, self.answers, self.curvature if own else None)
        self.evaluations += 1
        return log_normaliser

    def model(self) -> Model:
        """The model as it stands."""
        return Model(
            self.beliefs.tree,
            self.beliefs.values,
            total=self.total,
            loss=self.loss,
            evaluations=self.evaluations,
            depth=self.depth,
        )


def _center(objective: Objective, parts: list[Part], total: float) -> tuple[NDArray[np.float64], float]:
    """The answers with counts shifted to sum to `total`, as every model's do, and the loss of the shifts."""
    values, beyond = objective.values.copy(), 0.0
    for part, place in zip(parts, objective.slices, strict=True):
        if part.queries is None:
            shift = (total - float(part.values.sum())) / part.values.size
            values[place] += shift
            beyond += 0.5 * part.values.size * shift**2 / part.variance
    return values, beyond
