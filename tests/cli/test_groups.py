import json
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from helpers.cli import invoke
from helpers.projects import project_text
from sfumato.core.errors import RecipeError, SchemaError, SfumatoError

PROJECT = project_text(
    {
        "state": {"values": ["a", "b", "c", "d"]},
        "district": {"range": [0, 7]},
        "hour": {"range": [0, 23]},
        "wide": {"range": [1, 5000]},
    },
    source="t.csv",
    unit="person",
    max_records=2,
)


def run(*arguments, code=0):
    done = invoke("groups", *arguments, code=None)
    if isinstance(done.exception, SfumatoError):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a public survey in which district tells the state."""
    generator = np.random.default_rng(1)
    district = generator.integers(0, 8, 4000)
    survey = pa.table(
        {
            "state": [list("abcd")[each // 2] for each in district],
            "district": district,
            "hour": generator.integers(0, 24, 4000),
            "wide": generator.integers(1, 5001, 4000),
        }
    )
    pyarrow.csv.write_csv(survey, tmp_path / "survey.csv")
    (tmp_path / "sfumato.toml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_groups_by_the_domains_of_a_project(folder):
    done = run("survey.csv", "--project", "sfumato.toml", "--epsilon", "0.5")
    recipe = tomllib.loads(done.stdout)
    assert recipe == {
        "recipe": "field-groups",
        "table": "t",
        "epsilon": 0.5,
        "groups": [["state", "district"], ["hour"], ["wide"]],
    }
    assert "32 cells, association 1.00" in done.stdout
    assert "5,000 cells" in done.stdout
    assert "must be public" in done.stderr
    assert "3 groups" in done.stderr
    assert done.stdout == run("survey.csv", "--table", "t", "--epsilon", "0.5").stdout


def test_groups_without_a_project(folder):
    (folder / "sfumato.toml").unlink()
    done = run("survey.csv")
    recipe = tomllib.loads(done.stdout)
    assert recipe["table"] == "TODO"
    assert recipe["groups"][0] == ["state", "district"]
    assert "Domains must be described" in done.stdout
    assert "wide: cut into 20 bins" in done.stderr


def test_json_and_files(folder):
    done = run("survey.csv", "-p", "sfumato.toml", "--json", "-o", "r.toml", "--picture", "g.svg")
    told = json.loads(done.stdout)
    assert done.stderr == ""
    assert told["groups"][0]["columns"] == ["state", "district"]
    assert told["groups"][0]["cells"] == 32
    assert told["groups"][0]["association"] == pytest.approx(1)
    assert told["groups"][1]["association"] is None
    assert (told["rows"], told["picture"], told["out"], told["pairs"]) == (4000, "g.svg", "r.toml", [])
    assert "mutual information" in told["measure"]
    assert ET.fromstring((folder / "g.svg").read_text()).tag.endswith("svg")
    assert tomllib.loads((folder / "r.toml").read_text())["groups"][0] == ["state", "district"]
    assert run("survey.csv", "-o", "other.toml").stdout == ""


def test_files_are_replaced_where_it_is_forced(folder):
    (folder / "r.toml").write_text("mine")
    run("survey.csv", "-o", "r.toml", "--force")
    assert "field-groups" in (folder / "r.toml").read_text()


def test_a_private_source_is_refused(folder):
    (folder / "survey.csv").rename(folder / "t.csv")
    (folder / "elsewhere").mkdir()
    for options in ((), ("--project", "sfumato.toml"), ("--table", "t")):
        with pytest.raises(RecipeError, match="not public"):
            run("t.csv", *options)
    for link in (Path.symlink_to, Path.hardlink_to):
        link(folder / "elsewhere" / link.__name__, folder / "t.csv")
        with pytest.raises(RecipeError, match="not public"):
            run(f"elsewhere/{link.__name__}", "--project", "sfumato.toml")
    # Another file of the same name, such as last year's, is not the source.
    (folder / "t.csv").rename(folder / "elsewhere" / "t.csv")
    run("elsewhere/t.csv", "--project", "sfumato.toml")


def test_options_reach_the_search(folder):
    told = json.loads(run("survey.csv", "--max-cells", "20", "--json").stdout)
    assert [len(group["columns"]) for group in told["groups"]] == [1, 1, 1, 1]
    assert told["pairs"][0]["reason"] == "too many cells"
    assert set(told["pairs"][0]["columns"]) == {"state", "district"}
    assert any("hour: more than 20 cells in one column" in text for text in told["notes"])
    told = json.loads(run("survey.csv", "--columns", "hour, state", "--json").stdout)
    assert [group["columns"] for group in told["groups"]] == [["state"], ["hour"]]
    assert tomllib.loads(run("survey.csv", "--columns", "hour,state").stdout)["columns"] == ["state", "hour"]
    told = json.loads(run("survey.csv", "--max-columns", "1", "--json").stdout)
    assert told["pairs"][0]["reason"] == "too many columns"
    small, large = (
        json.loads(run("survey.csv", "--records", count, "--json").stdout)["error"]
        for count in (400, 400_000)
    )
    assert small > large


def test_several_tables_need_a_name(folder):
    other = PROJECT.split("[tables.t]")[1].replace("tables.t.", "tables.u.").replace("t.csv", "u.csv")
    (folder / "sfumato.toml").write_text(PROJECT + "[tables.u]" + other)
    with pytest.raises(SchemaError, match="--table"):
        run("survey.csv", "--project", "sfumato.toml")
    assert tomllib.loads(run("survey.csv", "--table", "u").stdout)["table"] == "u"
    (folder / "survey.csv").rename(folder / "u.csv")
    with pytest.raises(RecipeError, match="not public"):
        run("u.csv", "--table", "t")


@pytest.mark.shared
def test_a_wide_public_table(shared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = shared / "data" / "acs_pums_oregon_households" / "households.csv.gz"
    if not path.exists():
        pytest.skip("the public table of households is not there")
    done = run(path, "--picture", "g.svg", "--json")
    told = json.loads(done.stdout)
    found = [set(group["columns"]) for group in told["groups"]]
    assert told["rows"] == 4213
    assert sum(map(len, found)) == 108  # one of 109 has no value
    assert {"ADJHSG", "ADJINC"} in found
    assert any({"MRGI", "MRGX"} <= group for group in found)
    assert all(group["cells"] <= 10**6 for group in told["groups"])
    assert told["error"] < told["error_alone"]
    shown = (tmp_path / "g.svg").read_text()
    ET.fromstring(shown)
    assert all(f">{name}<" in shown for group in found for name in group)
