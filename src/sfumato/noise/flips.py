"""Exact coins of probability exp(-gamma), and single choices among exact scores that are made with them.

A coin compares a uniform number, drawn bit by bit, with certified bounds of exp(-gamma), so that it falls
as if both were known to the last digit. Scores are rationals of any size; no floating-point number takes
part. The proofs are docs/proofs/choice.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from sfumato.errors import RecipeError
from sfumato.exact import parse_positive
from sfumato.noise.choice import _resolve
from sfumato.noise.entropy import KeyStream, draw_word
from sfumato.noise.fixed_point import exp_bounds
from sfumato.noise.law import make_law
from sfumato.noise.samplers import _draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.exact import ExactLike
    from sfumato.noise.entropy import BitSource

_WORD: Final = 64


def bernoulli_exp(gamma: ExactLike | Fraction) -> bool:
    """Whether a coin shows heads, which it does with probability exp(-gamma) exactly, gamma >= 0.

    >>> bernoulli_exp(0), bernoulli_exp(10**9)
    (True, False)
    """
    return _flip(_parse_loss(gamma), KeyStream())


def permute_and_flip_index(scores: Sequence[int | Fraction], *, rate: ExactLike | Fraction) -> int:
    """An index, by permute-and-flip: the candidates come in random order and the first heads wins.

    A candidate's coin shows heads with probability exp(-rate * (best score - its score)) exactly, so the
    best one's always does. The law is that of the largest score plus exponential noise of this rate.

    Privacy: that of `sfumato.choose.permute_and_flip`.

    >>> permute_and_flip_index([0, 900, 3], rate=1)
    1
    """
    exact = parse_positive(rate, name="rate")
    return _permute_and_flip([exact * each for each in _find_losses(scores)], KeyStream())


def exponential_index(scores: Sequence[int | Fraction], *, rate: ExactLike | Fraction) -> int:
    """An index, drawn with probability proportional to exp(rate * score) exactly.

    The law of `exponential_choice` for one row, for scores that need not be 64-bit integers.

    Privacy: that of `sfumato.choose.exponential`.

    >>> exponential_index([0, Fraction(10**100, 3), 3], rate=1)
    1
    """
    exact = parse_positive(rate, name="rate")
    return _exponential(_find_losses(scores), exact, KeyStream())


def laplace_max_index(scores: Sequence[int], *, scale: ExactLike | Fraction) -> int:
    """The index of the largest score plus discrete Laplace noise; of several, one at random.

    Privacy: that of `sfumato.choose.noisy_max` with noise="laplace".

    >>> laplace_max_index([0, 900, 3], scale=1)
    1
    """
    law = make_law("laplace", scale)
    _find_losses(scores)
    source = KeyStream()
    return _largest(scores, _draw(law, len(scores), source).tolist(), source)


def _flip(gamma: Fraction, source: BitSource, *, word_bits: int = _WORD) -> bool:
    """One coin, from as many bits as it takes; `word_bits` of each word are used."""
    if gamma == 0:
        return True
    value, bits = draw_word(source) >> _WORD - word_bits, word_bits
    while True:
        low, high = exp_bounds(gamma, bits)
        # The uniform number times 2^bits lies in [value, value + 1).
        if value < low:
            return True
        if value >= high:
            return False
        value = value << word_bits | draw_word(source) >> _WORD - word_bits
        bits += word_bits


def _draw_below(count: int, source: BitSource) -> int:
    """A whole number below `count`, each alike likely; a word beyond the last full share is drawn again."""
    share = (1 << _WORD) // count
    while True:
        drawn = draw_word(source) // share
        if drawn < count:
            return drawn


def _permute_and_flip(gammas: list[Fraction], source: BitSource, *, word_bits: int = _WORD) -> int:
    order = list(range(len(gammas)))
    for left in range(len(gammas), 1, -1):
        place = _draw_below(left, source)
        index = order[place]
        if _flip(gammas[index], source, word_bits=word_bits):
            return index
        order[place] = order[left - 1]
    return order[0]  # the only one left is the best, whose coin shows heads


def _exponential(losses: list[Fraction], rate: Fraction, source: BitSource, *, word_bits: int = _WORD) -> int:
    grid = math.lcm(*(loss.denominator for loss in losses))
    whole = [loss.numerator * (grid // loss.denominator) for loss in losses]
    value = draw_word(source) >> _WORD - word_bits
    return _resolve(whole, rate / grid, value, word_bits, source, {})


def _largest(scores: Sequence[int], noise: list[int], source: BitSource) -> int:
    noisy = [score + each for score, each in zip(scores, noise, strict=True)]
    best = max(noisy)
    tied = [index for index, value in enumerate(noisy) if value == best]
    return tied[_draw_below(len(tied), source)]


def _find_losses(scores: Sequence[int | Fraction]) -> list[Fraction]:
    """How far each score lies below the best."""
    if not scores:
        raise RecipeError("there is no candidate to choose among")
    if not all(isinstance(score, (int, Fraction)) for score in scores):
        raise RecipeError("scores must be whole numbers or fractions")
    best = max(scores)
    return [Fraction(best - score) for score in scores]


def _parse_loss(gamma: object) -> Fraction:
    return Fraction(0) if gamma == 0 else parse_positive(gamma, name="gamma")
