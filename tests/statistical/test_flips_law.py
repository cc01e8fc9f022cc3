"""Chi-square tests of coins and of the choices made with them, at one false alarm in a million each.

All but the last draw from a seeded generator, so that they give one verdict for ever. Words cut to few bits
make the coins extend them often.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import sfumato.choose as threshold
from helpers.sources import SeededSource, chi_square_tail
from sfumato.choose import above_threshold, choose
from sfumato.core.law import Law
from sfumato.core.noise import choice
from sfumato.core.noise.choice import (
    _draw_below,
    _exponential,
    _flip,
    _flip_rows,
    _largest,
    _permute_and_flip,
)
from sfumato.core.noise.samplers import draw

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
SIZE = 20_000
SCORES = [3, 1, 4, 1, 5]
RATE = Fraction(1, 3)
CUTS = [64, 5, 1]


def p_value(found, law):
    """How surprising the outcomes are under `law`, a probability for each."""
    expected = np.array(list(law.values())) * len(found)
    assert expected.min() > 15
    assert math.isclose(expected.sum(), len(found), rel_tol=1e-9)
    counts = np.array([found.count(outcome) for outcome in law], float)
    assert counts.sum() == len(found), "an outcome that cannot be"
    return chi_square_tail(float(((counts - expected) ** 2 / expected).sum()), len(law) - 1)


def exponential_law(scores, rate):
    weights = [math.exp(float(rate) * (score - max(scores))) for score in scores]
    return {index: weight / sum(weights) for index, weight in enumerate(weights)}


def flip_law(scores, rate):
    """By the definition: over all orders, the first heads wins."""
    heads = [math.exp(float(rate) * (score - max(scores))) for score in scores]
    law = dict.fromkeys(range(len(scores)), 0.0)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = 1 / len(orders)
        for index in order:
            law[index] += reached * heads[index]
            reached *= 1 - heads[index]
    return law


def losses(scores, rate=Fraction(1)):
    return [rate * (max(scores) - score) for score in scores]


@pytest.mark.slow
@pytest.mark.parametrize("gamma", ["1/1000", "1/10", "7/10", "2", "5"])
@pytest.mark.parametrize("word_bits", CUTS)
def test_coins_show_heads_as_often_as_they_should(gamma, word_bits):
    source = SeededSource(1)
    found = [_flip(Fraction(gamma), source, word_bits=word_bits) for _ in range(SIZE)]
    heads = math.exp(-float(Fraction(gamma)))
    assert p_value(found, {True: heads, False: 1 - heads}) > FALSE_ALARM


@pytest.mark.parametrize("count", [1, 3, 7, 64])
def test_uniform_draws_are_uniform(count):
    source = SeededSource(2)
    found = [_draw_below(count, source) for _ in range(SIZE)]
    if count == 1:
        assert set(found) == {0}
        return
    assert p_value(found, dict.fromkeys(range(count), 1 / count)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("scores", [SCORES, [0, 0, 0], [2, 2, 0], [0, 9]])
@pytest.mark.parametrize("word_bits", CUTS)
def test_permute_and_flip_has_its_law(scores, word_bits):
    source = SeededSource(3)
    gammas = losses(scores, RATE)
    found = [_permute_and_flip(gammas, source, word_bits=word_bits) for _ in range(SIZE)]
    assert p_value(found, flip_law(scores, RATE)) > FALSE_ALARM


@pytest.mark.parametrize("scores", [SCORES, [0, 0, 0], [2, 2, 0], [0, 9], [-(2**63), 0, -2]])
@pytest.mark.parametrize("word_bits", CUTS)
def test_rows_have_the_law_of_permute_and_flip(scores, word_bits):
    rows = np.tile(np.array(scores, np.int64), (SIZE, 1))
    found = _flip_rows(rows, RATE, SeededSource(12), word_bits=word_bits).tolist()
    law = {index: chance for index, chance in flip_law(scores, RATE).items() if chance > 1e-6}
    assert set(found) <= set(law)
    if len(law) > 1:
        assert p_value(found, law) > FALSE_ALARM


def test_every_row_has_its_own_scores():
    rows = np.array([[0, 10**6, 0], [10**6, 0, 0], [3, 2, 10**18]] * 40_000, np.int64)
    assert _flip_rows(rows, RATE, SeededSource(13)).tolist() == [1, 0, 2] * 40_000


@pytest.mark.parametrize("fault", ["0.9", "1.1"])
def test_control_rows_at_a_rate_off_by_ten_per_cent_are_found(fault):
    rows = np.tile(np.array([0, 3, 6], np.int64), (4 * SIZE, 1))
    found = _flip_rows(rows, Fraction(1, 2) * Fraction(fault), SeededSource(14)).tolist()
    assert p_value(found, flip_law([0, 3, 6], Fraction(1, 2))) < FALSE_ALARM


def test_permute_and_flip_is_the_largest_after_exponential_noise():
    generator = np.random.Generator(np.random.PCG64(4))
    noise = generator.exponential(float(1 / RATE), size=(SIZE, len(SCORES)))
    found = (np.array(SCORES) + noise).argmax(axis=1).tolist()
    assert p_value(found, flip_law(SCORES, RATE)) > FALSE_ALARM


@pytest.mark.parametrize("word_bits", CUTS)
def test_rational_scores_are_drawn_in_proportion_to_their_weights(word_bits):
    scores = [Fraction(1, 3), Fraction(2, 7), Fraction(5), Fraction(9, 2)]
    source = SeededSource(5)
    found = [_exponential(losses(scores), RATE, source, word_bits=word_bits) for _ in range(SIZE // 2)]
    assert p_value(found, exponential_law(scores, RATE)) > FALSE_ALARM


def laplace_max_law(scores, scale, reach=200):
    """Sums over all noise that matters; ties share."""
    q = math.exp(-1 / scale)
    weight = {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-reach, reach + 1)}
    law = dict.fromkeys(range(len(scores)), 0.0)
    for value in range(-reach, reach):
        at = [weight.get(value - score, 0.0) for score in scores]
        below = [sum(w for k, w in weight.items() if k < value - score) for score in scores]
        for count in range(1, len(scores) + 1):
            for tied in itertools.combinations(range(len(scores)), count):
                chance = math.prod(at[i] if i in tied else below[i] for i in range(len(scores)))
                for index in tied:
                    law[index] += chance / count
    return law


def test_the_largest_after_laplace_noise_has_its_law():
    scores, scale = [3, 1, 3], Fraction(3, 2)
    source = SeededSource(6)
    noise = draw(Law("laplace", scale), SIZE * 3, source).reshape(SIZE, 3).tolist()
    found = [_largest(scores, each, source) for each in noise]
    assert p_value(found, laplace_max_law(scores, 1.5)) > FALSE_ALARM


def stream_law(queries, edge, scales):
    """The probability of every transcript of one run, by sums over the noise of the threshold."""
    qs = [math.exp(-1 / float(scale)) for scale in scales]

    def tail(k):
        z = qs[1]
        return z**k / (1 + z) if k >= 0 else 1 - z ** (1 - k) / (1 + z)

    law = dict.fromkeys([*range(len(queries)), None], 0.0)
    for noise in range(-300, 301):
        reached = (1 - qs[0]) / (1 + qs[0]) * qs[0] ** abs(noise)
        for place, value in enumerate(queries):
            above = tail(edge + noise - value)
            law[place] += reached * above
            reached *= 1 - above
        law[None] += reached
    return law


@pytest.mark.parametrize("monotone", [False, True])
def test_the_first_answer_above_a_threshold_has_its_law(monkeypatch, monotone):
    queries, edge, runs = [3, 0, 5, 2], 6, 10_000
    terms = threshold.Terms(epsilon=Fraction(3), sensitivity=Fraction(2), monotone=monotone)
    scales = threshold.noise_scales(terms, count=1, grid=1)
    source = SeededSource(7)
    drawn = {scale: iter(draw(Law("laplace", scale), 5 * runs, source).tolist()) for scale in set(scales)}
    monkeypatch.setattr(threshold, "_draw", lambda scale: next(drawn[scale]))
    found = []
    for _ in range(runs):
        answers = list(above_threshold(queries, edge, 3, 2, monotone=monotone))
        found.append(answers.index(True) if True in answers else None)
    assert p_value(found, stream_law(queries, edge, scales)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["0.9", "1.1"])
def test_control_a_rate_off_by_ten_per_cent_is_found(fault):
    source = SeededSource(8)
    rate = Fraction(1, 2) * Fraction(fault)
    found = [_permute_and_flip(losses([0, 3, 6], rate), source) for _ in range(3 * SIZE)]
    assert p_value(found, flip_law([0, 3, 6], Fraction(1, 2))) < FALSE_ALARM


def test_control_the_other_mechanism_is_found():
    source = SeededSource(9)
    found = [_permute_and_flip(losses(SCORES, RATE), source) for _ in range(SIZE)]
    assert p_value(found, exponential_law(SCORES, RATE)) < FALSE_ALARM


def test_control_undecided_words_taken_as_tails_are_found(monkeypatch):
    bounds = choice.exp_bounds
    monkeypatch.setattr(choice, "exp_bounds", lambda gamma, bits: (bounds(gamma, bits)[0],) * 2)
    source = SeededSource(10)
    found = [_flip(Fraction(7, 10), source, word_bits=4) for _ in range(SIZE)]
    heads = math.exp(-0.7)
    assert p_value(found, {True: heads, False: 1 - heads}) < FALSE_ALARM


def test_control_candidates_that_come_in_a_fixed_order_are_found(monkeypatch):
    monkeypatch.setattr(choice, "_draw_below", lambda count, source: 0)
    source = SeededSource(11)
    found = [_permute_and_flip(losses([0, 0, 1], RATE), source) for _ in range(SIZE)]
    assert p_value(found, flip_law([0, 0, 1], RATE)) < FALSE_ALARM


@pytest.mark.statistical(real=True)
def test_the_real_source():
    # Not repeatable, hence a rarer alarm.
    coins = [_flip(Fraction(1, 2), choice.KeyStream()) for _ in range(SIZE)]
    assert p_value(coins, {True: math.exp(-0.5), False: 1 - math.exp(-0.5)}) > 1e-9
    for mechanism, law in (("permute-and-flip", flip_law), ("exponential", exponential_law)):
        found = [
            choose(range(5), SCORES, epsilon=1, sensitivity=1, mechanism=mechanism).index
            for _ in range(SIZE // 4)
        ]
        assert p_value(found, law(SCORES, Fraction(1, 2))) > 1e-9
