"""The constants of single mechanisms against brute force."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import (
    discrete_laplace_rho,
    exponential_rho,
    laplace_rho,
    pure_to_mu,
    pure_to_rho,
)
from sfumato.accounting.constants import sqrt_up
from sfumato.errors import RecipeError

ORDERS = [1.0001, 1.01, 1.1, 1.3, 1.7, 2, 3, 5, 10, 30, 100]


def renyi_laplace(order, shift, scale):
    """The divergence by summation over the integers, in logarithms."""
    reach = int(60 * scale) + shift + 60
    logs = [
        (-order * abs(k) - (1 - order) * abs(k - shift)) / scale for k in range(-reach, reach + shift + 1)
    ]
    top = max(logs)
    mass = math.tanh(1 / (2 * scale))  # (1 - q) / (1 + q)
    return (top + math.log(mass * math.fsum(math.exp(log - top) for log in logs))) / (order - 1)


@pytest.mark.parametrize("scale", ["1/2", "1", "2.5", "20"])
@pytest.mark.parametrize("shift", range(1, 21))
def test_discrete_laplace_rate_bounds_every_order_and_is_reached_at_order_one(shift, scale):
    rate = float(discrete_laplace_rho(Fraction(shift), Fraction(scale)))
    ratios = [renyi_laplace(order, shift, float(Fraction(scale))) / order for order in ORDERS]
    assert max(ratios) <= rate * (1 + 1e-9)
    assert max(ratios) == pytest.approx(rate, rel=2e-3)


@pytest.mark.parametrize("shift", range(1, 21))
def test_discrete_laplace_rate_is_the_divergence_of_order_one(shift):
    for scale in (Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(15)):
        b = float(scale)
        reach = int(60 * b) + 60 + shift
        mass = math.tanh(1 / (2 * b))
        brute = math.fsum(
            mass * math.exp(-abs(k) / b) * (abs(k - shift) - abs(k)) / b for k in range(-reach, reach + 1)
        )
        assert float(discrete_laplace_rho(Fraction(shift), scale)) == pytest.approx(brute, rel=1e-9)


def test_the_continuous_constant_is_too_small_for_whole_numbers():
    violated = renyi_laplace(1.01, 1, 1.0) / 1.01
    assert violated > float(laplace_rho(Fraction(1))) * 1.2


def test_rates_are_convex_in_the_sensitivity_so_one_cell_is_the_worst():
    for scale in (Fraction(1, 2), Fraction(3), Fraction(40)):
        rates = [Fraction(0), *(discrete_laplace_rho(Fraction(s), scale) for s in range(1, 30))]
        steps = [after - before for before, after in pairwise(rates)]
        assert all(later >= earlier for earlier, later in pairwise(steps))


def test_fractional_sensitivity_pays_as_any_pure_mechanism():
    rate = discrete_laplace_rho(Fraction(3, 2), Fraction(5))
    assert rate == pure_to_rho(Fraction(3, 10))
    assert rate > discrete_laplace_rho(Fraction(15), Fraction(50))


def test_randomised_response_attains_the_pure_rate():
    epsilon = 1.0
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    for order in ORDERS:
        moment = p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)
        divergence = math.log(moment) / (order - 1)
        assert divergence / order <= float(pure_to_rho(Fraction(1))) * (1 + 1e-9)
    assert p * epsilon - (1 - p) * epsilon == pytest.approx(float(pure_to_rho(Fraction(1))))


def test_permute_and_flip_breaks_the_rate_of_the_exponential_mechanism():
    # Two candidates; their scores differ by one sensitivity, in favour of the other one next door.
    epsilon = 4.0
    flip = 1 - math.exp(-epsilon / 2) / 2
    exponential = 1 / (1 + math.exp(-epsilon / 2))
    divergences = [(2 * p - 1) * math.log(p / (1 - p)) for p in (flip, exponential)]
    constant = float(exponential_rho(Fraction(4)))
    assert divergences[1] <= constant < divergences[0] <= float(pure_to_rho(Fraction(4)))


@given(st.fractions(min_value=Fraction(1, 1000), max_value=600))
def test_pure_mu_touches_the_kink_from_below(epsilon):
    mu = float(pure_to_mu(epsilon))
    kink = 1 / (1 + math.exp(float(epsilon)))
    tail = math.erfc(mu / 2 / math.sqrt(2)) / 2
    assert tail <= kink * (1 + 1e-12)
    slightly_less = math.erfc(mu * (1 - 1e-6) / 2 / math.sqrt(2)) / 2
    assert slightly_less > kink


def test_pure_mu_of_enormous_epsilon_is_the_simple_bound():
    assert pure_to_mu(Fraction(701)) == sqrt_up(Fraction(8 * 701))
    assert pure_to_mu(Fraction(701)) > pure_to_mu(Fraction(699))


@given(st.fractions(min_value=0, max_value=10**6))
def test_square_roots_are_rounded_up_by_less_than_a_unit(number):
    root = sqrt_up(number)
    assert root**2 >= number
    assert root == 0 or (root - Fraction(2, 10**18)) ** 2 < number or root <= Fraction(2, 10**18)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), None, "x"])
def test_bad_parameters_are_refused(bad):
    for function in (pure_to_rho, laplace_rho, exponential_rho, pure_to_mu):
        with pytest.raises(RecipeError):
            function(bad)


def test_rates_stay_certain_at_the_ends_of_the_range():
    large, small = Fraction(10**30), Fraction(1, 10**30)
    assert discrete_laplace_rho(large, small) >= large / small
    assert 0 < discrete_laplace_rho(Fraction(1), large) <= Fraction(1, 10**18)
    assert float(discrete_laplace_rho(large, large)) == pytest.approx(math.exp(-1))
