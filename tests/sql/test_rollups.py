"""ROLLUP, CUBE and GROUPING SETS: right, consistent, and least squares where several levels are measured."""

import itertools
import math
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from helpers.projects import open_rows
from sfumato.core import noise as system_noise
from sfumato.core.algebra.asks import sum_levels
from sfumato.sql import rollups
from sfumato.sql.rollups import GroupingSets, choose_levels, combine_levels, spread_of

MUCH = 10_000_000
COLUMNS = {
    "a": {"values": ["x", "y", "z"]},
    "b": {"range": [1, 40]},
    "c": {"values": ["u", "v"]},
    "fee": {"bounds": [0, 50]},
}


def add_up(values, sets):
    """The exact values of every level that is measured."""
    return sum_levels(values, sets.sizes, sets.levels)


@pytest.fixture
def curator(tmp_path):
    number = np.arange(900)
    rows = {
        "person": number // 3,
        "a": np.array(["x", "y", "z", "elsewhere"])[number % 4],
        "b": number % 40 + 1,
        "c": np.array(["u", "v"])[number % 5 % 2],
        "fee": number % 51 * 1.0,
    }
    return open_rows(tmp_path, COLUMNS, rows, max_records=3)


def rows_of(table, names):
    return {
        tuple(row[:-1]): row[-1] for row in zip(*(table[name].to_pylist() for name in names), strict=True)
    }


@pytest.mark.parametrize(
    "group",
    [
        "ROLLUP(a, c, b)",
        "CUBE(a, b, c)",
        "GROUPING SETS ((a, b), (c), ())",
        "GROUPING SETS ((b), (a, c))",
        "c, ROLLUP(a, b)",
        "ROLLUP((a, c), b)",
        "GROUPING SETS (ROLLUP(a, c), (b))",
    ],
)
@pytest.mark.parametrize("delta", ["", "DELTA 1e-7 "])
def test_answers_without_noise_are_those_of_plain_sql(curator, group, delta):
    # A record without a label is in no group here, and so in no sum of groups.
    path = Path(curator.ledger_path).parent / "t.parquet"
    select = "COUNT(*) AS n, SUM(fee) AS s, AVG(fee) AS m, GROUPING(a, c) AS g FROM"
    plain = duckdb.sql(
        f"SELECT a, b, c, {select} '{path}' WHERE a <> 'elsewhere' GROUP BY {group}"
    ).to_arrow_table()
    answer = curator.sql(f"DP-SELECT {MUCH} {delta}a, b, c, {select} t GROUP BY {group}").table
    for value, slack in (("n", 0.01), ("s", 0.2), ("m", 0.01), ("g", 0)):
        mine, others = (rows_of(each, ["a", "b", "c", value]) for each in (answer, plain))
        assert len(mine) == answer.num_rows
        assert set(others) <= set(mine)
        for key, found in mine.items():
            if value == "m" and key not in others:
                continue
            assert found == pytest.approx(others.get(key, found if value == "g" else 0), abs=slack)


@pytest.mark.parametrize("group", ["ROLLUP(a, b)", "CUBE(a, b)", "GROUPING SETS ((a), (b), ())"])
def test_groups_add_up_to_coarser_ones(curator, group):
    table = curator.sql(f"DP-SELECT 0.1 a, b, COUNT(*) AS n, SUM(fee) AS s FROM t GROUP BY {group}").table
    for value in ("n", "s"):
        found = rows_of(table, ["a", "b", value])
        for key, total in found.items():
            for place in (0, 1):
                finer = [
                    number
                    for other, number in found.items()
                    if other[1 - place] == key[1 - place] and other[place] is not None
                ]
                if key[place] is None and finer:
                    assert sum(finer) == pytest.approx(total, abs=1e-6)
    if group == "ROLLUP(a, b)":
        assert table.schema.field("n").type == pa.int64()


def test_consistent_sums_make_consistent_averages(curator):
    text = (
        "DP-SELECT 1 a, SUM(fee) / COUNT(fee) AS m, COUNT(fee) AS n, AVG(fee) AS v FROM t GROUP BY ROLLUP(a)"
    )
    table = curator.sql(text).to_arrow().to_pylist()
    *parts, total = table
    assert total["a"] is None
    mean = sum(row["m"] * row["n"] for row in parts) / total["n"]
    assert mean == pytest.approx(total["m"], rel=1e-9)
    assert all(row["v_low"] <= row["v"] <= row["v_high"] for row in table)


def test_the_answer_is_ordered_filtered_and_nested_like_any_other(curator):
    text = f"DP-SELECT {MUCH} a, c, COUNT(*) AS n FROM t GROUP BY ROLLUP(a, c) "
    rows = curator.sql(f"{text} HAVING c IS NULL AND a IS NOT NULL ORDER BY a DESC").table
    assert rows["a"].to_pylist() == ["z", "y", "x"]
    assert rows["c"].to_pylist() == [None] * 3
    assert curator.sql(f"{text} ORDER BY a, c LIMIT 3").table["c"].to_pylist() == ["u", "v", None]
    nested = curator.sql(
        f"SELECT * FROM ({text.replace(f'DP-SELECT {MUCH}', 'SELECT')}) q WHERE n > 600", epsilon=MUCH
    )
    assert nested.table["a"].to_pylist() == [None]
    shares = f"DP-SELECT {MUCH} a, COUNT(*) * 2 / SUM(COUNT(*)) OVER () AS share FROM t GROUP BY ROLLUP(a)"
    assert sum(curator.sql(shares).table["share"].to_pylist()) == pytest.approx(2, abs=1e-3)


def test_rolled_up_keys_may_be_named(curator):
    text = f"DP-SELECT {MUCH} COALESCE(a, 'total') AS k, COUNT(*) AS n FROM t GROUP BY ROLLUP(a)"
    assert curator.sql(text).table["k"].to_pylist() == ["x", "y", "z", "total"]
    assert curator.sql(f"{text} ORDER BY k LIMIT 1").table["k"].to_pylist() == ["total"]


def test_other_spellings_are_the_same_question(curator):
    first = curator.sql("DP-SELECT 1 a, COUNT(*) AS n FROM t GROUP BY ROLLUP(a)")
    again = curator.sql("DP-SELECT 1 a, COUNT(*) AS n FROM t GROUP BY a WITH ROLLUP")
    assert (first.spent, again.spent) == (1, 0)
    assert again.table.equals(first.table)
    listed = curator.sql("DP-SELECT 1 a, c, COUNT(*) AS n FROM t GROUP BY a, c")
    every = curator.sql("DP-SELECT 1 a, c, COUNT(*) AS n FROM t GROUP BY ALL")
    assert every.repeated
    assert every.table.equals(listed.table)
    assert (
        curator.sql(
            "DP-SELECT 1 COUNT(*) AS n, RANK() OVER (ORDER BY COUNT(*)) AS r FROM t GROUP BY ALL"
        ).table.num_rows
        == 1
    )


def test_explain_and_describe_tell_the_sets(curator):
    text = "DP-SELECT 1 a, b, COUNT(*) AS n FROM t GROUP BY CUBE(a, b)"
    explained = curator.sql(f"EXPLAIN {text}")
    assert "each measured with 1/4 of epsilon, and made consistent by least squares" in explained.explanation
    assert '("t"."b"): 40 groups' in explained.explanation
    assert explained.price.groups == 120 + 3 + 40 + 1
    assert (
        dict(curator.describe(text).columns)["n"]
        == curator.sql(text).table.schema.field("n").type
        == pa.float64()
    )
    small = curator.sql("EXPLAIN DP-SELECT 1 c, COUNT(*) FROM t GROUP BY ROLLUP(c)").explanation
    assert "measured by all keys together, and added up" in small


def design(sets):
    """The matrices that give what is measured, and what is answered, from the counts of all keys."""
    cells = np.eye(math.prod(sets.sizes), dtype=np.int64)
    measured = np.stack([np.concatenate(add_up(each, sets)) for each in cells], axis=1)
    wanted = GroupingSets(sizes=sets.sizes, answered=sets.answered, levels=sets.answered)
    return measured, np.stack([np.concatenate(add_up(each, wanted)) for each in cells], axis=1)


@pytest.mark.parametrize(
    ("sizes", "answered"),
    [
        ((3, 4), ((0, 1), (0,), ())),
        ((2, 3, 2), ((0, 1, 2), (0, 1), (0, 2), (1, 2), (0,), (1,), (2,), ())),
        ((3, 4), ((0,), (1,))),
        ((3, 2, 2), ((0, 1), (1, 2), ())),
    ],
)
def test_levels_are_combined_as_least_squares_would(sizes, answered):
    sets = GroupingSets(sizes=sizes, answered=answered, levels=answered)
    measured, wanted = design(sets)
    rng = np.random.default_rng(4)
    noisy = rng.integers(-50, 50, measured.shape[0])
    inverse = np.linalg.pinv(measured.astype(float))
    if not sets.is_chain:
        found = np.concatenate(combine_levels(noisy, sets))
        assert found == pytest.approx(wanted @ inverse @ noisy, abs=1e-6)
    else:
        found = np.concatenate(combine_levels(noisy, sets))
        assert np.abs(found - wanted @ inverse @ noisy).max() <= 2
    spread = ((wanted @ inverse) ** 2).sum(axis=1)
    told = np.concatenate([np.full(sets.cells(each), spread_of(sets, each)) for each in answered])
    assert told == pytest.approx(spread, rel=1e-9)


def test_whole_numbers_of_a_chain_stay_near_and_add_up():
    sets = GroupingSets(sizes=(3, 5, 2), answered=((), (1,), (0, 1), (0, 1, 2)), levels=((0, 1, 2), ()))
    rng = np.random.default_rng(1)
    for _ in range(200):
        noisy = rng.integers(-9, 9, 31)
        parts = combine_levels(noisy, sets)
        assert parts[0][0] == parts[1].sum() == parts[2].sum() == parts[3].sum()
        assert (parts[2].reshape(3, 5).sum(axis=0) == parts[1]).all()
        assert (parts[3].reshape(15, 2).sum(axis=1) == parts[2]).all()


def test_the_levels_are_those_of_the_least_expected_error():
    small = choose_levels((2,), ((0,), ()), deviation={1: 1.0, 2: 2.0})
    large = choose_levels((1000,), ((0,), ()), deviation={1: 1.0, 2: 2.0})
    assert small.levels == ((0,),)
    assert large.levels == ((0,), ())


def test_one_noise_is_the_widest_of_its_variance():
    # P(|sum| > t) of two-sided exponentials, by partial fractions, where t is what one exceeds with `share`.
    rng = np.random.default_rng(7)
    for share, _ in itertools.product((0.05, 0.045, 0.025, 0.01, 0.001), range(400)):
        squares = np.sort(rng.dirichlet(np.full(rng.integers(2, 5), rng.choice([0.3, 1.0, 3.0]))))
        squares = squares + 1e-3 * np.arange(1, squares.size + 1)
        squares = squares / squares.sum()
        width, tail = math.log(1 / share), 0.0
        for place, one in enumerate(squares):
            others = np.delete(squares, place)
            tail += math.exp(-width / math.sqrt(one)) * np.prod(one / (one - others))
        assert tail <= share * (1 + 1e-6)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "group"), [("laplace", "chain"), ("gaussian", "cube"), ("laplace", "cube")])
def test_intervals_of_every_set_hold_the_truth(kind, group):
    from fractions import Fraction

    from sfumato.core.algebra.measures import Measure
    from sfumato.sql.plan import Noise, half_width, set_noise

    answered = {"chain": ((0, 1), (0,), ()), "cube": ((0, 1), (0,), (1,), ())}[group]
    sets = GroupingSets(sizes=(3, 7), answered=answered, levels=answered)
    noise = Noise(measure=Measure(statistic="records"), kind=kind, scale=Fraction(9), costs=())
    true = np.arange(21, dtype=np.int64)
    exact = rollups.combine_levels(np.concatenate(add_up(true, sets)), sets)
    trials, misses, limit = 4000, np.zeros(len(answered)), 4000 * 0.05 + 5 * math.sqrt(4000 * 0.05 * 0.95)
    for _ in range(trials):
        drawn = [system_noise.add_noise(each, kind=kind, scale=Fraction(9)) for each in add_up(true, sets)]
        found = combine_levels(np.concatenate(drawn), sets)
        for place, each in enumerate(answered):
            width = half_width(set_noise(noise, sets, each))
            misses[place] += abs(found[place][0] - exact[place][0]) > width
    assert (misses <= limit).all(), misses
