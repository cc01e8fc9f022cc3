"""The recipe `logistic`: released, verified, and steady on data that have no finite answer."""

import json

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.recipes import Logistic

COLUMNS = """
[tables.t.columns.age]
range = [18, 89]
[tables.t.columns.sex]
values = ["m", "f"]
[tables.t.columns.works]
values = ["no", "yes"]
[tables.t.columns.mood]
values = ["low", "fair", "high"]
"""


def make_people(count=12_000, *, slope=2.0, works=None):
    random = np.random.default_rng(5)
    age, female = random.integers(18, 90, count), random.random(count) < 0.5
    predictor = -0.5 + slope * (age - 53.5) / 35.5 - 0.7 * female
    drawn = random.random(count) < 1 / (1 + np.exp(-predictor))
    return pa.table(
        {
            "age": age,
            "sex": np.where(female, "f", "m"),
            "works": np.where(drawn if works is None else works(age), "yes", "no"),
            "mood": random.choice(["low", "fair", "high"], count),
        }
    )


def coefficients(release):
    return {(row["input"], row["label"]): row for row in release.table.to_pylist()}


def test_coefficients_are_found_and_the_release_verifies(lay_out, tmp_path, seeded_noise):
    curator = sf.open(lay_out(make_people(), columns=COLUMNS))
    recipe = Logistic(table="t", target="works", inputs=["age", "sex"])
    release = curator.release(recipe, epsilon=3, delta=1e-6, out=tmp_path / "out")
    found = coefficients(release)
    for key, truth in {("age", None): 2 / 35.5, ("sex", "f"): -0.7}.items():
        assert found[key]["identified"]
        assert abs(found[key]["coefficient"] - truth) < 5 * found[key]["standard_error"]
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert model["target"] == "works"
    assert model["classes"] == ["no", "yes"]
    assert model["share_positive"] == pytest.approx(0.33, abs=0.1)
    assert "verified" in sf.verify(tmp_path / "out", ledger=curator.ledger_path).verdict
    again = curator.release(recipe, epsilon=3, delta=1e-6)
    assert again.repeated
    assert again.table.equals(release.table)


def test_separable_data_have_a_finite_model_without_intervals(lay_out):
    people = make_people(works=lambda age: age > 50)
    release = sf.open(lay_out(people, columns=COLUMNS)).release(
        Logistic(table="t", target="works", inputs=["age", "sex"]), epsilon=2, delta=1e-6
    )
    found = coefficients(release)
    assert found["age", None]["coefficient"] > 0.1
    assert np.isfinite(release.table["coefficient"].to_numpy()).all()
    assert not found["age", None]["identified"]


@pytest.mark.parametrize(("answer", "share"), [(False, 0), (True, 1)])
def test_a_constant_target_gives_a_constant_model(lay_out, answer, share):
    people = make_people(works=lambda age: np.full(age.size, answer))
    release = sf.open(lay_out(people, columns=COLUMNS)).release(
        Logistic(table="t", target="works", inputs=["age", "sex"]), epsilon=2, delta=1e-6
    )
    model = json.loads(release.files["model.json"])
    assert model["share_positive"] == pytest.approx(share, abs=0.02)
    predictor = sum(
        each["coefficient"] * (1 if each["column"] is None else 53 if each["column"] == "age" else 0)
        for each in model["terms"]
    )
    assert (1 / (1 + np.exp(-predictor))) == pytest.approx(share, abs=0.1)


def test_epsilon_too_small_gives_a_model_that_says_so(lay_out):
    release = sf.open(lay_out(make_people(200), columns=COLUMNS)).release(
        Logistic(table="t", target="works"), epsilon=0.01, delta=1e-6
    )
    assert not any(release.table["identified"].to_pylist())
    assert "noise may explain all" in release.certificate["postprocessing"]["classes"]


def test_one_label_of_several_is_positive(lay_out):
    curator = sf.open(lay_out(make_people(2000), columns=COLUMNS))
    with pytest.raises(sf.SfumatoError, match="say which one is positive"):
        curator.release(Logistic(table="t", target="mood"), epsilon=1, delta=1e-6)
    with pytest.raises(sf.SfumatoError, match="must be one of"):
        curator.release(Logistic(table="t", target="mood", positive="merry"), epsilon=1, delta=1e-6)
    assert curator.budget().spent == 0
    release = curator.release(
        Logistic(table="t", target="mood", positive="high", inputs=["sex"]), epsilon=2, delta=1e-6
    )
    assert json.loads(release.files["model.json"])["classes"] == ["not high", "high"]
