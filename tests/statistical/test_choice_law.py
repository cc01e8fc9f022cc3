"""Chi-square tests of exact choices, at a false-alarm rate of one in a million each.

All but the last draw from a seeded generator, so that they give one verdict for ever.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from helpers.sources import SeededSource, chi_square_tail
from sfumato.core.noise import choice, exponential_choice
from sfumato.core.noise.choice import _choose

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
SIZE = 200_000
SCORES = [3, 1, 4, 1, 5, 9, 2, 6]
EXTREMES = [np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0]


def p_value(found, scores, rate):
    """How surprising the indices are; candidates expected fewer than 20 times count as one."""
    top = max(scores)
    weights = np.array([math.exp(-float(rate * (top - score))) for score in scores])
    expected = weights / weights.sum() * found.size
    counts = np.bincount(found, minlength=len(scores)).astype(float)
    rare = expected < 20
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        counts = np.append(counts[~rare], counts[rare].sum())
    if expected[-1] < 20:  # too rare for chi-square: among the most common candidate
        most = int(np.argmax(expected))
        expected[most] += expected[-1]
        counts[most] += counts[-1]
        expected, counts = expected[:-1], counts[:-1]
    if expected.size < 2:
        pytest.fail("one bin tests nothing")
    return chi_square_tail(float(((counts - expected) ** 2 / expected).sum()), expected.size - 1)


def choose(scores, rate, *, seed=1, size=SIZE, **cuts):
    tiled = np.tile(np.array(scores, np.int64), (size, 1))
    return _choose(tiled, Fraction(rate), SeededSource(seed), **cuts)


@pytest.mark.parametrize("rate", ["1/10", "1/2", "2"])
def test_choices_follow_their_law(rate):
    assert p_value(choose(SCORES, rate), SCORES, Fraction(rate)) > FALSE_ALARM


@pytest.mark.parametrize("rate", ["1/2", "1/10"])
@pytest.mark.parametrize(
    "cuts", [{"sum_bits": 8}, {"sum_bits": 11}, {"word_bits": 5}, {"sum_bits": 12, "word_bits": 8}]
)
def test_choices_that_the_exact_path_decides_often(rate, cuts, monkeypatch):
    calls = []
    resolve = choice._resolve
    monkeypatch.setattr(choice, "_resolve", lambda *rest: calls.append(1) or resolve(*rest))
    found = choose(SCORES, rate, size=50_000, **cuts)
    assert len(calls) > 5000
    assert p_value(found, SCORES, Fraction(rate)) > FALSE_ALARM


@pytest.mark.parametrize("candidates", [2, 7, 64])
@pytest.mark.parametrize("cuts", [{}, {"word_bits": 8}])
def test_equal_scores_are_chosen_alike(candidates, cuts):
    scores = [-(10**15)] * candidates
    found = choose(scores, "1/3", size=50_000, **cuts)
    assert p_value(found, scores, Fraction(1, 3)) > FALSE_ALARM


def test_small_rates_and_huge_differences():
    # Differences of five digits, at rates where all of them matter.
    for rate, unit in (("1e-6", 10**6), ("1e-12", 10**12), ("1e-17", 10**17)):
        scores = [unit * each // 7 for each in (0, 5, 9, 14, 3)]
        assert p_value(choose(scores, rate), scores, Fraction(rate)) > FALSE_ALARM


def test_scores_at_the_ends_of_the_integers():
    rate = Fraction(1, 1 << 63)
    assert p_value(choose(EXTREMES, rate), EXTREMES, rate) > FALSE_ALARM


def test_candidates_out_of_reach_leave_the_others_alone():
    scores = [0, -(10**18), 2, -(10**6), 1]
    for cuts in ({}, {"sum_bits": 12}):
        found = choose(scores, "1/2", size=50_000, **cuts)
        assert set(found.tolist()) == {0, 2, 4}
        assert p_value(found, scores, Fraction(1, 2)) > FALSE_ALARM


def test_many_rows_of_many_candidates_each_follow_their_own_law():
    generator = np.random.Generator(np.random.PCG64(6))
    rate = Fraction(1, 20)
    scores = generator.integers(-60, 60, size=(40_000, 100))
    found = _choose(scores, rate, SeededSource(3))
    # Where the true distribution function of its own row puts each choice: uniform, if cut at random.
    weights = np.exp(float(rate) * (scores - scores.max(axis=1, keepdims=True)))
    upper = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    lower = np.concatenate([np.zeros((len(scores), 1)), upper[:, :-1]], axis=1)
    place = np.arange(len(scores))
    share = generator.random(len(scores))
    uniform = lower[place, found] + share * (upper[place, found] - lower[place, found])
    counts = np.histogram(uniform, bins=50, range=(0, 1))[0]
    statistic = float(((counts - 800) ** 2 / 800).sum())
    assert chi_square_tail(statistic, 49) > FALSE_ALARM


def test_neighbouring_rows_are_independent():
    first = choose([0, 0], 1) == 0
    both = np.mean(first[:-1] & first[1:])
    assert abs(both - 0.25) < 4.9 * 0.25 / math.sqrt(SIZE)


@pytest.mark.parametrize("fault", ["0.9", "1.1"])
@pytest.mark.parametrize("cuts", [{}, {"sum_bits": 11}])
def test_control_a_rate_off_by_ten_per_cent_is_found(fault, cuts):
    found = choose(SCORES, Fraction(fault) / 2, size=50_000, **cuts)
    assert p_value(found, SCORES, Fraction(1, 2)) < FALSE_ALARM


def test_control_a_wrong_exact_path_is_found(monkeypatch):
    monkeypatch.setattr(choice, "_resolve", lambda *rest: 0)
    assert p_value(choose(SCORES, "1/2", size=50_000, sum_bits=12), SCORES, Fraction(1, 2)) < FALSE_ALARM


def test_control_undecided_words_taken_as_decided_are_found(monkeypatch):
    locate = choice._locate
    monkeypatch.setattr(choice, "_locate", lambda *rest: (locate(*rest)[0], np.ones(len(rest[1]), np.bool_)))
    assert p_value(choose(SCORES, "1/2", size=50_000, word_bits=4), SCORES, Fraction(1, 2)) < FALSE_ALARM


@pytest.mark.statistical(real=True)
def test_the_real_source():
    # Not repeatable, hence a rarer alarm.
    scores = np.tile(np.array(SCORES), (SIZE, 1))
    assert p_value(exponential_choice(scores, rate="1/2"), SCORES, Fraction(1, 2)) > 1e-9
