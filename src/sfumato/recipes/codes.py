"""A public table read and encoded: the code of every value in the domain of its column."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from sfumato.errors import RecipeError, SourceError
from sfumato.schema import Bins, IntegerRange, Period, Tuples, Values
from sfumato.schema.reading import read_regular
from sfumato.tables import parse_table, to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.schema import Column

_MOST_BYTES = 2**31


def read_public_table(path: Path) -> tuple[pa.Table, bytes]:
    """The table in a Parquet, CSV or CSV.gz file, and the bytes of the file."""
    try:
        content = read_regular(path, most=_MOST_BYTES)
        # Text stays as it is written: whether 07 is a number, the domain decides.
        return parse_table(content, name=path.name), content
    except OSError as error:
        reason = str(error) if isinstance(error, SourceError) else type(error).__name__
        raise RecipeError(f"public table {path.name!r} cannot be read ({reason})") from None


def encode_public(column: Column, rows: pa.Table) -> NDArray[np.int64]:
    """The codes of a column in the rows of a public table, -1 for what its policy drops.

    It reads what a public table says, for guidance only: what is private is encoded by the engine.
    """
    missing = [name for name in column.stored if name not in rows.column_names]
    if missing:
        raise RecipeError(
            f"the public table has no column {missing[0]!r}, which column {column.name!r} is read from"
        )
    domain = column.domain
    stored = [rows[name].combine_chunks() for name in column.stored]
    if isinstance(domain, Tuples):
        codes = _encode_tuples(domain, stored)
    elif isinstance(domain, Values):
        codes = _look_up(stored[0], domain.labels)
    elif domain is None:
        raise RecipeError(f"column {column.name!r} has no domain, so a public table cannot be encoded")
    else:
        part = _date_part(domain, stored[0], column.name) if isinstance(domain, Period) else stored[0]
        codes = _encode_numbers(domain, _to_numbers(part, column.name), clamp=column.outside == "clamp")
    if column.outside == "other":
        codes[codes < 0] = column.size - 1
    if column.missing_label is not None:
        texts = stored[0].cast(pa.string()) if column.missing else stored[0]
        absent = pc.is_null(stored[0], nan_is_null=True)
        if column.missing:
            absent = pc.or_(absent, pc.is_in(texts, pa.array(list(column.missing))))
        codes[absent.to_numpy(zero_copy_only=False)] = column.labels.index(column.missing_label)
    return codes


def _look_up(values: pa.Array, labels: tuple[int | str, ...]) -> NDArray[np.int64]:
    if isinstance(labels[0], int) and pa.types.is_string(values.type):
        values = pa.array(_to_numbers(values, ""))
    known = {str(label): code for code, label in enumerate(labels)}
    encoded = values.dictionary_encode()
    # The last entry is that of a missing value, whose index is -1.
    codes = [known.get(_plain(value), -1) for value in encoded.dictionary.to_pylist()]
    return np.asarray(np.array([*codes, -1])[to_numpy(encoded.indices.fill_null(-1))], np.int64)


def _plain(value: object) -> str:
    """A value as labels are written: a whole number without its decimal point, truth in small letters."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def _to_numbers(values: pa.Array, name: str) -> NDArray[np.float64]:
    try:
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            encoded = values.dictionary_encode()
            # The last entry is that of a missing value, whose index is -1.
            numbers = np.array([*map(_read_number, encoded.dictionary.to_pylist()), np.nan])
            return np.asarray(numbers[to_numpy(encoded.indices.fill_null(-1))], np.float64)
        return np.asarray(to_numpy(values.cast(pa.float64(), safe=False).fill_null(np.nan)), np.float64)
    except pa.ArrowException:
        raise RecipeError(
            f"column {name!r} of the public table must hold numbers, as its domain does"
        ) from None


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _encode_numbers(
    domain: Bins | IntegerRange | Period, numbers: NDArray[np.float64], *, clamp: bool
) -> NDArray[np.int64]:
    """The codes of numbers in an ordered domain."""
    if isinstance(domain, Bins):
        edges = np.array([float(edge) for edge in domain.edges])
        low, high = edges[0], edges[-1]
    else:
        span = domain.span if isinstance(domain, Period) else domain
        low, high = float(span.low), float(span.high)
        numbers = np.where(np.isfinite(numbers) & (numbers != np.floor(numbers)), np.nan, numbers)
    if clamp:
        numbers = np.clip(numbers, low, high)
    inside = (numbers >= low) & (numbers <= high)
    numbers = np.where(inside, numbers, low)
    if isinstance(domain, Bins):
        codes = np.minimum(np.searchsorted(edges, numbers, side="right") - 1, edges.size - 2)
    else:
        codes = numbers - low
    return np.where(inside, codes, -1).astype(np.int64)


def _encode_tuples(domain: Tuples, stored: list[pa.Array]) -> NDArray[np.int64]:
    listed = [tuple(dict.fromkeys(part)) for part in zip(*domain.values, strict=True)]
    parts = [_look_up(values, labels) for values, labels in zip(stored, listed, strict=True)]
    places = [{label: place for place, label in enumerate(labels)} for labels in listed]
    codes = {
        tuple(place[part] for place, part in zip(places, value, strict=True)): code
        for code, value in enumerate(domain.values)
    }
    found, which = np.unique(np.stack(parts), axis=1, return_inverse=True)
    known = np.array([codes.get(tuple(each), -1) for each in found.T.tolist()], np.int64)
    return known[which.reshape(-1)] if known.size else np.empty(0, np.int64)


def _date_part(domain: Period, values: pa.Array, name: str) -> pa.Array:
    functions = {"year": pc.year, "month": pc.month, "day_of_week": pc.day_of_week, "hour": pc.hour}
    try:
        if not pa.types.is_temporal(values.type):
            values = values.cast(pa.timestamp("s"))
        return functions[domain.part](values)
    except pa.ArrowException:
        raise RecipeError(f"column {name!r} of the public table does not hold dates") from None
