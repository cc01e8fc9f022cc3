"""Tries to break user-counts: on adversarial neighbours, with the noise off and with the noise on.

With the noise off, the exact vectors of neighbouring tables must differ by no more than the declared
sensitivity. With the noise on, whole releases must carry the noise that their certificate states. Negative
controls show that a wrong bound, noise or charge is noticed, and the calibration of the contest's write-up
is one of them.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.audit.specimens import UserCountsAsWritten
from sfumato.core.engine import bounded
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions import measurement as measurement_module
from sfumato.core.questions.measurement import Measurement, ask_cost
from sfumato.statements.engine import StatementEngine

MAX_CELLS = 4
CROWD = [(f"crowd{i}", float(i % 5), "xy"[i % 2]) for i in range(30)]
INDIVIDUALS = {
    "one record": [(1.0, "x")],
    "full": [(float(i), "x") for i in range(MAX_CELLS)],
    "one cell too many": [(float(i), "x") for i in range(MAX_CELLS + 1)],
    "in every cell, once": [(float(i), d) for i in range(5) for d in "xyz"],
    "in every cell, equally often": [(float(i), d) for i in range(5) for d in "xyz"] * 30,
    "very many in one cell": [(2.0, "y")] * 5000,
    "very many in one cell, one in the others": [
        *[(2.0, "y")] * 5000,
        *((float(i), d) for i in range(5) for d in "xyz"),
    ],
    "not a number": [(math.nan, "x"), (math.inf, "x"), (-math.inf, "y"), (1e300, "x"), (2.5, "x")] * 3,
    "missing": [(None, None), (None, "x"), (1.0, None)] * 3,
    "never seen": [(99.0, "zebra"), (-7.0, ""), (3.0, "x" * 10_000)] * 3,
}


class Bench:
    """Releases tables of choice, with the noise or with a stand-in that records what was to be noised."""

    def __init__(
        self, folder, monkeypatch, *, neighbours="add-remove", policy=("clamp", "other"), last=4, **keys
    ):
        self.folder, self.monkeypatch = folder, monkeypatch
        self.recipe = sf.recipes.UserCounts(
            **{"table": "t", "by": ("c", "d"), "max_cells": MAX_CELLS, **keys}
        )
        columns = {
            "c": {"range": [0, last], "outside": policy[0]},
            "d": {"values": ["x", "y"], "outside": policy[1]},
        }
        unit = {"unit": "p", "max_records": 9, "neighbours": neighbours}
        write_project(folder, columns, epsilon=100_000, delta=1e-6, **unit)

    def release(self, records, *, epsilon=1, delta=0):
        table = pa.table(
            {
                "p": pa.array([p for p, _, _ in records], pa.string()),
                "c": pa.array([c for _, c, _ in records], pa.float64()),
                "d": pa.array([d for _, _, d in records], pa.string()),
            }
        )
        pq.write_table(table, self.folder / "t.parquet")
        for kept in self.folder.glob("ledger.db*"):
            kept.unlink()  # equal tables would be answered alike, without new noise
        return sf.open(self.folder / "sfumato.toml").release(self.recipe, epsilon=epsilon, delta=delta)

    def record(self, records, **options):
        """The exact vector, kind and scale of every measurement, and the release."""
        seen = []

        def stand_in(values, *, kind, scale):
            seen.append((values.copy(), kind, scale))
            return values.copy()

        with self.monkeypatch.context() as patch:
            patch.setattr("sfumato.core.noise.add_noise", stand_in)
            return seen, self.release(records, **options)


def find_violation(bench, records, others, **options):
    """What is wrong between two neighbouring tables, or None."""
    one, release = bench.record(records, **options)
    two, again = bench.record(others, **options)
    if [each[1:] for each in one] != [each[1:] for each in two]:
        return "neighbours ask for different noise"
    if release.certificate["total"] != again.certificate["total"]:
        return "neighbours are charged differently"
    for (first, _, scale), (second, _, _), cost in zip(
        one, two, release.certificate["measurements"], strict=True
    ):
        moved = first - second
        declared = Fraction(cost["sensitivity"])
        if (np.abs(moved).sum() if cost["norm"] == "L1" else 0) > declared or (moved**2).sum() > declared**2:
            return f"distance above the declared {cost['norm']} of {float(declared):g}"
        if Fraction(cost["scale"]) != scale:
            return "the certificate states another scale than was drawn"
        if cost["kind"] == "laplace" and declared / scale != 1:
            return "the scale is not what epsilon 1 needs"
    return None


GAUSSIAN = {"noise": "gaussian"}


def options_of(keys):
    return {"delta": 1e-6} if keys == GAUSSIAN else {}


@pytest.mark.parametrize("name", INDIVIDUALS)
@pytest.mark.parametrize("policy", [("clamp", "other"), ("drop", "drop")])
@pytest.mark.parametrize("keys", [{}, GAUSSIAN])
def test_no_individual_moves_the_answers_beyond_the_declared_bound(tmp_path, monkeypatch, name, policy, keys):
    bench = Bench(tmp_path, monkeypatch, policy=policy, times=[1, 2, 20], **keys)
    person = [("somebody", c, d) for c, d in INDIVIDUALS[name]]
    for crowd in (CROWD, []):
        assert find_violation(bench, crowd + person, crowd, **options_of(keys)) is None
    assert find_violation(bench, person + CROWD[::-1], CROWD, **options_of(keys)) is None


@pytest.mark.parametrize("keys", [{}, GAUSSIAN])
def test_exchanging_an_individual_stays_within_the_replace_bound_and_reaches_it(tmp_path, monkeypatch, keys):
    bench = Bench(tmp_path, monkeypatch, neighbours="replace", **keys)
    one = [("somebody", float(i), "x") for i in range(5)]
    other = [("somebody", float(i), "y") for i in range(5)]
    assert find_violation(bench, CROWD + one, CROWD + other, **options_of(keys)) is None
    ((first, _, _),), _ = bench.record(CROWD + one, **options_of(keys))
    ((second, _, _),), _ = bench.record(CROWD + other, **options_of(keys))
    assert np.abs(first - second).sum() == ((first - second) ** 2).sum() == 2 * MAX_CELLS


def test_the_charge_is_what_the_noise_is_worth(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    ((_, kind, scale),), release = bench.record(CROWD, epsilon="0.5")
    assert (kind, scale) == ("laplace", 2 * MAX_CELLS)
    assert release.certificate["total"]["epsilon"] == "0.5"
    assert sf.open(tmp_path / "sfumato.toml").budget().spent == Fraction(1, 2)


# Negative controls: each fault would be found.


def test_a_bound_that_is_not_enforced_is_caught(tmp_path, monkeypatch):
    original = bounded.count_individuals

    def unbounded(connection, table, request):
        loose = replace(request, max_cells=10**9)
        return original(connection, table, loose)

    monkeypatch.setattr("sfumato.core.engine.duckdb.count_individuals", unbounded)
    bench = Bench(tmp_path, monkeypatch)
    person = [("somebody", c, d) for c, d in INDIVIDUALS["one cell too many"]]
    assert "above the declared" in find_violation(bench, CROWD + person, CROWD)


def test_a_sensitivity_of_one_is_caught(tmp_path, monkeypatch):
    from sfumato.recipes import user_counts

    for module in (measurement_module, user_counts):
        monkeypatch.setattr(module, "request_sensitivity", lambda table, request: Fraction(1))
    bench = Bench(tmp_path, monkeypatch)
    person = [("somebody", c, d) for c, d in INDIVIDUALS["full"]]
    assert "above the declared" in find_violation(bench, CROWD + person, CROWD)


def test_a_noise_scale_of_half_is_charged_twice(tmp_path, monkeypatch):
    from sfumato.recipes import user_counts

    original = user_counts.request_sensitivity
    monkeypatch.setattr(
        user_counts, "request_sensitivity", lambda table, request: original(table, request) / 2
    )
    bench = Bench(tmp_path, monkeypatch)
    _, release = bench.record(CROWD, epsilon=1)
    assert release.certificate["total"]["epsilon"] == "2"


# The noise of whole releases.


def variance_ratio(drawn, deviation):
    return float((drawn.astype(np.float64) ** 2).mean()) / deviation**2


def tolerance(kind, size):
    """Five standard errors of the mean square, whose fourth moment is 6 (Laplace) or 3 squared variances."""
    return 5 * math.sqrt((6.2 if kind == "laplace" else 3) - 1) / math.sqrt(size)


@pytest.mark.statistical
@pytest.mark.parametrize(("keys", "delta"), [({}, 0), (GAUSSIAN, 1e-6)])
def test_whole_releases_carry_the_declared_noise(tmp_path, monkeypatch, keys, delta):
    # 6000 answers x 12 releases; the false-alarm rate of five standard errors is below one in a million.
    bench = Bench(tmp_path, monkeypatch, last=999, **keys)
    ((exact, kind, scale),), release = bench.record(CROWD, delta=delta)
    noisy = [bench.release(CROWD, delta=delta).measurements[0].noisy_values for _ in range(12)]
    drawn = np.concatenate(noisy) - np.tile(exact, 12)
    deviation = release.measurements[0].request.standard_deviation
    allowed = tolerance(kind, drawn.size)
    assert exact.size == 6000
    assert abs(variance_ratio(drawn, deviation) - 1) < allowed
    assert abs(drawn.mean()) < 5 * deviation / math.sqrt(drawn.size)
    # What a calibration to one cell, or to half the scale, would show instead.
    for wrong in (Fraction(1, MAX_CELLS), Fraction(1, 2), Fraction(9, 10)):
        control = add_noise(np.zeros(drawn.size, np.int64), kind=kind, scale=scale * wrong)
        assert abs(variance_ratio(control, deviation) - 1) > allowed


@pytest.mark.statistical
def test_clipping_before_adding_up_is_biased_upwards_and_after_is_not():
    # 20,000 cells in which 1000 individuals have one record and nobody has two.
    table = parse_table(
        "t",
        {"source": "t.parquet", "unit": "p", "max_records": 4, "columns": {"c": {"range": [1, 20_000]}}},
    )
    means, errors = {}, {}
    for rounding in ("after", "before"):
        recipe = sf.recipes.UserCounts(table="t", by=["c"], max_cells=4, rounding=rounding)
        plan = recipe.plan(table, epsilons=(Fraction(1),), delta=Fraction(0))
        (request,) = plan.requests
        noisy = add_noise(np.tile([1000, 0], 20_000), kind="laplace", scale=request.scale)
        run = recipe.run(plan, progress=lambda _: None)
        next(run)
        with pytest.raises(StopIteration) as done:
            run.send((Measurement(request=request, noisy_values=noisy),))
        counts = done.value.value.table["count"].to_numpy()
        means[rounding] = counts.mean() - 1000
        errors[rounding] = counts.std() / math.sqrt(counts.size)
    q = math.exp(-1 / 4)
    expected = 2 * q / (1 - q**2)  # two records times the mean of the noise above zero
    assert abs(means["after"]) < 5 * errors["after"]
    assert means["before"] > 5 * errors["before"]
    assert abs(means["before"] - expected) < 5 * errors["before"]


# The calibration as it was written.


def test_the_write_up_s_calibration_costs_twenty_times_what_it_claims(tmp_path):
    table = parse_table(
        "t",
        {"source": "t.parquet", "unit": "p", "max_records": 20, "columns": {"c": {"range": [0, 49]}}},
    )
    specimen = UserCountsAsWritten(table="t", by=("c",))
    request = specimen.specimen_request(table, Fraction(1))
    crowd = [(f"crowd{i}", i % 50) for i in range(200)]
    vectors = []
    for records in ([*crowd, *(("somebody", c) for c in range(20))], crowd):
        people, cells = zip(*records, strict=True)
        pq.write_table(pa.table({"p": people, "c": cells}), tmp_path / "t.parquet")
        counted = StatementEngine(tmp_path).count(table, (request.counted,), progress=lambda _: None)[0]
        vectors.append(counted.true_values)
    moved = vectors[0] - vectors[1]
    claimed = specimen.specimen_cost(table, Fraction(1))
    assert (claimed.sensitivity, claimed.epsilon, request.scale) == (1, 1, 1)
    assert np.abs(moved).sum() == 20
    assert math.isclose(math.sqrt((moved**2).sum()), math.sqrt(20))
    # The loss of the output that favours one table most: 20 answers with scale 1.
    assert np.abs(moved).sum() / request.scale == 20 * claimed.epsilon
    assert ask_cost(table, request).epsilon == 20 * claimed.epsilon
    replaced = replace(table, unit=replace(table.unit, neighbours="replace"))
    assert ask_cost(replaced, request).epsilon == 40 * claimed.epsilon


@pytest.mark.statistical
@pytest.mark.parametrize("honest", [True, False])
def test_the_black_box_sees_the_write_up_s_calibration(honest):
    """The event `noisy sum of twenty answers above 10` on neighbours that differ by one in each of them."""
    runs, scale = 20_000, Fraction(20 if honest else 1)
    means = []
    for each in (1, 0):
        noisy = add_noise(np.full(20 * runs, each), kind="laplace", scale=scale)
        means.append(float((noisy.reshape(runs, 20).sum(axis=1) >= 10).mean()))
    p, q = means
    low = p - 5 * math.sqrt(p * (1 - p) / runs)
    high = q + 5 * math.sqrt(q * (1 - q) / runs)
    assert (math.log(low / high) > 1) == (not honest)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_write_up_s_calibration_cannot_release(tmp_path, monkeypatch, neighbours):
    bench = Bench(tmp_path, monkeypatch, neighbours=neighbours)
    bench.recipe = UserCountsAsWritten(table="t", by=("c", "d"))
    factor = 18 if neighbours == "replace" else 9
    with pytest.raises(sf.RecipeError, match=f"specimen for audits .* {factor} times"):
        bench.release(CROWD)
    curator = sf.open(tmp_path / "sfumato.toml")
    assert curator.budget().spent == 0
    assert not curator.ledger_path.exists()
