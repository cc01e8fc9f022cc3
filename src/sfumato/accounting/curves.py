"""Gaussian noise: the exact trade of epsilon, delta and sigma, in one closed form.

With mu = sqrt(count) * sensitivity / sigma, a = epsilon/mu - mu/2 and b = epsilon/mu + mu/2,

    delta = Q(a) - e^epsilon Q(b) = phi(a) * (m(a) - m(b)),

where Q is the upper tail of the normal law, phi its density and m = Q / phi. The second form, in
logarithms, neither overflows for large epsilon nor vanishes for tiny delta. Every delta below is
rounded up by more than the floats can err, so a sigma found from it is never too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from sfumato.accounting.cost import PLACES, SMOOTHING, Cost, pure_to_mu, pure_to_rho, sqrt_up
from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, parse_exact, parse_positive, round_up
from sfumato.schema.table import Neighbours

_GUARD = 1e-13
_LARGEST_MU = 1e8


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


def gaussian_sigma(
    *, epsilon: ExactLike, delta: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The least standard deviation for (epsilon, delta) after `count` mechanisms, rounded up.

    >>> round(gaussian_sigma(epsilon=1, delta=2.5e-5, sensitivity=150, count=66), 2)
    4290.24
    """
    total = math.sqrt(_count(count)) * float(parse_positive(sensitivity, name="sensitivity"))
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
    if _count(sensitivity) > 10**7 or variance > 10**14:
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


def zcdp_sigma_bun_steinke(
    *, epsilon: ExactLike, delta: ExactLike, sensitivity: ExactLike = 1, count: int = 1
) -> float:
    """The sigma that the first zCDP conversion asks for: epsilon = rho + 2 sqrt(rho ln(1/delta)).

    Valid and wasteful (Bun and Steinke 2016); kept to check published figures.

    >>> round(zcdp_sigma_bun_steinke(epsilon=1, delta=2.5e-5, sensitivity=150, count=66), 2)
    5739.36
    """
    log = -log_of(_open_delta(delta))
    target = float(parse_positive(epsilon, name="epsilon"))
    root = target / (math.sqrt(log + target) + math.sqrt(log))
    total = math.sqrt(_count(count)) * float(parse_positive(sensitivity, name="sensitivity"))
    return total / (math.sqrt(2) * root)


def mu_to_delta(mu: ExactLike, epsilon: ExactLike) -> float:
    """The delta of a mu-Gaussian-private mechanism at `epsilon`, rounded up.

    >>> round(mu_to_delta(1, 1), 6)
    0.126937
    """
    value = float(parse_exact(epsilon, name="epsilon"))
    if value < 0:
        raise RecipeError("epsilon must not be negative")
    log = _log_delta(float(parse_positive(mu, name="mu")), value)
    return math.nextafter(math.exp(log), math.inf)  # above zero even where exp underflows


def mu_to_epsilon(mu: ExactLike, delta: ExactLike) -> float:
    """The least epsilon of a mu-Gaussian-private mechanism at `delta`, rounded up.

    >>> round(mu_to_epsilon(1, 1e-5), 6)
    4.377178
    """
    value = float(parse_positive(mu, name="mu"))
    target = log_of(_open_delta(delta))
    if _log_delta(value, 0.0) <= target:
        return 0.0
    low, high = 0.0, value * (math.sqrt(-2 * target) + value / 2) + 1e-12
    while _log_delta(value, high) > target:  # the guard may reach past the plain tail bound
        high *= 2
        if high > 1e300:
            return math.inf
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if _log_delta(value, middle) <= target else (middle, high)
    return high


def max_mu(epsilon: ExactLike, delta: ExactLike) -> float:
    """The largest mu, a hair less, whose delta at `epsilon` is at most `delta`.

    >>> mu_to_epsilon(max_mu(1, 1e-6), 1e-6) <= 1
    True
    """
    low = largest_mu(epsilon, delta)
    if low < 1e-12:
        raise RecipeError("epsilon and delta are too small for Gaussian noise to be calibrated")
    return low * (1 - 1e-12)


def largest_mu(epsilon: ExactLike, delta: ExactLike) -> float:
    """The largest float found whose delta at `epsilon`, rounded up, is at most `delta`; may be zero.

    >>> mu_to_delta(largest_mu(1, 1e-6), 1) <= 1e-6 * (1 + 1e-15)
    True
    """
    value = float(parse_exact(epsilon, name="epsilon"))
    if value < 0:
        raise RecipeError("epsilon must not be negative")
    target = log_of(_open_delta(delta))
    low, high = 0.0, 1e-3
    while high < _LARGEST_MU and _log_delta(high, value) <= target:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _log_delta(middle, value) <= target else (low, middle)
    return low


def log_of(number: Fraction) -> float:
    """The natural logarithm of a rational above zero, of any size.

    >>> round(log_of(Fraction(1, 10**400)), 3)
    -921.034
    """
    return math.log(number.numerator) - math.log(number.denominator)


def _log_delta(mu: float, epsilon: float) -> float:
    """An upper bound of log delta; the guard covers rounding in a, b and the tail functions."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if a <= 0:
        tail = math.erfc(a / math.sqrt(2)) / 2
        density = math.exp(-a * a / 2) / math.sqrt(2 * math.pi)
        return math.log(min(1.0, tail - density * _mills(b) + _GUARD * (1 + b)))
    upper, lower = _mills(a), _mills(b)
    difference = upper - lower + _GUARD * upper
    log = math.log(difference) - a * a / 2 - math.log(2 * math.pi) / 2
    return min(0.0, log + _GUARD * (1 + a * b))


def _mills(x: float) -> float:
    """Q(x) / phi(x) for x of zero or more."""
    if x < 6:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    fraction = x
    for term in range(60, 0, -1):
        fraction = x + term / fraction
    return 1 / fraction


def _mu(sigma: ExactLike, sensitivity: ExactLike, count: int) -> float:
    ratio = parse_positive(sensitivity, name="sensitivity") / parse_positive(sigma, name="sigma")
    return math.sqrt(_count(count)) * float(ratio)


def _count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise RecipeError("a count or a discrete sensitivity must be a whole number of one or more")
    return count


def _open_delta(delta: ExactLike) -> Fraction:
    value = parse_positive(delta, name="delta")
    if value >= 1:
        raise RecipeError("delta must lie below one")
    return value


_MARGIN = 1e-12
_PLACES = 10**18
_FINE = 10**15


def rho_to_epsilon(rho: ExactLike, delta: ExactLike) -> float:
    """The epsilon that rho-zCDP gives at `delta`, rounded up.

    The best order solves rho x^2 + ln(1 + x) = ln(1 / delta).

    >>> round(rho_to_epsilon(0.1, 1e-6), 6)
    2.141939
    """
    rate = float(parse_positive(rho, name="rho"))
    log = -log_of(_open_delta(delta))
    low = min(math.sqrt(log / 2 / rate), math.expm1(min(log / 2, 700)))
    high = min(math.sqrt(log / rate), math.expm1(min(log, 700)))
    x = _rising_root(lambda x: rate * x * x + math.log1p(x) - log, low, high)
    epsilon = (1 + x) * rate + (log - x * math.log1p(1 / x) - math.log1p(x)) / x
    return max(0.0, epsilon + _MARGIN * ((1 + x) * rate + log / x))


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
    x = _rising_root(
        lambda x: (2 * x + 1) * rate - target - math.log1p(1 / x),
        1e-18,
        (target + 1) / rate + 10,
    )
    terms = (x * (1 + x) * rate, -x * target, -x * math.log1p(1 / x), -math.log1p(x))
    log = sum(terms) + _MARGIN * (1 + sum(map(abs, terms)))
    return math.nextafter(math.exp(min(0.0, log)), math.inf)


def max_rho(epsilon: ExactLike, delta: ExactLike) -> Fraction:
    """The largest rho, a hair less, that `rho_to_epsilon` converts to at most `epsilon`.

    The hair, one part in 10^12, lets the rates of a plan be rounded up one by one and still fit.

    >>> round(float(max_rho(1, 2.5e-5)), 9), rho_to_epsilon(max_rho(1, 2.5e-5), 2.5e-5) <= 1
    (0.033937959, True)
    """
    target = parse_positive(epsilon, name="epsilon")
    _open_delta(delta)
    low, high = 0.0, 1e-18
    while rho_to_epsilon(high, delta) <= target:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        fits = rho_to_epsilon(middle, delta) <= target
        low, high = (middle, high) if fits else (low, middle)
    return Fraction(math.floor(Fraction(low * (1 - _MARGIN)) * _PLACES), _PLACES)


def rho_to_pure(rho: ExactLike) -> Fraction:
    """The largest pure epsilon, rounded down, that costs at most `rho` as a pure mechanism.

    >>> float(rho_to_pure(pure_to_rho(Fraction(1))))
    1.0
    """
    limit = parse_exact(rho, name="rho")
    return _largest_pure(lambda epsilon: pure_to_rho(epsilon) <= limit, _pure_guess(float(limit)))


def mu_to_pure(mu_squared: ExactLike) -> Fraction:
    """The largest pure epsilon, rounded down, that is mu-Gaussian-private for this mu squared.

    >>> round(float(mu_to_pure(pure_to_mu(Fraction(1)) ** 2)), 9)
    1.0
    """
    limit = parse_exact(mu_squared, name="mu_squared")
    t = math.sqrt(max(0.0, float(limit)) / 8)
    if t < 1:
        guess = 2 * math.atanh(math.erf(t))
    elif t < 26:
        guess = math.log(2 - math.erfc(t)) - math.log(math.erfc(t))
    else:
        guess = t * t
    return _largest_pure(lambda epsilon: pure_to_mu(epsilon) ** 2 <= limit, guess)


def histogram_sensitivity(
    *, contribution: Fraction, norm: str, neighbours: Neighbours, signed: bool = False
) -> Fraction:
    """The sensitivity of a histogram to which one individual adds at most `contribution`.

    Adding or removing an individual moves the histogram by their contribution. Replacing them
    moves it by u - v: in any norm |u - v| <= |u| + |v|, twice the bound, reached in L1 by disjoint
    cells. In L2, if no cell is negative, |u - v|^2 = |u|^2 + |v|^2 - 2 <u, v> is at most twice the
    bound's square; with `signed` contributions <u, v> may be negative and the factor is two again.

    >>> histogram_sensitivity(contribution=Fraction(20), norm="L1", neighbours="replace")
    Fraction(40, 1)
    """
    bound = parse_positive(contribution, name="contribution")
    if norm not in ("L1", "L2") or neighbours not in ("add-remove", "replace"):
        raise RecipeError("norm must be 'L1' or 'L2' and neighbours 'add-remove' or 'replace'")
    if neighbours == "add-remove":
        return bound
    if norm == "L1" or signed:
        return 2 * bound
    return sqrt_up(2 * bound**2)


def _rising_root(function: Callable[[float], float], low: float, high: float) -> float:
    """A point next to the root of a rising function; it halves the ratio, for roots of any size."""
    for _ in range(100):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return high


def _pure_guess(rho: float) -> float:
    low, high = 0.0, rho + 2 * math.sqrt(max(rho, 0.0)) + 1
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if middle * math.tanh(middle / 2) <= rho else (low, middle)
    return low


def _largest_pure(fits: Callable[[Fraction], bool], guess: float) -> Fraction:
    """`guess` rounded down to 15 places, and further down while the certain check refuses it."""
    units = math.floor(Fraction(guess) * _FINE)
    step = 1
    while units > 0 and not fits(Fraction(units, _FINE)):
        units, step = units - step, 2 * step
    return Fraction(max(units, 0), _FINE)


UNIT: int = 10**PLACES
"""Amounts in this module are whole numbers of 1 / UNIT."""

_ROOTS = tuple(Fraction(2) ** k for k in range(3, -15, -1))
RESERVES = (*(round_up(root**2, places=PLACES) for root in _ROOTS), Fraction(0))
"""The reserves of Gaussian privacy, squared parameters, from the largest to none."""

ORDERS = tuple(1 + Fraction(2) ** k for k in range(-3, 13))
"""The orders of Renyi divergence that are added up."""

_RELATIVE = 1e-12  # hundreds of times the error of erf and erfc in any C library in use
_CONTEXT = Context(prec=100, Emin=-(10**9), Emax=10**9)
_MARGIN_CURVES = Fraction(1, 10**40)


def reserved_mu_squared(epsilon: Fraction, root: Fraction) -> Fraction:
    """What any `epsilon`-private mechanism adds to a Gaussian parameter, squared, of at least `root`^2.

    With v = root^2 it is the least c such that randomised response beside N(0, 1) against N(root, 1)
    is at least as hard to tell as N(0, 1) against N(sqrt(v + c), 1), rounded up. The two trade-off
    functions need to be compared at one point only: c = 8 t^2 - v with
    erfc(t) = 2 (1 - delta_root(epsilon)) / (1 + e^epsilon). About epsilon^2 (1 + epsilon^2 / 6v) for
    small epsilon, and never more than `pure_to_mu` squared, its value beside nothing.

    >>> round(float(reserved_mu_squared(Fraction(1, 10), Fraction(1))), 6)
    0.010012
    >>> round(float(pure_to_mu(Fraction(1, 10)) ** 2), 6)
    0.015702
    """
    alone = round_up(pure_to_mu(epsilon) ** 2, places=PLACES)
    value = float(epsilon)
    if not 1e-12 < value < 30:  # too small to be told from rounding, or so large that nothing is gained
        return alone
    likely = 2 / (1 + math.exp(value))
    beside = min(1.0, mu_to_delta(root, epsilon))
    near = math.tanh(value / 2) + likely * beside
    rest = likely * (1 - beside)
    low, high = 0.0, 8.0
    while low < (middle := (low + high) / 2) < high:
        enough = math.erf(middle) >= near if near < 0.5 else math.erfc(middle) <= rest
        low, high = (low, middle) if enough else (middle, high)
    total = Fraction(2 * math.sqrt(2) * high * (1 + _RELATIVE))
    return min(alone, round_up(total**2 - root**2, places=PLACES))


def reserve_costs(cost: Cost) -> tuple[int, ...] | None:
    """What one use of `cost` takes beside each of `RESERVES`, in units; None if no bound is known."""
    if cost.mu_squared is None:
        return None
    return _reserve_costs(cost.kind, cost.scale, cost.sensitivity)


@lru_cache(maxsize=4096)
def _reserve_costs(kind: str, scale: Fraction, sensitivity: Fraction) -> tuple[int, ...]:
    from sfumato.accounting.cost import Cost

    delta = Fraction(1, 2) if kind == "selection" else Fraction(0)
    once = Cost(kind=kind, scale=scale, sensitivity=sensitivity, delta=delta)  # type: ignore[arg-type]
    alone = once.mu_squared
    assert alone is not None
    if once.epsilon is None:
        return (_units(alone),) * len(RESERVES)
    beside = (min(alone, reserved_mu_squared(once.epsilon, root)) for root in _ROOTS)
    return (*(_units(each) for each in beside), _units(alone))


def renyi_costs(cost: Cost) -> tuple[int, ...]:
    """The Renyi divergence of all repetitions at each of `ORDERS`, in units, rounded up.

    At order a it is at most a * rho and, for a pure mechanism, at most that of randomised response.

    >>> from sfumato.accounting.cost import Cost
    >>> renyi_costs(Cost(kind="filter", scale=Fraction(1)))[ORDERS.index(3)] / UNIT
    1.5
    """
    if cost.epsilon is None:
        return tuple(_units(order * cost.rho) for order in ORDERS)
    once = _response_divergences(cost.epsilon / cost.count)
    pairs = zip(ORDERS, once, strict=True)
    return tuple(_units(min(order * cost.rho, cost.count * divergence)) for order, divergence in pairs)


# Most charges repeat amounts that were charged before.
@lru_cache(maxsize=4096)
def _response_divergences(epsilon: Fraction) -> tuple[Fraction, ...]:
    """D_a of randomised response: e - ln((1 + exp(-e)) / (1 + exp(-(2a - 1) e))) / (a - 1), rounded up."""
    divergences = []
    with localcontext(_CONTEXT):
        value = _decimal(epsilon)
        first = (1 + (-value).exp()).ln()
        for order in ORDERS:
            other = (1 + (-value * _decimal(2 * order - 1)).exp()).ln()
            divergence = Fraction(value - (first - other) / _decimal(order - 1))
            divergences.append(min(epsilon, divergence + _MARGIN_CURVES))
    return tuple(divergences)


def _units(amount: Fraction) -> int:
    return math.ceil(amount * UNIT)


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)
