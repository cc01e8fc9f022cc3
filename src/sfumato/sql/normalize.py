"""One way of writing a statement: names without schema, parameters bound, constants computed.

All of it happens to the tree before anything is planned, so that a bound statement and the same one written
out, or one that a tool spells in its own way, are one plan and one stored answer.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.core.errors import refuse
from sfumato.sql.check import find_aggregates, refuse_deep
from sfumato.sql.constants import (
    EPOCH,
    NotConstant,
    Span,
    fold,
    from_python,
    read_array,
    read_format,
    read_number,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_SCHEMAS = ("public",)
_COMPUTED = (
    *(exp.Literal, exp.Neg, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Cast, exp.Interval, exp.Anonymous),
    *(exp.CurrentDate, exp.CurrentTimestamp, exp.Localtimestamp, exp.CurrentDatetime),
    *(exp.DateAdd, exp.DateSub, exp.TimestampTrunc, exp.DateTrunc, exp.AtTimeZone, exp.DateFromParts),
    *(exp.UnixToTime, exp.StrToTime, exp.StrToDate),
)
_UTC = ("UTC", "ETC/UTC", "GMT", "Z", "ETC/GMT")
_LONGEST_COUNT = 7
MOST_BINS = 500
"""The most intervals that a column is divided into."""
PARAMETER = "parameter"
"""The mark of a constant that stands for a parameter whose value is not known yet."""


def count_parameters(query: exp.Select) -> int:
    """The highest number of a parameter in a statement, 0 if there is none."""
    numbers = [_parameter_number(node) for node in query.find_all(exp.Placeholder, exp.Parameter)]
    return max(numbers, default=0)


@refuse_deep
def bind_parameters(query: exp.Select, values: Sequence[object]) -> None:
    """Puts constants in the places of `$1`, `$2`, ...: into the tree, so that no quote of a text matters."""
    _bind(query, [from_python(value) for value in values])


def stand_in(query: exp.Select, known: Sequence[exp.Expr | None]) -> dict[int, exp.Expr]:
    """Puts stand-ins in the places of parameters whose values are not known; marks what they stand for."""
    found = {}
    for number in range(1, count_parameters(query) + 1):
        given = known[number - 1] if number <= len(known) else None
        stand = exp.Literal.string("") if given is None else given
        stand.meta[PARAMETER] = number
        found[number] = stand
    _bind(query, list(found.values()), copies=False)
    return found


def count_stands(query: exp.Select) -> int:
    """The highest number of a parameter that a stand-in took the place of."""
    return max((node.meta.get(PARAMETER) or 0 for node in query.walk()), default=0)


def find_stands(trees: Iterable[exp.Expr]) -> dict[int, exp.Expr]:
    """The stand-ins in planned trees by their numbers; of several those about which most is known."""
    found: dict[int, exp.Expr] = {}
    for node in (node for tree in trees for node in tree.walk()):
        number = node.meta.get(PARAMETER)
        if number is not None and (number not in found or "kind" in node.meta):
            found[number] = node
    return found


def normalize(query: exp.Select, *, now: datetime | None = None, numbers: bool = True) -> None:
    """Makes a tree plain in place; `now` is what the clock says, for the whole statement.

    Without `numbers`, as for public tables, numbers stay as they are written: their spelling decides types.
    """
    now = now or datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    for table in list(query.find_all(exp.Table)):
        if table.args.get("db") is not None and table.text("db").lower() in _SCHEMAS:
            table.set("db", None)
            table.set("catalog", None)
    for node in list(query.walk()):
        _rewrite(node, names=numbers)
    for select in list(query.find_all(exp.Select)) if numbers else ():
        _unqualify(select)
    _compute(query, now, numbers=numbers)


def _bind(query: exp.Select, values: Sequence[exp.Expr], *, copies: bool = True) -> None:
    for node in list(query.find_all(exp.Placeholder, exp.Parameter)):
        number = _parameter_number(node)
        if number > len(values):
            raise refuse(f"parameter ${number} has no value; {len(values)} were given")
        value = values[number - 1]
        node.replace(_whole(value, number) if isinstance(node.parent, (exp.Limit, exp.Offset)) else value)
        if copies:
            values = [*values[: number - 1], value.copy(), *values[number:]]


def _whole(value: exp.Expr, number: int) -> exp.Expr:
    """What LIMIT and OFFSET take: a whole number, which a client may send as text."""
    if value.meta.get(PARAMETER) is not None:
        value.set("this", "1")
        value.set("is_string", value=False)
        value.meta["kind"] = "integer"
        return value
    if isinstance(value, exp.Null):
        raise refuse(f"parameter ${number} is a number of rows, and NULL is none")
    found = read_number(value.name) if isinstance(value, exp.Literal) else None
    if found is None or found.denominator != 1:
        raise refuse(f"parameter ${number} is a number of rows, which must be a whole number from 0 on")
    return write(found)


def _parameter_number(node: exp.Expr) -> int:
    text = str(node.this.this if isinstance(node.this, exp.Expr) else node.this or "")
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text):
        raise refuse("a placeholder; write parameters as $1, $2, ..., or the value itself")
    return int(text)


def _rewrite(node: exp.Expr, *, names: bool) -> None:
    """What tools write in several ways, written in one; in place."""
    match node:
        case exp.Column():
            if node.args.get("db") is not None and node.text("db").lower() in _SCHEMAS:
                node.set("db", None)
                node.set("catalog", None)
        case exp.Identifier() if names and node.args.get("quoted") and not isinstance(node.parent, exp.Alias):
            lowered = node.name.lower()
            if _PLAIN_NAME.fullmatch(lowered):
                # Names of tables and columns are found in any case here.
                node.set("this", lowered)
                node.set("quoted", value=False)
                node.meta["quoted"] = True  # for who is told that there is no such name
        case exp.EQ() | exp.NEQ():
            _rewrite_any(node)
        case exp.Anonymous() if node.name.lower() in ("date_part", "datepart") and len(node.expressions) == 2:
            part, moment = node.expressions
            if part.is_string:
                node.replace(exp.Extract(this=exp.var(part.name.upper()), expression=moment))
        case exp.Extract():
            node.set("this", exp.var(node.name.upper()))
        case exp.TimeToUnix():
            node.replace(exp.Extract(this=exp.var("EPOCH"), expression=node.this))
        case exp.DateTrunc() | exp.TimestampTrunc():
            unit = exp.var(node.text("unit").upper())
            node.replace(exp.TimestampTrunc(this=node.this, unit=unit))
        case exp.ToChar():
            _rewrite_format(node)
        case exp.DataType() if names and node.this in (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ):
            # Every moment is in UTC here.
            node.set("this", exp.DType.TIMESTAMP)
        case exp.Date() if node.this is not None and not node.expressions:
            node.replace(exp.Cast(this=node.this, to=exp.DataType.build("DATE")))
        case exp.ApproxDistinct() if names:
            node.replace(exp.Count(this=exp.Distinct(expressions=[node.this]), big_int=True))
        case exp.Bracket() if isinstance(node.this, exp.ApproxQuantiles):
            _rewrite_element(node)
        case exp.WidthBucket():
            _rewrite_bucket(node)
        case exp.Group() if names:
            _rewrite_group(node)
        case exp.Order() if names:
            _rewrite_order(node)
        case exp.Fetch():
            options = node.args.get("limit_options")
            if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
                raise refuse("FETCH takes a whole number of rows, without PERCENT and WITH TIES")
            node.replace(exp.Limit(expression=node.args.get("count") or exp.Literal.number(1)))
        case exp.Distinct():
            node.set("expressions", [each.unnest() for each in node.expressions])
        case exp.Escape() if isinstance(node.this, (exp.Like, exp.ILike)) and node.expression.is_string:
            # An escape that a pattern does not use says nothing.
            if node.this.expression.is_string and node.expression.name not in node.this.expression.name:
                node.replace(node.this)
        case exp.AtTimeZone() if node.args["zone"].name.upper() in _UTC:
            node.replace(node.this)
        case exp.Count() if isinstance(node.this, exp.Literal) and node.this.is_number:
            node.set("this", exp.Star())
        case exp.Sum() if names and isinstance(node.this, exp.Literal) and node.this.name == "1":
            node.replace(exp.Count(this=exp.Star(), big_int=True))


def _unqualify(select: exp.Select) -> None:
    """Where there is one table, its columns need no name before theirs, and it needs no other name."""
    from_ = select.args.get("from_")
    if from_ is None or select.args.get("joins"):
        return
    node: exp.Expr | None = select.parent
    while isinstance(node, (exp.Subquery, exp.SetOperation)):
        node = node.parent
    if not (node is None or isinstance(node, (exp.From, exp.Join, exp.CTE))) or _looks_inside(select):
        return  # the name before a column says whether it is of the inner or of the outer rows
    item, aliases = from_.this, {each.alias.lower() for each in select.expressions}
    for name, clause in select.args.items():
        for part in clause if isinstance(clause, list) else [clause]:
            if name in ("from_", "with_") or not isinstance(part, exp.Expr):
                continue
            for column in part.find_all(exp.Column):
                named = column.table.lower() == item.alias_or_name.lower()
                # An item of the select list that has the name of a column is meant without a table.
                if named and column.name.lower() not in aliases and not isinstance(column.this, exp.Star):
                    column.set("table", None)
    left = any(column.table for column in select.find_all(exp.Column))
    if isinstance(item, exp.Table) and item.args.get("alias") is not None and not left:
        item.set("alias", None)


def _looks_inside(select: exp.Select) -> bool:
    """Whether another query stands in a query, but in FROM and WITH."""
    clauses = [value for name, value in select.args.items() if name not in ("from_", "with_")]
    parts = [each for clause in clauses for each in (clause if isinstance(clause, list) else [clause])]
    return any(isinstance(each, exp.Expr) and each.find(exp.Select) for each in parts)


def _rewrite_element(node: exp.Bracket) -> None:
    """`APPROX_QUANTILES(x, 4)[OFFSET(2)]`, one element of the quantiles, as that quantile."""
    place, parts = node.expressions[0] if len(node.expressions) == 1 else None, node.this.expression
    first = 0
    if isinstance(place, exp.Anonymous) and place.name.upper() in ("OFFSET", "SAFE_OFFSET", "ORDINAL"):
        first = int(place.name.upper() == "ORDINAL")
        place = place.expressions[0] if len(place.expressions) == 1 else None
    numbers = [
        int(each.name)
        for each in (place, parts)
        if isinstance(each, exp.Literal) and each.is_int and len(each.name) < _LONGEST_COUNT
    ]
    if len(numbers) != 2 or not 0 <= numbers[0] - first <= numbers[1] or numbers[1] < 1:
        raise refuse(
            "an element of APPROX_QUANTILES is written APPROX_QUANTILES(fee, 4)[OFFSET(2)], from 0 to the "
            "number of parts"
        )
    share = Fraction(numbers[0] - first, numbers[1])
    written = exp.Literal.number(f"{round(share * 10**6) / 10**6:.6f}")
    node.replace(exp.Quantile(this=node.this.this, quantile=written))


def _rewrite_bucket(node: exp.WidthBucket) -> None:
    """WIDTH_BUCKET as a choice among its buckets: every engine computes it, and its labels are public."""
    ends = [node.args.get(name) for name in ("min_value", "max_value", "num_buckets")]
    try:
        found = [None if each is None else fold(each, EPOCH) for each in ends]
    except NotConstant:
        found = [None]
    low, high, count = found if len(found) == 3 else (None, None, None)
    if not isinstance(low, Fraction) or not isinstance(high, Fraction) or not isinstance(count, Fraction):
        raise refuse("WIDTH_BUCKET takes a number and constants: WIDTH_BUCKET(fee, 0, 100, 10)")
    if count.denominator != 1 or not 1 <= count <= MOST_BINS or low >= high:
        raise refuse(
            f"WIDTH_BUCKET takes a low end, a higher one, and 1 to {MOST_BINS} buckets: "
            "WIDTH_BUCKET(fee, 0, 100, 10)"
        )
    case, operand = exp.Case(), node.this
    for place in range(int(count) + 1):
        edge = write_double(low + (high - low) * place / count)
        case = case.when(exp.LT(this=operand.copy(), expression=edge), exp.Literal.number(place))
    last = exp.GTE(this=operand.copy(), expression=write_double(high))
    node.replace(case.when(last, exp.Literal.number(int(count) + 1)))


def write_double(value: Fraction) -> exp.Expr:
    """A constant as it is compared with doubles."""
    number = exp.Literal.number(repr(abs(float(value))))
    return exp.Neg(this=number) if value < 0 else number


def _rewrite_order(order: exp.Order) -> None:
    """ORDER BY ALL with the places of its columns listed."""
    first, select = order.expressions[0], order.parent
    if isinstance(first.this, exp.Var) and first.name.upper() == "ALL" and isinstance(select, exp.Select):
        listed = [first.copy() for _ in select.expressions]
        for place, each in enumerate(listed, start=1):
            each.set("this", exp.Literal.number(place))
        order.set("expressions", listed)


def _rewrite_group(group: exp.Group) -> None:
    """GROUP BY ALL with its columns listed, and WITH ROLLUP or WITH CUBE as a function of them."""
    select = group.parent
    if group.args.get("all") and isinstance(select, exp.Select):
        keys: list[exp.Expr] = [
            exp.Literal.number(place)
            for place, each in enumerate(select.expressions, start=1)
            if each.find(exp.Column)
            and not each.find(exp.Window)
            and not any(True for _ in find_aggregates(each))
        ]
        group.set("all", None)
        group.set("expressions", keys)
        if not keys:
            select.set("group", None)
    for name, kind in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        if group.args.get(name) and not any(each.expressions for each in group.args[name]):
            group.set(name, None)
            group.set("expressions", [kind(expressions=group.expressions)])


def _rewrite_any(node: exp.Expr) -> None:
    """`x = ANY(array)` as IN, `x <> ALL(array)` as NOT IN."""
    right = node.expression
    is_any = isinstance(node, exp.EQ) and isinstance(right, exp.Any)
    is_all = isinstance(node, exp.NEQ) and (
        isinstance(right, exp.All) or (isinstance(right, exp.Anonymous) and right.name.upper() == "ALL")
    )
    if not (is_any or is_all):
        return
    array = right.expressions[0] if isinstance(right, exp.Anonymous) and right.expressions else right.this
    while isinstance(array, (exp.Paren, exp.Cast)):
        array = array.this
    if isinstance(array, exp.Array):
        items = [each.copy() if each.meta.get(PARAMETER) is None else each for each in array.expressions]
    elif isinstance(array, exp.Literal) and array.meta.get(PARAMETER) is not None:
        array.meta["listed"] = True
        items = [array]
    elif isinstance(array, exp.Literal) and array.is_string:
        try:
            found = read_array(array.name)
        except ValueError:
            raise refuse("an array in quotes is written {a,b}") from None
        items = [exp.Literal.string(text) for text in found if text is not None]
    else:
        raise refuse("ANY and ALL take a list of constants: ARRAY['a', 'b']")
    test: exp.Expr = exp.In(this=node.this, expressions=items) if items else exp.Boolean(this=False)
    node.replace(test if is_any else exp.Not(this=test))


def _rewrite_format(node: exp.ToChar) -> None:
    form = node.args.get("format")
    try:
        # A format that is computed has no name, and the empty one tells nothing.
        written = exp.Literal.string(read_format(form.name if form is not None and form.is_string else "?Q"))
    except ValueError:
        raise refuse(
            "TO_CHAR with a format that is not known here; known: YYYY YY MM MON DD DDD DY HH24 HH12 MI SS "
            "IYYY IW"
        ) from None
    node.replace(exp.TimeToStr(this=node.this, format=written))


def _compute(node: exp.Expr, now: datetime, *, numbers: bool) -> None:
    """Replaces every part that is a constant by its value, the largest ones first."""
    if isinstance(node, _COMPUTED) and node.meta.get(PARAMETER) is None:
        try:
            value = None if any(each.meta.get(PARAMETER) for each in node.walk()) else fold(node, now)
            wanted = isinstance(value, date) or (numbers and isinstance(value, Fraction))
            if wanted and not (isinstance(value, Fraction) and isinstance(node, exp.Paren)):
                written = write(value)
                if written != node:
                    node.replace(written)
                return
            if isinstance(value, Span) and isinstance(node, exp.Interval):
                _write_span(node, value)
                return
        except NotConstant:
            pass
    for child in [] if isinstance(node, (exp.Limit, exp.Offset)) else list(node.iter_expressions()):
        _compute(child, now, numbers=numbers)


def _write_span(node: exp.Interval, value: Span) -> None:
    for name, amount, step in (("MONTH", value.months, 1), ("SECOND", value.microseconds, 10**6)):
        if amount and amount % step == 0 and amount in (value.months + value.microseconds,):
            name, step = (
                ("DAY", 86400 * 10**6) if name == "SECOND" and amount % (86400 * 10**6) == 0 else (name, step)
            )
            node.set("this", exp.Literal.string(str(amount // step)))
            node.set("unit", exp.var(name))
