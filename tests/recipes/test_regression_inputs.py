"""Bad input for `linear` and `logistic`: each is refused with what to do, or has a model that says so."""

import json

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.recipes import Linear, Logistic

COLUMNS = """
[tables.t.columns.age]
range = [18, 89]
[tables.t.columns.height]
bounds = [100, 220]
[tables.t.columns.job]
values = [{jobs}]
[tables.t.columns.works]
values = ["no", "yes"]
[tables.t.columns.plain]
"""
JOBS = ", ".join(f'"{place}"' for place in range(60))
BOTH = pytest.mark.parametrize("recipe", [Linear, Logistic], ids=["linear", "logistic"])
TARGET = {Linear: "height", Logistic: "works"}


def make_people(count=4000, **columns):
    random = np.random.default_rng(2)
    age = random.integers(18, 90, count)
    made = {
        "p": np.arange(count) // 4,
        "age": age,
        "height": 150 + 0.2 * age + random.normal(0, 8, count),
        "job": random.integers(0, 60, count).astype(str),
        "works": np.where(random.random(count) < age / 100, "yes", "no"),
        "plain": random.integers(0, 9, count),
    }
    return pa.table(made | columns)


@pytest.fixture
def open_people(lay_out):
    def write(people=None, **facts):
        rows = make_people() if people is None else people
        return sf.open(lay_out(rows, columns=COLUMNS.format(jobs=JOBS), **facts))

    return write


def terms(release):
    return {(row["input"], row["label"]): row for row in release.table.to_pylist()}


@BOTH
def test_a_column_without_domain_is_refused_before_a_charge(open_people, recipe):
    curator = open_people()
    for options in ({"target": TARGET[recipe], "inputs": ["plain"]}, {"target": "plain", "inputs": ["age"]}):
        with pytest.raises(sf.SfumatoError, match="plain"):
            curator.release(recipe(table="t", **options), epsilon=1, delta=1e-6)
    assert curator.budget().spent == 0
    # By default it is no input.
    release = curator.release(recipe(table="t", target=TARGET[recipe]), epsilon=1, delta=1e-6)
    assert "plain" not in json.loads(release.files["model.json"])["columns"]


@BOTH
def test_records_without_a_target_or_an_input_are_left_out(open_people, recipe):
    people = make_people(6000)
    gone = np.arange(6000) % 2 == 0
    for name in (TARGET[recipe], "age"):
        values = people[name].to_pylist()
        missing = pa.array([None if lost else value for value, lost in zip(values, gone, strict=True)])
        people = people.set_column(people.column_names.index(name), name, missing)
    release = open_people(people).release(
        recipe(table="t", target=TARGET[recipe], inputs=["age"]), epsilon=3, delta=1e-6
    )
    assert abs(json.loads(release.files["model.json"])["records"] - 3000) < 300


def test_nan_is_a_missing_value(open_people):
    people = make_people(6000)
    height = np.where(np.arange(6000) % 3 == 0, np.nan, people["height"].to_numpy())
    people = people.set_column(people.column_names.index("height"), "height", pa.array(height))
    curator = open_people(people)
    release = curator.release(Linear(table="t", target="height", inputs=["age"]), epsilon=3, delta=1e-6)
    assert abs(json.loads(release.files["model.json"])["records"] - 4000) < 200
    assert terms(release)["age", None]["coefficient"] == pytest.approx(0.2, abs=0.1)
    by_height = curator.release(Logistic(table="t", target="works", inputs=["height"]), epsilon=3, delta=1e-6)
    assert np.isfinite(by_height.table["coefficient"].to_numpy()).all()


@BOTH
def test_a_target_that_is_always_missing_gives_a_model_that_says_so(open_people, recipe):
    kind = pa.float64() if recipe is Linear else pa.string()
    people = make_people(500).drop_columns([TARGET[recipe]])
    people = people.append_column(TARGET[recipe], pa.nulls(500, kind))
    release = open_people(people).release(
        recipe(table="t", target=TARGET[recipe], inputs=["age"]), epsilon=1, delta=1e-6
    )
    assert not any(release.table["identified"].to_pylist())
    assert np.isfinite(release.table["coefficient"].to_numpy()).all()
    assert "no coefficient stands out" in release.certificate["postprocessing"]["note"]


@BOTH
def test_more_terms_than_people(open_people, recipe):
    release = open_people(make_people(40)).release(
        recipe(table="t", target=TARGET[recipe], inputs=["age", "job"]), epsilon=2, delta=1e-6
    )
    assert release.table.num_rows == 61
    assert np.isfinite(release.table["coefficient"].to_numpy()).all()
    assert "no coefficient stands out" in release.certificate["postprocessing"]["note"]


@BOTH
def test_new_data_with_unseen_values_and_missing_columns(open_people, recipe):
    model = open_people().learn(
        recipe(table="t", target=TARGET[recipe], inputs=["age", "job"]), epsilon=1, delta=1e-6
    )
    strange = pa.table({"age": pa.array([200, None, 30]), "job": ["astronaut", None, "1"]})
    predicted = model.predict(strange)
    assert len(predicted) == 3
    assert model.unknown(strange)
    with pytest.raises(sf.SfumatoError, match="job"):
        model.predict(strange.drop_columns(["job"]))
