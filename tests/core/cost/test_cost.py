"""The record of a cost: what it accepts, what it derives, how it is written."""

from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import Cost, CostKind, exponential_mu, exponential_rho, pure_to_mu, pure_to_rho
from sfumato.core.errors import RecipeError
from sfumato.core.exact import canonical_json

positive = st.fractions(min_value=Fraction(1, 1000), max_value=1000)


@st.composite
def costs(draw):
    kind = draw(st.sampled_from(get_args(CostKind)))
    sensitivity = draw(positive) if kind in ("laplace", "gaussian", "sampled") else Fraction(1)
    delta = Fraction(0)
    if kind == "selection":
        sensitivity = Fraction(draw(st.integers(1, 50)))
        delta = draw(st.fractions(min_value=Fraction(1, 10**12), max_value=Fraction(1, 2)))
    return Cost(
        kind=kind,
        scale=draw(positive),
        sensitivity=sensitivity,
        neighbours="add-remove" if kind == "sampled" else draw(st.sampled_from(["add-remove", "replace"])),
        unit=draw(st.sampled_from(["row", "resident", "Häuser"])),
        count=draw(st.integers(1, 100)),
        delta=delta,
        sampling=Fraction(1, 3) if kind == "sampled" else Fraction(1),
    )


@given(costs())
def test_records_read_back_exactly(cost):
    record = cost.to_record()
    assert Cost.from_record(record) == cost
    assert canonical_json(record)


def test_each_kind_has_its_own_constants():
    pure = Cost(kind="pure", scale=Fraction(1, 2), count=4)
    assert (pure.epsilon, pure.rho) == (2, 4 * pure_to_rho(Fraction(1, 2)))
    assert Cost(kind="permute-and-flip", scale=Fraction(2)).rho == pure_to_rho(Fraction(2))
    assert Cost(kind="exponential", scale=Fraction(2)).rho == exponential_rho(Fraction(2))
    assert Cost(kind="exponential", scale=Fraction(2)).mu >= exponential_mu(Fraction(2))
    assert Cost(kind="exponential", scale=Fraction(2)).mu < Cost(kind="pure", scale=Fraction(2)).mu
    assert Cost(kind="permute-and-flip", scale=Fraction(2)).mu >= pure_to_mu(Fraction(2))
    gaussian = Cost(kind="gaussian", scale=Fraction(10), sensitivity=Fraction(3), count=2)
    assert gaussian.epsilon is None
    assert gaussian.rho == Fraction(9, 100)
    assert gaussian.mu_squared >= Fraction(18, 96)
    assert gaussian.mu**2 >= gaussian.mu_squared
    laplace = Cost(kind="laplace", scale=Fraction(3), sensitivity=Fraction(2))
    assert (laplace.epsilon, laplace.norm) == (Fraction(2, 3), "L1")
    assert laplace.mu**2 >= laplace.mu_squared > 0


def test_a_filter_costs_its_limit():
    filtered = Cost(kind="filter", scale=Fraction(3, 4))
    assert (filtered.epsilon, filtered.norm, filtered.failure) == (None, "none", 0)
    assert (filtered.mu_squared, filtered.mu, filtered.rho) == (
        Fraction(9, 16),
        Fraction(3, 4),
        Fraction(9, 32),
    )
    assert Cost(kind="filter", scale=Fraction(3, 4), count=4).mu == Fraction(3, 2)
    for change in ({"sensitivity": 2}, {"norm": "L2"}, {"delta": Fraction(1, 10**9)}, {"scale": 0}):
        with pytest.raises(RecipeError):
            Cost(**{"kind": "filter", "scale": Fraction(1), **change})


@given(costs())
def test_no_step_of_a_filter_has_a_higher_rate_than_its_mu_says(cost):
    # A limit on the sum of mu squared bounds the rates, too: mu-GDP implies mu^2/2-zCDP.
    if cost.kind in ("gaussian", "sampled", "filter") and cost.mu_squared is not None:
        assert cost.rho <= cost.mu_squared / 2 + Fraction(1, 10**18)


def test_narrow_gaussian_noise_has_no_certain_mu():
    narrow = Cost(kind="gaussian", scale=Fraction(2))
    assert narrow.mu is None
    assert narrow.rho == Fraction(1, 8)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "cauchy"},
        {"scale": 0},
        {"scale": -1},
        {"scale": float("nan")},
        {"scale": Fraction(1, 10**31)},
        {"scale": Fraction(10**31)},
        {"scale": Fraction(2**1100 + 1, 2**1100)},
        {"sensitivity": 0},
        {"sensitivity": -3},
        {"norm": "L2"},
        {"neighbours": "nearby"},
        {"unit": ""},
        {"count": 0},
        {"count": True},
        {"count": 1.5},
        {"count": 10**10},
        {"kind": "pure", "sensitivity": 2},
        {"kind": "filter", "sensitivity": 2},
    ],
)
def test_what_is_not_a_cost_is_refused(change):
    good = {"kind": "laplace", "scale": Fraction(1), "sensitivity": Fraction(1)}
    Cost(**good)
    with pytest.raises(RecipeError):
        Cost(**{**good, **change})


def test_unknown_or_respelled_records_are_refused():
    record = Cost(kind="pure", scale=Fraction(1, 2)).to_record()
    for change in ({"extra": 1}, {"scale": "0.50"}, {"kind": "new"}, {"count": "1"}, {"delta": "0.0"}):
        with pytest.raises(RecipeError):
            Cost.from_record({**record, **change})
    del record["unit"]
    with pytest.raises(RecipeError):
        Cost.from_record(record)


def test_a_choice_never_costs_more_in_zcdp_than_its_gaussian_privacy_proves():
    for epsilon in (Fraction(1, 10), Fraction(9), Fraction(10), Fraction(40), Fraction(1000)):
        cost = Cost(kind="exponential", scale=epsilon)
        assert cost.rho <= epsilon**2 / 8 + Fraction(1, 10**12)
        assert cost.rho <= cost.mu_squared / 2 + Fraction(1, 10**12)
    assert Cost(kind="exponential", scale=Fraction(1)).rho >= Fraction(1, 8)
