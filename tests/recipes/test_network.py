"""The recipe `network`: released, verified, used, and steady on what cannot be learnt."""

import json

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core.errors import ReleaseError, SourceError
from sfumato.learn import Network, NetworkPredictor, open_model, parse_model

COLUMNS = {
    "x": {"range": [0, 20]},
    "y": {"bounds": [-1, 1]},
    "kind": {"values": ["a", "b", "c"]},
    "hit": {"values": ["no", "yes"]},
    "amount": {"bounds": [0, 10]},
}


def make_rows(count=4000, *, people=None):
    random = np.random.default_rng(8)
    x, y, kind = random.integers(0, 21, count), random.uniform(-1, 1, count), random.integers(0, 3, count)
    # Neither x nor y says anything alone: it takes a hidden layer.
    hit = ((x > 10) ^ (y > 0)) ^ (random.random(count) < 0.05)
    return pa.table(
        {
            "p": np.arange(count) % (people or count),
            "x": x,
            "y": y,
            "kind": np.array(["a", "b", "c"])[kind],
            "hit": np.where(hit, "yes", "no"),
            "amount": np.clip(5 + 2 * y + kind + random.normal(size=count), 0, 10),
        }
    )


def lay_out(folder, rows=None, **facts):
    facts = {"epsilon": 40, "delta": "1e-5", **facts}
    return sf.open(write_project(folder, COLUMNS, rows=make_rows() if rows is None else rows, **facts))


@pytest.mark.slow
def test_a_network_learns_what_no_sum_of_functions_can(tmp_path, seeded_noise):
    curator = lay_out(tmp_path)
    recipe = Network(table="t", target="hit", inputs=["x", "y"], hidden=[16])
    model = curator.learn(recipe, epsilon=8, delta="1e-5", out=tmp_path / "out")
    assert isinstance(model, NetworkPredictor)
    rows = make_rows(1000)
    found = (model.predict(rows) == rows["hit"].to_numpy(zero_copy_only=False)).mean()
    assert found > 0.8
    assert model.classes_.tolist() == ["no", "yes"]
    chances = model.predict_proba(rows)
    assert np.allclose(chances.sum(axis=1), 1)
    assert "verified" in sf.verify(tmp_path / "out", ledger=curator.ledger_path).verdict
    again = open_model(tmp_path / "out")
    assert (again.predict_proba(rows) == chances).all()
    assert (parse_model(model.to_json()).predict_proba(rows) == chances).all()
    with pytest.raises(sf.SfumatoError, match="not exported to SQL"):
        model.to_sql("t")
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert float(certificate["total"]["epsilon_at_delta"]["1e-5"]) <= 8
    assert "sampled" in {each["kind"] for each in certificate["measurements"]}
    assert curator.release(recipe, epsilon=8, delta="1e-5").repeated


def test_numbers_are_predicted_within_their_bounds(tmp_path, seeded_noise):
    recipe = Network(table="t", target="amount", inputs=["y", "kind"], hidden=[8], steps=40)
    model = lay_out(tmp_path).learn(recipe, epsilon=10, delta="1e-5")
    rows = make_rows(1000)
    predicted, truth = model.predict(rows), rows["amount"].to_numpy()
    assert model.family == "regression"
    assert 0 <= predicted.min() <= predicted.max() <= 10
    assert 1 - ((truth - predicted) ** 2).mean() / truth.var() > 0.3
    with pytest.raises(AttributeError):
        _ = model.classes_


@pytest.mark.parametrize("facts", [{}, {"neighbours": "replace"}])
def test_people_with_several_records_are_one_individual(tmp_path, facts):
    rows = make_rows(2000, people=400)
    curator = lay_out(tmp_path, rows, unit="p", max_records=3, **facts)
    recipe = Network(table="t", target="hit", inputs=["x"], hidden=[4], steps=5)
    release = curator.release(recipe, epsilon=4, delta="1e-5", out=tmp_path / "out")
    told = release.certificate["postprocessing"]["model"]
    assert 200 < told["individuals"] < 700
    sf.verify(tmp_path / "out", ledger=curator.ledger_path)


def test_an_epsilon_too_small_gives_a_model_near_the_constant_and_says_so(tmp_path, seeded_noise):
    recipe = Network(table="t", target="hit", hidden=[8], steps=20)
    curator = lay_out(tmp_path, make_rows(300))
    release = curator.release(recipe, epsilon="0.05", delta="1e-5")
    assert "little or nothing" in release.certificate["postprocessing"]["model"]["note"]
    chances = parse_model(release.files["model.json"]).predict_proba(make_rows(200))
    assert np.ptp(chances[:, 0]) < 0.9


@pytest.mark.parametrize(
    ("rows", "inputs"),
    [
        (make_rows(0), ["x"]),
        (make_rows(300).set_column(4, "hit", pa.array(["yes"] * 300)), ["x"]),
        (make_rows(300).set_column(4, "hit", pa.array([None] * 300, pa.string())), ["x"]),
        (make_rows(300).set_column(2, "y", pa.array([float("nan")] * 300)), ["x", "y"]),
    ],
    ids=["no record", "one class", "no target", "not a number"],
)
def test_what_cannot_be_learnt_still_gives_a_model(tmp_path, rows, inputs):
    recipe = Network(table="t", target="hit", inputs=inputs, hidden=[4], steps=5)
    model = lay_out(tmp_path, rows).learn(recipe, epsilon=3, delta="1e-5")
    assert np.isfinite(model.predict_proba(make_rows(50))).all()


def test_no_hidden_layer_several_layers_and_separable_data(tmp_path):
    rows = make_rows(1000)
    rows = rows.set_column(4, "hit", pa.array(np.where(rows["x"].to_numpy() > 10, "yes", "no")))
    curator = lay_out(tmp_path, rows)
    for hidden in ([], [4, 3]):
        recipe = Network(table="t", target="hit", inputs=["x"], hidden=hidden, steps=30)
        model = curator.learn(recipe, epsilon=8, delta="1e-5")
        assert len(json.loads(model.to_json())["layers"]) == len(hidden) + 1
        assert (model.predict(rows) == rows["hit"].to_numpy(zero_copy_only=False)).mean() > 0.9


def test_new_data_with_unknown_values_and_missing_columns(tmp_path):
    recipe = Network(table="t", target="hit", inputs=["x", "kind"], hidden=[4], steps=3)
    model = lay_out(tmp_path).learn(recipe, epsilon=3, delta="1e-5")
    strange = pa.table({"x": [10, None, 99], "kind": ["a", "zebra", None]})
    middle = model.predict_proba(strange)
    assert np.allclose(middle[1], middle[0])
    assert model.unknown(strange) == {"x": 2, "kind": 2}
    with pytest.raises(SourceError, match="kind"):
        model.predict(strange.select(["x"]))


WRONG = {
    "target among": {"target": "hit", "inputs": ["hit"]},
    "hidden": {"target": "hit", "hidden": [0]},
    "hidden must": {"target": "hit", "hidden": 8},
    "family": {"target": "hit", "family": "counts"},
    "sampling": {"target": "hit", "sampling": 2},
    "clip": {"target": "hit", "clip": 0},
    "steps": {"target": "hit", "steps": 0},
    "categorical": {"target": "hit", "categorical": ["nobody"]},
    "no number": {"target": "kind", "family": "regression"},
    "classes": {"target": "y", "family": "classification"},
    "noisy numbers": {"target": "hit", "hidden": [1024, 1024]},
    "unknown": {"target": "nobody"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_makes_no_sense_is_refused_before_a_charge(tmp_path, message):
    curator = lay_out(tmp_path, make_rows(10))
    options = WRONG[message]
    with pytest.raises(sf.SfumatoError):
        curator.learn(Network(table="t", **options), epsilon=1, delta="1e-5")
    assert curator.budget().spent == 0


def test_a_model_that_was_changed_is_refused(tmp_path):
    recipe = Network(table="t", target="hit", inputs=["x"], hidden=[2], steps=3)
    document = json.loads(lay_out(tmp_path).learn(recipe, epsilon=3, delta="1e-5").to_json())
    document["layers"][0].pop()
    with pytest.raises(ReleaseError, match="no network model"):
        parse_model(json.dumps(document))
