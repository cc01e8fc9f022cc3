"""What an attacker can learn: known values, and bounds that agree where they must."""

import math
from fractions import Fraction
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import mu_to_delta
from sfumato.report.explain.posterior import (
    RARITIES,
    Total,
    largest_power,
    posterior_bounds,
    pure_bounds,
    read_total,
)

PRIORS = st.floats(0.001, 0.999)


def total(epsilon=None, rho=None, mu_squared=None):
    return Total(epsilon=epsilon, rho=rho, mu_squared=mu_squared)


@pytest.mark.parametrize(
    ("epsilon", "prior", "low", "high"),
    [
        (1, 0.5, 1 / (1 + math.e), math.e / (1 + math.e)),
        (math.log(3), 0.5, 0.25, 0.75),
        (math.log(3), 0.1, 0.1 / 3 / (0.9 + 0.1 / 3), 0.25),
        (math.log(9), 0.1, 0.1 / 9 / (0.9 + 0.1 / 9), 0.5),
        (0.0, 0.3, 0.3, 0.3),
        (5000, 0.5, 0.0, 1.0),
    ],
)
def test_pure_bounds_have_their_closed_form(epsilon, prior, low, high):
    assert pure_bounds(epsilon, prior) == pytest.approx((low, high), abs=1e-12)


def test_certainty_stays_certainty():
    assert pure_bounds(3, 0) == (0, 0)
    assert pure_bounds(3, 1) == (1, 1)


@given(st.floats(0, 20), PRIORS)
def test_the_lower_bound_is_the_upper_one_turned_round(epsilon, prior):
    low, high = pure_bounds(epsilon, prior)
    assert low <= prior + 1e-12
    assert prior <= high + 1e-12
    assert low == pytest.approx(1 - pure_bounds(epsilon, 1 - prior)[1], abs=1e-9)


@pytest.mark.parametrize("rarity", [0.05, 0.001, 1e-6])
@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_gaussian_power_is_the_trade_off_curve(mu, rarity):
    normal = NormalDist()
    exact = normal.cdf(normal.inv_cdf(rarity) + mu)
    power = largest_power(total(mu_squared=Fraction(mu) ** 2), rarity)
    assert exact <= power <= exact * (1 + 1e-6)


@pytest.mark.parametrize("rarity", [float(each) for each in RARITIES])
def test_the_trade_off_curve_is_what_all_deltas_say_together(rarity):
    # power <= e^epsilon * rarity + delta(epsilon) for every epsilon, with equality at the best one.
    by_delta = min(math.exp(e) * rarity + mu_to_delta(1, e) for e in (step / 200 for step in range(2000)))
    power = largest_power(total(mu_squared=Fraction(1)), rarity)
    assert power == pytest.approx(by_delta, rel=1e-3)
    assert power <= by_delta * (1 + 1e-8)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("rarity", [0.05, 0.001, 1e-6])
def test_concentrated_privacy_promises_no_more_than_gaussian_privacy(mu, rarity):
    # mu-Gaussian privacy implies mu^2/2 of the other, so the bound from the latter must not be below.
    gaussian = largest_power(total(mu_squared=Fraction(mu) ** 2), rarity)
    concentrated = largest_power(total(rho=Fraction(mu) ** 2 / 2), rarity)
    assert gaussian <= concentrated <= min(1.0, 12 * gaussian)


@given(st.floats(0.05, 5), PRIORS)
def test_rarer_evidence_tells_more(mu, prior):
    bounds = [posterior_bounds(total(mu_squared=Fraction(mu) ** 2), prior, rarity=each) for each in RARITIES]
    assert [high for _, high in bounds] == sorted(high for _, high in bounds)
    assert [low for low, _ in bounds] == sorted((low for low, _ in bounds), reverse=True)
    for low, high in bounds:
        assert 0 <= low <= prior <= high <= 1


@given(st.floats(0.01, 8), PRIORS)
def test_evidence_of_any_rarity_stays_within_pure_bounds(epsilon, prior):
    spent = total(epsilon=Fraction(epsilon), mu_squared=Fraction(400))
    low, high = posterior_bounds(spent, prior)
    for rarity in RARITIES:
        inner_low, inner_high = posterior_bounds(spent, prior, rarity=rarity)
        assert low - 1e-9 <= inner_low
        assert inner_high <= high + 1e-9


def test_without_any_total_nothing_is_promised():
    assert posterior_bounds(total(), 0.5) == (0.0, 1.0)
    assert largest_power(total(), 0.01) == 1.0


def test_a_total_is_read_as_the_certificate_writes_it():
    told = read_total(
        {
            "epsilon": "1",
            "rho": "1/3",
            "mu_squared": None,
            "failure": "0.1",
            "epsilon_at_delta": {"1e-6": "2"},
        }
    )
    assert (told.epsilon, told.rho, told.mu_squared, told.is_pure) == (1, Fraction(1, 3), None, False)
    assert (told.failure, told.at_delta) == (Fraction(1, 10), {"1e-6": "2"})
