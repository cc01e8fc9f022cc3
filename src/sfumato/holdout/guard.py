"""The reusable holdout: a guard that answers many questions about rows that nobody may look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NoReturn

from sfumato.errors import QuestionRefused, RecipeError
from sfumato.exact import ExactLike, parse_positive
from sfumato.holdout.mechanism import Thresholdout
from sfumato.holdout.plan import HoldoutPlan, plan_holdout
from sfumato.holdout.rows import RowSet, check_same_columns
from sfumato.holdout.scorer import Response, Scorer, class_counts
from sfumato.holdout.values import (
    Question,
    ask_about_mean,
    check_row_by_row,
    measure_public,
    measure_sealed,
    probe_places,
)

if TYPE_CHECKING:
    from sfumato.holdout.statement import HoldoutPrivacy

_FAULT = (
    "the question could not be answered on the holdout: its function must return one value per row, in range "
    "and in time, whatever the rows hold. What went wrong is not told, since it would tell about the rows; "
    "the refusal counts like an answer from the holdout"
)


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


class ReusableHoldout:
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
    >>> guard.query(lambda X, y: X[:, 0] == y)
    0.5
    >>> guard
    ReusableHoldout(100 rows withheld, 1 of 100 questions asked, 0 of 10 answers from the holdout)
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
        """What all answers that the plan allows promise together to one row of the holdout.

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
        """The mean of `function` over rows, in [0, 1], of the training rows or of the holdout.

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
        """A score function for model selection: `scorer(estimator, X, y)`, as scikit-learn's `scoring=`.

        It compares the score on the rows it is given with the score on the holdout; see `Scorer`. A callable
        metric gets (labels, predictions) and returns one value in [0, 1] per row.

        >>> import numpy as np
        >>> class Majority:
        ...     def predict(self, X):
        ...         return np.zeros(len(X))
        >>> X, y = np.zeros((200, 1)), np.arange(200) % 2
        >>> guard = ReusableHoldout((X[:100], y[:100]), (X[100:], y[100:]), budget=10)
        >>> guard.scorer("accuracy")(Majority(), X[:50], y[:50])
        0.5
        """
        if self._holdout.parts != 2:
            raise QuestionRefused("a scorer needs train and holdout as pairs (X, y)")
        counts = None
        if metric == "roc_auc":
            counts = class_counts(self._train, self._holdout)
        return Scorer(self._ask_about, metric=metric, response=response, name=name, counts=counts)

    def __repr__(self) -> str:
        plan, asked, used = self.plan, self._mechanism.asked, self.plan.budget - self.budget_left
        return (
            f"ReusableHoldout({len(self._holdout)} rows withheld, {asked} of {plan.questions} questions "
            f"asked, {used} of {plan.budget} answers from the holdout)"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a guarded holdout cannot be pickled: a copy would have a budget of its own. Keep it in one "
            "process, for scikit-learn with n_jobs=1 or threads"
        )

    def __copy__(self) -> ReusableHoldout:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> ReusableHoldout:
        return self

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
