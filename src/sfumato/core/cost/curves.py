"""What mechanisms cost as rho and mu, and what Gaussian and zero-concentrated privacy are worth in epsilon.

For Gaussian noise, with mu = sqrt(count) * sensitivity / sigma,
a = epsilon/mu - mu/2 and b = epsilon/mu + mu/2:

    delta = Q(a) - e^epsilon Q(b) = phi(a) * (m(a) - m(b)),

where Q is the upper tail of the normal law, phi its density and m = Q / phi. The second form, in
logarithms, neither overflows for large epsilon nor vanishes for tiny delta. Every delta below is
rounded up by more than the floats can err, so a sigma found from it is never too small. The proofs are in
docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, format_exact, parse_exact, parse_positive, round_up
from sfumato.core.facts.table import Neighbours

_GUARD = 1e-13
_LARGEST_MU = 1e8
MARGIN = 1e-12
"""The part of itself by which a conversion of rho is raised: more than floats can err."""

SMOOTHING = 4
"""Variance, in squared grid steps, that separates discrete from continuous Gaussian noise.

Discrete Gaussian noise of variance v is a randomised rounding of continuous noise of variance
v - 4, up to a factor of likelihood of 1 + 3e-34 per value released.
"""
PLACES = 18
"""Decimal places that amounts are rounded up to."""
_CONTEXT = Context(prec=160, Emin=-(10**9), Emax=10**9)
_CERTAIN = Fraction(1, 10**40)
LARGEST = 10**30
"""The largest scale and sensitivity, and one over the smallest."""
_RELATIVE = 1e-12  # hundreds of times the error of erf and erfc in any C library in use


def pure_to_rho(epsilon: Fraction) -> Fraction:
    """The zCDP rate of any `epsilon`-private mechanism, epsilon * tanh(epsilon / 2), rounded up.

    Randomised response attains it, so no smaller constant holds for all pure mechanisms.

    >>> float(pure_to_rho(Fraction(1)))
    0.46211715726000974
    """
    epsilon = parse_positive(epsilon, name="epsilon")
    with localcontext(_CONTEXT):
        power = (-to_decimal(epsilon)).exp()
        return _certain(to_decimal(epsilon) * (1 - power) / (1 + power))


def pure_to_mu(epsilon: Fraction) -> Fraction:
    """The Gaussian-DP parameter of any `epsilon`-private mechanism, rounded up.

    It is 2 * Phi^-1(e^epsilon / (1 + e^epsilon)), that is 2 sqrt(2) t with erf(t) =
    tanh(epsilon / 2).

    >>> round(float(pure_to_mu(Fraction(1))), 9)
    1.232035385
    """
    value = float(parse_positive(epsilon, name="epsilon"))
    if value > 700:  # erfc leaves the floats; Q(x) <= exp(-x^2 / 2) / 2 gives this simpler bound
        return sqrt_up(8 * epsilon)

    def enough(t: float) -> bool:
        if value < 1:
            return math.erf(t) >= math.tanh(value / 2)
        return math.erfc(t) <= 2 / (1 + math.exp(value))

    _, t = bisect_floats(enough, 0.0, min(value, math.sqrt(value)))
    return round_up(2 * math.sqrt(2) * t * (1 + _RELATIVE), places=PLACES)


def exponential_rho(epsilon: Fraction) -> Fraction:
    """The zCDP rate of the exponential mechanism exp(epsilon * u / (2 * sensitivity)).

    It is epsilon^2 / 8 (Cesar and Rogers 2021), by its bounded range; permute-and-flip has no such
    range and does not share the constant.

    >>> exponential_rho(Fraction(1))
    Fraction(1, 8)
    """
    epsilon = parse_positive(epsilon, name="epsilon")
    return round_up(epsilon**2 / 8, places=PLACES)


def exponential_mu(epsilon: Fraction) -> Fraction:
    """The Gaussian-DP parameter of the exponential mechanism exp(epsilon * u / (2 * sensitivity)).

    It is 2 * Phi^-1(e^(epsilon / 2) / (1 + e^(epsilon / 2))), rounded up: by its bounded range the
    worst case is that of a pure mechanism with half the epsilon. Permute-and-flip has no such range.

    >>> exponential_mu(Fraction(1)) == pure_to_mu(Fraction(1, 2))
    True
    """
    return pure_to_mu(parse_positive(epsilon, name="epsilon") / 2)


def discrete_laplace_rho(sensitivity: Fraction, scale: Fraction) -> Fraction:
    """The zCDP rate of Laplace noise on the integers, both arguments in steps of its grid.

    With q = exp(-1 / scale) it is s/b - 2q (1 - q^s) / (b (1 - q^2)), the divergence of order one,
    which is exact. A sensitivity that is not a whole number of steps gets the rate of any pure
    mechanism.

    >>> float(discrete_laplace_rho(Fraction(1), Fraction(1)))
    0.46211715726000974
    """
    sensitivity = parse_positive(sensitivity, name="sensitivity")
    scale = parse_positive(scale, name="scale")
    if sensitivity.denominator != 1:
        return pure_to_rho(sensitivity / scale)
    with localcontext(_CONTEXT):
        ratio = to_decimal(sensitivity / scale)
        step = to_decimal(1 / scale)
        q = (-step).exp()
        return _certain(ratio - step * 2 * q * (1 - (-ratio).exp()) / (1 - q * q))


def selection_threshold(*, scale: ExactLike, sensitivity: ExactLike, delta: ExactLike) -> int:
    """The least whole t >= 1 such that sensitivity * P(1 + X >= t) <= delta, X of this scale.

    *Privacy:* releasing the groups whose number of individuals plus noise is at least t, where one
    individual is in at most `sensitivity` groups, costs what Cost(kind="selection") states; where neighbours
    replace an individual, that has twice the sensitivity, and each table fails with delta at most.

    >>> selection_threshold(scale=1, sensitivity=1, delta="1e-6")
    15
    """
    exact_scale, groups = parse_positive(scale, name="scale"), parse_exact(sensitivity, name="sensitivity")
    target = parse_positive(delta, name="delta")
    if target >= 1:
        raise RecipeError(f"delta must lie below one, got {format_exact(target)}")
    if not Fraction(1, LARGEST) <= exact_scale <= LARGEST:
        raise RecipeError("scale must lie between 1e-30 and 1e30")
    if groups.denominator != 1 or not 1 <= groups <= LARGEST:
        raise RecipeError(
            "sensitivity must be the most groups of one individual, a whole number from 1 to 1e30"
        )
    digits = _CONTEXT.prec
    while True:
        # q^(t-1) <= delta (1 + q) / g  if and only if  t - 1 >= b ln(g / (delta (1 + q))).
        with localcontext(_CONTEXT, prec=digits):
            q = (-to_decimal(1 / exact_scale)).exp()
            least = Fraction(to_decimal(exact_scale) * (to_decimal(groups / target) / (1 + q)).ln())
        # The bound is no whole number, because q is transcendental: some precision settles its
        # ceiling, and the first one does unless it lies within 1e-40 of a whole number.
        margin = _CERTAIN ** (digits // _CONTEXT.prec)
        if math.ceil(least - margin) == math.ceil(least + margin):
            return 1 + max(0, math.ceil(least))
        digits *= 2


def sqrt_up(number: Fraction) -> Fraction:
    """The square root of `number`, rounded up to 18 decimal places.

    >>> sqrt_up(Fraction(9, 4)), float(sqrt_up(Fraction(2)))
    (Fraction(3, 2), 1.4142135623730951)
    """
    scaled = -((-number * 10 ** (2 * PLACES)) // 1)
    root = math.isqrt(scaled)
    return Fraction(root + (root * root < scaled), 10**PLACES)


def bisect_floats(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The neighbouring floats between which `holds`, false at `low` and true at `high`, turns true."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def to_decimal(number: Fraction) -> Decimal:
    """`number` as a decimal, to the digits of the context in force."""
    return Decimal(number.numerator) / Decimal(number.denominator)


def _certain(value: Decimal) -> Fraction:
    return round_up(Fraction(value) + _CERTAIN, places=PLACES)


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


def mu_to_delta(mu: ExactLike, epsilon: ExactLike) -> float:
    """The delta of a mu-Gaussian-private mechanism at `epsilon`, rounded up.

    >>> round(mu_to_delta(1, 1), 6)
    0.126937
    """
    value = float(parse_exact(epsilon, name="epsilon"))
    if value < 0:
        raise RecipeError("epsilon must not be negative")
    log = log_delta(float(parse_positive(mu, name="mu")), value)
    return math.nextafter(math.exp(log), math.inf)  # above zero even where exp underflows


def mu_to_epsilon(mu: ExactLike, delta: ExactLike) -> float:
    """The least epsilon of a mu-Gaussian-private mechanism at `delta`, rounded up.

    >>> round(mu_to_epsilon(1, 1e-5), 6)
    4.377178
    """
    value = float(parse_positive(mu, name="mu"))
    target = log_of(open_delta(delta))
    if log_delta(value, 0.0) <= target:
        return 0.0
    low, high = 0.0, value * (math.sqrt(-2 * target) + value / 2) + 1e-12
    while log_delta(value, high) > target:  # the guard may reach past the plain tail bound
        high *= 2
        if high > 1e300:
            return math.inf
    return bisect_floats(lambda epsilon: log_delta(value, epsilon) <= target, low, high)[1]


def largest_mu(epsilon: ExactLike, delta: ExactLike) -> float:
    """The largest float found whose delta at `epsilon`, rounded up, is at most `delta`; may be zero.

    >>> mu_to_delta(largest_mu(1, 1e-6), 1) <= 1e-6 * (1 + 1e-15)
    True
    """
    value = float(parse_exact(epsilon, name="epsilon"))
    if value < 0:
        raise RecipeError("epsilon must not be negative")
    target = log_of(open_delta(delta))
    # Doubling first, because a bisection from a huge upper end would spend its steps on the exponent.
    low, high = 0.0, 1e-3
    while high < _LARGEST_MU and log_delta(high, value) <= target:
        low, high = high, 2 * high
    return bisect_floats(lambda mu: log_delta(mu, value) > target, low, high)[0]


def rho_to_epsilon(rho: ExactLike, delta: ExactLike) -> float:
    """The epsilon that rho-zCDP gives at `delta`, rounded up.

    The best order solves rho x^2 + ln(1 + x) = ln(1 / delta).

    >>> round(rho_to_epsilon(0.1, 1e-6), 6)
    2.141939
    """
    rate = float(parse_positive(rho, name="rho"))
    log = -log_of(open_delta(delta))
    # At the root one of the two terms is at least half of the logarithm, and neither exceeds it.
    low = min(math.sqrt(log / 2 / rate), math.expm1(min(log / 2, 700)))
    high = min(math.sqrt(log / rate), math.expm1(min(log, 700)))
    x = rising_root(lambda x: rate * x * x + math.log1p(x) - log, low, high)
    epsilon = (1 + x) * rate + (log - x * math.log1p(1 / x) - math.log1p(x)) / x
    return max(0.0, epsilon + MARGIN * ((1 + x) * rate + log / x))


def log_of(number: Fraction) -> float:
    """The natural logarithm of a rational above zero, of any size.

    >>> round(log_of(Fraction(1, 10**400)), 3)
    -921.034
    """
    return math.log(number.numerator) - math.log(number.denominator)


def log_delta(mu: float, epsilon: float) -> float:
    """An upper bound of log delta; the guard covers rounding in a, b and the tail functions."""
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # Above the mean the two terms of delta nearly cancel, so that they are compared as ratios to the density.
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
    # erfc times exp loses digits where one underflows; the continued fraction has all of them from 6 on.
    if x < 6:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    fraction = x
    for term in range(60, 0, -1):
        fraction = x + term / fraction
    return 1 / fraction


def open_delta(delta: ExactLike) -> Fraction:
    """Returns a delta above 0 and below 1."""
    value = parse_positive(delta, name="delta")
    if value >= 1:
        raise RecipeError("delta must lie below one")
    return value


def rising_root(function: Callable[[float], float], low: float, high: float) -> float:
    """A point next to the root of a rising function; it halves the ratio, for roots of any size."""
    for _ in range(100):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return high
