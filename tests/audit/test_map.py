"""Tries to break map: adversarial neighbours, with everything recorded that meets noise.

The scores and the rate of the choice, and the vectors and scales of the noise, must differ between
neighbours by no more than is declared, level by level. Negative controls show that a wrong bound, wrong
noise and sums that overlap are noticed. What is drawn is audited in `test_audit_curated.py`.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import converse
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import CappedMarginal, Queries
from sfumato.recipes import Map
from sfumato.recipes import map as map_module
from sfumato.statements.engine import StatementEngine

MAX_RECORDS = 6
EPSILON = Fraction(1)
RECIPE = Map(table="t", by=("c", "m", "d"))
CROWD = [(f"crowd{i % 9}", i % 5, 1 + i % 3, "xy"[i % 2]) for i in range(40)]
INDIVIDUALS = {
    "one record": [(1, 1, "x")],
    "full, in one cell": [(1, 1, "x")] * MAX_RECORDS,
    "full, over cells": [(i % 5, 1 + i % 3, "xy"[i % 2]) for i in range(MAX_RECORDS)],
    "far over the cap, in one cell": [(2, 2, "y")] * 200,
    "far over the cap, over cells": [(i % 5, 1 + i % 3, "xy"[i % 2]) for i in range(200)],
    "missing": [(None, 1, None), (None, None, "x"), (1, 2, None)],
    "never seen": [(99, 7, "zebra"), (-7, 0, ""), (3, 1, "x")] * 4,
}
UNITS = [("add-remove", "truncate"), ("add-remove", "weight"), ("replace", "truncate"), ("replace", "weight")]
HEAVY = [("somebody", 2, 2, "y")] * 200


def describe(neighbours="add-remove", bounding="truncate"):
    spec = {
        "source": "t.parquet",
        "unit": "p",
        "max_records": MAX_RECORDS,
        "neighbours": neighbours,
        "bounding": bounding,
        "columns": {
            "c": {"range": [0, 4]},
            "m": {"range": [1, 3]},
            "d": {"values": ["x", "y"], "outside": "other"},
        },
    }
    return parse_table("t", spec)


@dataclass
class Seen:
    """What was about to be chosen and noised."""

    scores: list[int] = field(default_factory=list)
    rate: Fraction = Fraction(0)
    noised: list[tuple[np.ndarray, Fraction]] = field(default_factory=list)


def record(folder, table, records, monkeypatch, *, index=2):
    """What a conversation hands to the noise, when the choice comes out as `index`."""
    seen = Seen()

    def choose(scores, *, rate):
        seen.scores, seen.rate = scores[0].tolist(), rate
        return np.array([index])

    def noise(values, *, kind, scale):
        assert kind == "laplace"
        seen.noised.append((values.copy(), scale))
        return values.copy()

    names = {"p": pa.string(), "c": pa.int64(), "m": pa.int64(), "d": pa.string()}
    columns = zip(*records, strict=True)
    pq.write_table(
        pa.table(
            {name: pa.array(list(each), names[name]) for name, each in zip(names, columns, strict=True)}
        ),
        folder / "t.parquet",
    )
    plan = RECIPE.plan(table, epsilons=(EPSILON,), delta=Fraction(0))
    with monkeypatch.context() as patch, converse(plan, StatementEngine(folder)) as conversation:
        patch.setattr("sfumato.core.noise.exponential_choice", choose)
        patch.setattr("sfumato.core.noise.add_noise", noise)
        conversation.run()
    return seen


def losses(one, two):
    """The part of epsilon that choice, total and each level cost between two recorded neighbours."""
    assert one.rate == two.rate
    assert [scale for _, scale in one.noised] == [scale for _, scale in two.noised]
    parts = [2 * one.rate * max(abs(a - b) for a, b in zip(one.scores, two.scores, strict=True))]
    for (first, scale), (second, _) in zip(one.noised, two.noised, strict=True):
        parts.append(Fraction(int(np.abs(first - second).sum())) / scale)
    return parts


def allow(table):
    split = RECIPE._split(table, EPSILON)
    levels = (split[level] * EPSILON * (1 - RECIPE.share) for level in map_module._MEASURED)
    return [EPSILON * RECIPE.share / 2, EPSILON * RECIPE.share / 2, *levels]


@pytest.mark.parametrize(("neighbours", "bounding"), UNITS)
@pytest.mark.parametrize("name", INDIVIDUALS)
def test_no_individual_costs_more_than_each_part_is_charged(
    tmp_path, monkeypatch, name, neighbours, bounding
):
    table = describe(neighbours, bounding)
    person = [("somebody", *each) for each in INDIVIDUALS[name]]
    other = [("somebody", 0, 1, "x")] * 50 if neighbours == "replace" else []
    for index in (0, 3) if name.startswith("far") else (3,):
        one = record(tmp_path, table, CROWD + person, monkeypatch, index=index)
        two = record(tmp_path, table, other + CROWD[::-1], monkeypatch, index=index)
        parts = losses(one, two)
        assert all(part <= most for part, most in zip(parts, allow(table), strict=True)), parts
        assert sum(parts) <= EPSILON


def test_every_part_is_reached(tmp_path, monkeypatch):
    table = describe()
    one, two = (record(tmp_path, table, CROWD + each, monkeypatch) for each in (HEAVY, []))
    assert losses(one, two) == allow(table)
    assert sum(allow(table)) == EPSILON


def test_counts_that_are_held_to_the_wrong_bound_are_caught(tmp_path, monkeypatch):
    monkeypatch.setattr("sfumato.core.engine.base.cap_records", lambda table, most: table)
    table = describe()
    one, two = (record(tmp_path, table, CROWD + each, monkeypatch, index=2) for each in (HEAVY, []))
    assert losses(one, two)[2:] == [2 * part for part in allow(table)[2:]]


def test_noise_for_half_of_the_sensitivity_is_caught(tmp_path, monkeypatch):
    right = map_module.request_sensitivity
    table = describe()
    allowed = allow(table)
    monkeypatch.setattr(map_module, "request_sensitivity", lambda table, ask: right(table, ask) / 2)
    one, two = (record(tmp_path, table, CROWD + each, monkeypatch) for each in (HEAVY, []))
    assert sum(losses(one, two)) > 1.5 * sum(allowed)
    plan = RECIPE.plan(table, epsilons=(EPSILON,), delta=Fraction(0))
    assert sum(cost.epsilon for cost in plan.costs) > 1.5 * EPSILON  # and is charged for


def test_sums_that_share_a_cell_have_no_bound_of_their_own():
    ones = np.ones(3, np.int64)
    twice = Queries(cells=2, grid=2, starts=np.array([0, 2, 3]), members=np.array([0, 1, 1]), weights=ones)
    with pytest.raises(RecipeError, match="different cells"):
        CappedMarginal(("c",), 2, twice)
