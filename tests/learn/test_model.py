"""Released models in use: new data of every kind, exports, and what is refused."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import sfumato as sf
from helpers.cli import invoke
from helpers.projects import write_project
from sfumato.learn import parse_model

SPEC = {
    "age": {"range": [0, 9], "outside": "clamp"},
    "job": {"values": ["a", "b'c"], "outside": "other", "missing_label": "none"},
    "size": {"bins": [0, 1, 2.5], "missing_label": "none"},
    "month": {"from": "day", "period": "month"},
}


def make(family="classification", **options):
    terms = [
        {"columns": [name], "scores": list(range(start, start + size)), "deviations": [1] * size}
        for name, start, size in (("age", -300, 10), ("job", 40, 4), ("size", -90, 3), ("month", 5, 12))
    ]
    numbers = {"classes": ["no", "yes"]} if family == "classification" else {"low": "0", "high": "5"}
    document = {
        "format": "sfumato model 1",
        "recipe": "additive",
        "target": "y",
        "columns": SPEC,
        "family": family,
        "unit": "1/256",
        **numbers,
        "scores": [{"intercept": 300, "terms": terms}],
    }
    return parse_model(json.dumps({**document, **options}))


ROWS = {
    "age": [0, 9, 50, 3, None],
    "job": ["a", "b'c", "unheard of", None, "a"],
    "size": [0.0, 2.5, 1.0, None, 99.0],
    "day": [f"2024-0{month}-05" for month in (1, 2, 9, 3, 4)],
}


def rows():
    day = pa.array(ROWS["day"]).cast(pa.date32())
    return pa.table({**ROWS, "day": day})


def test_scores_are_added_by_value():
    chances = make().predict_proba(rows())
    scores = [
        300 - 300 + 40 - 90 + 5,
        300 - 291 + 41 - 89 + 6,
        300 - 291 + 43 - 89 + 13,
        300 - 297 + 42 - 88 + 7,
        300 + 0 + 40 + 0 + 8,
    ]
    assert np.allclose(chances[:, 1], 1 / (1 + np.exp(-np.array(scores) / 256)))
    assert make().predict(rows()).tolist() == ["no", "no", "no", "no", "yes"]


def test_what_the_model_does_not_know_is_counted():
    assert make().unknown(rows()) == {"age": 1, "size": 1}


@pytest.mark.parametrize("family", ["classification", "regression", "counts"])
def test_sql_predicts_the_same(family):
    model = make(family)
    with duckdb.connect() as connection:
        connection.register("new rows", rows())
        found = connection.sql(model.to_sql("new rows")).to_arrow_table()
    if family == "classification":
        assert np.allclose(found["probability"].to_numpy(), model.predict_proba(rows())[:, 1])
    else:
        assert np.allclose(found["predicted"].to_numpy(), model.predict(rows()))


PAIRS = [("age", "job"), ("size", "month"), ("job", "size")]


@pytest.mark.parametrize("columns", PAIRS)
def test_sql_predicts_the_same_with_pairs(columns):
    sizes = {"age": 10, "job": 4, "size": 3, "month": 12}
    cells = sizes[columns[0]] * sizes[columns[1]]
    values = np.random.default_rng(1).integers(-3, 4, cells) * 50
    term = {"columns": columns, "scores": values.tolist(), "deviations": [1] * cells}
    model = make(scores=[{"intercept": 3, "terms": [term]}])
    with duckdb.connect() as connection:
        connection.register("new rows", rows())
        found = connection.sql(model.to_sql("new rows")).to_arrow_table()
    assert np.allclose(found["probability"].to_numpy(), model.predict_proba(rows())[:, 1])
    (shape,) = model.shapes()
    assert len(shape["labels"]) == len(set(shape["labels"])) == cells


def test_a_model_reads_back_from_its_json():
    model = make()
    assert np.array_equal(parse_model(model.to_json()).predict_proba(rows()), model.predict_proba(rows()))


def test_missing_columns_are_named():
    with pytest.raises(sf.SfumatoError, match="day"):
        make().predict(rows().drop_columns(["day"]))


def test_a_number_that_is_text_is_refused_without_the_text():
    with pytest.raises(sf.SfumatoError) as caught:
        make().predict(rows().set_column(3, "day", pa.array(["secret"] * 5)))
    assert "secret" not in str(caught.value)


def test_no_rows_give_no_predictions():
    assert make().predict_proba(rows().slice(0, 0)).shape == (0, 2)


def test_a_number_has_no_classes():
    with pytest.raises(AttributeError, match="no classes"):
        _ = make("regression").classes_
    assert not hasattr(make("regression"), "classes_")


def test_an_estimator_is_fitted_already():
    estimator = make().to_sklearn()
    assert estimator.feature_names_in_ == list(make().stored)
    assert estimator.fit(rows()) is estimator
    assert estimator.classes_.tolist() == ["no", "yes"]
    assert estimator.predict(rows()).tolist() == make().predict(rows()).tolist()
    assert estimator.predict_proba(rows()).shape == (5, 2)
    assert not hasattr(make("regression").to_sklearn(), "predict_proba")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format": "sfumato model 1", "recipe": "oracle"}'],
    ids=["nothing", "list", "no format", "other recipe"],
)
def test_what_is_no_model_is_refused(content):
    with pytest.raises(sf.ReleaseError, match=r"model\.json"):
        parse_model(content)


def test_a_term_of_a_wrong_size_is_refused():
    with pytest.raises(sf.ReleaseError, match="wrong size"):
        make(columns={**SPEC, "age": {"range": [0, 99]}})


def test_the_command_predicts_in_the_order_of_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = pa.table({"a": [0, 1] * 300, "y": ["no", "yes"] * 300})
    write_project(
        tmp_path,
        {"a": {"range": [0, 1]}, "y": {"values": ["no", "yes"]}},
        rows=table,
        epsilon=50,
        delta=1e-3,
    )
    (tmp_path / "m.toml").write_text(
        'recipe = "additive"\ntable = "t"\ntarget = "y"\nepsilon = 20\ndelta = 1e-6\n'
    )
    invoke("release", "m.toml", "--out", "m")
    pyarrow.csv.write_csv(pa.table({"a": [1, 0, 7]}), tmp_path / "new.csv")
    done = invoke("predict", "m", "new.csv")
    assert [line.split(",")[0] for line in done.stdout.splitlines()][:3] == ["predicted", "yes", "no"]
    invoke("predict", "m", "new.csv", "--out", "p.parquet")
    invoke("predict", "m", "new.csv", "--out", "p.parquet", code=1)
    found = json.loads(invoke("predict", "m", "new.csv", "--json").stdout)
    assert found["rows"] == 3
    assert found["unknown"] == {"a": 1}
    assert "CASE" in invoke("predict", "m", "new.csv", "--sql", "people").stdout
    invoke("verify", "m")
