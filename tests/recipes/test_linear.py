"""The recipe `linear`: released, verified, and refused where it must be."""

import json

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.recipes import Linear

COLUMNS = """
[tables.t.columns.age]
range = [18, 89]
[tables.t.columns.sex]
values = ["m", "f"]
[tables.t.columns.wage]
bounds = [0, 200]
[tables.t.columns.spent]
bounds = [0, 150]
[tables.t.columns.rare]
values = ["no", "yes"]
outside = "other"
"""


def make_people(count=12_000):
    random = np.random.default_rng(5)
    age, wage = random.integers(18, 90, count), random.gamma(4, 20, count)
    female = random.random(count) < 0.5
    spent = 20 + 0.5 * age + 6 * female + 0.2 * np.minimum(wage, 200) + random.normal(0, 8, count)
    return pa.table(
        {
            "p": np.arange(count) // 3,
            "age": age,
            "sex": np.where(female, "f", "m"),
            "wage": wage,
            "spent": spent,
            "rare": np.where(random.random(count) < 0.0005, "yes", "no"),
        }
    )


def coefficients(release):
    rows = release.table.to_pylist()
    return {(row["input"], row["label"]): row for row in rows}


def test_coefficients_are_found_and_the_release_verifies(lay_out, tmp_path):
    curator = sf.open(lay_out(make_people(), columns=COLUMNS))
    recipe = Linear(table="t", target="spent", inputs=["age", "sex", "wage"])
    release = curator.release(recipe, epsilon=3, delta=1e-6, out=tmp_path / "out")
    found = coefficients(release)
    for key, truth in {
        ("age", None): 0.5,
        ("sex", "f"): 6,
        ("wage", None): 0.2,
        ("(constant)", None): 20,
    }.items():
        row = found[key]
        assert row["identified"]
        assert abs(row["coefficient"] - truth) < 5 * row["standard_error"]
        assert row["low_95"] < row["coefficient"] < row["high_95"]
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert model["recipe"] == "linear"
    assert model["left_out"] == {"sex": "m"}
    assert 0.5 < model["r_squared"] < 0.9
    assert "verified" in sf.verify(tmp_path / "out", ledger=curator.ledger_path).verdict
    again = curator.release(recipe, epsilon=3, delta=1e-6)
    assert again.repeated
    assert again.table.equals(release.table)


def test_principal_components_come_with_the_model(lay_out):
    random = np.random.default_rng(4)
    both = random.normal(0, 0.3, 20_000)
    rows = pa.table(
        {
            "a": both + random.normal(0, 0.05, both.size),
            "b": both + random.normal(0, 0.05, both.size),
            "c": random.normal(0, 0.1, both.size),
            "y": random.uniform(-1, 1, both.size),
        }
    )
    columns = "".join(f"[tables.t.columns.{name}]\nbounds = [-1, 1]\n" for name in "abcy")
    curator = sf.open(lay_out(rows, columns=columns))
    model = curator.learn(Linear(table="t", target="y"), epsilon=3, delta=1e-6)
    first, *others = model.components()
    held = np.clip(np.column_stack([rows[name] for name in "abc"]), -1, 1)
    exact = np.linalg.eigvalsh(np.cov(held.T))[::-1]
    assert abs(first["variance"] - exact[0]) < 5 * first["noise"] + 0.002
    assert first["noise"] < 0.05 * first["variance"]
    assert abs(first["loadings"]["a"] - 0.5**0.5) < 0.05
    assert abs(first["loadings"]["c"]) < 0.05
    assert all(each["variance"] < first["variance"] for each in others)


def test_what_the_noise_hides_is_not_identified(lay_out):
    curator = sf.open(lay_out(make_people(), columns=COLUMNS))
    recipe = Linear(table="t", target="spent", inputs=["age", "rare"])
    found = coefficients(curator.release(recipe, epsilon=1, delta=1e-6))
    assert found["age", None]["identified"]
    for label in ("yes", "other"):
        row = found["rare", label]
        assert not row["identified"]
        assert row["low_95"] is None
        assert abs(row["coefficient"]) < 150


def test_epsilon_too_small_gives_a_model_that_says_so(lay_out):
    curator = sf.open(lay_out(make_people(200), columns=COLUMNS))
    release = curator.release(Linear(table="t", target="spent"), epsilon=0.01, delta=1e-6)
    assert not any(release.table["identified"].to_pylist())
    assert np.isfinite(release.table["coefficient"].to_numpy()).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "sex"}, "holds labels"),
        ({"target": "rare"}, "holds labels"),
        ({"target": "spent", "inputs": ["spent", "age"]}, "among the inputs"),
        ({"target": "spent", "inputs": ["nobody"]}, "describes no column"),
        ({"target": "nothing"}, "describes no column"),
        ({"target": "spent", "inputs": []}, "must list columns"),
        ({"target": "spent", "inputs": ["age"], "categorical": ["sex"]}, "no input"),
    ],
)
def test_bad_options_are_refused_before_a_charge(lay_out, options, words):
    curator = sf.open(lay_out(make_people(50), columns=COLUMNS))
    with pytest.raises(sf.SfumatoError, match=words):
        curator.release(Linear(table="t", **options), epsilon=1, delta=1e-6)
    assert curator.budget().spent == 0


def test_a_constant_target_and_constant_inputs_do_no_harm(lay_out):
    people = make_people(3000)
    people = people.set_column(people.column_names.index("spent"), "spent", pa.array(np.full(3000, 40.0)))
    people = people.set_column(people.column_names.index("age"), "age", pa.array(np.full(3000, 30)))
    release = sf.open(lay_out(people, columns=COLUMNS)).release(
        Linear(table="t", target="spent", inputs=["age", "sex"]), epsilon=5, delta=1e-6
    )
    found = coefficients(release)
    assert not found["age", None]["identified"]
    assert abs(found["sex", "f"]["coefficient"]) < 10
