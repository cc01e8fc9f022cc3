"""Which statements are aggregated where their table is, and the SQL that a server runs for them.

A plan is pushed down if all its expressions are among those that the server evaluates as DuckDB does, bit for
bit, and that can fail for no record; whether it is follows from the plan and the types of the columns. The
server aggregates the records of all individuals within their bound. Those of the others are fetched, and
DuckDB bounds and aggregates them as it does for files.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from sfumato.core.algebra.measures import Measure
from sfumato.core.algebra.writing import Writer
from sfumato.core.engine.aggregates import TrueAggregates
from sfumato.core.engine.encode import connect, find_interval
from sfumato.core.facts.table import UNIT, code_name
from sfumato.servers.push.words import Pushed, PushedKey, PushedKind, UnpushedError, Words

if TYPE_CHECKING:
    from sfumato.core.algebra.measures import Checked, Query

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
        """Returns the described column whose code a tree is, or None if it is something else."""
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
        """Returns the tree as the server spells it."""
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
        """Returns a constant as DuckDB converts it to what it is compared with."""
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
    """Returns the scope of a select list that is about to be written over `select`."""
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
    """Returns a constant as DuckDB computes it."""
    with connect(plainly=True) as connection:
        ((found,),) = connection.execute(f"SELECT {expression}").fetchall()
    if found is None:
        raise UnpushedError
    return found


def to_double(value: Pushed, words: Words) -> str:
    """Returns a number or truth value as a floating number."""
    match value.kind:
        case "double":
            return value.sql
        case "boolean":
            one, zero = words.spell_double(1.0), words.spell_double(0.0)
            return f"(CASE WHEN {value.sql} THEN {one} WHEN NOT {value.sql} THEN {zero} END)"
        case _:
            return f"CAST({value.sql} AS {words.double})"


_SATURATED = 2**62
EVERYTHING = "TRUE"
"""The condition of a statement without one."""
_MOST_GROUPS = 2**24
"""Groups that may come back from a server."""
_FAR = 10.0**100
"""Bounds beyond this, or closer than its inverse, are left to DuckDB: elsewhere numbers may overflow."""
_LARGEST = 2**40  # what one record may add
_STATISTICS = ("records", "present", "individuals", "sum", "square", "quantile")
_KNOWN = {
    *("rows", "groups", "measures", "max_groups", "max_records"),
    *("statistic", "tree", "low", "high", "centre", "grid", "quantile", "is_number"),
    *("labels", "chosen", "numbered", "private", "edges", "parts", "steps", "whole"),
}
"""What is looked at here of a query and its measures."""


@dataclass(frozen=True, slots=True)
class PushedPlan:
    """The parts of a statement as a server spells them: the individual, a condition, keys and values."""

    unit: str | None
    condition: str
    keys: tuple[PushedKey, ...]
    values: Mapping[int, str]
    totals: Mapping[int, str]
    measures: tuple[Measure, ...]
    most: int

    @property
    def groups(self) -> int:
        """The number of groups."""
        return math.prod(key.size for key in self.keys)

    @property
    def only_counts(self) -> bool:
        """Whether one number of records per individual is all that is needed; then nothing is chosen."""
        counted = all(measure.statistic in ("records", "individuals") for measure in self.measures)
        return self.unit is not None and not self.keys and counted


def push_plan(checked: Checked, words: Words) -> PushedPlan | None:
    """Returns the plan as the server of `words` spells it, or None if it is left to DuckDB.

    Public facts decide.
    """
    try:
        return _push(checked, words)
    except UnpushedError:
        return None


_AMONG = "EXISTS (SELECT 1 FROM beyond WHERE beyond.u = records.u)"


def beyond_query(pushed: PushedPlan, relation: str, *, among: bool = False) -> str:
    """Returns the individuals of more records than may count, of those that the statement keeps.

    With `among`, they are looked for in the relation `beyond` alone.
    """
    return (
        f"SELECT u FROM (SELECT {pushed.unit} AS u FROM {relation} WHERE {pushed.condition}) AS records "
        f"WHERE {_AMONG if among else 'u IS NOT NULL'} GROUP BY u HAVING count(*) > {pushed.most}"
    )


def clipped_query(pushed: PushedPlan, relation: str) -> str:
    """One row for a plan of `only_counts`: records, each individual's up to the bound, and individuals."""
    numbers = (
        f"SELECT u, count(*) AS n FROM (SELECT {pushed.unit} AS u FROM {relation} "
        f"WHERE {pushed.condition}) AS records WHERE u IS NOT NULL GROUP BY u"
    )
    clipped = f"sum(CASE WHEN n < {pushed.most} THEN n ELSE {pushed.most} END)"
    return f"SELECT {clipped} AS records, count(*) AS individuals FROM ({numbers}) AS numbers"


def spread_counts(pushed: PushedPlan, row: tuple[Any, ...]) -> TrueAggregates:
    """Returns the aggregates in the row of `clipped_query`."""
    counted = dict(zip(("records", "individuals"), (int(each or 0) for each in row), strict=True))
    values = (np.array([counted[each.statistic]], np.int64) for each in pushed.measures)
    return TrueAggregates(tuple(values), None, None)


def aggregate_queries(pushed: PushedPlan, relation: str, *, bounded: bool) -> dict[tuple[int, ...], str]:
    """The queries for the measures, by their places: keys, then for a quantile its step, then the numbers.

    With `bounded`, individuals in the relation `beyond` are left out.
    """
    keys = [f"g{place}" for place in range(len(pushed.keys))]
    items = [f"{key.sql} AS g{place}" for place, key in enumerate(pushed.keys)]
    items += [f"{value} AS v{place}" for place, value in pushed.values.items()]
    conditions = [pushed.condition]
    if pushed.unit is not None:
        items.append(f"{pushed.unit} AS u")
    records = f"SELECT {', '.join(items) or '1 AS one'} FROM {relation} WHERE {' AND '.join(conditions)}"
    if pushed.unit is not None:
        kept = "u IS NOT NULL"
        if bounded:
            kept += f" AND NOT {_AMONG}"
        records = f"SELECT * FROM ({records}) AS records WHERE {kept}"
    queries: dict[tuple[int, ...], str] = {}
    sums: dict[int, str] = {}
    for place, measure in enumerate(pushed.measures):
        match measure.statistic:
            case "records":
                sums[place] = "count(*)"
            case "present":
                sums[place] = f"count(v{place})"
            case "sum" | "square":
                sums[place] = pushed.totals[place]
            case "individuals":
                listed = ", ".join([*keys, "u"])
                distinct = f"SELECT {listed} FROM ({records}) AS inside GROUP BY {listed}"
                queries[(place,)] = _grouped(keys, ["count(*) AS a"], distinct)
            case "quantile":
                found = f"SELECT * FROM ({records}) AS inside WHERE v{place} IS NOT NULL"
                queries[(place,)] = _grouped([*keys, f"v{place}"], ["count(*) AS a"], found)
    if sums:
        named = [f"{sql} AS a{place}" for place, sql in sums.items()]
        queries[tuple(sums)] = _grouped(keys, named, records)
    return queries


def collect_aggregates(
    pushed: PushedPlan, answers: Mapping[tuple[int, ...], Iterable[tuple[Any, ...]]]
) -> TrueAggregates:
    """Returns the aggregates in the rows that a server answers with."""
    values: list[NDArray[np.int64]] = [
        np.zeros((pushed.groups, each.steps + 1) if each.statistic == "quantile" else pushed.groups, np.int64)
        for each in pushed.measures
    ]
    width = len(pushed.keys)
    for places, rows in answers.items():
        columns = list(zip(*rows, strict=True))
        if not columns:
            continue
        cells, kept = _find_cells(pushed, columns[:width], len(columns[0]))
        quantile = pushed.measures[places[0]].statistic == "quantile"
        steps = np.array(columns[width], np.int64)[kept] if quantile else None
        for place, counted in zip(places, columns[width + quantile :], strict=True):
            whole = [max(-_SATURATED, min(int(each or 0), _SATURATED)) for each in counted]
            found = np.array(whole, np.int64)[kept]
            values[place][cells if steps is None else (cells, steps)] = found
    return TrueAggregates(tuple(values), None, None)


def add_aggregates(one: TrueAggregates, other: TrueAggregates) -> TrueAggregates:
    """Returns the aggregates of two groups of individuals that have nobody in common."""
    pairs = zip(one.true_values, other.true_values, strict=True)
    # Neither is beyond 2^62, so that the sum of two is none beyond 2^63.
    added = (np.clip(a + b, -_SATURATED, _SATURATED) for a, b in pairs)
    return TrueAggregates(tuple(added), None, None)


def _grouped(keys: list[str], items: list[str], rows: str) -> str:
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *items])} FROM ({rows}) AS counted{grouped}"


def _find_cells(
    pushed: PushedPlan, columns: list[tuple[Any, ...]], rows: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the cells of all rows that are in one, and which rows these are."""
    cells, kept = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    for key, column in zip(pushed.keys, columns, strict=True):
        absent = -1 if key.other is None else key.other
        if key.codes is None:
            codes = np.array([absent if each is None else each - key.low for each in column], np.int64)
        else:
            codes = np.array([key.codes.get(each, absent) for each in column], np.int64)
        kept &= codes >= 0
        cells = cells * key.size + codes
    return cells[kept], kept


def _push(checked: Checked, words: Words) -> PushedPlan:
    table, query = words.table, checked.query
    _refuse_unknown(query)
    for measure in query.measures:
        _refuse_unknown(measure)
    if checked.shape.joined or checked.shape.individuals or checked.is_open or checked.chooses_groups:
        raise UnpushedError
    if table.part is not None or checked.size > _MOST_GROUPS:
        raise UnpushedError
    meant = Writer(checked.tables, total=lambda tree: tree.copy())
    scope = read_scope(meant.select(query.rows), words)
    unit = words.unit()
    keys = tuple(_push_key(key.tree, key.size or 0, scope, words) for key in query.groups)
    values = {}
    for place, measure in enumerate(query.measures):
        if measure.statistic not in _STATISTICS or (measure.statistic == "individuals" and unit is None):
            raise UnpushedError
        if measure.tree is not None:
            values[place] = _push_value(measure, scope.translate(measure.tree), words)
    totals = {
        place: words.spell_total(f"v{place}", measure.largest)
        for place, measure in enumerate(query.measures)
        if measure.statistic in ("sum", "square")
    }
    condition = " AND ".join(f"({each})" for each in scope.conditions) or EVERYTHING
    return PushedPlan(unit, condition, keys, values, totals, query.measures, checked.unit.max_records)


def _refuse_unknown(record: Query | Measure) -> None:
    """Gives up a query that says more than is known here: what is passed over may be a bound."""
    for field in fields(record):
        if field.name not in _KNOWN and getattr(record, field.name) not in (None, False, (), 0):
            raise UnpushedError


def _push_key(tree: exp.Expr, size: int, scope: Scope, words: Words) -> PushedKey:
    name = scope.code_of(tree)
    if name is not None:
        key = words.key(name)
        if key.size != size:
            raise UnpushedError
        return key
    found = scope.translate(tree)
    if found.kind != "integer":
        raise UnpushedError
    # Whatever the expression gives, a group is one of those that are public.
    return PushedKey(f"CASE WHEN {found.sql} BETWEEN 0 AND {size - 1} THEN {found.sql} END", size)


def _push_value(measure: Measure, value: Pushed, words: Words) -> str:
    """Returns what a measure adds up of a record, as `_value` in `execute` has it."""
    if measure.statistic == "present" and not measure.is_number:
        return f"CASE WHEN {value.sql} IS NOT NULL THEN 1 END"
    if value.kind not in ("integer", "double", "boolean", "null"):
        raise UnpushedError
    number = to_double(value, words)
    there = words.spell_present(number, value.loose)
    if measure.statistic == "present":
        return f"CASE WHEN {there} THEN 1 END"
    if measure.edges is not None:
        interval = find_interval(measure.edges, number, spell=words.spell_double)
        return f"CASE WHEN {there} THEN {interval} END"
    ends = [float(each) for each in (measure.low, measure.high, measure.centre)]
    width = float(measure.high - measure.low)
    if any(abs(each) > _FAR for each in ends) or not 1 / _FAR < width < _FAR or measure.largest > _LARGEST:
        raise UnpushedError
    low, high, centre = (words.spell_double(each) for each in ends)
    # Whatever is infinite becomes a bound, and the negative zero adds what zero does.
    clamped = f"(CASE WHEN {there} THEN least(greatest({value.loose or number}, {low}), {high}) END)"
    if measure.statistic == "sum":
        return _round_away(f"({clamped} - {centre}) * {words.spell_double(float(measure.grid))}", words)
    if measure.statistic == "square":
        half = words.spell_double(float((measure.high - measure.low) / 2))
        share = f"(({clamped} - {centre}) / {half})"
        # What is so near to the centre adds nothing, and its square might be too small for a number.
        tiny = words.spell_double(1e-9)
        square = (
            f"(CASE WHEN abs({share}) < {tiny} THEN {words.spell_double(0.0)} ELSE {share} * {share} END)"
        )
        return _round_away(f"{square} * {words.spell_double(float(measure.grid))}", words)
    step = f"({clamped} - {low}) * {words.spell_double(float(measure.steps))} / {words.spell_double(width)}"
    near = f"{clamped} - {low} < {words.spell_double(1e-200)}"
    return f"CASE WHEN {near} THEN 0 ELSE CAST(floor({step}) AS {words.whole}) END"


def _round_away(value: str, words: Words) -> str:
    """Returns a number rounded to a whole one, halves away from zero, as DuckDB does; servers differ in that.

    From a half to 2^40 adding a half is exact, or rounds to a number whose floor is the same.
    """
    half = words.spell_double(0.5)
    up = f"WHEN {value} >= {half} THEN CAST(floor({value} + {half}) AS {words.whole})"
    down = f"WHEN {value} <= -{half} THEN CAST(ceil({value} - {half}) AS {words.whole})"
    return f"CASE {up} {down} WHEN {value} IS NOT NULL THEN 0 END"
