"""Hierarchies from files: TOML with a section for each column, and CSV lists as other tools write them."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from sfumato.anonymity.hierarchy import Dates, Groups, Hierarchy, Intervals, Listed, Prefixes, Suppressed
from sfumato.core.errors import AnonymityError
from sfumato.core.files import MOST_TEXT, read_regular

_DELIMITERS: Final = ";,\t"
# What a section is about, and the keys that may stand beside it.
_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "intervals": ("open_below", "open_above", "style"),
    "widths": ("origin", "style"),
    "dates": (),
    "prefixes": ("pad",),
    "groups": ("spelled",),
    "file": ("delimiter", "header"),
    "suppressed": (),
}
_FLAGS: Final = ("open_below", "open_above", "pad", "spelled", "header")


def read_hierarchies(path: Path | str) -> dict[str, Hierarchy]:
    r"""Returns the hierarchies in a TOML file, by column.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "levels.toml")
    ...     _ = path.write_text("[postcode]\nprefixes = [2, 1]\n[sex]\nsuppressed = true\n")
    ...     read_hierarchies(path)
    {'postcode': Prefixes(keep=(2, 1), pad=False), 'sex': Suppressed()}
    """
    path = Path(path)
    try:
        document = tomllib.loads(read_regular(path, most=MOST_TEXT).decode(), parse_float=Decimal)
    except OSError as error:
        raise AnonymityError(
            f"hierarchy file {path.name!r} cannot be read ({type(error).__name__}); check its name"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnonymityError(f"hierarchy file {path.name!r} is not valid TOML: {error}") from None
    for column, section in document.items():
        if not isinstance(section, dict):
            raise AnonymityError(
                f"hierarchy file {path.name!r}: {column!r} stands alone; write a section [{column}]"
            )
    return {
        column: parse_hierarchy(section, column=column, folder=path.parent)
        for column, section in document.items()
    }


def parse_hierarchy(spec: Mapping[str, Any], *, column: str, folder: Path | str) -> Hierarchy:
    """Returns the hierarchy that a section describes; a file that it names is looked for in `folder`.

    >>> parse_hierarchy({"prefixes": [2, 1], "pad": True}, column="postcode", folder=".")
    Prefixes(keep=(2, 1), pad=True)
    >>> parse_hierarchy({"prefixes": [2, 1], "stars": 2}, column="code", folder=".")
    Traceback (most recent call last):
        ...
    sfumato.core.errors.AnonymityError: column 'code': unknown key 'stars'; known beside 'prefixes': pad
    """
    where = f"column {column!r}"
    kind = _find_kind(spec, where)
    for key in spec:
        if key != kind and key not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind]) or "no other key"
            raise AnonymityError(f"{where}: unknown key {key!r}; known beside {kind!r}: {known}")
        if key in _FLAGS and not isinstance(spec[key], bool):
            raise AnonymityError(f"{where}: {key} must be true or false")
    options = {key: value for key, value in spec.items() if key != kind}
    try:
        return _build(kind, spec[kind], options, Path(folder))
    except AnonymityError as error:
        raise AnonymityError(f"{where}: {error}") from None


def read_listed(path: Path | str, *, delimiter: str | None = None, header: bool = False) -> Listed:
    r"""Returns the hierarchy in a CSV file: the value first, then its labels, coarser and coarser.

    The delimiter is a semicolon, a comma or a tab, whichever the first line has most of, unless it is given.
    With `header` the first line holds names and is left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "job.csv")
    ...     _ = path.write_text("Federal;Government;*\nPrivate;Private;*\n")
    ...     read_listed(path).label_levels(["Federal"], column="job")
    (('Government',), ('*',))
    """
    path = Path(path)
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise AnonymityError("delimiter must be one character, such as ';'")
    try:
        text = read_regular(path, most=MOST_TEXT).decode("utf-8-sig")
        chosen = delimiter or max(_DELIMITERS, key=text.partition("\n")[0].count)
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=chosen)
        rows = [row for row in lines if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnonymityError(
            f"{path.name!r} cannot be read ({type(error).__name__}); it must be a CSV file in UTF-8"
        ) from None
    try:
        return Listed(rows[1:] if header else rows)
    except AnonymityError as error:
        raise AnonymityError(f"{path.name!r}: {error}") from None


def _find_kind(spec: Mapping[str, Any], where: str) -> str:
    kinds = [key for key in spec if key in _OPTIONS]
    if len(kinds) == 1:
        return kinds[0]
    found = f"it has {' and '.join(kinds)}" if kinds else f"it has {', '.join(map(repr, spec)) or 'no key'}"
    raise AnonymityError(f"{where}: its section needs exactly one of {', '.join(_OPTIONS)}; {found}")


def _build(kind: str, main: Any, options: Mapping[str, Any], folder: Path) -> Hierarchy:  # noqa: ANN401
    """Gives the hierarchy of one kind; the builders say themselves what is wrong with what they are given."""
    match kind:
        case "intervals":
            return Intervals(main, **options)
        case "widths":
            return Intervals(widths=main, **options)
        case "dates":
            return Dates(main)
        case "prefixes":
            return Prefixes(main, **options)
        case "groups":
            return Groups(main, **options)
        case "file" if isinstance(main, str) and main:
            return read_listed(folder / main, **options)
        case "suppressed" if main is True:
            return Suppressed()
    required = "the name of a CSV file" if kind == "file" else "true, or its section left out"
    raise AnonymityError(f"{kind} must be {required}")
