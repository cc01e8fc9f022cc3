"""Where a file of a release differs from what was derived again: which lines, fields, and last bits.

Sums, logarithms and exponentials of floating point come out with other last bits in other versions of numpy.
Such a difference is told apart from all others. No message holds a value of a file.
"""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.errors import SourceError, VerificationFailed
from sfumato.tables.arrays import read_parquet

# Doubles that are so many units in the last place apart are the same but for how they were added up. The
# tables of a model are rounded to 24 bits afterwards, so theirs are rarely one apart.
_LAST_BITS, _LAST_BITS_SHORT = 2**16, 2

_WRITER = re.compile(r"parquet-cpp-arrow version [\w.+-]{1,40}")


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of a file that differs, by how many units in the last place if it holds floating point."""

    field: str
    units: float = math.inf
    is_small: bool = False

    def __str__(self) -> str:
        if math.isinf(self.units):
            return f"{self.field} differs"
        name = "unit" if self.units == 1 else "units"
        return f"{self.field} differs by {self.units:,.0f} {name} in the last place"


def check_file(name: str, stored: bytes | None, derived: bytes | None, *, rows: int = 0) -> str:
    """What is found right of a file, or VerificationFailed with where it differs from what was derived.

    Another version of the Parquet writer may lay out the same rows differently, and another version of numpy
    give the numbers of a model other last bits. Text must be the same byte for byte.
    """
    if stored == derived:
        return f"{name} follows from the measurements, byte for byte"
    failed = f"{name} does not follow from measurements.parquet"
    if stored is None or derived is None:
        raise VerificationFailed(failed)
    if not name.endswith(".parquet"):
        raise VerificationFailed(f"{failed}: {tell_lines(stored, derived)}")
    try:
        about = pq.ParquetFile(io.BytesIO(stored)).metadata
        plain = about.metadata is None and _WRITER.fullmatch(about.created_by or "")
        found = find_differences(stored, derived, rows=rows)
    except (pa.ArrowException, OSError, ValueError, SourceError):
        raise VerificationFailed(failed) from None
    # The table is also there as text, so nothing of it may differ.
    if not plain or not all(each.is_small and name != "table.parquet" for each in found):
        raise VerificationFailed(f"{failed}: {tell_differences(found)}")
    if found:
        return f"{name} follows from the measurements, but for last bits: {tell_differences(found)}"
    return f"{name} follows from the measurements, row for row (another writer version)"


def find_differences(stored: bytes, derived: bytes, *, rows: int = 0) -> tuple[Difference, ...]:
    """The columns in which two Parquet files differ; of a description in JSON its entries."""
    files = [pq.ParquetFile(io.BytesIO(each)) for each in (stored, derived)]
    # Looked at before anything is read: a file may say that it holds more than fits into memory.
    same = files[0].schema_arrow.equals(files[1].schema_arrow, check_metadata=True)
    if not same or files[0].metadata.num_rows != files[1].metadata.num_rows:
        return (Difference("its form"),)
    mine, theirs = (read_parquet(each, spelled=True, rows=rows) for each in (stored, derived))
    found: dict[str, Difference] = {}
    for name in mine.column_names:
        for each in _compare(name, mine[name].combine_chunks(), theirs[name].combine_chunks()):
            known = found.get(each.field)
            if known is None or each.units > known.units:
                found[each.field] = each
    return tuple(found.values())


def tell_differences(found: tuple[Difference, ...]) -> str:
    """The differences in words."""
    return ", ".join(map(str, found)) or "its form differs"


def tell_lines(stored: bytes, derived: bytes) -> str:
    """Where two text files differ, by the numbers of lines."""
    mine, theirs = stored.split(b"\n"), derived.split(b"\n")
    lines = [number for number, pair in enumerate(zip(mine, theirs, strict=False), 1) if pair[0] != pair[1]]
    if len(mine) != len(theirs):
        return f"it has {len(mine) - 1:,} lines in place of {len(theirs) - 1:,}"
    return f"{len(lines):,} of {len(mine) - 1:,} lines differ, the first is line {lines[0]:,}"


def count_units(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """How many floating-point numbers lie between two, for each pair; infinite if one is no number.

    >>> count_units(np.array([1.0, 0.0]), np.array([1.0 + 2**-52, -0.0])).tolist()
    [1.0, 0.0]
    """
    whole: Any = np.int64 if first.dtype == np.float64 else np.int32
    places = []
    for numbers in (first, second):
        bits = np.ascontiguousarray(numbers).view(whole).astype(object)
        # Negative numbers count downwards from zero.
        places.append(np.where(bits < 0, np.iinfo(whole).min - bits, bits))
    units = np.abs(places[0] - places[1]).astype(np.float64)
    return np.where(np.isnan(first) | np.isnan(second), np.where(units == 0, 0.0, np.inf), units)


def _compare(name: str, mine: pa.Array, theirs: pa.Array) -> list[Difference]:
    if mine.equals(theirs):
        return []
    if pa.types.is_floating(mine.type) and not mine.null_count and not theirs.null_count:
        return [_measure(f"column {name!r}", np.asarray(mine), np.asarray(theirs))]
    pairs = list(zip(mine.to_pylist(), theirs.to_pylist(), strict=True))
    if name == "about":
        return [each for a, b in pairs if a != b for each in _compare_descriptions(a, b)]
    count = sum(a != b for a, b in pairs)
    return [Difference(f"column {name!r} in {count:,} of {len(pairs):,} rows")]


def _measure(field: str, mine: NDArray[Any], theirs: NDArray[Any]) -> Difference:
    units = float(count_units(mine, theirs).max())
    limit = _LAST_BITS if mine.dtype == np.float64 else _LAST_BITS_SHORT
    return Difference(field, units, is_small=units <= limit)


def _compare_descriptions(mine: str | None, theirs: str | None) -> list[Difference]:
    """The entries of two JSON objects that differ."""
    whole = [Difference("column 'about'")]
    try:
        first, second = json.loads(mine or ""), json.loads(theirs or "")
    except (ValueError, RecursionError):
        return whole
    if not isinstance(first, dict) or not isinstance(second, dict) or list(first) != list(second):
        return whole
    found = []
    for key in second:
        a, b, field = first[key], second[key], f"{key!r} of a model"
        if isinstance(a, float) and isinstance(b, float):
            if a != b:
                found.append(_measure(field, np.array([a]), np.array([b])))
        elif a != b or type(a) is not type(b):
            found.append(Difference(field))
    # The same numbers in another spelling are not what a release writes.
    return found if found and json.dumps(first) == mine else whole
