"""The bounds of audits: against scipy, against their definitions, and how often they err."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.audit.blackbox import Sample, certify_samples, lowest_bits
from sfumato.audit.bounds import (
    binomial_tail,
    chi_square_tail,
    epsilon_bound,
    largest_bound,
    lower_chance,
    one_run_epsilon,
    upper_chance,
)
from sfumato.audit.layers import fit_law
from sfumato.core.errors import AuditError
from sfumato.core.noise import add_noise, discrete_gaussian, discrete_laplace


@given(st.integers(1, 2_000_000), st.floats(0, 1), st.sampled_from([0.05, 0.025, 1e-6]))
def test_clopper_and_pearson_agree_with_the_beta_distribution(runs, share, miss):
    hits = round(runs * share)
    low, high = lower_chance(hits, runs, miss=miss), upper_chance(hits, runs, miss=miss)
    expected_low = stats.beta.ppf(miss, hits, runs - hits + 1) if hits else 0.0
    expected_high = stats.beta.isf(miss, hits + 1, runs - hits) if hits < runs else 1.0
    assert low == pytest.approx(expected_low, rel=1e-6)
    assert high == pytest.approx(expected_high, rel=1e-6)
    assert low <= hits / runs <= high


@given(st.integers(0, 300), st.integers(1, 300), st.floats(0.001, 0.999))
def test_binomial_tails_agree(hits, runs, chance):
    assert binomial_tail(hits, runs, chance) == pytest.approx(
        stats.binom.sf(hits - 1, runs, chance), rel=1e-9, abs=1e-14
    )


@given(st.floats(0, 400), st.integers(1, 200))
def test_chi_square_tails_agree(statistic, degrees):
    assert chi_square_tail(statistic, degrees) == pytest.approx(
        stats.chi2.sf(statistic, degrees), rel=1e-8, abs=1e-13
    )


@pytest.mark.parametrize("runs", [50, 1000, 100_000])
def test_no_number_of_runs_proves_more_than_a_logarithm(runs):
    most = largest_bound(runs, delta=0.0, miss=0.05)
    assert most == pytest.approx(math.log(runs / 3.69), abs=0.08)
    for hits in (0, 1, runs // 2, runs):
        assert epsilon_bound(hits, runs, 0, runs, delta=0.0, miss=0.05) <= most + 1e-9


def test_a_delta_is_taken_off_before_the_ratio():
    plain = epsilon_bound(500, 1000, 10, 1000, delta=0.0, miss=0.05)
    less = epsilon_bound(500, 1000, 10, 1000, delta=0.2, miss=0.05)
    assert 0 < less < plain
    assert epsilon_bound(3, 1000, 0, 1000, delta=0.5, miss=0.05) == 0


@pytest.mark.parametrize(("first", "second"), [(0, 0), (500, 500), (1000, 1000), (490, 510)])
def test_equal_sides_prove_nothing(first, second):
    assert epsilon_bound(first, 1000, second, 1000, delta=0.0, miss=0.05) == 0


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_false_alarms_of_one_event_are_as_rare_as_said(epsilon):
    """Exactly, over all outcomes of the tight case: p = e^epsilon q."""
    runs, miss = 60, 0.05
    q = 0.5 / math.exp(epsilon)
    one = stats.binom.pmf(np.arange(runs + 1), runs, 0.5)
    two = stats.binom.pmf(np.arange(runs + 1), runs, q)
    alarm = sum(
        one[a] * two[b]
        for a in range(runs + 1)
        for b in range(runs + 1)
        if one[a] * two[b] > 1e-12 and epsilon_bound(a, runs, b, runs, delta=0.0, miss=miss) > epsilon
    )
    assert alarm <= miss


def reference_p_value(m, r, v, eps, delta):
    """As published with Steinke, Nasr and Jagielski (2023)."""
    q = 1 / (1 + math.exp(-eps))
    beta = stats.binom.sf(v - 1, r, q)
    alpha = total = 0
    for i in range(1, v + 1):
        total += stats.binom.pmf(v - i, r, q)
        alpha = max(alpha, total / i)
    return min(1.0, beta + alpha * delta * 2 * m)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize(
    ("correct", "guesses", "canaries"), [(90, 100, 100), (40, 40, 1000), (700, 1000, 1000)]
)
def test_the_bound_of_one_run_is_the_published_one(correct, guesses, canaries, delta):
    bound = one_run_epsilon(correct, guesses, canaries=canaries, delta=delta, miss=0.05)
    assert bound == 0 or reference_p_value(canaries, guesses, correct, bound, delta) <= 0.05 + 1e-6
    assert reference_p_value(canaries, guesses, correct, bound + 0.01, delta) > 0.05


def test_one_run_without_right_guesses_proves_nothing():
    assert one_run_epsilon(0, 100, canaries=100, delta=0.0, miss=0.05) == 0
    assert one_run_epsilon(0, 0, canaries=10, delta=0.1, miss=0.05) == 0
    with pytest.raises(AuditError, match="correct"):
        one_run_epsilon(11, 10, canaries=100, delta=0.0, miss=0.05)


def sample_of(values):
    numbers = np.asarray(values, np.float64).reshape(len(values), -1)
    summaries = np.stack(
        [
            np.full(len(numbers), numbers.shape[1]),
            numbers.sum(1),
            numbers.max(1),
            numbers.min(1),
            lowest_bits(numbers).min(1),
        ],
        axis=1,
    )
    return Sample(len(numbers), numbers, tuple(f"[{i}]" for i in range(numbers.shape[1])), summaries, {})


def draw(value, scale, runs):
    return sample_of(add_noise(np.full(runs, value), kind="laplace", scale=scale))


@pytest.mark.statistical
def test_learned_events_raise_no_false_alarms_in_the_tight_case():
    # A mechanism that is exactly 1-private. At a miss of 20 % the bound may be wrong in one of five
    # audits; 60 wrong ones of 150 have a chance below 1e-7.
    wrong = sum(
        certify_samples(draw(1, 1, 400), draw(0, 1, 400), delta=0.0, miss=0.2).epsilon > 1 for _ in range(150)
    )
    assert binomial_tail(wrong, 150, 0.2) > 1e-6


@pytest.mark.statistical
def test_twice_the_epsilon_is_found():
    found = certify_samples(draw(1, "0.5", 20_000), draw(0, "0.5", 20_000), delta=0.0, miss=1e-6)
    assert 1.5 < found.epsilon <= 2.2


@pytest.mark.parametrize("scale", ["0.3", "1", "7.5", "100", "123456.7"])
@pytest.mark.parametrize(
    ("kind", "sampler"), [("laplace", discrete_laplace), ("gaussian", discrete_gaussian)]
)
@pytest.mark.statistical
def test_the_packages_own_noise_fits_and_another_does_not(kind, sampler, scale):
    name = "scale" if kind == "laplace" else "sigma"
    drawn = sampler(**{name: scale, "size": 20_000})
    exact = Fraction(scale)
    assert min(fit_law(drawn, kind, exact)) > 1e-9
    if exact >= 1:
        assert min(fit_law(drawn, kind, exact * 2)) < 1e-9
        assert min(fit_law(drawn * 2, kind, exact * 2)) < 1e-9, "even numbers only"
        other = "gaussian" if kind == "laplace" else "laplace"
        assert min(fit_law(drawn, other, exact)) < 1e-9


def test_lowest_bits_of_floats():
    values = np.array([1.0, 0.1, -3.0, 5e-324, 0.0, math.inf, math.nan, 2.0**-1070, 1 + 2.0**-52])
    expected = [0, -55, 0, -1074, 5000, 5000, 5000, -1070, -52]
    assert lowest_bits(values).tolist() == expected


@pytest.mark.parametrize("runs", [(40, 40), (41, 60), (9, 8)])
def test_an_event_is_certified_on_runs_it_was_not_learned_from(monkeypatch, runs):
    from sfumato.audit import blackbox

    seen = {"learned": [], "certified": []}

    class Anything:
        more = 0

        def shown_by(self, sample):
            seen["certified"].append(sample.numbers.ravel().tolist())
            return np.ones(sample.runs, np.bool_)

    def learn(*samples, delta, deviations):
        seen["learned"] = [each.numbers.ravel().tolist() for each in samples]
        return Anything()

    monkeypatch.setattr(blackbox, "learn_distinguisher", learn)
    sides = [np.arange(count) + 1000 * side for side, count in enumerate(runs)]
    found = certify_samples(*(sample_of(side) for side in sides), delta=0.0, miss=0.05)
    for learned, certified, side in zip(seen["learned"], seen["certified"], sides, strict=True):
        assert learned
        assert certified
        assert not set(learned) & set(certified)
        assert sorted(learned + certified) == side.tolist()
    assert found.runs == tuple(len(each) for each in seen["certified"])


def test_what_was_seen_while_learning_proves_nothing():
    """Sides that differ in every run of the first half, and in none of the second."""
    rest = np.resize([5, 6, 7, 8], 100)
    one, two = (sample_of(np.concatenate([np.full(100, first), rest])) for first in (1, 2))
    assert certify_samples(one, two, delta=0.0, miss=0.05).epsilon == 0
    # The other way round there is nothing to learn, and the truth would be found with runs in any order.
    assert certify_samples(one, one, delta=0.0, miss=0.05).epsilon == 0
    mixed = [sample_of(np.full(200, first)) for first in (1, 2)]
    assert certify_samples(*mixed, delta=0.0, miss=0.05).epsilon > 3
