"""What is left by kind: counted, described, and named in refusals."""

import re
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger, Spent, add_costs, admits, discrete_gaussian_sigma
from sfumato.core.cost.budget import MANY, count_more, describe_costs, largest_like, read_epsilon
from sfumato.core.errors import BudgetExceeded

TENTH = Cost(kind="pure", scale=Fraction(1, 10))


def gaussian(epsilon, delta="1e-6"):
    sigma = discrete_gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1000)
    return Cost(kind="gaussian", scale=Fraction(sigma), sensitivity=Fraction(1000))


def charge(ledger, *costs):
    return ledger.charge(description={}, plan_digest="p", table="t", table_version="v", costs=costs)


def test_as_many_more_fit_as_are_counted():
    budget = Budget(8, "1e-5")
    for cost in (gaussian(1), TENTH, Cost(kind="laplace", scale=Fraction(50), count=3)):
        spent = add_costs(Spent(), [cost])
        more = count_more(budget, spent, [cost])
        assert more > 10
        for _ in range(more):
            assert admits(budget, spent, [cost])
            spent = add_costs(spent, [cost])
        assert not admits(budget, spent, [cost])
        assert count_more(budget, spent, [cost]) == 0


def test_nobody_counts_to_the_end_of_the_smallest_charges():
    assert count_more(Budget(1), Spent(), [Cost(kind="pure", scale=Fraction(1, 10**12))]) == MANY


def test_the_largest_of_a_kind_fits_and_little_more_does_not():
    budget, cost = Budget(2, "1e-6"), gaussian(3)
    spent = add_costs(Spent(), [gaussian(1)])
    (found,) = largest_like(budget, spent, [cost])
    assert admits(budget, spent, [found])
    assert found.kind == "gaussian"
    wider = Cost(kind="gaussian", scale=found.scale * Fraction(99, 100), sensitivity=found.sensitivity)
    assert not admits(budget, spent, [wider])
    assert largest_like(Budget(1), Spent(), [cost]) is None


def test_charges_are_described_by_their_epsilon():
    assert describe_costs([TENTH, TENTH], Fraction(0)) == "epsilon 0.2"
    assert describe_costs([gaussian(1)], Fraction("1e-6")) in (
        "epsilon 1 at delta 0.000001",
        "epsilon 0.999 at delta 0.000001",
    )
    assert describe_costs([gaussian(1)], Fraction(0)).startswith("rho ")
    assert read_epsilon([gaussian(1)], Fraction(0)) is None


LISTS = {
    "pure ones": [
        Cost(kind="pure", scale=Fraction(1, 20), count=50),
        Cost(kind="pure", scale=Fraction(1, 50), count=128),
    ],
    "a mixture": [
        Cost(kind="pure", scale=Fraction(1, 2)),
        Cost(kind="pure", scale=Fraction(1, 10), count=8),
        Cost(kind="filter", scale=Fraction(1, 20)),
    ],
}


@pytest.mark.parametrize("name", LISTS)
def test_a_refusal_asks_for_no_more_than_an_empty_ledger_would_admit(tmp_path, name):
    costs, budget = LISTS[name], Budget(2, "1e-6")
    assert read_epsilon(costs, budget.delta) > 2.6
    assert admits(budget, Spent(), costs)
    ledger = Ledger(tmp_path / "ledger.db", budget)
    charge(ledger, gaussian(1))
    with pytest.raises(BudgetExceeded) as it:
        charge(ledger, *costs)
    asked = re.search(r"asks for epsilon ([0-9.]+) at delta 0.000001;", str(it.value))[1]
    assert admits(Budget(asked, "1e-6"), Spent(), costs)
    assert not admits(Budget(Fraction(asked) * Fraction(98, 100), "1e-6"), Spent(), costs)
    fitting = re.search(r"of this kind epsilon ([0-9.]+) at", str(it.value))[1]
    assert Fraction(fitting) < Fraction(asked) < 2


def test_a_report_says_what_is_left_by_kind(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", Budget(8, "1e-5"))
    assert ledger.report().more_like_last is None
    assert ledger.report().describe_left() == "epsilon 8 of 8 left"
    charge(ledger, gaussian(1))
    report = ledger.report()
    assert report.more_like_last >= 36
    assert report.left > 5  # the older rules knew of 1.36 only
    words = report.describe_left()
    assert words.startswith(
        f"epsilon {report.left} of 8 left as pure epsilon, or {report.more_like_last} more like"
    )
    assert "(epsilon 0.8" in words
    charge(ledger, Cost(kind="pure", scale=Fraction(1, 2)))
    assert "or " in ledger.report().describe_left()
    charge(ledger, Cost(kind="pure", scale=ledger.report().left))
    assert "none like the last one" in ledger.report().describe_left()


def test_a_refusal_names_the_largest_of_its_kind(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", Budget(2, "1e-6"))
    charge(ledger, gaussian(1))
    with pytest.raises(
        BudgetExceeded,
        match=r"asks for epsilon 2\.99.* at delta 0\.000001; .*of this kind epsilon (1\.[4-7]\d*) at",
    ):
        charge(ledger, gaussian(3))
    ok = gaussian("1.4")
    charge(ledger, ok)
    with pytest.raises(BudgetExceeded, match="of this kind epsilon 0"):
        charge(ledger, Cost(kind="laplace", scale=Fraction(1, 3)))
    pure = Ledger(tmp_path / "pure.db", Budget(2))
    with pytest.raises(BudgetExceeded, match="without delta in the budget"):
        charge(pure, gaussian(1))
    with pytest.raises(
        BudgetExceeded, match=r"asks for epsilon 3; epsilon 2 of epsilon 2 is left in ledger 'pure.db'\. N"
    ):
        charge(pure, Cost(kind="laplace", scale=Fraction(1, 3)))
