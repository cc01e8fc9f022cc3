"""Whether a classifier can tell released records from true ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.metrics.logistic import choose_features, fit_logistic, predict
from sfumato.metrics.pair import draw_records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.metrics.pair import CodedPair


@dataclass(frozen=True, slots=True)
class Propensity:
    """The propensity score's mean squared error, what chance alone would give, and held-out AUC."""

    pmse: float
    expected: float
    auc: float
    records: int

    @property
    def ratio(self) -> float:
        """1 for a release drawn anew from the truth, 2 for another sample of its law; larger is worse."""
        return self.pmse / self.expected if self.expected > 0 else 1.0

    def to_record(self) -> dict[str, Any]:
        """The figures as a plain record."""
        return {"pmse": self.pmse, "expected": self.expected, "ratio": self.ratio, "auc": self.auc}


def measure_propensity(pair: CodedPair, *, seed: int, most_records: int) -> Propensity | None:
    """How well a logistic regression on all columns tells the sides apart; None for an empty release.

    At most `most_records` records of each side are drawn from `seed`, weighted rows as so many
    records. The expected error under no difference is (k - 1) c (1 - c)^2 / n, with k parameters, n
    records and c the share of released ones. The AUC is measured on records the fit has not seen.
    """
    generator = np.random.default_rng([seed, 6])
    ours, theirs = (draw_records(side, most_records, generator) for side in (pair.truth, pair.release))
    if not ours.rows or not theirs.rows:
        return None
    order = generator.permutation(ours.rows + theirs.rows)
    codes = {name: np.concatenate([ours.codes[name], theirs.codes[name]])[order] for name in pair.columns}
    outcome = (np.arange(order.size) >= ours.rows)[order]
    chosen = choose_features(pair, pair.columns, codes)
    features = chosen.apply(codes)
    share = theirs.rows / order.size
    chances = predict(features, chosen.sizes, fit_logistic(features, chosen.sizes, outcome))
    return Propensity(
        pmse=float(np.mean((chances - share) ** 2)),
        expected=(chosen.parameters - 1) * share * (1 - share) ** 2 / order.size,
        auc=_held_out(features, chosen.sizes, outcome),
        records=order.size,
    )


def area_under_curve(scores: NDArray[np.float64], outcome: NDArray[np.bool_]) -> float:
    """The chance that a positive scores above a negative, ties counting half.

    >>> area_under_curve(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    positives = int(np.count_nonzero(outcome))
    negatives = outcome.size - positives
    if not positives or not negatives:
        return 0.5
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    above = float(ranks[inverse.reshape(-1)][outcome].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)


def _held_out(features: list[NDArray[np.int64]], sizes: tuple[int, ...], outcome: NDArray[np.bool_]) -> float:
    """The mean of both directions: fitted on one half, measured on the other."""
    halves = slice(0, None, 2), slice(1, None, 2)
    areas = []
    for seen, unseen in (halves, halves[::-1]):
        fit = fit_logistic([each[seen] for each in features], sizes, outcome[seen])
        scores = predict([each[unseen] for each in features], sizes, fit)
        areas.append(area_under_curve(scores, outcome[unseen]))
    return sum(areas) / 2
