"""Tries to break field-groups: adversarial neighbours, with the noise recorded and drawn.

Recorded, the vectors of all groups are taken together: the sum of their L1 distances, each over the scale of
its noise, must not exceed epsilon between neighbours, and reaches it. Drawn, no event may prove a larger
epsilon. Negative controls show that a wrong bound, a wrong split and a wrong scale are noticed.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.asking import converse
from helpers.projects import write_project
from sfumato.accounting import Cost
from sfumato.core.engine import duckdb as engine_module
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_sparse_noise
from sfumato.core.questions.counts import OccupiedCells
from sfumato.core.questions.measurement import Measurement, Request
from sfumato.recipes import FieldGroups, field_groups
from sfumato.recipes.base import Plan, Product
from sfumato.release.files import pack_measurements
from sfumato.statements.engine import StatementEngine

MAX_RECORDS = 4
EPSILON = Fraction(7, 10)
CROWD = [(f"crowd{i}", float(i % 5), "xy"[i % 2]) for i in range(30)]
INDIVIDUALS = {
    "one record": [(1.0, "x")],
    "full, in one cell": [(1.0, "x")] * MAX_RECORDS,
    "full, over cells": [(float(i), "xy"[i % 2]) for i in range(MAX_RECORDS)],
    "over the cap, in one cell": [(2.0, "y")] * 50,
    "over the cap, over cells": [(float(i % 5), "xy"[i % 2]) for i in range(50)],
    "not a number": [(math.nan, "x"), (math.inf, "x"), (-math.inf, "y"), (1e300, "x"), (2.5, "x")],
    "missing": [(None, None), (None, "x"), (1.0, None)],
    "never seen": [(99.0, "zebra"), (-7.0, ""), (3.0, "x" * 10_000)],
}
RECIPES = {
    "groups": FieldGroups(table="t", groups=[["c", "d"]], rows=5),
    "weights": FieldGroups(table="t", groups=[["c", "d"], ["e"]], weights=["1/3", 5], rows=5),
    "alone": FieldGroups(table="t", rows=5),
}


@dataclass(frozen=True)
class Noised:
    """A histogram that was about to be noised, over all its cells, and the scale of its noise."""

    values: np.ndarray
    scale: Fraction
    sparse: bool


class Bench:
    """Runs a recipe on tables of choice with a recording stand-in for the noise."""

    def __init__(self, folder, monkeypatch, *, listed=2**16, outside="clamp", other="other", **facts):
        self.folder, self.monkeypatch = folder, monkeypatch
        monkeypatch.setattr(field_groups, "LARGEST_LISTED", listed)
        columns = {
            "c": {"range": [0, 4], "outside": outside},
            "d": {"values": ["x", "y"], "outside": other},
            "e": {"bins": [0, 1, 3, 5], "from": "c", "outside": "clamp"},
        }
        unit = {"unit": "p", "max_records": MAX_RECORDS, "neighbours": "add-remove", "bounding": "truncate"}
        write_project(folder, columns, epsilon=100_000, **unit | facts)

    def record(self, records, recipe):
        """What was about to be noised when releasing `records`."""
        table = pa.table(
            {
                "p": pa.array([p for p, _, _ in records], pa.string()),
                "c": pa.array([c for _, c, _ in records], pa.float64()),
                "d": pa.array([d for _, _, d in records], pa.string()),
            }
        )
        pq.write_table(table, self.folder / "t.parquet")
        seen = []

        def dense(values, *, kind, scale):
            assert kind == "laplace"
            seen.append(Noised(values.copy(), scale, sparse=False))
            return values.copy()

        def sparse(cells, values, *, size, scale, threshold):
            whole = np.zeros(size, np.int64)
            whole[cells] = values
            seen.append(Noised(whole, scale, sparse=True))
            return cells[values >= threshold].copy(), values[values >= threshold].copy()

        with self.monkeypatch.context() as patch:
            patch.setattr("sfumato.core.noise.add_noise", dense)
            patch.setattr("sfumato.core.noise.add_sparse_noise", sparse)
            release = sf.open(self.folder / "sfumato.toml").release(recipe, epsilon=EPSILON)
        return seen, release


def measure_loss(bench, records, others, recipe):
    """Epsilon between two neighbouring tables: all groups' distances over their scales, together."""
    one, release = bench.record(records, recipe)
    two, again = bench.record(others, recipe)
    assert [(each.scale, each.values.shape, each.sparse) for each in one] == [
        (each.scale, each.values.shape, each.sparse) for each in two
    ], "neighbours ask for different noise"
    assert release.certificate["total"] == again.certificate["total"]
    assert Fraction(release.certificate["total"]["epsilon"]) == EPSILON
    for noised, entry in zip(one, release.certificate["measurements"], strict=True):
        assert Fraction(entry["scale"]) == noised.scale
    return sum(
        Fraction(int(np.abs(first.values - second.values).sum())) / first.scale
        for first, second in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("name", INDIVIDUALS)
@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize("listed", [2**16, 4])
def test_no_individual_costs_more_than_epsilon(tmp_path, monkeypatch, name, bounding, listed):
    person = [("somebody", c, d) for c, d in INDIVIDUALS[name]]
    policy = ("clamp", "other") if listed == 4 else ("drop", "drop")
    bench = Bench(tmp_path, monkeypatch, bounding=bounding, listed=listed, outside=policy[0], other=policy[1])
    recipe = RECIPES["weights" if listed == 4 else "groups"]
    assert measure_loss(bench, CROWD + person, CROWD, recipe) <= EPSILON
    assert measure_loss(bench, person[::-1], [], recipe) <= EPSILON


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("listed", [2**16, 4, 1])
def test_epsilon_is_reached(tmp_path, monkeypatch, recipe, listed):
    bench = Bench(tmp_path, monkeypatch, listed=listed)
    heavy = [("somebody", 2.0, "y")] * 50
    assert measure_loss(bench, CROWD + heavy, CROWD, RECIPES[recipe]) == EPSILON


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_replacing_an_individual_reaches_epsilon_and_no_more(tmp_path, monkeypatch, bounding):
    bench = Bench(tmp_path, monkeypatch, neighbours="replace", bounding=bounding, listed=4)
    one, other = [("somebody", 0.0, "x")] * 40, [("somebody", 4.0, "y")] * 60
    loss = measure_loss(bench, CROWD + one, CROWD + other, RECIPES["weights"])
    assert 0.999 * EPSILON < loss <= EPSILON


def test_groups_that_hold_all_integers_are_audited_too(tmp_path, monkeypatch):
    """Histograms that cannot be laid out: distances by occupied cells."""
    sizes = (49, 73, 127, 337, 92_737, 649_657)
    columns = {f"c{place}": {"range": [0, size - 1], "outside": "clamp"} for place, size in enumerate(sizes)}
    write_project(tmp_path, columns, epsilon=100, unit="p", max_records=3)
    seen = []

    def sparse(cells, values, *, size, scale, threshold):
        seen.append((dict(zip(cells.tolist(), values.tolist(), strict=True)), scale))
        return cells[:0].copy(), values[:0].copy()

    monkeypatch.setattr("sfumato.core.noise.add_sparse_noise", sparse)
    recipe = FieldGroups(table="t", groups=[[f"c{place}" for place in range(6)]], rows=1)
    for people in (["ana"] * 9 + ["ben"], ["ben"]):
        columns = {f"c{place}": pa.array([10**12 - i for i in range(len(people))]) for place in range(6)}
        pq.write_table(pa.table({"p": people, **columns}), tmp_path / "t.parquet")
        sf.open(tmp_path / "sfumato.toml").release(recipe, epsilon=1)
    (one, scale), (two, again) = seen
    assert scale == again == 3
    assert sum(abs(one.get(cell, 0) - two.get(cell, 0)) for cell in {*one, *two}) == 3
    assert max(one) == 2**63 - 2


def test_a_bound_that_is_not_enforced_is_caught(tmp_path, monkeypatch):
    original = engine_module.bounded_queries

    def unbounded(connection, table, columns, sealed):
        original(connection, table, columns, sealed)
        codes = ", ".join(f"c{place}" for place in range(len(columns)))
        return [f"SELECT {codes} FROM inside", f"SELECT {codes} FROM encoded"]

    monkeypatch.setattr(engine_module, "bounded_queries", unbounded)
    bench = Bench(tmp_path, monkeypatch, listed=4)
    heavy = [("somebody", 2.0, "y")] * 50
    assert measure_loss(bench, CROWD + heavy, CROWD, RECIPES["groups"]) > 10 * EPSILON


def test_a_split_that_gives_every_group_all_of_epsilon_is_charged_as_what_it_is(tmp_path, monkeypatch):
    original = FieldGroups._request

    def greedy(self, table, group, epsilon, *, name):
        return original(self, table, group, EPSILON, name=name)

    monkeypatch.setattr(FieldGroups, "_request", greedy)
    bench = Bench(tmp_path, monkeypatch)
    _, release = bench.record(CROWD, RECIPES["alone"])
    assert Fraction(release.certificate["total"]["epsilon"]) == 3 * EPSILON


class AskInTurn:
    """A recipe that asks its requests one by one, under an allowance."""

    kind, table = "in turn", "t"

    def to_record(self):
        return {"recipe": self.kind}

    def run(self, plan, *, progress):
        for request in plan.requests:
            yield (request,)
        return Product(table=pa.table({"one": [1]}))


@pytest.mark.parametrize("answered", [1, 2])
def test_a_kept_answer_in_which_nothing_passed_is_not_drawn_again(tmp_path, monkeypatch, answered):
    pq.write_table(pa.table({"c": [1, 2]}), tmp_path / "t.parquet")
    table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": {"c": {"range": [0, 99]}}})
    requests = tuple(
        Request(
            name=f"n{turn}", counted=OccupiedCells(("c",)), noise="laplace", scale=Fraction(2), threshold=500
        )
        for turn in range(3)
    )
    empty = np.empty(0, np.int64)
    kept = tuple(Measurement(request=each, noisy_values=empty, cells=empty) for each in requests[:answered])
    plan = Plan(
        recipe=AskInTurn(),
        table=table,
        requests=requests,
        epsilons=(Fraction(2),),
        delta=Fraction(0),
        allowance=(Cost(kind="pure", scale=Fraction(2), neighbours="add-remove", unit="row"),),
    )
    drawn = []

    def sparse(cells, values, *, size, scale, threshold):
        drawn.append(scale)
        return empty.copy(), empty.copy()

    monkeypatch.setattr("sfumato.core.noise.add_sparse_noise", sparse)
    engine = StatementEngine(tmp_path)
    with converse(plan, engine, kept=pack_measurements(kept)) as conversation:
        conversation.run()
    assert len(drawn) == 3 - answered


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "caught"), [(1, False), (Fraction(1, 3), True)])
@pytest.mark.parametrize("true_value", [0, 6])
def test_the_black_box_sees_a_wrong_sparse_noise_and_not_a_right_one(factor, caught, true_value):
    """Whether a cell passes, with the individual's records in it and without: once empty, once occupied.

    An empty cell becomes occupied by the individual alone: the two ways of drawing must not tell them apart.
    """
    runs, threshold = 200_000, 12
    scale = Fraction(MAX_RECORDS) * factor
    shares = []
    for value in (true_value, true_value + MAX_RECORDS):
        cells = np.arange(runs) if value else np.empty(0, np.int64)
        found, _ = add_sparse_noise(
            cells, np.full(cells.size, value), size=runs, scale=scale, threshold=threshold
        )
        shares.append(found.size / runs)
    high, low = max(shares), min(shares)
    # Bounds five standard errors wide: a false alarm in less than one of a million audits.
    lower = high - 5 * math.sqrt(high * (1 - high) / runs)
    upper = low + 5 * math.sqrt(max(low, 1 / runs) / runs)
    assert (math.log(lower / upper) > 1) == caught
    if not caught:
        assert math.log(high / low) > 0.9
