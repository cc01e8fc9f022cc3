"""Stored values made plain, each by itself: what comes out holds nothing that surprises a database.

No NaN (missing), no infinity (the largest number of its sign), no negative zero, no text that is not UTF-8
(its odd bytes become U+FFFD) or longer than a public limit (it is cut), no moment outside the years 70 to
9891 and no endless date (missing). Every rule looks at one value alone, so one record cannot decide what
becomes of another.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNSTORED = frozenset(["nan", "inf", "-inf", "-0.0"])
"""How DuckDB writes the numbers that no cleaned column holds."""

_FAR, _FARTHER = -60_000_000_000_000_000, 250_000_000_000_000_000
"""The moments that are read, in microseconds before and after 1970."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_MILLISECONDS = 86_400_000
_ENDLESS_DAYS = 2**31 - 2
_DIGEST = "sha256 "


def clean_type(kind: pa.DataType) -> pa.DataType:
    """The type of a cleaned column.

    >>> clean_type(pa.timestamp("ns", tz="UTC"))
    TimestampType(timestamp[us])
    """
    if pa.types.is_dictionary(kind):
        return clean_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_binary(kind):
        return pa.string()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else pa.float64()
    return pa.float32() if pa.types.is_float16(kind) else kind


def clean_column(column: pa.Array, *, limit: int, keep_apart: bool = False) -> pa.Array:
    """The column with every value made plain; texts have at most `limit` characters.

    With `keep_apart`, for columns that name individuals, a text that would be changed becomes a digest of its
    bytes instead: two that differ stay two.

    >>> clean_column(pa.array([1.5, float("nan"), None, float("-inf")]), limit=9).to_pylist()
    [1.5, None, None, -1.7976931348623157e+308]
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        # The values of a dictionary are those of records, too, and as odd.
        return clean_column(column.dictionary, limit=limit, keep_apart=keep_apart).take(column.indices)
    wanted = clean_type(kind)
    if pa.types.is_string(wanted) or pa.types.is_large_string(wanted):
        return _clean_text(column, wanted, limit=limit, keep_apart=keep_apart)
    if pa.types.is_timestamp(kind):
        return _clean_moments(column)
    if pa.types.is_date(kind):
        return _clean_dates(column)
    if pa.types.is_decimal(kind) and kind != wanted:
        column = column.cast(wanted, safe=False)
    return _clean_numbers(column.cast(wanted)) if pa.types.is_floating(wanted) else column


def _clean_numbers(column: pa.Array) -> pa.Array:
    values = _values(column, np.float32 if column.type.bit_width == 32 else np.float64)
    most = np.finfo(values.dtype).max
    odd = np.isnan(values)
    # Adding zero turns the negative zero into zero.
    return _masked(np.clip(values, -most, most) + values.dtype.type(0), column, odd)


def _clean_moments(column: pa.Array) -> pa.Array:
    counted = _values(column, np.int64)
    per_second = _PER_SECOND[column.type.unit]
    if per_second == 10**9:
        moments, odd = counted // 1000, np.zeros(len(column), np.bool_)
    else:
        step = 10**6 // per_second
        odd = (counted < _FAR // step) | (counted > _FARTHER // step)
        moments = np.where(odd, 0, counted) * step
    return _masked(moments, column, odd).view(pa.timestamp("us"))


def _clean_dates(column: pa.Array) -> pa.Array:
    if pa.types.is_date64(column.type):
        days = _values(column, np.int64) // _DAY_MILLISECONDS
    else:
        days = _values(column, np.int32).astype(np.int64)
    odd = np.abs(days) > _ENDLESS_DAYS
    return _masked(np.where(odd, 0, days).astype(np.int32), column, odd).view(pa.date32())


def _values(column: pa.Array, dtype: type[np.generic]) -> NDArray[Any]:
    """The stored numbers of a column; where a value is missing, whatever lies there."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]


def _masked(values: NDArray[Any], column: pa.Array, odd: NDArray[np.bool_]) -> pa.Array:
    if column.null_count:
        odd = odd | column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, mask=odd) if odd.any() else pa.array(values)


def _clean_text(column: pa.Array, wanted: pa.DataType, *, limit: int, keep_apart: bool) -> pa.Array:
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_binary())
    # Taken for text as it is: what is no text is found next.
    column = pa.Array.from_buffers(wanted, len(column), column.buffers(), column.null_count, column.offset)
    strange = pc.greater(pc.binary_length(column), limit)
    if keep_apart:
        # What already reads as a digest gets one, too, so that nobody can be taken for another.
        strange = pc.or_(strange, pc.starts_with(column, _DIGEST))
    strange = pc.fill_null(strange, fill_value=False).to_numpy(zero_copy_only=False)
    odd = np.concatenate((np.flatnonzero(strange), _find_invalid(column)))
    if not odd.size:
        return column
    odd = np.unique(odd)
    raw = pa.Array.from_buffers(
        pa.large_binary() if pa.types.is_large_string(wanted) else pa.binary(),
        len(column),
        column.buffers(),
        column.null_count,
        column.offset,
    ).take(pa.array(odd))
    mended = [_mend_text(value.as_buffer().to_pybytes(), limit, keep_apart=keep_apart) for value in raw]
    chosen = np.zeros(len(column), np.bool_)
    chosen[odd] = True
    return pc.replace_with_mask(column, pa.array(chosen), pa.array(mended, wanted))


def _mend_text(value: bytes, limit: int, *, keep_apart: bool) -> str:
    return (
        _DIGEST + hashlib.sha256(value).hexdigest()
        if keep_apart
        else value.decode("utf-8", errors="replace")[:limit]
    )


def _find_invalid(column: pa.Array, start: int = 0) -> NDArray[np.int64]:
    """The places of values that are not UTF-8, found by halving."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return np.array([start], np.int64)
        half = len(column) // 2
        left, right = column.slice(0, half), column.slice(half)
        return np.concatenate((_find_invalid(left, start), _find_invalid(right, start + half)))
    return np.empty(0, np.int64)
