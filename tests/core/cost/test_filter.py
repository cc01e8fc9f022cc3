"""The filter with all rules: sound against exact composition, shared fairly, and never paid for twice."""

import itertools
import json
import math
import pickle
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.rho import max_rho
from sfumato.accounting import (
    Budget,
    Cost,
    Spent,
    add_costs,
    admits,
    discrete_gaussian_sigma,
    left,
    max_mu,
    mu_to_epsilon,
    pure_to_mu,
    rho_to_epsilon,
)
from sfumato.core.cost.filter import (
    ORDERS,
    RESERVES,
    UNIT,
    Trail,
    choose_limits,
    find_limits,
    find_whole_limits,
    guess_pure,
    renyi_costs,
    reserved_mu_squared,
    share_delta,
)
from sfumato.core.errors import LedgerError

MILLIONTH = Fraction(1, 10**6)


def tail(x):
    return math.erfc(x / math.sqrt(2)) / 2


def gaussian_delta(mu, epsilon):
    """The exact delta of N(0, 1) against N(mu, 1), at any epsilon, also below zero."""
    if mu == 0:
        return max(0.0, 1 - math.exp(epsilon))
    return tail(epsilon / mu - mu / 2) - math.exp(epsilon) * tail(epsilon / mu + mu / 2)


def response_delta(epsilons, mu, epsilon):
    """The exact delta of randomised responses and one Gaussian mechanism together, at `epsilon`."""
    losses = {0.0: 1.0}
    for each in epsilons:
        likely = 1 / (1 + math.exp(-each))
        moved: dict[float, float] = {}
        for loss, chance in losses.items():
            for step, part in ((each, likely), (-each, 1 - likely)):
                key = round(loss + step, 9)
                moved[key] = moved.get(key, 0.0) + chance * part
        losses = moved
    return math.fsum(chance * gaussian_delta(mu, epsilon - loss) for loss, chance in losses.items())


def pure(epsilon, count=1):
    return Cost(kind="pure", scale=Fraction(epsilon), count=count)


def run(mu):
    return Cost(kind="filter", scale=Fraction(mu))


def charge_all(costs):
    spent = Spent()
    for cost in costs:
        spent = add_costs(spent, [cost])
    return spent


# The parts of delta


@settings(max_examples=60)
@given(
    st.fractions(Fraction(1, 50), 60),
    st.sampled_from([Fraction(1, 10**k) for k in (1, 2, 3, 6, 9, 15, 40)]),
    st.fractions(0, Fraction(99, 100)),
)
def test_the_parts_of_delta_add_up_to_delta_at_most(epsilon, delta, share):
    for aside in {Fraction(0), epsilon * share}:
        main, orders = share_delta(epsilon, delta, aside=aside)
        assert main + sum(orders) <= delta
        assert min(main, *orders) >= 0
        assert sum(part > 0 for part in orders) >= 5


@pytest.mark.parametrize("delta", [Fraction(1, 1000), MILLIONTH, Fraction(1, 10**9)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(4)])
@pytest.mark.parametrize("aside", [Fraction(0), Fraction(1, 4)])
def test_every_limit_is_computed_at_its_own_part(epsilon, delta, aside):
    main, orders = share_delta(epsilon, delta, aside=aside)
    limits = find_limits(epsilon, delta, aside=aside)
    mu = math.sqrt(limits.gaussian / UNIT)
    assert gaussian_delta(mu, float(epsilon - aside)) == pytest.approx(float(main), rel=1e-6)
    for part, order, limit in zip(orders, ORDERS, limits.orders, strict=True):
        if part == 0:
            assert limit == -1
            continue
        x, divergence = float(order - 1), limit / UNIT
        if limit >= 0:  # Canonne, Kamath and Steinke (2020), Proposition 12
            log = x * (divergence - float(epsilon)) + (x + 1) * math.log1p(-1 / (x + 1)) - math.log(x)
            assert math.exp(log) == pytest.approx(float(part), rel=1e-6)


def test_all_parts_of_a_budget_with_its_reserve_are_at_most_delta():
    budget = Budget(1, MILLIONTH)
    main, orders = share_delta(budget.epsilon, budget.conversion_delta)
    assert main + sum(orders) + budget.selection <= budget.delta


# The price of a pure mechanism beside a reserve


@pytest.mark.parametrize("root", [2.0**k for k in (-14, -8, -5, -3, -1, 0, 2, 3)])
@pytest.mark.parametrize("epsilon", ["1e-4", "0.003", "0.05", "0.3", "1", "4", "20"])
def test_response_beside_a_reserve_is_at_most_a_wider_gaussian(root, epsilon):
    exact = Fraction(epsilon)
    price = reserved_mu_squared(exact, Fraction(root))
    assert 0 < price <= Fraction(pure_to_mu(exact) ** 2) + Fraction(1, 10**18)
    wider = math.sqrt(root**2 + float(price))
    for place in [k / 40 for k in range(-240, 241)]:
        at = place * (wider + float(exact))
        together = response_delta([float(exact)], root, at)
        assert together <= gaussian_delta(wider, at) + 2e-12


@pytest.mark.parametrize(("root", "epsilon"), [(1.0, "0.3"), (0.125, "0.1"), (0.5, "2"), (4.0, "1")])
def test_the_price_beside_a_reserve_is_the_least(root, epsilon):
    exact = Fraction(epsilon)
    less = float(reserved_mu_squared(exact, Fraction(root))) * 0.999
    assert response_delta([float(exact)], root, 0.0) > gaussian_delta(math.sqrt(root**2 + less), 0.0)


def test_small_charges_cost_their_variance_and_nothing_is_free():
    price = float(reserved_mu_squared(Fraction(1, 1000), Fraction(1, 4)))
    assert price == pytest.approx(1e-6, rel=1e-5)
    tiny = reserved_mu_squared(Fraction(1, 10**15), Fraction(1, 4))
    assert tiny > 0
    assert reserved_mu_squared(Fraction(50), Fraction(1, 4)) >= 8 * 50 * 0.8


# Divergences


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "3"])
def test_divergences_are_those_of_randomised_response_rounded_up(epsilon):
    value = float(Fraction(epsilon))
    p = 1 / (1 + math.exp(-value))
    for order, units in zip(ORDERS, renyi_costs(pure(epsilon, 3)), strict=True):
        a = float(order)
        if a > 60:
            continue
        moment = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
        exact = 3 * math.log(moment) / (a - 1)
        assert exact * (1 - 1e-9) <= units / UNIT <= exact * (1 + 1e-9) + 1e-17
        assert units / UNIT <= 3 * value


def test_divergences_of_noise_are_those_of_its_rate():
    cost = Cost(kind="gaussian", scale=Fraction(3, 2), sensitivity=Fraction(1))
    assert cost.mu_squared is None  # so narrow that only divergences are known
    for order, units in zip(ORDERS, renyi_costs(cost), strict=True):
        assert Fraction(units, UNIT) >= order * cost.rho
    assert admits(Budget(4, MILLIONTH), Spent(), [cost])


# Admitted histories are private: exact composition


def _random_charges(generator, budget):
    sizes = [Fraction(generator.randint(1, 400), 1000) * budget.epsilon for _ in range(3)]
    mus = [max_mu(budget.epsilon * Fraction(generator.randint(1, 30), 30), budget.delta) for _ in range(2)]
    menu = [pure(size) for size in sizes] + [run(Fraction(mu).limit_denominator(10**9)) for mu in mus]
    menu.append(pure(sizes[0] / 20, generator.randint(1, 40)))
    return [generator.choice(menu) for _ in range(20)]


@pytest.mark.parametrize("seed", range(30))
def test_no_admitted_mixture_exceeds_the_budget_by_exact_composition(seed):
    generator = random.Random(seed)
    epsilon = Fraction(generator.choice(["0.5", "1", "4"]))
    budget = Budget(epsilon, generator.choice(["1e-3", "1e-6"]))
    spent, accepted = Spent(), []
    for cost in _random_charges(generator, budget):
        if admits(budget, spent, [cost]):
            spent = add_costs(spent, [cost])
            accepted.append(cost)
    epsilons = [float(c.scale) for c in accepted if c.kind == "pure" for _ in range(c.count)]
    mu = math.sqrt(sum(float(c.scale) ** 2 for c in accepted if c.kind == "filter"))
    assert accepted
    exact = response_delta(epsilons, mu, float(epsilon))
    assert exact <= float(budget.delta) * (1 + 1e-9)
    # What is left, spent to the last millionth, keeps it so.
    rest = left(budget, spent)
    if rest > 0:
        assert response_delta([*epsilons, float(rest)], mu, float(epsilon)) <= float(budget.delta) * (
            1 + 1e-9
        )


def _most_gaussian(budget, spent):
    """The largest Gaussian parameter that is still admitted, nearly."""
    low, high = 0, 2**22
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if admits(budget, spent, [run(Fraction(middle, 2**20))]) else (low, middle - 1)
        )
    return low / 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta", "sizes"),
    [
        ("1", "1e-3", ("0.2", "0.05")),
        ("1", "1e-2", ("0.4", "0.1")),
        ("4", "1e-6", ("1", "0.3")),
        ("2", "1e-3", ("0.7", "0.15")),
    ],
)
def test_no_strategy_gains_by_choosing_charges_on_seeing_answers(epsilon, delta, sizes):
    """The best of all strategies that choose between two responses and a last Gaussian question."""
    budget = Budget(epsilon, delta)
    target = float(budget.epsilon)
    values: dict[tuple[tuple[str, ...], float], float] = {}
    ends: dict[tuple[str, ...], tuple[Spent, float]] = {}

    def look(path):
        if path not in ends:
            spent = charge_all(pure(size) for size in path)
            ends[path] = spent, _most_gaussian(budget, spent)
        return ends[path]

    def value(path, loss):
        key = path, round(loss, 9)
        if key not in values:
            spent, mu = look(path)
            best = gaussian_delta(mu, target - loss)
            for size in sizes if len(path) < 7 else ():
                if admits(budget, spent, [pure(size)]):
                    step = float(Fraction(size))
                    p = 1 / (1 + math.exp(-step))
                    further = (*path, size)
                    best = max(best, p * value(further, loss + step) + (1 - p) * value(further, loss - step))
            values[key] = best
        return values[key]

    # The first charge is made before any answer.
    assert value((), 0.0) <= float(budget.delta) * (1 + 1e-9)


# What one ledger admits


def test_a_ledger_admits_pure_and_gaussian_releases_in_turn():
    budget = Budget(4, MILLIONTH)
    spent = charge_all([pure(1), pure("0.5"), pure("0.25")])
    rows = run(Fraction(int(max_mu(1, MILLIONTH) * (1 - 1e-9) * 10**12), 10**12))
    assert admits(budget, spent, [rows])
    assert admits(budget, add_costs(spent, [rows]), [rows])
    assert left(budget, add_costs(spent, [rows])) > Fraction(1, 2)


@pytest.mark.parametrize(("epsilon", "delta"), [(1, "2.5e-5"), (4, "1e-6"), ("0.1", "1e-3")])
def test_the_first_charge_may_take_the_whole_budget(epsilon, delta):
    sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=150, count=66)
    plan = Cost(kind="gaussian", scale=Fraction(sigma), sensitivity=Fraction(150), count=66)
    budget = Budget(epsilon, delta)
    assert admits(budget, Spent(), [plan])
    assert not admits(budget, Spent(), [plan, pure("1e-4")])
    assert left(budget, add_costs(Spent(), [plan])) == 0
    # Delta is used up: nothing is kept for failures, whatever else would fit.
    select = Cost(kind="selection", scale=Fraction(10**9), delta=Fraction(1, 10**15))
    assert not admits(budget, add_costs(Spent(), [plan]), [select])
    assert not admits(budget, add_costs(Spent(), [pure("1e-9")]), [plan])
    assert not admits(budget, add_costs(Spent(), [select]), [plan])
    assert choose_limits(budget.epsilon, budget.conversion_delta, Trail((plan,), None)) is None
    assert find_whole_limits(budget.epsilon, budget.delta).orders == (-1,) * len(ORDERS)


def test_a_large_pure_first_charge_is_set_aside():
    budget = Budget(4, MILLIONTH)
    rest = run(Fraction(max_mu(3, Fraction(3, 4 * 10**6))).limit_denominator(10**9))
    assert admits(budget, charge_all([pure(1)]), [rest])
    assert not admits(budget, charge_all([pure("0.5"), pure("0.5")]), [rest])


def _least_epsilon(costs, delta, guess):
    spent = charge_all(costs)
    low, high = guess / 4, guess * 2
    for _ in range(20):
        middle = (low + high) / 2
        fits = admits(Budget(Fraction(middle).limit_denominator(10**9), delta), spent)
        low, high = (low, middle) if fits else (middle, high)
    return high


@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-9"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_premium_for_having_all_rules_is_two_percent_at_most(epsilon, delta):
    """Against the best single rule with all of delta to itself; benchmarks/premium.py has more."""
    mu, rho = max_mu(epsilon, delta), float(max_rho(epsilon, delta))
    gaussian = [run(Fraction(mu / math.sqrt(10)).limit_denominator(10**9))] * 10
    assert _least_epsilon(gaussian, delta, epsilon) <= 1.02 * epsilon
    small = rho / epsilon
    laplace = Cost(kind="laplace", scale=Fraction(20 / small).limit_denominator(10**6), sensitivity=20)
    many = [laplace] * int(rho / float(laplace.rho))
    spent = add_costs(Spent(), many)
    single = min(float(spent.epsilon), rho_to_epsilon(spent.rho, delta))
    assert _least_epsilon(many, delta, epsilon) <= 1.02 * single
    few = [pure(Fraction(epsilon).limit_denominator(100) / 8)] * 8
    assert admits(Budget(sum(c.epsilon for c in few), delta), charge_all(few))
    if delta != "1e-3":
        half = Fraction(epsilon).limit_denominator(100) / 2
        mixed = [pure(half), run(Fraction(max_mu(half, delta)).limit_denominator(10**9))]
        assert _least_epsilon(mixed, delta, epsilon) <= 1.02 * epsilon


def test_many_small_charges_beat_both_of_the_older_rules():
    delta, cost = MILLIONTH, pure("0.01")
    spent = charge_all([cost] * 1000)
    both = rho_to_epsilon(spent.rho, delta), mu_to_epsilon(math.sqrt(spent.mu_squared), delta)
    assert _least_epsilon([cost] * 1000, delta, min(both)) < 0.97 * min(both)


# The trail


def test_sums_are_the_same_at_once_link_by_link_and_copied():
    costs = [pure("0.1"), run("0.2"), pure("0.01", 30), Cost(kind="laplace", scale=Fraction(40))]
    budget = Budget(2, MILLIONTH)
    limit = find_limits(budget.epsilon, budget.conversion_delta).gaussian
    trail = None
    for cost in costs:
        trail = Trail((cost,), trail)
        trail.gaussian_left(limit)
    fresh = charge_all(costs).trail
    assert fresh.gaussian_left(limit) == trail.gaussian_left(limit)
    assert fresh.orders() == trail.orders()
    again = pickle.loads(pickle.dumps(charge_all(costs * 400)))
    assert again == charge_all(costs * 400)
    assert again.trail.orders() == charge_all(costs * 400).trail.orders()


def test_repetitions_cost_what_single_uses_cost():
    limit = find_limits(Fraction(1), MILLIONTH).gaussian
    single = charge_all([pure("0.02")] * 60).trail
    assert charge_all([pure("0.02", 60)]).trail.gaussian_left(limit) == single.gaussian_left(limit)


def test_a_price_beside_a_reserve_needs_that_reserve_to_stay():
    alone = float(pure_to_mu(Fraction(1)) ** 2)
    beside = float(reserved_mu_squared(Fraction(1), Fraction(1)))
    assert beside < alone
    trail = Trail((pure(1),), None)
    assert (
        trail.gaussian_left(int((alone - 0.01) * UNIT)) is None
    )  # the price of no reserve, and none is left
    assert trail.gaussian_left(int((1 + beside + 0.001) * UNIT)) >= UNIT
    (mu, least) = (1.45, 0.0)
    rest = Trail((pure("0.7"), pure("0.7")), None).gaussian_left(int(mu**2 * UNIT))
    assert rest is not None
    assert response_delta([0.7, 0.7], math.sqrt(rest / UNIT), least) <= gaussian_delta(mu, least)


def test_the_reserves_fall_to_none():
    assert list(RESERVES) == sorted(RESERVES, reverse=True)
    assert RESERVES[-1] == 0
    assert all(larger > smaller for larger, smaller in itertools.pairwise(RESERVES))


def test_thousands_of_charges_are_added_one_by_one():
    budget, spent = Budget(8, MILLIONTH), Spent()
    for turn in range(3000):
        cost = pure("0.01") if turn % 2 else run("0.005")
        if not admits(budget, spent, [cost]):
            break
        spent = add_costs(spent, [cost])
    assert turn == 2999


def test_what_a_huge_budget_has_left_is_found():
    limits = find_limits(Fraction(10**9), MILLIONTH)
    guess = guess_pure(limits, Trail((pure(1),), None), most=4e9)
    assert 2**29 < guess < 4e9


def test_a_trail_that_was_kept_goes_on_as_if_it_had_not_been():
    costs = [pure("0.1"), run("0.2"), pure("0.01", 30), Cost(kind="laplace", scale=Fraction(40))]
    budget = Budget(2, MILLIONTH)
    limits = find_limits(budget.epsilon, budget.conversion_delta)
    whole = charge_all(costs).trail
    again = Trail.restore(json.loads(json.dumps(whole.keep(limits))))
    for cost in costs:
        whole, again = Trail((cost,), whole), Trail((cost,), again)
        assert again.gaussian_left(limits.gaussian) == whole.gaussian_left(limits.gaussian)
        assert again.orders() == whole.orders()
        assert again.keep(limits) == whole.keep(limits)
    with pytest.raises(LedgerError, match="another limit"):
        again.gaussian_left(limits.gaussian - 1)
