"""How well a column can be predicted from the quasi-identifiers, before and after.

A naive Bayes classifier over categories, add-one smoothed, is trained and tested on the same kind of table
by cross-validation: every label, generalised or not, is a category. The split is fixed and public. It
depends on which rows there are, not on their order, and each value of the target is spread evenly over the
folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.anonymity.check import NOT_DP
from sfumato.anonymity.tally import Tally, check_names, tally_rows
from sfumato.errors import AnonymityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.anonymity.tables import TableLike

_MOST_TARGETS = 200
_BATCH = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The share of records whose target is predicted right, before and after.

    `baseline_before` and `baseline_after` are the shares of the most frequent target, which is right
    without looking. A table with fewer records is tested on those it has.
    """

    features: tuple[str, ...]
    target: str
    folds: int
    before: float
    after: float
    baseline_before: float
    baseline_after: float

    @property
    def kept(self) -> float | None:
        """The gain over the baseline that is left after, as a part of that before; None without a gain."""
        gain = self.before - self.baseline_before
        return (self.after - self.baseline_after) / gain if gain > 0 else None

    def to_record(self) -> dict[str, Any]:
        """The accuracies for JSON."""
        return {
            "model": NOT_DP,
            "features": list(self.features),
            "target": self.target,
            "folds": self.folds,
            "before": self.before,
            "after": self.after,
            "baseline_before": self.baseline_before,
            "baseline_after": self.baseline_after,
            "kept": self.kept,
        }

    def __str__(self) -> str:
        return (
            f"{self.target} is predicted right for {self.before:.1%} of records before and {self.after:.1%} "
            f"after ({self.baseline_before:.1%} and {self.baseline_after:.1%} without looking)\n{NOT_DP}"
        )


def measure_accuracy(
    before: TableLike, after: TableLike, *, features: Sequence[str], target: str, folds: int = 5
) -> Accuracy:
    """How well `target` is predicted from `features` in a table `before` and `after` it was generalised.

    >>> before = {"age": [61, 62, 63, 33, 34, 35] * 5, "ill": (["gout"] * 3 + ["flu"] * 3) * 5}
    >>> after = {**before, "age": ["*"] * 30}
    >>> found = measure_accuracy(before, after, features=["age"], target="ill")
    >>> found.before, found.after, found.baseline_after
    (1.0, 0.5, 0.5)
    """
    check_names(features, [target])
    if folds < 2:
        raise AnonymityError("cross-validation needs at least 2 folds")
    sides = [
        _cross_validate(tally_rows(table, [*features, target], side=side), folds, side)
        for table, side in ((before, "table before"), (after, "table after"))
    ]
    return Accuracy(
        features=tuple(features),
        target=target,
        folds=folds,
        before=sides[0][0],
        after=sides[1][0],
        baseline_before=sides[0][1],
        baseline_after=sides[1][1],
    )


def _cross_validate(tally: Tally, folds: int, side: str) -> tuple[float, float]:
    """(accuracy, share of the most frequent target) of a tally whose last column is the target."""
    targets, classes = tally.codes[-1], len(tally.values[-1])
    if classes > _MOST_TARGETS:
        raise AnonymityError(
            f"{side}: column {tally.columns[-1]!r} has more than {_MOST_TARGETS} different values; "
            "predict one with fewer, such as a group of them"
        )
    if not tally.records:
        return 0.0, 0.0
    split = _split(tally, folds)
    features = list(zip(tally.codes[:-1], map(len, tally.values[:-1]), strict=True))
    right = 0
    for fold in split:
        rest = tally.counts - fold
        prior = np.bincount(targets, rest, minlength=classes)
        scores = [
            np.log((_count_pairs(codes, size, targets, classes, rest) + 1) / (prior + size))
            for codes, size in features
        ]
        tested = np.flatnonzero(fold)
        for start in range(0, tested.size, _BATCH):
            rows = tested[start : start + _BATCH]
            total = np.tile(np.log(prior + 1), (rows.size, 1))
            for (codes, _), score in zip(features, scores, strict=True):
                total += score[codes[rows]]
            hits = total.argmax(axis=1) == targets[rows]
            right += int(fold[rows[hits]].sum())
    most = int(np.bincount(targets, tally.counts).max())
    return right / tally.records, most / tally.records


def _count_pairs(
    codes: NDArray[np.int64], size: int, targets: NDArray[np.int64], classes: int, counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The records of each value of a feature and each target."""
    found = np.bincount(codes * classes + targets, counts, minlength=size * classes)
    return found.reshape(size, classes).astype(np.float64)


def _split(tally: Tally, folds: int) -> NDArray[np.int64]:
    """The records of each row in each fold: in a fixed mixed order, dealt out by target in turn."""
    mixed = _mix(np.arange(tally.counts.size, dtype=np.uint64))
    dealt = np.lexsort((mixed, tally.codes[-1]))
    stop = np.empty(dealt.size, np.int64)
    stop[dealt] = np.cumsum(tally.counts[dealt])
    start = stop - tally.counts
    # Of the places from start to stop, those that leave the remainder of the fold.
    shifts = np.arange(folds)[:, None]
    return np.asarray((stop + folds - 1 - shifts) // folds - (start + folds - 1 - shifts) // folds)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers without any order, one for each of `numbers`: the finaliser of SplitMix64."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
