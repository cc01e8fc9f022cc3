"""MODE and TOP: the labels they name, the forms they take, what they cost, what they refuse."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
import sfumato.core.noise
from helpers.cli import invoke
from sfumato.core import door
from sfumato.core.algebra.asks import take_out
from sfumato.core.errors import UnsupportedQuery

PROJECT = """
[budget]
epsilon = 1000000
delta = 1e-6
[tables.t]
source = "t.parquet"
unit = "person"
max_records = 6
{more}
[tables.t.columns.city]
values = ["ash", "birch", "cedar", "empty"]
[tables.t.columns.other_city]
from = "city"
values = ["ash"]
outside = "other"
[tables.t.columns.month]
range = [1, 12]
[tables.t.columns.amount]
bounds = [0, 100]
[tables.t.columns.wide]
from = "month"
range = [0, 1024]
[tables.t.columns.wider]
from = "month"
range = [0, 1025]
[tables.zones]
public = true
source = "zones.csv"
"""
MUCH = 10_000


def rows():
    table = []
    for person in range(200):
        for visit in range(1 + person % 4):
            number = person * 3 + visit
            table.append(
                {
                    "person": person,
                    "city": ("cedar", "cedar", "birch", "cedar", "ash", "birch")[number * 7 % 11 % 6],
                    "month": 4 if number % 10 == 0 else 1 + (number * number * 5 + visit * person) % 23 % 12,
                    "amount": float(number % 90),
                    "note": f"n{number % 7}",
                    "flag": number % 5 == 0,
                }
            )
    table.append({"person": 900, "city": None, "month": 99, "amount": None, "note": None, "flag": None})
    return table


def write(folder, *, more=""):
    pq.write_table(pa.Table.from_pylist(rows()), folder / "t.parquet")
    (folder / "zones.csv").write_text("city,side\nash,west\nbirch,east\ncedar,west\n")
    (folder / "sfumato.toml").write_text(PROJECT.format(more=more))
    return sf.open(folder / "sfumato.toml")


@pytest.fixture(scope="module")
def curator(tmp_path_factory):
    return write(tmp_path_factory.mktemp("modes"))


def common(column, *, where=lambda row: True, labels=None):
    """Labels with their counts, the most frequent first, as plain Python counts them."""
    counts = Counter(row[column] for row in rows() if where(row) and row[column] is not None)
    return [label for label, _ in counts.most_common() if labels is None or label in labels]


MONTHS = range(1, 13)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("MODE(city) AS m FROM t", common("city")[0]),
        ("mode ( t.city ) AS m FROM t", common("city")[0]),
        ("MODE() WITHIN GROUP (ORDER BY city) AS m FROM t", common("city")[0]),
        ("MODE(month) AS m FROM t", common("month", labels=MONTHS)[0]),
        ("MODE(other_city) AS m FROM t", "other"),
        (
            "MODE(city) AS m FROM t WHERE amount < 3",
            common("city", where=lambda r: (r["amount"] or 0) < 3)[0],
        ),
        (
            "MODE(city) FILTER (WHERE month = 5) AS m FROM t",
            common("city", where=lambda r: r["month"] == 5)[0],
        ),
        ("MODE(flag) AS m FROM t", "false"),
        ("MODE(amount > 80) AS m FROM t", "false"),
        ("MODE(CASE WHEN amount > 10 THEN 'much' ELSE 'little' END) AS m FROM t", "much"),
        ("MODE(side) AS m FROM t JOIN zones ON t.city = zones.city", "west"),
        ("MODE(wide) AS m FROM t", common("month", labels=MONTHS)[0]),
        ("MODE(c) AS m FROM (SELECT city AS c FROM t WHERE city <> 'cedar') AS s", common("city")[1]),
    ],
)
def test_with_much_epsilon_the_mode_is_that_of_plain_counting(curator, select, expected):
    answer = curator.sql(f"DP-SELECT {MUCH} {select}")
    assert answer.table.to_pydict() == {"m": [expected]}
    assert answer.spent == MUCH or answer.repeated  # however a column is named, it is one question


def test_top_names_the_most_frequent_in_order(curator):
    answer = curator.sql(f"DP-SELECT {MUCH} TOP(city, 3) FROM t")
    assert answer.table.column_names == ["TOP(city, 3)_1", "TOP(city, 3)_2", "TOP(city, 3)_3"]
    assert [column.to_pylist()[0] for column in answer.table.columns] == common("city")
    one = curator.sql(f"DP-SELECT {MUCH} top(city, 1) AS best FROM t")
    assert one.table.to_pydict() == {"best_1": [common("city")[0]]}
    every = curator.sql("DP-SELECT 1 TOP(city, 4) AS best FROM t").table.to_pylist()[0]
    assert sorted(every.values()) == ["ash", "birch", "cedar", "empty"]


def test_groups_are_all_answered_beside_other_aggregates(curator):
    answer = curator.sql(
        f"DP-SELECT {MUCH} month, MODE(city) AS m, COUNT(*) AS n, TOP(city, 2) AS t, MEDIAN(amount) AS q "
        "FROM t GROUP BY month ORDER BY n DESC, month LIMIT 4"
    )
    names = ["month", "m", "n", "n_low", "n_high", "t_1", "t_2", "q", "q_low", "q_high"]
    assert answer.table.column_names == names
    assert answer.table["n"].to_pylist() == sorted(answer.table["n"].to_pylist(), reverse=True)
    for row in answer.table.to_pylist():
        counts = Counter(each["city"] for each in rows() if each["month"] == row["month"])
        assert row["n"] == counts.total()
        assert counts[row["m"]] == max(counts.values())
        assert counts[row["t_1"]] >= counts[row["t_2"]] > 0
    everyone = curator.sql(f"DP-SELECT {MUCH} month, MODE(city) FROM t GROUP BY month")
    assert everyone.table.num_rows == 12


def test_an_empty_group_answers_at_random(tmp_path):
    curator = write(tmp_path)
    found = {
        curator.sql(f"DP-SELECT {1 + place / 100} city, MODE(month) AS m FROM t GROUP BY city")
        .table["m"][3]
        .as_py()
        for place in range(30)
    }
    assert len(found) > 3, "nobody lives in 'empty', so every month is as likely"


@pytest.mark.parametrize(
    ("more", "epsilon", "select", "rates"),
    [
        ("", 3, "MODE(city)", [Fraction(3, 6)]),
        ('neighbours = "replace"', 3, "MODE(city)", [Fraction(3, 12)]),
        ("", 3, "TOP(city, 3)", [Fraction(1, 6)] * 3),
        ("", 4, "MODE(city), COUNT(*)", [Fraction(2, 6)]),
        ("", 3, "MODE(city), MODE(month), MODE(city) AS again", [Fraction(3, 12)] * 2),
    ],
)
def test_rates_and_costs_follow_from_the_bounds(tmp_path, monkeypatch, more, epsilon, select, rates):
    curator = write(tmp_path, more=more)
    seen = []

    def choice(scores, *, rate):
        seen.append((scores.shape, rate))
        return np.zeros(len(scores), np.int64)

    monkeypatch.setattr("sfumato.core.noise.exponential_choice", choice)
    curator.sql(f"DP-SELECT {epsilon} {select} FROM t")
    assert [rate for _, rate in seen] == rates
    if "TOP" in select:
        assert [shape for shape, _ in seen] == [(1, 4), (1, 3), (1, 2)]
    (entry,) = [each for each in curator.budget().entries if each.kind == "charge"]
    assert sum(cost.epsilon for cost in entry.costs) == epsilon
    assert {cost.kind for cost in entry.costs} <= {"exponential", "laplace"}


def test_the_answer_is_stored_and_repeated_without_charge(tmp_path):
    curator = write(tmp_path)
    text = "DP-SELECT 0.01 month, TOP(city, 2) AS best, MODE(flag) AS f FROM t GROUP BY month"
    first = curator.sql(text)
    again = sf.open(tmp_path / "sfumato.toml").sql(text.lower().replace("dp-select", "DP-SELECT"))
    assert again.repeated
    assert again.spent == 0
    assert again.table.equals(first.table)
    assert curator.budget().spent == Fraction(1, 100)


def test_the_charge_comes_before_the_records(tmp_path, monkeypatch):
    curator = write(tmp_path)
    spent = []
    original = curator._engine.aggregate

    def aggregate(*rest, **facts):
        spent.append(curator.budget().spent)
        return original(*rest, **facts)

    monkeypatch.setattr(
        type(curator._engine), "aggregate", lambda self, *rest, **facts: aggregate(*rest, **facts)
    )
    curator.sql("DP-SELECT 0.5 MODE(city) FROM t")
    assert spent == [Fraction(1, 2)]


def test_a_mode_that_does_not_fit_costs_nothing(tmp_path):
    curator = write(tmp_path)
    with pytest.raises(sf.BudgetExceeded):
        curator.sql("DP-SELECT 2000000 MODE(city) FROM t")
    assert curator.budget().spent == 0


def test_explain_names_labels_scale_and_reach(curator):
    before = curator.budget().spent
    told = str(curator.sql("EXPLAIN DP-SELECT 0.5 month, TOP(city, 2) FROM t GROUP BY month"))
    assert '2 most frequent of 4 labels("t"."code of city")' in told
    # Scale 6 records over 0.25; ln(8 / 0.05) of it is 121.8.
    assert "exponential mechanism among 4 public labels, scale 24 records, epsilon 0.5\n" in told
    assert "TOP(city, 2): 95 % within 121 records of the most frequent\n" in told
    assert "epsilon 0.5" in told
    assert curator.budget().spent == before
    answer = curator.sql("DP-SELECT FRESH 0.5 MODE(city) AS m FROM t")
    assert answer.scales["m"].startswith("exponential mechanism among 4 public labels, scale 12 records")


@pytest.mark.statistical
def test_labels_are_chosen_by_the_law_of_the_plan(tmp_path, monkeypatch):
    # Two labels 12 records apart at a scale of 6 records: the odds are e^2. An alarm in a million.
    curator, picked = write(tmp_path), []
    original = door.draw_groups

    def keep(asked, true_aggregates, source):
        picked.extend(asked.drawn)
        return original(asked, true_aggregates, source)

    monkeypatch.setattr(door, "draw_groups", keep)
    curator.sql("DP-SELECT 1 MODE(flag) FROM t")
    runs = 50_000
    counts = np.tile(np.array([56, 44], np.int64), (runs, 1))
    drawn = door._pick_labels(counts, picked[0], sfumato.core.noise)[0]
    expected = 1 / (1 + np.exp(-2))
    assert abs((drawn == 0).mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / runs)


def test_taking_out_leaves_the_rest_in_order():
    values = np.arange(12).reshape(3, 4)
    assert take_out(values, np.array([0, 3, 1])).tolist() == [[1, 2, 3], [4, 5, 6], [8, 10, 11]]
    assert take_out(np.array([[5]]), np.array([0])).shape == (1, 0)


def test_public_tables_answer_exactly(curator):
    answer = curator.sql("SELECT MODE(side) AS m FROM zones")
    assert answer.public
    assert answer.table.to_pydict() == {"m": ["west"]}
    with pytest.raises(UnsupportedQuery, match="top does not exist"):
        curator.sql("SELECT TOP(side, 1) FROM zones")


def test_synthetic_rows_are_not_confused_with_modes(curator):
    answer = curator.sql("DP-SELECT 5 city, month FROM t LIMIT 5")
    assert answer.synthetic


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_the_command_prints_labels(tmp_path, monkeypatch, form):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = f"DP-SELECT {MUCH} TOP(city, 2) AS best FROM t"
    result = invoke("sql", text, "--format", form)
    if form == "csv":
        assert result.stdout.splitlines()[0].replace('"', "") == "best_1,best_2"
    if form == "json":
        assert common("city")[0] in json.dumps(json.loads(result.stdout))
    assert all(label in result.stdout for label in common("city")[:2])
