"""Decisions of a client: uniform words against integer thresholds, never a float.

A client compares a uniform word with a threshold, so each of its probabilities is a whole number
of 2^-64. A number that e^epsilon fixes is rounded to the side that lowers the likelihood ratio;
the ratio of the rounded law is a rational, known exactly. Every draw takes the source of its words;
`respond` of a mechanism makes a fresh `KeyStream`, so nothing a client does can be seeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import format_exact, parse_positive
from sfumato.core.noise.thresholds import exp_bounds

if TYPE_CHECKING:
    from sfumato.core.noise.entropy import BitSource

WORDS: Final = 1 << 64
"""How many values a random word has: a threshold T stands for the probability T / 2^64."""

CHUNK: Final = 1 << 14
"""Answers made at once: their words stay in the processor's nearest caches."""

_LOW_BYTES: Final = (1 << 56) - 1
_GUARD: Final = 128  # bits beyond the word, so that a floor is that of the exact number
_PLACES: Final = 30


def parse_epsilon(value: object, *, name: str = "epsilon") -> Fraction:
    """Returns the rational above zero that `value` stands for, refused where 64 bits cannot deliver it.

    >>> parse_epsilon(0.1)
    Fraction(1, 10)
    """
    epsilon = parse_positive(value, name=name)
    if not Fraction(1, 10**12) <= epsilon <= 1000:
        raise RecipeError(f"{name} must lie between 1e-12 and 1000, got {format_exact(epsilon)[:40]}")
    return epsilon


@lru_cache(maxsize=256)
def lie_threshold(epsilon: Fraction, others: int) -> int:
    """Gives the least Q with 2^64 - others * Q <= e^epsilon * Q, certified: the weight of each other answer.

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
    """Returns the largest T with T / inside <= e^epsilon * (2^64 - T) / outside, certified.

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
    """Returns the whole number nearest to size * exp(-exponent), but at least 1.

    >>> scaled_exp(Fraction(1), 1000)
    368
    """
    low, _ = exp_bounds(exponent, _GUARD)
    return max(1, (size * low + (1 << _GUARD - 1)) >> _GUARD)


@lru_cache(maxsize=256)
def log_above(ratio: Fraction) -> Fraction:
    """Returns the natural logarithm of a ratio of at least 1, rounded up at the 30th decimal, certified.

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
    """Returns a rational not below e^epsilon, above it by less than one part in 2^100.

    >>> float(power_above(Fraction(1)))
    2.718281828459045
    """
    bits = 128 + 3 * int(epsilon + 1)
    low, _ = exp_bounds(epsilon, bits)
    return Fraction(1 << bits, low)


def chunks(size: int) -> Iterator[slice]:
    """Slices that cut `size` answers into chunks."""
    return (slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK))


def draw_words(size: int, source: BitSource) -> NDArray[np.uint64]:
    """Returns `size` uniform words."""
    words = np.empty(size, np.uint64)
    source.fill(words)
    return words


def draw_events(threshold: int, size: int, source: BitSource) -> NDArray[np.bool_]:
    """Returns `size` independent events, each true with probability threshold / 2^64 exactly.

    A byte decides unless it equals the threshold's leading byte; then 56 more bits do. This is the
    comparison of a whole word, read lazily.
    """
    events = np.empty(size, np.bool_)
    if not 0 < threshold < WORDS:
        events[:] = threshold > 0
        return events
    top, rest = np.uint8(threshold >> 56), np.uint64(threshold & _LOW_BYTES)
    buffer = np.empty(1 << 13, np.uint64)
    step = buffer.nbytes
    for start in range(0, size, step):
        piece = events[start : start + step]
        words = buffer[: -(-piece.size // 8)]
        source.fill(words)
        leading = words.view(np.uint8)[: piece.size]
        np.less(leading, top, out=piece)
        open_places = np.flatnonzero(leading == top)
        if open_places.size:
            piece[open_places] = draw_words(open_places.size, source) >> np.uint64(8) < rest
    return events


def draw_fair(size: int, source: BitSource) -> NDArray[np.bool_]:
    """Returns `size` fair and independent bits."""
    words = draw_words(-(-size // 64), source)
    return np.unpackbits(words.view(np.uint8), count=size).view(np.bool_)


def draw_uniform(count: int, size: int, source: BitSource) -> NDArray[np.uint64]:
    """Returns `size` independent whole numbers, each of 0 .. count - 1 exactly alike likely.

    A word beyond the last full share is drawn again, which is decided by the noise alone.
    """
    if count < 1:
        raise ValueError("a uniform draw needs at least one outcome")
    words = draw_words(size, source)
    if count & (count - 1) == 0:  # a power of two: the leading bits
        bits = count.bit_length() - 1
        return words >> np.uint64(64 - bits) if bits else np.zeros(size, np.uint64)
    share = WORDS // count
    drawn: NDArray[np.uint64] = words // np.uint64(share)
    late = np.flatnonzero(drawn >= count)
    while late.size:
        drawn[late] = draw_words(late.size, source) // np.uint64(share)
        late = late[drawn[late] >= count]
    return drawn
