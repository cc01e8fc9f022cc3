"""How a guard will answer, fixed before the first question, and what that promises: proved bounds only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal, get_args

from sfumato.core.cost.budget import Spent, add_costs
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.curves import mu_to_epsilon, rho_to_epsilon, sqrt_up
from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, parse_exact, parse_positive, parse_whole
from sfumato.core.law import Kind, make_law
from sfumato.holdout.questions import GRID

Constants = Literal["practical", "own"]

MOST = 10**9
"""The most rows, questions, answers or submissions that a guard or a leaderboard is made for."""


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
        """Returns the statement in one line."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutPlan:
    """The parameters of one guard, as public facts.

    `questions` is the most that are answered at all, `budget` the most that are answered from the holdout.
    `threshold` and `sigma` are in units of the statistics, whose range is [0, 1]; sigma is rounded up to
    whole steps of the sums that the noise is drawn for. With Gaussian noise sigma is its standard deviation,
    with Laplace noise the scale of an answer, and comparisons and threshold have four and two times it.

    >>> plan = HoldoutPlan(rows=400, questions=50, budget=5, threshold="0.1", sigma="0.02")
    >>> float(plan.threshold), float(plan.sigma), plan.constants
    (0.1, 0.02, 'own')
    """

    rows: int
    questions: int
    budget: int
    threshold: Fraction
    sigma: Fraction
    noise: Kind = "gaussian"
    constants: Constants = "own"

    def __post_init__(self) -> None:
        for name in ("rows", "questions", "budget"):
            object.__setattr__(self, name, parse_whole(getattr(self, name), name=name, high=MOST))
        threshold = parse_exact(self.threshold, name="threshold")
        sigma = parse_positive(self.sigma, name="sigma")
        if threshold < 0:
            raise RecipeError("threshold must not be negative")
        if self.constants not in get_args(Constants):
            raise RecipeError(
                f"constants must be one of {get_args(Constants)}, got {str(self.constants)[:40]!r}"
            )
        object.__setattr__(self, "threshold", Fraction(round(threshold * self.unit), self.unit))
        object.__setattr__(self, "sigma", Fraction(math.ceil(sigma * self.unit), self.unit))
        make_law(self.noise, 4 * self.sigma_steps)  # a law too wide to draw is refused now, not at a question

    @property
    def unit(self) -> int:
        """The steps of a sum over the holdout that stand for a mean of 1."""
        return self.rows * GRID

    @property
    def sigma_steps(self) -> int:
        """Sigma in the steps of a sum over the holdout."""
        return int(self.sigma * self.unit)

    @property
    def threshold_steps(self) -> int:
        """The threshold in the steps of a sum over the holdout."""
        return int(self.threshold * self.unit)

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What everything that the plan allows to be answered costs one row of the holdout.

        Gaussian: each comparison and each answer from the holdout is a Gaussian mechanism. Laplace: between
        two answers from the holdout all comparisons together cost what one sparse vector costs, however many.
        """
        scale, step = Fraction(self.sigma_steps), Fraction(GRID)
        answers = self._answers
        cost = partial(Cost, neighbours="replace", unit="holdout row")
        if self.noise == "gaussian":
            count = self.questions + answers
            return (cost(kind="gaussian", scale=scale, sensitivity=step, count=count),)
        sparse = step / (2 * scale) + 2 * step / (4 * scale)
        return (
            cost(kind="pure", scale=sparse, count=answers),
            cost(kind="laplace", scale=scale, sensitivity=step, count=answers),
        )

    @property
    def _answers(self) -> int:
        return min(self.budget, self.questions)

    def privacy(self, *, delta: ExactLike = Fraction(1, 10**6)) -> HoldoutPrivacy:
        """Returns what all answers together promise to one row of the holdout; see `HoldoutPrivacy`.

        >>> plan = plan_holdout(5000, questions=1000, budget=100)
        >>> statement = plan.privacy()
        >>> statement.epsilon is None, round(float(statement.rho), 4), round(statement.epsilon_at_delta, 2)
        (True, 0.11, 2.1)
        """
        target = _parse_chance(delta, name="delta")
        spent = add_costs(Spent(), self.costs)
        least = _epsilon_at(spent, target)
        if spent.epsilon is not None:
            least = min(least, float(spent.epsilon))
        return HoldoutPrivacy(
            costs=self.costs, epsilon=spent.epsilon, rho=spent.rho, delta=target, epsilon_at_delta=least
        )

    def accuracy(self, *, failure: ExactLike = Fraction(1, 20)) -> Accuracy:
        """Gives the least error that the transfer theorem proves for all answers, rounded up; see `Accuracy`.

        Answers are near the means of the holdout unless some noise is large, and near the expectations
        because the answers are private: the two meet in the theorem of Jung and others (2020).

        >>> plan_holdout(5000, questions=1000, budget=100).accuracy().error is None
        True
        >>> plan_holdout(10**7, questions=1000, budget=100).accuracy().error
        0.0309
        """
        chance = _parse_chance(failure, name="failure")
        beta = float(chance)
        spent = add_costs(Spent(), self.costs)
        # The theorem holds for any c, d > 0; the best of these is near enough to the best of all.
        grid = [2.0 ** (-place / 2) for place in range(1, 60)]
        base = float(self.threshold) + 2.0 / GRID
        half = base + min(self._tail(beta * c / 2) + c for c in grid)
        found = half + min(math.expm1(min(_epsilon_at(spent, beta * d / 2), 50.0)) + 2 * d for d in grid)
        if spent.epsilon is not None and spent.epsilon < 50:
            whole = base + min(self._tail(beta * c) + c for c in grid)
            found = min(found, whole + math.expm1(float(spent.epsilon)))
        error = math.ceil(found * 10_000 * (1 + 1e-9)) / 10_000
        return Accuracy(error=error if error < 1 else None, failure=chance)

    def _tail(self, chance: float) -> float:
        """Returns what the noise of any comparison or answer exceeds with at most this chance."""
        sigma = float(self.sigma)
        if self.noise == "gaussian":
            return sigma * math.sqrt(2 * math.log(2 * (self.questions + self._answers) / chance))
        return 6 * sigma * math.log(2 * (self.questions + 2 * self._answers) / chance)

    def describe(self) -> str:
        """Returns the plan in a few lines, with what it does and does not promise.

        >>> print(plan_holdout(5000, questions=1000, budget=100).describe())
        5000 holdout rows, practical constants: threshold 0.05657, gaussian noise, sigma 0.01414
        at most 1000 questions, of which at most 100 are answered from the holdout
        holdout: rho 0.11 for one row replaced, epsilon 2.1 at delta 1e-06
        training rows: not protected
        accuracy: no bound below 1 is proved at 5000 rows
        """
        accuracy = self.accuracy()
        proved = f"no bound below 1 is proved at {self.rows} rows"
        if accuracy.error is not None:
            proved = f"all means within {accuracy.error:.4g}, with probability {1 - accuracy.failure}"
        return (
            f"{self.rows} holdout rows, {self.constants} constants: "
            f"threshold {float(self.threshold):.4g}, {self.noise} noise, sigma {float(self.sigma):.4g}\n"
            f"at most {self.questions} questions, of which at most {self.budget} are answered from the "
            f"holdout\n"
            f"{self.privacy().describe()}\n"
            f"training rows: not protected\n"
            f"accuracy: {proved}"
        )


def plan_holdout(
    rows: int,
    *,
    questions: int,
    budget: int,
) -> HoldoutPlan:
    """Returns the plan for a holdout of so many `rows` and so many adaptive `questions`.

    At most `budget` questions are answered from the holdout. The threshold is 4 / sqrt(rows) and the Gaussian
    noise has sigma 1 / sqrt(rows), as in the published experiment. It works from a few hundred rows on, and
    little is proved about it.

    >>> plan = plan_holdout(10_000, questions=500, budget=50)
    >>> float(plan.threshold), float(plan.sigma), plan.noise
    (0.04, 0.01, 'gaussian')
    """
    rows, questions = (
        parse_whole(given, name=name, high=MOST) for given, name in ((rows, "rows"), (questions, "questions"))
    )
    if rows <= 16:
        raise RecipeError(
            f"a holdout of {rows} rows is too small: the threshold 4 / sqrt(rows) is 1 or more, so that no "
            f"overfitting could ever be noticed; use at least 17 rows, better some hundreds"
        )
    unit = rows * GRID
    return HoldoutPlan(
        rows=rows,
        questions=questions,
        budget=budget,
        threshold=Fraction(_root_up(16 * rows * GRID**2), unit),
        sigma=Fraction(_root_up(rows * GRID**2), unit),
        constants="practical",
    )


def _epsilon_at(spent: Spent, delta: Fraction | float) -> float:
    found = rho_to_epsilon(spent.rho, delta)
    if spent.mu_squared is not None:
        found = min(found, mu_to_epsilon(sqrt_up(spent.mu_squared), delta))
    return found


def _parse_chance(value: ExactLike, *, name: str) -> Fraction:
    chance = parse_positive(value, name=name)
    if chance >= 1:
        raise RecipeError(f"{name} must lie below one")
    return chance


def _root_up(square: int) -> int:
    root = math.isqrt(square)
    return root + (root * root < square)
