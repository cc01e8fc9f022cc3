"""Codes of truth and release: by described domains, in every layout a recipe releases, or by values."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cases import read_cases
from helpers.projects import write_project
from sfumato.core.errors import SfumatoError
from sfumato.core.facts.project import read_project
from sfumato.core.facts.table import parse_table
from sfumato.metrics import compare_tables, encode_pair

SPEC = {
    "source": "t.parquet",
    "unit": "person",
    "max_records": 9,
    "columns": {
        "region": {"values": ["a", "b", "c"]},
        "code": {"values": [7, 3, 9], "outside": "other"},
        "period": {"from": ["year", "month"], "values": [[2019, 1], [2019, 2], [2020, 1]]},
        "fare": {"bins": [0, 10, 20, 50]},
        "tips": {"bins": [0, 0.5, 2], "outside": "clamp"},
        "hour": {"range": [0, 23], "outside": "clamp"},
        "weekday": {"from": "at", "period": "day_of_week"},
    },
}
TABLE = parse_table("t", SPEC)


def records(rows=300, seed=0):
    generator = np.random.default_rng(seed)
    days = [
        datetime.datetime(2020, 1, 1) + datetime.timedelta(days=int(d))
        for d in generator.integers(0, 99, rows)
    ]
    return pa.table(
        {
            "person": generator.integers(0, 60, rows),
            "region": np.array(["a", "b", "c", "z"])[generator.integers(0, 4, rows)],
            "code": generator.integers(1, 10, rows),
            "year": generator.integers(2019, 2021, rows),
            "month": generator.integers(1, 3, rows),
            "fare": generator.uniform(-5, 60, rows),
            "tips": generator.uniform(-1, 3, rows),
            "hour": generator.integers(-2, 30, rows),
            "at": pa.array(days, pa.timestamp("us")),
        }
    )


def expected_codes(row):
    """The codes of one record by the words of the schema, None if a column drops it."""
    periods = [(2019, 1), (2019, 2), (2020, 1)]
    period = (row["year"], row["month"])
    if row["region"] == "z" or period not in periods or not 0 <= row["fare"] <= 50:
        return None
    return {
        "region": "abc".index(row["region"]),
        "code": [7, 3, 9].index(row["code"]) if row["code"] in (7, 3, 9) else 3,
        "period": periods.index(period),
        "fare": sum(row["fare"] >= edge for edge in (10, 20)),
        "tips": int(row["tips"] >= 0.5),
        "hour": min(max(row["hour"], 0), 23),
        "weekday": row["at"].weekday(),
    }


@pytest.mark.parametrize("form", ["arrow", "parquet", "csv", "pandas"])
def test_the_truth_is_coded_by_its_domains(form, tmp_path):
    truth = records()
    given = truth
    if form == "parquet":
        pq.write_table(truth, tmp_path / "t.parquet")
        given = tmp_path / "t.parquet"
    elif form == "csv":
        pyarrow.csv.write_csv(truth, tmp_path / "t.csv")
        given = str(tmp_path / "t.csv")
    elif form == "pandas":
        given = pytest.importorskip("pandas").DataFrame(truth.to_pydict())
    pair = encode_pair(given, truth, table=TABLE, unit="person")
    expected = [codes for row in truth.to_pylist() if (codes := expected_codes(row)) is not None]
    assert pair.truth.rows == len(expected) > 20
    for name in TABLE.columns:
        assert pair.truth.codes[name].tolist() == [codes[name] for codes in expected], name
        assert pair.sizes[name] == TABLE.column(name).size
    assert pair.unit.size == len(expected)
    # A release that has the columns as they are stored is coded as the truth is.
    assert pair.release.codes["weekday"].tolist() == pair.truth.codes["weekday"].tolist()


def test_released_counts_and_rows_are_coded_back(tmp_path):
    columns = {
        "region": {"values": ["a", "b", "c"]},
        "code": {"values": [7, 3, 9], "outside": "other"},
        "period": {"from": ["year", "month"], "values": [[2019, 1], [2019, 2], [2020, 1]]},
        "fare": {"bins": [0, 10, 20, 50]},
        "hour": {"range": [0, 23], "outside": "clamp"},
        "weekday": {"from": "at", "period": "day_of_week"},
    }
    curator = sf.open(write_project(tmp_path, columns, rows=records(2000), epsilon=1_000_000, delta=0.5))
    table = read_project(tmp_path / "sfumato.toml").table("t")
    truth = tmp_path / "t.parquet"
    for by in (["region", "period", "fare"], ["code", "weekday"], ["hour", "region"]):
        released = curator.release(sf.recipes.CellCounts(table="t", by=by), epsilon=10_000).table
        pair = encode_pair(truth, released, table=table, weight="count", columns=by)
        counts = [
            np.bincount(pair.truth.codes[by[0]], minlength=pair.sizes[by[0]]),
            np.bincount(pair.release.codes[by[0]], pair.release.weights, minlength=pair.sizes[by[0]]),
        ]
        assert counts[0].tolist() == counts[1].tolist()  # hardly any noise at this epsilon
        assert compare_tables(truth, released, table=table, weight="count").marginals.marginals[0].tvd == 0
    rows = curator.release(
        sf.recipes.Adaptive(table="t", columns=["region", "fare", "period"]), epsilon=10_000, delta=1e-6
    ).table
    assert "fare" in rows.column_names
    assert not pa.types.is_string(rows.schema.field("fare").type)
    comparison = compare_tables(truth, rows, table=table)
    assert set(comparison.columns) == {"region", "fare", "period"}
    assert comparison.marginals.of_order(1)[0].tvd < 0.05


def test_intervals_as_text_and_numbers_get_the_same_codes():
    truth = records()
    numbers = pa.table({"fare": [0.0, 9.99, 10.0, 50.0]})
    labels = pa.table({"fare": ["[0, 10)", "[0, 10)", "[10, 20)", "[20, 50]"]})
    for released in (numbers, labels):
        pair = encode_pair(truth, released, table=TABLE)
        assert pair.columns == ("fare",)
        assert pair.release.codes["fare"].tolist() == [0, 0, 1, 2]
    other = pa.table({"code": ["7", "9", "other"]})
    assert encode_pair(truth, other, table=TABLE).release.codes["code"].tolist() == [0, 2, 3]
    combined = pa.table({"year": [2020, 2019], "month": [1, 2]})
    assert encode_pair(truth, combined, table=TABLE).release.codes["period"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("released", "options", "words"),
    read_cases(__file__, "test_what_does_not_fit_the_description_is_refused_without_a_value"),
)
def test_what_does_not_fit_the_description_is_refused_without_a_value(released, options, words):
    with pytest.raises(SfumatoError, match=words) as caught:
        encode_pair(records(), released, table=TABLE, **options)
    assert "4711" not in str(caught.value)


def test_a_wide_range_is_counted_by_what_occurs():
    table = parse_table("t", {"source": "x", "unit": "row", "columns": {"id": {"range": [0, 10**9 - 1]}}})
    truth = {"id": [5, 10**9 - 1, 7, 7]}
    pair = encode_pair(truth, {"id": [7, 123_456_789]}, table=table)
    assert pair.sizes["id"] == 10**9
    small = pair.compact()
    assert small.sizes["id"] == 4
    assert [small.labels["id"][code] for code in small.truth.codes["id"]] == truth["id"]
    record = compare_tables(truth, {"id": [7, 123_456_789]}, table=table).to_record()
    assert record["references"][1]["tvd1"] == pytest.approx(1, abs=1e-8)
    assert record["marginals"]["1"]["mean"] == pytest.approx(0.5)


def test_without_a_description_values_meet_across_types():
    pair = encode_pair(
        {
            "a": [1, 2, None],
            "b": ["x", None, "y"],
            "d": [datetime.date(2020, 1, 1)] * 3,
            "f": [True, False, True],
        },
        {"a": ["2", "3"], "b": ["y", "z"], "d": [datetime.date(2020, 1, 1)] * 2, "f": [True, True]},
    )
    assert pair.labels["a"] == ["1", "2", "3", None]
    assert pair.labels["b"] == ["x", "y", "z", None]
    assert pair.truth.codes["b"].tolist() == [0, 3, 1]
    assert pair.sizes == {"a": 4, "b": 4, "d": 1, "f": 2}
    pair = encode_pair({"a": np.array([1, 2], np.uint8)}, {"a": np.array([-1.0, 2.0])})
    assert pair.labels["a"] == [-1.0, 1.0, 2.0]


def test_many_numbers_are_cut_at_the_quantiles_of_the_truth():
    truth = {"x": np.arange(1000.0)}
    pair = encode_pair(truth, {"x": [np.nan, -5.0, 2000.0]})
    assert pair.sizes["x"] == 21
    shares = np.bincount(pair.truth.codes["x"], minlength=21) / 1000
    assert shares[:20] == pytest.approx(0.05, abs=0.002)
    assert pair.release.codes["x"].tolist() == [20, 0, 19]
    assert pair.labels["x"][20] is None
    assert encode_pair(truth, truth, cut=False).sizes["x"] == 1000
    assert encode_pair({"x": np.arange(50)}, {"x": [99]}).sizes["x"] == 51


def test_frames_of_any_make_meet():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    first = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    plain = {
        "word": ["a", "b", "c"] * 20,
        "moment": [first + datetime.timedelta(hours=hour) for hour in range(60)],
        "day": [datetime.date(2020, 1, 1 + place % 5) for place in range(60)],
        "flag": [True, False] * 30,
        "price": [Decimal(place % 4) for place in range(60)],
    }
    frame = pandas.DataFrame(plain)
    frame["word"] = frame["word"].astype("category")
    lazy = polars.DataFrame(plain).with_columns(polars.col("word").cast(polars.Categorical))
    tables = [pa.table(plain), frame, lazy, frame.set_index("word").reset_index()]
    for truth in tables:
        for release in tables:
            pair = encode_pair(truth, release)
            assert pair.columns == tuple(plain)
            for name in plain:
                assert pair.truth.codes[name].tolist() == pair.release.codes[name].tolist(), name
    chunks = [pa.array(["x"]).dictionary_encode(), pa.array(["y", None]).dictionary_encode()]
    pair = encode_pair(pa.table({"a": pa.chunked_array(chunks)}), {"a": ["y"]})
    assert pair.truth.codes["a"].tolist() == [0, 1, 2]
