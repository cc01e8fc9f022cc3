"""The real St. Louis incidents, all years pooled by calendar month."""

import csv
import json
import math

import duckdb
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import project_text
from sfumato.metrics.contests import read_pack, run_entry

pytestmark = pytest.mark.shared

PROJECT = project_text(
    {
        "month": {"range": [1, 12]},
    },
    table="incidents",
    source="{source}",
    unit="sim_resident",
    epsilon=13,
    max_records=20,
    parameters="{parameters}",
)


@pytest.fixture
def stlouis(shared, tmp_path):
    folder = shared / "data" / "stlouis"
    file = tmp_path / "sfumato.toml"
    file.write_text(
        PROJECT.format(source=folder / "incidents.parquet", parameters=folder / "parameters_pooled.json")
    )
    return file


def test_the_pooled_table_releases_at_three_epsilons_and_verifies(stlouis, shared):
    curator = sf.open(stlouis)
    recipe = sf.recipes.CellCounts(table="incidents", by=("neighborhood", "month", "incident_type"))
    out = stlouis.parent / "out"
    release = curator.release(recipe, epsilon=[1, 2, 10], out=out)
    assert release.table.num_rows == 3 * 89 * 12 * 26
    assert curator.budget().left == 0
    result = sf.verify(out, ledger=curator.ledger_path)
    assert result.total["epsilon"] == "13"

    truth = duckdb.sql(
        "SELECT neighborhood, month, incident_type, count(*) AS n "
        f"FROM '{shared / 'data/stlouis/incidents.parquet'}' GROUP BY ALL"
    ).fetchall()
    exact = np.zeros((89, 12, 26), np.int64)
    for neighborhood, month, incident_type, n in truth:
        exact[neighborhood, month - 1, incident_type - 1] = n
    # Nobody has more than 20 records here, so the error is the noise: mean |error| is 1 / sinh(1 / scale).
    for measurement, epsilon in zip(release.measurements, (1, 2, 10), strict=True):
        error = np.abs(measurement.noisy_values.reshape(exact.shape) - exact).mean()
        assert abs(error * math.sinh(epsilon / 20) - 1) < 0.05
    table = pq.read_table(out / "table.parquet")
    assert pc.min(table["count"]).as_py() == 0


def test_a_contest_pack_of_the_real_table(shared, tmp_path):
    folder = shared / "data" / "stlouis"
    parameters = json.loads((folder / "parameters_pooled.json").read_text())
    (tmp_path / "parameters.json").write_text(json.dumps(parameters))
    duckdb.sql(
        "COPY (SELECT 0 AS year, month, neighborhood, incident_type, sim_resident "
        f"FROM '{folder / 'incidents.parquet'}') TO '{tmp_path / 'incidents.csv'}' (HEADER)"
    )
    codes = [str(item["code"]) for item in parameters["schema"]["incident_type"]]
    with (tmp_path / "submission_format.csv").open("w", newline="") as file:
        csv.writer(file).writerow(["epsilon", "neighborhood", "year", "month", *codes])
    done = run_entry(read_pack(tmp_path), "nmd")
    with (done.folder / "submission.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 1 + 3 * 89 * 12
    assert all(field.isdecimal() for field in rows[-1][4:])
