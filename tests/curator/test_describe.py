"""What an answer will look like, told before it is asked: no record is read, no ledger opened."""

from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.core.engine.statements import StatementEngine

PROJECT = """
[budget]
epsilon = 1000000
delta = 1e-6
[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 10
[tables.visits.columns.clinic]
values = ["North", "South"]
[tables.visits.columns.month]
from = "visited"
period = "month"
[tables.visits.columns.fee]
bounds = [0, 100]
[tables.visits.columns.size]
range = [0, 9]
[tables.visits.columns.visited]
range = ["2025-01-01", "2025-12-31"]
[tables.clinics]
public = true
source = "clinics.csv"
"""


@pytest.fixture
def curator(tmp_path):
    duckdb.execute(f"""COPY (
        SELECT i % 40 AS person, ['North', 'South'][1 + i % 2] AS clinic, i % 10 AS size, i % 3 = 0 AS new,
            DATE '2025-01-01' + (i * 7 % 365)::INTEGER AS visited, 'note ' || i % 3 AS note,
            TIMESTAMP '2025-01-01' + INTERVAL (i * 131) MINUTE AS moment, (i * 37 % 9000) / 100.0 AS fee
        FROM range(400) AS t(i)) TO '{tmp_path / "visits.parquet"}'""")
    (tmp_path / "clinics.csv").write_text("name,side,beds\nNorth,city,3\nSouth,coast,4\n")
    (tmp_path / "sfumato.toml").write_text(PROJECT)
    return sf.open(tmp_path / "sfumato.toml")


STATEMENTS = [
    "DP-SELECT 0.5 COUNT(*) FROM visits",
    "DP-SELECT 0.5 clinic, COUNT(*) AS n, SUM(size), SUM(fee), AVG(fee), STDDEV(fee) FROM visits GROUP BY 1",
    "DP-SELECT 0.5 MEDIAN(fee), MIN(fee), QUANTILE(fee, 0.9) AS q FROM visits",
    "DP-SELECT 0.5 MODE(clinic), TOP(month, 3) AS best FROM visits",
    "DP-SELECT 0.5 month, COUNT(*) / 2, COUNT(*) + COUNT(fee), ROUND(AVG(fee), 1) FROM visits GROUP BY month",
    "DP-SELECT 0.5 fee > 20 AS dear, COUNT(*) FROM visits GROUP BY 1 HAVING COUNT(*) > 3 ORDER BY 2 LIMIT 1",
    "DP-SELECT 4 DELTA 1e-7 note, COUNT(*) FROM visits GROUP BY note",
    "DP-SELECT 4 DELTA 1e-7 note, clinic, size, COUNT(*) FROM visits GROUP BY note, clinic, size",
    "DP-SELECT 1 DELTA 1e-7 clinic, COUNT(*) FROM visits GROUP BY clinic",
    "DP-SELECT WITHIN 30 COUNT(*) FROM visits",
    "DP-SELECT WITHIN 50% COUNT(*) AS n FROM visits",
    "DP-SELECT 2 clinic, month, fee, visited FROM visits WHERE fee > 5 LIMIT 20",
    "DP-SELECT 2 * FROM visits",
    "EXPLAIN DP-SELECT 0.5 COUNT(*) FROM visits",
    "EXPLAIN SELECT COUNT(*) FROM visits",
    "SELECT side, COUNT(*), SUM(beds) AS s FROM clinics GROUP BY side",
    "SELECT * FROM clinics",
    "SELECT * FROM public.clinics WHERE 1 = 0",
    "DP-SELECT 1 side, COUNT(*) AS n FROM visits JOIN clinics ON clinic = name GROUP BY side",
    "SELECT visited, COUNT(*) FROM visits GROUP BY visited",
    "SELECT DATE_TRUNC('month', visited) AS m, TO_CHAR(visited, 'YYYY'), SUM(1) FROM visits GROUP BY 1, 2",
    "SELECT clinic, RANK() OVER (ORDER BY COUNT(*)) AS r, SUM(COUNT(*)) OVER () AS s FROM visits GROUP BY 1",
    "SELECT CASE WHEN COUNT(*) > 3 THEN 'many' END AS size, CAST(COUNT(*) AS INTEGER) AS i FROM visits",
    "SELECT * FROM (SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic) AS q LIMIT 5",
    "SELECT person, clinic, note, moment, new, visited, fee FROM visits LIMIT 10",
    "SELECT * FROM visits WHERE 1 = 0",
    "SELECT * FROM visits AS v WHERE (0 = 1)",
    "SELECT v.*, fee * 2 AS twice, lower(note) AS note2 FROM visits AS v WHERE false",
    "SELECT person, moment::date AS d, fee > 3 AS b FROM visits LIMIT 0",
    "SELECT * FROM (SELECT person, fee FROM visits) AS q WHERE 1 = 0",
    "SELECT * FROM (SELECT * FROM visits LIMIT 0) AS q",
    "SELECT clinic, COUNT(*) AS n FROM visits WHERE 1 = 0 GROUP BY clinic",
    "SELECT * FROM (SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic) AS q WHERE 1 = 0",
    "SELECT DISTINCT clinic FROM visits",
    "SELECT month FROM visits GROUP BY month ORDER BY month DESC LIMIT 3",
    "SELECT DISTINCT visited AS day FROM visits WHERE visited IS NOT NULL",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_what_is_described_is_what_is_answered(curator, text):
    described = curator.describe(text, epsilon=1)
    assert not curator.has_ledger()
    answer = curator.sql(text, epsilon=1)
    assert list(described.columns) == [(field.name, field.type) for field in answer.table.schema]
    assert described.parameters == ()


@pytest.mark.parametrize("text", STATEMENTS)
def test_to_describe_reads_no_record(curator, text, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a record was read")

    monkeypatch.setattr(StatementEngine, "_seal", refuse)
    monkeypatch.setattr(StatementEngine, "aggregate", refuse)
    curator.describe(text, epsilon=1)
    assert not curator.has_ledger()


@pytest.mark.parametrize("text", [text for text in STATEMENTS if "1 = 0" in text or "LIMIT 0" in text])
def test_probes_are_free_without_any_price(curator, text):
    answer = curator.sql(text)
    assert (answer.spent, answer.table.num_rows, curator.has_ledger()) == (0, 0, False)


def test_a_probe_has_every_column_as_an_answer_has_it(curator):
    schema = curator.sql("SELECT * FROM visits LIMIT 0").table.schema
    assert dict(zip(schema.names, schema.types, strict=True)) == {
        "person": pa.int64(),
        "clinic": pa.string(),
        "size": pa.int64(),
        "new": pa.string(),
        "visited": pa.date32(),
        "note": pa.string(),
        "moment": pa.timestamp("us"),
        "fee": pa.float64(),
        "month": pa.int64(),
    }


def test_labels_that_are_public_are_listed_for_nothing(curator):
    assert curator.sql("SELECT DISTINCT clinic FROM visits").table.to_pydict() == {
        "clinic": ["North", "South"]
    }
    listed = curator.sql('SELECT "clinic" AS c FROM visits GROUP BY 1 ORDER BY c DESC LIMIT 1 OFFSET 1')
    assert listed.table.to_pydict() == {"c": ["North"]}
    assert curator.sql("SELECT DISTINCT month FROM visits").table["month"].to_pylist() == list(range(1, 13))
    assert not curator.has_ledger()
    for text in (
        "SELECT DISTINCT note FROM visits",
        "SELECT DISTINCT person FROM visits",
        "SELECT DISTINCT clinic FROM visits WHERE fee > 20",
        "SELECT DISTINCT clinic, month FROM visits",
        "SELECT clinic FROM visits GROUP BY clinic, note",
    ):
        with pytest.raises(sf.UnsupportedQuery):
            curator.sql(text, epsilon=1)
    assert not curator.has_ledger()


def test_a_plain_select_of_records_needs_a_price(curator):
    text = "SELECT COUNT(*) AS n FROM visits"
    with pytest.raises(sf.UnsupportedQuery, match="DP-SELECT"):
        curator.sql(text)
    assert curator.sql(text, epsilon="1/3").spent == Fraction(1, 3)
    assert curator.sql(f"/* epsilon = 0.5 */ {text}", epsilon=7).spent == Fraction(1, 2)
    assert curator.sql(f"-- epsilon = 0.25\n{text} WHERE month > 1").spent == Fraction(1, 4)
    assert curator.sql(
        f"/* a tool */ /* epsilon = 0.125, delta = 1e-9 */ {text} WHERE month > 2"
    ).spent == Fraction(1, 8)
    assert curator.sql(f"DP-SELECT FRESH 0.0625 {text[7:]}", epsilon=7).spent == Fraction(1, 16)
    # The same question at the same price, however the price was said.
    assert curator.sql(f"DP-SELECT 0.5 {text[7:]}").repeated
    assert curator.sql("SELECT side FROM clinics", epsilon=7).spent == 0
    with pytest.raises(sf.UnsupportedQuery, match="DP-SELECT"):
        curator.sql(f"{text} /* epsilon = 0.5 */")
    with pytest.raises(sf.RecipeError):
        curator.sql(text, epsilon=-1)


def test_what_a_parameter_must_be_is_found_out(curator):
    text = """SELECT clinic, COUNT(*) FROM visits
        WHERE fee > $1 AND visited >= $2 AND moment < $3 AND clinic = $4 AND size IN ($5, 7)
        AND new = $6 AND clinic = ANY($7) AND month + $8 > 3 AND $9 LIKE 'a%'
        GROUP BY clinic LIMIT $10 OFFSET $11"""
    assert curator.describe(text, epsilon=1).parameters == (
        pa.float64(),
        pa.date32(),
        pa.timestamp("us"),
        pa.string(),
        pa.int64(),
        pa.bool_(),
        pa.list_(pa.string()),
        pa.float64(),
        pa.string(),
        pa.int64(),
        pa.int64(),
    )
    declared = curator.describe(
        "SELECT COUNT(*) FROM visits WHERE fee > $1 AND note = $2",
        epsilon=1,
        parameter_types=(pa.int32(), None),
    )
    assert declared.parameters == (pa.int32(), pa.string())
    periods = (
        "SELECT date_trunc('month', moment), COUNT(*) FROM visits WHERE moment BETWEEN $1 AND $2 GROUP BY 1"
    )
    assert curator.describe(periods, epsilon=1).parameters == (pa.timestamp("us"),) * 2
    inner = "SELECT * FROM (SELECT clinic, COUNT(*) FROM visits WHERE fee > $2 GROUP BY clinic) AS q LIMIT $1"
    assert curator.describe(inner, epsilon=1).parameters == (pa.int64(), pa.float64())


@pytest.mark.parametrize(
    ("text", "values", "written"),
    [
        ("fee > $1", (20,), "fee > 20"),
        ("fee > $1", ("20",), "fee > 20"),
        ("fee > $1", (20.0,), "fee > 20"),
        ("fee > $1", (Decimal("20.50"),), "fee > 20.5"),
        ("fee > $1", (-3,), "fee > -3"),
        ("fee BETWEEN $1 AND $2", ("1", 2), "fee BETWEEN 1 AND 2"),
        ("visited >= $1", (date(2025, 3, 1),), "visited >= DATE '2025-03-01'"),
        ("visited >= $1", ("2025-03-01 +00",), "visited >= '2025-03-01'"),
        ("moment < $1", (datetime(2025, 3, 1, 8),), "moment < '2025-03-01T08:00:00Z'"),
        ("clinic = $1", ("North",), "clinic = 'North'"),
        ("note = $1", ("it's'; DROP TABLE visits; --",), "note = 'it''s''; DROP TABLE visits; --'"),
        ("note = $1", ("$2",), "note = '$2'"),
        ("clinic = ANY($1)", (["South", "North"],), "clinic IN ('North', 'South')"),
        ("new = $1", ("t",), "new = true"),
        ("fee > $2 AND size < $1", (3, 4), "fee > 4 AND size < 3"),
    ],
)
def test_a_bound_statement_and_the_written_one_are_one_plan(curator, text, values, written):
    bound = curator.sql(f"DP-SELECT 1 COUNT(*) AS n FROM visits WHERE {text}", parameters=values)
    again = curator.sql(f"DP-SELECT 1 COUNT(*) AS n FROM visits WHERE {written}")
    assert again.repeated
    assert again.table.equals(bound.table)


def test_rows_are_limited_by_parameters(curator):
    text = "SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic LIMIT $1::INTEGER"
    assert curator.sql(text, epsilon=1, parameters=("1",)).table.num_rows == 1
    assert curator.sql(text, epsilon=1, parameters=(0,)).spent == 0


@pytest.mark.parametrize(
    ("text", "values", "reason"),
    [
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE fee > $1", (), "no value"),
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE fee > $1", ("dear",), "cannot be read"),
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE fee > $1", (float("nan"),), "finite"),
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE fee > $1", (b"3",), "bytes"),
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE visited > $1", ("2025-13-45",), "cannot be read|Conversion"),
        ("DP-SELECT 1 clinic, COUNT(*) FROM visits GROUP BY clinic LIMIT $1", ("many",), "whole number"),
        ("DP-SELECT 1 clinic, COUNT(*) FROM visits GROUP BY clinic LIMIT $1", (None,), "NULL"),
        ("DP-SELECT $1 COUNT(*) FROM visits", (1,), "epsilon"),
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE note = $tag$x$tag$", (), "dollar"),
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE fee > ?", (1,), "placeholder"),
        ("DP-SELECT 1 COUNT(*) FROM visits WHERE fee > $0", (1,), "placeholder"),
    ],
)
def test_what_cannot_be_bound_is_refused_before_the_charge(curator, text, values, reason):
    with pytest.raises(sf.UnsupportedQuery, match=reason):
        curator.sql(text, parameters=values)
    assert not curator.has_ledger()
