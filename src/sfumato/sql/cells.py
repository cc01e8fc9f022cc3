"""What is known of the records in a measured group by its public label, and what conditions make of them.

Every value that a record of a group may have is one of a few possibilities: a point, a range, or anything
but some points. A condition is decided for a group only if every possibility decides it. Records in no group
are possibilities too. Public facts alone are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from sfumato.core.facts.domain import Bins, IntegerRange, Period, Values
from sfumato.sql.check import finite_labels
from sfumato.sql.constants import EPOCH, NotConstant, fold, to_moment
from sfumato.sql.dates import list_spans
from sfumato.sql.question import NEGATED, rename_tables, spell, spell_expression
from sfumato.sql.settle import is_day

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.core.facts.column import Column
    from sfumato.sql.aggregates import Key
    from sfumato.sql.relation import Field, Relation

TRUE, FALSE, NULL = 1, 2, 4
"""What a condition may be for a record, as bits of a number: several are possible at once."""
ANYTHING = TRUE | FALSE | NULL

_LARGEST = 10**300
_LONGEST_LIST = 200

Value = Fraction | str | datetime | bool | None


@dataclass(frozen=True, slots=True)
class Point:
    """One value; None is NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Span:
    """The values from `low` to `high`, where None is no end; an open end is not among them."""

    low: Fraction | datetime | None
    high: Fraction | datetime | None
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class Rest:
    """Any value but some, or NULL unless that is among them."""

    excluded: frozenset[Value] = frozenset()


Possible = Point | Span | Rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A group key: `cells` say what is possible for texts of expressions, `owners` whose label that is.

    An owner of -1 is that of records which are in no group. A label may have several cells.
    """

    text: str
    labels: tuple[Value, ...]
    cells: tuple[dict[str, Possible], ...]
    owners: tuple[int, ...]

    @property
    def is_total(self) -> bool:
        """Whether every record is in a group."""
        return -1 not in self.owners


def read_axis(key: Key, relation: Relation, aliases: dict[str, str]) -> Axis:
    """What the labels of a key say of its records."""
    text = spell_expression(key.node, aliases)
    labels = tuple(_label_value(key, label, relation) for label in key.labels or ())
    if isinstance(key.node, exp.Column):
        field = relation.field(key.node)
        if field.column is not None:
            cells = _list_described(field, field.column)
            owners, found = zip(*cells, strict=True)
            # The labels of a column are texts where one is for missing values; codes tell them apart.
            return Axis(
                text=text,
                labels=tuple(map(_raw_label, key.labels or ())),
                cells=tuple({text: each} for each in found),
                owners=owners,
            )
    spans = list_spans(key.node, relation)
    if spans is not None and finite_labels(key.node) is None:
        return _read_dates(key, spans, relation, text, labels, aliases)
    parted = _read_case(rename_tables(key.node.unnest(), aliases), text, labels)
    if parted is not None:
        return parted
    known: list[dict[str, Possible]] = [{text: Point(label)} for label in labels]
    if _is_total(key.node):
        return Axis(text=text, labels=labels, cells=tuple(known), owners=tuple(range(len(labels))))
    outside: dict[str, Possible] = {text: Rest(frozenset(labels))}
    return Axis(text=text, labels=labels, cells=(*known, outside), owners=(*range(len(labels)), -1))


def _read_case(node: exp.Expr, text: str, labels: tuple[Value, ...]) -> Axis | None:
    """CASE that tells values of one column apart, or if one condition holds, with a result for the rest."""
    default = node.args.get("default") if isinstance(node, exp.Case) else None
    if not isinstance(default, exp.Literal) or node.this is not None:
        return None
    places = {str(label): place for place, label in enumerate(labels)}
    branches = [(branch.this.unnest(), branch.args["true"]) for branch in node.args["ifs"]]
    if any(result.name not in places for _, result in (*branches, (None, default))):
        return None
    tests = [test for test, _ in branches]
    cells: list[dict[str, Possible]]
    owners = [places[result.name] for _, result in branches]
    heads = {spell(test.this) for test in tests if isinstance(test, exp.EQ)}
    values = [read_constant(test.expression) if isinstance(test, exp.EQ) else None for test in tests]
    if len(heads) == 1 and None not in values and len(set(values)) == len(values):
        (head,) = heads
        cells = [{head: Point(value)} for value in values]
        rest: dict[str, Possible] = {head: Rest(frozenset(values))}
    elif len(tests) == 1:
        head = spell(tests[0])
        cells, rest = [{head: Point(value=True)}], {head: Rest(frozenset((True,)))}
    else:
        return None
    owners.append(places[default.name])
    known = [{**cell, text: Point(labels[owner])} for cell, owner in zip([*cells, rest], owners, strict=True)]
    return Axis(text=text, labels=labels, cells=tuple(known), owners=tuple(owners))


def read_spans(key: Key, relation: Relation, aliases: dict[str, str]) -> tuple[str, list[Any]] | None:
    """The column of a key of dates, and for each of its periods the number of its label, begin and end."""
    spans = list_spans(key.node, relation)
    column = key.node.find(exp.Column)
    if spans is None or column is None or finite_labels(key.node) is not None:
        return None
    return spell_expression(column, aliases), _as_spans(spans, column, relation)


def decide(condition: exp.Expr, axes: list[Axis]) -> NDArray[np.uint8]:
    """What a condition may be in every cell of the product of `axes`, as bits."""
    atoms = {text: number for number, axis in enumerate(axes) for text in axis.cells[0]}

    def spread(axis: int, masks: list[int]) -> NDArray[np.uint8]:
        shape = [1] * len(axes)
        shape[axis] = len(masks)
        return np.array(masks, np.uint8).reshape(shape)

    def look(node: exp.Expr) -> NDArray[np.uint8]:
        node = node.unnest()
        for tree, flips in ((node, False), (_flip(node), True)):
            place = None if tree is None else atoms.get(spell(tree))
            if tree is not None and place is not None:
                found = [_truth(cell.get(spell(tree), Rest())) for cell in axes[place].cells]
                masks = spread(place, found)
                return _NOT[masks] if flips else masks
        match node:
            case exp.And():
                return _AND[look(node.this), look(node.expression)]
            case exp.Or():
                return _OR[look(node.this), look(node.expression)]
            case exp.Not():
                return _NOT[look(node.this)]
            case exp.Boolean():
                return spread(0, [TRUE if node.this else FALSE] * len(axes[0].cells))
            case exp.Between() if not node.args.get("symmetric"):
                low = exp.GTE(this=node.this, expression=node.args["low"])
                high = exp.LTE(this=node.this.copy(), expression=node.args["high"])
                return _AND[look(low), look(high)]
            case exp.In() if node.expressions and len(node.expressions) <= _LONGEST_LIST:
                found_in = look(exp.EQ(this=node.this.copy(), expression=node.expressions[0].copy()))
                for each in node.expressions[1:]:
                    found_in = _OR[found_in, look(exp.EQ(this=node.this.copy(), expression=each.copy()))]
                return found_in
        text = spell(node.this) if isinstance(node.this, exp.Expr) else ""
        if text in atoms and isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            place = atoms[text]
            return spread(place, [_is_null(cell.get(text, Rest())) for cell in axes[place].cells])
        if text in atoms and type(node) in NEGATED:
            place, constant = atoms[text], read_constant(node.expression)
            if constant is not None:
                kind = type(node)
                masks_of = [
                    compare_possible(kind, cell.get(text, Rest()), constant) for cell in axes[place].cells
                ]
                return spread(place, masks_of)
        return np.full([1] * len(axes), ANYTHING, np.uint8)

    return look(condition)


def implies(given: list[exp.Expr], wanted: exp.Expr) -> bool:
    """Whether one of the conditions `given`, a comparison with constants, lets `wanted` hold always."""
    for each in given:
        if not (type(each) in NEGATED or isinstance(each, exp.In)):
            continue
        listed = list(each.expressions) if isinstance(each, exp.In) else [each.expression]
        constants = [read_constant(part) for part in listed]
        if not constants or any(constant is None for constant in constants):
            continue
        text = spell(each.this)
        cells: list[dict[str, Possible]] = []
        if isinstance(each, (exp.In, exp.EQ)):
            cells = [{text: Point(constant)} for constant in constants]
        elif isinstance(each, (exp.GT, exp.GTE)) and isinstance(constants[0], (Fraction, datetime)):
            cells = [{text: Span(constants[0], None, low_open=isinstance(each, exp.GT))}]
        elif isinstance(each, (exp.LT, exp.LTE)) and isinstance(constants[0], (Fraction, datetime)):
            cells = [{text: Span(None, constants[0], high_open=isinstance(each, exp.LT))}]
        if not cells:
            continue
        axis = Axis(text="", labels=(), cells=tuple(cells), owners=(0,) * len(cells))
        if (decide(wanted, [axis]) == TRUE).all():
            return True
    return False


def read_constant(node: exp.Expr) -> Value:
    """The value of a constant, None if it is none that is compared here."""
    if node.find(exp.Column):
        return None
    try:
        value = fold(node, EPOCH)
    except NotConstant:
        return None
    if isinstance(value, date):
        return to_moment(value)
    return value if isinstance(value, (bool, Fraction, str)) else None


def compare_possible(kind: type[exp.Expr], possible: Possible, constant: Value) -> int:
    """What a comparison with a constant may be, as bits."""
    if isinstance(constant, str) and kind not in (exp.EQ, exp.NEQ):
        return ANYTHING  # in which order texts come is the database's affair
    match possible:
        case Point(None):
            return NULL
        case Point(value):
            order = _order(value, constant)
            return ANYTHING if order is None else TRUE if _holds(kind, order) else FALSE
        case Rest(excluded):
            known = any(_order(value, constant) == 0 for value in excluded)
            if known and kind in (exp.EQ, exp.NEQ):
                return (0 if None in excluded else NULL) | (FALSE if kind is exp.EQ else TRUE)
            return ANYTHING
        case Span():
            return _compare_span(kind, possible, constant)


def _compare_span(kind: type[exp.Expr], span: Span, constant: Value) -> int:
    lowest = None if span.low is None else _order(span.low, constant)
    highest = None if span.high is None else _order(span.high, constant)
    if (span.low is not None and lowest is None) or (span.high is not None and highest is None):
        return ANYTHING
    if isinstance(constant, (str, bool)):
        return ANYTHING
    # Which orders against the constant occur: below, equal, above.
    below = span.low is None or (lowest is not None and lowest < 0)
    above = span.high is None or (highest is not None and highest > 0)
    reaches_low = span.low is None or (
        lowest is not None and (lowest < 0 or (lowest == 0 and not span.low_open))
    )
    reaches_high = span.high is None or (
        highest is not None and (highest > 0 or (highest == 0 and not span.high_open))
    )
    orders = [-1] * below + [0] * (reaches_low and reaches_high) + [1] * above
    bits = 0
    for order in orders:
        bits |= TRUE if _holds(kind, order) else FALSE
    return bits or ANYTHING


def _holds(kind: type[exp.Expr], order: int) -> bool:
    wanted: dict[type[exp.Expr], tuple[int, ...]] = {
        exp.EQ: (0,),
        exp.NEQ: (-1, 1),
        exp.LT: (-1,),
        exp.LTE: (-1, 0),
        exp.GT: (1,),
        exp.GTE: (0, 1),
    }
    return order in wanted[kind]


def _order(value: Value, constant: Value) -> int | None:
    """-1, 0 or 1 as a value lies below, at or above a constant; None where that is not certain."""
    match value, constant:
        case bool(), bool():
            return int(value) - int(constant)
        case (bool(), _) | (_, bool()):
            return None
        case Fraction(), Fraction():
            if max(abs(value), abs(constant)) > _LARGEST:
                return None
            exact, rounded = _sign(value, constant), _sign(float(value), float(constant))
            # A database may compare as doubles or as decimals; only what both agree on is certain.
            return exact if exact == rounded else None
        case (str(), str()) | (datetime(), datetime()):
            return _sign(value, constant)
    return None


def _sign(one: Any, other: Any) -> int:  # noqa: ANN401 - whatever is ordered
    return int(one > other) - int(one < other)


def _truth(possible: Possible) -> int:
    if isinstance(possible, Point) and possible.value is None:
        return NULL
    if isinstance(possible, Point) and isinstance(possible.value, bool):
        return TRUE if possible.value else FALSE
    bits = ANYTHING
    if isinstance(possible, Rest):
        bits &= ~sum({True: TRUE, False: FALSE}[each] for each in possible.excluded if isinstance(each, bool))
    return bits


def _is_null(possible: Possible) -> int:
    if isinstance(possible, Point):
        return TRUE if possible.value is None else FALSE
    filled = isinstance(possible, Span) or None in possible.excluded
    return FALSE if filled else TRUE | FALSE


def _flip(node: exp.Expr) -> exp.Expr | None:
    if type(node) not in NEGATED:
        return None
    return NEGATED[type(node)](this=node.this.copy(), expression=node.expression.copy())


def _list_described(field: Field, column: Column) -> list[tuple[int, Possible]]:
    """The cells of a column with a domain: the code that each has, and what is possible in it."""
    domain = column.domain
    if domain is None:
        return [(-1, Rest())]
    cells: list[tuple[int, Possible]] = []
    outside: list[Possible] = [] if column.missing_label is not None else [Point(None)]
    whole = field.type is not None and pa.types.is_integer(field.type)
    match domain:
        case Values(values):
            points = [Fraction(value) if isinstance(value, int) else value for value in values]
            cells = list(enumerate(map(Point, points)))
            # A text that is no missing value is there.
            told = column.missing_label is not None and isinstance(values[0], str)
            outside = [*outside, Rest(frozenset([*points, *([None] if told else [])]))]
        case IntegerRange() | Period():
            span = domain.span if isinstance(domain, Period) else domain
            whole = whole or isinstance(domain, Period)
            low, high = Fraction(span.low), Fraction(span.high)
            cells = [(code, Point(low + code)) for code in range(span.size)]
            ends: list[Possible] = [Span(None, low, high_open=True), Span(high, None, low_open=True)]
            if column.outside == "clamp":
                cells += [(0, ends[0]), (span.size - 1, ends[1])]
            elif isinstance(domain, IntegerRange) or domain.years is not None:
                outside += ends
            if not whole:
                outside.append(Rest(frozenset(low + code for code in range(span.size))))
        case Bins(edges):
            last = len(edges) - 2
            cells = [
                (code, Span(edges[code], edges[code + 1], high_open=code < last)) for code in range(last + 1)
            ]
            ends = [Span(None, edges[0], high_open=True), Span(edges[-1], None, low_open=True)]
            if column.outside == "clamp":
                cells += [(0, ends[0]), (last, ends[1])]
            else:
                outside += ends
        case _:
            # Combinations of columns are only found again as a whole.
            return [*((code, Rest()) for code in range(column.size)), (-1, Rest())]
    size = domain.size
    if column.missing_label is not None:
        cells.append((size, Point(None)))
        if not (isinstance(domain, Values) and isinstance(domain.values[0], str)):
            outside.append(Point(None))  # what is written but cannot be read as a number is no missing value
    code = column.size - 1 if column.outside == "other" else -1
    return [*cells, *((code, each) for each in outside)]


def _read_dates(
    key: Key,
    spans: list[tuple[int, datetime, datetime]],
    relation: Relation,
    text: str,
    labels: tuple[Value, ...],
    aliases: dict[str, str],
) -> Axis:
    column = key.node.find(exp.Column)
    assert column is not None
    name = spell_expression(column, aliases)
    found = _as_spans(spans, column, relation)
    cells: list[dict[str, Possible]] = []
    for code, span in found:
        cells.append({name: span} if name == text else {name: span, text: Point(labels[code])})
    first, stop = found[0][1].low, found[-1][1].high
    last_open = found[-1][1].high_open
    # What a period is called outside of the range is not looked at.
    rest: dict[str, Possible] = {} if name == text else {text: Rest()}
    beyond = (Span(None, first, high_open=True), Span(stop, None, low_open=not last_open), Point(None))
    cells += [{name: each, **rest} for each in beyond]
    return Axis(
        text=text, labels=labels, cells=tuple(cells), owners=(*(code for code, _ in found), -1, -1, -1)
    )


def _as_spans(
    spans: list[tuple[int, datetime, datetime]], column: exp.Column, relation: Relation
) -> list[tuple[int, Span]]:
    """Periods as ranges of values: days end with their last day, moments before the next period."""
    if is_day(column, relation):
        day = timedelta(days=1)
        return [(code, Span(begin, end - day)) for code, begin, end in spans]
    return [(code, Span(begin, end, high_open=True)) for code, begin, end in spans]


def _raw_label(label: int | str) -> Value:
    return Fraction(label) if isinstance(label, int) else label


def _label_value(key: Key, label: int | str, relation: Relation) -> Value:
    """A label as the value that it stands for."""
    if key.type is not None and pa.types.is_date32(key.type):
        return EPOCH + timedelta(days=int(label))
    if key.type is not None and pa.types.is_timestamp(key.type):
        return EPOCH + timedelta(microseconds=int(label))
    if key.type is not None:
        return Fraction(label)
    shown = label in ("false", "true")
    boolean = isinstance(key.node, exp.Column) and relation.field(key.node).kind == "boolean"
    if shown and (boolean or finite_labels(key.node) == (False, True)):
        return label == "true"
    return _raw_label(label)


def _is_total(node: exp.Expr) -> bool:
    """Whether every record has a value among the labels: CASE with ELSE."""
    node = node.unnest()
    default = node.args.get("default") if isinstance(node, exp.Case) else None
    return default is not None and not isinstance(default, exp.Null)


def _table(combine: Any) -> NDArray[np.uint8]:  # noqa: ANN401 - min or max
    """What two conditions make together: of FALSE, NULL and TRUE the least by AND, the largest by OR."""
    order = (FALSE, NULL, TRUE)
    table = np.zeros((8, 8), np.uint8)
    for a, b in product(order, order):
        held = np.ix_([bits & a != 0 for bits in range(8)], [bits & b != 0 for bits in range(8)])
        table[held] |= combine(a, b, key=order.index)
    return table


_AND, _OR = _table(min), _table(max)
_NOT = np.array(
    [sum({TRUE: FALSE, FALSE: TRUE, NULL: NULL}[bit] for bit in (1, 2, 4) if m & bit) for m in range(8)],
    np.uint8,
)
