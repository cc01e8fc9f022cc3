"""`sfumato check --picture`: expected error against epsilon, from public facts alone."""

import json
from functools import partial

import sfumato as sf
from helpers.cli import invoke

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
