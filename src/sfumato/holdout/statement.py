"""What a plan promises: privacy of the holdout, and accuracy of the answers, each a proved bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from sfumato.accounting import Cost, Spent, add_costs, mu_to_epsilon, rho_to_epsilon, sqrt_up
from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, parse_positive
from sfumato.holdout.values import GRID

if TYPE_CHECKING:
    from sfumato.noise import Kind


class _Plan(Protocol):
    @property
    def rows(self) -> int: ...
    @property
    def questions(self) -> int: ...
    @property
    def budget(self) -> int: ...
    @property
    def threshold(self) -> Fraction: ...
    @property
    def sigma(self) -> Fraction: ...
    @property
    def noise(self) -> Kind: ...
    @property
    def sigma_steps(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutPrivacy:
    """What all answers that a plan allows promise together to one row of the holdout.

    Neighbours differ in one row, replaced by any other; the number of rows is public. `epsilon` is the pure
    one, None for Gaussian noise; `epsilon_at_delta` is the least that is proved at `delta`. Training rows
    are not protected. The statement is void once a question was refused because of holdout rows.
    Proof: docs/proofs/holdout.md.
    """

    costs: tuple[Cost, ...]
    epsilon: Fraction | None
    rho: Fraction
    delta: Fraction
    epsilon_at_delta: float

    def describe(self) -> str:
        """The statement in one line."""
        pure = "" if self.epsilon is None else f"epsilon {float(self.epsilon):.4g}, "
        return (
            f"holdout: {pure}rho {float(self.rho):.4g} for one row replaced, "
            f"epsilon {self.epsilon_at_delta:.3g} at delta {float(self.delta):.3g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """A bound on how far any answer about a mean is from its expectation, but for a chance of `failure`.

    `error` is None where no bound below 1 is proved. It holds for holdout rows drawn independently from one
    source, whatever questions are asked in view of earlier answers; not for areas under curves.
    """

    error: float | None
    failure: Fraction


def state_privacy(plan: _Plan, *, delta: ExactLike) -> HoldoutPrivacy:
    """The privacy of everything that the plan allows to be answered.

    Gaussian: each comparison and each answer from the holdout is a Gaussian mechanism. Laplace: between two
    answers from the holdout all comparisons together cost what one sparse vector costs, however many.
    """
    target = parse_positive(delta, name="delta")
    if target >= 1:
        raise RecipeError("delta must lie below one")
    costs = _costs(plan)
    spent = add_costs(Spent(), costs)
    found = [rho_to_epsilon(spent.rho, target)]
    if spent.mu_squared is not None:
        found.append(mu_to_epsilon(sqrt_up(spent.mu_squared), target))
    if spent.epsilon is not None:
        found.append(float(spent.epsilon))
    return HoldoutPrivacy(
        costs=costs, epsilon=spent.epsilon, rho=spent.rho, delta=target, epsilon_at_delta=min(found)
    )


def state_accuracy(plan: _Plan, *, failure: ExactLike) -> Accuracy:
    """The least error that the transfer theorem proves for all answers of the plan, rounded up.

    Answers are near the means of the holdout unless some noise is large, and near the expectations because
    the answers are private: the two meet in the theorem of Jung and others (2020).
    """
    chance = parse_positive(failure, name="failure")
    if chance >= 1:
        raise RecipeError("failure must lie below one")
    beta = float(chance)
    costs = _costs(plan)
    spent = add_costs(Spent(), costs)
    grid = [2.0 ** (-place / 2) for place in range(1, 60)]
    base = float(plan.threshold) + 2.0 / GRID
    half = base + min(_tail(plan, beta * c / 2) + c for c in grid)
    found = half + min(math.expm1(min(_epsilon(spent, beta * d / 2), 50.0)) + 2 * d for d in grid)
    if spent.epsilon is not None and spent.epsilon < 50:
        whole = base + min(_tail(plan, beta * c) + c for c in grid)
        found = min(found, whole + math.expm1(float(spent.epsilon)))
    error = math.ceil(found * 10_000 * (1 + 1e-9)) / 10_000
    return Accuracy(error=error if error < 1 else None, failure=chance)


def _costs(plan: _Plan) -> tuple[Cost, ...]:
    scale, step = Fraction(plan.sigma_steps), Fraction(GRID)
    answers = min(plan.budget, plan.questions)
    unit = "holdout row"
    if plan.noise == "gaussian":
        count = plan.questions + answers
        return (
            Cost(
                kind="gaussian", scale=scale, sensitivity=step, neighbours="replace", unit=unit, count=count
            ),
        )
    sparse = step / (2 * scale) + 2 * step / (4 * scale)
    return (
        Cost(kind="pure", scale=sparse, neighbours="replace", unit=unit, count=answers),
        Cost(kind="laplace", scale=scale, sensitivity=step, neighbours="replace", unit=unit, count=answers),
    )


def _tail(plan: _Plan, chance: float) -> float:
    """What the noise of a comparison or of an answer exceeds, in all of them, with at most this chance."""
    sigma, answers = float(plan.sigma), min(plan.budget, plan.questions)
    if plan.noise == "gaussian":
        return sigma * math.sqrt(2 * math.log(2 * (plan.questions + answers) / chance))
    return 6 * sigma * math.log(2 * (plan.questions + 2 * answers) / chance)


def _epsilon(spent: Spent, delta: float) -> float:
    found = [rho_to_epsilon(spent.rho, delta)]
    if spent.mu_squared is not None:
        found.append(mu_to_epsilon(sqrt_up(spent.mu_squared), delta))
    return min(found)
