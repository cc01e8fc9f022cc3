"""Tries to get at one individual through statements, with each attack a fixture in fixtures/attacks.toml.

Two projects differ in one individual, whose records are as awkward as records can be. What must be
refused is refused before anything is read or spent. What may be answered asks both projects for the same
noise, on values that differ by no more than the plan declares.
"""

import math
import tomllib
import traceback
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.drawn import change_draws

ATTACKS = tomllib.loads((Path(__file__).parent / "fixtures" / "attacks.toml").read_text())["attack"]
NESTED = "DP-SELECT 1 COUNT(*) FROM people WHERE " + "(" * 3000 + "1 = 1" + ")" * 3000

PROJECT = """
[budget]
epsilon = 1000
delta = 1e-5
[tables.people]
source = "people.parquet"
unit = "p"
max_records = 3
[tables.people.columns.g]
values = ["a", "b", "c"]
[tables.people.columns.h]
range = [0, 23]
[tables.people.columns.x]
bounds = [0, 100]
[tables.visits]
source = "visits.csv"
unit = "person"
max_records = 2
[tables.lines]
source = "lines.csv"
references = {hour = "visits.hour"}
max_records = 2
[tables.lines.columns.size]
bounds = [0, 9]
[tables.zones]
public = true
source = "zones.csv"
[tables.codes]
public = true
source = "codes.csv"
[tables.days]
public = true
source = "days.parquet"
[tables.prices]
public = true
source = "prices.parquet"
"""
COLUMNS = {
    "p": pa.string(),
    "g": pa.string(),
    "h": pa.int64(),
    "x": pa.float64(),
    "area": pa.int64(),
    "note": pa.string(),
    "long": pa.string(),
    "day": pa.int32(),
}
CROWD = [
    (
        f"u{u}",
        "abc"[(u + r) % 3],
        (u + r) % 24,
        float((u * 7 + r) % 100),
        1 + (u + r) % 3,
        str(u % 50),
        "s",
        19_000 + u,
    )
    for u in range(1000)
    if u != 5
    for r in range(3)
]
# A date beyond every moment, text that is no number and long, a number that is no number.
SOMEBODY = [
    ("u5", "RAREDISEASE", 3, math.nan, 1, "private words", "s" * 1_000_000, 200_000_000),
    ("u5", "RAREDISEASE", -(2**63), math.inf, 2, "", None, -200_000_000),
    ("u5", "RAREDISEASE", None, 1e300, None, None, "\x00'\";--", None),
]
SECRETS = ("RAREDISEASE", "private words", "1e300", "1e+300", str(-(2**63)), "549550", "-200000000")


def write_project(folder, records, *, epsilon=1000):
    folder.mkdir(exist_ok=True)
    arrays = {
        name: pa.array([record[index] for record in records], kind)
        for index, (name, kind) in enumerate(COLUMNS.items())
    }
    arrays["day"] = arrays["day"].cast(pa.date32())
    pq.write_table(pa.table(arrays), folder / "people.parquet")
    visits = "".join(f"{record[0]},{(record[2] or 0) % 24}\n" for record in records)
    (folder / "visits.csv").write_text("person,hour\n" + visits)
    (folder / "lines.csv").write_text("hour,size\n" + "".join(f"{n % 30},{n}\n" for n in range(60)))
    (folder / "zones.csv").write_text("area,side\n1,north\n2,south\n2,south\n2,centre\n3,west\n")
    (folder / "codes.csv").write_text("note,tag\n1,x\n2,y\n")
    moments = pa.array([1_700_000_000_000_000], pa.timestamp("us"))
    pq.write_table(pa.table({"day": moments, "tag": ["x"]}), folder / "days.parquet")
    fine = pa.array([Decimal(1), Decimal(2)], pa.decimal128(38, 30))
    pq.write_table(pa.table({"h": fine}), folder / "prices.parquet")
    (folder / "sfumato.toml").write_text(PROJECT.replace("epsilon = 1000", f"epsilon = {epsilon}"))
    return folder


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory):
    root = tmp_path_factory.mktemp("attacks")
    with_somebody = write_project(root / "with", CROWD[:15] + SOMEBODY + CROWD[15:])
    return with_somebody, write_project(root / "without", CROWD)


class Recorder:
    """Stands in for the noise, and keeps what was about to be noised.

    With those that are `told`, it answers as these were answered.
    """

    def __init__(self, patch, told=()):
        self.requests, self.answered = [], []
        told = iter([values for *_, values in told])

        def keep(plan, true_aggregates, *source):
            self.answered.append((plan, true_aggregates))
            return original(plan, true_aggregates, *source)

        def add_noise(values, *, kind, scale):
            self.requests.append((kind, scale, values.shape, values.copy()))
            return next(told, values)

        def choose(kind):
            def draw(scores, *, rate):
                self.requests.append((kind, rate, scores.shape, scores.copy()))
                return next(told, scores).argmax(axis=1)

            return draw

        original = change_draws(patch, keep)
        patch.setattr("sfumato.core.noise.add_noise", add_noise)
        patch.setattr("sfumato.core.noise.exponential_choice", choose("exponential"))
        patch.setattr("sfumato.core.noise.permute_and_flip", choose("permute-and-flip"))


def send(folder, statement, monkeypatch, told=()):
    """What was recorded, the answer or the error, and what was spent, from an empty ledger."""
    (folder / "ledger.db").unlink(missing_ok=True)
    curator = sf.open(folder / "sfumato.toml")
    statement = statement.replace("{folder}", str(folder)).replace("{nested}", NESTED)
    with monkeypatch.context() as patch:
        recorder = Recorder(patch, told)
        try:
            result = curator.sql(statement)
        except Exception as error:
            result = error
    return recorder, result, curator.budget()


def assert_within_sensitivity(one, two):
    """Neighbours ask for the same noise, on values no further apart than the costs declare."""
    assert [plan.digest for plan, _ in one.answered] == [plan.digest for plan, _ in two.answered]
    fixed = all(plan.selection is None for plan, _ in one.answered)
    for first, second in zip(one.requests, two.requests, strict=True):
        assert first[:2] == second[:2]
        assert not fixed or first[2] == second[2]
    if fixed:
        costs = [cost for plan, _ in one.answered for cost in plan.costs]
        for (kind, scale, _, a), (_, _, _, b), cost in zip(one.requests, two.requests, costs, strict=True):
            difference = np.abs((a - b).astype(float))
            if kind in ("exponential", "permute-and-flip"):
                # Over all groups: twice the rate, times the most that a score of the group moves.
                assert 2 * float(scale) * difference.max(axis=1).sum() <= float(cost.scale) * (1 + 1e-12)
            else:
                assert scale == cost.scale
                distance = difference.sum() if cost.norm == "L1" else math.sqrt((difference**2).sum())
                assert distance <= float(cost.sensitivity)
        return
    for (plan, first), (_, second) in zip(one.answered, two.answered, strict=True):
        assert_open_groups(plan, first, second)


def assert_open_groups(plan, first, second):
    people = [
        dict(zip(each.true_keys, each.true_individuals.tolist(), strict=True)) for each in (first, second)
    ]
    lone = set(people[0]) ^ set(people[1])
    assert all(people[0].get(key, 0) + people[1].get(key, 0) == 1 for key in lone)
    keys = set(people[0]) | set(people[1])
    moved = sum(abs(people[0].get(key, 0) - people[1].get(key, 0)) for key in keys)
    assert moved <= plan.selection.cost.sensitivity
    for noise, a, b in zip(plan.noises, first.true_values, second.true_values, strict=True):
        pair = [dict(zip(each.true_keys, values, strict=True)) for each, values in ((first, a), (second, b))]
        shared = [float(pair[0][key]) - float(pair[1][key]) for key in keys - lone]
        distance = np.abs(shared).sum() if noise.kind == "laplace" else math.sqrt(np.square(shared).sum())
        assert distance <= float(noise.costs[0].sensitivity)


def assert_tells_nothing(error, statement):
    shown = "".join(traceback.format_exception_only(error))
    for secret in SECRETS:
        assert secret not in shown or secret in statement, secret


def _parameters(*expect):
    return [
        pytest.param(
            attack,
            id=attack["name"],
            marks=[pytest.mark.xfail(reason=attack["known"], strict=True)] if "known" in attack else [],
        )
        for attack in ATTACKS
        if attack["expect"] in expect
    ]


def test_the_attacks_are_many_and_named_once():
    names = [attack["name"] for attack in ATTACKS]
    assert len(names) == len(set(names)) >= 60
    assert {attack["expect"] for attack in ATTACKS} == {"refused", "safe", "beyond", "public", "steps"}


@pytest.mark.parametrize("attack", _parameters("refused", "beyond"))
def test_what_must_be_refused_is_refused_for_nothing(neighbours, monkeypatch, attack):
    statement = attack["statement"]
    results = [send(folder, statement, monkeypatch) for folder in neighbours]
    wanted = sf.BudgetExceeded if attack["expect"] == "beyond" else (sf.UnsupportedQuery, sf.RecipeError)
    for recorder, error, budget in results:
        assert isinstance(error, wanted), type(error)
        assert all(word in str(error) for word in attack["words"]), str(error)
        assert not recorder.answered
        assert budget.spent == 0
        assert_tells_nothing(error, statement)
    assert str(results[0][1]) == str(results[1][1])


@pytest.mark.parametrize("attack", _parameters("public"))
def test_public_facts_are_the_same_whatever_the_records(neighbours, monkeypatch, attack):
    (one, first, spent), (two, second, again) = (
        send(folder, attack["statement"], monkeypatch) for folder in neighbours
    )
    assert first.table.equals(second.table)
    assert not one.answered
    assert not two.answered
    assert spent.spent == again.spent == 0


@pytest.mark.parametrize("attack", _parameters("safe", "steps"))
def test_what_is_answered_is_answered_alike(neighbours, monkeypatch, attack):
    one, first, spent = send(neighbours[0], attack["statement"], monkeypatch)
    told = one.requests if attack["expect"] == "steps" else ()
    two, second, again = send(neighbours[1], attack["statement"], monkeypatch, told)
    for result in (first, second):
        assert not isinstance(result, Exception), result
    assert spent.spent == again.spent > 0
    assert spent.sums == again.sums
    assert first.table.schema == second.table.schema
    assert_within_sensitivity(one, two)


def test_the_recorder_notices_an_individual_who_is_not_bounded(neighbours, monkeypatch):
    from sfumato.core.engine import aggregates as execute

    original = execute._bound_rows

    def unbounded(connection, plan):
        return original(connection, replace(plan, unit=replace(plan.unit, max_records=10**6)))

    monkeypatch.setattr(execute, "_bound_rows", unbounded)
    joined = "DP-SELECT 1 SUM(a.h) FROM people a JOIN people b ON a.p = b.p JOIN people c ON a.p = c.p"
    folder = write_project(neighbours[0].parent / "many", [*CROWD, *[("u5", *CROWD[9][1:])] * 40])
    (one, _, _), (two, _, _) = (send(each, joined, monkeypatch) for each in (folder, neighbours[1]))
    with pytest.raises(AssertionError):
        assert_within_sensitivity(one, two)


def test_rare_groups_stay_hidden(neighbours):
    curator = sf.open(neighbours[0] / "sfumato.toml")
    (neighbours[0] / "ledger.db").unlink(missing_ok=True)
    for digit in range(1, 6):
        answer = curator.sql(
            f"DP-SELECT 2 DELTA 1e-{digit + 6} g || note AS k, COUNT(*) FROM people GROUP BY k"
        )
        assert not any("RARE" in key for key in answer.table["k"].to_pylist())
    listed = curator.sql("DP-SELECT 1 g, COUNT(*) FROM people GROUP BY g")
    assert listed.table["g"].to_pylist() == ["a", "b", "c"]


def test_averaging_gets_one_answer_however_it_is_spelt(tmp_path):
    curator = sf.open(write_project(tmp_path / "p", CROWD) / "sfumato.toml")
    first = curator.sql("DP-SELECT 0.5 COUNT(*) AS n FROM people WHERE h > 3")
    spellings = [
        "DP-SELECT 0.5 COUNT(*) AS n FROM people WHERE h > 3",
        "dp-select 0.5 count(*) as n from people where h > 3;",
        "DP-SELECT 0.50\n  COUNT( * ) AS n -- again\nFROM people\tWHERE h /* ! */ > 3",
        "DP_SELECT 5e-1 COUNT(*) AS n FROM PEOPLE WHERE H > 3",
        "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) COUNT(*) AS n FROM people WHERE h > 3",
    ]
    for spelling in spellings * 3:
        again = sf.open(tmp_path / "p" / "sfumato.toml").sql(spelling)
        assert again.repeated, spelling
        assert again.spent == 0
        assert again.table["n"].to_pylist() == first.table["n"].to_pylist()
    assert curator.budget().spent == Fraction(1, 2)


def test_differences_add_up_until_the_budget_stops_them(tmp_path):
    curator = sf.open(write_project(tmp_path / "p", CROWD + SOMEBODY, epsilon=3) / "sfumato.toml")
    for count in range(1, 7):
        curator.sql(f"DP-SELECT 0.5 COUNT(*) FROM people WHERE p <> 'u{count}'")
        assert curator.budget().spent == Fraction(count, 2)
    with pytest.raises(sf.BudgetExceeded, match="Nothing was spent"):
        curator.sql("DP-SELECT 0.5 COUNT(*) FROM people")
    assert curator.budget().spent == 3


def test_a_statement_that_fails_keeps_its_charge_and_its_secrets(tmp_path, monkeypatch):
    # Damage is found before a charge; what is damaged afterwards is not.
    monkeypatch.setattr("sfumato.core.door.check_whole", lambda path: None)
    folder = write_project(tmp_path / "p", CROWD + SOMEBODY)
    content = (folder / "people.parquet").read_bytes()
    middle = len(content) // 3
    (folder / "people.parquet").write_bytes(content[:middle] + b"\xff" * 4000 + content[middle + 4000 :])
    curator = sf.open(folder / "sfumato.toml")
    statement = "DP-SELECT 1 COUNT(DISTINCT note), COUNT(DISTINCT long), SUM(x) FROM people"
    with pytest.raises(sf.SourceError, match="The charge is kept") as caught:
        curator.sql(statement)
    assert_tells_nothing(caught.value, statement)
    assert curator.budget().spent == 1


UNIT_PROJECT = """
[budget]
epsilon = 1000
[tables.a]
source = "a.parquet"
unit = "p"
max_records = 1
[tables.b]
source = "b.parquet"
unit = "p"
max_records = 1
"""


@pytest.mark.parametrize(
    ("kinds", "people"),
    [
        ((pa.int64(), pa.decimal128(38, 10)), (2**53, 2**53 + 1)),
        ((pa.decimal128(38, 10), pa.decimal128(38, 10)), (Decimal("1"), Decimal("1.0000000001"))),
        ((pa.decimal128(38, 10), pa.decimal128(38, 10)), (Decimal(2**53), Decimal(2**53 + 1))),
    ],
)
def test_individuals_that_a_comparison_takes_for_one_stay_apart_in_a_join(
    tmp_path, monkeypatch, kinds, people
):
    """Numbers are compared as floats, which takes some different individuals for the same."""
    first, second = people
    counts = []
    for name, left, right in (("with", [first, second], [first]), ("without", [second], [])):
        folder = tmp_path / name
        folder.mkdir()
        for source, kind, held in (("a", kinds[0], left), ("b", kinds[1], right)):
            pq.write_table(pa.table({"p": pa.array(held, kind)}), folder / f"{source}.parquet")
        (folder / "sfumato.toml").write_text(UNIT_PROJECT)
        recorder, result, _ = send(folder, "DP-SELECT 1 COUNT(*) FROM a JOIN b ON a.p = b.p", monkeypatch)
        assert not isinstance(result, Exception), result
        counts.append(int(recorder.requests[0][3][0]))
    assert abs(counts[0] - counts[1]) <= 1
