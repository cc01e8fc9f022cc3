"""Logistic regression by noisy Newton steps: coefficients with intervals, and a model to predict with."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.questions.measurement import Answer, Ask, Measurement, request_grid
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
from sfumato.inference.models.logistic import (
    LAST,
    Step,
    estimate_auroc_loss,
    fit_logistic,
    is_visible,
    level_shift,
    list_needed_logistic,
    logistic_weights,
    next_coefficients,
    pool_start,
)
from sfumato.recipes.base import Conversation, Plan, Product
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

if TYPE_CHECKING:
    from sfumato.core.facts.domain import Label
    from sfumato.core.facts.table import Table
    from sfumato.inference.models.linear import Floats, NoisyMoments

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
        (allowed,) = plan.costs
        assert allowed.mu_squared is not None

        def measure(asked: Moments, unit: int, budget: Fraction) -> float:
            request = calibrate(table, "forecast", asked, budget)
            return request.standard_deviation / (request_grid(table, request) * unit)

        budgets = self._list_budgets(allowed.mu_squared)
        slopes = [measure(slope, LARGEST_WEIGHT, each * (1 - _CURVATURE)) for each in budgets]
        curvatures = [measure(curvature, 4 * LARGEST_CURVATURE, each * _CURVATURE) for each in budgets]
        return list_needed_logistic(average_products(design, grid=SCORE_GRID), slopes, curvatures)

    def run(self, plan: Plan, *, progress: Callable[[str], None]) -> Conversation:
        """Return the coefficients that noisy Newton steps arrive at."""
        if self.holdout is not None:
            return (yield from run_split(self, plan, progress))
        table, columns = plan.table, plan.columns
        design = build_design(table, columns[:-1], categorical=self.categorical, grid=SCORE_GRID)
        (allowed,) = plan.costs
        assert allowed.mu_squared is not None
        budgets = self._list_budgets(allowed.mu_squared)
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
            if turn < len(budgets) and (self.within is None or is_visible(pool_start(steps))):
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
            **self.describe_model(plan, inputs=columns[:-1], family=self.family),
            **spent,
            "classes": [others[0] if len(others) == 1 else f"not {positive}", positive],
            "left_out": dict(design.left_out),
            "terms": records,
            "records": max(round(count), 0),
            "share_positive": share_of,
            "ridge": round_number(solution.ridge),
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

    def describe(self, plan: Plan) -> dict[str, str]:
        """Return the paragraphs of the privacy write-up that are this recipe's own."""
        return {
            **self.describe_common(plan),
            "privatisation": (
                f"{_STEPS} Newton steps are taken. Each measures the slope of the likelihood at the "
                "coefficients so far, and its curvature; the weight of a record in both is looked up in a "
                "public table. The last step also measures squared residuals."
            ),
            "postprocessing": (
                "Coefficients are those that the slopes of the last steps point to. Directions that do not "
                "stand out of the noise are shrunk by a ridge that the noise alone decides; coefficients "
                "that need them, or that had not arrived, are released without interval. All of it uses "
                "noisy answers and public facts only."
            ),
        }

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
    ) -> Generator[tuple[Ask, ...], tuple[Answer, ...], tuple[Step, NoisyMoments | None]]:
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
        assert isinstance(first, Measurement)
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
                shift=level_shift(LINK_GRID),
            )
            return Moments(columns=columns, scores=scores, order=1 if order == 1 else 2, link=link)

        return (
            ask(residuals, LARGEST_WEIGHT, order=1),
            ask(np.stack([4 * curvatures] * 2), LARGEST_CURVATURE, order=2),
            ask(residuals**2, LARGEST_CURVATURE, order=2),
        )


def _whole(weights: Floats) -> NDArray[np.int64]:
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
