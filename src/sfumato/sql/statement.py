"""Reading a statement: the private prefix by our own few lines, the rest by sqlglot.

DP-SELECT 0.5 ...                         epsilon
DP-SELECT 0.5 DELTA 1e-9 ...              epsilon and delta
DP-SELECT FREE ...                        what follows from answers that were paid for, for nothing
DP-SELECT FRESH 0.5 ...                   measured by itself, whatever is known
DP-SELECT WITHIN 100 ...                  the least epsilon whose error stays within 100
DP-SELECT WITHIN 5% ...                   the same, relative to the answer; both with DELTA, too
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, delta = 1e-9) ...
EXPLAIN <any of these>                    the plan, nothing read and nothing spent
SELECT ...                                on public tables; on private ones at the price of the session
/* epsilon = 0.5 */ SELECT ...            at this price, for tools that send plain SQL alone
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.core.errors import RecipeError, UnsupportedQuery
from sfumato.core.exact import parse_delta, parse_positive
from sfumato.sql.check import hint_parse, hint_set, hint_statement, refuse_deep, refuse_large
from sfumato.sql.magnitudes import MARK

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_EXPLAIN = re.compile(r"explain\s+(?:(?:analyze|verbose)\s+)*", re.IGNORECASE)
_BARE_DATE = re.compile(r"(?<![\w.-])(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9](?![\w.-])")
_SETS = re.compile(r"\b(union|intersect|except)\b", re.IGNORECASE)
_PREFIX = re.compile(r"(?<![\w$-])dp[-_]select\b", re.IGNORECASE)
_CLAUSE = re.compile(r"select\s+with\s+differential_privacy\s+options\s*\(", re.IGNORECASE)
_WITHIN = re.compile(rf"\s+within\s+({_NUMBER})\s*(%?)(?=\s)", re.IGNORECASE)
_EPSILON = re.compile(rf"\s+([-+]?(?:{_NUMBER})|[^\s,;()]+)(?=\s)")
_COMMA = re.compile(r"\s+[0-9]+,[0-9]+\s")
_FREE = re.compile(r"\s+free(?=\s)", re.IGNORECASE)
_FRESH = re.compile(r"\s+fresh(?=\s)", re.IGNORECASE)
_DELTA = re.compile(rf"\s+delta\s+([-+]?(?:{_NUMBER}))(?=\s)", re.IGNORECASE)
_COMMENT = re.compile(r"\s*(?:--([^\n]*)(?:\n|$)|/\*(.*?)\*/)", re.DOTALL)
_PRICE = re.compile(
    rf"\s*epsilon\s*=\s*({_NUMBER})(?:\s*,\s*delta\s*=\s*({_NUMBER}))?\s*;?\s*", re.IGNORECASE
)
_PARAMETER = re.compile(r"\$[0-9]+\b")
_OPTION = re.compile(r"\s*([A-Za-z_]+)\s*=\s*([^,()]+?)\s*$")
_HIDDEN = re.compile(
    r"""(?P<quoted>'[^']*'|"[^"]*"|`[^`]*`)|(?P<comment>--[^\n]*\n?|/\*.*?\*/)|(?P<open>['"`]|/\*)""",
    re.DOTALL,
)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_LONGEST = 100_000
_MOST_INDIVIDUALS = 10**12
_PRIVATELY = re.compile(r"\s+bounded\s+privately\b", re.IGNORECASE)
_BEFORE_OPERAND = re.compile(r"\s*(?:order\s+by\b|distinct\b)?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """An error to stay within, absolute or as a share of the answer."""

    amount: Fraction
    relative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement: what it may spend, whether it is only explained, and the query as a tree.

    Groups that are chosen privately need `min_individuals`.
    `price` and `delta` of a plain SELECT are what a comment before it says that it may spend, if one does.
    `around` are the queries around one that aggregates. Queries in a `stepwise` one are answered first.
    A `free` one takes what earlier answers say of it, a `fresh` one nothing of them. Of a `picked` one some
    rows are picked by their noisy values, so that intervals of all must hold at once.
    """

    mode: Literal["private", "public"]
    query: exp.Select
    explain: bool = False
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    within: Within | None = None
    max_groups: int | None = None
    min_individuals: int = 1
    texts: tuple[str, ...] = ()
    price: Fraction | None = None
    plain: bool = False
    around: tuple[Around, ...] = ()
    free: bool = False
    fresh: bool = False
    stepwise: bool = False
    picked: bool = False


@refuse_deep
def read_statement(text: str) -> Statement:
    """The statement that `text` holds, or a refusal that says why.

    >>> read_statement("DP-SELECT 0.5 COUNT(*) FROM trips").epsilon
    Fraction(1, 2)
    """
    if not isinstance(text, str) or not text.strip():
        raise UnsupportedQuery("an empty statement; write DP-SELECT epsilon ... FROM table")
    if len(text) > _LONGEST or "\x00" in text:
        raise UnsupportedQuery(f"a statement must be plain text of at most {_LONGEST} characters")
    body = mask_text(text, quotes=False).strip().rstrip(";").strip()
    masked = mask_text(body)
    if ";" in masked:
        raise UnsupportedQuery("several statements in one string; send them one by one")
    dated = _BARE_DATE.search(masked)
    if dated is not None:
        raise UnsupportedQuery(f"{dated[0]} is a subtraction; a date stands in quotes: DATE '{dated[0]}'")
    if "$" in _PARAMETER.sub("", masked):
        raise UnsupportedQuery("dollar quotes and named parameters; write text in single quotes, or $1")
    body, explain = unwrap_explain(body)
    body, options = _read_prefix(body)
    query = _parse(_mark_bounds(body), plain=options is None)
    return Statement(
        mode="public" if options is None else "private",
        query=query,
        explain=explain,
        texts=_texts_of(query, body),
        plain=options is None,
        **(_read_price(text) if options is None else options),
    )


def unwrap_explain(body: str) -> tuple[str, bool]:
    """What stands behind EXPLAIN, and whether that is there."""
    explain = _EXPLAIN.match(body)
    return (body, False) if explain is None else (body[explain.end() :], True)


def _texts_of(query: exp.Select, body: str) -> tuple[str, ...]:
    texts = select_texts(body)
    # FROM may come first, without a select list.
    same = len(texts) == len(query.expressions)
    return texts if same else tuple(item.sql(dialect="duckdb") for item in query.expressions)


def price_statement(statement: Statement, *, epsilon: Fraction | None) -> Statement:
    """A plain SELECT of private tables as a private statement, at its own price or at that of the session."""
    if statement.mode == "private":
        return statement
    price = statement.price or epsilon
    return statement if price is None else replace(statement, mode="private", epsilon=price)


def _read_price(text: str) -> dict[str, Any]:
    """What a comment in front of a plain SELECT says that it may spend."""
    explain = _EXPLAIN.match(text.lstrip())
    place = len(text) - len(text.lstrip()) + (explain.end() if explain else 0)
    for start in dict.fromkeys((0, place)):
        at = start
        while (comment := _COMMENT.match(text, at)) is not None:
            price = _PRICE.fullmatch(comment[1] or comment[2] or "")
            if price is not None:
                options: dict[str, Any] = {"price": parse_positive(price[1], name="epsilon")}
                if price[2] is not None:
                    options["delta"] = parse_delta(price[2])
                return options
            at = comment.end()
    return {}


def select_texts(body: str) -> tuple[str, ...]:
    """The items of the outermost select list as they are written.

    >>> select_texts("SELECT a, count( * ) AS n FROM t")
    ('a', 'count( * ) AS n')
    """
    masked = mask_text(body).lower()
    start = _find_word(masked, "select", 0)
    if start is None:
        return ()
    start += len("select")
    stop = _find_word(masked, "from", start)
    stop = len(body) if stop is None else stop
    distinct = re.compile(r"\s+(?:distinct|all)\b").match(masked, start)
    start = distinct.end() if distinct else start
    items, depth, last = [], 0, start
    for index in range(start, stop):
        depth += masked[index] in "([{"
        depth -= masked[index] in ")]}"
        if masked[index] == "," and depth == 0:
            items.append(body[last:index].strip())
            last = index + 1
    rest = body[last:stop].strip()
    return tuple([*items, rest] if rest else items)


def mask_text(text: str, *, quotes: bool = True, fill: str = " ") -> str:
    """`text` with comments blanked, and with `quotes` quoted parts too, so that what is outside can be found.

    What was in quotes is filled with the sign `fill`.

    >>> mask_text("a 'b' -- c")
    'a         '
    """

    def blank(match: re.Match[str]) -> str:
        if match.lastgroup == "open":
            raise UnsupportedQuery("a quote or a comment is not closed")
        if match.lastgroup != "quoted":
            return " " * len(match[0])
        return fill * len(match[0]) if quotes else match[0]

    return _HIDDEN.sub(blank, text)


def _read_prefix(body: str) -> tuple[str, dict[str, Any] | None]:
    masked = mask_text(body)
    clauses = list(_CLAUSE.finditer(masked))
    prefixes = list(_PREFIX.finditer(masked))
    if len(clauses) + len(prefixes) > 1:
        joined = _SETS.search(masked, min(each.start() for each in (*clauses, *prefixes)))
        if joined is not None and not _depth(masked, joined.start()):
            raise UnsupportedQuery(hint_set(joined[1].upper()))
        raise UnsupportedQuery(
            "DP-SELECT stands once, at the outermost SELECT; inner queries are plain SELECT"
        )
    if prefixes:
        start, stop = prefixes[0].span()
        if _depth(masked, start):
            raise UnsupportedQuery("DP-SELECT stands at the outermost SELECT, not inside parentheses")
        rest, options = _read_amount(body[stop:])
        return f"{body[:start]}SELECT{rest}", options
    if clauses:
        start, stop = clauses[0].span()
        close = masked.find(")", stop)
        if close < 0 or _depth(masked, start):
            raise UnsupportedQuery(
                "OPTIONS (...) must follow WITH DIFFERENTIAL_PRIVACY at the outermost SELECT"
            )
        return f"{body[:start]}SELECT {body[close + 1 :]}", _read_options(body[stop:close])
    return body, None


def _read_amount(rest: str) -> tuple[str, dict[str, Any]]:
    free = _FREE.match(rest)
    if free:
        return _read_delta(rest[free.end() :], {"free": True, "epsilon": Fraction(1)})
    fresh = _FRESH.match(rest)
    if fresh:
        rest, paid = _read_amount(rest[fresh.end() :])
        return rest, {**paid, "fresh": True}
    within = _WITHIN.match(rest)
    if within:
        amount = parse_positive(within[1], name="WITHIN")
        relative = within[2] == "%"
        goal = Within(amount=amount / 100 if relative else amount, relative=relative)
        return _read_delta(rest[within.end() :], {"within": goal})
    match = _EPSILON.match(rest)
    if match and match[1].upper() == "WITHIN":
        raise UnsupportedQuery(
            "WITHIN needs a number above zero: DP-SELECT WITHIN 100 COUNT(*) FROM table, or WITHIN 5%"
        )
    if _COMMA.match(rest):
        raise UnsupportedQuery("decimals of epsilon stand behind a point: DP-SELECT 0.5 COUNT(*) FROM table")
    if match and match[1].startswith("$"):
        raise UnsupportedQuery("epsilon is no parameter; write what may be spent into the statement")
    if not match or match[1].upper() in ("*", "COUNT", "SUM", "AVG"):
        raise UnsupportedQuery(
            "DP-SELECT needs epsilon: DP-SELECT 0.5 COUNT(*) FROM table, or DP-SELECT WITHIN 100 ..."
        )
    options: dict[str, Any] = {"epsilon": parse_positive(match[1], name="epsilon")}
    return _read_delta(rest[match.end() :], options)


def _read_delta(rest: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    delta = _DELTA.match(rest)
    if delta:
        options["delta"] = parse_delta(delta[1])
        rest = rest[delta.end() :]
        if _DELTA.match(rest):
            raise UnsupportedQuery("DELTA stands twice; say once what may be spent")
    return rest, options


def _read_options(text: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in text.split(","):
        match = _OPTION.match(part)
        if not match:
            raise UnsupportedQuery(
                f"cannot read the option {part.strip()!r}; write epsilon = 0.5, delta = 1e-9"
            )
        name, value = match[1].lower(), match[2].strip("'\"")
        name = "max_groups" if name == "max_groups_contributed" else name
        if name in options:
            raise UnsupportedQuery(f"option {name!r} stands twice; say once what may be spent")
        if name == "epsilon":
            options["epsilon"] = parse_positive(value, name="epsilon")
        elif name == "delta":
            options["delta"] = parse_delta(value)
        elif name in ("max_groups", "min_individuals"):
            number = parse_positive(value, name=name)
            if number.denominator != 1 or number > _MOST_INDIVIDUALS:
                raise RecipeError(f"{name} must be a whole number")
            options[name] = int(number)
        else:
            raise UnsupportedQuery(
                f"option {name!r} is not known; use epsilon, delta, max_groups_contributed, min_individuals "
                "(the individual's column comes from the project file)"
            )
    if "epsilon" not in options:
        raise UnsupportedQuery("OPTIONS needs epsilon")
    return options


def _mark_bounds(body: str) -> str:
    """`AVG(fee BOUNDED PRIVATELY)` with a function around the operand, which the parser can read.

    >>> _mark_bounds('SELECT AVG("a fee" + 1 bounded privately), 2 FROM t')
    'SELECT AVG(BOUNDED_PRIVATELY("a fee" + 1)), 2 FROM t'
    """
    # What stands in quotes is part of the operand, and no space.
    masked = mask_text(body, fill="x")
    changes: list[tuple[int, int, str]] = []
    for found in _PRIVATELY.finditer(masked):
        depth, place = 0, found.start()
        while place > 0 and (depth > 0 or masked[place - 1] not in "(,"):
            place -= 1
            depth += (masked[place] == ")") - (masked[place] == "(")
        start = _BEFORE_OPERAND.match(masked, place)
        if place == 0 or start is None:
            raise UnsupportedQuery(
                "BOUNDED PRIVATELY stands in the parentheses of an aggregate: AVG(fee BOUNDED PRIVATELY)"
            )
        changes += [(start.end(), start.end(), f"{MARK}("), (found.start(), found.end(), ")")]
    for begin, end, text in sorted(changes, reverse=True):
        body = body[:begin] + text + body[end:]
    return body


def _parse(body: str, *, plain: bool) -> exp.Select:
    try:
        trees = sqlglot.parse(body, dialect="duckdb")
    except SqlglotError as error:
        raise UnsupportedQuery(hint_parse(body, error)) from None
    if plain and len(trees) == 1 and isinstance(trees[0], exp.SetOperation):
        trees = [exp.select("*").from_(trees[0].subquery("rows of sfumato"))]
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        raise UnsupportedQuery(hint_statement(body, trees[0] if trees else None))
    if not trees[0].expressions:
        raise UnsupportedQuery("the select list is empty; name what to select, COUNT(*) or columns")
    for node in trees[0].walk():
        node.comments = None
        _refuse_slip(node)
    refuse_large(trees[0])
    for clause in list(trees[0].find_all(exp.Limit, exp.Offset)):
        # Clients write LIMIT $1::INTEGER.
        cast = clause.expression
        whole = isinstance(cast, exp.Cast) and cast.to.this in (exp.DType.INT, exp.DType.BIGINT)
        if whole and (isinstance(cast.this, exp.Placeholder | exp.Parameter) or cast.this.is_int):
            cast.replace(cast.this)
    return trees[0]


def _refuse_slip(node: exp.Expr) -> None:
    """Refuses what the parser lets pass and nobody can have meant, before it is paid for."""
    if isinstance(node, exp.Group) and not any(node.args.values()):
        raise UnsupportedQuery("nothing stands behind GROUP BY; name columns, or leave it away")
    if isinstance(node, _COMPARISONS):
        sides = (node.this.unnest(), node.expression.unnest())
        if any(isinstance(each, exp.Null) for each in sides) and any(
            isinstance(each, exp.Column) for each in sides
        ):
            raise UnsupportedQuery(
                "a comparison with NULL never holds; write IS NULL or IS NOT NULL for what is missing"
            )


def _find_word(masked: str, word: str, start: int) -> int | None:
    found = (match.start() for match in re.compile(rf"\b{word}\b").finditer(masked, start))
    return next((place for place in found if _depth(masked, place) == 0), None)


def _depth(masked: str, stop: int) -> int:
    return masked.count("(", 0, stop) - masked.count(")", 0, stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a query around an aggregate does to its rows, in terms of the innermost query."""

    having: exp.Expr | None = None
    order: tuple[exp.Expr, ...] = ()
    limit: exp.Expr | None = None
    offset: exp.Expr | None = None

    @property
    def rows(self) -> exp.Select:
        """The clauses that say which rows are left."""
        return exp.Select(
            where=None if self.having is None else exp.Where(this=self.having), limit=self.limit
        )

    @property
    def trees(self) -> list[exp.Expr]:
        """All parts of it."""
        return [each for each in (self.having, *self.order, self.limit, self.offset) if each is not None]

    def describe(self) -> str:
        """The stage in one line of SQL."""
        parts = [] if self.having is None else [f"WHERE {self.having.sql(dialect='duckdb', normalize=True)}"]
        if self.order:
            parts.append(
                f"ORDER BY {', '.join(each.sql(dialect='duckdb', normalize=True) for each in self.order)}"
            )
        parts += [] if self.limit is None else [self.limit.sql(dialect="duckdb").strip()]
        parts += [] if self.offset is None else [self.offset.sql(dialect="duckdb").strip()]
        return " ".join(parts)
