"""Logistic regression by noisy Newton steps: coefficients with intervals, and a model to predict with.

Every step measures the slope of the likelihood at the coefficients so far, and its curvature. Curvatures of
earlier steps are pooled, since they change little near the end, and so are the slopes of the last steps:
near the solution each of them points to it with noise of its own. What follows from them, and what does not,
stands below the recipe.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.core.questions.measurement import request_grid
from sfumato.core.questions.moments import (
    LARGEST_CURVATURE,
    LARGEST_WEIGHT,
    LINK_GRID,
    SCORE_GRID,
    LinkWeights,
    Moments,
)
from sfumato.inference.models.design import Design, average_products, build_design
from sfumato.inference.models.document import Family, pack_model
from sfumato.inference.models.linear import (
    FEW,
    VISIBLE,
    Directions,
    NoisyMoments,
    Solution,
    average_moments,
    bound_sum,
    list_needed,
    propagate_noise,
    split_directions,
)
from sfumato.recipes.base import Asking, Conversation, Plan, Product, Progress
from sfumato.recipes.linear import (
    Reached,
    Regression,
    describe_spent,
    link_offsets,
    list_coefficients,
    list_levels,
    note_hidden,
    read_moments,
    read_within,
    round_number,
    settle,
)
from sfumato.recipes.shared.budget import calibrate
from sfumato.recipes.shared.evaluation import run_split
from sfumato.recipes.shared.model import describe_model
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.domain import Label
    from sfumato.core.facts.table import Table


_STEPS = 8  # Newton's method has arrived by then unless classes are separable
_GROWTH = Fraction(5, 4)  # of the budget from one step to the next: the last ones make the estimate
_CURVATURE = Fraction(2, 5)  # of a step's budget; the rest is for the slope
_SQUARES = Fraction(7, 100)  # of the last step's budget
_SQUARES_SEARCHED = Fraction(2, 100)  # of all that is spent, where steps go on until they are enough
_LAST_SEARCHED = 6  # steps whose slopes make the estimate then: the last ones have a smaller share of all


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(Regression):
    """A logistic model of whether the target has its `positive` label, with intervals of its coefficients.

    `positive` may be left out if the target has two labels: it is the second then.

    Privacy: every step adds slopes and curvatures that are looked up in public tables by a record's codes,
    and the largest entries bound the noise (docs/proofs/logistic.md). All steps together cost at most the
    Gaussian privacy that (epsilon, delta) admits, charged before the first of them.

    >>> Logistic(table="people", target="employed").kind
    'logistic'
    """

    kind: ClassVar[str] = "logistic"
    family: ClassVar[Family] = "classification"
    measure: ClassVar[str] = "AUROC"
    record_keys: ClassVar[tuple[str, ...]] = (
        "table", "target", "inputs", "categorical", "positive", "holdout", "groups", "choose", "within"
    )  # fmt: skip

    positive: Any = None

    def build_question(self, table: Table, columns: tuple[str, ...]) -> tuple[Design, Moments]:
        """Return the slope at the start."""
        self.find_positive(table)
        design = build_design(table, columns[:-1], categorical=self.categorical, grid=SCORE_GRID)
        slope, _, _ = self._ask(table, columns, design, np.zeros(1 + len(design.terms)))
        return design, slope

    def find_positive(self, table: Table) -> int:
        """Return the code of the positive label."""
        labels = table.column(self.target).labels
        if self.positive is None:
            if len(labels) != 2:
                raise RecipeError(
                    f"logistic: the target {self.target!r} has {len(labels):,} labels; say which one is "
                    "positive, all others are not"
                )
            return 1
        found = [code for code, label in enumerate(labels) if str(label) == str(self.positive)]
        if not found or len(labels) < 2:
            raise RecipeError(f"logistic: positive must be one of several labels of {self.target!r}")
        return found[0]

    def list_needed(self, plan: Plan, design: Design) -> Floats:
        """Return the number of records that each coefficient needs, the constant first."""
        table, start = plan.table, np.zeros(1 + len(design.terms))
        slope, curvature, _ = self._ask(table, plan.columns, design, start)

        def measure(asked: Moments, unit: int, budget: Fraction) -> float:
            request = calibrate(table, "forecast", asked, budget)
            return request.standard_deviation / (request_grid(table, request) * unit)

        budgets = self._list_budgets(plan.mu_squared)
        slopes = [measure(slope, LARGEST_WEIGHT, each * (1 - _CURVATURE)) for each in budgets]
        curvatures = [measure(curvature, 4 * LARGEST_CURVATURE, each * _CURVATURE) for each in budgets]
        return list_needed_logistic(average_products(design, grid=SCORE_GRID), slopes, curvatures)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the coefficients that noisy Newton steps arrive at."""
        if self.holdout is not None:
            return (yield from run_split(self, plan, progress))
        table, columns = plan.table, plan.columns
        design = build_design(table, columns[:-1], categorical=self.categorical, grid=SCORE_GRID)
        budgets = self._list_budgets(plan.mu_squared)
        steps: list[Step] = []
        squares: NoisyMoments | None = None
        reached, level, last = None, Fraction(0), LAST if self.within is None else _LAST_SEARCHED
        coefficients = np.zeros(1 + len(design.terms))
        for turn, budget in enumerate(budgets, 1):
            level += budget
            step, squares = yield from self._measure(
                table,
                columns,
                design,
                coefficients,
                turn=turn,
                mu_squared=budget,
                squares=_SQUARES if self.within is None and turn == len(budgets) else Fraction(0),
            )
            steps.append(step)
            progress(f"step {turn} of {'at most ' if self.within else ''}{len(budgets)}")
            if self.within is not None:
                loss = round_number(estimate_auroc_loss(steps, last=last))
                reached = Reached(steps=turn, loss=loss, target=read_within(self))
                if reached.is_enough:
                    break
            start = pool_start(steps)
            # Where no record stands out of the noise there is nothing to move by.
            visible = float(start.curvature.matrix[0, 0]) > VISIBLE * start.curvature.sigma
            if turn < len(budgets) and (self.within is None or visible):
                coefficients = settle(next_coefficients(steps, reach=lambda move: _reach(design, move)))
        if self.within is not None:
            asked = self._ask(table, columns, design, coefficients)[2]
            more = level * _SQUARES_SEARCHED / (1 - _SQUARES_SEARCHED)
            (measured,) = yield (calibrate(table, "squared residuals", asked, more),)
            squares = read_moments(measured, unit=1 / LARGEST_CURVATURE)
        solution = fit_logistic(
            steps, squares=squares, design_effect=float(table.unit.max_records), last=last
        )
        spent = describe_spent(plan, level / (1 - _SQUARES_SEARCHED), reached)
        rows, records = list_coefficients(design, solution, None)
        start = pool_start(steps)
        count = 4 * float(start.curvature.matrix[0, 0])  # at zero every record has the curvature 1/4
        labels = table.column(self.target).labels
        positive = labels[self.find_positive(table)]
        others = [label for label in labels if label != positive]
        share_of = _share(float(start.slope[0]), count, start)
        model = {
            **describe_model(plan, target=self.target, inputs=columns[:-1], family=self.family),
            **spent,
            "classes": [others[0] if len(others) == 1 else f"not {positive}", positive],
            "left_out": dict(design.left_out),
            "terms": records,
            "records": max(round(count), 0),
            "share_positive": share_of,
            "ridge": round_number(solution.split.ridge),
        }
        lost = [each for each in records if not each["identified"]]
        facts = {
            "records": max(round(count), 0),
            "coefficients": len(records),
            "not_identified": len(lost),
            "classes": _tell_classes(positive, others, share_of),
            **({"within": spent["within"]} if spent else {}),
            **note_hidden(records),
        }
        return Product(table=rows, files={"model.json": pack_model(model)}, facts=facts)

    def _list_budgets(self, most: Fraction) -> list[Fraction]:
        """Return the mu^2 of every step; of a search, of at most so many."""
        if self.within is not None:
            return list_levels(self, most * (1 - _SQUARES_SEARCHED))
        shares = [_GROWTH**place for place in range(_STEPS)]
        return [most * share / sum(shares) for share in shares]

    def _measure(
        self,
        table: Table,
        columns: tuple[str, ...],
        design: Design,
        coefficients: Floats,
        *,
        turn: int,
        mu_squared: Fraction,
        squares: Fraction,
    ) -> Asking[tuple[Step, NoisyMoments | None]]:
        slope, curvature, residuals = self._ask(table, columns, design, coefficients)
        left = mu_squared * (1 - squares)
        asks = [
            calibrate(table, f"slope {turn}", slope, left * (1 - _CURVATURE)),
            calibrate(table, f"curvature {turn}", curvature, left * _CURVATURE),
        ]
        if squares:
            asks.append(calibrate(table, "squared residuals", residuals, mu_squared * squares))
        answers = yield tuple(asks)
        first = answers[0]
        unit = 1 / (first.grid * LARGEST_WEIGHT)
        step = Step(
            coefficients=coefficients,
            slope=np.asarray(first.noisy_values * unit, np.float64),
            sigma=first.request.standard_deviation * unit,
            curvature=read_moments(answers[1], unit=1 / (4 * LARGEST_CURVATURE)),
        )
        return step, read_moments(answers[2], unit=1 / LARGEST_CURVATURE) if squares else None

    def _ask(
        self, table: Table, columns: tuple[str, ...], design: Design, coefficients: Floats
    ) -> tuple[Moments, Moments, Moments]:
        """Return the questions for slope, curvature and squared residuals at `coefficients`."""
        size = table.column(self.target).size
        branches = np.zeros(size, np.int64)
        branches[self.find_positive(table)] = 1
        offsets = (*link_offsets(design, coefficients), np.zeros(size, np.int64))
        scores = (*design.scores, np.zeros((size, 0), np.int64))
        residuals, curvatures = logistic_weights()

        def ask(weights: Floats, most: int, *, order: int) -> Moments:
            link = LinkWeights(
                offsets=offsets,
                branches=branches,
                weights=_whole(weights * most),
                shift=(LINK_GRID // _FINE).bit_length() - 1,
            )
            return Moments(columns=columns, scores=scores, order=1 if order == 1 else 2, link=link)

        return (
            ask(residuals, LARGEST_WEIGHT, order=1),
            ask(np.stack([4 * curvatures] * 2), LARGEST_CURVATURE, order=2),
            ask(residuals**2, LARGEST_CURVATURE, order=2),
        )


def _whole(weights: Floats) -> Whole:
    return np.asarray(np.rint(weights), np.int64)


def _reach(design: Design, move: Floats) -> float:
    """Return the most that `move` changes the predictor of any record."""
    total, first = abs(float(move[0])), 1
    for scores in design.scores:
        last = first + scores.shape[1]
        total += float(np.abs(scores @ move[first:last]).max(initial=0.0)) / SCORE_GRID
        first = last
    return total


def _share(slope: float, records: float, start: Step) -> float | None:
    """Return the share of positive records, None if there may be none at all."""
    if records <= 4 * 4 * start.curvature.sigma:
        return None
    return round_number(min(max((slope + records / 2) / records, 0.0), 1.0))


def _tell_classes(positive: Label, others: list[Label], share: float | None) -> str:
    if share is None:
        return "the noise may explain all records: the model says nothing about the target"
    if share in (0.0, 1.0):
        missing = f"{positive!r}" if share == 0.0 else f"other than {positive!r}"
        return f"no record {missing} stands out of the noise: the model is near to a constant"
    return f"about {share:.1%} of the records are {positive!r}"


REACH = 16
"""Predictors are held to this on both sides, where a probability is one in nine million."""
_FINE = 2**10  # steps of the predictor in one unit
_DISCOUNT = 0.3  # of a curvature, for every step that it is old
_STALE = 0.2  # of the last move, that such curvatures may make it wrong by
_DAMPED = 0.5  # of the noise of a curvature: later steps go on where one was shrunk too far
_LONGEST = 8.0  # that a step may move any predictor
LAST = 3
"""The steps whose slopes make the estimate."""
# Where the noise alone moves a coefficient of a scaled input by more, one step no longer tells where it ends.
_STEADY = 0.5
_ARRIVED, _NEAR = 4.0, 0.1  # a coefficient moved so many errors, or so little, when it was last measured
_PULLED, _FAR, _SMALL = 3.5, 3.0, 0.5
_HIDDEN_VARIANCE = math.pi**2 / 12  # half a standard deviation of logistic noise, squared
_FAINT = 0.2  # of the reach of the noise: the least curvature that a slope is divided by
_HIDDEN = 1.5  # what a coefficient along a weak direction may well be


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """The noisy slope and curvature at some coefficients, and the standard deviation of the slope's noise."""

    coefficients: Floats
    slope: Floats
    sigma: float
    curvature: NoisyMoments


@lru_cache(maxsize=1)
def logistic_weights() -> tuple[Floats, Floats]:
    """Return residuals, for outcomes 0 and 1, and curvatures at every level of the predictor."""
    levels = 2 * REACH * _FINE
    middles = [(level + 0.5) / _FINE - REACH for level in range(levels)]
    chances = np.array([1.0 / (1.0 + math.exp(-middle)) for middle in middles])
    residuals = np.stack([-chances, 1.0 - chances])
    return residuals, chances * (1.0 - chances)


def pool_start(steps: list[Step]) -> Step:
    """What all steps at coefficients of zero say together: there every record has a curvature of 1/4."""
    still = [each for each in steps if not each.coefficients.any()]
    precisions = np.array([1.0 / each.sigma**2 for each in still])
    slope = sum(weight * each.slope for weight, each in zip(precisions, still, strict=True))
    return Step(
        coefficients=still[0].coefficients,
        slope=np.asarray(slope) / precisions.sum(),
        sigma=1.0 / math.sqrt(float(precisions.sum())),
        curvature=average_moments([each.curvature for each in still]),
    )


def next_coefficients(steps: list[Step], *, reach: Callable[[Floats], float]) -> Floats:
    """Where the next slope is measured; `reach` tells how far a move takes the predictor of any record."""
    last = steps[-1]
    matrix, sigma = _pool(steps)
    split = split_directions(matrix, sigma, slope=last.sigma, damped=_DAMPED)
    move = split.solve(last.slope)
    found = last.coefficients + move * min(1.0, _LONGEST / max(reach(move), 1e-300))
    # Beyond the reach of the link no coefficient can be told from a larger one.
    return np.asarray(np.clip(found, -REACH, REACH))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Arrival:
    """Where the slopes of the last steps point to: from `start`, along directions, by their mean slope."""

    split: Directions
    sigma: float
    start: Floats
    slope: Floats
    variance: float

    @property
    def coefficients(self) -> Floats:
        return np.asarray(np.clip(self.start + self.split.solve(self.slope), -REACH, REACH))


def _arrive(steps: list[Step], last: int) -> _Arrival:
    matrix, sigma = _pool(steps)
    used = steps[-last:]
    precisions = np.array([1.0 / each.sigma**2 for each in used])
    variance = 1.0 / float(precisions.sum())
    shares = precisions * variance
    return _Arrival(
        split=split_directions(matrix, sigma, slope=math.sqrt(variance), damped=_DAMPED),
        sigma=sigma,
        start=np.asarray(sum(share * each.coefficients for share, each in zip(shares, used, strict=True))),
        slope=np.asarray(sum(share * each.slope for share, each in zip(shares, used, strict=True))),
        variance=variance,
    )


def estimate_auroc_loss(steps: list[Step], *, last: int) -> float:
    """Return how much of AUROC the noise costs: what it costs less than in 95 of 100 draws of the noise.

    Errors of coefficients add variance to the predictor: from noise, from what is taken for hidden along weak
    directions, and from slopes along these that noise does not explain. Of a predictor that is normal in both
    classes, variance that tells nothing lowers AUROC by a formula (docs/proofs/refinement.md).
    """
    found = _arrive(steps, last)
    split, coefficients = found.split, found.coefficients
    matrix = (split.vectors * split.values) @ split.vectors.T
    weight = float(matrix[0, 0])  # of all records together
    if weight <= VISIBLE * found.sigma:
        return 1.0
    spread = float(coefficients @ matrix @ coefficients) / weight
    spread -= float(matrix[0] @ coefficients / weight) ** 2
    if spread <= 0:
        return 1.0
    values, gains = np.maximum(split.values, 0.0), split.gains
    reach = found.sigma * math.sqrt(values.size)  # what noise alone makes of a curvature
    seen = np.flatnonzero(split.values > reach)
    seen = seen[: max(FEW, (seen.size + 1) // 2)]
    hidden = max(
        _HIDDEN_VARIANCE, float(((split.vectors.T @ coefficients)[seen] ** 2).sum()) / max(seen.size, 1)
    )
    moved = found.sigma**2 * float(((coefficients - found.start) ** 2).sum())
    missed = values * (1.0 - gains * values) ** 4 * hidden  # at least two steps went along every direction
    pulled = np.maximum((split.vectors.T @ found.slope) ** 2 - found.variance, 0.0)
    pulled *= (1.0 - gains * values) ** 2 / np.maximum(split.values, _FAINT * reach)
    away = np.maximum(missed, pulled)
    added = bound_sum((values * gains**2 * (found.variance + moved) + away) / weight)
    normal = NormalDist().cdf
    # What is missed belongs to the predictor without noise.
    whole = spread + float(away.sum()) / weight
    return normal(math.sqrt(whole / 2)) - normal(spread / math.sqrt(2 * (spread + added)))


def fit_logistic(
    steps: list[Step], *, squares: NoisyMoments | None = None, design_effect: float = 1.0, last: int = LAST
) -> Solution:
    """Return the coefficients that the slopes of the `last` steps point to, and their covariance."""
    found = _arrive(steps, last)
    split, sigma, start, slope = found.split, found.sigma, found.start, found.slope
    coefficients, variance = found.coefficients, found.variance
    moved = propagate_noise(steps[-1].curvature, coefficients - start)
    noise = variance * np.eye(coefficients.size) + sigma**2 * moved @ moved.T
    noise = np.asarray(split.inverse @ noise @ split.inverse)
    # A curvature that is partly from earlier steps makes the last move too short or too long.
    noise += np.diag((_STALE * (coefficients - start)) ** 2)
    errors = np.sqrt(np.maximum(np.diag(noise), 0.0))
    arrived = np.abs(coefficients - start) <= np.maximum(_ARRIVED * errors, _NEAR)
    # A slope along a weak direction that noise does not explain would go on to move the other coefficients:
    # a move by t along it shifts their slopes by at most half its curvature times t^2, of order t this slope.
    along = np.abs(split.vectors[:, ~split.strong].T @ slope)
    left = _FAR * float(along[along > _PULLED * math.sqrt(variance)].sum()) / 2
    shifts = left * np.sqrt((split.inverse**2).sum(axis=1))
    steady = shifts <= _SMALL * np.sqrt(np.maximum(np.diag(noise + split.inverse), 0.0))
    trusted = (errors <= _STEADY) & arrived & (np.abs(coefficients) < REACH) & steady
    return Solution(
        split=split,
        coefficients=coefficients,
        noise=noise,
        residual=1.0,
        records=0.0,
        squares=squares,
        design_effect=design_effect,
        hidden=_HIDDEN,
        trusted=trusted,
    )


def list_needed_logistic(matrix: Floats, slopes: list[float], curvatures: list[float]) -> Floats:
    """From how many records on each coefficient stands out, if one record adds `matrix` to the products.

    `slopes` and `curvatures` are the noise of those that the steps measure.
    """
    sigma = math.sqrt(float(_weigh(curvatures) ** 2 @ np.array(curvatures) ** 2))
    slope = 1.0 / math.sqrt(sum(1.0 / each**2 for each in slopes[-LAST:]))
    errors = slope * np.sqrt((np.linalg.pinv(matrix / 4) ** 2).sum(axis=1))  # for one record
    return np.asarray(np.maximum(list_needed(matrix / 4, sigma), errors / _STEADY))


def _weigh(sigmas: list[float]) -> Floats:
    """Return the weights of curvatures with this noise, older ones for less."""
    weights = np.array(
        [_DISCOUNT ** (len(sigmas) - 1 - place) / each**2 for place, each in enumerate(sigmas)]
    )
    return np.asarray(weights / weights.sum())


def _pool(steps: list[Step]) -> tuple[Floats, float]:
    """Return the weighted mean of all curvatures, older ones for less, and the deviation of its noise."""
    weights = _weigh([each.curvature.sigma for each in steps])
    matrix = sum(weight * each.curvature.matrix for weight, each in zip(weights, steps, strict=True))
    variances = np.array([each.curvature.sigma**2 for each in steps])
    return np.asarray(matrix), math.sqrt(float(weights**2 @ variances))
