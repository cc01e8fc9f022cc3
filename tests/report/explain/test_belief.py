"""Beliefs, guesses and readings."""

from fractions import Fraction

import pytest

from helpers.cases import read_cases
from sfumato.core.errors import RecipeError
from sfumato.local import CoinResponse, posterior
from sfumato.report.explain.guarantee import (
    Guarantee,
    belief_bounds,
    best_guess,
    explain_guarantee,
    largest_detection,
    read_epsilon,
)


@pytest.mark.parametrize("prior", ["0.02", "0.5", "0.8"])
def test_two_coins_reach_the_bounds(prior):
    yes, no = (float(posterior(prior, answer=answer)) for answer in (True, False))
    low, high = belief_bounds(Guarantee(kind="epsilon", amount=CoinResponse().exact_epsilon), prior)
    assert (no, yes) == (pytest.approx(low), pytest.approx(high))


def test_epsilons_of_several_answers_add_up():
    once = belief_bounds(Guarantee(kind="epsilon", amount="0.3", times=4), 0.2)
    assert once == belief_bounds(Guarantee(kind="epsilon", amount="1.2"), 0.2)


@pytest.mark.parametrize("prior", ["0.5", "0.1", "0.9"])
@pytest.mark.parametrize(
    "guarantee",
    [
        Guarantee(kind="epsilon", amount=1),
        Guarantee(kind="epsilon", amount="0.2", times=30),
        Guarantee(kind="epsilon", amount="0.5", delta="0.01", times=3),
        Guarantee(kind="mu", amount="0.7", times=2),
        Guarantee(kind="rho", amount="0.2"),
    ],
)
def test_no_test_guesses_better_than_the_best_guess(prior, guarantee):
    p = float(Fraction(prior))
    best = best_guess(guarantee, prior)
    rates = [step / 40 for step in range(41)]
    tried = max(p * largest_detection(guarantee, rate) + (1 - p) * (1 - rate) for rate in rates)
    assert tried - 1e-7 <= best <= tried + 0.03
    assert best >= max(p, 1 - p)


def test_readings_as_an_epsilon():
    assert read_epsilon(Guarantee(kind="epsilon", amount=1), "1e-6").way == "sum"
    many = read_epsilon(Guarantee(kind="epsilon", amount="0.01", times=10_000), "1e-6")
    assert many.way in ("zero-concentrated", "Gaussian")
    assert many.epsilon < 6
    assert read_epsilon(Guarantee(kind="epsilon", amount=1, delta="1e-6", times=2), "1e-6") is None
    assert read_epsilon(Guarantee(kind="epsilon", amount=1, delta="1e-6", times=2), "2e-6").epsilon == 2
    assert read_epsilon(Guarantee(kind="mu", amount=1), 1e-5).epsilon == pytest.approx(4.377178, abs=1e-5)
    assert read_epsilon(Guarantee(kind="rho", amount="0.1"), 1e-6).epsilon == pytest.approx(
        2.141939, abs=1e-5
    )


def test_totals_add_up():
    assert Guarantee(kind="mu", amount=3, times=4).total.mu_squared == 36
    assert Guarantee(kind="rho", amount="0.1", times=7).total.rho == Fraction(7, 10)
    assert Guarantee(kind="epsilon", amount=1, delta="0.4", times=9).total.failure == 1


@pytest.mark.parametrize(("options", "words"), read_cases(__file__, "test_what_is_no_guarantee_is_refused"))
def test_what_is_no_guarantee_is_refused(options, words):
    with pytest.raises(RecipeError, match=words):
        Guarantee(**options)


@pytest.mark.parametrize("options", [{"prior": 1.1}, {"prior": "x"}, {"read_at": 0}, {"read_at": 1}])
def test_what_cannot_be_explained_is_refused(options):
    with pytest.raises(RecipeError):
        explain_guarantee(Guarantee(kind="epsilon", amount=1), **options)
