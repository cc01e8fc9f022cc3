"""Days, weeks and months of stored dates as listed periods: laid out, read, refused."""

from datetime import date, datetime

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.column import column_spec, parse_column
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.counts import Marginal
from sfumato.learn.model import _conditions
from sfumato.tables.codes import encode_public

PERIODS = ("day", "week", "month")


def make(period, first="2024-12-30", last="2025-02-11", **more):
    return parse_column("when", {"from": "at", "period": period, "range": [first, last], **more})


def place(period, moment):
    """The label of a moment, by the calendar of Python."""
    if period == "month":
        return moment.strftime("%Y-%m")
    day = moment.toordinal() - (moment.weekday() if period == "week" else 0)
    return date.fromordinal(day).isoformat()


@pytest.mark.parametrize(("period", "count"), [("day", 44), ("week", 7), ("month", 3)])
def test_every_piece_of_the_range_is_listed_once_in_order_and_reads_back(period, count):
    column = make(period)
    assert len(column.labels) == len(set(column.labels)) == count
    assert list(column.labels) == sorted(column.labels)
    assert column.labels[-1] == place(period, date(2025, 2, 11))
    spec = column_spec(column)
    assert len(str(spec)) < 200  # thousands of days take no more
    assert parse_column("when", spec) == column


@given(
    st.sampled_from(PERIODS),
    st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    st.integers(0, 400),
    st.integers(0, 400),
)
def test_a_date_of_the_range_has_its_label(period, first, days, inside):
    last = date.fromordinal(first.toordinal() + days)
    column = make(period, first.isoformat(), last.isoformat())
    assert place(period, date.fromordinal(min(first.toordinal() + inside, last.toordinal()))) in column.labels


MOMENTS = [
    datetime(2024, 12, 29, 23, 59, 59, 999999),
    datetime(2024, 12, 30),
    datetime(2024, 12, 31, 23, 59),
    datetime(2025, 1, 1),
    datetime(2025, 1, 5, 23, 59, 59),
    datetime(2025, 1, 6),
    datetime(2025, 2, 11, 12),
    datetime(2025, 2, 12),
    datetime(2031, 1, 1),
    datetime(1, 1, 1),
    None,
]


@pytest.mark.parametrize("period", PERIODS)
@pytest.mark.parametrize("stored", ["timestamp", "date", "text", "csv"])
def test_engine_and_public_files_read_the_calendar_alike(tmp_path, period, stored):
    moments = MOMENTS if stored != "date" else [each and each.date() for each in MOMENTS]
    kinds = {"timestamp": pa.timestamp("us"), "date": pa.date32()}
    values = pa.array(moments, kinds.get(stored)) if stored in kinds else None
    if values is None:
        values = pa.array([each and each.isoformat(" ") for each in moments])
    table = pa.table({"at": values})
    source = "t.csv" if stored == "csv" else "t.parquet"
    if stored == "csv":
        lines = [each or "" for each in values.to_pylist()]
        (tmp_path / source).write_text("at,x\n" + "".join(f"{each},1\n" for each in lines))
    else:
        pq.write_table(table, tmp_path / source)
    column = make(period)
    spec = {"source": source, "unit": "row", "columns": {"when": column_spec(column)}}
    (found,) = StatementEngine(tmp_path).count(
        parse_table("t", spec), (Marginal(("when",)),), progress=lambda _: None
    )
    wanted = [place(period, each) for each in MOMENTS if each is not None]
    expected = [wanted.count(label) for label in column.labels]
    assert found.true_values.tolist() == expected
    if stored in kinds:
        codes = encode_public(column, table)
        assert np.bincount(codes[codes >= 0], minlength=column.size).tolist() == expected


def test_what_no_calendar_has_stops_nothing(tmp_path):
    odd = ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "294246-12-31", "no date", "2025-01-07"]
    pq.write_table(pa.table({"at": odd}), tmp_path / "t.parquet")
    for period in PERIODS:
        spec = {"source": "t.parquet", "unit": "row", "columns": {"when": column_spec(make(period))}}
        (found,) = StatementEngine(tmp_path).count(
            parse_table("t", spec), (Marginal(("when",)),), progress=lambda _: None
        )
        assert found.true_values.sum() == 1


def test_statements_and_series_are_about_days(tmp_path):
    rows = "".join(f"p{n},2025-01-{n % 28 + 1:02},{'ab'[n % 2]}\n" for n in range(280))
    (tmp_path / "t.csv").write_text(f"p,at,ward\n{rows}")
    (tmp_path / "sfumato.toml").write_text("""
[budget]
epsilon = 1e9
delta = 1e-6
[tables.t]
source = "t.csv"
unit = "p"
max_records = 1
[tables.t.columns.day]
from = "at"
period = "day"
range = [2025-01-01, 2025-12-31]
[tables.t.columns.week]
from = "at"
period = "week"
range = ["2025-01-01", "2025-12-31"]
""")
    curator = sf.open(tmp_path / "sfumato.toml")
    series = sf.recipes.Running(table="t", period="day", through="2025-01-03", windows=(2,))
    release = curator.release(series, epsilon=10**7, delta=1e-6, out=tmp_path / "out")
    assert release.table["day"].to_pylist() == ["2025-01-01", "2025-01-02", "2025-01-03"]
    assert release.table["last_2"].to_pylist() == [10, 20, 20]
    assert not sf.verify(tmp_path / "out", ledger=curator.ledger_path).unchecked
    answer = curator.sql("DP-SELECT 1e7 week, COUNT(*) AS n FROM t GROUP BY week").to_arrow()
    assert answer.slice(0, 2).to_pydict() == {
        "week": ["2024-12-30", "2025-01-06"],
        "n": [50, 70],
        **answer.slice(0, 2).drop(["week", "n"]).to_pydict(),
    }
    one = curator.sql("DP-SELECT 1e7 COUNT(*) AS n FROM t WHERE day BETWEEN '2025-01-10' AND '2025-01-11'")
    assert one.to_arrow()["n"].to_pylist() == [20]


@pytest.mark.parametrize("period", PERIODS)
def test_a_model_written_as_sql_reads_the_calendar(period):
    column = make(period)
    conditions = _conditions(column, [str(code) for code in range(column.size)])
    whens = " ".join(f"WHEN {condition} THEN {score}" for condition, score in conditions)
    stored = pa.table({"at": pa.array(MOMENTS, pa.timestamp("us"))})
    found = duckdb.from_arrow(stored).project(f"CASE {whens} ELSE -1 END").fetchall()
    assert [code for (code,) in found] == encode_public(column, stored).tolist()
