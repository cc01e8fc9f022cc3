"""Coins and draws, bit by bit: scripted words drive each path, 200 digits check the verdicts."""

from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import sfumato as sf
from sfumato.core.noise import choice, exponential_index, laplace_max_index, permute_and_flip_index
from sfumato.core.noise.choice import _draw_below, _flip, _largest, _permute_and_flip

WORD = 1 << 64
DIGITS = Context(prec=200)


class Scripted:
    """Gives the listed words in turn, and fails when they run out."""

    def __init__(self, *words):
        self.words = list(words)

    def fill(self, out):
        for place in range(out.size):
            out[place] = np.uint64(self.words.pop(0))


def threshold(gamma, bits):
    """The floor of 2^bits * exp(-gamma)."""
    value = DIGITS.divide(Decimal(-gamma.numerator), Decimal(gamma.denominator)).exp(DIGITS)
    return int(DIGITS.multiply(value, Decimal(1 << bits)))


@pytest.mark.parametrize("gamma", [Fraction(1, 10**9), Fraction(1, 3), Fraction(7), Fraction(40)])
def test_a_word_below_the_threshold_is_heads_and_above_tails(gamma):
    floor = threshold(gamma, 64)
    assert _flip(gamma, Scripted(floor - 2))
    assert not _flip(gamma, Scripted(floor + 2))


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(7)])
def test_an_undecided_word_is_extended(gamma):
    floor, longer = threshold(gamma, 64), threshold(gamma, 128)
    low = longer - (floor << 64)
    source = Scripted(floor, low - 2, 99)
    assert _flip(gamma, source)
    assert source.words == [99]
    assert not _flip(gamma, Scripted(floor, low + 2))


def test_a_coin_of_weight_below_the_word_is_found_by_more_bits():
    gamma = Fraction(60)
    assert threshold(gamma, 64) == 0
    longer = threshold(gamma, 128)
    assert longer > 2
    assert _flip(gamma, Scripted(0, longer - 2))
    assert not _flip(gamma, Scripted(0, longer + 2))
    assert not _flip(Fraction(10**9), Scripted(1))


def test_a_sure_coin_needs_no_word():
    assert _flip(Fraction(0), Scripted())


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_short_words_give_the_verdict_of_all_their_bits(bits):
    gamma = Fraction(1, 2)
    for first in range(1 << bits):
        for second in (0, WORD - 1):
            words = [first << 64 - bits] + [second] * 40
            value = first
            for _ in range(40):
                value = value << bits | second >> 64 - bits
            expected = value < threshold(gamma, bits * 41)
            assert _flip(gamma, Scripted(*words), word_bits=bits) == expected


def test_a_uniform_draw_rejects_the_words_beyond_its_shares():
    share = WORD // 3
    assert _draw_below(3, Scripted(share - 1)) == 0
    assert _draw_below(3, Scripted(share)) == 1
    assert _draw_below(3, Scripted(WORD - 1, 2 * share)) == 2
    assert _draw_below(1, Scripted(5)) == 0


def test_candidates_come_in_the_order_that_the_words_say():
    third = WORD // 3
    tails, heads = WORD - 1, 0
    gammas = [Fraction(1), Fraction(0), Fraction(1)]
    # The last comes first and shows tails, then the first shows heads.
    assert _permute_and_flip(gammas, Scripted(2 * third, tails, 0, heads)) == 0
    # Both fail, and the best is left.
    assert _permute_and_flip(gammas, Scripted(2 * third, tails, 0, tails)) == 1
    assert _permute_and_flip([Fraction(0)], Scripted()) == 0


def test_ties_are_settled_by_a_draw_of_their_own():
    half = WORD // 2
    assert _largest([5, 3, 4], [0, 2, 0], Scripted(0)) == 0
    assert _largest([5, 3, 4], [0, 2, 0], Scripted(half)) == 1
    assert _largest([10**300, 3], [-4, 4], Scripted(0)) == 0


@pytest.mark.parametrize("index_of", [exponential_index, permute_and_flip_index])
def test_bad_input_is_refused(index_of):
    for scores, rate, reason in (
        ([], 1, "no candidate"),
        ([1.5], 1, "whole numbers or fractions"),
        ([1, 2], 0, "rate"),
        ([1, 2], "x", "rate"),
    ):
        with pytest.raises(sf.RecipeError, match=reason):
            index_of(scores, rate=rate)


def test_bad_scales_are_refused():
    with pytest.raises(sf.RecipeError, match="scale"):
        laplace_max_index([1], scale=0)
    with pytest.raises(sf.RecipeError, match="no candidate"):
        laplace_max_index([], scale=1)


def test_far_scores_and_extreme_rates_are_settled():
    scores = [Fraction(10**300, 7), Fraction(10**300, 7) - Fraction(1, 10**300), -(10**400)]
    for index_of in (exponential_index, permute_and_flip_index):
        assert {index_of(scores, rate=1) for _ in range(60)} == {0, 1}
        assert index_of(scores, rate=10**305) == 0
        assert {index_of([0, 10**6], rate="1e-30") for _ in range(60)} == {0, 1}


def test_nothing_floats():
    source = Path(choice.__file__).read_text(encoding="utf-8")
    assert "float" not in source.replace("floating-point", "")
