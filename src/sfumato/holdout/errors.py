"""The two ways in which a guarded holdout says no."""

from __future__ import annotations

from fractions import Fraction

from sfumato.errors import BudgetExceeded, SfumatoError


class HoldoutSpent(BudgetExceeded):
    """The guard has given all the answers it was planned for; take a fresh holdout."""

    def __init__(self, message: str) -> None:
        super().__init__(message, left=Fraction(0))


class QuestionRefused(SfumatoError, ValueError):
    """A question whose function does not give one bounded value per row."""

    exit_code = 2
