"""How far a released table is from the records: two scores whose sensitivity is known.

Privacy: docs/proofs/scores.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import check_option
from sfumato.core.questions.choices import measure_distance
from sfumato.core.questions.question import Question, Stated, digest_numbers
from sfumato.core.questions.residuals import freeze

if TYPE_CHECKING:
    from sfumato.core.facts.table import Table
    from sfumato.core.law import Norm

METRICS = ("pie-chart", "l1")

SCORE_GRID = 2**20
"""The score of a row is rounded to a multiple of 1 / SCORE_GRID, so that sums are exact."""

LARGEST_COUNTS = 2**40
"""The most that the counts of one row of a pie chart add up to."""

_LARGEST_SCORE = 2**62
# The contest's constants (docs/metrics.md).
_OFFSET = 1e-9  # added to every count, so that no share is zero
_MISLEADING = 0.2
_BIAS = 0.25
_FREE_BIAS = 500
_PARTS = 20  # a slice below one part in twenty is blanked
_TERMS = 12  # of the series of the logarithm: the next is below the last bit
_TWO_OVER_LN_2 = 2.8853900817779268  # written out: a library's log(2) may round differently


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseScore(Question):
    """A score of `released` counts against those of the bounded records in all cells of `columns`.

    "pie-chart" adds up the scores of rows, whose slices are the last column; "l1" is the L1 distance.

    Privacy: with `truncate`, an individual has at most max_records records, so it is in at most that many
    rows, and a row's score moves by at most 1. An L1 distance to a public table moves by at most the L1
    distance of the counts (docs/proofs/scores.md).
    """

    stated: ClassVar = Stated(bounding="records", tally="scores", norms=("L1",), signed=True, sampled=False)
    queries: ClassVar[None] = None  # type: ignore[misc]

    metric: str
    columns: tuple[str, ...]
    released: NDArray[np.int64]

    def __post_init__(self) -> None:
        self.check_columns()
        check_option(self.metric, METRICS, name="metric")
        object.__setattr__(self, "released", freeze(self.released, "released counts"))

    def grid(self, table: Table) -> int:
        """The denominator of a score."""
        return SCORE_GRID if self.metric == "pie-chart" else table.grid

    def size(self, table: Table) -> int:
        """The number of answers."""
        return 1

    def contribution(self, table: Table, norm: Norm) -> Fraction:
        """How far one individual moves a score, in units of 1 / grid."""
        most = min(table.unit.max_records, self.count_rows(table)) * SCORE_GRID
        return Fraction(most if self.metric == "pie-chart" else table.contribution)

    def check(self, table: Table) -> None:
        """Raises an error about public facts if it does not fit `table`."""
        cells, kinds = table.cells(self.columns), table.column(self.columns[-1]).size
        if self.metric == "pie-chart" and (table.bounding == "weight" or len(self.columns) < 2):
            raise RecipeError(
                "a noisy pie-chart score needs at least two columns, the last one the slices, and bounding = "
                '"truncate": under weights an individual may be in any number of rows'
            )
        if self.released.shape != (cells,):
            raise RecipeError(f"a score needs the released counts of all {cells:,} cells")
        if not 0 <= self.released.min() <= self.released.max() < LARGEST_COUNTS // kinds:
            raise RecipeError("the counts of the release are negative or too large to be scored")

    def count_rows(self, table: Table) -> int:
        """The number of rows of the pie chart."""
        return table.cells(self.columns[:-1]) if len(self.columns) > 1 else 1

    def to_record(self) -> dict[str, Any]:
        """What is told of it besides its columns: the metric, and a digest of the released counts."""
        return {"score": self.metric, "released": digest_numbers(self.released)}

    def evaluate(self, table: Table, true_values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The exact score, in units of 1 / grid; the door alone calls this."""
        if self.metric == "l1":
            distance = measure_distance(true_values, self.released * table.grid)
            return np.array([min(distance, _LARGEST_SCORE)], np.int64)
        # Held to what is added up exactly: no error may depend on a count.
        kinds = table.column(self.columns[-1]).size
        held = np.minimum(true_values, LARGEST_COUNTS // kinds).reshape(-1, kinds)
        rows = score_rows(held, self.released.reshape(-1, kinds))[0]
        return np.array([np.rint(rows * SCORE_GRID).astype(np.int64).sum()], np.int64)


def score_rows(
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
