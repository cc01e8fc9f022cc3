"""Certified exponentials of exact rationals, in integers only.

A real number t is held as an integer near t * 2^bits together with a proved bound on the
distance, so that every comparison made with it is either right or known to be undecided.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers (low, high) with low <= 2^bits * exp(-exponent) <= high, at most 2 apart.

    >>> from fractions import Fraction
    >>> exp_bounds(Fraction(1), 10)
    (376, 377)
    """
    if exponent < 0:
        raise ValueError("the exponent of a decaying exponential cannot be negative")
    if exponent == 0:
        return 1 << bits, 1 << bits
    if exponent >= bits:
        return 0, 1  # exp(-bits) < 2^-bits
    # exp(-x) = exp(-x / 2^halvings)^(2^halvings), the inner exponent below 2^-8.
    halvings = int(exponent).bit_length() + 8
    work = bits + halvings + bits.bit_length() + 16
    value, error = _exp_series((exponent.numerator << work - halvings) // exponent.denominator, work)
    for _ in range(halvings):
        # |a^2 - A^2| <= 2 |a - A| for a, A <= 1, and the shift drops less than one unit.
        value, error = value * value >> work, 2 * error + 1
    drop = work - bits
    low = (value - error) >> drop
    high = -(-(value + error) >> drop)
    return max(low, 0), min(high, 1 << bits)


def _exp_series(argument: int, work: int) -> tuple[int, int]:
    """(value, error): 2^work * exp(-y) for any y with argument <= y * 2^work < argument + 1.

    Needs y below 2^-8. Each term is a floor of a floor and falls short of the true term by less
    than two units; the terms left out alternate and shrink, so they add less than the first of
    them, which is below two units; moving y by one unit moves the result by at most one.
    """
    term = total = 1 << work
    for order in count(1):
        term = term * argument // (order << work)
        if term == 0:
            return total, 2 * order + 3
        total += -term if order & 1 else term
    raise AssertionError  # pragma: no cover - the terms shrink to zero


def loss_floor(exponent: Fraction, bits: int) -> int:
    """The floor of 2^bits * (1 - exp(-exponent)), certified, for a positive rational exponent.

    The loop ends: exp of a nonzero rational is irrational, so some precision separates it from
    every multiple of 2^-bits.

    >>> from fractions import Fraction
    >>> loss_floor(Fraction(1), 10)
    647
    """
    guard = 32
    while True:
        low, high = exp_bounds(exponent, bits + guard)
        one = 1 << bits + guard
        # exp(-exponent) > 0 strictly, so the loss stays below one whatever the bounds say.
        floor = (one - high) >> guard
        if floor == min((one - low) >> guard, (1 << bits) - 1):
            return floor
        guard *= 2
