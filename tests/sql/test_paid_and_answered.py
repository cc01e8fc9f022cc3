"""Every statement is refused before it is charged, or answered: aggregates by kinds of columns by clauses."""

import datetime
import random

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.core.errors import SfumatoError

ROWS = 12
# For some rows nothing is there, or what the description does not foresee.
TABLE = {
    "p": list(range(ROWS)),
    "clinic": ["N", "S", None, "X"] * 3,
    "note": ["12", "x", None, "a,b"] * 3,
    "empty": pa.nulls(ROWS, pa.string()),
    "fee": [1.5, None, -3.0, 1e9] * 3,
    "paid": [1.5, None, float("inf"), 1e300] * 3,
    "due": [0.0, 20.0, 40.0, 9e9] * 3,
    "rooms": [0, 3, None, 9] * 3,
    "beds": pa.array([0, 3, None, 2**62] * 3, pa.int64()),
    "small": pa.array([-128, 127, None, 0] * 3, pa.int8()),
    "exact": pa.array([1, 2, None, 4] * 3, pa.int64()).cast(pa.decimal128(28, 2)),
    "regular": [True, False, None, True] * 3,
    "day": [datetime.date(2024, 1, 1), None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)] * 3,
    "seen": pa.array([0, None, -(10**15), 10**15] * 3, pa.timestamp("us")),
}
PROJECT = """
[budget]
epsilon = 1000000000
delta = 0.001
[tables.t]
source = "{source}"
unit = "p"
max_records = {records}
[tables.t.columns]
clinic = {{values = ["N", "S"], outside = "other"}}
fee = {{bounds = [0, 10]}}
paid = {{bounds = "private"}}
due = {{bins = [0, 10, 20, 50]}}
rooms = {{range = [0, 4], missing_label = "none"}}
day = {{range = ["2024-01-01", "2024-02-29"]}}
"""
AGGREGATES = (
    *("COUNT({x})", "COUNT(DISTINCT {x})", "SUM({x})", "AVG({x})", "MIN({x})", "MAX({x})", "MEDIAN({x})"),
    *(
        "VAR_SAMP({x})",
        "STDDEV({x})",
        "MODE({x})",
        "TOP({x}, 2)",
        "HISTOGRAM({x})",
        "APPROX_QUANTILES({x}, 2)",
    ),
    *("CORR({x}, {y})", "REGR_SLOPE({x}, {y})", "QUANTILE_CONT({x}, 0.3)", "COUNT_IF({x} > {y})"),
    *("SUM(DISTINCT {x})", "ANY_VALUE({x})", "STRING_AGG({x}, ',')", "BOOL_OR({x})"),
    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {x})",
)
OPERANDS = (
    *("{c}", "{c}", "{c}", "{c} BOUNDED PRIVATELY", "{c} BOUNDED PRIVATELY", "CAST({c} AS DOUBLE)"),
    *("CAST({c} AS INTEGER) BOUNDED PRIVATELY", "CAST({c} AS VARCHAR)", "{c} + 1", "ABS({c})", "UPPER({c})"),
    *(
        "CASE WHEN {c} IS NULL THEN 1 ELSE {d} END",
        "COALESCE({c}, {d})",
        "EXTRACT(year FROM {c})",
        "{c} || 'x'",
    ),
)
CLAUSES = (
    *("", "", "WHERE {c} IS NOT NULL", "WHERE {c} > '3'", "WHERE {c} = {d}", "WHERE {c} LIKE 'N%'"),
    *(
        "GROUP BY clinic",
        "GROUP BY {c}",
        "GROUP BY rooms, clinic HAVING COUNT(*) > 1",
        "GROUP BY ROLLUP (clinic)",
    ),
    *(
        "GROUP BY clinic ORDER BY 1 DESC LIMIT 1",
        "GROUP BY CAST({c} AS VARCHAR)",
        "GROUP BY DATE_TRUNC('month', {c})",
    ),
)


def make_statement(number):
    draw = random.Random(number)
    columns = [draw.choice(list(TABLE)) for _ in range(4)]
    x, y = (draw.choice(OPERANDS).format(c=one, d=other) for one, other in (columns[:2], columns[2:]))
    aggregate = draw.choice(AGGREGATES).format(x=x, y=y)
    condition = draw.choice(("", "", "", f" FILTER (WHERE {columns[3]} IS NOT NULL)"))
    around = draw.choice(("{}", "{}", "{}", "ROUND({})", "{} + 1", "CAST({} AS VARCHAR)"))
    clause = draw.choice(CLAUSES).format(c=columns[2], d=columns[1])
    text = f"{around.format(aggregate + condition)} AS v FROM t {clause}"
    if draw.random() < 0.1:
        text = f"AVG(v) AS v FROM (SELECT p, {aggregate} AS v FROM t GROUP BY p) AS q"
    return f"DP-SELECT 1000 {text}"


@pytest.fixture(params=["parquet", "csv", "private"])
def curator(request, tmp_path):
    table = pa.table(TABLE)
    source = "t.csv" if request.param == "csv" else "t.parquet"
    pc.write_csv(table, tmp_path / "t.csv")
    pq.write_table(table, tmp_path / "t.parquet")
    records = '"private"' if request.param == "private" else 2
    (tmp_path / "sfumato.toml").write_text(PROJECT.format(source=source, records=records), encoding="utf-8")
    return sf.open(tmp_path / "sfumato.toml")


def check(curator, statements):
    """How many of the statements are answered; those that are refused must have cost nothing."""
    answered, spent = 0, 0
    for text in statements:
        answer = refusal = None
        try:
            answer = curator.sql(text)
        except SfumatoError as error:
            refusal = error
        now = curator.budget().spent if curator.has_ledger() else 0
        assert answer is not None or now == spent, (text, str(refusal))
        if answer is not None:
            assert answer.table.schema.names == curator.describe(text).schema.names, text
            answered += 1
        spent = now
    return answered


def test_what_is_charged_is_answered(curator):
    assert check(curator, map(make_statement, range(36))) > 2
