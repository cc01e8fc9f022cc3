"""Tries to break the bound of moments: adversarial neighbours, noise off and on, and planted faults.

With the noise off, exact answers of neighbouring tables must differ by no more than the declared sensitivity.
With the noise on, the best event must not prove a larger epsilon than is charged. A clip that is skipped, a
norm that forgets a product and a cost for half the noise are noticed.
"""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import answer_zeros
from sfumato.accounting import mu_to_delta
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.measurement import ask_cost, request_sensitivity
from sfumato.inference.models import design as model_design
from sfumato.recipes import Linear, Logistic
from sfumato.recipes import linear as linear_recipe
from sfumato.recipes.base import follow_recipe
from sfumato.statements.engine import StatementEngine

DELTA = Fraction(1, 10**6)
CROWD = [(f"c{place}", place % 11, "xy"[place % 2], place % 7) for place in range(60)]
INDIVIDUALS = {
    "one record at the ends": [(10, "y", 6)],
    "more records than count": [(10, "y", 6)] * 50,
    "opposite ends": [(0, "x", 6), (10, "y", 0)] * 9,
    "beyond all bounds": [(10**9, "y", -(10**9)), (10, "zebra", 6)],
    "missing": [(None, "x", 3), (5, None, 3), (5, "x", None)],
    "nothing": [],
}


def describe(neighbours="add-remove", bounding="truncate"):
    columns = {
        "a": {"bounds": [0, 10]},
        "b": {"values": ["x", "y"], "outside": "other"},
        "t": {"range": [0, 6], "outside": "clamp"},
    }
    facts = {"source": "t.parquet", "unit": "p", "max_records": 3}
    return parse_table("t", {**facts, "neighbours": neighbours, "bounding": bounding, "columns": columns})


def count(folder, records, table, question):
    columns = list(zip(*records, strict=True))
    kinds = (pa.string(), pa.float64(), pa.string(), pa.int64())
    arrays = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
    pq.write_table(pa.table(arrays, ["p", "a", "b", "t"]), folder / "t.parquet")
    (counts,) = StatementEngine(folder).count(table, (question,), progress=lambda _: None)
    return counts.true_values.astype(object)


def first_request(recipe, table):
    plan = recipe.plan(table, epsilons=(Fraction(1),), delta=DELTA)
    run = recipe.run(plan, progress=lambda _: None)
    asks = next(run)
    run.close()
    return plan, asks


RECIPES = [Linear(table="t", target="t"), Logistic(table="t", target="b", positive="y")]


@pytest.mark.parametrize("recipe", RECIPES, ids=["linear", "logistic"])
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_individual_moves_the_sums_further_than_declared(tmp_path, recipe, neighbours, bounding):
    plan, asks = first_request(recipe, describe(neighbours, bounding))
    for ask in asks:
        most = request_sensitivity(plan.table, ask)
        rows = {
            name: count(tmp_path, CROWD + [("eve", *row) for row in own], plan.table, ask.counted)
            for name, own in INDIVIDUALS.items()
        }
        others = rows.values() if neighbours == "replace" else [rows["nothing"]]
        gaps = [
            math.sqrt(sum(each**2 for each in mine - theirs)) for mine in rows.values() for theirs in others
        ]
        assert max(gaps) <= float(most)
        assert max(gaps) > 0.3 * float(most), (
            "the bound should be nearly reached, or the test tries too little"
        )


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_best_event_proves_no_more_than_is_charged(tmp_path, neighbours):
    """Along the difference of two neighbours the answers are Gaussian, of at most the mu that is charged."""
    plan, (ask,) = first_request(RECIPES[0], describe(neighbours))
    mine = count(
        tmp_path, CROWD + [("eve", *row) for row in INDIVIDUALS["opposite ends"]], plan.table, ask.counted
    )
    other = INDIVIDUALS["more records than count"] if neighbours == "replace" else []
    theirs = count(tmp_path, CROWD + [("eve", *row) for row in other], plan.table, ask.counted)
    gap = (mine - theirs).astype(float)
    along = gap / np.linalg.norm(gap)
    runs = 3000
    drawn = np.array(
        [
            add_noise(np.zeros(gap.size, np.int64), kind="gaussian", scale=ask.scale) @ along
            for _ in range(runs)
        ]
    )
    # The standard deviation is known up to 5 / sqrt(2 runs) but for one run in a million.
    measured = np.linalg.norm(gap) / drawn.std()
    charged = math.sqrt(ask_cost(plan.table, ask).mu_squared)
    assert measured <= charged * (1 + 5 / math.sqrt(2 * runs))
    assert mu_to_delta(charged, 1) <= float(DELTA)


def test_a_clip_that_is_skipped_is_noticed(monkeypatch):
    """Numbers beyond [-1, 1] would move the sums further than declared: no question can be made of them."""
    plain = model_design.scale_numbers

    def unclipped(values, term, *, extras, grid):
        return plain(values, term, extras=extras, grid=grid) * 2

    monkeypatch.setattr(model_design, "scale_numbers", unclipped)
    with pytest.raises(RecipeError, match="moments must lie from"):
        Linear(table="t", target="t").plan(describe(), epsilons=(Fraction(1),), delta=DELTA)


def test_a_norm_that_forgets_products_is_noticed(tmp_path, monkeypatch):
    plan, (ask,) = first_request(RECIPES[0], describe())
    honest = request_sensitivity(plan.table, ask)
    question = ask.counted
    squares_only = sum(
        int((each.astype(object) ** 4).sum(axis=1).max()) if each.size else 0 for each in question.scores
    )
    object.__setattr__(question, "most_of_record", squares_only)
    lowered = request_sensitivity(plan.table, ask)
    assert lowered < honest
    own = [("eve", *row) for row in INDIVIDUALS["more records than count"]]
    gap = count(tmp_path, CROWD + own, plan.table, question) - count(tmp_path, CROWD, plan.table, question)
    moved = math.sqrt(sum(each**2 for each in gap))
    assert float(lowered) < moved <= float(honest)


def test_a_cost_for_less_noise_is_refused(monkeypatch):
    """A recipe that adds less noise than it was charged for is stopped before it is answered."""
    plain = linear_recipe.calibrate

    def cheaper(table, name, counted, mu_squared):
        return plain(table, name, counted, mu_squared * 2)

    monkeypatch.setattr(linear_recipe, "calibrate", cheaper)
    recipe = RECIPES[0]
    plan = recipe.plan(describe(), epsilons=(Fraction(1),), delta=DELTA)

    with pytest.raises(RecipeError, match="more than its plan charges"):
        follow_recipe(plan, answer=partial(answer_zeros, plan), progress=lambda _: None)
