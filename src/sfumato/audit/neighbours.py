"""Made-up tables that differ by one individual, chosen to break bounds on what one individual can do.

Values come from the description of the columns: those a column knows, and those it was never meant to see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values
from sfumato.core.facts.table import Table

MOST_RECORDS = 2000
"""The most records that a made-up individual has: an audit writes thousands of tables."""

_MOST_VALUES = 64  # of a column, half of them its first and half its last
_HUGE = 2**63 - 1
_CROWD = 24  # individuals, in threes of equal values
_START = datetime(2025, 1, 6)  # a Monday
_TYPES = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.timestamp("us"),
    "text": pa.string(),
}
_OPEN_VALUES: dict[str, list[Any]] = {
    "integer": [0, 1, 2],
    "number": [0.5, 1.5, 2.5],
    "boolean": [False, True],
    "date": [_START + timedelta(days=40 * step, hours=5 * step) for step in range(3)],
    "text": ["open 0", "open 1", "open 2"],
}
_TEXTS = ["", " ", "never seen", "NaN", "inf", "-1e999", "9" * 40, "2025-02-30", "a'b\"c,d;e", "x" * 10_000]
_ODD_VALUES: dict[str, list[Any]] = {
    "integer": [None, 0, -1, 2**31, 2**53 + 1, _HUGE, -_HUGE - 1],
    "number": [None, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308, -1e308, 2.0**53, 2.5],
    "boolean": [None],
    "date": [None, datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(1969, 12, 31)],
    "text": [None, *_TEXTS],
}

Record = tuple[tuple[Any, ...], ...]
"""A value for every field, each a tuple of stored values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledColumns:
    """Stored columns filled together: their `usual` values, `odd` ones, and those at the `ends` of bounds.

    A described column does not serve: stored columns that nobody described are filled too, and one stored
    column may be described several times.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    usual: tuple[tuple[Any, ...], ...]
    odd: tuple[tuple[Any, ...], ...]
    ends: tuple[tuple[Any, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Individual:
    """One individual: what is adversarial about it, and its records. `named` is False if it has no name."""

    what: str
    records: tuple[Record, ...]
    named: bool = True


def list_fields(table: Table, stored: Mapping[str, str]) -> tuple[FilledColumns, ...]:
    """Returns the fields of the stored columns of `table`, but the one that names the individual.

    `stored` gives the kinds of the stored columns; described columns that it lacks get the kind of their
    domain.
    """
    kinds = dict(stored)
    for column in table.columns.values():
        for place, name in enumerate(column.stored):
            kinds.setdefault(name, _domain_kind(column, place))
    kinds = {name: kind for name, kind in kinds.items() if kind != "other" and name != table.unit.column}
    fields = []
    taken: set[str] = set()
    for column in table.columns.values():
        if isinstance(column.domain, Tuples) and not taken & set(column.stored):
            fields.append(_combined_field(column, kinds))
            taken |= set(column.stored)
    for name, kind in kinds.items():
        if name not in taken:
            about = [each for each in table.columns.values() if each.stored == (name,)]
            fields.append(_single_field(name, kind, about))
    return tuple(fields)


def _single_field(name: str, kind: str, about: list[Column]) -> FilledColumns:
    usual = [_convert(value, kind) for column in about for value in _domain_values(column)]
    ends = [_convert(value, kind) for column in about for value in _end_values(column)]
    known = [value for value in dict.fromkeys(usual) if value is not None]
    return FilledColumns(
        names=(name,),
        kinds=(kind,),
        usual=tuple((value,) for value in known or _OPEN_VALUES[kind]),
        odd=tuple((value,) for value in _ODD_VALUES[kind]),
        ends=tuple((value,) for value in dict.fromkeys(ends) if value is not None),
    )


def _combined_field(column: Column, kinds: Mapping[str, str]) -> FilledColumns:
    assert isinstance(column.domain, Tuples)
    own = tuple(kinds.get(name, "text") for name in column.stored)
    values = _spread(column.domain.values)
    usual = [tuple(_convert(part, kind) for part, kind in zip(value, own, strict=True)) for value in values]
    nothing = (None,) * len(own)
    mixed = (usual[0][0], *(_ODD_VALUES[kind][-1] for kind in own[1:]))
    return FilledColumns(names=column.stored, kinds=own, usual=tuple(usual), odd=(nothing, mixed))


def _domain_kind(column: Column, place: int) -> str:
    match column.domain:
        case Values(values):
            return "integer" if isinstance(values[0], int) else "text"
        case Tuples(values):
            return "integer" if isinstance(values[0][place], int) else "text"
        case IntegerRange():
            return "integer"
        case Period():
            return "date"
        case _:
            return "number"


def _domain_values(column: Column) -> list[Any]:
    match column.domain:
        case Values(values):
            whole = column.calendar == "month"  # a month is told by its first day
            return [f"{value}-01" if whole else value for value in _spread(values)]
        case IntegerRange(low, high):
            return list(_spread(range(low, high + 1)))
        case Bins(edges):
            return [float((low + high) / 2) for low, high in _spread(tuple(pairwise(edges)))]
        case Period(part):
            return [_moment(part, int(number)) for number in _spread(column.domain.labels)]
        case _ if column.bounds is not None:
            start, end = (float(bound) for bound in column.bounds)
            return [start + (end - start) * share for share in (0.5, 0.25, 0.75, 0.1)]
        case _:
            return []


def _end_values(column: Column) -> list[Any]:
    ends: list[Any] = [] if column.bounds is None else [float(bound) for bound in column.bounds]
    match column.domain:
        case Bins(edges):
            ends += [float(edges[0]), float(edges[-1])]
        case IntegerRange(low, high):
            ends += [low, high]
        case Period():
            return ends
    if ends:
        # Just outside and far outside: clipping must catch both.
        low, high = min(ends), max(ends)
        ends += [math.nextafter(low, -math.inf), math.nextafter(high, math.inf)]
        ends += [low - 1, high + 1, -1e300, 1e300]
    return ends


def _convert(value: Any, kind: str) -> Any:  # noqa: ANN401 - values of any column
    """Returns `value` as it is stored in a column of this kind, None if it cannot be."""
    if kind == "text":
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    if (kind == "date") != isinstance(value, datetime):
        return None
    if kind == "date":
        return value
    if kind == "boolean":
        return str(value).lower() == "true"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    if kind == "number":
        return number
    if isinstance(value, int):
        return value if abs(value) <= _HUGE else None
    return int(number) if abs(number) < 2**62 else (_HUGE if number > 0 else -_HUGE - 1)


def _moment(part: str, number: int) -> datetime:
    match part:
        case "month":
            return _START.replace(month=number, day=3)
        case "day_of_week":
            return _START + timedelta(days=number)
        case "hour":
            return _START + timedelta(hours=number)
        case _:
            return _START.replace(year=min(max(number, 1), 9999))


def _spread(values: Sequence[Any]) -> Sequence[Any]:
    """Returns the first and the last of many values."""
    half = _MOST_VALUES // 2
    return values if len(values) <= _MOST_VALUES else (*values[:half], *values[-half:])


def record_cap(table: Table) -> int:
    """Returns how many records count, as far as they are made up here."""
    return min(table.unit.max_records, MOST_RECORDS)


def list_individuals(
    fields: Sequence[FilledColumns], table: Table, *, thorough: bool
) -> tuple[Individual, ...]:
    """Individuals that try every way to move an answer: many records, odd values, ends of bounds, no name."""
    if not fields:
        return (Individual("one record", ((),)),)
    cap = record_cap(table)
    over = min(3 * cap + 2, cap + MOST_RECORDS)  # records, more than may count
    first = tuple(field.usual[0] for field in fields)
    last = tuple(field.usual[-1] for field in fields)
    odd = _list_odd(fields, first)
    if table.unit.column is None:
        rows = [("one record", first), ("another record", last)]
        rows += [(f"one record, {what}", record) for what, record in odd]
        return tuple(Individual(what, (record,)) for what, record in rows)
    everything = tuple(record for _, record in odd)
    tried = {
        "one record": (first,),
        "all records in one cell": (first,) * cap,
        "all records in another cell": (last,) * cap,
        "all records in a cell of nobody else": (_empty_cell(fields, table),) * cap,
        "records over cells": _walk(fields, cap),
        "records over every marginal": _diagonal(fields, cap),
        "over the bound, in one cell": (last,) * over,
        "over the bound, over cells": _walk(fields, over),
        "many in one cell, one in others": (*(first,) * over, *_walk(fields, cap + 1)),
        "over the bound, over every marginal": _diagonal(fields, over),
    }
    people = [Individual(what, records) for what, records in tried.items()]
    if thorough:
        people += [Individual(f"{what}, all records", (record,) * cap) for what, record in odd]
    missing = tuple((None,) * len(field.names) for field in fields)
    people += [
        Individual("odd values, one each", everything[:cap]),
        Individual("odd values, over the bound", (everything * (over // max(1, len(everything)) + 1))[:over]),
        Individual("nothing but missing values", (missing,) * cap),
        Individual("records without a name", (first,) * over, named=False),
    ]
    for end in ("lower", "upper"):
        record = tuple(_extreme(field, end) for field in fields)
        people.append(Individual(f"all records at the {end} end of bounds", (record,) * cap))
        people.append(Individual(f"over the bound, at the {end} end of bounds", (record,) * over))
    return tuple(people)


def list_crowd(fields: Sequence[FilledColumns], table: Table) -> tuple[tuple[Record, ...], ...]:
    """Returns the records of every individual of a small crowd.

    Three in a row have the same values, so that one individual more or less does not decide which groups
    have more than one.
    """
    crowd = []
    for person in range(_CROWD):
        trio = person // 3
        record = tuple(
            field.usual[trio * (place + 1) % len(field.usual)] for place, field in enumerate(fields)
        )
        crowd.append((record,) * min(1 + trio % 2, table.unit.max_records))
    return tuple(crowd)


def make_table(
    fields: Sequence[FilledColumns],
    people: Sequence[tuple[int | None, Sequence[Record]]],
    *,
    unit: str | None,
    unit_kind: str,
) -> pa.Table:
    """Returns the Arrow table of all records, each with the number of its individual in the column `unit`."""
    columns: dict[str, pa.Array] = {}
    if unit is not None:
        names = [None if who is None else _name(who, unit_kind) for who, records in people for _ in records]
        columns[unit] = pa.array(names, _TYPES.get(unit_kind, pa.string()))
    rows = [record for _, records in people for record in records]
    for place, field in enumerate(fields):
        for part, (name, kind) in enumerate(zip(field.names, field.kinds, strict=True)):
            values = [row[place][part] for row in rows]
            columns[name] = pa.array(values, _TYPES[kind], from_pandas=False)
    if not columns:
        columns["row"] = pa.array([0] * len(rows), pa.int64())
    return pa.table(columns)


def _name(number: int, kind: str) -> object:
    """Returns the name of an individual, a whole number, as its column stores it."""
    match kind:
        case "integer":
            return number
        case "number":
            return float(number)
        case "boolean":
            return bool(number % 2)
        case "date":
            return datetime(2000, 1, 1) + timedelta(days=number)
        case _:
            return f"person {number}"


def walk_cell(fields: Sequence[FilledColumns], number: int) -> Record:
    """Returns the cell of this number: the usual values counted through like the digits of a number."""
    record = []
    for field in fields:
        number, place = divmod(number, len(field.usual))
        record.append(field.usual[place])
    return tuple(record)


def _walk(fields: Sequence[FilledColumns], count: int) -> tuple[Record, ...]:
    """Records in different cells."""
    return tuple(walk_cell(fields, number) for number in range(count))


def _diagonal(fields: Sequence[FilledColumns], count: int) -> tuple[Record, ...]:
    """Records that differ in every field at once."""
    return tuple(tuple(field.usual[number % len(field.usual)] for field in fields) for number in range(count))


def _empty_cell(fields: Sequence[FilledColumns], table: Table) -> Record:
    """Returns a cell in which nobody of the crowd is, if there is one among the first."""
    taken = {record for records in list_crowd(fields, table) for record in records}
    cells = _walk(fields, len(taken) + 1)
    return next((record for record in cells if record not in taken), cells[-1])


def _list_odd(fields: Sequence[FilledColumns], first: Record) -> list[tuple[str, Record]]:
    """Records with one odd value, or one at the end of bounds, each."""
    found = []
    for place, field in enumerate(fields):
        for number, value in enumerate((*field.odd, *field.ends)):
            what = "odd" if number < len(field.odd) else "at the end of bounds"
            record = (*first[:place], value, *first[place + 1 :])
            found.append((f"{field.names[0]} {what} ({number + 1})", record))
    return found


def _extreme(field: FilledColumns, end: str) -> tuple[Any, ...]:
    numbers = sorted((v for v in field.ends if isinstance(v[0], (int, float))), key=lambda value: value[0])
    return (numbers or field.usual)[0 if end == "lower" else -1]
