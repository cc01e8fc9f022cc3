"""Bounds that are chosen from the records: found, charged, stated, and measured with."""

from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.pairs import read_pairs
from helpers.projects import open_rows
from sfumato.core.facts.column import column_spec, parse_column
from sfumato.curator import statements
from sfumato.sql import asks, magnitudes

MUCH = 100_000
ANSWERS = Path(__file__).with_name("fixtures") / "answers.sql"
COLUMNS = {
    "clinic": {"values": ["a", "b", "empty"]},
    "fee": {"bounds": "private"},
    "age": {"bounds": [0, 100]},
}


@pytest.fixture
def curator(tmp_path):
    number = np.arange(3000)
    rows = {
        "person": number // 3,
        "clinic": np.where(number % 4 == 0, "b", "a"),
        "fee": number % 900 / 10 - 20,
        "debt": -1.0 - number % 70,
        "age": number % 101,
        "text": (number % 7).astype(str),
        "tiny": number * 1e-12,
        "day": np.full(3000, "2025-01-01", "datetime64[D]"),
    }
    return open_rows(tmp_path, COLUMNS, rows, max_records=4)


def exact(curator, select):
    (row,) = duckdb.sql(f"SELECT {select} FROM '{Path(curator.ledger_path).parent / 't.parquet'}'").fetchall()
    return row


@pytest.mark.parametrize(("asked", "plain"), read_pairs(ANSWERS, section="private bounds"))
def test_answers_without_noise_are_those_of_plain_sql(curator, asked, plain):
    answer = curator.sql(f"DP-SELECT {MUCH} {asked} AS n FROM t")
    (truth,) = exact(curator, plain)
    assert answer.table["n"][0].as_py() == pytest.approx(truth, rel=2e-3, abs=1e-3)
    assert any(", chosen privately" in note for note in answer.notes)


@pytest.mark.parametrize(
    "asked",
    ["MEDIAN(debt BOUNDED PRIVATELY)", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY debt bounded privately)"],
)
def test_quantiles_are_chosen_between_the_chosen_bounds(curator, asked):
    answer = curator.sql(f"DP-SELECT {MUCH} {asked} AS q FROM t")
    assert answer.table["q"][0].as_py() == pytest.approx(-35.5, abs=0.6)
    assert answer.notes[0].startswith('"t"."debt" was clamped to [-96, -0.75]')


def test_the_notes_state_the_bounds_and_a_repeat_does_too(curator):
    text = (
        f"DP-SELECT {MUCH} clinic, AVG(fee) AS mean, SUM(debt BOUNDED PRIVATELY) AS s FROM t GROUP BY clinic"
    )
    first, again = curator.sql(text), curator.sql(text)
    assert [note.split(" was ")[0] for note in first.notes[:2]] == ['"t"."fee"', '"t"."debt"']
    assert "[-24, 96]" in first.notes[0]
    assert again.spent == 0
    assert again.table.equals(first.table)
    assert again.notes == first.notes


def test_the_whole_statement_costs_its_epsilon(curator):
    answer = curator.sql("DP-SELECT 3 AVG(fee), SUM(debt BOUNDED PRIVATELY) FROM t")
    assert answer.spent == 3
    report = curator.budget()
    assert report.spent == 3


def test_explain_says_what_is_chosen_and_the_price_has_no_error(curator):
    explained = curator.sql("EXPLAIN DP-SELECT 3 AVG(fee) AS a, COUNT(*) AS n FROM t")
    assert 'bounds       of "t"."fee" are chosen first' in explained.explanation
    assert "epsilon 0.75" in explained.explanation
    assert "times half their width" in explained.explanation
    assert explained.price.errors["a"] is None
    assert explained.price.errors["n"] > 0
    assert curator.budget().spent == 0


def test_few_records_get_bounds_and_no_error(curator):
    answer = curator.sql("DP-SELECT 0.01 AVG(fee) AS a FROM t WHERE age > 1000")
    assert np.isfinite(answer.table["a"][0].as_py())
    assert answer.table["a_low"][0].as_py() <= answer.table["a_high"][0].as_py()


def test_values_next_to_nothing_have_bounds_around_zero(curator):
    answer = curator.sql(f"DP-SELECT {MUCH} AVG(tiny BOUNDED PRIVATELY) AS a FROM t")
    assert abs(answer.table["a"][0].as_py()) < 1e-6


def test_open_groups_without_a_group_have_no_bounds_to_state(curator):
    text = "DP-SELECT 1 DELTA 1e-7 text, SUM(fee) AS s FROM t WHERE age > 1000 GROUP BY text"
    assert curator.sql(text).table.num_rows == 0
    assert curator.sql(text).spent == 0


def test_text_in_quotes_is_no_mark(curator):
    text = f"DP-SELECT {MUCH} COUNT(*) AS n FROM t WHERE clinic = 'a bounded privately'"
    assert curator.sql(text).table["n"][0].as_py() == 0


@pytest.mark.parametrize("first", [0, 50, magnitudes._ZERO, 150, magnitudes.INTERVALS - 1])
def test_whatever_is_chosen_costs_the_same(curator, monkeypatch, first):
    charged = []
    original = statements.answer_under_charge

    def spy(bill, **rest):
        charged.append(bill.costs)
        return original(bill, **rest)

    last = min(first + 10, magnitudes.INTERVALS - 1)
    monkeypatch.setattr(asks, "choose_bounds", lambda values, noise: (first, last))
    monkeypatch.setattr(statements, "answer_under_charge", spy)
    select = "SUM(fee), AVG(fee), VARIANCE(fee), MEDIAN(fee), CORR(fee, age)"
    for prefix in ("DP-SELECT 1", "DP-SELECT 1 DELTA 1e-7"):
        text = f"{prefix} {select}" if "DELTA" not in prefix else f"{prefix} SUM(fee), AVG(fee)"
        low, high = magnitudes.bounds_around(first, last)
        assert curator.sql(f"{text} FROM t").spent == 1
        assert low < high
    assert len(charged) == 2


@pytest.mark.parametrize("whole", [True, False])
def test_no_pair_of_edges_adds_more_than_the_largest_sum(whole):
    for first in range(0, magnitudes.INTERVALS, 7):
        for last in range(first, magnitudes.INTERVALS, 7):
            low, high = magnitudes.bounds_around(first, last)
            centre = Fraction(0) if whole else (low + high) / 2
            grid = magnitudes.grid_between(low, high, centre)
            farthest = max(abs(low - centre), abs(high - centre)) * grid
            assert grid >= 2
            assert magnitudes.LARGEST * Fraction(1, 4) < farthest <= magnitudes.LARGEST


def test_the_project_file_says_private_and_reads_back():
    column = parse_column("fee", {"bounds": "private"})
    assert column.private_bounds
    assert parse_column("fee", column_spec(column)) == column
    with pytest.raises(sf.SchemaError, match="private"):
        parse_column("fee", {"bounds": [1]})


def test_sums_and_means_stay_two_measures_between_symmetric_bounds(tmp_path):
    """Otherwise the plan that was charged would not be the one that is measured, and the charge be lost."""
    values = pa.table({"person": range(3000), "x": [float(n % 2 * 2 - 1) * 50 for n in range(3000)]})
    pq.write_table(values, tmp_path / "t.parquet")
    tables = '[tables.t]\nsource = "t.parquet"\nunit = "person"\nmax_records = 1\n'
    (tmp_path / "sfumato.toml").write_text(f"[budget]\nepsilon = 1000000000\n{tables}")
    asked = "SUM(x BOUNDED PRIVATELY) AS s, AVG(x BOUNDED PRIVATELY) AS m, VAR_POP(x BOUNDED PRIVATELY) AS v"
    curator = sf.open(tmp_path / "sfumato.toml")
    answer = curator.sql(f"DP-SELECT {MUCH} {asked} FROM t")
    assert answer.spent == MUCH
    (row,) = answer.table.to_pylist()
    assert (row["s"], row["m"], row["v"]) == pytest.approx((0, 0, 2500), abs=1)
    assert curator.sql(f"DP-SELECT {MUCH} {asked} FROM t").table == answer.table


def test_numbers_in_a_file_of_text_are_bounded_too(curator, tmp_path):
    rows = pq.read_table(tmp_path / "t.parquet")
    pa.csv.write_csv(rows, tmp_path / "t.csv")
    written = open_rows(tmp_path, COLUMNS, {}, max_records=4, source="t.csv")
    asked = f"DP-SELECT {MUCH} AVG(debt BOUNDED PRIVATELY) AS a FROM t"
    assert written.sql(asked).table["a"][0].as_py() == pytest.approx(
        curator.sql(asked).table["a"][0].as_py(), abs=0.1
    )
