"""`sfumato check --picture`: expected error against epsilon, from public facts alone."""

import json
from functools import partial

import pytest

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


def test_rows_are_drawn_and_models_not_at_all(project, tmp_path):
    rows, path = tmp_path / "rows.toml", tmp_path / "curve.svg"
    rows.write_text('recipe = "adaptive"\ntable = "t"\nepsilon = 1.0\ndelta = 1e-6\n')
    assert run(rows, "--project", project, "--picture", path).exit_code == 0
    assert "error of one noisy count of adaptive" in path.read_text()
    rows.write_text('recipe = "linear"\ntable = "t"\ntarget = "month"\nepsilon = 1.0\ndelta = 1e-6\n')
    result = run(rows, "--project", project, "--picture", tmp_path / "none.svg")
    assert isinstance(result.exception, sf.RecipeError)
    assert not (tmp_path / "none.svg").exists()


def test_a_forecast_is_for_the_records_that_are_given_or_were_paid_for(project, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('recipe = "cell-counts"\ntable = "t"\nby = ["region"]\nepsilon = 1\n')

    def ask(*arguments):
        return json.loads(run(recipe, "--project", project, "--json", *arguments).stdout)

    told = ask("--records", "1000")
    (each,) = told["forecast"]["measurements"]
    assert each["noise_share"] == pytest.approx(each["typical_error"] * each["cells"] / 1000)
    # Twice the records, half the share of noise.
    assert ask("--records", "2000")["forecast"]["noise_share"] == pytest.approx(each["noise_share"] / 2)
    assert "forecast" not in ask()
    (released,) = sf.open(project).sql("DP-SELECT 5 COUNT(*) AS n FROM t").table["n"].to_pylist()
    assert ask()["forecast"]["records"] == released


def test_an_epsilon_is_recommended_that_is_enough_fits_and_protects(project, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('recipe = "cell-counts"\ntable = "t"\nby = ["region"]\nepsilon = 1\n')

    def choose(*arguments):
        told = invoke("choose-epsilon", recipe, "--project", project, "--json", *arguments)
        return json.loads(told.stdout)

    unknown = choose()
    assert unknown["recommended"] is None
    assert "--records" in unknown["reason"]
    few, many = choose("--records", "5"), choose("--records", "10000")
    assert few["recommended"] is None
    assert "bring more records" in few["reason"]
    chosen = next(row for row in many["epsilons"] if row["epsilon"] == many["recommended"])
    assert chosen["noise_share"] <= 0.1
    less = many["epsilons"][: many["epsilons"].index(chosen)]
    assert all(row["noise_share"] > 0.1 for row in less)
    others = [each["epsilon"] for each in many["deployments"]]
    assert others == sorted(others)
    assert all(each["source"].startswith("https://") for each in many["deployments"])
    assert sf.open(project).budget().spent == 0
    text = invoke("choose-epsilon", recipe, "--project", project, "--records", "10000").stdout
    assert f"recommended: epsilon {many['recommended']}: " in text


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


def test_what_is_not_known_before_it_is_paid_is_not_recommended(project, tmp_path):
    recipe = tmp_path / "series.toml"
    recipe.write_text(
        'recipe = "running"\ntable = "t"\nperiod = "month"\nby = ["region"]\nthrough = 2\n'
        "epsilon = 1\ndelta = 1e-6\n"
    )
    told = invoke("choose-epsilon", recipe, "--project", project, "--records", "9000", "--json")
    assert json.loads(told.stdout)["recommended"] is None
    assert "is not known before it is paid" in json.loads(told.stdout)["reason"]
    sf.open(project).release(recipe, through=1)
    assert "was paid for with the first period of its series" in run(recipe, "--project", project).stdout
