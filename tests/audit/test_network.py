"""Tries to break the recipe `network`: neighbours of both kinds, who is drawn, what is charged."""

import math
from fractions import Fraction

import numpy as np
import pytest

from helpers.cli import invoke
from sfumato.audit.noise_off import RecordingNoise
from sfumato.core.engine.gradients import TrueRecords
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import choice, poisson_sample
from sfumato.core.questions.gradients import Gradients
from sfumato.core.questions.measurement import Measurement, request_grid, request_size
from sfumato.recipes import Network
from sfumato.recipes import network as network_recipe
from sfumato.recipes.base import follow_recipe

DELTA = Fraction(1, 10**5)
RECIPE = Network(table="t", target="t", hidden=[3], steps=4, clip="0.01", sampling="0.25")


def describe(neighbours="add-remove", unit="p"):
    columns = {"a": {"bounds": [0, 10]}, "b": {"values": ["x", "y"]}, "t": {"values": [0, 1, 2]}}
    facts = {"source": "t.parquet", "unit": unit, "neighbours": neighbours, "columns": columns}
    return parse_table("t", facts | ({} if unit == "row" else {"max_records": 2}))


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
