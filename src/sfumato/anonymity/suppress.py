"""Limits on what is left out: whole records, and cells that say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sfumato.anonymity.hierarchy_base import TOP
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.anonymity.labels import Labels
    from sfumato.anonymity.models import Partition
    from sfumato.anonymity.plan import Plan

_WORTHLESS = 0.5
"""A class that has lost more than this share of its cells is left out, if the limit allows it."""


def suppress_classes(plan: Plan, partition: Partition, labels: Sequence[Labels]) -> tuple[Partition, float]:
    """The partition within both limits, and the share of its cells that are `*`.

    Classes that have lost more than half are left out, worst first, while the limit on records allows it.
    If too many cells are `*`, classes with most of them follow.
    """
    sizes = np.bincount(
        partition.classes[partition.classes >= 0],
        partition.weights[partition.classes >= 0],
        minlength=partition.count,
    )
    rows = int(partition.weights.sum())
    out = np.zeros(partition.count, np.bool_)
    left = int(plan.max_suppressed * rows + 1e-9) - (rows - int(sizes.sum()))
    lost = np.mean([each.losses for each in labels], axis=0)
    # An optimum is not improved by leaving more out, and closeness is to the table that is released.
    fixed = plan.method == "lattice" or plan.wanted.t is not None or plan.wanted.delta is not None
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
    allowed = plan.max_suppressed_cells * len(labels)
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
    if share > plan.max_suppressed_cells + 1e-9:
        raise AnonymityError(
            f"{share:.1%} of the cells would be {TOP!r}, more than the {plan.max_suppressed_cells:.1%} that "
            "max_suppressed_cells allows; allow more, leave out more records (max_suppressed), lower k, or "
            "give columns finer hierarchies"
        )
    if not out.any():
        return partition, share
    dropped = out[partition.classes] & (partition.classes >= 0)
    return replace(partition, classes=np.where(dropped, -1, partition.classes).astype(np.int32)), share
