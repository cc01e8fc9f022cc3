"""Tables in and out: the one reader of files and frames, the one durable writer, numpy and Arrow.

Whoever reads a file reads it here: a separator, an encoding and an empty cell mean the same everywhere. What
a project file says besides the core's facts is read here, too: rules, and contest parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core.facts.rules import register_readers

if TYPE_CHECKING:
    from sfumato.core.facts.column import Column
    from sfumato.core.facts.domain import Label
    from sfumato.core.facts.rules import Rule


class _Readers:
    """Reads rules and parameters by modules that are loaded when a description has any."""

    def parse_rules(
        self, spec: Mapping[str, Any], columns: Mapping[str, Column], *, folder: Path | None, where: str
    ) -> tuple[tuple[dict[str, tuple[Label, ...]], ...], tuple[Rule, ...]]:
        from sfumato.tables.rules import parse_rules

        return parse_rules(spec, columns, folder=folder, where=where)

    def read_columns(self, path: Path) -> dict[str, Column]:
        from sfumato.tables.contest import read_parameters

        return read_parameters(path).columns


register_readers(_Readers())

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def quote_toml(text: str) -> str:
    r"""A text as a basic string of TOML, whatever it holds.

    >>> print(quote_toml('a "b"\n'))
    "a \"b\"\n"
    """
    return '"' + "".join(_ESCAPES.get(char) or _escape(char) for char in text) + '"'


def quote_key(name: str) -> str:
    """A name as a key of TOML, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quote_toml(name)


def _escape(char: str) -> str:
    # Control characters and DEL may not stand in TOML. Half a surrogate pair is no character at all: what a
    # file's name holds beyond UTF-8 arrives as one, and no spelling of TOML brings it back.
    if char < " " or char == "\x7f":
        return f"\\u{ord(char):04X}"
    return "\\uFFFD" if "\ud800" <= char <= "\udfff" else char
