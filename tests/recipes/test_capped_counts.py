"""Counts with a privately chosen bound: charge, resumption, scaling, and what is refused."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
import sfumato.core.noise
from helpers.projects import write_project
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import ask_cost
from sfumato.recipes import CappedCounts
from sfumato.recipes.capped_counts import BoundChoice

SPEC = {
    "source": "t.parquet",
    "unit": "p",
    "max_records": 12,
    "columns": {"a": {"range": [0, 3]}, "b": {"values": ["x", "y", "z"]}},
}
RECIPE = CappedCounts(table="t", by=("a", "b"))


def describe(**facts):
    return parse_table("t", {**SPEC, **facts})


def make_rows(people=900, *, heavy=40):
    """Most people have one record, some have many."""
    random = np.random.default_rng(8)
    records = np.where(np.arange(people) < heavy, 12, 1)
    person = np.repeat(np.arange(people), records)
    return pa.table(
        {
            "p": person,
            "a": random.integers(0, 4, person.size),
            "b": np.array(["x", "y", "z"])[random.integers(0, 3, person.size)],
        }
    )


@pytest.fixture
def lay(tmp_path):
    """Writes a project and its table; returns the project file."""

    def write(rows=None, *, budget=1000, **facts):
        rows = make_rows() if rows is None else rows
        return write_project(tmp_path, rows=rows, epsilon=budget, **{**SPEC, **facts})

    return write


def choose(monkeypatch, bound):
    """Has this bound chosen."""
    read = BoundChoice.read
    monkeypatch.setattr(BoundChoice, "read", lambda choice, answers: (bound, read(choice, answers)[1]))


def asks_of(table, recipe, epsilon, bound):
    return (recipe.choose_bound(table, epsilon, "").ask, *recipe.ask_counts(table, epsilon, "", bound=bound))


@given(
    epsilon=st.fractions(Fraction(1, 90), 10, max_denominator=97),
    share=st.fractions(Fraction(1, 90), Fraction(89, 90), max_denominator=97),
    most=st.integers(2, 300),
    neighbours=st.sampled_from(["add-remove", "replace"]),
    bounding=st.sampled_from(["truncate", "weight"]),
    data=st.data(),
)
def test_costs_sum_to_epsilon_for_every_bound(epsilon, share, most, neighbours, bounding, data):
    table = describe(max_records=most, neighbours=neighbours, bounding=bounding)
    bound = data.draw(st.integers(1, most))
    asks = asks_of(table, CappedCounts(table="t", by=("a",), share=share), epsilon, bound)
    costs = [ask_cost(table, ask) for ask in asks]
    assert [cost.epsilon for cost in costs] == [epsilon * share, epsilon * (1 - share)]
    factor = 2 if neighbours == "replace" else 1
    assert asks[1].scale * epsilon * (1 - share) == bound * table.grid * factor
    assert asks[0].scale * epsilon * share == factor  # each individual counts once, whatever it has


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_without_a_stated_bound_an_individual_counts_once_in_the_choice(neighbours):
    table = describe(max_records="private", neighbours=neighbours)
    people, counts = asks_of(table, CappedCounts(table="t", by=("a",)), Fraction(2), 7)
    assert [ask_cost(table, each).epsilon for each in (people, counts)] == [Fraction(1, 5), Fraction(9, 5)]
    assert people.scale == 5 * (2 if neighbours == "replace" else 1)
    plan = RECIPE.plan(table, epsilons=(Fraction(2),), delta=Fraction(0))
    assert "counts individuals by how many records they have" in RECIPE.describe(plan)["privatisation"]


@pytest.mark.parametrize(("most", "bound"), [(1, 1), (60, 32)])
def test_without_a_stated_bound_one_is_chosen_that_suits(lay, most, bound, seeded_noise):
    rows = make_rows(4000, heavy=0)
    rows = rows.take(
        np.repeat(np.arange(rows.num_rows), np.where(np.arange(rows.num_rows) % 10 < 8, most, 1))
    )
    # Of one person in all cells, so that those of one cell tell too little.
    rows = rows.set_column(1, "a", pa.array(np.arange(rows.num_rows) % 4))
    release = sf.open(lay(rows, max_records="private")).release(RECIPE, epsilon=4)
    (found,) = release.certificate["postprocessing"]["bounds"]
    assert bound <= found["records"] <= 3 * bound
    assert abs(sum(release.table["count"].to_pylist()) - rows.num_rows) < 0.1 * rows.num_rows


@pytest.mark.parametrize(("most", "epsilon"), [(10**6, "1e-4"), (200, "1e-8")])
def test_noise_beyond_all_counts_is_refused_before_spending(lay, most, epsilon):
    curator = sf.open(lay(max_records=most, bounding="weight"))
    with pytest.raises(RecipeError, match=r"2\^50"):
        curator.release(RECIPE, epsilon=epsilon)
    assert curator.budget().spent == 0


def test_a_table_of_one_record_each_is_refused_before_spending(lay):
    curator = sf.open(lay(max_records=1))
    with pytest.raises(RecipeError, match="use cell-counts"):
        curator.release(RECIPE, epsilon=1)
    assert curator.budget().spent == 0


def test_a_bound_is_chosen_that_fits_the_records(lay, seeded_noise):
    columns = {**SPEC["columns"], "a": {"range": [0, 3999]}}
    recipe = CappedCounts(table="t", by=("a",))
    release = sf.open(lay(make_rows(500, heavy=0), columns=columns)).release(recipe, epsilon=8)
    assert release.certificate["postprocessing"]["bounds"][0]["records"] <= 2
    release = sf.open(lay(make_rows(500, heavy=500))).release(RECIPE, epsilon=8)
    assert release.certificate["postprocessing"]["bounds"][0]["records"] >= 10


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_the_scaled_total_is_close_to_the_truth(lay, bounding, seeded_noise):
    # 860 + 480 records; at this epsilon the noise of the total is below 10 % by far.
    release = sf.open(lay(bounding=bounding)).release(RECIPE, epsilon=40)
    assert abs(sum(release.table["count"].to_pylist()) - 1340) < 134


def test_records_outside_the_domains_are_not_scaled_in(lay, monkeypatch):
    """Six of ten records have an `a` that its domain drops; `b`, the smaller column, keeps all of them."""
    choose(monkeypatch, 4)
    rows = make_rows(900, heavy=60)
    a = np.where(np.arange(rows.num_rows) % 10 < 6, 99, rows["a"].to_numpy())
    rows = rows.set_column(1, "a", pa.array(a))
    release = sf.open(lay(rows)).release(RECIPE, epsilon=20)
    true = int((a < 99).sum())
    assert release.certificate["postprocessing"]["bounds"][0]["records"] == 4
    assert abs(sum(release.table["count"].to_pylist()) - true) < 0.3 * true


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"by": ()}, "by"),
        ({"by": "a"}, "by"),
        ({"by": ("a", "a")}, "by"),
        ({"share": 0}, "share"),
        ({"share": 1}, "share"),
        ({"share": "-0.1"}, "share"),
        ({"threshold": -1}, "threshold"),
    ],
)
def test_recipes_that_mean_nothing_are_refused(facts, match):
    with pytest.raises(RecipeError, match=match):
        CappedCounts(**{"table": "t", "by": ("a",), **facts})


def test_columns_beyond_what_can_be_listed_are_refused(lay):
    columns = {"a": {"range": [0, 10**5]}, "b": {"range": [0, 10**5]}}
    with pytest.raises(RecipeError, match="cells"):
        CappedCounts(table="t", by=("a", "b")).plan(
            describe(columns=columns), epsilons=(Fraction(1),), delta=Fraction(0)
        )
