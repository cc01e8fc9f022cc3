"""Released linear and logistic models in use: coefficients, predictions, SQL, and what is refused."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import sfumato as sf
from helpers.cli import invoke
from helpers.projects import write_project
from sfumato.learn import RegressionPredictor, parse_model

SPEC = {
    "age": {"range": [20, 60], "outside": "clamp", "missing_label": "unknown"},
    "paid": {"bins": [i / 5 for i in range(101)], "outside": "clamp"},
    "size": {"bins": [0, 1, 2.5], "missing_label": "none"},
    "job": {"values": ["a", "b'c", "d"], "outside": "other"},
    "year": {"from": "day", "period": "year", "range": [2020, 2025]},
}
TERMS = [
    {"column": None, "coefficient": -2.0},
    {"column": "age", "low": "20", "high": "60", "coefficient": 0.1},
    {"column": "age", "label": "unknown", "coefficient": 0.7},
    {"column": "paid", "low": "0", "high": "20", "coefficient": -0.3},
    {"column": "size", "low": "0", "high": "2.5", "coefficient": 2.0},
    {"column": "size", "label": "none", "coefficient": -1.0},
    {"column": "job", "label": "b'c", "coefficient": 0.5},
    {"column": "job", "label": "other", "coefficient": -0.25},
    {"column": "year", "low": "2020", "high": "2025", "coefficient": 0.001},
]


def make(recipe, **options):
    facts = {"bounds": ["-9", "9"]} if recipe == "linear" else {"classes": ["no", "yes"]}
    family = "regression" if recipe == "linear" else "classification"
    document = {
        "format": "sfumato model 1",
        "recipe": recipe,
        "target": "y",
        "columns": SPEC,
        "family": family,
        "terms": TERMS,
        **facts,
    }
    return parse_model(json.dumps({**document, **options}))


def rows():
    generator = np.random.default_rng(1)
    size = 500
    return pa.table(
        {
            "age": pa.array([*generator.integers(0, 90, size - 2).tolist(), None, 20]),
            "paid": pa.array([*generator.uniform(-5, 25, size - 3).tolist(), None, 0.0, 20.0]),
            "size": pa.array([*generator.uniform(-1, 4, size - 3).tolist(), None, 0.0, 2.5]),
            "job": pa.array([*generator.choice(["a", "b'c", "d", "x"], size - 1).tolist(), None]),
            "day": pa.array([f"20{year}-03-01" for year in generator.integers(18, 27, size)]).cast(
                pa.date32()
            ),
        }
    )


@pytest.mark.parametrize("recipe", ["linear", "logistic"])
def test_sql_predicts_the_same(recipe):
    model = make(recipe)
    with duckdb.connect() as connection:
        connection.register("new rows", rows())
        found = connection.sql(model.to_sql("new rows")).to_arrow_table()
    if recipe == "linear":
        assert np.allclose(found["predicted"].to_numpy(), model.predict(rows()))
    else:
        assert np.allclose(found["probability"].to_numpy(), model.predict_proba(rows())[:, 1])


def test_a_line_through_many_bins_is_a_formula():
    assert "FLOOR" in make("linear").to_sql("t")
    assert make("linear").to_sql("t").count("WHEN") < 60


def test_scores_beyond_what_exp_takes_are_held():
    model = make("logistic", terms=[*TERMS, {"column": "job", "label": "d", "coefficient": 5000.0}])
    with duckdb.connect() as connection:
        connection.register("t", rows())
        found = connection.sql(model.to_sql("t")).to_arrow_table()
    assert np.allclose(found["probability"].to_numpy(), model.predict_proba(rows())[:, 1])


def test_classes_keep_their_kinds():
    model = make("logistic", classes=["not 3", 3])
    assert model.classes_.tolist() == ["not 3", 3]
    assert set(model.predict(rows()).tolist()) <= {"not 3", 3}


@pytest.mark.parametrize(
    "options",
    [
        {"terms": [{"column": "gone", "label": "x", "coefficient": 1.0}]},
        {"terms": [{"column": "job", "label": "gone", "coefficient": 1.0}]},
        {"terms": 3},
        {"classes": ["only"]},
        {"family": "regression"},
    ],
    ids=["column", "label", "no list", "classes", "family"],
)
def test_what_is_no_model_is_refused(options):
    with pytest.raises(sf.ReleaseError, match=r"model\.json is no logistic model"):
        make("logistic", **options)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    generator = np.random.default_rng(3)
    age, sex = generator.integers(20, 61, 4000), generator.integers(0, 2, 4000)
    spent = np.clip(10 + age + 20 * sex + generator.normal(0, 5, 4000), 0, 100)
    table = pa.table(
        {
            "age": age,
            "sex": np.array(["<m>", "f"])[sex],
            "spent": spent,
            "much": np.where(spent > 60, "yes", "no"),
        }
    )
    columns = {
        "age": {"range": [20, 60]},
        "sex": {"values": ["<m>", "f"]},
        "spent": {"bounds": [0, 100]},
        "much": {"values": ["no", "yes"]},
    }
    project = write_project(folder, columns, rows=table, epsilon=100, delta=1e-3)
    curator = sf.open(project)
    inputs = ("age", "sex")
    linear = sf.learn.Linear(table="t", target="spent", inputs=inputs)
    logistic = sf.learn.Logistic(table="t", target="much", inputs=inputs)
    curator.learn(linear, epsilon=10, delta=1e-6, out=folder / "linear")
    curator.learn(logistic, epsilon=10, delta=1e-6, out=folder / "logistic")
    return folder


def test_a_linear_model_is_learnt_and_opened(project):
    model = sf.learn.open_model(project / "linear")
    assert isinstance(model, RegressionPredictor)
    found = {(each["input"], each["label"]): each for each in model.coefficients()}
    age = found["age", None]
    assert age["low_95"] < age["coefficient"] < age["high_95"]
    assert age["coefficient"] == pytest.approx(1, abs=0.1)
    assert found["sex", "f"]["coefficient"] == pytest.approx(20, abs=2)
    predicted = model.predict({"age": [30, 50], "sex": ["<m>", "f"]})
    assert predicted.tolist() == pytest.approx([40, 80], abs=3)
    assert not hasattr(model.to_sklearn(), "predict_proba")


def test_a_logistic_model_is_learnt_and_opened(project):
    model = sf.learn.open_model(project / "logistic")
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.predict({"age": [25, 60], "sex": ["<m>", "f"]}).tolist() == ["no", "yes"]
    assert model.to_sklearn().predict_proba({"age": [25], "sex": ["f"]}).sum() == pytest.approx(1)
    assert model.to_json().encode() == (project / "logistic" / "model.json").read_bytes()
    assert sf.verify(project / "logistic")


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_headers_are_alike(project, kind):
    document = json.loads((project / kind / "model.json").read_text())
    header = "format recipe table target columns protects epsilon delta family link"
    assert " ".join(document).startswith(header)


def test_the_command_tells_what_unknown_values_do(project, tmp_path):
    pyarrow.csv.write_csv(pa.table({"age": [30, 99], "sex": ["f", "x"]}), tmp_path / "new.csv")
    done = invoke("predict", project / "linear", tmp_path / "new.csv")
    assert len(done.stdout.splitlines()) == 3
    assert "middle of their bounds" in done.stderr
