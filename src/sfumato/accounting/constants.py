"""Constants of single mechanisms, each a certain upper bound.

Rates of zero-concentrated privacy are evaluated in decimal arithmetic of 160 digits, where
addition, division and the exponential are correctly rounded. With every scale and sensitivity
between 1e-30 and 1e30 the rounding errors stay below 1e-60, so a margin of 1e-40 and rounding up
to 18 places make each result certain. Proofs: docs/proofs/accounting.md.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

from sfumato.exact import parse_positive, round_up

PLACES = 18
_CONTEXT = Context(prec=160, Emin=-(10**9), Emax=10**9)
_MARGIN = Fraction(1, 10**40)
_RELATIVE = 1e-12  # hundreds of times the error of erf and erfc in any C library in use


def pure_to_rho(epsilon: Fraction) -> Fraction:
    """The zCDP rate of any `epsilon`-private mechanism, epsilon * tanh(epsilon / 2), rounded up.

    Randomised response attains it, so no smaller constant holds for all pure mechanisms.

    >>> float(pure_to_rho(Fraction(1)))
    0.46211715726000974
    """
    epsilon = parse_positive(epsilon, name="epsilon")
    with localcontext(_CONTEXT):
        power = (-_decimal(epsilon)).exp()
        return _certain(_decimal(epsilon) * (1 - power) / (1 + power))


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


def laplace_rho(epsilon: Fraction) -> Fraction:
    """The zCDP rate of continuous Laplace noise, epsilon - 1 + exp(-epsilon), rounded up.

    Noise on the integers costs more, see `discrete_laplace_rho`.

    >>> float(laplace_rho(Fraction(1)))
    0.36787944117144233
    """
    epsilon = parse_positive(epsilon, name="epsilon")
    with localcontext(_CONTEXT):
        value = _decimal(epsilon)
        return _certain(value - 1 + (-value).exp())


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
        ratio = _decimal(sensitivity / scale)
        step = _decimal(1 / scale)
        q = (-step).exp()
        return _certain(ratio - step * 2 * q * (1 - (-ratio).exp()) / (1 - q * q))


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
    low, high = 0.0, min(value, math.sqrt(value))
    while low < (middle := (low + high) / 2) < high:
        if value < 1:
            enough = math.erf(middle) >= math.tanh(value / 2)
        else:
            enough = math.erfc(middle) <= 2 / (1 + math.exp(value))
        low, high = (low, middle) if enough else (middle, high)
    return round_up(2 * math.sqrt(2) * high * (1 + _RELATIVE), places=PLACES)


def sqrt_up(number: Fraction) -> Fraction:
    """The square root of `number`, rounded up to 18 decimal places.

    >>> sqrt_up(Fraction(9, 4)), float(sqrt_up(Fraction(2)))
    (Fraction(3, 2), 1.4142135623730951)
    """
    scaled = -((-number * 10 ** (2 * PLACES)) // 1)
    root = math.isqrt(scaled)
    return Fraction(root + (root * root < scaled), 10**PLACES)


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _certain(value: Decimal) -> Fraction:
    return round_up(Fraction(value) + _MARGIN, places=PLACES)
