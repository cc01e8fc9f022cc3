"""Between numpy and Arrow without a copy, and without pulling in pandas where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["label_array", "to_arrow", "to_numpy"]

# Arrow's names of numbers that are not numpy's. Arrow's own translation needs pandas in some versions.
_DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}


def to_arrow(values: NDArray[Any]) -> pa.Array:
    """A one-dimensional array of numbers as an Arrow array over the same memory.

    >>> to_arrow(np.array([1, 2], np.int64)).to_pylist()
    [1, 2]
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])


def to_numpy(column: pa.Array) -> NDArray[Any]:
    """An Arrow array of numbers without missing values as a numpy array over the same memory.

    >>> to_numpy(to_arrow(np.array([1.5, 2.5]))).tolist()
    [1.5, 2.5]
    """
    if column.null_count:
        message = "a column of codes has missing values"
        raise ValueError(message)
    dtype = np.dtype(_DTYPES.get(str(column.type), str(column.type)))
    data = column.buffers()[1]
    if data is None:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]


def label_array(codes: NDArray[np.int32], labels: tuple[int | str, ...]) -> pa.Array:
    """The labels behind `codes`: text as a dictionary, numbers as they are.

    >>> label_array(np.array([1, 0], np.int32), ("a", "b")).to_pylist()
    ['b', 'a']
    """
    if not isinstance(labels[0], str):
        return to_arrow(np.array(labels, np.int64)[codes])
    codes = np.ascontiguousarray(codes)
    return pa.DictionaryArray.from_buffers(
        pa.dictionary(pa.int32(), pa.string()),
        codes.size,
        [None, pa.py_buffer(codes)],
        _text_array([str(label) for label in labels]),
    )


def _text_array(texts: list[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *(len(text) for text in encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)
