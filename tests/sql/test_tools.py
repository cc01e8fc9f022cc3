"""Statements as tools write them: answered at the price of a session, and as a database would answer them."""

import math
import re
import tomllib
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

import sfumato as sf
from helpers.pairs import read_pairs

PROJECT = """
[budget]
epsilon = 999999999
delta = 1e-6
[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 10
[tables.visits.columns.clinic]
values = ["Harbour", "North", "South"]
[tables.visits.columns.month]
from = "visited"
period = "month"
[tables.visits.columns.fee]
bounds = [0, 100]
[tables.visits.columns.visited]
range = ["2024-11-01", "2026-01-31"]
[tables.visits.columns.at]
range = ["2025-01-01", "2025-12-31"]
[tables.clinics]
public = true
source = "clinics.csv"
"""
FIXTURES = Path(__file__).with_name("fixtures")
ANSWERS = FIXTURES / "answers.sql"
MUCH = "3000000"  # so much epsilon that no noise is left after rounding


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    duckdb.execute(f"""COPY (
        SELECT i % 400 AS person, ['North', 'South', 'Harbour'][1 + i % 3] AS clinic,
            DATE '2025-01-01' + (i * 7 % 365)::INTEGER AS visited,
            TIMESTAMP '2025-01-01' + INTERVAL (i * 131) MINUTE AS at, (i * 37 % 9000) / 100.0 AS fee,
            'ward ' || i % 4 AS ward, (DATE '2025-01-01' + (i * 7 % 365)::INTEGER)::VARCHAR AS written,
            month(DATE '2025-01-01' + (i * 7 % 365)::INTEGER) AS month
        FROM range(4000) AS t(i)) TO '{folder / "visits.parquet"}'""")
    (folder / "clinics.csv").write_text("name,side\nNorth,city\nSouth,city\nHarbour,coast\n")
    (folder / "sfumato.toml").write_text(PROJECT)
    return folder


@pytest.fixture(scope="module")
def curator(place):
    return sf.open(place / "sfumato.toml")


@pytest.fixture(scope="module")
def exact(place):
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW visits AS SELECT * FROM '{place / 'visits.parquet'}'")
    connection.execute(f"CREATE VIEW clinics AS SELECT * FROM '{place / 'clinics.csv'}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def plain(value):
    if isinstance(value, datetime) and value.time() == datetime.min.time():
        return value.date()
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 2)
    return value


def quote(text):
    """A statement as DuckDB takes it: it has no schema named public, and `at` is a word of its own."""
    return re.sub(r"\bat\b", '"at"', text.replace("public.", ""))


def told(table):
    """The rows of an answer without its intervals."""
    names = [name for name in table.column_names if not name.endswith(("_low", "_high"))]
    return [tuple(plain(row[name]) for name in names) for row in table.to_pylist()]


@pytest.mark.parametrize(("key", "_"), read_pairs(ANSWERS, section="keys"))
def test_groups_are_those_of_a_database(curator, exact, key, _):
    answer = curator.sql(f"SELECT {key} AS k, COUNT(*) AS n FROM visits GROUP BY 1 ORDER BY 1", epsilon=MUCH)
    text = quote(f"SELECT {key} AS k, COUNT(*) AS n FROM visits GROUP BY 1 ORDER BY 1")
    known = exact.sql(text).to_arrow_table()
    labels = {str(k).lower() if isinstance(k, bool) else k: n for k, n in told(known)}
    found = told(answer.table)
    assert {k: n for k, n in found if n} == labels
    assert len({k for k, _ in found}) == len(found)


def test_texts_of_dates_are_those_of_to_char(curator):
    text = "SELECT TO_CHAR(visited, 'YYYY-MM') AS ym, COUNT(*) AS n FROM visits GROUP BY 1"
    table = curator.sql(text, epsilon=MUCH).table
    assert table.column_names == ["ym", "n", "n_low", "n_high"]
    assert table["ym"].to_pylist()[:3] == ["2024-11", "2024-12", "2025-01"]
    assert table.num_rows == 15


def test_a_range_in_where_stands_for_one_in_the_project_file(place):
    (place / "bare").mkdir()
    text = PROJECT.replace('range = ["2024-11-01", "2026-01-31"]', "").replace(
        'range = ["2025-01-01", "2025-12-31"]', ""
    )
    (place / "bare" / "sfumato.toml").write_text(
        text.replace('"visits', '"../visits').replace('"cl', '"../cl')
    )
    curator = sf.open(place / "bare" / "sfumato.toml")
    by = "SELECT DATE_TRUNC('month', at) AS m, COUNT(*) AS n FROM visits {} GROUP BY 1"
    for open_ in ("", "WHERE at >= '2025-01-01'", "WHERE at >= '2025-01-01' OR at < '2025-03-01'"):
        with pytest.raises(sf.UnsupportedQuery, match="range"):
            curator.sql(by.format(open_), epsilon=MUCH)
    for bound, groups in [
        ("WHERE at >= '2025-02-01' AND at < '2025-04-01'", 2),
        ("WHERE at BETWEEN '2025-02-01T00:00:00Z' AND '2025-04-01T00:00:00Z'", 3),
        ("WHERE CAST(at AS DATE) > '2025-01-31' AND CAST(at AS DATE) <= '2025-03-31'", 2),
        ("WHERE (at >= DATE '2025-02-01') AND (fee > 3 AND at < DATE '2025-02-01' + INTERVAL '2 months')", 2),
    ]:
        table = curator.sql(by.format(bound), epsilon=MUCH).table
        assert (bound, table.num_rows) == (bound, groups)
        assert table["m"].to_pylist()[0] == datetime(2025, 2, 1)
    inner = "(SELECT at FROM visits WHERE at >= '2025-02-01' AND at < '2025-04-01') AS q"
    text = by.format("").replace("visits", inner)
    assert curator.sql(text, epsilon=MUCH).table.num_rows == 2


def test_a_condition_cuts_a_public_range(curator):
    text = """SELECT visited AS d, COUNT(*) AS n FROM visits
        WHERE visited > '2025-05-30' AND visited <= {} GROUP BY 1"""
    table = curator.sql(text.format("'2025-06-02'"), epsilon=MUCH).table
    assert table["d"].to_pylist() == [date(2025, 5, 31), date(2025, 6, 1), date(2025, 6, 2)]
    with pytest.raises(sf.UnsupportedQuery, match="no moment"):
        curator.sql(text.format("'2025-05-30'"), epsilon=MUCH)


@pytest.mark.parametrize(
    "where", ["visited >= DATE '9999-12-31'", "at <= '0001-01-01'", "at < '9999-12-31 23:59:59'"]
)
def test_the_ends_of_the_calendar_limit_nothing(curator, where):
    assert curator.sql(f"DP-SELECT 0.01 COUNT(*) AS n FROM visits WHERE {where}").table.num_rows == 1


@pytest.mark.parametrize(("key", "_"), read_pairs(ANSWERS, section="keys of inner queries"))
def test_groups_that_an_inner_query_computes(curator, exact, key, _):
    inner = f"SELECT {key} AS k FROM visits WHERE fee > 3"
    text = f"SELECT k, COUNT(*) AS n FROM ({inner}) AS q GROUP BY k ORDER BY k"
    found = told(curator.sql(text, epsilon=MUCH).table)
    known = told(exact.sql(quote(text)).to_arrow_table())
    assert {k: n for k, n in found if n} == {
        str(k).lower() if isinstance(k, bool) else k: n for k, n in known
    }


def test_the_least_and_the_largest_date(curator):
    table = curator.sql(
        "SELECT MIN(visited) AS a, MAX(visited) AS b, MEDIAN(at) AS c FROM visits", epsilon=MUCH
    ).table
    assert [str(kind) for kind in table.schema.types[::3]] == ["date32[day]", "date32[day]", "timestamp[us]"]
    (row,) = table.to_pylist()
    # One of 1025 steps of the range, and it aims a little inside.
    assert abs((row["a"] - date(2025, 1, 1)).days) <= 2
    assert abs((row["b"] - date(2025, 12, 31)).days) <= 2
    assert abs((row["c"] - datetime(2025, 7, 2)).days) <= 2
    assert row["a_low"] <= date(2025, 1, 1) <= row["a_high"]
    with pytest.raises(sf.UnsupportedQuery, match="by itself"):
        curator.sql("SELECT MAX(visited) - MIN(visited) AS d FROM visits", epsilon=1)


def test_labels_are_searched_for_nothing(curator):
    for where, found in [
        ("clinic LIKE '%r%'", ["Harbour", "North"]),
        ("clinic ILIKE 'h_R%' OR clinic = 'South'", ["Harbour", "South"]),
        ("lower(clinic) LIKE '%or%' AND clinic IS NOT NULL", ["North"]),
        ("NOT (clinic IN ('North'))", ["Harbour", "South"]),
    ]:
        answer = curator.sql(f"SELECT DISTINCT clinic FROM visits WHERE {where} LIMIT 10")
        assert (answer.spent, answer.table["clinic"].to_pylist()) == (0, found)
    explained = curator.sql("EXPLAIN SELECT DISTINCT clinic FROM visits", epsilon=1)
    assert "nothing is spent" in str(explained)
    assert curator.sql("SELECT 1 FROM visits LIMIT 1").table.to_pydict() == {"1": [1]}


def test_columns_of_which_nothing_may_be_told_are_empty(curator):
    answer = curator.sql("SELECT t.* FROM public.visits t LIMIT 20", epsilon=1)
    assert answer.synthetic
    assert answer.table.column_names == [
        "person",
        "clinic",
        "visited",
        "at",
        "fee",
        "ward",
        "written",
        "month",
    ]
    empty = {
        name for name in answer.table.column_names if answer.table[name].null_count == answer.table.num_rows
    }
    assert empty == {"person", "at", "ward", "written"}
    assert any("person" in note for note in answer.notes)


SAME = tomllib.loads((FIXTURES / "tools.toml").read_text())["same"]


@pytest.mark.parametrize("text", SAME)
def test_answers_are_those_of_a_database(curator, exact, text):
    answer = curator.sql(text, epsilon=MUCH)
    known = exact.sql(quote(text)).to_arrow_table()
    assert [
        name for name in answer.table.column_names if not name.endswith(("_low", "_high"))
    ] == known.column_names
    for found, wanted in zip(told(answer.table), told(known), strict=True):
        numbers = [float(each) if isinstance(each, Decimal) else each for each in wanted]
        assert list(found) == [
            each if isinstance(each, str) else pytest.approx(each, abs=0.02) for each in numbers
        ]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (
            "JOIN clinics AS c ON (visits.clinic = c.name) GROUP BY side",
            "JOIN clinics AS c ON visits.clinic = c.name GROUP BY side",
        ),
        (
            "JOIN clinics AS c ON ((visits.clinic) = (c.name)) AND ((c.name = visits.clinic)) GROUP BY side",
            "JOIN clinics AS c ON visits.clinic = c.name GROUP BY side",
        ),
    ],
)
def test_brackets_in_the_condition_of_a_join_mean_nothing(curator, text, same):
    bracketed, bare = (
        curator.sql(f"SELECT side, COUNT(*) AS n FROM visits {each}", epsilon=MUCH) for each in (text, same)
    )
    assert told(bracketed.table) == told(bare.table)


def test_rows_are_fetched_as_they_are_limited(curator):
    start = "SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic ORDER BY n DESC, clinic"
    limited = curator.sql(f"{start} LIMIT 2", epsilon=MUCH)
    fetched = curator.sql(f"{start} FETCH NEXT 2 ROWS ONLY", epsilon=MUCH)
    assert told(fetched.table) == told(limited.table)
    assert len(curator.sql(f"{start} FETCH FIRST ROW ONLY", epsilon=MUCH).table) == 1
    for share in ("FETCH FIRST 10 PERCENT ROWS ONLY", "FETCH FIRST 2 ROWS WITH TIES"):
        with pytest.raises(sf.UnsupportedQuery, match="FETCH takes a whole number of rows"):
            curator.sql(f"{start} {share}", epsilon=1)


@pytest.mark.parametrize(("text", "same"), read_pairs(ANSWERS, section="one question in two spellings"))
def test_equal_questions_are_one_plan(curator, text, same):
    answers = [
        curator.sql(f"SELECT COUNT(*) AS n FROM visits WHERE {each}", epsilon="0.5") for each in (text, same)
    ]
    assert answers[1].repeated
    assert answers[0].table.equals(answers[1].table)


BI = "shared/research/bi-statements.sql"


def read_statements(text):
    """The statements of a file; a line of comment stands before each."""
    found, lines = [], []
    for line in text.splitlines()[1:]:
        lines.append(line)
        if line.rstrip().endswith(";"):
            found.append("\n".join(lines))
            lines = []
    return found


@pytest.mark.shared
def test_statements_of_known_tools_are_answered(curator, shared):
    file = shared / "research" / "bi-statements.sql"
    if not file.exists():
        pytest.skip(f"../{BI} is not beside the project")
    refused = []
    statements = read_statements(file.read_text())
    assert len(statements) >= 36
    for text in statements:
        try:
            described, answer = curator.describe(text, epsilon=1), curator.sql(text, epsilon=1)
        except sf.UnsupportedQuery as error:
            refused.append((text, str(error)))
            continue
        assert described.schema.equals(answer.table.schema), text
    assert not refused


def test_extremes_over_windows_are_those_of_their_frames(curator):
    found = curator.sql(
        "SELECT month, COUNT(*) AS n, "
        "MIN(COUNT(*)) OVER (ORDER BY month ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING)"
        " AS least, MAX(COUNT(*)) OVER (ORDER BY month) AS most FROM visits GROUP BY month ORDER BY month",
        epsilon=MUCH,
    ).table.to_pydict()
    for place, (least, most) in enumerate(zip(found["least"], found["most"], strict=True)):
        before = found["n"][max(0, place - 2) : place]
        assert least == min(before) if before else least is None or math.isnan(least)
        assert most == max(found["n"][: place + 1])
