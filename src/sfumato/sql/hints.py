"""What a refusal offers instead: the nearest name that is public, and the nearest form that is answered."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sqlglot import exp

from sfumato.schema import Values, suggest_name

if TYPE_CHECKING:
    from sfumato.sql.relation import Field

AGGREGATES = (
    "COUNT", "SUM", "AVG", "MIN", "MAX", "MEDIAN", "QUANTILE", "STDDEV", "VARIANCE", "MODE", "TOP",
    "COUNT_IF", "CORR", "COVAR_POP", "COVAR_SAMP", "REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_COUNT",
    "PERCENTILE_CONT",
)  # fmt: skip
"""The aggregates that have a private form."""

_FUNCTIONS = (
    *AGGREGATES,
    *(
        "ABS",
        "ROUND",
        "FLOOR",
        "CEIL",
        "SQRT",
        "LN",
        "LOG",
        "EXP",
        "POWER",
        "SIGN",
        "TRUNC",
        "GREATEST",
        "LEAST",
    ),
    *(
        "LOWER",
        "UPPER",
        "TRIM",
        "LENGTH",
        "SUBSTRING",
        "LEFT",
        "RIGHT",
        "CONCAT",
        "POSITION",
        "REGEXP_MATCHES",
    ),
    *("COALESCE", "NULLIF", "CAST", "EXTRACT", "DATE_TRUNC", "DATE_PART", "TO_CHAR", "STRFTIME", "YEAR"),
    *("QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "DAYOFWEEK", "TO_TIMESTAMP"),
)
_MEANT = {
    "AVERAGE": "AVG", "MEAN": "AVG", "STD": "STDDEV", "STDEV": "STDDEV", "SD": "STDDEV", "VAR": "VARIANCE",
    "PERCENTILE": "QUANTILE", "TOTAL": "SUM", "NUMBER": "COUNT", "MINIMUM": "MIN", "MAXIMUM": "MAX",
    "LEN": "LENGTH", "SUBSTR": "SUBSTRING", "IFNULL": "COALESCE", "NVL": "COALESCE", "ISNULL": "COALESCE",
    "CEILING": "CEIL", "POW": "POWER", "MOST_FREQUENT": "MODE", "TOP_K": "TOP", "DATETRUNC": "DATE_TRUNC",
    "DATEPART": "DATE_PART", "FORMAT_DATE": "TO_CHAR", "DATE_FORMAT": "TO_CHAR", "TO_NUMBER": "CAST",
}  # fmt: skip
_INSTEAD = {
    "STRING_AGG": "it would tell values of records; list public values with SELECT DISTINCT",
    "LISTAGG": "it would tell values of records; list public values with SELECT DISTINCT",
    "GROUP_CONCAT": "it would tell values of records; list public values with SELECT DISTINCT",
    "ARRAY_AGG": "it would tell values of records; list public values with SELECT DISTINCT",
    "FIRST": "it would tell the value of a record; use MODE, MIN or MEDIAN",
    "LAST": "it would tell the value of a record; use MODE, MAX or MEDIAN",
    "ANY_VALUE": "it would tell the value of a record; use MODE, MIN or MEDIAN",
    "ARG_MAX": "it would tell the value of a record; use TOP, MODE or MAX",
    "ARG_MIN": "it would tell the value of a record; use TOP, MODE or MIN",
    "SKEWNESS": "use AVG, STDDEV and QUANTILE",
    "KURTOSIS": "use AVG, STDDEV and QUANTILE",
    "PRODUCT": "use EXP(AVG(LN(column))) with bounds, or SUM",
    "BOOL_AND": "use COUNT(*) FILTER (WHERE NOT condition)",
    "BOOL_OR": "use COUNT(*) FILTER (WHERE condition)",
    "LOGICAL_AND": "use COUNT(*) FILTER (WHERE NOT condition)",
    "LOGICAL_OR": "use COUNT(*) FILTER (WHERE condition)",
    "EVERY": "use COUNT(*) FILTER (WHERE NOT condition)",
    "APPROX_DISTINCT": "use COUNT(DISTINCT column)",
    "APPROX_COUNT_DISTINCT": "use COUNT(DISTINCT column)",
}
_SETS = ("UNION", "INTERSECT", "EXCEPT")
_BEGINNINGS = ("DP-SELECT", "SELECT", "EXPLAIN", "DESCRIBE", "SUMMARIZE", "SHOW TABLES", "WITH")
_CHANGES = re.compile(
    r"(insert|update|delete|merge|create|drop|alter|truncate|copy|attach|detach|install|load|set|reset|pragma|call|"
    r"grant|revoke|begin|commit|rollback|vacuum|use|import|export|replace)\b",
    re.IGNORECASE,
)


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
    return f"a statement begins with DP-SELECT, SELECT, WITH or EXPLAIN, not with {word[:40]!r}{hint}"


def hint_set(kind: str) -> str:
    """Why several statements are not answered as one, and what is."""
    return (
        f"only SELECT is answered, not {kind} of statements: each is charged by itself. Send them one by "
        "one, GROUP BY what tells them apart, or ask of all rows: FROM (SELECT ... UNION ALL SELECT ...) AS a"
    )


def hint_parse(body: str, reason: str) -> str:
    """What the parser stumbled over, without what it prints for a terminal."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", reason).strip().rstrip(".")
    hint = _hint_beginning(body.split()[0].upper()) if body.split() else ""
    if hint:
        return f"a statement begins with DP-SELECT, SELECT, WITH or EXPLAIN{hint}"
    if body.count("(") != body.count(")"):
        hint = f"; {body.count('(')} brackets are opened and {body.count(')')} closed"
    return f"the statement cannot be parsed: {plain[:200]}{hint}"


def _hint_beginning(word: str) -> str:
    near = difflib.get_close_matches(word, _BEGINNINGS, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near and word not in _BEGINNINGS else ""


def hint_column(node: exp.Column, fields: Mapping[str, Mapping[str, Field]]) -> str:
    """What to say behind a name that is no column. Only described names are told.

    A text file without a header line has records for names.
    """
    found = [each for named in fields.values() for each in named.values()]
    described = [each for each in found if each.column is not None or each.bounds is not None or each.moments]
    select = node.find_ancestor(exp.Select)
    items = [] if select is None or node.find_ancestor(exp.Where) is None else select.expressions
    if any(item.alias.lower() == node.name.lower() and item.find(exp.AggFunc) for item in items):
        return "; it is computed of groups, and conditions about groups stand in HAVING"
    if node.table and node.table.lower() not in fields:
        listed = suggest_name(node.table, fields, word="there are")
        return f": no table is called {node.table[:80]!r} here{listed}"
    values = {
        str(value).casefold(): value
        for each in described
        if each.column is not None and isinstance(each.column.domain, Values)
        for value in each.column.domain.values
    }
    if node.name.casefold() in values:
        return f"; it is a value, and text stands in single quotes: '{values[node.name.casefold()]}'"
    if node.this.meta.get("quoted") and not _is_near(node.name, described):
        listed = suggest_name(node.name, sorted({each.name for each in described}), word="described")
        return f"; double quotes are around names, text stands in single quotes{listed}"
    return suggest_name(node.name, sorted({each.name for each in described}), word="described")


def hint_function(name: str) -> str:
    """What to use in place of a function that is not allowed."""
    upper = name.upper()
    if upper in _INSTEAD:
        return f"; {_INSTEAD[upper]}"
    if upper in _MEANT:
        return f"; use {_MEANT[upper]}"
    near = difflib.get_close_matches(upper, (*_FUNCTIONS, *_MEANT), n=1, cutoff=0.7)
    if not near or near[0] == upper:
        return " (docs/sql.md lists what is)"
    return f"; did you mean {_MEANT.get(near[0], near[0])}?"


def hint_aggregate(name: str) -> str:
    """What to use in place of an aggregate that has no private form."""
    upper = name.upper()
    return f"; {_INSTEAD[upper]}" if upper in _INSTEAD else f"; those that have: {', '.join(AGGREGATES)}"


def _is_near(name: str, fields: Iterable[Field]) -> bool:
    return bool(difflib.get_close_matches(name.casefold(), [each.name.casefold() for each in fields], n=1))
