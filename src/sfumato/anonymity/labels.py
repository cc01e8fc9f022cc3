"""The released cells of every class: one value, a range, a set of values, or a node of a hierarchy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sfumato.anonymity.hierarchy_base import TOP
from sfumato.anonymity.values import format_value
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.encode import Quasi
    from sfumato.anonymity.models import Partition
    from sfumato.anonymity.space import Space

MISSING = "(missing)"
"""How a missing value is written in a set with others; alone it stays missing."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Labels:
    """The different cells of one released column, the one of every class, and what it loses, from 0 to 1.

    `values` are the cells where they are not released as text.
    """

    texts: tuple[str | None, ...]
    of_class: NDArray[np.int32]
    losses: NDArray[np.float64]
    values: pa.Array | None = None


def label_partition(
    columns: Sequence[Quasi], tuples: Tuples, space: Space, partition: Partition
) -> tuple[Labels, ...]:
    """The cells of every class of the partition, column by column, as tight as its records allow.

    A full-domain partition has cells of its levels, whatever its classes hold.
    """
    from sfumato.anonymity.kernels.describe import describe_classes

    words = space.words
    first, second, bits = describe_classes(
        tuples.codes, partition.tuple_of_entry, partition.classes, partition.count, space.arrays, words
    )
    labels = []
    for place, column in enumerate(columns):
        if column.kind == "number":
            labels.append(_label_ranges(column, first[:, place], second[:, place]))
        elif column.kind == "category":
            labels.append(_label_sets(column, bits[:, words[place] : words[place + 1]]))
        else:
            levels = second[:, place]
            if partition.levels is not None:
                levels = np.full(partition.count, partition.levels[place], np.int64)
            labels.append(_label_nodes(column, first[:, place], levels))
    return tuple(labels)


def refuse_bars(column: Quasi) -> None:
    """Raises an error if a text of a set-valued column holds the sign that separates texts."""
    if column.kind == "category" and any(isinstance(each, str) and "|" in each for each in column.values):
        raise AnonymityError(
            f"column {column.name!r} has texts with a | in them, the sign between the values of a set; "
            "replace it, or give the column a hierarchy"
        )


def _label_ranges(column: Quasi, low: NDArray[np.int64], high: NDArray[np.int64]) -> Labels:
    pairs, of_class = np.unique(low * column.size + high, return_inverse=True)
    ends = [divmod(int(pair), column.size) for pair in pairs]
    texts: list[str | None] = []
    for least, most in ends:
        if least == most:
            texts.append(format_value(column.values[least]))
        elif column.values[most] is None or column.values[least] == -math.inf:
            texts.append(TOP)  # no range holds numbers and a missing one, or begins nowhere
        elif column.values[most] == math.inf:
            texts.append(f"{format_value(column.values[least])}+")
        else:
            texts.append(f"{format_value(column.values[least])}-{format_value(column.values[most])}")
    lost = np.array([min(1.0, column.places[most] - column.places[least]) for least, most in ends])
    return _merge(texts, of_class, lost[of_class])


def _label_sets(column: Quasi, bits: NDArray[np.uint64]) -> Labels:
    if bits.shape[1] == 1:
        sets, of_class = np.unique(bits[:, 0], return_inverse=True)
        sets = sets.reshape(-1, 1)
    else:
        sets, of_class = np.unique(bits, axis=0, return_inverse=True)
    known = np.unpackbits(sets.view(np.uint8), axis=1, bitorder="little")[:, : column.size].astype(bool)
    values = [MISSING if value is None else format_value(value) for value in column.values]
    texts: list[str | None] = []
    for members in known:
        held = np.flatnonzero(members)
        if held.size == 1:
            texts.append(format_value(column.values[held[0]]))
        else:
            texts.append(TOP if held.size == column.size else "|".join(values[each] or "" for each in held))
    lost = (known.sum(axis=1) - 1) / (column.size - 1)
    return _merge(texts, of_class.ravel(), lost[of_class.ravel()])


def _label_nodes(column: Quasi, code: NDArray[np.int64], level: NDArray[np.int64]) -> Labels:
    pairs, of_class = np.unique(level * column.size + code, return_inverse=True)
    texts = [column.names[pair // column.size][pair % column.size] for pair in pairs]
    return _merge(texts, of_class, column.losses[level, code])


def _merge(texts: list[str | None], of_class: NDArray[np.intp], losses: NDArray[np.float64]) -> Labels:
    """Equal texts are one label, whatever they came from; labels are in order, a missing one last."""
    ordered = sorted({text for text in texts if text is not None})
    different: list[str | None] = [*ordered, None] if None in texts else [*ordered]
    place = {text: number for number, text in enumerate(different)}
    mapped = np.array([place[text] for text in texts], np.int32)
    return Labels(tuple(different), mapped[of_class], losses)
