"""How far an answer will be from what it would be without noise: told before it is bought.

The error of a count is that of its noise. That of an average, a deviation or a ratio depends on how many
records are behind it, so it is told for groups of several sizes, by the same arithmetic as the intervals of
answers. Nothing here looks at a record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.asks import Ranked
from sfumato.core.algebra.measures import Measure
from sfumato.core.dates import is_dated
from sfumato.sql.aggregates import Aggregate
from sfumato.sql.bands import Band
from sfumato.sql.check import KEY, is_rank, is_text
from sfumato.sql.evaluate import Evaluator
from sfumato.sql.plan import (
    MISS,
    Noise,
    NoisyAggregates,
    PrivateChoice,
    QueryPlan,
    Stage,
    find_aggregate_numbers,
    find_mode,
    half_width,
    mode_reach,
    set_noise,
)
from sfumato.sql.relation import Field

SIZES = (1_000, 10_000)
"""The numbers of records for which errors are told that depend on it."""

_ORDERS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_NAMED = (
    "a condition names individuals by {name}, and whether one is in the table is what the noise hides: the "
    "answer tells nothing of them; ask about groups of people"
)
_LETTERS = (
    "{name} is text and is compared letter by letter, which is right if all its dates are written as "
    "2025-01-31; describe the column with its range and its format, and `sfumato doctor` shows what is read"
)
PAIRED = ("covariance", "correlation", "slope", "intercept", "determination")
"""Aggregates of two columns, whose first two measures are the sums of both."""
_COUNTS = ("records", "present", "individuals", "distinct")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """The error that 95 of 100 answers stay within.

    `width` is that of an answer whose error is the same whatever the records are. Else `by_records` has it
    for groups of so many records, whose values lie evenly in the lower half of their bounds. A quantile is
    within so many `ranks` of the true one; a label that is chosen is on at most so many records `fewer` than
    the most frequent.
    """

    width: float | None = None
    by_records: Mapping[int, float] | None = None
    ranks: int | None = None
    fewer: int | None = None

    def describe(self) -> str:
        """The error in words.

        >>> ExpectedError(by_records={1000: 3.14, 10000: 0.3}, ranks=62).describe()
        '95 % within 62 ranks, about +-3.1 for 1,000 records, +-0.3 for 10,000'
        """
        if self.width is not None:
            return f"95 % within +-{show_number(self.width, digits=4)}"
        if self.fewer is not None:
            return f"95 % within {self.fewer:,} records of the most frequent"
        parts = [] if self.ranks is None else [f"{self.ranks:,} ranks"]
        sizes = self.by_records or {}
        known = [(size, error) for size, error in sizes.items() if math.isfinite(error)]
        for place, (size, error) in enumerate(known):
            about, records = ("about ", " records") if place == 0 else ("", "")
            parts.append(f"{about}+-{show_number(error)} for {size:,}{records}")
        if parts:
            return f"95 % within {', '.join(parts)}"
        if sizes:
            return f"without a bound even for {max(sizes):,} records"
        return "depends on the records, and its interval tells it"


def show_number(number: float, *, digits: int = 2) -> str:
    """A number with its first `digits`, never as a power of ten unless it is beyond reading.

    >>> show_number(0.3125), show_number(461.2), show_number(59915.0, digits=4)
    ('0.31', '461', '59,915')
    """
    return f"{number:,.0f}" if 10 ** min(digits, 3) <= abs(number) < 1e15 else f"{number:.{digits}g}"


def expected_errors(plan: QueryPlan, *, sizes: tuple[int, ...] = SIZES) -> dict[str, ExpectedError]:
    """For every output with an aggregate, its expected error; `sizes` are those of groups."""
    return {
        output.name: _expect(plan, output.tree, sizes)
        for output in plan.outputs
        if find_aggregate_numbers(output.tree) and not is_text(output.tree) and not is_rank(output.tree)
    }


def note_conditions(plan: QueryPlan) -> tuple[str, ...]:
    """What is said of conditions that name individuals, or that compare text with a date as text."""
    measured = [noise.measure.tree for noise in plan.noises if noise.measure.tree is not None]
    notes = []
    for tree in (plan.relation.tree, *measured):
        for node in tree.find_all(exp.EQ, exp.In, *_ORDERS):
            field = _find_field(node.this, plan)
            if field is None:
                continue
            compared = [each for each in node.iter_expressions() if each is not node.this]
            ordered = isinstance(node, _ORDERS)
            if not ordered and field.is_unit and not any(each.find(exp.Column) for each in compared):
                notes.append(_NAMED.format(name=field.name))
            dated = any(each.is_string and is_dated(each.name) for each in compared)
            if ordered and dated and field.kind == "text" and field.column is None:
                notes.append(_LETTERS.format(name=field.name))
    return tuple(dict.fromkeys(notes))


def _find_field(node: exp.Expr, plan: QueryPlan) -> Field | None:
    if not isinstance(node, exp.Column):
        return None
    return plan.relation.fields.get(node.table, {}).get(node.name.lower())


def note_noise(plan: QueryPlan, likely: int | None) -> tuple[str, ...]:
    """Which answers would be noise alone, if `likely` records are behind all groups together."""
    if likely is None or plan.selection is not None or plan.sets is not None:
        return ()
    size = max(1, round(likely / plan.groups))
    drowned = []
    for output in plan.outputs:
        numbers = find_aggregate_numbers(output.tree)
        if not numbers or not isinstance(output.tree, exp.Column):
            continue
        most = _largest(plan.aggregates[numbers[0]], size)
        expected = _expect(plan, output.tree, (size,))
        error = expected.width if expected.width is not None else (expected.by_records or {}).get(size)
        if most is not None and error is not None and error >= most:
            drowned.append(f"{output.name} +-{show_number(error)}")
    if not drowned:
        return ()
    where = "a group has at most" if plan.keys else "there are"
    fewer = ", or ask for fewer groups" if plan.keys else ""
    return (
        f"the noise exceeds what is asked: {', '.join(drowned)}, and {where} about {size:,} records by what "
        f"was released before; spend more epsilon{fewer}",
    )


def _largest(aggregate: Aggregate, size: int) -> float | None:
    """How large an answer about `size` records can be, or how far it can be from the middle of its bounds."""
    first = aggregate.measures[0]
    if aggregate.kind == "measure":
        if first.statistic in _COUNTS:
            return float(size)
        if first.statistic == "sum":
            return float(max(abs(first.low), abs(first.high)) * size)
    if aggregate.kind in ("average", "deviation"):
        # Half the range is what is known without asking; a little less tells as little.
        return float(first.high - first.low) / 2 * (0.9 if aggregate.kind == "average" else 1)
    return None


def _expect(plan: QueryPlan, tree: exp.Expr, sizes: tuple[int, ...]) -> ExpectedError:
    noises = {noise.measure: noise for noise in plan.noises}
    aggregates = [plan.aggregates[number] for number in dict.fromkeys(find_aggregate_numbers(tree))]
    measures = [measure for each in aggregates for measure in each.measures]
    first, alone = noises[measures[0]], isinstance(tree, exp.Column)
    if (
        plan.tally is not None
        or len(plan.held) < len(plan.tallies)
        or any(measure.is_open or measure.parts for measure in measures)
    ):
        return ExpectedError()
    if plan.sets is not None:
        if not alone or len(measures) > 1 or isinstance(first, PrivateChoice):
            return ExpectedError()
        widths = [half_width(set_noise(first, plan.sets, each)) for each in plan.sets.answered]
        return ExpectedError(width=max(widths) / first.measure.grid)
    if find_mode(tree, plan.aggregates) is not None:
        assert isinstance(first, PrivateChoice)
        return ExpectedError(fewer=mode_reach(first))
    if alone and len(aggregates[0].measures) == 1:
        if isinstance(first, Noise):
            return ExpectedError(width=half_width(first) / first.measure.grid)
        ranks = _answer_reach(first)
        span = float(first.measure.high - first.measure.low)
        # Dates are measured in days or seconds, which say little as a width.
        dated = aggregates[0].type is not None
        found = None if dated else {size: min(span, ranks / size * span / 2) for size in sizes}
        return ExpectedError(ranks=ranks, by_records=found)
    keyed = any(column.table == KEY for column in tree.find_all(exp.Column))
    if not all(_is_known(each) for each in aggregates) or tree.find(exp.Window) or keyed:
        return ExpectedError()
    errors = _measure_errors(plan, tree, sizes)
    additive = all(each.kind == "measure" for each in aggregates)
    if additive and len(errors) > 1 and np.isfinite(errors).all() and np.ptp(errors) <= 1e-9 * errors.max():
        return ExpectedError(width=float(errors[0]))
    return ExpectedError(by_records=dict(zip(sizes, map(float, errors), strict=True)))


def _is_known(aggregate: Aggregate) -> bool:
    return all(measure.statistic in (*_COUNTS, "sum", "square") for measure in aggregate.measures)


def _measure_errors(plan: QueryPlan, tree: exp.Expr, sizes: tuple[int, ...]) -> NDArray[np.float64]:
    """Half the width of the interval of `tree` for made-up groups of these sizes."""
    products = {each.measures[2] for each in plan.aggregates if each.kind in PAIRED}
    # Products are of two columns that have nothing to do with each other.
    added = [
        Fraction(noise.measure.grid, 4) if noise.measure in products else _made_up(noise.measure)
        for noise in plan.noises
    ]
    values = tuple(np.array([round(each * size) for size in sizes], np.int64) for each in added)
    made_up = replace(plan, keys=(), selection=None, stages=(Stage(),))
    noisy = NoisyAggregates(values=values, keys=((),) * len(sizes))
    with np.errstate(all="ignore"):
        band: Band = Evaluator(made_up, noisy).band(tree)
        errors = np.maximum(band.high - band.value, band.value - band.low).astype(float)
    return np.broadcast_to(np.where(np.isnan(errors), np.inf, errors), (len(sizes),))


def _made_up(measure: Measure) -> Fraction:
    """What a made-up record adds to a measure, on average, if values lie evenly in the lower half."""
    if measure.statistic in _COUNTS:
        return Fraction(1)
    if measure.statistic == "square":
        return Fraction(measure.grid, 3)  # of distances from the middle, from none to half the range
    return ((3 * measure.low + measure.high) / 4 - measure.centre) * measure.grid


def _answer_reach(choice: PrivateChoice) -> int:
    """The number of ranks that a quantile is wrong by at most, in 95 of 100 answers.

    Where values are about as dense on both sides of the answer, its error in ranks is a two-sided
    exponential. MIN and MAX aim inside on purpose. There a choice misses the best score by more than t with
    probability at most (candidates) * exp(-rate * t), and the best score is 0: some cell holds the rank.
    """
    assert isinstance(choice.drawn, Ranked)
    rank = choice.drawn.ranks[0]
    candidates = choice.measure.steps + 3 if rank.shift else 1
    far = math.log(candidates / MISS) / float(rank.rate) + abs(rank.shift)
    return math.ceil(far / (choice.measure.quantile or Fraction(0)).denominator)
