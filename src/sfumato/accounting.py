"""Privacy accounting: what mechanisms cost, what a budget admits, and the ledger that enforces it.

Noise for a target is found here; what it costs, the core derives from the noise. There `cost` describes one
use of a mechanism, `curves` converts between currencies, `sampling` composes noise on samples, `filter` and
`budget` decide whether a charge fits, `parallel` adds up over disjoint parts of the people, and `ledger`
keeps all of it, sealed in a `chain`, in a `store`.
"""

import math
from collections.abc import Callable
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
    MARGIN,
    PLACES,
    SMOOTHING,
    bisect_floats,
    discrete_laplace_rho,
    exponential_mu,
    exponential_rho,
    histogram_sensitivity,
    largest_mu,
    mu_to_delta,
    mu_to_epsilon,
    open_delta,
    pure_to_mu,
    pure_to_rho,
    rho_to_epsilon,
    rising_root,
    selection_threshold,
    sqrt_up,
)
from sfumato.core.cost.parallel import Allowance
from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, parse_exact, parse_positive, parse_whole, round_up
from sfumato.core.law import SHAPES, Kind
from sfumato.core.ledger.chain import Anchor, Entry, parse_anchor
from sfumato.core.ledger.ledger import Ledger
from sfumato.core.ledger.report import BudgetReport
from sfumato.core.ledger.store import find_store, locate_ledger

_FINE = 10**15

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
    from sfumato.core.cost.sampling import SampledRun  # loads numpy, which plans do without

    rate, deviation = parse_positive(sampling, name="sampling"), float(parse_positive(sigma, name="sigma"))
    return SampledRun(sigma=deviation, sampling=Fraction(rate), count=count).delta(epsilon)


def gaussian_sigma(
    *, epsilon: ExactLike, delta: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The least standard deviation for (epsilon, delta) after `count` mechanisms, rounded up.

    >>> round(gaussian_sigma(epsilon=1, delta=2.5e-5, sensitivity=150, count=66), 2)
    4290.24
    """
    total = math.sqrt(parse_whole(count, name="count")) * float(
        parse_positive(sensitivity, name="sensitivity")
    )
    return total / max_mu(epsilon, delta) * (1 + 1e-15)


def discrete_gaussian_sigma(
    *, epsilon: ExactLike, delta: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The sigma, in grid steps, at which discrete noise has what `gaussian_sigma` promises.

    *Privacy:* sqrt(sigma^2 + 4) for the continuous sigma, for vectors of any length and adaptive
    repetition: noise of that width is a randomised rounding of the continuous noise, up to a
    factor far inside the guard. A ledger that counts Gaussian privacy admits it.

    >>> round(discrete_gaussian_sigma(epsilon=10, delta=2.5e-5, sensitivity=200, count=66), 2)
    784.12
    """
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity, count=count)
    return math.hypot(sigma, math.sqrt(SMOOTHING)) * (1 + 1e-15)


def calibrate_scale(
    kind: Kind, *, sensitivity: Fraction, epsilon: Fraction, delta: Fraction, count: int = 1
) -> Fraction:
    """Returns the scale at which `count` noisy answers of this sensitivity cost epsilon and delta together.

    >>> calibrate_scale("laplace", sensitivity=Fraction(2), epsilon=Fraction(1), delta=Fraction(0), count=3)
    Fraction(6, 1)
    """
    if SHAPES[kind].norm == "L1":
        return sensitivity * count / epsilon
    sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=sensitivity, count=count)
    return round_up(sigma, places=6)


def mu_to_pure(mu_squared: ExactLike) -> Fraction:
    """The largest pure epsilon, rounded down, that is mu-Gaussian-private for this mu squared.

    >>> round(float(mu_to_pure(pure_to_mu(Fraction(1)) ** 2)), 9)
    1.0
    """
    limit = parse_exact(mu_squared, name="mu_squared")
    # The inverse of pure_to_mu, erf(t) = tanh(epsilon / 2); near 1 only erfc still has digits.
    t = math.sqrt(max(0.0, float(limit)) / 8)
    if t < 1:
        guess = 2 * math.atanh(math.erf(t))
    elif t < 26:
        guess = math.log(2 - math.erfc(t)) - math.log(math.erfc(t))
    else:
        guess = t * t
    return largest_pure(lambda epsilon: pure_to_mu(epsilon) ** 2 <= limit, guess)


def max_mu(epsilon: ExactLike, delta: ExactLike) -> float:
    """The largest mu, a hair less, whose delta at `epsilon` is at most `delta`.

    >>> mu_to_epsilon(max_mu(1, 1e-6), 1e-6) <= 1
    True
    """
    low = largest_mu(epsilon, delta)
    if low < 1e-12:
        raise RecipeError("epsilon and delta are too small for Gaussian noise to be calibrated")
    return low * (1 - 1e-12)


def rho_to_delta(rho: ExactLike, epsilon: ExactLike) -> float:
    """The delta that rho-zCDP gives at `epsilon`, rounded up.

    The best order solves (2x + 1) rho - ln(1 + 1/x) = epsilon.

    >>> round(rho_to_delta(0.1, 2), 9)
    4.325e-06
    """
    rate = float(parse_positive(rho, name="rho"))
    target = float(parse_exact(epsilon, name="epsilon"))
    if target < 0:
        raise RecipeError("epsilon must not be negative")
    x = rising_root(
        lambda x: (2 * x + 1) * rate - target - math.log1p(1 / x),
        1e-18,
        (target + 1) / rate + 10,
    )
    terms = (x * (1 + x) * rate, -x * target, -x * math.log1p(1 / x), -math.log1p(x))
    log = sum(terms) + MARGIN * (1 + sum(map(abs, terms)))
    return math.nextafter(math.exp(min(0.0, log)), math.inf)


def largest_pure(fits: Callable[[Fraction], bool], guess: float) -> Fraction:
    """`guess` rounded down to 15 places, and further down while the certain check refuses it."""
    units = math.floor(Fraction(guess) * _FINE)
    step = 1
    # The guess is a float: only the exact conversion, asked again, says that the result is on the safe side.
    while units > 0 and not fits(Fraction(units, _FINE)):
        units, step = units - step, 2 * step
    return Fraction(max(units, 0), _FINE)


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
