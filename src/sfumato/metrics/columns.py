"""Tables to compare, and their columns as numbers, codes and counts of cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.core.engine.opening import TEXT_FILES
from sfumato.core.errors import MetricError
from sfumato.tables.arrays import Flags, Floats, Whole
from sfumato.tables.read import TableLike, guess_kinds, read_table, restore_formulas
from sfumato.tables.read import is_text as is_text_type

SideName = Literal["truth", "release"]
SIDES: tuple[SideName, SideName] = ("truth", "release")
Label = int | float | str | None
CodedColumn = tuple[Whole, Whole, Sequence[Label]]
"""The codes of a column in truth and release, and the value behind every code."""

_LARGEST_WHOLE = 2**53  # to here doubles hold every whole number
_NARROW = 2**20
# Below these limits an array over all cells is faster than sorting the keys of the rows.
_DENSE = 2**17
_PER_ROW = 4


def read_side(source: TableLike, *, side: SideName) -> pa.Table:
    """Returns `source` as an Arrow table, numbers of text files as numbers; `side` is what messages call it.

    >>> read_side({"a": [1, 2]}, side="truth").num_rows
    2
    """
    table = read_table(source, side=side)
    if not isinstance(source, (str, Path)) or not str(source).lower().endswith(TEXT_FILES):
        return table
    return guess_kinds(restore_formulas(table) if side == "release" else table)


def read_sides(truth: TableLike, release: TableLike) -> tuple[pa.Table, pa.Table]:
    """Returns both tables, as `read_side` reads them."""
    return read_side(truth, side="truth"), read_side(release, side="release")


def plain_column(table: pa.Table, name: str) -> pa.Array:
    """Gives the column `name` as one array of numbers, text or a dictionary of text; NaN becomes missing."""
    column = table.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind) and not is_text_type(kind.value_type):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_dictionary(kind):
        column = _plain_words(column).unify_dictionaries()
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_boolean(kind) or pa.types.is_null(kind) or pa.types.is_temporal(kind):
        column = column.cast(pa.string())
    elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    elif is_text_type(kind):
        column = column.cast(pa.string())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise MetricError(f"column {name!r} has a nested or binary type; leave it out")
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # some versions of Arrow leave dictionaries in chunks
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array


def _plain_words(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns a dictionary of text whose words are plain strings: not every kernel takes other layouts."""
    if column.type.value_type == pa.string():
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.string()))


def is_text(array: pa.Array) -> bool:
    """Returns whether an array of `plain_column` holds text."""
    return bool(pa.types.is_string(array.type) or pa.types.is_dictionary(array.type))


def to_numbers(array: pa.Array) -> NDArray[Any]:
    """Returns an array of numbers as numpy holds it; missing ones become NaN."""
    return np.asarray(array.to_numpy(zero_copy_only=False))


def finite_numbers(table: pa.Table, name: str, *, side: SideName) -> Floats:
    """Returns the numbers of the column `name`; an error if one is missing or infinite."""
    array = plain_column(table, name)
    if is_text(array):
        raise MetricError(f"{side}: column {name!r} must hold numbers")
    numbers = to_numbers(array).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise MetricError(f"{side}: column {name!r} has missing or infinite values")
    return numbers


def whole_numbers(table: pa.Table, name: str, *, side: SideName) -> Whole:
    """Returns the whole numbers of the column `name`; an error if one is missing or has a fraction."""
    array = plain_column(table, name)
    if pa.types.is_integer(array.type) and not array.null_count:
        return to_numbers(array).astype(np.int64)
    numbers = finite_numbers(table, name, side=side)
    if (np.abs(numbers) > _LARGEST_WHOLE).any() or (numbers != np.floor(numbers)).any():
        raise MetricError(f"{side}: column {name!r} must hold whole numbers")
    return numbers.astype(np.int64)


def code_pair(
    truth: pa.Table, release: pa.Table, name: str, *, missing: Literal["refuse", "code"] = "refuse"
) -> CodedColumn:
    """Returns the codes of column `name` in truth and release, and the value behind every code, in order.

    Numbers are compared as numbers; if one side holds text, both are compared as text. A missing
    value is refused, or gets a code of its own, the last one.

    >>> left, right = pa.table({"a": ["x", "y"]}), pa.table({"a": ["z", "x"]})
    >>> code_pair(left, right, "a")
    (array([0, 1]), array([2, 0]), ['x', 'y', 'z'])
    """
    first, second = plain_column(truth, name), plain_column(release, name)
    if missing == "refuse" and (first.null_count or second.null_count):
        side = "truth" if first.null_count else "release"
        raise MetricError(f"{side}: column {name!r} has missing values; give them a value of their own")
    if is_text(first) or is_text(second):
        codes, labels = code_text(pa.concat_arrays([_as_text(first), _as_text(second)]))
    else:
        numbers = to_numbers(first), to_numbers(second)
        if {each.dtype.kind for each in numbers} == {"i", "u"}:  # numpy would make floats of them
            numbers = numbers[0].astype(np.int64), numbers[1].astype(np.int64)
        codes, labels = _code_numbers(np.concatenate(numbers))
    return codes[: len(first)], codes[len(first) :], labels


def code_column(table: pa.Table, name: str) -> Whole:
    """Returns one code for each value of column `name`, in their order; missing ones are all the same."""
    array = plain_column(table, name)
    return (code_text(array) if is_text(array) else _code_numbers(to_numbers(array)))[0]


def code_text(array: pa.Array) -> tuple[Whole, list[Label]]:
    """Returns (codes, words): the words of `array` in their order; a missing one comes last.

    >>> code_text(pa.array(["y", None, "x"]))
    (array([1, 2, 0]), ['x', 'y', None])
    """
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    indices = encoded.indices.fill_null(len(words)).to_numpy(zero_copy_only=False).astype(np.int64)
    used = sorted({words[place] for place in np.unique(indices).tolist() if place < len(words)})
    place_of = {word: place for place, word in enumerate(used)}
    labels: list[Label] = [*used, *([None] if encoded.null_count else [])]
    codes = np.array([place_of.get(word, 0) for word in words] + [len(used)], np.int64)
    return codes[indices], labels


def _as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_floating(array.type):
        whole = pc.all(pc.equal(pc.floor(array), array), min_count=0).as_py()
        array = array.cast(pa.int64(), safe=False) if whole else array
    return array.cast(pa.string())


def _code_numbers(values: NDArray[Any]) -> tuple[Whole, list[Label]]:
    if values.size and values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if high - low < _NARROW:  # counting is faster than sorting
            places = (values - values.dtype.type(low)).astype(np.int64)
            present = np.bincount(places, minlength=1) > 0
            codes = (np.cumsum(present) - 1)[places].astype(np.int64)
            return codes, [place + low for place in np.flatnonzero(present).tolist()]
    found, inverse = np.unique(values, return_inverse=True)
    labels: list[Label] = found.tolist()
    if labels and labels[-1] != labels[-1]:  # NaN sorts last
        labels[-1] = None
    return inverse.reshape(-1).astype(np.int64), labels


def pack_codes(codes: Sequence[NDArray[np.integer]], sizes: Sequence[int]) -> Whole:
    """Returns one key per row, in row-major order of the codes; the product of `sizes` must stay below 2^63.

    >>> pack_codes([np.array([0, 1]), np.array([2, 0])], [2, 3]).tolist()
    [2, 3]
    """
    if math.prod(sizes) >= 2**63:
        raise MetricError("these columns have too many combinations of values to number; compare fewer")
    keys = codes[0].astype(np.int64)
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        keys *= size
        keys += code
    return keys


def align_counts(
    keys: Sequence[Whole],
    cells: int,
    *,
    weights: Sequence[Floats | None] | None = None,
) -> tuple[Whole, list[Floats]]:
    """Returns (cells, counts of every side): all of a small domain, else the occupied ones.

    >>> places, (left, right) = align_counts([np.array([1, 1]), np.array([0])], 3)
    >>> places.tolist(), left.tolist(), right.tolist()
    ([0, 1, 2], [0.0, 2.0, 0.0], [1.0, 0.0, 0.0])
    """
    if cells <= max(_DENSE, _PER_ROW * sum(key.size for key in keys)):
        places = np.arange(cells, dtype=np.int64)
    else:
        places, keys = renumber(keys)
    counts = [
        np.bincount(key, weight, minlength=places.size).astype(np.float64)
        for key, weight in zip(keys, weights or [None] * len(keys), strict=True)
    ]
    return places, counts


def renumber(
    keys: Sequence[NDArray[np.integer]],
) -> tuple[Whole, list[Whole]]:
    """Returns (the keys that occur, in order; every key's place among them).

    >>> renumber([np.array([70, 9]), np.array([9])])
    (array([ 9, 70]), [array([1, 0]), array([0])])
    """
    found, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    places = inverse.reshape(-1).astype(np.int64)
    return found, np.split(places, np.cumsum([key.size for key in keys])[:-1])


def draw_people(unit: Whole, share: float, generator: np.random.Generator) -> Flags:
    """Returns which rows are of a drawn `share` of the individuals, whose numbers `unit` has."""
    people = int(unit.max()) + 1
    drawn = np.zeros(people, np.bool_)
    drawn[generator.permutation(people)[: max(1, round(share * people))]] = True
    return drawn[unit]


def total_variation(first: Floats, second: Floats) -> float:
    """Returns the total variation distance of two arrays of counts, 1 if one of them is empty.

    >>> total_variation(np.array([1.0, 1.0]), np.array([3.0, 1.0]))
    0.25
    """
    totals = float(first.sum()), float(second.sum())
    if totals[0] <= 0 or totals[1] <= 0:
        return 1.0
    return min(1.0, float(np.abs(first / totals[0] - second / totals[1]).sum()) / 2)
