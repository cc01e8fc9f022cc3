"""`sfumato report`: one file beside the release, internal if the truth is given."""

import json
from functools import partial

import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import invoke

run = partial(invoke, "report", code=None)


@pytest.fixture
def out(project, tmp_path):
    sf.open(project).release(tmp_path / "recipe.toml", out=tmp_path / "out")
    return tmp_path / "out"


def test_the_report_lies_beside_the_release(out):
    result = run(out)
    assert result.exit_code == 0
    page = (out.parent / "out-report.html").read_bytes()
    assert page.startswith(b"<!doctype html>")
    assert b"INTERNAL" not in page
    assert "out-report.html" in result.stdout
    assert sf.verify(out).total["epsilon"] == "1"


def test_the_current_folder_can_be_named(out, monkeypatch):
    monkeypatch.chdir(out)
    assert run(".").exit_code == 0
    assert (out.parent / "out-report.html").is_file()


def test_json_tells_what_was_written(out, tmp_path):
    result = run(out, "-o", tmp_path / "told.html", "--json")
    told = json.loads(result.stdout)
    assert told == {
        "report": str(tmp_path / "told.html"),
        "bytes": (tmp_path / "told.html").stat().st_size,
        "internal": False,
    }


def test_a_project_adds_its_ledger(out, project):
    assert run(out, "--project", project).exit_code == 0
    assert "The whole ledger" in (out.parent / "out-report.html").read_text(encoding="utf-8")


def test_the_truth_makes_it_internal(out, project):
    pytest.importorskip("sfumato.metrics")
    result = run(out, "--truth", out.parent / "t.parquet", "--json")
    assert result.exit_code == 0, result.exception
    target = out.parent / "out-report-INTERNAL.html"
    page = target.read_text(encoding="utf-8")
    assert json.loads(result.stdout) == {
        "report": str(target),
        "bytes": target.stat().st_size,
        "internal": True,
    }
    assert page.count("INTERNAL") > 12
    assert "Release less truth" in page
    assert not (out.parent / "out-report.html").exists()


def test_the_truth_may_have_no_column_of_individuals(out, people):
    pytest.importorskip("sfumato.metrics")
    pq.write_table(people.drop_columns(["person"]), out.parent / "truth.parquet")
    assert run(out, "--truth", out.parent / "truth.parquet").exit_code == 0


def test_every_epsilon_is_compared(project, tmp_path):
    pytest.importorskip("sfumato.metrics")
    sf.open(project).release(tmp_path / "recipe.toml", epsilon=["1/2", "4"], out=tmp_path / "two")
    assert run(tmp_path / "two", "--truth", tmp_path / "t.parquet").exit_code == 0
    page = (tmp_path / "two-report-INTERNAL.html").read_text(encoding="utf-8")
    assert "epsilon 0.5" in page
    assert "At epsilon 4" in page


def test_a_report_costs_nothing(out, project):
    before = sf.open(project).budget().spent
    run(out, "--project", project)
    assert sf.open(project).budget().spent == before


def write_map(folder, names):
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    features = [
        {
            "type": "Feature",
            "properties": {"region": name},
            "geometry": {"type": "Polygon", "coordinates": [[[x + place, y] for x, y in ring]]},
        }
        for place, name in enumerate(names)
    ]
    path = folder / "areas.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def test_places_are_drawn_on_a_map_and_misspelt_ones_are_named(out, people):
    names = sorted(set(people["region"].to_pylist()))
    path = write_map(out.parent, [f"{names[0]}x", *names[1:]])
    result = run(out, "--map", path, "--key", "region")
    assert result.exit_code == 0, result.exception
    assert "Every area is a value of" in (out.parent / "out-report.html").read_text(encoding="utf-8")
    assert f"'{names[0]}x'" in result.stderr
    assert "has no area on the map" in result.stderr
    for options, match in (
        (("--map", path, "--key", "nme"), "--key names 'nme'"),
        (("--key", "region"), "--map"),
        (("--map", out.parent / "nowhere.geojson"), "cannot be read"),
    ):
        wrong = run(out, *options, "--out", out.parent / "wrong.html")
        assert isinstance(wrong.exception, sf.SfumatoError)
        assert match in str(wrong.exception)
    assert not (out.parent / "wrong.html").exists()


def test_the_truth_is_drawn_cell_by_cell(out):
    pytest.importorskip("sfumato.metrics")
    path = write_map(out.parent, ["a", "b", "c", "d"])
    result = run(out, "--truth", out.parent / "t.parquet", "--map", path)
    assert result.exit_code == 0, result.exception
    page = (out.parent / "out-report-INTERNAL.html").read_text(encoding="utf-8")
    for told in ("Cell by cell", "Gold lines are the truth", "The truth, and how far the release is off"):
        assert told in page
