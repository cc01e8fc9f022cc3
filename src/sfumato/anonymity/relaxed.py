"""Relaxed Mondrian: parts are halved at the median record, so that classes are as small as k allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.anonymity.models import Partition, check_people
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.space import Space


def divide_relaxed(tuples: Tuples, people: NDArray[np.int64], space: Space, k: int) -> Partition:
    """Classes of k to 2k - 1 rows; equal records may be in several, so a tuple may have several entries.

    Of all columns, the one is halved whose halves lose least. Records that are all equal are not parted
    from each other: such a class may be larger. People are counted by rows here, since a person in a
    register cannot be in two classes.

    >>> from sfumato.anonymity.collapse import collapse_rows
    >>> from sfumato.anonymity.encode import encode_quasi_identifier
    >>> from sfumato.anonymity.space import build_space
    >>> import pyarrow as pa
    >>> age = encode_quasi_identifier("age", pa.chunked_array([[30, 60, 60, 61]]))
    >>> tuples = collapse_rows([age.codes], [age.size])
    >>> halves = divide_relaxed(tuples, tuples.rows, build_space([age]), 2)
    >>> halves.tuple_of_entry.tolist(), halves.weights.tolist(), halves.classes.tolist()
    ([0, 1, 1, 2], [1, 1, 1, 1], [0, 0, 1, 1])
    """
    from sfumato.anonymity.kernels.relaxed import halve_parts

    if not np.array_equal(people, tuples.rows):
        raise AnonymityError(
            "the relaxed method divides the rows of equal records, so it cannot count people of a register; "
            "choose another method"
        )
    check_people(people, k)
    # Every cut parts at most one entry, and there are fewer cuts than classes of k.
    most = tuples.size + int(tuples.rows.sum()) // k + 1
    numbers, weights, classes, count = halve_parts(tuples.codes, tuples.rows, space.arrays, k, most)
    return Partition(numbers, weights, classes, int(count))
