"""Estimation: the model whose marginals are nearest to noisy measurements of them.

The fit minimises half the weighted squared distance between answers and model, with one multiplier per
answer. It begins with mirror descent from the uniform model, whose path visits models in the order of
their information: stopping early is the regularisation. Where the noise is low the path is long, and
implicit steps, each as deep as all before it together, are solved by limited-memory BFGS with the
curvature of single answers as metric. Both stop where the distance is no more than the noise explains
and falls no faster than it would by fitting noise (docs/synthesis.md has the measurements).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.errors import RecipeError
from sfumato.inference.belief import Beliefs, NoMass
from sfumato.inference.measured import Measurement, Part, merge_measurements
from sfumato.inference.model import Model
from sfumato.inference.objective import Objective
from sfumato.inference.total import estimate_total
from sfumato.inference.tree import build_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from sfumato.inference.domain import Domain
    from sfumato.inference.tree import Tree

__all__ = ["LARGEST_TREE", "Start", "estimate", "fit_parts"]

Columns = tuple[str, ...]
Vector = "NDArray[np.float64]"

LARGEST_TREE = 2**25
"""Cells of a tree beyond which a model is refused, a quarter of a gigabyte a table."""

_MEMORY = 4
_CLOSE = 0.2  # an implicit step is done when the gradient is this small beside the residual
_PATIENCE = 25  # steps of one kind before something else is tried
_LOOK = 5  # steps between two looks at whether to stop
_GROWTH = 1.5
_REACH = 3.0  # the most that a multiplier moves in one step
_STAGES = 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Start:
    """Where a fit ended: its multipliers by part, and its depth. The next fit may begin there."""

    multipliers: Mapping[tuple[Columns, int], NDArray[np.float64]]
    depth: float


def estimate(
    domain: Domain,
    measurements: Iterable[Measurement],
    *,
    total: float | None = None,
    iterations: int | None = None,
    seed: int = 0,
    zeros: Iterable[tuple[Columns, NDArray[np.bool_]]] = (),
    limit: int = LARGEST_TREE,
    target: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Model:
    """The graphical model that fits `measurements`, exact on the junction tree that holds them.

    `total` is the number of records, estimated from the measurements if it is not given. `zeros` names
    impossible cells: columns and a mask that is true where a cell must be empty. Without `iterations`
    the fit stops by itself where going on would fit the noise; with it, or with a `target` loss, it goes
    on until the target is reached or so many evaluations are made. `seed` is the default seed of sampled rows.

    >>> from sfumato.inference import Domain, Measurement
    >>> noisy = Measurement(columns=("a",), values=np.array([30.0, 70.0]), sigma=0.1)
    >>> estimate(Domain({"a": 2, "b": 2}), [noisy]).marginal(("a", "b")).round(1).tolist()
    [[15.0, 15.0], [35.0, 35.0]]
    """
    parts = merge_measurements(domain, measurements)
    if not parts:
        message = "an estimate needs at least one measurement"
        raise RecipeError(message)
    known = [(domain.order(columns), _order_mask(domain, columns, mask)) for columns, mask in zeros]
    tree = build_tree(
        domain, [*(part.columns for part in parts), *(columns for columns, _ in known)], limit=limit
    )
    records = estimate_total(domain, parts) if total is None else float(total)
    if not 0 < records < math.inf:
        message = "the total number of records must be above zero"
        raise RecipeError(message)
    model, _ = fit_parts(
        tree, parts, total=records, zeros=known, evaluations=iterations, target=target, progress=progress
    )
    model.seed = seed
    return model


def fit_parts(
    tree: Tree,
    parts: list[Part],
    *,
    total: float,
    zeros: Iterable[tuple[Columns, NDArray[np.bool_]]] = (),
    start: Start | None = None,
    evaluations: int | None = None,
    target: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Model, Start]:
    """The model of `tree` that fits `parts`, and where the fit ended."""
    fit = _Fit(tree, parts, total=total, zeros=zeros, start=start)
    stubborn = evaluations is not None or target is not None
    most = evaluations if evaluations is not None else 100_000
    done = fit.depth == 0 and fit.descend(most=most, target=target, stubborn=stubborn, progress=progress)
    before = (fit.loss, fit.fitted)
    for _ in range(_STAGES):
        if done or fit.evaluations >= most:
            break
        reached = fit.settle(most=most, target=target)
        if fit.loss > before[0]:
            fit.go_back()
            break
        progress(f"fitting: {fit.evaluations} evaluations, loss {fit.loss:.6g}")
        done = (target is not None and fit.loss <= target) or fit.explained(before) or not reached
        before = (fit.loss, fit.fitted)
    return fit.model(), Start(multipliers=fit.by_part(), depth=fit.depth)


class _Fit:
    """The state of one fit: multipliers, potentials, marginals and answers."""

    def __init__(
        self,
        tree: Tree,
        parts: list[Part],
        *,
        total: float,
        zeros: Iterable[tuple[Columns, NDArray[np.bool_]]],
        start: Start | None,
    ) -> None:
        self.beliefs = Beliefs(tree)
        self.objective = Objective(tree, parts)
        self.parts = parts
        self.total = total
        self.size = self.objective.values.size
        self.floor = self.beliefs.floor(zeros)
        self.multipliers = np.zeros(self.size)
        if start is not None:
            for key, place in zip(_name_parts(parts), self.objective.slices, strict=True):
                known = start.multipliers.get(key)
                if known is not None and known.size == place.stop - place.start:
                    self.multipliers[place] = known
        self.potentials = np.empty(self.beliefs.values.size)
        self.answers = np.empty(self.size)
        self.curvature = self.answers
        if any(part.queries is not None for part in parts):
            self.curvature = np.empty(self.size)
        self.pairs: deque[tuple[NDArray[np.float32], NDArray[np.float32]]] = deque(maxlen=_MEMORY)
        self.evaluations = 0
        self.depth = 0.0 if start is None else start.depth / 2
        try:
            self.log_normaliser = self._evaluate(self.multipliers)
        except NoMass:
            if start is None:
                raise
            self.multipliers, self.depth = np.zeros(self.size), 0.0
            self.log_normaliser = self._evaluate(self.multipliers)
        self.anchor = self.multipliers

    @property
    def loss(self) -> float:
        """Half the weighted squared distance."""
        residual = self.answers - self.objective.values
        return float(0.5 * np.dot(residual, residual / self.objective.variances))

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
        if 2 * loss > self.size - fitted:
            return gained <= max(0.1 * freed, 1e-3 * loss)
        return gained <= max(2 * freed, 0.01 * math.sqrt(self.size))

    def descend(
        self, *, most: int, target: float | None, stubborn: bool, progress: Callable[[str], None]
    ) -> bool:
        """Whether mirror descent got to the end: steps along the residual, longer while they succeed."""
        objective = self.objective
        weighted = (self.answers - objective.values) / objective.variances
        loss = 0.5 * float(np.dot(weighted, self.answers - objective.values))
        size = 1 / (float(np.abs(weighted).max()) + 1e-300)
        before, steps = (loss, self.fitted), 0
        while self.evaluations < most:
            trial = self.multipliers - size * weighted
            try:
                self.log_normaliser = self._evaluate(trial)
                found = self.loss
            except NoMass:
                found = math.inf
            if not found <= loss:
                size /= 2
                if size * float(np.abs(weighted).max()) < 1e-12:
                    self.log_normaliser = self._evaluate(self.multipliers)
                    return True
                continue
            self.multipliers, loss = trial, found
            self.depth += size
            size *= _GROWTH
            steps += 1
            if target is not None and loss <= target:
                return True
            if steps % _LOOK == 0:
                progress(f"fitting: {self.evaluations} evaluations, loss {loss:.6g}")
                if not stubborn and self.explained(before):
                    return True
                if not stubborn and steps >= _PATIENCE and 2 * loss > 1.1 * self.size:
                    return False  # the noise is low: curvature pays
                before = (loss, self.fitted)
            np.subtract(self.answers, objective.values, out=weighted)
            weighted /= objective.variances
        return True

    def settle(self, *, most: int, target: float | None) -> bool:
        """Whether one deep implicit step, as deep as all before it together, was solved."""
        objective = self.objective
        stiffness = objective.variances / self.depth
        self.anchor = self.multipliers
        self.depth *= 2
        for _ in range(_PATIENCE):
            residual = self.answers - objective.values
            gradient = residual + stiffness * (self.multipliers - self.anchor)
            weighted = residual / objective.variances
            loss = 0.5 * float(np.dot(residual, weighted))
            off = float(np.dot(gradient, gradient / objective.variances))
            if off <= _CLOSE**2 * 2 * loss or (target is not None and loss <= target):
                return True
            if self.evaluations >= most or not self._step(gradient, stiffness):
                return False
        return False

    def go_back(self) -> None:
        """Nothing; forgets the last implicit step."""
        self.multipliers, self.depth = self.anchor, self.depth / 2
        self.log_normaliser = self._evaluate(self.multipliers)

    def _step(self, gradient: NDArray[np.float64], stiffness: NDArray[np.float64]) -> bool:
        metric = 1 / (self.curvature + stiffness)
        direction = self._direction(gradient, stiffness, metric)
        slope = float(np.dot(gradient, direction))
        if not slope < 0:
            self.pairs.clear()
            direction = -metric * gradient / 4
            slope = float(np.dot(gradient, direction))
        if not slope < 0:
            return False
        value = self._dual(self.log_normaliser, self.multipliers, stiffness)
        size = min(1.0, _REACH / float(np.abs(direction).max()))
        before = self.answers.copy()
        for _ in range(12):
            trial = self.multipliers + size * direction
            try:
                log_normaliser = self._evaluate(trial)
                found = self._dual(log_normaliser, trial, stiffness)
            except NoMass:
                found = math.inf
            if found <= value + 1e-4 * size * slope + 1e-13 * abs(value):
                break
            # The minimum of the parabola through what is known of this line.
            bend = found - value - size * slope
            size *= min(0.5, max(0.1, -0.5 * slope * size / bend)) if 0 < bend < math.inf else 0.5
        else:
            self.log_normaliser = self._evaluate(self.multipliers)
            self.pairs.clear()
            return False
        self.pairs.append(
            ((size * direction).astype(np.float32), (self.answers - before).astype(np.float32))
        )
        self.multipliers, self.log_normaliser = trial, log_normaliser
        return True

    def _direction(
        self, gradient: NDArray[np.float64], stiffness: NDArray[np.float64], metric: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        vector = gradient.copy()
        bent = []
        for move, change in self.pairs:
            bend = change + stiffness * move
            bent.append((move, bend, float(np.dot(move, bend))))
        bent = [each for each in bent if each[2] > 0]
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
        linear = float(np.dot(multipliers, self.objective.values))
        moved = multipliers - self.anchor
        return self.total * log_normaliser - linear + 0.5 * float(np.dot(moved, stiffness * moved))

    def _evaluate(self, multipliers: NDArray[np.float64]) -> float:
        self.objective.potentials(multipliers, self.beliefs, self.potentials)
        if self.floor is not None:
            self.potentials += self.floor
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
        )

    def by_part(self) -> dict[tuple[Columns, int], NDArray[np.float64]]:
        """The multipliers of every part."""
        keys = _name_parts(self.parts)
        return {key: self.multipliers[place] for key, place in zip(keys, self.objective.slices, strict=True)}


def _name_parts(parts: list[Part]) -> list[tuple[Columns, int]]:
    """A name for every part: its columns, and its place among the parts with queries over them."""
    seen: dict[Columns, int] = {}
    names = []
    for part in parts:
        if part.queries is not None:
            seen[part.columns] = seen.get(part.columns, 0) + 1
        names.append((part.columns, seen.get(part.columns, 0) if part.queries is not None else 0))
    return names


def _order_mask(domain: Domain, columns: Columns, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    shaped = np.asarray(mask, np.bool_).reshape(domain.shape(columns))
    axes = [columns.index(name) for name in domain.order(columns)]
    return np.ascontiguousarray(shaped.transpose(axes)).reshape(-1)
