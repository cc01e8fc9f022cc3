"""The plan of a private statement: what an engine is asked, with which noise, and at what cost.

Everything here follows from the statement and the project file. The sensitivity of every measure is
derived from the bounds the engine enforces; docs/proofs/sql.md has the derivations. EXPLAIN and WITHIN
are answered from a plan alone, before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.accounting import calibrate_scale
from sfumato.core.algebra.asks import (
    Divided,
    Kept,
    Labelled,
    Noised,
    NoisyGroups,
    Rank,
    Ranked,
    cost_measure,
    cost_selection,
    count_moved,
    score_range,
)
from sfumato.core.algebra.measures import CELLS, LARGEST, Group, Measure, Query, bound_measure
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import histogram_sensitivity, selection_threshold
from sfumato.core.errors import UnsupportedQuery, refuse
from sfumato.core.exact import digest, format_short, round_up
from sfumato.core.facts.table import MOST_RECORDS, PrivacyUnit
from sfumato.core.law import MAX_SCALE, SHAPES, Kind, Shape
from sfumato.sql.aggregates import Aggregate, AggregateKind, Key
from sfumato.sql.check import AGGREGATE, is_key, is_moment, is_rank, is_text
from sfumato.sql.laws import Held, NoisePart, part_widths, total_width
from sfumato.sql.relation import Relation
from sfumato.sql.rollups import GroupingSet, GroupingSets, spread_of

MISS = 0.05
"""How often an interval may miss what it should hold: intervals are of 95 %."""

# WITHIN finds multiples of the step, up to the most.
_STEP = Fraction(1, 10**6)
_MOST_EPSILON = Fraction(10**6)
# Of a quantile's epsilon what the window around it gets, and how many records it aims at, in units of what a
# choice at its rate errs by. With less, it errs more; with more, the answer does, or few tables have so many.
_WINDOW = Fraction(6, 100)
_NEAREST = 6
# A smaller share than this on one side of a quantile may be fewer records than noise. A noisy number of
# all tells, for so much of epsilon.
_TAIL = Fraction(1, 10)
_COUNTED = Fraction(2, 100)
_STRAY = 1e-3  # how often noise alone may take bounds, or a number of records, far beyond what there is


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Noise of a scale that is added to a measure, once for each cost.

    What follows from several noisy values has `parts`, which say the noise of each group, and `slack`, what
    rounding adds to it; `kind` and `scale` are then those of the widest part. Of what was clipped, up to
    `beyond` may be missing as far as noise tells, and nobody has more than so many `times` the norm.
    """

    measure: Measure
    kind: Kind
    scale: Fraction
    costs: tuple[Cost, ...]
    parts: tuple[NoisePart, ...] = ()
    slack: float = 0.0
    beyond: int = 0
    times: float = 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of noise that is added: of the continuous law, which never vanishes."""
        return float(self.scale) * math.sqrt(self.shape.variance)

    @property
    def shape(self) -> Shape:
        """What the law of noise that is added is like."""
        return SHAPES[self.kind]

    @property
    def is_normal(self) -> bool:
        """Whether sums of it have its law."""
        return self.shape.normal

    @property
    def law(self) -> tuple[str, Fraction]:
        """Its kind and scale, as records name them."""
        return self.kind, self.scale

    @property
    def shares(self) -> dict[str, list[str]]:
        """What records name beside its law: nothing."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateChoice:
    """A measure that is answered by choices, one for each cost: of labels, or of steps."""

    measure: Measure
    drawn: Labelled | Ranked
    costs: tuple[Cost, ...]

    @property
    def epsilon(self) -> Fraction:
        """What all choices cost together."""
        return sum((cost.epsilon or Fraction(0) for cost in self.costs), Fraction(0))

    @property
    def law(self) -> tuple[str, Fraction]:
        """Of labels the records by which one that leads weighs e times as much, of steps the epsilon."""
        if isinstance(self.drawn, Labelled):
            return "exponential", 1 / self.drawn.rate
        return "permute-and-flip", self.epsilon

    @property
    def distance(self) -> Fraction:
        """A number that is the larger the farther what is chosen lies from the best."""
        return self.law[1] if isinstance(self.drawn, Labelled) else -self.epsilon

    @property
    def shares(self) -> dict[str, list[str]]:
        """The epsilon of each choice of a quantile, by which records tell those with an interval."""
        ranked = isinstance(self.drawn, Ranked)
        return {"choices": [str(cost.epsilon) for cost in self.costs]} if ranked else {}

    is_normal: ClassVar[bool] = False


AnyNoise = Noise | PrivateChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Groups that are in the records only: kept if enough individuals are in them, after noise.

    A group of fewer than `min_individuals`, or of one, is kept with a probability of at most delta.
    """

    scale: Fraction
    threshold: int
    cost: Cost
    min_individuals: int = 1

    def to_record(self) -> dict[str, Any]:
        """What decides which groups are answered."""
        return {"scale": self.scale, "threshold": self.threshold, "delta": self.cost.delta}

    def describe(self) -> str:
        """Which groups stay unseen, in one sentence."""
        few = (
            "one individual"
            if self.min_individuals <= 2
            else f"fewer than {self.min_individuals} individuals"
        )
        return (
            f"a group is answered if its noisy number of individuals is at least {self.threshold}; one of "
            f"{few} is with a probability of at most {show_short(self.cost.delta)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One column of the answer: its name, and a tree over keys and aggregates."""

    name: str
    tree: exp.Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one select list does to the rows of an answer: HAVING, ORDER BY, LIMIT and OFFSET."""

    having: exp.Expr | None = None
    order: tuple[tuple[exp.Expr, bool], ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def trees(self) -> tuple[exp.Expr, ...]:
        """All trees of it."""
        return (*(() if self.having is None else (self.having,)), *(tree for tree, _ in self.order))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisyAggregates(NoisyGroups):
    """Noisy values per measure and group, and what was chosen before they were measured.

    `bounds` are the first and the last interval of magnitudes that were chosen for each operand, `cap` is the
    bound on records that was, and `clips` are those of norms.
    """

    bounds: tuple[tuple[int, int], ...] = ()
    cap: int | None = None
    clips: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """A private statement, planned.

    An engine is asked for the measures behind `noises` in every group of `keys`, over the rows of
    `relation`, with each individual held to the bounds of `unit` and to `max_groups` groups. The rest says
    how the noisy values become the columns of the answer: `stages` are those of the statement, and of
    statements around it, from the innermost on, and `around` says in words what the latter do.

    `choices` are histograms that are measured first, over all groups together: the bounds of one operand each
    are chosen from them. With `sets` the groups of all keys are added up to several levels, each of which
    gets noise of its own, and the grouping sets of the answer are computed from these. `tally` is measured
    before all else: the bound on records is chosen from it, and until then is 1, where costs are largest.
    The answer has columns for the ends of its `intervals`, which may `miss` so often, or is without.

    With `tallies`, which are measured first, no record is cut: what an individual adds to each of the
    measures that they are of is held to a norm. Once it was `held`, noise is told as for measures without a
    clip. At most so many records of an individual are `entering` joins, of tables that state no bound.
    """

    text: str
    epsilon: Fraction
    delta: Fraction
    relation: Relation
    unit: PrivacyUnit
    max_groups: int
    keys: tuple[Key, ...]
    aggregates: tuple[Aggregate, ...]
    noises: tuple[AnyNoise, ...]
    outputs: tuple[Output, ...] = ()
    selection: Selection | None = None
    stages: tuple[Stage, ...] = (Stage(),)
    around: tuple[str, ...] = ()
    choices: tuple[Noise, ...] = ()
    sets: GroupingSets | None = None
    tally: Noise | None = None
    miss: float = MISS
    intervals: bool = True
    tallies: tuple[Noise, ...] = ()
    held: tuple[Held, ...] = ()
    entering: int | None = None

    @property
    def rows(self) -> int:
        """The number of rows of an answer about public groups."""
        return self.groups if self.sets is None else self.sets.rows

    @property
    def groups(self) -> int:
        """The number of groups with public labels; 1 without GROUP BY."""
        return math.prod(len(key.labels) for key in self.keys if key.labels is not None)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Every cost, in the order in which the answers are drawn."""
        first = () if self.selection is None else (self.selection.cost,)
        before = () if self.tally is None else (self.tally,)
        chosen = (*before, *self.tallies, *self.choices)
        return (*first, *(cost for noise in (*chosen, *self.noises) for cost in noise.costs))

    @property
    def added(self) -> tuple[Noise, ...]:
        """The noises of measures that noise is added to."""
        return tuple(noise for noise in self.noises if isinstance(noise, Noise))

    @property
    def charged_delta(self) -> Fraction:
        """The delta that is charged: that of Gaussian noise, or what a selection of groups may fail with."""
        gaussian = any(noise.is_normal for noise in self.noises)
        return self.delta if gaussian else sum((cost.delta for cost in self.costs), Fraction(0))

    @property
    def query(self) -> Query:
        """What the core is asked: it derives bounds and sensitivities by itself."""
        return Query(
            rows=self.relation.beside,
            groups=tuple(
                Group(key.tree, None if key.labels is None else len(key.labels)) for key in self.keys
            ),
            measures=tuple(noise.measure for noise in self.noises),
            max_groups=self.max_groups,
            max_records=self.entering or self.unit.max_records,
        )

    @property
    def tallied_plan(self) -> QueryPlan:
        """What is measured before norms are known: individuals, over all groups together."""
        return replace(self.choice_plan, keys=self.keys, max_groups=self.max_groups, noises=self.tallies)

    @property
    def unbounded(self) -> tuple[exp.Expr, ...]:
        """The operands whose bounds are chosen, in the order of `choices`."""
        operands = [noise.measure.private for noise in self.noises]
        return tuple(dict.fromkeys(each for each in operands if each is not None))

    @property
    def choice_plan(self) -> QueryPlan:
        """What is measured before bounds are known."""
        return replace(
            self,
            keys=(),
            max_groups=1,
            aggregates=(),
            noises=self.choices,
            outputs=(),
            selection=None,
            stages=(),
            choices=(),
            sets=None,
            tally=None,
            tallies=(),
        )

    @property
    def tally_plan(self) -> QueryPlan:
        """What is measured before the bound on records is known."""
        assert self.tally is not None
        unit = replace(self.unit, max_records=MOST_RECORDS)
        return replace(self.choice_plan, unit=unit, noises=(self.tally,))

    def to_record(self) -> dict[str, Any]:
        """The plan as a plain record."""
        chosen = {"bounds": [noise.measure.describe() for noise in self.choices]} if self.choices else {}
        sets: dict[str, Any] = {} if self.sets is None else {"grouping sets": self.sets.describe()}
        if self.tally is not None:
            sets["max_records"] = "private"
        if self.tallies:
            sets["clips"] = [noise.measure.describe() for noise in self.tallies]
        return {
            **chosen,
            **sets,
            "statement": self.text,
            **({"around": list(self.around)} if self.around else {}),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit.describe(),
            "max_groups": self.max_groups,
            "noise": [
                {
                    "measure": noise.measure.describe(),
                    "kind": noise.law[0],
                    "scale": noise.law[1],
                    **noise.shares,
                }
                for noise in self.noises
            ],
            "selection": None if self.selection is None else self.selection.to_record(),
        }

    @property
    def digest(self) -> str:
        """The SHA-256 of the plan's record."""
        return digest(self.to_record())


def find_aggregate_numbers(tree: exp.Expr) -> list[int]:
    """The numbers of the aggregates that a tree is made of, in order."""
    return [int(node.name) for node in tree.find_all(exp.Column) if node.table == AGGREGATE]


def find_mode(tree: exp.Expr, aggregates: Sequence[Aggregate]) -> Measure | None:
    """What is measured if the tree is one MODE or TOP, None for anything else."""
    return _find_kind(tree, aggregates, "mode")


def find_quantiles(tree: exp.Expr, aggregates: Sequence[Aggregate]) -> Measure | None:
    """What is measured if the tree is one APPROX_QUANTILES, None for anything else."""
    return _find_kind(tree, aggregates, "quantiles")


def _find_kind(tree: exp.Expr, aggregates: Sequence[Aggregate], kind: AggregateKind) -> Measure | None:
    if isinstance(tree, exp.Column) and tree.table == AGGREGATE:
        aggregate = aggregates[int(tree.name)]
        if aggregate.kind == kind:
            return aggregate.measures[0]
    return None


def name_columns(output: Output, aggregates: Sequence[Aggregate]) -> tuple[str, ...]:
    """The names of the columns that one item of the select list becomes."""
    if is_key(output.tree) or is_text(output.tree) or is_rank(output.tree) or is_moment(output.tree):
        return (output.name,)
    quantiles = find_quantiles(output.tree, aggregates)
    if quantiles is not None:
        return tuple(
            f"{output.name}_{part}{end}"
            for part in range(quantiles.parts + 1)
            for end in ("", "_low", "_high")
        )
    mode = find_mode(output.tree, aggregates)
    if mode is None:
        return output.name, f"{output.name}_low", f"{output.name}_high"
    if not mode.numbered:
        return (output.name,)
    return tuple(f"{output.name}_{place}" for place in range(1, mode.chosen + 1))


def add_laplace(measure: Measure, unit: PrivacyUnit, groups: int, epsilon: Fraction) -> Noise:
    """The Laplace noise of a measure at epsilon, where an individual is in at most so many groups.

    A tree of counts has it on each of its levels, in equal shares.
    """
    levels = list_levels() if measure.parts else (1,)
    sensitivity = bound_measure(measure, unit, groups, norm="L1")
    scale = sensitivity * len(levels) / epsilon
    drawn = Divided("laplace", scale, levels) if measure.parts else Noised("laplace", scale)
    costs = cost_measure(measure, drawn, unit, groups)
    return Noise(measure=measure, kind="laplace", scale=scale, costs=costs)


@cache
def list_levels() -> tuple[int, ...]:
    """The widths of the intervals of every level of a tree of counts, in steps: those of the least error."""
    from sfumato.inference.models.cumulative import choose_widths

    return choose_widths(CELLS, deviation=float)[0]


def plan_selection(
    unit: PrivacyUnit,
    keys: tuple[Key, ...],
    groups: int,
    epsilon: Fraction,
    delta: Fraction,
    reserve: Fraction,
    *,
    parts: int,
    min_individuals: int = 1,
) -> tuple[Selection | None, Fraction, Fraction]:
    """The selection of open groups, and the epsilon and delta that are left for the measures.

    An individual, by `unit`, is in at most `groups` groups of the `keys`. `reserve` is the delta that the
    ledger keeps for such selections, `parts` the number of measures, each of which has the same share of
    epsilon. A group of fewer than `min_individuals` stays unseen as one of a single individual does.
    """
    open_keys = [key for key in keys if key.is_open]
    if not open_keys and min_individuals > 1:
        raise refuse(
            "min_individuals is for groups that are chosen privately, and these are public, or there are "
            "none; HAVING COUNT(DISTINCT unit) >= ... leaves out noisy answers at no further cost"
        )
    if not open_keys:
        return None, epsilon, delta
    name = open_keys[0].node.sql(dialect="postgres")  # as most clients write it
    if delta == 0 or reserve == 0:
        raise refuse(
            f"GROUP BY {name}: its groups are not public, so they are chosen privately, which needs delta "
            "(DP-SELECT 0.5 DELTA 1e-9 ..., and delta in [budget]); or declare its values in the project "
            "file, "
            'for periods of dates range = ["2019-01-01", "2025-12-31"], or bound them in WHERE on both sides'
        )
    share = epsilon / (parts + 1)
    # A hundredth of the ledger's reserve at most, so that a hundred such statements fit.
    chance = min(delta / 2, reserve / 100)
    contribution = Fraction(groups)
    scale = histogram_sensitivity(contribution=contribution, norm="L1", neighbours=unit.neighbours) / share
    threshold = selection_threshold(scale=scale, sensitivity=groups, delta=chance)
    # Fewer than k individuals are at most k - 1, where the threshold is made for one.
    threshold += max(0, min_individuals - 2)
    cost = cost_selection(unit, groups, Kept(scale, threshold, chance))
    selection = Selection(scale=scale, threshold=threshold, cost=cost, min_individuals=min_individuals)
    return selection, epsilon - share, delta - chance


def stray_threshold(noise: Noise, counts: int) -> float:
    """What the noise of none of so many counts reaches, but for one answer in a thousand."""
    return half_width(noise, 2 * _STRAY / counts) + 1


def calibrate_noise(
    measures: tuple[Measure, ...],
    unit: PrivacyUnit,
    groups: int,
    *,
    epsilon: Fraction,
    delta: Fraction,
    levels: int = 1,
    together: Mapping[Measure, int] = {},
    intervals: bool = True,
) -> tuple[AnyNoise, ...]:
    """The noise of `measures`: epsilon shared equally, or Gaussian at `delta` for all where that is smaller.

    An individual, by `unit`, is in at most `groups` groups. Each is measured on so many `levels`. `together`
    has the most aggregates that one output is made of with a measure, where they are several. Without
    `intervals` nothing is spent on the ends of those of quantiles.
    """
    share = epsilon / (len(measures) * levels)

    def add(measure: Measure, kind: Kind) -> Noise:
        scale = calibrate_scale(
            kind,
            epsilon=epsilon,
            delta=delta,
            sensitivity=bound_measure(measure, unit, groups, norm=SHAPES[kind].norm),
            count=len(measures) * levels,
        )
        costs = cost_measure(measure, Noised(kind, scale), unit, groups) * levels
        return Noise(measure=measure, kind=kind, scale=scale, costs=costs)

    def choose(measure: Measure) -> AnyNoise:
        if measure.parts:
            return add_laplace(measure, unit, groups, share)
        drawn = choose_ranks(measure, unit, share, together=together.get(measure, 1), ends=intervals)
        return PrivateChoice(measure=measure, drawn=drawn, costs=cost_measure(measure, drawn, unit, groups))

    chosen = [measure.statistic == "quantile" for measure in measures]
    noises: list[AnyNoise]
    if any(chosen):
        pairs = zip(measures, chosen, strict=True)
        noises = [choose(measure) if by_choice else add(measure, "laplace") for measure, by_choice in pairs]
    else:
        added = [add(measure, "laplace") for measure in measures]
        if delta > 0:
            # Each Gaussian is calibrated as one of many; beside Laplace noise that would not add up.
            gaussians = [add(measure, "gaussian") for measure in measures]
            both = zip(gaussians, added, strict=True)
            if all(float(one.scale) < math.sqrt(2) * float(other.scale) for one, other in both):
                added = gaussians
        noises = [*added]
    if any(isinstance(noise, Noise) and noise.scale > MAX_SCALE for noise in noises):
        raise refuse("the noise would be beyond 2^50, more than any answer; spend more epsilon")
    return tuple(noises)


def choose_ranks(
    measure: Measure, unit: PrivacyUnit, epsilon: Fraction, *, together: int = 1, ends: bool = True
) -> Labelled | Ranked:
    """The choices of labels, or of a quantile: the answer, then a window around it for its interval.

    The window is aimed to hold a number of records that the noise of its choice hides little of, so that it
    tells how dense values are around the answer. Far from the middle a noisy number of records follows, as
    those beyond the quantile may be too few for that.

    MIN and MAX take one choice. It aims so far inside that it lies beyond the extreme with 5 % at most, less
    if an output is made of several aggregates `together`, whose intervals must hold at once; on the other
    side one record more could lie anywhere, so the interval goes to the bound.
    """
    whole = epsilon / score_range(measure, unit)
    if measure.labels is not None:
        return Labelled(whole / measure.chosen, measure.chosen)
    if measure.quantile in (0, 1):
        edge = math.ceil(math.log((measure.steps + 3) * together / MISS / 3) / float(whole))
        return Ranked((Rank(shift=edge if measure.quantile == 0 else -edge, rate=whole),))
    if not ends:
        return Ranked((Rank(rate=whole),))
    rate = _WINDOW * epsilon / score_range(measure, unit, near=True)
    window = Rank(nearest=math.ceil(_NEAREST / rate), rate=rate)
    share = measure.quantile or Fraction(0)
    if _TAIL <= share <= 1 - _TAIL:
        return Ranked((Rank(rate=whole * (1 - _WINDOW)), window))
    answer = Rank(rate=whole * (1 - _WINDOW - _COUNTED))
    return Ranked((answer, window), count_moved(unit) / (_COUNTED * epsilon))


def normal_width(share: float) -> float:
    """How many standard deviations normal noise exceeds with a probability of `share`."""
    return NormalDist().inv_cdf(1 - share / 2)


def half_width(noise: Noise, share: float = MISS, *, count: int = 1) -> float:
    """The least width that the noise exceeds with a probability of at most `share`.

    With a `count` above 1, that of the sum of so many independent noises, by its normal law. What has parts
    has a width for each group, of which this is the largest, or that of the sum over all.
    """
    if noise.parts and count > 1:
        return total_width(noise.parts, noise.slack, share)
    if noise.parts:
        return float(part_widths(noise.parts, noise.slack, share).max(initial=0.0))
    alone = noise.shape.half_width(float(noise.scale), share)
    return alone if count == 1 else normal_width(share) * noise.deviation * math.sqrt(count)


def group_widths(noise: Noise, share: float = MISS) -> NDArray[np.float64] | float:
    """The same for each group, one number if it is the same for all."""
    return part_widths(noise.parts, noise.slack, share) if noise.parts else half_width(noise, share)


def mode_reach(choice: PrivateChoice, share: float = MISS) -> int:
    """How far, in records, any chosen label lies below the best left, but for a share of the draws.

    A choice misses by more than t with probability at most (number of labels) * exp(-t * rate).
    """
    choices = len(choice.measure.labels or ()) * choice.measure.chosen
    return math.floor(float(choice.distance) * math.log(choices / share))


def check_within(plan: QueryPlan) -> None:
    """Refuses aggregates whose error depends on the records."""
    measured = all(each.kind == "measure" for each in plan.aggregates)
    chosen = plan.choices or plan.sets or plan.tally or plan.tallies
    if not measured or chosen or len(plan.added) < len(plan.noises):
        raise refuse(
            "WITHIN is for COUNT and SUM, whose error does not depend on the records; state epsilon instead, "
            "and EXPLAIN tells the expected error"
        )


def least_epsilon(plan_at: Callable[[Fraction], QueryPlan], amount: Fraction) -> Fraction:
    """The least multiple of 1e-6 at which 95 % of every COUNT and SUM are within `amount`."""

    def is_enough(epsilon: Fraction) -> bool:
        try:
            plan = plan_at(epsilon)
        except UnsupportedQuery:
            if epsilon < 1:  # so little epsilon that the noise does not fit the integers
                return False
            raise
        check_within(plan)
        return all(half_width(noise) <= amount * noise.measure.grid for noise in plan.added)

    low, high = 0, 1
    while not is_enough(high * _STEP):
        low, high = high, high * 2
        if high * _STEP > _MOST_EPSILON:
            raise refuse("WITHIN asks for less error than any budget buys")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle * _STEP) else (middle, high)
    return high * _STEP


def set_noise(noise: AnyNoise, sets: GroupingSets, each: GroupingSet) -> Noise:
    """What is left of the noise in the groups of one grouping set, with its variance as its law's.

    A sum of Laplace noises lies beyond a width that one of the same variance exceeds with at most 5 % no
    more often than that one. Whole numbers of a fit are at most 2 steps away from it.
    """
    assert isinstance(noise, Noise)  # what is chosen does not add up over groups
    scale = float(noise.scale) * math.sqrt(spread_of(sets, each))
    rounded = len(sets.levels) > 1 and not sets.is_fitted
    return replace(noise, scale=round_up(scale * (1 + 1e-12) + (1.1 if rounded else 0), places=6))


def describe_scales(plan: QueryPlan) -> dict[str, str]:
    """For every output with an aggregate, the noise behind it."""
    index = {noise.measure: describe_noise(noise) for noise in plan.noises}
    scales = {}
    for output in plan.outputs:
        numbers = find_aggregate_numbers(output.tree)
        noises = [index[measure] for number in numbers for measure in plan.aggregates[number].measures]
        if noises:
            scales[output.name] = "; ".join(noises)
    return scales


def describe_noise(noise: AnyNoise, *, reach: bool = True) -> str:
    """What is added to a measure, or how it is chosen, in words."""
    if isinstance(noise, PrivateChoice):
        if noise.measure.labels is None:
            return f"permute-and-flip over public steps, epsilon {show_short(noise.epsilon)}"
        left = " left" if noise.measure.chosen > 1 else ""
        return (
            f"exponential mechanism among {len(noise.measure.labels):,} public labels, scale "
            f"{show_short(noise.distance)} records, epsilon {show_short(noise.epsilon)}"
            + (f", 95 % within {mode_reach(noise)} records of the most frequent{left}" if reach else "")
        )
    grid = noise.measure.grid
    width = half_width(noise) / grid
    if noise.parts:
        most = max(sum(counts) for counts in zip(*(part.counts for part in noise.parts), strict=True))
        return f"sum of up to {most} noises of earlier answers, 95 % within +-{width:.4g}"
    if noise.measure.parts:
        levels = ", ".join(f"{-(-CELLS // each):,}" for each in list_levels())
        return (
            f"discrete laplace noise on counts of {levels} intervals, scale {float(noise.scale):.6g}, "
            f"sensitivity {float(noise.costs[0].sensitivity):.6g} (L1) each"
        )
    if noise.measure.is_open and noise.measure.statistic == "sum":
        about = "the largest magnitude of the bounds" if noise.measure.centre == 0 else "half their width"
        times = float(noise.scale) / LARGEST
        return (
            f"discrete {noise.kind} noise, scale {times:.6g} times {about}, 95 % within "
            f"+-{width * grid / LARGEST:.4g} times"
        )
    return (
        f"discrete {noise.kind} noise, scale {float(noise.scale) / grid:.6g}, sensitivity "
        f"{float(noise.costs[0].sensitivity) / grid:.6g} ({noise.costs[0].norm})"
        + (f", 95 % within +-{width:.4g}" if reach else "")
    )


def show_short(number: Fraction) -> str:
    """A number as people read it, also a very small one."""
    return f"{float(number):g}" if 0 < number < Fraction(1, 10**5) else format_short(number)
