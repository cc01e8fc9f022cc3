"""Reading a statement: the private prefix by our own few lines, the rest by sqlglot.

DP-SELECT 0.5 ...                         epsilon
DP-SELECT 0.5 DELTA 1e-9 ...              epsilon and delta
DP-SELECT WITHIN 100 ...                  the least epsilon whose error stays within 100
DP-SELECT WITHIN 5% ...                   the same, relative to the answer
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5, delta = 1e-9) ...
EXPLAIN <any of these>                    the plan, nothing read and nothing spent
SELECT ...                                on public tables only
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sfumato.errors import RecipeError, UnsupportedQuery
from sfumato.exact import parse_delta, parse_positive
from sfumato.sql.check import refuse_deep, refuse_large

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
_EXPLAIN = re.compile(r"explain\s+", re.IGNORECASE)
_PREFIX = re.compile(r"(?<![\w$-])dp[-_]select\b", re.IGNORECASE)
_CLAUSE = re.compile(r"select\s+with\s+differential_privacy\s+options\s*\(", re.IGNORECASE)
_WITHIN = re.compile(rf"\s+within\s+({_NUMBER})\s*(%?)(?=\s)", re.IGNORECASE)
_EPSILON = re.compile(rf"\s+([-+]?(?:{_NUMBER})|[^\s,;()]+)(?=\s)")
_DELTA = re.compile(rf"\s+delta\s+([-+]?(?:{_NUMBER}))(?=\s)", re.IGNORECASE)
_OPTION = re.compile(r"\s*([A-Za-z_]+)\s*=\s*([^,()]+?)\s*$")
_HIDDEN = re.compile(
    r"""(?P<quoted>'[^']*'|"[^"]*"|`[^`]*`)|(?P<comment>--[^\n]*\n?|/\*.*?\*/)|(?P<open>['"`]|/\*)""",
    re.DOTALL,
)
_LONGEST = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """An error to stay within, absolute or as a share of the answer."""

    amount: Fraction
    relative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One statement: what it may spend, whether it is only explained, and the query as a tree."""

    mode: Literal["private", "public"]
    query: exp.Select
    explain: bool = False
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    within: Within | None = None
    max_groups: int | None = None
    texts: tuple[str, ...] = ()


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
    if "$" in masked:
        raise UnsupportedQuery("dollar quotes and parameters; write text in single quotes")
    explain = _EXPLAIN.match(body)
    if explain:
        body = body[explain.end() :]
    body, options = _read_prefix(body)
    query = _parse(body)
    return Statement(
        mode="public" if options is None else "private",
        query=query,
        explain=explain is not None,
        texts=select_texts(body),
        **(options or {}),
    )


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
    items, depth, last = [], 0, start
    for index in range(start, stop):
        depth += masked[index] in "([{"
        depth -= masked[index] in ")]}"
        if masked[index] == "," and depth == 0:
            items.append(body[last:index].strip())
            last = index + 1
    rest = body[last:stop].strip()
    return tuple([*items, rest] if rest else items)


def mask_text(text: str, *, quotes: bool = True) -> str:
    """`text` with comments blanked, and with `quotes` quoted parts too, so that what is outside can be found.

    >>> mask_text("a 'b' -- c")
    'a         '
    """

    def blank(match: re.Match[str]) -> str:
        if match.lastgroup == "open":
            raise UnsupportedQuery("a quote or a comment is not closed")
        return match[0] if match.lastgroup == "quoted" and not quotes else " " * len(match[0])

    return _HIDDEN.sub(blank, text)


def _read_prefix(body: str) -> tuple[str, dict[str, Any] | None]:
    masked = mask_text(body)
    clauses = list(_CLAUSE.finditer(masked))
    prefixes = list(_PREFIX.finditer(masked))
    if len(clauses) + len(prefixes) > 1:
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
    within = _WITHIN.match(rest)
    if within:
        amount = parse_positive(within[1], name="WITHIN")
        relative = within[2] == "%"
        goal = Within(amount=amount / 100 if relative else amount, relative=relative)
        return rest[within.end() :], {"within": goal}
    match = _EPSILON.match(rest)
    if not match or match[1].upper() in ("*", "COUNT", "SUM", "AVG"):
        raise UnsupportedQuery(
            "DP-SELECT needs epsilon: DP-SELECT 0.5 COUNT(*) FROM table, or DP-SELECT WITHIN 100 ..."
        )
    options: dict[str, Any] = {"epsilon": parse_positive(match[1], name="epsilon")}
    rest = rest[match.end() :]
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
        elif name == "max_groups":
            groups = parse_positive(value, name=name)
            if groups.denominator != 1:
                raise RecipeError(f"{name} must be a whole number")
            options["max_groups"] = int(groups)
        else:
            raise UnsupportedQuery(
                f"option {name!r} is not known; use epsilon, delta, max_groups_contributed "
                "(the individual's column comes from the project file)"
            )
    if "epsilon" not in options:
        raise UnsupportedQuery("OPTIONS needs epsilon")
    return options


def _parse(body: str) -> exp.Select:
    try:
        trees = sqlglot.parse(body, dialect="duckdb")
    except SqlglotError as error:
        reason = str(error).split("\n", maxsplit=1)[0]
        raise UnsupportedQuery(f"the statement cannot be parsed: {reason[:200]}") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        kind = type(trees[0]).__name__.upper() if trees and trees[0] is not None else "nothing"
        if kind in ("ALIAS", "COLUMN", "COMMAND", "nothing"):
            kind = "this; a statement begins with DP-SELECT, SELECT or EXPLAIN"
        raise UnsupportedQuery(f"only SELECT is answered, not {kind}; records are changed outside sfumato")
    for node in trees[0].walk():
        node.comments = None
    refuse_large(trees[0])
    return trees[0]


def _find_word(masked: str, word: str, start: int) -> int | None:
    found = (match.start() for match in re.compile(rf"\b{word}\b").finditer(masked, start))
    return next((place for place in found if _depth(masked, place) == 0), None)


def _depth(masked: str, stop: int) -> int:
    return masked.count("(", 0, stop) - masked.count(")", 0, stop)
