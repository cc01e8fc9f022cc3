"""An additive model of one column, fitted term by term to noisy sums of its residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange
from sfumato.core.facts.table import Table
from sfumato.inference.models.additive import AdditiveModel, label_cells
from sfumato.inference.models.design import code_values
from sfumato.inference.models.document import Family, pack_model
from sfumato.recipes.base import Conversation, Plan, Product, Progress
from sfumato.recipes.linear import round_records
from sfumato.recipes.shared.backfitting import Fitting, Task, list_needed, may_join
from sfumato.recipes.shared.budget import RemainingBudget, allow_gaussian
from sfumato.recipes.shared.evaluation import run_split, split_plan
from sfumato.recipes.shared.model import ModelOptions, describe_model, judge_target
from sfumato.recipes.shared.responses import count_columns, find_digits, list_responses

Columns = tuple[str, ...]

_MOST_CODES = 512  # of a range, before it is cut into bins
_MOST_CLASSES = 20  # each is a score of its own, with its part of the budget
_MOST_PAIRS = 20  # of inputs; each shares the budget of pairs
_TARGET_BINS = 2000  # finer than any prediction under noise
_DECADES = 5  # below the largest bound, in which cuts grow by steps
_PER_DECADE = (10, 15, 20, 30, 50, 70)
_STEPS = 64  # of equal width between the bounds
MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Additive(ModelOptions):
    """A model that adds up one function per column: for classes, for bounded numbers, or for counts.

    `target` is the column to predict, `inputs` those to predict it from: by default all that have a domain or
    bounds. `family` is "classification", "regression" or "counts"; by default listed values are classes and
    other domains are numbers. `pairs` is how many functions of two columns there may be beside these, chosen
    by noisy sums; "auto" asks for some where there are enough people for it. The functions are released as
    lookup tables with the bands of their noise.

    Privacy: all noisy sums together cost at most the Gaussian privacy that (epsilon, delta) admits, charged
    before the first of them (docs/proofs/additive.md).

    >>> Additive(table="people", target="income").kind
    'additive'
    """

    kind: ClassVar[str] = "additive"
    record_keys: ClassVar[Columns] = (
        "table", "target", "inputs", "family", "pairs", "holdout", "groups", "choose"
    )  # fmt: skip
    evaluated: ClassVar[bool] = True
    unforeseen: ClassVar[str] = "noise of effects follows from how far residuals spread, seen only as it fits"

    family: str | None = None
    pairs: int | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        if self.family not in (None, "classification", "regression", "counts"):
            raise RecipeError("additive: family must be 'classification', 'regression' or 'counts'")
        if self.pairs != "auto" and (type(self.pairs) is not int or not 0 <= self.pairs <= _MOST_PAIRS):
            raise RecipeError(f"additive: pairs must be 'auto' or a whole number from 0 to {_MOST_PAIRS}")

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return one allowance: all that (epsilon, delta) admits of Gaussian privacy."""
        self.refuse_budget(epsilons, delta)
        inputs = self.find_inputs(table)
        family = find_family(table, self.target, self.family)
        columns = {name: table.columns[name] for name in table.columns}
        columns |= {name: _as_input(table.columns[name]) for name in inputs}
        columns[self.target] = _as_target(table.columns[self.target], family)
        described = replace(table, columns=columns)
        for name in (*inputs, self.target):
            described.column(name)
        allowed = allow_gaussian(table, epsilons[0], delta)
        assert allowed.mu_squared is not None
        find_digits(described, allowed.mu_squared, inputs=len(inputs), family=family, target=self.target)
        pairs = combinations(inputs, 2) if may_join(described, inputs) else ()
        counted = (*((name,) for name in inputs), (self.target,), *pairs)
        plan = Plan(self, described, epsilons, delta, allowance=(allowed,), counted=counted)
        return plan if self.holdout is None else split_plan(self, plan)

    def forecast(self, plan: Plan, records: int | None) -> str:
        """Return about how many records it takes to fit terms, and pairs, beside a constant."""
        table, classes = plan.table, 1
        if find_family(table, self.target, self.family) == "classification":
            classes = table.column(self.target).size
        share = plan.mu_squared / (classes if classes > 2 else 1)
        terms, pairs = map(round_records, list_needed(table, share, inputs=len(self.find_inputs(table))))
        return (
            f"effects are fitted from about {terms} records on, and pairs of inputs from about {pairs}; with "
            "fewer the model is a constant"
        )

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the model of all noisy sums, term by term, until the budget is spent."""
        if self.holdout is not None:
            return (yield from run_split(self, plan, progress))
        table = plan.table
        inputs = self.find_inputs(table)
        family = find_family(table, self.target, self.family)
        # Costs are rounded up, one by one: of a tiny epsilon, that is no longer nothing.
        scores = table.column(self.target).size if family == "classification" else 1
        questions = 16 * (len(inputs) + 16) * scores + 2 * len(inputs) ** 2
        rounding = min(Fraction(2 * questions, 10**12), plan.mu_squared / 2)
        budget = RemainingBudget(table, mu_squared=plan.mu_squared - rounding)
        progress("counting")
        counted = yield from count_columns(budget, inputs, self.target, family)
        fits = []
        digits = find_digits(table, plan.mu_squared, inputs=len(inputs), family=family, target=self.target)
        responses = list_responses(table, self.target, family, counted, digits=digits.target)
        for place, response in enumerate(responses):
            task = Task(
                budget=budget,
                known=(*inputs, self.target),
                target=self.target,
                counted=counted,
                digits=digits,
                response=response,
                share=budget.left / (len(responses) - place),
                pairs=None if self.pairs == "auto" else self.pairs,
                label="" if len(responses) == 1 else f"class {place + 1}, ",
                progress=progress,
            )
            fits.append((yield from Fitting(task).run()))
        model = AdditiveModel(
            family=family,
            sizes={name: table.column(name).size for name in inputs},
            scores=tuple(fits),
            classes=table.column(self.target).labels if family == "classification" else (),
            **responses[0].numbers,
        )
        return _build_product(plan, model, inputs)


def find_family(table: Table, target: str, stated: str | None) -> Family:
    """What kind of target the schema describes, or an error where it cannot be what the recipe states."""
    column = table.columns[target]
    size = 0 if column.domain is None else column.domain.size
    family = judge_target(column, stated, kind="additive", classes=size, most=_MOST_CLASSES)
    if family == "counts":
        values = None if column.domain is None else code_values(column.domain)
        least = min(values) if values else column.bounds[0] if column.bounds else Fraction(0)
        if least < 0:
            raise RecipeError(f"additive: counts are not negative, but {target!r} may be")
    return family


def _build_product(plan: Plan, model: AdditiveModel, inputs: Columns) -> Product:
    table = plan.table
    recipe = plan.recipe
    assert isinstance(recipe, Additive)
    about = describe_model(plan, target=recipe.target, inputs=inputs, family=model.family)
    flat = sum(int(not shape.scores.any()) for score in model.scores for shape in score.shapes)
    terms = sum(len(score.shapes) for score in model.scores)
    facts: dict[str, Any] = {"family": model.family, "terms": terms, "terms_without_effect": flat}
    if flat == terms:
        facts["note"] = (
            "nothing was learnt: every effect lies within the noise, so the model predicts the same for all; "
            "spend more epsilon, or use fewer inputs"
        )
    return Product(
        table=_tabulate(table, model),
        files={"model.json": pack_model({**about, **model.to_record()})},
        facts={"model": facts},
    )


def _tabulate(table: Table, model: AdditiveModel) -> pa.Table:
    """Return all shapes as rows: what a value adds to the score, and the band of its noise."""
    unit = float(model.unit)
    rows: dict[str, list[Any]] = {"class": [], "column": [], "value": [], "effect": [], "low": [], "high": []}
    several = len(model.scores) > 1
    for place, score in enumerate(model.scores):
        label = str(model.classes[place if several else -1]) if model.classes else ""
        rows["class"].append(label)
        rows["column"].append("(intercept)")
        rows["value"].append("")
        for key in ("effect", "low", "high"):
            rows[key].append(score.intercept * unit)
        for shape in score.shapes:
            labels = label_cells([table.column(name).labels for name in shape.columns])
            effects = shape.scores * unit
            reach = shape.deviations * unit * NORMAL_95
            rows["class"] += [label] * len(labels)
            rows["column"] += [" x ".join(shape.columns)] * len(labels)
            rows["value"] += labels
            rows["effect"] += np.round(effects, 9).tolist()
            rows["low"] += np.round(effects - reach, 9).tolist()
            rows["high"] += np.round(effects + reach, 9).tolist()
    if not model.classes:
        del rows["class"]
    return pa.table({key: pa.array(values) for key, values in rows.items()})


def _as_input(column: Column) -> Column:
    """Return column as an input: a number with bounds only, or of a wide range, is cut into public bins."""
    domain = column.domain
    if domain is None and column.bounds is not None:
        label = column.missing_label or MISSING
        bins = Bins(_cut(*column.bounds))
        return replace(column, domain=bins, outside="clamp", missing_label=label)
    if isinstance(domain, IntegerRange) and domain.size > _MOST_CODES:
        whole = sorted(
            {Fraction(math.floor(edge)) for edge in _cut(Fraction(domain.low), Fraction(domain.high))}
        )
        return replace(column, domain=Bins(tuple(whole)))
    return column


def _as_target(column: Column, family: Family) -> Column:
    """Return the column as a target: without a code for missing values, whose records are left out."""
    domain = column.domain
    column = replace(column, missing_label=None)
    if family == "classification":
        return column
    outside = "drop" if column.outside == "other" else column.outside
    if domain is None and column.bounds is not None:
        low, high = column.bounds
        edges = tuple(low + (high - low) * step / _TARGET_BINS for step in range(_TARGET_BINS + 1))
        return replace(column, domain=Bins(edges), outside="clamp")
    if isinstance(domain, IntegerRange) and domain.size > 2**15:
        low, width = Fraction(domain.low), Fraction(domain.high - domain.low)
        steps = sorted(
            {Fraction(math.floor(low + width * step / _TARGET_BINS)) for step in range(_TARGET_BINS + 1)}
        )
        return replace(column, domain=Bins(tuple(steps)), outside=outside)
    return replace(column, outside=outside)


def _cut(low: Fraction, high: Fraction) -> tuple[Fraction, ...]:
    """Return edges from low to high: evenly spaced ones, and such as grow by steps from zero."""
    width = high - low
    edges = {low + width * step / _STEPS for step in range(_STEPS + 1)}
    top = math.ceil(math.log10(float(max(abs(low), abs(high)))))
    for power in range(top - _DECADES, top + 1):
        for digit in _PER_DECADE:
            edge = Fraction(digit, 10) * Fraction(10) ** power
            edges |= {each for each in (edge, -edge) if low < each < high}
    if low < 0 < high:
        edges.add(Fraction(0))
    return tuple(sorted(edges))
