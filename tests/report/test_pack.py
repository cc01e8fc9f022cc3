"""Certificates in others' forms: from the certificate alone, open where only the curator knows."""

import html
import json
import math
import os
import re
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.core.errors import ReleaseError, SchemaError, VerificationFailed
from sfumato.core.facts.project import parse_project
from sfumato.curator import Curator
from sfumato.report.pack import (
    OPEN,
    describe_csvw,
    describe_deployment,
    find_group_errors,
    print_writeup,
    write_checklist,
    write_pack,
)
from sfumato.tables.codebook import read_codebook, read_csvw_unit

JUDGES = (
    Path(os.environ.get("SFUMATO_CLIENTS", Path(__file__).parents[2] / ".venv-clients")) / "judges/bin/python"
)
FILES = {
    "certificate.json",
    "checklist.md",
    "decision.html",
    "hipaa-expert-determination.md",
    "iso-iec-27559.md",
    "metadata.csvw.json",
    "opinion-05-2014.md",
    "registry.json",
    "results.json",
    "table.csv",
    "writeup.html",
    "writeup.md",
}


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
    assert text.count(OPEN) == 2


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


def test_errors_of_groups_follow_from_the_noise(folder):
    (ward,) = find_group_errors(folder)
    scale = 2 / 20  # of Laplace noise, for two records each at epsilon 20
    assert (ward.column, ward.groups) == ("ward", 2)
    assert ward.half <= math.ceil(scale * math.log(1 / 0.05)) + 1
    assert "ward (2 groups): +-" in write_checklist(folder)


def test_small_groups_are_named_as_weak(tmp_path):
    rows = {"ward": ["N"] * 5_000 + ["S"] * 5}
    facts = {"unit": "row", "columns": {"ward": ["N", "S"]}}
    curator = sf.from_frame(rows, **facts, epsilon=1, ledger=tmp_path / "ledger.db")
    curator.release(sf.recipes.CellCounts(table="t", by=("ward",)), epsilon="0.1", out=tmp_path / "out")
    (ward,) = find_group_errors(tmp_path / "out")
    assert ward.weak == ("S",)
    write_pack(tmp_path / "out", tmp_path / "pack")
    assert "<td>S</td>" in (tmp_path / "pack" / "decision.html").read_text()


def test_a_pack_claims_what_was_checked_and_leaves_the_rest_open(folder, tmp_path):
    files, left = write_pack(folder, tmp_path / "pack", stated={"recipient": "a <b>university</b>"})
    pack = {each.name: each.read_text() for each in (tmp_path / "pack").iterdir()}
    assert set(files) == set(pack) == FILES
    assert left == sum(text.count(OPEN) for text in pack.values()) > 20
    page = pack["decision.html"]
    assert "a &lt;b&gt;university&lt;/b&gt;" in page
    assert "consistent" in page
    assert "No link with another table was tried" in page
    assert "http" not in page.split("</style>")[1]
    for name in ("opinion-05-2014.md", "hipaa-expert-determination.md", "iso-iec-27559.md"):
        assert "a <b>university</b>" in pack[name]
        assert "No link" in pack[name]
    with_ledger = tmp_path / "verified"
    write_pack(folder, with_ledger, ledger=folder.with_name("ledger.db"))
    assert "its charge is in the ledger" in (with_ledger / "decision.html").read_text()


def test_what_was_tried_is_told_in_counts(folder, tmp_path):
    tried = {
        "records": 3,
        "people": 4,
        "linked": 1,
        "linked_share": 0.25,
        "matches": {"unique": 2, "few": 0, "many": 1, "none": 0},
        "truth": None,
        "on": ["ward"],
        "shown": [{"person": "Ann"}],
    }
    path = tmp_path / "link.json"
    path.write_text(json.dumps(tried))
    write_pack(folder, tmp_path / "pack", attack=path)
    text = (tmp_path / "pack" / "opinion-05-2014.md").read_text()
    assert "of 3 records 2 fit exactly one person, and 1 people (25 %)" in text
    assert "was not compared with the truth" in text
    assert all("Ann" not in each.read_text() for each in (tmp_path / "pack").iterdir())
    path.write_text("[]")
    with pytest.raises(ReleaseError, match="attack link"):
        write_pack(folder, tmp_path / "other", attack=path)


def test_a_pack_replaces_packs_alone_and_only_of_what_verifies(folder, tmp_path):
    out = tmp_path / "pack"
    run_main("export", str(folder), "--pack", str(out))
    assert "already" in run_main("export", str(folder), "--pack", str(out), code=1).stderr
    document = json.loads(run_main("export", str(folder), "--pack", str(out), "--force", "--json").stdout)
    assert document["open"] > 0
    assert "decision.html" in document["files"]
    (out / "letter.txt").write_text("mine")
    assert "not part" in run_main("export", str(folder), "--pack", str(out), "--force", code=1).stderr
    run_main("export", str(folder), "--attack", "link.json", code=2)
    broken = tmp_path / "broken"
    broken.mkdir()
    for each in folder.iterdir():
        (broken / each.name).write_bytes(each.read_bytes())
    (broken / "table.csv").write_text("ward,count\nN,7\n")
    with pytest.raises(VerificationFailed):
        write_pack(broken, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_printed_writeup_has_every_line_and_cites_its_claims(folder):
    page = print_writeup(folder).decode()
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    for line in (folder / "writeup.md").read_text().split("\n"):
        plain = re.sub(r"[`*]|^#+ |^- ", "", line)
        assert all(part.strip() in text for part in plain.split("|") if set(part) - set("-")), line
    assert "<th>the recipe</th><td>C44</td>" in page
    assert "<th>bounds</th><td>C31</td>" in page
    assert "<td>C6, C7 and C20</td>" in page
    assert "<th>the ledger</th><td>C15</td>" in page


COLUMNS = {
    "ward": ["N", "S"],
    "age": {"range": [0, 110]},
    "fee": {"bins": [0, "0.5", 10]},
    "year": {"from": "seen", "period": "year", "range": [2019, 2021]},
    "works": {"values": [True, False], "outside": "other"},
}


def test_public_facts_go_out_as_csvw_and_come_back(tmp_path):
    rows = {"person": [1], "ward": ["N"], "age": [3], "fee": [1.5], "seen": ["2020-01-03"], "works": [True]}
    facts = {"unit": "person", "max_records": 2, "columns": COLUMNS}
    curator = sf.from_frame(rows, **facts, epsilon=1, ledger=tmp_path / "ledger.db")
    curator.release(sf.recipes.CellCounts(table="t", by=("ward",)), epsilon=1, out=tmp_path / "out")
    found = describe_csvw(tmp_path / "out")
    columns = {each["name"]: each for each in found["tableSchema"]["columns"]}
    assert (found["privacyUnit"], found["maxContributions"]) == ("person", 2)
    assert columns["person"]["privacyId"] is True
    (tmp_path / "t.json").write_text(json.dumps(found))
    assert read_csvw_unit(tmp_path / "t.json") == ("person", 2)
    known = read_codebook(tmp_path / "t.json")
    assert known["person"].identifier
    assert known["ward"].values == ("N", "S")
    if "age" in columns:
        assert (known["age"].low, known["age"].high) == (0, 110)
    (tmp_path / "t.json").write_text("[]")
    with pytest.raises(SchemaError, match="CSVW"):
        read_csvw_unit(tmp_path / "t.json")


def test_init_reads_csvw_metadata(tmp_path):
    pq.write_table(
        pa.table({"who": ["a"], "ward": ["N"], "age": [3], "day": ["2020-01-01"]}), tmp_path / "t.parquet"
    )
    predicate = [{"predicate": {"lowerBound": low, "upperBound": low + 50}} for low in (0, 50)]
    columns = [
        {"name": "who", "datatype": "string", "privacyId": True},
        {"name": "ward", "datatype": "string", "keyValues": ["N", "S"], "required": True},
        {"name": "age", "datatype": "unsignedByte", "partitions": predicate},
        {"name": "day", "datatype": "date", "minimum": "2020-01-01", "maximum": "2020-12-31"},
    ]
    document = {"privacyUnit": "who", "maxContributions": 4, "tableSchema": {"columns": columns}}
    (tmp_path / "csvw.json").write_text(json.dumps(document))
    drafted = run_main("init", "t.parquet", "--csvw", "csvw.json", cwd=tmp_path).stdout
    assert 'unit = "who"' in drafted
    assert "max_records = 4" in drafted
    assert 'ward = { values = ["N", "S"]' in drafted
    assert "age = { range = [0, 100]" in drafted
    assert '["2020-01-01", "2020-12-31"]' in drafted


@pytest.mark.slow
def test_others_load_the_record_and_the_metadata(folder, tmp_path):
    if not JUDGES.exists():
        pytest.skip("ACRO and csvw-eo are not installed in .venv-clients/judges: make clients")
    write_pack(folder, tmp_path / "pack")
    script = """
import json, sys, types, importlib.util, pathlib
from acro.record import load_records
(record,) = load_records(sys.argv[1]).results.values()
# The package's own front loads converters that need other libraries; the model of the metadata does not.
place = pathlib.Path(importlib.util.find_spec("csvw_eo").origin).parent
front = types.ModuleType("csvw_eo")
front.__path__ = [str(place)]
sys.modules["csvw_eo"] = front
from csvw_eo.validate_metadata import validate_metadata
table = validate_metadata(json.load(open(sys.argv[1] + "/metadata.csvw.json")))
names = [each.name for each in table.columns]
print(json.dumps([record.status, len(record.output[0]), table.privacy_unit, names]))
"""
    done = subprocess.run(
        [JUDGES, "-c", script, tmp_path / "pack"], capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(done.stdout) == ["review", 2, "person", ["person", "ward"]]
