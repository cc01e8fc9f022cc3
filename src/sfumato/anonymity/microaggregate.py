"""Microaggregation: classes of near records, each released as its middle instead of a range."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.anonymity.models import Partition, check_people

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.encode import Quasi
    from sfumato.anonymity.space import Space

_SMALLEST_BLOCK = 200
_MOST_DIGITS = 12


def microaggregate(
    tuples: Tuples, people: NDArray[np.int64], columns: Sequence[Quasi], space: Space, k: int
) -> Partition:
    """Classes of at least k people that are near each other (MDAV), all rows of a tuple in one.

    Numbers are as far apart as their share of the column's range, other values 0 or 1; so is a missing
    number from any other. The table is first cut into blocks of at least 10k people, so that the cost
    grows with the table and not with its square.

    >>> from sfumato.anonymity.collapse import collapse_rows
    >>> from sfumato.anonymity.encode import encode_quasi_identifier
    >>> from sfumato.anonymity.space import build_space
    >>> import pyarrow as pa
    >>> age = encode_quasi_identifier("age", pa.chunked_array([[30, 33, 60, 61]]))
    >>> tuples = collapse_rows([age.codes], [age.size])
    >>> near = microaggregate(tuples, tuples.rows, [age], build_space([age]), 2)
    >>> near.classes.tolist(), centre_labels([age], tuples, near)
    ([0, 0, 1, 1], ((32, 61),))
    """
    from sfumato.anonymity.kernels.cuts import cut_tuples
    from sfumato.anonymity.kernels.microaggregate import gather_classes

    check_people(people, k)
    order, starts = cut_tuples(
        tuples.codes,
        people,
        tuples.rows,
        space.arrays,
        max(10 * k, _SMALLEST_BLOCK),
        True,  # noqa: FBT003
        space.scratch(),
        space.room(),
    )
    # Rows of the table and people of a register both say where the middle is.
    classes, count = gather_classes(
        tuples.codes, people, people + tuples.rows, space.arrays, k, order, np.sort(starts)
    )
    return Partition(np.arange(tuples.size, dtype=np.int32), tuples.rows, classes, int(count))


def centre_labels(
    columns: Sequence[Quasi], tuples: Tuples, partition: Partition
) -> tuple[tuple[object, ...], ...]:
    """For every column, one value for each class: the mean of a number, the most frequent of other values.

    A mean is rounded to what the column has: whole numbers, days, as many decimals; a half
    upwards. It is that of known values, and missing if more rows of the class are. Of equally frequent values
    the one with the smallest code is taken. What is suppressed does not count.

    >>> from sfumato.anonymity.collapse import collapse_rows
    >>> from sfumato.anonymity.encode import encode_quasi_identifier
    >>> import pyarrow as pa
    >>> born = pa.chunked_array([[datetime.date(1950, 1, 1), datetime.date(1950, 1, 5)]])
    >>> column = encode_quasi_identifier("born", born)
    >>> tuples = collapse_rows([column.codes], [column.size])
    >>> both = Partition(np.arange(2, dtype=np.int32), tuples.rows, np.zeros(2, np.int32), 1)
    >>> centre_labels([column], tuples, both)
    ((datetime.date(1950, 1, 3),),)
    """
    kept = partition.classes >= 0
    classes = partition.classes[kept]
    weights = partition.weights[kept]
    # A class without a row of the table, only people of a register, still gets a value.
    rows = np.bincount(classes, weights, minlength=partition.count)
    weights = np.where(rows[classes] > 0, weights, 1).astype(np.int64)
    labels = []
    for place, column in enumerate(columns):
        codes = tuples.codes[partition.tuple_of_entry[kept], place]
        if column.kind == "number" and _is_finite(column.values):
            labels.append(_average(column, codes, weights, classes, partition.count))
        else:
            most = _find_most(codes, weights, classes, partition.count)
            labels.append(tuple(column.values[code] for code in most))
    return tuple(labels)


def _find_most(
    codes: NDArray[np.int32], weights: NDArray[np.int64], classes: NDArray[np.int32], count: int
) -> NDArray[np.int64]:
    """The most frequent code of each class; 0 of a class without any."""
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
    """(whole steps from the lowest value, back): in days, microseconds, or the column's last decimal."""
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
    """The power of ten of a number's last digit, at most 0."""
    exponent = decimal.Decimal(str(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int)
    return min(0, exponent)


def _is_finite(values: Sequence[object]) -> bool:
    return all(not isinstance(value, float) or math.isfinite(value) for value in values)
