"""The Ladder: a leaderboard whose scores follow the best submission without being climbed by noise."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import HoldoutSpent, QuestionRefused, RecipeError
from sfumato.core.exact import ExactLike, Withheld, parse_positive, parse_whole
from sfumato.holdout.plan import MOST
from sfumato.holdout.questions import (
    GRID,
    RowSet,
    Sealed,
    ask_about_mean,
    match_labels,
    measure_sealed,
)

_FAULT = (
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

    `method="ladder"` shows a new score only if it beats the one shown by more than `step`, and rounds it to
    whole steps. A step is 1 over a whole number; by default about 1 / sqrt(rows). `method="parameter-free"`
    shows a new score only if it beats the best submission by more than a standard error of their difference.

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

    __slots__ = ("_best", "_labels", "_lock", "_log", "_score", "_shown", "method", "step", "submissions")

    def __init__(
        self,
        holdout_labels: object,
        *,
        step: ExactLike | None = None,
        method: Literal["ladder", "parameter-free"] = "ladder",
        score: Callable[..., object] | None = None,
        submissions: int = 10**6,
    ) -> None:
        if method not in ("ladder", "parameter-free"):
            raise RecipeError(f"method must be 'ladder' or 'parameter-free', got {str(method)[:40]!r}")
        if method == "parameter-free" and step is not None:
            raise RecipeError("the parameter-free ladder has no step")
        self._labels = RowSet(holdout_labels, name="the labels", own=True)
        if self._labels.parts != 1:
            raise RecipeError("a leaderboard has one set of labels")
        rows = len(self._labels)
        self.method = method
        self.step = None if method != "ladder" else _choose_step(step, rows)
        self.submissions = parse_whole(submissions, name="submissions", high=MOST)
        self._score = match_labels if score is None else score
        self._shown: Fraction | None = None
        self._best: Sealed[NDArray[np.int64]] | None = None
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
                raise QuestionRefused(_FAULT)
            improved = self._improve(values)
            shown = float(self._shown if self._shown is not None else 0)
            number = len(self._log) + 1
            title = name if name is not None else f"submission {number}"
            self._log.append(Standing(number=number, name=title, score=shown, improved=improved))
            return shown

    def __repr__(self) -> str:
        return (
            f"Leaderboard({len(self._labels)} labels withheld, method={self.method!r}, "
            f"{len(self._log)} submissions, score={self.score})"
        )

    def _measure(self, guess: RowSet) -> Sealed[NDArray[np.int64]] | None:
        score = self._score
        mean = ask_about_mean(lambda labels: score(labels, *guess.arguments()), name="submission")
        question = replace(mean, private=lambda values, rows: values)
        return measure_sealed(question, self._labels, single=False, timeout=None)

    def _improve(self, values: Sealed[NDArray[np.int64]]) -> bool:
        rows = len(self._labels)
        if self.step is not None:
            new = _climb(values, self._shown, self.step, rows)
        else:
            new = _climb_freely(values, self._best, rows)
        if new is None:
            return False
        self._shown, self._best = new, values
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


def _climb(
    values: Sealed[NDArray[np.int64]], shown: Fraction | None, step: Fraction, rows: int
) -> Fraction | None:
    exact = Fraction(int(values.open().sum()), rows * GRID)
    if shown is not None and exact <= shown + step:
        return None
    return step * math.floor(exact / step + Fraction(1, 2))


def _climb_freely(
    values: Sealed[NDArray[np.int64]], best: Sealed[NDArray[np.int64]] | None, rows: int
) -> Fraction | None:
    """Returns the new score if sum(d) > 0 and sum(d)^2 > sum(d^2) for the differences d of all rows.

    That is mean(d) > s / sqrt(rows) with the sample's standard deviation s, without a root.
    """
    count = Fraction(int(values.open().sum()), rows * GRID)
    shown = Fraction(round(count * rows), rows)
    if best is None:
        return shown
    apart = values.open() - best.open()
    total = int(apart.sum())
    # Halves of 48-bit squares are added apart, so that no sum leaves the 64-bit integers.
    squares = apart * apart
    spread = (int((squares >> 24).sum()) << 24) + int((squares & (GRID - 1)).sum())
    return shown if total > 0 and total * total > spread else None


def _choose_step(step: ExactLike | None, rows: int) -> Fraction:
    if step is None:
        return Fraction(1, max(1, math.isqrt(rows)))
    size = parse_positive(step, name="step")
    if size > 1:
        raise RecipeError("step must be at most 1")
    return Fraction(1, math.floor(1 / size))
