"""The filter: exact, never overspent, and honest about what is left."""

import copy
import pickle
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import (
    Amount,
    Budget,
    Cost,
    Spent,
    add_costs,
    admits,
    left,
)
from sfumato.core.errors import RecipeError

TENTH = Cost(kind="pure", scale=Fraction(1, 10))

budgets = st.builds(
    Budget,
    st.fractions(min_value=Fraction(1, 10), max_value=10),
    st.sampled_from([Fraction(0), Fraction(1, 10**6), Fraction(1, 100)]),
)
reserves = st.sampled_from([None, Fraction(0), Fraction(1, 10**7), Fraction(1, 10**8)])
charges = st.one_of(
    st.builds(
        Cost,
        kind=st.sampled_from(["pure", "exponential", "permute-and-flip", "laplace"]),
        scale=st.fractions(min_value=Fraction(1, 50), max_value=3),
        count=st.integers(1, 3),
    ),
    st.builds(Cost, kind=st.just("gaussian"), scale=st.fractions(min_value=Fraction(3, 2), max_value=60)),
    st.builds(Cost, kind=st.just("filter"), scale=st.fractions(min_value=Fraction(1, 50), max_value=1)),
    st.builds(
        Cost,
        kind=st.just("selection"),
        scale=st.fractions(min_value=1, max_value=60),
        sensitivity=st.integers(1, 4),
        delta=st.sampled_from([Fraction(1, 10**k) for k in (3, 7, 8, 12)]),
        count=st.integers(1, 3),
    ),
)


@settings(max_examples=100)
@given(budgets, reserves, st.lists(charges, max_size=25))
def test_no_sequence_overspends(budget, reserve, costs):
    if budget.delta > 0:
        budget = replace(budget, selection=reserve)
    spent, accepted = Spent(), []
    for cost in costs:
        if admits(budget, spent, [cost]):
            spent = add_costs(spent, [cost])
            accepted.append(cost)
    assert spent == add_costs(Spent(), accepted)
    assert sum(cost.count * cost.delta for cost in accepted) == spent.delta <= budget.selection
    pure = [cost.epsilon for cost in accepted]
    fits = all(e is not None for e in pure) and sum(pure) <= budget.epsilon
    if not fits:
        assert budget.delta > 0  # what the rules with delta admit: tests/core/cost/test_filter.py


@settings(max_examples=60)
@given(budgets, st.lists(charges, max_size=8))
def test_what_is_left_fits_and_lies_between_nothing_and_all(budget, costs):
    spent = Spent()
    before = left(budget, spent)
    assert before == budget.epsilon
    for cost in costs:
        if admits(budget, spent, [cost]):
            spent = add_costs(spent, [cost])
            remaining = left(budget, spent)
            assert 0 <= remaining <= before
            before = remaining
    if before > 0:
        assert admits(budget, spent, [Cost(kind="pure", scale=before)])


def test_ten_tenths_are_one():
    budget = Budget(1)
    spent = add_costs(Spent(), [TENTH] * 9)
    assert admits(budget, spent, [TENTH])
    spent = add_costs(spent, [TENTH])
    assert left(budget, spent) == 0
    assert not admits(budget, spent, [Cost(kind="pure", scale=Fraction(1, 10**30))])


def test_without_delta_gaussian_noise_is_refused():
    assert not admits(Budget(10), Spent(), [Cost(kind="gaussian", scale=Fraction(1000))])


def test_many_small_charges_fit_through_delta_where_their_sum_does_not():
    small = Cost(kind="pure", scale=Fraction(1, 100), count=200)
    assert not admits(Budget(1), Spent(), [small])
    assert admits(Budget(1, "1e-6"), Spent(), [small])


def test_a_filter_fits_where_its_steps_would():
    # Sixteen steps of one half stay within a limit of two, whatever they are asked to be.
    limit = Cost(kind="filter", scale=Fraction(1, 2))
    step = Cost(kind="gaussian", scale=Fraction(10**6), sensitivity=Fraction(125_000))
    assert 15 * step.mu_squared <= limit.mu_squared <= 17 * step.mu_squared
    budget = Budget(3, "1e-6")
    assert admits(budget, Spent(), [limit])
    assert not admits(Budget(3), Spent(), [limit])
    filtered, stepwise = add_costs(Spent(), [limit]), add_costs(Spent(), [step] * 15)
    assert filtered.epsilon is None
    assert filtered.rho >= stepwise.rho
    assert left(budget, filtered) <= left(budget, stepwise)


def test_amounts_print_exactly_and_survive_copies():
    amount = Amount(1, 3)
    assert (str(amount), repr(Amount("0.10")), f"{Amount(2)}") == ("1/3", "0.1", "2")
    assert amount == Fraction(1, 3)
    assert hash(amount) == hash(Fraction(1, 3))
    for again in (copy.deepcopy(amount), pickle.loads(pickle.dumps(amount))):
        assert type(again) is Amount
        assert again == amount


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0},
        {"epsilon": -1},
        {"epsilon": float("inf")},
        {"epsilon": float("nan")},
        {"epsilon": 10**10},
        {"epsilon": 1, "delta": 1},
        {"epsilon": 1, "delta": -1},
        {"epsilon": 1, "selection": "1e-9"},
        {"epsilon": 1, "delta": "1e-6", "selection": "1e-6"},
        {"epsilon": 1, "delta": "1e-6", "selection": "1e-5"},
        {"epsilon": 1, "delta": "1e-6", "selection": -1},
        {"epsilon": 1, "delta": "1e-6", "selection": "some"},
        {"epsilon": 1, "delta": "1e-6", "selection": Fraction(1, 2**2100)},
        {"epsilon": Fraction(2**2100 + 1, 2**2100)},
    ],
)
def test_what_is_not_a_budget_is_refused(arguments):
    with pytest.raises(RecipeError):
        Budget(**arguments)


def test_budget_records_are_read_strictly():
    record = Budget(1, "1e-6").to_record()
    assert Budget.from_record(record) == Budget(1, "1e-6")
    for change in ({"extra": "1"}, {"epsilon": "1.0"}, {"epsilon": 1}, {"selection": None}):
        with pytest.raises(RecipeError):
            Budget.from_record({**record, **change})
    del record["selection"]
    with pytest.raises(RecipeError):
        Budget.from_record(record)


@pytest.mark.parametrize("selection", [None, 0, "1e-7", "1/3000000"])
def test_budgets_with_a_reserve_read_back_exactly(selection):
    budget = Budget("1/3", "1e-6", selection=selection)
    assert Budget.from_record(budget.to_record()) == budget
    for again in (copy.deepcopy(budget), pickle.loads(pickle.dumps(budget))):
        assert again == budget
        assert hash(again) == hash(budget)
    assert ("for selection" in budget.describe()) == (budget.selection > 0)


def test_the_reserve_has_a_default():
    assert Budget(1).selection == 0
    assert Budget(1, "1e-6").selection == Fraction(1, 2 * 10**7)
    assert Budget(1, "1e-6", selection=0) != Budget(1, "1e-6")


def test_the_reserve_refuses_in_the_pure_branch_too():
    select = Cost(kind="selection", scale=Fraction(100), delta=Fraction(1, 10**8))
    budget = Budget(1, "1e-6", selection="3e-8")
    spent = add_costs(Spent(), [select] * 3)
    assert (spent.epsilon, spent.delta) == (Fraction(3, 100), Fraction(3, 10**8))
    assert admits(budget, Spent(), [select] * 3)
    assert not admits(budget, spent, [select])
    assert admits(budget, spent, [TENTH])
    assert left(budget, spent) == Fraction(97, 100)
    assert left(replace(budget, selection=0), spent) == 0
    for without in (Budget(1), Budget(1, "1e-6", selection=0)):
        assert not admits(without, Spent(), [select])


def test_the_reserve_refuses_in_the_branch_with_delta():
    many = Cost(kind="selection", scale=Fraction(100), delta=Fraction(1, 10**10), count=200)
    budget = Budget(1, "1e-6", selection="2e-8")
    assert many.epsilon == 2
    assert admits(budget, Spent(), [many])
    assert not admits(replace(budget, selection="1.9e-8"), Spent(), [many])
    assert not admits(Budget(1), Spent(), [many])


def test_what_is_reserved_is_taken_from_the_conversion():
    plain = Cost(kind="gaussian", scale=Fraction(100), sensitivity=Fraction(10))
    whole, half = (Budget(1, "1e-6", selection=part) for part in (0, "5e-7"))
    spent = add_costs(Spent(), [plain])
    assert left(half, spent) < left(whole, spent)


def test_amounts_print_in_formats_as_they_print_alone():
    third, quarter = Amount(1, 3), Amount(1, 4)
    assert f"{quarter}" == str(quarter) == f"{quarter:}" == "0.25"
    assert f"{third}" == "1/3"
    assert f"{quarter:>8}|{quarter:<8}|{quarter:^8}" == "    0.25|0.25    |  0.25  "
    assert f"{third:.3f} {third:.2e} {quarter:.0%} {quarter:g}" == "0.333 3.33e-01 25% 0.25"
    assert "{:*>6}".format(Amount("0.1")) == "***0.1"
    assert f"epsilon {left(Budget(1), add_costs(Spent(), [TENTH]))} left" == "epsilon 0.9 left"
    with pytest.raises(ValueError, match="format"):
        f"{third:Q}"


def test_what_is_left_of_a_very_large_budget_is_found():
    budget = Budget(10**9, Fraction(1, 10**6))
    spent = add_costs(Spent(), (Cost(kind="laplace", scale=Fraction(2), unit="person"),))
    assert 0 < left(budget, spent) <= 10**9
