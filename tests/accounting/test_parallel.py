"""Parallel composition: the largest part is charged, and nothing less."""

from fractions import Fraction

import pytest

from sfumato.accounting import Cost, Parallel
from sfumato.errors import RecipeError
from sfumato.recipes import Additive, Plan
from sfumato.schema import Part, parse_table, split_people


def cost(kind="gaussian", neighbours="add-remove", scale=10):
    return Cost(kind=kind, scale=Fraction(scale), neighbours=neighbours)


def total(*asked, **facts):
    spent = Parallel()
    for part, kind in asked:
        spent.add(cost(kind, **facts), part=part)
    return spent.total()


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_largest_part_is_charged(neighbours):
    one = cost(neighbours=neighbours)
    gaussian = [("fit", "gaussian"), ("fit", "gaussian"), ("held out", "gaussian")]
    assert total(*gaussian, neighbours=neighbours).mu_squared == 2 * one.mu_squared
    everybody = total(*gaussian, (None, "gaussian"), neighbours=neighbours)
    assert everybody.mu_squared == 3 * one.mu_squared
    assert everybody.rho == 3 * one.rho
    assert everybody.epsilon is None


def test_choices_of_different_parts_add_where_people_are_exchanged():
    asked = [("fit", "exponential"), ("held out", "gaussian")]
    parts = [cost("exponential").mu_squared, cost().mu_squared]
    assert total(*asked).mu_squared == max(parts)
    assert total(*asked, neighbours="replace").mu_squared == sum(parts)
    assert total(("a", "pure"), ("b", "pure")).epsilon == 10
    assert total(("a", "pure"), ("b", "pure"), neighbours="replace").epsilon == 20


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
    for second in (wider, other, fit):
        with pytest.raises(RecipeError, match="in common"):
            plan(fit, second)
