"""The cells of classes that are released by their means and most frequent values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sfumato.anonymity.labels import Labels, label_partition
from sfumato.anonymity.microaggregate import centre_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.encode import Quasi
    from sfumato.anonymity.models import Partition
    from sfumato.anonymity.space import Space


def label_centres(
    columns: Sequence[Quasi], tuples: Tuples, space: Space, partition: Partition
) -> tuple[Labels, ...]:
    """The centre of every class, column by column, in the column's own kind.

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
