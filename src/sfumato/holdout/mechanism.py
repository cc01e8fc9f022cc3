"""Thresholdout itself, in whole numbers: compare, answer, count."""

from __future__ import annotations

import threading
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn

from sfumato.errors import HoldoutSpent
from sfumato.holdout.sealed import Sealed
from sfumato.holdout.values import GRID
from sfumato.noise import discrete_gaussian, discrete_laplace

if TYPE_CHECKING:
    from sfumato.holdout.plan import HoldoutPlan


class Thresholdout:
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

    def __reduce__(self) -> NoReturn:
        raise TypeError("the state of a guard cannot be pickled")

    def check(self) -> None:
        """Raises the refusal to answer anything more."""
        if self.overfit + self.refused >= self.plan.budget:
            raise HoldoutSpent(
                f"the holdout is spent: all {self.plan.budget} answers that may come from it were given; "
                f"further answers could not be told from overfitting. Take a fresh holdout"
            )

    def begin(self) -> int:
        """The number of a new question, which is counted from now on whatever becomes of it."""
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
        """The answer, and whether it comes from the holdout.

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
    """The noise of a comparison, of an answer and of a new threshold."""
    if plan.noise == "gaussian":
        return _draw(plan, 1), _draw(plan, 1), 0
    return _draw(plan, 4), _draw(plan, 1), _draw(plan, 2)


def _draw(plan: HoldoutPlan, times: int) -> int:
    scale = times * plan.sigma_steps
    if plan.noise == "gaussian":
        return int(discrete_gaussian(sigma=scale, size=1)[0])
    return int(discrete_laplace(scale=scale, size=1)[0])
