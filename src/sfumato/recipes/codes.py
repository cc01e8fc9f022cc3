"""A public table read and encoded: the code of every value in the domain of its column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sfumato.arrays import to_numpy
from sfumato.errors import RecipeError
from sfumato.schema import Bins, Period, Tuples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.schema import Column

__all__ = ["encode_public", "read_public_table"]


def read_public_table(path: Path) -> tuple[pa.Table, bytes]:
    """The table in a Parquet, CSV or CSV.gz file, and the bytes of the file."""
    try:
        content = path.read_bytes()
        if path.suffix == ".parquet":
            return pq.read_table(pa.BufferReader(content)), content
        return pyarrow.csv.read_csv(str(path)), content
    except (OSError, pa.ArrowException) as error:
        message = f"public table {path.name!r} cannot be read ({type(error).__name__})"
        raise RecipeError(message) from None


def encode_public(column: Column, rows: pa.Table) -> NDArray[np.int64]:
    """The codes of a column in the rows of a public table, -1 outside the domain.

    It reads what a public table says, for guidance only: what is private is encoded by the engine.
    """
    missing = [name for name in column.stored if name not in rows.column_names]
    if missing:
        message = f"the public table has no column {missing[0]!r}, which column {column.name!r} is read from"
        raise RecipeError(message)
    domain = column.domain
    stored = [rows[name].combine_chunks() for name in column.stored]
    if isinstance(domain, Bins):
        codes = _encode_bins(domain, stored[0])
    elif isinstance(domain, Tuples):
        codes = _encode_tuples(domain, stored)
    elif isinstance(domain, Period):
        codes = _look_up(_date_part(domain, stored[0], column.name), domain.labels)
    elif domain is not None:
        codes = _look_up(stored[0], domain.labels)
    else:
        message = f"column {column.name!r} has no domain, so a public table cannot be encoded"
        raise RecipeError(message)
    if column.outside == "other":
        codes[codes < 0] = column.size - 1
    return codes


def _look_up(values: pa.Array, labels: tuple[int | str, ...]) -> NDArray[np.int64]:
    known = {str(label): code for code, label in enumerate(labels)}
    encoded = values.dictionary_encode()
    # The last entry is that of a missing value, whose index is -1.
    codes = [known.get(_plain(value), -1) for value in encoded.dictionary.to_pylist()]
    return np.asarray(np.array([*codes, -1])[to_numpy(encoded.indices.fill_null(-1))], np.int64)


def _plain(value: object) -> str:
    """A value as labels are written: a whole number without its decimal point."""
    return str(int(value)) if isinstance(value, (float, bool)) and value == int(value) else str(value)


def _encode_bins(domain: Bins, values: pa.Array) -> NDArray[np.int64]:
    try:
        numbers = to_numpy(values.cast(pa.float64(), safe=False).fill_null(np.nan))
    except pa.ArrowException:
        message = "a column of the public table that is binned in the table does not hold numbers"
        raise RecipeError(message) from None
    edges = np.array([float(edge) for edge in domain.edges])
    codes = np.minimum(np.searchsorted(edges, numbers, side="right") - 1, edges.size - 2)
    inside = (numbers >= edges[0]) & (numbers <= edges[-1])
    return np.where(inside, codes, -1).astype(np.int64)


def _encode_tuples(domain: Tuples, stored: list[pa.Array]) -> NDArray[np.int64]:
    listed = [tuple(dict.fromkeys(part)) for part in zip(*domain.values, strict=True)]
    parts = [_look_up(values, labels) for values, labels in zip(stored, listed, strict=True)]
    table = np.full([len(labels) for labels in listed], -1, np.int64)
    for code, value in enumerate(domain.values):
        table[tuple(labels.index(part) for labels, part in zip(listed, value, strict=True))] = code
    known = np.logical_and.reduce([part >= 0 for part in parts])
    return np.where(known, table[tuple(np.maximum(part, 0) for part in parts)], -1)


def _date_part(domain: Period, values: pa.Array, name: str) -> pa.Array:
    functions = {"year": pc.year, "month": pc.month, "day_of_week": pc.day_of_week, "hour": pc.hour}
    try:
        if not pa.types.is_temporal(values.type):
            values = values.cast(pa.timestamp("s"))
        return functions[domain.part](values)
    except pa.ArrowException:
        message = f"column {name!r} of the public table does not hold dates"
        raise RecipeError(message) from None
