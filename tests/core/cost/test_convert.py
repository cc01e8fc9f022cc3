"""Calibration and conversions: published figures, inverses, and safe rounding."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.rho import discrete_gaussian_delta, max_rho
from sfumato.accounting import (
    discrete_gaussian_sigma,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    histogram_sensitivity,
    max_mu,
    mu_to_delta,
    mu_to_epsilon,
    mu_to_pure,
    pure_to_mu,
    rho_to_delta,
    rho_to_epsilon,
)
from sfumato.core.errors import RecipeError

epsilons = st.floats(0.01, 50)
deltas = st.floats(1e-12, 0.1)


def exact_delta(epsilon, mu):
    """The closed form with 120 digits; the error function by its series of positive terms."""
    with localcontext() as context:
        context.prec = 120
        epsilon, mu = Decimal(epsilon), Decimal(mu)

        def upper_tail(x):
            term = total = x
            k = 1
            while abs(term) > Decimal("1e-118"):
                term *= x * x / (2 * k + 1)
                total += term
                k += 1
            return Decimal("0.5") - total * (-x * x / 2).exp() / (2 * pi).sqrt()

        pi = Decimal(
            "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803"
            "48253421170679821480865132823066470938446"
        )
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        return float(upper_tail(a) - epsilon.exp() * upper_tail(b))


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 1.0, 7.5])
@pytest.mark.parametrize("mu", [0.01, 0.2, 1.0, 5.0])
def test_gaussian_delta_agrees_with_many_digits_and_is_not_below(epsilon, mu):
    if epsilon / mu > 12:
        return
    true = exact_delta(epsilon, mu)
    ours = mu_to_delta(mu, epsilon)
    assert true <= ours <= true * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-300, Fraction(1, 10**350)])
@pytest.mark.parametrize("epsilon", [0.01, 1, 100, 1e5])
def test_calibration_is_tight_for_tiny_delta_and_large_epsilon(epsilon, delta):
    sigma = gaussian_sigma(epsilon=epsilon, delta=delta)
    assert gaussian_epsilon(sigma=sigma, delta=delta) <= epsilon
    assert gaussian_epsilon(sigma=sigma * (1 - 1e-6), delta=delta) > epsilon
    assert gaussian_delta(epsilon=epsilon, sigma=sigma) <= max(float(delta), 5e-324)


@given(epsilons, deltas)
def test_epsilon_and_delta_of_a_mu_are_inverse(epsilon, delta):
    mu = max_mu(epsilon, delta)
    assert mu_to_epsilon(mu, delta) <= epsilon
    assert mu_to_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@given(epsilons, deltas)
def test_epsilon_and_delta_of_a_rho_are_inverse(epsilon, delta):
    rho = max_rho(epsilon, delta)
    assert rho_to_epsilon(rho, delta) <= epsilon
    assert rho_to_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6)
    assert rho_to_delta(rho, epsilon) == pytest.approx(delta, rel=1e-4)


@given(epsilons, deltas, st.floats(1.001, 200))
def test_no_order_beats_the_one_chosen(epsilon, delta, order):
    rho = float(max_rho(epsilon, delta))
    x = order - 1
    other = order * rho + (-math.log(delta) - x * math.log1p(1 / x) - math.log(order)) / x
    assert rho_to_epsilon(rho, delta) <= max(0.0, other) + 1e-9


@given(st.floats(0.05, 5), deltas)
def test_zcdp_never_promises_less_than_the_truth_for_gaussian_noise(mu, delta):
    assert rho_to_epsilon(mu * mu / 2, delta) >= mu_to_epsilon(mu, delta)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=100))
def test_pure_epsilon_comes_back_from_mu_rounded_down(epsilon):
    back = mu_to_pure(pure_to_mu(epsilon) ** 2)
    assert float(back) == pytest.approx(float(epsilon), rel=1e-5)
    assert pure_to_mu(mu_to_pure(Fraction(1, 7))) ** 2 <= Fraction(1, 7)
    assert mu_to_pure(0) == mu_to_pure(-2) == 0


@pytest.mark.parametrize(("epsilon", "sigma", "sensitivity"), [(1, 4290.24, 1219), (10, 784.12, 1625)])
def test_discrete_noise_differs_by_less_than_a_millionth_at_wide_sigma(epsilon, sigma, sensitivity):
    discrete = discrete_gaussian_delta(epsilon=epsilon, sigma=sigma, sensitivity=sensitivity)
    continuous = gaussian_delta(epsilon=epsilon, sigma=sigma, sensitivity=sensitivity)
    assert abs(discrete / continuous - 1) < 1e-6


@pytest.mark.parametrize(("sensitivity", "excess"), [(1, 0.0426), (2, 0.0143), (5, 0.0046)])
def test_discrete_noise_of_sigma_five_is_worse_by_percents(sensitivity, excess):
    discrete = discrete_gaussian_delta(epsilon=1, sigma=5, sensitivity=sensitivity)
    continuous = gaussian_delta(epsilon=1, sigma=5, sensitivity=sensitivity)
    assert discrete / continuous - 1 == pytest.approx(excess, abs=1e-4)


@given(st.floats(0.1, 8), st.floats(2.2, 40), st.integers(1, 40))
def test_smoothing_bounds_the_discrete_law(epsilon, sigma, sensitivity):
    discrete = discrete_gaussian_delta(epsilon=epsilon, sigma=sigma, sensitivity=sensitivity)
    narrower = math.sqrt(sigma**2 - 4)
    bound = gaussian_delta(epsilon=epsilon, sigma=narrower, sensitivity=sensitivity)
    assert discrete <= bound * (1 + 1e-9)


def test_discrete_calibration_keeps_the_promise():
    sigma = discrete_gaussian_sigma(epsilon=1, delta=1e-5, sensitivity=3)
    assert sigma > gaussian_sigma(epsilon=1, delta=1e-5, sensitivity=3)
    assert discrete_gaussian_delta(epsilon=1, sigma=sigma, sensitivity=3) <= 1e-5


def test_sensitivity_of_a_histogram_under_both_relations():
    bound = Fraction(20)
    assert histogram_sensitivity(contribution=bound, norm="L2", neighbours="add-remove") == 20
    assert histogram_sensitivity(contribution=bound, norm="L1", neighbours="replace") == 40
    apart = histogram_sensitivity(contribution=bound, norm="L2", neighbours="replace")
    assert apart**2 >= 800 > (apart - Fraction(1, 10**17)) ** 2
    signed = histogram_sensitivity(contribution=bound, norm="L2", neighbours="replace", signed=True)
    assert signed == 40
    with pytest.raises(RecipeError):
        histogram_sensitivity(contribution=bound, norm="L7", neighbours="replace")


def test_impossible_parameters_are_refused():
    for call in (
        lambda: gaussian_sigma(epsilon=1, delta=0),
        lambda: gaussian_sigma(epsilon=1, delta=1),
        lambda: gaussian_sigma(epsilon=-1, delta=0.1),
        lambda: gaussian_sigma(epsilon=1, delta=1e-5, sensitivity=0),
        lambda: gaussian_sigma(epsilon=1, delta=1e-5, count=0),
        lambda: gaussian_sigma(epsilon=0, delta=1e-15),
        lambda: gaussian_delta(epsilon=float("nan"), sigma=1),
        lambda: gaussian_delta(epsilon=-1, sigma=1),
        lambda: rho_to_delta(1, -1),
        lambda: rho_to_epsilon(1, 1),
    ):
        with pytest.raises(RecipeError):
            call()
