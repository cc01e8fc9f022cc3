"""What it costs that a ledger has all rules: the least epsilon of a budget that admits a history, against the
best single rule with all of delta to itself. Run: python benchmarks/premium.py
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.accounting import (
    Budget,
    Cost,
    Spent,
    add_costs,
    admits,
    max_mu,
    mu_to_epsilon,
    rho_to_epsilon,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from helpers.rho import max_rho

if TYPE_CHECKING:
    from collections.abc import Sequence


def least_epsilon(costs: Sequence[Cost], delta: str, guess: float) -> float:
    """The least epsilon of a budget whose ledger admits `costs`, one charge each."""
    spent = Spent()
    for cost in costs:
        spent = add_costs(spent, [cost])
    low, high = guess / 50, guess * 4
    for _ in range(24):
        middle = math.sqrt(low * high)
        fits = admits(Budget(Fraction(middle).limit_denominator(10**9), delta), spent)
        low, high = (low, middle) if fits else (middle, high)
    return high


def best_rule(costs: Sequence[Cost], delta: str) -> tuple[float, str]:
    """The least epsilon of the single rules, and which it is."""
    spent = add_costs(Spent(), costs)
    readings = [(rho_to_epsilon(spent.rho, delta), "zcdp")]
    if spent.epsilon is not None:
        readings.append((float(spent.epsilon), "pure"))
    if spent.mu_squared is not None:
        readings.append((mu_to_epsilon(math.sqrt(spent.mu_squared), delta), "gaussian"))
    pure = sum((cost.epsilon for cost in costs if cost.epsilon is not None), Fraction(0))
    rest = sum((cost.mu_squared or Fraction(0) for cost in costs if cost.epsilon is None), Fraction(0))
    if rest:
        readings.append((float(pure) + mu_to_epsilon(math.sqrt(rest), delta), "split"))
    return min(readings)


def histories(epsilon: float, delta: str) -> dict[str, list[Cost]]:
    """Histories that a single rule admits at about `epsilon`."""
    mu, rho = max_mu(epsilon, delta), float(max_rho(epsilon, delta))
    found = {"10 gaussian": [_run(mu / math.sqrt(10))] * 10}
    for part in (1.05, 2, 5):
        size = 2 * rho / epsilon / part
        count = int(rho / (size * size / 2))
        found[f"{count} laplace"] = [_laplace(size)] * count
    size = 2 * rho / epsilon / 5
    count = int(rho / (size * size / 8))
    found[f"{count} exponential"] = [Cost(kind="exponential", scale=_exact(size))] * count
    for part in (0.25, 0.5, 0.8):
        gaussian = [_run(max_mu(epsilon * (1 - part), delta) / 2)] * 4
        found[f"pure {part}, 4 gaussian"] = [_pure(epsilon * part), *gaussian]
        found[f"4 pure {part / 4}, 4 gaussian"] = [_pure(epsilon * part / 4)] * 4 + gaussian
        found[f"4 gaussian, pure {part}"] = [*gaussian, _pure(epsilon * part)]
    return found


def main() -> None:
    """Prints the premium of every history at several budgets."""
    for delta in ("1e-3", "1e-6", "1e-9"):
        for epsilon in (0.3, 1.0, 4.0, 10.0):
            print(f"epsilon {epsilon}, delta {delta}")
            for name, costs in histories(epsilon, delta).items():
                _print(name, costs, delta)
        print(f"delta {delta}")
        _print("gaussian mu 1, then pure 1", [_run(1), _pure(1)], delta)


def _print(name: str, costs: list[Cost], delta: str) -> None:
    single, rule = best_rule(costs, delta)
    premium = least_epsilon(costs, delta, single) / single - 1
    print(f"  {name:28} {premium:+7.1%}  against {rule}")


def _exact(number: float) -> Fraction:
    return Fraction(number).limit_denominator(10**9)


def _run(mu: float) -> Cost:
    return Cost(kind="filter", scale=_exact(mu))


def _pure(epsilon: float) -> Cost:
    return Cost(kind="pure", scale=_exact(epsilon))


def _laplace(epsilon: float) -> Cost:
    return Cost(
        kind="laplace", scale=Fraction(20 / epsilon).limit_denominator(10**6), sensitivity=Fraction(20)
    )


if __name__ == "__main__":
    main()
