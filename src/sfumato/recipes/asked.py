"""Which cells are asked about, and for which numbers of records: by a public file, and by public rules.

A recipe names the file. When the recipe is planned the file is read once, and what it names takes its place
in the recipe: the plan, its digest, the certificate and every verification hold it, and nobody needs the
file again.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.errors import RecipeError, SourceError
from sfumato.recipes.codes import encode_public, read_public_table
from sfumato.schema import Tuples, Values, refuse_unknown_keys
from sfumato.schema.reading import inflate
from sfumato.tables.arrays import to_numpy

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.schema import Column, Table

MOST_TIMES = 2**20 - 1

_KEYS = ("file", "sha256", "pairs")
# A pair is held as one number, cell * _PAIR + times; times 0 stands for the cell alone.
_PAIR = MOST_TIMES + 1
_MOST_PACKED = 2**30  # bytes, 2^27 pairs: more questions than a release may have answers


def parse_asked(value: object, *, where: str) -> str | dict[str, Any] | None:
    """The name of a file that is still to be read, or what was read of it."""
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, Mapping) and set(_KEYS) <= set(value):
        refuse_unknown_keys(value, _KEYS, where=where)
        return dict(value)
    raise RecipeError(f"{where} must name a Parquet, CSV or CSV.gz file that is about nobody in the table")


def read_occurring(path: str, table: Table, by: tuple[str, ...]) -> dict[str, Any]:
    """The pairs of a cell and a number of records that an individual of a public table has there.

    Without the unit's column in the public table, every row is an individual of its own.
    """
    rows, record = _open(path)
    cells = _find_cells(table, by, [encode_public(table.column(name), rows) for name in by])
    unit = table.unit.column
    if unit is None or unit not in rows.column_names:
        pairs = cells[cells >= 0] * _PAIR + 1
    else:
        encoded = rows[unit].combine_chunks().dictionary_encode()
        people = to_numpy(encoded.indices.fill_null(-1)).astype(np.int64)
        known = (cells >= 0) & (people >= 0)
        size = table.cells(by)
        met, times = np.unique(people[known] * size + cells[known], return_counts=True)
        pairs = met % size * _PAIR + np.minimum(times, MOST_TIMES)
    if not pairs.size:
        raise RecipeError(f"public table {record['file']!r} has no row in the domains of {' x '.join(by)}")
    return {**record, "pairs": _pack(np.unique(pairs))}


def read_asked(path: str, table: Table, by: tuple[str, ...]) -> dict[str, Any]:
    """The cells that a public list names, in the labels of a release or as the table stores them."""
    rows, record = _open(path)
    codes = [_read_labels(table.column(name), rows) for name in by]
    for name, each in zip(by, codes, strict=True):
        outside = np.flatnonzero(each < 0)
        if outside.size:
            raise RecipeError(
                f"asked = {record['file']!r}: row {int(outside[0]) + 1} has no value of column {name!r} "
                "that is in its domain"
            )
    if not rows.num_rows:
        raise RecipeError(f"asked = {record['file']!r} lists no cell")
    return {**record, "pairs": _pack(np.unique(_find_cells(table, by, codes) * _PAIR))}


def list_questions(
    table: Table,
    by: tuple[str, ...],
    *,
    times: tuple[int, ...],
    record: Mapping[str, Any] | None,
    period: str | None,
    reach: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The cells and times of all questions, ascending by cell, then by times.

    Without a `record` every cell is asked for all `times`. With one, its pairs are asked in their own
    cell and in those up to `reach` codes of `period` away, and each cell so named for all `times`.
    """
    size = table.cells(by)
    if record is None:
        cells = np.arange(size, dtype=np.int64)
        return np.repeat(cells, len(times)), np.tile(np.array(times, np.int64), size)
    pairs = _unpack(record, size)
    if period is not None:
        pairs = _spread(pairs, table, by, period=period, reach=reach)
    cells = np.unique(pairs // _PAIR) * _PAIR
    pairs = np.unique(np.concatenate([pairs[pairs % _PAIR > 0], *(cells + each for each in times)]))
    return pairs // _PAIR, pairs % _PAIR


def _open(path: str) -> tuple[pa.Table, dict[str, Any]]:
    name = Path(path).name
    rows, content = read_public_table(Path(path))
    return rows, {"file": name, "sha256": hashlib.sha256(content).hexdigest()}


def _read_labels(column: Column, rows: pa.Table) -> NDArray[np.int64]:
    """The codes of the rows of a list, which names a column as a release does or as the table does."""
    released = not isinstance(column.domain, Tuples) or column.outside == "other"
    if released and column.name in rows.column_names:
        labels = replace(
            column, stored=(column.name,), domain=Values(column.labels), outside="drop", missing_label=None
        )
        codes = encode_public(labels, rows)
        if (codes >= 0).any() or not set(column.stored) <= set(rows.column_names):
            return codes
    return encode_public(column, rows)


def _find_cells(table: Table, by: tuple[str, ...], codes: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The cell of every row, -1 where a code is missing."""
    cells = np.zeros(codes[0].size, np.int64)
    known = np.ones(codes[0].size, np.bool_)
    for name, each in zip(by, codes, strict=True):
        known &= each >= 0
        cells = cells * table.column(name).size + each
    return np.where(known, cells, -1)


def _spread(
    pairs: NDArray[np.int64], table: Table, by: tuple[str, ...], *, period: str, reach: int
) -> NDArray[np.int64]:
    """`pairs`, and the same up to `reach` codes of `period` away; the code of `other` has no neighbours."""
    place = by.index(period)
    domain = table.column(period).domain
    assert domain is not None
    size, inner = table.column(period).size, table.cells(by[place + 1 :]) if by[place + 1 :] else 1
    done = 0
    while done < min(reach, size):
        # What reaches `done` codes and is moved by up to one more has no gap, not even next to an end.
        step = min(reach - done, done + 1)
        codes = pairs // _PAIR // inner % size
        moved = [
            pairs[(codes < domain.size) & (codes + by_codes >= 0) & (codes + by_codes < domain.size)]
            + by_codes * inner * _PAIR
            for by_codes in (-step, step)
        ]
        pairs = np.unique(np.concatenate([pairs, *moved]))
        done += step
    return pairs


def _pack(pairs: NDArray[np.int64]) -> str:
    steps = np.diff(pairs, prepend=0).astype("<i8")
    return base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode()


def _unpack(record: Mapping[str, Any], size: int) -> NDArray[np.int64]:
    try:
        packed = base64.b64decode(record["pairs"], validate=True)
        steps = np.frombuffer(inflate(packed, most=_MOST_PACKED), "<i8").astype(np.int64)
    except (KeyError, TypeError, ValueError, SourceError, zlib.error):
        steps = np.empty(0, np.int64)
    pairs = np.cumsum(steps)
    wrong = not steps.size or (steps[1:] < 1).any()
    if wrong or pairs[0] < 0 or pairs[-1] >= size * _PAIR:
        raise RecipeError("the cells of the public file cannot be read; plan the recipe from its file again")
    return pairs
