"""What a partition loses: cells made coarser, classes larger than they must be, values told apart no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.collapse import Tuples
    from sfumato.anonymity.encode import Quasi
    from sfumato.anonymity.labels import Labels
    from sfumato.anonymity.models import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What was lost; a suppressed record has lost all.

    - `ncp`: the mean over all cells of (range or values - 1) / (whole range or all values - 1), from 0 to 1;
    - `by_column`: the same of each column;
    - `discernibility`: the sum of squared class sizes, a suppressed record counting for all records;
    - `average_class`: records per class, divided by k;
    - `entropy`: of the bits that the original cells tell, the share that the released ones do not.
    """

    ncp: float
    by_column: dict[str, float]
    discernibility: int
    average_class: float
    entropy: float
    entropy_by_column: dict[str, float]

    def to_record(self) -> dict[str, Any]:
        """The measures for JSON."""
        return {
            "ncp": self.ncp,
            "ncp_by_column": dict(self.by_column),
            "discernibility": self.discernibility,
            "average_class_size_by_k": self.average_class,
            "entropy_loss": self.entropy,
            "entropy_loss_by_column": dict(self.entropy_by_column),
        }


def measure_loss(
    columns: Sequence[Quasi], tuples: Tuples, partition: Partition, labels: Sequence[Labels], *, k: int
) -> Loss:
    """The loss of a labelled partition."""
    rows = int(partition.weights.sum())
    kept = partition.classes >= 0
    sizes = np.bincount(partition.classes[kept], partition.weights[kept], minlength=partition.count)
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
        by_column=by_column,
        discernibility=int((used.astype(np.int64) ** 2).sum()) + suppressed * rows,
        average_class=float(used.mean() / k) if used.size else 0.0,
        entropy=sum(entropies.values()) / len(entropies),
        entropy_by_column=entropies,
    )


def _measure_entropy(codes: NDArray[np.int32], size: int, partition: Partition, labels: Labels) -> float:
    """The entropy of a column's value given its released cell, divided by that of the value alone.

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
    """The entropy of shares that are these counts, in bits, times their sum."""
    found = counts[counts > 0]
    return float(found.sum() * np.log2(found.sum()) - (found * np.log2(found)).sum())
