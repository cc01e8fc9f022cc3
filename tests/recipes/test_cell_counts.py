"""Cell counts: the threshold, and records of recipes from before there was one."""

from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import Measurement
from sfumato.recipes.shared.counts import finish_counts

TABLE = {
    "source": "t.parquet",
    "unit": "person",
    "max_records": 3,
    "columns": {"region": {"values": ["a", "b", "c"]}, "month": {"range": [1, 12]}},
}
BY = ("region", "month")


def make_plan(*, epsilons=(Fraction(1),), delta=Fraction(0), facts=None, **keys):
    recipe = sf.recipes.CellCounts(table="t", by=BY, **keys)
    return recipe.plan(parse_table("t", {**TABLE, **(facts or {})}), epsilons=epsilons, delta=delta)


def finish(plan, *values):
    """The table that the recipe makes of noisy values of its own."""
    run = plan.recipe.run(plan, progress=lambda _: None)
    requests = next(run)
    grid = plan.table.grid
    answers = tuple(
        Measurement(request=request, noisy_values=np.asarray(each, np.int64), grid=grid)
        for request, each in zip(requests, values, strict=True)
    )
    with pytest.raises(StopIteration) as done:
        run.send(answers)
    return done.value.value.table


@pytest.mark.parametrize("threshold", [-1, "many", None, True, float("nan"), 10**7])
def test_other_thresholds_are_refused(threshold):
    with pytest.raises(sf.RecipeError, match="threshold"):
        sf.recipes.CellCounts(table="t", by=BY, threshold=threshold)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_counts_below_the_threshold_become_zero(noise):
    plan = make_plan(threshold=2, noise=noise, delta=Fraction(1, 10**6))
    limit = 2 * plan.requests[0].standard_deviation
    values = 5 * np.arange(-18, 18)
    counts = finish(plan, values)["count"].to_numpy()
    assert counts.tolist() == [int(value) if value >= limit else 0 for value in values]
    assert 0 < np.count_nonzero(counts) < 18


def test_each_epsilon_has_the_threshold_of_its_own_noise():
    plan = make_plan(threshold=3, epsilons=(Fraction(1), Fraction(10)))
    table = finish(plan, np.full(36, 3), np.full(36, 3))
    counts = table["count"].to_numpy()
    assert counts[:36].max() == 0
    assert counts[36:].min() == 3


def test_weighted_counts_are_compared_before_they_are_rounded():
    plan = make_plan(threshold=1, facts={"bounding": "weight"})
    limit = plan.requests[0].standard_deviation
    assert plan.table.grid == 2**20
    values = np.zeros(36, np.int64)
    values[:3] = [np.floor(limit), np.ceil(limit), 10 * 2**20 + 2**19]
    assert finish(plan, values)["count"].to_pylist()[:3] == [0, round(limit / 2**20), 11]


def test_without_a_threshold_only_counts_below_zero_change():
    assert finish_counts(np.array([-2, 0, 1, 5]), threshold=Fraction(0), deviation=1e9).tolist() == [
        0,
        0,
        1,
        5,
    ]


def test_values_that_are_given_stay_as_they_are():
    given = np.array([1, 2, 3])
    finish_counts(given, threshold=Fraction(1), deviation=2.5)
    assert given.tolist() == [1, 2, 3]
