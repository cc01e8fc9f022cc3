"""CORR, COVAR and REGR: those of plain SQL without noise, and covered by their intervals with it."""

import math
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.core import noise
from sfumato.core.door import draw_groups
from sfumato.core.engine.aggregates import TrueAggregates
from sfumato.core.facts.project import parse_project
from sfumato.sql.asks import ask_plan
from sfumato.sql.finish import finish_query
from sfumato.sql.planner import plan_query
from sfumato.sql.relation import Source
from sfumato.sql.statement import read_statement

MUCH = 10**7
COLUMNS = {"g": {"values": ["a", "b"]}, "x": {"bounds": [0, 100]}, "y": {"bounds": [-10, 60]}}
FUNCTIONS = ("CORR", "COVAR_POP", "COVAR_SAMP", "REGR_SLOPE", "REGR_INTERCEPT", "REGR_R2", "REGR_COUNT")


def make_rows(count=600, more=()):
    random = np.random.default_rng(4)
    x = random.uniform(0, 100, count)
    y = np.clip(5 + 0.4 * x + random.normal(0, 8, count), -10, 60)
    rows = [
        (f"p{place}", "ab"[place % 2], float(one), float(other))
        for place, (one, other) in enumerate(zip(x, y, strict=True))
    ]
    columns = zip(*[*rows, *more], strict=True)
    kinds = (pa.string(), pa.string(), pa.float64(), pa.float64())
    return pa.table(
        [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)], ["p", "g", "x", "y"]
    )


def open_table(folder, rows):
    return sf.open(
        write_project(folder, COLUMNS, rows=rows, unit="p", max_records=1, epsilon=10**9, delta=0.1)
    )


def plain(text, rows):
    with duckdb.connect() as connection:
        connection.register("t", rows)
        return connection.sql(text).fetchall()


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("pair", ["y, x", "x, y", "x, x"])
def test_without_noise_they_are_those_of_plain_sql(tmp_path, name, pair):
    rows = make_rows(more=[("n1", "a", None, 5.0), ("n2", "b", 5.0, None)])
    text = f"g, {name}({pair}) AS value, {name}({pair}) FILTER (WHERE x < 50) AS part FROM t GROUP BY g"
    found = open_table(tmp_path, rows).sql(f"DP-SELECT {MUCH} {text}").table.to_pylist()
    for row, expected in zip(found, plain(f"SELECT {text} ORDER BY g", rows), strict=True):
        for key, truth in zip(("value", "part"), expected[1:], strict=True):
            assert row[key] == pytest.approx(truth, rel=2e-3, abs=2e-3)
            assert row[f"{key}_low"] <= row[key] <= row[f"{key}_high"]


def test_values_that_are_not_numbers_count_for_neither_column(tmp_path):
    more = [("q1", "a", math.nan, 50.0), ("q2", "a", 50.0, math.nan), ("q3", "a", None, None)]
    answers = []
    for place, extra in enumerate(([], more)):
        (tmp_path / str(place)).mkdir()
        curator = open_table(tmp_path / str(place), make_rows(more=extra))
        answers.append(curator.sql(f"DP-SELECT {MUCH} CORR(y, x) AS r, REGR_COUNT(y, x) AS n FROM t").table)
    one, other = (each.to_pylist()[0] for each in answers)
    assert one["n"] == other["n"] == 600
    assert one["r"] == pytest.approx(other["r"], abs=1e-6)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300, -1e300, 1e18])
def test_values_beyond_the_bounds_are_clamped(tmp_path, value):
    answers = []
    ends = (100.0, 60.0) if value > 0 else (0.0, -10.0)
    for place, beyond in enumerate(((value, value), ends)):
        (tmp_path / str(place)).mkdir()
        curator = open_table(tmp_path / str(place), make_rows(more=[("q", "a", *beyond)]))
        answers.append(curator.sql(f"DP-SELECT {MUCH} COVAR_POP(y, x) AS c FROM t").table["c"][0].as_py())
    assert answers[0] == pytest.approx(answers[1], abs=1e-3)


def plan_of(select, *, groups, epsilon, delta="0", neighbours="add-remove"):
    table = {
        "source": "t.parquet",
        "unit": "p",
        "max_records": 3,
        "neighbours": neighbours,
        "columns": {"g": {"range": [1, groups]}, "x": COLUMNS["x"], "y": COLUMNS["y"]},
    }
    document = {"budget": {"epsilon": 1000, "delta": "1e-6"}, "tables": {"t": table}}
    described = parse_project(document, folder=None).tables["t"]
    stored = {"p": "text", "g": "integer", "x": "number", "y": "number"}
    prefix = f"DP-SELECT {epsilon}" + (f" DELTA {delta}" if delta != "0" else "")
    statement = read_statement(f"{prefix} {select} FROM t GROUP BY g")
    catalog = {"t": Source(name="t", stored=stored, table=described)}
    return plan_query(statement, catalog, epsilon=statement.epsilon, selection_delta=Fraction(0))


@pytest.mark.parametrize(("neighbours", "factor"), [("add-remove", 1), ("replace", 2)])
def test_every_measure_has_the_sensitivity_of_its_bounds(neighbours, factor):
    plan = plan_of("CORR(y, x) AS r", groups=2, epsilon="6", neighbours=neighbours)
    found = [(each.measure.statistic, each.costs[0].sensitivity / each.measure.grid) for each in plan.noises]
    most = 3 * factor
    assert found == [
        ("sum", 35 * most),
        ("sum", 50 * most),
        ("sum", most),
        ("present", most),
        ("square", most),
        ("square", most),
    ]


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta"), [("1", "0"), ("10", "0"), ("5", "1e-7")])
@pytest.mark.parametrize("count", [0, 3, 40, 3000, 30_000])
def test_intervals_hold_the_truth(count, epsilon, delta):
    """Of a thousand groups with the same records, 95 % of the intervals hold the truth, but for chance."""
    groups = 1000
    random = np.random.default_rng(count)
    x = random.uniform(20, 90, count)
    y = np.clip(5 + 0.3 * x + random.normal(0, 6, count), -10, 60)
    selected = ", ".join(f"{name}(y, x) AS {name.lower()}" for name in FUNCTIONS)
    plan = plan_of(selected, groups=groups, epsilon=epsilon, delta=delta)
    true_values = []
    for each in plan.noises:
        text, measure = each.measure.describe(), each.measure
        values = x if text.endswith('"t"."x" END) in [0, 100] from 50 by 1/' + str(measure.grid)) else y
        centre, half = float(measure.centre), float(measure.high - measure.low) / 2
        if measure.statistic == "present":
            total = count
        elif "LEAST" in text:
            total = np.rint((x - 50) / 50 * (y - 25) / 35 * measure.grid).sum()
        elif measure.statistic == "square":
            total = np.rint(((values - centre) / half) ** 2 * measure.grid).sum()
        else:
            total = np.rint((values - centre) * measure.grid).sum()
        true_values.append(np.full(groups, int(total), np.int64))
    exact = TrueAggregates(tuple(true_values), None, None)
    table = finish_query(plan, draw_groups(ask_plan(plan), exact, noise))
    covariance = float(np.cov(x, y, bias=True)[0, 1]) if count else 0.0
    truths = {"covar_pop": covariance, "regr_count": count}
    if count > 1:
        slope = covariance / float(np.var(x))
        correlation = covariance / float(np.std(x) * np.std(y))
        truths |= {"covar_samp": covariance * count / (count - 1), "corr": correlation}
        truths |= {"regr_slope": slope, "regr_intercept": float(y.mean() - slope * x.mean())}
        truths |= {"regr_r2": correlation**2}
    for name, truth in truths.items():
        if not count and name == "covar_pop":
            continue
        low, high = (np.asarray(table[name + end]) for end in ("_low", "_high"))
        slack = 1e-2 if count < 30_000 else 1e-5
        misses = int(((low > truth + slack) | (high < truth - slack)).sum())
        assert misses <= 50 + 5 * math.sqrt(1000 * 0.05 * 0.95), (name, misses)
        # Where the noise is small beside the spreads, intervals are no wider than they need be.
        if count == 30_000 and epsilon != "1" and name in ("corr", "regr_slope", "regr_intercept"):
            width = np.asarray(table[f"{name}_high"]) - np.asarray(table[f"{name}_low"])
            error = np.sqrt(((np.asarray(table[name]) - truth) ** 2).mean())
            assert np.median(width) < 2.3 * 2 * error, (name, misses)


@pytest.mark.parametrize(
    ("ratio", "most"),
    [
        ("COUNT(*) FILTER (WHERE x > 6) / COUNT(*)", 1),
        ("ROUND(100.0 * COUNT(*) FILTER (WHERE x > 6) / NULLIF(COUNT(*), 0), 1)", 100),
        ("100 * (SUM(CASE WHEN n = 'a' THEN x ELSE 0 END) / SUM(x))", 100),
        ("SUM(CASE WHEN x > 6 THEN 1 ELSE 0 END) / COUNT(*)", 1),
        ("SUM(x) / COUNT(x)", 90),
    ],
)
def test_a_part_of_a_whole_is_shown_within_it(ratio, most):
    """Where the noise is far larger than the counts."""
    groups = list(range(1, 201))
    rows = pa.table({"p": groups, "g": groups, "x": [7.0] * 200, "n": ["a"] * 200})
    columns = {"g": range(1, 201), "x": (0, 90), "n": ["a", "b"]}
    curator = sf.from_frame(rows, name="t", unit="p", max_records=1, columns=columns, epsilon=9)
    answer = curator.sql(f"DP-SELECT 0.1 g, {ratio} AS v FROM t GROUP BY g").to_pandas()
    shown = answer[["v", "v_low", "v_high"]].fillna(0)
    assert shown.min().min() == 0
    assert shown.max().max() == most
