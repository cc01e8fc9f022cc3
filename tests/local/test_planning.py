"""Plans, choices and the price of not trusting a curator."""

import math

import numpy as np
import pytest

from sfumato.core.errors import RecipeError
from sfumato.local import (
    RandomizedResponse,
    choose_mechanism,
    compare_models,
    estimate_frequencies,
    plan,
    randomized_response,
)


def test_a_plan_reaches_its_margin():
    wanted = plan("krr", epsilon=1, categories=4, margin=0.02, confidence=0.95)
    values = np.zeros(wanted.people, int)
    answers = randomized_response(values, epsilon=1, categories=4)
    estimate = estimate_frequencies(answers, epsilon=1, categories=4)
    assert 1.959964 * estimate.standard_errors.max() <= 0.02 * 1.05
    assert wanted.standard_error <= 0.02 / 1.959


@pytest.mark.parametrize("name", ["krr", "oue", "sue", "olh", "hadamard", "rappor"])
def test_people_grow_with_the_square_of_the_margin(name):
    coarse = plan(name, epsilon=2, categories=10, margin=0.02)
    fine = plan(name, epsilon=2, categories=10, margin=0.01)
    assert fine.people == pytest.approx(4 * coarse.people, rel=0.01)


def test_plans_of_means_are_in_the_unit_of_the_values():
    wide = plan("laplace", epsilon=1, low=0, high=100, margin=1)
    assert wide.people == math.ceil(2 * 100**2 * 1.9599639845400545**2)
    assert plan("duchi", epsilon=1, low=0, high=100, margin=1).people < wide.people


def test_plans_take_objects():
    made = RandomizedResponse(epsilon=1, categories=4)
    assert plan(made) == plan("krr", epsilon=1, categories=4)
    assert plan(made, share=0.5).people <= plan(made).people
    with pytest.raises(RecipeError, match="already has its parameters"):
        plan(made, epsilon=2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"margin": 0},
        {"margin": math.nan},
        {"confidence": 1},
        {"confidence": 0},
        {"share": 2},
        {"epsilon": 0},
        {"categories": 1},
        {"low": 3},
        {"margin": 1e-12, "epsilon": "1e-6"},
    ],
)
def test_impossible_plans_are_refused(wrong):
    with pytest.raises(RecipeError):
        plan("krr", **({"epsilon": 1, "categories": 4} | wrong))
    with pytest.raises(RecipeError, match="no mechanism"):
        plan("nonsense", epsilon=1)


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4])
def test_randomised_response_is_chosen_while_categories_are_few(epsilon):
    bound = math.exp(epsilon) + 1  # from here on sets of two are better than single answers
    few = choose_mechanism(epsilon=epsilon, categories=max(2, int(0.8 * bound)))
    many = choose_mechanism(epsilon=epsilon, categories=int(3 * bound) + 1)
    assert few.mechanism.name == "krr"
    assert many.mechanism.name != "krr"


def test_the_choice_is_close_to_the_least_variance():
    for categories in (2, 10, 100, 10_000, 1_000_000):
        choice = choose_mechanism(epsilon=1, categories=categories)
        least = min(each.variance(1 / categories) for each in choice.candidates)
        assert choice.mechanism.variance(1 / categories) <= 1.05 * least
        assert choice.candidates[0] == choice.mechanism
    with pytest.raises(RecipeError, match="so few bits"):
        choose_mechanism(epsilon=1, categories=1000, max_bits=3)


def test_a_trusted_curator_is_better_by_the_root_of_the_people():
    result = compare_models(people=10_000, low=0, high=100_000, epsilon=1)
    assert result.ratio == pytest.approx(100)
    assert result.central == pytest.approx(math.sqrt(2) * 100_000 / 10_000)
    better = compare_models(people=10_000, low=0, high=100_000, epsilon=1, mechanism="piecewise")
    assert better.local < result.local
    with pytest.raises(RecipeError, match="one for means"):
        compare_models(people=10, low=0, high=1, epsilon=1, mechanism="krr")
    with pytest.raises(RecipeError, match="people"):
        compare_models(people=0, low=0, high=1, epsilon=1)
