"""Quasi-identifiers as codes, and rows as different tuples of codes: what the algorithms work on."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.anonymity.hierarchy import Hierarchy, check_nested, write_value
from sfumato.core.engine.arrays import to_arrow, to_numpy
from sfumato.core.errors import AnonymityError
from sfumato.tables.read import is_text

NUMBER, CATEGORY, TREE = range(3)
"""The kinds as compiled loops know them."""

_KINDS = {"number": NUMBER, "category": CATEGORY, "tree": TREE}
_HUGE = 1e307  # differences of larger floats may be infinite


def format_value(value: object) -> str | None:
    """Returns the text of one value as it is released; None if it is missing.

    >>> format_value(61), format_value(2.0), format_value(" as it is")
    ('61', '2', ' as it is')
    """
    if value is None or isinstance(value, str):
        return value
    return write_value(value)


Kind = Literal["number", "category", "tree"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quasi:
    """One quasi-identifier: the code of every record, and what codes mean.

    Codes follow the order of the values, a missing one last; those of a tree follow its groups. A `number`
    is released as a range, a `category` as a set of values, a `tree` as a node of its hierarchy.

    places  of a number: where each code lies, so that the loss of a range is the difference, at most 1
    nodes   of a tree, by level and code: the node that holds the code; level 0 is the value itself
    losses  of a tree, by level and code: the share of the other values that its node holds too
    names   of a tree, by level and code: the label of the node
    """

    name: str
    kind: Kind
    codes: NDArray[np.int32]
    values: tuple[object, ...]
    places: NDArray[np.float64]
    nodes: NDArray[np.int32]
    losses: NDArray[np.float64]
    names: tuple[tuple[str | None, ...], ...]

    @property
    def size(self) -> int:
        """The number of different values, a missing one included."""
        return len(self.values)


def value_type(column: pa.ChunkedArray) -> pa.DataType:
    """Returns the type of a column's values, also where they are numbered in a dictionary."""
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def encode_quasi_identifier(
    name: str, column: pa.ChunkedArray, *, hierarchy: Hierarchy | None = None
) -> Quasi:
    """Returns the quasi-identifier in `column`; with a hierarchy its values are released as nodes of it.

    >>> age = encode_quasi_identifier("age", pa.chunked_array([[61, 72, None, 61]]))
    >>> age.kind, age.codes.tolist(), age.values
    ('number', [0, 1, 2, 0], (61, 72, None))
    """
    codes, values = encode_values(name, column)
    known = [value for value in values if value is not None]
    if not known:
        raise AnonymityError(f"column {name!r} has no value at all; leave it out of the quasi-identifiers")
    if len(values) == 1:
        raise AnonymityError(
            f"column {name!r} has one value only, which tells nobody apart; leave it out of the "
            "quasi-identifiers"
        )
    places = np.arange(len(values), dtype=np.float64)
    nodes, losses = np.zeros((0, len(values)), np.int32), np.zeros((0, len(values)))
    names: tuple[tuple[str | None, ...], ...] = ()
    kind: Kind = "category"
    if hierarchy is not None:
        kind = "tree"
        nodes, losses, names = _grow(name, values, hierarchy)
        # Neighbours in the hierarchy become neighbours in the order, as cuts need it.
        order = np.lexsort(nodes)
        rank = np.empty(order.size, np.int32)
        rank[order] = np.arange(order.size, dtype=np.int32)
        codes, values = rank[codes], tuple(values[place] for place in order)
        nodes, losses = np.ascontiguousarray(nodes[:, order]), np.ascontiguousarray(losses[:, order])
        names = tuple(tuple(labels[place] for place in order) for labels in names)
    elif not isinstance(known[0], (str, bool)):
        kind = "number"
        places = _place(known, missing=len(values) > len(known))
    return Quasi(name, kind, codes, values, places, nodes, losses, names)


def encode_values(name: str, column: pa.ChunkedArray) -> tuple[NDArray[np.int32], tuple[object, ...]]:
    """Returns the code of every record, and the values in order; a missing one, None, is last."""
    kind = value_type(column)
    unfit = (pa.types.is_nested, pa.types.is_binary, pa.types.is_time, pa.types.is_duration)
    if any(test(kind) for test in unfit):
        raise AnonymityError(f"column {name!r} holds neither numbers, dates nor text; leave it out")
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int32), (None,)
    if pa.types.is_floating(kind):
        # NaN is no value, and the two zeros are one.
        plain = pc.add(column.cast(pa.float64()), 0.0)
        column = pc.if_else(pc.is_nan(plain), None, plain)
    try:
        numbered = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        whole = numbered.unify_dictionaries().combine_chunks()
    except pa.ArrowException:
        raise AnonymityError(
            f"column {name!r} holds values of a kind that cannot be told apart; turn it into text"
        ) from None
    if isinstance(whole, pa.ChunkedArray):  # without a chunk there is nothing to combine
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], whole.type)
    indices = to_numpy(pc.fill_null(whole.indices.cast(pa.int32()), -1))
    words = whole.dictionary.cast(pa.string()) if is_text(kind) else whole.dictionary
    used = np.zeros(len(words) + 1, np.bool_)
    used[indices] = True
    missing = bool(used[-1])
    order = np.array(pc.sort_indices(words), np.int64)
    order = order[used[order]]
    rank = np.full(len(words) + 1, len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    values = tuple(words.take(pa.array(order)).to_pylist())
    return rank[indices], (*values, None) if missing else values


def _grow(
    name: str, values: tuple[object, ...], hierarchy: Hierarchy
) -> tuple[NDArray[np.int32], NDArray[np.float64], tuple[tuple[str | None, ...], ...]]:
    """Nodes, losses and labels of every level, from the value itself to `*`."""
    known = [value for value in values if value is not None]
    levels = check_nested(hierarchy.label_levels(known, column=name), column=name)
    names: list[tuple[str | None, ...]] = [tuple(map(format_value, values))]
    # A missing value is in no group of values: only `*` stands for it and for others.
    missing = (None,) * (len(values) - len(known))
    names += [(*labels, *missing) for labels in levels[:-1]]
    names.append(("*",) * len(values))
    nodes = np.empty((len(names), len(values)), np.int32)
    losses = np.empty(nodes.shape, np.float64)
    nodes[0] = np.arange(len(values))
    losses[0] = 0.0
    for level, cells in enumerate(names[1:], 1):
        numbers: dict[str | None, int] = {}
        nodes[level] = [numbers.setdefault(cell, len(numbers)) for cell in cells]
        sizes = np.bincount(nodes[level])[nodes[level]]
        losses[level] = (sizes - 1) / (len(values) - 1)
    return nodes, losses, tuple(names)


def _place(known: list[object], *, missing: bool) -> NDArray[np.float64]:
    """Places numbers and moments from 0 to 1; a missing value is as far as all of it."""
    numbers = np.array([_number(value) for value in known], np.float64)
    if not np.isfinite(numbers).all():
        numbers = np.arange(len(known), dtype=np.float64)
    if np.abs(numbers).max() > _HUGE:
        numbers = numbers / 4  # whose differences are finite
    span = float(numbers[-1] - numbers[0]) or 1.0
    places = (numbers - numbers[0]) / span
    # More than 1 from every number, so that a range with a missing value loses all there is.
    return np.append(places, 3.0) if missing else places


def _number(value: object) -> float:
    if isinstance(value, datetime.datetime):
        return value.timestamp() if value.tzinfo else value.replace(tzinfo=datetime.UTC).timestamp()
    if isinstance(value, datetime.date):
        return float(value.toordinal())
    assert isinstance(value, (int, float, decimal.Decimal))
    return float(value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuples:
    """The different tuples of codes in ascending order, how many rows have each, and each row's tuple."""

    codes: NDArray[np.int32]
    rows: NDArray[np.int64]
    tuple_of_row: NDArray[np.int32]

    @property
    def size(self) -> int:
        """The number of different tuples."""
        return len(self.codes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Partition:
    """The equivalence classes of a table: entries, each some rows of one tuple in one class.

    tuple_of_entry, weights  which tuple an entry is of, and how many of its rows it stands for
    classes                  the class of every entry, -1 if it is suppressed
    count                    the number of classes
    levels                   of a full-domain generalization, the level of every column: its cells are of
                             these levels, not as tight as the records of a class would allow
    """

    tuple_of_entry: NDArray[np.int32]
    weights: NDArray[np.int64]
    classes: NDArray[np.int32]
    count: int
    levels: tuple[int, ...] | None = None

    @property
    def sizes(self) -> NDArray[Any]:
        """The number of rows of every class."""
        kept = self.classes >= 0
        return np.bincount(self.classes[kept], self.weights[kept], minlength=self.count)


def collapse_rows(columns: Sequence[NDArray[np.int32]], sizes: Sequence[int]) -> Tuples:
    """Returns the tuples of rows whose codes are `columns`, each below its size.

    >>> tuples = collapse_rows([np.array([1, 0, 1], np.int32), np.array([2, 2, 2], np.int32)], [2, 3])
    >>> tuples.codes.tolist(), tuples.rows.tolist(), tuples.tuple_of_row.tolist()
    ([[0, 2], [1, 2]], [1, 2], [1, 0, 1])
    """
    numbers, first = number_rows(columns, sizes)
    codes = np.stack([column[first] for column in columns], axis=1)
    order = np.lexsort(codes.T[::-1])
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    tuple_of_row = rank[numbers]
    rows = np.bincount(tuple_of_row, minlength=order.size)
    return Tuples(np.ascontiguousarray(codes[order]), rows.astype(np.int64), tuple_of_row)


def number_rows(
    columns: Sequence[NDArray[np.int32]], sizes: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Gives (a number for every row, equal for equal rows; a row of each number), in order of appearance."""
    keys = np.zeros(len(columns[0]), np.uint64)
    room = 1
    for codes, size in zip(columns, sizes, strict=True):
        if room * size > 2**63:
            # The keys are full: numbers of the different ones so far take less room.
            numbers, first = _number_keys(keys)
            keys = numbers.astype(np.uint64)
            room = max(1, first.size)
        keys *= np.uint64(size)
        keys += codes.astype(np.uint64)
        room *= size
    return _number_keys(keys)


def _number_keys(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    numbers = to_numpy(to_arrow(keys).dictionary_encode().indices)
    # Numbers are given in order of appearance: a row is the first of its own where the largest one grows.
    return numbers, np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))


class Space(NamedTuple):
    """What the codes of all quasi-identifiers mean, as the flat arrays that compiled loops read.

    A column's part of the loss of a class is its loss, from 0 to 1, times its unit.

    kinds         NUMBER, CATEGORY or TREE
    sizes         the number of codes
    offsets       where the column begins in `places`
    places        of a number: where each code lies (see `Quasi`)
    tree_offsets  where the column begins in `nodes` and `losses`
    nodes, losses of a tree, at tree_offset + level * size + code
    units         how much the column's loss counts
    levels        the number of levels of a tree, 0 of other columns
    words         where a category begins in the 64-bit words that hold the values of a class, bit by bit
    """

    kinds: NDArray[np.int64]
    sizes: NDArray[np.int64]
    offsets: NDArray[np.int64]
    places: NDArray[np.float64]
    tree_offsets: NDArray[np.int64]
    nodes: NDArray[np.int32]
    losses: NDArray[np.float64]
    units: NDArray[np.float64]
    levels: NDArray[np.int64]
    words: NDArray[np.int64]


def build_space(columns: Sequence[Quasi], weights: Mapping[str, float] | None = None) -> Space:
    """Returns the space of the columns; `weights` says which columns' losses count for more than 1."""
    given = weights or {}
    kinds = np.array([_KINDS[column.kind] for column in columns], np.int64)
    sizes = np.array([column.size for column in columns], np.int64)
    words = np.where(kinds == CATEGORY, (sizes + 63) // 64, 0)
    return Space(
        kinds=kinds,
        sizes=sizes,
        offsets=_starts([column.size for column in columns]),
        places=np.concatenate([column.places for column in columns]),
        tree_offsets=_starts([column.nodes.size for column in columns]),
        nodes=np.concatenate([column.nodes.ravel() for column in columns]),
        losses=np.concatenate([column.losses.ravel() for column in columns]),
        units=np.array([float(given.get(column.name, 1.0)) for column in columns]),
        levels=np.array([len(column.nodes) for column in columns], np.int64),
        words=np.concatenate([[0], np.cumsum(words)]).astype(np.int64),
    )


def _starts(sizes: list[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *sizes[:-1]], dtype=np.int64)
