"""The columns of a release as its certificate describes them, codes for what the table holds, and axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import RecipeError, SfumatoError
from sfumato.core.facts.column import Column, parse_column
from sfumato.core.facts.domain import Bins, IntegerRange, Label, Period, Tuples, Values
from sfumato.report.pages.words import clip_text
from sfumato.tables.arrays import code_days

Kind = Literal["values", "combinations", "bins", "range", "period"]

_KINDS: dict[type, Kind] = {
    Values: "values",
    Tuples: "combinations",
    Bins: "bins",
    IntegerRange: "range",
    Period: "period",
}
_MOST_LABELS = 2**20
_MOST_TIMES = 400  # a year of days, and some
# What columns of time and of places are often called.
_TIMES = frozenset({
    "date", "day", "hour", "minute", "month", "period", "quarter", "season", "shift", "time", "week",
    "weekday", "year", "yearmonth",
})  # fmt: skip
_DATED = re.compile(r"\d{4}([-/ ]?[qhw]?\d{1,2}([-/]\d{1,2})?)?$")
_NAMED = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday",
)  # fmt: skip
_CALENDAR = frozenset((*_NAMED, *(each[:3] for each in _NAMED)))
_PLACES = frozenset({
    "area", "borough", "city", "commune", "county", "district", "geo", "municipality", "neighborhood",
    "neighbourhood", "place", "postcode", "precinct", "province", "puma", "region", "state", "station",
    "tract", "ward", "zip", "zipcode", "zone",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A described column: what it may hold, and the columns of the released table that hold it.

    `labels` has one text per code, `keys` the released value of each, one per released column; `edges`
    are those of bins, `missing` is the code of NULL.
    """

    name: str
    released: tuple[str, ...]
    stored: tuple[str, ...]
    kind: Kind
    labels: tuple[str, ...]
    keys: tuple[tuple[Label, ...], ...]
    edges: tuple[float, ...]
    outside: str
    origin: str
    drafted: bool
    missing: int = -1

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.labels)

    def cut(self, size: int | None) -> Field:
        """Returns the field with its first `size` codes alone; None for all."""
        return self if size is None else replace(self, labels=self.labels[:size], keys=self.keys[:size])

    @property
    def ordered(self) -> bool:
        """Whether the codes follow an order that means something, as listed dates, months and weekdays do."""
        if self.kind in ("bins", "range", "period"):
            return True
        listed = [label.lower() for label in self.labels if label not in ("other", "")]
        dated = listed == sorted(listed) and all(map(_DATED.match, listed))
        return len(listed) > 2 and (dated or all(label in _CALENDAR for label in listed))


def read_fields(columns: Mapping[str, Any]) -> tuple[Field, ...]:
    """Returns the described columns that have a domain; one that cannot be read is left out."""
    fields = []
    for name, spec in columns.items():
        try:
            column = parse_column(name, spec)
        except SfumatoError:
            continue
        if column.domain is not None and column.size <= _MOST_LABELS:
            fields.append(_read_field(column))
    return tuple(fields)


def _read_field(column: Column) -> Field:
    domain = column.domain
    assert domain is not None
    released: tuple[str, ...] = (column.name,)
    keys: tuple[tuple[Label, ...], ...] = tuple((label,) for label in column.labels)
    if isinstance(domain, Tuples) and column.outside != "other":
        released, keys = column.stored, domain.values
    shown: tuple[Label, ...] = column.labels
    if isinstance(domain, Values) and domain.names is not None:
        shown = (*domain.names, *column.labels[len(domain.names) :])
    return Field(
        name=column.name,
        released=released,
        stored=column.stored,
        kind=_KINDS[type(domain)],
        labels=tuple(clip_text(label, 80) for label in shown),
        keys=keys,
        edges=tuple(float(edge) for edge in domain.edges) if isinstance(domain, Bins) else (),
        outside=column.outside,
        origin=column.origin,
        drafted=column.drafted,
        missing=domain.size if column.missing_label is not None else -1,
    )


def encode_column(field: Field, table: pa.Table) -> NDArray[np.int64]:
    """Returns the code of every row of the released `table`, -1 for what the description does not know."""
    if len(field.released) > 1:
        return _encode_combinations(field, table)
    column = table[field.released[0]].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if field.edges and _is_number(column.type):
        return _look_up(field, column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    known = np.append(_look_up(field, column.dictionary), field.missing)
    codes: NDArray[np.int64] = known[to_numpy(_fill(column.indices, -1))]
    return codes


def read_numbers(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """Returns a column of numbers as floats, what is missing as NaN."""
    return to_numpy(_fill(column.cast(pa.float64()), np.nan))


def _fill(column: pa.Array | pa.ChunkedArray, value: float) -> pa.Array | pa.ChunkedArray:
    # Arrow loads pandas, where it is installed, to read a number: only if there is something to fill.
    return column.fill_null(value) if column.null_count else column


def _look_up(field: Field, values: pa.Array) -> NDArray[np.int64]:
    """Returns the code of every value; numbers fall into bins, everything else is looked up."""
    if field.edges and _is_number(values.type):
        numbers = read_numbers(values)
        edges = np.array(field.edges)
        codes = np.searchsorted(edges, numbers, side="right") - 1
        codes = np.where(numbers == edges[-1], edges.size - 2, codes)
        codes = np.where((codes < 0) | (codes > edges.size - 2), -1, codes)
        return np.where(np.isnan(numbers), field.missing, codes).astype(np.int64)
    if pa.types.is_date(values.type):
        return code_days(values, [str(key[0]) for key in field.keys])
    codes_of = {str(key[0]): code for code, key in enumerate(field.keys)}
    return np.array([codes_of.get(str(value), -1) for value in values.to_pylist()], np.int64)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _encode_combinations(field: Field, table: pa.Table) -> NDArray[np.int64]:
    known: NDArray[np.int64] = np.zeros(table.num_rows, np.int64)
    numbers = np.zeros(field.size, np.int64)
    for place, name in enumerate(field.released):
        parts = [str(key[place]) for key in field.keys]
        codes_of = {part: code for code, part in enumerate(dict.fromkeys(parts))}
        keys = tuple((part,) for part in codes_of)
        plain = replace(field, released=(name,), labels=tuple(codes_of), keys=keys)
        codes, base = encode_column(plain, table), len(codes_of) + 1
        known = known * base + np.where(codes < 0, base - 1, codes)
        numbers = numbers * base + np.array([codes_of[part] for part in parts])
    order = np.argsort(numbers)
    found = np.minimum(np.searchsorted(numbers[order], known), field.size - 1)
    return np.where(numbers[order][found] == known, order[found], -1).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The columns drawn as places and as time, where there are such; `given` says that somebody chose."""

    place: Field | None
    time: Field | None
    given: bool = False


def choose_axes(fields: Sequence[Field], *, place: str | None = None, time: str | None = None) -> Axes:
    """Returns the columns to draw as places and as time: the ones given, or the likeliest of `fields`.

    Time is a column with a period, a combination that holds a year or a month, or one with such a name.
    The place is the largest column with a name like a place's, else the largest that is not cut into
    bins.
    """
    when = _find(fields, time, option="--time") if time else next(filter(_is_time, fields), None)
    where = _find(fields, place, option="--place") if place else None
    if where is None:
        others = [field for field in fields if field is not when and field.kind != "bins"]
        others = [field for field in others if not _is_time(field)]
        named = [field for field in others if set(_words(field.name)) & _PLACES and field.size > 2]
        where = max(named or others, key=lambda field: field.size, default=None)
    return Axes(place=where, time=when, given=bool(place))


def _find(fields: Sequence[Field], name: str, *, option: str) -> Field:
    for field in fields:
        if name == field.name or name in field.released:
            return field
    known = ", ".join(field.name for field in fields[:30]) or "none"
    raise RecipeError(
        f"{option} names {name!r}, which is no described column of the release (described: {known})"
    )


def _is_time(field: Field) -> bool:
    if field.size > _MOST_TIMES:
        return False
    if field.kind == "period" or (field.kind == "combinations" and {"year", "month"} & set(field.released)):
        return True
    words = _words(field.name)
    return bool(words) and "per" not in words and words[-1] in _TIMES


def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [word for word in re.split(r"[^a-z]+", spaced.lower()) if word]
