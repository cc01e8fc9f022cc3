"""Which measured groups of an earlier plan add up to which groups of a new one.

A pure function of two plans. Every group of the earlier answer must lie wholly inside or wholly outside of a
group of the new one, by its public labels; records that were in no group there must be in none here.
docs/proofs/reuse.md has the argument.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

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
from sfumato.sql.plan import AnyNoise, QueryPlan
from sfumato.sql.question import Question, rename_tables, spell

if TYPE_CHECKING:
    from sfumato.sql.aggregates import Key
    from sfumato.sql.question import Asked

_MOST_CELLS = 2**21
_DROPPED, _UNDECIDED = -1, -2
_ADDED = ("records", "present", "sum", "square")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """How one measure follows from one of an earlier plan: for each of its groups the new one, -1 for none.

    With `same`, it is the same bounded quantity that a statement of its own would measure. Otherwise
    individuals were held to their bounds over all groups of the earlier answer. With `counted`, the earlier
    measure is a sum of distances from another centre, and that many records were in it.
    """

    measure: int
    target: NDArray[np.int64]
    same: bool
    counted: int | None = None


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
        if number not in links:
            moved = _link_moved(grid, wanted, asked)
            links |= {} if moved is None else {number: moved}
    return links


def _link_moved(grid: _Grid, wanted: Asked, asked: Question) -> Link | None:
    """A sum from one about another centre and the number of records that are in it.

    So SUM and COUNT of a column follow from its AVG, and AVG from them.
    """
    measure = wanted.measure
    if measure.statistic != "sum" or measure.tree is None:
        return None
    inner = spell(measure.tree)
    for place, known in enumerate(asked.asked):
        other = known.measure
        alike = other.statistic == "sum" and (other.low, other.high) == (measure.low, measure.high)
        if not alike or other.tree is None or spell(other.tree) != inner:
            continue
        held = sorted(map(spell, known.conditions))
        for number, present in enumerate(asked.asked):
            counts = present.measure.statistic == "present" and present.measure.is_number
            if not counts or present.measure.tree is None or spell(present.measure.tree) != inner:
                continue
            link = grid.link(place, known, wanted) if sorted(map(spell, present.conditions)) == held else None
            if link is not None:
                return replace(link, counted=number)
    return None


def link_sources(noise: AnyNoise, link: Link, earlier: QueryPlan) -> list[tuple[AnyNoise, float]]:
    """The noises that a value of a measure is made of, with factors in units of the measure."""
    source = earlier.noises[link.measure]
    if link.counted is None:
        return [(source, 1.0)]
    wanted, known = noise.measure, source.measure
    moved = float((known.centre - wanted.centre) * wanted.grid)
    return [(source, wanted.grid / known.grid), (earlier.noises[link.counted], moved)]


class _Grid:
    """All cells of an earlier plan, with what becomes of them in a new one."""

    def __init__(self, plan: QueryPlan, question: Question, earlier: QueryPlan, asked: Question) -> None:
        self._plan, self._question, self._earlier, self._asked = plan, question, earlier, asked
        if len(asked.axes) < len(earlier.keys):
            asked.axes[:] = [read_axis(key, earlier.relation, asked.aliases) for key in earlier.keys]
        self._axes = [*asked.axes] or [Axis(text="", labels=("",), cells=({},), owners=(0,))]
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
        column, spans = read_spans(key, relation, aliases) or ("", [])
        for number, axis in enumerate(self._axes):
            if column in axis.cells[0] and spans:  # the new periods hold the earlier ones wholly
                return self._spread(number, _find_periods([cell[column] for cell in axis.cells], spans))
        return None

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
