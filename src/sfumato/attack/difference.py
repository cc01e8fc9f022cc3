"""The difference attack: two harmless counts whose difference is a person's secret, and why it fails."""

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
from sfumato.errors import BudgetExceeded
from sfumato.exact import ExactLike, format_exact
from sfumato.explain import Guarantee, belief_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceAttack:
    """What the attack got from plain SQL, and from DP-SELECT until the budget was spent.

    `exact` are the counts with and without the target, `rounds` pairs of noisy ones. `belief` bounds
    the belief in the secret after everything that was answered, for whoever believed one half.
    """

    conditions: tuple[str, str]
    exact: tuple[int, int]
    epsilon: Fraction
    budget: Fraction
    rounds: tuple[tuple[Reply, Reply], ...]
    spent: Fraction
    refused: bool
    belief: tuple[float, float]

    @property
    def exact_difference(self) -> int:
        """The secret, as plain SQL gives it away: 1 for yes."""
        return self.exact[0] - self.exact[1]

    @property
    def estimate(self) -> float:
        """The mean difference of the noisy counts."""
        return fmean(first.value - second.value for first, second in self.rounds)

    @property
    def deviation(self) -> float:
        """The standard deviation of the estimate, from the law of the noise."""
        return noise_deviation(self.epsilon) * math.sqrt(2 / len(self.rounds))

    def to_record(self) -> dict[str, Any]:
        """The attack for JSON."""
        return {
            "internal": INTERNAL,
            "attack": "difference",
            "conditions": list(self.conditions),
            "plain_sql": {"counts": list(self.exact), "difference": self.exact_difference},
            "epsilon": format_exact(self.epsilon),
            "budget": format_exact(self.budget),
            "rounds": [[reply.to_record() for reply in pair] for pair in self.rounds],
            "estimate": self.estimate,
            "deviation": self.deviation,
            "spent": format_exact(self.spent),
            "refused": self.refused,
            "belief": {"prior": 0.5, "low": self.belief[0], "high": self.belief[1]},
        }


def run_difference(
    *, epsilon: ExactLike = "0.1", budget: ExactLike = 1, people: int = 2000
) -> DifferenceAttack:
    """The attack on an invented clinic in a temporary folder, until its budget is spent.

    >>> attack = run_difference(epsilon="0.5", budget=2)
    >>> attack.exact_difference, len(attack.rounds), attack.refused
    (1, 2, True)
    """
    with tempfile.TemporaryDirectory() as folder:
        clinic = open_clinic(Path(folder), epsilon=epsilon, budget=budget, people=people, least=2)
        everybody = f"diagnosis = '{SECRET}'"
        others = f"{everybody} AND NOT ({clinic.target})"
        rounds: list[tuple[Reply, Reply]] = []
        spent, refused = Fraction(0), False
        while not refused:
            # The same statement again is the same answer, so each round words it anew.
            same = f" AND age > -{1 + len(rounds)}"
            try:
                first = clinic.ask(everybody + same)
                spent += first.spent
                second = clinic.ask(others + same)
                spent += second.spent
                rounds.append((first, second))
            except BudgetExceeded:
                refused = True
        # To change a value is to remove one record and to add another.
        changed = Guarantee(kind="epsilon", amount=2 * spent)
        return DifferenceAttack(
            conditions=(everybody, others),
            exact=(clinic.count(everybody), clinic.count(others)),
            epsilon=clinic.epsilon,
            budget=clinic.budget,
            rounds=tuple(rounds),
            spent=spent,
            refused=refused,
            belief=belief_bounds(changed, Fraction(1, 2)),
        )
