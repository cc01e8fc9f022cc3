"""How a guard will answer: threshold, noise, and how many questions, fixed before the first of them."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, parse_exact, parse_positive
from sfumato.holdout.statement import Accuracy, HoldoutPrivacy, state_accuracy, state_privacy
from sfumato.holdout.values import GRID
from sfumato.noise import Kind, make_law

Constants = Literal["practical", "theorem", "own"]

_MOST = 10**9


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
            object.__setattr__(self, name, parse_whole(getattr(self, name), name=name))
        unit = self.rows * GRID
        threshold = parse_exact(self.threshold, name="threshold")
        sigma = parse_positive(self.sigma, name="sigma")
        if threshold < 0:
            raise RecipeError("threshold must not be negative")
        if self.constants not in get_args(Constants):
            raise RecipeError(
                f"constants must be one of {get_args(Constants)}, got {str(self.constants)[:40]!r}"
            )
        object.__setattr__(self, "threshold", Fraction(round(threshold * unit), unit))
        object.__setattr__(self, "sigma", Fraction(math.ceil(sigma * unit), unit))
        make_law(self.noise, 4 * self.sigma_steps)  # a law too wide to draw is refused now, not at a question

    @property
    def sigma_steps(self) -> int:
        """Sigma in the steps of a sum over the holdout."""
        return int(self.sigma * self.rows * GRID)

    @property
    def threshold_steps(self) -> int:
        """The threshold in the steps of a sum over the holdout."""
        return int(self.threshold * self.rows * GRID)

    def privacy(self, *, delta: ExactLike = Fraction(1, 10**6)) -> HoldoutPrivacy:
        """What all answers together promise to one row of the holdout; see `HoldoutPrivacy`.

        >>> plan = plan_holdout(5000, questions=1000, budget=100)
        >>> statement = plan.privacy()
        >>> statement.epsilon is None, round(float(statement.rho), 4), round(statement.epsilon_at_delta, 2)
        (True, 0.11, 2.1)
        """
        return state_privacy(self, delta=delta)

    def accuracy(self, *, failure: ExactLike = Fraction(1, 20)) -> Accuracy:
        """How far the answers can be proved to stay from the truth; see `Accuracy`.

        >>> plan_holdout(5000, questions=1000, budget=100).accuracy().error is None
        True
        >>> plan_holdout(10**7, questions=1000, budget=100).accuracy().error
        0.0309
        """
        return state_accuracy(self, failure=failure)

    def describe(self) -> str:
        """The plan in a few lines, with what it does and does not promise.

        >>> print(plan_holdout(5000, questions=1000, budget=100).describe())
        5000 holdout rows, practical constants: threshold 0.05657, gaussian noise, sigma 0.01414
        at most 1000 questions, of which at most 100 are answered from the holdout
        holdout: rho 0.11 for one row replaced, epsilon 2.1 at delta 1e-06
        training rows: not protected
        accuracy: no bound below 1 is proved at 5000 rows
        """
        accuracy = self.accuracy()
        proved = (
            f"no bound below 1 is proved at {self.rows} rows"
            if accuracy.error is None
            else f"all means within {accuracy.error:.4g}, with probability {1 - accuracy.failure}"
        )
        return "\n".join(
            [
                f"{self.rows} holdout rows, {self.constants} constants: "
                f"threshold {float(self.threshold):.4g}, {self.noise} noise, sigma {float(self.sigma):.4g}",
                f"at most {self.questions} questions, of which at most {self.budget} are answered from the "
                f"holdout",
                self.privacy().describe(),
                "training rows: not protected",
                f"accuracy: {proved}",
            ]
        )


def plan_holdout(
    rows: int,
    *,
    questions: int,
    budget: int,
    constants: Constants = "practical",
    tolerance: ExactLike | None = None,
    failure: ExactLike = Fraction(1, 20),
) -> HoldoutPlan:
    """The plan for a holdout of so many rows and so many adaptive questions.

    "practical": threshold 4 / sqrt(rows) and Gaussian noise of sigma 1 / sqrt(rows), as in the published
    experiment. It works from a few hundred rows on, and little is proved about it.

    "theorem": threshold 3/4 tolerance and Laplace noise of sigma tolerance / (96 ln(4 questions / failure)),
    as in the theorem of Dwork and others (2015). With probability 1 - `failure` all answers about means are
    within the tolerance; the least one that can be proved for so many rows is taken if none is given. Too few
    rows are refused.

    >>> plan = plan_holdout(10_000, questions=500, budget=50)
    >>> float(plan.threshold), float(plan.sigma), plan.noise
    (0.04, 0.01, 'gaussian')
    >>> plan = plan_holdout(10**8, questions=500, budget=5, constants="theorem")
    >>> plan.noise, round(float(plan.threshold / Fraction(3, 4)), 2)
    ('laplace', 0.03)
    """
    rows, questions = parse_whole(rows, name="rows"), parse_whole(questions, name="questions")
    budget = parse_whole(budget, name="budget")
    if constants == "practical":
        if tolerance is not None:
            raise RecipeError("a tolerance is promised by constants='theorem' only")
        return _plan_practical(rows, questions, budget)
    if constants != "theorem":
        raise RecipeError(f"constants must be 'practical' or 'theorem', got {str(constants)[:40]!r}")
    chance = parse_positive(failure, name="failure")
    if chance >= 1:
        raise RecipeError("failure must lie below one")
    wanted = None if tolerance is None else parse_positive(tolerance, name="tolerance")
    return _plan_theorem(rows, questions, budget, wanted, chance)


def _plan_practical(rows: int, questions: int, budget: int) -> HoldoutPlan:
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


def _plan_theorem(
    rows: int, questions: int, budget: int, tolerance: Fraction | None, failure: Fraction
) -> HoldoutPlan:
    wanted = _least_tolerance(rows, questions, budget, failure) if tolerance is None else tolerance
    if wanted is not None and _holds(rows, questions, budget, wanted, failure):
        return _make_theorem(rows, questions, budget, wanted, failure)
    goal = Fraction(1, 10) if tolerance is None else tolerance
    needed = rows
    while needed <= _MOST and not _holds(needed, questions, budget, goal, failure):
        needed *= 2
    takes = f"up to {needed}" if needed <= _MOST else "more than 10^9"
    raise RecipeError(
        f"the theorem does not reach a tolerance of {float(goal):g} with {rows} rows; that takes {takes} "
        f"rows for these questions and this budget. Ask fewer questions, or take constants='practical', "
        f"which work with far fewer rows and promise little"
    )


def _make_theorem(
    rows: int, questions: int, budget: int, tolerance: Fraction, failure: Fraction
) -> HoldoutPlan:
    logarithm = math.log(4 * questions / float(failure))
    return HoldoutPlan(
        rows=rows,
        questions=questions,
        budget=budget,
        threshold=tolerance * 3 / 4,
        sigma=tolerance / (96 * Fraction(logarithm)),
        noise="laplace",
        constants="theorem",
    )


def _holds(rows: int, questions: int, budget: int, tolerance: Fraction, failure: Fraction) -> bool:
    plan = _make_theorem(rows, questions, budget, tolerance, failure)
    error = state_accuracy(plan, failure=failure).error
    return error is not None and error <= tolerance


def _least_tolerance(rows: int, questions: int, budget: int, failure: Fraction) -> Fraction | None:
    low, high = 0, 4096
    if not _holds(rows, questions, budget, Fraction(1), failure):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = _holds(rows, questions, budget, Fraction(middle, 4096), failure)
        low, high = (low, middle) if enough else (middle, high)
    return Fraction(high, 4096)


def _root_up(square: int) -> int:
    root = math.isqrt(square)
    return root + (root * root < square)


def parse_whole(value: object, *, name: str) -> int:
    """The whole number from 1 to a billion that `value` is."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if not 1 <= number <= _MOST:
        raise RecipeError(f"{name} must be a whole number between 1 and 10^9, got {str(value)[:40]!r}")
    return number
