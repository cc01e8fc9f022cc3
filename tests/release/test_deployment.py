"""Certificates in others' forms: from the certificate alone, open where only the curator knows."""

import json

import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.release.deployment import OPEN, describe_deployment, write_checklist


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("deployment") / "out"
    rows = {"person": [1, 2, 2], "ward": ["N", "S", "S"]}
    curator = sf.from_frame(
        rows, unit="person", max_records=2, columns={"ward": ["N", "S"]}, epsilon=40, delta=1e-6
    )
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
