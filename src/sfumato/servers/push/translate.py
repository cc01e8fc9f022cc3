"""Expressions of a statement in the words of a server."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp

from sfumato.core.engine.encode import connect
from sfumato.core.facts.table import UNIT, code_name
from sfumato.servers.push.words import Pushed, PushedKind, UnpushedError, Words

_SMALL, _WIDE = 2**31 - 1, 2**62  # what arithmetic of whole numbers may reach
_FIRST_DAY, _LAST_DAY = -700_000, 2_900_000  # the years 54 to 9909, which every engine writes alike
_DAY_MICROSECONDS = 86_400_000_000
# Of so few digits that a whole number is compared with it exactly.
_DECIMAL = re.compile(r"[0-9]{1,8}\.[0-9]{1,7}")
_ESCAPES = [chr(place) for place in range(0x4E00, 0x5200)]  # more than a pattern has signs
_KNOWN_ARGUMENTS = {
    *("this", "expression", "expressions", "table", "low", "high", "ifs", "default", "true", "is_string"),
    *("negate", "to"),
}
_COMPARED: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_ARITHMETIC: dict[type[exp.Expr], tuple[str, Callable[[int, int], int]]] = {
    exp.Add: ("+", operator.add),
    exp.Sub: ("-", operator.sub),
    exp.Mul: ("*", operator.mul),
}
_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Day: "DAY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
    exp.DayOfYear: "DOY",
}
_PART_BOUNDS = {
    "YEAR": (-(2**23), 2**23),
    "QUARTER": (1, 4),
    "MONTH": (1, 12),
    "DAY": (1, 31),
    "ISODOW": (1, 7),
    "DOY": (1, 366),
    "HOUR": (0, 23),
    "MINUTE": (0, 59),
    "DOW": (0, 6),
    "DAYOFWEEK": (0, 6),
    "WEEK": (1, 53),
    "WEEKOFYEAR": (1, 53),
    "EPOCH_US": (-(2**61), 2**61),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names of one select list stand for, and the conditions under it."""

    names: Callable[[str], exp.Expr | None]
    inner: Scope | None
    conditions: tuple[str, ...]
    words: Words

    def code_of(self, tree: exp.Expr) -> str | None:
        """The described column whose code a tree is, or None if it is something else."""
        scope: Scope | None = self
        while isinstance(tree, exp.Column) and scope is not None:
            if scope.inner is None:
                start = code_name("")
                return tree.name[len(start) :] if tree.name.startswith(start) else None
            found = scope.names(tree.name)
            if found is None:
                raise UnpushedError
            tree, scope = found, scope.inner
        return None

    def translate(self, tree: exp.Expr) -> Pushed:
        """The tree as the server spells it."""
        if any(value for name, value in tree.args.items() if name not in _KNOWN_ARGUMENTS):
            # Such as SYMMETRIC: what is not known here may turn the meaning around.
            raise UnpushedError
        match tree:
            case exp.Paren():
                found = self.translate(tree.this)
                return Pushed(f"({found.sql})", found.kind, found.ends, found.wide)
            case exp.Column():
                return self._name(tree)
            case exp.And() | exp.Or():
                word = "AND" if isinstance(tree, exp.And) else "OR"
                parts = [self._condition(each) for each in (tree.this, tree.expression)]
                return Pushed(f"({parts[0]} {word} {parts[1]})", "boolean")
            case exp.Not():
                return Pushed(f"(NOT {self._condition(tree.this)})", "boolean")
            case exp.Is() if isinstance(tree.expression, exp.Null):
                word = "IS NOT NULL" if tree.args.get("negate") else "IS NULL"
                return Pushed(f"({self.translate(tree.this).sql} {word})", "boolean")
            case exp.Between():
                parts = self._alike([tree.this, tree.args["low"], tree.args["high"]])
                return Pushed(f"({parts[0]} BETWEEN {parts[1]} AND {parts[2]})", "boolean")
            case exp.In() if tree.expressions and not tree.args.get("query") and not tree.args.get("unnest"):
                first, *listed = self._alike([tree.this, *tree.expressions])
                return Pushed(f"({first} IN ({', '.join(listed)}))", "boolean")
            case exp.Like():
                return self._match(tree)
            case exp.Case() if tree.this is None:
                return self._choose(tree)
            case exp.Boolean():
                return Pushed("TRUE" if tree.this else "FALSE", "boolean")
            case exp.Null():
                return Pushed("NULL", "null")
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._compute(tree)
            case exp.IntDiv():
                return self._divide(tree)
            case exp.Anonymous() if tree.name.upper() == "EPOCH_US":
                return self._extract(tree, "EPOCH_US", tree.expressions[0])
        if type(tree) in _COMPARED:
            one, other = self._alike([tree.this, tree.expression])
            return Pushed(f"({one} {_COMPARED[type(tree)]} {other})", "boolean")
        if isinstance(tree, exp.Extract):
            return self._extract(tree, tree.name.upper(), tree.expression)
        if type(tree) in _PARTS:
            return self._extract(tree, _PARTS[type(tree)], tree.this)
        whole = _read_whole(tree)
        if whole is not None:
            return Pushed(str(whole) if whole >= 0 else f"({whole})", "integer", (whole, whole))
        if isinstance(tree, exp.Literal) and tree.is_string:
            return Pushed(self._text(tree), "text")
        raise UnpushedError

    def _name(self, tree: exp.Column) -> Pushed:
        if self.inner is not None:
            found = self.names(tree.name)
            if found is None:
                raise UnpushedError
            return self.inner.translate(found)
        if tree.name == UNIT:
            raise UnpushedError
        start = code_name("")
        if tree.name.startswith(start):
            return Pushed(self.words.code(tree.name[len(start) :]), "integer")
        return self.words.value(tree.name)

    def _condition(self, tree: exp.Expr) -> str:
        found = self.translate(tree)
        if found.kind not in ("boolean", "null"):
            raise UnpushedError
        return found.sql

    def _alike(self, trees: list[exp.Expr]) -> list[str]:
        """Operands that are compared, each in the type in which DuckDB compares them."""
        constants = [_is_constant(each) for each in trees]
        given = [
            None if known else self.translate(each) for each, known in zip(trees, constants, strict=True)
        ]
        kinds = {each.kind for each in given if each is not None}
        if len(kinds) != 1:
            raise UnpushedError
        (kind,) = kinds
        return [
            self._constant(tree, kind) if found is None else found.sql
            for tree, found in zip(trees, given, strict=True)
        ]

    def _constant(self, tree: exp.Expr, kind: PushedKind) -> str:
        """A constant as DuckDB converts it to what it is compared with."""
        while isinstance(tree, exp.Paren):
            tree = tree.this
        if isinstance(tree, exp.Null):
            raise UnpushedError
        match kind:
            case "boolean" if isinstance(tree, exp.Boolean):
                return "TRUE" if tree.this else "FALSE"
            case "text" if isinstance(tree, exp.Literal) and tree.is_string:
                return self._text(tree)
            case "integer":
                whole = _read_whole(tree)
                number = tree.this if isinstance(tree, exp.Neg) else tree
                if whole is None and not (
                    isinstance(number, exp.Literal) and _DECIMAL.fullmatch(str(number.this))
                ):
                    raise UnpushedError
                sign = "-" if isinstance(tree, exp.Neg) else ""
                return f"({sign}{number.this})" if whole is None else f"({whole})"
            case "double" if _is_number(tree):
                return self.words.spell_double(_evaluate(f"CAST({tree.sql(dialect='duckdb')} AS DOUBLE)"))
            case "date" | "timestamp" if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal):
                return self._moment(tree, kind)
        raise UnpushedError

    def _moment(self, tree: exp.Cast, kind: PushedKind) -> str:
        named = tree.to.this.name
        if named not in ("DATE", "TIMESTAMP", "TIMESTAMPNTZ") or (kind == "date" and named != "DATE"):
            raise UnpushedError
        found = _evaluate(f"epoch_us(CAST({tree.sql(dialect='duckdb')} AS TIMESTAMP))")
        if not _FIRST_DAY * _DAY_MICROSECONDS <= found <= _LAST_DAY * _DAY_MICROSECONDS:
            raise UnpushedError
        if kind == "date":
            return self.words.spell_day(found // _DAY_MICROSECONDS)
        return self.words.spell_moment(found)

    def _text(self, tree: exp.Literal) -> str:
        if "\x00" in tree.this:
            raise UnpushedError
        return self.words.spell_literal(str(tree.this))

    def _match(self, tree: exp.Like) -> Pushed:
        """LIKE; no sign of a pattern is taken out of its meaning, as in DuckDB."""
        found = self.translate(tree.this)
        if found.kind != "text" or not (
            isinstance(tree.expression, exp.Literal) and tree.expression.is_string
        ):
            raise UnpushedError
        unused = next(sign for sign in _ESCAPES if sign not in tree.expression.this)
        word = "NOT LIKE" if tree.args.get("negate") else "LIKE"
        return Pushed(f"({found.sql} {word} {self._text(tree.expression)} ESCAPE '{unused}')", "boolean")

    def _choose(self, tree: exp.Case) -> Pushed:
        branches = [
            (self._condition(each.this), self.translate(each.args["true"])) for each in tree.args["ifs"]
        ]
        default = tree.args.get("default")
        results = [result for _, result in branches]
        results += [] if default is None else [self.translate(default)]
        kinds = {each.kind for each in results} - {"null"}
        if kinds == {"integer", "double"}:
            # A whole number beside others that are none becomes one of these.
            kinds = {"double"}
            results = [
                each if each.kind != "integer" else Pushed(to_double(each, self.words), "double")
                for each in results
            ]
        if len(kinds) != 1:
            raise UnpushedError
        (kind,) = kinds
        if kind == "text" and any(_is_constant(each.args["true"]) is False for each in tree.args["ifs"]):
            raise UnpushedError
        parts = [
            f"WHEN {test} THEN {result.sql}" for (test, _), result in zip(branches, results, strict=False)
        ]
        parts += [] if default is None else [f"ELSE {results[-1].sql}"]
        known = [each.ends for each in results if each.kind != "null"]
        ends = None
        if kind == "integer" and all(each is not None for each in known):
            ends = (min(each[0] for each in known if each), max(each[1] for each in known if each))
        is_wide = any(each.wide for each in results)
        return Pushed(f"(CASE {' '.join(parts)} END)", kind, ends, is_wide)

    def _compute(self, tree: exp.Expr) -> Pushed:
        """Arithmetic of whole numbers that are known to be small."""
        one, other = self.translate(tree.this), self.translate(tree.expression)
        if one.ends is None or other.ends is None:
            raise UnpushedError
        word, turn = _ARITHMETIC[type(tree)]
        corners = [turn(a, b) for a in one.ends for b in other.ends]
        is_wide = one.wide or other.wide
        if max(map(abs, corners)) > (_WIDE if is_wide else _SMALL):
            raise UnpushedError
        wide = f"CAST({one.sql} AS {self.words.whole})"
        return Pushed(f"({wide} {word} {other.sql})", "integer", (min(corners), max(corners)), is_wide)

    def _divide(self, tree: exp.IntDiv) -> Pushed:
        """Division of a whole number of known range by a constant, cut off towards zero."""
        one, other = self.translate(tree.this), _read_whole(tree.expression)
        if one.kind != "integer" or one.ends is None or other is None or other < 1:
            raise UnpushedError
        ends = (-(-one.ends[0] // other), one.ends[1] // other)
        return Pushed(f"({one.sql} {self.words.divided} {other})", "integer", ends, one.wide)

    def _extract(self, tree: exp.Expr, part: str, of: exp.Expr) -> Pushed:
        found = self.translate(of)
        if part not in _PART_BOUNDS or found.kind not in ("date", "timestamp"):
            raise UnpushedError
        if found.kind == "date" and part in ("HOUR", "MINUTE"):
            raise UnpushedError
        spelled = self.words.spell_part(found.sql, found.kind, part)
        return Pushed(spelled, "integer", _PART_BOUNDS[part], wide=True)


def read_scope(select: exp.Select, words: Words) -> Scope:
    """The scope of a select list that is about to be written over `select`."""
    known = {"from_", "where", "expressions", "kind", "hint", "distinct", "operation_modifiers"}
    if any(value for name, value in select.args.items() if name not in known) or select.args.get("distinct"):
        raise UnpushedError
    source = select.args["from_"].this
    inner: Scope | None = None
    names: dict[str, exp.Expr] = {}
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        inner = read_scope(source.this, words)
        names = {each.alias_or_name.lower(): each.unalias() for each in source.this.expressions}
    elif not isinstance(source, exp.Table):
        raise UnpushedError
    scope = Scope(lambda name: names.get(name.lower()), inner, inner.conditions if inner else (), words)
    where = select.args.get("where")
    if where is None:
        return scope
    condition = scope._condition(where.this)
    return Scope(scope.names, inner, (*scope.conditions, condition), words)


def _is_constant(tree: exp.Expr) -> bool:
    return tree.find(exp.Column) is None and not isinstance(tree, exp.Case)


def _is_number(tree: exp.Expr) -> bool:
    if isinstance(tree, exp.Neg):
        tree = tree.this
    return isinstance(tree, exp.Literal) and bool(tree.is_number)


def _read_whole(tree: exp.Expr) -> int | None:
    sign = 1
    while isinstance(tree, (exp.Neg, exp.Paren)):
        sign, tree = (-sign if isinstance(tree, exp.Neg) else sign), tree.this
    if not (isinstance(tree, exp.Literal) and tree.is_int):
        return None
    whole = sign * int(tree.this)
    if abs(whole) >= 2**63:
        raise UnpushedError
    return whole


@lru_cache(maxsize=4096)
def _evaluate(expression: str) -> Any:  # noqa: ANN401 - a number of any kind
    """A constant as DuckDB computes it."""
    with connect(plainly=True) as connection:
        ((found,),) = connection.execute(f"SELECT {expression}").fetchall()
    if found is None:
        raise UnpushedError
    return found


def to_double(value: Pushed, words: Words) -> str:
    """A number or truth value as a floating number."""
    match value.kind:
        case "double":
            return value.sql
        case "boolean":
            one, zero = words.spell_double(1.0), words.spell_double(0.0)
            return f"(CASE WHEN {value.sql} THEN {one} WHEN NOT {value.sql} THEN {zero} END)"
        case _:
            return f"CAST({value.sql} AS {words.double})"
