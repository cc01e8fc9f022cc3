"""The averaging attack: one count asked over and over until its noise is averaged away, and why it fails."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

from sfumato.attack.clinic import SECRET, Reply, noise_deviation, open_clinic
from sfumato.attack.link import INTERNAL
from sfumato.errors import AttackError, BudgetExceeded
from sfumato.exact import NORMAL_95, ExactLike, format_exact

_HALF = 0.5
_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageAttack:
    """What asking the same count over and over gave.

    `repeats` replies to one statement, word for word; then `reworded` replies to statements that mean
    the same and are not the same, each paid for, until the budget was spent.
    """

    condition: str
    exact: int
    epsilon: Fraction
    budget: Fraction
    repeats: tuple[Reply, ...]
    reworded: tuple[Reply, ...]
    refused: bool

    @property
    def different(self) -> int:
        """How many different values the repeats gave."""
        return len({reply.value for reply in self.repeats})

    @property
    def repeats_spent(self) -> Fraction:
        """What all the repeats cost together."""
        return sum((reply.spent for reply in self.repeats), Fraction(0))

    @property
    def spent(self) -> Fraction:
        """What everything cost together."""
        return self.repeats_spent + sum((reply.spent for reply in self.reworded), Fraction(0))

    @property
    def paid(self) -> int:
        """How many replies had noise of their own."""
        return 1 + len(self.reworded)

    @property
    def estimate(self) -> float:
        """The mean of all replies with noise of their own."""
        return fmean([self.repeats[0].value, *(reply.value for reply in self.reworded)])

    @property
    def deviation(self) -> float:
        """The standard deviation of the estimate, from the law of the noise."""
        return noise_deviation(self.epsilon) / math.sqrt(self.paid)

    @property
    def careless_deviation(self) -> float:
        """What it would be if each repeat had fresh noise and nobody kept a ledger."""
        return noise_deviation(self.epsilon) / math.sqrt(len(self.repeats))

    @property
    def careless_repeats(self) -> int:
        """How many repeats would give the exact count away then, 95 times in 100."""
        return math.ceil((NORMAL_95 * noise_deviation(self.epsilon) / _HALF) ** 2)

    def to_record(self) -> dict[str, Any]:
        """The attack for JSON."""
        return {
            "internal": INTERNAL,
            "attack": "average",
            "condition": self.condition,
            "plain_sql": self.exact,
            "epsilon": format_exact(self.epsilon),
            "budget": format_exact(self.budget),
            "repeats": {
                "asked": len(self.repeats),
                "different": self.different,
                "spent": format_exact(self.repeats_spent),
                "reply": self.repeats[0].to_record(),
            },
            "reworded": [reply.to_record() for reply in self.reworded],
            "estimate": self.estimate,
            "deviation": self.deviation,
            "spent": format_exact(self.spent),
            "refused": self.refused,
            "without_ledger": {"deviation": self.careless_deviation, "repeats": self.careless_repeats},
        }


def run_average(
    *, epsilon: ExactLike = "0.1", budget: ExactLike = 1, repeats: int = 50, people: int = 2000
) -> AverageAttack:
    """The attack on an invented clinic in a temporary folder, until its budget is spent.

    >>> attack = run_average(epsilon="0.5", budget=1, repeats=5)
    >>> attack.different, attack.repeats_spent, attack.paid, attack.refused
    (1, Fraction(1, 2), 2, True)
    """
    if not 1 <= repeats <= _MOST:
        raise AttackError(f"the statement is repeated from 1 to {_MOST:,} times")
    with tempfile.TemporaryDirectory() as folder:
        clinic = open_clinic(Path(folder), epsilon=epsilon, budget=budget, people=people)
        condition = f"diagnosis = '{SECRET}'"
        asked = tuple(clinic.ask(condition) for _ in range(repeats))
        reworded: list[Reply] = []
        refused = False
        while not refused:
            try:
                reworded.append(clinic.ask(f"{condition} AND age > -{1 + len(reworded)}"))
            except BudgetExceeded:
                refused = True
        return AverageAttack(
            condition=condition,
            exact=clinic.count(condition),
            epsilon=clinic.epsilon,
            budget=clinic.budget,
            repeats=asked,
            reworded=tuple(reworded),
            refused=refused,
        )
