"""What a classifier learns from the release, tested on the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.metrics.logistic import choose_features, fit_logistic, predict
from sfumato.metrics.pair import draw_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sfumato.metrics.associations import Associations
    from sfumato.metrics.pair import CodedPair, Side

_MOST_CLASSES = 10
_FEW_CLASSES = 6
_TARGETS = 3
_HELD_OUT = 0.3


@dataclass(frozen=True, slots=True)
class Downstream:
    """Shares of held-out true records whose target is told right, by what the classifier learned from."""

    target: str
    trained_on_release: float
    trained_on_truth: float
    majority: float

    def to_record(self) -> dict[str, Any]:
        """The figures as a plain record."""
        return {
            "target": self.target,
            "trained_on_release": self.trained_on_release,
            "trained_on_truth": self.trained_on_truth,
            "majority": self.majority,
        }


def choose_targets(pair: CodedPair, associations: Associations) -> tuple[str, ...]:
    """Up to three columns of two to six values, those that the other columns tell most about."""
    strength = (associations.truth.sum(axis=1) - 1).tolist()
    few = [
        (-strength[place], name)
        for place, name in enumerate(pair.columns)
        if 2 <= np.unique(pair.truth.codes[name]).size <= _FEW_CLASSES
    ]
    return tuple(name for _, name in sorted(few)[:_TARGETS])


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
    held_out, seen = _split(pair, generator)
    test = draw_records(held_out, most_records, generator)
    learned = draw_records(seen, most_records, generator)
    released = draw_records(pair.release, most_records, generator)
    if not test.rows or not learned.rows or not released.rows:
        return ()
    return tuple(_measure(pair, target, test, learned, released) for target in targets)


def _measure(pair: CodedPair, target: str, test: Side, learned: Side, released: Side) -> Downstream:
    answers = test.codes[target]
    common = int(np.argmax(np.bincount(learned.codes[target])))
    return Downstream(
        target=target,
        trained_on_release=_accuracy(pair, target, released, test),
        trained_on_truth=_accuracy(pair, target, learned, test),
        majority=float(np.mean(answers == common)),
    )


def _accuracy(pair: CodedPair, target: str, train: Side, test: Side) -> float:
    others = [name for name in pair.columns if name != target]
    chosen = choose_features(pair, others, dict(train.codes))
    features, unseen = chosen.apply(dict(train.codes)), chosen.apply(dict(test.codes))
    counts = np.bincount(train.codes[target], minlength=pair.sizes[target])
    classes = np.argsort(-counts, kind="stable")[: min(_MOST_CLASSES, int(np.count_nonzero(counts)))]
    if classes.size == 1:
        return float(np.mean(test.codes[target] == classes[0]))
    scores = [_scores(features, unseen, chosen.sizes, train.codes[target] == each) for each in classes[1:]]
    # The most frequent class needs no fit of its own between two.
    first = (
        1 - scores[0]
        if classes.size == 2
        else _scores(features, unseen, chosen.sizes, train.codes[target] == classes[0])
    )
    told = classes[np.argmax(np.stack([first, *scores]), axis=0)]
    return float(np.mean(told == test.codes[target]))


def _scores(
    features: list[NDArray[np.int64]],
    unseen: list[NDArray[np.int64]],
    sizes: tuple[int, ...],
    outcome: NDArray[np.bool_],
) -> NDArray[np.float64]:
    return predict(unseen, sizes, fit_logistic(features, sizes, outcome))


def _split(pair: CodedPair, generator: np.random.Generator) -> tuple[Side, Side]:
    truth = pair.truth
    unit = np.arange(truth.rows) if pair.unit is None else pair.unit
    people = int(unit.max()) + 1
    out = np.zeros(people, np.bool_)
    out[generator.permutation(people)[: max(1, round(_HELD_OUT * people))]] = True
    parts = [np.flatnonzero(out[unit]), np.flatnonzero(~out[unit])]
    weights = [None if truth.weights is None else truth.weights[rows] for rows in parts]
    return truth.take(parts[0], weights[0]), truth.take(parts[1], weights[1])
