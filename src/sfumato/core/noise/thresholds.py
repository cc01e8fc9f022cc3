"""Certified numbers to draw the laws of noise with.

A magnitude is drawn by comparing random bits with thresholds: the floors of 2^bits times the cumulative
probabilities. They are found in whole numbers with proved errors, and at more digits wherever an error leaves
one open (docs/proofs/noise.md, section 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import SfumatoError
from sfumato.core.law import Kind, Law

WORD_BITS: Final = 63
"""A 64-bit word less its sign."""

_GUARDS: Final = (96, 192, 384, 768, 1536)
_SMALL_TABLE: Final = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What a fast draw needs: thresholds at one width and a guide to them.

    `thresholds` ascends and ends with 2^bits - 1, which stands for the infinite tail.
    `guide` has an entry for each value of the `guide_bits` leading bits of a word: the magnitude
    where these bits decide it, else ~k, k being the least magnitude they leave open.
    Both arrays are read-only.
    """

    law: Law
    folded: bool
    bits: int
    thresholds: NDArray[np.uint64]
    guide: NDArray[np.int32]
    guide_bits: int


@lru_cache(maxsize=32)
def build_table(law: Law, *, folded: bool, bits: int = WORD_BITS) -> Table:
    """The table of `law`'s magnitude at a width of `bits`, at most 63.

    `folded` gives the law of |X|; otherwise that of X given X >= 0.
    """
    top = (1 << bits) - 1
    thresholds = np.array([*_thresholds(law, folded=folded, bits=bits), top], dtype=np.uint64)
    guide_bits = min(bits, 16 if thresholds.size < _SMALL_TABLE else 18)
    first = np.arange(1 << guide_bits, dtype=np.uint64) << np.uint64(bits - guide_bits)
    last = first + np.uint64((1 << bits - guide_bits) - 1)
    low = np.searchsorted(thresholds, first, side="left")
    decided = low == np.searchsorted(thresholds, last, side="right")
    guide = np.where(decided, low, ~low).astype(np.int32)
    thresholds.setflags(write=False)
    guide.setflags(write=False)
    return Table(law, folded, bits, thresholds, guide, guide_bits)


@lru_cache(maxsize=8)
def build_thresholds(law: Law, *, folded: bool, bits: int) -> tuple[int, ...]:
    """The thresholds below 2^bits - 1, in ascending order, at any width.

    >>> build_thresholds(Law("laplace", Fraction(1)), folded=True, bits=8)
    (118, 205, 237, 249, 253)
    """
    return tuple(_thresholds(law, folded=folded, bits=bits))


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Integers (low, high) with low <= 2^bits * exp(-exponent) <= high, at most 2 apart.

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


def loss_floor(exponent: Fraction, bits: int) -> int:
    """The floor of 2^bits * (1 - exp(-exponent)), certified, for a positive rational exponent.

    The loop ends: exp of a nonzero rational is irrational, so some precision separates it from
    every multiple of 2^-bits.

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


def _thresholds(law: Law, *, folded: bool, bits: int) -> list[int]:
    build = _BUILDERS[law.kind]
    for guard in _GUARDS:
        thresholds = build(law.exponent(1), folded=folded, bits=bits, guard=guard)
        if thresholds is not None:
            return thresholds
    raise SfumatoError(f"the thresholds of {law} cannot be certified; use a scale with fewer digits")


def _laplace_thresholds(rate: Fraction, *, folded: bool, bits: int, guard: int) -> list[int] | None:
    """Thresholds from the closed form of the tail, or None if this precision leaves one open.

    With q = exp(-rate), P(K > k) is q^(k+1), or 2 q^(k+1) / (1 + q) when folded.
    """
    precision = bits + guard
    one = 1 << precision
    low, high = exp_bounds(rate, precision)
    if folded:
        tail = (low << precision + 1) // (one + low)
        error = -(-(high << precision + 1) // (one + high)) - tail
    else:
        tail, error = low, high - low
    growth = high - low + 1
    top = (1 << bits) - 1
    thresholds: list[int] = []
    append = thresholds.append
    # The true tail lies in [tail, tail + error], and above zero. The floor of 2^bits less the
    # tail is `top` less the number of whole units strictly below the tail.
    while units := (tail + error - 1) >> guard:
        if (tail - 1) >> guard != units:
            return None
        append(top - units)
        tail = tail * low >> precision
        error += growth
    return thresholds


def _gaussian_thresholds(rate: Fraction, *, folded: bool, bits: int, guard: int) -> list[int] | None:
    """Thresholds from partial sums, or None if this precision leaves one open.

    With q = exp(-rate) the weight of k is q^(k^2), so the ratio of neighbouring weights is
    q^(2k+1), itself multiplied by q^2 from one step to the next.
    """
    precision = bits + guard
    one = 1 << precision
    first, first_high = exp_bounds(rate, precision)
    step, step_high = exp_bounds(2 * rate, precision)
    double = 1 if folded else 0
    ratio = weight = first
    total = one
    sums = [total]
    append = sums.append
    cut = 1 << guard // 2
    while weight > cut:
        total += weight << double
        append(total)
        ratio = ratio * step >> precision
        weight = weight * ratio >> precision

    # Every product of numbers in [0, 1] adds up the errors of its factors and one unit.
    count = len(sums)
    ratio_error = first_high - first + count * (step_high - step + 1)
    weight_error = (count + 1) * (ratio_error + 1)
    sum_error = 2 * count * weight_error
    # Past the last sum the ratios only fall: the rest is below a geometric series.
    ratio_top = ratio + ratio_error
    if ratio_top >= one:
        return None
    rest = 2 * ((weight + weight_error) * one // (one - ratio_top) + 1)

    inverse = one * one // (total + sum_error + rest)
    inverse_error = one * one // total + 1 - inverse
    # C(k) >= sums[k] * inverse, and falls short of that by no more than `slack` units.
    slack = ((sum_error * (inverse + inverse_error) + total * inverse_error) >> precision) + 2
    top = (1 << bits) - 1
    thresholds: list[int] = []
    for partial in sums:
        scaled = partial * inverse >> precision
        units = scaled >> guard
        if units >= top:
            return thresholds
        if (scaled + slack) >> guard != units:
            return None
        thresholds.append(units)
    return None


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


_BUILDERS: Final[dict[Kind, Callable[..., list[int] | None]]] = {
    "laplace": _laplace_thresholds,
    "gaussian": _gaussian_thresholds,
}
