"""What recipes take from a public table: codes, values within bins, and who has rows like these.

A recipe names the file. When the recipe is planned the file is read once, and what is needed of it takes its
place in the recipe. So the plan, its digest, the certificate and every verification hold the facts
themselves, and nobody needs the file again.
"""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import RecipeError, SourceError
from sfumato.core.facts.column import Column, refuse_unknown_keys
from sfumato.core.facts.domain import Bins
from sfumato.core.facts.table import Table
from sfumato.core.files import read_regular
from sfumato.inference.model import number_cells
from sfumato.tables.arrays import Flags, Floats, Whole
from sfumato.tables.codes import encode_public
from sfumato.tables.read import parse_table

WithinBins = dict[str, tuple[tuple[float, ...], ...]]
"""By column, for every bin, the values of a public table that fall into it, evenly spaced and sorted."""

_MOST_BYTES = 2**31
_VALUES = 100  # of a bin that are kept
_MOST_ROWS = 200_000


def read_public_table(path: Path) -> tuple[pa.Table, bytes]:
    """Return the table in a Parquet, CSV or CSV.gz file, and the bytes of the file."""
    try:
        content = read_regular(path, most=_MOST_BYTES)
        # Text stays as it is written: whether 07 is a number, the domain decides.
        return parse_table(content, name=path.name), content
    except OSError as error:
        reason = str(error) if isinstance(error, SourceError) else type(error).__name__
        raise RecipeError(f"public table {path.name!r} cannot be read ({reason})") from None


def read_numbers(column: Column, rows: pa.Table) -> Floats:
    """Return the numbers of a column in the rows of a public table, NaN where there is none."""
    stored = rows[column.stored[0]].combine_chunks()
    return np.where(_find_missing(column, stored), np.nan, _to_numbers(column, stored))


def _find_missing(column: Column, stored: pa.Array) -> Flags:
    """Return where a stored value is missing, or one of those that stand for it."""
    absent = pc.is_null(stored, nan_is_null=True)
    if column.missing:
        absent = pc.or_(absent, pc.is_in(stored.cast(pa.string()), pa.array(list(column.missing))))
    return np.asarray(absent.to_numpy(zero_copy_only=False), np.bool_)


def parse_public(value: object, *, where: str, holds: str = "values") -> str | dict[str, Any] | None:
    """Return name of a file that is still to be read, or what was read of it: a record that `holds` this."""
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, Mapping) and {"file", "sha256", holds} <= set(value):
        more = {"values": ("identifiers",), "places": ("names", "labels")}.get(holds, ())
        refuse_unknown_keys(value, ("file", "sha256", holds, *more), where=where)
        return dict(value)
    raise RecipeError(f"{where} must name a Parquet, CSV or CSV.gz file that is about nobody in the table")


def open_public(path: str) -> tuple[pa.Table, dict[str, Any]]:
    """Return the public table at `path`, and the record of a plan that says which file it was."""
    rows, content = read_public_table(Path(path))
    return rows, {"file": Path(path).name, "sha256": hashlib.sha256(content).hexdigest()}


def read_public(
    path: str, table: Table, columns: Sequence[str], *, groups: Sequence[str] | None
) -> dict[str, Any]:
    """What is needed of the public table at `path`: values within bins and, with `groups`, identifiers."""
    rows, record = open_public(path)
    name = record["file"]
    values = {
        each: _spread(table.column(each), _numbers(rows[table.column(each).stored[0]]))
        for each in columns
        if has_numbers(table.column(each)) and table.column(each).stored[0] in rows.column_names
    }
    record["values"] = values
    if groups is not None:
        record["identifiers"] = _pack_identifiers(rows, table, groups, name=name)
    elif not any(kept for bins in values.values() for kept in bins):
        raise RecipeError(f"public table {name!r} has no value for a binned column of table {table.name!r}")
    return record


def public_values(record: Mapping[str, Any] | None) -> WithinBins:
    """Return the values within bins that a record holds."""
    if record is None:
        return {}
    try:
        return {
            str(name): tuple(tuple(float(value) for value in kept) for kept in bins)
            for name, bins in record["values"].items()
        }
    except (TypeError, ValueError, AttributeError):
        raise RecipeError("the values of the public table are not numbers by column and bin") from None


def public_identifiers(record: Mapping[str, Any]) -> tuple[Whole, Whole]:
    """Return the group and the identifier of every public row that a record holds."""
    pairs = unpack_numbers(record, "identifiers", "<i4", most=_MOST_ROWS * 8)
    if pairs is None or pairs.size % 2:
        raise RecipeError(
            "the identifiers of the public table cannot be read; plan the recipe from its file again"
        )
    pairs = pairs.reshape(2, -1)
    if pairs.size and pairs.min() < 0:
        raise RecipeError("the identifiers of the public table hold a negative number")
    return pairs[0], pairs[1]


def number_individuals(rows: pa.Table, unit: str) -> Whole:
    """Return the individuals of a public table by number, -1 where the column `unit` has no value."""
    encoded = rows[unit].combine_chunks().dictionary_encode()
    return to_numpy(encoded.indices.fill_null(-1)).astype(np.int64)


def locate_rows(table: Table, columns: Sequence[str], codes: Sequence[Whole]) -> Whole:
    """Return cell of every row in the marginal of `columns`, from their codes; -1 where one is missing."""
    coded = dict(zip(columns, codes, strict=True))
    cells = number_cells(coded, columns, {name: table.column(name).size for name in columns})
    return np.where(np.min(np.stack(codes), axis=0) >= 0, cells, -1)


def pack_numbers(numbers: Whole, kind: str) -> str:
    """Return whole numbers as text for a plan's record, each of the numpy `kind`."""
    return base64.b64encode(zlib.compress(numbers.astype(kind).tobytes(), 9)).decode()


def unpack_numbers(record: Mapping[str, Any], key: str, kind: str, *, most: int) -> Whole | None:
    """Return the numbers that a record holds packed, in at most so many bytes; None if it holds none."""
    try:
        packed = base64.b64decode(record[key], validate=True)
        return np.frombuffer(inflate(packed, most=most), kind).astype(np.int64)
    except (KeyError, TypeError, ValueError, SourceError, zlib.error):
        return None


def has_numbers(column: Column) -> bool:
    """Return whether rows hold a number within a bin of `column`."""
    return isinstance(column.domain, Bins) and (column.nullable or not column.extras)


def _to_numbers(column: Column, values: pa.Array) -> Floats:
    try:
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            return np.array([_read_number(each) for each in values.to_pylist()], np.float64)
        return np.asarray(to_numpy(values.cast(pa.float64(), safe=False).fill_null(np.nan)), np.float64)
    except pa.ArrowException:
        raise RecipeError(
            f"column {column.name!r} of the public table must hold numbers, as its domain does"
        ) from None


def _read_number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def _numbers(column: pa.ChunkedArray) -> Floats:
    try:
        numbers = to_numpy(column.cast(pa.float64(), safe=False).drop_null().combine_chunks())
    except pa.ArrowException:
        raise RecipeError(
            "a column of the public table that is binned in the table does not hold numbers"
        ) from None
    return np.asarray(numbers[np.isfinite(numbers)], np.float64)


def _spread(column: Column, numbers: Floats) -> list[list[int | str]]:
    """Return for every bin its values, sorted; of many, as many as are kept, evenly spaced."""
    assert isinstance(column.domain, Bins)
    edges = np.array([float(edge) for edge in column.domain.edges])
    whole = all(edge.denominator == 1 for edge in column.domain.edges)
    numbers = np.sort(numbers[(numbers >= edges[0]) & (numbers <= edges[-1])])
    codes = np.minimum(np.searchsorted(edges, numbers, side="right") - 1, edges.size - 2)
    kept: list[list[int | str]] = []
    for code in range(edges.size - 1):
        inside = numbers[codes == code]
        if inside.size > _VALUES:
            inside = inside[((np.arange(_VALUES) + 0.5) * inside.size / _VALUES).astype(np.int64)]
        # The floor of a number stays in its bin, because the edges are whole.
        kept.append([int(np.floor(value)) if whole else repr(float(value)) for value in inside])
    return kept


def _pack_identifiers(rows: pa.Table, table: Table, groups: Sequence[str], *, name: str) -> str:
    unit = table.unit.column or ""
    missing = [
        stored
        for stored in (unit, *(stored for each in groups for stored in table.column(each).stored))
        if stored not in rows.column_names
    ]
    if missing:
        raise RecipeError(f"public table {name!r} has no column {missing[0]!r}, which identifiers need")
    if rows.num_rows > _MOST_ROWS:
        raise RecipeError(f"public table {name!r} has more than {_MOST_ROWS:,} rows; give a sample of it")
    identifiers = number_individuals(rows, unit)
    group = locate_rows(table, groups, [encode_public(table.column(each), rows) for each in groups])
    known = (identifiers >= 0) & (group >= 0)
    pairs = np.stack([group[known], identifiers[known]])
    order = np.lexsort((pairs[1], pairs[0]))
    return pack_numbers(pairs[:, order], "<i4")


def inflate(content: bytes, *, most: int) -> bytes:
    """What zlib packed, refused beyond `most` bytes.

    >>> inflate(zlib.compress(b"abc"), most=3)
    b'abc'
    """
    packed = zlib.decompressobj()
    inflated = packed.decompress(content, most + 1)
    if len(inflated) > most or not packed.eof or packed.unused_data:
        raise SourceError(f"it is cut short, or unpacks to more than {most:,} bytes")
    return inflated
