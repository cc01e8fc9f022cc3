"""A first project file from the names and types of a source; everything else is left to fill in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

_HINTS = {
    "integer": "range = [1, 12]          # or values = [...], bins = [...]",
    "number": "bins = [0, 10, 20, 50]   # and bounds = [0, 50] for sums",
    "text": 'values = ["a", "b"]      # or values_file = "names.csv"',
    "boolean": "values = [false, true]",
    "date": 'period = "month"         # or year (with range), day_of_week, hour',
}


def draft_project(source: str, kinds: Mapping[str, str]) -> str:
    """A project file for `source` whose domains, bounds and unit are still to be written.

    >>> print(draft_project("calls.csv", {"district": "text"}).splitlines()[-2])
    [tables.calls.columns.district]   # text
    """
    name = re.sub(r"\W+", "_", source.replace("\\", "/").rsplit("/", 1)[-1].split(".")[0]) or "records"
    lines = [
        "# Drafted from the names and types of the source. Domains and bounds are public facts that you",
        "# know without looking at the records: write them here, never copy them out of the data.",
        "",
        "[budget]",
        "epsilon = 1.0       # the most that this project may ever spend",
        "# delta = 1e-9      # needed for Gaussian noise",
        "",
        f"[tables.{_key(name)}]",
        f"source = {quote_toml(source)}",
        'unit = "TODO"       # the column that names the individual, or "row" if every row is one',
        'max_records = "TODO"   # the most records of one individual that may count',
    ]
    for column, kind in kinds.items():
        lines += [
            "",
            f"[tables.{_key(name)}.columns.{_key(column)}]   # {kind}",
            f"# TODO: {_HINTS[kind]}" if kind in _HINTS else "# nested or binary: leave this column out",
        ]
    return "\n".join(lines) + "\n"


def quote_toml(text: str) -> str:
    r"""A text as a basic string of TOML, whatever it holds.

    >>> print(quote_toml('a "b"\n'))
    "a \"b\"\n"
    """
    return '"' + "".join(_ESCAPES.get(char) or _escape(char) for char in text) + '"'


def _escape(char: str) -> str:
    # Control characters and DEL may not stand in TOML. Half a surrogate pair is no character at all: what a
    # file's name holds beyond UTF-8 arrives as one, and no spelling of TOML brings it back.
    if char < " " or char == "\x7f":
        return f"\\u{ord(char):04X}"
    return "\\uFFFD" if "\ud800" <= char <= "\udfff" else char


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quote_toml(name)
