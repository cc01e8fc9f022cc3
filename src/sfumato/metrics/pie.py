"""The pie chart metric: how well each row of counts keeps its shares, without inventing slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import MetricError
from sfumato.metrics.columns import SIDES, read_sides, whole_numbers
from sfumato.tables.read import TableLike, require_columns

_INDEX = ("epsilon", "neighborhood", "year", "month")
# The contest's constants (docs/metrics.md).
_OFFSET = 1e-9  # added to every count, so that no share is zero
_MISLEADING = 0.2
_BIAS = 0.25
_FREE_BIAS = 500
_PARTS = 20  # a slice below one part in twenty is blanked
_CHUNK = 1024
_LARGEST = 2**40
_TERMS = 12  # of the series of the logarithm: the next is below the last bit
_TWO_OVER_LN_2 = 2.8853900817779268  # written out: a library's log(2) may round differently


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PieComponents:
    """What every row loses: Jensen-Shannon distance, misleading slices, bias of the total."""

    jsd: NDArray[np.float64]
    misleading: NDArray[np.float64]
    bias: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PieChart:
    """The scores of all rows, and what each row lost."""

    rows: NDArray[np.float64]
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
        rows[part], jsd[part], misleading[part], bias[part] = _score_rows(*pair)
    return PieChart(rows, PieComponents(jsd, misleading, bias))


def _score_rows(
    true_counts: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns (row scores, distances, losses by misleading slices, losses by bias).

    Whole numbers are added up exactly, and everything else is done element by element or, in
    `_distances`, in the order of the columns: no result depends on another row.
    """
    true_totals, totals = true_counts.sum(axis=1), counts.sum(axis=1)
    shown_true = np.where(_PARTS * true_counts >= true_totals[:, None], true_counts, 0)
    shown = np.where(_PARTS * counts >= totals[:, None], counts, 0)
    differs = (true_counts != counts).any(axis=1)
    jsd = np.where(differs, _distances(shown_true, shown), 0.0)
    invented = ((shown_true == 0) & (shown > 0)).sum(axis=1)
    misleading = np.where(differs, _MISLEADING * invented, 0.0)
    bias = np.where(differs & (np.abs(true_totals - totals) > _FREE_BIAS), _BIAS, 0.0)
    return np.clip(1 - jsd - misleading - bias, 0, 1), jsd, misleading, bias


def _distances(shown_true: NDArray[np.int64], shown: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the Jensen-Shannon distance, to base 2, of every pair of rows.

    Cells that are empty on both sides all hold the offset, so one of them stands for all.
    """
    width = shown.shape[1]
    true_sums = shown_true.sum(axis=1) + width * _OFFSET
    sums = shown.sum(axis=1) + width * _OFFSET
    row, column = np.nonzero((shown_true > 0) | (shown > 0))
    ours = (shown_true[row, column] + _OFFSET) / true_sums[row]
    theirs = (shown[row, column] + _OFFSET) / sums[row]
    # bincount adds in the order of its input: a row's terms in the order of its columns.
    divergence = np.bincount(row, _divergence(ours, theirs), minlength=shown.shape[0])
    empty = width - np.bincount(row, minlength=shown.shape[0])
    divergence = divergence + empty * _divergence(_OFFSET / true_sums, _OFFSET / sums)
    return np.asarray(np.sqrt(np.maximum(divergence, 0) / 2))


def _divergence(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    middle = (ours + theirs) / 2
    return ours * log2(ours / middle) + theirs * log2(theirs / middle)


def log2(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms to base 2 of numbers above zero, each a function of its own number alone.

    A library's logarithm may round a number differently in the middle of an array than at its end, or
    on another processor. This one is built from additions, products and quotients only, which are
    rounded in one way by definition: log2(m 2^e) = e + (2 / ln 2) (s + s^3/3 + s^5/5 + ...) with
    s = (m - 1) / (m + 1) and m within a factor sqrt(2) of 1, so that twelve terms are exact to the last bits.

    >>> log2(np.array([1.0, 8.0, 0.25])).tolist()
    [0.0, 3.0, -2.0]
    """
    mantissa, exponent = np.frexp(values)
    low = mantissa < math.sqrt(0.5)
    mantissa = np.where(low, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    series = np.full_like(ratio, 1 / (2 * _TERMS + 1))
    for term in range(_TERMS - 1, -1, -1):
        series = series * square + 1 / (2 * term + 1)
    return np.asarray((exponent - low) + _TWO_OVER_LN_2 * (ratio * series))


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
    if counts.max() > _LARGEST // counts.shape[1]:
        raise MetricError(f"{side}: counts are too large to be added up exactly")
    return counts
