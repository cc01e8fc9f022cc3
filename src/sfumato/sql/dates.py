"""Groups that are computed of one column: of dates over a public range, of labels, of bounded numbers.

A range of dates comes from the project file, or from constants in the statement's own WHERE. It is cut into
periods so short that the key has one value in each. What that value is, Python computes from the calendar;
the engine only computes the number of the period that a record is in, in whole numbers. What is computed of a
column with public labels is computed of the labels, and what rounds a bounded number takes the whole numbers
between.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import MAXYEAR, MINYEAR, date, datetime, time, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.expressions import CAST_KINDS, Kind
from sfumato.core.dates import read_moment
from sfumato.core.errors import UnsupportedQuery, refuse
from sfumato.core.facts.domain import IntegerRange, Period, Values
from sfumato.sql.check import list_conditions
from sfumato.sql.constants import (
    EPOCH,
    MONTHS,
    PARTS,
    SECONDS,
    WHOLE_TYPES,
    NotConstant,
    Span,
    Value,
    common_unit,
    count_periods,
    divides,
    evaluate,
    fold,
    format_unit,
    list_periods,
    part_unit,
    to_days,
    to_microseconds,
    to_moment,
    truncate,
    write,
)
from sfumato.sql.normalize import PARAMETER
from sfumato.sql.relation import Field, Relation, bounds_of, is_whole, labels_of
from sfumato.sql.settle import is_day

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfumato.core.facts.domain import Label
    from sfumato.sql.relation import Field, Relation

    Moments = tuple[datetime | None, datetime | None]

_MOST_LABELS = 1000  # that a column of an inner query is compared with

_MOMENT = "moment"
_MOST_PERIODS = 100_000
_MOST_LISTED = 10_000
_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_LISTED = (Values, IntegerRange, Period)
_ROUNDING = (exp.Floor, exp.Ceil, exp.Round, exp.Trunc, exp.Cast)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.DPipe, exp.Concat, exp.Mod)


_UNKNOWN = (NotConstant, ValueError, OverflowError, ZeroDivisionError)
"""What computing a value of an expression ends in that is no label here."""


def narrow_moments(condition: exp.Expr, relation: Relation) -> Relation:
    """The relation with the ranges of its dates cut to what constants of a checked condition leave."""
    fields: dict[str, dict[str, Field]] = {alias: dict(each) for alias, each in relation.fields.items()}
    for part in list_conditions(condition):
        for node, low, stop, stands in _limits(part, relation):
            alias, field = relation.find(node)
            first, last = fields[alias][field.name.lower()].moments or (None, None)
            if stands:  # a parameter whose value is not known limits only what nothing else does
                low, stop = low if first is None else None, stop if last is None else None
            first = max((each for each in (first, low) if each is not None), default=None)
            last = min((each for each in (last, stop) if each is not None), default=None)
            key = field.name.lower()
            fields[alias][key] = replace(fields[alias][key], moments=(first, last))
    return replace(relation, fields=fields)


def read_labels(
    tree: exp.Expr, relation: Relation
) -> tuple[tuple[Label, ...], exp.Expr, pa.DataType | None] | None:
    """Labels, the tree of their codes, and their type if they have one; None if the groups are not public.

    `tree` is a checked expression of one column.
    """
    column = _only_column(tree)
    if column is None or relation.field(column).is_unit:
        return None
    field = relation.field(column)
    try:
        if field.kind == "date":
            return _read_dates(tree, column, relation)
        if isinstance(tree, exp.Column) and not field.counted:
            return None
        return _read_mapped(tree, column, relation) or _read_rounded(tree, column, relation)
    except UnsupportedQuery:
        raise
    except _UNKNOWN:
        return None


def derive_period(tree: exp.Expr, relation: Relation) -> Field | None:
    """The field of an expression that gives days, or beginnings of periods, of one column of dates."""
    column = _only_column(tree)
    if column is None or relation.field(column).kind != "date":
        return None
    try:
        unit = _unit_of(tree, relation)
        low, stop = relation.field(column).moments or (None, None)
        if unit == _MOMENT or low is None or stop is None or low >= stop:
            return None
        cells = _list(low, stop, unit) if _count(low, stop, unit) <= _MOST_LISTED else iter(())
        begins = [evaluate(tree, cell) for cell in cells]
    except _UNKNOWN:
        return None
    if not begins or not all(isinstance(begin, date) for begin in begins) or isinstance(unit, int):
        return None
    days = not isinstance(begins[0], datetime)
    moments = [to_moment(begin) for begin in begins if isinstance(begin, date)]
    first, last = min(moments), max(moments)
    # The period of a moved or nested one may begin anywhere; then only days tell all beginnings apart.
    aligned = all(truncate(moment, unit) == moment for moment in moments)
    return replace(
        relation.field(column),
        type=pa.date32() if days else pa.timestamp("us"),
        moments=(first, last + (_DAY if days else _TICK)),
        period=unit if aligned else "day" if all(each.time() == time() for each in moments) else None,
    )


def _only_column(tree: exp.Expr) -> exp.Column | None:
    columns = list({column.sql(): column for column in tree.find_all(exp.Column)}.values())
    return columns[0] if len(columns) == 1 else None


def _read_dates(
    tree: exp.Expr, column: exp.Column, relation: Relation
) -> tuple[tuple[Label, ...], exp.Expr, pa.DataType | None] | None:
    unit = _unit_of(tree, relation)
    first, stop = relation.field(column).moments or (None, None)
    if unit == _MOMENT or first is None or stop is None:
        return None
    if first >= stop:
        raise refuse(f"WHERE leaves no moment of the public range of {column.name!r}")
    if _count(first, stop, unit) > _MOST_PERIODS:
        raise refuse(
            f"GROUP BY of {column.name!r} by so short a period makes more than {_MOST_PERIODS:,} groups; "
            "use a longer one, or bound it in WHERE"
        )
    by_day = is_day(column, relation)
    cells = (moment.date() if by_day else moment for moment in _list(first, stop, unit))
    values = [evaluate(tree, cell) for cell in cells]
    inside = exp.and_(
        exp.GTE(this=column.copy(), expression=_bound(first)),
        exp.LT(this=column.copy(), expression=_bound(stop)),
    )
    found = _number_values(values, _place(column, first, unit), column)
    return None if found is None else (found[0], exp.Case().when(inside, found[1]), found[2])


def _read_mapped(
    tree: exp.Expr, column: exp.Column, relation: Relation
) -> tuple[tuple[Label, ...], exp.Expr, pa.DataType | None] | None:
    """What is computed of a column with public labels: it is computed of each of them."""
    alias, field = relation.find(column)
    if field.column is None or field.column.extras or not isinstance(field.column.domain, _LISTED):
        return None
    if field.column.size > _MOST_LISTED:
        return None
    values = [
        evaluate(tree, Fraction(label) if isinstance(label, int) else label) for label in field.column.labels
    ]
    code = exp.column(f"code of {field.name}", table=alias, quoted=True)
    return _number_values(values, code, column)


def _read_rounded(
    tree: exp.Expr, column: exp.Column, relation: Relation
) -> tuple[tuple[Label, ...], exp.Expr, pa.DataType | None] | None:
    """What is computed of a bounded number that is rounded: of each whole number between the bounds."""
    rounded: list[exp.Expr] = [column]
    bounds = relation.field(column).bounds
    if not relation.field(column).counted:
        rounded = [node for node in tree.find_all(*_ROUNDING) if _rounds(node)]
        # The innermost; what is rounded again is computed of whole numbers.
        rounded = [
            node for node in rounded if not any(_rounds(each) for each in node.this.find_all(*_ROUNDING))
        ]
        if len(rounded) != 1 or any(
            True for each in tree.find_all(exp.Column) if each is not rounded[0].find(exp.Column)
        ):
            return None
        bounds = relation.bounds(rounded[0].this)
    if bounds is None or bounds[1] - bounds[0] > _MOST_LISTED:
        return None
    low = math.floor(bounds[0])
    high = math.floor(bounds[1]) if isinstance(rounded[0], exp.Floor) else math.ceil(bounds[1])
    mark = exp.column("whole", table="rounded")
    shape = tree.copy().transform(lambda node: mark.copy() if node == rounded[0] else node)
    values = [evaluate(shape, Fraction(number)) for number in range(low, high + 1)]
    whole = rounded[0].copy()
    inside = exp.Between(this=whole, low=write(Fraction(low)), high=write(Fraction(high)))
    since = exp.Sub(this=exp.paren(whole.copy()), expression=exp.paren(write(Fraction(low))))
    place = exp.Cast(this=exp.paren(since), to=exp.DataType.build("BIGINT"))
    found = _number_values(values, place, column)
    return None if found is None else (found[0], exp.Case().when(inside, found[1]), found[2])


def _rounds(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return node.to.this.name in WHOLE_TYPES
    return not (isinstance(node, exp.Round) and node.args.get("decimals") is not None)


def _number_values(
    values: list[Value], place: exp.Expr, column: exp.Column
) -> tuple[tuple[Label, ...], exp.Expr, pa.DataType | None] | None:
    """The labels of `values`, each once and in order, and the tree of the code of the one at `place`."""
    codes: dict[object, int] = {}
    for value in values:
        codes.setdefault(value, len(codes))
    labels, kind = _label_values(list(codes))
    if labels is None:
        return None
    if len(codes) == len(values):
        return labels, place, kind
    for period in (7, 24, 1440):
        if len(values) > period and values == (values[:period] * (len(values) // period + 1))[: len(values)]:
            place = exp.Mod(this=exp.paren(place), expression=exp.Literal.number(period))
            values = values[:period]
            break
    if len(values) > _MOST_LISTED:
        raise refuse(
            f"GROUP BY of {column.name!r}: its groups are made of more than {_MOST_LISTED:,} "
            "periods; bound it in WHERE, or use a period that is not shorter than needed"
        )
    # One node, however many numbers are listed.
    listed = exp.var(f"[{', '.join(str(codes[value]) for value in values)}]")
    after = exp.Add(this=exp.paren(place), expression=exp.Literal.number(1))
    return labels, exp.Anonymous(this="list_extract", expressions=[listed, after]), kind


def _limits(
    part: exp.Expr, relation: Relation
) -> Iterator[tuple[exp.Column, datetime | None, datetime | None, bool]]:
    """The column that a comparison limits, from which moment on and before which, and if these stand in."""
    if isinstance(part, exp.Between) and not part.args.get("symmetric"):
        for kind, name in ((exp.GTE, "low"), (exp.LTE, "high")):
            yield from _limits(kind(this=part.this.copy(), expression=part.args[name].copy()), relation)
        return
    if not isinstance(part, (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE)):
        return
    node, by_day = part.this, False
    if isinstance(node, exp.Extract) and node.name.upper() == "EPOCH":
        yield from _epoch_limits(part, node.expression, relation)
        return
    while isinstance(node, (exp.Paren, exp.Cast)):
        if isinstance(node, exp.Cast):
            if node.to.this.name not in ("DATE", "TIMESTAMP"):
                return
            by_day |= node.to.this.name == "DATE"
        node = node.this
    if not isinstance(node, exp.Column) or relation.field(node).kind != "date":
        return
    stands = any(each.meta.get(PARAMETER) is not None for each in part.expression.walk())
    try:
        value = fold(part.expression, EPOCH)
    except NotConstant:
        return
    value = read_moment(value) if isinstance(value, str) else value
    if not isinstance(value, date):
        return
    moment = to_moment(value)
    if moment.year in (MINYEAR, MAXYEAR):  # at the end of the calendar it limits nothing
        return
    step = _DAY if by_day or is_day(node, relation) else _TICK
    # Days are compared by their beginnings: the first day after a moment, if it is no beginning itself.
    whole = step == _DAY and moment.time() != time()
    up = datetime.combine(moment.date(), time()) + _DAY if whole else moment
    low = {exp.EQ: up, exp.GTE: up, exp.GT: up if whole else moment + step}.get(type(part))
    stop = {exp.EQ: moment + step, exp.LT: up, exp.LTE: up if whole else moment + step}.get(type(part))
    if stands and stop is not None:
        stop = moment + _DAY
    yield node, low, stop, stands


def _epoch_limits(
    part: exp.Expr, node: exp.Expr, relation: Relation
) -> Iterator[tuple[exp.Column, datetime | None, datetime | None, bool]]:
    """The same of EXTRACT(epoch FROM column)."""
    try:
        seconds = fold(part.expression, EPOCH)
    except NotConstant:
        return
    if isinstance(seconds, Fraction) and abs(seconds) < 10**11:
        moment = EPOCH + timedelta(microseconds=int(seconds * 10**6))
        yield from _limits(type(part)(this=node.copy(), expression=write(moment)), relation)


def _unit_of(node: exp.Expr, relation: Relation) -> str | int:
    """The longest period in which an expression stays the same; a number is one of so many seconds."""
    match node:
        case exp.Column():
            period = relation.field(node).period
            if period is not None:
                return period
            return "day" if is_day(node, relation) else _MOMENT
        case exp.Paren():
            return _unit_of(node.this, relation)
        case exp.Cast():
            inner = _unit_of(node.this, relation)
            return _within(inner, "day") if node.to.this.name == "DATE" else inner
        case exp.TimestampTrunc():
            return _within(_unit_of(node.this, relation), node.text("unit").lower(), node.this)
        case exp.TimeToStr():
            return _within(_unit_of(node.this, relation), format_unit(node.args["format"].name), node.this)
        case exp.Extract():
            moment = _unit_of(node.expression, relation)
            return _within(moment, part_unit(node.name.lower()), node.expression)
        case exp.Floor() if (seconds := _epoch_step(node.this)) is not None:
            return _within_step(_unit_of(seconds[0], relation), seconds[1], seconds[0])
        case exp.IntDiv() if (seconds := _epoch_step(node)) is not None:
            return _within_step(_unit_of(seconds[0], relation), seconds[1], seconds[0])
        case exp.Floor() | exp.Ceil() | exp.Round() | exp.UnixToTime() | exp.Trunc():
            return _unit_of(node.this, relation)
    if isinstance(node, PARTS):
        return _within(_unit_of(node.this, relation), part_unit(node.key), node.this)
    if isinstance(node, _ARITHMETIC):
        parts = [each for each in node.iter_expressions() if each.find(exp.Column)]
        if not parts:
            raise NotConstant
        unit = _unit_of(parts[0], relation)
        for each in parts[1:]:
            other = _unit_of(each, relation)
            if isinstance(unit, int) or isinstance(other, int) or _MOMENT in (unit, other):
                raise NotConstant
            unit = common_unit(unit, other)
        return unit
    raise NotConstant


def _within(inner: str | int, unit: str, shifted: exp.Expr | None = None) -> str | int:
    """The unit of a function that is constant in `unit`, of an expression that is constant in `inner`."""
    if isinstance(inner, int):
        return inner
    shift = None if shifted is None else _find_shift(shifted)
    if shift is not None:
        unit = common_unit(unit, shift)
    if inner == _MOMENT:
        return unit
    return unit if divides(inner, unit) else inner


def _within_step(inner: str | int, step: int, shifted: exp.Expr) -> str | int:
    if inner != _MOMENT:
        return inner
    if _find_shift(shifted) is not None:
        raise NotConstant
    return {60: "minute", 3600: "hour", 86400: "day"}.get(step, step)


def _find_shift(node: exp.Expr) -> str | None:
    """The longest unit that an added length of time is made of, if a bare column is moved by one."""
    for each in node.find_all(exp.Interval):
        span = fold(each, EPOCH)
        if not isinstance(span, Span):
            raise NotConstant
        for unit in ("day", "hour", "minute", "second"):
            if span.microseconds % (SECONDS[unit] * 10**6) == 0:
                return unit
        raise NotConstant
    return None


def _epoch_step(node: exp.Expr) -> tuple[exp.Expr, int] | None:
    """The moment and the seconds of `EXTRACT(epoch FROM moment) / seconds`."""
    node = node.unnest()
    if not isinstance(node, (exp.Div, exp.IntDiv)):
        return None
    top, bottom = node.this, node.expression
    while isinstance(top, (exp.Paren, exp.Cast)):
        top = top.this
    if not isinstance(top, exp.Extract) or top.name.upper() != "EPOCH":
        return None
    try:
        seconds = fold(bottom, EPOCH)
    except NotConstant:
        return None
    if not isinstance(seconds, Fraction) or seconds.denominator != 1 or seconds < 1:
        return None
    return top.expression, int(seconds)


def _label_values(values: list[Any]) -> tuple[tuple[Label, ...] | None, pa.DataType | None]:
    kinds = {type(value) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is str:
        return tuple(values), None
    if kind is datetime:
        return tuple(map(to_microseconds, values)), pa.timestamp("us")
    if kind is date:
        return tuple(map(to_days, values)), pa.date32()
    if kind is not Fraction:
        return None, None
    if all(value.denominator == 1 for value in values):
        return tuple(map(int, values)), None
    # Labels that read back as the doubles next to them.
    return tuple(repr(float(value)) for value in values), pa.float64()


def _count(first: datetime, stop: datetime, unit: str | int) -> int:
    if isinstance(unit, str):
        return count_periods(first, stop, unit)
    return (to_microseconds(stop) - 1) // (unit * 10**6) - to_microseconds(first) // (unit * 10**6) + 1


def _list(first: datetime, stop: datetime, unit: str | int) -> Iterator[datetime]:
    if isinstance(unit, str):
        yield from list_periods(first, stop, unit)
        return
    start = to_microseconds(first) // (unit * 10**6)
    for place in range(start, start + _count(first, stop, unit)):
        yield EPOCH + timedelta(seconds=place * unit)


def _place(column: exp.Column, first: datetime, unit: str | int) -> exp.Expr:
    """The number of the period that a moment is in, counted from the first one."""

    def number(value: int) -> exp.Expr:
        written = write(Fraction(value))
        return exp.paren(written) if value < 0 else written

    start = next(_list(first, first + _TICK, unit))
    if isinstance(unit, str) and unit in MONTHS:
        months = exp.Mul(this=exp.Year(this=column.copy()), expression=number(12))
        count: exp.Expr = exp.Add(this=months, expression=exp.Month(this=column.copy()))
        begin, step = start.year * 12 + start.month, MONTHS[unit]
    else:
        count = exp.Anonymous(this="epoch_us", expressions=[column.copy()])
        step = (SECONDS[unit] if isinstance(unit, str) else unit) * 10**6
        begin = to_microseconds(start)
    since = exp.paren(exp.Sub(this=count, expression=number(begin)))
    return since if step == 1 else exp.IntDiv(this=since, expression=number(step))


def _bound(moment: datetime) -> exp.Expr:
    return write(moment.date() if moment.time() == time() else moment)


def list_spans(tree: exp.Expr, relation: Relation) -> list[tuple[int, datetime, datetime]] | None:
    """For a key of a column of dates, the number of its label for each period, from when to before when.

    `tree` is the checked expression of a key that `read_labels` found labels for; None for any other key.
    """
    column = _only_column(tree)
    if column is None or relation.field(column).kind != "date":
        return None
    first, stop = relation.field(column).moments or (None, None)
    if first is None or stop is None or first >= stop:
        return None
    try:
        unit = _unit_of(tree, relation)
        if unit == _MOMENT or _count(first, stop, unit) > _MOST_PERIODS:
            return None
        begins = list(_list(first, stop, unit))
        by_day = is_day(column, relation)
        values = [evaluate(tree, begin.date() if by_day else begin) for begin in begins]
    except _UNKNOWN:
        return None
    codes: dict[object, int] = {}
    ends = [*begins[1:], stop]
    return [
        (codes.setdefault(value, len(codes)), max(begin, first), end)
        for value, begin, end in zip(values, begins, ends, strict=True)
    ]


def derive_field(name: str, node: exp.Expr, relation: Relation) -> Field:
    """What is known of an expression: its kind, its bounds, and its domain if it is a bare column."""
    if isinstance(node, exp.Column):
        known = relation.field(node)
        labels = known.labels if known.labels is not None else relation.listed.get(node.sql())
        return replace(known, name=name, labels=labels)
    period = derive_period(node, relation)
    if period is not None:
        return replace(period, name=name)
    labels = labels_of(node, relation)
    if labels is None and not relation.uses_unit(node):
        found = read_labels(node, relation)
        labels = (
            found[0] if found is not None and found[2] is None and len(found[0]) <= _MOST_LABELS else None
        )
    bounds = bounds_of(node, relation)
    if bounds is not None:
        kind_of_number: Kind = "integer" if is_whole(node, relation) else "number"
        numbered = labels is not None and not any(isinstance(each, (str, bool)) for each in labels)
        return Field(name=name, kind=kind_of_number, bounds=bounds, labels=labels if numbered else None)
    if labels is not None and not isinstance(labels[0], bool):
        return Field(name=name, kind="text" if isinstance(labels[0], str) else "integer", labels=labels)
    kind: Kind = "unknown"
    if isinstance(node, (exp.Predicate, exp.And, exp.Or, exp.Not)):
        kind = "boolean"
    elif isinstance(node, exp.Cast):
        kind = CAST_KINDS.get(node.to.this.name, "unknown")
    return Field(name=name, kind=kind)
