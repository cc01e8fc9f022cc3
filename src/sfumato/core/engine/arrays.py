"""Between numpy and Arrow without a copy, and without pulling in pandas where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Arrow's names of numbers that are not numpy's. Arrow's own translation needs pandas in some versions.
_DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}


def to_arrow(values: NDArray[Any]) -> pa.Array:
    """A one-dimensional array of numbers as an Arrow array over the same memory.

    >>> to_arrow(np.array([1, 2], np.int64)).to_pylist()
    [1, 2]
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), values.size, [None, pa.py_buffer(values)])


def to_numpy(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """A column of numbers without missing values as a numpy array, over the same memory if it is one piece.

    >>> to_numpy(to_arrow(np.array([1.5, 2.5]))).tolist()
    [1.5, 2.5]
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        raise ValueError("a column of codes has missing values")
    dtype = np.dtype(_DTYPES.get(str(column.type), str(column.type)))
    data = column.buffers()[1]
    if data is None:
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype)[column.offset : column.offset + len(column)]
