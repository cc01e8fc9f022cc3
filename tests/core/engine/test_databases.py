"""Tables in DuckDB database files, and tables of several files."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import Marginal

MANY = 1_000_000
TYPES = """
CREATE TABLE trips AS SELECT
    CAST(i % 7 AS VARCHAR) AS person, CAST(i % 3 AS INTEGER) AS zone, i * 1.5 AS fare,
    CAST(i AS HUGEINT) AS huge, CAST(CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END AS ENUM('a', 'b')) AS kind,
    DATE '2024-01-01' + CAST(i AS INTEGER) AS day, TIMESTAMPTZ '2024-01-01 12:00:00+00' AS moment,
    [i] AS list, TIME '12:00:00' AS clock
FROM range(20) AS t(i)
"""
COLUMNS = {"zone": {"range": [0, 2]}, "fare": {"bounds": [0, 100]}, "kind": {"values": ["a", "b"]}}


@pytest.fixture
def folder(tmp_path):
    connection = duckdb.connect(str(tmp_path / "city.db"))
    connection.execute(TYPES)
    connection.execute("CREATE SCHEMA old; CREATE TABLE old.trips AS FROM trips LIMIT 4")
    connection.execute("CREATE VIEW recent AS FROM trips")
    connection.execute(f"COPY trips TO '{tmp_path / 'trips.parquet'}'")
    connection.close()
    return tmp_path


def describe(source, **more):
    spec = {"source": source, "unit": "person", "max_records": 2, "columns": COLUMNS, **more}
    return parse_table("t", spec)


def count(folder, source, *columns):
    engine, table = StatementEngine(folder), describe(source)
    engine.check(table, (columns,))
    (counts,) = engine.count(table, (Marginal(columns=columns),), progress=lambda stage: None)
    return counts.true_values


def ask(folder, source, statement):
    spec = {
        "budget": {"epsilon": 10 * MANY},
        "tables": {"t": {"source": source, "unit": "person", "max_records": 2, "columns": COLUMNS}},
    }
    (folder / "ledger.db").unlink(missing_ok=True)
    return sf.Curator(parse_project(spec, folder=folder)).sql(f"DP-SELECT {MANY} {statement}").to_pandas()


def test_a_table_of_a_database_counts_as_the_same_records_in_a_file_do(folder):
    for columns in (("zone",), ("kind", "zone")):
        found = count(folder, "duckdb:city.db?table=trips", *columns)
        assert found.tolist() == count(folder, "trips.parquet", *columns).tolist()
        assert found.sum() == 14


@pytest.mark.parametrize(
    "statement",
    [
        "COUNT(*) FROM t WHERE day >= DATE '2024-01-11' AND huge > 12",
        "zone, SUM(fare) FROM t GROUP BY zone",
        "COUNT(*) FROM t WHERE EXTRACT(hour FROM moment) = 12",
    ],
)
def test_statements_agree_with_those_about_a_file(folder, statement):
    one, other = (ask(folder, each, statement) for each in ("duckdb:city.db?table=trips", "trips.parquet"))
    np.testing.assert_allclose(one.iloc[:, 0].astype(float), other.iloc[:, 0].astype(float), atol=0.01)


def test_a_schema_may_be_named(folder):
    assert count(folder, "duckdb:city.db?table=old.trips", "zone").sum() == 4
    assert count(folder, "duckdb:city.db?table=main.TRIPS", "zone").sum() == 14


def test_the_version_follows_the_database_and_what_is_written_beside_it(folder):
    engine, table = StatementEngine(folder), describe("duckdb:city.db?table=trips")
    before = engine.version(table, secret=b"s")
    assert engine.version(table, secret=b"s") == before
    connection = duckdb.connect(str(folder / "city.db"), config={"wal_autocheckpoint": "1TB"})
    connection.execute("PRAGMA disable_checkpoint_on_shutdown; INSERT INTO trips (person) VALUES ('new')")
    connection.close()
    assert (folder / "city.db.wal").exists()
    assert engine.version(table, secret=b"s") != before
    assert ask(folder, "duckdb:city.db?table=trips", "COUNT(*) FROM t").iloc[0, 0] == 15


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("duckdb:none.db?table=trips", "does not exist"),
        ("duckdb:city.db?table=none", "no such table"),
        ("duckdb:city.db?table=none.trips", "no such table"),
        ("duckdb:city.db?table=recent", "is a view; make a table of it"),
        ("duckdb:trips.parquet?table=trips", "cannot be opened as a DuckDB database"),
        ("none/*.parquet", "no file matches it"),
    ],
)
def test_what_cannot_be_read_is_refused_before_a_charge(folder, source, words):
    with pytest.raises(SourceError, match=words):
        StatementEngine(folder).check(describe(source), (("zone",),))
    spec = {
        "budget": {"epsilon": 1},
        "tables": {"t": {"source": source, "unit": "person", "max_records": 2, "columns": COLUMNS}},
    }
    curator = sf.Curator(parse_project(spec, folder=folder))
    with pytest.raises(SourceError, match=words):
        curator.sql("DP-SELECT 0.5 COUNT(*) FROM t")
    assert curator.budget().spent == 0


def test_a_database_that_is_being_written_is_refused(folder):
    connection = duckdb.connect(str(folder / "city.db"))
    with pytest.raises(SourceError, match="has it open for writing"):
        StatementEngine(folder).check(describe("duckdb:city.db?table=trips"), (("zone",),))
    connection.close()
    StatementEngine(folder).check(describe("duckdb:city.db?table=trips"), (("zone",),))


@pytest.mark.parametrize(
    "source",
    ["duckdb:city.db", "duckdb:?table=t", "duckdb:a.db?table=", "duckdb:a.db?t=x", "duckdb:*.db?table=t"],
)
def test_a_source_that_names_no_table_is_refused(source):
    with pytest.raises(SchemaError, match=r"duckdb:FILE\?table=NAME"):
        describe(source)


def test_wide_whole_numbers_and_nested_values_name_nobody(folder):
    engine = StatementEngine(folder)
    with pytest.raises(SourceError, match="cannot be told apart exactly"):
        engine.check(describe("duckdb:city.db?table=trips", unit="huge"), (("zone",),))
    kinds = engine.describe(describe("duckdb:city.db?table=trips"))
    assert kinds["huge"] == "number"
    assert not {"list", "clock"} & set(kinds)


def test_nothing_but_the_database_file_is_read(folder):
    from sfumato.core.engine.source import _open_database

    with _open_database(folder / "city.db") as connection, pytest.raises(duckdb.PermissionException):
        connection.execute(f"FROM read_parquet('{folder / 'trips.parquet'}')")


def test_a_public_file_is_not_the_database_of_a_private_table(folder):
    spec = {
        "budget": {"epsilon": 1},
        "tables": {
            "t": {"source": "duckdb:city.db?table=trips", "unit": "row"},
            "p": {"source": "duckdb:city.db?table=old.trips", "public": True},
        },
    }
    with pytest.raises(SchemaError, match="is the source of table 't' itself"):
        parse_project(spec, folder=folder)


def write_parts(folder, *tables):
    for place, table in enumerate(tables):
        path = folder / f"year={2020 + place}" / "part.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path)


def test_a_pattern_may_name_folders(tmp_path):
    parts = [pa.table({"person": [str(each)], "zone": [each]}) for each in range(3)]
    write_parts(tmp_path, *parts[:2], parts[2].select(["zone", "person"]))
    for source in ("year=*/part.parquet", "**/*.parquet", str(tmp_path / "year=*" / "*.parquet")):
        assert count(tmp_path, source, "zone").tolist() == [1, 1, 1]


def test_files_with_other_columns_are_refused_with_their_names(tmp_path):
    whole = pa.table({"person": ["a"], "zone": [1]})
    write_parts(tmp_path, whole, pa.table({"person": ["a"], "zone": [1.5]}))
    with pytest.raises(SourceError, match=r"'zone' is int64 in 'year=2020/part.parquet' and double in"):
        count(tmp_path, "year=*/part.parquet", "zone")
    write_parts(tmp_path, whole, whole.select(["person"]))
    with pytest.raises(SourceError, match=r"'zone' is int64 in .* and missing in"):
        count(tmp_path, "year=*/part.parquet", "zone")


def test_the_version_follows_every_file(tmp_path):
    write_parts(tmp_path, *[pa.table({"person": ["a"], "zone": [1]})] * 2)
    engine, table = StatementEngine(tmp_path), describe("year=*/part.parquet")
    versions = {engine.version(table, secret=b"s")}
    pq.write_table(pa.table({"person": ["a", "b"], "zone": [1, 2]}), tmp_path / "year=2021" / "part.parquet")
    versions.add(engine.version(table, secret=b"s"))
    write_parts(tmp_path, *[pa.table({"person": ["a"], "zone": [1]})] * 3)
    versions.add(engine.version(table, secret=b"s"))
    assert len(versions) == 3
