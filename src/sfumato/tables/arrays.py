"""Labels and texts as Arrow arrays, and tables from the bytes of Parquet files, within limits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import SourceError

# What a Parquet file may unpack to: so much, and so many times its own size, since codes pack very well.
_UNPACKED, _TIMES = 2**30, 256

# The arrays of codes, counts and flags that rooms outside the core work on.
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


def label_array(codes: NDArray[np.int32], labels: tuple[int | str, ...]) -> pa.Array:
    """The labels behind `codes`: text as a dictionary, numbers and booleans as they are.

    >>> label_array(np.array([1, 0], np.int32), ("a", "b")).to_pylist()
    ['b', 'a']
    """
    if isinstance(labels[0], bool):
        bits = np.packbits(np.array(labels, np.bool_)[codes], bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), codes.size, [None, pa.py_buffer(bits)])
    if not isinstance(labels[0], str):
        return to_arrow(np.array(labels, np.int64)[codes])
    codes = np.ascontiguousarray(codes)
    return pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), pa.string()),
        codes.size,
        [None, pa.py_buffer(codes)],
        text_array([str(label) for label in labels]),
    )


def code_days(days: pa.Array | pa.ChunkedArray, labels: Sequence[str]) -> NDArray[np.int64]:
    """The codes of the days, weeks or months that dates are in, -1 before the first and where there is none.

    >>> from datetime import date
    >>> code_days(pa.array([date(2025, 2, 3), None]), ["2025-01", "2025-02", "other"]).tolist()
    [1, -1]
    """
    begins = [label for label in labels if label[:1].isdecimal()]
    texts = days.cast(pa.string()).to_pylist()
    return np.array([-1 if text is None else bisect_right(begins, text) - 1 for text in texts], np.int64)


def hide_values(column: pa.Array, hidden: NDArray[np.bool_]) -> pa.Array:
    """The array with NULL where `hidden` is true.

    >>> hide_values(to_arrow(np.array([1, 2], np.int64)), np.array([True, False])).to_pylist()
    [None, 2]
    """
    if not hidden.any():
        return column
    seen = pa.py_buffer(np.packbits(~hidden, bitorder="little"))
    inner = column.indices if pa.types.is_dictionary(column.type) else column
    buffers = [seen, *inner.buffers()[1:]]
    if inner is column:
        return pa.Array.from_buffers(column.type, len(column), buffers)
    return pa.DictionaryArray.from_buffers(column.type, len(column), buffers, column.dictionary)


def text_array(texts: Sequence[str | None]) -> pa.Array:
    """Texts as an Arrow array.

    >>> text_array(["a", None]).to_pylist()
    ['a', None]
    """
    known = [text or "" for text in texts]
    content = "".join(known)
    encoded = content.encode()
    plain = len(content) == len(encoded)  # a letter is a byte
    sizes = map(len, known) if plain else (len(text.encode()) for text in known)
    ends = np.cumsum([0, *sizes], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(encoded)]
    missing = np.array([text is None for text in texts], np.bool_)
    return hide_values(pa.Array.from_buffers(pa.string(), len(texts), buffers), missing)


def read_parquet(content: bytes, *, spelled: bool = False, rows: int = 0) -> pa.Table:
    """The table in the bytes of a Parquet file, text as dictionaries or `spelled` out.

    A file whose footer or whose words promise far more than it holds is refused before it is unpacked, unless
    it has as many `rows` as are expected: counts that are nearly all zero pack without limit.
    """
    file = pq.ParquetFile(pa.BufferReader(content))
    footer, schema = file.metadata, file.schema_arrow
    most = max(_UNPACKED + _TIMES * len(content), 16 * rows * footer.num_columns)
    groups = (footer.row_group(place).total_byte_size for place in range(footer.num_row_groups))
    # A word of a dictionary stands once, however many rows repeat it.
    words = [field.name for field in schema if pa.types.is_string(field.type)]
    fits = footer.num_rows * footer.num_columns * 8 + sum(groups) <= most
    if fits:
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=words)
        table = file.read().unify_dictionaries()
        fits = not spelled or sum(map(_spelled_size, table.columns)) <= most
    if not fits:
        raise SourceError("it unpacks to far more than it is")
    return table.cast(pa.schema([schema.field(name) for name in table.column_names])) if spelled else table


def _spelled_size(column: pa.ChunkedArray) -> int:
    """The bytes of a column whose words are written out for every row."""
    if not pa.types.is_dictionary(column.type):
        return 0
    chunks = [(pc.binary_length(chunk.dictionary), chunk.indices) for chunk in column.chunks]
    return sum(pc.sum(sizes.take(codes)).as_py() or 0 for sizes, codes in chunks)
