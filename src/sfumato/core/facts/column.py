"""A column: where it is stored, what it may hold, and what happens to anything else."""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, get_args

from sfumato.core.dates import read_day
from sfumato.core.errors import RecipeError, SchemaError, SourceError
from sfumato.core.exact import check_option, format_exact, parse_exact
from sfumato.core.facts.domain import (
    Bins,
    Calendar,
    Domain,
    IntegerRange,
    Label,
    Period,
    Tuples,
    Values,
    list_dates,
)
from sfumato.core.files import MOST_TEXT, read_regular

Policy = Literal["drop", "clamp", "other"]

OTHER = "other"
"""The label of values that are not in the domain, where `outside` says so."""

NULL = "NULL"
"""The label of missing values of a nullable column, where labels are shown."""

_MOST_VALUES = 2_000_000
_MOST_LISTED = 40
_MOST_LOOSE = 1000  # values that each record is compared with, one by one
_FORMAT = re.compile(r"epoch|epoch_ms|([^%\x00-\x1f]*%[YymbBdHIpMSfjz%])+[^%\x00-\x1f]*")
_DOMAIN_KEYS = ("values", "values_file", "ranges", "bins", "period", "range")
_OTHER_KEYS = ("from", "names", "outside", "bounds", "origin", "drafted_from_data", "accept_drafted")
_READ_KEYS = ("format", "decimal", "match", "missing", "missing_label", "nullable", "density")
_KEYS = (*_OTHER_KEYS, *_DOMAIN_KEYS, *_READ_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A described column.

    `outside` says what happens to a record whose value is not in the domain: `drop` it, `clamp` the
    number to the nearest end, or count it under `other`. A missing value has no nearest end, so
    under `clamp` it is dropped. With `missing_label` it is a value of its own, under that label; where a
    column is `nullable`, synthetic rows hold NULL in its place, and other values keep their type.

    How values are written: `format` is that of dates in text (as in strptime, or "epoch" and "epoch_ms"),
    `decimal` the sign before decimals, `missing` lists what stands for no value, besides nothing. With
    `match` loose, a text is the listed value that it equals but for case and spaces around it.

    `density` says how synthetic rows spread numbers within bins: `even`, or `smooth`, along lines that follow
    the counts of neighbouring bins.

    A column of dates or moments may have a public range of `dates`, first and last, in place of a domain:
    statements group by the periods in it. With `private_bounds` nobody knows the bounds of its numbers:
    each statement that needs them chooses them from the records, at a part of its price.

    With a `calendar`, its values are days, weeks or months, each with its year, that stored dates are in.
    """

    name: str
    stored: tuple[str, ...]
    domain: Domain | None = None
    outside: Policy = "drop"
    bounds: tuple[Fraction, Fraction] | None = None
    private_bounds: bool = False
    drafted: bool = False
    accepted: bool = False
    origin: str = "the project file"
    format: str | None = None
    decimal: Literal[".", ","] = "."
    missing: tuple[str, ...] = ()
    missing_label: str | None = None
    nullable: bool = False
    density: Literal["even", "smooth"] = "even"
    dates: tuple[date, date] | None = None
    calendar: Calendar | None = None
    match: Literal["exact", "loose"] = "exact"

    def __post_init__(self) -> None:
        for key, options in (
            ("outside", get_args(Policy)),
            ("decimal", (".", ",")),
            ("density", ("even", "smooth")),
            ("match", ("exact", "loose")),
        ):
            check_option(getattr(self, key), options, name=key, error=SchemaError)
        if self.outside == "clamp" and isinstance(self.domain, (Values, Tuples)):
            raise SchemaError(
                "outside = 'clamp' needs an ordered domain; for listed values use 'drop' or 'other'"
            )
        _check_reading(self)
        # Other domains hold numbers, maybe a billion, which are not listed to find a word among them.
        listed = self.domain.labels if isinstance(self.domain, (Values, Tuples)) else ()
        if self.outside == "other" and OTHER in listed:
            raise SchemaError("outside = 'other' adds the value 'other', but the domain lists it already")
        if self.match == "loose":
            texts = self.domain.values if isinstance(self.domain, Values) else (0,)
            if not isinstance(texts[0], str) or self.calendar is not None or len(texts) > _MOST_LOOSE:
                raise SchemaError(f"match = 'loose' is for a list of at most {_MOST_LOOSE:,} texts")
            if len({str(text).strip().lower() for text in texts}) < len(texts):
                raise SchemaError("match = 'loose': two values differ in case or spaces alone; keep one")
        if self.dates is not None:
            bounded = self.bounds is not None or self.private_bounds
            if self.domain is not None or bounded or len(self.stored) > 1:
                raise SchemaError("a range of dates stands alone; declare a period under a name of its own")
        if self.bounds is not None and self.bounds[0] >= self.bounds[1]:
            raise SchemaError("bounds must be [low, high] with low below high")
        if isinstance(self.domain, Tuples) != (len(self.stored) > 1):
            raise SchemaError(
                "several stored columns (from = [...]) need values that are lists, and the reverse"
            )

    @property
    def size(self) -> int:
        """The number of codes, with those for missing values and for `other`."""
        return self._require_domain().size + len(self.extras)

    @property
    def labels(self) -> tuple[Label, ...]:
        """What every code stands for in a release."""
        labels = self._require_domain().labels
        return (*(str(label) for label in labels), *self.extras) if self.extras else labels

    @property
    def extras(self) -> tuple[str, ...]:
        """The labels behind those of the domain: that of missing values, and `other`."""
        missing = () if self.missing_label is None else (self.missing_label,)
        return (*missing, OTHER) if self.outside == "other" else missing

    def _require_domain(self) -> Domain:
        if self.domain is None:
            raise SchemaError(f"column {self.name!r} has no public domain")
        return self.domain


def parse_column(name: str, spec: Mapping[str, Any], *, folder: Path | None = None) -> Column:
    """The column that `spec` (a table of the project file) describes.

    >>> parse_column("month", {"range": [1, 12]}).size
    12
    """
    try:
        return _parse_column(name, spec, folder)
    except (RecipeError, SchemaError) as error:
        raise SchemaError(f"column {name!r}: {error}") from None


def column_spec(column: Column) -> dict[str, Any]:
    """The description that reads back as `column`, with every listed value inside."""
    spec: dict[str, Any] = {"outside": column.outside, "origin": column.origin}
    if column.stored != (column.name,):
        spec["from"] = list(column.stored) if len(column.stored) > 1 else column.stored[0]
    match column.domain:
        case Values(values) if column.calendar is not None:
            ends = (f"{each}-01" if column.calendar == "month" else each for each in (values[0], values[-1]))
            spec |= {"period": column.calendar, "range": list(ends)}
        case Values(values, names, runs):
            spec["ranges" if runs else "values"] = find_ranges(values) if runs else list(values)
            if names is not None:
                spec["names"] = list(names)
        case Tuples(values):
            spec["values"] = [list(value) for value in values]
        case Bins(edges):
            spec["bins"] = [format_exact(edge) for edge in edges]
        case IntegerRange(low, high):
            spec["range"] = [low, high]
        case Period(part, years):
            spec["period"] = part
            if years is not None:
                spec["range"] = [years.low, years.high]
        case None:
            if column.dates is not None:
                spec["range"] = [each.isoformat() for each in column.dates]
    if column.bounds is not None:
        spec["bounds"] = [format_exact(bound) for bound in column.bounds]
    if column.private_bounds:
        spec["bounds"] = "private"
    plain = {"format": None, "decimal": ".", "missing": (), "missing_label": None, "nullable": False}
    for key, default in {**plain, "density": "even", "match": "exact"}.items():
        value = getattr(column, key)
        if value != default:
            spec[key] = list(value) if isinstance(value, tuple) else value
    if column.drafted:
        spec |= {"drafted_from_data": True, "accept_drafted": column.accepted}
    return spec


def parse_ranges(value: object) -> tuple[int, ...]:
    """The whole numbers that a list of [first, last], [first, last, step] or single numbers stands for.

    >>> parse_ranges([[0, 3], [10, 30, 10], 99])
    (0, 1, 2, 3, 10, 20, 30, 99)
    """
    entries = value if isinstance(value, list) else []
    numbers: list[int] = []
    for entry in entries:
        parts = entry if isinstance(entry, list) else [entry]
        if not 1 <= len(parts) <= 3 or not all(type(part) is int for part in parts):
            raise SchemaError("ranges must list [first, last], [first, last, step] or single whole numbers")
        first, last = parts[0], parts[1] if len(parts) > 1 else parts[0]
        step = parts[2] if len(parts) == 3 else 1
        if first > last or step < 1:
            raise SchemaError(f"ranges: [{first}, {last}] is empty, or its step is not positive")
        if (last - first) // step + len(numbers) >= _MOST_VALUES:
            raise SchemaError(f"ranges hold more than {_MOST_VALUES:,} values; declare bins instead")
        numbers.extend(range(first, last + 1, step))
    if not numbers:
        raise SchemaError("ranges must be a list such as [[0, 5000], [999998]]")
    return tuple(numbers)


def find_ranges(values: tuple[object, ...]) -> list[int | list[int]]:
    """The runs that a list of whole numbers is made of, in its order.

    >>> find_ranges((*range(100), 500))
    [[0, 99], 500]
    """
    numbers = [value for value in values if isinstance(value, int)]
    runs: list[int | list[int]] = []
    place = 0
    while place < len(numbers):
        step = numbers[place + 1] - numbers[place] if place + 1 < len(numbers) else 0
        end = place + 1
        while step > 0 and end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if end - place < 3:
            runs.append(numbers[place])
            place += 1
            continue
        first, last = numbers[place], numbers[end - 1]
        runs.append([first, last] if step == 1 else [first, last, step])
        place = end
    return runs


def refuse_unknown_keys(keys: Mapping[str, Any], known: tuple[str, ...], *, where: str) -> None:
    """Raises an error that names the first unknown key and the nearest known one."""
    for key in keys:
        if key not in known:
            raise SchemaError(f"{where}: unknown key {key!r}{suggest_name(key, known)}")


def suggest_name(name: str, known: Iterable[str], *, word: str = "known") -> str:
    """What to say behind a name that is not `known`: the nearest one that is, or all of them.

    >>> suggest_name("clinics", ["clinic", "fee"]), suggest_name("ward", ["clinic", "fee"])
    ("; did you mean 'clinic'?", '; known: clinic, fee')
    """
    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    if near:
        return f"; did you mean {folded[near[0]]!r}?"
    listed = list(folded.values())
    more = f", ... ({len(listed):,} in all)" if len(listed) > _MOST_LISTED else ""
    return f"; {word}: {', '.join(listed[:_MOST_LISTED]) or 'none'}{more}"


def _check_reading(column: Column) -> None:
    """Refuses what is contradictory about how values are written."""
    if column.format is not None and not _FORMAT.fullmatch(str(column.format)):
        raise SchemaError(
            "format must be 'epoch', 'epoch_ms', or made of %Y %y %m %b %B %d %H %I %p %M %S %f %j %z and "
            "what stands between them, such as '%d.%m.%Y'"
        )
    if not all(isinstance(text, str) for text in column.missing):
        raise SchemaError("missing must be a list of texts, such as ['NA', '-9']")
    if column.density == "smooth" and not isinstance(column.domain, Bins):
        raise SchemaError("density = 'smooth' is about numbers within bins; declare bins, or leave it out")
    label = column.missing_label
    if column.nullable and (column.domain is None or label is None or column.outside == "other"):
        raise SchemaError(
            "nullable needs a column with a domain over one stored column, and outside = 'drop' or 'clamp': "
            "`other` is neither a value nor missing"
        )
    if label is None:
        return
    if column.domain is None or isinstance(column.domain, Tuples) or not isinstance(label, str) or not label:
        raise SchemaError("missing_label must be a text, for a column with a domain over one stored column")
    if label == OTHER or label in [str(each) for each in column.domain.labels]:
        raise SchemaError(f"missing_label {label!r} is already a value of the column; choose another")


def _parse_column(name: str, spec: Mapping[str, Any], folder: Path | None) -> Column:
    if not isinstance(spec, dict):
        raise SchemaError("must be a table of keys such as values, bins, range, period or bounds")
    refuse_unknown_keys(spec, _KEYS, where="project file")
    stored = spec.get("from", name)
    origin = spec.get("origin", "the project file")
    if "values_file" in spec:
        if folder is None or not isinstance(spec["values_file"], str):
            raise SchemaError("values_file must be the name of a file, relative to the project file")
        path = folder / spec["values_file"]
        values, sha256 = _read_values(path, [name, *([stored] if isinstance(stored, str) else stored)])
        origin = f"{path.name} (sha256 {sha256})"
        spec = {**spec, "values_file": values}
    dates, calendar = _parse_dates(spec), spec.get("period")
    nullable = _flag(spec, "nullable")
    if dates is None or calendar is None:
        calendar = None
    elif calendar not in get_args(Calendar) or isinstance(stored, list) or "names" in spec:
        raise SchemaError("a range of two dates has the periods day, week or month of one stored column")
    if dates is not None:
        spec = {key: value for key, value in spec.items() if key not in ("range", "period")}
    return Column(
        name=name,
        stored=tuple(stored) if isinstance(stored, list) else (str(stored),),
        dates=dates if calendar is None else None,
        calendar=calendar,
        domain=_parse_domain(spec) if dates is None or calendar is None else list_dates(calendar, *dates),
        outside=spec.get("outside", "drop"),
        bounds=None if spec.get("bounds") == "private" else _parse_bounds(spec.get("bounds")),
        private_bounds=spec.get("bounds") == "private",
        drafted=_flag(spec, "drafted_from_data"),
        accepted=_flag(spec, "accept_drafted"),
        origin=str(origin),
        format=spec.get("format"),
        decimal=spec.get("decimal", "."),
        missing=tuple(_require_list(spec.get("missing", []), "missing")),
        missing_label=spec.get("missing_label", NULL if nullable else None),
        nullable=nullable,
        density=spec.get("density", "even"),
        match=spec.get("match", "exact"),
    )


def _parse_domain(spec: Mapping[str, Any]) -> Domain | None:
    # The range of a period says which years; it is no domain of its own.
    ways = [key for key in _DOMAIN_KEYS if key in spec and not (key == "range" and "period" in spec)]
    if not ways:
        return None
    if len(ways) > 1:
        raise SchemaError(f"declare one domain, not {' and '.join(ways)}")
    match ways[0]:
        case "values":
            return _parse_values(spec["values"], spec.get("names"))
        case "values_file":
            return Values(spec["values_file"])
        case "ranges":
            return Values(parse_ranges(spec["ranges"]), _parse_names(spec.get("names")), runs=True)
        case "bins":
            edges = _require_list(spec["bins"], "bins")
            return Bins(tuple(parse_exact(edge, name="a bin edge") for edge in edges))
        case "period":
            return Period(spec["period"], _parse_range(spec["range"]) if "range" in spec else None)
        case _:
            return _parse_range(spec["range"])


def _parse_dates(spec: Mapping[str, Any]) -> tuple[date, date] | None:
    """The first and the last date of a range, if it is one of dates."""
    ends = spec.get("range")
    if not isinstance(ends, list) or not ends or not all(isinstance(end, (str, date)) for end in ends):
        return None
    if len(ends) != 2:
        raise SchemaError("range must be [first, last], two whole numbers or two dates")
    first, last = (read_day(str(end)) for end in ends)
    if first is None or last is None:
        raise SchemaError('range must be two dates such as ["2019-01-01", "2025-12-31"]')
    if first > last:
        raise SchemaError("range must be [first, last], and its first date is after its last")
    return first, last


def _parse_values(values: object, names: object) -> Values | Tuples:
    entries = _require_list(values, "values")
    if entries and isinstance(entries[0], list):
        return Tuples(tuple(tuple(entry) if isinstance(entry, list) else (entry,) for entry in entries))
    booleans = all(isinstance(entry, bool) for entry in entries)
    words = (str(entry).lower() if isinstance(entry, bool) else entry for entry in entries)
    return Values(tuple(words), _parse_names(names), booleans=booleans)


def _parse_names(names: object) -> tuple[str, ...] | None:
    return tuple(str(entry) for entry in _require_list(names, "names")) if names else None


def _parse_range(value: object) -> IntegerRange:
    ends = _require_list(value, "range")
    if len(ends) != 2 or any(isinstance(end, bool) or not isinstance(end, int) for end in ends):
        raise SchemaError("range must be [first, last], two whole numbers or two dates")
    return IntegerRange(*ends)


def _parse_bounds(value: object) -> tuple[Fraction, Fraction] | None:
    if value is None:
        return None
    ends = _require_list(value, "bounds")
    if len(ends) != 2:
        raise SchemaError('bounds must be [low, high], or "private" to have them chosen')
    return parse_exact(ends[0], name="bounds"), parse_exact(ends[1], name="bounds")


def _require_list(value: object, key: str) -> list[Any]:
    if not isinstance(value, list):
        raise SchemaError(f"{key} must be a list, not {value!r}; see docs/schema.md")
    return value


def _flag(spec: Mapping[str, Any], key: str) -> bool:
    value = spec.get(key, False)
    if not isinstance(value, bool):
        raise SchemaError(f"{key} must be true or false")
    return value


def _read_values(path: Path, names: list[str]) -> tuple[tuple[Label, ...], str]:
    """The first field of every line, without a header line that names the column, and the file's digest."""
    try:
        content = read_regular(path, most=MOST_TEXT)
    except OSError as error:
        reason = str(error) if isinstance(error, SourceError) else "check the name and the folder"
        raise SchemaError(f"values_file {path.name!r} cannot be read; {reason}") from None
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        lines = io.StringIO(content.decode("utf-8-sig"), newline="")
        entries = [row[0].strip() for row in csv.reader(lines) if row and row[0].strip()]
    except (csv.Error, UnicodeDecodeError) as error:
        raise SchemaError(f"values_file {path.name!r} cannot be read ({type(error).__name__})") from None
    header = {*(str(each).lower() for each in names), "value", "values", "code", "codes"}
    if entries and entries[0].lower() in header:
        entries = entries[1:]
    if entries and all(_is_plain_integer(entry) for entry in entries):
        return tuple(int(entry) for entry in entries), sha256
    return tuple(entries), sha256


def _is_plain_integer(text: str) -> bool:
    # "07" stays text: a leading zero means a code, not a number.
    return text.lstrip("-").isdecimal() and str(int(text)) == text
