"""SHOW TABLES, DESCRIBE and SUMMARIZE: public facts, free, and without a look at a record."""

from unittest import mock

import duckdb
import pytest

import sfumato as sf
from sfumato.core.engine.statements import StatementEngine

PROJECT = """
[budget]
epsilon = 1
[tables.Visits]
source = "visits.parquet"
unit = "person"
max_records = 5
max_groups = 3
[tables.Visits.columns.clinic]
values = ["North", "South"]
outside = "other"
[tables.Visits.columns.month]
from = "visited"
period = "month"
[tables.Visits.columns.fee]
bounds = [0, 100]
[tables.Visits.columns.visited]
range = ["2025-01-01", "2025-12-31"]
[tables.Visits.columns.zone]
range = [1, 1000000000]
[tables.Visits.columns.age]
bins = [0, 18, 65]
[tables.Visits.columns.ward]
values = ["a", "b"]
drafted_from_data = true
[tables.clinics]
public = true
source = "clinics.csv"
"""

# `select` reads public tables alone.
READS = ("aggregate", "count", "read_records", "version", "snapshot")
LISTINGS = ["SHOW TABLES", "DESCRIBE visits", "SUMMARIZE visits", "DESCRIBE clinics", "SUMMARIZE clinics"]


@pytest.fixture
def curator(tmp_path):
    duckdb.execute(f"""COPY (
        SELECT i % 40 AS person, 'North' AS clinic, DATE '2025-01-01' + (i % 100)::INTEGER AS visited,
            i / 7.0 AS fee, i AS zone, i % 70 AS age, 'secret ' || i AS ward
        FROM range(400) AS t(i)) TO '{tmp_path / "visits.parquet"}'""")
    (tmp_path / "clinics.csv").write_text("name,beds\nNorth,10\nSouth,20\n")
    (tmp_path / "sfumato.toml").write_text(PROJECT)
    return sf.open(tmp_path / "sfumato.toml")


def listed(curator, text):
    answer = curator.sql(text)
    assert answer.public
    assert answer.spent == 0
    assert not curator.has_ledger()
    assert curator.describe(text).schema == answer.table.schema
    return {
        row.pop("name" if "TABLES" in text.upper() else "column"): row for row in answer.table.to_pylist()
    }


def test_tables_are_listed_with_whom_they_protect(curator):
    found = listed(curator, "show tables")
    assert found["Visits"] == {
        "kind": "private",
        "unit": "person",
        "max_records": 5,
        "max_groups": 3,
        "columns": "clinic, month, fee, visited, zone, age, ward",
    }
    assert found["clinics"]["kind"] == "public"


@pytest.mark.parametrize(
    "text",
    ["DESCRIBE visits", "desc VISITS ;", 'describe table "Visits"', "-- hm\nDESCRIBE public.visits",
     "SHOW COLUMNS FROM visits"],
)  # fmt: skip
def test_columns_are_described(curator, text):
    found = listed(curator, text)
    assert found["person"]["type"] == "bigint"
    assert found["person"]["about"].startswith("the unit: ")
    assert found["clinic"] == {
        "type": "text", "values": "North, South, other", "bounds": None, "about": "other values: other",
    }  # fmt: skip
    assert found["month"]["about"] == "month of visited"
    assert found["month"]["values"] == "1 to 12"
    assert found["visited"]["values"] == "2025-01-01 to 2025-12-31"
    assert found["fee"]["bounds"] == "0 to 100"
    assert found["zone"]["values"] == "1 to 1000000000"
    assert found["age"]["values"] == "[0, 18), [18, 65]"
    assert "drafted" in found["ward"]["about"]
    assert found["ward"]["values"] is None


def test_a_summary_says_what_may_be_asked(curator):
    found = listed(curator, "SUMMARIZE visits")
    assert (found["fee"]["least"], found["fee"]["largest"], found["fee"]["values"]) == ("0", "100", None)
    assert (found["visited"]["least"], found["visited"]["largest"]) == ("2025-01-01", "2025-12-31")
    assert found["zone"]["values"] == 10**9
    assert "GROUP BY" in found["clinic"]["ask"]
    assert "SUM" in found["fee"]["ask"]
    assert found["person"]["ask"] == "COUNT(DISTINCT)"
    assert found["ward"]["ask"] == "COUNT, WHERE; GROUP BY with DELTA"


def test_the_columns_of_an_answer_are_described(curator):
    found = listed(curator, "DESCRIBE SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic")
    assert {name: facts["type"] for name, facts in found.items()} == {
        "clinic": "text",
        "n": "bigint",
        "n_low": "bigint",
        "n_high": "bigint",
    }


@pytest.mark.parametrize("text", LISTINGS)
def test_no_record_is_read(curator, text):
    spies = {name: mock.Mock(side_effect=AssertionError(name)) for name in READS}
    with mock.patch.multiple(StatementEngine, **spies):
        before = curator.sql(text).table
    assert "secret" not in str(before.to_pylist())
    assert "400" not in str(before.to_pylist())


@pytest.mark.parametrize("text", LISTINGS[:3])
def test_the_project_file_suffices(curator, tmp_path, text):
    there = curator.sql(text).table
    (tmp_path / "visits.parquet").unlink()
    gone = curator.sql(text).table
    assert gone.schema == there.schema
    first = gone.column_names[0]
    assert set(gone[first].to_pylist()) == set(there[first].to_pylist())


def test_other_records_make_no_difference(curator, tmp_path):
    before = [curator.sql(text).table for text in LISTINGS]
    path = tmp_path / "visits.parquet"
    duckdb.execute(f"CREATE OR REPLACE TABLE other AS SELECT * FROM '{path}' WHERE person = 3 AND fee > 20")
    duckdb.execute(f"COPY other TO '{path}'")
    assert [curator.sql(text).table for text in LISTINGS] == before


@pytest.mark.parametrize(
    "text", ["DESCRIBE t", "SUMMARIZE t", "SELECT * FROM t LIMIT 0", "DESCRIBE SELECT * FROM t"]
)
def test_a_first_line_that_may_be_a_record_is_not_taken_for_names(tmp_path, text):
    (tmp_path / "t.csv").write_text("Jane Doe,HIV positive\nJohn,none\n")
    (tmp_path / "sfumato.toml").write_text(
        '[budget]\nepsilon = 1\n[tables.t]\nsource = "t.csv"\nunit = "row"\n'
    )
    try:
        told = str(sf.open(tmp_path / "sfumato.toml").sql(text).table)
    except sf.SfumatoError as error:
        told = str(error)
    assert "Jane" not in told
    assert "HIV" not in told


def test_explain_of_a_listing_is_free(curator):
    answer = curator.sql("EXPLAIN DESCRIBE visits")
    assert answer.explanation.startswith("public facts")
    assert curator.describe("EXPLAIN DESCRIBE visits").schema == answer.table.schema
