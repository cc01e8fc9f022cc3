"""Tries to break the bound of a tree of counts: adversarial neighbours, noise on, and planted faults."""

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
from sfumato.core.questions.measurement import ask_cost, request_sensitivity
from sfumato.recipes import Quantiles
from sfumato.recipes import quantiles as module
from sfumato.recipes.base import follow_recipe
from sfumato.statements.engine import StatementEngine

DELTA = Fraction(1, 10**6)
CROWD = [(f"c{place}", place % 64, "xy"[place % 2]) for place in range(90)]
INDIVIDUALS = {
    "all in one cell": [(63, "y")] * 50,
    "spread": [(0, "x"), (32, "y"), (63, "x")] * 9,
    "beyond": [(10**9, "y"), (-5, "x"), (1, "zebra")],
    "missing": [(None, "x"), (5, None)],
    "nothing": [],
}
RECIPE = Quantiles(table="t", column="a", by="g")


def describe(neighbours="add-remove", bounding="truncate"):
    columns = {"a": {"range": [0, 63], "outside": "clamp"}, "g": {"values": ["x", "y"]}}
    facts = {"source": "t.parquet", "unit": "p", "max_records": 3}
    return parse_table("t", {**facts, "neighbours": neighbours, "bounding": bounding, "columns": columns})


def count(folder, records, table, requests):
    arrays = [
        pa.array(each, kind)
        for each, kind in zip(zip(*records, strict=True), (pa.string(), pa.int64(), pa.string()), strict=True)
    ]
    pq.write_table(pa.table(arrays, ["p", "a", "g"]), folder / "t.parquet")
    counts = StatementEngine(folder).count(
        table, tuple(each.counted for each in requests), progress=lambda _: None
    )
    return [each.true_values.astype(np.int64) for each in counts]


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
        assert 0.6 * most < max(gaps) <= most
    total = sum(cost.epsilon for cost in plan.costs) if noise == "laplace" else None
    assert total in (None, 1)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_noise_of_all_levels_proves_no_more_than_is_charged(tmp_path, neighbours):
    """The best distinguisher of two neighbours sees all levels; its epsilon is that of the charge or less."""
    plan = plan_for(neighbours, noise="laplace")
    mine = count(tmp_path, CROWD + [("eve", 63, "y")] * 3, plan.table, plan.requests)
    other = [("eve", 0, "x")] * 3 if neighbours == "replace" else []
    theirs = count(tmp_path, CROWD + other, plan.table, plan.requests)

    def loss(exact):
        """The logarithm of the ratio of likelihoods of one noisy draw of all levels around `exact`."""
        total = 0.0
        for request, values, one, two in zip(plan.requests, exact, mine, theirs, strict=True):
            noisy = add_noise(values, kind="laplace", scale=request.scale)
            total += float((np.abs(noisy - two) - np.abs(noisy - one)).sum() / request.scale)
        return total

    losses = [loss(mine) for _ in range(400)]
    assert max(losses) <= 1 + 1e-9
    assert max(losses) > 0.9, "and the charge is not more than is needed"


def test_an_interval_counted_twice_is_refused(monkeypatch):
    """A level whose intervals overlap would move by more than is declared: no request can be made of it."""
    plain = module._sum_intervals

    def overlapping(table, columns, size, width):
        queries = plain(table, columns, size, max(width, 2))
        members = np.concatenate((queries.members, queries.members[:2]))
        starts = np.append(queries.starts, members.size)
        return replace(queries, starts=starts, members=members, weights=np.ones(members.size, np.int64))

    monkeypatch.setattr(module, "_sum_intervals", overlapping)
    with pytest.raises(RecipeError, match=r"norm above 1|bounded in L2"):
        plan_for("add-remove", noise="laplace")


def test_a_level_that_is_not_paid_for_is_refused():
    plan = plan_for("add-remove", noise="gaussian")

    class Cheap:
        kind = "quantiles"

        def run(self, plan, *, progress):
            yield (*plan.requests, replace(plan.requests[0], name="one more"))

    def answer(asks):
        raise AssertionError("asked")

    with pytest.raises(RecipeError, match="more than its plan charges"):
        follow_recipe(replace(plan, recipe=Cheap()), answer=answer, progress=lambda _: None)


def test_the_charge_is_that_of_every_level():
    for noise in ("laplace", "gaussian"):
        plan = plan_for("add-remove", noise=noise)
        for request, cost in zip(plan.requests, plan.costs, strict=True):
            assert cost == ask_cost(plan.table, request)
            assert cost.sensitivity == 3
        if noise == "gaussian":
            mu = math.sqrt(sum(cost.mu_squared for cost in plan.costs))
            assert mu_to_delta(mu, 1) <= float(DELTA) * (1 + 1e-9)
