"""`sfumato init` and `sfumato describe`: from a raw file to a checked project file."""

import json
import tomllib
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.cli import run_main

CODES = {"ward": {"values": {"N": "North", "S": "South"}}, "age": {"min": 0, "max": 99}}


@pytest.fixture
def folder(tmp_path):
    rows = {"person": [1, 2, 3], "ward": ["N", "S", "S"], "age": [41, 17, 90], "paid": [True, False, True]}
    pq.write_table(pa.table(rows), tmp_path / "people.parquet")
    (tmp_path / "codes.json").write_text(json.dumps(CODES), encoding="utf-8")
    return tmp_path


def test_a_codebook_makes_a_project_file_that_is_ready(folder):
    draft = run_main(
        "init",
        "people.parquet",
        "--codebook",
        "codes.json",
        "--unit",
        "person",
        "--max-records",
        "1",
        cwd=folder,
    )
    (folder / "sfumato.toml").write_text(draft.stdout, encoding="utf-8")
    columns = tomllib.loads(draft.stdout)["tables"]["people"]["columns"]
    ward = {"values": ["N", "S"], "names": ["North", "South"], "nullable": True, "origin": "codes.json"}
    assert columns["ward"] == ward
    assert columns["age"]["range"] == [0, 99]
    assert columns["paid"]["values"] == [False, True]
    told = run_main("describe", "people", cwd=folder).stdout
    assert "0 to 99" in told
    assert "90" not in told.replace("0 to 99", "")
    tables = json.loads(run_main("describe", "--json", cwd=folder).stdout)["tables"]
    assert [row["column"] for row in tables["people"]] == ["person", "ward", "age", "paid"]
    run_main("doctor", cwd=folder)
    assert not (folder / "ledger.db").exists()


def test_a_unit_over_time_leaves_the_other_tables_described(tmp_path):
    (tmp_path / "visits.csv").write_text("person,month\na,1\n")
    table = 'source = "visits.csv"\nunit = {unit}\ncolumns.month.range = [1, 12]\n'
    over_time = table.format(unit='["person", "month"]\nmax_records = 2')
    by_row = table.format(unit='"row"')
    (tmp_path / "sfumato.toml").write_text(
        f"[budget]\nepsilon = 1\n[tables.monthly]\n{over_time}[tables.visits]\n{by_row}"
    )
    done = run_main("describe", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert list(found["tables"]) == ["visits"]
    assert "person x month" in found["left_out"]["monthly"]
    assert "not described: table 'monthly'" in done.stderr
    assert run_main("describe", "monthly", cwd=tmp_path, code=2).stdout == ""


def test_a_public_table_tells_the_rest(folder):
    last = pa.table({"ward": ["N", "E"] * 20, "age": list(range(20, 60))})
    pq.write_table(last, folder / "last.parquet")
    draft = run_main(
        "init", "people.parquet", "--codebook", "codes.json", "--public", "last.parquet", cwd=folder
    ).stdout
    assert 'origin = "codes.json"' in draft
    assert "last.parquet" not in draft  # the codebook comes first
    draft = run_main("init", "people.parquet", "--public", "last.parquet", cwd=folder).stdout
    kept = 'outside = "other", missing_label = "missing"'
    assert f'ward = {{ values = ["E", "N"], {kept}, origin = "last.parquet" }}' in draft


def test_with_epsilon_it_is_charged_to_the_ledger_of_the_draft(folder):
    draft = run_main(
        "init", "people.parquet", "--epsilon", "0.5", "--unit", "row", "--budget", "2", cwd=folder
    )
    (folder / "sfumato.toml").write_text(draft.stdout, encoding="utf-8")
    report = json.loads(run_main("budget", "--json", cwd=folder).stdout)
    assert report["total"] == "2"
    assert len(report["charges"]) >= 3
    assert "charged to the ledger" in draft.stderr


def test_without_a_unit_records_are_protected_and_names_are_not_asked_about(folder):
    draft = run_main("init", "people.parquet", "--epsilon", "0.5", "--budget", "2", cwd=folder)
    assert 'unit = "row"' in draft.stdout
    assert "# person names individuals" in draft.stdout
    assert "each RECORD is protected by itself" in draft.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--epsilon", "3", "--unit", "row"), 3, "is left"),
        (("--epsilon", "much", "--unit", "row"), 2, "epsilon"),
        (("--epsilon", "0.5", "--unit", "row", "--delta", "0"), 2, "delta above zero"),
    ],
)
def test_slips_cost_nothing(folder, arguments, code, message):
    told = run_main("init", "people.parquet", *arguments, cwd=folder, code=code)
    assert message in told.stderr
    assert not (folder / "ledger.db").exists()


@pytest.mark.parametrize("name", ["people.jsonl", "people.zip"])
def test_json_lines_are_drafted_from_the_records_too_packed_or_not(tmp_path, name):
    lines = "".join(f'{{"who": "p{place}", "region": "{"abc"[place % 3]}"}}\n' for place in range(900))
    if name == "people.zip":
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("people.jsonl", lines)
    else:
        (tmp_path / name).write_text(lines)
    arguments = ("init", name, "--epsilon", "50", "--unit", "who", "--max-records", "1")
    found = run_main(*arguments, "--budget", "60", cwd=tmp_path)
    assert 'region = { values = ["a", "b", "c"]' in found.stdout
    assert "the keys of the first line were taken for the names" in found.stderr


def test_a_file_without_a_header_is_noticed(tmp_path):
    (tmp_path / "people.csv").write_text("p0,North,13.44,2025-02-09\np1,South,2.5,2025-03-01\n")
    found = run_main("init", "people.csv", cwd=tmp_path)
    assert "2 of 4 names are numbers or dates, as in a record: is there a header line?" in found.stderr


def test_where_nothing_is_left_to_ask_the_draft_is_written_and_free(folder):
    asked = ("--codebook", "codes.json", "--epsilon", "0.5", "--unit", "person", "--max-records", "1")
    (folder / "codes.json").write_text(json.dumps({**CODES, "paid": {"values": [False, True]}}))
    draft = run_main("init", "people.parquet", *asked, cwd=folder)
    assert "nothing was spent" in draft.stderr
    assert set(tomllib.loads(draft.stdout)["tables"]["people"]["columns"]) == {"ward", "age", "paid"}
    assert not (folder / "ledger.db").exists()
