"""Certificates in others' forms: from the certificate alone, open where only the curator knows."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.core.facts.project import parse_project
from sfumato.curator import Curator
from sfumato.release.verification import OPEN, describe_deployment, write_checklist


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("deployment") / "out"
    rows = {"person": [1, 2, 2], "ward": ["N", "S", "S"]}
    facts = {"unit": "person", "max_records": 2, "columns": {"ward": ["N", "S"]}}
    curator = sf.from_frame(rows, **facts, epsilon=40, delta=1e-6, ledger=out.with_name("ledger.db"))
    curator.release(sf.recipes.CellCounts(table="t", by=("ward",)), epsilon=20, out=out)
    return out


def test_every_field_is_filled_or_open_by_name(folder):
    entry = describe_deployment(folder, curator="City")
    assert set(entry) == {"product", "privacy", "accounting", "data", "implementation"}
    assert entry["product"]["curator"] == "City"
    assert entry["product"]["contact"] == OPEN
    assert entry["privacy"]["epsilon"] == "20"
    assert "at most 2 records" in entry["privacy"]["contribution"]
    assert entry["accounting"]["measurements"][0]["sensitivity"] == "2"
    assert entry["data"]["domain"]["ward"]["values"] == ["N", "S"]


def test_a_large_epsilon_is_said_to_be_large(folder):
    text = write_checklist(folder, rationale="a | test")
    assert "above 10" in text
    assert "a \\| test" in text
    assert text.count(OPEN) == 3


def test_the_command_prints_both(folder):
    entry = json.loads(run_main("export", str(folder), "--state", "curator=City").stdout)
    assert entry["product"]["curator"] == "City"
    assert run_main("export", str(folder), "--checklist").stdout.startswith("# Checklist")
    assert "checklist" in json.loads(run_main("export", str(folder), "--checklist", "--json").stdout)
    run_main("export", str(folder), "--state", "curator", code=2)
    run_main("export", "gone", code=1)


def test_counts_that_are_released_as_they_are_stand_in_the_checklist(tmp_path):
    columns = {"ward": ["N", "S"]}
    rows = {"ward": ["N", "S", "S"]}
    curator = sf.from_frame(rows, unit="row", columns=columns, epsilon=40, ledger=tmp_path / "ledger.db")
    recipe = sf.recipes.Hierarchy(table="t", column="ward", levels=("total", "ward"), known={"total": 3})
    curator.release(recipe, epsilon=1, out=tmp_path / "out")
    entry = describe_deployment(tmp_path / "out")
    assert entry["data"]["unprotected"] == ["counts of total, declared as known"]
    assert entry["privacy"]["unit"] == "one record"
    assert "| counts of total, declared as known |" in write_checklist(tmp_path / "out")


def test_a_unit_over_time_is_said_to_be_one(tmp_path):
    rows = {"person": [1, 2, 2], "ward": ["N", "S", "S"], "month": ["May", "May", "June"]}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    columns = {name: {"values": sorted(set(rows[name]))} for name in ("ward", "month")}
    table = {"source": "t.parquet", "unit": ["person", "month"], "max_records": 2, "columns": columns}
    project = parse_project({"budget": {"epsilon": 40}, "tables": {"t": table}}, folder=tmp_path)
    Curator(project).release(sf.recipes.CellCounts(table="t", by=("ward",)), epsilon=1, out=tmp_path / "out")
    unit = describe_deployment(tmp_path / "out")["privacy"]["unit"]
    assert unit == "the records of one month that share a value of person, not those of all"
