"""Rows that obey: drawn, and repaired where they break a rule.

Rules that are zeros of the model hold by themselves. For all others rows are repaired in this order: what is
decided is set, totals that their parts cannot reach are added up, broken rows are drawn anew from the model,
numbers are drawn anew within their bins, then moved within them; what is still broken is given the columns of
a row that obeys. All of it is post-processing from a public seed, and the last step cannot fail: a table
whose rules leave no row is refused when a release is planned (docs/proofs/rules.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.facts.rules import MOST_COLUMNS, Combination, Condition, Rule
from sfumato.core.facts.table import Table
from sfumato.inference.domain import Columns
from sfumato.inference.model import draw_places
from sfumato.recipes.shared.rules import (
    LARGEST_MASK,
    Boxes,
    Codes,
    Numbers,
    Reading,
    active_rules,
    add_columns,
    breaks,
    count_points,
    decided_codes,
    evaluate,
    list_points,
    list_thresholds,
    mask_rule,
)
from sfumato.tables.arrays import Flags, Floats, Whole

_MOST_POINTS = 4096  # combinations of points at which a condition is looked at
_DRAWS = 8  # times that broken rows are drawn anew
_MOST_DRAWN = 8  # times the rows, that are drawn anew together
_PLACES = 16  # times that numbers are drawn anew within their bins
_MOVES = 6  # rounds of moving numbers within their bins
_SEARCHED = 20_000  # partial rows that are looked at for one that obeys
_TURN = 2**20  # of draws that are made for rules, beyond those of columns


def check_rules(table: Table, columns: Sequence[str]) -> None:
    """Raises an error, before anything is charged, if the rules leave no row."""
    rules = active_rules(table, columns)
    for rule in rules:
        _check_types(table, rule)
        _refuse_many_points(table, rule)
    for names in _join_columns(rules):
        together = [rule for rule in rules if set(rule.columns) <= set(names)]
        if find_witness(table, together, names) is None:
            listed = "; ".join(rule.text for rule in together)
            raise RecipeError(
                f"table {table.name!r}: no row was found that obeys all of this within the domains of "
                f"{', '.join(names)}: {listed}. Change a rule, or widen a domain"
            )


def turn_seed(seed: int, turn: int) -> int:
    """Return the seed of a further turn of draws; that of turn 0 is the public seed itself."""
    return seed + (turn << 64)


def draw_obeying(
    table: Table,
    columns: Sequence[str],
    draw: Callable[[int, int], dict[str, Whole]],
    *,
    rows: int,
    seed: int,
) -> dict[str, Whole]:
    """Return `rows` rows as codes, of which no rule leaves nothing.

    `draw` gives so many rows in a turn; turn 0 has those that are kept where they obey. The others are
    replaced by rows of further turns that do, which is drawing from the model given the rules.
    """
    codes = draw(rows, 0)
    rules = active_rules(table, columns)
    if not rules or not rows:
        return codes
    repair = _Repair(table, rules, codes)
    repair.settle_codes(codes)
    broken = np.flatnonzero(repair.broken(codes))
    drawn = 0
    for turn in range(1, _DRAWS + 1):
        if not broken.size or drawn >= _MOST_DRAWN * rows:
            break
        # Twice as many rows in every turn, since those that are left are the rarer to be replaced.
        count = min(max(64, broken.size << turn), _MOST_DRAWN * rows - drawn)
        drawn += count
        others = draw(count, turn)
        repair.settle_codes(others)
        good = np.flatnonzero(~repair.broken(others))[: broken.size]
        for name, values in others.items():
            codes[name][broken[: good.size]] = values[good]
        broken = broken[good.size :]
    repair.copy(codes, {}, seed=seed)
    return codes


def settle_numbers(
    table: Table,
    columns: Sequence[str],
    codes: dict[str, Whole],
    numbers: dict[str, NDArray[Any]],
    redraw: Callable[[str, Whole, int], NDArray[Any]],
    *,
    seed: int,
) -> None:
    """Makes the `numbers` of binned columns obey, each within the bin of its code, in place.

    `redraw` gives other numbers of a column for codes, in a turn. Where a row is given the columns of
    another, its codes change with them.
    """
    rules = [rule for rule in active_rules(table, columns) if rule.kind != "dependence"]
    moved = {name for rule in rules for name in rule.columns if name in numbers}
    if not moved:
        return
    repair = _Repair(table, active_rules(table, columns), codes)

    def known(name: str, values: NDArray[Any], coded: Whole) -> Floats:
        return np.where(coded < repair.readings[name].base, values.astype(np.float64), np.nan)

    held: Numbers = {name: known(name, numbers[name], codes[name]) for name in moved}
    repair.add_up(codes, held)
    broken = np.flatnonzero(repair.broken(codes, held))
    for turn in range(1, _PLACES + 1):
        if not broken.size:
            break
        some = {name: values[broken] for name, values in codes.items()}
        trial = {name: known(name, redraw(name, some[name], _TURN * turn), some[name]) for name in held}
        repair.add_up(some, trial)
        good = ~repair.broken(some, trial)
        for name, values in trial.items():
            held[name][broken[good]] = values[good]
        broken = broken[~good]
    if broken.size:
        some = {name: values[broken] for name, values in codes.items()}
        trial = {name: values[broken] for name, values in held.items()}
        repair.move(some, trial)
        for name, values in trial.items():
            held[name][broken] = values
    repair.copy(codes, held, seed=seed)
    for name, values in held.items():
        numbers[name] = np.nan_to_num(values, nan=0.0).astype(numbers[name].dtype)


class _Repair:
    """The rules of a table over the codes of rows, with what undecided dependences are decided by."""

    def __init__(self, table: Table, rules: Sequence[Rule], codes: Codes) -> None:
        self.table = table
        self.rules = tuple(rules)
        names = dict.fromkeys(name for rule in rules for name in rule.columns)
        self.readings = {name: Reading(table.column(name)) for name in names}
        self._maps = [
            (
                rule,
                _most_frequent(rule, self.readings, codes)
                if rule.decided is None
                else decided_codes(rule, self.readings),
            )
            for rule in _order_dependences(rules)
        ]
        self.parts = _join_columns(rules)
        self._moved = [
            rule
            for names in self.parts
            for rule in _join_conditions(
                [rule for rule in rules if set(rule.columns) <= set(names)], self.readings
            )
        ]

    def broken(self, codes: Codes, numbers: Numbers | None = None) -> Flags:
        """Return rows that break a rule: any values within them, or with `numbers` those that they have."""
        return self._broken_by(self.rules, codes, numbers)

    def settle_codes(self, codes: dict[str, Whole]) -> None:
        """Sets what is decided, and the totals of sums that their parts cannot reach."""
        for _ in range(2):
            for rule, decided in self._maps:
                given = decided[codes[rule.columns[0]]]
                codes[rule.columns[1]] = np.where(given >= 0, given, codes[rule.columns[1]])
        for rule in self.rules:
            if rule.kind != "sum":
                continue
            total, parts = self.readings[rule.columns[0]], rule.columns[1:]
            boxes = self._boxes(codes, None)
            middle = {name: (boxes.low[name] + boxes.high[name]) / 2 for name in parts}
            middle = {
                name: np.floor(values) if self.readings[name].whole else values
                for name, values in middle.items()
            }
            sums = add_columns(middle, parts)
            reached = np.isfinite(sums) & breaks(rule, boxes)
            found = total.find(np.where(reached, sums, 0.0))
            codes[rule.columns[0]] = np.where(reached & (found >= 0), found, codes[rule.columns[0]])

    def add_up(self, codes: Codes, numbers: Numbers) -> None:
        """Sets the totals of sums to what their parts add up to, where that lies within their bin."""
        for rule in self.rules:
            total = rule.columns[0]
            if rule.kind == "sum" and total in numbers:
                low, high = self.readings[total].spans(codes[total])
                boxes = self._boxes(codes, numbers)
                sums = add_columns(boxes.low, rule.columns[1:])
                inside = (sums >= low) & (sums <= high)
                numbers[total] = np.where(inside, sums, numbers[total])

    def move(self, codes: Codes, numbers: Numbers) -> None:
        """Moves numbers within their bins until rules hold, one rule after the other."""
        for _ in range(_MOVES):
            for rule in self._moved:
                where = np.flatnonzero(self._broken_by((rule,), codes, numbers))
                if where.size:
                    some = {name: codes[name][where] for name in rule.columns}
                    held = {name: numbers[name][where] for name in rule.columns if name in numbers}
                    _move(rule, self.readings, some, held)
                    for name, values in held.items():
                        numbers[name][where] = values
            if not self.broken(codes, numbers).any():
                return

    def copy(self, codes: dict[str, Whole], numbers: Numbers, *, seed: int) -> None:
        """Gives rows that break a rule the columns of a row that obeys, all that rules join together."""
        for turn, names in enumerate(self.parts):
            rules = [rule for rule in self.rules if set(rule.columns) <= set(names)]
            broken = self._broken_by(rules, codes, numbers)
            bad, good = np.flatnonzero(broken), np.flatnonzero(~broken)
            if not bad.size:
                continue
            if good.size:
                places = draw_places(bad.size, seed=seed, turn=_TURN * (_PLACES + 1) + turn)
                source = good[np.floor(places * good.size).astype(np.int64)]
                for name in names:
                    codes[name][bad] = codes[name][source]
                    if name in numbers:
                        numbers[name][bad] = numbers[name][source]
                continue
            witness = find_witness(self.table, rules, names)
            assert witness is not None, "a table whose rules leave no row is refused when it is planned"
            for name, (code, number) in witness.items():
                codes[name][bad] = code
                if name in numbers:
                    numbers[name][bad] = number

    def _boxes(self, codes: Codes, numbers: Numbers | None) -> Boxes:
        return Boxes.of(self.readings, codes, numbers)

    def _broken_by(self, rules: Iterable[Rule], codes: Codes, numbers: Numbers | None) -> Flags:
        boxes = self._boxes(codes, numbers)
        broken = np.zeros(next(iter(codes.values())).size, np.bool_)
        for rule in rules:
            if rule.kind == "dependence":
                (decided,) = (each for known, each in self._maps if known is rule)
                given = decided[codes[rule.columns[0]]]
                broken |= (given >= 0) & (given != codes[rule.columns[1]])
            elif rule.kind == "sum" and numbers is not None and rule.columns[0] in numbers:
                sums = add_columns(boxes.low, rule.columns[1:])
                total = boxes.low[rule.columns[0]]
                broken |= np.isfinite(sums) & np.isfinite(total) & (sums != total)
            else:
                broken |= breaks(rule, boxes)
        return broken


def find_witness(
    table: Table, rules: Sequence[Rule], columns: Columns
) -> dict[str, tuple[int, float]] | None:
    """Return a code and a number for every column such that all rules hold, or None if none was found.

    A search column by column, within limits; numbers are those that moving within bins leads to.
    """
    readings = {name: Reading(table.column(name)) for name in columns}
    alive = _find_alive(table, rules, readings)
    names = sorted(readings, key=lambda name: (alive[name].size, name))
    looked = 0

    def holds(row: dict[str, int], *, upto: int) -> bool:
        known = set(names[: upto + 1])
        ready = [rule for rule in rules if names[upto] in rule.columns and set(rule.columns) <= known]
        codes = {name: np.array([code]) for name, code in row.items()}
        boxes = Boxes.of({name: readings[name] for name in row}, codes)
        return not any(breaks(rule, boxes)[0] for rule in ready)

    def search(place: int, row: dict[str, int]) -> dict[str, tuple[int, float]] | None:
        nonlocal looked
        if place == len(names):
            return _finish_witness(table, rules, readings, row)
        for code in alive[names[place]].tolist():
            looked += 1
            if looked > _SEARCHED:
                return None
            tried = {**row, names[place]: code}
            if holds(tried, upto=place):
                found = search(place + 1, tried)
                if found is not None:
                    return found
        return None

    return search(0, {})


def _finish_witness(
    table: Table, rules: Sequence[Rule], readings: Mapping[str, Reading], row: dict[str, int]
) -> dict[str, tuple[int, float]] | None:
    codes = {name: np.array([code], np.int64) for name, code in row.items()}
    repair = _Repair(table, [rule for rule in rules if rule.kind != "dependence"], codes)
    spans = {name: reading.spans(codes[name]) for name, reading in readings.items()}
    numbers: Numbers = {name: spans[name][0].copy() for name, each in readings.items() if each.released}
    repair.add_up(codes, numbers)
    repair.move(codes, numbers)
    if repair.rules and repair.broken(codes, numbers).any():
        return None
    return {
        name: (code, float(numbers[name][0] if name in numbers else spans[name][0][0]))
        for name, code in row.items()
    }


def _find_alive(table: Table, rules: Sequence[Rule], readings: Mapping[str, Reading]) -> dict[str, Whole]:
    """Return codes of every column that no rule leaves without partners; an error if a column has none."""
    alive = {name: np.ones(min(each.size, LARGEST_MASK), np.bool_) for name, each in readings.items()}
    masks = []
    for rule in rules:
        if math.prod(readings[name].size for name in rule.columns) <= LARGEST_MASK:
            shape = tuple(readings[name].size for name in rule.columns)
            masks.append((rule, ~mask_rule(table, rule, rule.columns).reshape(shape)))
    changed = True
    while changed:
        changed = False
        for rule, mask in masks:
            left = mask
            for axis, name in enumerate(rule.columns):
                shape = tuple(-1 if each == axis else 1 for each in range(left.ndim))
                left = left & alive[name].reshape(shape)
            for axis, name in enumerate(rule.columns):
                supported = left.any(axis=tuple(each for each in range(left.ndim) if each != axis))
                if (alive[name] & ~supported).any():
                    alive[name] &= supported
                    changed = True
                if not alive[name].any():
                    _refuse_contradiction(table, rules, rule, name, alone=bool(not mask.any()))
    return {name: np.flatnonzero(each) for name, each in alive.items()}


def _refuse_contradiction(table: Table, rules: Sequence[Rule], rule: Rule, name: str, *, alone: bool) -> None:
    if alone:
        raise RecipeError(
            f"table {table.name!r}: the rule {rule.text!r} leaves no row within the domains of "
            f"{', '.join(rule.columns)}; correct it, or widen a domain"
        )
    others = [each.text for each in rules if each is not rule and set(each.columns) & set(rule.columns)]
    raise RecipeError(
        f"table {table.name!r}: the rule {rule.text!r} leaves no value of {name!r} together with "
        f"{' and '.join(map(repr, others))}; they contradict each other, or its domain is too narrow"
    )


def _check_types(table: Table, rule: Rule) -> None:
    if rule.kind != "sum":
        return
    total, *parts = (Reading(table.column(name)) for name in rule.columns)
    fine = [each.column.name for each in parts if not each.whole]
    if total.whole and fine:
        raise RecipeError(
            f"table {table.name!r}: in {rule.text!r} the total is whole and {fine[0]!r} is not; give "
            f"{total.column.name!r} a bin edge with decimals, or {fine[0]!r} whole ones"
        )


def _refuse_many_points(table: Table, rule: Rule) -> None:
    if rule.condition is not None:
        readings = {name: Reading(table.column(name)) for name in rule.columns}
        if _product_of_points(rule.condition, rule.columns, readings) > _MOST_POINTS:
            raise RecipeError(
                f"table {table.name!r}: the rule {rule.text!r} compares binned columns too often; split it"
            )


def _move(rule: Rule, readings: Mapping[str, Reading], codes: Codes, numbers: Numbers) -> None:
    """Moves numbers of rows that break a rule to some that obey it, within their bins, where there are."""
    spans = {name: readings[name].spans(codes[name]) for name in rule.columns}
    if rule.condition is not None:
        _move_condition(rule, readings, codes, numbers)
    elif rule.kind == "order":
        _move_order(rule, readings, spans, numbers)
    elif rule.kind == "sum":
        low, high = spans[rule.columns[0]]
        held = {name: numbers.get(name, spans[name][0]) for name in rule.columns}
        sums = add_columns(held, rule.columns[1:])
        left = np.clip(sums, low, high) - sums
        for name in rule.columns[1:]:
            if name in numbers:
                moved = np.clip(held[name] + left, *spans[name])
                left -= moved - held[name]
                numbers[name] = held[name] = moved
        if rule.columns[0] in numbers:
            sums = add_columns(held, rule.columns[1:])
            numbers[rule.columns[0]] = np.where((sums >= low) & (sums <= high), sums, held[rule.columns[0]])


def _move_condition(rule: Rule, readings: Mapping[str, Reading], codes: Codes, numbers: Numbers) -> None:
    """To the first points at which the condition is not true; those that numbers have already come first."""
    assert rule.condition is not None
    boxes = Boxes.of({name: readings[name] for name in rule.columns}, codes)
    points = []
    for name in rule.columns:
        listed = list_points(rule.condition, name, boxes)
        points.append([numbers[name], *listed] if name in numbers else [boxes.low[name]])
    left = np.ones(codes[rule.columns[0]].size, np.bool_)
    found = {name: numbers[name].copy() for name in rule.columns if name in numbers}
    for chosen in product(*points):
        tried = dict(zip(rule.columns, chosen, strict=True))
        fits = left & ~evaluate(rule.condition, tried, boxes)[0]
        for name, values in found.items():
            values[fits] = tried[name][fits]
        left &= ~fits
        if not left.any():
            break
    numbers.update(found)


def _move_order(
    rule: Rule,
    readings: Mapping[str, Reading],
    spans: Mapping[str, tuple[Floats, Floats]],
    numbers: Numbers,
) -> None:
    """Return the smaller one down to what the larger one reaches, the larger one up to it."""
    first, second = rule.columns
    below, above = (numbers.get(name, spans[name][0]) for name in rule.columns)
    whole = readings[first].whole and readings[second].whole

    def beyond(values: Floats, direction: float) -> Floats:
        if not rule.strict:
            return values
        return values + direction if whole else np.nextafter(values, direction * np.inf)

    if first in numbers:
        limit = beyond(spans[second][1] if second in numbers else above, -1.0)
        below = numbers[first] = np.clip(np.minimum(below, limit), *spans[first])
    if second in numbers:
        numbers[second] = np.clip(np.maximum(above, beyond(below, 1.0)), *spans[second])


def _most_frequent(rule: Rule, readings: Mapping[str, Reading], codes: Codes) -> Whole:
    """For every code of the deciding column the code it has in most rows, or that of most rows at all."""
    first, second = rule.columns
    size = readings[second].size
    cells, counts = np.unique(codes[first] * size + codes[second], return_counts=True)
    order = np.lexsort((-cells, counts))
    overall = int(np.bincount(codes[second], minlength=1).argmax()) if codes[second].size else 0
    decided = np.full(readings[first].size, overall, np.int64)
    decided[cells[order] // size] = cells[order] % size
    decided[readings[first].base :] = -1
    return decided


def _order_dependences(rules: Sequence[Rule]) -> list[Rule]:
    """Return dependences so that what decides is set before it is used, as far as they go in no circle."""
    left = [rule for rule in rules if rule.kind == "dependence"]
    ordered: list[Rule] = []
    while left:
        targets = {rule.columns[1] for rule in left}
        free = [rule for rule in left if rule.columns[0] not in targets] or left[:1]
        ordered += free
        left = [rule for rule in left if rule not in free]
    return ordered


def _join_conditions(rules: Sequence[Rule], readings: Mapping[str, Reading]) -> list[Rule]:
    """Return rules with all conditions as one, where it has few points: what obeys one may break another."""
    conditions = [rule for rule in rules if rule.condition is not None]
    columns = tuple(dict.fromkeys(name for rule in conditions for name in rule.columns))
    if len(conditions) < 2 or len(columns) > MOST_COLUMNS:
        return list(rules)
    joined = Combination("or", tuple(rule.condition for rule in conditions if rule.condition is not None))
    if _product_of_points(joined, columns, readings) > _MOST_POINTS:
        return list(rules)
    text = "; ".join(rule.text for rule in conditions)
    together = Rule(kind="impossible", text=text, columns=columns, condition=joined)
    return [together, *(rule for rule in rules if rule.condition is None)]


def _product_of_points(condition: Condition, columns: Columns, readings: Mapping[str, Reading]) -> int:
    return math.prod(count_points(readings[name], list_thresholds(condition, name)) for name in columns)


def _join_columns(rules: Sequence[Rule]) -> list[Columns]:
    """Return columns that rules join, directly or through others, in groups."""
    groups: list[set[str]] = []
    for rule in rules:
        touched = [group for group in groups if group & set(rule.columns)]
        groups = [group for group in groups if group not in touched]
        groups.append(set(rule.columns).union(*touched))
    return [tuple(sorted(group)) for group in groups]
