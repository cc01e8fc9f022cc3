"""Do 95 % intervals hold the truth in 95 % of all answers? For big groups, rare ones and empty ones.

One statement over thousands of groups that all hold the same records gives thousands of independent
answers from one plan. The number of misses has a binomial law, and each limit below is passed by an honest
interval with a probability of 1 - 1e-6. There are hundreds of limits, so the noise is seeded.
"""

import math
import statistics
import warnings
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core import noise
from sfumato.core.algebra.measures import CELLS
from sfumato.core.door import draw_groups
from sfumato.core.engine.aggregates import TrueAggregates
from sfumato.core.facts.project import parse_project
from sfumato.sql.asks import ask_plan
from sfumato.sql.finish import finish_query
from sfumato.sql.planner import prepare_query
from sfumato.sql.relation import Source
from sfumato.sql.statement import read_statement

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

FALSE_ALARM = 1e-6
LOW, HIGH = 0.0, 80.0
RECORDS = {
    "empty": [],
    "one": [71.0],
    "two": [3.0, 8.0],
    "three": [10.0, 11.0, 79.0],
    "thirty": [float(7 * i % 80) for i in range(30)],
    "big": [5 + index / 30 for index in range(2100)],
    "big, at one end": [79.5] * 1500 + [70.25] * 500,
}


def draw_answers(select, values, *, groups, epsilon="1", delta="0", records=3, chosen=None):
    """The answer of `select` for `groups` groups that hold the same `values`, with fresh noise in each.

    `chosen` are the bounds of x if they were chosen privately.
    """
    document = {
        "budget": {"epsilon": 100, "delta": "1e-6"},
        "tables": {
            "t": {
                "source": "t.parquet",
                "unit": "p",
                "max_records": records,
                "columns": {
                    "g": {"range": [1, groups]},
                    "x": {"bounds": [int(LOW), int(HIGH)]},
                },
            }
        },
    }
    table = parse_project(document, folder=None).tables["t"]
    catalog = {"t": Source(name="t", stored={"p": "text", "g": "integer", "x": "number"}, table=table)}
    prefix = f"DP-SELECT {epsilon}" + (f" DELTA {delta}" if delta != "0" else "")
    statement = read_statement(f"{prefix} {select} FROM t GROUP BY g")
    bounds = None if chosen is None else {'"t"."x"': tuple(map(Fraction, chosen))}
    plan = prepare_query(statement, catalog, selection_delta=Fraction(0), chosen=bounds)(statement.epsilon)
    assert plan.groups == groups
    true_values = tuple(_aggregate(each.measure, values, groups) for each in plan.noises)
    return finish_query(plan, draw_groups(ask_plan(plan), TrueAggregates(true_values, None, None), noise))


def _aggregate(measure, values, groups):
    """What the engine would count for `measure`, the same for every group."""
    centre, half = float(measure.centre), float(measure.high - measure.low) / 2
    if measure.statistic == "quantile":
        cells = np.floor((np.array(values) - LOW) * measure.steps / (HIGH - LOW)).astype(int)
        return np.tile(np.bincount(cells, minlength=measure.steps + 1), (groups, 1))
    each = {
        "records": lambda value: 1,
        "present": lambda value: 1,
        "sum": lambda value: round((value - centre) * measure.grid),
        "square": lambda value: round(((value - centre) / half) ** 2 * measure.grid),
    }[measure.statistic]
    return np.full(groups, sum(each(value) for value in values), np.int64)


def count_misses(table, name, truth, *, slack=1e-3):
    """How many intervals of column `name` miss `truth`; `slack` allows for the grid of sums."""
    value, low, high = (np.asarray(table[name + end]) for end in ("", "_low", "_high"))
    assert np.isfinite(value).all()
    assert (low <= value).all()
    assert (value <= high).all()
    return int(((low > truth + slack) | (high < truth - slack)).sum())


def binomial_limits(trials, chance=0.05):
    """Numbers of misses that are exceeded, and fallen short of, with a probability of FALSE_ALARM."""
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(chance)
        + (trials - k) * math.log1p(-chance)
        for k in range(trials + 1)
    ]
    total, fewest, most = 0.0, 0, trials
    for k, log in enumerate(logs):
        total += math.exp(log)
        if total < FALSE_ALARM:
            fewest = k + 1
        if total > 1 - FALSE_ALARM:
            most = k
            break
    return fewest, most


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("delta", ["0", "1e-7"])
def test_counts_and_sums_have_tight_intervals(name, delta):
    values, trials = RECORDS[name], 6000
    table = draw_answers("COUNT(*) AS n, SUM(x) AS s", values, groups=trials, epsilon="0.5", delta=delta)
    _, most = binomial_limits(trials)
    for column, truth in (("n", len(values)), ("s", sum(values))):
        misses = count_misses(table, column, truth)
        assert 0.03 * trials <= misses <= most, (column, misses)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("delta", ["0", "1e-7"])
def test_sums_and_averages_between_chosen_bounds_are_covered(name, delta):
    values, trials = RECORDS[name], 3000
    select = "SUM(x BOUNDED PRIVATELY) AS s, AVG(x BOUNDED PRIVATELY) AS a"
    table = draw_answers(select, values, groups=trials, epsilon="2", delta=delta, chosen=(0, 96))
    _, most = binomial_limits(trials)
    misses = count_misses(table, "s", sum(values))
    assert 0.03 * trials <= misses <= most
    if values:
        assert count_misses(table, "a", statistics.fmean(values)) <= most


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(("epsilon", "delta"), [("1", "0"), ("10", "0"), ("2", "1e-7")])
def test_averages_are_covered(name, epsilon, delta):
    values, trials = RECORDS[name], 3000
    table = draw_answers("AVG(x) AS a", values, groups=trials, epsilon=epsilon, delta=delta)
    assert (np.asarray(table["a_low"]) >= LOW).all()
    assert (np.asarray(table["a_high"]) <= HIGH).all()
    if values:
        assert count_misses(table, "a", statistics.fmean(values)) <= binomial_limits(trials)[1]


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize(("epsilon", "delta"), [("1", "0"), ("10", "0"), ("2", "1e-7")])
def test_spreads_are_covered(name, epsilon, delta):
    values, trials = RECORDS[name], 3000
    select = "STDDEV(x) AS sample, STDDEV_POP(x) AS population, VAR_POP(x) AS variance"
    table = draw_answers(select, values, groups=trials, epsilon=epsilon, delta=delta)
    truths = {}
    if values:
        truths["population"] = statistics.pstdev(values)
        truths["variance"] = statistics.pvariance(values)
    if len(values) > 1:
        truths["sample"] = statistics.stdev(values)
    # Squares are rounded to 2^-16 of half the range, squared: nothing for a variance, more for a root near 0.
    for column, truth in truths.items():
        assert count_misses(table, column, truth, slack=0.2) <= binomial_limits(trials)[1], column


@pytest.mark.parametrize(("epsilon", "delta"), [("0.5", "0"), ("6", "0"), ("2", "1e-7")])
def test_spreads_of_big_groups_are_not_too_wide(epsilon, delta):
    values, trials = RECORDS["big"], 6000
    select = "VAR_POP(x) AS population, VARIANCE(x) AS sample"
    table = draw_answers(select, values, groups=trials, epsilon=epsilon, delta=delta, records=1)
    _, most = binomial_limits(trials)
    fewest, _ = binomial_limits(trials, 0.035)
    for column, truth in (
        ("population", statistics.pvariance(values)),
        ("sample", statistics.variance(values)),
    ):
        assert fewest <= count_misses(table, column, truth, slack=0.02) <= most, column


def test_intervals_warn_of_nothing_where_one_noise_is_nothing_beside_the_other():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw_answers("AVG(x) AS a, STDDEV(x) AS s", [0.0, 80.0], groups=200, epsilon="1000")
        draw_answers("AVG(x) AS a, STDDEV(x) AS s", [0.0, 40.0], groups=200, epsilon="0.001")


@pytest.mark.parametrize("name", RECORDS)
def test_arithmetic_over_aggregates_is_covered(name):
    values, trials = RECORDS[name], 3000
    select = "SUM(x) / 2 - COUNT(*) * 10 AS mixed, COUNT(*) * COUNT(*) AS square, ABS(SUM(x) - 90) AS apart"
    table = draw_answers(select, values, groups=trials)
    truths = {
        "mixed": sum(values) / 2 - len(values) * 10,
        "square": len(values) ** 2,
        "apart": abs(sum(values) - 90),
    }
    for column, truth in truths.items():
        assert count_misses(table, column, truth) <= binomial_limits(trials)[1], column


@pytest.mark.parametrize("name", ["one", "three", "thirty", "big"])
def test_ratios_are_covered_where_the_divisor_is_unsure_too(name):
    values, trials = RECORDS[name], 3000
    table = draw_answers("SUM(x) / COUNT(*) AS r", values, groups=trials, epsilon="2")
    low, high = np.asarray(table["r_low"]), np.asarray(table["r_high"])
    truth = statistics.fmean(values)
    assert ((low > truth + 1e-3) | (high < truth - 1e-3)).sum() <= binomial_limits(trials)[1]


def quantile_misses(select, values, *, trials=600, epsilon="1"):
    """How many intervals hold no quantile: between the two records in the middle every value is a median."""
    first, last = {
        "MEDIAN(x)": (statistics.median_low(values), statistics.median_high(values)),
        "MIN(x)": (min(values), min(values)),
        "MAX(x)": (max(values), max(values)),
    }[select]
    table = draw_answers(f"{select} AS q", values, groups=trials, epsilon=epsilon)
    low, high = np.asarray(table["q_low"]), np.asarray(table["q_high"])
    assert (low >= LOW).all()
    assert (high <= HIGH).all()
    return int(((low > last) | (high < first)).sum())


@pytest.mark.parametrize("epsilon", ["0.5", "1", "20"])
def test_medians_of_big_groups_are_covered(epsilon):
    assert quantile_misses("MEDIAN(x)", RECORDS["big"], epsilon=epsilon) <= binomial_limits(600)[1]


@pytest.mark.parametrize("select", ["MIN(x)", "MAX(x)"])
@pytest.mark.parametrize("epsilon", ["0.5", "1"])
def test_extremes_of_big_groups_are_covered(select, epsilon):
    assert quantile_misses(select, RECORDS["big"], epsilon=epsilon) <= binomial_limits(600)[1]


@pytest.mark.parametrize("select", ["MEDIAN(x)", "MIN(x)", "MAX(x)"])
def test_quantiles_are_covered_where_many_records_share_a_value(select):
    assert quantile_misses(select, RECORDS["big, at one end"]) <= binomial_limits(600)[1]


@pytest.mark.parametrize("name", ["one", "two", "three", "thirty"])
def test_medians_of_rare_groups_are_covered(name):
    assert quantile_misses("MEDIAN(x)", RECORDS[name]) <= binomial_limits(600)[1]


@pytest.mark.parametrize("epsilon", ["1", "6"])
def test_medians_beside_a_gap_are_covered_and_others_not_too_wide(epsilon):
    values = [9 + index / 2000 for index in range(1060)] + [75 + index / 2000 for index in range(940)]
    assert quantile_misses("MEDIAN(x)", values, epsilon=epsilon) <= binomial_limits(600)[1]
    table = draw_answers("MEDIAN(x) AS q", np.arange(5, 75, 1 / 900), groups=60, epsilon=epsilon)
    value, low, high = (np.asarray(table[f"q{end}"]) for end in ("", "_low", "_high"))
    assert 1.5 <= np.median(high - low) / 2 / np.sqrt(np.mean((value - 40) ** 2)) <= 4


@pytest.mark.parametrize(("select", "value"), [("MIN(x)", 79.99), ("MAX(x)", 0.01)])
@pytest.mark.parametrize("epsilon", ["0.1", "5.3"])
def test_extremes_at_the_far_bound_are_covered_and_not_too_wide(select, value, epsilon):
    # As many records as the choice aims inside: one more, or one less, would tell the extreme from others.
    trials, aimed = 3000, math.ceil(math.log(1027 * 20 / 3) * 6 / float(epsilon))
    misses = quantile_misses(select, [value] * aimed, trials=trials, epsilon=epsilon)
    assert binomial_limits(trials, 0.04)[0] <= misses <= binomial_limits(trials)[1]


@pytest.mark.parametrize("epsilon", ["0.1", "1", "6"])
@pytest.mark.parametrize("records", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("select", ["MEDIAN(x)", "MIN(x)"])
def test_quantiles_of_skewed_groups_are_covered(select, records, epsilon):
    values = [2 + 70 * (index / records) ** 3 for index in range(records)]
    assert quantile_misses(select, values, trials=1500, epsilon=epsilon) <= binomial_limits(1500)[1]


def test_the_difference_of_two_quantiles_is_covered():
    values, trials = [9 + index / 30 for index in range(2001)], 1500
    table = draw_answers("MAX(x) - MEDIAN(x) AS q", values, groups=trials, epsilon="1", records=1)
    assert count_misses(table, "q", 1000 / 30, slack=HIGH / CELLS) <= binomial_limits(trials)[1]


def test_a_too_narrow_interval_is_noticed():
    trials = 6000
    table = draw_answers("COUNT(*) AS n", RECORDS["thirty"], groups=trials, epsilon="0.5")
    centre, high = np.asarray(table["n"]), np.asarray(table["n_high"])
    width = (high - centre) * 0.8
    misses = int((np.abs(centre - len(RECORDS["thirty"])) > width).sum())
    assert misses > binomial_limits(trials)[1]
