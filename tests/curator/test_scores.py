"""Scores that may be published: their sensitivity, their noise, their charge, and what is refused."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import project_text
from sfumato.core.questions.scores import SCORE_GRID
from sfumato.metrics import pie_chart
from sfumato.recipes import CellCounts

PROJECT = project_text(
    {
        "place": {"range": [0, 7]},
        "kind": {"values": ["a", "b", "c"]},
    },
    unit="person",
    epsilon=100,
    max_records=5,
    more="{more}",
)


def crowd(people=200, seed=4):
    random = np.random.default_rng(seed)
    rows = people * 3
    return {
        "person": (np.arange(rows) % people).tolist(),
        "place": random.integers(0, 8, rows).tolist(),
        "kind": random.choice(["a", "b", "c"], rows).tolist(),
    }


def lay_out(folder, records, more=""):
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table(records), folder / "t.parquet")
    (folder / "sfumato.toml").write_text(PROJECT.format(more=more))
    return sf.open(folder / "sfumato.toml")


@pytest.fixture
def curator(tmp_path):
    curator = lay_out(tmp_path, crowd())
    curator.release(CellCounts(table="t", by=["place", "kind"]), epsilon=[1, 4], out=tmp_path / "out")
    return curator


def without_noise(monkeypatch):
    drawn = []

    def record(values, *, kind, scale):
        drawn.append((values.copy(), kind, scale))
        return values

    monkeypatch.setattr("sfumato.core.noise.add_noise", record)
    return drawn


def test_a_score_is_charged_and_repeated_for_nothing(curator, tmp_path):
    before = Fraction(str(curator.budget().spent))
    first = curator.publish_score(tmp_path / "out", epsilon=2)
    assert Fraction(str(curator.budget().spent)) == before + 2
    again = curator.publish_score(tmp_path / "out", epsilon=2)
    assert Fraction(str(curator.budget().spent)) == before + 2
    assert again.repeated
    assert again.scores == first.scores
    assert [score["epsilon"] for score in first.scores] == [1.0, 4.0]
    assert all(0 <= score["low"] <= score["score"] <= score["high"] <= 1 for score in first.scores)


@pytest.mark.parametrize(("metric", "bound"), [("pie-chart", 5 * SCORE_GRID), ("l1", 5)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_noise_is_that_of_the_charge(tmp_path, monkeypatch, metric, bound, neighbours):
    drawn = without_noise(monkeypatch)
    curator = lay_out(tmp_path / neighbours, crowd(), more=f'neighbours = "{neighbours}"')
    out = tmp_path / "out"
    curator.release(CellCounts(table="t", by=["place", "kind"]), epsilon=[1, 4], out=out)
    drawn.clear()
    curator.publish_score(out, epsilon="0.5", metric=metric)
    (_, kind, scale), second = drawn
    assert second[1:] == (kind, scale)
    factor = 2 if neighbours == "replace" else 1
    assert kind == "laplace"
    assert scale == bound * factor * 2 / Fraction(1, 2), "two scores share epsilon"


@pytest.mark.parametrize("metric", ["pie-chart", "l1"])
@pytest.mark.parametrize(
    "individual",
    [
        [("0", "a")] * 5,
        [(str(place), "b") for place in range(5)],
        [(str(place % 8), "c") for place in range(40)],
        [("3", "a"), ("99", "z")],
    ],
    ids=["one cell", "five rows", "over the bound", "outside"],
)
def test_no_individual_moves_a_score_beyond_its_bound(tmp_path, monkeypatch, metric, individual):
    drawn = without_noise(monkeypatch)
    records = crowd()
    curator = lay_out(tmp_path / "with", records)
    out = tmp_path / "out"
    curator.release(CellCounts(table="t", by=["place", "kind"]), epsilon=3, out=out)
    drawn.clear()
    curator.publish_score(out, epsilon=1, metric=metric)
    more = {key: list(values) for key, values in records.items()}
    for place, kind in individual:
        more["person"].append(10**6)
        more["place"].append(int(place))
        more["kind"].append(kind)
    lay_out(tmp_path / "more", more).publish_score(out, epsilon=1, metric=metric)
    (before, _, scale), (after, _, same) = drawn
    assert scale == same
    assert abs(int(after[0]) - int(before[0])) <= scale


def test_the_bound_of_an_l1_score_is_reached(tmp_path, monkeypatch):
    drawn = without_noise(monkeypatch)
    empty = {"person": [1], "place": [0], "kind": ["a"]}
    curator = lay_out(tmp_path / "one", empty)
    out = tmp_path / "out"
    curator.release(CellCounts(table="t", by=["place", "kind"]), epsilon=50, out=out)
    drawn.clear()
    curator.publish_score(out, epsilon=1, metric="l1")
    busy = {"person": [1] + [2] * 5, "place": [0] + [7] * 5, "kind": ["a"] + ["c"] * 5}
    lay_out(tmp_path / "two", busy).publish_score(out, epsilon=1, metric="l1")
    assert abs(int(drawn[1][0][0]) - int(drawn[0][0][0])) == 5


def test_exact_scores_are_those_of_the_metric(curator, tmp_path, monkeypatch):
    drawn = without_noise(monkeypatch)
    found = curator.publish_score(tmp_path / "out", epsilon=1)
    table = pq.read_table(tmp_path / "out" / "table.parquet")
    counts = np.array(table["count"].to_pylist()).reshape(2, 8, 3)
    truth = np.zeros((8, 3), np.int64)
    for _, place, kind in zip(*crowd().values(), strict=True):
        truth[place, "abc".index(kind)] += 1
    for score, each in zip(found.scores, counts, strict=True):
        assert score["score"] == pytest.approx(pie_chart(truth, each).mean, abs=1e-5)
    assert len(drawn) == 2


@pytest.mark.parametrize("metric", ["k-marginal", "taxi", "match3", "general"])
def test_scores_without_a_known_sensitivity_are_refused(curator, tmp_path, metric):
    before = curator.budget().spent
    with pytest.raises(sf.RecipeError, match="sensitivity"):
        curator.publish_score(tmp_path / "out", epsilon=1, metric=metric)
    assert curator.budget().spent == before


def test_weights_have_no_pie_chart_score(tmp_path):
    curator = lay_out(tmp_path / "w", crowd(), more='bounding = "weight"')
    curator.release(CellCounts(table="t", by=["place", "kind"]), epsilon=1, out=tmp_path / "out")
    with pytest.raises(sf.RecipeError, match="truncate"):
        curator.publish_score(tmp_path / "out", epsilon=1)
    assert curator.publish_score(tmp_path / "out", epsilon=1, metric="l1").scores[0]["score"] >= 0


def test_a_score_that_does_not_fit_the_budget_is_refused(curator, tmp_path):
    with pytest.raises(sf.BudgetExceeded):
        curator.publish_score(tmp_path / "out", epsilon=1000)


def test_a_file_is_no_release(curator, tmp_path):
    with pytest.raises(sf.RecipeError, match="release folder"):
        curator.publish_score(tmp_path / "out" / "table.parquet", epsilon=1)
