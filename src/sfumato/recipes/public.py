"""What synthetic rows take from a public table: the values within bins, and who has rows like these.

A recipe names the file. When the recipe is planned the file is read once, and what is needed of it takes its
place in the recipe. So the plan, its digest, the certificate and every verification hold the facts
themselves, and nobody needs the file again.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sfumato.errors import RecipeError, SourceError
from sfumato.recipes.codes import encode_public, read_public_table
from sfumato.recipes.rows import has_numbers
from sfumato.schema import Bins, refuse_unknown_keys
from sfumato.schema.reading import inflate
from sfumato.tables.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.recipes.rows import WithinBins
    from sfumato.schema import Column, Table

_VALUES = 100  # of a bin that are kept
_MOST_ROWS = 200_000
_KEYS = ("file", "sha256", "values", "identifiers")


def parse_public(value: object, *, where: str) -> str | dict[str, Any] | None:
    """The name of a file that is still to be read, or what was read of it."""
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, Mapping) and {"file", "sha256", "values"} <= set(value):
        refuse_unknown_keys(value, _KEYS, where=where)
        return dict(value)
    raise RecipeError(f"{where} must name a Parquet, CSV or CSV.gz file that is about nobody in the table")


def read_public(
    path: str, table: Table, columns: Sequence[str], *, groups: Sequence[str] | None
) -> dict[str, Any]:
    """What is needed of the public table at `path`: values within bins and, with `groups`, identifiers."""
    name = Path(path).name
    rows, content = read_public_table(Path(path))
    values = {
        each: _spread(table.column(each), _numbers(rows[table.column(each).stored[0]]))
        for each in columns
        if has_numbers(table.column(each)) and table.column(each).stored[0] in rows.column_names
    }
    record: dict[str, Any] = {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "values": values}
    if groups is not None:
        record["identifiers"] = _pack_identifiers(rows, table, groups, name=name)
    elif not any(kept for bins in values.values() for kept in bins):
        raise RecipeError(f"public table {name!r} has no value for a binned column of table {table.name!r}")
    return record


def public_values(record: Mapping[str, Any] | None) -> WithinBins:
    """The values within bins that a record holds."""
    if record is None:
        return {}
    try:
        return {
            str(name): tuple(tuple(float(value) for value in kept) for kept in bins)
            for name, bins in record["values"].items()
        }
    except (TypeError, ValueError, AttributeError):
        raise RecipeError("the values of the public table are not numbers by column and bin") from None


def public_identifiers(record: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The group and the identifier of every public row that a record holds."""
    try:
        packed = base64.b64decode(record["identifiers"], validate=True)
        pairs = np.frombuffer(inflate(packed, most=_MOST_ROWS * 8), "<i4").astype(np.int64).reshape(2, -1)
    except (KeyError, TypeError, ValueError, SourceError, zlib.error):
        raise RecipeError(
            "the identifiers of the public table cannot be read; plan the recipe from its file again"
        ) from None
    if pairs.size and pairs.min() < 0:
        raise RecipeError("the identifiers of the public table hold a negative number")
    return pairs[0], pairs[1]


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    try:
        numbers = to_numpy(column.cast(pa.float64(), safe=False).drop_null().combine_chunks())
    except pa.ArrowException:
        raise RecipeError(
            "a column of the public table that is binned in the table does not hold numbers"
        ) from None
    return np.asarray(numbers[np.isfinite(numbers)], np.float64)


def _spread(column: Column, numbers: NDArray[np.float64]) -> list[list[int | str]]:
    """For every bin its values, sorted; of many, as many as are kept, evenly spaced."""
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
    encoded = rows[unit].combine_chunks().dictionary_encode()
    identifiers = to_numpy(encoded.indices.fill_null(-1)).astype(np.int64)
    group = np.zeros(rows.num_rows, np.int64)
    known = identifiers >= 0
    for each in groups:
        column = table.column(each)
        codes = encode_public(column, rows)
        known &= codes >= 0
        group = group * column.size + codes
    pairs = np.stack([group[known], identifiers[known]])
    order = np.lexsort((pairs[1], pairs[0]))
    return base64.b64encode(zlib.compress(pairs[:, order].astype("<i4").tobytes(), 9)).decode()
