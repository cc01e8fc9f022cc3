"""`sfumato check --picture`: expected error against epsilon, from public facts alone."""

import json
from functools import partial

import sfumato as sf
from helpers.cli import invoke
from helpers.projects import write_project

run = partial(invoke, "check", code=None)


def test_the_curve_of_errors_is_drawn_and_nothing_is_spent(project, tmp_path):
    path = tmp_path / "curve.svg"
    result = run(
        tmp_path / "recipe.toml", "--project", project, "--epsilon", "0.5", "--picture", path, "--json"
    )
    assert result.exit_code == 0, result.exception
    told = json.loads(result.stdout)
    assert told["picture"] == str(path)
    half = told["measurements"][0]["expected_error_95"]
    drawn = path.read_text()
    assert f"epsilon 0.5: ±{half:.0f}" in drawn
    assert not sf.open(project).has_ledger() or sf.open(project).budget().spent == 0
    again = run(tmp_path / "recipe.toml", "--project", project, "--picture", path)
    assert isinstance(again.exception, sf.ReleaseError)
    assert run(tmp_path / "recipe.toml", "--project", project, "--picture", path, "--force").exit_code == 0


def test_a_recipe_that_asks_as_it_goes_has_no_curve(project, tmp_path):
    (tmp_path / "rows.toml").write_text('recipe = "adaptive"\ntable = "t"\nepsilon = 1.0\ndelta = 1e-6\n')
    result = run(tmp_path / "rows.toml", "--project", project, "--picture", tmp_path / "curve.svg")
    assert isinstance(result.exception, sf.RecipeError)
    assert not (tmp_path / "curve.svg").exists()


def test_dates_of_a_text_file_are_to_be_looked_at_before_they_are_paid(tmp_path):
    (tmp_path / "t.csv").write_text("seen,born\n03/04/2020,03/04/1980\n")
    columns = {"month": {"from": "seen", "period": "month"}}
    columns["year"] = {"from": "born", "period": "year", "range": [1900, 2025], "format": "%m/%d/%Y"}
    project = write_project(tmp_path, columns, source="t.csv")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('recipe = "cell-counts"\ntable = "t"\nby = ["month", "year"]\nepsilon = 1\n')
    told = run(recipe, "--project", project)
    assert "month of t: only dates written as 2025-01-31 are read; `sfumato doctor`" in told.stderr
    noted, *_ = json.loads(run(recipe, "--project", project, "--json").stdout)["notes"]
    assert noted in told.stderr.replace("\n", " ")
    # No record says whether it is told.
    (tmp_path / "t.csv").write_text("seen,born\n2020-03-04,03/04/1980\n")
    assert run(recipe, "--project", project).stderr == told.stderr
    recipe.write_text('recipe = "cell-counts"\ntable = "t"\nby = ["year"]\nepsilon = 1\n')
    assert "only dates" not in run(recipe, "--project", project).stderr


def test_what_the_bound_cuts_is_said_before_and_after(project, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('recipe = "cell-counts"\ntable = "t"\nby = ["region"]\nepsilon = 1\n')
    said = "records beyond 3 per individual are not counted"
    assert said in run(recipe, "--project", project).stderr
    released = invoke("release", recipe, "--project", project, "--out", tmp_path / "out", "--json")
    assert said in json.loads(released.stdout)["notes"]
