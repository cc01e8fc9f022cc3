"""The error that is told before an answer is bought: that of what is asked, from public facts."""

from unittest import mock

import duckdb
import numpy as np
import pytest

import sfumato as sf
from sfumato.core.engine.statements import StatementEngine
from sfumato.sql.expected import ExpectedError

PROJECT = """
[budget]
epsilon = 1000000
delta = 1e-6
[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 2
[tables.visits.columns.clinic]
values = ["North", "South"]
[tables.visits.columns.month]
range = [1, 12]
[tables.visits.columns.fee]
bounds = [0, 100]
[tables.visits.columns.visited]
range = ["2025-01-01", "2025-12-31"]
"""
SIZE = 4000


@pytest.fixture
def curator(tmp_path):
    # Evenly in the lower half of the bounds, as the made-up groups are.
    duckdb.execute(f"""COPY (
        SELECT i // 2 AS person, 'North' AS clinic, 50 * (i + 0.5) / {SIZE} AS fee, 1 + i * 7919 % 6 AS month,
            DATE '2025-01-01' + (i % 100)::INTEGER AS visited
        FROM range({SIZE}) AS t(i)) TO '{tmp_path / "visits.parquet"}'""")
    (tmp_path / "sfumato.toml").write_text(PROJECT)
    return sf.open(tmp_path / "sfumato.toml")


def expect(curator, items, *, epsilon="1", rest=""):
    text = f"EXPLAIN DP-SELECT {epsilon} {items} FROM visits {rest}"
    return curator.sql(text)


MADE_UP = [
    "AVG(fee)", "STDDEV(fee)", "STDDEV_POP(fee)", "VARIANCE(fee)", "SUM(fee) / COUNT(*)",
    "100.0 * COUNT(*) FILTER (WHERE fee >= 0) / COUNT(*)", "COVAR_POP(fee, month)", "CORR(fee, month)",
    "AVG(fee) - 10", "COUNT(fee) / NULLIF(COUNT(*), 0)",
]  # fmt: skip

WHOLE = {"100.0 * COUNT(*) FILTER (WHERE fee >= 0) / COUNT(*)", "COUNT(fee) / NULLIF(COUNT(*), 0)"}


@pytest.mark.parametrize("item", MADE_UP)
def test_the_error_is_that_of_the_interval_of_such_a_group(curator, item):
    curator.sql("DP-SELECT 100000 COUNT(*) FROM visits")  # releases the size
    told = expect(curator, f"{item} AS x", epsilon="4").price
    error = told.expected["x"].by_records[SIZE]
    assert told.errors == {"x": None}
    (row,) = curator.sql(f"DP-SELECT 4 {item} AS x FROM visits").table.to_pylist()
    half = max(row["x_high"] - row["x"], row["x"] - row["x_low"])
    if item in WHOLE:  # where noise lifts a share above the whole, its interval is cut there
        assert 0 < half <= 1.35 * error
    else:
        assert half == pytest.approx(error, rel=0.35)


@pytest.mark.parametrize(
    "item", ["COUNT(*)", "SUM(fee)", "COUNT(DISTINCT person)", "COUNT(*) * 2 + SUM(fee)"]
)
def test_the_error_of_sums_does_not_depend_on_the_size(curator, item):
    price = expect(curator, f"{item} AS x").price
    (row,) = curator.sql(f"DP-SELECT 1 {item} AS x FROM visits").table.to_pylist()
    assert price.errors["x"] == pytest.approx(row["x_high"] - row["x"], abs=1e-6)
    assert price.expected["x"] == ExpectedError(width=price.errors["x"])


@pytest.mark.parametrize(
    ("item", "share"), [("MEDIAN(fee)", 0.5), ("QUANTILE(fee, 0.9)", 0.9), ("MIN(fee)", 0), ("MAX(fee)", 1)]
)
def test_a_quantile_is_within_its_ranks(curator, item, share):
    error = expect(curator, f"{item} AS x", epsilon="3").price.expected["x"]
    fees = 50 * (np.arange(SIZE) + 0.5) / SIZE
    # Epsilon differs a little, so that each is an answer of its own; a miss has less than 5 %, and by far.
    found = [
        curator.sql(f"DP-SELECT {3 + n / 10**6} {item} AS x FROM visits").table["x"][0].as_py()
        for n in range(1, 21)
    ]
    far = [abs(np.searchsorted(fees, value) - share * SIZE) for value in found]
    assert np.median(far) <= error.ranks + SIZE * 100 / 1000 / 50
    assert error.by_records[1000] == pytest.approx(min(100, error.ranks / 1000 * 50))


def test_other_answers_are_told_in_their_own_words(curator):
    price = expect(curator, "MODE(clinic) AS m, MIN(visited) AS d, SUM(COUNT(*)) OVER () AS w").price
    words = {name: each.describe() for name, each in price.expected.items()}
    assert "records of the most frequent" in words["m"]
    assert words["d"].endswith("ranks")
    assert words["w"].startswith("depends on the records")


def test_what_has_no_bound_says_so(curator):
    error = expect(curator, "SUM(fee) / (COUNT(*) - COUNT(fee)) AS x").price.expected["x"]
    assert error.describe() == "without a bound even for 10,000 records"


def test_nothing_is_read_for_it(curator):
    curator.sql("DP-SELECT 1 COUNT(*) FROM visits")
    spies = {name: mock.Mock(side_effect=AssertionError(name)) for name in ("aggregate", "count")}
    with mock.patch.multiple(StatementEngine, **spies):
        answer = expect(curator, "AVG(fee), MEDIAN(fee)")
    assert "expected     AVG(fee): 95 % within about +-" in answer.explanation


def test_noise_beyond_the_likely_size_is_noted(curator):
    asked = "clinic, COUNT(*), AVG(fee), SUM(fee)"
    assert not expect(curator, asked, epsilon="0.0001", rest="GROUP BY 1").notes[2:], "nothing was released"
    curator.sql("DP-SELECT 1000 COUNT(*) FROM visits WHERE fee > 20")
    assert not expect(curator, asked, epsilon="0.0001", rest="GROUP BY 1").notes[2:], (
        "only a part was counted"
    )
    curator.sql("DP-SELECT 1000 month, COUNT(*) FROM visits GROUP BY month")
    noted = expect(curator, asked, epsilon="0.0001", rest="GROUP BY 1")
    note, *_ = noted.notes
    for word in ("COUNT(*) +-", "AVG(fee) +-", "SUM(fee) +-", "at most about 2,000 records", "more epsilon"):
        assert word in note
    assert f"  note         {note}" in noted.explanation.splitlines()
    assert not expect(curator, asked, epsilon="10", rest="GROUP BY 1").notes[2:]
    assert not expect(curator, "COUNT(*)", epsilon="0.01", rest="WHERE fee > 99").notes[1:], "it may be large"


def test_a_count_that_is_noise_itself_tells_no_size(curator):
    curator.sql("DP-SELECT 0.0001 COUNT(*) FROM visits")
    assert not expect(curator, "COUNT(*)", epsilon="0.0002").notes[1:]


def test_roll_ups_are_told_by_their_widest_interval(curator):
    text = "DP-SELECT 1 clinic, month, COUNT(*) AS n FROM visits GROUP BY ROLLUP(clinic, month)"
    error = curator.sql(f"EXPLAIN {text}").price.errors["n"]
    rows = curator.sql(text).table.to_pylist()
    assert max(row["n_high"] - row["n"] for row in rows) == pytest.approx(error, abs=1)


def test_what_is_free_is_not_warned_of(curator):
    curator.sql("DP-SELECT 1000 COUNT(*) AS n FROM visits")
    assert not expect(curator, "COUNT(*) AS n", epsilon="1000").notes[1:]
    assert not expect(curator, "COUNT(*) AS other", epsilon="0.0001").notes[1:]
    assert curator.sql("DP-SELECT 0.0001 COUNT(*) AS other FROM visits").spent == 0
