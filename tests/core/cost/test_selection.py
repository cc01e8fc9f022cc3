"""Thresholds of partition selection: least, certain, and as private as their cost says."""

import math
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import Cost, discrete_laplace_rho, selection_threshold
from sfumato.core.errors import RecipeError


def tail(scale, least):
    """P(X >= least) for discrete Laplace noise, by adding up its probabilities to 60 digits."""
    with localcontext(prec=80):
        q = (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()
        term = q ** abs(least) * (1 - q) / (1 + q)
        total = Decimal(0)
        x = least
        while term > Decimal(10) ** -75:
            total += term
            x += 1
            term = q ** abs(x) * (1 - q) / (1 + q)
        return Fraction(total)


def failure(threshold, scale, sensitivity):
    """The closed form of sensitivity * P(1 + X >= threshold), rounded up to 30 digits."""
    step = 1 / Fraction(scale)
    with localcontext(prec=160, Emin=-(10**9)):
        q, power = (
            (-Decimal(each.numerator) / Decimal(each.denominator)).exp()
            for each in (step, (threshold - 1) * step)
        )
        value = sensitivity * power / (1 + q) * (1 + Decimal("1e-40"))
    return Fraction(Context(prec=30, rounding=ROUND_CEILING).plus(value))


@pytest.mark.parametrize("scale", ["1/100", "1/3", "1", "2.5", "20"])
@pytest.mark.parametrize("sensitivity", [1, 3, 40])
@pytest.mark.parametrize("delta", ["1e-9", "1e-5", "0.01", "0.3"])
def test_the_threshold_is_the_least_by_plain_sums(scale, sensitivity, delta):
    t = selection_threshold(scale=scale, sensitivity=sensitivity, delta=delta)
    assert t >= 1
    assert sensitivity * tail(Fraction(scale), t - 1) <= Fraction(delta)
    if t > 1:
        assert sensitivity * tail(Fraction(scale), t - 2) > Fraction(delta)


@settings(max_examples=100)
@given(
    st.fractions(min_value=Fraction(1, 50), max_value=10**6),
    st.integers(1, 1000),
    st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(99, 100)),
)
def test_the_threshold_is_the_least_by_the_closed_form(scale, sensitivity, delta):
    t = selection_threshold(scale=scale, sensitivity=sensitivity, delta=delta)
    assert failure(t, scale, sensitivity) <= delta
    assert t == 1 or failure(t - 1, scale, sensitivity) > delta


@pytest.mark.parametrize("scale", ["1/3", "1", "7"])
@pytest.mark.parametrize("threshold", [1, 2, 9, 30])
def test_the_closed_form_is_the_sum_rounded_up(scale, threshold):
    exact = 5 * tail(Fraction(scale), threshold - 1)
    stated = failure(threshold, scale, 5)
    # The plain sum leaves out less than 1e-70 of probability.
    assert exact <= stated <= exact * (1 + Fraction(1, 10**28)) + Fraction(1, 10**70)


def test_a_delta_just_met_and_just_missed():
    for t in (2, 5, 40):
        met = failure(t, 3, 2)
        hair = Fraction(1, 10**25)
        assert selection_threshold(scale=3, sensitivity=2, delta=met) == t
        assert selection_threshold(scale=3, sensitivity=2, delta=met * (1 + hair)) == t
        assert selection_threshold(scale=3, sensitivity=2, delta=met * (1 - hair)) == t + 1


def test_a_bound_beside_a_whole_number_asks_for_more_digits():
    # With 60 more digits than the first margin can tell apart, from either side.
    with localcontext(prec=400):
        q = (-Decimal(1) / 3).exp()
        exact = Fraction(q**9 / (1 + q))
    hair = Fraction(1, 10**100)
    assert selection_threshold(scale=3, sensitivity=1, delta=exact + hair) == 10
    assert selection_threshold(scale=3, sensitivity=1, delta=exact - hair) == 11


def test_extremes():
    assert selection_threshold(scale="1e-30", sensitivity=1, delta="1e-300") == 2
    assert selection_threshold(scale=10**30, sensitivity=1, delta="0.6") == 1
    assert selection_threshold(scale=10**30, sensitivity=10**30, delta="1e-300") > 10**32


def pass_probability(count, scale, t):
    """P(count + X >= t) in floats, from the two closed forms of the tail."""
    q, k = math.exp(-1 / scale), t - count
    return q**k / (1 + q) if k >= 0 else 1 - q ** (1 - k) / (1 + q)


@pytest.mark.parametrize("scale", [0.5, 2.0, 6.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-2, 0.2])
@pytest.mark.parametrize(("counts", "own"), [((1, 2, 4), (0, 1)), ((1, 1, 3), (0, 1)), ((2, 3, 5), (0, 2))])
def test_which_groups_pass_is_private_by_complete_enumeration(scale, delta, counts, own):
    """All 2^3 outcomes, with and without an individual who is in the groups `own`."""
    t = selection_threshold(scale=str(scale), sensitivity=2, delta=str(delta))
    without = [count - (k in own) for k, count in enumerate(counts)]
    epsilon = 2 / scale

    def law(table):
        chances = [pass_probability(count, scale, t) if count else 0.0 for count in table]
        return {
            passed: math.prod(c if yes else 1 - c for c, yes in zip(chances, passed, strict=True))
            for passed in product([False, True], repeat=len(table))
        }

    here, there = law(counts), law(without)
    for one, other in ((here, there), (there, here)):
        excess = sum(max(0.0, one[each] - math.exp(epsilon) * other[each]) for each in one)
        assert excess <= delta * (1 + 1e-9)


@pytest.mark.parametrize("scale", [1.0, 4.0, 12.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-2, 0.2])
@pytest.mark.parametrize("alone", [1, 2])
def test_an_exchange_may_fail_on_both_tables_and_delta_counts_once(scale, delta, alone):
    """Each of Ana and Ben, who takes her place, is in two groups, of which some are of theirs alone."""
    t = selection_threshold(scale=str(scale), sensitivity=2, delta=str(delta))

    def law(table):
        chances = [pass_probability(count, scale, t) if count else 0.0 for count in table]
        return {
            passed: math.prod(c if yes else 1 - c for c, yes in zip(chances, passed, strict=True))
            for passed in product([False, True], repeat=len(chances))
        }

    ana, ben = {
        1: (law((1, 0, 4, 2)), law((0, 1, 3, 3))),
        2: (law((1, 1, 0, 0)), law((0, 0, 1, 1))),
    }[alone]
    for one, other in ((ana, ben), (ben, ana)):
        excess = sum(max(0.0, one[each] - math.exp(4 / scale) * other[each]) for each in one)
        assert excess <= delta * (1 + 1e-9)


def test_control_a_threshold_lower_by_one_step_of_delta_fails():
    t = selection_threshold(scale=2, sensitivity=1, delta="1e-6")
    assert pass_probability(1, 2, t) <= 1e-6 < pass_probability(1, 2, t - 1)


def test_the_cost_of_a_selection():
    cost = Cost(kind="selection", scale=Fraction(10), sensitivity=Fraction(3), delta="1e-9", count=2)
    assert (cost.norm, cost.epsilon, cost.failure) == ("L1", Fraction(6, 10), Fraction(2, 10**9))
    assert cost.rho == 2 * discrete_laplace_rho(Fraction(3), Fraction(10))
    laplace = Cost(kind="laplace", scale=Fraction(10), sensitivity=Fraction(3), count=2)
    assert (cost.rho, cost.mu, laplace.failure) == (laplace.rho, laplace.mu, 0)
    assert Cost.from_record(cost.to_record()) == cost
    assert cost.to_record()["delta"] == "0.000000001"


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 0},
        {"delta": 1},
        {"delta": -1},
        {"delta": "small"},
        {"delta": Fraction(1, 2**1100)},
        {"sensitivity": Fraction(3, 2)},
        {"norm": "L2"},
        {"kind": "laplace"},
        {"kind": "gaussian"},
        {"kind": "pure", "sensitivity": 1},
    ],
)
def test_what_is_not_a_selection_is_refused(change):
    good = {"kind": "selection", "scale": 1, "sensitivity": 2, "delta": "1e-6"}
    Cost(**good)
    with pytest.raises(RecipeError):
        Cost(**{**good, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 0},
        {"delta": 1},
        {"delta": "x"},
        {"scale": 0},
        {"scale": "1e31"},
        {"sensitivity": 0},
        {"sensitivity": "1.5"},
        {"sensitivity": 10**31},
    ],
)
def test_what_has_no_threshold_is_refused(change):
    with pytest.raises(RecipeError):
        selection_threshold(**{"scale": 1, "sensitivity": 1, "delta": "1e-6", **change})
