"""Estimation: the graphical model whose marginals are nearest to noisy measurements of them.

The problem is that of Private-PGM (McKenna, Sheldon and Miklau 2019, "Graphical-model based estimation and
inference for differential privacy"): among the models of a junction tree, find the one with the least
loss L = 1/2 sum (answer - value)^2 / variance. Potentials are sums of the measured queries, each with one
dual multiplier. Three methods share the state in `_Fit`:

- Entropic mirror descent (Beck and Teboulle 2003): potentials move along the weighted residuals. From the
  uniform model its path visits models in the order of their information, so stopping early regularises.
- Bregman proximal point steps (Censor and Zenios 1992), where the noise is low and that path is long: each
  minimises L plus the relative entropy to the last model, over a step size. The dual of a step is smooth,
  and L-BFGS with a line search (Nocedal and Wright, algorithms 7.4 and 3.1) minimises it.
- Accelerated mirror descent: Nesterov's momentum, restarted whenever the loss rises (O'Donoghue and Candes
  2015). It gets to a low loss soonest and fits noise on the way, so it runs only where a caller states
  the number of evaluations or a target loss.

The first two stop by the discrepancy principle (Morozov 1966): where the loss is no more than the noise
explains, and falls no faster than it would by fitting noise. docs/rows-why.md has the measurements.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import NoMass, RecipeError
from sfumato.inference.domain import Columns, Domain, Measurement, estimate_total, merge_measurements
from sfumato.inference.kernels import (
    Pattern,
    advance,
    apply_rows,
    find_steps,
    marginalise,
    rearrange,
    spread,
    spread_rows,
    weigh,
)
from sfumato.inference.model import Model
from sfumato.inference.tree import Beliefs, Tree, build_tree
from sfumato.tables.arrays import Flags, Floats

LARGEST_TREE = 2**25
"""Cells of a tree beyond which a model is refused, a quarter of a gigabyte a table."""

# The constants below were set by hand; docs/images/make.py prints what they lead to. None touches privacy.

# Bounds on the work of one fit. Too small a bound leaves a fit unfinished, too large a one only costs time.
_MOST_EVALUATIONS = 5000
_PROXIMAL_STEPS = 60
_MANY_MARGINALS = 16  # of a clique, from which they share sums
_FAILED_STEPS = 4
_LBFGS_STEPS = 80  # of one proximal step

# When to stop. Smaller values stop later: from some point on the loss still falls and the true error rises.
_EXCESS_LOSS = 1.25  # overlapping answers share parameters, so degrees of freedom come out somewhat too large
_STOP_EVERY = 5  # steps of mirror descent between two looks at the stopping rule

# Mirror descent. Step sizes are halved when the loss rises, so wrong values cost evaluations only.
_GROWTH = 1.5
_ACCELERATED_GROWTH = 1.02  # momentum lengthens steps by itself
_FIRST_STEPS = 25  # of mirror descent, before proximal steps are tried

# Proximal steps. Of a step that is solved too roughly the stopping rule learns nothing; finer ones cost time.
_ROUGHLY = 0.2  # a proximal step is solved when the gradient is this small beside the residual
_WARM_START = 64  # a fit that goes on from another begins with proximal steps this much shorter

# L-BFGS. Fewer pairs mean more steps, more pairs more memory and time for each.
_PAIRS = (4, 24)  # the fewest and the most, and between them as many as fit into _PAIR_NUMBERS
_PAIR_NUMBERS = 2**23
_LONGEST_MOVE = 3.0  # of a multiplier in one step, so that a poor guess of the curvature empties no cell
_ARMIJO = 1e-4  # the share of the expected decrease that a step must reach, as Nocedal and Wright have it


def estimate(
    domain: Domain,
    measurements: Iterable[Measurement],
    *,
    total: float | None = None,
    iterations: int | None = None,
    seed: int = 0,
    zeros: Iterable[tuple[Columns, Flags]] = (),
    limit: int = LARGEST_TREE,
    target: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Model:
    """The graphical model over `domain` that fits `measurements`, exact on the junction tree that holds them.

    `total` is the number of records, estimated from the measurements if it is not given. `zeros` names
    impossible cells: columns and a mask that is true where a cell must be empty. `limit` bounds the cells
    of the tree. Without `iterations` the fit stops by itself where going on would fit the noise; with it,
    or with a `target` loss, it goes on until the target is reached or so many evaluations are made.
    `seed` is the default seed of rows; `progress` is told how far the fit is.

    >>> from sfumato.inference.domain import Domain, Measurement
    >>> noisy = Measurement(columns=("a",), values=np.array([30.0, 70.0]), sigma=0.1)
    >>> estimate(Domain({"a": 2, "b": 2}), [noisy]).marginal(("a", "b")).round(1).tolist()
    [[15.0, 15.0], [35.0, 35.0]]
    """
    merged = merge_measurements(domain, measurements)
    if not merged:
        raise RecipeError("an estimate needs at least one measurement")
    known = [(domain.order(columns), order_mask(domain, columns, mask)) for columns, mask in zeros]
    held = [*(each.columns for each in merged), *(columns for columns, _ in known)]
    tree = build_tree(domain, held, limit=limit)
    records = estimate_total(domain, merged) if total is None else float(total)
    if not 0 < records < math.inf:
        raise RecipeError("the total number of records must be above zero")
    model = fit_model(
        tree,
        merged,
        total=records,
        zeros=known,
        evaluations=iterations,
        early_stopping=iterations is None and target is None,
        target=target,
        progress=progress,
    )
    model.seed = seed
    return model


def fit_model(
    tree: Tree,
    measurements: list[Measurement],
    *,
    total: float,
    zeros: Iterable[tuple[Columns, Flags]] = (),
    start: Model | None = None,
    evaluations: int | None = None,
    early_stopping: bool = True,
    target: float | None = None,
    share_sums: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Model:
    """Return the model of `tree` with `total` records that fits merged `measurements`.

    Columns and masks of `zeros` are in the order of the domain. The fit begins at `start`, or at the
    uniform model, and makes at most so many `evaluations`: all of them without `early_stopping`, unless
    the `target` loss is reached before. With `share_sums` many marginals of one clique are summed by way of
    larger ones, which is faster and changes last bits. `progress` is told how far the fit is.
    """
    answers = _Answers(tree, measurements, share_sums=share_sums)
    fit = _Fit(tree, measurements, answers, total=total, zeros=zeros, start=start)
    most = _MOST_EVALUATIONS if evaluations is None else evaluations
    if not early_stopping:
        fit.accelerated_mirror_descent(most=most, target=target, progress=progress)
        return fit.model()
    done = fit.path_length == 0 and fit.mirror_descent(most=most, progress=progress)
    before = (fit.loss, fit.degrees_of_freedom)
    failures = 0
    for _ in range(_PROXIMAL_STEPS):
        if done or fit.evaluations >= most or failures > _FAILED_STEPS:
            break
        solved = fit.proximal_step(most=most)
        progress(f"fitting: {fit.evaluations} evaluations, loss {fit.loss:.6g}")
        if solved:
            done = fit.is_explained(before)
        else:
            failures += 1
            fit.step_size /= 16
        if fit.loss > before[0]:
            fit.undo_proximal_step()
        before = (fit.loss, fit.degrees_of_freedom)
    return fit.model()


def order_mask(domain: Domain, columns: Columns, mask: Flags) -> Flags:
    """Return `mask` over the cells of `columns` with the columns in the order of the domain, flat."""
    flat = np.asarray(mask, np.bool_).reshape(-1)
    if flat.size != domain.cells(columns):
        raise RecipeError(
            f"the zeros of {' x '.join(columns)} need a mask of {domain.cells(columns):,} cells"
        )
    return rearrange(flat, columns, domain.order(columns), domain.shape(columns))


@dataclass(slots=True, eq=False)
class _Marginal:
    """A measured marginal: where it is summed from, and which measurements are about it.

    `source` is the place of a larger measured marginal, or -1 - the place of a clique.
    """

    columns: Columns
    source: int
    steps: tuple[Pattern, ...]
    cells: int
    measured: list[tuple[Measurement, slice]] = field(default_factory=list)

    @property
    def counted(self) -> slice | None:
        """Return where the answers lie that are the counts themselves, if they were measured."""
        return next((place for each, place in self.measured if each.queries is None), None)


def _find_between(tree: Tree, wanted: Iterable[Columns]) -> set[Columns]:
    """Return marginals between a clique and many small ones of it that are `wanted`.

    The columns of a clique are parted into four groups of about as many cells. A small marginal is summed
    from that of the groups that it touches.
    """
    held: dict[int, list[Columns]] = {}
    for columns in wanted:
        home = tree.home(columns)
        if home is not None:
            held.setdefault(home, []).append(columns)
    between: set[Columns] = set()
    for home, small in held.items():
        clique = tree.cliques[home]
        if len(small) < _MANY_MARGINALS:
            continue
        sizes = np.cumsum(np.log(tree.domain.shape(clique)))
        groups = dict(
            zip(clique, (4 * (sizes - 1e-9) / max(sizes[-1], 1e-9)).astype(int).tolist(), strict=True)
        )
        for columns in small:
            touched = {groups[name] for name in columns}
            between.add(tuple(name for name in clique if groups[name] in touched))
    return between - set(tree.cliques)


class _Answers:
    """The measured values in one vector, and the linear maps between a tree's tables and answers.

    Marginals are summed from the smallest measured marginal that holds them, or from their clique.
    """

    __slots__ = ("_marginals", "slices", "values", "variances")

    def __init__(self, tree: Tree, measurements: list[Measurement], *, share_sums: bool) -> None:
        domain = tree.domain
        ends = np.cumsum([0, *(each.values.size for each in measurements)]).tolist()
        self.slices = [slice(ends[place], ends[place + 1]) for place in range(len(measurements))]
        self.values = np.concatenate([each.values for each in measurements])
        self.variances = np.concatenate([np.full(each.values.size, each.variance) for each in measurements])
        self._marginals: list[_Marginal] = []
        known: dict[Columns, int] = {}
        summed = {each.columns for each in measurements}
        if share_sums:
            summed |= _find_between(tree, summed)
        for columns in sorted(summed, key=lambda c: (-domain.cells(c), c)):
            larger = [place for other, place in known.items() if set(columns) < set(other)]
            if larger:
                source = min(larger, key=lambda place: self._marginals[place].cells)
                above = self._marginals[source].columns
            else:
                home = tree.home(columns)
                if home is None:
                    raise RecipeError(f"the tree has no clique for {' x '.join(columns)}")
                source, above = -1 - home, tree.cliques[home]
            known[columns] = len(self._marginals)
            steps = find_steps(domain, above, columns)
            self._marginals.append(_Marginal(columns, source, steps, domain.cells(columns)))
        for each, place in zip(measurements, self.slices, strict=True):
            self._marginals[known[each.columns]].measured.append((each, place))

    def predict(self, beliefs: Beliefs, out: Floats, curvature: Floats | None = None) -> None:
        """Sets `out` to the answers of the marginals in `beliefs`.

        `curvature`, if given, is set to how fast each answer moves with its multiplier, in units of the
        counts: the sum of its cells' counts times their squared weights.
        """
        tables: list[Floats] = []
        for marginal in self._marginals:
            source = beliefs.table(-1 - marginal.source) if marginal.source < 0 else tables[marginal.source]
            counted = marginal.counted
            target = np.empty(marginal.cells) if counted is None else out[counted]
            tables.append(marginalise(source, marginal.steps, target))
            for each, place in marginal.measured:
                queries = each.queries
                if queries is not None:
                    apply_rows(queries.starts, queries.members, queries.weights, tables[-1], out[place])
                    if curvature is not None:
                        squares = queries.weights**2
                        apply_rows(queries.starts, queries.members, squares, tables[-1], curvature[place])
                elif curvature is not None:
                    curvature[place] = tables[-1]

    def potentials(self, multipliers: Floats, beliefs: Beliefs, out: Floats) -> None:
        """Sets `out`, the potentials of the cliques, to the sum of all multipliers' queries."""
        out[:] = 0.0
        tables: list[Floats] = []
        for marginal in self._marginals:
            counted = marginal.counted
            tables.append(np.zeros(marginal.cells) if counted is None else multipliers[counted].copy())
            for each, place in marginal.measured:
                queries = each.queries
                if queries is not None:
                    spread_rows(
                        queries.starts, queries.members, queries.weights, multipliers[place], tables[-1]
                    )
        # Smaller marginals come later, so a table is complete when it is handed on.
        for marginal in reversed(self._marginals):
            source = marginal.source
            target = out[beliefs.slices[-1 - source]] if source < 0 else tables[source]
            spread(tables.pop(), marginal.steps, target)


class _Fit:
    """The state of one fit: multipliers, potentials, marginals and answers.

    Potentials are those of the `centre`, a model, plus the multipliers' queries. `path_length` is the sum
    of the sizes of all steps since the uniform model, `step_size` that of the last proximal step.
    """

    def __init__(
        self,
        tree: Tree,
        measurements: list[Measurement],
        measured: _Answers,
        *,
        total: float,
        zeros: Iterable[tuple[Columns, Flags]],
        start: Model | None,
    ) -> None:
        self.beliefs = Beliefs(tree)
        self.measured = measured
        self.variances = self.measured.variances
        self.total = total
        self.size = self.measured.values.size
        self.beliefs.forbid(zeros)
        self.values, self.constant_loss = _shift_to_total(self.measured, measurements, total)
        self.potentials = np.empty(self.beliefs.values.size)
        self.answers = np.empty(self.size)
        # A count moves with its multiplier by the count itself, so that counts are their own curvature.
        self.curvature = self.answers
        if any(each.queries is not None for each in measurements):
            self.curvature = np.empty(self.size)
        self.pairs: deque[tuple[NDArray[Any], NDArray[Any]]] = deque(
            maxlen=max(_PAIRS[0], min(_PAIRS[1], _PAIR_NUMBERS // self.size))
        )
        self.evaluations = 0
        self.centre = np.zeros(self.beliefs.values.size)
        self.path_length = self.step_size = 0.0
        if start is not None:
            self.centre = self.beliefs.express([start.flat_marginal(clique) for clique in tree.cliques])
            self.path_length, self.step_size = start.path_length / 2, start.path_length / _WARM_START
        self._before_step = (self.centre, self.path_length)
        self.multipliers = np.zeros(self.size)  # since the centre
        self.log_normaliser = self._evaluate(self.multipliers)

    @property
    def loss(self) -> float:
        """Return half the weighted squared distance."""
        residual = self.answers - self.values
        return self.constant_loss + float(0.5 * np.dot(residual, residual / self.variances))

    @property
    def degrees_of_freedom(self) -> float:
        """Return the effective number of parameters: near 1 for an answer above its noise, near 0 below."""
        if self.path_length == 0:
            return 0.0
        return float((self.curvature / (self.curvature + self.variances / self.path_length)).sum())

    def is_explained(self, before: tuple[float, float]) -> bool:
        """Return whether the loss is no more than noise explains, and falls no faster than by fitting noise.

        `before` are the loss and the degrees of freedom of an earlier model of the same fit.
        """
        loss, freedom = self.loss, self.degrees_of_freedom
        gained, freed = before[0] - loss, freedom - before[1]
        if 2 * loss > _EXCESS_LOSS * (self.size - freedom):
            return gained <= max(0.1 * freed, 1e-3 * loss)
        return gained <= max(2 * freed, 0.1 * math.sqrt(self.size))

    def model(self) -> Model:
        """Return the model as it stands."""
        return Model(
            self.beliefs.tree,
            self.beliefs.values,
            total=self.total,
            loss=self.loss,
            evaluations=self.evaluations,
            path_length=self.path_length,
        )

    def mirror_descent(self, *, most: int, progress: Callable[[str], None]) -> bool:
        """Return whether mirror descent got to the end; if not, the noise is low and proximal steps pay.

        Steps go along the weighted residuals and grow while they succeed.
        """
        weighted, fresh = np.empty(self.size), np.empty(self.size)
        loss = self._weigh_residuals(weighted)
        size = 1 / (float(np.abs(weighted).max()) + 1e-300)
        before, steps = (loss, self.degrees_of_freedom), 0
        while self.evaluations < most:
            trial = self.multipliers - size * weighted
            found = self._loss_at(trial, fresh)
            if not found <= loss:
                size /= 2
                if size * float(np.abs(weighted).max()) < 1e-12 or self.evaluations >= most:
                    self.log_normaliser = self._evaluate(self.multipliers)
                    return True
                continue
            self.multipliers, loss = trial, found
            self.path_length += size
            size *= _GROWTH
            steps += 1
            if steps % _STOP_EVERY == 0:
                progress(f"fitting: {self.evaluations} evaluations, loss {loss:.6g}")
                if self.is_explained(before):
                    return True
                if steps >= _FIRST_STEPS and 2 * loss > 1.1 * self.size:
                    return False
                before = (loss, self.degrees_of_freedom)
            weighted, fresh = fresh, weighted
        return True

    def accelerated_mirror_descent(
        self, *, most: int, target: float | None, progress: Callable[[str], None]
    ) -> None:
        """Goes down with Nesterov's momentum to the `target` loss, or for `most` evaluations in all.

        The gradient is taken at `at`, beyond the multipliers by the momentum. Lengths are those of the
        path, to the multipliers and to `at`.
        """
        weighted, stepped, trial = (np.empty(self.size) for _ in range(3))
        loss = self._weigh_residuals(weighted)
        size = 1 / (float(np.abs(weighted).max()) + 1e-300)
        at, pace, lengths = self.multipliers.copy(), 1.0, (0.0, 0.0)
        while self.evaluations < most and size > 1e-300 and not (target is not None and loss <= target):
            faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
            momentum = (pace - 1) / faster
            advance(at, weighted, size, self.multipliers, momentum, stepped, trial)
            found = self._loss_at(trial, weighted)
            if found <= loss:
                self.multipliers, stepped = stepped, self.multipliers
                at, trial = trial, at
                loss, pace = found, faster
                longer = lengths[1] + size
                lengths = (longer, longer + momentum * (longer - lengths[0]))
                size *= _ACCELERATED_GROWTH
            else:
                size /= 2
                if pace > 1:  # restart: the momentum is dropped
                    at[:] = self.multipliers
                    pace, lengths = 1.0, (lengths[0], lengths[0])
                loss = self._loss_at(at, weighted)
                if size * float(np.abs(weighted).max()) < 1e-12:
                    break
            self.path_length = lengths[1]
            if self.evaluations % 20 == 0:
                progress(f"fitting: {self.evaluations} evaluations, loss {loss:.6g}")

    def proximal_step(self, *, most: int) -> bool:
        """Return whether one proximal step was solved: twice as long as the last one.

        The model becomes the new centre, its potentials expressed by its marginals. Contradictions
        between measurements pull multipliers apart without end; expressed anew, potentials stay as small
        as the model allows.
        """
        self.step_size = 2 * self.step_size if self.step_size else self.path_length
        tables = [self.beliefs.table(place) for place in range(len(self.beliefs.slices))]
        self._set_centre(self.beliefs.express(tables))
        self._before_step = (self.centre, self.path_length)
        self.path_length += self.step_size
        return self._minimise_dual(self.variances / self.step_size, most=most)

    def undo_proximal_step(self) -> None:
        """Goes back to the centre of the last proximal step."""
        centre, self.path_length = self._before_step
        self._set_centre(centre)

    def _set_centre(self, potentials: Floats) -> None:
        self.centre = potentials
        self.multipliers = np.zeros(self.size)
        self.log_normaliser = self._evaluate(self.multipliers)

    def _minimise_dual(self, ridge: Floats, *, most: int) -> bool:
        """Return whether L-BFGS solved a proximal step; `ridge` is the squared penalty on each multiplier."""
        for _ in range(_LBFGS_STEPS):
            gradient = self.answers - self.values + ridge * self.multipliers
            off = float(np.dot(gradient, gradient / self.variances))
            if off <= _ROUGHLY**2 * 2 * (self.loss - self.constant_loss):
                return True
            if self.evaluations >= most or not self._lbfgs_step(gradient, ridge):
                return False
        return False

    def _lbfgs_step(self, gradient: Floats, ridge: Floats) -> bool:
        """Whether a step was found that lowers the dual; learnt curvature is dropped if it misleads."""
        metric = 1 / (self.curvature + ridge)
        if self._line_search(self._lbfgs_direction(gradient, ridge, metric), gradient, ridge):
            return True
        if not self.pairs:
            return False
        self.pairs.clear()
        return self._line_search(-metric * gradient / 4, gradient, ridge)

    def _lbfgs_direction(self, gradient: Floats, ridge: Floats, metric: Floats) -> Floats:
        """Return the two-loop recursion, with `metric`, the curvature of single answers, in its middle."""
        vector = gradient.copy()
        pairs = []
        for move, change in self.pairs:
            bend = change + ridge * move
            product = float(np.dot(move, bend))
            # Steps that vanish, or whose change does, teach nothing about the curvature.
            if product > 0 and float(np.dot(bend, metric * bend)) > 0:
                pairs.append((move, bend, product))
        weights = []
        for move, bend, product in reversed(pairs):
            weight = float(np.dot(move, vector)) / product
            weights.append(weight)
            vector -= weight * bend
        scale = 0.25
        if pairs:
            _, bend, product = pairs[-1]
            scale = product / float(np.dot(bend, metric * bend))
        vector *= scale
        vector *= metric
        for (move, bend, product), weight in zip(pairs, reversed(weights), strict=True):
            vector += (weight - float(np.dot(bend, vector)) / product) * move
        return -vector

    def _line_search(self, direction: Floats, gradient: Floats, ridge: Floats) -> bool:
        """Return whether backtracking found a step along `direction` that lowers the dual enough."""
        slope = float(np.dot(gradient, direction))
        if not slope < 0:
            return False
        value = self._dual(self.log_normaliser, self.multipliers, ridge)
        size = min(1.0, _LONGEST_MOVE / float(np.abs(direction).max()))
        before = self.answers.copy()
        for _ in range(8):
            trial = self.multipliers + size * direction
            try:
                log_normaliser = self._evaluate(trial)
                found = self._dual(log_normaliser, trial, ridge)
            except NoMass:
                found = math.inf
            # The last term is what rounding may do to values that hardly differ.
            if found <= value + _ARMIJO * size * slope + 1e-13 * abs(value):
                kind = np.float64 if self.size <= _PAIR_NUMBERS // _PAIRS[1] else np.float32
                self.pairs.append(((size * direction).astype(kind), (self.answers - before).astype(kind)))
                self.multipliers, self.log_normaliser = trial, log_normaliser
                return True
            # The minimum of the parabola through what is known of this line.
            bend = found - value - size * slope
            size *= min(0.5, max(0.05, -0.5 * slope * size / bend)) if 0 < bend < math.inf else 0.5
        self.log_normaliser = self._evaluate(self.multipliers)
        return False

    def _dual(self, log_normaliser: float, multipliers: Floats, ridge: Floats) -> float:
        linear = float(np.dot(multipliers, self.values))
        return self.total * log_normaliser - linear + 0.5 * float(np.dot(multipliers, ridge * multipliers))

    def _loss_at(self, multipliers: Floats, weighted: Floats) -> float:
        """The loss at `multipliers`, infinite where no model is; `weighted` is set to weighted residuals."""
        try:
            self.log_normaliser = self._evaluate(multipliers)
        except NoMass:
            return math.inf
        return self._weigh_residuals(weighted)

    def _weigh_residuals(self, weighted: Floats) -> float:
        """Return the loss; `weighted` is set to the residuals over their variances."""
        return self.constant_loss + float(weigh(self.answers, self.values, self.variances, weighted))

    def _evaluate(self, multipliers: Floats) -> float:
        """Return the log-normaliser at `multipliers`: one pass up and one pass down the tree."""
        self.measured.potentials(multipliers, self.beliefs, self.potentials)
        self.potentials += self.centre
        log_normaliser = self.beliefs.calibrate(self.potentials, total=self.total)
        own = self.curvature is not self.answers
        self.measured.predict(self.beliefs, self.answers, self.curvature if own else None)
        self.evaluations += 1
        return log_normaliser


def _shift_to_total(
    measured: _Answers, measurements: list[Measurement], total: float
) -> tuple[Floats, float]:
    """The values with counts shifted to sum to `total`, as every model's do, and the loss of the shifts."""
    values, loss = measured.values.copy(), 0.0
    for each, place in zip(measurements, measured.slices, strict=True):
        if each.queries is None:
            shift = (total - float(each.values.sum())) / each.values.size
            values[place] += shift
            loss += 0.5 * each.values.size * shift**2 / each.variance
    return values, loss
