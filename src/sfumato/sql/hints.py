"""What a refusal offers instead: the nearest name that is public, and the nearest form that is answered."""

from __future__ import annotations

import difflib
import re

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

AGGREGATES = (
    "COUNT", "SUM", "AVG", "MIN", "MAX", "MEDIAN", "QUANTILE", "STDDEV", "VARIANCE", "MODE", "TOP",
    "COUNT_IF", "CORR", "COVAR_POP", "COVAR_SAMP", "REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_COUNT",
    "PERCENTILE_CONT",
)  # fmt: skip
"""The aggregates that have a private form."""

_FUNCTIONS = (
    *AGGREGATES, "ABS", "ROUND", "FLOOR", "CEIL", "SQRT", "LN", "LOG", "EXP", "POWER", "SIGN", "TRUNC",
    "GREATEST", "LEAST", "LOWER", "UPPER", "TRIM", "LENGTH", "SUBSTRING", "LEFT", "RIGHT", "CONCAT",
    "POSITION", "REGEXP_MATCHES", "COALESCE", "NULLIF", "CAST", "EXTRACT", "DATE_TRUNC", "DATE_PART",
    "TO_CHAR", "STRFTIME", "YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND",
    "DAYOFWEEK", "TO_TIMESTAMP",
)  # fmt: skip
_MEANT = {
    "AVERAGE": "AVG", "MEAN": "AVG", "STD": "STDDEV", "STDEV": "STDDEV", "SD": "STDDEV", "VAR": "VARIANCE",
    "PERCENTILE": "QUANTILE", "TOTAL": "SUM", "NUMBER": "COUNT", "MINIMUM": "MIN", "MAXIMUM": "MAX",
    "LEN": "LENGTH", "SUBSTR": "SUBSTRING", "IFNULL": "COALESCE", "NVL": "COALESCE", "ISNULL": "COALESCE",
    "CEILING": "CEIL", "POW": "POWER", "MOST_FREQUENT": "MODE", "TOP_K": "TOP", "DATETRUNC": "DATE_TRUNC",
    "DATEPART": "DATE_PART", "FORMAT_DATE": "TO_CHAR", "DATE_FORMAT": "TO_CHAR", "TO_NUMBER": "CAST",
}  # fmt: skip
_INSTEAD = {
    **dict.fromkeys(
        ("STRING_AGG", "LISTAGG", "GROUP_CONCAT", "ARRAY_AGG"),
        "it would tell values of records; list public values with SELECT DISTINCT",
    ),
    "FIRST": "it would tell the value of a record; use MODE, MIN or MEDIAN",
    "LAST": "it would tell the value of a record; use MODE, MAX or MEDIAN",
    "ANY_VALUE": "it would tell the value of a record; use MODE, MIN or MEDIAN",
    "ARG_MAX": "it would tell the value of a record; use TOP, MODE or MAX",
    "ARG_MIN": "it would tell the value of a record; use TOP, MODE or MIN",
    **dict.fromkeys(("SKEWNESS", "KURTOSIS"), "use AVG, STDDEV and QUANTILE"),
    "PRODUCT": "use EXP(AVG(LN(column))) with bounds, or SUM",
    **dict.fromkeys(("BOOL_AND", "LOGICAL_AND", "EVERY"), "use COUNT(*) FILTER (WHERE NOT condition)"),
    **dict.fromkeys(("BOOL_OR", "LOGICAL_OR"), "use COUNT(*) FILTER (WHERE condition)"),
    **dict.fromkeys(("APPROX_DISTINCT", "APPROX_COUNT_DISTINCT"), "use COUNT(DISTINCT column)"),
}
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
