"""What tests and benchmarks ask of accounting and the package does not."""

import math
from fractions import Fraction

from sfumato.accounting import rho_to_epsilon
from sfumato.core.cost.curves import bisect_floats
from sfumato.core.exact import parse_exact


def max_rho(epsilon, delta):
    """Return the largest rho, a hair less, that converts to at most `epsilon`."""
    high = 1e-18
    while rho_to_epsilon(high, delta) <= epsilon:
        high *= 2
    low, _ = bisect_floats(lambda rho: rho_to_epsilon(rho, delta) > epsilon, high / 2, high)
    return Fraction(low * (1 - 1e-12))


def discrete_gaussian_delta(*, epsilon, sigma, sensitivity=1):
    """Return the exact delta of one number with discrete Gaussian noise, to float accuracy.

    It is P[Y > t] - e^epsilon P[Y > t + s] with t = epsilon sigma^2 / s - s / 2 (Canonne, Kamath and Steinke
    2020, Theorem 7), summed term by term so that nothing cancels.
    """
    exact, variance = parse_exact(epsilon, name="epsilon"), parse_exact(sigma, name="sigma") ** 2
    first = math.floor(exact * variance / sensitivity - Fraction(sensitivity, 2)) + 1
    width, reach = 2 * float(variance), math.ceil(40 * math.sqrt(float(variance))) + 1
    terms = (
        -math.exp(-k * k / width) * math.expm1(float(exact) - (2 * k + sensitivity) * sensitivity / width)
        for k in range(max(first, -reach), max(first, 0) + reach)
    )
    return math.fsum(terms) / math.fsum(math.exp(-k * k / width) for k in range(-reach, reach + 1))
