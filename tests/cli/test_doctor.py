"""`sfumato doctor`: what a description does not read of a table is seen before anything is paid for."""

import json
import tomllib
from pathlib import Path

import pytest

import sfumato as sf
from helpers.cli import run_main
from helpers.projects import project_text
from sfumato.core.engine.encode import hide_failures
from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.project import parse_project

PROJECT = project_text(
    {
        "clinic": {"values": ["North", "Süd"]},
        "month": {"from": "visited", "period": "month"},
        "fee": {"bins": [0, 50, 100]},
    },
    table="visits",
    source="visits.csv",
    unit="person",
    epsilon=1,
    max_records=2,
)


@pytest.fixture
def folder(tmp_path):
    lines = ["person;clinic;visited;fee"]
    lines += [f"{n % 4};{'Süd' if n % 2 else 'North'};{n % 12 + 1:02}/28/2025;{n},50" for n in range(20)]
    lines += [";North;;", "9;South;;300,0"]
    (tmp_path / "visits.csv").write_bytes("\n".join(lines).encode("latin-1"))
    (tmp_path / "sfumato.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def run(folder, *arguments, code=0):
    return run_main("doctor", *arguments, cwd=folder, code=code)


def test_what_is_not_read_is_counted_and_advised(folder):
    done = run(folder, "--json")
    (table,) = json.loads(done.stdout)["tables"]
    assert "not for publication" in table["internal"]
    assert (table["records"], table["nobody"], table["individuals"], table["over_max_records"]) == (
        22,
        1,
        5,
        4,
    )
    clinic, month, fee = table["columns"]
    assert (clinic["inside"], clinic["outside"], clinic["changed"]) == (11, 11, 10)
    assert "encoding" in clinic["advice"]
    assert (month["missing"], month["unread"], month["inside"]) == (2, 20, 0)
    assert month["advice"].startswith('format = "%m/%d/%Y"')
    assert (fee["missing"], fee["unread"]) == (1, 21)
    assert fee["advice"].startswith('decimal = ","')
    assert not (folder / "ledger.db").exists()


def test_a_mended_description_reads_everything(folder):
    project = PROJECT.replace("max_records = 2", 'max_records = 2\nencoding = "latin-1"')
    project = project.replace('period = "month"', 'period = "month"\nformat = "%m/%d/%Y"')
    (folder / "sfumato.toml").write_text(project + 'decimal = ","\n', encoding="utf-8")
    (table,) = json.loads(run(folder, "visits", "--json").stdout)["tables"]
    clinic, month, fee = table["columns"]
    assert (clinic["inside"], clinic["outside"], clinic["changed"]) == (21, 1, 0)
    assert (month["inside"], month["unread"]) == (20, 0)
    assert (fee["inside"], fee["outside"], fee["unread"]) == (20, 1, 0)


def test_what_lies_beyond_a_range_or_bounds_is_counted(tmp_path):
    days = [f"2025-{each + 1:02}-28" for each in range(12)]
    lines = ["seen,fee,day", *(f"{day},{place * 10},{place + 1}/2/2025" for place, day in enumerate(days))]
    (tmp_path / "t.csv").write_text("\n".join([*lines, ",,"]))
    columns = {
        "seen": {"range": ["2025-03-01", "2025-12-28"]},
        "fee": {"bounds": [0, 100]},
        "day": {"range": ["2025-01-01", "2025-12-31"]},
    }
    (tmp_path / "sfumato.toml").write_text(project_text(columns, source="t.csv"))
    (table,) = json.loads(run(tmp_path, "--json").stdout)["tables"]
    seen, fee, day = table["columns"]
    assert (seen["missing"], seen["outside"], seen["inside"]) == (1, 2, 10)
    assert seen["advice"] == "15% of the records lie beyond it: widen it"
    assert (fee["missing"], fee["outside"], fee["inside"]) == (1, 1, 11)
    assert (day["unread"], day["advice"]) == (12, 'format = "%m/%d/%Y" reads 12 of them')


def test_months_without_a_day_are_advised(tmp_path):
    (tmp_path / "t.csv").write_text("seen\n2019-01\n2019-02\n")
    columns = {"month": {"from": "seen", "period": "month"}}
    found = []
    for form in ({}, {"format": "%Y-%m"}):
        columns["month"] |= form
        (tmp_path / "sfumato.toml").write_text(project_text(columns, source="t.csv"))
        ((month,),) = [each["columns"] for each in json.loads(run(tmp_path, "--json").stdout)["tables"]]
        found.append((month["unread"], month["inside"], month["advice"]))
    assert found == [(2, 0, 'format = "%Y-%m" reads 2 of them'), (0, 2, "")]


def test_every_output_says_that_it_is_internal(folder):
    done = run(folder)
    assert "INTERNAL" in done.stdout
    assert "Do not publish" in done.stderr
    run(folder, "nothing", code=2)


def write_regions(folder, lines, *, more=""):
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    columns = {"region": {"values": ["a", "b", "c"]}}
    (folder / "sfumato.toml").write_text(project_text(columns, source="t.csv", more=more))


def test_lines_that_are_no_record_are_counted(tmp_path):
    lines = ["region", *["a"] * 40, '"b', *["c"] * 9]
    write_regions(tmp_path, lines)
    found = run(tmp_path).stdout
    assert "40 records" in found
    assert "50 lines after the header, 10 more than records" in found
    write_regions(tmp_path, [*lines[:41], ""])
    assert "lines after the header" not in run(tmp_path).stdout


def test_lines_that_leave_a_quote_open_are_counted_and_advised(tmp_path):
    write_regions(tmp_path, ["region", "a", '"b', 'c"', '12" pipe', '"a"'], more='quoting = "line"')
    (table,) = json.loads(run(tmp_path, "--json").stdout)["tables"]
    assert (table["lines"], table["records"], table["open_quotes"]) == (5, 5, 1)
    found = run(tmp_path).stdout
    assert "1 lines open a quote" in found
    assert "leave quoting out" in found
    write_regions(tmp_path, ["region", '"b', 'c"'], more='quoting = "none"')
    assert "open a quote" not in run(tmp_path).stdout


@pytest.mark.parametrize(
    ("unit", "lines"), [("row", ["region", "a,", "b,"]), ("p", ["region,p", "a,", "b,"])]
)
def test_a_table_of_which_no_record_counts_is_no_success(tmp_path, unit, lines):
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    facts = {} if unit == "row" else {"max_records": 2}
    columns = {"region": {"values": ["a", "b"]}}
    (tmp_path / "sfumato.toml").write_text(project_text(columns, source="t.csv", unit=unit, **facts))
    for arguments in ((), ("--json",)):
        done = run(tmp_path, *arguments, code=1)
        assert "NO RECORD COUNTS of t" in done.stderr
        assert done.stdout


def test_what_missing_values_lose_is_counted_for_all_columns_together(tmp_path):
    """A nullable column can be examined; a blank elsewhere loses the whole record, and doctor says so."""
    lines = [
        "id,age,sex,asked",
        *(f"{n},{n or ''},{'FM'[n % 2]},{'' if n % 4 else 'yes'}" for n in range(80)),
    ]
    (tmp_path / "t.csv").write_text("\n".join([*lines, ",3,F,yes", "90,3,,yes"]))
    columns = {
        "age": {"bins": [0, 40, 80], "nullable": True},
        "sex": {"values": ["F", "M"]},
        "asked": {"values": ["yes"]},
    }
    (tmp_path / "sfumato.toml").write_text(project_text(columns, source="t.csv", unit="id", max_records=1))
    recipe = {"all": '["age", "sex", "asked"]', "two": '["age", "sex"]'}
    for name, by in recipe.items():
        (tmp_path / f"{name}.toml").write_text(f'recipe = "cell-counts"\ntable = "t"\nby = {by}\n')
    (table,) = json.loads(run(tmp_path, "--json").stdout)["tables"]
    assert (table["counting"], table["lost"]) == (20, {"age": 0, "sex": 1, "asked": 60})
    advice = [each["advice"] for each in table["columns"]]
    assert advice == ["", "", "73% have no value and are left out: nullable = true keeps them"]
    assert [each["missing"] for each in table["columns"]] == [1, 1, 60]
    (table,) = json.loads(run(tmp_path, "two.toml", "--json").stdout)["tables"]
    assert (table["counting"], table["lost"]) == (80, {"age": 0, "sex": 1})
    told = " ".join(run(tmp_path, "all.toml").stdout.split())
    assert "20 of 82 records count where all 3 columns are asked about together; 60 lost to asked, 1" in told
    assert "keep missing as a value: nullable = true" in told


def test_texts_that_differ_in_case_and_spaces_are_noticed_and_no_record_that_counts_is_loud(tmp_path):
    (tmp_path / "t.csv").write_text("place\n" + "OLD TOWN\nOld Town \n" * 5)
    column = {"place": {"values": ["Old Town", "Harbour"]}}
    (tmp_path / "sfumato.toml").write_text(project_text(column, source="t.csv", unit="row"))
    found = run(tmp_path)
    assert "NO RECORD COUNTS: 0 of 10 records" in " ".join(found.stdout.split())
    (tmp_path / "r.toml").write_text('recipe = "cell-counts"\ntable = "t"\nby = ["place"]\n')
    run(tmp_path, "r.toml", code=1)
    (table,) = json.loads(run(tmp_path, "--json").stdout)["tables"]
    assert table["columns"][0]["advice"].startswith("10 more match if case and spaces are ignored")


def test_a_fault_of_the_description_is_never_hidden():
    with pytest.raises(SchemaError, match="nullable needs"), hide_failures("the source"):
        raise SchemaError("nullable needs a label")
    with pytest.raises(SourceError, match="could not be read"), hide_failures("the source"):
        raise ValueError("ana")


def test_what_the_bound_cuts_and_who_repeats_is_told(tmp_path):
    lines = ["person_id,ward", *(f"{n // 4},{'A' if n % 8 else ''}" for n in range(24))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    columns = {"ward": {"values": ["A"]}}
    (tmp_path / "sfumato.toml").write_text(
        project_text(columns, source="t.csv", unit="person_id", max_records=2), encoding="utf-8"
    )
    # Six people of four records each; three of them have three in the domain.
    told = run(tmp_path).stdout
    assert "6 individuals, 6 with more than max_records, whose further 9 records (37.5%) are cut" in told
    (tmp_path / "sfumato.toml").write_text(project_text(columns, source="t.csv"), encoding="utf-8")
    assert "person_id repeats as names of people do" in run(tmp_path).stdout
    (tmp_path / "t.csv").write_text("\n".join([lines[0], *(f"{n},A" for n in range(24))]), encoding="utf-8")
    assert json.loads(run(tmp_path, "--json").stdout)["tables"][0]["repeating"] is None


def test_loose_matching_reads_what_doctor_says_it_does(tmp_path):
    spelled = ["theft", "THEFT", " Theft ", "robbery", "ROBBERY", "arson", "", "theft!"]
    lines = ["person,kind", *(f"{n},{text}" for n, text in enumerate(spelled))]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    kind = {"values": ["Theft", "robbery"], "outside": "other"}

    def describe(**keys):
        text = project_text({"kind": kind | keys}, source="t.csv", unit="person", max_records=1, epsilon=900)
        (tmp_path / "sfumato.toml").write_text(text, encoding="utf-8")
        return json.loads(run(tmp_path, "--json").stdout)["tables"][0]["columns"][0]

    exact, loose = describe(), describe(match="loose")
    assert (exact["inside"], exact["outside"], exact["missing"]) == (1, 6, 1)
    assert exact["advice"].startswith('4 more match if case and spaces are ignored: match = "loose"')
    assert (loose["inside"], loose["outside"], loose["missing"]) == (5, 2, 1)
    assert loose["advice"] == ""
    curator = sf.open(tmp_path / "sfumato.toml")
    # At so large an epsilon noise is 0 but for a chance of e^-100.
    counted = curator.sql("DP-SELECT 100 kind, COUNT(*) AS n FROM t GROUP BY kind")
    assert counted.table["n"].to_pylist() == [3, 2, 3]  # the blank is no listed value, too
    chosen = curator.sql("DP-SELECT 100 COUNT(*) AS n FROM t WHERE kind = 'Theft'")
    assert chosen.table["n"].to_pylist() == [3]


def test_loose_matching_is_refused_where_it_could_not_tell_values_apart():
    for columns in (
        {"kind": {"values": ["a", "A "], "match": "loose"}},
        {"kind": {"values": [1, 2], "match": "loose"}},
        {"kind": {"range": [1, 9], "match": "loose"}},
    ):
        with pytest.raises(SchemaError, match="match = 'loose'"):
            parse_project(tomllib.loads(project_text(columns, source="t.csv")), folder=Path())
