"""Different rows of a table and how often each occurs, counted anew: what every check is made from.

Nothing here knows how a table was made anonymous. A Parquet file is counted piece by piece, and a CSV file
is read as text, as whoever gets it would. Two cells are the same if they are written the same; a missing
value is the same as a missing value only, and so is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.anonymity.attack.matching import MOST_NUMBERS, build_classes, join_classes, number_rows
from sfumato.core.engine.arrays import to_numpy
from sfumato.core.errors import AnonymityError
from sfumato.tables.read import TableLike, is_text, read_pieces, read_table, spell_table


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tally:
    """The different rows of a table, sorted by codes: a code per column, and the number of records.

    A code is a place in the column's sorted `values`, in which a missing value comes last. `weights` is
    the sum of the records' weights, if a column of them was named.
    """

    columns: tuple[str, ...]
    codes: tuple[NDArray[np.int64], ...]
    values: tuple[pa.Array, ...]
    counts: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None

    @property
    def records(self) -> int:
        """The number of records."""
        return int(self.counts.sum())

    def classes(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """Returns the class of each row on `columns`, numbered from 0 without gaps."""
        places = [self.columns.index(name) for name in columns]
        return number_rows([self.codes[at] for at in places], [len(self.values[at]) for at in places])


def tally_rows(source: TableLike, columns: Sequence[str], *, side: str, weights: str | None = None) -> Tally:
    """Returns the different rows of `source` on `columns`, which are named once each; `side` is for messages.

    >>> rows = {"age": ["60+", "20-60", "60+"], "ill": ["flu", None, "flu"]}
    >>> found = tally_rows(rows, ["age", "ill"], side="table")
    >>> found.counts.tolist(), [values.to_pylist() for values in found.values]
    ([1, 2], [['20-60', '60+'], ['flu', None]])
    """
    used = [*columns, *([] if weights is None else [weights])]
    pieces = read_pieces(source, side=side, columns=used)
    return _merge([_tally_piece(piece, columns, weights, side) for piece in pieces])


def check_names(quasi_identifiers: Sequence[str], others: Sequence[str] = ()) -> None:
    """Raises an error if no quasi-identifier is named or a column is named twice.

    >>> check_names(["age", "sex"], ["age"])
    Traceback (most recent call last):
        ...
    sfumato.core.errors.AnonymityError: column 'age' is named twice; give it one role
    """
    if isinstance(quasi_identifiers, str) or not quasi_identifiers:
        raise AnonymityError("name the quasi-identifiers as a list of columns, at least one")
    names = [*quasi_identifiers, *others]
    for name in names:
        if names.count(name) > 1:
            raise AnonymityError(f"column {name!r} is named twice; give it one role")


def match_register(
    tally: Tally, quasi_identifiers: Sequence[str], classes: NDArray[np.int64], register: TableLike
) -> NDArray[np.int64]:
    """For each class of a tally's rows the number of people in `register` whom its labels fit.

    `180-190` fits 185, `1*` fits 1001, `*` and a missing cell fit everybody. A missing cell of the
    register may be anything, too.

    >>> rows = tally_rows({"age": ["60+", "20-40", "60+"]}, ["age"], side="table")
    >>> match_register(rows, ["age"], rows.classes(["age"]), {"age": [61, 72, 33]}).tolist()
    [1, 2]
    """
    first = np.unique(classes, return_index=True)[1]
    places = [tally.columns.index(name) for name in quasi_identifiers]
    labels = pa.table(
        {tally.columns[at]: tally.values[at].take(pa.array(tally.codes[at][first])) for at in places}
    )
    people = spell_table(read_table(register, side="register", columns=quasi_identifiers), side="register")
    mine = build_classes(spell_table(labels, side="table"), quasi_identifiers)
    theirs = build_classes(people, quasi_identifiers)
    fitting = np.zeros(mine.weights.size, np.int64)
    if people.num_rows and labels.num_rows:
        for left, right in join_classes(mine, theirs):
            fitting += np.bincount(left, theirs.weights[right], minlength=fitting.size).astype(np.int64)
    return fitting[mine.of_row]


def _tally_piece(piece: pa.Table, columns: Sequence[str], weights: str | None, side: str) -> Tally:
    encoded = [_encode(piece.column(name), name, side) for name in columns]
    return _group(
        tuple(columns),
        [codes for codes, _ in encoded],
        [values for _, values in encoded],
        None,
        None if weights is None else _read_weights(piece.column(weights), weights, side),
    )


def _merge(pieces: Sequence[Tally]) -> Tally:
    """Returns the tally of all records; codes of a piece become codes of the values of all pieces."""
    if len(pieces) == 1:
        return pieces[0]
    codes, values = [], []
    for place in range(len(pieces[0].columns)):
        kind = pieces[-1].values[place].type
        words = pa.concat_arrays([piece.values[place].cast(kind) for piece in pieces])
        places, found = _sort_values(words)
        starts = np.cumsum([0, *(len(piece.values[place]) for piece in pieces)])
        shifted = [piece.codes[place] + start for piece, start in zip(pieces, starts.tolist(), strict=False)]
        codes.append(places[np.concatenate(shifted)])
        values.append(found)
    weights = [piece.weights for piece in pieces if piece.weights is not None]
    counts = np.concatenate([piece.counts for piece in pieces])
    return _group(pieces[0].columns, codes, values, counts, np.concatenate(weights) if weights else None)


def _group(
    columns: tuple[str, ...],
    codes: Sequence[NDArray[np.int64]],
    values: Sequence[pa.Array],
    counts: NDArray[np.int64] | None,
    weights: NDArray[np.float64] | None,
) -> Tally:
    """Returns the tally of rows with these codes, each of which is so many records, or one."""
    sizes = [max(1, len(each)) for each in values]
    # Where one number can hold all codes of a row, a single sort counts and sorts at once.
    if counts is None and weights is None and math.prod(sizes) < MOST_NUMBERS:
        keys = np.zeros(codes[0].size, np.int64)
        for code, size in zip(codes, sizes, strict=True):
            keys *= size
            keys += code
        found, counts = np.unique(keys, return_counts=True)
        parts = [part.astype(np.int64) for part in np.unravel_index(found, sizes)]
        return Tally(columns, tuple(parts), tuple(values), counts.astype(np.int64))
    rows = number_rows(codes, sizes)
    first = np.unique(rows, return_index=True)[1]
    counts = np.bincount(rows, counts).astype(np.int64)
    return Tally(
        columns,
        tuple(code[first] for code in codes),
        tuple(values),
        counts,
        None if weights is None else np.bincount(rows, weights).astype(np.float64),
    )


def _encode(column: pa.ChunkedArray, name: str, side: str) -> tuple[NDArray[np.int64], pa.Array]:
    """Gives the code of each cell, and the values that occur in order, of which a missing one is the last."""
    try:
        column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        if encoded.num_chunks:
            encoded = encoded.unify_dictionaries().combine_chunks()
        else:  # not every kind of numbered cells can be made from an empty list
            kind = encoded.type
            nothing = (pa.array([], each) for each in (kind.index_type, kind.value_type))
            encoded = pa.DictionaryArray.from_arrays(*nothing)
        if isinstance(encoded, pa.ChunkedArray):
            encoded = pa.concat_arrays(encoded.chunks)
        # A missing cell is a place after the values; so may be a missing value among them.
        words = _plain_values(encoded.dictionary)
        words = pa.concat_arrays([words, pa.nulls(1, words.type)])
        codes = to_numpy(encoded.indices.cast(pa.int64()).fill_null(len(words) - 1))
        occurs = np.flatnonzero(np.bincount(codes, minlength=len(words)))
        places, values = _sort_values(words.take(pa.array(occurs)))
    except (pa.ArrowException, TypeError, NotImplementedError):
        raise AnonymityError(
            f"{side}: column {name!r} has a nested or binary type; leave it out or turn it into text"
        ) from None
    new = np.zeros(len(words), np.int64)
    new[occurs] = places
    return new[codes], values


def _plain_values(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise pa.ArrowTypeError(kind)
    if pa.types.is_boolean(kind) or is_text(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        values = pc.add(values.cast(pa.float64()), 0.0)  # the two zeros are one
        return pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
    return values


def _sort_values(words: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Returns the place of each word among the different ones in order, and these."""
    encoded = words.dictionary_encode()
    order = to_numpy(pc.sort_indices(encoded.dictionary)).astype(np.int64)
    places = np.empty(order.size + 1, np.int64)
    places[order] = np.arange(order.size)
    places[-1] = order.size
    values = encoded.dictionary.take(pa.array(order))
    if words.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    return places[to_numpy(encoded.indices.cast(pa.int64()).fill_null(order.size))], values


def _read_weights(column: pa.ChunkedArray, name: str, side: str) -> NDArray[np.float64]:
    try:
        kind = column.type
        plain = column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column
        numbers = np.asarray(plain.cast(pa.float64()).combine_chunks().to_numpy(zero_copy_only=False))
    except pa.ArrowException:
        numbers = np.array([math.nan])
    if not (np.isfinite(numbers) & (numbers >= 0)).all():
        raise AnonymityError(
            f"{side}: column {name!r} must hold weights: numbers of at least 0, none missing"
        )
    return numbers
