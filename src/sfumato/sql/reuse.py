"""Answers that follow from earlier ones: which measured groups add up to which groups of a new question.

A pure function of two plans. Every group of the earlier answer must lie wholly inside or wholly outside of a
group of the new one, by its public labels; records that were in no group there must be in none here.
docs/proofs/reuse.md has the argument.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.exact import round_up
from sfumato.sql.cells import (
    FALSE,
    NULL,
    TRUE,
    Axis,
    Point,
    Possible,
    Rest,
    Span,
    decide,
    implies,
    read_axis,
    read_spans,
)
from sfumato.sql.check import finite_labels
from sfumato.sql.laws import NoisePart
from sfumato.sql.plan import Noise, NoisyAggregates, QueryPlan, group_widths, half_width
from sfumato.sql.question import Question, rename_tables, spell

if TYPE_CHECKING:
    from sfumato.sql.aggregates import Key
    from sfumato.sql.question import Asked

_MOST_CELLS = 2**21
_MOST_COMBINED = 16
_DROPPED, _UNDECIDED = -1, -2
# What is not narrower by so much is not worth saying that it was combined.
_WORTH = 0.98
_MOST_PARTS = 64
_ADDED = ("records", "present", "sum", "square")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Earlier:
    """An earlier answer: its entry in the ledger, its plan, what it asked, and how to load its values."""

    entry: int
    plan: QueryPlan
    question: Question
    load: Callable[[], NoisyAggregates]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """How one measure follows from one of an earlier plan: for each of its groups the new one, -1 for none.

    With `same`, it is the same bounded quantity that a statement of its own would measure. Otherwise
    individuals were held to their bounds over all groups of the earlier answer.
    """

    measure: int
    target: NDArray[np.int64]
    same: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Derived:
    """An answer that follows from earlier ones: a plan that states its noise, the values, and the entries.

    `bounded` has the entries whose bounds hold over all their groups, which a note says; `max_groups` is the
    least number of groups that an individual was held to there, None if to no fewer than records.
    """

    plan: QueryPlan
    noisy: NoisyAggregates
    entries: tuple[int, ...]
    bounded: tuple[int, ...] = ()
    max_groups: int | None = None

    def describe(self) -> str:
        """How wide the intervals are, and from which entries."""
        noises = [noise for noise in self.plan.noises if noise.kind != "exponential"]
        widths = sorted({f"+-{half_width(noise) / noise.measure.grid:.4g}" for noise in noises})
        within = f"within {', '.join(widths)} " if widths else ""
        return f"{within}from {_list_entries(self.entries)} of the ledger"

    def notes(self, entry: int | None = None) -> tuple[str, ...]:
        """What should be known of the answer; with `entry`, that it was combined with what it paid for."""
        named = _list_entries(self.entries)
        if entry is not None:
            first = f"combined with {named} of the ledger, which measured the same"
        else:
            first = f"follows from {named} of the ledger; nothing was spent"
        if not self.bounded:
            return (first,)
        bounds = f"at most {self.plan.unit.max_records} records of one individual"
        if self.max_groups is not None:
            bounds += f", in at most {self.max_groups} groups,"
        held = _list_entries(self.bounded)
        return (first, f"{bounds} are in it over all groups of {held} together, not of this statement alone")

    def is_as_narrow(self, plan: QueryPlan) -> bool:
        """Whether no interval of any measure is wider than the noise of `plan` makes it.

        What holds individuals to few groups cuts more than a statement of its own, and is never as good.
        """
        return self.max_groups is None and all(
            _is_as_narrow(mine, fresh) for mine, fresh in zip(self.plan.noises, plan.noises, strict=True)
        )


def _list_entries(entries: tuple[int, ...]) -> str:
    named = ", ".join(map(str, entries))
    return f"entry {named}" if len(entries) == 1 else f"entries {named}"


def _is_as_narrow(mine: Noise, fresh: Noise) -> bool:
    if fresh.kind == "exponential":
        # A quantile's scale is an epsilon, a mode's is in records.
        return mine.scale >= fresh.scale if fresh.measure.labels is None else mine.scale <= fresh.scale
    return bool(np.max(group_widths(mine), initial=0.0) <= group_widths(fresh))


def link_measures(
    plan: QueryPlan, question: Question, earlier: QueryPlan, asked: Question
) -> dict[int, Link]:
    """For each measure of `plan` that follows from `earlier`, how; `asked` is the question of `earlier`."""
    if question.source != asked.source or plan.unit != earlier.unit:
        return {}
    if plan.selection is not None or earlier.selection is not None:
        return _link_open(plan, question, earlier, asked)
    grid = _Grid(plan, question, earlier, asked)
    if grid.codes is None:
        return {}
    links: dict[int, Link] = {}
    for number, wanted in enumerate(question.asked):
        for place, known in enumerate(asked.asked):
            if known.text != wanted.text:
                continue
            link = grid.link(place, known, wanted)
            if link is not None and (number not in links or link.same > links[number].same):
                links[number] = link
    return links


class _Grid:
    """All cells of an earlier plan, with what becomes of them in a new one."""

    def __init__(self, plan: QueryPlan, question: Question, earlier: QueryPlan, asked: Question) -> None:
        self._plan, self._question, self._earlier, self._asked = plan, question, earlier, asked
        relation = earlier.relation
        self._axes = [read_axis(key, relation, asked.aliases) for key in earlier.keys]
        if not self._axes:
            self._axes = [Axis(text="", labels=("",), cells=({},), owners=(0,))]
        self._shape = tuple(len(axis.cells) for axis in self._axes)
        self._kept: set[int] = set()  # axes that are a key of the new plan as they are
        self._computed = False  # whether a key is computed of axes, and may drop records by itself
        self.codes = self._map_keys() if math.prod(self._shape) <= _MOST_CELLS else None

    def link(self, place: int, known: Asked, wanted: Asked) -> Link | None:
        """How `wanted` follows from the measure `known` at `place`, None if it does not."""
        assert self.codes is not None
        held = {**self._asked.conditions, **{spell(each): each for each in known.conditions}}
        all_of = {**self._question.conditions, **{spell(each): each for each in wanted.conditions}}
        given = list(all_of.values())
        if any(text not in all_of and not implies(given, each) for text, each in held.items()):
            return None
        rest = [each for text, each in all_of.items() if text not in held]
        inside = self._decide(rest)
        everything = self._decide(given)
        owners = list(np.meshgrid(*(np.array(axis.owners) for axis in self._axes), indexing="ij"))
        groupless = np.zeros(self._shape, np.bool_)
        for number, owner in enumerate(owners):
            if number not in self._kept:
                groupless |= owner < 0
        # Who was in no group of the earlier answer must not count here.
        if ((everything & TRUE != 0) & groupless & (self.codes != _DROPPED)).any():
            return None
        dropped = np.logical_or.reduce([owner < 0 for owner in owners])
        counted = ~dropped & (inside & TRUE != 0) & (self.codes != _DROPPED)
        if (counted & ((inside != TRUE) | (self.codes == _UNDECIDED))).any():
            return None
        return self._collect(place, wanted, owners, dropped, counted, narrowed=bool(rest))

    def _collect(
        self,
        place: int,
        wanted: Asked,
        owners: list[NDArray[np.int64]],
        dropped: NDArray[np.bool_],
        counted: NDArray[np.bool_],
        *,
        narrowed: bool,
    ) -> Link | None:
        """The link of cells that are decided: all cells of one label must go the same way."""
        sizes = [max(1, len(axis.labels)) for axis in self._axes]
        cell = np.ravel_multi_index([np.maximum(owner, 0) for owner in owners], sizes)
        inside = ~dropped
        assert self.codes is not None
        goes = np.where(counted, self.codes, _DROPPED)
        target = np.full(math.prod(sizes), _UNDECIDED)
        target[cell[inside]] = goes[inside]
        if (target[cell[inside]] != goes[inside]).any() or (target == _UNDECIDED).any():
            return None
        groups = np.bincount(target[target >= 0], minlength=self._plan.groups)
        plain = self._plan.unit.column is None and not self._plan.relation.joined
        added = wanted.measure.statistic in _ADDED or (plain and wanted.measure.statistic == "individuals")
        if not added and (groups != 1).any():
            return None
        same = plain or self._is_same(wanted, narrowed=narrowed)
        return Link(measure=place, target=target.astype(np.int64), same=same)

    def _is_same(self, wanted: Asked, *, narrowed: bool) -> bool:
        """Whether both plans keep the same records of every individual.

        Conditions of the measure itself do not matter: they are looked at when it is decided what is kept.
        """
        same_rows = set(self._question.conditions) == set(self._asked.conditions)
        total = all(
            axis.is_total or number in self._kept for number, axis in enumerate(self._axes) if axis.text
        )
        if not same_rows or not total or self._computed:
            return False
        if self._question.choice == self._asked.choice:
            return True
        # Of a count without groups it does not matter which records are kept.
        unbounded = self._earlier.max_groups >= self._earlier.unit.max_records
        counts = wanted.measure.statistic == "records" and not narrowed
        return counts and not self._plan.keys and (unbounded or not self._earlier.keys)

    def _decide(self, conditions: list[exp.Expr]) -> NDArray[np.uint8]:
        found = np.full(self._shape, TRUE, np.uint8)
        for condition in conditions:
            masks = np.broadcast_to(decide(condition, self._axes), self._shape)
            # Of AND only what may be true matters.
            found = np.where(found & TRUE == 0, found, _narrow(found, masks))
        return found

    def _map_keys(self) -> NDArray[np.int64] | None:
        """The group of the new plan for every cell; of no group, or not decided."""
        found = np.zeros(self._shape, np.int64)
        bad = np.zeros(self._shape, np.bool_)
        out = np.zeros(self._shape, np.bool_)
        for key, text in zip(self._plan.keys, self._question.keys, strict=True):
            codes = self._map_key(key, text)
            if codes is None:
                return None
            bad |= codes == _UNDECIDED
            out |= codes == _DROPPED
            found = found * len(key.labels or ()) + np.maximum(codes, 0)
        return np.where(out, _DROPPED, np.where(bad, _UNDECIDED, found))

    def _map_key(self, key: Key, text: str) -> NDArray[np.int64] | None:
        relation, aliases = self._plan.relation, self._question.aliases
        for number, axis in enumerate(self._axes):
            if axis.text == text:
                labels = read_axis(key, relation, aliases).labels
                places = {label: code for code, label in enumerate(labels)}
                if not set(places) <= set(axis.labels) or len(places) < len(labels):
                    return None
                self._kept.add(number)
                owned = [
                    places.get(axis.labels[owner], _DROPPED) if owner >= 0 else _DROPPED
                    for owner in axis.owners
                ]
                return self._spread(number, owned)
        self._computed = True
        node = rename_tables(key.node.unnest(), aliases)
        if finite_labels(node) == (False, True):
            return _pick([(decide(node, self._axes), 1)], 0, self._shape)
        if isinstance(node, exp.Case):
            return self._map_case(node, key)
        if isinstance(node, exp.Column):
            return self._map_values(text, read_axis(key, relation, aliases))
        spans = read_spans(key, relation, aliases)
        return None if spans is None else self._map_dates(*spans)

    def _map_case(self, node: exp.Case, key: Key) -> NDArray[np.int64] | None:
        """The results of CASE WHEN with constants for results."""
        codes = {str(label): code for code, label in enumerate(key.labels or ())}
        results = [branch.args["true"] for branch in node.args["ifs"]]
        default = node.args.get("default")
        given = [each for each in (*results, default) if each is not None and not isinstance(each, exp.Null)]
        if node.this is not None or not all(each.name in codes for each in given):
            return None
        branches = [
            (
                decide(branch.this, self._axes),
                _DROPPED if isinstance(result, exp.Null) else codes[result.name],
            )
            for branch, result in zip(node.args["ifs"], results, strict=True)
        ]
        last = _DROPPED if default is None or isinstance(default, exp.Null) else codes[default.name]
        return _pick(branches, last, self._shape, drops_null=False)

    def _map_values(self, column: str, wanted: Axis) -> NDArray[np.int64] | None:
        """The labels of a column where an axis tells its listed values from all others."""
        pairs = [(cell[column], owner) for cell, owner in zip(wanted.cells, wanted.owners, strict=True)]
        points = {
            each.value: owner for each, owner in pairs if isinstance(each, Point) and each.value is not None
        }
        others = {owner for each, owner in pairs if not (isinstance(each, Point) and each.value in points)}
        for number, axis in enumerate(self._axes):
            if column not in axis.cells[0]:
                continue
            codes = []
            for cell in axis.cells:
                match cell[column]:
                    case Point(value) if value is not None and value in points:
                        codes.append(points[value])
                    case Rest(excluded) if set(points) <= excluded and len(others) == 1:
                        codes.append(next(iter(others)))
                    case _:
                        codes.append(_UNDECIDED)
            return self._spread(number, codes)
        return None

    def _map_dates(self, column: str, spans: list[tuple[int, Span]]) -> NDArray[np.int64] | None:
        """The periods of a new key that hold those of an earlier one wholly."""
        for number, axis in enumerate(self._axes):
            if column in axis.cells[0]:
                return self._spread(number, _find_periods([cell[column] for cell in axis.cells], spans))
        return None

    def _spread(self, axis: int, codes: list[int]) -> NDArray[np.int64]:
        shape = [1] * len(self._shape)
        shape[axis] = len(codes)
        return np.broadcast_to(np.array(codes, np.int64).reshape(shape), self._shape)


def _narrow(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """AND of what may be: true only if both may be, false or NULL if one may be."""
    either = (one | other) & np.uint8(FALSE | NULL)
    return np.asarray((one & other & np.uint8(TRUE)) | either, np.uint8)


def _pick(
    branches: list[tuple[NDArray[np.uint8], int]],
    last: int,
    shape: tuple[int, ...],
    *,
    drops_null: bool = True,
) -> NDArray[np.int64]:
    """The code of the first branch that holds, or the last one; where a branch may or may not, none."""
    found = np.full(shape, last, np.int64)
    for masks, code in reversed(branches):
        masks = np.broadcast_to(masks, shape)
        decided = np.where(masks == TRUE, code, found)
        decided = np.where((masks & TRUE != 0) & (masks != TRUE), _UNDECIDED, decided)
        if drops_null:
            # A condition as a key: NULL is no group.
            decided = np.where(masks == NULL, _DROPPED, decided)
            decided = np.where((masks & NULL != 0) & (masks != NULL), _UNDECIDED, decided)
        found = decided
    return found


def _find_periods(cells: Sequence[Possible], spans: list[tuple[int, Span]]) -> list[int]:
    """The labels of the periods that ranges lie in; dropped if in none, undecided if a range is cut."""
    begins = [span.low for _, span in spans]
    found = []
    for cell in cells:
        if not isinstance(cell, Span):
            found.append(_DROPPED if cell == Point(None) else _UNDECIDED)
            continue
        place = -1 if cell.low is None else bisect_right(begins, cell.low) - 1  # type: ignore[type-var]
        if place >= 0 and _contains(spans[place][1], cell):
            found.append(spans[place][0])
        else:
            apart = _is_before(cell, spans[0][1]) or _is_before(spans[-1][1], cell)
            found.append(_DROPPED if apart else _UNDECIDED)
    return found


def _contains(outer: Span, inner: Span) -> bool:
    if inner.low is None or inner.high is None or outer.low is None or outer.high is None:
        return False
    ends = inner.high < outer.high or (  # type: ignore[operator]
        inner.high == outer.high and (inner.high_open or not outer.high_open)
    )
    return bool(outer.low <= inner.low and ends)  # type: ignore[operator]


def _is_before(one: Span, other: Span) -> bool:
    if one.high is None or other.low is None:
        return False
    return bool(one.high < other.low or (one.high == other.low and (one.high_open or other.low_open)))  # type: ignore[operator]


def _link_open(plan: QueryPlan, question: Question, earlier: QueryPlan, asked: Question) -> dict[int, Link]:
    """Groups that were chosen privately are found again as they are, or not at all."""
    # Another threshold would answer other groups.
    chosen = plan.selection is not None and plan.selection == earlier.selection
    same = set(question.conditions) == set(asked.conditions) and set(question.keys) == set(asked.keys)
    if not chosen or not same or plan.max_groups != earlier.max_groups:
        return {}
    places = {known.spell(): place for place, known in enumerate(asked.asked)}
    return {
        number: Link(measure=places[wanted.spell()], target=np.empty(0, np.int64), same=False)
        for number, wanted in enumerate(question.asked)
        if wanted.spell() in places
    }


def derive_answer(
    plan: QueryPlan, question: Question, known: Sequence[Earlier], *, fresh: NoisyAggregates | None = None
) -> Derived | None:
    """The answer to `plan` that follows from what is `known`, the best of it by noise alone.

    With `fresh`, what was just measured for `plan`, what measures the same quantity is combined with it.
    What is chosen, and with which weights, depends on scales and public labels, never on noisy values.
    """
    linked = [(each, link_measures(plan, question, each.plan, each.question)) for each in known]
    linked = [(each, links) for each, links in linked if links]
    if plan.selection is not None:
        return None if fresh is not None else _derive_open(plan, question, linked)
    noises, values, used, bounded, limits = [], [], set(), set(), []
    for number, noise in enumerate(plan.noises):
        options = [_Option(each, links[number], plan) for each, links in linked if number in links]
        chosen = _choose(noise, options, None if fresh is None else fresh.values[number])
        if chosen is None:
            return None
        noises.append(chosen[0])
        values.append(chosen[1])
        used |= {option.entry for option in chosen[2]}
        bounded |= {option.entry for option in chosen[2] if not option.same}
        limits += [option.max_groups for option in chosen[2] if option.max_groups is not None]
    return Derived(
        plan=replace(plan, noises=tuple(noises)),
        noisy=NoisyAggregates(values=tuple(values)),
        entries=tuple(sorted(used)),
        bounded=tuple(sorted(bounded)),
        max_groups=min(limits, default=None),
    )


class _Option:
    """One measure of one earlier answer, added up to the groups of a new plan."""

    def __init__(self, earlier: Earlier, link: Link, plan: QueryPlan) -> None:
        self.entry, self.noise, self.same = earlier.entry, earlier.plan.noises[link.measure], link.same
        self._earlier, self._link = earlier, link
        held = earlier.plan.keys and earlier.plan.max_groups < earlier.plan.unit.max_records
        self.max_groups = earlier.plan.max_groups if held and not link.same else None
        self.counts = np.bincount(link.target[link.target >= 0], minlength=plan.groups)

    @property
    def sums(self) -> NDArray[np.int64]:
        """The noisy values of all groups, added up."""
        link = self._link
        taken = np.flatnonzero(link.target >= 0)
        noisy = self._earlier.load().values[link.measure][..., taken]
        sums = np.zeros((*noisy.shape[:-1], self.counts.size), np.int64)
        np.add.at(sums.T, link.target[taken], noisy.T)
        return sums

    @property
    def variances(self) -> NDArray[np.float64]:
        """The variance of the noise of every group."""
        single = float(self.noise.scale) ** 2 * (1 if self.noise.kind == "gaussian" else 2)
        return np.asarray(self.counts * single, np.float64)

    @property
    def worst(self) -> float:
        """The largest of them; of a choice, how far it is from the best."""
        if self.noise.kind == "exponential":
            return float(self.noise.scale) * (1 if self.noise.measure.labels is not None else -1)
        return float(self.variances.max(initial=0.0))


def _choose(
    noise: Noise, options: list[_Option], fresh: NDArray[np.int64] | None
) -> tuple[Noise, NDArray[np.int64], list[_Option]] | None:
    """The noise and the values of one measure, and what they were taken from."""
    options = sorted(options, key=lambda option: (option.worst, option.entry))
    if noise.kind == "exponential":
        if fresh is not None:
            return noise, fresh, []
        best = [option for option in options if option.noise.kind == "exponential"][:1]
        return (replace(best[0].noise, measure=noise.measure), best[0].sums, best) if best else None
    options = [option for option in options if option.noise.kind != "exponential"]
    same = [option for option in options if option.same][:_MOST_COMBINED]
    if fresh is not None:
        combined = _combine(noise, same, fresh)
        narrower = np.max(group_widths(combined[0])) < _WORTH * float(np.max(group_widths(noise)))
        return (*combined, same) if narrower else (noise, fresh, [])
    others = [option for option in options if not option.same][:1]
    if same:
        combined = _combine(noise, same, None)
        narrowest = not others or np.max(group_widths(combined[0])) <= np.max(
            group_widths(_combine(noise, others, None)[0])
        )
        if narrowest:
            return (*combined, same)
    return (*_combine(noise, others, None), others) if others else None


def _combine(
    noise: Noise, options: list[_Option], fresh: NDArray[np.int64] | None
) -> tuple[Noise, NDArray[np.int64]]:
    """The mean of several measurements by their precision, and its noise.

    The noise of `noise` is that of `fresh`.
    """
    sums = [option.sums for option in options]
    sources = [(option.noise, option.counts) for option in options]
    if fresh is not None:
        sums.append(fresh)
        sources.append((noise, np.ones(fresh.size, np.int64)))
    if len(sums) == 1:
        source, counts = sources[0]
        return _sum_noise(noise, source, counts), sums[0]
    variances = np.stack(
        [counts * float(each.scale) ** 2 * (1 if each.kind == "gaussian" else 2) for each, counts in sources]
    )
    # A group without cells is known to be empty; it has no noise, and all weight.
    exact = variances == 0
    precisions = np.where(exact.any(axis=0), exact.astype(float), 1 / np.where(exact, 1.0, variances))
    weights = precisions / precisions.sum(axis=0)
    mean = sum(weight * each for weight, each in zip(weights, sums, strict=True))
    parts = _weigh_parts(sources, weights)
    if len(parts) > _MOST_PARTS:
        best = int(np.argmin(variances.max(axis=1)))
        return _sum_noise(noise, *sources[best]), sums[best]
    # Each lattice of noise adds at most its weight, rounding at most a half.
    combined = replace(noise, parts=parts, slack=1.5)
    return _plain_normal(combined), np.rint(mean).astype(np.int64)


def _weigh_parts(
    sources: list[tuple[Noise, NDArray[np.int64]]], weights: NDArray[np.float64]
) -> tuple[NoisePart, ...]:
    """The parts of a mean: one for each source and each weight that it has in some groups."""
    parts = []
    for (source, counts), row in zip(sources, weights, strict=True):
        for weight in np.unique(row[row > 0]):
            there = np.where(row == weight, counts, 0)
            if there.any():
                scale = float(source.scale) * float(weight)
                parts.append(NoisePart(_law(source), scale, tuple(there.tolist())))
    return tuple(parts)


def _law(noise: Noise) -> Literal["laplace", "gaussian"]:
    return "gaussian" if noise.kind == "gaussian" else "laplace"


def _sum_noise(noise: Noise, source: Noise, counts: NDArray[np.int64]) -> Noise:
    """The noise of sums of so many noisy values of `source` each."""
    if (counts == 1).all():
        return replace(source, measure=noise.measure)
    part = NoisePart(_law(source), float(source.scale), tuple(counts.tolist()))
    return _plain_normal(replace(source, measure=noise.measure, parts=(part,)))


def _plain_normal(noise: Noise) -> Noise:
    """The same noise as one normal law, where it is that and the same for all groups."""
    if any(part.kind != "gaussian" for part in noise.parts):
        widest = max(noise.parts, key=lambda part: part.scale)
        return replace(noise, kind=widest.kind, scale=Fraction(widest.scale).limit_denominator(10**9))
    variances = sum(part.variances for part in noise.parts)
    if np.ptp(variances) > 1e-12 * np.max(variances):
        return replace(noise, kind="gaussian", scale=round_up(float(np.sqrt(np.max(variances))), places=6))
    rounding = 1 / 12 if noise.slack else 0.0
    spread = math.sqrt(float(variances[0]) + rounding)  # type: ignore[index]
    return replace(noise, kind="gaussian", scale=round_up(spread, places=6), parts=(), slack=0.0)


def _derive_open(
    plan: QueryPlan, question: Question, linked: list[tuple[Earlier, dict[int, Link]]]
) -> Derived | None:
    """The groups that one earlier answer chose, with its values."""
    whole = [(each, links) for each, links in linked if len(links) == len(plan.noises)]
    if not whole:
        return None
    earlier, links = min(
        whole, key=lambda pair: max(pair[0].plan.noises[link.measure].scale for link in pair[1].values())
    )
    order = [earlier.question.keys.index(text) for text in question.keys]
    noisy = earlier.load()
    keys = [tuple(key[place] for place in order) for key in noisy.keys or ()]
    rows = sorted(range(len(keys)), key=lambda row: [str(part) for part in keys[row]])
    places = [links[number].measure for number in range(len(plan.noises))]
    noises = tuple(
        replace(earlier.plan.noises[place], measure=noise.measure)
        for place, noise in zip(places, plan.noises, strict=True)
    )
    values = tuple(noisy.values[place][rows] for place in places)
    return Derived(
        plan=replace(plan, noises=noises, selection=earlier.plan.selection),
        noisy=NoisyAggregates(values=values, keys=tuple(keys[row] for row in rows)),
        entries=(earlier.entry,),
    )


def expect_noise(
    plan: QueryPlan, question: Question, measured: Sequence[tuple[QueryPlan, Question]]
) -> QueryPlan | None:
    """The plan with the noise of the best answer that follows from what is `measured`, None if none does."""
    linked = [(each, link_measures(plan, question, each, asked)) for each, asked in measured]
    noises = []
    for number, noise in enumerate(plan.noises):
        options = []
        for each, links in linked:
            if number not in links:
                continue
            source, target = each.noises[links[number].measure], links[number].target
            counts = np.bincount(target[target >= 0], minlength=plan.groups)
            choice = noise.kind == "exponential"
            options.append(
                replace(source, measure=noise.measure) if choice else _sum_noise(noise, source, counts)
            )
        if not options:
            return None
        noises.append(min(options, key=spread_of_noise))
    return replace(plan, noises=tuple(noises))


def spread_of_noise(noise: Noise) -> float:
    """The mean variance of noise over groups; of a choice, in proportion to the inverse square of epsilon."""
    if noise.parts:
        return float(np.mean(sum(part.variances for part in noise.parts)))
    if noise.kind == "exponential":
        return float(sum((cost.scale for cost in noise.costs), Fraction(0))) ** -2
    return noise.deviation**2


def can_average(plan: QueryPlan) -> bool:
    """Whether answers to `plan` are averaged at no loss: noise is Gaussian, and the groups are public."""
    return plan.selection is None and all(noise.kind == "gaussian" for noise in plan.noises)


def average_answers(
    parts: Sequence[tuple[QueryPlan, NoisyAggregates]],
) -> tuple[QueryPlan, NoisyAggregates]:
    """The mean of several Gaussian answers by their precision, and a plan that states its noise."""
    noises, values = [], []
    for place, noise in enumerate(parts[-1][0].noises):
        precisions = [float(plan.noises[place].scale) ** -2 for plan, _ in parts]
        total = sum(precisions)
        mean = sum(
            (weight / total) * noisy.values[place]
            for weight, (_, noisy) in zip(precisions, parts, strict=True)
        )
        values.append(np.rint(mean).astype(np.int64))
        # Rounding to whole units adds at most a twelfth of one, squared, and nothing to a single answer.
        spread = math.sqrt(1 / total + (1 / 12 if len(parts) > 1 else 0))
        noises.append(replace(noise, scale=round_up(spread, places=6)))
    return replace(parts[-1][0], noises=tuple(noises)), NoisyAggregates(values=tuple(values))


def reorder_noisy(noisy: NoisyAggregates, held: QueryPlan, plan: QueryPlan) -> NoisyAggregates:
    """The values of `held` in the order of the keys and measures of `plan`, which asks the same."""
    # Keys and noises are those of one plan, taken in another order.
    order = [next(i for i, each in enumerate(held.keys) if each is key) for key in plan.keys]
    measures = [next(i for i, each in enumerate(held.noises) if each is noise) for noise in plan.noises]
    values = [noisy.values[place] for place in measures]
    if order == sorted(order):
        return NoisyAggregates(values=tuple(values), keys=noisy.keys)
    if noisy.keys is not None:
        keys = [tuple(key[place] for place in order) for key in noisy.keys]
        rows = sorted(range(len(keys)), key=lambda row: [str(part) for part in keys[row]])
        return NoisyAggregates(
            values=tuple(each[rows] for each in values), keys=tuple(keys[row] for row in rows)
        )
    sizes = [len(key.labels or ()) for key in held.keys]
    turned = []
    for each in values:
        lead = each.ndim - 1
        cube = each.reshape(*each.shape[:lead], *sizes)
        axes = [*range(lead), *(lead + place for place in order)]
        turned.append(cube.transpose(axes).reshape(each.shape))
    return NoisyAggregates(values=tuple(turned))
