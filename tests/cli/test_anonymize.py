"""`sfumato anonymize`, called as the command line calls it."""

import csv
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from helpers.cli import invoke
from sfumato.anonymity.summary import INTERNAL
from sfumato.audit.demonstrations import invent_town
from sfumato.core.errors import SfumatoError

DOOR = sys.modules["sfumato.anonymity.release"]
NOT_DP = "k-anonymity, not differential privacy"
QUASI = ("age", "sex", "postcode")

run = partial(invoke, "anonymize")


def told(result):
    """What an error says, as the program would print it."""
    return str(result.exception) if isinstance(result.exception, SfumatoError) else result.stderr


@pytest.fixture
def folder(tmp_path):
    """Sixty patients of an invented town, with two records of every third, and a register of the town."""
    town = invent_town(240)
    rows = []
    for place, row in enumerate(town.patients.to_pylist()[:60]):
        born = int(row["birthday"][:4])
        one = {
            "name": row["name"],
            "age": 2020 - born,
            "sex": row["sex"],
            "postcode": int(row["postcode"]),
            "diagnosis": row["diagnosis"],
            "score": place % 7,
            "weight": 1 + place % 4,
        }
        rows += [{**one, "serial": len(rows) + again} for again in range(2 if place % 3 == 0 else 1)]
    pa.csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "people.csv")
    register = [
        {
            "name": row["name"],
            "age": 2020 - int(row["birthday"][:4]),
            "sex": row["sex"],
            "postcode": row["postcode"],
        }
        for row in town.register.to_pylist()
    ]
    pa.csv.write_csv(pa.Table.from_pylist(register), tmp_path / "register.csv")
    (tmp_path / "levels.toml").write_text(
        "[age]\nwidths = [10, 40]\n[postcode]\nprefixes = [2, 1]\n[sex]\nsuppressed = true\n"
    )
    return tmp_path


def make(folder, *arguments, code=0, out="out.csv", k=3, quasi="age,sex,postcode"):
    return run(
        folder / "people.csv", "--quasi", quasi, "--k", k, "--out", folder / out, *arguments, code=code
    )


def as_json(folder, *arguments, **others):
    return json.loads(make(folder, *arguments, "--json", **others).stdout)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def classes(rows, quasi=QUASI):
    """The rows of every class, counted by nothing but this."""
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in quasi)].append(row)
    return list(found.values())


def files(folder):
    return {path.name for path in folder.iterdir()}


INPUTS = {"people.csv", "register.csv", "levels.toml"}


def test_a_table_in_and_a_judged_one_out(folder):
    result = make(folder, "--sensitive", "diagnosis")
    rows = read(folder / "out.csv")
    assert list(rows[0]) == [*QUASI, "diagnosis"]
    assert len(rows) == 80
    assert min(map(len, classes(rows))) >= 3
    before = read(folder / "people.csv")
    assert Counter(row["diagnosis"] for row in rows) == Counter(row["diagnosis"] for row in before)
    lines = result.stdout.splitlines()
    assert 8 <= len(lines) <= 14
    assert "asked 3" in lines[1]
    assert NOT_DP in lines[-1]
    assert "matches only a missing value" in result.stdout
    # No spinner, nothing else; in a fresh checkout it says first that loops are compiled.
    assert [line for line in result.stderr.splitlines() if "loops are compiled" not in line] == [INTERNAL]
    assert files(folder) == INPUTS | {"out.csv"}


@pytest.mark.parametrize("out", ["out.parquet", "out.csv", "out.csv.gz"])
def test_formats(folder, out):
    found = as_json(folder, out=out)
    path = folder / out
    if out.endswith("parquet"):
        rows = pq.read_table(path).to_pylist()
    elif out.endswith("gz"):
        rows = list(csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines()))
    else:
        rows = read(path)
    assert min(map(len, classes(rows))) == found["found"]["k"] >= 3
    run(path, "--quasi", "age,sex", "--k", "2", "--out", folder / "again.csv")


def test_distances(folder):
    ordered = as_json(folder, "--sensitive", "score", "--t", "0.3", "--distance", "ordered")
    assert ordered["found"]["by_column"][0]["distance"] == "ordered"
    arguments = ("--sensitive", "score,diagnosis", "--t", "0.5", "--distance", "score=ordered", "--force")
    both = as_json(folder, *arguments)
    assert [each["distance"] for each in both["found"]["by_column"]] == ["ordered", "equal"]


def test_k_counts_individuals(folder):
    owner = {row["serial"]: row["name"] for row in read(folder / "people.csv")}

    def fewest(*arguments, out):
        make(folder, "--keep", "serial", *arguments, k=4, out=out)
        rows = read(folder / out)
        assert "name" not in rows[0]
        return min(len({owner[row["serial"]] for row in each}) for each in classes(rows))

    assert fewest("--individual", "name", out="people-out.csv") >= 4
    assert fewest(out="records-out.csv") < 4  # so that it makes a difference here
    asked = ("--individual", "name", "--report", folder / "page.html", "--force")
    assert "people, checked before writing" in make(folder, *asked).stdout
    page = re.sub(r"\s+", " ", (folder / "page.html").read_text(encoding="utf-8"))
    assert "people at least are in every class" in page
    found = as_json(folder, *asked)
    assert found["people"] >= 3
    assert f"k = {found['people']}" in page
    assert "share of the people by the size of their class" in page
    # Who has two records in a class is one person there, so that fewer stand in all classes.
    assert found["risk"]["after"]["prosecutor"]["largest"] <= 1 / 3
    assert found["risk"]["after"]["records"] < found["records"]["released"]


def test_a_column_of_people_that_is_left_out_is_asked_about(folder):
    asked = "column 'name' is left out and repeats, as names of people with several records do"
    assert asked in make(folder).stdout
    assert asked in as_json(folder, "--force")["notes"][0]
    assert asked not in make(folder, "--rows-are-people", "--force").stdout
    assert asked not in make(folder, "--individual", "name", "--force").stdout


def test_a_register_is_for_risk_and_linkage(folder):
    found = as_json(folder, "--sensitive", "diagnosis", "--register", folder / "register.csv")
    assert found["asked"]["k_map"] is False
    assert found["found"]["k"] >= 3
    assert found["risk"]["after"]["population"] == "register"
    before, after = found["linkage"]["before"], found["linkage"]["after"]
    assert before["people"] == after["people"] == 240
    assert before["linked"] > after["linked"] == 0
    assert set(after) == {"records", "people", "matches", "limit", "linked", "sensitive", "certain"}
    text = make(folder, "--sensitive", "diagnosis", "--register", folder / "register.csv", "--force").stdout
    assert "of 240 people in the register" in text


def test_k_map_counts_the_people_of_the_register(folder):
    mapped = as_json(folder, "--register", folder / "register.csv", "--k-map", k=5)
    plain = as_json(folder, "--register", folder / "register.csv", k=5, out="plain.csv")
    assert mapped["found"]["k_map"] >= 5
    assert mapped["asked"]["k_map"] is True
    assert mapped["loss"]["ncp"] < plain["loss"]["ncp"]  # more people to hide among


def test_survey_weights_are_a_population(folder):
    found = as_json(folder, "--survey-weights", "weight")
    plain = as_json(folder, out="plain.csv")
    assert found["risk"]["after"]["population"] == "weights"
    assert found["risk"]["after"]["journalist"]["average"] < plain["risk"]["after"]["journalist"]["average"]
    assert found["found"] == plain["found"]
    assert "weight" not in read(folder / "out.csv")[0]
    both = ("--survey-weights", "weight", "--register", folder / "register.csv", "--force")
    make(folder, *both, code=2)


def test_the_target_is_predicted(folder):
    assert as_json(folder)["accuracy"] is None
    assert as_json(folder, "--sensitive", "diagnosis", out="b.csv")["accuracy"]["target"] == "diagnosis"
    found = as_json(folder, "--sensitive", "diagnosis", "--keep", "score", "--target", "score", out="c.csv")
    assert found["accuracy"]["target"] == "score"
    for wrong in ("age", "name", "gone"):
        assert "target" in told(make(folder, "--target", wrong, out="d.csv", code=2))
    assert "d.csv" not in files(folder)


def test_json_has_the_documented_keys_and_no_value_of_a_record(folder):
    arguments = ("--sensitive", "diagnosis", "--register", folder / "register.csv")
    text = make(folder, *arguments, "--report", folder / "page.html", "--json").stdout
    found = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert list(found) == [
        "out", "report", "internal", "model", "matching", "asked", "found", "people", "records", "risk",
        "small_class", "subsets", "loss", "accuracy", "linkage", "notes",
    ]  # fmt: skip
    assert found["model"] == NOT_DP
    assert found["internal"] == INTERNAL
    assert {"before", "after"} == set(found["risk"])
    page = (folder / "page.html").read_text()
    for row in read(folder / "people.csv"):
        for said in (row["name"], row["diagnosis"]):
            assert said not in text
            assert f">{said}<" not in page
        assert row["name"] not in page


def test_the_report_is_one_file_and_is_not_overwritten(folder):
    make(folder, "--sensitive", "diagnosis", "--report", folder / "page.html")
    page = (folder / "page.html").read_text()
    for sign in ("http:", "https:", "<script", "src=", "@import"):
        assert sign not in page
    assert not re.search(r"url\((?!#)", page)  # what a style names is in the page itself
    assert NOT_DP in page
    assert "INTERNAL" in page
    (folder / "page.html").write_text("mine")
    arguments = ("--report", folder / "page.html")
    assert "page.html" in told(make(folder, *arguments, out="new.csv", code=1))
    assert "new.csv" not in files(folder)
    assert (folder / "page.html").read_text() == "mine"
    make(folder, *arguments, "--force", out="new.csv")
    assert (folder / "page.html").read_text() != "mine"


def test_a_table_that_is_not_what_was_asked_is_not_handed_over(folder, monkeypatch):
    honest = DOOR._make_release

    def careless(table, plan, **others):
        made = honest(table, plan, **others)
        one, rest = made.table.slice(0, 1), made.table.slice(1)
        others = [pc.not_equal(rest[name], one[name][0].as_py()) for name in QUASI]
        alone = pa.concat_tables([one, rest.filter(reduce(pc.or_, others))])
        return replace(made, table=alone)

    monkeypatch.setattr(DOOR, "_make_release", careless)
    (folder / "kept.csv").write_text("of old")
    result = make(folder, "--report", folder / "page.html", code=4)
    assert "k is 1, asked 3" in told(result)
    assert files(folder) == INPUTS | {"kept.csv"}
    make(folder, "--force", out="kept.csv", code=4)
    assert (folder / "kept.csv").read_text() == "of old"


def test_an_error_after_writing_leaves_no_file(folder, monkeypatch):
    def fail(*_, **__):
        message = "no"
        raise SfumatoError(message)

    monkeypatch.setattr("sfumato.anonymity.summary.summarise", fail)
    make(folder, "--report", folder / "page.html", code=1)
    assert files(folder) == INPUTS


@pytest.mark.parametrize("name", ["people.csv", "soft.csv", "copy.csv"])
def test_the_table_is_no_list_of_labels(tmp_path, name):
    (tmp_path / "people.csv").write_text("age;sex\n1;a\n2;b\n3;a\n4;b\n")
    (tmp_path / "soft.csv").symlink_to(tmp_path / "people.csv")
    (tmp_path / "copy.csv").write_bytes((tmp_path / "people.csv").read_bytes())
    (tmp_path / "levels.toml").write_text(f'[age]\nfile = "{name}"\n')
    levels = ("--hierarchies", tmp_path / "levels.toml", "--out", tmp_path / "out.csv")
    result = run(tmp_path / "people.csv", "--quasi", "age", "--k", 2, *levels, code=2)
    assert "not public" in told(result)
    assert not (tmp_path / "out.csv").exists()
