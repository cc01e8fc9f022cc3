"""Which statements may run over private records: allowed expressions, and how large a statement may be.

A refusal offers the nearest name that is public, and the nearest form that is answered.

Every allowed node gives one value for one record and looks at nothing else: no other record, no file,
no clock, no random source. What may fail for some records (a cast, a division) is made NULL there by
the engine, which wraps each finished expression in TRY.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from sfumato.core.algebra.expressions import DATE_PARTS, check_part, is_allowed
from sfumato.core.errors import refuse
from sfumato.sql.magnitudes import is_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    _Nodes = tuple[type[exp.Expr], ...]

_SETS = ("UNION", "INTERSECT", "EXCEPT")
_BEGINNINGS = ("DP-SELECT", "SELECT", "EXPLAIN", "DESCRIBE", "SUMMARIZE", "SHOW TABLES", "WITH")
_BEGIN = "DP-SELECT, SELECT, WITH, EXPLAIN, SHOW TABLES, DESCRIBE or SUMMARIZE"
_CLAUSES = (
    "FROM", "WHERE", "GROUP", "GROUP BY", "ORDER", "ORDER BY", "HAVING", "LIMIT", "OFFSET", "JOIN", "BY",
    "AND",
)  # fmt: skip
_CHANGES = re.compile(
    r"(insert|update|delete|merge|create|drop|alter|truncate|copy|attach|detach|install|load|set|reset|pragma|call|"
    r"grant|revoke|begin|commit|rollback|vacuum|use|import|export|replace)\b",
    re.IGNORECASE,
)

_Given = ParamSpec("_Given")
_Planned = TypeVar("_Planned")

AGGREGATE = "aggregate of sfumato"
KEY = "key of sfumato"
"""Marks of the columns that stand for aggregates and keys in the trees of an answer."""

GROUPINGS = (exp.Grouping, exp.GroupingId)
"""What tells which keys a row of ROLLUP, CUBE or GROUPING SETS is not divided by."""

RANKS = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)
"""Windows that give places among the rows of an answer, which have no interval."""

_ARITHMETIC: _Nodes = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Paren),
    *(exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Round, exp.Sqrt, exp.Abs),
)
_LOGIC: _Nodes = (
    *(exp.And, exp.Or, exp.Not, exp.Between, exp.In, exp.Is),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
)
_COMPUTED: _Nodes = (
    *(exp.Cast, exp.DataType, exp.DataTypeParam, exp.Nullif, exp.Coalesce, exp.Case, exp.If, exp.Null),
    *(exp.Boolean, exp.Greatest, exp.Least, exp.Floor, exp.Ceil, exp.Ln, exp.Exp, exp.Sign, exp.Window),
    *GROUPINGS,
)
"""What is computed from noisy values besides arithmetic."""
_IN_WINDOWS: _Nodes = (
    *(exp.Order, exp.Ordered, exp.WindowSpec, exp.Var, exp.Star),
    *(exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue),
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
)
_AGGREGATES: _Nodes = (
    *(exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Mode),
    *(exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevPop, exp.StddevSamp),
    *(exp.Median, exp.Quantile, exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile),
    exp.ApproxQuantiles,
    *(exp.Corr, exp.CovarPop, exp.CovarSamp),
    *(exp.RegrSlope, exp.RegrIntercept, exp.RegrR2, exp.RegrCount),
)
_HINTS: dict[type[exp.Expr], str] = {
    exp.Window: "a window, which looks at other individuals' records; put it over aggregates, or GROUP BY",
    exp.Subquery: "a subquery inside an expression; join the tables instead",
    exp.Select: "a subquery inside an expression; join the tables instead",
    exp.Exists: "EXISTS looks at other records; join the tables instead",
    exp.Rand: "a random function; noise is added for you",
    exp.CurrentDate: "the clock; write the date as a literal",
    exp.CurrentTimestamp: "the clock; write the time as a literal",
    exp.Star: "a star inside an expression",
    exp.Placeholder: "a placeholder; write the value",
    exp.Parameter: "a parameter; write the value",
}

_MOST_PARTS = 5_000
_MOST_JOINS = 8
_DEEPEST = 64  # Python's own limit leaves room for about twice as many


def refuse_deep(plan: Callable[_Given, _Planned]) -> Callable[_Given, _Planned]:
    """`plan`, which refuses what is deeper or larger than Python can follow, before anything is charged."""

    @wraps(plan)
    def planned(*arguments: _Given.args, **options: _Given.kwargs) -> _Planned:
        try:
            return plan(*arguments, **options)
        except RecursionError:
            raise refuse("a statement that is nested too deep") from None
        except OverflowError:
            raise refuse("a statement with a number that is too large to be computed with") from None

    return planned


def refuse_large(query: exp.Select) -> None:
    """Refuses a statement that is nested too deep or would be too large to plan."""
    depths = {id(query): 0}
    for node in query.walk():
        for child in node.iter_expressions():
            # A long list of conditions is a chain, not a nest.
            depths[id(child)] = depths[id(node)] + (not isinstance(node, exp.Connector))
    if max(depths.values()) > _DEEPEST:
        raise refuse(f"a statement that is nested more than {_DEEPEST} levels deep")
    size = _measure(query, {})
    if size.joins > _MOST_JOINS:
        raise refuse(
            f"more than {_MOST_JOINS} joins in one statement, those of inner queries counted each time"
        )
    if max(size.parts, len(depths)) > _MOST_PARTS:
        raise refuse(f"a statement of more than {_MOST_PARTS:,} parts with its inner queries written out")


def refuse_clauses(query: exp.Select, names: tuple[str, ...], why: str) -> None:
    """Refuses a query that has one of the clauses, which are named as they are written."""
    for name in names:
        if query.args.get(name.lower().removesuffix(" by")):
            raise refuse(f"{name} {why}")


def check_scalar(node: exp.Expr, *, where: str) -> None:
    """Raises a refusal that names the first part of `node` that is not allowed."""
    for part in node.walk():
        if isinstance(part, _AGGREGATES):
            instead = "; conditions about groups stand in HAVING" if where == "WHERE" else ""
            raise refuse(f"{part.key.upper()} inside {where}, where one value per record is needed{instead}")
        hint = next((text for kind, text in _HINTS.items() if isinstance(part, kind)), None)
        if hint is not None:
            raise refuse(f"{where} uses {hint}")
        if is_marked(part):
            raise refuse(
                f"BOUNDED PRIVATELY in {where}; it is for SUM, AVG and the like: AVG(fee BOUNDED PRIVATELY)"
            )
        if not is_allowed(part):
            name = part.name if isinstance(part, exp.Anonymous) else part.key
            hint = hint_function(name)
            raise refuse(f"{where} uses {name.upper()[:60]}, which is not among the allowed functions{hint}")
        check_part(part, where)


def check_output(tree: exp.Expr, *, logic: bool) -> None:
    """Refuses what cannot be computed from noisy values."""
    for part in tree.walk():
        nested = part.find_ancestor(exp.Case, exp.If) is not None
        allowed = (*_ARITHMETIC, *_COMPUTED, *_LOGIC) if logic or nested else (*_ARITHMETIC, *_COMPUTED)
        inside = part.find_ancestor(exp.Window) is not None
        if not isinstance(part, allowed) and not (inside and isinstance(part, _IN_WINDOWS)):
            name = part.key.upper()
            raise refuse(
                f"{name} over aggregates; arithmetic, ROUND, SQRT, ABS, CAST, CASE, COALESCE, NULLIF and "
                "windows are computed from noisy values"
            )


def find_aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost aggregates of `node`, in order; those that a window is over, not the window's own."""
    if isinstance(node, exp.Window):
        parts = [*node.this.iter_expressions(), *(node.args.get("partition_by") or [])]
        for part in [*parts, *([node.args["order"]] if node.args.get("order") is not None else [])]:
            yield from find_aggregates(part)
        return
    inner = node.this if isinstance(node, exp.Filter) else node
    if isinstance(inner, (*_AGGREGATES, exp.WithinGroup)) or is_top(inner) or is_histogram(inner):
        yield node
        return
    if isinstance(node, GROUPINGS):
        return
    if isinstance(node, exp.AggFunc):
        name = node.sql_name() if hasattr(node, "sql_name") else node.key.upper()
        raise refuse(f"the aggregate {name} has no private form here{hint_aggregate(name)}")
    for child in node.iter_expressions():
        yield from find_aggregates(child)


def finite_labels(tree: exp.Expr) -> tuple[int | str | bool, ...] | None:
    """The values that the form of an expression allows, if they are few and public."""
    if isinstance(tree, exp.Paren):
        return finite_labels(tree.this)
    if isinstance(tree, (exp.Predicate, exp.And, exp.Or, exp.Not)) or tree.is_type("boolean"):
        return (False, True)
    part = tree.name if isinstance(tree, exp.Extract) else tree.key
    if DATE_PARTS.get(part.upper()):
        return tuple(DATE_PARTS[part.upper()])
    if isinstance(tree, exp.Case):
        results = [branch.args["true"] for branch in tree.args["ifs"]]
        default = tree.args.get("default")
        results += [default] if default is not None and not isinstance(default, exp.Null) else []
        if all(isinstance(result, exp.Literal) for result in results):
            values = [
                str(result.this) if result.is_string else int(result.this) if result.is_int else None
                for result in results
            ]
            if None not in values and len({type(value) for value in values}) == 1:
                return tuple(dict.fromkeys(value for value in values if value is not None))
    return None


def is_key(tree: exp.Expr) -> bool:
    """Whether the tree of an output is one group key."""
    return isinstance(tree, exp.Column) and tree.table == KEY


def is_text(tree: exp.Expr) -> bool:
    """Whether a tree gives text: a constant, or a choice among constants."""
    match tree:
        case exp.Literal():
            return bool(tree.is_string)
        case exp.Paren():
            return is_text(tree.this)
        case exp.Cast():
            return tree.to.this.name in ("TEXT", "VARCHAR")
        case exp.Coalesce():
            # A key that is rolled up, and what stands for it.
            parts = [tree.this, *tree.expressions]
            return any(is_text(each) for each in parts) and all(
                is_text(each) or is_key(each) for each in parts
            )
        case exp.Case():
            results = [*(branch.args["true"] for branch in tree.args["ifs"]), tree.args.get("default")]
            given = [each for each in results if each is not None and not isinstance(each, exp.Null)]
            return bool(given) and all(is_text(each) for each in given)
        case _:
            return False


def is_moment(tree: exp.Expr) -> bool:
    """Whether a tree is a constant date or moment."""
    tree = tree.unnest()
    dated = isinstance(tree, exp.Cast) and tree.to.this.name in ("DATE", "TIMESTAMP")
    return dated and isinstance(tree.this, exp.Literal)


def is_rank(tree: exp.Expr) -> bool:
    """Whether a tree is a place among the rows of the answer, or tells of its keys: it has no interval."""
    while isinstance(tree, (exp.Paren, exp.Cast)):
        tree = tree.this
    return isinstance(tree, GROUPINGS) or (isinstance(tree, exp.Window) and isinstance(tree.this, RANKS))


def list_conditions(condition: exp.Expr) -> list[exp.Expr]:
    """What stands between the ANDs of a condition, without the brackets that some tools put around it."""
    condition = condition.unnest()
    if not isinstance(condition, exp.And):
        return [condition]
    return [part for each in condition.flatten() for part in list_conditions(each)]


def is_top(node: object) -> bool:
    """Whether `node` is TOP(column, k), which the parser does not know.

    >>> is_top(exp.Anonymous(this="top"))
    True
    """
    return isinstance(node, exp.Anonymous) and node.name.upper() == "TOP"


def is_histogram(node: object) -> bool:
    """Whether `node` is HISTOGRAM(column, bins), which the parser does not know."""
    return isinstance(node, exp.Anonymous) and node.name.upper() == "HISTOGRAM"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """The parts and joins of a query written out, and the parts of each column that it gives."""

    parts: int
    joins: int
    columns: Mapping[str, int]


def _measure(query: exp.Select, known: Mapping[str, _Size]) -> _Size:
    """The size of `query`, in which the names `known` stand for queries of their own."""
    clause = query.args.get("with_")
    if clause is not None:
        known = {}
        for cte in clause.expressions:
            known = {**known, cte.alias.lower(): _measure_item(cte.this, known)}
    joins = query.args.get("joins") or []
    items = [each.this for each in [query.args.get("from_"), *joins] if each is not None]
    sources = [_measure_item(item, known) for item in items]
    tests = [
        each for each in (query.args["where"].walk() if query.args.get("where") else ()) if looks_up(each)
    ]
    found = [_measure_item(each.args.get("query") or each.this, known) for each in tests]
    columns: dict[str, int] = {}
    for source in sources:
        for name, parts in source.columns.items():
            columns[name] = max(parts, columns.get(name, 1))
    outputs = [(item.alias_or_name.lower(), _weigh(item, columns)) for item in query.expressions]
    given = columns if any(name == "*" for name, _ in outputs) else {}
    given = {**given, **dict(outputs)}
    parts = sum(source.parts for source in sources) + sum(weight for _, weight in outputs)
    parts += sum(_weigh(join.args["on"], columns) for join in joins if join.args.get("on"))
    places = {str(place): weight for place, (_, weight) in enumerate(outputs, start=1)}
    for name in ("where", "group", "having", "order"):
        if query.args.get(name) is not None:
            # What follows the select list may name its items, by alias or by place.
            own = columns if name == "where" else {**columns, **given, **places}
            parts += _weigh(query.args[name], own)
    parts += sum(each.parts for each in found)
    inner = sum(each.joins for each in (*sources, *found))
    return _Size(parts=parts, joins=len(joins) + len(found) + inner, columns=given)


def looks_up(node: exp.Expr) -> bool:
    """Whether a condition is EXISTS or IN (SELECT ...)."""
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and bool(node.args.get("query")))


def _measure_item(item: exp.Expr, known: Mapping[str, _Size]) -> _Size:
    while isinstance(item, exp.Subquery):
        item = item.this
    if isinstance(item, exp.Select):
        return _measure(item, known)
    if isinstance(item, exp.Union):
        one, other = _measure_item(item.this, known), _measure_item(item.expression, known)
        joins = one.joins + other.joins + 1
        return _Size(parts=one.parts + other.parts, joins=joins, columns={**other.columns, **one.columns})
    if isinstance(item, exp.Table) and item.name.lower() in known:
        return known[item.name.lower()]
    return _Size(parts=1, joins=0, columns={})


def _weigh(node: exp.Expr, columns: Mapping[str, int]) -> int:
    """The parts of an expression, each name counted with all that it stands for."""
    if isinstance(node, exp.Column) or (isinstance(node, exp.Literal) and node.is_int):
        return columns.get(node.name.lower(), 1)
    parts = 1 + sum(_weigh(child, columns) for child in node.iter_expressions())
    # An engine looks at a text twice before it takes it for a moment.
    return 2 * parts if isinstance(node, exp.Cast) and node.to.this.name.startswith("TIMESTAMP") else parts


def hint_statement(body: str, tree: exp.Expr | None) -> str:
    """Why `body`, which is no SELECT, is not answered, and what is."""
    changes = _CHANGES.match(body)
    kind = type(tree).__name__.upper()
    if kind in _SETS:
        return hint_set(kind)
    if changes is not None:
        word = changes[1].upper()
        return f"only SELECT is answered, not {word}; records are changed where they are kept, not here"
    words = body.split()
    if not words:
        return "an empty statement; write DP-SELECT epsilon ... FROM table"
    word = words[0].upper()
    hint = _hint_beginning(word)
    if isinstance(tree, exp.Subquery) and isinstance(tree.this, exp.Select):
        hint = "; leave away the brackets around it"
    if kind in ("VALUES", "TABLE", "FROM"):
        hint = "; write SELECT ... FROM table"
    if word == "EXPLAIN":
        return "EXPLAIN is followed by what is to be explained: EXPLAIN DP-SELECT 0.5 COUNT(*) FROM table"
    return f"a statement begins with {_BEGIN}, not with {word[:40]!r}{hint}"


def hint_set(kind: str) -> str:
    """Why several statements are not answered as one, and what is."""
    return (
        f"only SELECT is answered, not {kind} of statements: each is charged by itself. Send them one by "
        "one, GROUP BY what tells them apart, or ask of all rows: FROM (SELECT ... UNION ALL SELECT ...) AS a"
    )


def hint_parse(body: str, error: SqlglotError) -> str:
    """What the parser stumbled over, without what it prints for a terminal."""
    words = body.split()
    beginning = "DP-SELECT" if words[:1] and words[0].upper() == "DP" else ""
    hint = f"; did you mean {beginning}?" if beginning else _hint_beginning(words[0].upper()) if words else ""
    if hint:
        return f"a statement begins with {_BEGIN}{hint}"
    found = (error.errors or [{}])[0] if isinstance(error, ParseError) else {}
    reason = str(found.get("description") or str(error).split("\n", maxsplit=1)[0])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", reason).strip().rstrip(".").removeprefix("Invalid expression / ")
    word = str(found.get("highlight") or "")
    where = f" near {word[:40]!r} in line {found.get('line')}" if word else ""
    if plain.startswith("Required keyword") and word.upper() in _CLAUSES:
        return f"the statement cannot be parsed: nothing stands behind {word.upper()}"
    if body.count("(") != body.count(")"):
        hint = f"; {body.count('(')} brackets are opened and {body.count(')')} closed"
    else:
        # A misspelt clause is read as an alias, so that the parser stumbles over what follows it.
        before = str(found.get("start_context") or "").split()[-1:]
        hint = next(filter(None, map(_hint_clause, (*before, word))), "")
    return f"the statement cannot be parsed{where}: {plain[:200]}{hint}"


def _hint_clause(word: str) -> str:
    near = difflib.get_close_matches(word.upper(), _CLAUSES, n=1, cutoff=0.6)
    if word.upper() in ("GROUP", "ORDER"):
        return f"; did you mean {word.upper()} BY?"
    if not near or word.upper() in _CLAUSES:
        return ""
    return f"; did you mean {near[0]} in place of {word[:40]!r}?"


def _hint_beginning(word: str) -> str:
    near = difflib.get_close_matches(word, _BEGINNINGS, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near and word not in _BEGINNINGS else ""


def hint_function(name: str) -> str:
    """What to use in place of a function that is not allowed."""
    upper, hints = name.upper(), _read_hints()
    instead, meant = hints["instead"], hints["meant"]
    if upper in instead:
        return f"; {instead[upper]}"
    if upper in meant:
        return f"; use {meant[upper]}"
    known = (*hints["aggregates"], *hints["functions"], *meant)
    near = difflib.get_close_matches(upper, known, n=1, cutoff=0.7)
    if not near or near[0] == upper:
        return " (docs/sql.md lists what is)"
    return f"; did you mean {meant.get(near[0], near[0])}?"


def hint_aggregate(name: str) -> str:
    """What to use in place of an aggregate that has no private form."""
    hints = _read_hints()
    instead = hints["instead"].get(name.upper())
    return f"; {instead}" if instead else f"; those that have: {', '.join(hints['aggregates'])}"


@cache
def _read_hints() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("hints.toml").read_text(encoding="utf-8"))
