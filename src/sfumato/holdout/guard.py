"""The reusable holdout: a guard that answers many questions about rows that nobody may look at.

Beside it the Ladder: a leaderboard whose scores follow the best submission without being climbed by noise.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import HoldoutSpent, QuestionRefused, RecipeError, SchemaError
from sfumato.core.exact import ExactLike, Withheld, parse_positive, parse_whole
from sfumato.core.noise.samplers import discrete_gaussian, discrete_laplace
from sfumato.holdout.plan import MOST, HoldoutPlan, HoldoutPrivacy, plan_holdout
from sfumato.holdout.questions import (
    GRID,
    Guarded,
    Question,
    RowSet,
    Sealed,
    ask_about_mean,
    check_row_by_row,
    check_same_columns,
    match_labels,
    measure_public,
    measure_sealed,
    probe_places,
    read_scores,
)

Response = Literal["predict", "predict_proba", "decision_function"]

_FAULT = (
    "the question could not be answered on the holdout: its function must return one value per row, in range "
    "and in time, whatever the rows hold. What went wrong is not told, since it would tell about the rows; "
    "the refusal counts like an answer from the holdout"
)


class Thresholdout(Withheld):
    """The state of one guard: what was asked, what was answered from the holdout, the noise of the threshold.

    A statistic of the holdout is a whole number of steps, of which there are rows * GRID from 0 to 1. A
    question compares its distance from the public statistic with the threshold, plus noise, and answers
    with the public statistic if it is not above; otherwise with the holdout's, plus noise.

    *Privacy:* `HoldoutPlan.privacy`; proof: docs/proofs/holdout.md.
    """

    __slots__ = ("_lock", "_offset", "asked", "overfit", "plan", "refused")

    def __init__(self, plan: HoldoutPlan) -> None:
        self.plan = plan
        self.asked = 0
        self.overfit = 0
        self.refused = 0
        self._lock = threading.Lock()
        self._offset = Sealed(_draw(plan, 2) if plan.noise == "laplace" else 0)

    def __repr__(self) -> str:
        return f"Thresholdout(asked={self.asked}, overfit={self.overfit}, values withheld)"

    def check(self) -> None:
        """Raises the refusal to answer anything more."""
        if self.overfit + self.refused >= self.plan.budget:
            raise HoldoutSpent(
                f"the holdout is spent: all {self.plan.budget} answers that may come from it were given; "
                f"further answers could not be told from overfitting. Take a fresh holdout"
            )

    def begin(self) -> int:
        """Counts a new question, whatever becomes of it, and returns its number."""
        with self._lock:
            self.check()
            if self.asked >= self.plan.questions:
                raise HoldoutSpent(
                    f"the holdout is spent: all {self.plan.questions} questions were asked. "
                    f"Take a fresh holdout, or plan for more questions"
                )
            self.asked += 1
            return self.asked

    def refuse(self) -> None:
        """Counts a refusal because of holdout rows like an answer from the holdout."""
        with self._lock:
            self.refused += 1

    def answer(self, public: Fraction, private: Sealed[int], weight: Fraction) -> tuple[float, bool]:
        """Returns the answer, and whether it comes from the holdout.

        All noise is drawn before the box is opened, and the same amount of it for either answer.
        """
        with self._lock:
            self.check()
            noise = Sealed(_draw_all(self.plan))
            value, overfit, offset = _decide(self.plan, public, private, weight, noise, self._offset)
            self._offset = offset
            self.overfit += overfit
            return value, overfit


def _decide(
    plan: HoldoutPlan,
    public: Fraction,
    private: Sealed[int],
    weight: Fraction,
    noise: Sealed[tuple[int, int, int]],
    offset: Sealed[int],
) -> tuple[float, bool, Sealed[int]]:
    compared, added, renewed = noise.open()
    unit = plan.rows * GRID * weight
    distance = abs(private.open() - public * unit)
    overfit = distance > plan.threshold_steps + offset.open() + compared
    noisy = min(Fraction(1), max(Fraction(0), (private.open() + added) / unit))
    if overfit:
        return float(noisy), True, Sealed(renewed)
    return float(public), False, offset


def _draw_all(plan: HoldoutPlan) -> tuple[int, int, int]:
    """Returns the noise of a comparison, of an answer and of a new threshold."""
    if plan.noise == "gaussian":
        return _draw(plan, 1), _draw(plan, 1), 0
    return _draw(plan, 4), _draw(plan, 1), _draw(plan, 2)


def _draw(plan: HoldoutPlan, times: int) -> int:
    scale = times * plan.sigma_steps
    if plan.noise == "gaussian":
        return int(discrete_gaussian(sigma=scale, size=1)[0])
    return int(discrete_laplace(scale=scale, size=1)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """The two classes, and how many holdout rows each has: public for areas under curves."""

    positive: object
    positives: int
    negatives: int


class Scorer(Guarded):
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
        self._name = name if name is not None else str(getattr(metric, "__name__", metric))
        self._ask, self._counts = ask, counts
        self._metric: Callable[..., object] = metric if callable(metric) else match_labels
        self._response: Response = response if callable(metric) else "predict"

    def __call__(self, estimator: Any, X: object, y: object) -> float:  # noqa: ANN401  # duck typed
        """Returns the guarded score of a fitted estimator on (X, y)."""
        metric, response = self._metric, self._response

        def score(X: object, y: object) -> object:
            return metric(y, getattr(estimator, response)(X))

        if self._counts is not None:
            return self._ask(_ask_about_area(estimator, self._counts, name=self._name), (X, y))
        return self._ask(ask_about_mean(score, name=self._name), (X, y))

    def __repr__(self) -> str:
        return f"Scorer({self._name!r}, of a guarded holdout)"


def class_counts(train: RowSet, holdout: RowSet) -> ClassCounts:
    """Returns the two classes of the training labels and their numbers of holdout rows."""
    classes = np.unique(_labels(train))
    if classes.size != 2:
        raise SchemaError(f"roc_auc needs two classes; the training rows have {classes.size}")
    labels = _labels(holdout)
    positives, negatives = int((labels == classes[1]).sum()), int((labels == classes[0]).sum())
    if positives + negatives != len(holdout) or not positives or not negatives:
        raise SchemaError("roc_auc needs both classes of the training rows, and no other, in the holdout")
    return ClassCounts(positive=classes[1], positives=positives, negatives=negatives)


def count_wins(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> int:
    """Twice the number of pairs in which the positive row has the higher score; ties count once."""
    _, place = np.unique(scores, return_inverse=True)
    ours = np.bincount(place[positive], minlength=int(place.max()) + 1)
    theirs = np.bincount(place[~positive], minlength=ours.size)
    below = np.cumsum(theirs) - theirs
    return int((ours * (2 * below + theirs)).sum())


def _ask_about_area(estimator: Any, counts: ClassCounts, *, name: str) -> Question:  # noqa: ANN401
    """Returns the area under the curve, times the share of the rarer class.

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


def _labels(rows: RowSet) -> NDArray[Any]:
    _, labels = rows.arguments()
    return np.asarray(labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One line of a guard's log, all of it public.

    `source` says where the value came from: "train" (the public rows of the question), "holdout" (with
    noise), or "refused". Whoever has the training rows sees it from the value anyway, so it is part of the
    output whose privacy is proved, except for a refusal.
    """

    number: int
    name: str
    value: float | None
    source: Literal["train", "holdout", "refused"]


class ReusableHoldout(Guarded):
    """A guard of holdout rows that answers adaptive questions without letting them overfit.

    `train` and `holdout` are two data sets with the same columns: arrays, tables, mappings of columns, or
    tuples such as (X, y). `budget` is how many answers may come from the holdout, `questions` how many are
    answered at all, by default one per holdout row; a `plan` says all of it at once.

    `rows="together"` gives a question all rows in one call, and tries on training rows whether the value of
    a row depends on that row alone. `rows="single"` gives it one row at a time: slow, but then one row cannot
    move the answer by more than 1 / rows whatever the function does, and a row on which it fails counts as 0.

    `timeout` is in seconds for each call of a function. A function that hangs is left behind in its thread.

    *Privacy:* `privacy()` for one row of the holdout; proof: docs/proofs/holdout.md. The training rows are
    not protected. Nothing is promised against a function that keeps or sends away the rows that it is given.

    >>> import numpy as np
    >>> X, y = np.zeros((200, 3)), np.arange(200) % 2
    >>> guard = ReusableHoldout((X[:100], y[:100]), (X[100:], y[100:]), budget=10)
    >>> abs(guard.query(lambda X, y: X[:, 0] == y) - 0.5) < 0.4
    True
    >>> guard.questions_left
    99
    """

    __slots__ = ("_holdout", "_log", "_mechanism", "_probes", "_single", "_timeout", "_train")

    def __init__(
        self,
        train: object,
        holdout: object,
        *,
        budget: int | None = None,
        questions: int | None = None,
        plan: HoldoutPlan | None = None,
        rows: Literal["together", "single"] = "together",
        timeout: float | None = None,
    ) -> None:
        self._train = RowSet(train, name="the training rows")
        self._holdout = RowSet(holdout, name="the holdout", own=True)
        check_same_columns(self._train, self._holdout)
        if rows not in ("together", "single"):
            raise RecipeError(f"rows must be 'together' or 'single', got {str(rows)[:40]!r}")
        if timeout is not None:
            timeout = float(parse_positive(timeout, name="timeout"))
        plan = _choose_plan(plan, len(self._holdout), budget, questions)
        self._probes = self._train.take(probe_places(len(self._train)))
        self._single = rows == "single"
        self._timeout = timeout
        self._mechanism = Thresholdout(plan)
        self._log: list[Answer] = []

    @property
    def plan(self) -> HoldoutPlan:
        """The parameters, all public."""
        return self._mechanism.plan

    @property
    def log(self) -> tuple[Answer, ...]:
        """What was asked and answered so far, all public."""
        return tuple(self._log)

    @property
    def questions_left(self) -> int:
        """How many more questions are answered, if the budget allows."""
        return self.plan.questions - self._mechanism.asked

    @property
    def budget_left(self) -> int:
        """How many more answers may come from the holdout."""
        return self.plan.budget - self._mechanism.overfit - self._mechanism.refused

    def privacy(self, *, delta: ExactLike = Fraction(1, 10**6)) -> HoldoutPrivacy:
        """Returns what all answers that the plan allows promise together to one row of the holdout.

        It raises `QuestionRefused` once a question was refused because of holdout rows: a refusal has no
        noise, so nothing can be promised any more.
        """
        if self._mechanism.refused:
            raise QuestionRefused(
                f"{self._mechanism.refused} questions were refused because of holdout rows; a refusal has no "
                f"noise, so no privacy can be stated. Use questions that cannot fail, or rows='single'"
            )
        return self.plan.privacy(delta=delta)

    def query(self, function: Callable[..., object], *, name: str | None = None) -> float:
        """Returns the mean of `function` over rows, in [0, 1], of the training rows or of the holdout.

        The function is called with a data set, or with the parts of one as in `function(X, y)`, and returns
        one value in [0, 1] per row. Where the means of training rows and holdout agree, the answer is
        exactly that of the training rows; where they do not, it is that of the holdout plus noise.

        >>> import numpy as np
        >>> guard = ReusableHoldout(np.arange(100) / 100, np.zeros(1000), budget=5)
        >>> abs(guard.query(lambda rows: rows, name="mean")) < 0.3
        True
        >>> guard.log[0].name, guard.log[0].source
        ('mean', 'holdout')
        """
        title = name if name is not None else str(getattr(function, "__name__", "question"))
        return self._ask(ask_about_mean(function, name=title), self._train, self._probes)

    def scorer(
        self,
        metric: Literal["accuracy", "roc_auc"] | Callable[..., object] = "accuracy",
        *,
        response: Response = "predict",
        name: str | None = None,
    ) -> Scorer:
        """Returns a score function for model selection, as scikit-learn's `scoring=`.

        It compares the score on the rows it is given with the score on the holdout; see `Scorer`. A callable
        metric gets (labels, predictions) and returns one value in [0, 1] per row.

        >>> import numpy as np
        >>> class Majority:
        ...     def predict(self, X):
        ...         return np.zeros(len(X))
        >>> X, y = np.zeros((200, 1)), np.arange(200) % 2
        >>> guard = ReusableHoldout((X[:100], y[:100]), (X[100:], y[100:]), budget=10)
        >>> abs(guard.scorer("accuracy")(Majority(), X[:50], y[:50]) - 0.5) < 0.4
        True
        """
        if self._holdout.parts != 2:
            raise QuestionRefused("a scorer needs train and holdout as pairs (X, y)")
        counts = class_counts(self._train, self._holdout) if metric == "roc_auc" else None
        return Scorer(self._ask_about, metric=metric, response=response, name=name, counts=counts)

    def __repr__(self) -> str:
        plan, asked, used = self.plan, self._mechanism.asked, self.plan.budget - self.budget_left
        return (
            f"ReusableHoldout({len(self._holdout)} rows withheld, {asked} of {plan.questions} questions "
            f"asked, {used} of {plan.budget} answers from the holdout)"
        )

    def _ask_about(self, question: Question, data: tuple[object, object]) -> float:
        given = RowSet(data, name="the rows given to the scorer")
        check_same_columns(given, self._holdout)
        return self._ask(question, given, given.take(probe_places(len(given))))

    def _ask(self, question: Question, given: RowSet, probes: RowSet) -> float:
        self._mechanism.check()
        values = measure_public(question, given, timeout=self._timeout)
        if not self._single:
            check_row_by_row(question, values, given, probes, timeout=self._timeout)
        public = question.public(values, given)
        number = self._mechanism.begin()
        sealed = measure_sealed(question, self._holdout, single=self._single, timeout=self._timeout)
        if sealed is None:
            self._mechanism.refuse()
            self._log.append(Answer(number=number, name=question.name, value=None, source="refused"))
            raise QuestionRefused(_FAULT)
        value, overfit = self._mechanism.answer(public, sealed, question.weight)
        source: Literal["train", "holdout"] = "holdout" if overfit else "train"
        self._log.append(Answer(number=number, name=question.name, value=value, source=source))
        return value


def _choose_plan(
    plan: HoldoutPlan | None, rows: int, budget: int | None, questions: int | None
) -> HoldoutPlan:
    if plan is None:
        if budget is None:
            raise RecipeError("say how many answers may come from the holdout: budget=..., or give a plan")
        return plan_holdout(rows, questions=rows if questions is None else questions, budget=budget)
    if budget is not None or questions is not None:
        raise RecipeError("a plan says its budget and its questions; give either a plan or those")
    if plan.rows != rows:
        raise RecipeError(f"the plan is for {plan.rows} holdout rows, but the holdout has {rows}")
    return plan


_UNSCORED = (
    "the submission could not be scored: the score must be one value in [0, 1] per row, whatever the labels "
    "are. What went wrong is not told, since it would tell about the labels"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One line of a leaderboard's log, all of it public: the best score after a submission."""

    number: int
    name: str
    score: float
    improved: bool


class Leaderboard(Withheld):
    """A leaderboard over labels that nobody may look at (the Ladder of Blum and Hardt, 2015).

    It shows a new score only if it beats the one shown by more than `step`, and rounds it to
    whole steps. A step is 1 over a whole number; by default about 1 / sqrt(rows).

    `score` gets (labels, predictions) and returns one value in [0, 1] per row; by default whether they
    are equal. `submissions` is the most that are scored.

    No noise is added: a leaderboard keeps scores honest, and is not differentially private.

    >>> board = Leaderboard([0, 1, 1, 0, 1, 0, 1, 1], step="1/4")
    >>> board.submit([0, 1, 1, 0, 0, 1, 0, 0], name="first")
    0.5
    >>> board.submit([0, 1, 1, 0, 0, 1, 0, 1], name="one more, less than a step")
    0.5
    >>> board.submit([0, 1, 1, 0, 1, 0, 1, 1], name="all right")
    1.0
    """

    __slots__ = ("_labels", "_lock", "_log", "_score", "_shown", "step", "submissions")

    def __init__(
        self,
        holdout_labels: object,
        *,
        step: ExactLike | None = None,
        score: Callable[..., object] | None = None,
        submissions: int = 10**6,
    ) -> None:
        self._labels = RowSet(holdout_labels, name="the labels", own=True)
        if self._labels.parts != 1:
            raise RecipeError("a leaderboard has one set of labels")
        rows = len(self._labels)
        self.step = _choose_step(step, rows)
        self.submissions = parse_whole(submissions, name="submissions", high=MOST)
        self._score = match_labels if score is None else score
        self._shown: Fraction | None = None
        self._lock = threading.Lock()
        self._log: list[Standing] = []

    @property
    def score(self) -> float | None:
        """The score that is shown, None before the first submission."""
        return None if self._shown is None else float(self._shown)

    @property
    def log(self) -> tuple[Standing, ...]:
        """All submissions so far, all public."""
        return tuple(self._log)

    def submit(self, predictions: object, *, name: str | None = None) -> float:
        """Scores a submission, and returns the score that is shown then, of the best one so far."""
        guess = RowSet(predictions, name="the predictions")
        if guess.parts != 1 or len(guess) != len(self._labels):
            raise QuestionRefused(f"a submission is one prediction for each of {len(self._labels)} rows")
        with self._lock:
            if len(self._log) >= self.submissions:
                raise HoldoutSpent(
                    f"the leaderboard is closed: all {self.submissions} submissions were scored"
                )
            values = self._measure(guess)
            if values is None:
                raise QuestionRefused(_UNSCORED)
            improved = self._improve(values)
            shown = float(self._shown if self._shown is not None else 0)
            number = len(self._log) + 1
            title = name if name is not None else f"submission {number}"
            self._log.append(Standing(number=number, name=title, score=shown, improved=improved))
            return shown

    def __repr__(self) -> str:
        return (
            f"Leaderboard({len(self._labels)} labels withheld, "
            f"{len(self._log)} submissions, score={self.score})"
        )

    def _measure(self, guess: RowSet) -> Sealed[NDArray[np.int64]] | None:
        score = self._score
        mean = ask_about_mean(lambda labels: score(labels, *guess.arguments()), name="submission")
        question = replace(mean, private=lambda values, rows: values)
        return measure_sealed(question, self._labels, single=False, timeout=None)

    def _improve(self, values: Sealed[NDArray[np.int64]]) -> bool:
        exact = Fraction(int(values.open().sum()), len(self._labels) * GRID)
        if self._shown is not None and exact <= self._shown + self.step:
            return False
        self._shown = self.step * math.floor(exact / self.step + Fraction(1, 2))
        return True


def ladder_error(*, rows: int, step: ExactLike, submissions: int, failure: ExactLike = 0.05) -> float:
    """Returns a bound on how far the shown score is from the best true one, after any adaptive submissions.

    It fails with a probability of at most `failure`; the true score of a submission is its expectation on
    fresh rows. Proof: docs/proofs/holdout.md.

    >>> round(ladder_error(rows=100_000, step="1/20", submissions=1000), 3)
    0.074
    """
    size = _choose_step(step, rows)
    rows = parse_whole(rows, name="rows", high=MOST)
    submissions = parse_whole(submissions, name="submissions", high=MOST)
    chance = float(parse_positive(failure, name="failure"))
    shown = size.denominator + 1
    paths = math.lgamma(submissions + shown + 1) - math.lgamma(submissions + 1) - math.lgamma(shown + 1)
    logarithm = math.log(2 * submissions / chance) + paths
    return float(size) + math.sqrt(max(0.0, logarithm) / (2 * rows))


def _choose_step(step: ExactLike | None, rows: int) -> Fraction:
    if step is None:
        return Fraction(1, max(1, math.isqrt(rows)))
    size = parse_positive(step, name="step")
    if size > 1:
        raise RecipeError("step must be at most 1")
    return Fraction(1, math.floor(1 / size))
