"""Records as codes of described columns: the engine's own encoding, and that of released tables."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.engines import find_files
from sfumato.engines.base import Fetched
from sfumato.engines.encode import hide_failures
from sfumato.engines.sealed import seal_table
from sfumato.engines.source import FileSource, Kind, Stored
from sfumato.errors import MetricError
from sfumato.metrics.cells import pack_codes
from sfumato.metrics.codes import is_text, number_text
from sfumato.metrics.tables import TableLike, plain_column, read_table, to_numbers
from sfumato.recipes.base import column_labels
from sfumato.schema import OTHER, Bins, IntegerRange, Period, Tuples
from sfumato.schema.table import PrivacyUnit
from sfumato.sql import code_name
from sfumato.tables.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from sfumato.schema import Column, Label, Table


def stored_names(records: TableLike, *, table: Table, side: str) -> list[str]:
    """The names of the columns that `records` holds, without reading them if it is a file."""
    if isinstance(records, (str, Path)):
        return list(
            find_files(str(records), folder=Path(), table=table.name, encoding=table.encoding).columns
        )
    return list(read_table(records, side=side).column_names)


def released_names(column: Column) -> tuple[str, ...]:
    """The names under which `column` is released."""
    return column.stored if isinstance(column.domain, Tuples) and column.outside != OTHER else (column.name,)


def code_records(
    records: TableLike, table: Table, columns: Sequence[str], *, side: str, extra: Sequence[str] = ()
) -> tuple[dict[str, NDArray[np.int64]], pa.Table]:
    """(codes, further columns) of records as they are stored, coded by the engine that counts them.

    A record that a column's policy drops is left out. The `extra` columns come as they are.
    """
    named = [table.column(name) for name in columns]
    source = _find(records, table, side)
    stored = source.columns if isinstance(source, FileSource) else _describe(source)
    used = [*(name for column in named for name in column.stored), *extra]
    missing = [name for name in used if name not in stored]
    if missing:
        raise MetricError(f"{side}: no column {missing[0]!r}")
    plain = replace(
        table, unit=PrivacyUnit(column=None, max_records=1), columns={column.name: column for column in named}
    )
    names = [*(code_name(name) for name in columns), *extra]
    with hide_failures(f"{side}: the records"):
        # The same rows in the same order each time: what is drawn by a seed depends on it.
        fetched = source.fetch(frozenset(used)) if isinstance(source, FileSource) else _fetch(source, used)
        found = seal_table(
            plain,
            stored,
            fetched.schema,
            fetched.read(),
            names=frozenset(name.lower() for name in names),
        ).inside
    kept = [pc.is_valid(found[code_name(name)]) for name in columns]
    found = found.filter(functools.reduce(pc.and_, kept)) if kept else found
    codes = {name: to_numpy(found[code_name(name)].combine_chunks()).astype(np.int64) for name in columns}
    return codes, found.select(list(extra))


def is_released_layout(released: pa.Table, columns: Sequence[Column]) -> bool:
    """Whether `released` holds the columns as recipes lay them out, and not as they are stored."""
    for column in columns:
        names = released_names(column)
        if any(name not in released.column_names for name in names):
            return False
        kind = released.schema.field(names[0]).type
        if isinstance(column.domain, Period) and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return False
    return True


def code_released(released: pa.Table, column: Column, *, side: str) -> NDArray[np.int64] | None:
    """Codes of `column` from the names and labels under which it is released; None if it is not there.

    Combinations are released as the columns they combine; bins as their interval (tables of counts) or
    as a number within it (rows).
    """
    if not is_released_layout(released, [column]):
        return None
    names = released_names(column)
    if isinstance(column.domain, Tuples) and column.outside != OTHER:
        codes = _code_parts(released, column_labels(column))
    elif isinstance(column.domain, Bins) and not is_text(plain_column(released, names[0])):
        codes = _code_numbers(to_numbers(plain_column(released, names[0])), column.domain)
    else:
        places, words = _number_labels(plain_column(released, names[0]))
        codes = np.array(_place_words(words, column), np.int64)[places]
    if codes.size and codes.min() < 0:
        raise MetricError(
            f"{side}: column {column.name!r} holds values that its described domain does not list"
        )
    return codes


def _code_parts(released: pa.Table, parts: Mapping[str, tuple[Label, ...]]) -> NDArray[np.int64]:
    if not released.num_rows:
        return np.empty(0, np.int64)
    numbered = [_number_labels(plain_column(released, name)) for name in parts]
    known = {tuple(map(str, labels)): code for code, labels in enumerate(zip(*parts.values(), strict=True))}
    sizes = [len(words) for _, words in numbered]
    keys = pack_codes([codes for codes, _ in numbered], sizes)
    found, inverse = np.unique(keys, return_inverse=True)
    places = zip(*(part.tolist() for part in np.unravel_index(found, sizes)), strict=True)
    codes = [
        known.get(tuple(words[part] for (_, words), part in zip(numbered, place, strict=True)), -1)
        for place in places
    ]
    return np.array(codes, np.int64)[inverse.reshape(-1)]


def _code_numbers(values: NDArray[Any], domain: Bins) -> NDArray[np.int64]:
    numbers = values.astype(np.float64)
    edges = np.array([float(edge) for edge in domain.edges])
    inside = (numbers >= edges[0]) & (numbers <= edges[-1])
    return np.where(inside, np.searchsorted(edges[1:-1], numbers, side="right"), -1).astype(np.int64)


def _place_words(words: list[str], column: Column) -> list[int]:
    """The code behind every label, -1 for a foreign one; a wide range is never listed."""
    if not isinstance(column.domain, (IntegerRange, Period)):
        known = {str(label): code for code, label in enumerate(column.labels)}
        return [known.get(word, -1) for word in words]
    span = column.domain if isinstance(column.domain, IntegerRange) else column.domain.span
    extras = {label: span.high - span.low + 1 + place for place, label in enumerate(column.extras)}
    return [
        int(word) - span.low
        if word.removeprefix("-").isdecimal() and span.low <= int(word) <= span.high
        else extras.get(word, -1)
        for word in words
    ]


def _number_labels(array: pa.Array) -> tuple[NDArray[np.int64], list[str]]:
    """Codes of the values, and the values as a release writes them: whole numbers without a point."""
    if not is_text(array):
        values, codes = np.unique(to_numbers(array), return_inverse=True)
        words = [str(int(v)) if np.isfinite(v) and v == np.floor(v) else str(v) for v in values.tolist()]
        return codes.reshape(-1).astype(np.int64), words
    codes, labels = number_text(array)
    return codes, [str(label) for label in labels]


def _find(records: TableLike, table: Table, side: str) -> FileSource | pa.Table:
    if isinstance(records, (str, Path)):
        return find_files(str(records), folder=Path(), table=table.name, encoding=table.encoding)
    return read_table(records, side=side)


def _describe(records: pa.Table) -> dict[str, Stored]:
    return {field.name: Stored(_kind(field.type)) for field in records.schema}


def _fetch(records: pa.Table, used: Sequence[str]) -> Fetched:
    chosen = records.select([name for name in records.column_names if name in used])
    return Fetched(_describe(records), chosen.schema, lambda: iter(chosen.to_batches()))


def _kind(kind: pa.DataType) -> Kind:
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    return "text" if not pa.types.is_nested(kind) else "other"
