"""Private k-means: what is found, what is said where there is nothing, what is refused before a charge."""

import json

import numpy as np
import pyarrow as pa
import pytest
from tests.helpers.cli import invoke

import sfumato as sf
from sfumato.recipes import Clusters

COLUMNS = """
[tables.t.columns.x]
bounds = [0, 100]
[tables.t.columns.y]
range = [0, 200]
outside = "clamp"
[tables.t.columns.word]
values = ["a", "b"]
[tables.t.columns.gap]
range = [0, 9]
missing_label = "none"
[tables.t.columns.bare]
[tables.t.columns.size]
range = [0, 9]
[tables.t.columns.wide]
range = [0, 99999999]
"""
CENTRES = np.array([[20.0, 40.0], [80.0, 60.0], [50.0, 170.0]])


def make_people(people=9000, *, one=False):
    random = np.random.default_rng(3)
    place = np.zeros(people, np.int64) if one else np.arange(people) % 3
    points = CENTRES[place] + random.normal(size=(people, 2)) * (2, 4)
    return pa.table(
        {
            "p": np.arange(people) // 3,
            "x": points[:, 0],
            "y": points[:, 1].round().astype(np.int64),
            **{name: np.zeros(people, np.int64) for name in ("gap", "bare", "size", "wide")},
            "word": np.full(people, "a"),
        }
    )


def recipe(**options):
    return Clusters(**({"table": "t", "columns": ["x", "y"], "clusters": 3} | options))


@pytest.fixture
def curator(lay_out):
    return sf.open(lay_out(make_people(), columns=COLUMNS))


def test_clear_clusters_are_found_measured_and_verified(curator, tmp_path, seeded_noise):
    release = curator.release(recipe(), epsilon=1, delta=1e-6, out=tmp_path / "out")
    rows = release.table.to_pylist()
    assert release.table.column_names == ["cluster", "size", "size_low_95", "size_high_95", "x", "y"]
    found = sorted((row["x"], row["y"]) for row in rows)
    np.testing.assert_allclose(found, sorted(map(tuple, CENTRES.tolist())), atol=2)
    assert all(abs(row["size"] - 3000) < 200 for row in rows)
    facts = release.certificate["postprocessing"]["clusters"]
    assert facts["found"] == 3
    assert facts["note"] is None
    assert facts["explained"] > 0.9
    assert float(release.certificate["total"]["epsilon_at_delta"]["1e-6"]) <= 1
    assert len(release.measurements) == 3
    assert "verified" in sf.verify(tmp_path / "out", ledger=curator.ledger_path).verdict
    again = curator.release(recipe(), epsilon=1, delta=1e-6)
    assert again.repeated
    assert again.table.equals(release.table)


def test_new_rows_get_the_nearest_centre(curator):
    model = curator.learn(recipe(), epsilon=2, delta=1e-6)
    assert isinstance(model, sf.learn.ClusterPredictor)
    assert model.found
    new = pa.table({"x": [*CENTRES[:, 0], None, 10**6], "y": [40, 60, 170, 60, 60]})
    numbers = model.predict(new)
    assert sorted(numbers[:3].tolist()) == [1, 2, 3]
    assert numbers[3] == 0
    nearest = [int(np.argmin(((model.centres - each) ** 2).sum(axis=1))) + 1 for each in CENTRES]
    assert numbers[:3].tolist() == nearest
    assert model.unknown(new) == {"x": 1}
    with pytest.raises(sf.SfumatoError, match="no form in SQL"):
        model.to_sql("t")
    with pytest.raises(AttributeError):
        model.predict_proba(new)


def test_where_there_is_nothing_beyond_the_noise_it_says_so(lay_out, seeded_noise):
    curator = sf.open(lay_out(make_people(400), columns=COLUMNS))
    release = curator.release(recipe(), epsilon=0.01, delta=1e-6)
    facts = release.certificate["postprocessing"]["clusters"]
    assert facts["found"] == 0
    assert "no clusters found beyond the noise" in facts["note"]
    assert release.table.num_rows == 1
    model = json.loads(release.files["model.json"])
    assert model["found"] == 0


def test_one_heap_is_not_divided_by_noise(lay_out, seeded_noise):
    """All records within two percent of the range: what k-means gains there is within the noise."""
    curator = sf.open(lay_out(make_people(3000, one=True), columns=COLUMNS))
    release = curator.release(recipe(), epsilon=0.1, delta=1e-6)
    assert release.certificate["postprocessing"]["clusters"]["found"] == 0


def test_more_clusters_than_people_are_not_made_up(lay_out, seeded_noise):
    curator = sf.open(lay_out(make_people(9), columns=COLUMNS))
    release = curator.release(recipe(clusters=64), epsilon=1, delta=1e-6)
    assert release.certificate["postprocessing"]["clusters"]["found"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"columns": ["x", "word"]}, "must be a number"),
        ({"columns": ["x", "gap"]}, "missing_label"),
        ({"columns": ["x", "bare"]}, "no public domain"),
        ({"columns": ["x", "nothing"]}, "describes no column"),
        ({"columns": ["x", "size"]}, "named 'size'"),
        ({"columns": ["wide"]}, "declare bins"),
    ],
)
def test_bad_columns_are_refused_before_a_charge(curator, options, words):
    with pytest.raises(sf.SfumatoError, match=words):
        curator.release(recipe(**options), epsilon=1, delta=1e-6)
    assert curator.budget().spent == 0


@pytest.mark.parametrize(
    "options",
    [{"columns": []}, {"columns": ["x", "x"]}, {"clusters": 1}, {"clusters": 65}, {"clusters": 2.5}],
)
def test_bad_options_are_refused(options):
    with pytest.raises(sf.SfumatoError):
        recipe(**options)


def test_the_report_and_the_command_tell_of_centres(curator, tmp_path):
    curator.release(recipe(), epsilon=1, delta=1e-6, out=tmp_path / "out")
    invoke("report", tmp_path / "out", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "clusters beyond the noise" in page
    assert "Sizes of clusters" in page
    (tmp_path / "new.csv").write_text("x,y\n20,40\n80,60\n")
    lines = invoke("predict", tmp_path / "out", tmp_path / "new.csv").stdout.split()
    assert len(set(lines[-2:])) == 2
