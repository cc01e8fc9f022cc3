"""What an additive model is fitted to: noisy counts of all columns, and the target in fixed point.

Everything here is post-processing and planning of questions: it sees noisy answers and public facts only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import Table
from sfumato.core.law import MAX_SCALE
from sfumato.core.questions.measurement import in_records
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Link
from sfumato.inference.models.additive import SCORE_UNITS, exponential_table, logistic_table, weight_table
from sfumato.inference.models.design import code_ends, code_values
from sfumato.inference.models.document import Family
from sfumato.recipes.base import Asking
from sfumato.recipes.shared.budget import RemainingBudget, sum_groups
from sfumato.tables.arrays import Floats, Whole

Columns = tuple[str, ...]

_BASIS_DIGITS = 10  # of a weight of a basis
_CLASS_DIGITS = 12  # of a share of a class, which noise hides long before
_NUMBER_DIGITS = 16  # of a target between its bounds
_FEWEST_DIGITS = 8  # below which rounding would be seen beside the noise
_LEAST_NUMBER, _LEAST_TERMS = 5e-4, 0.025  # parts of the budget, below the least that the shares below give

# Shares of the budget, and the numbers below, were set by hand; they move accuracy, never what is charged.
_COUNTS = Fraction(12, 100)  # for the counts of all inputs
_TARGET = Fraction(2, 100)  # at least, for the counts of the target
COUNTED = _COUNTS + _TARGET
_MOST_TARGET = Fraction(30, 100)
_ENOUGH = 15.0  # one over the part of all people for which noise in the target or in numbers may stand


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """The noisy counts of every input and of the target, their noise, and the noisy total of records."""

    inputs: Mapping[str, Floats]
    deviations: Mapping[str, float]
    target: Floats
    noise: float
    total: float
    populated: bool
    bins: Whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Response:
    """A target in fixed point: `targets` by code in units of 1 / scale, and how scores become predictions.

    `score_grid` is the number of units of a score in one; `spread` is the variance of a residual over its
    weight, `size` that by which residuals are clipped, both in ones of the target, which no residual exceeds;
    `doubt` is how far the first intercept of a number may be off.
    """

    targets: Whole
    scale: float
    score_grid: float
    intercept: float
    spread: float = 1.0
    size: float = 1.0
    link: Link | None = None
    weights: Link | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    prior: float = 1.0
    doubt: float = 0.0
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Digits:
    """How many binary digits targets have, bases, and bases whose products are asked.

    All are whole numbers, and so is the noise, of which 50 digits can be drawn: the more of them a small
    epsilon, many records of a person or their weights need, the fewer are left.
    """

    target: int
    basis: int
    product: int


def find_digits(table: Table, mu_squared: Fraction, *, inputs: int, family: Family, target: str) -> Digits:
    """Return the digits for a run of `mu_squared` in all, or an error if there are too few for any answer."""
    scores = table.column(target).size if family == "classification" else 1
    # The least that is spent on one question: a weight or a spread; one term in one sweep; one product.
    least = min(_LEAST_NUMBER, _LEAST_TERMS / inputs, 2 * _LEAST_TERMS / inputs**2) / max(1, scores)
    sensitivity = table.contribution * (1 if table.unit.neighbours == "add-remove" else 2)
    room = math.log2(MAX_SCALE * math.sqrt(float(mu_squared) * least) / sensitivity)
    if room < _FEWEST_DIGITS:
        raise RecipeError(
            f"additive: at this epsilon, with up to {table.unit.max_records:,} records of an individual, the "
            "noise leaves no digit of any answer; spend more epsilon or lower max_records"
        )
    basis = min(_BASIS_DIGITS, int(room) // 2)
    own = min(_CLASS_DIGITS if family == "classification" else _NUMBER_DIGITS, int(room) - basis)
    return Digits(target=own, basis=basis, product=min(basis, (int(room) - own) // 2))


def list_responses(
    table: Table, target: str, family: Family, counted: Counted, *, digits: int
) -> list[Response]:
    """Return what is fitted: one response for two classes or numbers, else one for every class."""
    column = table.column(target)
    span = 2**digits
    if family == "classification":
        shares = np.maximum(counted.target, 0.5) / max(1.0, float(np.maximum(counted.target, 0.5).sum()))
        places = [1] if column.size == 2 else list(range(column.size))
        responses = []
        for place in places:
            share = min(max(float(shares[place]), 0.002), 0.998)
            responses.append(
                Response(
                    targets=(np.arange(column.size) == place).astype(np.int64) * span,
                    scale=span,
                    score_grid=SCORE_UNITS,
                    intercept=math.log(share / (1 - share)),
                    link=_make_link(logistic_table(span)),
                    weights=_make_link(weight_table(span)),
                )
            )
        return responses
    assert column.domain is not None
    values = np.array([float(each) for each in code_values(column.domain) or ()])
    low, high = code_ends(column.domain)
    if family == "counts":
        low = Fraction(0)
    unit = (high - low) / span
    targets = np.rint((values - float(low)) / float(unit)).astype(np.int64)
    mean, deviation, doubt = _moments((values - float(low)) / float(high - low), counted)
    deviation = max(deviation, 4 / span)
    if family == "regression":
        return [
            Response(
                targets=targets,
                scale=span,
                score_grid=span,
                intercept=mean,
                spread=deviation**2,
                size=deviation,
                numbers={"low": low, "high": high, "unit": unit},
                prior=deviation**2,
                doubt=doubt,
            )
        ]
    # Under the log link a target of one is as large as the whole range, so scores are below zero.
    mean = max(mean, 1e-4)
    link = _make_link(exponential_table(span, least=min(mean, 1.0) / 100, most=1.0))
    offset = round(math.log(float(high)) * SCORE_UNITS)
    return [
        Response(
            targets=targets,
            scale=span,
            score_grid=SCORE_UNITS,
            intercept=math.log(mean),
            spread=deviation**2 / mean,
            size=deviation,
            link=link,
            weights=link,
            numbers={"low": low, "high": high, "unit": Fraction(1, SCORE_UNITS)},
            offset=offset,
        )
    ]


def count_columns(budget: RemainingBudget, inputs: Columns, target: str, family: Family) -> Asking[Counted]:
    """The noisy counts of all inputs, then those of the target: the fewer people, the more is for these."""
    share = budget.total * _COUNTS / len(inputs)
    answers = yield tuple(budget.count(f"counts of {name}", (name,), share) for name in inputs)
    read = [in_records(answer) for answer in answers]
    total = _average_total(read)
    size = budget.table.column(target).size
    bins, queries = _coarsen(size) if family != "classification" else (np.arange(size), None)
    # A constant is all that few people can teach: so much that its noise is small, up to a limit.
    part = budget.total * suffice(budget, max(total, 1.0), _TARGET, _MOST_TARGET)
    answers = yield (budget.count(f"counts of {target}", (target,), part, queries=queries),)
    read += [in_records(answer) for answer in answers]
    total = _average_total(read)
    noisiest = max(sigma for _, sigma in read)
    return Counted(
        inputs={name: values for name, (values, _) in zip(inputs, read, strict=False)},
        deviations={name: sigma for name, (_, sigma) in zip(inputs, read, strict=False)},
        target=read[-1][0],
        noise=read[-1][1],
        total=max(total, noisiest, 1.0),
        populated=total > 3 * math.sqrt(1 / sum(1 / (sigma**2 * values.size) for values, sigma in read)),
        bins=bins,
    )


def suffice(budget: RemainingBudget, total: float, least: Fraction, most: Fraction) -> Fraction:
    """Return the share of the budget that makes the noise of one number small beside `total` records."""
    people = total / budget.table.unit.max_records
    wanted = Fraction(_ENOUGH**2 / (people**2 * float(budget.total))).limit_denominator(1000)
    return min(max(wanted, least), most)


def _average_total(read: list[tuple[Floats, float]]) -> float:
    """Return the number of records, of the sums of several noisy histograms by their precision."""
    totals = [(float(values.sum()), sigma**2 * values.size) for values, sigma in read]
    return sum(value / noise for value, noise in totals) / sum(1 / noise for _, noise in totals)


def _coarsen(size: int) -> tuple[Whole, Queries]:
    """At most about forty bins of the codes of a number, finer towards zero; as sums of cells."""
    linear = np.arange(0, 17) * size // 16
    fine = [size * each // 1000 for each in (2, 4, 7, 10, 15, 20, 30, 45)]
    edges = np.unique([*linear.tolist(), *fine])
    edges = edges[(edges >= 0) & (edges <= size)]
    bins = np.searchsorted(edges, np.arange(size), side="right") - 1
    bins = np.unique(bins, return_inverse=True)[1].reshape(-1)
    return bins, sum_groups(bins, int(bins[-1]) + 1)


def _moments(values: Floats, counted: Counted) -> tuple[float, float, float]:
    """The mean and the standard deviation of a target, of its noisy bins, and how far the mean may be off."""
    sizes = np.bincount(counted.bins)
    middles = np.bincount(counted.bins, weights=values) / sizes
    counts = np.maximum(counted.target, 0.0)
    # What all bins together have above the total is noise, and is taken from every bin alike.
    excess = max(0.0, float(counts.sum()) - counted.total)
    for _ in range(20):
        some = counts > 0
        if excess <= 0 or not some.any():
            break
        cut = np.where(some, np.minimum(counts, excess / some.sum()), 0.0)
        counts = counts - cut
        excess -= float(cut.sum())
    total = float(counts.sum())
    if total <= 0:
        return 0.5, 0.25, 0.5
    mean = float((counts * middles).sum() / total)
    within = np.bincount(counted.bins, weights=(values - middles[counted.bins]) ** 2) / sizes
    variance = float((counts * ((middles - mean) ** 2 + within)).sum() / total)
    off = counted.noise * math.sqrt(float(((middles - mean) ** 2).sum())) / counted.total
    return mean, math.sqrt(variance), min(off, 0.5)


def _make_link(table: tuple[int, Whole]) -> Link:
    return Link(low=table[0], values=table[1])
