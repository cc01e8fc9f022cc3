"""The released cells of every equivalence class, what they lose, and what is suppressed."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.anonymity.encode import Partition, Quasi, Space, Tuples, format_value
from sfumato.anonymity.hierarchy import TOP
from sfumato.core.errors import AnonymityError

if TYPE_CHECKING:
    from sfumato.anonymity.options import Options


MISSING = "(missing)"
"""How a missing value is written in a set with others; alone it stays missing."""

_WORTHLESS = 0.5  # a class that has lost a larger share of its cells is left out, if the limit allows it
_MOST_DIGITS = 12  # decimals of a mean, at most


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
    """Returns the cells of every class of the partition, column by column, as tight as its records allow.

    A full-domain partition has cells of its levels, whatever its classes hold.
    """
    from sfumato.anonymity.kernels.grow import describe_classes

    words = space.words
    first, second, bits = describe_classes(
        tuples.codes, partition.tuple_of_entry, partition.classes, partition.count, space
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
        codes = np.flatnonzero(members)
        if codes.size == 1:
            texts.append(format_value(column.values[codes[0]]))
        else:
            texts.append(TOP if codes.size == column.size else "|".join(values[each] or "" for each in codes))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What was lost; a suppressed record has lost all.

    - `ncp`: the mean over all cells of (range or values - 1) / (whole range or all values - 1), from 0 to 1;
    - `ncp_by_column`: the same of each column;
    - `discernibility`: the sum of squared class sizes, a suppressed record counting for all records;
    - `average_class_size_by_k`: records per class, divided by k;
    - `entropy_loss`: of the bits of information in the original cells, the share that the released ones lost.
    """

    ncp: float
    ncp_by_column: dict[str, float]
    discernibility: int
    average_class_size_by_k: float
    entropy_loss: float
    entropy_loss_by_column: dict[str, float]


def measure_loss(
    columns: Sequence[Quasi], tuples: Tuples, partition: Partition, labels: Sequence[Labels], *, k: int
) -> Loss:
    """Measures the loss of a `partition` whose cells in `columns` are `labels`; `k` was asked."""
    rows = int(partition.weights.sum())
    sizes = partition.sizes
    suppressed = rows - int(sizes.sum())
    by_column, entropies = {}, {}
    for place, (column, cells) in enumerate(zip(columns, labels, strict=True)):
        lost = float(cells.losses @ sizes) + suppressed
        by_column[column.name] = lost / rows
        codes = tuples.codes[partition.tuple_of_entry, place]
        entropies[column.name] = _measure_entropy(codes, column.size, partition, cells)
    used = sizes[sizes > 0]
    return Loss(
        ncp=sum(by_column.values()) / len(by_column),
        ncp_by_column=by_column,
        discernibility=int((used.astype(np.int64) ** 2).sum()) + suppressed * rows,
        average_class_size_by_k=float(used.mean() / k) if used.size else 0.0,
        entropy_loss=sum(entropies.values()) / len(entropies),
        entropy_loss_by_column=entropies,
    )


def _measure_entropy(codes: NDArray[np.int32], size: int, partition: Partition, labels: Labels) -> float:
    """Returns the entropy of a column's value given its released cell, divided by that of the value alone.

    A suppressed record's cell is one more label.
    """
    cell = np.where(partition.classes >= 0, labels.of_class[partition.classes], len(labels.texts))
    both = np.bincount(cell.astype(np.int64) * size + codes, partition.weights)
    own = np.bincount(codes, partition.weights, minlength=size)
    cells = np.bincount(cell, partition.weights)
    whole = _sum_bits(own)
    if whole <= 0:
        return 0.0
    return float(min(1.0, max(0.0, (_sum_bits(both) - _sum_bits(cells)) / whole)))


def _sum_bits(counts: NDArray[Any]) -> float:
    """Returns the entropy of shares that are these counts, in bits, times their sum."""
    found = counts[counts > 0]
    return float(found.sum() * np.log2(found.sum()) - (found * np.log2(found)).sum())


def suppress_classes(
    options: Options, partition: Partition, labels: Sequence[Labels]
) -> tuple[Partition, float]:
    """Returns the partition within both limits, and the share of its cells that are `*`.

    Classes that have lost more than half are left out, worst first, while the limit on records allows it.
    If too many cells are `*`, classes with most of them follow.
    """
    sizes = partition.sizes
    rows = int(partition.weights.sum())
    out = np.zeros(partition.count, np.bool_)
    left = int(options.max_suppressed * rows + 1e-9) - (rows - int(sizes.sum()))
    lost = np.mean([each.losses for each in labels], axis=0)
    # An optimum is not improved by leaving more out, and closeness is to the table that is released.
    fixed = options.method == "lattice" or options.t is not None or options.delta is not None
    if not fixed:
        for each in np.lexsort((np.arange(lost.size), -lost)):
            if lost[each] <= _WORTHLESS:
                break
            if 0 < sizes[each] <= left and sizes[each] < sizes @ ~out:
                out[each] = True
                left -= int(sizes[each])
    stars = np.zeros(partition.count)
    for cells in labels:
        is_star = np.array([text == TOP for text in cells.texts])
        stars += is_star[cells.of_class]
    allowed = options.max_suppressed_cells * len(labels)
    kept = float(sizes @ ~out)
    starred = float((stars * sizes) @ ~out)
    for each in () if fixed else np.lexsort((np.arange(stars.size), -stars)):
        if starred <= allowed * kept + 1e-9:
            break
        if not out[each] and 0 < sizes[each] <= left and sizes[each] < kept:
            out[each] = True
            left -= int(sizes[each])
            kept -= float(sizes[each])
            starred -= float(stars[each] * sizes[each])
    share = starred / (len(labels) * kept) if kept else 0.0
    if share > options.max_suppressed_cells + 1e-9:
        raise AnonymityError(
            f"{share:.1%} of the cells would be {TOP!r}, more than the {options.max_suppressed_cells:.1%} "
            "that max_suppressed_cells allows; allow more, leave out more records (max_suppressed), lower k, "
            "or give columns finer hierarchies"
        )
    if not out.any():
        return partition, share
    dropped = out[partition.classes] & (partition.classes >= 0)
    return replace(partition, classes=np.where(dropped, -1, partition.classes).astype(np.int32)), share


def label_centres(
    columns: Sequence[Quasi], tuples: Tuples, space: Space, partition: Partition
) -> tuple[Labels, ...]:
    """Returns the centre of every class, column by column, in the column's own kind.

    What a cell has lost is the range or the set of values that its centre stands for.
    """
    labels = []
    ranges = label_partition(columns, tuples, space, partition)
    centres = centre_labels(columns, tuples, partition)
    for column, lost, values in zip(columns, ranges, centres, strict=True):
        known: set[Any] = {value for value in values if value is not None}
        different = sorted(known)
        place = {value: number for number, value in enumerate(different)}
        missing = len(different)
        of_class = np.array([place.get(value, missing) for value in values], np.int32)
        texts: list[str | None] = [str(value) for value in different]
        if None in values:
            texts.append(None)
        kind = pa.array([value for value in column.values if value is not None]).type
        cells = pa.array(different) if different else pa.array([], kind)
        labels.append(Labels(tuple(texts), of_class, lost.losses, cells))
    return tuple(labels)


def centre_labels(
    columns: Sequence[Quasi], tuples: Tuples, partition: Partition
) -> tuple[tuple[object, ...], ...]:
    """For every column, one value for each class: the mean of a number, the most frequent of other values.

    A mean is rounded to what the column has: whole numbers, days, as many decimals; a half upwards. It is
    that of known values, and missing if more rows of the class are. Of equally frequent values the one with
    the smallest code is taken. What is suppressed does not count.
    """
    kept = partition.classes >= 0
    classes = partition.classes[kept]
    weights = partition.weights[kept]
    # A class without a row of the table, only people of a register, still gets a value.
    weights = np.where(partition.sizes[classes] > 0, weights, 1).astype(np.int64)
    labels = []
    for place, column in enumerate(columns):
        codes = tuples.codes[partition.tuple_of_entry[kept], place]
        infinite = any(isinstance(value, float) and not math.isfinite(value) for value in column.values)
        if column.kind == "number" and not infinite:
            labels.append(_average(column, codes, weights, classes, partition.count))
        else:
            most = _find_most(codes, weights, classes, partition.count)
            labels.append(tuple(column.values[code] for code in most))
    return tuple(labels)


def _find_most(
    codes: NDArray[np.int32], weights: NDArray[np.int64], classes: NDArray[np.int32], count: int
) -> NDArray[np.int64]:
    """Returns the most frequent code of each class; 0 of a class without any."""
    size = int(codes.max(initial=0)) + 1
    pairs, places = np.unique(classes.astype(np.int64) * size + codes, return_inverse=True)
    frequencies = np.bincount(places, weights, minlength=pairs.size)
    owners, values = pairs // size, pairs % size
    order = np.lexsort((-values, frequencies, owners))
    most = np.zeros(count, np.int64)
    most[owners[order]] = values[order]  # the last one written is the most frequent
    return most


def _average(
    column: Quasi,
    codes: NDArray[np.int32],
    weights: NDArray[np.int64],
    classes: NDArray[np.int32],
    count: int,
) -> tuple[object, ...]:
    known = [value for value in column.values if value is not None]
    to_whole, from_whole = _scale(known)
    steps = [to_whole(value) for value in known]
    # Sums are exact: in 64 bits where they fit, else in Python's whole numbers.
    largest = max(steps) * int(weights.sum())
    kind: Any = np.int64 if largest < 2**62 else object
    present = codes < len(known)
    sums = np.zeros(count, kind)
    sizes = np.bincount(classes[present], weights[present], minlength=count).astype(np.int64)
    missing = np.bincount(classes[~present], weights[~present], minlength=count)
    np.add.at(sums, classes[present], np.array(steps, kind)[codes[present]] * weights[present].astype(kind))
    divisors = np.maximum(sizes, 1).astype(kind)
    whole, rest = sums // divisors, sums % divisors
    means = whole + (2 * rest >= divisors).astype(np.int64)
    blank = (missing > sizes) | (sizes == 0)
    return tuple(
        None if empty else from_whole(int(mean))
        for mean, empty in zip(means.tolist(), blank.tolist(), strict=True)
    )


def _scale(known: Sequence[Any]) -> tuple[Callable[[Any], int], Callable[[int], object]]:
    """Returns (whole steps from the lowest value, back), in days, microseconds or last decimals."""
    lowest = known[0]
    if isinstance(lowest, datetime.datetime):
        tick = datetime.timedelta(microseconds=1)
        return lambda value: (value - lowest) // tick, lambda steps: lowest + steps * tick
    if isinstance(lowest, datetime.date):
        day = datetime.timedelta(days=1)
        return lambda value: (value - lowest).days, lambda steps: lowest + steps * day
    if isinstance(lowest, int):
        return lambda value: value - lowest, lambda steps: lowest + steps
    kind = type(lowest)
    base = decimal.Decimal(str(lowest))
    digits = min(_MOST_DIGITS, max(-_exponent(value) for value in known))
    step = decimal.Decimal(1).scaleb(-digits)
    return lambda value: int((decimal.Decimal(str(value)) - base) / step), lambda steps: kind(
        base + steps * step
    )


def _exponent(value: object) -> int:
    """Returns the power of ten of a number's last digit, at most 0."""
    exponent = decimal.Decimal(str(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return min(0, exponent)
