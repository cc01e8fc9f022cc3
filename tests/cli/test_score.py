"""`sfumato score`, called as the command line calls it."""

import json
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import invoke
from sfumato.cli.city import write_demo
from sfumato.metrics import INTERNAL, pie_chart

run = partial(invoke, "score")


def as_json(*arguments):
    result = run(*arguments, "--json")
    assert INTERNAL in result.stderr
    document = json.loads(result.stdout)
    assert document["internal"] == INTERNAL
    return document


@pytest.fixture
def out(project, seeded_noise):
    """The folder of a release of counts at two epsilons."""
    recipe = sf.recipes.CellCounts(table="t", by=("region", "month"))
    sf.open(project).release(recipe, epsilon=[1, 10], out=project.parent / "out")
    return project.parent / "out"


def test_a_release_is_compared_with_the_projects_own_table(project, out):
    document = as_json(out, "--project", project)
    assert document["metric"] == "general"
    assert [each["epsilon"] for each in document["results"]] == [1, 10]
    for each in document["results"]:
        assert each["columns"] == ["region", "month"]
        assert each["rows"]["truth"] == 30
        assert [row["name"] for row in each["references"]][:3] == [
            "all-zero release",
            "uniform release",
            "half of the individuals",
        ]
    assert document["results"][1]["marginals"]["2"]["mean"] < document["results"][0]["marginals"]["2"]["mean"]


def test_every_text_output_begins_by_saying_that_it_is_internal(project, out):
    for arguments in ([], ["--metric", "pie-chart"]):
        result = run(out, "--truth", project.parent / "t.parquet", *arguments)
        assert result.stdout.splitlines()[0] == INTERNAL
        assert INTERNAL in result.stderr  # stdout is no terminal here
        assert "epsilon 1\n" in result.stdout
        for name in ("all-zero release", "uniform release", "half of the individuals", "this release"):
            assert name in result.stdout


def test_the_text_of_the_general_metrics_shows_the_worst_first(project, out):
    text = run(out, "--truth", project.parent / "t.parquet").stdout
    for words in (
        "worst marginals",
        "worst groups",
        "associations",
        "a plain sample of",
        "AUC",
        "region x month",
    ):
        assert words in text


def test_pie_charts_of_a_count_table_take_the_last_column_for_the_kind(project, out):
    document = as_json(out, "--project", project, "--metric", "pie-chart")
    truth = np.zeros((3, 12), np.int64)
    for row in pq.read_table(project.parent / "t.parquet").to_pylist():
        truth["abc".index(row["region"]), row["month"] - 1] += 1
    released = pq.read_table(out / "table.parquet").to_pydict()
    counts = np.array(released["count"]).reshape(2, 3, 12)
    for place, each in enumerate(document["results"]):
        assert each["total"] == pytest.approx(pie_chart(truth, counts[place]).total)
        assert each["rows"] == 3
        zeros = next(row for row in each["references"] if row["name"] == "all-zero release")
        assert zeros["total"] == pytest.approx(pie_chart(truth, np.zeros_like(truth)).total)
    assert document["overall"]["total"] == pytest.approx(sum(each["total"] for each in document["results"]))
    named = as_json(
        out, "--project", project, "--metric", "pie-chart", "--place", "month", "--kind", "region"
    )
    assert named["results"][0]["rows"] == 12


def test_a_contest_submission_is_scored_against_the_incidents(tmp_path):
    incidents = pa.table(
        {
            "neighborhood": [0, 0, 1, 1, 1],
            "year": [2019] * 5,
            "month": [1, 1, 1, 2, 2],
            "incident_type": [7, 8, 7, 7, 7],
            "sim_resident": [1, 2, 3, 4, 5],
        }
    )
    submission = pa.table(
        {
            "epsilon": [1.0] * 3 + [2.0] * 3,
            "neighborhood": [0, 1, 1] * 2,
            "year": [2019] * 6,
            "month": [1, 1, 2] * 2,
            "7": [1, 1, 2, 1, 0, 2],
            "8": [1, 0, 0, 9, 0, 0],
        }
    )
    pyarrow.csv.write_csv(incidents, tmp_path / "incidents.csv")
    pyarrow.csv.write_csv(submission, tmp_path / "submission.csv")
    options = ["--metric", "pie-chart", "--place", "neighborhood", "--time", "year", "--time", "month"]
    document = as_json(
        tmp_path / "submission.csv",
        "--truth",
        tmp_path / "incidents.csv",
        *options,
        "--kind",
        "incident_type",
    )
    first, second = document["results"]
    assert (first["epsilon"], first["rows"], first["total"]) == (1, 3, 3)
    assert second["total"] < 3


def records(rows, seed):
    generator = np.random.default_rng(seed)
    return {
        "PUMA": generator.integers(0, 3, rows),
        "YEAR": generator.integers(2012, 2014, rows),
        "SEX": generator.integers(1, 3, rows),
        "AGE": generator.integers(0, 90, rows),
        "CITY": generator.integers(0, 4, rows),
        "INCWAGE": generator.integers(0, 4000, rows),
        "taxi_id": generator.integers(0, 30, rows),
        "shift": generator.integers(0, 21, rows),
        "pickup_community_area": generator.integers(1, 5, rows),
        "dropoff_community_area": generator.integers(1, 5, rows),
        "company_id": generator.integers(0, 3, rows),
        "payment_type": generator.integers(0, 3, rows),
        **{
            name: generator.integers(0, 99, rows)
            for name in ("fare", "tips", "trip_total", "trip_seconds", "trip_miles")
        },
    }


@pytest.mark.parametrize(
    ("metric", "options"),
    [
        ("k-marginal", ["--place", "PUMA", "--time", "YEAR", "--bias-cutoff", "9"]),
        ("taxi", ["--official-alignment"]),
        ("match3", ["--seed", "3"]),
    ],
)
def test_metrics_of_records_stand_beside_their_references(metric, options, tmp_path):
    pq.write_table(pa.table(records(400, 1)), tmp_path / "truth.parquet")
    both = [pa.table(records(300, seed) | {"epsilon": np.full(300, seed / 2)}) for seed in (2, 3)]
    pq.write_table(pa.concat_tables(both), tmp_path / "release.parquet")
    where = [tmp_path / "release.parquet", "--truth", tmp_path / "truth.parquet", "--metric", metric]
    document = as_json(*where, *options)
    assert [each["epsilon"] for each in document["results"]] == [1, 1.5]
    for each in document["results"]:
        names = [row["name"] for row in each["references"]]
        assert names == ["all-zero release", "uniform release", "half of the individuals", "this release"]
        assert each["score"] == each["references"][3]["score"] > 0
    scores = [each["score"] for each in document["results"]]
    assert document["overall"]["score"] == pytest.approx(np.mean(scores))
    assert "all epsilons" in run(*where, *options).stdout


def test_a_plain_file_is_compared_by_its_values(tmp_path):
    pq.write_table(pa.table(records(200, 1)), tmp_path / "truth.parquet")
    pyarrow.csv.write_csv(pa.table(records(200, 2)), tmp_path / "release.csv")
    document = as_json(
        tmp_path / "release.csv",
        "--truth",
        tmp_path / "truth.parquet",
        *("--column", "SEX", "--column", "AGE", "--column", "CITY"),
        *("--target", "SEX", "--unit", "taxi_id"),
    )
    (result,) = document["results"]
    assert result["epsilon"] is None
    assert result["columns"] == ["SEX", "AGE", "CITY"]
    assert [each["target"] for each in result["downstream"]] == ["SEX"]


def test_exit_codes(project, out, tmp_path):
    truth = project.parent / "t.parquet"
    assert "--truth" in run(out, code=2).output
    run(out, "--truth", truth, "--metric", "best", code=2)
    run(truth, "--truth", truth, "--metric", "pie-chart", code=2)
    run(out, "--project", tmp_path / "gone.toml", code=2)
    run(tmp_path / "gone.parquet", "--truth", truth, code=1)
    run(out, "--truth", tmp_path / "gone.parquet", code=1)
    run(out, "--truth", truth, "--metric", "taxi", code=1)
    (tmp_path / "empty").mkdir()
    run(tmp_path / "empty", "--truth", truth, code=1)
    (out / "certificate.json").write_text("{}")
    run(out, "--truth", truth, code=4)


def test_the_project_names_the_table_if_the_release_does_not(project, out):
    released = pq.read_table(out / "table.parquet").slice(0, 36).drop_columns(["epsilon"])
    pq.write_table(released, project.parent / "plain.parquet")
    document = as_json(project.parent / "plain.parquet", "--project", project, "--table", "t")
    assert document["results"][0]["columns"] == ["region", "month"]
    assert as_json(project.parent / "plain.parquet", "--project", project)["results"] == document["results"]
    assert "no table" in str(
        run(project.parent / "plain.parquet", "--project", project, "--table", "u", code=2).exception
    )


def test_a_noisy_score_is_charged_and_may_be_published(tmp_path):
    write_demo(tmp_path / "d")
    project, out = tmp_path / "d" / "sfumato.toml", tmp_path / "d" / "out"
    sf.open(project).release(tmp_path / "d" / "monthly.toml", out=out)
    publish = (out, "--project", project, "--publish-epsilon", "0.5", "--metric")
    first, again = (json.loads(run(*publish, "l1", "--json").stdout) for _ in range(2))
    assert (first["spent"], again["spent"]) == ("0.5", "0")
    assert first["scores"] == again["scores"]
    assert "may be published" in run(*publish, "l1").stdout
    run(*publish, "taxi", code=2)
    run(out, "--publish-epsilon", 1, code=2)
    run(out, "--project", project, "--metric", "l1", code=2)
    assert str(sf.open(project).budget().spent) == "1.5"
