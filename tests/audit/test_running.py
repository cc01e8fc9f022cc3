"""Tries to break the bound of a series: neighbouring histories of a table, noise off, and planted faults."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.accounting import mu_to_delta
from sfumato.audit.neighbours import list_individuals
from sfumato.audit.noise_off import RecordingNoise, compare_neighbours
from sfumato.audit.targets import Harness, RecipeTarget
from sfumato.core.engine import arrivals as engine
from sfumato.core.errors import RecipeError
from sfumato.core.facts.project import read_project
from sfumato.core.questions.counts import find_sensitivity
from sfumato.core.questions.series import RunningSums
from sfumato.curator import Curator
from sfumato.recipes import Running

PERIODS = 6
PROJECT = """
[budget]
epsilon = 50.0
delta = 1e-6
[tables.t]
source = "t.parquet"
unit = "p"
max_records = 3
neighbours = "{neighbours}"
[tables.t.columns.day]
range = [0, 5]
[tables.t.columns.ward]
range = [0, 4]
"""
CROWD = [(f"c{place}", place % PERIODS, place % 5) for place in range(40)]

# What Eve's records are when each period is released; nobody but her decides about them.
EVES = {
    "never": lambda _: [],
    "all at once": lambda _: [(0, 2)] * 50,
    "one a day": lambda _: [(day, 2) for day in range(PERIODS)],
    "always today": lambda today: [(today, 2)] * 9,
    "always today, elsewhere": lambda today: [(today, today % 5)] * 9,
    "yesterday is rewritten": lambda today: [(max(0, today - 1), 3), (today, 3)],
    "there and gone": lambda today: [(today, 1)] * 4 if today % 2 else [],
    "late": lambda today: [(0, 4)] * (today + 1),
    "beyond": lambda today: [(99, 1), (-1, 1), (today, 77)],
    "at the end": lambda _: [(PERIODS - 1, 2)] * 9,
    "two, then many": lambda today: [(0, 2)] * 2 + [(day, 2) for day in range(1, today + 1)] * 9,
}


def measure(folder, eve, *, late, neighbours="add-remove", noise="gaussian"):
    """The exact sums of all periods on their way to the noise, as the table goes through its states."""
    folder.mkdir()
    (folder / "sfumato.toml").write_text(PROJECT.format(neighbours=neighbours))
    drawn = RecordingNoise()
    curator = Curator(read_project(folder / "sfumato.toml"), noise=drawn)
    for today in range(PERIODS):
        rows = [row for row in CROWD if row[1] <= today] + [("eve", *row) for row in EVES[eve](today)]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(each) for each in columns]
        pq.write_table(pa.table(arrays, ["p", "day", "ward"]), folder / "t.parquet")
        recipe = Running(table="t", period="day", through=today, by=("ward",), late=late, noise=noise)
        release = curator.release(recipe, epsilon=1, delta=1e-6)
    assert len(drawn.requests) == PERIODS, "every period asks for noise once"
    assert {each.scale for each in drawn.requests} == {release.measurements[0].request.scale}
    (cost,) = curator.budget().entries[1].costs
    return np.concatenate([each.true_values for each in drawn.requests]), cost


@pytest.mark.slow
@pytest.mark.parametrize("late", ["drop", "carry"])
def test_no_individual_moves_all_periods_together_further_than_declared(tmp_path, late):
    found = {eve: measure(tmp_path / eve.replace(",", ""), eve, late=late) for eve in EVES}
    sums = [each for each, _ in found.values()]
    never, cost = found["never"]
    gaps = [np.linalg.norm(each - never) for each in sums]
    assert 0.9 * float(cost.sensitivity) < max(gaps) <= float(cost.sensitivity)
    _, exchanged = measure(tmp_path / "replace", "never", late=late, neighbours="replace")
    gaps = [np.linalg.norm(one - other) for one in sums for other in sums]
    assert 0.7 * float(exchanged.sensitivity) < max(gaps) <= float(exchanged.sensitivity)
    # And the noise is that of the charge, which is no more than epsilon and delta.
    assert mu_to_delta(math.sqrt(cost.mu_squared), 1) <= 1e-6 * (1 + 1e-9)
    assert cost.mu_squared > (cost.sensitivity / cost.scale) ** 2


@pytest.mark.parametrize("late", ["drop", "carry"])
def test_counts_of_each_period_move_in_L1_no_further_than_declared(tmp_path, late):
    eves = ("never", "all at once", "one a day", "always today, elsewhere", "late")
    found = [measure(tmp_path / eve.replace(",", ""), eve, late=late, noise="laplace") for eve in eves]
    (never, cost), *_ = found
    gaps = [np.abs(each - never).sum() for each, _ in found]
    assert cost.norm == "L1"
    assert max(gaps) == cost.sensitivity
    assert cost.epsilon == cost.sensitivity / cost.scale <= 1
    _, exchanged = measure(tmp_path / "replace", "never", late=late, neighbours="replace", noise="laplace")
    gaps = [np.abs(one - other).sum() for one, _ in found for other, _ in found]
    assert max(gaps) == exchanged.sensitivity == 2 * cost.sensitivity


@pytest.mark.parametrize("late", ["drop", "carry"])
def test_what_counted_before_is_taken_from_what_counts_of_one_cell(tmp_path, late):
    never, cost = measure(tmp_path / "never", "never", late=late)
    moved, _ = measure(tmp_path / "many", "two, then many", late=late)
    assert 0 < np.linalg.norm(moved - never) <= float(cost.sensitivity)


@pytest.mark.parametrize("late", ["drop", "carry"])
def test_a_bound_within_periods_only_would_be_noticed(tmp_path, monkeypatch, late):
    """The control: an engine that forgets who counted before lets Eve move the sums too far."""
    exact, cost = measure(tmp_path / "never", "never", late=late)
    monkeypatch.setattr(engine, "find_arrivals", forgetful(engine.find_arrivals))
    moved, _ = measure(tmp_path / "today", "always today", late=late)
    assert np.linalg.norm(moved - exact) > float(cost.sensitivity)


def forgetful(find):
    def forget(connection, table, question, log, **options):
        return find(connection, table, question, log.slice(0, 0), **options)

    return forget


def test_histories_that_are_read_again_would_be_noticed(tmp_path, monkeypatch):
    """The control: sums over the table as it is now, and not as it was, move too far."""
    exact, cost = measure(tmp_path / "never", "never", late="drop")
    plain = engine.find_arrivals

    def reread(connection, table, question, log, *, period, secret):
        parts = [
            plain(connection, table, question, log.slice(0, 0), period=each, secret=secret)
            for each in range(period + 1)
        ]
        again.clear()
        again.extend(parts)
        return parts[-1]

    again = []
    monkeypatch.setattr(engine, "find_arrivals", reread)
    monkeypatch.setattr(
        engine, "sum_log", lambda table, question, log, period, plain=engine.sum_log: plain(
            table, question, pa.concat_tables(again), period=period
        )
    )  # fmt: skip
    moved, _ = measure(tmp_path / "today", "always today", late="drop")
    assert np.linalg.norm(moved - exact) > float(cost.sensitivity)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_audit_of_recipes_sees_all_periods_as_one_answer(tmp_path, monkeypatch, noise):
    (tmp_path / "sfumato.toml").write_text(PROJECT.format(neighbours="add-remove"))
    recipe = Running(table="t", period="day", through=2, noise=noise)
    target = RecipeTarget(recipe=recipe, epsilons=(Fraction(1),), delta=Fraction(1, 10**6))
    harness = Harness(read_project(tmp_path / "sfumato.toml"), target, tmp_path)
    people = list_individuals(harness.fields, harness.table, thorough=False)
    people = [person for person in people if "in one cell" in person.what]

    def find():
        found = compare_neighbours(harness, thorough=False, progress=lambda _: None, people=people)
        return " / ".join(each.text for each in found.findings if each.violated)

    assert find() == ""
    plain = RunningSums.contribution
    monkeypatch.setattr(RunningSums, "contribution", lambda *given: plain(*given) / 2)
    assert "over 3 answers, declared" in find()


def test_weighted_sums_with_laplace_noise_cost_what_all_periods_move(tmp_path):
    """No recipe asks for them, and the core states what they cost all the same."""
    (tmp_path / "sfumato.toml").write_text(PROJECT.format(neighbours="add-remove"))
    table = read_project(tmp_path / "sfumato.toml").tables["t"]
    weights = (16, 8, 6, 5, 4, 0)
    question = RunningSums(columns=("day", "ward"), weights=weights, periods=6)
    arrivals = np.zeros((PERIODS, PERIODS), np.int64)
    for start in range(PERIODS):
        arrivals[start, start:] = weights[: PERIODS - start]
    moved = max(np.abs(3 * each).sum() for each in arrivals)
    assert moved == find_sensitivity(table, question, norm="L1")


def test_the_norm_is_that_of_all_weights():
    question = RunningSums(columns=("day",), weights=(2**20, 2**19, 2**18), periods=1)

    class One:
        class unit:
            max_records = 2
            neighbours = "add-remove"

    bound = question.contribution(One, "L2")
    squares = 2**40 + 2**38 + 2**36
    assert bound >= 2 * Fraction(math.isqrt(squares))
    assert (bound / 2) ** 2 >= squares
    assert find_sensitivity(One, question, norm="L1") == 2 * (2**20 + 2**19 + 2**18)
    with pytest.raises(RecipeError, match="whole numbers from 0"):
        RunningSums(columns=("day",), weights=(2**20, -1), periods=1)
