"""The pie chart metric: how well each row of counts keeps its shares, without inventing slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import MetricError
from sfumato.core.questions.scores import LARGEST_COUNTS, score_rows
from sfumato.metrics.columns import SIDES, read_sides, whole_numbers
from sfumato.tables.arrays import Floats
from sfumato.tables.read import TableLike, require_columns

_INDEX = ("epsilon", "neighborhood", "year", "month")
_CHUNK = 1024


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PieComponents:
    """What every row loses: Jensen-Shannon distance, misleading slices, bias of the total."""

    jsd: Floats
    misleading: Floats
    bias: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PieChart:
    """The scores of all rows, and what each row lost."""

    rows: Floats
    components: PieComponents

    @property
    def total(self) -> float:
        """The sum of the row scores, as contests report it; rounded once, whatever the order of the rows."""
        return math.fsum(self.rows)

    @property
    def mean(self) -> float:
        """The mean row score, from 0 to 1."""
        return self.total / self.rows.size

    def __repr__(self) -> str:
        return f"PieChart(total={self.total:.6g}, mean={self.mean:.6g}, rows={self.rows.size})"

    def to_record(self) -> dict[str, Any]:
        """Returns the score as a plain record."""
        parts = self.components
        return {
            "total": self.total,
            "mean": self.mean,
            "rows": self.rows.size,
            "jsd": float(parts.jsd.mean()),
            "misleading": float(parts.misleading.mean()),
            "bias": float(parts.bias.mean()),
        }


def pie_chart(
    truth: TableLike | NDArray[Any],
    release: TableLike | NDArray[Any],
    *,
    index: Sequence[str] | None = None,
) -> PieChart:
    """Returns the pie chart score of every row of counts in `release` against the same row of `truth`.

    Both are 2-d arrays of whole numbers, one row per place and time and one column per kind of
    incident, or tables of that layout whose `index` columns (by default those named epsilon,
    neighborhood, year, month) say which row is which and must agree.

    A row scores 1 if both sides are equal. Otherwise it loses the Jensen-Shannon distance of its
    shares, 0.2 for every slice that shows in the release and not in the truth, and 0.25 if the totals
    differ by more than 500; slices below 5 % of their own row are blanked first. See docs/metrics.md.

    The score of a row is a function of that row of the two tables alone: the same row gets the same
    bits whatever the other rows hold, in whatever order they come, on any machine. So a change of the
    truth in r rows moves the total by r at most.

    >>> score = pie_chart(np.array([[60, 36, 4, 0]]), np.array([[60, 30, 5, 5]]))
    >>> round(score.total, 4), round(float(score.components.misleading[0]), 1)
    (0.3694, 0.4)
    """
    true_counts, counts = _read_pair(truth, release, index)
    size = true_counts.shape[0]
    rows, jsd, misleading, bias = (np.empty(size) for _ in range(4))
    for start in range(0, size, _CHUNK):
        part = slice(start, start + _CHUNK)
        pair = (true_counts[part].astype(np.int64), counts[part].astype(np.int64))
        rows[part], jsd[part], misleading[part], bias[part] = score_rows(*pair)
    return PieChart(rows, PieComponents(jsd, misleading, bias))


def _read_pair(
    truth: TableLike | NDArray[Any], release: TableLike | NDArray[Any], index: Sequence[str] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    arrays = isinstance(truth, np.ndarray), isinstance(release, np.ndarray)
    if all(arrays):
        pair = truth, release
    elif any(arrays):
        raise MetricError("truth and release must both be arrays, or both tables")
    else:
        pair = _read_tables(truth, release, index)
    true_counts, counts = _check(pair[0], side="truth"), _check(pair[1], side="release")
    if true_counts.shape != counts.shape:
        raise MetricError(
            f"truth has {true_counts.shape[0]:,} rows of {true_counts.shape[1]:,} counts, release "
            f"{counts.shape[0]:,} of {counts.shape[1]:,}; both need the same rows and columns"
        )
    return true_counts, counts


def _read_tables(
    truth: TableLike, release: TableLike, index: Sequence[str] | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    ours, theirs = read_sides(truth, release)
    names = tuple(index) if index is not None else tuple(n for n in _INDEX if n in ours.column_names)
    require_columns(ours, names, side="truth")
    require_columns(theirs, names, side="release")
    counted = [name for name in ours.column_names if name not in names]
    if set(theirs.column_names) != set(ours.column_names):
        raise MetricError(
            "truth and release must have the same columns: those of the index, and one per kind"
        )
    if ours.num_rows == theirs.num_rows:
        for name in names:
            if ours.column(name).to_pylist() != theirs.column(name).to_pylist():
                raise MetricError(
                    f"the rows of truth and release differ in {name!r}; bring both into the same order"
                )
    return tuple(  # type: ignore[return-value]
        np.stack([whole_numbers(table, name, side=side) for name in counted], axis=1)
        if counted
        else np.empty((table.num_rows, 0), np.int64)
        for table, side in zip((ours, theirs), SIDES, strict=True)
    )


def _check(counts: NDArray[Any], *, side: str) -> NDArray[Any]:
    if counts.ndim != 2 or counts.size == 0:
        raise MetricError(f"{side}: counts must fill a table of rows and columns")
    if counts.dtype.kind == "f":
        if not np.isfinite(counts).all():
            raise MetricError(f"{side}: counts must be finite")
        if (counts != np.floor(counts)).any():
            raise MetricError(f"{side}: counts must be whole numbers")
    elif counts.dtype.kind not in "iu":
        raise MetricError(f"{side}: counts must be whole numbers")
    if counts.min() < 0:
        raise MetricError(f"{side}: counts must not be negative")
    if counts.max() > LARGEST_COUNTS // counts.shape[1]:
        raise MetricError(f"{side}: counts are too large to be added up exactly")
    return counts
