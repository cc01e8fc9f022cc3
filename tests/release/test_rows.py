"""Rows on request: drawn from a released model given a condition, at no cost."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.core.errors import ReleaseError, SfumatoError

COLUMNS = {
    "age": {"range": [0, 99]},
    "region": ["north", "south", "east"],
    "income": {"bins": list(range(0, 60_001, 5_000))},
    "works": {"values": ["no", "yes"]},
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(1)
    age = random.integers(0, 100, 5_000)
    region = np.where(age > 60, "north", np.where(random.random(5_000) < 0.3, "south", "east"))
    income = np.clip(age * 500 + random.normal(0, 4_000, 5_000), 0, 59_999)
    works = np.where((age > 20) & (age < 65), "yes", "no")
    rows = {"age": age, "region": region.tolist(), "income": income, "works": works.tolist()}
    curator = sf.from_frame(
        rows, unit="row", columns=COLUMNS, epsilon=8, delta=1e-9, ledger=folder / "ledger.db"
    )
    recipe = sf.recipes.Tree(table="t")
    return curator.release(recipe, epsilon=["1", "6"], delta=1e-9, out=folder / "out")


@pytest.fixture(scope="module")
def model(release):
    return sf.open_release(release.folder, epsilon=6)


def test_rows_fit_their_condition(model):
    table = model.sample("age >= 65 AND region = 'north'", rows=1_000)
    assert table.num_rows == 1_000
    assert table.column_names == ["age", "region", "income", "works"]
    assert set(table["region"].to_pylist()) == {"north"}
    assert min(table["age"].to_pylist()) >= 65
    either = model.sample("age < 10 OR NOT region = 'north'", rows=500).to_pylist()
    assert all(row["age"] < 10 or row["region"] != "north" for row in either)
    assert {row["age"] < 10 for row in either} == {True, False}


@pytest.mark.parametrize("where", ["region = 'south'", "works = 'yes' AND income >= 20000", None])
def test_rows_have_the_law_of_the_model_given_the_condition(model, where):
    """Shares of every value are those that the model states, within five deviations of independent rows."""
    count = 20_000
    table = model.sample(where, rows=count)
    for name in ("region", "works"):
        clause = "" if where is None else f" WHERE {where}"
        stated = model.sql(f"SELECT {name}, COUNT(*) AS n FROM t{clause} GROUP BY {name}").table.to_pylist()
        total = sum(max(0.0, row["n"]) for row in stated)
        drawn = table[name].to_pylist()
        for row in stated:
            share = max(0.0, row["n"]) / total
            allowed = 5 * math.sqrt(share * (1 - share) / count) + 1e-3
            assert drawn.count(row[name]) / count == pytest.approx(share, abs=allowed)


def test_by_default_there_are_as_many_as_the_model_expects(model):
    (expected,) = model.sql("SELECT COUNT(*) AS n FROM t WHERE region = 'east'").table["n"].to_pylist()
    assert model.sample("region = 'east'").num_rows == round(expected)


def test_the_same_seed_gives_the_same_rows(model):
    asked = {"where": "region = 'east'", "rows": 50}
    first, again, other = (model.sample(**asked, seed=seed) for seed in (7, 7, 8))
    assert first.equals(again)
    assert not first.equals(other)


def test_a_condition_without_evidence_is_said_to_have_none(model):
    with pytest.warns(UserWarning, match=r"noise alone explains|no interval"):
        model.sample("age > 97 AND region = 'south' AND works = 'yes' AND income < 10000", rows=3)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("age > 200", "no row that fits"),
        ("nope = 1", "no column 'nope'"),
        ("1 = 1 GROUP BY age", "condition alone"),
        ("TRUE LIMIT 3", "condition alone"),
        ("age >", "cannot be parsed"),
        ("TRUE; DROP TABLE t", "statement"),
    ],
)
def test_what_is_no_condition_is_refused(model, where, said):
    with pytest.raises(SfumatoError, match=said):
        model.sample(where, rows=3)


@pytest.mark.parametrize("rows", [-1, 2.5, True, 2**62])
def test_a_number_of_rows_is_whole_and_bounded(model, rows):
    with pytest.raises(SfumatoError, match="number of rows"):
        model.sample("region = 'east'", rows=rows)


def test_rows_obey_the_rules_and_keep_types(tmp_path):
    rows = {"kind": ["a", "b"] * 500, "whole": [1, 2] * 500, "sure": [True, False] * 500}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    (tmp_path / "sfumato.toml").write_text(
        '[budget]\nepsilon = 9\ndelta = 1e-9\n[tables.t]\nsource = "t.parquet"\nunit = "row"\n'
        "impossible = [\"kind = 'a' and whole = 3\"]\n[tables.t.columns]\n"
        'kind = { values = ["a", "b"] }\nwhole = { range = [1, 3] }\nsure = { values = [true, false] }\n'
    )
    curator = sf.open(tmp_path / "sfumato.toml")
    release = curator.release(sf.recipes.Tree(table="t"), epsilon="0.1", delta=1e-9, out=tmp_path / "out")
    table = release.sample("kind = 'a'", rows=300, seed=3)
    assert 3 not in table["whole"].to_pylist()
    assert [each.type for each in table.schema] == [each.type for each in release.table.schema]


def test_a_release_is_sampled_in_memory(release, model):
    assert release.sample("region = 'east'", rows=9, epsilon=6).equals(
        model.sample("region = 'east'", rows=9)
    )


def test_a_release_without_a_model_has_no_rows_to_give(tmp_path):
    curator = sf.from_frame(
        {"a": ["x"]}, unit="row", columns={"a": ["x", "y"]}, epsilon=1, ledger=tmp_path / "ledger.db"
    )
    release = curator.release(sf.recipes.CellCounts(table="t", by=("a",)), epsilon=1, out=tmp_path / "out")
    with pytest.raises(ReleaseError, match="no model"):
        release.sample("a = 'x'", rows=3)


def test_the_command_prints_csv_json_or_writes_a_file(release, tmp_path):
    asked = ("rows", str(release.folder), "--where", "age >= 65", "-n", "5", "--epsilon", "6")
    printed = run_main(*asked).stdout
    assert printed.splitlines()[0] == "age,region,income,works"
    assert len(printed.splitlines()) == 6
    found = json.loads(run_main(*asked, "--json").stdout)
    assert found["rows"] == len(found["synthetic rows"]["age"]) == 5
    run_main(*asked, "--out", str(tmp_path / "rows.parquet"))
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 5
    assert "exists" in run_main(*asked, "--out", str(tmp_path / "rows.parquet"), code=1).stderr
    assert "epsilon" in run_main("rows", str(release.folder), "-n", "5", code=None).stderr
