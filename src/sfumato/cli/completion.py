"""What the shell completes: keywords, tables, columns and public values. Nothing here reads a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

KEYWORDS = (
    "DP-SELECT", "SELECT", "EXPLAIN", "DESCRIBE", "SHOW TABLES", "SUMMARIZE", "WITHIN", "DELTA", "FROM",
    "JOIN", "LEFT JOIN", "ON", "USING", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "WITH",
    "AS", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN",
    "ELSE", "END", "DISTINCT", "FILTER", "OVER", "ASC", "DESC", "INTERVAL", "DATE", "NULL", "TRUE", "FALSE",
)  # fmt: skip
FUNCTIONS = (
    "COUNT(", "SUM(", "AVG(", "MIN(", "MAX(", "MEDIAN(", "QUANTILE(", "STDDEV(", "VARIANCE(", "MODE(", "TOP(",
    "CORR(", "COVAR_POP(", "REGR_SLOPE(", "DATE_TRUNC(", "EXTRACT(", "CAST(", "ROUND(", "FLOOR(", "COALESCE(",
    "NULLIF(", "UPPER(", "LOWER(", "ABS(",
)  # fmt: skip
COMMANDS = (".budget", ".help", ".mode", ".pager", ".quit", ".read", ".schema", ".tables", ".timing")
CHOICES: dict[str, tuple[str, ...]] = {
    ".mode": ("box", "line", "csv", "json", "markdown"),
    ".timing": ("on", "off"),
    ".pager": ("on", "off"),
}

_WORD = re.compile(r"[\w.$-]*$")
_BEFORE_TABLE = re.compile(
    r"\b(?:from|join|describe|desc|summarize|table)\s+$|^\s*\.schema\s+|\bfrom\s[^()]*,\s*$", re.IGNORECASE
)
_COMPARED = re.compile(
    r'([A-Za-z_]\w*|"[^"]+")\s*(?:=|<>|!=|(?:not\s+)?in\s*\([^()]*|like)\s*$', re.IGNORECASE
)
_MOST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The public names: tables with their columns, and the public values of columns."""

    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def complete(text: str, vocabulary: Vocabulary) -> tuple[int, list[str]]:
    """Where the last word of `text` begins, and what it may become.

    >>> trips = Vocabulary(tables={"trips": ("fare", "zone")}, values={"zone": ("north", "old town")})
    >>> complete("select count(*) from tr", trips)
    (21, ['trips'])
    >>> complete("SELECT COUNT(*) FROM trips WHERE zone = 'o", trips)
    (40, ["'old town'"])
    >>> complete("select dea", Vocabulary(tables={"t": ("Death City", "deaths")}))
    (7, ['"Death City"', 'deaths'])
    """
    if text.lstrip().startswith("."):
        return _complete_command(text, vocabulary)
    if text.count("'") % 2:
        start = text.rindex("'")
        return start, _complete_value(text[:start], text[start + 1 :], vocabulary)
    columns = [column for name in _named_tables(text, vocabulary) for column in vocabulary.tables[name]]
    if text.count('"') % 2:
        start = text.rindex('"')
        names = vocabulary.tables if _BEFORE_TABLE.search(text[:start]) else dict.fromkeys(columns)
        return start, [_quote(name) for name in _starting(text[start + 1 :], names)]
    found = _WORD.search(text)
    start = found.start() if found is not None else len(text)
    word, before = text[start:], text[:start]
    if _BEFORE_TABLE.search(before):
        return start, _spell(_starting(word, vocabulary.tables))
    table, dot, part = word.rpartition(".")
    if dot:
        listed = _fold(vocabulary.tables).get(table.lower(), ())
        return start + len(table) + 1, _spell(_starting(part, listed))
    lower = word.islower()
    spoken = [each.lower() if lower else each for each in (*FUNCTIONS, *KEYWORDS)]
    offered = _spell(_starting(word, dict.fromkeys(columns)))
    return start, [*offered, *(_starting(word, spoken) if word else ())]


def read_vocabulary(
    text: Callable[[], str], vocabulary: Callable[[], Vocabulary]
) -> Callable[..., str | None]:
    """The function that readline calls; `text` is what was written of the statement on lines before."""
    import readline

    found: list[str] = []

    def completer(_word: str, state: int) -> str | None:
        nonlocal found
        if state == 0:
            before, line = text(), readline.get_line_buffer()[: readline.get_endidx()]
            start, candidates = complete(before + line, vocabulary())
            # Only what stands from begidx on is replaced, and a value may hold blanks before that.
            skipped = readline.get_begidx() - (start - len(before))
            found = [each[skipped:] if skipped > 0 else each for each in candidates[:_MOST]]
        return found[state] if state < len(found) else None

    return completer


def _complete_command(text: str, vocabulary: Vocabulary) -> tuple[int, list[str]]:
    command, blank, word = text.lstrip().partition(" ")
    start = len(text) - len(word)
    if not blank:
        return len(text) - len(command), _starting(command, COMMANDS)
    options = vocabulary.tables if command == ".schema" else CHOICES.get(command, ())
    return start, _starting(word, options)


def _complete_value(before: str, typed: str, vocabulary: Vocabulary) -> list[str]:
    compared = _COMPARED.search(before)
    values = _fold(vocabulary.values)
    name = "" if compared is None else compared[1].strip('"').lower()
    listed = values.get(name) if name else None
    if listed is None:
        listed = tuple(dict.fromkeys(value for each in values.values() for value in each))
    return ["'" + value.replace("'", "''") + "'" for value in _starting(typed, listed)]


def _named_tables(text: str, vocabulary: Vocabulary) -> list[str]:
    """The tables that a statement names; all of them if it names none yet."""
    words = set(re.findall(r"\w+", text.lower()))
    return [name for name in vocabulary.tables if name.lower() in words] or list(vocabulary.tables)


def _spell(names: Iterable[str]) -> list[str]:
    """Names as a statement has them: in quotes where they need them."""
    return [name if re.fullmatch(r"[^\W\d]\w*", name) else _quote(name) for name in names]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _starting(word: str, names: Iterable[str]) -> list[str]:
    folded = word.casefold()
    return [name for name in names if name.casefold().startswith(folded)]


def _fold(named: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name.lower(): each for name, each in named.items()}
