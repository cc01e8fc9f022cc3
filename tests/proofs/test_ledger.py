"""The rule of a ledger against what the theorem is about: the same histories are admitted."""

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from sfumato.core.cost.budget import Budget, Spent, add_costs, admits
from sfumato.core.cost.cost import Cost
from sfumato.core.cost.filter import (
    ORDERS,
    RESERVES,
    UNIT,
    Trail,
    find_limits,
    find_whole_limits,
    renyi_costs,
    reserve_costs,
)

pytestmark = pytest.mark.slow


def draw_cost(draw):
    """A cost of any kind, small or as large as a budget."""
    size = Fraction(draw.choice([1, 1, 2, 5]), draw.choice([1, 2, 3, 10, 50, 400]))
    count = draw.choice([1, 1, 1, 2, 7, 90])
    match draw.choice(
        ["pure", "pure", "laplace", "gaussian", "gaussian", "filter", "exponential", "selection"]
    ):
        case "laplace":
            return Cost(kind="laplace", scale=1 / size, sensitivity=Fraction(1), count=count)
        case "gaussian":
            return Cost(kind="gaussian", scale=3 / size, sensitivity=Fraction(1), count=count)
        case "selection":
            fails = Fraction(draw.choice([1, 3, 10]), draw.choice([10**6, 10**8, 10**9]))
            return Cost(
                kind="selection", scale=1 / size, sensitivity=Fraction(1), delta=fails, count=min(count, 7)
            )
        case kind:
            return Cost(kind=kind, scale=size, count=count)


def play_history(draw, budget):
    """Charges as they come, each admitted or refused; those that are refused are not in the history."""
    spent, charges = Spent(), []
    for _ in range(draw.randint(3, 14)):
        charge = tuple(draw_cost(draw) for _ in range(draw.choice([1, 1, 1, 2, 3])))
        admitted = admits(budget, spent, charge)
        yield [*charges, charge], admitted
        if admitted:
            spent, charges = add_costs(spent, charge), [*charges, charge]


def find_aside(budget, first):
    """The limits if the first charge is set aside, which the theorem has as a function of its epsilon."""
    amounts = [cost.epsilon for cost in first]
    if None in amounts or not 0 < sum(amounts) < budget.epsilon or budget.delta == 0:
        return -1, ()
    limits = find_limits(budget.epsilon, budget.conversion_delta, aside=sum(amounts))
    return limits.gaussian, limits.orders


@pytest.mark.parametrize(
    "budget",
    [
        Budget(1),
        Budget(1, "1e-6"),
        Budget("1/2", "1e-3", selection="1e-4"),
        Budget(6, "1e-5", selection=0),
        Budget(10, "1e-9"),
    ],
    ids=lambda budget: budget.describe(),
)
def test_what_is_admitted_is_what_the_theorem_ledger_private_is_about(oracle, budget):
    draw = random.Random(budget.describe())
    oracle.ask("reserves", [int(reserve * UNIT) for reserve in RESERVES])
    if budget.delta:
        plain = find_limits(budget.epsilon, budget.conversion_delta)
        whole = find_whole_limits(budget.epsilon, budget.delta)
        tables = plain.gaussian, plain.orders, whole.gaussian, whole.orders
    else:
        tables = 0, (), 0, ()
    oracle.ask("budget", budget.epsilon, budget.delta, budget.selection, *tables)
    names, asked, found = {}, [], []
    for _ in range(270):
        for charges, admitted in play_history(draw, budget):
            for cost in {cost for charge in charges for cost in charge} - set(names):
                names[cost] = f"c{len(names)}"
                numbers = reserve_costs(cost), cost.uses, renyi_costs(cost)
                pure = None if cost.epsilon is None else Fraction(cost.epsilon)
                oracle.ask("cost", names[cost], pure, Fraction(cost.failure), *numbers)
            spelled = ";".join(" ".join(names[cost] for cost in charge) for charge in charges)
            asked.append(("admits", *find_aside(budget, charges[0]), spelled))
            found.append(admitted)
    known = [answer == "yes" for answer in oracle.ask_all(asked)]
    differing = [question for question, here, there in zip(asked, found, known, strict=True) if here != there]
    assert not differing, ("Ledger.ledger_private", differing[0])
    assert len(found) > 1900
    assert 0.1 < sum(found) / len(found) < 0.9


def convert_order(epsilon, limit, order):
    """The delta that the limit of an order converts to, as in the lemma renyi_start."""
    with localcontext() as context:
        context.prec = 60
        x, left = (
            Decimal(each.numerator) / each.denominator
            for each in (order - 1, Fraction(limit, UNIT) - epsilon)
        )
        return (x * left - x * (1 + 1 / x).ln()).exp() / (1 + x)


def convert_gaussian(epsilon, limit):
    """The delta of Gaussian noise with this squared parameter."""
    mu, epsilon = math.sqrt(Fraction(limit, UNIT)), float(epsilon)
    near, far = ((epsilon / mu + side * mu / 2) / math.sqrt(2) for side in (-1, 1))
    return (math.erfc(near) - math.exp(epsilon) * math.erfc(far)) / 2


@pytest.mark.parametrize("epsilon", ["0.1", "1", "5/2", "10"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-10"])
def test_limits_are_sound_as_the_theorem_ledger_private_asks(epsilon, delta):
    budget = Budget(epsilon, delta)
    epsilon, rest = budget.epsilon, budget.conversion_delta
    for limits, apart, most in (
        (find_limits(epsilon, rest), 0, rest),
        (find_limits(epsilon, rest, aside=epsilon / 3), epsilon / 3, rest),
        (find_whole_limits(epsilon, budget.delta), 0, budget.delta),
    ):
        parts = [
            convert_order(epsilon, limit, order)
            for limit, order in zip(limits.orders, ORDERS, strict=True)
            if limit >= 0
        ]
        total = convert_gaussian(epsilon - apart, limits.gaussian) + float(sum(parts))
        assert total <= float(most) * (1 + 1e-9), "Ledger.sound"
        assert total > float(most) * 0.7
        assert limits.aside == (apart > 0)
        assert limits.gaussian >= 0


def test_a_bulk_of_uses_is_paid_like_one_after_another():
    for epsilon, count in ((Fraction(1, 10), 37), (Fraction(1, 3), 11), (Fraction(2), 3)):
        once, many = (Cost(kind="pure", scale=epsilon, count=each) for each in (1, count))
        limit, trail = 10 * UNIT, None
        for _ in range(count):
            trail = Trail((once,), trail)
        assert trail.gaussian_left(limit) == Trail((many,), None).gaussian_left(limit), "Ledger.walk_step"
