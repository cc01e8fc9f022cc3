"""What a charge pays for: item by item, and of parts of the people the largest, nothing less."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import Allowance, Cost
from sfumato.core.cost.filter import renyi_costs, reserve_costs
from sfumato.core.errors import RecipeError
from sfumato.core.facts.part import Part
from sfumato.core.facts.table import parse_table
from sfumato.recipes import Additive
from sfumato.recipes.base import Plan
from sfumato.recipes.shared.evaluation import split_people


def cost(kind="gaussian", neighbours="add-remove", scale=10, **facts):
    return Cost(kind=kind, scale=Fraction(scale), neighbours=neighbours, **facts)


def pays(charged, *asked):
    """Whether a charge pays for what is asked of parts, one after the other."""
    allowance = Allowance(charged)
    return [allowance.pay(each, part=part) for part, each in asked]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_largest_part_is_charged(neighbours):
    one = cost(neighbours=neighbours)
    asked = [("fit", one), ("fit", one), ("held out", one)]
    assert pays([one] * 2, *asked) == [True] * 3
    assert pays([one] * 2, *asked, (None, one)) == [True, True, True, False]
    assert pays([one] * 2, *asked, ("held out", one), ("held out", one)) == [True] * 4 + [False]
    assert pays([one] * 3, *asked, (None, one), ("fit", one)) == [True] * 4 + [False]


def test_choices_of_different_parts_add_where_people_are_exchanged():
    for neighbours, both in (("add-remove", True), ("replace", False)):
        pure, one = cost("pure", neighbours), cost("gaussian", neighbours)
        assert pays([pure], ("a", pure), ("b", pure)) == [True, both]
        assert pays([one], ("a", cost("exponential", neighbours, "0.05")), ("b", one)) == [True, both]


def test_a_question_is_paid_by_one_item_or_by_gaussian_ones():
    """What an item pays for is as private as the item; two pure items do not add up to one."""
    small, large, half = (cost("pure", scale=each) for each in ("0.05", 3, "1.5"))
    assert pays([large] * 3 + [small] * 100, (None, cost("pure", scale=6))) == [False]
    assert pays([large, small], (None, half), (None, half), (None, small), (None, small)) == [
        True,
        True,
        True,
        False,
    ]
    # The smallest item that suffices pays, so that what is large is left for what is large.
    assert pays([large, half], (None, cost("pure", scale=1)), (None, large)) == [True, True]
    one = cost(scale=10)
    assert pays([one, one], (None, cost(scale=8)), (None, cost("filter", scale="0.03"))) == [True, True]
    assert pays([one, one], (None, cost(scale=7))) == [False]
    assert pays([one], (None, cost("laplace", scale=20)), (None, one)) == [True, False]
    assert pays([cost("laplace", scale=10)], (None, one)) == [False]
    # Randomised response of the same epsilon costs more than Laplace noise at every order.
    noisy = cost("laplace", scale=10, sensitivity=Fraction(10))
    assert pays([noisy], (None, cost("pure", scale=1))) == [False]


PRICED = st.builds(
    lambda kind, scale, count: Cost(kind=kind, scale=Fraction(scale, 100), count=count),
    st.sampled_from(["pure", "laplace", "exponential", "filter"]),
    st.integers(5, 300),
    st.integers(1, 3),
)


@given(st.lists(PRICED, min_size=1, max_size=5), st.lists(PRICED, max_size=12))
def test_what_is_paid_costs_no_more_at_any_order_and_beside_any_reserve(charged, asked):
    allowance = Allowance(charged)
    paid = [each for each in asked if allowance.pay(each)]
    assert all(map(Allowance(charged).pay, charged))
    for read in (renyi_costs, lambda cost: [cost.uses * each for each in reserve_costs(cost)]):
        pairs = zip(
            map(sum, zip(*map(read, paid), strict=True)),
            map(sum, zip(*map(read, charged), strict=True)),
            strict=False,
        )
        assert all(asked <= charged + 1000 for asked, charged in pairs)  # in units of 1e-18


def test_uses_of_a_cost_and_steps_of_a_run_are_counted():
    use = cost("exponential", scale="0.1")
    assert pays([replace(use, count=2)], (None, use), (None, use), (None, use)) == [True, True, False]
    step = cost("sampled", sampling=Fraction(1, 8))
    run = replace(step, count=2, delta=Fraction(1, 10**9))
    assert pays([run], (None, step), (None, step), (None, step)) == [True, True, False]
    assert pays([run], (None, replace(step, scale=Fraction(11)))) == [False]
    assert pays([run], (None, use)) == [False]
    chosen = cost("selection", delta=Fraction(1, 10**9))
    assert pays([chosen, cost("filter", scale=1)], (None, chosen), (None, chosen)) == [True, False]
    # What cannot fail leaves items that may to those questions that can.
    wider = [cost("laplace", scale=11), replace(chosen, scale=Fraction(11))]
    assert pays([chosen, cost("laplace")], *((None, each) for each in wider)) == [True, True]


def test_half_the_cost_of_an_exchange_is_that_of_one_who_goes():
    """What the proof rests on, of the noise that is drawn."""
    for factor in (4, 2):  # the squares of the factors 2 and sqrt(2) between the sensitivities
        exchanged = Cost(kind="gaussian", scale=Fraction(7), sensitivity=Fraction(6), neighbours="replace")
        squared = exchanged.sensitivity**2 / factor / (exchanged.scale**2 - 4)
        assert squared <= exchanged.mu_squared / 2


def plan(*parts):
    table = parse_table("t", {"source": "t", "unit": "row", "columns": {"a": {"range": [0, 1]}}})
    recipe = Additive(table="t", target="a")
    return Plan(recipe=recipe, table=table, requests=(), epsilons=(), delta=Fraction(0), parts=parts)


def test_parts_that_meet_are_refused():
    fit, held = split_people({"fit": Fraction(4, 5), "held out": Fraction(1, 5)}, columns=("a",))
    assert plan(fit, held).to_record()["parts"][1] == {"name": "held out", "from": "0.8", "to": "1"}
    wider = Part(name="wider", low=Fraction(3, 4), high=Fraction(1), columns=("a",))
    other = Part(name="other", low=Fraction(4, 5), high=Fraction(1), columns=("b",))
    # Of one name they would be charged as one part and looked up as one.
    named = replace(held, name="fit")
    for meeting in [
        (fit, wider),
        (fit, other),
        (fit, fit),
        (fit, named),
        (fit, held, wider),
        (held, fit, wider),
    ]:
        with pytest.raises(RecipeError, match="in common"):
            plan(*meeting)
