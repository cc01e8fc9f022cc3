"""How many coefficients of a regression stand out of the noise: forecast, and told when paid."""

import re

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.cli import run_main
from helpers.projects import write_project
from sfumato.curator.check import forecast

COLUMNS = {
    "age": {"range": [20, 60]},
    "sex": {"values": ["f", "m"]},
    "job": {"values": ["a", "b", "c", "d"]},
    "ill": {"values": ["no", "yes"]},
    "visits": {"range": [0, 10]},
}
TOLD = (
    r"first of 6 coefficients stands out of the noise from about ([\d,]+) records on, all from about ([\d,]+)"
)


def write(folder, count):
    random = np.random.default_rng(3)
    rows = {
        "age": random.integers(20, 61, count),
        "sex": random.choice(["f", "m"], count),
        "job": random.choice(["a", "b", "c", "d"], count),
        "ill": random.choice(["no", "yes"], count),
        "visits": random.integers(0, 11, count),
    }
    folder.mkdir(exist_ok=True)
    return write_project(folder, rows=pa.table(rows), columns=COLUMNS, unit="row", epsilon=100, delta=1e-5)


@pytest.mark.parametrize(("kind", "target"), [("Linear", "visits"), ("Logistic", "ill")])
def test_the_forecast_is_what_comes_out(tmp_path, seeded_noise, kind, target):
    recipe = getattr(sf.learn, kind)(table="t", target=target, inputs=["age", "sex", "job"])
    check = sf.open(write(tmp_path / "empty", 1)).check(recipe, epsilon=1, delta=1e-6)
    first, last = (int(n.replace(",", "")) for n in re.search(TOLD, check.notes[-1]).groups())
    assert 100 < first < last < 20_000
    for name, count, seen in (("few", first // 4, 0), ("many", 2 * last, 6)):
        release = sf.open(write(tmp_path / name, count)).release(recipe, epsilon=1, delta=1e-6)
        assert release.notes[-1] == check.notes[-1]
        facts = release.certificate["postprocessing"]
        assert facts["coefficients"] - facts["not_identified"] == seen


def test_the_command_tells_before_and_after(tmp_path):
    write(tmp_path, 40)
    (tmp_path / "r.toml").write_text(
        'recipe = "logistic"\ntable = "t"\ntarget = "ill"\ninputs = ["age", "sex", "job"]\n'
        "epsilon = 0.1\ndelta = 1e-6\n"
    )
    assert re.search(TOLD, run_main("check", "r.toml", cwd=tmp_path).stderr)
    done = run_main("release", "r.toml", "--out", "out", cwd=tmp_path)
    assert "0 of 6 coefficients stand out of the noise." in done.stdout


def ask_of(folder, recipe, *, records):
    """The forecast of a recipe, and the measurements of its release with their errors, by columns."""
    curator = sf.open(write(folder, records))
    found = forecast(curator.check(recipe, epsilon=1, delta=1e-6).plan, records)
    release = curator.release(recipe, epsilon=1, delta=1e-6)
    precision = {}
    for each in release.measurements:
        names = " x ".join(each.request.columns)
        precision[names] = precision.get(names, 0) + (each.grid / each.request.standard_deviation) ** 2
    return found, {names: total**-0.5 for names, total in precision.items()}, release


@pytest.mark.parametrize(("kind", "within"), [("Tree", 1e-6), ("Adaptive", 0.5)])
def test_rows_forecast_single_columns_and_pairs(tmp_path, seeded_noise, kind, within):
    recipe = getattr(sf.recipes, kind)(table="t")
    found, measured, _ = ask_of(tmp_path, recipe, records=3000)
    expected = {each["name"]: each for each in found["measurements"]}
    assert [each.get("group", "") for each in expected.values()] == [""] * 5 + ["pairs"] * 10
    pairs = [names for names in measured if names.count(" x ") == 1]
    assert pairs
    for names in (*COLUMNS, *pairs):
        assert measured[names] <= expected[names]["typical_error"] * (1 + within)
        assert names not in pairs or measured[names] >= expected[names]["typical_error"] / (1 + within)
    share = expected["age"]["typical_error"] * 41 / 3000
    assert found["noise_share"] == pytest.approx(share)  # pairs that noise outweighs are not measured


def test_clusters_and_distributions_forecast_what_comes_out(tmp_path, seeded_noise):
    clusters = sf.recipes.Clusters(table="t", columns=["age", "visits"], clusters=4)
    found, _, release = ask_of(tmp_path / "c", clusters, records=3000)
    size, *centres = found["measurements"]
    table = release.table.to_pydict()
    half = (np.array(table["size_high_95"]) - table["size_low_95"]) / 2
    assert np.abs(half - size["expected_error_95"]).max() <= 1
    assert [each["name"] for each in centres] == ["centre in age", "centre in visits"]
    by = sf.recipes.Quantiles(table="t", column="age", by="sex")
    found, _, release = ask_of(tmp_path / "q", by, records=3000)
    bands = np.array(release.table["high_95"]) - np.array(release.table["low_95"])
    (upto,) = found["measurements"]
    assert bands.mean() / 2 == pytest.approx(upto["expected_error_95"] / 1500, rel=0.5)


def test_a_recipe_without_a_forecast_says_why(tmp_path):
    write(tmp_path, 40)
    for text in ('"additive"\ntarget = "ill"', '"network"\ntarget = "ill"'):
        (tmp_path / "r.toml").write_text(f'recipe = {text}\ntable = "t"\nepsilon = 1\ndelta = 1e-6\n')
        told = run_main("check", "r.toml", "--records", "4000", cwd=tmp_path)
        assert re.search("forecast +none: .*seen|forecast +none: .*train", told.stdout)
        chosen = run_main("choose-epsilon", "r.toml", "--records", "4000", cwd=tmp_path)
        assert re.search("no recommendation: (noise of effects|every step)", chosen.stdout)


@pytest.mark.parametrize("count", [30, 4000])
def test_an_additive_model_is_a_constant_below_the_forecast(tmp_path, seeded_noise, count):
    curator = sf.open(write(tmp_path, count))
    recipe = sf.learn.Additive(table="t", target="visits", inputs=["age", "sex", "job"])
    check = curator.check(recipe, epsilon=1, delta=1e-6)
    (least,) = re.search(r"effects are fitted from about ([\d,]+) records on", check.notes[-1]).groups()
    assert 60 < int(least.replace(",", "")) < 4000
    names = {each.request.name for each in curator.release(recipe, epsilon=1, delta=1e-6).measurements}
    assert any(name.endswith("1: age") or ": age" in name for name in names) == (count == 4000)


def test_a_map_says_what_its_bound_cuts_and_what_counts_places(tmp_path):
    columns = {name: COLUMNS[name] for name in ("job", "sex", "ill")}
    rows = pa.table({"person": ["p"], "job": ["a"], "sex": ["f"], "ill": ["no"]})
    path = write_project(tmp_path, rows=rows, columns=columns, unit="person", max_records=7, epsilon=9)
    curator = sf.open(path)
    check = curator.check(sf.recipes.Map(table="t", by=("job", "sex", "ill")), epsilon=1, records=4000)
    assert 'recipe = "capped-counts" with by = ["job"]' in check.notes[-1]
    assert "at most 7 records" in check.notes[-1]
    counts = curator.check(sf.recipes.CappedCounts(table="t", by=("job",)), epsilon=1, records=4000)
    least, most = forecast(counts.plan, 4000)["measurements"]
    assert most["typical_error"] == pytest.approx(7 * least["typical_error"], rel=0.1)
