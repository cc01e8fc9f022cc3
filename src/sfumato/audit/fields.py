"""Values for made-up records: those a described column knows, and those it was never meant to see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sfumato.schema import Bins, IntegerRange, Period, Tuples, Values

if TYPE_CHECKING:
    from sfumato.schema import Column, Table

_MOST = 64
_HUGE = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Stored columns filled together: their `usual` values, `odd` ones, and those at the `ends` of bounds."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    usual: tuple[tuple[Any, ...], ...]
    odd: tuple[tuple[Any, ...], ...]
    ends: tuple[tuple[Any, ...], ...]


def list_fields(table: Table, stored: Mapping[str, str]) -> tuple[Field, ...]:
    """The fields of the stored columns of `table`, but the one that names the individual.

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
            fields.append(_tuple_field(column, kinds))
            taken |= set(column.stored)
    for name, kind in kinds.items():
        if name not in taken:
            about = [each for each in table.columns.values() if each.stored == (name,)]
            fields.append(_single_field(name, kind, about))
    return tuple(fields)


def _single_field(name: str, kind: str, about: list[Column]) -> Field:
    usual: list[Any] = []
    ends: list[Any] = []
    for column in about:
        usual += [_convert(value, kind) for value in _domain_values(column)]
        ends += [_convert(value, kind) for value in _end_values(column)]
    usual = list(dict.fromkeys(value for value in usual if value is not None)) or _open_values(kind)
    ends = [value for value in dict.fromkeys(ends) if value is not None]
    return Field(
        names=(name,),
        kinds=(kind,),
        usual=tuple((value,) for value in usual),
        odd=tuple((value,) for value in _odd_values(kind)),
        ends=tuple((value,) for value in ends),
    )


def _tuple_field(column: Column, kinds: Mapping[str, str]) -> Field:
    assert isinstance(column.domain, Tuples)
    own = tuple(kinds.get(name, "text") for name in column.stored)
    values = _spread(column.domain.values)
    usual = [tuple(_convert(part, kind) for part, kind in zip(value, own, strict=True)) for value in values]
    nothing = (None,) * len(own)
    mixed = (usual[0][0], *(_odd_values(kind)[-1] for kind in own[1:]))
    return Field(names=column.stored, kinds=own, usual=tuple(usual), odd=(nothing, mixed), ends=())


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
            return list(_spread(values))
        case IntegerRange(low, high):
            if high - low < _MOST:
                return list(range(low, high + 1))
            half = _MOST // 2
            return [*range(low, low + half), *range(high - half + 1, high + 1)]
        case Bins(edges):
            pairs = _spread(tuple(pairwise(edges)))
            return [float((low + high) / 2) for low, high in pairs]
        case Period(part):
            return [_moment(part, number) for number in _spread(column.domain.labels)]
        case _ if column.bounds is not None:
            start, end = (float(bound) for bound in column.bounds)
            return [start + (end - start) * share for share in (0.5, 0.25, 0.75, 0.1)]
        case _:
            return []


def _end_values(column: Column) -> list[Any]:
    ends: list[Any] = []
    if column.bounds is not None:
        ends += [float(bound) for bound in column.bounds]
    if isinstance(column.domain, Bins):
        ends += [float(column.domain.edges[0]), float(column.domain.edges[-1])]
    if isinstance(column.domain, IntegerRange):
        ends += [column.domain.low, column.domain.high]
    if ends and not isinstance(column.domain, Period):
        low, high = min(ends), max(ends)
        ends += [
            math.nextafter(low, -math.inf),
            math.nextafter(high, math.inf),
            low - 1,
            high + 1,
            -1e300,
            1e300,
        ]
    return ends


def _open_values(kind: str) -> list[Any]:
    start = datetime(2025, 1, 6)
    choices: dict[str, list[Any]] = {
        "integer": [0, 1, 2],
        "number": [0.5, 1.5, 2.5],
        "boolean": [False, True],
        "date": [start + timedelta(days=40 * step, hours=5 * step) for step in range(3)],
    }
    return choices.get(kind, ["open 0", "open 1", "open 2"])


def _odd_values(kind: str) -> list[Any]:
    odd: dict[str, list[Any]] = {
        "integer": [None, 0, -1, 2**31, 2**53 + 1, _HUGE, -_HUGE - 1],
        "number": [None, math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e308, -1e308, 2.0**53, 2.5],
        "boolean": [None],
        "date": [None, datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(1969, 12, 31)],
    }
    text = [
        None,
        "",
        " ",
        "never seen",
        "NaN",
        "inf",
        "-1e999",
        "9" * 40,
        "2025-02-30",
        "a'b\"c,d;e",
        "x" * 10_000,
    ]
    return odd.get(kind, text)


def _convert(value: Any, kind: str) -> Any:  # noqa: ANN401 - values of any column
    """`value` as it is stored in a column of this kind, None if it cannot be."""
    if kind == "text":
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    if kind == "date":
        return value if isinstance(value, datetime) else None
    if isinstance(value, datetime):
        return None
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


def _moment(part: str, number: Any) -> datetime:  # noqa: ANN401 - a label of a period
    start = datetime(2025, 1, 6)
    match part:
        case "month":
            return start.replace(month=int(number), day=3)
        case "day_of_week":
            return start + timedelta(days=int(number))
        case "hour":
            return start + timedelta(hours=int(number))
        case _:
            return start.replace(year=min(max(int(number), 1), 9999))


def _spread(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first and the last of many values."""
    return values if len(values) <= _MOST else (*values[: _MOST // 2], *values[-_MOST // 2 :])
