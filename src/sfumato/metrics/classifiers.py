"""Logistic regressions over columns of codes: do they tell release from truth, what do they learn from it.

The regressions are fitted by iteratively reweighted least squares, that is Newton's method for the
likelihood with a small ridge penalty. Every code of every column is a feature, but no matrix of features is
ever made: sums over records become counts of codes, and the curvature counts of pairs of codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.metrics.columns import draw_people
from sfumato.metrics.encode import draw_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.metrics.encode import CodedPair, Side
    from sfumato.tables.arrays import Flags, Floats, Whole

    Features = Sequence[Whole]
    Codes = dict[str, Whole]

_MOST_FEATURES = 400  # the curvature has their square, and inverting it costs the cube
_MOST_LEVELS = 50
_RIDGE = 0.01  # keeps the curvature regular: the features of a column add up to the constant
_STEPS = 40  # Newton's method converges in far fewer, or not at all
# The curvature costs most of a step and changes little near the maximum: it is measured in these steps only.
_FRESH_CURVATURE = (0, 1, 3, 6, 10, 15, 20, 25, 30, 35)
_CLOSE = 1e-8
_MOST_CLASSES = 10
_HELD_OUT = 0.3  # of the records


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
        """Returns the figures as a plain record."""
        return {"pmse": self.pmse, "expected": self.expected, "ratio": self.ratio, "auc": self.auc}


@dataclass(frozen=True, slots=True)
class Downstream:
    """Accuracy on held-out true records, by what the classifier of `target` was trained on."""

    target: str
    trained_on_release: float
    trained_on_truth: float
    majority: float


def measure_propensity(pair: CodedPair, *, seed: int, most_records: int) -> Propensity | None:
    """Returns how well a logistic regression on all columns tells the sides apart; None for an empty release.

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
    encoder = _choose_features(pair, pair.columns, codes)
    features, sizes = encoder.apply(codes), encoder.sizes
    share = theirs.rows / order.size
    chances = predict(features, sizes, fit_logistic(features, sizes, outcome))
    # The AUC is the mean of both directions: fitted on one half, measured on the other.
    halves = slice(0, None, 2), slice(1, None, 2)
    areas = []
    for seen, unseen in (halves, halves[::-1]):
        fit = fit_logistic([each[seen] for each in features], sizes, outcome[seen])
        scores = predict([each[unseen] for each in features], sizes, fit)
        areas.append(area_under_curve(scores, outcome[unseen]))
    return Propensity(
        pmse=float(np.mean((chances - share) ** 2)),
        expected=sum(size - 1 for size in sizes) * share * (1 - share) ** 2 / order.size,
        auc=sum(areas) / 2,
        records=order.size,
    )


def area_under_curve(scores: Floats, outcome: Flags) -> float:
    """Returns the chance that a positive scores above a negative, ties counting half.

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


def measure_downstream(
    pair: CodedPair, targets: Sequence[str], *, seed: int, most_records: int
) -> tuple[Downstream, ...]:
    """For each target: a logistic regression on the other columns, trained on release and on truth.

    30 % of the truth's individuals are held out to test on, drawn from `seed`; at most
    `most_records` records are used to train, and as many to test.
    """
    if len(pair.columns) < 2:
        return ()
    generator = np.random.default_rng([seed, 7])
    sides = (*_split_truth(pair, generator), pair.release)
    test, train, released = (draw_records(side, most_records, generator) for side in sides)
    if not test.rows or not train.rows or not released.rows:
        return ()
    return tuple(
        Downstream(
            target=target,
            trained_on_release=_accuracy(pair, target, released, test),
            trained_on_truth=_accuracy(pair, target, train, test),
            majority=float(np.mean(test.codes[target] == np.argmax(np.bincount(train.codes[target])))),
        )
        for target in targets
    )


def _split_truth(pair: CodedPair, generator: np.random.Generator) -> tuple[Side, Side]:
    """Returns the truth's records of held-out individuals, and all others."""
    unit = np.arange(pair.truth.rows) if pair.unit is None else pair.unit
    out = draw_people(unit, _HELD_OUT, generator)
    return pair.truth.take(np.flatnonzero(out)), pair.truth.take(np.flatnonzero(~out))


def _accuracy(pair: CodedPair, target: str, train: Side, test: Side) -> float:
    """Returns the share of `test` whose target is predicted right, by one regression per frequent class."""
    others = [name for name in pair.columns if name != target]
    encoder = _choose_features(pair, others, dict(train.codes))
    features, unseen = encoder.apply(dict(train.codes)), encoder.apply(dict(test.codes))
    counts = np.bincount(train.codes[target], minlength=pair.sizes[target])
    classes = np.argsort(-counts, kind="stable")[: min(_MOST_CLASSES, int(np.count_nonzero(counts)))]
    # Between two classes, one regression says it all: the first wins where the second has less than half.
    fitted = classes if classes.size > 2 else classes[1:]
    scores = [
        predict(unseen, encoder.sizes, fit_logistic(features, encoder.sizes, train.codes[target] == each))
        for each in fitted
    ]
    if classes.size <= 2:
        scores = [1 - scores[0] if scores else np.ones(test.rows), *scores]
    predicted = classes[np.argmax(np.stack(scores), axis=0)]
    return float(np.mean(predicted == test.codes[target]))


@dataclass(frozen=True, slots=True, eq=False)
class _Encoder:
    """How codes become features: per column, the feature of every code; rare codes share one."""

    columns: tuple[str, ...]
    tables: tuple[Whole, ...]
    sizes: tuple[int, ...]

    def apply(self, codes: Codes) -> list[Whole]:
        """Returns the feature of every record in every column."""
        return [table[codes[name]] for name, table in zip(self.columns, self.tables, strict=True)]


def _choose_features(pair: CodedPair, columns: Sequence[str], codes: Codes) -> _Encoder:
    """Features for `columns`: the most frequent codes among `codes` one each, the others one together.

    At most 50 per column, and fewer if there are so many columns that all would be more than 400.
    """
    counts = {name: np.bincount(codes[name], minlength=pair.sizes[name]) for name in columns}
    present = [int(np.count_nonzero(count)) for count in counts.values()]
    levels = next(
        (most for most in range(_MOST_LEVELS, 2, -1) if sum(min(n, most) for n in present) <= _MOST_FEATURES),
        2,
    )
    tables, sizes = [], []
    for count, occupied in zip(counts.values(), present, strict=True):
        kept = np.argsort(-count, kind="stable")[: occupied if occupied <= levels else levels - 1]
        table = np.full(count.size, 0 if occupied <= levels else kept.size, np.int64)
        table[kept] = np.arange(kept.size)
        tables.append(table)
        sizes.append(kept.size + (occupied > levels))
    return _Encoder(tuple(columns), tuple(tables), tuple(sizes))


def fit_logistic(features: Features, sizes: Sequence[int], outcome: Flags) -> Floats:
    """Coefficients, the constant first, that maximise the penalised likelihood.

    Iteratively reweighted least squares; a step that does not gain is halved until it does.

    >>> fit = fit_logistic([np.array([0, 0, 1, 1])], [2], np.array([False, True, True, True]))
    >>> bool(fit[1] < fit[2])
    True
    """
    offsets = np.cumsum([1, *sizes])
    coefficients = np.zeros(int(offsets[-1]))
    target = outcome.astype(np.float64)
    loss = _loss(_linear(features, offsets, coefficients), target, coefficients)
    inverse: NDArray[Any] = np.empty(0)
    scale = 1.0
    for turn in range(_STEPS):
        chance = _logistic(_linear(features, offsets, coefficients))
        gradient = _sums(features, sizes, target - chance) - _penalty(coefficients)
        if turn in _FRESH_CURVATURE or scale < 1:
            inverse = np.linalg.inv(_curvature(features, sizes, offsets, chance * (1 - chance)))
        step = inverse @ gradient
        scale = 1.0
        while scale > _CLOSE:
            tried = coefficients + scale * step
            reached = _loss(_linear(features, offsets, tried), target, tried)
            if reached <= loss:
                break
            scale /= 2
        else:
            break
        gained, loss, coefficients = loss - reached, reached, tried
        if gained < _CLOSE * target.size:
            break
    return coefficients


def predict(features: Features, sizes: Sequence[int], coefficients: Floats) -> Floats:
    """Returns the chance of every record, between 0 and 1."""
    return _logistic(_linear(features, np.cumsum([1, *sizes]), coefficients))


def _linear(features: Features, offsets: Whole, coefficients: Floats) -> Floats:
    total = np.full(features[0].size, coefficients[0])
    for feature, offset in zip(features, offsets, strict=False):
        total += coefficients[offset:][feature]
    return total


def _logistic(linear: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(linear, -500, 500))))


def _loss(linear: Floats, target: Floats, coefficients: Floats) -> float:
    """Returns the negative logarithm of the penalised likelihood."""
    fit = float((np.logaddexp(0, linear) - target * linear).sum())
    return fit + float(coefficients @ _penalty(coefficients)) / 2


def _penalty(coefficients: Floats) -> Floats:
    penalty = _RIDGE * coefficients
    penalty[0] = 0.0  # the constant is free
    return penalty


def _sums(features: Features, sizes: Sequence[int], weights: Floats) -> Floats:
    """Returns the sum of the weights of all records, and of those with each feature."""
    parts = [np.bincount(each, weights, minlength=size) for each, size in zip(features, sizes, strict=True)]
    return np.concatenate([[weights.sum()], *parts])


def _curvature(features: Features, sizes: Sequence[int], offsets: Whole, weights: Floats) -> Floats:
    """X' W X plus the ridge, for X the indicators of all features: weighted counts of pairs of features."""
    width = int(offsets[-1])
    matrix = np.zeros((width, width))
    sums = _sums(features, sizes, weights)
    matrix[0], matrix[:, 0] = sums, sums
    np.fill_diagonal(matrix, sums)
    for i, first in enumerate(features):
        for j in range(i + 1, len(features)):
            keys = first * sizes[j] + features[j]
            block = np.bincount(keys, weights, minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])
            rows, columns = slice(offsets[i], offsets[i + 1]), slice(offsets[j], offsets[j + 1])
            matrix[rows, columns], matrix[columns, rows] = block, block.T
    matrix[np.diag_indices(width)] += np.where(np.arange(width) == 0, 1e-9, _RIDGE)
    return matrix
