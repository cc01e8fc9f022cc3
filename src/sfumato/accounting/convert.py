"""Conversions between zCDP, Gaussian, pure and approximate privacy, each rounded to the safe side.

From zCDP to (epsilon, delta) the bound of Canonne, Kamath and Steinke (2020) holds at every
order alpha = 1 + x. Its best order solves a monotone equation, and a numerically wrong
root is only a worse order, so the result is a certain bound up to the rounding of its evaluation,
which a margin covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from sfumato.accounting.constants import pure_to_mu, pure_to_rho, sqrt_up
from sfumato.accounting.gaussian import log_of, max_mu, mu_to_delta, mu_to_epsilon
from sfumato.errors import RecipeError
from sfumato.exact import ExactLike, parse_exact, parse_positive
from sfumato.schema.unit import Neighbours

__all__ = [
    "histogram_sensitivity",
    "max_mu",
    "max_rho",
    "mu_to_delta",
    "mu_to_epsilon",
    "mu_to_pure",
    "pure_to_mu",
    "pure_to_rho",
    "rho_to_delta",
    "rho_to_epsilon",
    "rho_to_pure",
]

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


def _open_delta(delta: ExactLike) -> Fraction:
    value = parse_positive(delta, name="delta")
    if value >= 1:
        raise RecipeError("delta must lie below one")
    return value
