"""What tests and benchmarks ask of zCDP and the package does not."""

from fractions import Fraction

from sfumato.accounting import rho_to_epsilon
from sfumato.core.cost.curves import bisect_floats


def max_rho(epsilon, delta):
    """Return the largest rho, a hair less, that converts to at most `epsilon`."""
    high = 1e-18
    while rho_to_epsilon(high, delta) <= epsilon:
        high *= 2
    low, _ = bisect_floats(lambda rho: rho_to_epsilon(rho, delta) > epsilon, high / 2, high)
    return Fraction(low * (1 - 1e-12))
