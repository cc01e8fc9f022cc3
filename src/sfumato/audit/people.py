"""Made-up tables that differ by one individual, chosen to break bounds on what one individual can do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.audit.fields import Field
    from sfumato.schema import Table

MOST_RECORDS = 2000

_CROWD = 24
_TYPES = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.timestamp("us"),
    "text": pa.string(),
}

Record = tuple[tuple[Any, ...], ...]
"""A value for every field, each a tuple of stored values."""


@dataclass(frozen=True, slots=True)
class Person:
    """One individual: what is adversarial about it, and its records. `named` is False if it has no name."""

    what: str
    records: tuple[Record, ...]
    named: bool = True


def record_cap(table: Table) -> int:
    """How many records count, as far as they are made up here."""
    return min(table.unit.max_records, MOST_RECORDS)


def list_people(fields: Sequence[Field], table: Table, *, thorough: bool) -> tuple[Person, ...]:
    """Individuals that try every way to move an answer: many records, odd values, ends of bounds, no name."""
    if not fields:
        return (Person("one record", ((),)),)
    cap = record_cap(table)
    over = min(3 * cap + 2, cap + MOST_RECORDS)
    first = tuple(field.usual[0] for field in fields)
    last = tuple(field.usual[-1] for field in fields)
    if table.unit.column is None:
        rows = [Person("one record", (first,)), Person("another record", (last,))]
        rows += [Person(f"one record, {what}", (record,)) for what, record in _list_odd(fields, first)]
        return tuple(rows)
    people = [
        Person("one record", (first,)),
        Person("all records in one cell", (first,) * cap),
        Person("all records in another cell", (last,) * cap),
        Person("all records in a cell of nobody else", (_empty_cell(fields, table),) * cap),
        Person("records over cells", _walk(fields, cap)),
        Person("records over every marginal", _diagonal(fields, cap)),
        Person("over the bound, in one cell", (last,) * over),
        Person("over the bound, over cells", _walk(fields, over)),
        Person("many in one cell, one in others", (*(first,) * over, *_walk(fields, cap + 1))),
        Person("over the bound, over every marginal", _diagonal(fields, over)),
    ]
    odd = [(what, record) for what, record in _list_odd(fields, first)]
    if thorough:
        people += [Person(f"{what}, all records", (record,) * cap) for what, record in odd]
    everything = tuple(record for _, record in odd)
    people += [
        Person("odd values, one each", everything[:cap]),
        Person("odd values, over the bound", (everything * (over // max(1, len(everything)) + 1))[:over]),
        Person("nothing but missing values", (tuple((None,) * len(field.names) for field in fields),) * cap),
        Person("records without a name", (first,) * over, named=False),
    ]
    for label, place in (("lower", min), ("upper", max)):
        record = tuple(_extreme(field, place) for field in fields)
        people.append(Person(f"all records at the {label} end of bounds", (record,) * cap))
        people.append(Person(f"over the bound, at the {label} end of bounds", (record,) * over))
    return tuple(people)


def list_crowd(fields: Sequence[Field], table: Table) -> tuple[tuple[Record, ...], ...]:
    """The records of every individual of a small crowd.

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
    fields: Sequence[Field],
    people: Sequence[tuple[object, Sequence[Record]]],
    *,
    unit: str | None,
    unit_kind: str,
) -> pa.Table:
    """The Arrow table of all records, each with the name of its individual."""
    columns: dict[str, pa.Array] = {}
    if unit is not None:
        names = [name for name, records in people for _ in records]
        columns[unit] = pa.array(
            [_name(name, unit_kind) for name in names], _TYPES.get(unit_kind, pa.string())
        )
    rows = [record for _, records in people for record in records]
    for place, field in enumerate(fields):
        for part, (name, kind) in enumerate(zip(field.names, field.kinds, strict=True)):
            values = [row[place][part] for row in rows]
            columns[name] = pa.array(values, _TYPES[kind], from_pandas=False)
    if not columns:
        columns["row"] = pa.array([0] * len(rows), pa.int64())
    return pa.table(columns)


def _name(name: object, kind: str) -> object:
    """The name of an individual, a whole number or None, as its column stores it."""
    if name is None or not isinstance(name, int):
        return None
    if kind == "integer":
        return name
    if kind == "number":
        return float(name)
    if kind == "boolean":
        return bool(name % 2)
    if kind == "date":
        return datetime(2000, 1, 1) + timedelta(days=name)
    return f"person {name}"


def _walk(fields: Sequence[Field], count: int) -> tuple[Record, ...]:
    """Records in different cells: the usual values counted through like the digits of a number."""
    records = []
    for number in range(count):
        record = []
        for field in fields:
            number, place = divmod(number, len(field.usual))
            record.append(field.usual[place])
        records.append(tuple(record))
    return tuple(records)


def _empty_cell(fields: Sequence[Field], table: Table) -> Record:
    """A cell in which nobody of the crowd is, if there is one among the first."""
    taken = {record for records in list_crowd(fields, table) for record in records}
    cells = _walk(fields, len(taken) + 1)
    return next((record for record in cells if record not in taken), cells[-1])


def _diagonal(fields: Sequence[Field], count: int) -> tuple[Record, ...]:
    """Records that differ in every field at once."""
    return tuple(tuple(field.usual[number % len(field.usual)] for field in fields) for number in range(count))


def _list_odd(fields: Sequence[Field], first: Record) -> list[tuple[str, Record]]:
    """Records with one odd value, or one at the end of bounds, each."""
    found = []
    for place, field in enumerate(fields):
        for number, value in enumerate((*field.odd, *field.ends)):
            what = "odd" if number < len(field.odd) else "at the end of bounds"
            record = (*first[:place], value, *first[place + 1 :])
            found.append((f"{field.names[0]} {what} ({number + 1})", record))
    return found


def _extreme(field: Field, pick: Any) -> tuple[Any, ...]:  # noqa: ANN401 - min or max
    numbers = [value for value in field.ends if isinstance(value[0], (int, float))]
    if numbers:
        return pick(numbers, key=lambda value: value[0])  # type: ignore[no-any-return]
    return field.usual[0] if pick is min else field.usual[-1]
