"""SQL of PostgreSQL that turns a stored value into its code, or NULL where the domain does not hold it.

The codes are those of `encode`, bit for bit, and the expressions are as total: see `postgres_types`.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from sfumato.engines.clean import UNSTORED
from sfumato.engines.encode import quote_text
from sfumato.engines.postgres_types import (
    identify,
    moment_fields,
    number_of,
    part_of_fields,
    part_of_moment,
    stored_name,
    text_of,
)
from sfumato.errors import SourceError
from sfumato.schema import Bins, IntegerRange, Period, Tuples, Values

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from sfumato.engines.postgres_types import PostgresColumn
    from sfumato.schema import Column, Table

_SEPARATOR = "\x1f"


def encode_table(
    table: Table, columns: tuple[str, ...], stored: Mapping[str, PostgresColumn], relation: str
) -> str:
    """The query for `encoded`: the individual as u, the codes as c0, c1, ..., NULL outside a domain."""
    selected, joins = [], []
    if table.unit.column is not None:
        selected.append(f"{identify(table.unit.column, stored[table.unit.column])} AS u")
    for index, name in enumerate(columns):
        encoding = _encode_column(table.column(name), stored, f"f{index}", limit=table.text_limit)
        selected.append(f"{encoding.code} AS c{index}")
        joins.append(encoding.joins)
    return f"SELECT {', '.join(selected) or '1 AS one'} FROM {relation} AS stored{''.join(joins)}"


# Types whose texts may be long; they are cut as in a sealed table.
_TEXTS = ("text", "varchar")


@dataclass(frozen=True, slots=True)
class _Encoding:
    code: str
    joins: str = ""


def _encode_column(
    column: Column, stored: Mapping[str, PostgresColumn], alias: str, *, limit: int
) -> _Encoding:
    parts = [
        (
            f"left({stored_name(name)}, {limit})" if stored[name].type in _TEXTS else stored_name(name),
            stored[name],
        )
        for name in column.stored
    ]
    found = _encode(column, parts, alias)
    inside = found.code
    if column.outside == "other":
        inside = f"COALESCE({inside}, {column.size - 1})"
    kind = "integer" if column.size <= 2**31 else "bigint"
    return _Encoding(f"CAST({inside} AS {kind})", found.joins)


def _encode(column: Column, stored: list[tuple[str, PostgresColumn]], alias: str) -> _Encoding:
    clamp = column.outside == "clamp"
    name, kind = stored[0]
    match column.domain:
        case Values(values) if isinstance(values[0], int):
            whole = _integer(name, kind, alias)
            numbers = [int(value) for value in values]
            if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
                return _encode_range(whole, numbers[0], numbers[-1])
            return _look_up(f"CAST({whole.code} AS text)", [str(each) for each in numbers], whole.joins)
        case Values(values):
            key, keys = _key(name, kind, [str(value) for value in values])
            return _look_up(key, keys)
        case Tuples(values):
            parts, joins, keys = [], "", [""] * len(values)
            for place, (part, part_kind) in enumerate(stored):
                if isinstance(values[0][place], int):
                    whole = _integer(part, part_kind, f"{alias}_{place}")
                    key, joins = f"CAST({whole.code} AS text)", joins + whole.joins
                    told: list[str | None] = [str(value[place]) for value in values]
                else:
                    key, told = _key(part, part_kind, [str(value[place]) for value in values])
                parts.append(key)
                keys = [
                    None if old is None or new is None else f"{old}{_SEPARATOR}{new}"
                    for old, new in zip(keys, told, strict=True)
                ]
            joined = f" || {quote_text(_SEPARATOR)} || ".join(["''", *parts])
            return _look_up(f'({joined}) COLLATE "C"', keys, joins)
        case Bins(edges):
            return _encode_bins(_number(name, kind, alias), edges, clamp=clamp)
        case IntegerRange(low, high):
            if clamp:
                return _encode_clamped(_number(name, kind, alias), low, high)
            return _encode_range(_integer(name, kind, alias), low, high)
        case Period(part):
            span = column.domain.span
            value = _part(name, kind, part, alias, column=column.name)
            encode = _encode_clamped if clamp else _encode_range
            return encode(value, span.low, span.high)
        case None:  # pragma: no cover - Table.column refuses a column without a domain
            raise AssertionError


def _encode_range(value: _Encoding, low: int, high: int) -> _Encoding:
    code = f"CASE WHEN {value.code} BETWEEN {low} AND {high} THEN {value.code} - ({low}) END"
    return _Encoding(code, value.joins)


def _encode_clamped(value: _Encoding, low: int, high: int) -> _Encoding:
    number = value.code
    code = (
        f"CASE WHEN {number} < {low} THEN 0 WHEN {number} > {high} THEN {high - low} "
        f"WHEN {number} = floor({number}) THEN {number} - ({low}) END"
    )
    return _Encoding(code, value.joins)


def _encode_bins(value: _Encoding, edges: tuple[Fraction, ...], *, clamp: bool) -> _Encoding:
    listed = ", ".join(repr(float(edge)) for edge in edges)
    place = f"width_bucket({value.code}, '{{{listed}}}'::float8[])"
    if clamp:
        kept = f"{value.code} IS NOT NULL"
    else:
        low, high = (f"CAST('{float(edge)!r}' AS float8)" for edge in (edges[0], edges[-1]))
        kept = f"{value.code} BETWEEN {low} AND {high}"
    code = f"CASE WHEN {kept} THEN least(greatest({place}, 1), {len(edges) - 1}) - 1 END"
    return _Encoding(code, value.joins)


def _look_up(key: str, keys: list[str | None], joins: str = "") -> _Encoding:
    """The place of `key` in a public list: a search in a constant, however long the list is."""
    # No stored text holds a NUL, so that a listed one is never met.
    places = {each: place for place, each in enumerate(keys) if each is not None and "\x00" not in each}
    if not places:
        return _Encoding("CAST(NULL AS integer)", joins)
    listed = json.dumps(places, separators=(",", ":"))
    return _Encoding(f"CAST({quote_text(listed)}::jsonb ->> {key} AS integer)", joins)


def _key(name: str, column: PostgresColumn, texts: list[str]) -> tuple[str, list[str | None]]:
    """A text that tells values of `column` apart, and what it is for those that DuckDB writes as `texts`."""
    if column.type not in ("float4", "float8"):
        return ("CAST(NULL AS text)" if column.kind == "other" else text_of(name, column)), list(texts)
    # Both write floating numbers in their own words, so that their bits are compared.
    double = column.type == "float8"
    with duckdb.connect() as connection:
        values = f"SELECT TRY_CAST(unnest(?::VARCHAR[]) AS {'DOUBLE' if double else 'FLOAT'}) AS v"
        found = connection.execute(f"SELECT v, CAST(v AS VARCHAR) FROM ({values})", [texts]).fetchall()
    keys: list[str | None] = []
    for text, (value, written) in zip(texts, found, strict=True):
        bits = None if value is None else struct.pack(">d" if double else ">f", value).hex()
        keys.append(None if written != text or text in UNSTORED else bits)
    most = repr(float(np.finfo(np.float64 if double else np.float32).max))
    plain = (
        f"CASE WHEN {name} = 'NaN' THEN NULL WHEN {name} = 'Infinity' THEN '{most}' "
        f"WHEN {name} = '-Infinity' THEN '-{most}' ELSE {name} + CAST(0 AS {column.type}) END"
    )
    return f"encode({column.type}send({plain}), 'hex')", keys


def _number(name: str, column: PostgresColumn, alias: str) -> _Encoding:
    number = number_of(name, column)
    if column.kind != "text":
        return _Encoding(number)
    # What is dear to read is read once, and not wherever its value is named.
    return _Encoding(f"{alias}.v", f" CROSS JOIN LATERAL (SELECT {number} AS v OFFSET 0) AS {alias}")


def _integer(name: str, column: PostgresColumn, alias: str) -> _Encoding:
    if column.kind in ("date", "other"):
        return _Encoding("CAST(NULL AS bigint)")
    if column.kind in ("integer", "boolean"):
        whole = f"CAST({name} AS integer)" if column.kind == "boolean" else name
        return _Encoding(f"CAST({whole} AS bigint)")
    # A direct cast would round 12.7 to 13, and 13 may be a value of the domain.
    found = _number(name, column, alias)
    value = found.code
    whole = f"abs({value}) <= {2**53} AND {value} = floor({value})"
    return _Encoding(f"CASE WHEN {whole} THEN CAST({value} AS bigint) END", found.joins)


def _part(name: str, kind: PostgresColumn, part: str, alias: str, *, column: str) -> _Encoding:
    if kind.kind == "text":
        return _Encoding(part_of_fields(alias, part), moment_fields(name, kind, alias))
    if kind.kind != "date":
        raise SourceError(
            f"column {column!r}: period = {part!r} needs a stored date, timestamp or text, and "
            f"{name} is none; declare a range instead"
        )
    return _Encoding(part_of_moment(name, kind, part))
