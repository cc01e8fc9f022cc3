"""A person's first hour with a real table: from a raw file and its codebook to a release and its report."""

import json
import shutil
import tomllib

import pytest

import sfumato as sf
from helpers.cli import run_main

pytestmark = [pytest.mark.shared, pytest.mark.slow]

RECIPE = """
recipe = "cell-counts"
table = "{table}"
by = {by}
epsilon = 1.0
"""


def draft(folder, source, *arguments):
    told = run_main("init", source, *arguments, cwd=folder)
    (folder / "sfumato.toml").write_text(told.stdout, encoding="utf-8")
    return tomllib.loads(told.stdout)


def finish(folder, table, by):
    """Doctor, check, release, verify, report and the registry's entry, as a person would type them."""
    doctor = json.loads(run_main("doctor", "--json", cwd=folder).stdout)["tables"][0]
    (folder / "counts.toml").write_text(RECIPE.format(table=table, by=json.dumps(by)), encoding="utf-8")
    run_main("check", "counts.toml", cwd=folder)
    run_main("release", "counts.toml", "--out", "out", cwd=folder)
    run_main("verify", "out", cwd=folder)
    run_main("report", "out", cwd=folder)
    run_main("export", "out", "--checklist", cwd=folder)
    assert sf.verify(folder / "out")
    return {each["name"]: each for each in doctor["columns"]}


def test_nhanes_with_its_codebook(tmp_path, shared):
    shutil.copy(shared / "data" / "nhanes" / "nhanes_2009_2012.parquet", tmp_path / "nhanes.parquet")
    codes = str(shared / "data" / "nhanes" / "schema.json")
    person = ("--unit", "ID", "--max-records", "1", "--budget", "2")
    project = draft(tmp_path, "nhanes.parquet", "--codebook", codes, *person)
    columns = project["tables"]["nhanes"]["columns"]
    assert len(columns) >= 40
    assert len((tmp_path / "sfumato.toml").read_text().splitlines()) < 120
    fit = finish(tmp_path, "nhanes", ["Gender", "Race1"])
    assert all(each["unread"] == 0 and each["outside"] == 0 for each in fit.values())


def test_a_census_extract_at_a_price(tmp_path, shared):
    source = tmp_path / "ma.csv.gz"
    shutil.copy(shared / "data" / "diverse_communities" / "ma2019.csv.gz", source)
    project = draft(tmp_path, source.name, "--unit", "row", "--epsilon", "1", "--budget", "4")
    columns = project["tables"]["ma"]["columns"]
    assert len(columns) >= 15
    fit = finish(tmp_path, "ma", ["PUMA"])
    # Labels that lie beyond the noise were found: few records are counted as other.
    assert fit["PUMA"]["inside"] > 0.9 * 7634
