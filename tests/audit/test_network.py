"""Tries to break the recipe `network`: neighbours of both kinds, who is drawn, what is charged."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.cli import invoke
from sfumato.accounting import Budget, Spent, admits
from sfumato.audit.noise_off import RecordingNoise
from sfumato.core.engine.gradients import TrueRecords
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import choice, poisson_sample
from sfumato.core.questions.gradients import GRADIENT_GRID, Gradients
from sfumato.core.questions.measurement import Measurement, request_grid, request_sensitivity, request_size
from sfumato.recipes import Network
from sfumato.recipes import network as network_recipe
from sfumato.recipes.base import follow_recipe
from sfumato.statements.engine import StatementEngine

DELTA = Fraction(1, 10**5)
CROWD = [(f"c{place}", place % 11, "xy"[place % 2], place % 3) for place in range(40)]
INDIVIDUALS = {
    "one record": [(10, "y", 2)],
    "very many records": [(10, "y", 2)] * 500,
    "opposite targets": [(0, "x", 0), (10, "y", 2)] * 9,
    "beyond all bounds": [(10**9, "y", 2), (10, "zebra", 0)],
    "missing": [(None, "x", 1), (5, None, 2), (5, "x", None)],
    "nothing": [],
}
RECIPE = Network(table="t", target="t", hidden=[3], steps=4, clip="0.01", sampling="0.25")


def describe(neighbours="add-remove", unit="p"):
    columns = {"a": {"bounds": [0, 10]}, "b": {"values": ["x", "y"]}, "t": {"values": [0, 1, 2]}}
    facts = {"source": "t.parquet", "unit": unit, "neighbours": neighbours, "columns": columns}
    return parse_table("t", facts | ({} if unit == "row" else {"max_records": 2}))


def answers(folder, table, records):
    """What every step of a run would be without noise, at the weights that zero answers lead to."""
    kinds = (pa.string(), pa.float64(), pa.string(), pa.int64())
    columns = [pa.array(each, kind) for each, kind in zip(zip(*records, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(columns, ["p", "a", "b", "t"]), folder / "t.parquet")
    engine, found = StatementEngine(folder), []
    recipe = RECIPE if table.unit.neighbours == "add-remove" else replace(RECIPE, sampling=None)
    plan = recipe.plan(table, epsilons=(Fraction(2),), delta=DELTA)

    def answer(asks):
        (ask,) = asks
        if isinstance(ask.counted, Gradients):
            held = engine.read_records(plan.table, ask.columns, progress=lambda _: None)
            everybody = np.ones(held.individuals, bool)
            found.append((ask, held.sum_gradients(ask.counted, everybody).astype(object)))
        else:
            (counts,) = engine.count(plan.table, (ask.counted,), progress=lambda _: None)
            found.append((ask, counts.true_values.astype(object)))
        grid, size = request_grid(plan.table, ask), request_size(plan.table, ask)
        return (Measurement(request=ask, noisy_values=np.full(size, 10 * grid), grid=grid),)

    follow_recipe(plan, answer=answer, progress=lambda _: None)
    return plan, found


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_individual_moves_an_answer_further_than_declared(tmp_path, neighbours):
    table = describe(neighbours)
    rows = {
        name: answers(tmp_path, table, CROWD + [("eve", *row) for row in own])
        for name, own in INDIVIDUALS.items()
    }
    plan, base = rows["nothing"]
    others = [found for _, found in rows.values()] if neighbours == "replace" else [base]
    reached = 0.0
    for _, mine in rows.values():
        for theirs in others:
            for (ask, one), (_, two) in zip(mine, theirs, strict=True):
                moved = math.sqrt(sum(each**2 for each in one - two))
                most = float(request_sensitivity(plan.table, ask))
                assert moved <= most
                reached = max(reached, moved / most)
    assert reached > (0.9 if neighbours == "add-remove" else 0.6), (
        "the bound should be nearly reached, or the test tries too little"
    )


def test_sampling_is_refused_where_one_individual_replaces_another():
    with pytest.raises(RecipeError, match="leave sampling out"):
        RECIPE.plan(describe("replace"), epsilons=(Fraction(2),), delta=DELTA)


def test_rows_are_individuals_where_there_is_no_unit(tmp_path):
    table = describe(unit="row")
    more = [*CROWD, ("c0", 10, "y", 2)]
    (_, without), (_, with_it) = (answers(tmp_path, table, rows) for rows in (CROWD, more))
    for (ask, one), (_, two) in zip(without[1:], with_it[1:], strict=True):
        assert 0 < sum(each**2 for each in two - one) <= GRADIENT_GRID**2
        assert ask.counted.sampling < 1


def check_sampling(draw, *, people=12, runs=20_000, rate=Fraction(1, 3)):
    """Everybody is drawn with the rate, and no two are drawn together more often than by chance."""
    drawn = np.array([draw(size=people, rate=rate) for _ in range(runs)], float)
    q = float(rate)
    # Six standard deviations: wrongly alarmed less than once in ten million.
    assert np.abs(drawn.mean(axis=0) - q).max() <= 6 * math.sqrt(q * (1 - q) / runs)
    together = drawn.T @ drawn / runs - q * q
    np.fill_diagonal(together, 0.0)
    assert np.abs(together).max() <= 6 * q * math.sqrt(1 - q * q) / math.sqrt(runs)
    again = (drawn[1:] * drawn[:-1]).mean(axis=0) - q * q
    assert np.abs(again).max() <= 6 * math.sqrt(q * q * (1 - q * q) / (runs - 1)) * 2


def exact_words(*, size, rate):
    """The same, deciding by single bits, so that nearly all coins are settled by further words."""
    return choice._sample(size, Fraction(rate), choice.KeyStream(), word_bits=1)


@pytest.mark.statistical
@pytest.mark.parametrize("draw", [poisson_sample, exact_words])
def test_everybody_is_drawn_independently_with_the_exact_rate(draw):
    check_sampling(draw)


GENERATOR = np.random.default_rng(17)


def fixed_size(*, size, rate):
    chosen = np.zeros(size, bool)
    chosen[GENERATOR.choice(size, int(size * rate), replace=False)] = True
    return chosen


def blocks(*, size, rate):
    """A batch of neighbouring places, as shuffling once and cutting gives: an individual more shifts all."""
    start = GENERATOR.integers(int(1 / rate)) * int(size * rate)
    return (np.arange(size) >= start) & (np.arange(size) < start + int(size * rate))


FAULTY = {
    "a fixed number": fixed_size,
    "blocks of places": blocks,
    "a seed": lambda *, size, rate: np.random.default_rng(size).random(size) < float(rate),
    "a rounded rate": lambda *, size, rate: poisson_sample(size=size, rate=Fraction(3, 8)),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", FAULTY)
def test_other_samplers_are_noticed(name):
    with pytest.raises(AssertionError):
        check_sampling(FAULTY[name])


def run_with(monkeypatch, change):
    """Follows the recipe with answers of zero; `change` is what is planted in its requests."""
    plan = RECIPE.plan(describe(), epsilons=(Fraction(2),), delta=DELTA)
    plain = network_recipe.Request

    def altered(**facts):
        return plain(**change(facts)) if isinstance(facts["counted"], Gradients) else plain(**facts)

    monkeypatch.setattr(network_recipe, "Request", altered)

    def answer(asks):
        (ask,) = asks
        grid, size = request_grid(plan.table, ask), request_size(plan.table, ask)
        return (Measurement(request=ask, noisy_values=np.zeros(size, np.int64), grid=grid),)

    return follow_recipe(plan, answer=answer, progress=lambda _: None)


CHEATS = {
    "less noise": lambda facts: {**facts, "scale": facts["scale"] - 1},
    "a larger sample": lambda facts: {
        **facts,
        "counted": replace(facts["counted"], sampling=Fraction(9, 10)),
    },
    "everybody": lambda facts: {**facts, "counted": replace(facts["counted"], sampling=Fraction(1))},
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_step_that_costs_more_than_was_charged_is_refused(name, monkeypatch):
    with pytest.raises(RecipeError, match="more than its plan charges"):
        run_with(monkeypatch, CHEATS[name])


def test_one_step_more_than_was_charged_is_refused(monkeypatch):
    run_with(monkeypatch, lambda facts: facts)
    plain = network_recipe._calibrate_run
    monkeypatch.setattr(
        network_recipe,
        "_calibrate_run",
        lambda rate, steps, *rest: plain(rate, steps - 1, *rest),
    )
    with pytest.raises(RecipeError, match="more than its plan charges"):
        run_with(monkeypatch, lambda facts: facts)


@pytest.mark.parametrize("epsilon", ["0.1", 1, 3, 10])
@pytest.mark.parametrize("rate", [None, "0.05", "0.5", 1])
def test_a_plan_fits_a_budget_of_its_own_epsilon_and_delta(epsilon, rate):
    recipe = replace(RECIPE, sampling=rate, steps=20)
    plan = recipe.plan(describe(), epsilons=(Fraction(epsilon),), delta=DELTA)
    assert admits(Budget(epsilon, DELTA), Spent(), plan.costs)
    assert not admits(Budget(Fraction(epsilon) * Fraction(96, 100), DELTA), Spent(), plan.costs)


PROJECT = """
[budget]
epsilon = 3.0
delta = 1e-5
[tables.t]
source = "t.csv"
unit = "p"
max_records = 2
[tables.t.columns.a]
range = [0, 3]
[tables.t.columns.b]
values = ["x", "y"]
"""
MODEL = """
recipe = "network"
table = "t"
target = "b"
hidden = [2]
steps = 3
sampling = 0.25
clip = 0.1
epsilon = 2.0
delta = 1e-5
"""


def audit(folder, *, code):
    (folder / "sfumato.toml").write_text(PROJECT, encoding="utf-8")
    (folder / "model.toml").write_text(MODEL, encoding="utf-8")
    options = ["--project", folder / "sfumato.toml", "--fast", "--confidence", 0.999999]
    return invoke("audit", folder / "model.toml", *options, code=code).output


def everybody_twice(plain):
    return lambda records, question, drawn: 2 * plain(records, question, drawn)


def nobody_sampled(plain):
    return lambda noise, *, size, rate: plain(noise, size=size, rate=1)


@pytest.mark.slow
def test_the_audit_at_the_door_passes_and_notices_faults(tmp_path, monkeypatch):
    assert "not refuted" in audit(tmp_path, code=0)
    with monkeypatch.context() as patch:
        patch.setattr(TrueRecords, "sum_gradients", everybody_twice(TrueRecords.sum_gradients))
        assert "L2 distance" in audit(tmp_path, code=4)
    with monkeypatch.context() as patch:
        patch.setattr(RecordingNoise, "poisson_sample", nobody_sampled(RecordingNoise.poisson_sample))
        assert "a sample of 1, declared 0.25" in audit(tmp_path, code=4)
