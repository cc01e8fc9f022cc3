"""The constants of single mechanisms against brute force."""

import math
from fractions import Fraction
from itertools import accumulate, pairwise
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import (
    discrete_laplace_rho,
    exponential_mu,
    exponential_rho,
    pure_to_mu,
    pure_to_rho,
)
from sfumato.core.cost.curves import sqrt_up
from sfumato.core.errors import RecipeError

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
    assert violated > math.exp(-1) * 1.2  # epsilon - 1 + exp(-epsilon)


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


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 2.5, 6.0, 12.0])
def test_a_bounded_range_costs_most_in_the_middle(epsilon):
    # Ratios of e^(epsilon - t) and e^-t only: Bern(a) against Bern(a'), logits epsilon apart.
    def needed(start):
        return NormalDist().inv_cdf(sigmoid(start + epsilon)) - NormalDist().inv_cdf(sigmoid(start))

    mu = float(exponential_mu(Fraction(epsilon)))
    grid = [-epsilon / 2 + offset / 50 for offset in range(-500, 501)]
    values = [needed(start) for start in grid]
    assert max(values) == values[500] == pytest.approx(mu, rel=1e-9)
    assert max(values) <= mu
    # It rises up to the middle and falls after it; far out the differences drown in rounding.
    assert all(later > earlier - 1e-12 for earlier, later in pairwise(values[:501]))
    assert all(later < earlier + 1e-12 for earlier, later in pairwise(values[500:]))


def trade_off(first, second):
    """The corners (type I, type II error) of the best tests between two laws on few outcomes."""
    order = sorted(range(len(first)), key=lambda k: first[k] / second[k])
    alphas = [0.0, *accumulate(first[k] for k in order)]
    betas = [1 - power for power in [0.0, *accumulate(second[k] for k in order)]]
    return list(zip(alphas, betas, strict=True))


def gaussian_curve(alpha, mu):
    if not 0 < alpha < 1:
        return 1.0 if alpha <= 0 else 0.0
    return NormalDist().cdf(NormalDist().inv_cdf(1 - alpha) - mu)


def exponential_law(scores, epsilon):
    weights = [math.exp(epsilon * score / 2) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(-1, 1)), min_size=2, max_size=7),
    st.floats(0.05, 6),
)
def test_no_exponential_mechanism_is_easier_to_tell_apart_than_its_mu(scores, epsilon):
    first = exponential_law([score for score, _ in scores], epsilon)
    second = exponential_law([score + move for score, move in scores], epsilon)
    mu = float(exponential_mu(Fraction(epsilon)))
    for one, other in ((first, second), (second, first)):
        assert all(gaussian_curve(alpha, mu) <= beta + 1e-9 for alpha, beta in trade_off(one, other))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_two_opposed_candidates_attain_the_mu_of_the_exponential_mechanism(epsilon):
    corners = trade_off(exponential_law([1, 0], epsilon), exponential_law([0, 1], epsilon))
    mu = float(exponential_mu(Fraction(epsilon)))
    assert any(gaussian_curve(alpha, mu * 0.999) > beta for alpha, beta in corners)


def test_permute_and_flip_breaks_the_mu_of_the_exponential_mechanism():
    epsilon = 4.0
    flip = 1 - math.exp(-epsilon / 2) / 2
    corners = trade_off([flip, 1 - flip], [1 - flip, flip])
    assert any(
        gaussian_curve(alpha, float(exponential_mu(Fraction(4)))) > beta + 0.01 for alpha, beta in corners
    )
    assert all(gaussian_curve(alpha, float(pure_to_mu(Fraction(4)))) <= beta for alpha, beta in corners)


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
    for function in (pure_to_rho, exponential_rho, exponential_mu, pure_to_mu):
        with pytest.raises(RecipeError):
            function(bad)


def test_rates_stay_certain_at_the_ends_of_the_range():
    large, small = Fraction(10**30), Fraction(1, 10**30)
    assert discrete_laplace_rho(large, small) >= large / small
    assert 0 < discrete_laplace_rho(Fraction(1), large) <= Fraction(1, 10**18)
    assert float(discrete_laplace_rho(large, large)) == pytest.approx(math.exp(-1))
