"""The coin of the lecture, and what an answer tells: against Bayes by enumeration."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError, SchemaError
from sfumato.local import CoinResponse, coin_response, estimate_coin, posterior

CHANCES = st.fractions(0, 1, max_denominator=50)


def test_the_rate_of_the_lecture():
    answers = [1] * 3500 + [0] * 6500
    estimate = estimate_coin(answers)
    assert estimate.frequencies[1] == pytest.approx(2 * 0.35 - 0.5)
    assert estimate.standard_errors[1] == pytest.approx(np.sqrt(0.75 / 10_000))


@pytest.mark.parametrize(("truth", "yes"), [("1/2", "1/2"), ("0.9", "0.2"), ("1/3", "0.7")])
def test_the_share_of_yes_comes_back(truth, yes):
    values = np.arange(50_000) % 10 < 3
    estimate = estimate_coin(coin_response(values, truth=truth, yes=yes), truth=truth, yes=yes)
    assert abs(estimate.frequencies[1] - 0.3) < 8 * estimate.standard_errors[1]
    assert estimate.frequencies.sum() == pytest.approx(1)


def brute_force(prior, flip, answer):
    """Bayes over the four worlds (truth, lie)."""
    worlds = {
        (truth, lie): (prior if truth else 1 - prior) * (flip if lie else 1 - flip)
        for truth in (True, False)
        for lie in (True, False)
    }
    seen = {world: chance for world, chance in worlds.items() if (world[0] != world[1]) == answer}
    return sum(chance for (truth, _), chance in seen.items() if truth) / sum(seen.values())


@given(CHANCES, CHANCES, st.booleans())
def test_the_posterior_is_that_of_bayes(prior, flip, answer):
    try:
        expected = brute_force(prior, flip, answer)
    except ZeroDivisionError:
        with pytest.raises(RecipeError, match="cannot come up"):
            posterior(prior, flip=flip, answer=answer)
        return
    assert posterior(prior, flip=flip, answer=answer) == expected


@given(st.fractions("1/100", "99/100"), st.fractions("1/100", "1/2"))
def test_odds_change_by_the_likelihood_ratio_at_most(prior, flip):
    after = posterior(prior, flip=flip)
    assert after / (1 - after) == (prior / (1 - prior)) * ((1 - flip) / flip)


def test_special_posteriors():
    assert posterior("1/3", flip="1/2") == Fraction(1, 3)
    assert posterior("1/3", flip=0) == 1
    for prior, flip in ((2, "1/4"), ("1/2", -1), ("x", "1/4")):
        with pytest.raises(RecipeError):
            posterior(prior, flip=flip)


@pytest.mark.parametrize("chances", [(0, "1/2"), (1, "1/2"), ("1/2", 0), ("1/2", 1), ("1e-20", "1/2")])
def test_coins_that_decide_nothing_are_refused(chances):
    with pytest.raises(RecipeError, match="chance"):
        CoinResponse(truth=chances[0], yes=chances[1])


def test_answers_that_no_truth_explains_are_refused():
    with pytest.raises(SchemaError, match="not given by this mechanism"):
        estimate_coin(np.ones(10_000, int))
