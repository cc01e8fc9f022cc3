"""One numbering for the values of a column on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sfumato.errors import MetricError
from sfumato.metrics.tables import plain_column, to_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Label = int | float | str | None

_NARROW = 2**20

Missing = Literal["refuse", "number"]


def number_pair(
    truth: pa.Table, release: pa.Table, name: str, *, missing: Missing = "refuse"
) -> tuple[NDArray[np.int64], NDArray[np.int64], Sequence[Label]]:
    """The codes of column `name` in truth and release, and the value behind every code, in order.

    Numbers are compared as numbers; if one side holds text, both are compared as text. A missing
    value is refused, or gets a code of its own, the last one.

    >>> left, right = pa.table({"a": ["x", "y"]}), pa.table({"a": ["z", "x"]})
    >>> number_pair(left, right, "a")
    (array([0, 1]), array([2, 0]), ['x', 'y', 'z'])
    """
    first, second = plain_column(truth, name), plain_column(release, name)
    if missing == "refuse" and (first.null_count or second.null_count):
        side = "truth" if first.null_count else "release"
        raise MetricError(f"{side}: column {name!r} has missing values; give them a value of their own")
    if is_text(first) or is_text(second):
        codes, labels = number_text(pa.concat_arrays([_as_text(first), _as_text(second)]))
    else:
        codes, labels = _number_numbers(_join(to_numbers(first), to_numbers(second)))
    return codes[: len(first)], codes[len(first) :], labels


def number_column(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Codes that tell the values of column `name` apart, in their order; missing ones are all the same."""
    array = plain_column(table, name)
    if is_text(array):
        return number_text(array)[0]
    return _number_numbers(to_numbers(array))[0]


def number_text(array: pa.Array) -> tuple[NDArray[np.int64], list[Label]]:
    """(codes, words): the words of `array` in their order; a missing one comes last.

    >>> number_text(pa.array(["y", None, "x"]))
    (array([1, 2, 0]), ['x', 'y', None])
    """
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    indices = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False).astype(np.int64)
    used = sorted({words[place] for place in np.unique(indices).tolist() if place < len(words)})
    place_of = {word: place for place, word in enumerate(used)}
    labels: list[Label] = list(used)
    if encoded.null_count:
        labels.append(None)
    table = np.array([place_of.get(word, 0) for word in words] + [len(used)], np.int64)
    return table[indices], labels


def is_text(array: pa.Array) -> bool:
    """Whether `array` holds text."""
    return bool(pa.types.is_string(array.type) or pa.types.is_dictionary(array.type))


def _as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):
        whole = pc.all(pc.equal(pc.floor(array), array), min_count=0).as_py()
        array = array.cast(pa.int64(), safe=False) if whole else array
    return array if pa.types.is_string(array.type) else array.cast(pa.string())


def _join(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    if {first.dtype.kind, second.dtype.kind} == {"i", "u"}:  # numpy would make floats of them
        first, second = first.astype(np.int64), second.astype(np.int64)
    return np.concatenate([first, second])


def _number_numbers(values: NDArray[Any]) -> tuple[NDArray[np.int64], list[Label]]:
    if values.size and values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if high - low < _NARROW:
            places = (values - values.dtype.type(low)).astype(np.int64)
            present = np.bincount(places, minlength=1) > 0
            codes = (np.cumsum(present) - 1)[places].astype(np.int64)
            return codes, [place + low for place in np.flatnonzero(present).tolist()]
    labels, inverse = np.unique(values, return_inverse=True)
    found: list[Label] = labels.tolist()
    if found and found[-1] != found[-1]:
        found[-1] = None
    return inverse.reshape(-1).astype(np.int64), found
