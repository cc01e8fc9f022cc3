"""The metrics on the public tables, beside the figures that their notes give."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sfumato.core.facts.table import parse_table
from sfumato.metrics import compare_tables, encode_pair, taxi
from sfumato.metrics.compare import SHARES
from sfumato.metrics.scoring import score_pies

pytestmark = pytest.mark.shared


@pytest.fixture
def incidents(shared):
    return shared / "data" / "stlouis" / "incidents.parquet"


def describe(shared, parameters):
    folder = shared / "data" / "stlouis"
    spec = {
        "source": "incidents.parquet",
        "unit": "sim_resident",
        "max_records": 20,
        "parameters": parameters,
    }
    spec["columns"] = {"month": {"range": [1, 12]}}
    return parse_table("incidents", spec, folder=folder)


def test_pie_charts_of_the_pooled_incidents(shared, incidents):
    table = describe(shared, "parameters_pooled.json")
    names = ["neighborhood", "month", "incident_type"]
    pair = encode_pair(incidents, pq.read_table(incidents), table=table, columns=names, unit="sim_resident")
    scores = score_pies(pair, rows=names[:2], kind="incident_type")
    assert scores["this release"].total == 89 * 12
    assert scores["all-zero release"].mean == pytest.approx(0.213, abs=5e-4)
    # Which half is drawn moves the mean by about 0.01.
    assert scores["half of the individuals"].mean == pytest.approx(0.678, abs=0.03)


@pytest.mark.parametrize(("year", "zeros", "half"), [(2019, 0.233, 0.521), (2016, 0.239, 0.537)])
def test_pie_charts_of_one_year(shared, incidents, year, zeros, half):
    table = describe(shared, "parameters.json")
    names = ["neighborhood", "month", "incident_type"]
    records = pq.read_table(incidents)
    records = records.filter(pc.equal(records["year"], year))
    pair = encode_pair(records, records, table=table, columns=names, unit="sim_resident")
    scores = score_pies(pair, rows=names[:2], kind="incident_type")
    assert scores["all-zero release"].mean == pytest.approx(zeros, abs=5e-4)
    assert scores["half of the individuals"].mean == pytest.approx(half, abs=0.03)


def test_taxi_scores_of_samples_and_of_disorder(shared):
    trips = pq.read_table(shared / "data" / "chicago_taxi" / "trips.parquet")
    trips = trips.select([n for n in trips.column_names if not n.endswith("_exact") and n != "trip_date"])
    generator = np.random.default_rng(0)
    taxis = np.unique(trips["taxi_id"].to_numpy())
    for share, parts in ((0.4, (0.597, 0.937, 0.999)), (0.1, (0.272, 0.864, 0.995))):
        kept = generator.permutation(taxis)[: round(share * taxis.size)]
        sample = trips.filter(pc.is_in(trips["taxi_id"], pa.array(kept)))
        score = taxi(trips, sample)
        assert (score.k_marginal, score.graph_edge, score.conjunction) == pytest.approx(parts, abs=0.03)
    shuffled = pa.table({n: trips[n].take(generator.permutation(trips.num_rows)) for n in trips.column_names})
    score = taxi(trips, shuffled)
    assert (score.k_marginal, score.graph_edge, score.conjunction) == pytest.approx(
        (0.216, 0.718, 0.971), abs=0.03
    )


@pytest.mark.slow
def test_adult_halves_are_close_and_shuffled_columns_are_not(shared):
    people = pq.read_table(shared / "data" / "adult" / "adult.parquet").drop_columns(["split", "fnlwgt"])
    generator = np.random.default_rng(1)
    order = generator.permutation(people.num_rows)
    first, second = people.take(order[: order.size // 2]), people.take(order[order.size // 2 :])
    good = compare_tables(first, second, target="income").to_record()
    shuffled = pa.table({n: first[n].take(generator.permutation(first.num_rows)) for n in first.column_names})
    bad = compare_tables(first, shuffled, target="income").to_record()
    assert json.loads(json.dumps(good, allow_nan=False)) == good
    assert good["marginals"]["3"]["count"] == 364
    assert good["propensity"]["auc"] == pytest.approx(0.5, abs=0.02)
    assert good["downstream"][0]["trained_on_release"] == pytest.approx(0.85, abs=0.01)
    assert bad["downstream"][0]["trained_on_release"] == pytest.approx(
        bad["downstream"][0]["majority"], abs=0.01
    )
    assert good["ladder"]["share"] > 0.25
    assert bad["ladder"]["share"] < 0.05
    assert [rung["share"] for rung in good["ladder"]["rungs"]] == list(SHARES)
