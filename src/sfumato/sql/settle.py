"""Constants as what they meet: each is converted to the kind of the column that it is compared with.

`fee > '20'` and `fee > 20.0` become `fee > 20`, lists are sorted and without repeats, and a constant stands
on the right. What a parameter must be is found out in the same way, and what an answer will look like.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import date, datetime, time
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from sfumato.core.algebra.expressions import CAST_KINDS, Kind, is_condition, list_untold_conditions
from sfumato.core.dates import is_dated, read_moment
from sfumato.core.errors import refuse
from sfumato.core.facts.domain import Values
from sfumato.sql.check import check_scalar
from sfumato.sql.constants import EPOCH, NotConstant, Value, fold, from_python, read_number, write
from sfumato.sql.normalize import PARAMETER
from sfumato.sql.relation import Field, Relation
from sfumato.tables import quote_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.sql.relation import Relation


_MOST_COMPARED = 1000
_SHORTEST_WORD = 4

MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}
"""What a comparison becomes when its sides change places."""
_NUMBERS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)
_WHOLE = (exp.Extract, exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfWeek, exp.Hour, exp.Minute)
_MEASURED = (exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Sign, exp.Sqrt, exp.Ln, exp.Log, exp.Exp, exp.Pow)
_TEXTS = (exp.DPipe, exp.Concat, exp.Lower, exp.Upper, exp.Trim, exp.Substring, exp.Left, exp.Right)
_CHOICES = (exp.Coalesce, exp.Greatest, exp.Least, exp.Nullif)
_BOOLEANS = {"true": True, "t": True, "false": False, "f": False}
_FORMS: dict[Kind, str] = {
    "integer": "a number",
    "number": "a number",
    "boolean": "true or false",
    "date": "a date such as '2025-01-31'",
}
_DAY = "(?:0?[1-9]|[12][0-9]|3[01])"
_LATE_YEAR = re.compile(rf"\s*{_DAY}([./-])(?:{_DAY}|[A-Za-z]{{3}})\1(?:\d{{4}}|\d{{2}})(?!\d)")
TYPES: dict[str, pa.DataType] = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.timestamp("us"),
    "day": pa.date32(),
}
"""The types of columns and parameters by their kinds; "day" is a date without a clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The columns of an answer, each with its name and type, and the types of `$1`, `$2`, ..."""

    columns: tuple[tuple[str, pa.DataType], ...]
    parameters: tuple[pa.DataType, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns as a schema."""
        return pa.schema(list(self.columns))


def settle(node: exp.Expr, relation: Relation) -> exp.Expr:
    """`node` with its constants as what they meet, changed in place; returns what stands there now."""
    holder = node.parent is None
    parent = exp.Paren(this=node) if node.parent is None else node.parent
    key, index = node.arg_key or "this", node.index
    for part in reversed(list(node.dfs())):
        match part:
            case exp.EQ() | exp.NEQ() | exp.GT() | exp.GTE() | exp.LT() | exp.LTE():
                _settle_pair(part, relation)
            case exp.Between():
                kind = kind_of(part.this, relation)
                for name in ("low", "high"):
                    _convert(part.args[name], kind, part.this, relation)
                    _refuse_text_order(part.args[name], part.this, relation)
            case exp.In() if part.expressions:
                _settle_list(part, relation)
            case exp.Cast() if part.this.meta.get(PARAMETER) is not None:
                _convert(part.this, CAST_KINDS.get(part.to.this.name, "text"), part, relation)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.IntDiv() | exp.Mod():
                for one, other in ((part.this, part.expression), (part.expression, part.this)):
                    if kind_of(one, relation) in ("integer", "number") and not _is_constant(one):
                        _convert(other, "number", one, relation)
            case exp.Coalesce() | exp.Greatest() | exp.Least() | exp.Nullif():
                parts = list(part.iter_expressions())
                kinds = [kind_of(each, relation) for each in parts if not _is_constant(each)]
                for each in parts if kinds else ():
                    if _is_constant(each) and kinds[0] != "text":
                        _convert(each, kinds[0], parts[0], relation)
    found: exp.Expr = parent.args[key] if index is None else parent.args[key][index]
    return found.pop() if holder else found


def kind_of(node: exp.Expr, relation: Relation) -> Kind:
    """The kind of the values of an expression, as far as its form tells."""
    match node:
        case exp.Column():
            return relation.field(node).kind
        case exp.Paren():
            return kind_of(node.this, relation)
        case exp.Cast():
            return CAST_KINDS.get(node.to.this.name, "unknown")
        case exp.TimestampTrunc():
            return "date"
        case exp.Literal():
            return "text" if node.is_string else "number"
        case exp.TimeToStr():
            return "text"
        case exp.Case():
            results = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
            kinds = [kind_of(each, relation) for each in results if each is not None]
            return next((kind for kind in kinds if kind != "unknown"), "unknown")
        case exp.Predicate() | exp.And() | exp.Or() | exp.Not() | exp.Boolean():
            return "boolean"
    if isinstance(node, (*_WHOLE, exp.Length)):
        return "integer"
    if isinstance(node, _TEXTS):
        return "text"
    if isinstance(node, _CHOICES):
        kinds = [kind_of(each, relation) for each in node.iter_expressions()]
        return next((kind for kind in kinds if kind != "unknown"), "unknown")
    if isinstance(node, _NUMBERS):
        kinds = [kind_of(each, relation) for each in node.iter_expressions()]
        if "date" in kinds and node.find(exp.Interval):
            return "date"
        return "number" if all(kind in ("integer", "number", "text") for kind in kinds) else "unknown"
    return "number" if isinstance(node, _MEASURED) else "unknown"


def require_number(operand: exp.Expr, relation: Relation, name: str) -> None:
    """Refuses an operand of the aggregate `name` that holds no numbers, by public types."""
    kind = kind_of(operand, relation)
    if kind == "date":
        raise refuse(f"{name} of dates takes a public range; bounds are chosen for numbers")
    column = operand if isinstance(operand, exp.Column) else None
    # In a file of text numbers are text, too; elsewhere it is known beforehand that there are none.
    if kind == "text" and (column is None or not relation.field(column).written):
        raise refuse(
            f"{name} of text, and bounds are chosen for numbers; if it holds numbers, write "
            f"CAST({operand.name or 'column'} AS DOUBLE); MODE and COUNT(DISTINCT ...) are answered of text"
        )


def is_day(node: exp.Expr, relation: Relation) -> bool:
    """Whether an expression of kind date gives days, not moments."""
    match node:
        case exp.Paren():
            return is_day(node.this, relation)
        case exp.Column():
            kind = relation.field(node).type
            return kind is not None and pa.types.is_date(kind)
        case exp.Cast():
            return bool(node.to.this.name == "DATE")
        case _:
            return False


def parameter_type(stand: exp.Expr) -> pa.DataType:
    """The type that was found for a parameter; text if nothing says what it is."""
    found = TYPES[stand.meta.get("kind", "text")]
    return pa.list_(found) if stand.meta.get("listed") else found


def stands_for(types: Sequence[pa.DataType | None]) -> list[exp.Expr | None]:
    """For every parameter whose type was declared, a value of that type."""

    def stand(kind: pa.DataType) -> exp.Expr | None:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return from_python(1)
        return exp.true() if pa.types.is_boolean(kind) else None

    return [None if kind is None else stand(kind) for kind in types]


def kinds_of_parameters(
    found: Sequence[pa.DataType], declared: Sequence[pa.DataType | None]
) -> tuple[pa.DataType, ...]:
    """The types of parameters: as they were declared, else as they were found."""
    known = [*declared, *([None] * len(found))][: max(len(found), len(declared))]
    return tuple(
        kind if kind is not None else found[place] if place < len(found) else TYPES["text"]
        for place, kind in enumerate(known)
    )


def _is_constant(node: exp.Expr) -> bool:
    return isinstance(node, (exp.Literal, exp.Boolean, exp.Null)) or (
        isinstance(node, (exp.Neg, exp.Cast, exp.Paren)) and _is_constant(node.this)
    )


def _settle_pair(part: exp.Expr, relation: Relation) -> None:
    left, right = part.this, part.expression
    if _is_constant(left) == _is_constant(right):
        return
    if _is_constant(left):
        mirrored = MIRRORED[type(part)](this=right, expression=left)
        part.replace(mirrored)
        part, left, right = mirrored, right, left
    _convert(right, kind_of(left, relation), left, relation)
    if isinstance(part, (exp.EQ, exp.NEQ)):
        _refuse_misspelt(right, left, relation)
    else:
        _refuse_text_order(right, left, relation)


def _settle_list(part: exp.In, relation: Relation) -> None:
    if _is_constant(part.this) or not all(map(_is_constant, part.expressions)):
        return
    kind = kind_of(part.this, relation)
    for each in list(part.expressions):
        _convert(each, kind, part.this, relation)
        _refuse_misspelt(each, part.this, relation)
    if any(each.find(exp.Literal) and _stands(each) for each in part.expressions):
        return
    found = {each.sql(dialect="duckdb"): each for each in part.expressions}
    listed = [found[text] for text in sorted(found, key=lambda text: (len(text), text))]
    if len(listed) == 1:
        part.replace(exp.EQ(this=part.this, expression=listed[0]))
    else:
        part.set("expressions", listed)


def _refuse_misspelt(node: exp.Expr, beside: exp.Expr, relation: Relation) -> None:
    """Refuses a text that is nearly a listed value of its column: it would be paid for in vain."""
    if not isinstance(beside, exp.Column) or not isinstance(node, exp.Literal) or _stands(node):
        return
    meant = find_misspelt(node.name, relation.field(beside)) if node.is_string else None
    if meant is not None:
        raise refuse(
            f"{node.name[:80]!r} is not among the listed values of {beside.name[:80]!r}; did you mean "
            f"{meant!r}? For records that are written so all the same: LIKE in place of ="
        )


def _refuse_text_order(node: exp.Expr, beside: exp.Expr, relation: Relation) -> None:
    """Refuses the order of dates that are not written from the year on: that of their letters is another."""
    if not isinstance(beside, exp.Column) or not isinstance(node, exp.Literal) or not node.is_string:
        return
    field = relation.field(beside)
    if field.kind == "text" and field.column is None and _LATE_YEAR.match(node.name) and not _stands(node):
        name = beside.name[:80]
        raise refuse(
            f"{name!r} is text, and {node.name[:40]!r} would be compared with it letter by letter, not as a "
            "date; describe the column in the project file, such as "
            f'{quote_key(name)} = {{ range = ["2019-01-01", "2025-12-31"], format = "%m/%d/%Y" }}, and write '
            "DATE '2025-01-31'"
        )


def _stands(node: exp.Expr) -> bool:
    return any(each.meta.get(PARAMETER) is not None for each in node.walk())


def _convert(node: exp.Expr, kind: Kind, beside: exp.Expr, relation: Relation) -> None:
    """Makes a constant one of `kind`, in place; `beside` is what it meets."""
    if not _is_constant(node):
        return
    if _stands(node):
        _fill_in(node, "day" if kind == "date" and is_day(beside, relation) else kind)
        return
    try:
        value = fold(node, EPOCH)
    except NotConstant:
        return
    found: Value = value
    match kind:
        case "integer" | "number" if isinstance(value, str):
            found = read_number(value)
        case "boolean" if isinstance(value, str):
            found = _BOOLEANS.get(value.strip().lower())
        case "date" if isinstance(value, str):
            found = read_moment(value)
            if found is None and not is_dated(value):
                return  # the database knows more ways of writing, and refuses what it does not know
        case "date" | "integer" | "number":
            pass
        case _:
            return
    if found is None and value is not None:
        raise refuse(
            f"the constant {node.sql(dialect='duckdb')[:80]} cannot be read as what it is compared with"
            f", {_FORMS[kind]}"
        )
    if isinstance(found, datetime) and found.time() == time():
        found = found.date()
    if isinstance(found, (bool, Fraction, date)):
        written = write(found)
        if written != node:
            node.replace(written)


def _fill_in(node: exp.Expr, kind: str) -> None:
    """A value of its kind for a parameter that has none yet."""
    stand = next(each for each in node.walk() if each.meta.get(PARAMETER) is not None)
    if "kind" in stand.meta or kind == "unknown":
        return
    stand.meta["kind"] = kind
    if kind in ("integer", "number"):
        stand.set("this", "1")
        stand.set("is_string", value=False)
    elif kind == "boolean":
        stand.set("this", "true")
    elif kind in ("date", "day"):
        stand.set("this", "2000-01-01")


def find_misspelt(text: str, field: Field) -> str | None:
    """The listed value that `text` is nearly, if it is none of them: in another case, or a word misspelt.

    Codes with digits are near each other without being meant for each other. What was drafted from
    data is not told.
    """
    domain = None if field.column is None or field.is_drafted else field.column.domain
    if not isinstance(domain, Values) or text in domain.values or domain.size > _MOST_COMPARED:
        return None
    folded = {str(value).strip().casefold(): value for value in domain.values if isinstance(value, str)}
    plain = text.strip().casefold()
    words = [each for each in folded if len(each) >= _SHORTEST_WORD and not re.search(r"[0-9]", each)]
    near = difflib.get_close_matches(plain, words, n=1, cutoff=0.8) if not re.search(r"[0-9]", plain) else []
    found = folded.get(plain) or (folded[near[0]] if near else None)
    return None if found is None else str(found)


def field_type(field: Field) -> pa.DataType:
    """The type of a column as a plain table would have it."""
    if field.kind in ("date", "unknown") and field.type is not None:
        return field.type
    return TYPES.get(field.kind, pa.string())


def shown_type(field: Field) -> pa.DataType:
    """The type that a column of people's records has in answers: that of its public labels, if it has any."""
    labels = field.labels if field.column is None else field.column.labels
    if field.kind == "boolean":
        return pa.string()
    if labels:
        return pa.string() if isinstance(labels[0], str) else pa.int64()
    # Rows within bounds are drawn from bins between them.
    drawn = field.kind == "integer" and field.bounds is not None and not field.counted
    return pa.float64() if drawn else field_type(field)


def qualify(node: exp.Expr, relation: Relation, *, where: str) -> exp.Expr:
    """A checked copy of `node` in which every column says which relation it comes from.

    The constants of `node` itself are settled, so that the text of a plan shows them as they are meant.
    """
    check_scalar(node, where=where)
    node = settle(node, relation)
    for test in list(node.find_all(exp.Is)):
        column = test.this.unnest()
        unit = isinstance(column, exp.Column) and relation.field(column).is_unit and not relation.joined
        if unit and isinstance(test.expression, exp.Null) and test.parent is not None:
            test.replace(exp.Boolean(this=False))  # records of nobody are left out
    for condition in list_untold_conditions(node):
        _require_condition(condition, relation, where=where)

    def name_table(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column):
            return part
        alias, found = relation.find(part)
        return exp.column(found.name, table=alias, quoted=True)

    return node.copy().transform(name_table)


def qualify_condition(node: exp.Expr, relation: Relation, *, where: str) -> exp.Expr:
    """A checked and qualified copy of `node`, which must be true or false by its form."""
    condition = qualify(node, relation, where=where)
    _require_condition(condition, relation, where=where)
    return condition


def _require_condition(node: exp.Expr, relation: Relation, *, where: str) -> None:
    """Refuses what is not true or false by its form.

    Text or a number in the place of a condition would be converted, and the conversion can fail.
    """
    node = node.unnest()
    flag = isinstance(node, exp.Column) and relation.field(node).kind == "boolean"
    if not flag and not is_condition(node):
        raise refuse(f"{where} takes {node.sql()[:60]!r} for a condition; compare it with something")
