"""Trade-offs against formulas written out, against mechanisms that attain them, and against each other."""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.report.explain.guarantee import Guarantee, largest_detection, least_missed
from sfumato.report.explain.posterior import Total, largest_power
from sfumato.report.explain.powers import concentrated_powers

RATES = (1e-6, 0.001, 0.01, 0.05, 0.2, 0.5, 0.9, 0.999)
NORMAL = NormalDist()


def binomial_curve(times, epsilon, rate):
    """The power of the best test of `times` randomised responses at a rate of false alarms, by hand."""
    flip = 1 / (1 + math.exp(epsilon))
    likely = [math.comb(times, k) * (1 - flip) ** k * flip ** (times - k) for k in range(times + 1)]
    power = alarms = 0.0
    for k in range(times, -1, -1):
        step = likely[times - k]  # the chance of k under the other hypothesis
        if alarms + step >= rate:
            return power + likely[k] * (rate - alarms) / step
        power, alarms = power + likely[k], alarms + step
    return 1.0


@pytest.mark.parametrize("epsilon", ["1e-6", "0.1", "1", "5", "50"])
@pytest.mark.parametrize("delta", ["0", "1e-6", "0.1"])
@pytest.mark.parametrize("rate", RATES)
def test_epsilon_and_delta_have_their_exact_curve(epsilon, delta, rate):
    e, d = float(epsilon), float(delta)
    expected = max(0, 1 - d - math.exp(e) * rate, math.exp(-e) * (1 - d - rate))
    found = least_missed(Guarantee(kind="epsilon", amount=epsilon, delta=delta), rate)
    assert found == pytest.approx(expected, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("mu", [0.001, 0.5, 1, 3, 8])
@pytest.mark.parametrize("rate", RATES)
def test_gaussian_privacy_has_its_exact_curve(mu, rate):
    expected = NORMAL.cdf(NORMAL.inv_cdf(1 - rate) - mu)
    found = least_missed(Guarantee(kind="mu", amount=mu), rate)
    assert found == pytest.approx(expected, rel=1e-6, abs=2e-9)


@pytest.mark.parametrize("kind", ["epsilon", "rho", "mu"])
def test_the_ends_of_every_curve(kind):
    guarantee = Guarantee(kind=kind, amount=1)
    assert largest_detection(guarantee, 0) == 0
    assert largest_detection(guarantee, 1) == 1
    failing = Guarantee(kind="epsilon", amount=1, delta="0.1")
    assert largest_detection(failing, 0) == pytest.approx(0.1)
    assert largest_detection(failing, 0.95) == 1
    with pytest.raises(RecipeError, match="false alarms"):
        largest_detection(guarantee, 1.5)


@pytest.mark.parametrize("rho", [1e-9, 1e-4, 0.02, 0.5, 3])
def test_rho_lies_between_a_mechanism_that_has_it_and_its_conversions(rho):
    total = Total(epsilon=None, rho=Fraction(rho), mu_squared=None)
    for rate in RATES:
        found = largest_detection(Guarantee(kind="rho", amount=rho), rate)
        # Gaussian noise with mu^2 / 2 = rho is one of the mechanisms that the bound must cover.
        assert found >= NORMAL.cdf(NORMAL.inv_cdf(rate) + math.sqrt(2 * rho)) - 1e-12
        if rate <= 0.05:
            assert found <= largest_power(total, rate) + 1e-12


def divergence(power, rate, order):
    return math.log(power**order * rate ** (1 - order) + (1 - power) ** order * (1 - rate) ** (1 - order)) / (
        order - 1
    )


@pytest.mark.parametrize("rate", [0.001, 0.05, 0.4])
def test_the_coins_of_the_rho_curve_are_themselves_a_mechanism_of_that_rate(rate):
    rho = 0.3
    power = largest_detection(Guarantee(kind="rho", amount=rho), rate)
    orders = np.geomspace(1.01, 40, 300)
    pairs = ((power, rate), (rate, power))
    assert max(divergence(*pair, order) - rho * order for pair in pairs for order in orders) < 1e-3
    beyond = power + 0.005
    pairs = ((beyond, rate), (rate, beyond))
    assert max(divergence(*pair, order) - rho * order for pair in pairs for order in orders) > 0


@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 100), (0.5, 12), (1.0, 4), (1.0, 1)])
def test_answers_to_many_queries_are_covered(epsilon, times):
    guarantee = Guarantee(kind="epsilon", amount=str(epsilon), times=times)
    for rate in (0.001, 0.01, 0.05, 0.3, 0.7):
        attained = binomial_curve(times, epsilon, rate)
        assert largest_detection(guarantee, rate) >= attained - 1e-9
        assert largest_detection(guarantee, rate) <= min(1, math.exp(epsilon * times) * rate) + 1e-9
    if times == 1:
        assert largest_detection(guarantee, 0.05) == pytest.approx(binomial_curve(1, epsilon, 0.05))


@given(
    kind=st.sampled_from(["epsilon", "rho", "mu"]),
    amount=st.floats(1e-6, 20),
    rates=st.tuples(st.floats(1e-6, 0.999), st.floats(1e-6, 0.999)),
)
def test_curves_rise_and_beat_no_information(kind, amount, rates):
    guarantee = Guarantee(kind=kind, amount=Fraction(amount))
    low, high = sorted(rates)
    first, second = (largest_detection(guarantee, rate) for rate in (low, high))
    assert first <= second + 1e-9
    assert low - 1e-9 <= first <= 1


def test_the_largest_and_the_least_amounts_are_answered():
    assert largest_detection(Guarantee(kind="rho", amount="1e-12"), 0.05) == pytest.approx(0.05, abs=1e-5)
    assert largest_detection(Guarantee(kind="rho", amount="1e6", times=10**9), 0.05) == pytest.approx(1)
    powers = concentrated_powers(0.1, np.array([0.01, 0.1]))
    assert powers.shape == (2,)
    assert powers[0] < powers[1]
