"""What an answer says of what its bounds cut: before it is paid, after, and when it is repeated."""

import numpy as np
import pytest

from helpers.projects import open_rows

MUCH = 10_000_000
COLUMNS = {"clinic": {"values": ["a", "b"]}, "fee": {"bounds": [0, 50]}, "wait": {"bounds": [0, 9]}}
RECORDS = "records beyond 3 per individual are not counted"


@pytest.fixture
def curator(tmp_path):
    """A hundred people with ten records each, with fees beyond their bound."""
    number = np.arange(1000)
    rows = {
        "person": number // 10,
        "clinic": np.where(number % 4 == 0, "b", "a"),
        "fee": 60.0 + number % 7,
        "wait": number % 10 * 1.0,
    }
    return open_rows(tmp_path, COLUMNS, rows, max_records=3)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("COUNT(*) FROM t", [RECORDS]),
        ("clinic, COUNT(*) FROM t GROUP BY 1", [RECORDS]),
        ("COUNT(DISTINCT person) FROM t", []),
        ("SUM(fee), AVG(fee) FILTER (WHERE clinic = 'a') FROM t", [RECORDS, "fee is clamped to [0, 50]"]),
        (
            "CORR(fee, wait) FROM t",
            [RECORDS, "fee is clamped to [0, 50]", "wait is clamped to [0, 9]"],
        ),
        (
            "AVG(n) FROM (SELECT person, LEAST(COUNT(*), 20) AS n FROM t GROUP BY person) AS x",
            ["n is clamped to [1, 20]"],
        ),
    ],
)
def test_what_bounds_cut_is_said_before_after_and_again(curator, asked, said):
    explained = curator.sql(f"EXPLAIN DP-SELECT {MUCH} {asked}")
    assert list(explained.notes) == said
    assert all(f"note         {each}" in explained.explanation for each in said)
    answer, again = (curator.sql(f"DP-SELECT {MUCH} {asked}") for _ in range(2))
    assert [each for each in answer.notes if "at the end" not in each] == said
    assert again.notes == answer.notes


def test_groups_that_are_cut_are_said(curator):
    options = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = {MUCH}, max_groups_contributed = 1)"
    notes = curator.sql(f"{options} clinic, COUNT(*) FROM t GROUP BY clinic").notes
    assert notes == (RECORDS, "groups beyond 1 per individual are not counted")


@pytest.mark.parametrize("asked", ["AVG(fee)", "MEDIAN(fee)", "QUANTILE(fee, 0.9)"])
def test_an_answer_at_its_bound_says_so(curator, asked):
    said = "an answer about fee is at the end 50 of its bounds: what lies beyond is cut"
    assert said in curator.sql(f"DP-SELECT {MUCH} {asked} AS x FROM t").notes
    inside = curator.sql(f"DP-SELECT {MUCH} {asked.replace('fee', 'wait')} AS x FROM t")
    assert not any("at the end" in each for each in inside.notes)


def test_an_average_near_its_bound_says_so(tmp_path):
    columns = {"score": {"bounds": [-10, 100]}, "debt": {"bounds": [0, 100]}}
    rows = {"score": 96.0 + np.arange(500) % 3, "debt": np.full(500, 2.0)}
    curator = open_rows(tmp_path, columns, rows, unit="row")
    near = "an average of score is near the end 100 of its bounds: at least half of the values are within 11"
    answer = curator.sql(f"DP-SELECT {MUCH} AVG(score) AS x, AVG(debt) AS y FROM t")
    (said,) = [each for each in answer.notes if "the end" in each]
    assert said.startswith(near)
    assert (rows["score"] >= 100 - 11).mean() >= 0.5
    # The end 0 is where most amounts begin, and half of the bounds is no end.
    for asked in ("AVG(debt)", "AVG(score - 50)", "SUM(score)"):
        notes = curator.sql(f"DP-SELECT {MUCH} {asked} AS x FROM t").notes
        assert not any("the end" in each for each in notes)


def test_a_row_that_is_an_individual_is_not_cut(tmp_path):
    curator = open_rows(tmp_path, COLUMNS, {"clinic": ["a"]}, unit="row")
    assert curator.sql(f"DP-SELECT {MUCH} COUNT(*) FROM t").notes == ()


@pytest.mark.parametrize(
    ("asked", "most"),
    [("COUNT(DISTINCT clinic)", 2), ("COUNT(DISTINCT fee > 3)", 2), ("COUNT(DISTINCT nurse)", np.inf)],
)
@pytest.mark.usefixtures("seeded_noise")
def test_different_values_are_shown_within_what_is_public(tmp_path, asked, most):
    """At a scale of 300, some of twenty answers lie outside, whatever the noise."""
    rows = {"person": [1, 2], "clinic": ["a", "b"], "fee": [1.0, 9.0], "nurse": [1, 2]}
    curator = open_rows(tmp_path, COLUMNS, rows, max_records=3)
    shown = []
    for run in range(20):
        statement = f"DP-SELECT FRESH 0.01 {asked} AS n, -{run} * {asked} AS m FROM t"
        answer = curator.sql(statement).table.to_pylist()[0]
        assert 0 <= answer["n_low"] <= answer["n"] <= answer["n_high"] <= most
        shown.append((answer["n"], answer["m"]))
    assert any(m > 0 for _, m in shown), "what is computed is not held"
    assert any(n == 0 for n, _ in shown)
