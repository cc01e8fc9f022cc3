"""Linear and logistic regression from noisy sums: coefficients with intervals, and a model to predict with.

`Linear` measures all moments once, and squared residuals once more for the variance of sampling. `Logistic`
takes noisy Newton steps. Both turn every code of a column into public whole numbers (`models.design`), so
that what one record adds is bounded by the tables, whatever it holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.core.cost.curves import mu_to_epsilon
from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95, format_exact, parse_exact, round_up
from sfumato.core.questions.measurement import Measurement, request_grid
from sfumato.core.questions.moments import LARGEST_CURVATURE, LINK_GRID, SCORE_GRID, LinkWeights, Moments
from sfumato.inference.models.design import (
    Design,
    Term,
    average_products,
    bound_columns,
    build_design,
    number_term,
    number_values,
    scale_numbers,
)
from sfumato.inference.models.document import Family, pack_model
from sfumato.inference.models.linear import (
    NoisyMoments,
    Solution,
    arrange_moments,
    average_moments,
    estimate_errors,
    estimate_loss,
    find_components,
    fit_linear,
    is_identified,
    list_needed,
)
from sfumato.recipes.base import Conversation, Plan, Product, Progress
from sfumato.recipes.shared.budget import allow_gaussian, calibrate
from sfumato.recipes.shared.evaluation import run_split, split_plan
from sfumato.recipes.shared.model import ModelOptions, describe_model, describe_target
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

_SQUARES = Fraction(1, 10)  # of the budget, for the squared residuals
_FIRST = Fraction(1, 2**17)  # the first level of mu^2 to try: epsilon of about 0.01
_GROWTH = Fraction(5, 4)
_CLIP = 5.0  # residuals count up to so many of their own noisy spread
_LEVELS = 4096  # of the table of squared residuals
_DIGITS = 6  # of numbers that are released: what libraries add up in another order is beyond them
_STEP = 2.0**-12  # of coefficients that a question is asked at, for the same reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(ModelOptions):
    """What linear and logistic regression have in common.

    `inputs` are the columns to predict from, by default all others that have a domain or bounds; those that
    are `categorical` count as labels even where they are numbers. With `within`, such as "R2 0.02", epsilon
    is the most that may be spent: what is spent is the least at which the noise costs so little accuracy.
    """

    family: ClassVar[Family]
    evaluated: ClassVar[bool] = True
    measure: ClassVar[str]
    """What `within` is about."""

    categorical: Sequence[str] = ()
    within: str | None = None

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        self._keep_columns("categorical", empty=True)
        if self.holdout is not None and (self.within or any("within" in each for each in self.choose)):
            raise RecipeError(
                f"{self.kind}: within pays for its steps one by one, and held-out people are paid for with "
                "the fit, all at once; leave out within or holdout"
            )
        if self.within is not None:
            self._keep(within=f"{self.measure} {format_exact(read_within(self))}")

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return all that (epsilon, delta) admits of Gaussian privacy, charged before the first question."""
        self.refuse_budget(epsilons, delta)
        columns = (*self.find_inputs(table), self.target)
        table = bound_columns(describe_target(table, self.target, self.family), columns)
        unknown = next((name for name in self.categorical if name not in columns[:-1]), None)
        if unknown is not None:
            raise RecipeError(f"{self.kind}: categorical names {unknown!r}, which is no input")
        self.build_question(table, columns)
        allowance, step = (allow_gaussian(table, epsilons[0], delta),), self.within is not None
        plan = Plan(
            self, table, epsilons, delta, allowance=allowance, counted=(), clipped=(columns,), stepwise=step
        )
        return plan if self.holdout is None else split_plan(self, plan)

    def build_question(self, table: Table, columns: tuple[str, ...]) -> tuple[Design, Moments]:
        """Return the features of the inputs, and the first question about them and the target."""
        raise NotImplementedError

    def forecast(self, plan: Plan, records: int | None = None) -> str | None:
        """What stands out of the noise by public facts: with about so many `records`, or from how many on."""
        if self.within is not None or self.holdout is not None:
            return None
        if records is not None and (found := self.count_standing(plan, records)):
            return f"with {records:,} records, expect {found[0]} of {found[1]} coefficients to stand out"
        design, _ = self.build_question(plan.table, plan.columns)
        needed = self.list_needed(plan, design)
        return (
            f"the first of {needed.size} coefficients stands out of the noise from about "
            f"{round_records(needed.min())} records on, all from about {round_records(needed.max())}, "
            "if inputs are spread evenly; rare labels need more"
        )

    def count_standing(self, plan: Plan, records: int) -> tuple[int, int] | None:
        """Return how many coefficients are expected to stand out of the noise, and of how many."""
        if self.within is not None or self.holdout is not None:
            return None
        needed = self.list_needed(plan, self.build_question(plan.table, plan.columns)[0])
        return int((needed <= records).sum()), needed.size

    def list_needed(self, plan: Plan, design: Design) -> Floats:
        """Return the number of records that each coefficient needs, the constant first."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear(Regression):
    """A linear model of a column of numbers, with standard errors and intervals of its coefficients.

    Privacy: all moments of a record are looked up in public tables, whose largest bound the noise
    (docs/proofs/linear.md). The noisy sums and the noisy squared residuals together cost at most the
    Gaussian privacy that (epsilon, delta) admits, charged before the first of them.

    >>> Linear(table="people", target="income").kind
    'linear'
    """

    kind: ClassVar[str] = "linear"
    family: ClassVar[Family] = "regression"
    measure: ClassVar[str] = "R2"
    record_keys: ClassVar[tuple[str, ...]] = (
        "table", "target", "inputs", "categorical", "holdout", "groups", "choose", "within"
    )  # fmt: skip

    def build_question(self, table: Table, columns: tuple[str, ...]) -> tuple[Design, Moments]:
        """Return all products of inputs and target."""
        design = build_design(table, columns[:-1], categorical=self.categorical, grid=SCORE_GRID)
        term, scores = _read_target(table, self.target)
        del term
        return design, Moments(columns=columns, scores=(*design.scores, scores))

    def list_needed(self, plan: Plan, design: Design) -> Floats:
        """Return the number of records that each coefficient needs, the constant first."""
        _, question = self.build_question(plan.table, plan.columns)
        asked = calibrate(plan.table, "moments", question, plan.mu_squared * (1 - _SQUARES))
        sigma = asked.standard_deviation / request_grid(plan.table, asked)
        return list_needed(average_products(design, grid=SCORE_GRID), sigma)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the coefficients, from noisy moments and then noisy squares of residuals."""
        if self.holdout is not None:
            return (yield from run_split(self, plan, progress))
        table, columns = plan.table, plan.columns
        design, question = self.build_question(table, columns)
        target, target_scores = _read_target(table, self.target)
        levels = list_levels(self, plan.mu_squared * (1 - _SQUARES))
        parts: list[NoisyMoments] = []
        reached, level = None, Fraction(0)
        for place, more in enumerate(levels, 1):
            level += more
            name = "moments" if self.within is None else f"moments {place}"
            (measured,) = yield (calibrate(table, name, question, more),)
            parts.append(read_moments(measured))
            moments = average_moments(parts)
            if self.within is not None:
                progress(f"step {place} of at most {len(levels)}")
                loss = round_number(estimate_loss(moments, fit_linear(moments).coefficients))
                reached = Reached(steps=place, loss=loss, target=read_within(self))
                if reached.is_enough:
                    break
        effect = float(table.unit.max_records)
        solution = fit_linear(moments, design_effect=effect)
        progress("coefficients")
        clip = _CLIP * math.sqrt(min(max(solution.residual, 2**-20), 4.0))
        asked, unit = _ask_squares(design, target_scores, columns, solution, clip=clip)
        last = calibrate(table, "squared residuals", asked, level * _SQUARES / (1 - _SQUARES))
        (measured,) = yield (last,)
        squares = read_moments(measured, unit=unit)
        solution = fit_linear(moments, squares=squares, design_effect=effect)
        spent = describe_spent(plan, level / (1 - _SQUARES), reached)
        return _finish_linear(self, plan, design, target, moments, solution, spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far a search for the least epsilon came: the loss that noise causes, with 95 %, and the goal."""

    steps: int
    loss: float
    target: Fraction

    @property
    def is_enough(self) -> bool:
        """Return whether the goal is reached."""
        return self.loss <= self.target


def read_within(recipe: Regression) -> Fraction:
    """Return the accuracy that the noise may cost."""
    words = recipe.within.split() if isinstance(recipe.within, str) else []
    if len(words) == 2 and words[0].upper() == recipe.measure:
        share = Fraction(parse_exact(words[1], name="within"))
        if 0 < share < 1:
            return share
    raise RecipeError(
        f'{recipe.kind}: within must be like "{recipe.measure} 0.02": how much of {recipe.measure} the noise '
        "may cost, between 0 and 1"
    )


def round_records(records: float) -> str:
    """Return a number of records, rounded up to the two digits that a forecast has."""
    size = 10 ** max(math.floor(math.log10(max(records, 1))) - 1, 0)
    return f"{math.ceil(records / size) * size:,}"


def list_levels(recipe: Regression, most: Fraction) -> list[Fraction]:
    """Return what every level of mu^2 to measure up to costs beyond the one before.

    Without `within` there is one. Else they grow by a quarter, from a start that is the same for all, so
    that whoever wants to be more exact later pays for the difference.
    """
    levels = [most] if recipe.within is None or most <= _FIRST * _GROWTH else [_FIRST]
    # The last two may differ by more than a quarter, so that no step buys next to nothing.
    while levels[-1] * _GROWTH**2 <= most:
        levels.append(levels[-1] * _GROWTH)
    if levels[-1] < most:
        levels.append(most)
    return [level - before for level, before in zip(levels, [Fraction(0), *levels], strict=False)]


def describe_spent(plan: Plan, mu_squared: Fraction, reached: Reached | None) -> dict[str, Any]:
    """Return what a model.json says of a search for the least epsilon; nothing if there was none."""
    if reached is None:
        return {}
    spent = min(Fraction(mu_to_epsilon(math.sqrt(mu_squared), plan.delta)), plan.epsilons[0])
    return {
        "epsilon": format_exact(round_up(spent, places=6)),
        "within": {
            "asked": plan.recipe.to_record()["within"],
            "most_epsilon": format_exact(plan.epsilons[0]),
            "steps": reached.steps,
            "loss_95": reached.loss,
            "reached": reached.is_enough,
        },
    }


def read_moments(answer: Measurement, *, unit: float = 1.0) -> NoisyMoments:
    """Return a measurement of products as a matrix, in records times `unit`."""
    question = answer.request.counted
    assert isinstance(question, Moments)
    scale = unit / answer.grid
    return arrange_moments(
        np.asarray(answer.noisy_values * scale, np.float64),
        question.pairs,
        features=question.features,
        sigma=answer.request.standard_deviation * scale,
    )


def link_offsets(design: Design, coefficients: Floats) -> list[Whole]:
    """What every code of an input adds to the predictor, in units of 1 / LINK_GRID; the constant first."""
    offsets, first = [], 1
    for place, scores in enumerate(design.scores):
        last = first + scores.shape[1]
        added = scores @ coefficients[first:last] / SCORE_GRID + (coefficients[0] if place == 0 else 0.0)
        offsets.append(np.rint(added * LINK_GRID).astype(np.int64))
        first = last
    return offsets


def settle(coefficients: Floats) -> Floats:
    """Coefficients to ask at: coarse, so that another order of adding up does not change the question."""
    return np.asarray(np.rint(coefficients / _STEP) * _STEP + 0.0)


def _ask_squares(
    design: Design, target: Whole, columns: tuple[str, ...], solution: Solution, *, clip: float
) -> tuple[Moments, float]:
    """Return the question for products times squared residuals up to `clip`, and the unit of its answers."""
    clip = max(math.ceil(clip / _STEP), 1) * _STEP
    offsets = [-each for each in link_offsets(design, settle(solution.coefficients))]
    offsets.append(target[:, 0] * (LINK_GRID // SCORE_GRID))
    shift = 0
    while (_LEVELS // 2) << shift < clip * LINK_GRID:
        shift += 1
    middles = (np.arange(-(_LEVELS // 2), _LEVELS // 2) + 0.5) * 2.0**shift / LINK_GRID
    shares = np.minimum(np.abs(middles) / clip, 1.0) ** 2
    link = LinkWeights(
        offsets=tuple(offsets),
        branches=np.zeros(target.shape[0], np.int64),
        weights=np.rint(shares * LARGEST_CURVATURE).astype(np.int64)[None, :],
        shift=shift,
    )
    nothing = np.zeros((target.shape[0], 0), np.int64)
    asked = Moments(columns=columns, scores=(*design.scores, nothing), link=link)
    return asked, clip**2 / LARGEST_CURVATURE


def _read_target(table: Table, name: str) -> tuple[Term, Whole]:
    """Return the target as a number between its bounds."""
    column = table.column(name)
    values = number_values(column)
    if values is None:
        raise RecipeError(
            f"linear: the target {name!r} holds labels; declare range, bins or bounds, or use recipe "
            "logistic or additive"
        )
    term = number_term(column)
    return term, scale_numbers(values, term, extras=0, grid=SCORE_GRID)


def original_units(design: Design, target: Term | None) -> Floats:
    """Return the matrix that turns coefficients of scaled inputs into those of inputs as they are.

    Of a linear model the target is scaled back, too; its middle is not added to the constant yet.
    """
    size = 1 + len(design.terms)
    transform = np.zeros((size, size))
    scale = 1.0 if target is None else float(target.half)
    transform[0, 0] = scale
    for place, term in enumerate(design.terms, 1):
        transform[place, place] = scale / float(term.half)
        transform[0, place] = -scale * float(term.middle / term.half)
    return transform


def list_coefficients(
    design: Design, solution: Solution, target: Term | None
) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Return the coefficients with their errors and intervals: as a table, and as plain records."""
    transform = original_units(design, target)
    estimates = transform @ solution.coefficients
    if target is not None:
        estimates[0] += float(target.middle)
    errors = estimate_errors(solution, transform)
    identified = is_identified(solution, transform)
    records: list[dict[str, Any]] = []
    for place, estimate in enumerate(estimates.tolist()):
        term = None if place == 0 else design.terms[place - 1]
        half = NORMAL_95 * float(errors[place])
        known = bool(identified[place])
        records.append(
            {
                **({"column": None} if term is None else term.to_record()),
                "coefficient": round_number(estimate),
                "standard_error": round_number(float(errors[place])) if known else None,
                "low_95": round_number(estimate - half) if known else None,
                "high_95": round_number(estimate + half) if known else None,
                "identified": known,
            }
        )
    names = ["(constant)", *(term.column for term in design.terms)]
    labels = [None, *(None if term.is_number else str(term.label) for term in design.terms)]
    columns: dict[str, pa.Array] = {
        "input": pa.array(names, pa.string()),
        "label": pa.array(labels, pa.string()),
    }
    for key in ("coefficient", "standard_error", "low_95", "high_95"):
        columns[key] = pa.array([each[key] for each in records], pa.float64())
    columns["identified"] = pa.array([each["identified"] for each in records], pa.bool_())
    return pa.table(columns), records


def note_hidden(records: list[dict[str, Any]]) -> dict[str, str]:
    """Return what a certificate says of a model in which no coefficient is identified."""
    if any(each["identified"] for each in records):
        return {}
    return {
        "note": (
            "no coefficient stands out of the noise, so none has an interval; predictions are shrunk towards "
            "a constant; spend more epsilon, or use fewer inputs or coarser ones"
        )
    }


def round_number(number: float) -> float:
    """Return `number` with as many digits as are released; zero has no sign."""
    return float(f"{number:.{_DIGITS - 1}e}") + 0.0


def _finish_linear(
    recipe: Linear,
    plan: Plan,
    design: Design,
    target: Term,
    moments: NoisyMoments,
    solution: Solution,
    spent: dict[str, Any],
) -> Product:
    rows, records = list_coefficients(design, solution, target)
    spreads, noise, loadings, floor = find_components(moments, inputs=len(design.terms))
    size = moments.size - 1
    mean = moments.matrix[0, size] / solution.records
    total = max(float(moments.matrix[size, size]) / solution.records - mean**2, 0.0)
    explained = 1 - solution.residual / total if total > solution.residual else 0.0
    model = {
        **describe_model(plan, target=recipe.target, inputs=plan.columns[:-1], family=recipe.family),
        **spent,
        "bounds": [format_exact(target.low), format_exact(target.high)],
        "left_out": dict(design.left_out),
        "terms": records,
        "records": round(solution.records),
        "residual_deviation": round_number(math.sqrt(solution.residual) * float(target.half)),
        "r_squared": round_number(explained),
        "ridge": round_number(solution.split.ridge),
        "components": {
            "of": [term.to_record() for term in design.terms],
            "noise": round_number(floor),
            "variances": [round_number(each) for each in spreads.tolist()],
            "deviations": [round_number(each) for each in noise.tolist()],
            "loadings": [[round(each, 6) + 0.0 for each in row] for row in loadings.tolist()],
        },
    }
    lost = [each for each in records if not each["identified"]]
    facts: dict[str, Any] = {
        "records": round(solution.records),
        "coefficients": len(records),
        "not_identified": len(lost),
    }
    facts |= {"within": spent["within"]} if spent else {}
    facts |= note_hidden(records)
    return Product(table=rows, files={"model.json": pack_model(model)}, facts=facts)
