"""Integer thresholds of 64-bit words, rounded toward privacy, and what they deliver.

A client compares a uniform word with a threshold, so each of its probabilities is a whole number
of 2^-64. A number that e^epsilon fixes is rounded to the side that lowers the likelihood ratio;
the ratio of the rounded law is a rational, known exactly.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from sfumato.errors import RecipeError
from sfumato.exact import format_exact, parse_positive
from sfumato.noise.laws import exp_bounds

WORDS: Final = 1 << 64
"""How many values a random word has: a threshold T stands for the probability T / 2^64."""

_GUARD: Final = 128
_PLACES: Final = 30


def parse_epsilon(value: object, *, name: str = "epsilon") -> Fraction:
    """The rational above zero that `value` stands for, refused where 64 bits cannot deliver it.

    >>> parse_epsilon(0.1)
    Fraction(1, 10)
    """
    epsilon = parse_positive(value, name=name)
    if not Fraction(1, 10**12) <= epsilon <= 1000:
        raise RecipeError(f"{name} must lie between 1e-12 and 1000, got {format_exact(epsilon)[:40]}")
    return epsilon


@lru_cache(maxsize=256)
def lie_threshold(epsilon: Fraction, others: int) -> int:
    """The least Q with 2^64 - others * Q <= e^epsilon * Q, certified: the weight of each other answer.

    Each of `others` wrong answers gets Q words of 2^64 and the right one what is left, so their
    ratio is e^epsilon at most.

    >>> lie_threshold(Fraction(1), 1) / 2**64
    0.2689414213699951
    """
    bits = 64 + _GUARD + others.bit_length()
    _, high = exp_bounds(epsilon, bits)
    # 2^64 / (e^epsilon + others) grows with e^-epsilon, of which `high` is an upper bound.
    least = -(-(high << 64) // ((1 << bits) + others * high))
    if WORDS - others * least <= least:
        raise RecipeError(
            f"epsilon {format_exact(epsilon)[:40]} is too small for {others + 1} answers in 64 bits"
        )
    return least


@lru_cache(maxsize=256)
def weigh_threshold(epsilon: Fraction, inside: int, outside: int) -> int:
    """The largest T with T / inside <= e^epsilon * (2^64 - T) / outside, certified.

    T words go to `inside` equal cells and the rest to `outside` equal cells; the ratio of a cell
    inside to one outside is e^epsilon at most.

    >>> weigh_threshold(Fraction(1), 1, 1) + lie_threshold(Fraction(1), 1) == 2**64
    True
    """
    bits = 64 + _GUARD + inside.bit_length() + outside.bit_length()
    _, high = exp_bounds(epsilon, bits)
    # T / 2^64 = inside / (inside + outside e^-epsilon) falls with e^-epsilon.
    return min((inside << 64 + bits) // ((inside << bits) + outside * high), WORDS - 1)


def scaled_exp(exponent: Fraction, size: int) -> int:
    """The whole number nearest to size * exp(-exponent), but at least 1.

    >>> scaled_exp(Fraction(1), 1000)
    368
    """
    low, _ = exp_bounds(exponent, _GUARD)
    return max(1, (size * low + (1 << _GUARD - 1)) >> _GUARD)


@lru_cache(maxsize=256)
def log_above(ratio: Fraction) -> Fraction:
    """The natural logarithm of a ratio of at least 1, rounded up at the 30th decimal, certified.

    >>> float(log_above(Fraction(3)))
    1.0986122886681098
    """
    if ratio <= 1:
        return Fraction(0)
    context = Context(prec=60)
    quotient = context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    unit = Decimal(1).scaleb(-_PLACES)
    guess = Fraction(context.ln(quotient).quantize(unit, rounding=ROUND_CEILING, context=context))
    bits = ratio.numerator.bit_length() + _GUARD
    while True:
        # e^-guess <= 1 / ratio, shown with the upper end of its enclosure.
        _, high = exp_bounds(guess, bits)
        if high * ratio.numerator <= ratio.denominator << bits:
            return guess
        guess += Fraction(unit)


def power_above(epsilon: Fraction) -> Fraction:
    """A rational not below e^epsilon, above it by less than one part in 2^100.

    >>> float(power_above(Fraction(1)))
    2.718281828459045
    """
    bits = 128 + 3 * int(epsilon + 1)
    low, _ = exp_bounds(epsilon, bits)
    return Fraction(1 << bits, low)
