"""Tries to break cell-counts: on adversarial neighbours, with the noise off and with the noise on.

The noise-off audit records every vector that is about to be noised, and the noise that is asked for.
Neighbouring tables must ask for the same noise on vectors that differ by no more than the declared
sensitivity. Negative controls show that the audit would notice a wrong bound, noise or charge.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core.engine import duckdb as engine_module
from sfumato.core.noise import add_noise

MAX_RECORDS = 4
CROWD = [(f"crowd{i}", float(i % 5), "xy"[i % 2]) for i in range(30)]

# What one individual brings: each is added to the crowd, or taken from it.
INDIVIDUALS = {
    "one record": [(1.0, "x")],
    "full, in one cell": [(1.0, "x")] * MAX_RECORDS,
    "full, over cells": [(float(i), "xy"[i % 2]) for i in range(MAX_RECORDS)],
    "over the cap, in one cell": [(2.0, "y")] * 50,
    "over the cap, over cells": [(float(i % 5), "xy"[i % 2]) for i in range(50)],
    "not a number": [(math.nan, "x"), (math.inf, "x"), (-math.inf, "y"), (1e300, "x"), (2.5, "x")],
    "missing": [(None, None), (None, "x"), (1.0, None)],
    "never seen": [(99.0, "zebra"), (-7.0, ""), (3.0, "x" * 10_000)],
    "at the ends": [(0.0, "x"), (4.0, "y"), (4.0000001, "y"), (-0.0, "x")],
}


@dataclass(frozen=True)
class Request:
    """A vector that was about to be noised, and the noise that was asked for."""

    values: np.ndarray
    kind: str
    scale: Fraction


class Bench:
    """Runs a recipe on tables of choice with a recording stand-in for the noise."""

    def __init__(self, folder, monkeypatch, *, outside="clamp", other="other", **facts):
        self.folder, self.monkeypatch, self.turn = folder, monkeypatch, 0
        columns = {
            "c": {"range": [0, 4], "outside": outside},
            "d": {"values": ["x", "y"], "outside": other},
        }
        unit = {"unit": "p", "max_records": MAX_RECORDS, "neighbours": "add-remove", "bounding": "truncate"}
        write_project(folder, columns, epsilon=100_000, delta=1e-6, **unit | facts)

    def write(self, records):
        table = pa.table(
            {
                "p": pa.array([p for p, _, _ in records], pa.string()),
                "c": pa.array([c for _, c, _ in records], pa.float64()),
                "d": pa.array([d for _, _, d in records], pa.string()),
            }
        )
        pq.write_table(table, self.folder / "t.parquet")

    def release(self, records, *, epsilon=1, delta=0, noise="auto"):
        self.write(records)
        for kept in self.folder.glob("ledger.db*"):
            kept.unlink()  # equal tables would be answered alike, without new noise
        recipe = sf.recipes.CellCounts(table="t", by=("c", "d"), noise=noise)
        return sf.open(self.folder / "sfumato.toml").release(recipe, epsilon=epsilon, delta=delta)

    def record(self, records, **options):
        """What was about to be noised when releasing `records`."""
        seen = []

        def stand_in(values, *, kind, scale):
            seen.append(Request(values.copy(), kind, scale))
            return values

        with self.monkeypatch.context() as patch:
            patch.setattr("sfumato.core.noise.add_noise", stand_in)
            release = self.release(records, **options)
        return seen, release


def find_violation(bench, records, others, **options):
    """What is wrong between two neighbouring tables, or None."""
    one, release = bench.record(records, **options)
    two, again = bench.record(others, **options)
    if [(each.kind, each.scale, each.values.shape) for each in one] != [
        (each.kind, each.scale, each.values.shape) for each in two
    ]:
        return "neighbours ask for different noise"
    if release.certificate["total"] != again.certificate["total"]:
        return "neighbours are charged differently"
    for first, second, cost in zip(one, two, release.certificate["measurements"], strict=True):
        difference = (first.values - second.values).astype(float)
        distance = np.abs(difference).sum() if cost["norm"] == "L1" else np.sqrt((difference**2).sum())
        if distance > float(Fraction(cost["sensitivity"])):
            return f"{cost['norm']} distance {distance} above the declared {cost['sensitivity']}"
        if Fraction(cost["scale"]) != first.scale:
            return "the certificate states another scale than was drawn"
    return None


@pytest.mark.parametrize("name", INDIVIDUALS)
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize(
    "policy", [("clamp", "other"), pytest.param(("drop", "drop"), marks=pytest.mark.slow)]
)
def test_no_individual_moves_the_counts_beyond_the_declared_bound(
    tmp_path, monkeypatch, name, bounding, policy
):
    bench = Bench(tmp_path, monkeypatch, bounding=bounding, outside=policy[0], other=policy[1])
    person = [("somebody", c, d) for c, d in INDIVIDUALS[name]]
    for crowd in (CROWD, []):
        for options in ({}, {"delta": 1e-6, "noise": "gaussian"}):
            assert find_violation(bench, crowd + person, crowd, **options) is None
            assert find_violation(bench, person + crowd[::-1], crowd, **options) is None


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_exchanging_an_individual_stays_within_the_replace_bound(tmp_path, monkeypatch, bounding):
    bench = Bench(tmp_path, monkeypatch, neighbours="replace", bounding=bounding)
    one = [("somebody", 0.0, "x")] * 50
    other = [("somebody", 3.0, "y")] * 50
    for options in ({}, {"delta": 1e-6, "noise": "gaussian"}):
        assert find_violation(bench, CROWD + one, CROWD + other, **options) is None


def test_the_bound_is_tight(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    (with_person,), _ = bench.record(CROWD + [("somebody", 1.0, "x")] * 50)
    (without,), _ = bench.record(CROWD)
    assert (with_person.values - without.values).sum() == MAX_RECORDS


def test_a_bound_that_is_not_enforced_is_caught(tmp_path, monkeypatch):
    original = engine_module.bounded_queries

    def unbounded(connection, table, columns, sealed):
        original(connection, table, columns, sealed)
        return ["SELECT c0, c1 FROM inside", "SELECT c0, c1 FROM encoded"]

    monkeypatch.setattr(engine_module, "bounded_queries", unbounded)
    bench = Bench(tmp_path, monkeypatch)
    person = [("somebody", c, d) for c, d in INDIVIDUALS["over the cap, in one cell"]]
    assert "above the declared" in find_violation(bench, CROWD + person, CROWD)


def test_a_noise_scale_of_half_is_caught(tmp_path, monkeypatch):
    from sfumato.recipes import cell_counts

    original = cell_counts.request_sensitivity
    monkeypatch.setattr(
        cell_counts, "request_sensitivity", lambda table, request: original(table, request) / 2
    )
    bench = Bench(tmp_path, monkeypatch)
    _, release = bench.record(CROWD, epsilon=1)
    # The charge follows from what is drawn, so an underpowered noise is charged as what it is.
    assert release.certificate["total"]["epsilon"] == "2"


def residuals(bench, rounds, *, epsilon):
    """Noise as drawn by whole releases of one table, written anew each time so that none is repeated."""
    (exact,), release = bench.record(CROWD, epsilon=epsilon)
    noisy = [bench.release(CROWD, epsilon=epsilon).measurements[0].noisy_values for _ in range(rounds)]
    return np.concatenate(noisy) - np.tile(exact.values, rounds), release


@pytest.mark.slow
@pytest.mark.statistical
def test_whole_releases_carry_the_declared_noise(tmp_path, monkeypatch):
    # 12 cells x 150 releases: the mean of |noise| is known to 5 standard errors (false alarm 1e-6).
    bench = Bench(tmp_path, monkeypatch)
    drawn, release = residuals(bench, 150, epsilon=1)
    scale = float(Fraction(release.certificate["measurements"][0]["scale"]))
    assert scale == MAX_RECORDS
    q = math.exp(-1 / scale)
    mean = 2 * q / (1 - q**2)
    deviation = math.sqrt(2 * q / (1 - q) ** 2 - mean**2)
    assert abs(np.abs(drawn).mean() - mean) < 5 * deviation / math.sqrt(drawn.size)
    assert abs(drawn.mean()) < 5 * math.sqrt(2) * scale / math.sqrt(drawn.size)


@pytest.mark.statistical
@pytest.mark.parametrize(("claimed", "real", "caught"), [(1.0, 1.0, False), (1.0, 3.0, True)])
def test_the_black_box_sees_a_wrong_noise_and_not_a_right_one(claimed, real, caught):
    """The event `noisy total above a threshold` on neighbours that differ by the whole bound."""
    runs, scale = 20_000, MAX_RECORDS / real
    with_person = add_noise(np.full(runs, MAX_RECORDS), kind="laplace", scale=Fraction(scale))
    without = add_noise(np.zeros(runs, np.int64), kind="laplace", scale=Fraction(scale))
    p = (with_person >= MAX_RECORDS).mean()
    q = (without >= MAX_RECORDS).mean()
    # Bounds five standard errors wide stand for a confidence far above 95 %.
    low = p - 5 * math.sqrt(p * (1 - p) / runs)
    high = q + 5 * math.sqrt(max(q, 1 / runs) / runs)
    epsilon_lower = math.log(low / high)
    assert (epsilon_lower > claimed) == caught
