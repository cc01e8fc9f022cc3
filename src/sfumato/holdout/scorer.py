"""Scores for model selection: accuracy, area under the curve, or any mean of values per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import numpy as np

from sfumato.errors import QuestionRefused, RecipeError, SchemaError
from sfumato.holdout.values import GRID, Question, ask_about_mean, read_scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.holdout.rows import RowSet

Response = Literal["predict", "predict_proba", "decision_function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """The two classes, and how many holdout rows each has: public for areas under curves."""

    positive: object
    positives: int
    negatives: int


class Scorer:
    """A guarded score function, `scorer(estimator, X, y)`, that asks one question at each call.

    It scores the estimator on the rows it is given, in a cross-validation those of one fold, and on the
    holdout. If the two agree it returns the first, exactly; otherwise the second plus noise. Each call
    counts: a search over 20 candidates in 5 folds asks 100 questions, twice as many with training scores.
    Folds that are much smaller than the holdout differ from it by chance alone and spend the budget.

    It works with anything that has the methods of scikit-learn's estimators. It belongs to its guard: it
    cannot be pickled, and its copies are itself.
    """

    __slots__ = ("_ask", "_counts", "_metric", "_name", "_response")

    def __init__(
        self,
        ask: Callable[[Question, tuple[object, object]], float],
        *,
        metric: str | Callable[..., object],
        response: Response,
        name: str | None,
        counts: ClassCounts | None,
    ) -> None:
        if not callable(metric) and metric not in ("accuracy", "roc_auc"):
            raise RecipeError(
                f"{str(metric)[:40]!r} is not a score whose dependence on one row is known; use 'accuracy', "
                f"'roc_auc', or a function of (labels, predictions) that returns one value in [0, 1] per row"
            )
        if response not in get_args(Response):
            raise RecipeError(f"response must be one of {get_args(Response)}, got {str(response)[:40]!r}")
        self._ask = ask
        self._metric = metric
        self._response = response
        self._counts = counts
        self._name = name if name is not None else str(getattr(metric, "__name__", metric))

    def __call__(self, estimator: Any, X: object, y: object) -> float:  # noqa: ANN401  # duck typed
        """The guarded score of a fitted estimator on (X, y)."""
        if self._counts is not None:
            question = _ask_about_area(estimator, self._counts, name=self._name)
        elif callable(self._metric):
            question = _ask_about_metric(estimator, self._metric, self._response, name=self._name)
        else:
            question = _ask_about_metric(estimator, _right, "predict", name=self._name)
        return self._ask(question, (X, y))

    def __repr__(self) -> str:
        return f"Scorer({self._name!r}, of a guarded holdout)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "the scorer of a guarded holdout cannot be pickled: a copy would have a budget of its own. "
            "Use n_jobs=1, or joblib's threads"
        )

    def __copy__(self) -> Scorer:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Scorer:
        return self


def class_counts(train: RowSet, holdout: RowSet) -> ClassCounts:
    """The two classes of the training labels and their numbers of holdout rows."""
    classes = np.unique(_labels(train))
    if classes.size != 2:
        raise SchemaError(f"roc_auc needs two classes; the training rows have {classes.size}")
    labels = _labels(holdout)
    positives, negatives = int((labels == classes[1]).sum()), int((labels == classes[0]).sum())
    if positives + negatives != len(holdout) or not positives or not negatives:
        raise SchemaError("roc_auc needs both classes of the training rows, and no other, in the holdout")
    return ClassCounts(positive=classes[1], positives=positives, negatives=negatives)


def count_wins(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> int:
    """Twice the number of pairs in which the positive row has the higher score; ties count once.

    >>> count_wins(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
    7
    """
    _, place = np.unique(scores, return_inverse=True)
    ours = np.bincount(place[positive], minlength=int(place.max()) + 1)
    theirs = np.bincount(place[~positive], minlength=ours.size)
    below = np.cumsum(theirs) - theirs
    return int((ours * (2 * below + theirs)).sum())


def _ask_about_area(estimator: Any, counts: ClassCounts, *, name: str) -> Question:  # noqa: ANN401
    """The area under the curve, times the share of the rarer class.

    The area is the mean over all pairs of a positive and a negative row. With the numbers of both public, a
    row takes part in one of every `fewer` pairs at most, so the product moves by at most 1 / rows.
    """
    rows = counts.positives + counts.negatives
    fewer = min(counts.positives, counts.negatives)

    def score(X: object, y: object) -> object:
        if hasattr(estimator, "decision_function"):
            return estimator.decision_function(X)
        return np.asarray(estimator.predict_proba(X))[:, 1]

    def public(scores: NDArray[np.float64], given: RowSet) -> Fraction:
        positive = _labels(given) == counts.positive
        pairs = int(positive.sum()) * int((~positive).sum())
        if not pairs:
            raise QuestionRefused(f"roc_auc needs both classes in {given.name}")
        return Fraction(count_wins(scores, positive), 2 * pairs)

    def private(scores: NDArray[np.float64], holdout: RowSet) -> int:
        wins = count_wins(scores, _labels(holdout) == counts.positive)
        return wins * fewer * GRID // (2 * counts.positives * counts.negatives)

    return Question(
        name=name,
        function=score,
        read=read_scores,
        public=public,
        private=private,
        weight=Fraction(fewer, rows),
        neutral=-np.inf,
    )


def _ask_about_metric(
    estimator: Any,  # noqa: ANN401
    metric: Callable[..., object],
    response: Response,
    *,
    name: str,
) -> Question:
    def score(X: object, y: object) -> object:
        return metric(y, getattr(estimator, response)(X))

    return ask_about_mean(score, name=name)


def _right(labels: object, predictions: object) -> object:
    return np.asarray(labels) == np.asarray(predictions)


def _labels(rows: RowSet) -> NDArray[Any]:
    _, labels = rows.arguments()
    return np.asarray(labels)
