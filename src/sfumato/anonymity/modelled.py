"""Cuts under privacy models: a part is cut only where both sides satisfy every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sfumato.anonymity.models import Partition, check_people

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.models import Models
    from sfumato.anonymity.space import Space

_TELL_EVERY = 1000


def cut_with_models(
    tuples: Tuples,
    people: NDArray[np.int64],
    space: Space,
    k: int,
    models: Models,
    progress: Callable[[str], None] = lambda _: None,
) -> Partition:
    """Classes of at least k people that satisfy all models, by the cuts with the lowest loss.

    A part's cuts are tried in the order of their loss, all of them if need be; of equal losses the first
    column's and lowest code's is first. A part without a cut that fits is a class. The whole table
    satisfies the models, or they could not have been made, so every part does.

    >>> from sfumato.anonymity.collapse import collapse_rows
    >>> from sfumato.anonymity.encode import encode_quasi_identifier
    >>> from sfumato.anonymity.models import DistinctL, Models, count_values
    >>> from sfumato.anonymity.space import build_space
    >>> import pyarrow as pa
    >>> age = encode_quasi_identifier("age", pa.chunked_array([[30, 31, 60, 61]]))
    >>> tuples = collapse_rows([age.codes], [age.size])
    >>> jobs = count_values("job", tuples.tuple_of_row, np.array([0, 0, 0, 1], np.int32), tuples=4)
    >>> space = build_space([age])
    >>> cut_with_models(tuples, tuples.rows, space, 2, Models((), ())).classes.tolist()
    [0, 0, 1, 1]
    >>> cut_with_models(tuples, tuples.rows, space, 2, Models((DistinctL("job", 2),), (jobs,))).count
    1
    """
    from sfumato.anonymity.kernels.cuts import cut_part, score_cuts
    from sfumato.anonymity.kernels.models import find_fitting

    check_people(people, k)
    codes, rows = tuples.codes, tuples.rows
    order = np.arange(tuples.size)
    held = np.empty(tuples.size, np.int64)
    scratch, found = space.scratch(), space.room()
    classes = np.empty(tuples.size, np.int32)
    count = 0
    waiting = [(0, tuples.size)]
    while waiting:
        start, end = waiting.pop()
        cuts = score_cuts(
            codes, people, rows, space.arrays, order, start, end, k, codes.shape[0] + 1, scratch, found
        )
        chosen = -1
        if cuts:
            sequence = np.argsort(found[0][:cuts], kind="stable")
            chosen = find_fitting(codes, order, start, end, found, sequence, models.arrays, models.scratch())
        if chosen < 0:
            classes[order[start:end]] = count
            count += 1
            if count % _TELL_EVERY == 0:
                progress(f"{count:,} classes")
            continue
        middle = cut_part(
            codes, order, start, end, found[1][chosen], found[2][chosen], found[3][chosen], held
        )
        waiting += [(middle, end), (start, middle)]
    return Partition(np.arange(tuples.size, dtype=np.int32), rows, classes, count)
