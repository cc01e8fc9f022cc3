"""Laws, bias and squared error of local mechanisms, at a false-alarm rate of one in a million each.

All but the last draw their words from a seeded generator, so that they give one verdict for ever.
"""

import math

import numpy as np
import pytest

from helpers.sources import SeededSource, chi_square_tail
from sfumato.local import (
    CoinResponse,
    DuchiMean,
    HadamardResponse,
    LaplaceMean,
    LocalHashing,
    PiecewiseMean,
    RandomizedResponse,
    Rappor,
    SubsetSelection,
    UnaryEncoding,
    randomized_response,
)
from sfumato.local.means import STEPS

pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
FIVE = 4.9  # a normal variable leaves this many standard deviations once in a million
REPEATS = 200


def p_value(counts, chances):
    """How surprising the counts are; no expected count may be small."""
    expected = np.asarray(chances, float) * counts.sum()
    assert expected.min() > 20
    return chi_square_tail(float(((counts - expected) ** 2 / expected).sum()), expected.size - 1)


def krr_chances(k, epsilon, value):
    chances = np.full(k, 1 / (math.exp(epsilon) + k - 1))
    chances[value] *= math.exp(epsilon)
    return chances


@pytest.mark.parametrize(("k", "epsilon"), [(2, 1.0), (3, 0.1), (7, 2.0), (100, 1.0)])
def test_randomised_response_has_its_law(k, epsilon):
    mechanism = RandomizedResponse(epsilon=epsilon, categories=k)
    answers = mechanism._draw(np.full(400_000, k - 1), SeededSource(k))
    counts = np.bincount(answers, minlength=k)
    assert p_value(counts, krr_chances(k, epsilon, k - 1)) > FALSE_ALARM


@pytest.mark.parametrize("fault", [0.97, 1.03])
def test_control_an_epsilon_three_per_cent_off_is_found(fault):
    mechanism = RandomizedResponse(epsilon=fault, categories=7)
    answers = mechanism._draw(np.zeros(400_000, int), SeededSource(1))
    assert p_value(np.bincount(answers, minlength=7), krr_chances(7, 1.0, 0)) < FALSE_ALARM


def test_neighbouring_answers_are_independent():
    answers = RandomizedResponse(epsilon=1)._draw(np.zeros(400_000, np.uint8), SeededSource(8))
    pairs = np.bincount(2 * answers[:-1].astype(int) + answers[1:], minlength=4)
    lie = 1 / (math.e + 1)
    assert p_value(pairs[:], np.outer([1 - lie, lie], [1 - lie, lie]).ravel()) > FALSE_ALARM


@pytest.mark.parametrize("flips", ["optimized", "symmetric"])
def test_unary_bits_have_their_law_and_are_independent(flips):
    mechanism = UnaryEncoding(epsilon=1, categories=3, flips=flips)
    bits = mechanism._draw(np.full(200_000, 1), SeededSource(2))
    counts = np.bincount(bits @ np.array([4, 2, 1]), minlength=8)
    miss = 1 / (math.e + 1) if flips == "optimized" else 1 / (math.exp(0.5) + 1)
    hit = 0.5 if flips == "optimized" else 1 - miss
    off, on = np.array([1 - miss, miss]), np.array([1 - hit, hit])
    assert p_value(counts, np.einsum("a,b,c->abc", off, on, off).ravel()) > FALSE_ALARM


def test_sets_have_their_law():
    mechanism = SubsetSelection(epsilon=1, categories=6, subset_size=2)
    rows = mechanism._draw(np.full(300_000, 4), SeededSource(12))
    counts = np.bincount(rows @ (1 << np.arange(6)), minlength=64)
    sets = np.flatnonzero(np.bitwise_count(np.arange(64)) == 2)
    assert counts[sets].sum() == 300_000
    chances = np.where(sets & 16, math.e, 1)
    assert p_value(counts[sets], chances / chances.sum()) > FALSE_ALARM


def test_hashes_have_their_law():
    mechanism = LocalHashing(epsilon=1, categories=20, hash_size=3)
    answers = mechanism._draw(np.full(400_000, 17), SeededSource(3))
    members, hashes = np.divmod(np.arange(81), 3)
    own = mechanism.hash(members, np.full_like(members, 17)) == hashes
    chances = np.where(own, math.e, 1) / (math.e + 2) / 27
    assert p_value(np.bincount(answers, minlength=81), chances) > FALSE_ALARM


def test_hadamard_answers_have_their_law():
    mechanism = HadamardResponse(epsilon=1, categories=13)
    answers = mechanism._draw(np.full(400_000, 11), SeededSource(4))
    rows, bits = np.divmod(np.arange(32), 2)
    own = (np.bitwise_count(rows & 11) & 1) == bits
    chances = np.where(own, math.e, 1) / (math.e + 1) / 16
    assert p_value(np.bincount(answers, minlength=32), chances) > FALSE_ALARM


def test_a_report_of_rappor_has_its_law():
    mechanism = Rappor(categories=3, rates=("1/2", "1/2", "3/4"))
    reports = mechanism._draw(np.full(200_000, 2), SeededSource(5))
    counts = np.bincount(reports @ np.array([4, 2, 1]), minlength=8)
    miss, hit = np.array([7, 9]) / 16, np.array([5, 11]) / 16
    assert p_value(counts, np.einsum("a,b,c->abc", miss, miss, hit).ravel()) > FALSE_ALARM


@pytest.mark.parametrize("value", [0, 1])
def test_the_coin_has_its_law(value):
    answers = CoinResponse(truth="1/2", yes="1/3")._draw(np.full(200_000, value), SeededSource(6))
    yes = 1 / 6 + value / 2
    assert p_value(np.bincount(answers, minlength=2), [1 - yes, yes]) > FALSE_ALARM


@pytest.mark.parametrize("place", [0, STEPS // 3, STEPS])
@pytest.mark.parametrize("epsilon", [0.2, 1.5, 5])
def test_windows_have_their_law(place, epsilon):
    mechanism = PiecewiseMean(epsilon=epsilon, low=0, high=1)
    answers = mechanism._draw(np.full(200_000, place), SeededSource(7))
    # Bins of equal width, cut anywhere, with a density that is e^epsilon times higher in the window.
    edges = np.linspace(0, STEPS + mechanism.window, 41)
    inside = np.diff(np.clip(edges, place, place + mechanism.window))
    weights = inside * math.exp(epsilon) + (np.diff(edges) - inside)
    counts = np.histogram(answers, bins=edges)[0]
    assert p_value(counts, weights / weights.sum()) > FALSE_ALARM


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_bit_of_duchi_has_its_law(share):
    mechanism = DuchiMean(epsilon=1, low=0, high=1)
    answers = mechanism._draw(np.full(200_000, round(share * STEPS)), SeededSource(9))
    high = (1 + share * (math.e - 1)) / (math.e + 1)
    assert p_value(np.bincount(answers, minlength=2), [1 - high, high]) > FALSE_ALARM


K = 64
WEIGHTS = 1 / np.arange(1, K + 1)
PEOPLE = np.repeat(np.arange(K), np.round(20_000 * WEIGHTS / WEIGHTS.sum()).astype(int))
TRUTH = np.bincount(PEOPLE, minlength=K) / PEOPLE.size


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1, 3])
@pytest.mark.parametrize("kind", ["krr", "oue", "sue", "olh", "hadamard", "rappor"])
def test_squared_error_is_that_of_theory_and_there_is_no_bias(kind, epsilon):
    make = {
        "krr": RandomizedResponse,
        "oue": UnaryEncoding,
        "sue": lambda **rest: UnaryEncoding(flips="symmetric", **rest),
        "olh": LocalHashing,
        "hadamard": HadamardResponse,
        "rappor": Rappor,
    }[kind]
    mechanism = make(epsilon=epsilon, categories=K)
    source = SeededSource(11)
    estimates = [mechanism.estimate(mechanism._draw(PEOPLE, source)) for _ in range(REPEATS)]
    errors = np.array([each.frequencies for each in estimates]) - TRUTH
    theory = np.array([mechanism.variance(share) for share in TRUTH]) / PEOPLE.size
    assert abs((errors**2).mean() / theory.mean() - 1) < 0.05
    stated = np.mean([each.standard_errors**2 for each in estimates])
    assert abs(stated / theory.mean() - 1) < 0.05
    bias = errors.mean(axis=0) / np.sqrt(theory / REPEATS)
    assert np.abs(bias).max() < FIVE + 1  # over 64 categories


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 1, 4])
@pytest.mark.parametrize("kind", [LaplaceMean, DuchiMean, PiecewiseMean])
def test_means_have_the_error_of_theory_and_no_bias(kind, epsilon):
    mechanism = kind(epsilon=epsilon, low=0, high=1)
    places = np.round(np.linspace(0.2, 0.9, 200) * STEPS).astype(np.int64)
    source = SeededSource(13)
    repeats = 4000
    drawn = mechanism._draw(np.tile(places, repeats), source).reshape(repeats, -1)
    errors = np.array([mechanism.estimate(row).mean for row in drawn]) - (places / STEPS).mean()
    theory = np.mean([mechanism.variance(place / STEPS) for place in places]) / places.size
    assert abs((errors**2).mean() / theory - 1) < 0.11  # 4.9 standard deviations of 4000 squares
    assert abs(errors.mean()) < FIVE * math.sqrt(theory / repeats)


def test_population_errors_cover_the_sampling_of_people():
    generator = np.random.default_rng(19)
    mechanism = RandomizedResponse(epsilon=2)
    source = SeededSource(23)
    found = [
        mechanism.estimate(mechanism._draw((generator.random(2000) < 0.4).astype(np.uint8), source))
        for _ in range(4000)
    ]
    errors = np.array([each.frequencies[1] for each in found]) - 0.4
    stated = np.array([each.population_errors[1] for each in found])
    assert abs((errors**2).mean() / (stated**2).mean() - 1) < 0.11


@pytest.mark.statistical(real=True)
def test_the_real_source():
    # Not repeatable, hence a rarer alarm.
    answers = randomized_response(np.zeros(200_000, int), epsilon=1, categories=5)
    assert p_value(np.bincount(answers, minlength=5), krr_chances(5, 1.0, 0)) > 1e-9
