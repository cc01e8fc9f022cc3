"""Privacy accounting: what mechanisms cost, what a budget admits, and the ledger that enforces it.

`cost` describes one use of a mechanism, `curves` converts between currencies, `sampling` composes noise on
samples, `filter` and `budget` decide whether a charge fits, `parallel` adds up over disjoint parts of the
people, `chain` seals charges one to the next, `ledger` keeps them in a `store` or in `postgres`.
"""

import math
from fractions import Fraction

from sfumato.core.cost.budget import (
    Amount,
    Budget,
    Spent,
    add_costs,
    admits,
    describe_charge,
    describe_costs,
    left,
    read_epsilon,
)
from sfumato.core.cost.cost import Cost, CostKind
from sfumato.core.cost.curves import (
    PLACES,
    bisect_floats,
    discrete_gaussian_sigma,
    discrete_laplace_rho,
    exponential_mu,
    exponential_rho,
    gaussian_sigma,
    histogram_sensitivity,
    largest_pure,
    max_mu,
    mu_to_delta,
    mu_to_epsilon,
    mu_to_pure,
    open_delta,
    pure_to_mu,
    pure_to_rho,
    rho_to_delta,
    rho_to_epsilon,
    selection_threshold,
    sqrt_up,
)
from sfumato.core.cost.parallel import Allowance
from sfumato.core.cost.sampling import SampledRun
from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, parse_exact, parse_positive, parse_whole
from sfumato.core.ledger.chain import Anchor, Entry, parse_anchor
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.ledger.report import BudgetReport
from sfumato.core.ledger.store import find_store, locate_ledger

__all__ = [
    "Allowance",
    "Amount",
    "Anchor",
    "Budget",
    "BudgetReport",
    "Cost",
    "CostKind",
    "Entry",
    "Ledger",
    "Spent",
    "add_costs",
    "admits",
    "describe_charge",
    "describe_costs",
    "discrete_gaussian_delta",
    "discrete_gaussian_sigma",
    "discrete_laplace_rho",
    "exponential_mu",
    "exponential_rho",
    "find_store",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "histogram_sensitivity",
    "left",
    "locate_ledger",
    "max_mu",
    "max_rho",
    "mu_to_delta",
    "mu_to_epsilon",
    "mu_to_pure",
    "parse_anchor",
    "pure_to_mu",
    "pure_to_rho",
    "read_epsilon",
    "rho_to_delta",
    "rho_to_epsilon",
    "rho_to_pure",
    "sampled_delta",
    "selection_threshold",
    "sqrt_up",
]


def gaussian_delta(
    *, epsilon: ExactLike, sigma: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The delta of `count` Gaussian mechanisms at `epsilon`, never below the true value.

    *Privacy:* exact for continuous noise (Balle and Wang 2018; Dong, Roth and Su 2022); the
    sensitivity is in the L2 norm. For the discrete noise see `discrete_gaussian_sigma`.

    >>> round(gaussian_delta(epsilon=1, sigma=5739.36, sensitivity=150, count=66), 10)
    8.48e-08
    """
    return mu_to_delta(_mu(sigma, sensitivity, count), epsilon)


def gaussian_epsilon(
    *, delta: ExactLike, sigma: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The least epsilon of `count` Gaussian mechanisms at `delta`, rounded up.

    >>> round(gaussian_epsilon(delta=2.5e-5, sigma=5739.36, sensitivity=150, count=66), 4)
    0.7247
    """
    return mu_to_epsilon(_mu(sigma, sensitivity, count), delta)


def discrete_gaussian_delta(*, epsilon: ExactLike, sigma: ExactLike, sensitivity: int = 1) -> float:
    """The exact delta of one number with discrete Gaussian noise, to float accuracy.

    It is P[Y > t] - e^epsilon P[Y > t + s] with t = epsilon sigma^2 / s - s / 2 (Canonne, Kamath
    and Steinke 2020, Theorem 7), summed term by term so that nothing cancels.

    >>> round(discrete_gaussian_delta(epsilon=1, sigma=5), 9)
    1.8e-08
    >>> round(discrete_gaussian_delta(epsilon=1, sigma=5, sensitivity=5), 6)
    0.127523
    """
    exact = parse_exact(epsilon, name="epsilon")
    variance = parse_positive(sigma, name="sigma") ** 2
    if parse_whole(sensitivity, name="sensitivity") > 10**7 or variance > 10**14:
        raise RecipeError("the sum for discrete Gaussian noise is meant for sigma and sensitivity to 1e7")
    first = math.floor(exact * variance / sensitivity - Fraction(sensitivity, 2)) + 1
    width = 2 * float(variance)
    reach = math.ceil(40 * math.sqrt(float(variance))) + 1
    total = math.fsum(math.exp(-k * k / width) for k in range(-reach, reach + 1))
    return (
        math.fsum(
            -math.exp(-k * k / width) * math.expm1(float(exact) - (2 * k + sensitivity) * sensitivity / width)
            for k in range(max(first, -reach), max(first, 0) + reach)
        )
        / total
    )


def sampled_delta(*, epsilon: ExactLike, sigma: ExactLike, sampling: ExactLike, count: int = 1) -> float:
    """The delta at `epsilon` of `count` Gaussian mechanisms, each on a Poisson sample; rounded up.

    Privacy: one individual is added or removed, and moves the sum of a sample by at most 1 in L2; sigma is
    that of continuous noise, or sqrt(variance - 4) of discrete noise in grid steps.

    >>> sampled_delta(epsilon=3, sigma=5, sampling="0.5", count=60) < 6.2e-5
    True
    """
    exact = Fraction(parse_positive(sampling, name="sampling"))
    return SampledRun(sigma=float(parse_positive(sigma, name="sigma")), sampling=exact, count=count).delta(
        epsilon
    )


def rho_to_pure(rho: ExactLike) -> Fraction:
    """The largest pure epsilon, rounded down, that costs at most `rho` as a pure mechanism.

    >>> float(rho_to_pure(pure_to_rho(Fraction(1))))
    1.0
    """
    limit = parse_exact(rho, name="rho")
    return largest_pure(lambda epsilon: pure_to_rho(epsilon) <= limit, _pure_guess(float(limit)))


def max_rho(epsilon: ExactLike, delta: ExactLike) -> Fraction:
    """The largest rho, a hair less, that `rho_to_epsilon` converts to at most `epsilon`.

    The hair, one part in 10^12, lets the rates of a plan be rounded up one by one and still fit.

    >>> round(float(max_rho(1, 2.5e-5)), 9), rho_to_epsilon(max_rho(1, 2.5e-5), 2.5e-5) <= 1
    (0.033937959, True)
    """
    target = parse_positive(epsilon, name="epsilon")
    open_delta(delta)
    low, high = 0.0, 1e-18
    while rho_to_epsilon(high, delta) <= target:
        low, high = high, 2 * high
    low, _ = bisect_floats(lambda rho: rho_to_epsilon(rho, delta) > target, low, high)
    return Fraction(math.floor(Fraction(low * (1 - 1e-12)) * 10**PLACES), 10**PLACES)


def _mu(sigma: ExactLike, sensitivity: ExactLike, count: int) -> float:
    ratio = parse_positive(sensitivity, name="sensitivity") / parse_positive(sigma, name="sigma")
    return math.sqrt(parse_whole(count, name="count")) * float(ratio)


def _pure_guess(rho: float) -> float:
    high = rho + 2 * math.sqrt(max(rho, 0.0)) + 1
    return bisect_floats(lambda epsilon: epsilon * math.tanh(epsilon / 2) > rho, 0.0, high)[0]
