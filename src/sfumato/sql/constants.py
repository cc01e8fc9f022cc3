"""Constants: what a part of a statement that names no column is worth, and its one way of writing.

Equal questions must be one plan, so `20`, `20.0` and `2e1` become one number, and a date is one date however
it was computed. The clock is read once for a statement, and stands in its plan as a constant. Periods of time
and how dates are written are arithmetic over such constants: moments are in UTC, weeks begin on Monday.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.core.dates import read_formatted, read_moment
from sfumato.core.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS: dict[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
"""Periods of one length, in seconds."""
MONTHS: dict[str, int] = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
"""Periods of whole months."""
EPOCH = datetime(1970, 1, 1)
MONDAY = datetime(1970, 1, 5)
# What to_char and to_timestamp of PostgreSQL call what strftime calls otherwise; longest first.
_TOKENS = {
    "HH24": "%H", "HH12": "%I", "YYYY": "%Y", "IYYY": "%G", "MONTH": None, "FMDAY": "%A", "FMMONTH": "%B",
    "MON": "%b", "DAY": None, "DDD": "%j", "DY": "%a", "MM": "%m", "MI": "%M", "DD": "%d", "SS": "%S",
    "US": "%f", "YY": "%y", "IW": "%V", "ID": "%u", "AM": "%p", "PM": "%p", "HH": "%I", "TZH": None,
    "Q": "%q",
}  # fmt: skip
_TOKEN = re.compile(
    r'"[^"]*"|' + "|".join(sorted(_TOKENS, key=len, reverse=True)) + r"|MS|[^A-Za-z\"]|T|Z", re.IGNORECASE
)
_FINEST: dict[str, str] = {
    **dict.fromkeys("Yy", "year"),
    **dict.fromkeys("mbB", "month"),
    **dict.fromkeys("GV", "week"),
    **dict.fromkeys("djaAuw", "day"),
    **dict.fromkeys("HIp", "hour"),
    "q": "quarter",
    "M": "minute",
    "S": "second",
}
_PART_UNITS = {
    **{each: each for each in ("year", "quarter", "month", "hour", "minute")},
    **dict.fromkeys(("second", "epoch"), "second"),
    **dict.fromkeys(("week", "weekofyear", "isoyear"), "week"),
    **dict.fromkeys(("day", "dow", "dayofweek", "isodow", "doy", "dayofyear"), "day"),
}

PARTS = (
    *(exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfWeek, exp.Hour, exp.Minute),
    *(exp.Week, exp.WeekOfYear, exp.DayOfYear, exp.Second),
)
WHOLE_TYPES = ("TINYINT", "SMALLINT", "INT", "BIGINT")

_STEPS: dict[type[exp.Expr], Callable[[Fraction], int]] = {
    exp.Floor: math.floor,
    exp.Ceil: math.ceil,
    exp.Trunc: int,
    exp.Round: round,
}
_LONGEST_NUMBER = 1000
_LARGEST_DIGITS = 10**18
_LARGEST_FLOAT = Fraction(10) ** 308
_SPAN = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_CLOCK_SPAN = re.compile(r"\s*([+-]?)(\d{1,3}):(\d{2})(?::(\d{2}))?\s*")
_MONTHS = {"month": 1, "mon": 1, "quarter": 3, "year": 12, "yr": 12, "y": 12, "decade": 120}
_SECONDS = {
    "microsecond": Fraction(1, 10**6),
    "us": Fraction(1, 10**6),
    "millisecond": Fraction(1, 1000),
    "ms": Fraction(1, 1000),
    **dict.fromkeys(("second", "sec", "s"), Fraction(1)),
    **dict.fromkeys(("minute", "min", "m"), Fraction(60)),
    **dict.fromkeys(("hour", "hr", "h"), Fraction(3600)),
    **dict.fromkeys(("day", "d"), Fraction(86400)),
    **dict.fromkeys(("week", "w"), Fraction(604800)),
}
_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}\\\s]+(?:\s+[^",{}\\\s]+)*))\s*(,|$)', re.DOTALL)
_CLOCKS = ("now", "getdate", "transaction_timestamp", "statement_timestamp", "clock_timestamp", "today")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A length of time: whole months, and microseconds."""

    months: int = 0
    microseconds: int = 0

    def __neg__(self) -> Span:
        return Span(months=-self.months, microseconds=-self.microseconds)

    def __add__(self, other: Span) -> Span:
        return Span(months=self.months + other.months, microseconds=self.microseconds + other.microseconds)

    def after(self, moment: datetime) -> datetime:
        """The moment that is so much later; the last day of a month stays within its month."""
        place = moment.year * 12 + moment.month - 1 + self.months
        year, month = divmod(place, 12)
        for day in (moment.day, 30, 29, 28):
            try:
                moved = moment.replace(year=year, month=month + 1, day=day)
            except ValueError:
                continue
            return moved + timedelta(microseconds=self.microseconds)
        raise OverflowError


Value = None | bool | Fraction | str | date | datetime | Span


class NotConstant(Exception):
    """A part is no constant that is computed here."""


def fold(node: exp.Expr, now: datetime) -> Value:
    """The value of a part that names no column; raises NotConstant if it is not computed here.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one("DATE '2025-06-01' - INTERVAL '30 days'", dialect="duckdb")
    >>> fold(tree, datetime(2025, 1, 1))
    datetime.datetime(2025, 5, 2, 0, 0)
    """
    try:
        return _fold(node, now)
    except (OverflowError, ValueError):
        raise refuse(f"the constant {node.sql(dialect='duckdb')[:80]} cannot be computed") from None


def write(value: Value) -> exp.Expr:
    """The one way of writing a value.

    >>> write(Fraction(1, 2)).sql(), write(date(2025, 1, 1)).sql(dialect="duckdb")
    ('0.5', "CAST('2025-01-01' AS DATE)")
    """
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case Fraction():
            number = exp.Literal.number(spell_number(abs(value)))
            return exp.Neg(this=number) if value < 0 else number
        case str():
            return exp.Literal.string(value)
        case datetime():
            text = value.strftime("%Y-%m-%d %H:%M:%S") + (f".{value:%f}" if value.microsecond else "")
            return _cast(text.rjust(19 + 7 * bool(value.microsecond), "0"), "TIMESTAMP")
        case date():
            return _cast(value.isoformat(), "DATE")
        case Span():
            raise NotConstant
    raise NotConstant


def spell_number(number: Fraction) -> str:
    """A number without sign in digits, or by an exponent where it is far from one.

    >>> spell_number(Fraction("2e1")), spell_number(Fraction("0.50"))
    ('20', '0.5')
    """
    if number.denominator == 1 and number < _LARGEST_DIGITS:
        return str(number.numerator)
    near = float(number) if number < _LARGEST_FLOAT else math.inf
    if number.denominator == 1 or number < Fraction(1, _LARGEST_DIGITS):
        # So far away numbers are doubles; those that no double is stay in digits.
        told = repr(near).replace("+", "")
        return told if math.isfinite(near) and Fraction(told) == number else _digits(number)
    return _digits(number)


def _digits(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    twos, rest = 0, number.denominator
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    fives = 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or places > _LONGEST_NUMBER:
        raise NotConstant
    digits = str(number.numerator * 10**places // number.denominator).rjust(places + 1, "0")
    return f"{digits[:-places]}.{digits[-places:]}"


def read_number(text: str) -> Fraction | None:
    """The number that a text spells, None if it spells none."""
    text = text.strip()
    if len(text) > _LONGEST_NUMBER or not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text):
        return None
    return Fraction(Decimal(text))


def read_array(text: str) -> list[str | None]:
    """The texts of an array as PostgreSQL writes it, None for NULL; ValueError if it is none.

    >>> read_array('{a, "b, c", NULL}')
    ['a', 'b, c', None]
    """
    body = text.strip()
    if body[:1] + body[-1:] != "{}":
        raise ValueError("an array is written {a,b}")
    body = body[1:-1]
    items: list[str | None] = []
    place = 0
    while place < len(body) or (items and body.endswith(",")):
        match = _ITEM.match(body, place)
        if match is None:
            raise ValueError("an array is written {a,b}")
        quoted, plain, _ = match.groups()
        if quoted is not None:
            items.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            items.append(None if plain.lower() == "null" else plain)
        place = match.end()
    return items


def from_python(value: object) -> exp.Expr:
    """A value of Python as a constant: never spliced into text, so that no quote of it matters.

    >>> from_python("it's").sql(), from_python(20.0).sql()
    ("'it''s'", '20')
    """
    match value:
        case None | bool():
            return write(value)
        case int() | Fraction() | Decimal() | float():
            if not (isinstance(value, Fraction) or math.isfinite(value)):
                raise refuse("a parameter that is not a finite number")
            return write(Fraction(repr(value) if isinstance(value, float) else value))
        case str():
            if "\x00" in value:
                raise refuse("a parameter with the character U+0000")
            return write(value)
        case datetime():
            return write(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value)
        case date():
            return write(value)
        case list() | tuple():
            return exp.Array(expressions=[from_python(each) for each in value])
        case _:
            raise refuse(f"a parameter of type {type(value).__name__}; use numbers, text, dates or lists")


def _cast(text: str, kind: str) -> exp.Expr:
    return exp.Cast(this=exp.Literal.string(text), to=exp.DataType.build(kind, dialect="duckdb"))


def evaluate(node: exp.Expr, value: Value) -> Value:
    """The value of an expression whose one column has a `value`; raises NotConstant as `fold` does."""
    return _fold(node, EPOCH, value)


def _fold(node: exp.Expr, now: datetime, column: Value = None) -> Value:
    def inner(part: exp.Expr) -> Value:
        return _fold(part, now, column)

    match node:
        case exp.Column() if column is not None:
            return column
        case exp.Literal():
            number = str(node.this) if node.is_string else read_number(str(node.this))
            if number is not None:
                return number
        case exp.Boolean():
            return bool(node.this)
        case exp.Null():
            return None
        case exp.Paren():
            return inner(node.this)
        case exp.Neg():
            found = inner(node.this)
            if isinstance(found, (Fraction, Span)):
                return -found
        case exp.CurrentDate():
            return now.date()
        case exp.CurrentTimestamp() | exp.Localtimestamp() | exp.CurrentDatetime():
            return now
        case exp.Interval():
            return _read_span(node)
        case exp.Cast():
            return _convert(inner(node.this), node.to.this.name, of_column=column is not None)
        case exp.DPipe():
            return _spell(inner(node.this)) + _spell(inner(node.expression))
        case exp.Add() | exp.Sub():
            return _add(inner(node.this), inner(node.expression), minus=isinstance(node, exp.Sub))
        case exp.Mul():
            return _multiply(inner(node.this), inner(node.expression))
        case exp.DateAdd() | exp.DateSub():
            span = inner(node.expression)
            if isinstance(span, Fraction) and node.args.get("unit") is not None:
                span = _span_of(span, node.args["unit"].name)
            return _add(inner(node.this), span, minus=isinstance(node, exp.DateSub))
        case exp.TimestampTrunc() | exp.DateTrunc():
            return truncate(_moment(inner(node.this)), node.text("unit").lower())
        case exp.AtTimeZone():
            if node.args["zone"].name.upper() in ("UTC", "ETC/UTC", "GMT", "Z"):
                return inner(node.this)
        case exp.DateFromParts():
            parts = [inner(node.args[name]) for name in ("year", "month", "day")]
            return date(*(int(part) for part in parts if isinstance(part, Fraction)))
        case exp.UnixToTime() | exp.StrToTime() | exp.StrToDate():
            return _read_text(node, inner)
        case exp.Anonymous():
            return _call(node, now)
        case _ if column is not None:
            return _compute(node, inner)
    raise NotConstant


def _compute(node: exp.Expr, inner: Callable[[exp.Expr], Value]) -> Value:
    """What is computed of the values of a column alone: such constants stay as they are written."""
    match node:
        case exp.TimeToStr():
            return write_moment(_moment(inner(node.this)), node.args["format"].name)
        case exp.Upper() | exp.Lower():
            text = _spell(inner(node.this))
            return text.upper() if isinstance(node, exp.Upper) else text.lower()
        case exp.Trim() if node.args.get("expression") is None and node.args.get("position") is None:
            return _spell(inner(node.this)).strip(" ")
        case exp.Left() | exp.Right():
            text, count = _spell(inner(node.this)), int(_number(inner(node.expression)))
            return text[:count] if isinstance(node, exp.Left) else text[len(text) - count :]
        case exp.Coalesce():
            return inner(node.this)
        case exp.Concat():
            return "".join(_spell(inner(each)) for each in node.iter_expressions())
        case exp.Extract():
            return Fraction(date_part(_moment(inner(node.expression)), node.name.lower()))
        case exp.Floor() | exp.Ceil() | exp.Round() | exp.Trunc() if node.args.get("decimals") is None:
            return Fraction(_STEPS[type(node)](_number(inner(node.this))))
        case exp.Div():
            return _number(inner(node.this)) / _number(inner(node.expression))
        case exp.IntDiv() | exp.Mod():
            one, other = _number(inner(node.this)), _number(inner(node.expression))
            whole = int(one / other)
            return Fraction(whole) if isinstance(node, exp.IntDiv) else one - other * whole
    if isinstance(node, PARTS):
        return Fraction(date_part(_moment(inner(node.this)), node.key))
    raise NotConstant


def _moment(value: Value) -> datetime:
    if not isinstance(value, date):
        raise NotConstant
    return to_moment(value)


def _number(value: Value) -> Fraction:
    if not isinstance(value, Fraction):
        raise NotConstant
    return value


def _call(node: exp.Anonymous, now: datetime) -> Value:
    name, given = node.name.lower(), node.expressions
    if name in _CLOCKS and not given:
        return now.date() if name == "today" else now
    if name == "to_date" and len(given) == 2:
        moment = _parse(given[0], given[1], read_format)
        return moment.date()
    if name in ("dateadd", "date_add") and len(given) == 3:
        unit, count = given[0].name, _fold(given[1], now)
        if isinstance(count, Fraction):
            return _add(_fold(given[2], now), _span_of(count, unit), minus=False)
    raise NotConstant


def _read_text(node: exp.Expr, inner: Callable[[exp.Expr], Value]) -> Value:
    """TO_TIMESTAMP of seconds or of a text with a format, and STRPTIME."""
    if isinstance(node, exp.UnixToTime):
        scale = node.args.get("scale")
        if scale is not None and scale.is_string:
            return _parse(node.this, scale, read_format)
        seconds = inner(node.this)
        if isinstance(seconds, Fraction) and scale is None:
            return datetime(1970, 1, 1) + timedelta(microseconds=int(seconds * 10**6))
        raise NotConstant
    moment = _parse(node.this, node.args["format"], str)
    return moment.date() if isinstance(node, exp.StrToDate) else moment


def _parse(text: exp.Expr, form: exp.Expr, translate: Callable[[str], str]) -> datetime:
    if not (text.is_string and form.is_string):
        raise NotConstant
    return read_formatted(text.name, translate(form.name))


def _spell(value: Value) -> str:
    if isinstance(value, Fraction) and value.denominator == 1:
        return str(value.numerator)
    if not isinstance(value, (str, date)):
        raise NotConstant
    return str(value)


def _convert(value: Value, kind: str, *, of_column: bool) -> Value:
    if kind == "INTERVAL" and isinstance(value, str):
        return _read_span(exp.Interval(this=exp.Literal.string(value)))
    if kind in ("DATE", "TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ"):
        # The database may know more ways of writing, or refuses it.
        moment = _moment(read_moment(value) if isinstance(value, str) and not of_column else value)
        return moment.date() if kind == "DATE" else moment
    if not of_column:
        raise NotConstant
    if kind in ("TEXT", "VARCHAR"):
        return _spell(value)
    return Fraction(round(_number(value))) if kind in WHOLE_TYPES else _number(value)


def _add(left: Value, right: Value, *, minus: bool) -> Value:
    if isinstance(right, date) and isinstance(left, Span) and not minus:
        left, right = right, left
    match left, right:
        case Fraction(), Fraction():
            return left - right if minus else left + right
        case Span(), Span():
            return left + (-right if minus else right)
        case date(), Span():
            return (-right if minus else right).after(to_moment(left))
        case date(), Fraction() if not isinstance(left, datetime) and right.denominator == 1:
            return left + timedelta(days=int(-right if minus else right))
    raise NotConstant


def _multiply(left: Value, right: Value) -> Value:
    if isinstance(left, Fraction) and isinstance(right, Span):
        left, right = right, left
    match left, right:
        case Fraction(), Fraction():
            return left * right
        case Span(), Fraction() if right.denominator == 1:
            return Span(months=left.months * int(right), microseconds=left.microseconds * int(right))
    raise NotConstant


def _read_span(node: exp.Interval) -> Span:
    text, unit = node.this, node.args.get("unit")
    if not isinstance(text, exp.Literal):
        raise NotConstant
    if unit is not None:
        number = read_number(str(text.this))
        if number is None:
            raise ValueError
        return _span_of(number, unit.name)
    found, place = Span(), 0
    text = str(text.this)
    clock = _CLOCK_SPAN.fullmatch(text)
    if clock is not None:
        sign, hours, minutes, seconds = clock.groups()
        length = Fraction(int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0))
        return _span_of(-length if sign == "-" else length, "second")
    while place < len(text.rstrip()):
        match = _SPAN.match(text, place)
        if match is None:
            raise ValueError
        found, place = found + _span_of(Fraction(match[1]), match[2]), match.end()
    return found


def _span_of(number: Fraction, unit: str) -> Span:
    name = unit.lower()
    name = name if name in _MONTHS or name in _SECONDS else name.removesuffix("s")
    if name in _MONTHS and number.denominator == 1:
        return Span(months=int(number) * _MONTHS[name])
    if name not in _SECONDS:
        raise ValueError
    return Span(microseconds=int(number * _SECONDS[name] * 10**6))


def read_format(form: str) -> str:
    """A format of to_char and to_timestamp as one of strftime; raises ValueError if there is none.

    >>> read_format("YYYY-MM-DD HH24:MI:SS.US")
    '%Y-%m-%d %H:%M:%S.%f'
    """
    written, place = [], 0
    while place < len(form):
        match = _TOKEN.match(form, place)
        if match is None:
            raise ValueError
        token = match[0]
        known = _TOKENS.get(token.upper(), token.strip('"').replace("%", "%%"))
        if known is None or token.upper() == "MS":
            raise ValueError
        written.append(known)
        place = match.end()
    return "".join(written)


def format_unit(form: str) -> str:
    """The period that a format of strftime tells apart: the longest in which it stays one text.

    >>> format_unit("%Y-%m")
    'month'
    """
    units = []
    for name in re.findall(r"%(.)", form):
        if name == "%":
            continue
        if name not in _FINEST:
            raise ValueError
        units.append(_FINEST[name])
    unit = units[0] if units else "year"
    for other in units[1:]:
        unit = common_unit(unit, other)
    return unit


def write_moment(moment: datetime, form: str) -> str:
    """A moment by a format of strftime, in which %q is the quarter."""
    return moment.strftime(form.replace("%q", str((moment.month - 1) // 3 + 1)))


def common_unit(one: str, other: str) -> str:
    """The longest period whose cells are cut by neither of two others.

    >>> common_unit("week", "month")
    'day'
    """
    if one == other or divides(one, other):
        return one
    return other if divides(other, one) else "day"


def divides(fine: str, coarse: str) -> bool:
    """Whether every period of `coarse` is made of whole periods of `fine`."""
    if fine in SECONDS and coarse in SECONDS:
        return SECONDS[coarse] % SECONDS[fine] == 0
    if fine in MONTHS:
        return coarse in MONTHS and MONTHS[coarse] % MONTHS[fine] == 0
    return fine != "week" and coarse in MONTHS


def truncate(moment: datetime, unit: str) -> datetime:
    """The beginning of the period that a moment is in; raises ValueError for an unknown one.

    >>> truncate(datetime(2025, 5, 17, 8), "quarter")
    datetime.datetime(2025, 4, 1, 0, 0)
    """
    if unit in SECONDS:
        start = MONDAY if unit == "week" else EPOCH
        return start + (moment - start) // timedelta(seconds=SECONDS[unit]) * timedelta(seconds=SECONDS[unit])
    if unit in ("decade", "century"):
        width = MONTHS[unit] // 12
        first = (moment.year - 1) // width * width + 1 if unit == "century" else moment.year // width * width
        return datetime(first, 1, 1)
    if unit not in MONTHS:
        raise ValueError
    place = (moment.year * 12 + moment.month - 1) // MONTHS[unit] * MONTHS[unit]
    return datetime(place // 12, place % 12 + 1, 1)


def list_periods(first: datetime, stop: datetime, unit: str) -> Iterator[datetime]:
    """The beginnings of all periods that meet the time from `first` to before `stop`."""
    moment = truncate(first, unit)
    while moment < stop:
        yield moment
        moment = next_period(moment, unit)


def count_periods(first: datetime, stop: datetime, unit: str) -> int:
    """The number of periods that meet the time from `first` to before `stop`."""
    start, last = truncate(first, unit), truncate(stop - timedelta(microseconds=1), unit)
    if unit in SECONDS:
        return (last - start) // timedelta(seconds=SECONDS[unit]) + 1
    return ((last.year - start.year) * 12 + last.month - start.month) // MONTHS[unit] + 1


def next_period(moment: datetime, unit: str) -> datetime:
    """The beginning of the next period."""
    if unit in SECONDS:
        return moment + timedelta(seconds=SECONDS[unit])
    place = moment.year * 12 + moment.month - 1 + MONTHS[unit]
    return datetime(place // 12, place % 12 + 1, 1)


def date_part(moment: datetime, part: str) -> int:
    """A part of a moment as a whole number; raises ValueError for an unknown one.

    >>> date_part(datetime(2025, 5, 17), "dow"), date_part(datetime(2025, 5, 17), "quarter")
    (6, 2)
    """
    match part:
        case "year" | "month" | "day" | "hour" | "minute" | "second":
            return int(getattr(moment, part))
        case "quarter":
            return (moment.month - 1) // 3 + 1
        case "dow" | "dayofweek":
            return moment.isoweekday() % 7
        case "isodow":
            return moment.isoweekday()
        case "doy" | "dayofyear":
            return moment.timetuple().tm_yday
        case "week" | "weekofyear":
            return moment.isocalendar().week
        case "isoyear":
            return moment.isocalendar().year
        case "epoch":
            return (moment - EPOCH) // timedelta(seconds=1)
    raise ValueError


def part_unit(part: str) -> str:
    """The longest period in which a part of a moment stays one number; ValueError for an unknown one."""
    if part not in _PART_UNITS:
        raise ValueError
    return _PART_UNITS[part]


def to_moment(day: date) -> datetime:
    """The beginning of a day; a moment as it is."""
    return day if isinstance(day, datetime) else datetime.combine(day, time())


def to_days(moment: date) -> int:
    """The days from 1970 to a date."""
    return moment.toordinal() - EPOCH.toordinal()


def to_microseconds(moment: datetime) -> int:
    """The microseconds from 1970 to a moment."""
    return (moment - EPOCH) // timedelta(microseconds=1)
