"""What first-time users want, played on real tables from the shell and from Python: outcome and minutes.

A city's officer, a researcher and a data scientist; a lecturer's path is docs/lecture.md, which runs.
"""

import json
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import run_main
from sfumato.learn import open_model

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.exists(), reason="the public tables are not in ../shared/data"),
]


@pytest.fixture(autouse=True)
def minutes(record_property):
    begun = time.monotonic()
    yield
    record_property("minutes", round((time.monotonic() - begun) / 60, 1))


def test_an_officer_publishes_the_busiest_places_and_they_are_right(tmp_path):
    year = pq.read_table(DATA / "stlouis" / "incidents.parquet")
    year = year.filter(pc.equal(year["year"], 2019))
    pq.write_table(year, tmp_path / "incidents.parquet")

    def run(*words):
        return run_main(*words, cwd=tmp_path)

    drafted = run(
        "init", "incidents.parquet", "--codebook", DATA / "stlouis" / "parameters.json",
        "--unit", "sim_resident", "--max-records", "20", "--budget", "4",
    )  # fmt: skip
    (tmp_path / "sfumato.toml").write_text(drafted.stdout)
    (tmp_path / "places.toml").write_text(
        'recipe = "capped-counts"\ntable = "incidents"\nby = ["neighborhood"]\nepsilon = 1\n'
    )
    assert "48,202 of 48,202 records count" in run("doctor", "places.toml").stdout
    assert "fits" in run("check", "places.toml").stdout
    released = run("release", "places.toml", "--out", "places")
    assert "This cost epsilon 1" in released.stderr + released.stdout
    run("verify", "places")
    run("report", "places")
    run("export", "places", "--pack", "pack")
    found = {
        row["neighborhood"]: row["count"]
        for row in pq.read_table(tmp_path / "places/table.parquet").to_pylist()
    }
    truth = {str(each["values"]): each["counts"] for each in year["neighborhood"].value_counts().to_pylist()}
    busiest = max(truth, key=truth.get)
    assert max(found, key=found.get) == busiest
    assert found[busiest] == pytest.approx(truth[busiest], rel=0.1)
    page = (tmp_path / "places-report.html").read_text()
    assert page.index("Most ") < page.index("guarantee")


def test_a_researcher_keeps_everybody_and_gets_rows_means_and_relations(tmp_path):
    source = DATA / "nhanes" / "nhanes_2009_2012.parquet"
    people = pq.read_table(source)
    pq.write_table(people, tmp_path / "people.parquet")

    def run(*words):
        return run_main(*words, cwd=tmp_path)

    drafted = run(
        "init", "people.parquet", "--codebook", DATA / "nhanes" / "schema.json", "--unit", "ID",
        "--max-records", "1", "--budget", "8", "--delta", "1e-6",
    )  # fmt: skip
    (tmp_path / "sfumato.toml").write_text(drafted.stdout.replace("# BMI = {", "BMI = {"))
    names = ["Gender", "Race1", "Education", "HomeOwn", "Work", "Diabetes", "HealthGen", "PregnantNow"]
    (tmp_path / "rows.toml").write_text(
        f'recipe = "tree"\ntable = "people"\ncolumns = {json.dumps(names)}\nepsilon = 1\ndelta = 1e-6\n'
    )
    count = people.num_rows
    assert f"{count:,} of {count:,} records count" in run("doctor", "rows.toml").stdout
    weighed = json.loads(run("choose-epsilon", "rows.toml", "--records", "20000", "--json").stdout)
    assert weighed
    run("release", "rows.toml", "--out", "rows")
    assert pq.read_table(tmp_path / "rows/table.parquet").num_rows == pytest.approx(count, rel=0.02)
    related = json.loads(
        run("regress", "rows", "--target", "Diabetes = 'Yes'", "--inputs", "Gender", "--json").stdout
    )
    assert related
    older = run("rows", "rows", "--where", "Diabetes = 'Yes'", "-n", "50").stdout.splitlines()
    assert len(older) == 51
    asked = run("sql", "--json", "DP-SELECT 1 Gender, COUNT(*) AS n FROM people GROUP BY Gender")
    counted = {row[0]: row[1:] for row in json.loads(asked.stdout)["rows"]}
    for each in people["Gender"].value_counts().to_pylist():
        found, low, high = counted[each["values"]]
        assert low <= found <= high
        assert found == pytest.approx(each["counts"], rel=0.01)


def test_a_data_scientist_asks_plots_and_fits_a_frame(tmp_path):
    adult = pq.read_table(DATA / "adult" / "adult.parquet").select(["age", "education-num", "sex", "income"])
    columns = {
        "age": {"bins": [0, 25, 35, 45, 55, 65, 100], "bounds": [0, 100]},
        "education-num": {"range": [1, 16]},
        "sex": ["Female", "Male"],
        "income": ["<=50K", ">50K"],
    }
    curator = sf.from_frame(
        adult, unit="row", columns=columns, epsilon=4, delta=1e-6, ledger=tmp_path / "ledger.db"
    )
    answer = curator.sql("DP-SELECT 1 sex, AVG(age) AS age FROM t GROUP BY sex")
    assert "<svg" in answer.plot()._repr_svg_()
    truth = adult.group_by("sex").aggregate([("age", "mean")]).to_pylist()
    found = {row["sex"]: row["age"] for row in answer.table.to_pylist()}
    assert all(found[row["sex"]] == pytest.approx(row["age_mean"], abs=1) for row in truth)
    recipe = sf.recipes.Additive(table="t", target="income")
    release = curator.release(recipe, epsilon=1, delta=1e-6, out=tmp_path / "model")
    model = open_model(tmp_path / "model")
    assert "<svg" in model.plot()._repr_svg_()
    predicted = model.predict(adult.slice(0, 2_000))
    assert len(predicted) == 2_000
    assert release.certificate["total"]
