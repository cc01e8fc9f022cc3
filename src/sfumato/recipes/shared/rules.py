"""What rules mean for codes: which cells they leave empty.

A code stands for a point or for a span of numbers. A rule breaks a box of codes if no values within it obey.
Such cells are structural zeros of a model, where the rule is small enough to be in one of its cliques.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period
from sfumato.core.facts.rules import Comparison, Condition, Rule
from sfumato.core.facts.table import Table
from sfumato.inference.domain import Columns, Domain
from sfumato.inference.tree import tree_cells
from sfumato.recipes.shared.public import has_numbers
from sfumato.tables.arrays import Flags, Floats, Whole
from sfumato.tables.rules import has_order, list_tests

Codes = Mapping[str, Whole]
Numbers = dict[str, Floats]
Zeros = list[tuple[Columns, Flags]]

LARGEST_MASK = 2**20
"""Cells of a rule up to which they are looked at one by one."""

_LARGEST_TREE = 2**18  # cells of the cliques that rules alone ask for


class Reading:
    """A column as rules read it: the span of numbers behind every code, and what its labels are."""

    def __init__(self, column: Column) -> None:
        assert column.domain is not None
        self.column = column
        self.size = column.size
        self.base = column.domain.size
        self.ordered = has_order(column)
        self.spread = isinstance(column.domain, Bins)
        self.released = has_numbers(column)
        self.whole = True
        self._points: Floats | None = None
        if isinstance(column.domain, Bins):
            edges = column.domain.edges
            self.whole = all(edge.denominator == 1 for edge in edges) and max(map(abs, edges)) < 2**53
            ends = np.array([float(edge) for edge in edges])
            self._low, self._high = ends[:-1], ends[1:].copy()
            inner = self._high[:-1]
            self._high[:-1] = inner - 1 if self.whole else np.nextafter(inner, -np.inf)
        elif isinstance(column.domain, (IntegerRange, Period)):
            span = column.domain.span if isinstance(column.domain, Period) else column.domain
            self._first = float(span.low)
        elif self.ordered:
            self._points = np.array(column.domain.labels, np.float64)

    def spans(self, codes: Whole) -> tuple[Floats, Floats]:
        """Return the least and the largest number behind every code; NaN where it stands for none."""
        if not self.ordered:
            none = np.full(codes.shape, np.nan)
            return none, none
        inside = codes < self.base
        known = np.where(inside, codes, 0)
        if self.spread:
            low, high = self._low[known], self._high[known]
        elif self._points is not None:
            low = high = self._points[known]
        else:
            low = high = known + self._first
        return np.where(inside, low, np.nan), np.where(inside, high, np.nan)

    def find(self, numbers: Floats) -> Whole:
        """Return the code of every number, -1 where the domain does not hold it."""
        domain = self.column.domain
        if isinstance(domain, Bins):
            ends = np.append(self._low, self._high[-1])
            codes = np.minimum(np.searchsorted(ends, numbers, side="right") - 1, self.base - 1)
            return np.where((numbers >= ends[0]) & (numbers <= ends[-1]), codes, -1)
        if self._points is not None:
            order = np.argsort(self._points)
            place = np.minimum(np.searchsorted(self._points[order], numbers), self.base - 1)
            return np.where(self._points[order][place] == numbers, order[place], -1)
        codes = numbers - self._first
        return np.where((codes >= 0) & (codes < self.base), codes, -1).astype(np.int64)

    def label_codes(self, values: Iterable[object]) -> list[int]:
        """Return the codes of labels."""
        listed = {str(value) for value in values}
        extras = self.column.extras
        if listed <= set(extras):
            return [self.base + extras.index(value) for value in sorted(listed)]
        return [code for code, label in enumerate(self.column.labels) if str(label) in listed]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Rows whose columns are known by their code, and up to a span of numbers."""

    readings: Mapping[str, Reading]
    codes: Codes
    low: Numbers
    high: Numbers

    @classmethod
    def of(cls, readings: Mapping[str, Reading], codes: Codes, numbers: Numbers | None = None) -> Boxes:
        """Return the boxes of `codes`; columns in `numbers` are known exactly."""
        low: Numbers = {}
        high: Numbers = {}
        for name, reading in readings.items():
            low[name], high[name] = reading.spans(codes[name])
            if numbers is not None and name in numbers:
                low[name] = high[name] = numbers[name]
        return cls(readings, codes, low, high)


def active_rules(table: Table, columns: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules that speak of `columns` only.

    Entries of values that never meet are not among them: models keep these cells empty, and releases from
    before there were rules must follow from their measurements still.
    """
    return tuple(rule for rule in table.rules if set(rule.columns) <= set(columns))


def find_zeros(table: Table, columns: Sequence[str], *, held: Sequence[Columns] = ()) -> Zeros:
    """Return the cells that no record can be in: columns and a mask over their cells.

    `held` are the marginals that a model holds anyway. A rule that would make it too large is left to the
    repair of rows.
    """
    zeros: Zeros = []
    for entry in table.impossible:
        if set(entry) <= set(columns):
            mask = np.ones(1, np.bool_)
            for name, labels in entry.items():
                listed = np.array([label in labels for label in table.column(name).labels])
                mask = np.logical_and.outer(mask, listed).reshape(-1)
            zeros.append((tuple(entry), mask))
    domain = Domain({name: table.column(name).size for name in columns})
    cliques = [*held, *(names for names, _ in zeros)]
    allowed = max(_LARGEST_TREE, tree_cells(domain, held) if held else 0)
    ruled: dict[frozenset[str], tuple[Columns, Flags]] = {}
    for rule in active_rules(table, columns):
        cells = math.prod(table.column(name).size for name in rule.columns)
        if cells > LARGEST_MASK or tree_cells(domain, [*cliques, rule.columns]) > allowed:
            continue
        names = domain.order(rule.columns)
        mask = mask_rule(table, rule, names)
        if mask.any():
            cliques.append(names)
            before = ruled.get(frozenset(names))
            ruled[frozenset(names)] = (names, mask if before is None else mask | before[1])
    return [*zeros, *ruled.values()]


def mask_rule(table: Table, rule: Rule, names: Columns) -> Flags:
    """Return for every cell of `names`, in row-major order, whether the rule leaves nothing of it."""
    readings = {name: Reading(table.column(name)) for name in names}
    shape = tuple(readings[name].size for name in names)
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    codes = dict(zip(names, (place.astype(np.int64) for place in places), strict=True))
    return breaks(rule, Boxes.of(readings, codes))


def breaks(rule: Rule, boxes: Boxes) -> Flags:
    """Return for every box, whether no values in it obey the rule."""
    first = rule.columns[0]
    if rule.condition is not None:
        return _breaks_condition(rule, boxes)
    if rule.kind == "order":
        low, high = boxes.low[first], boxes.high[rule.columns[1]]
        return np.asarray(low >= high if rule.strict else low > high)
    if rule.kind == "sum":
        least = add_columns(boxes.low, rule.columns[1:])
        most = add_columns(boxes.high, rule.columns[1:])
        return np.asarray((least > boxes.high[first]) | (most < boxes.low[first]))
    if rule.decided is None:
        return np.zeros(boxes.codes[first].shape, np.bool_)
    decided = decided_codes(rule, boxes.readings)[boxes.codes[first]]
    return np.asarray((decided >= 0) & (decided != boxes.codes[rule.columns[1]]))


def _breaks_condition(rule: Rule, boxes: Boxes) -> Flags:
    """Return where the condition is true at all points of a box.

    It is constant between the numbers that it compares with, so some points of each part tell all.
    """
    assert rule.condition is not None
    points = [list_points(rule.condition, name, boxes) for name in rule.columns]
    broken = np.ones(boxes.codes[rule.columns[0]].shape, np.bool_)
    for chosen in product(*points):
        broken &= evaluate(rule.condition, dict(zip(rule.columns, chosen, strict=True)), boxes)[0]
        if not broken.any():
            break
    return broken


def list_points(condition: Condition, name: str, boxes: Boxes) -> list[Floats]:
    """Return points of every box in a column: one in each part into which the condition cuts it."""
    low, high = boxes.low[name], boxes.high[name]
    reading = boxes.readings[name]
    if not reading.spread or low is high:
        return [low]
    points = [low, high]
    cuts = list_thresholds(condition, name)
    if reading.whole:
        for cut in cuts:
            near = (math.ceil(cut) - 1, math.floor(cut), math.ceil(cut), math.floor(cut) + 1)
            points += [np.clip(float(each), low, high) for each in sorted(set(near))]
        return points
    for before, after in zip([-math.inf, *cuts], [*cuts, math.inf], strict=True):
        start, end = np.clip(before, low, high), np.clip(after, low, high)
        points += [start, (start + end) / 2]
    return points


def count_points(reading: Reading, cuts: list[float]) -> int:
    """Return the most points that `list_points` gives."""
    return 2 + 4 * len(cuts) if reading.spread else 1


def list_thresholds(condition: Condition, name: str) -> list[float]:
    """Return the numbers that a condition compares a column with, in order."""
    tests = [test for test in list_tests(condition) if test.column == name]
    return sorted({float(value) for test in tests for value in test.values if not isinstance(value, str)})


def evaluate(condition: Condition, points: Numbers, boxes: Boxes) -> tuple[Flags, Flags]:
    """Where a condition is true and where it is false; of a missing value neither, unless it asks for it."""
    if isinstance(condition, Comparison):
        return _compare(condition, points[condition.column], boxes)
    parts = [evaluate(part, points, boxes) for part in condition.parts]
    if condition.word == "not":
        return parts[0][1], parts[0][0]
    join, other = (
        (np.logical_and, np.logical_or) if condition.word == "and" else (np.logical_or, np.logical_and)
    )
    return reduce(join, [each[0] for each in parts]), reduce(other, [each[1] for each in parts])


def _compare(test: Comparison, points: Floats, boxes: Boxes) -> tuple[Flags, Flags]:
    reading, codes = boxes.readings[test.column], boxes.codes[test.column]
    extras = reading.column.extras
    if test.operator == "missing":
        hit = codes == reading.base
        return hit, ~hit
    if test.operator in ("=", "in"):
        texts = [value for value in test.values if isinstance(value, str)]
        numbers = [float(value) for value in test.values if not isinstance(value, str)]
        hit = np.isin(codes, reading.label_codes(texts)) | np.isin(points, numbers)
        # A label is compared as a label; of others nothing is known where there is no value.
        known = np.ones(codes.shape, np.bool_) if set(texts) & set(extras) else codes < reading.base
        return hit & known, ~hit & known
    assert not isinstance(test.values[0], str)
    limit = float(test.values[0])
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[test.operator]
    hit, known = compare(points, limit), ~np.isnan(points)
    return hit & known, ~hit & known


def add_columns(numbers: Mapping[str, Floats], names: Sequence[str]) -> Floats:
    """Return the sum of columns, from left to right."""
    return reduce(np.add, [numbers[name] for name in names])


def decided_codes(rule: Rule, readings: Mapping[str, Reading]) -> Whole:
    """Return for every code of the deciding column the code that is decided, -1 where nothing is known."""
    first, second = (readings[name] for name in rule.columns)
    assert rule.decided is not None
    place = {str(label): code for code, label in enumerate(second.column.labels)}
    decided = np.full(first.size, -1, np.int64)
    for code, label in enumerate(first.column.labels):
        if str(label) in rule.decided:
            decided[code] = place[rule.decided[str(label)]]
    return decided
