"""Honest evaluation: a model is fitted to one part of the people and judged by another.

Everything here is planning of questions and post-processing. The questions of the fit are asked of the part
"fit", those of the judgement of the part "held out", and where options are to be chosen, candidates are
compared on a third part, "choice". An individual is in one of these, so each may spend all that is charged.
Proof: docs/proofs/parallel.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact
from sfumato.core.facts.column import parse_column
from sfumato.core.facts.part import Part
from sfumato.core.facts.table import Table
from sfumato.core.questions.choices import Choice
from sfumato.core.questions.measurement import Ask, Measurement, Request, ask_cost, in_records
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import CONFIDENCE, Link, Outcomes, Scorer, Term
from sfumato.inference.models.additive import logistic_table, read_model
from sfumato.inference.models.design import code_ends, code_values
from sfumato.inference.models.document import pack_model
from sfumato.inference.models.evaluation import (
    ROWS,
    Powers,
    count_places,
    find_reach,
    judge_classes,
    judge_numbers,
    observe_numbers,
    place_edges,
    place_middles,
    place_widths,
)
from sfumato.inference.models.linear import read_regression
from sfumato.recipes.base import Asking, Conversation, Plan, Product, Progress
from sfumato.recipes.shared.budget import calibrate
from sfumato.tables.arrays import Floats, Whole

if TYPE_CHECKING:
    from sfumato.core.facts.part import Part
    from sfumato.recipes.shared.model import ModelOptions

Record = dict[str, Any]

FIT, CHOICE, HELD_OUT = "fit", "choice", "held out"
_SPAN = 2**16  # steps of a number between its bounds
_LOGIT = 2**12  # steps of a log odds of a logistic model
_LARGEST = 2**30  # scores are held to it, so that sums of them stay below 64 bits
_SPREAD = Fraction(1, 10)  # of the budget, to see where predictions are
_SIZES = Fraction(15, 100)  # of the budget, to see how far residuals reach, and how far the target
_RESIDUALS, _AROUND = Fraction(40, 100), Fraction(20, 100)
_FINE = 256  # places at which predictions are first counted; docs/proofs/parallel.md has what is made of them
_PLACES = 8  # of predicted numbers that are calibrated
_STEPS = 1024  # of residuals between their clips
_GROWTH = 1.25  # of the sizes of residuals
_GRID = 2**15  # weights of powers are whole multiples of 1 / _GRID
_LOSSES = (
    ("log_loss", 1.0),
    ("rmse", 1.0),
    ("accuracy", -1.0),
)  # what candidates are compared by, the first found
_MOST_GROUPS = 50  # each shares the noise of a judgement, which of more would hide all


def split_plan(recipe: ModelOptions, plan: Plan) -> Plan:
    """Return the plan of a model that is fitted to one part of the people and judged by another.

    Privacy: what is charged is what each part may be asked for.
    """
    assert recipe.holdout is not None
    table, candidates = _describe_candidates(recipe, plan)
    if recipe.groups is not None:
        if recipe.groups == recipe.target:
            raise RecipeError(f"{recipe.kind}: groups must name another column than the target")
        if table.column(recipe.groups).size > _MOST_GROUPS:
            raise RecipeError(f"{recipe.kind}: groups must name a column of at most {_MOST_GROUPS} values")
    counted = tuple(dict.fromkeys(each for one in candidates for each in one.counted or ()))
    asked = (*(each for one in candidates for each in one.clipped), (recipe.target,))
    asked += () if recipe.groups is None else ((recipe.groups,),)
    whole = replace(plan, recipe=recipe, table=table, counted=counted, clipped=tuple(dict.fromkeys(asked)))
    held = recipe.holdout / 2 if recipe.choose else recipe.holdout
    shares = {FIT: 1 - recipe.holdout, **({CHOICE: held} if recipe.choose else {}), HELD_OUT: held}
    return replace(whole, parts=split_people(shares, columns=whole.columns))


def run_split(recipe: ModelOptions, plan: Plan, progress: Progress) -> Conversation:
    """Return the fitted model with its evaluation; of several candidates the one that did best."""
    parts = {part.name: part for part in plan.parts}
    candidates = _describe_candidates(recipe, plan)[1]
    products, losses, records, aside = [], [], [], Fraction(0)
    for number, inner in enumerate(candidates, 1):
        label = f"candidate {number}, " if len(candidates) > 1 else ""
        product, chosen = yield from _fit(inner, parts[FIT], label, Fraction(1, len(candidates)), progress)
        products.append(product)
        aside += chosen if plan.table.unit.neighbours == "replace" else 0
    # Where neighbours are exchanged, choices that a fit made cost everybody; what is left is for the rest.
    budget = (plan.mu_squared - aside) * (1 - Fraction(1, 10**9))
    if recipe.choose:
        for number, product in enumerate(products, 1):
            progress(f"comparing candidate {number}")
            judged = yield from _judge(
                plan, product, parts[CHOICE], budget / len(products), label=f"candidate {number}, "
            )
            signed = ((judged[key]["value"], sign) for key, sign in _LOSSES if key in judged)
            losses.append(next((sign * float(value) for value, sign in signed), math.inf))
            records.append({"options": dict(recipe.choose[number - 1]), **_shorten(judged)})
    best = int(np.argmin(losses)) if losses else 0
    product = products[best]
    progress("judging by held-out people")
    judged = yield from _judge(plan, product, parts[HELD_OUT], budget, group=recipe.groups)
    found: Record = {"share": format_exact(parts[HELD_OUT].share), **judged}
    if recipe.choose:
        found["choice"] = {"share": format_exact(parts[CHOICE].share), "chosen": best, "candidates": records}
    document = {**json.loads(product.files["model.json"]), "evaluation": found}
    return replace(
        product,
        files={**product.files, "model.json": pack_model(document)},
        facts={**product.facts, "evaluation": _shorten(judged)},
    )


def _describe_candidates(recipe: ModelOptions, plan: Plan) -> tuple[Table, list[Plan]]:
    """Return the table as all candidates describe it, and the plan of each."""
    bare = replace(recipe, holdout=None, groups=None, choose=())
    recipes = [replace(bare, **options) for options in recipe.choose] or [bare]
    table = plan.table
    for each in recipes:
        table = each.plan(table, epsilons=plan.epsilons, delta=plan.delta).table
    plans = [each.plan(table, epsilons=plan.epsilons, delta=plan.delta) for each in recipes]
    if any(one.table != table for one in plans):
        raise RecipeError(f"{recipe.kind}: the candidates of choose describe a column in different ways")
    return table, plans


def _fit(
    inner: Plan, part: Part, label: str, share: Fraction, progress: Progress
) -> Asking[tuple[Product, Fraction]]:
    """What `inner` makes of its share of the charge, asked of `part` alone; and what its choices cost."""
    (cost,) = inner.costs
    if share < 1:
        scale = Fraction(math.isqrt(int(cost.scale**2 * share * 10**24)), 10**12)
        inner = replace(inner, allowance=(replace(cost, scale=scale),))
    chosen = Fraction(0)
    run = inner.recipe.run(inner, progress=lambda stage: progress(f"{label}{stage}"))
    batch = next(run)
    while True:
        asks = tuple(take_part(ask, part, label=label) for ask in batch)
        costs = [ask_cost(inner.table, ask) for ask in asks]
        chosen += sum(each.mu_squared or 0 for each in costs if each.norm == "none")
        answers = yield asks
        try:
            batch = run.send(answers)
        except StopIteration as done:
            return done.value, chosen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Judged:
    """A released model as questions have it: scores in whole numbers, and what they stand for.

    `unit` is what a step of a prediction is: in log odds, or in units of a target from `low` on.
    """

    family: str
    inputs: tuple[str, ...]
    scorers: tuple[Scorer, ...]
    targets: Whole
    link: Link | None
    unit: float
    low: float = 0.0


def _judge(
    plan: Plan, product: Product, part: Part, budget: Fraction, *, label: str = "", group: str | None = None
) -> Asking[Record]:
    """Return how the model of `product` does on the people of `part`, for `budget` of Gaussian privacy."""
    model = _read_judged(json.loads(product.files["model.json"]), plan)
    judge = _judge_numbers if model.family in ("regression", "counts") else _judge_classes
    bench = _Bench(plan=plan, model=model, part=part, budget=budget, label=label, group=group)
    return (yield from judge(bench))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bench:
    """What a judgement needs: a model, a part of the people, and what may be spent on them."""

    plan: Plan
    model: _Judged
    part: Part
    budget: Fraction
    label: str
    group: str | None

    @property
    def effect(self) -> float:
        """Return the most records of one individual, which may all be alike."""
        return float(self.plan.table.unit.max_records)

    @property
    def groups(self) -> int:
        """Return the number of groups that are told apart."""
        return 1 if self.group is None else self.plan.table.column(self.group).size

    def prepare(self, name: str, share: Fraction, **options: Any) -> Ask:  # noqa: ANN401 - of Outcomes
        """Return a question about outcomes, asked of the part."""
        model, recipe = self.model, self.plan.recipe
        group = options.get("group")
        columns = (*model.inputs, getattr(recipe, "target", ""), *(() if group is None else (group,)))
        question = Outcomes(
            columns=tuple(dict.fromkeys(columns)),
            target=getattr(recipe, "target", ""),
            targets=model.targets,
            **{"scorers": model.scorers, "link": model.link, **options},
        )
        request = calibrate(self.plan.table, f"{self.label}{name}", question, self.budget * share)
        return take_part(request, self.part)

    def tell_groups(self, found: Record, parts: list[Record]) -> Record:
        """Return `found` with what is told of every group."""
        if self.group is None:
            return found
        labels = self.plan.table.column(self.group).labels
        listed = [{"label": str(label), **each} for label, each in zip(labels, parts, strict=True)]
        return {**found, "groups": {"column": self.group, "each": listed}}


def _find_spread(bench: _Bench, fine: Whole) -> Asking[tuple[Floats, float]]:
    """Return the noisy numbers of predictions between fine edges, whatever the outcome."""
    nothing = np.empty(0, np.int64)
    (answer,) = yield (bench.prepare("spread of predictions", _SPREAD, edges=fine, residual_edges=nothing),)
    return in_records(answer)


def _judge_classes(bench: _Bench) -> Asking[Record]:
    """Return where predictions are, then how many there are by place and outcome."""
    model = bench.model
    several = len(model.scorers) > 1
    step = CONFIDENCE // _FINE if several else round(1 / (16 * model.unit))
    fine = np.arange(1, _FINE) * step if several else np.arange(-_FINE // 2, _FINE // 2 + 1) * step
    spread, deviation = yield from _find_spread(bench, fine)
    later = deviation * math.sqrt(float(_SPREAD / (1 - _SPREAD)))  # the noise of the next question
    edges = place_edges(spread, fine, places=count_places(float(spread.sum()), later))
    edges = edges if several else np.unique(np.append(edges, 0))
    (answer,) = yield (bench.prepare("outcomes", 1 - _SPREAD, edges=edges, group=bench.group),)
    counts, deviation = in_records(answer)
    by_group = counts.reshape(bench.groups, -1, 2)
    middles = place_middles(edges)
    if several:
        chances = np.clip(middles / CONFIDENCE, 1 / CONFIDENCE, 1 - 1 / CONFIDENCE)
    else:
        chances = 1 / (1 + np.exp(-np.clip(middles * model.unit, -12.0, 12.0)))

    widths = place_widths(spread, fine, edges) * model.unit

    def judge(part: Floats, noise: float) -> Record:
        return judge_classes(part, noise, chances, widths, effect=bench.effect, right=several)

    found = judge(by_group.sum(axis=0), deviation * math.sqrt(bench.groups))
    return bench.tell_groups(found, [judge(each, deviation) for each in by_group])


def _judge_numbers(bench: _Bench) -> Asking[Record]:
    """How far residuals reach, then the sums of their powers; and the same of the target about a constant."""
    model = bench.model
    fine = np.arange(1, _FINE) * (_SPAN // _FINE)
    nothing = np.empty(0, np.int64)
    counts, _ = yield from _find_spread(bench, fine)
    edges = place_edges(counts, fine, places=_PLACES)
    center = int(place_edges(counts, fine, places=2)[0])
    constant: Record = {"scorers": (Scorer(intercept=center),), "link": None}
    sizes = _list_sizes()
    both = np.concatenate((-sizes[::-1], sizes))
    first = yield (
        bench.prepare("sizes of residuals", _SIZES, edges=nothing, residual_edges=both),
        bench.prepare("sizes around a constant", _SIZES, edges=nothing, residual_edges=both, **constant),
    )
    reaches = []
    for answer, share in zip(first, (_RESIDUALS, _AROUND), strict=True):
        counts, deviation = in_records(answer)
        folded = counts[sizes.size :].copy()
        folded[1:] += counts[: sizes.size][::-1]
        later = deviation * math.sqrt(float(_SIZES / share)) / ROWS[2]
        reaches.append(find_reach(folded, deviation * math.sqrt(2), sizes.astype(np.float64), later=later))
    if None in reaches:
        return {"note": "too noisy to say how large errors are: more epsilon, or more held-out people"}
    clips = [max(2, round(each or 0)) for each in reaches]
    steps, values = zip(*(_cut_steps(clip) for clip in clips), strict=True)
    second = yield (
        bench.prepare(
            "powers of residuals",
            _RESIDUALS,
            edges=edges,
            residual_edges=steps[0],
            group=bench.group,
            queries=_list_powers(bench.groups, edges.size + 1, values[0]),
        ),
        bench.prepare(
            "powers around a constant",
            _AROUND,
            edges=nothing,
            residual_edges=steps[1],
            queries=_list_powers(1, 1, values[1]),
            **constant,
        ),
    )
    powers = [_read_powers(answer, clip * model.unit) for answer, clip in zip(second, clips, strict=True)]
    residuals, around = (each.together() for each in powers)
    found = judge_numbers(residuals, around, effect=bench.effect)
    found["held_to"] = float(f"{clips[0] * model.unit:.5g}")
    if "rmse" not in found:
        return found
    middles = place_middles(edges) * model.unit + model.low
    variance = bench.effect * found["rmse"]["value"] ** 2

    def observe(counts: Floats, sums: Floats, groups: int) -> Record:
        noise, sum_noise = (powers[0].deviations[:2] * math.sqrt(groups)).tolist()
        return observe_numbers(counts, sums, middles, noise=noise, sum_noise=sum_noise, variance=variance)

    found |= observe(powers[0].counts.sum(axis=0), powers[0].firsts.sum(axis=0), bench.groups)
    listed = [
        {"records": max(round(float(counts.sum())), 0), **observe(counts, sums, 1)}
        for counts, sums in zip(powers[0].counts, powers[0].firsts, strict=True)
    ]
    return bench.tell_groups(found, listed)


def _list_sizes() -> Whole:
    """Return sizes of residuals that grow evenly, from a few steps to all of the range."""
    number = math.floor(math.log(_SPAN / 16) / math.log(_GROWTH))
    return np.array([round(_SPAN / _GROWTH**place) for place in range(number, -1, -1)])


def _cut_steps(clip: int) -> tuple[Whole, Floats]:
    """Return edges from -clip to clip, and for every step between them its middle as a part of the clip."""
    edges = np.unique(np.rint(np.linspace(-clip, clip, _STEPS + 1)).astype(np.int64))
    return edges[1:-1], (edges[1:] + edges[:-1]) / (2 * clip)


def _list_powers(groups: int, places: int, values: Floats) -> Queries:
    """Return sums of 1 and of `values` by group and place, then of their squares and fourth powers over all.

    A cell has the weights ROWS in these, whose squares add up to less than 1.
    """
    cells = groups * places * values.size
    powers = [np.trunc(part * values**power * _GRID) for part, power in zip(ROWS, (0, 1, 2, 4), strict=True)]
    single, whole = np.arange(groups * places + 1) * values.size, np.array([cells])
    starts = np.concatenate((single, cells + single[1:], 2 * cells + whole, 3 * cells + whole))
    return Queries(
        cells=cells,
        grid=_GRID,
        starts=starts,
        members=np.tile(np.arange(cells), 4),
        weights=np.concatenate([np.tile(each, groups * places) for each in powers]).astype(np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ByPlace:
    """Noisy counts and first powers by group and place, second and fourth over all; the noise of each."""

    counts: Floats
    firsts: Floats
    others: Floats
    deviations: Floats

    def together(self) -> Powers:
        """Return all groups and places together."""
        sums = np.concatenate(([self.counts.sum(), self.firsts.sum()], self.others))
        several = math.sqrt(self.counts.size)
        return Powers(sums=sums, deviations=self.deviations * np.array([several, several, 1.0, 1.0]))


def _read_powers(answer: Measurement, clip: float) -> _ByPlace:
    """Return the sums of powers in units of the target: `clip` is that of the residuals."""
    values, deviation = in_records(answer)
    question = answer.request.counted
    assert isinstance(question, Outcomes)
    cells = (values.size - 2) // 2
    units = np.array([1.0, clip, clip**2, clip**4]) / np.array(ROWS)
    shape = (-1, question.edges.size + 1)
    return _ByPlace(
        counts=values[:cells].reshape(shape) * units[0],
        firsts=values[cells : 2 * cells].reshape(shape) * units[1],
        others=values[2 * cells :] * units[2:],
        deviations=deviation * units,
    )


def _read_judged(document: Mapping[str, Any], plan: Plan) -> _Judged:
    """Return the model of a model.json in whole numbers."""
    columns = {name: parse_column(name, spec) for name, spec in document["columns"].items()}
    target = plan.table.column(document["target"])
    family, inputs = document["family"], tuple(columns)
    if document["recipe"] == "additive":
        model = read_model(document, {name: column.size for name, column in columns.items()})
        unit = float(model.unit)
        tables = [
            (each.intercept, [(shape.columns, shape.scores) for shape in each.shapes])
            for each in model.scores
        ]
        positive = 1
    else:
        regression = read_regression(document, columns)
        low, high = regression.bounds or (0.0, _SPAN / _LOGIT)
        unit = (high - low) / _SPAN
        constant = regression.constant - (low if regression.bounds else 0.0)
        effects: list[tuple[tuple[str, ...], Whole]] = [
            ((name,), _round(each / unit)) for name, each in regression.effects.items()
        ]
        tables = [(int(_round(np.array([constant / unit]))[0]), effects)]
        labels = [str(label) for label in target.labels]
        positive = labels.index(str(regression.classes[-1])) if regression.classes else 0
    scorers = tuple(
        Scorer(
            intercept=intercept,
            terms=tuple(Term(columns=names, scores=scores) for names, scores in terms if scores.any()),
        )
        for intercept, terms in tables
    )
    codes = np.arange(target.size)
    if family == "classification":
        several = len(scorers) > 1
        low_score, values = logistic_table(CONFIDENCE)
        return _Judged(
            family=family,
            inputs=inputs,
            scorers=scorers,
            targets=codes if several else (codes == positive).astype(np.int64),
            link=Link(low=low_score, values=values) if several else None,
            unit=unit,
        )
    ends = tuple(map(float, code_ends(target.domain)))
    least = 0.0 if family == "counts" else ends[0]
    step = (ends[1] - least) / _SPAN
    numbers = np.array([float(each) for each in code_values(target.domain) or ()])
    return _Judged(
        family=family,
        inputs=inputs,
        scorers=scorers,
        targets=np.rint((numbers - least) / step).astype(np.int64),
        link=_link_numbers(family, unit, step, ends[1]),
        unit=step,
        low=least,
    )


def _link_numbers(family: str, unit: float, step: float, high: float) -> Link:
    """Return what is predicted for a score of a number, in steps from its least value, held to its range."""
    if family == "counts":
        last = math.ceil(math.log(high) / unit)
        scores = np.arange(math.floor(math.log(step / 2) / unit), last + 1)
        return Link(low=int(scores[0]), values=_round(np.minimum(np.exp(scores * unit), high) / step))
    steps = math.ceil(_SPAN * step / unit)
    return Link(low=0, values=_round(np.arange(steps + 1) * (unit / step)))


def _round(numbers: NDArray[np.floating[Any]]) -> Whole:
    return np.asarray(np.clip(np.rint(numbers), -_LARGEST, _LARGEST), np.int64)


def _shorten(judged: Record) -> Record:
    """Return the figures alone."""
    return {key: value for key, value in judged.items() if key not in ("calibration", "overall", "groups")}


def split_people(shares: Mapping[str, Fraction], *, columns: tuple[str, ...]) -> tuple[Part, ...]:
    """Parts of these shares, one after the other; the last one has all that is left.

    >>> [part.share for part in split_people({"fit": Fraction(3, 4), "rest": Fraction(1, 4)}, columns=())]
    [Fraction(3, 4), Fraction(1, 4)]
    """
    parts, low = [], Fraction(0)
    for place, (name, share) in enumerate(shares.items(), 1):
        high = Fraction(1) if place == len(shares) else low + share
        parts.append(Part(name=name, low=low, high=high, columns=columns))
        low = high
    return tuple(parts)


def take_part(ask: Ask, part: Part, *, label: str = "") -> Ask:
    """`ask`, asked of a part of the people; its name begins with `label`."""
    if not isinstance(ask, Request | Choice):
        raise RecipeError(f"{ask.name!r} cannot be asked of a part of the people")
    return replace(ask, part=part, name=f"{label}{ask.name}")
