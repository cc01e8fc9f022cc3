"""Exact choices: an index for every row of scores, weighted by the exponential of its score.

A word of 64 bits is read as a uniform V and the index is where V times the sum of all weights falls
among the cumulative sums. Weights are whole numbers with a proved error, so nearly every word decides;
a word too near a boundary is settled with wider numbers and more bits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError
from sfumato.core.exact import ExactLike, parse_positive, parse_whole
from sfumato.core.law import make_law
from sfumato.core.noise.entropy import BitSource, KeyStream, draw_word
from sfumato.core.noise.samplers import draw
from sfumato.core.noise.thresholds import exp_bounds

SUM_BITS: Final = 62
"""The sum of a row's weights stays below 2^62."""

WEIGHT_BITS: Final = 56
"""No weight has more bits: the eight below swallow the errors of table and products."""

DIGIT_BITS: Final = 14
"""A difference of scores is read in digits of so many bits, each with a table of its own."""

VANISHING: Final = 45
"""From this exponent on a weight is below 2^-64."""

_WORD: Final = 64
_GUARD: Final = 64
_CHUNK: Final = 1 << 16
_ERROR: Final = 2  # of a weight, in its own units; see `_weigh`


def exponential_choice(scores: NDArray[np.int64], *, rate: ExactLike) -> NDArray[np.int64]:
    """For every row of `scores` an index, drawn in proportion to exp(rate * score), independently.

    The law is exact (docs/proofs/noise.md), for any positive rational rate and any 64-bit scores.

    Privacy: if one individual moves each score of a row by at most D, the index chosen at rate
    epsilon / (2 D) is epsilon-differentially private (McSherry and Talwar 2007) and
    epsilon^2 / 8-zero-concentrated private (Cesar and Rogers 2021): the cost of kind "exponential",
    whose Gaussian parameter is in docs/proofs/accounting.md. The costs of rows add up.

    >>> exponential_choice(np.array([[0, 900, 0], [7, 7, 907]]), rate=1)
    array([1, 2])
    """
    exact = parse_positive(rate, name="rate")
    _check_scores(scores)
    return _choose(scores, exact, KeyStream())


def permute_and_flip(scores: NDArray[np.int64], *, rate: ExactLike) -> NDArray[np.int64]:
    """For every row of `scores` an index by permute-and-flip, independently of the others.

    The law is that of `permute_and_flip_index`, exactly, for any positive rational rate and any 64-bit
    scores: the first heads in random order is one of all heads, each alike likely (docs/proofs/choice.md).

    Privacy: if one individual moves each score of a row by at most D, the index chosen at rate
    epsilon / (2 D) is epsilon-differentially private (McKenna and Sheldon 2020): the cost of kind
    "permute-and-flip". The costs of rows add up.

    >>> permute_and_flip(np.array([[0, 900, 0], [7, 7, 907]]), rate=1)
    array([1, 2])
    """
    exact = parse_positive(rate, name="rate")
    _check_scores(scores)
    return _flip_rows(scores, exact, KeyStream())


def _check_scores(scores: NDArray[np.int64]) -> None:
    if not isinstance(scores, np.ndarray) or scores.dtype != np.int64:
        raise RecipeError(
            "choices are made among scores in an array of 64-bit integers; convert the scores first"
        )
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise RecipeError(
            "scores must have the shape (rows, candidates) with at least one candidate, "
            f"got the shape {scores.shape}"
        )


def exponential_index(scores: Sequence[int | Fraction], *, rate: ExactLike | Fraction) -> int:
    """An index, drawn with probability proportional to exp(rate * score) exactly.

    The law of `exponential_choice` for one row, for scores that need not be 64-bit integers.

    Privacy: that of `sfumato.choose.exponential`.

    >>> exponential_index([0, Fraction(10**100, 3), 3], rate=1)
    1
    """
    exact = parse_positive(rate, name="rate")
    return _exponential(_find_losses(scores), exact, KeyStream())


def poisson_sample(*, size: int, rate: ExactLike) -> NDArray[np.bool_]:
    """Whether each of `size` individuals is drawn: with the probability `rate`, independently of all others.

    The law is exact for every rational rate up to 1: a word is compared with the first 64 bits of the
    rate, and a word that equals them with its further bits.

    Privacy: nothing but the number of individuals enters, so that who is drawn says nothing about records.

    >>> poisson_sample(size=3, rate=1).tolist()
    [True, True, True]
    """
    exact = parse_positive(rate, name="rate")
    if exact > 1:
        raise RecipeError("individuals are drawn with a probability of at most 1")
    return _sample(parse_whole(size, name="size", low=0), Fraction(exact), KeyStream())


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


def laplace_max_index(scores: Sequence[int], *, scale: ExactLike | Fraction) -> int:
    """The index of the largest score plus discrete Laplace noise; of several, one at random.

    Privacy: that of `sfumato.choose.noisy_max` with noise="laplace".

    >>> laplace_max_index([0, 900, 3], scale=1)
    1
    """
    law = make_law("laplace", scale)
    _find_losses(scores)
    source = KeyStream()
    return _largest(scores, draw(law, len(scores), source).tolist(), source)


def _sample(size: int, rate: Fraction, source: BitSource, *, word_bits: int = _WORD) -> NDArray[np.bool_]:
    """A coin of the exact `rate` for everybody; `word_bits` of each word are used."""
    if rate == 1:
        return np.ones(size, np.bool_)
    whole, rest = divmod(rate.numerator << word_bits, rate.denominator)
    words = np.empty(size, np.uint64)
    source.fill(words)
    words >>= np.uint64(_WORD - word_bits)
    chosen = words < np.uint64(whole)
    tied = np.flatnonzero(words == np.uint64(whole))
    if tied.size and rest:
        chosen[tied] = _sample(tied.size, Fraction(rest, rate.denominator), source, word_bits=word_bits)
    return chosen


def _choose(
    scores: NDArray[np.int64],
    rate: Fraction,
    source: BitSource,
    *,
    sum_bits: int = SUM_BITS,
    word_bits: int = _WORD,
) -> NDArray[np.int64]:
    rows, candidates = scores.shape
    chosen = np.empty(rows, np.int64)
    bits = min(sum_bits - (candidates - 1).bit_length(), WEIGHT_BITS)
    if bits < 1:
        raise RecipeError(f"{candidates} candidates leave no room for their weights")
    tables = _build_tables(rate)
    step = max(1, _CHUNK // candidates)
    known: dict[tuple[int, int], tuple[int, int]] = {}
    for start in range(0, rows, step):
        part = scores[start : start + step]
        # Modulo 2^64 the difference is exact however far the scores are apart.
        differences = part.max(axis=1).view(np.uint64)[:, None] - part.view(np.uint64)
        words = np.empty(len(part), np.uint64)
        source.fill(words)
        words >>= np.uint64(_WORD - word_bits)
        sums = np.cumsum(_weigh(differences, tables, bits), axis=1, dtype=np.uint64)
        index, decided = _locate(sums, words, word_bits)
        for row in np.flatnonzero(~decided).tolist():
            index[row] = _resolve(differences[row].tolist(), rate, int(words[row]), word_bits, source, known)
        chosen[start : start + step] = index
    return chosen


def _locate(
    sums: NDArray[np.uint64], words: NDArray[np.uint64], word_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The index of each row that its word points to, and whether it certainly does.

    V times the true sum lies in [point, point + reach], and no true cumulative sum is below its
    entry in `sums` or more than `slack` above it.
    """
    rows, candidates = sums.shape
    slack = np.uint64(_ERROR * candidates)
    total = sums[:, -1]
    point = _multiply(words << np.uint64(_WORD - word_bits), total)
    reach = (total >> np.uint64(word_bits - 1) >> np.uint64(1)) + slack + np.uint64(5)
    index = np.count_nonzero(sums <= point[:, None], axis=1).astype(np.int64)
    place = np.arange(rows)
    below = np.where(index > 0, sums[place, index - 1] + slack, np.uint64(0))
    last = index == candidates - 1
    return index, (below <= point) & (last | (point + reach <= sums[place, index]))


def _weigh(
    differences: NDArray[np.uint64], tables: tuple[NDArray[np.uint64], ...], bits: int
) -> NDArray[np.uint64]:
    """Whole numbers, each at most 2^bits * exp(-rate * difference) and less than 2 below it.

    In units of 2^-64 a table is short by less than 2, and a product of two numbers below one by less
    than their errors together and 4 more. With at most five digits that is below 26, which is less
    than one unit of the result; dropping the low bits takes less than another.
    """
    last = len(tables) - 1
    mask = np.uint64((1 << DIGIT_BITS) - 1)
    weights: NDArray[np.uint64] | None = None
    for level, table in enumerate(tables):
        digit = differences >> np.uint64(DIGIT_BITS * level)
        if level < last:
            digit &= mask
        # The last entry of a table is zero and stands for every digit beyond it.
        np.minimum(digit, np.uint64(table.size - 1), out=digit)
        factor = table[digit.view(np.int64)]
        weights = factor if weights is None else _multiply(weights, factor)
    assert weights is not None
    weights >>= np.uint64(_WORD - bits)
    return weights


def _multiply(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The product over 2^64, or up to 3 less: three of the four products of half words."""
    half, low = np.uint64(32), np.uint64((1 << 32) - 1)
    left_high, right_high = left >> half, right >> half
    product: NDArray[np.uint64] = left_high * right_high
    product += left_high * (right & low) >> half
    product += (left & low) * right_high >> half
    return product


@lru_cache(maxsize=16)
def _build_tables(rate: Fraction) -> tuple[NDArray[np.uint64], ...]:
    """For each digit of a difference, lowest first, its factors of the weight in units of 2^-64."""
    tables = []
    for shift in range(0, _WORD, DIGIT_BITS):
        step = rate * (1 << shift)
        tables.append(_build_table(step))
        if step * (1 << DIGIT_BITS) >= VANISHING:
            break
    return tuple(tables)


def _build_table(step: Fraction) -> NDArray[np.uint64]:
    """The floors of 2^64 * exp(-step * k), k = 0, 1, ..., each short by less than 2, then a zero.

    Ends where the floor is zero, or after all values of a digit. Each product by the lower bound of
    exp(-step) adds at most three units of 2^-128 to the error, so 2^14 of them stay below 2^-64.
    """
    precision = _WORD + _GUARD
    ratio, _ = exp_bounds(step, precision)
    top = (1 << _WORD) - 1
    value = 1 << precision
    entries: list[int] = []
    while len(entries) < 1 << DIGIT_BITS and (entry := value >> _GUARD):
        entries.append(min(entry, top))
        value = value * ratio >> precision
    table = np.array([*entries, 0], np.uint64)
    table.setflags(write=False)
    return table


def _resolve(
    differences: list[int],
    rate: Fraction,
    value: int,
    bits: int,
    source: BitSource,
    known: dict[tuple[int, int], tuple[int, int]],
) -> int:
    """The index that V = `value` / 2^`bits` and more points to, from as many more bits as it takes."""
    while True:
        precision = bits + _GUARD + len(differences).bit_length()
        lows, highs = [], []
        for difference in differences:
            key = difference, precision
            if key not in known:
                known[key] = exp_bounds(rate * difference, precision)
            low, high = known[key]
            lows.append(low)
            highs.append(high)
        low_sums, high_sums = list(accumulate(lows)), list(accumulate(highs))
        # V times the true sum is at least value * low_sums[-1] / 2^bits, and below
        # (value + 1) * high_sums[-1] / 2^bits.
        index = bisect_right(high_sums, value * low_sums[-1] >> bits)
        if index == len(differences) - 1 or (value + 1) * high_sums[-1] <= low_sums[index] << bits:
            return index
        value = value << _WORD | draw_word(source)
        bits += _WORD


def _exponential(losses: list[Fraction], rate: Fraction, source: BitSource, *, word_bits: int = _WORD) -> int:
    grid = math.lcm(*(loss.denominator for loss in losses))
    whole = [loss.numerator * (grid // loss.denominator) for loss in losses]
    value = draw_word(source) >> _WORD - word_bits
    return _resolve(whole, rate / grid, value, word_bits, source, {})


def _permute_and_flip(gammas: list[Fraction], source: BitSource, *, word_bits: int = _WORD) -> int:
    order = list(range(len(gammas)))
    for left in range(len(gammas), 1, -1):
        place = _draw_below(left, source)
        index = order[place]
        if _flip(gammas[index], source, word_bits=word_bits):
            return index
        order[place] = order[left - 1]
    return order[0]  # the only one left is the best, whose coin shows heads


class _Begun:
    """A source whose first word is known."""

    def __init__(self, word: int, source: BitSource) -> None:
        self._word: int | None = word
        self._source = source

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Fills `out` with the known word, then with random ones."""
        first, self._word = self._word, None
        if first is None:
            self._source.fill(out)
        else:
            out[:1] = first
            self._source.fill(out[1:])


def _flip_rows(
    scores: NDArray[np.int64], rate: Fraction, source: BitSource, *, word_bits: int = _WORD
) -> NDArray[np.int64]:
    """Flips a coin for every candidate of every row, and picks one of the heads of each at random.

    A weight is at least `known` and less than _ERROR above it, in units of 2^-bits. A word that falls
    between is settled with more bits; `word_bits` of each are used.
    """
    rows, candidates = scores.shape
    chosen = np.empty(rows, np.int64)
    tables, bits = _build_tables(rate), min(WEIGHT_BITS, word_bits)
    step = max(1, _CHUNK // candidates)
    for start in range(0, rows, step):
        part = scores[start : start + step]
        differences = part.max(axis=1).view(np.uint64)[:, None] - part.view(np.uint64)
        drawn = np.empty(part.size, np.uint64)
        source.fill(drawn)
        words = drawn.reshape(part.shape)
        known = _weigh(differences, tables, bits)
        places = words >> np.uint64(_WORD - bits)
        heads = places < known
        for row, column in np.argwhere(~heads & (places < known + np.uint64(_ERROR))).tolist():
            begun = _Begun(int(words[row, column]), source)
            heads[row, column] = _flip(rate * int(differences[row, column]), begun, word_bits=word_bits)
        for row, coins in enumerate(heads, start):
            (up,) = np.nonzero(coins)
            chosen[row] = up[_draw_below(up.size, source)]
    return chosen


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
