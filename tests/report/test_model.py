"""The report on an additive model: its shapes, its card, and nothing that is not released."""

import re

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.cli import invoke
from helpers.projects import write_project
from sfumato.report.model import build_model_report, describe_evaluation, has_model

COLUMNS = {"a": {"range": [0, 9]}, "b": {"values": ["<x>", "y"]}, "y": {"values": ["no", "yes"]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    a = np.arange(2000) % 10
    rows = pa.table({"a": a, "b": ["<x>", "y"] * 1000, "y": np.where(a > 4, "yes", "no")})
    curator = sf.open(write_project(place, COLUMNS, rows=rows, epsilon=50, delta=1e-3))
    curator.learn(sf.learn.Additive(table="t", target="y"), epsilon=5, delta=1e-6, out=place / "m")
    curator.release(sf.recipes.CellCounts(table="t", by=("b",)), epsilon=1, out=place / "counts")
    return place


def test_shapes_are_drawn_with_their_labels_escaped(folder):
    page = build_model_report(folder / "m").decode()
    assert page.count("<svg") >= 1
    assert 'class="band"' in page
    assert "<x>" not in page
    assert "Model card" in page
    assert build_model_report(folder / "m").decode() == page


def test_a_pair_is_a_picture_of_both_inputs(tmp_path):
    a, b = np.arange(6000) % 10, (np.arange(6000) // 10) % 2
    rows = pa.table({"a": a, "b": np.array(["<x>", "y"])[b], "y": np.where((a > 4) == (b == 1), "yes", "no")})
    curator = sf.open(write_project(tmp_path, COLUMNS, rows=rows, epsilon=50, delta=1e-3))
    recipe = sf.learn.Additive(table="t", target="y", pairs=1)
    curator.learn(recipe, epsilon=5, delta=1e-6, out=tmp_path / "m")
    page = build_model_report(tmp_path / "m").decode()
    assert "a x b" in page or "b x a" in page
    assert "from top to bottom" in page
    assert "<x>" not in page


def test_only_models_have_shapes(folder):
    assert has_model(folder / "m")
    assert not has_model(folder / "counts")


def test_the_command_writes_it_and_refuses_the_truth(folder):
    invoke("report", folder / "m", "--out", folder / "m.html")
    assert (folder / "m.html").stat().st_size > 1000
    invoke("report", folder / "m", "--out", folder / "n.html", "--truth", folder / "t.parquet", code=1)


@pytest.fixture(scope="module")
def regressions(tmp_path_factory):
    place = tmp_path_factory.mktemp("regressions")
    a = np.arange(3000) % 10
    b = (np.arange(3000) // 10) % 2
    noisy = a + 3 * b + np.random.default_rng(1).normal(0, 5, 3000)
    rows = pa.table({"a": a, "b": np.array(["<x>", "y"])[b], "y": np.where(noisy > 6, "yes", "no")})
    curator = sf.open(write_project(place, COLUMNS, rows=rows, epsilon=50, delta=1e-3))
    linear = sf.learn.Linear(table="t", target="a", inputs=("b", "y"))
    logistic = sf.learn.Logistic(table="t", target="y")
    curator.learn(linear, epsilon=8, delta=1e-6, out=place / "linear")
    curator.learn(logistic, epsilon=8, delta=1e-6, out=place / "logistic")
    curator.learn(linear, epsilon=0.001, delta=1e-6, out=place / "hidden")
    return place


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_coefficients_are_drawn_and_listed_with_their_intervals(regressions, kind):
    assert has_model(regressions / kind)
    page = build_model_report(regressions / kind).decode()
    assert f"a {kind} model of" in page
    assert 'class="whisker"' in page
    assert "standard error" in page
    assert "(constant)" in page
    assert "<x>" not in page
    assert build_model_report(regressions / kind).decode() == page


def test_coefficients_that_noise_hides_are_listed_without_interval(regressions):
    page = build_model_report(regressions / "hidden").decode()
    assert "hidden by noise" in page
    assert "No coefficient stands out" in page


def test_a_network_tells_what_its_inputs_move(tmp_path):
    a = np.arange(600) % 10
    rows = pa.table({"a": a, "b": ["<x>", "y"] * 300, "y": np.where(a > 4, "yes", "no")})
    curator = sf.open(write_project(tmp_path, COLUMNS, rows=rows, epsilon=50, delta=1e-3))
    recipe = sf.learn.Network(table="t", target="y", hidden=[4], steps=10)
    curator.learn(recipe, epsilon=8, delta=1e-5, out=tmp_path / "m")
    page = build_model_report(tmp_path / "m").decode()
    assert "moves it by" in page
    assert "act together is not in it" in page
    assert build_model_report(tmp_path / "m").decode() == page


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    place = tmp_path_factory.mktemp("judged")
    random = np.random.default_rng(6)
    a, b = random.integers(0, 10, 9000), random.integers(0, 2, 9000)
    odds = 0.5 * a + b - 2.5
    columns = COLUMNS | {"v": {"bounds": [0, 90]}}
    rows = {
        "a": a,
        "b": np.array(["<x>", "y"])[b],
        "v": np.clip(5 * a + 10 * b + random.normal(0, 9, 9000), 0, 90),
    }
    rows["y"] = np.where(random.random(9000) < 1 / (1 + np.exp(-odds)), "yes", "no")
    curator = sf.open(write_project(place, columns, rows=pa.table(rows), epsilon=50, delta=1e-3))
    shared = {"table": "t", "holdout": 0.4}
    candidates = [{"inputs": ["b"]}, {"inputs": ["a", "b"]}]
    classes = sf.learn.Logistic(target="y", groups="b", choose=candidates, **shared)
    numbers = sf.learn.Linear(target="v", inputs=["a", "b"], groups="b", **shared)
    curator.learn(classes, epsilon=4, delta=1e-6, out=place / "classes")
    curator.learn(numbers, epsilon=4, delta=1e-6, out=place / "numbers")
    curator.learn(numbers, epsilon=0.01, delta=1e-6, out=place / "noisy")
    return place


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_what_held_out_people_say_is_drawn(judged, kind):
    page = build_model_report(judged / kind).decode()
    assert "How good its predictions are" in page
    assert "observed" in page
    assert ("AUROC" in page) == (kind == "classes")
    assert ("R²" in page) == (kind == "numbers")
    assert ("of them are paid for" in page) == (kind == "classes")
    assert "<x>" not in page
    assert page.count("<svg") >= 4  # coefficients, all people, two groups
    assert build_model_report(judged / kind).decode() == page


def test_the_page_begins_with_its_accuracy_and_for_whom_it_is_worse(judged, folder):
    page = " ".join(build_model_report(judged / "classes").decode().split())
    lead = re.search(r'<p class="lead"> (.*?)</p>', page)[1]
    assert re.match(r"AUROC <b>0\.\d{3}</b> \(0\.\d{3} to 0\.\d{3}\) on people who were left out", lead)
    assert "Nobody was left out of the fit" in build_model_report(folder / "m").decode()
    each = {"value": 0.8, "low_95": 0.7, "high_95": 0.9}
    groups = [
        {"label": name, "auroc": each | {"value": high, "high_95": high}}
        for name, high in (("a", 0.69), ("b", 0.71))
    ]
    evaluation = {"share": "1/5", "auroc": each, "groups": {"column": "c", "each": groups}}
    found = describe_evaluation({"target": "y", "classes": ["no", "yes"], "evaluation": evaluation})
    assert [(worse["label"], worse["value"]) for worse in found["worse"]] == [("a", "0.690")]


def test_what_the_noise_hides_is_said_plainly(judged, folder):
    page = build_model_report(judged / "noisy").decode()
    assert "Too noisy to say" in page
    assert "too noisy to say" in page
    assert "holdout = 0.2" in build_model_report(folder / "m").decode()


def test_the_page_fits_a_phone(browser, judged, tmp_path):
    for kind in ("classes", "numbers", "noisy"):
        (tmp_path / f"{kind}.html").write_bytes(build_model_report(judged / kind))
        for width in (360, 1280):
            browser.open(tmp_path / f"{kind}.html", width=width)
            assert browser.heard()[1] == []
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
