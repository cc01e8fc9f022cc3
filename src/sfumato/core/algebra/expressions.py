"""Expressions over one record: the allow-list, and the form of them that never fails.

An allowed expression has a value for a record that depends on that record and on constants alone: on no
other record, no file, no clock and no chance. Whoever hands an expression to the core is not trusted to have
looked: `check_expression` is called on whatever the core is given, and what runs is written from that tree.
Proof: docs/proofs/algebra.md, claims 1 and 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

import sqlglot
from sqlglot import exp

from sfumato.core.errors import refuse

_Tree = TypeVar("_Tree", bound=exp.Expr)

Kind = Literal["integer", "number", "text", "boolean", "date", "unknown"]

CAST_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), "integer"),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), "number"),
    **dict.fromkeys(("TEXT", "VARCHAR"), "text"),
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMPNTZ"), "date"),
    "BOOLEAN": "boolean",
}
"""The types that a cast may name, and the kind of what it gives."""

DATE_PARTS = {
    **dict.fromkeys(("YEAR", "EPOCH"), range(0)),
    "QUARTER": range(1, 5),
    "MONTH": range(1, 13),
    "DAY": range(1, 32),
    **dict.fromkeys(("DOW", "DAYOFWEEK"), range(7)),
    "ISODOW": range(1, 8),
    "HOUR": range(24),
    **dict.fromkeys(("MINUTE", "SECOND"), range(60)),
    **dict.fromkeys(("WEEK", "WEEKOFYEAR"), range(1, 54)),
    **dict.fromkeys(("DOY", "DAYOFYEAR"), range(1, 367)),
}
"""The parts of a date and the numbers that they take, which are public; none for a year and an epoch."""

TRUNCATED = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY")
"""The periods that DATE_TRUNC takes."""

_ALLOWED: frozenset[type[exp.Expr]] = frozenset(
    (
        *(exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Boolean, exp.Null, exp.Var),
        *(exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Round, exp.Sqrt, exp.Abs),
        *(exp.And, exp.Or, exp.Not, exp.Between, exp.In, exp.Is),
        *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.StartsWith),
        *(exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least),
        *(exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.IsNan),
        *(exp.IntDiv, exp.Mod, exp.Floor, exp.Ceil, exp.Ln, exp.Log, exp.Exp, exp.Pow, exp.Sign, exp.Trunc),
        *(exp.DPipe, exp.Concat, exp.Lower, exp.Upper, exp.Trim, exp.Length, exp.Substring, exp.Left),
        *(exp.Right, exp.RegexpLike, exp.RegexpILike, exp.StrPosition),
        *(exp.Year, exp.Quarter, exp.Month, exp.Day, exp.DayOfWeek, exp.Hour, exp.Minute, exp.Extract),
        *(exp.Week, exp.WeekOfYear, exp.DayOfYear, exp.Second, exp.TimestampTrunc, exp.TimeToStr),
        *(exp.Interval, exp.UnixToTime),
    )
)

# The arguments that a node may have besides `this`, `expression` and `expressions`. Others would be
# written by the dialect's generator in ways that are not looked at here.
_ARGUMENTS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Between: frozenset(("low", "high")),
    exp.Case: frozenset(("ifs", "default")),
    exp.Cast: frozenset(("to",)),
    exp.Column: frozenset(("table",)),
    exp.If: frozenset(("true", "false")),
    exp.Interval: frozenset(("unit",)),
    exp.Round: frozenset(("decimals",)),
    exp.StrPosition: frozenset(("substr",)),
    exp.Substring: frozenset(("start", "length")),
    exp.TimestampTrunc: frozenset(("unit",)),
    exp.TimeToStr: frozenset(("format",)),
    exp.TryCast: frozenset(("to",)),
}
_ALWAYS = frozenset(("this", "expression", "expressions"))

_NUMBER = re.compile(r"[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?")
_WORD = re.compile(r"[A-Za-z_]{1,30}")
_NAME = re.compile(r"\w+")
_SETTINGS = ("current_setting", "getenv", "getvariable", "query", "query_table", "pg_sleep", "sleep_ms")
_TOLD = (exp.Summarize, exp.Describe)
_CHANGES = (exp.Command, exp.DDL, exp.DML, exp.Pragma, exp.Set, exp.Placeholder, exp.Parameter, *_TOLD)
_READ = (exp.Query, exp.Table, exp.Values, exp.Unnest, exp.Pivot)
_READING = (exp.CTE, exp.From, exp.Join, exp.Lateral, exp.Subquery, exp.Pivot)
_NUMBERS = re.compile(r"\[[0-9]+(?:, [0-9]+)*\]")
_FAR = re.compile(r"[eE][+-]?[0-9]{4,}$")
_LONGEST = 1000  # characters of a constant, and of a text that a statement puts together
_LONGEST_PATTERN = 100


def check_expression(tree: exp.Expr, *, where: str) -> None:
    """Raises a refusal unless `tree` is an expression over one record, in a form that is written safely.

    Every column must say which relation it comes from.
    """
    for part in tree.walk():
        check_part(part, where)
        _check_written(part, where)


def check_public(text: str, names: Iterable[str]) -> None:
    """Raises a refusal if a query in text reads anything but the public tables of these names.

    What runs is the text, so that it is the text that is read here: no table but by a plain name, no function
    in the place of a table, no setting, nothing that changes or goes on without an end.
    """
    tree = sqlglot.parse_one(text, read="duckdb")
    if not isinstance(tree, exp.Query):
        raise refuse("what is no query, beside public tables")
    made = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    # A name that is looked for in vain is taken for that of a file.
    known = {name.lower() for name in names} | {name for name in made if _NAME.fullmatch(name)}
    for part in tree.walk():
        if isinstance(part, exp.Table):
            plain = isinstance(part.this, exp.Identifier) and not part.args.get("db")
            if not plain or part.name.lower() not in known:
                raise refuse(f"no public table {part.sql()[:60]!r}; public tables are read by their names")
        source = part.this if isinstance(part, _READING) else None
        if source is not None and not isinstance(source, (*_READ, exp.Lateral)):
            # A function after LATERAL, or SUMMARIZE, would read a file of any name.
            raise refuse(
                f"{source.sql()[:60]!r} in the place of a public table; they are read by their names"
            )
        settings = isinstance(part, exp.Anonymous) and part.name.lower() in _SETTINGS
        if settings or isinstance(part, _CHANGES) or part.args.get("recursive"):
            raise refuse("WITH RECURSIVE, or what changes something or reads settings, beside public tables")


def is_allowed(part: exp.Expr) -> bool:
    """Whether a node is of an allowed kind; its details are looked at by `check_part`."""
    return type(part) in _ALLOWED


def check_part(part: exp.Expr, where: str) -> None:
    """Raises a refusal if one node is of no allowed kind, or has arguments that are not."""
    if isinstance(part, exp.Anonymous) and _is_ours(part):
        return
    if not is_allowed(part):
        name = part.name if isinstance(part, exp.Anonymous) else part.key
        raise refuse(f"{where} uses {name.upper()[:60]}, which is not among the allowed functions")
    match part:
        case exp.Literal() if len(part.this) > _LONGEST or (part.is_number and _FAR.search(part.this)):
            raise refuse(f"{where} holds a literal of more than {_LONGEST} characters or a far exponent")
        case exp.DataType():
            plain = all(isinstance(each, exp.DataTypeParam) for each in part.expressions)
            if not isinstance(part.this, exp.DataType.Type) or part.this.name not in CAST_KINDS or not plain:
                known = ", ".join(sorted(CAST_KINDS))
                raise refuse(f"{where} casts to {part.sql()[:40]}, which is not among {known}")
        case exp.Extract() if part.name.upper() not in DATE_PARTS:
            known = ", ".join(sorted(DATE_PARTS))
            raise refuse(f"{where} extracts {part.name[:40]!r}; known parts: {known}")
        case exp.In() if part.args.get("query") or part.args.get("unnest"):
            raise refuse(f"{where} uses IN with a subquery; join the tables instead")
        case exp.Like() | exp.ILike():
            _check_pattern(part.expression, where)
        case exp.RegexpLike() | exp.RegexpILike():
            _check_regular(part, where)
        case exp.TimestampTrunc() if part.text("unit").upper() not in TRUNCATED:
            raise refuse(f"{where} truncates to {part.text('unit')[:40]!r}; known: {', '.join(TRUNCATED)}")
        case exp.TimeToStr() if not part.args["format"].is_string:
            raise refuse(f"{where} writes dates by a format that is no text in quotes")
        case exp.UnixToTime() if part.args.get("scale") is not None:
            raise refuse(f"{where} reads moments by a format, which is for constants; use CAST")
        case exp.StrPosition() if part.args.get("position") or part.args.get("occurrence"):
            raise refuse(f"{where} uses POSITION with a place to begin at")
        case exp.Trunc() if part.args.get("decimals") is not None:
            raise refuse(f"{where} uses TRUNC with decimals; use ROUND")
        case exp.Interval() if not isinstance(part.this, exp.Literal):
            raise refuse(f"{where} uses an INTERVAL that is no constant")
        case exp.Column() if part.args.get("db"):
            raise refuse(f"{where} names a column by catalog or schema; use table.column")


def _is_ours(part: exp.Anonymous) -> bool:
    """Whether a call is one of the two functions that the planner writes for dates and lists of labels."""
    name, given = part.this, part.expressions
    if name == "epoch_us":
        return len(given) == 1
    return name == "list_extract" and len(given) == 2 and isinstance(given[0], exp.Var)


def _check_written(part: exp.Expr, where: str) -> None:
    """Raises a refusal for a node whose text could be more than it says.

    Names are written in quotes, and numbers and bare words must look as such: otherwise a tree that was put
    together by hand could hold any SQL.
    """
    known = _ALWAYS | _ARGUMENTS.get(type(part), frozenset())
    safe = True
    for name, value in part.args.items():
        if isinstance(value, exp.Expr) or (isinstance(value, list) and value):
            parts = value if isinstance(value, list) else [value]
            safe &= name in known and all(isinstance(each, exp.Expr) for each in parts)
        elif value not in (None, False, True, []):
            safe &= _is_plain(part, name, value)
    if isinstance(part, exp.Identifier):
        safe &= bool(part.quoted) and "\x00" not in part.this
    if isinstance(part, exp.Column):
        safe &= isinstance(part.this, exp.Identifier) and isinstance(part.args.get("table"), exp.Identifier)
    if not safe or part.comments:
        raise refuse(f"{where} holds {part.key.upper()} in a form that is not read")


def _is_plain(part: exp.Expr, name: str, value: object) -> bool:
    """Whether a text inside a node is one that is written as it is meant."""
    match part:
        case exp.Identifier() | exp.Literal(is_string=True) if name == "this":
            return isinstance(value, str)
        case exp.Literal() if name == "this":
            return isinstance(value, str) and any(map(str.isdigit, value)) and bool(_NUMBER.fullmatch(value))
        case exp.Var() if name == "this":
            listed = isinstance(part.parent, exp.Anonymous) and _NUMBERS.fullmatch(str(value))
            return bool(listed) or bool(_WORD.fullmatch(str(value)))
        case exp.DataType() if name == "this":
            return True
        case exp.Anonymous() if name == "this":
            return _is_ours(part)
        case exp.Trim() if name == "position":
            return value in ("LEADING", "TRAILING", "BOTH")
    return False


def _check_pattern(pattern: exp.Expr, where: str) -> None:
    """Refuses patterns whose matching takes a time that grows with a power of the text's length."""
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise refuse(f"{where} uses LIKE with a pattern that is no text in quotes")
    runs = len(re.findall("%+", pattern.this))
    if runs > (2 if "_" in pattern.this else 8):
        raise refuse(f"{where} uses LIKE with more than 8 times %, or more than twice beside _")


def _check_regular(part: exp.Expr, where: str) -> None:
    """Refuses regular expressions that are not short constants; matching one is linear in the text."""
    pattern = part.expression
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or part.args.get("flag") is not None:
        raise refuse(f"{where} uses a regular expression that is no text in quotes")
    counted = re.findall(r"\{[0-9,]*\}", pattern.this)
    if len(pattern.this) > _LONGEST_PATTERN or any(
        int(n) > 20 for c in counted for n in re.findall("[0-9]+", c)
    ):
        raise refuse(
            f"{where} uses a regular expression of more than {_LONGEST_PATTERN} characters, or with counts "
            "beyond 20"
        )


_TRUE_OR_FALSE = (exp.Predicate, exp.And, exp.Or, exp.Not, exp.Boolean, exp.Null, exp.StartsWith, exp.IsNan)


def list_untold_conditions(tree: exp.Expr) -> Iterator[exp.Expr]:
    """What stands for a condition inside `tree`, and is not true or false by its form."""
    for part in tree.walk():
        parts: list[exp.Expr] = []
        if isinstance(part, (exp.And, exp.Or)):
            parts = [part.this, part.expression]
        elif isinstance(part, exp.Case) and part.this is None:
            parts = [branch.this for branch in part.args["ifs"]]
        elif isinstance(part, exp.Not) or (
            isinstance(part, exp.If) and not isinstance(part.parent, exp.Case)
        ):
            parts = [part.this]
        yield from (each for each in parts if not is_condition(each))


def is_condition(node: exp.Expr) -> bool:
    """Whether a node is true or false by its form."""
    node = node.unnest()
    cast = isinstance(node, exp.Cast) and node.to.this.name == "BOOLEAN"
    return cast or isinstance(node, _TRUE_OR_FALSE)


def make_total(tree: exp.Expr) -> exp.Expr:
    """Return the expression with every operation that could fail made NULL where it does.

    Each operation is wrapped by itself. Around a whole condition it would not do: the engine leaves out
    what the smallest and largest value of a column decide, and so one record could decide whether the
    rest is evaluated, and fails, for all the others.
    """
    tree = exp.Paren(this=tree.copy())
    for node in reversed(list(tree.dfs())):
        if isinstance(node, (exp.DPipe, exp.Concat)):
            # Texts that double again and again would grow until memory ends, for whoever has one.
            cut = exp.Left(this=node.copy(), expression=exp.Literal.number(_LONGEST))
            node.replace(exp.Anonymous(this="TRY", expressions=[cut]))
        elif isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            node.replace(exp.TryCast(this=node.this.copy(), to=node.args["to"].copy()))
        elif isinstance(node, (exp.Binary, exp.Func, exp.Neg, exp.In, exp.Between)) and not isinstance(
            node, (exp.And, exp.Or, exp.Case, exp.If, exp.TryCast, exp.Anonymous)
        ):
            node.replace(exp.Anonymous(this="TRY", expressions=[node.copy()]))
    inner: exp.Expr = tree.this
    return exp.Anonymous(this="TRY", expressions=[inner.copy()])


def shield(tree: _Tree) -> _Tree:
    """Return the tree with every text that ends in a colon no moment and no date, as in `encode`.

    There DuckDB would look at one character more, which is of another record.
    """
    for node in reversed(list(tree.find_all(exp.Cast))):
        if node.to.this.name.startswith(("TIMESTAMP", "DATE")):
            text = f"CAST({node.this.sql(dialect='duckdb')} AS VARCHAR)"
            guarded = f"CASE WHEN NOT ends_with({text}, ':') THEN {node.sql(dialect='duckdb')} END"
            node.replace(sqlglot.parse_one(guarded, read="duckdb"))
    return tree
