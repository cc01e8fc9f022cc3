"""A small neural network of one column, trained with noisy sums of clipped gradients (DP-SGD)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.accounting import max_mu
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.sampling import SampledRun
from sfumato.core.errors import RecipeError
from sfumato.core.exact import NORMAL_95, format_exact, parse_positive, parse_whole
from sfumato.core.questions.counts import ClippedMarginal, Marginal
from sfumato.core.questions.gradients import (
    GRADIENT_GRID,
    INPUT_GRID,
    LARGEST_WEIGHT,
    MOST_WEIGHTS,
    WEIGHT_GRID,
    Gradients,
    Layers,
)
from sfumato.core.questions.measurement import Measurement, Request, ask_cost, in_records
from sfumato.core.questions.question import Queries
from sfumato.inference.models.design import (
    Design,
    bound_columns,
    code_ends,
    code_values,
    number_term,
    scale_numbers,
)
from sfumato.inference.models.document import Family, pack_model
from sfumato.inference.models.network import Descent, design_inputs, first_weights, list_inputs
from sfumato.recipes.base import Conversation, Plan, Product, Progress
from sfumato.recipes.shared.budget import allow_gaussian, calibrate, weigh_cells
from sfumato.recipes.shared.model import ModelOptions, describe_model, describe_target, judge_target
from sfumato.tables.arrays import Whole

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table

_HIDDEN = (64,)
_STEPS = 100  # by default; the noise of each grows with the root of their number
_CLIP = Fraction(1)
_MOST_STEPS = 10_000  # each is charged for and reads all records
_MOST_ANSWERS = 2**24  # noisy numbers of a run: every one is kept in the ledger and in the release
_MOST_CLASSES = 100
_COUNTED = Fraction(1, 50)  # of the budget, for the counts of the target

_QUERY_GRID = 2**15  # weights of counts are whole multiples of 1 / _QUERY_GRID
_HALF = 23170  # of it: two such weights have an L2 norm of at most 1

# A run may fail with so much of delta: little enough that several runs fit into what a budget keeps for that.
_FAILURE = Fraction(1, 100)
# A ledger's Gaussian rule has so much of delta beside what it keeps for failures (docs/proofs/filter.md).
_GAUSSIAN = Fraction(19, 20) ** 2
# Small samples are as good as large ones while the noise of a step is wider than this, in clips.
_WIDE = 2.5
_RATES = tuple(Fraction(1, 2**power) for power in (4, 3, 2, 1))

_LONGEST = 600.0  # the path of the weights over all steps, for a mean gradient of one clip
# How far noise may move the score of a record along it, in round figures: log odds, or parts of a range.
_REACH = {"classification": 3.0, "regression": 1.0}
_SHORT = 30.0  # a path on which little is learnt


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(ModelOptions):
    """A small neural network that predicts classes or bounded numbers.

    `hidden` are the sizes of its hidden layers; `steps`, `sampling` (the chance of an individual to be in the
    sample of a step) and `clip` (the most that the gradient of one individual counts, in L2) follow from the
    budget where they are not given. `family` is "classification" or "regression"; by default listed values
    are classes and other domains are numbers. Inputs that are `categorical` count as labels.

    Privacy: a step answers the noisy sum of the gradients of a Poisson sample, each individual's rounded to
    whole numbers and then held to the clip. All steps are charged together, before the first, as one run
    (docs/proofs/network.md).

    >>> Network(table="digits", target="digit", hidden=[32]).hidden
    (32,)
    """

    kind: ClassVar[str] = "network"
    unforeseen: ClassVar[str] = (
        "every step adds noise to its own gradients; train on public or synthetic rows of that number first"
    )
    own_bound: ClassVar[str] = "clip"
    record_keys: ClassVar[tuple[str, ...]] = (
        "table", "target", "inputs", "hidden", "steps", "sampling", "clip", "family", "categorical"
    )  # fmt: skip

    hidden: Sequence[int] = _HIDDEN
    steps: int = _STEPS
    sampling: Any = None
    clip: Any = _CLIP
    family: str | None = None
    categorical: Sequence[str] = ()

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        if not isinstance(self.hidden, (list, tuple)) or len(self.hidden) > 4:
            raise RecipeError("network: hidden must list the sizes of at most four hidden layers")
        if self.family not in (None, "classification", "regression"):
            raise RecipeError("network: family must be 'classification' or 'regression'")
        self._keep_columns("categorical", empty=True)
        sampling = None
        if self.sampling is not None:
            sampling = Fraction(parse_positive(self.sampling, name="sampling"))
            if not Fraction(1, 1000) <= sampling <= 1:
                raise RecipeError("network: sampling must lie between 0.001 and 1")
        clip = Fraction(parse_positive(self.clip, name="clip"))
        if not Fraction(1, 10**6) <= clip <= 10**6:
            raise RecipeError("network: clip must lie between 1e-6 and 1e6")
        self._keep(
            hidden=tuple(parse_whole(each, name="a hidden layer", high=1024) for each in self.hidden),
            steps=parse_whole(self.steps, name="steps", high=_MOST_STEPS),
            sampling=sampling,
            clip=clip,
        )

    def plan(self, table: Table, *, epsilons: tuple[Fraction, ...], delta: Fraction) -> Plan:
        """Return all steps as one charge, and the counts of the target, within (epsilon, delta)."""
        self.refuse_budget(epsilons, delta)
        columns = (*self.find_inputs(table), self.target)
        family = self.find_family(table)
        described = describe_target(bound_columns(table, columns), self.target, family)
        unknown = next((name for name in self.categorical if name not in columns[:-1]), None)
        if unknown is not None:
            raise RecipeError(f"network: categorical names {unknown!r}, which is no input")
        layers = self._build(described, columns, family)[1]
        answers = layers.weights * self.steps
        if layers.weights > MOST_WEIGHTS or answers > _MOST_ANSWERS:
            raise RecipeError(
                f"network: {layers.weights:,} weights in {self.steps:,} steps are {answers:,} noisy numbers, "
                f"more than {_MOST_ANSWERS:,}, or more than {MOST_WEIGHTS:,} weights; use fewer inputs, "
                "coarser domains, smaller hidden layers or fewer steps"
            )
        counts, step = self._requests(described, epsilons[0], delta)
        charged = (allow_gaussian(described, epsilons[0], delta),)
        allowance = charged if step.sampling == 1 else (ask_cost(described, counts), step.charge)
        counted, clipped = ((self.target,),), (columns,)
        return Plan(self, described, epsilons, delta, allowance=allowance, counted=counted, clipped=clipped)

    def find_family(self, table: Table) -> Family:
        """Return whether the target is a class or a number."""
        column = table.columns[self.target]
        size = 0 if column.domain is None else column.size
        return judge_target(column, self.family, kind="network", classes=size, most=_MOST_CLASSES)

    def run(self, plan: Plan, *, progress: Progress) -> Conversation:
        """Return the average network of the later steps."""
        table, family = plan.table, self.find_family(plan.table)
        columns = (*self.find_inputs(table), self.target)
        design, layers, targets = self._build(table, columns, family)
        counts, step = self._requests(table, plan.epsilons[0], plan.delta)
        (counted,) = yield (counts,)
        total, least, constants = _read_counts(counted, family)
        places, values = list_inputs(design)
        share = step.effect * total / math.sqrt((self.hidden or (len(columns) - 1,))[-1] + 1)
        reach = _REACH[family]
        path = min(_LONGEST, reach * share)
        descent = Descent(
            first_weights(
                layers.sizes, columns=len(columns) - 1, constants=constants, grid=WEIGHT_GRID, seed=0
            ),
            grid=WEIGHT_GRID,
            pace=path / self.steps,
            most=LARGEST_WEIGHT,
        )
        for turn in range(1, self.steps + 1):
            question = Gradients(
                columns=columns,
                places=places,
                values=values,
                targets=targets,
                layers=layers,
                weights=descent.weights,
                clip=self.clip,
                sampling=step.sampling,
                classes=family == "classification",
            )
            request = Request(name=f"step {turn}", counted=question, noise="gaussian", scale=step.scale)
            (answer,) = yield (request,)
            mean = answer.noisy_values / (GRADIENT_GRID * float(step.sampling) * total)
            descent.step(mean, averaged=2 * turn > self.steps)
            progress(f"step {turn} of {self.steps}")
        learnt = reach * share * least / total >= _SHORT
        return self._finish(plan, design, layers, descent.average(), total=total, learnt=learnt)

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Return the facts that the write-up names."""
        _, step = self._requests(plan.table, plan.epsilons[0], plan.delta)
        return {
            **ModelOptions.tell(self, plan),
            "steps": f"{self.steps:,}",
            "rate": format_exact(step.sampling),
            "clip": format_exact(self.clip),
            "noise": f"{float(step.scale / GRADIENT_GRID):.3g}",
        }

    def _build(self, table: Table, columns: tuple[str, ...], family: Family) -> tuple[Design, Layers, Whole]:
        """Return the inputs, the layers, and what every code of the target stands for."""
        inputs = {name: table.column(name) for name in columns[:-1]}
        design = design_inputs(inputs, categorical=self.categorical, grid=INPUT_GRID)
        target = table.column(self.target)
        if family == "classification":
            layers = Layers(inputs=len(design.terms), hidden=tuple(self.hidden), outputs=target.size)
            return design, layers, np.arange(target.size)
        values = code_values(target.domain)
        assert values is not None
        scaled = scale_numbers(values, number_term(target), extras=0, grid=INPUT_GRID)[:, 0]
        return design, Layers(inputs=len(design.terms), hidden=tuple(self.hidden), outputs=1), scaled

    def _requests(self, table: Table, epsilon: Fraction, delta: Fraction) -> tuple[Request, _Step]:
        """Return the counts of the target, and what all steps have in common."""
        rate = self.sampling
        if table.unit.neighbours != "add-remove":
            if rate not in (None, 1):
                raise RecipeError(
                    "network: what sampling gains is proved where an individual is added or removed, and "
                    f"table {table.name!r} exchanges one; leave sampling out, and every step uses everybody"
                )
            rate = Fraction(1)
        whole = allow_gaussian(table, epsilon, delta).mu_squared
        assert whole is not None
        if rate is None:
            least = _WIDE * math.sqrt(float(whole) / self.steps)
            rate = next((each for each in _RATES if each >= least), Fraction(1))
        if rate < 1:
            whole = Fraction(max_mu(epsilon, delta * _GAUSSIAN) * (1 - 1e-9)) ** 2
        target = (self.target,)
        alone = table.unit.column is None
        queries = self._sum_numbers(table)
        counted = Marginal(target, queries) if alone else ClippedMarginal(target, Fraction(1), queries)
        counts = calibrate(table, "counts of the target", counted, whole * _COUNTED)
        rest = whole * (1 - _COUNTED)
        unit, neighbours = table.unit.name, table.unit.neighbours
        if rate == 1:
            reach = 1 if neighbours == "add-remove" else 2
            sigma = reach * GRADIENT_GRID * math.sqrt(self.steps / float(rest)) * (1 + 1e-9) + 1
            return counts, _Step(Fraction(math.ceil(sigma)), rate, math.sqrt(rest), None)
        scale, charge = _calibrate_run(rate, self.steps, rest, delta * _FAILURE, unit)
        return counts, _Step(scale, rate, math.sqrt(rest), charge)

    def _sum_numbers(self, table: Table) -> Queries | None:
        """Of numbers, their count and their sum in place of all counts: two answers have less noise."""
        if self.find_family(table) == "classification":
            return None
        targets = self._build(table, (self.target,), "regression")[2]
        weights = np.stack([np.full(targets.size, _HALF), targets * _HALF // INPUT_GRID])
        return weigh_cells(weights, grid=_QUERY_GRID)

    def _finish(
        self,
        plan: Plan,
        design: Design,
        layers: Layers,
        weights: Whole,
        *,
        total: float,
        learnt: bool,
    ) -> Product:
        table, family = plan.table, self.find_family(plan.table)
        matrices, first = [], 0
        for before, after in pairwise(layers.sizes):
            last = first + (before + 1) * after
            matrices.append(weights[first:last].reshape(before + 1, after))
            first = last
        target = table.column(self.target)
        document: dict[str, Any] = {
            **describe_model(plan, target=self.target, inputs=design.columns, family=family),
            "categorical": list(self.categorical),
            "input_grid": INPUT_GRID,
            "weight_grid": WEIGHT_GRID,
            "activation": "tanh",
            "layers": [each.tolist() for each in matrices],
        }
        if family == "classification":
            document["classes"] = list(target.labels)
        else:
            document["bounds"] = [format_exact(end) for end in code_ends(target.domain)]
        facts: dict[str, Any] = {"individuals": round(total), "weights": layers.weights, "steps": self.steps}
        if not learnt:
            facts["note"] = (
                "little or nothing was learnt: at this epsilon the noise leaves room for short steps only, "
                "so the model is near to one that predicts the same for all; spend more epsilon"
            )
        return Product(
            table=_tabulate(design, matrices),
            files={"model.json": pack_model(document)},
            facts={"model": facts},
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """What all steps have in common: their noise in grid units, the sampling rate, and their charge.

    `effect` is the Gaussian parameter of all steps together.
    """

    scale: Fraction
    sampling: Fraction
    effect: float
    run: Cost | None

    @property
    def charge(self) -> Cost:
        """Return the cost of the whole run."""
        assert self.run is not None
        return self.run


@lru_cache(maxsize=64)
def _calibrate_run(
    rate: Fraction, steps: int, mu_squared: Fraction, failure: Fraction, unit: str
) -> tuple[Fraction, Cost]:
    """Return the least noise, in thousandths of the clip, with which a run costs at most `mu_squared`."""

    def cost(thousandths: int) -> Cost:
        return Cost(
            kind="sampled",
            scale=Fraction(GRADIENT_GRID * thousandths, 1000),
            sensitivity=Fraction(GRADIENT_GRID),
            sampling=rate,
            count=steps,
            delta=failure / steps,
            unit=unit,
        )

    mu = math.sqrt(mu_squared) * (1 - 1e-4)  # below by more than the price is rounded up

    def fits(thousandths: int) -> bool:
        run = SampledRun(sigma=thousandths / 1000 * (1 - 1e-9), sampling=rate, count=steps)
        return run.covered(mu, failure=float(failure))

    # Where many steps are like one of Gaussian noise, from which the search begins.
    wanted = float(mu_squared) / (float(rate) ** 2 * steps)
    high = max(10, math.ceil(1000 / math.sqrt(math.log1p(wanted))))
    low = high * 9 // 10
    while not fits(high):
        low, high = high, high + max(1, high // 16)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    while (price := cost(high).mu_squared) is None or price > mu_squared:
        high += 1
    return Fraction(GRADIENT_GRID * high, 1000), cost(high)


def _read_counts(counted: Measurement, family: Family) -> tuple[float, float, Whole]:
    """Return how many individuals there are, about and at least, and what the outputs begin with."""
    noisy, deviation = in_records(counted)
    count, reach = float(noisy.sum()), NORMAL_95 * deviation * math.sqrt(noisy.size)
    if family == "regression":
        unit = _HALF / _QUERY_GRID
        count, reach = float(noisy[0]) / unit, NORMAL_95 * deviation / unit
    total, least = max(count, deviation, 1.0), max(count - reach, 0.0)
    if family == "classification":
        # A class that noise hides begins as rare as it may be.
        shares = np.maximum(noisy, deviation + 1.0)
        begin = np.log(shares / shares.sum())
    else:
        begin = np.clip([float(noisy[1]) / unit / total], -1.0, 1.0)
    return total, least, np.rint(begin * WEIGHT_GRID).astype(np.int64)


def _tabulate(design: Design, matrices: list[Whole]) -> pa.Table:
    """Return all weights as rows: of which unit of which layer, for which input of it."""
    names = [each.column if each.is_number else f"{each.column}: {each.label}" for each in design.terms]
    rows: dict[str, list[Any]] = {"layer": [], "unit": [], "input": [], "weight": []}
    for place, matrix in enumerate(matrices, 1):
        units = matrix.shape[1]
        for name, weights in zip([*names, "(constant)"], matrix.tolist(), strict=True):
            rows["layer"] += [place] * units
            rows["unit"] += range(1, units + 1)
            rows["input"] += [name] * units
            rows["weight"] += [each / WEIGHT_GRID for each in weights]
        names = [f"unit {each}" for each in range(1, units + 1)]
    return pa.table({key: pa.array(values) for key, values in rows.items()})
