"""Tries to break the bound of a hierarchy: adversarial neighbours, noise on, and planted faults."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.accounting import mu_to_delta
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.measurement import request_sensitivity
from sfumato.recipes import Hierarchy
from sfumato.recipes.base import follow_recipe
from sfumato.statements.engine import StatementEngine

DELTA = Fraction(1, 10**6)
TREE = [["a", "above"], *([place, f"n{place % 3}"] for place in range(12))]
RECIPE = Hierarchy(
    table="t", column="a", tree=TREE, by=("g",), levels=("total", "above", "above x g", "a x g")
)
CROWD = [(f"c{place}", place % 12, "xy"[place % 2]) for place in range(60)]
INDIVIDUALS = {
    "all in one cell": [(11, "y")] * 50,
    "spread": [(0, "x"), (4, "y"), (9, "x")] * 9,
    "beyond": [(10**9, "y"), (-5, "x"), (1, "zebra")],
    "missing": [(None, "x"), (5, None)],
    "nothing": [],
}


def describe(neighbours="add-remove", bounding="truncate"):
    columns = {"a": {"range": [0, 11], "outside": "clamp"}, "g": {"values": ["x", "y"]}}
    facts = {"source": "t.parquet", "unit": "p", "max_records": 3}
    return parse_table("t", {**facts, "neighbours": neighbours, "bounding": bounding, "columns": columns})


def count(folder, records, table, requests):
    kinds = (pa.string(), pa.int64(), pa.string())
    arrays = [pa.array(each, kind) for each, kind in zip(zip(*records, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(arrays, ["p", "a", "g"]), folder / "t.parquet")
    asked = tuple(each.counted for each in requests)
    return [each.true_values for each in StatementEngine(folder).count(table, asked, progress=lambda _: None)]


def plan_for(neighbours, bounding="truncate", noise="auto"):
    recipe = replace(RECIPE, noise=noise)
    return recipe.plan(describe(neighbours, bounding), epsilons=(Fraction(1),), delta=DELTA)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_individual_moves_a_level_further_than_declared(tmp_path, neighbours, bounding, noise):
    plan = plan_for(neighbours, bounding, noise)
    rows = {
        name: count(tmp_path, CROWD + [("eve", *row) for row in own], plan.table, plan.requests)
        for name, own in INDIVIDUALS.items()
    }
    others = list(rows.values()) if neighbours == "replace" else [rows["nothing"]]
    order = 1 if noise == "laplace" else 2
    for level, request in enumerate(plan.requests):
        most = float(request_sensitivity(plan.table, request))
        gaps = [
            np.linalg.norm(mine[level] - theirs[level], order) for mine in rows.values() for theirs in others
        ]
        assert 0.45 * most < max(gaps) <= most
    if noise == "laplace":
        assert sum(cost.epsilon for cost in plan.costs) == 1
    else:
        mu = math.sqrt(sum(cost.mu_squared for cost in plan.costs))
        assert mu_to_delta(mu, 1) <= float(DELTA) * (1 + 1e-9)
        assert mu_to_delta(mu * 1.01, 1) > float(DELTA), "and the charge is not more than is needed"


def test_the_noise_of_all_levels_proves_no_more_than_is_charged(tmp_path):
    """The best distinguisher of two neighbours sees all levels; its epsilon is that of the charge or less."""
    plan = plan_for("add-remove", noise="laplace")
    mine = count(tmp_path, CROWD + [("eve", 11, "y")] * 3, plan.table, plan.requests)
    theirs = count(tmp_path, CROWD, plan.table, plan.requests)

    def loss():
        """The logarithm of the ratio of likelihoods of one noisy draw of all levels."""
        total = 0.0
        for request, one, two in zip(plan.requests, mine, theirs, strict=True):
            noisy = add_noise(one, kind="laplace", scale=request.scale)
            total += float((np.abs(noisy - two) - np.abs(noisy - one)).sum() / request.scale)
        return total

    losses = [loss() for _ in range(400)]
    assert max(losses) <= 1 + 1e-9
    assert max(losses) > 0.9, "and the charge is not more than is needed"


def test_a_level_that_is_not_paid_for_and_one_that_overlaps_are_refused():
    plan = plan_for("add-remove", noise="laplace")

    class Cheap:
        kind = "hierarchy"

        def run(self, plan, *, progress):
            yield (*plan.requests, replace(plan.requests[0], name="one more"))

    def answer(asks):
        raise AssertionError("asked")

    with pytest.raises(RecipeError, match="more than its plan charges"):
        follow_recipe(replace(plan, recipe=Cheap()), answer=answer, progress=lambda _: None)
    queries = plan.requests[1].queries
    members = np.append(queries.members, queries.members[0])
    with pytest.raises(RecipeError, match=r"names a cell twice|norm above 1"):
        replace(
            queries,
            starts=np.append(queries.starts, members.size),
            members=members,
            weights=np.ones(members.size, np.int32),
        )
