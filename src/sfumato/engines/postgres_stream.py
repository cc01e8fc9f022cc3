"""Stored columns of PostgreSQL as a stream of Arrow batches, each value as a file would hold it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sfumato.engines.fetched import Fetched
from sfumato.engines.postgres_types import identify, stored_name, text_of
from sfumato.engines.source import Stored, describe_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import psycopg

    from sfumato.engines.postgres_source import PostgresSource
    from sfumato.engines.postgres_types import PostgresColumn

_BATCH_ROWS = 2**16
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000  # from 1970 to 2000, where the server begins to count
_ENDLESS = 2**31 - 1
_MOST = 2**63 - 1

_TYPES = {
    "bool": pa.bool_(),
    "date": pa.date32(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


def fetch_rows(
    connection: psycopg.Connection[tuple[Any, ...]], query: str, *, batch: int = _BATCH_ROWS
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of `query` in batches, through a cursor that the server keeps."""
    _register(connection)
    with connection.cursor("sfumato", binary=True) as cursor:
        cursor.itersize = batch
        cursor.execute(query)
        while rows := cursor.fetchmany(batch):
            yield rows


def fetch_columns(
    rows_of: Callable[[str], Iterator[list[tuple[Any, ...]]]],
    source: PostgresSource,
    columns: Mapping[str, PostgresColumn],
    wanted: frozenset[str],
    unit: str | None,
) -> Fetched:
    """The `wanted` columns of a table, and the one that names individuals; read when asked for."""
    fields = {}
    selected = []
    for name, column in columns.items():
        asked = name in wanted or name.lower() in wanted or name == unit
        if column.kind == "other" or not asked:
            continue
        # A decimal of any length names individuals by its text, and is a number otherwise.
        endless = column.type == "numeric" and _arrow_type(column) == pa.float64()
        is_name = name == unit and endless
        fields[name] = pa.string() if is_name else _arrow_type(column)
        told = identify(name, column) if is_name else stored_name(name)
        selected.append(text_of(told, column) if column.kind == "text" else told)
    schema = pa.schema(list(fields.items()))
    query = f"SELECT {', '.join(selected) or '1'} FROM {source.relation} AS stored"

    def read() -> Iterator[pa.RecordBatch]:
        for rows in rows_of(query):
            columns_in = zip(*rows, strict=True)
            arrays = [_to_arrow(values, field) for values, field in zip(columns_in, schema, strict=False)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    described = {name: describe_stored(kind) for name, kind in fields.items()}
    stored = {name: described.get(name) or Stored(column.kind) for name, column in columns.items()}
    return Fetched(columns=stored, schema=schema, read=read)


def _arrow_type(column: PostgresColumn) -> pa.DataType:
    if column.kind == "text":
        return pa.string()
    if column.type != "numeric":
        return _TYPES[column.type]
    if column.digits is None or column.digits[0] > 38 or not 0 <= column.digits[1] <= column.digits[0]:
        return pa.float64()
    return pa.decimal128(*column.digits)


def _to_arrow(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    if pa.types.is_decimal(field.type):
        values = tuple(each if each is None or each.is_finite() else None for each in values)
    elif pa.types.is_floating(field.type):
        values = tuple(float(each) if isinstance(each, Decimal) else each for each in values)
    return pa.array(values, field.type)


def _register(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Days and moments as numbers: Python's own dates end long before the server's."""
    from psycopg.adapt import Buffer, Loader
    from psycopg.pq import Format

    class Day(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> int:
            days = int.from_bytes(bytes(data), "big", signed=True)
            if abs(days) >= _ENDLESS:
                return _ENDLESS if days > 0 else -_ENDLESS
            return days + _DAYS

    class Moment(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> int:
            return min(int.from_bytes(bytes(data), "big", signed=True) + _MICROSECONDS, _MOST)

    connection.adapters.register_loader("date", Day)
    connection.adapters.register_loader("timestamp", Moment)
    connection.adapters.register_loader("timestamptz", Moment)
