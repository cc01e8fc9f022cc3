"""Choices of bounds, and requests with a bound or a threshold: what they accept, cost and expect."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.law import MAX_SCALE
from sfumato.core.questions.choices import Candidate
from sfumato.core.questions.counts import (
    CappedMarginal,
    ClippedMarginal,
    Marginal,
    OccupiedCells,
    find_sensitivity,
)
from sfumato.core.questions.measurement import (
    Request,
    ask_cost,
    request_grid,
    request_sensitivity,
    request_size,
)
from sfumato.core.questions.question import Queries
from sfumato.recipes.capped_counts import list_caps

FIRST_CELL = Queries(cells=10, grid=1, starts=np.array([0, 1]), members=np.array([0]), weights=np.array([1]))


def describe(**facts):
    spec = {
        "source": "t.parquet",
        "unit": "p",
        "max_records": 8,
        "columns": {"c": {"range": [0, 9]}, "d": {"range": [0, 99]}},
    }
    return parse_table("t", {**spec, **facts})


def ask(**facts):
    counted = OccupiedCells(("c",)) if "threshold" in facts else Marginal(("c",))
    return Request(**{"name": "n", "counted": counted, "noise": "laplace", "scale": Fraction(4), **facts})


def capped(bound, **facts):
    return ask(counted=CappedMarginal(("c",), bound), **facts)


@given(st.integers(2, 10**9))
def test_bounds_to_choose_from_ascend_from_one_to_the_most(most):
    caps = list_caps(most)
    assert caps[0] == 1
    assert caps[-1] == most
    assert all(low < high <= max(low + 1, low * 9 // 8) for low, high in itertools.pairwise(caps))
    assert len(caps) <= 200
    if most <= 32:
        assert caps == tuple(range(1, most + 1))


@pytest.mark.parametrize(
    "facts",
    [
        {"threshold": 0},
        {"threshold": -1},
        {"threshold": 2.5},
        {"threshold": "3"},
        {"threshold": MAX_SCALE + 1},
        {"threshold": 5, "noise": "gaussian"},
        {"threshold": 5, "counted": Marginal(("c",))},
        {"threshold": 5, "counted": CappedMarginal(("c",), 2)},
        {"threshold": 5, "counted": Marginal(("c",), FIRST_CELL)},
        {"counted": OccupiedCells(("c",))},
        {"counted": ClippedMarginal(("c",), Fraction(1))},
    ],
)
def test_requests_that_mix_bounds_are_refused(facts):
    with pytest.raises(RecipeError):
        ask(**facts)


@pytest.mark.parametrize("make", [Marginal, OccupiedCells])
@pytest.mark.parametrize("columns", [(), ("c", "c")])
def test_a_marginal_needs_columns_and_none_twice(make, columns):
    with pytest.raises(RecipeError, match="at least one column and none twice"):
        make(columns)


@pytest.mark.parametrize("bound", [0, -2])
def test_a_bound_on_records_is_at_least_one(bound):
    with pytest.raises(RecipeError, match="at least 1"):
        CappedMarginal(("c",), bound)


def test_no_bound_in_l1_is_stated_where_only_l2_is_bounded():
    table = describe()
    with pytest.raises(RecipeError, match="L2 only"):
        find_sensitivity(table, ClippedMarginal(("c",), Fraction(1)), norm="L1")
    halves = Queries(cells=10, grid=2, starts=np.array([0, 1]), members=np.array([0]), weights=np.array([1]))
    with pytest.raises(RecipeError, match="L2 only"):
        find_sensitivity(table, Marginal(("c",), halves), norm="L1")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@given(bound=st.integers(1, 10**6))
def test_a_bound_never_buys_less_noise_than_its_records_need(neighbours, bounding, noise, bound):
    table = describe(neighbours=neighbours, bounding=bounding)
    whole = request_sensitivity(table, ask(noise=noise))
    held = request_sensitivity(table, capped(bound, noise=noise))
    least = min(bound, 8) * table.grid * (2 if neighbours == "replace" and noise == "laplace" else 1)
    assert least <= held <= whole
    if bound >= 8:
        assert held == whole
    assert request_grid(table, capped(bound, noise=noise)) == table.grid
    request = capped(bound, noise=noise)
    assert ask_cost(table, request).sensitivity == held


@given(scale=st.fractions(Fraction(1, 50), 10**4, max_denominator=100), threshold=st.integers(1, 1000))
def test_the_chance_of_passing_is_that_of_the_noise(scale, threshold):
    assume(threshold <= 5000 * scale)
    request = ask(scale=scale, threshold=threshold)
    q = math.exp(-float(1 / scale))
    expected = q**threshold / (1 + q)
    assert math.isclose(request.passing, expected, rel_tol=1e-9, abs_tol=1e-300)
    assert 0 <= request.passing <= 0.5
    assert request_size(describe(), request) == math.ceil(10 * request.passing)


@pytest.mark.parametrize("terms", [{"weight": 1.5}, {"weight": 0}, {"penalty": 0.5}])
def test_a_score_moves_in_whole_steps_of_its_weight(terms):
    with pytest.raises(RecipeError, match="whole number"):
        Candidate(columns=("a",), estimate=lambda: np.zeros(2, np.int64), **terms)
