"""Tries to break the sensitivities of DP-SELECT: adversarial individuals, with the noise off.

Every vector that is about to be noised is recorded for neighbouring tables, together with the plan. The
tables must ask for the same noise, on vectors that differ by no more than the costs declare. Negative
controls show that the audit would notice rows that are not bounded, groups that are not bounded, and
values that are not clamped.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
import sfumato.core.noise
from helpers.drawn import change_draws
from sfumato.accounting import Allowance
from sfumato.core import door
from sfumato.core.algebra import asks as core_asks
from sfumato.core.engine import aggregates as execute
from sfumato.core.errors import ChargeKept
from sfumato.curator import statements
from sfumato.sql import asks

MAX_RECORDS = 4
PROJECT = """
[budget]
epsilon = 1000000
delta = 1e-5
[tables.t]
source = "t.parquet"
{unit}
neighbours = "{neighbours}"
[tables.t.columns.d]
values = ["x", "y", "z"]
[tables.t.columns.c]
bounds = [-10, 50]
[tables.t.columns.i]
bounds = {bounds}
{chain}
[tables.fan]
public = true
source = "fan.csv"
"""
# The texts in o are keys that several people share, and that many lines refer to.
CHAIN = """
[tables.lines]
source = "lines.parquet"
references = {o = "t.o"}
max_records = 6
[tables.lines.columns.e]
values = ["x", "y"]
[tables.lines.columns.w]
bounds = [-1, 9]
[tables.marks]
source = "marks.parquet"
references = {line = "lines.no"}
max_records = 9
max_groups = 2
[tables.marks.columns.h]
range = [0, 4]
"""
CROWD = [(f"crowd{n}", float(n % 50), n % 5 - 2, "xyz"[n % 3], f"open{n % 3}") for n in range(30)]

# What one individual brings (c, i, d, o): added to the crowd, taken from it, or exchanged for another.
INDIVIDUALS = {
    "one record": [(1.0, 1, "x", "open0")],
    "full, in one group": [(50.0, 2, "x", "open0")] * MAX_RECORDS,
    "over the cap, in one group": [(50.0, -2, "y", "open1")] * 50,
    "over the cap, over groups": [(float(n), n % 3, "xyz"[n % 3], f"open{n}") for n in range(50)],
    "within the cap, over groups": [(float(n), n, "xyz"[n], f"open{n}") for n in range(3)],
    "over the cap, clamped below": [(-1e9, -(10**9), "x", "open2")] * 50,
    "over the cap, clamped above": [(1e308, 10**9, "z", "open2")] * 50,
    "not a number": [
        (math.nan, 1, "x", "n"),
        (math.inf, 1, "y", "n"),
        (-math.inf, 1, "z", "n"),
        (2.5, 1, "x", ""),
    ],
    "missing": [(None, None, None, None), (None, 1, "x", None), (1.0, None, None, "open0")],
    "never seen": [(3.0, 5, "zebra", "zebra"), (3.0, 5, "", ""), (4.0, 5, "x", "o" * 100_000)],
    "at the ends": [
        (-10.0, -2, "x", "a"),
        (50.0, 2, "x", "b"),
        (50.0000001, 2, "y", "c"),
        (-0.0, 0, "z", "d"),
    ],
    "many values": [(n / 7, n, "x", f"value{n}") for n in range(40)],
}
NUMBERS = "COUNT(*), COUNT(c), COUNT(o), SUM(c), SUM(i), AVG(c), VARIANCE(c), STDDEV_POP(i)"
PEOPLE = "COUNT(DISTINCT p), COUNT(DISTINCT o), COUNT(*) FILTER (WHERE c > 0), COUNT_IF(i = 1)"
RANKS = "MEDIAN(c), MIN(c), MAX(i), QUANTILE_CONT(c, 0.9)"
ALL = f"{NUMBERS}, {PEOPLE}, {RANKS}"
STEPS = "FLOOR(GREATEST(LEAST(c, 50), 0))"
LIMITED = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 8, max_groups = 2, delta = {delta})"
INNER = """COUNT(*) AS n, COUNT(c) AS held, COUNT(DISTINCT o) AS k, SUM(c) AS total, SUM(i) AS whole,
    AVG(c) AS mean, MIN(c) AS least, MAX(i) AS most, FIRST(d ORDER BY c, o) AS first, ARG_MAX(o, i) AS o,
    BOOL_OR(c > 1) AS large, SUM(c) FILTER (WHERE i > 0) AS part"""
PER_PERSON = f"(SELECT p, {INNER} FROM t WHERE i // 1 IS NULL OR c / 2 < 1e308 GROUP BY p) AS q"
PER_KEY = f"(SELECT p, d, {INNER} FROM t GROUP BY p, d HAVING COUNT(*) <> 3) AS q"
ROW = (
    "COUNT(*), COUNT(DISTINCT p), COUNT(total), SUM(n), AVG(n), SUM(k), SUM(total), AVG(mean), SUM(least), "
    "MEDIAN(least), MAX(total), SUM(whole), SUM(part), COUNT(DISTINCT first), COUNT_IF(large), VARIANCE(most)"
)
CHOICES = ("exponential", "permute-and-flip")
STATEMENTS = {
    "no group": f"DP-SELECT 8 {ALL} FROM t",
    "only counts": "DP-SELECT 8 COUNT(*), COUNT(DISTINCT p) FROM t WHERE c > 1 OR i > 0",
    "Gaussian": f"DP-SELECT 8 DELTA 1e-7 {NUMBERS}, {PEOPLE} FROM t",
    "public groups": f"DP-SELECT 8 d, {ALL} FROM t GROUP BY d",
    "public groups, tallied": "DP-SELECT 8 d, COUNT(*), MEDIAN(c) FROM t GROUP BY d",
    "public groups, Gaussian": f"DP-SELECT 8 DELTA 1e-7 d, {NUMBERS}, {PEOPLE} FROM t GROUP BY d",
    "boolean groups": f"DP-SELECT 8 c > 1 AS big, {ALL} FROM t GROUP BY big",
    "CASE groups": f"DP-SELECT 8 CASE WHEN c > 9 THEN 'a' WHEN i > 0 THEN 'b' END AS k, {ALL} "
    "FROM t GROUP BY k",
    "open groups": f"DP-SELECT 8 DELTA 1e-7 o, {NUMBERS}, {PEOPLE} FROM t GROUP BY o",
    "open and public groups": f"DP-SELECT 8 DELTA 1e-7 o, d, {NUMBERS} FROM t GROUP BY o, d",
    "few groups": f"{LIMITED.format(delta=0)} d, {ALL} FROM t GROUP BY d",
    "few open groups": f"{LIMITED.format(delta='1e-7')} o, {NUMBERS}, {PEOPLE} FROM t GROUP BY o",
    "rows multiplied": "DP-SELECT 8 fan.side, COUNT(*), SUM(t.c), COUNT(DISTINCT t.p), MEDIAN(t.c) "
    "FROM t JOIN fan ON t.d = fan.d GROUP BY fan.side",
    "rows multiplied, kept": "DP-SELECT 8 COUNT(*), COUNT(fan.side), AVG(t.c) "
    "FROM t LEFT JOIN fan ON t.d = fan.d",
    "joined with itself": "DP-SELECT 8 COUNT(*), SUM(a.c + b.c) FROM t a JOIN t b ON a.p = b.p",
    "computed inside": "WITH s AS (SELECT c * i AS ci, c / 0 AS broken, d FROM t WHERE c // i >= 0) "
    "DP-SELECT 8 d, SUM(ci), AVG(ci), COUNT(broken) FROM s GROUP BY d",
    "synthetic rows": "DP-SELECT 8 d, c FROM t",
    "a row per individual": f"DP-SELECT 8 {ROW} FROM {PER_PERSON}",
    "a row per individual, Gaussian": "DP-SELECT 8 DELTA 1e-7 COUNT(*), SUM(n), SUM(total), "
    f"COUNT(DISTINCT k) FROM {PER_PERSON}",
    "a row per individual, by its results": "DP-SELECT 8 n, whole, COUNT(*), SUM(total) "
    f"FROM {PER_PERSON} GROUP BY n, whole",
    "a row per individual, by its label": "DP-SELECT 8 first, COUNT(*), AVG(mean), MEDIAN(n) "
    f"FROM {PER_PERSON} GROUP BY first",
    "a row per individual, open": f"DP-SELECT 8 DELTA 1e-7 o, COUNT(*), SUM(n) FROM {PER_PERSON} GROUP BY o",
    "a row per individual and key": f"DP-SELECT 8 d, {ROW} FROM {PER_KEY} GROUP BY d",
    "a row per individual and open key": "DP-SELECT 8 DELTA 1e-7 o, COUNT(*), SUM(n) "
    "FROM (SELECT p, o, COUNT(*) AS n FROM t GROUP BY p, o) AS q GROUP BY o",
    "few groups of inner rows": f"{LIMITED.format(delta=0)} d, COUNT(*), SUM(total), MEDIAN(n) "
    f"FROM {PER_KEY} GROUP BY d",
    "inner rows of inner rows": "DP-SELECT 8 k, COUNT(*), SUM(w) FROM (SELECT p, COUNT(*) AS k, "
    f"SUM(n) AS w FROM {PER_KEY} GROUP BY p HAVING MAX(n) > 0) AS r GROUP BY k",
    "inner rows, multiplied": "DP-SELECT 8 fan.side, COUNT(*), SUM(q.n), COUNT(DISTINCT q.p) "
    "FROM (SELECT p, FIRST(d ORDER BY c) AS f, COUNT(*) AS n FROM t GROUP BY p) AS q "
    "JOIN fan ON q.f = fan.d GROUP BY fan.side",
    "inner rows of what was multiplied": "DP-SELECT 8 SUM(n), AVG(total), COUNT(*) FROM (SELECT p, "
    "COUNT(*) AS n, SUM(t.c) AS total FROM t JOIN fan ON t.d = fan.d GROUP BY p) AS q",
    "records with inner rows": "DP-SELECT 8 d, COUNT(*), SUM(c), AVG(q.n) FROM t "
    "JOIN (SELECT p, COUNT(*) AS n FROM t GROUP BY p) AS q ON t.p = q.p GROUP BY d",
    "of those who are elsewhere": "DP-SELECT 8 d, COUNT(*), SUM(c), COUNT(DISTINCT p), MEDIAN(c) FROM t "
    "WHERE p IN (SELECT p FROM t WHERE i > 0) AND c // 1 > -9 GROUP BY d",
    "of those who are nowhere else": "DP-SELECT 8 COUNT(*), AVG(c) FROM t AS a WHERE c > 0 OR NOT EXISTS "
    "(SELECT 1 FROM t AS b WHERE b.p = a.p AND b.i > 0)",
    "in a public list": "DP-SELECT 8 d, COUNT(*), SUM(c) FROM t WHERE d IN (SELECT d FROM fan WHERE n > 3) "
    "OR d NOT IN (SELECT d FROM fan) GROUP BY d",
    "one after the other": "DP-SELECT 8 d, COUNT(*), SUM(c), COUNT(DISTINCT p), MEDIAN(c) "
    "FROM (SELECT p, d, c FROM t WHERE i > 0 UNION ALL SELECT p, d, i FROM t) AS u GROUP BY d",
    "individuals of several tables": "DP-SELECT 8 n, COUNT(*), SUM(s) FROM (SELECT p, COUNT(*) AS n, "
    "SUM(v) AS s FROM (SELECT p, c AS v FROM t UNION ALL SELECT p, w FROM lines) AS u GROUP BY p) AS q "
    "GROUP BY n",
    "along a reference": "DP-SELECT 8 e, COUNT(*), SUM(w), COUNT(DISTINCT p), MEDIAN(w) FROM lines "
    "GROUP BY e",
    "along a reference, counted": "DP-SELECT 8 COUNT(*), COUNT(DISTINCT p) FROM lines WHERE w > 0",
    "along two references": "DP-SELECT 8 h, COUNT(*), COUNT(DISTINCT p), SUM(h) FROM marks GROUP BY h",
    "joined along references": "DP-SELECT 8 t.d, COUNT(*), SUM(w), COUNT(DISTINCT t.p) FROM t "
    "JOIN lines ON lines.o = t.o JOIN marks ON marks.line = lines.no GROUP BY t.d",
    "inner rows along a reference": "DP-SELECT 8 n, COUNT(*), SUM(s), AVG(least) FROM (SELECT p, "
    "COUNT(*) AS n, SUM(w) AS s, MIN(w) AS least FROM lines GROUP BY p HAVING MAX(w) > 0) AS q GROUP BY n",
    "rows that differ": "DP-SELECT 8 d, COUNT(*) FROM (SELECT DISTINCT p, d, i FROM t WHERE c > -3) AS q "
    "GROUP BY d",
    "private bounds": "DP-SELECT 8 d, SUM(c BOUNDED PRIVATELY), AVG(c BOUNDED PRIVATELY), "
    "STDDEV(i BOUNDED PRIVATELY), MEDIAN(c BOUNDED PRIVATELY), MAX(i BOUNDED PRIVATELY) FROM t GROUP BY d",
    "private bounds, Gaussian": "DP-SELECT 8 DELTA 1e-7 SUM(c BOUNDED PRIVATELY), "
    "CORR(c BOUNDED PRIVATELY, i BOUNDED PRIVATELY) FROM t",
    "added up": f"DP-SELECT 8 d, c > 1 AS big, {NUMBERS} FROM t GROUP BY ROLLUP(d, big)",
    "several levels": f"DP-SELECT 8 {STEPS} AS m, d, {NUMBERS} FROM t GROUP BY CUBE(m, d)",
    "several levels, Gaussian": f"DP-SELECT 8 DELTA 1e-7 {STEPS} AS m, d, {NUMBERS} FROM t "
    "GROUP BY ROLLUP(d, m)",
    "several levels, few groups": f"{LIMITED.format(delta=0)} d, c > 1 AS big, COUNT(*) FROM t "
    "GROUP BY GROUPING SETS ((d), (big), ())",
    "all quantiles": "DP-SELECT 8 d, APPROX_QUANTILES(c, 4), COUNT(*) FROM t GROUP BY d",
    "all quantiles, private bounds": "DP-SELECT 8 APPROX_QUANTILES(c BOUNDED PRIVATELY, 2) FROM t",
    "labels": "DP-SELECT 8 d, MODE(o IN ('open1', 'x')), TOP(d, 2) AS best, COUNT(*) FROM t GROUP BY d",
    "labels, alone": "DP-SELECT 8 MODE(d) FILTER (WHERE i > 0), TOP(d, 3) AS best FROM t WHERE c > -3",
    "labels, few groups": f"{LIMITED.format(delta=0)} c > 1 AS big, MODE(d) FROM t GROUP BY big",
    "labels, multiplied": "DP-SELECT 8 MODE(fan.side) FROM t JOIN fan ON t.d = fan.d",
    "bins": "DP-SELECT 8 d, HISTOGRAM(c, 7) FROM t GROUP BY d",
    "buckets": "DP-SELECT 8 WIDTH_BUCKET(c, 0, 9, 3) AS b, COUNT(*), AVG(i) FROM t GROUP BY b",
    "private bounds, open groups": "DP-SELECT 8 DELTA 1e-7 o, AVG(c BOUNDED PRIVATELY) FROM t GROUP BY o",
}


class Bench:
    """Answers statements about tables of choice, with recording stand-ins for the noise."""

    def __init__(
        self,
        folder,
        monkeypatch,
        *,
        neighbours="add-remove",
        rows=False,
        bounds="[-2, 2]",
        records=MAX_RECORDS,
    ):
        self.folder, self.monkeypatch, self.plans = folder, monkeypatch, {}
        unit = 'unit = "row"' if rows else f'unit = "p"\nmax_records = {records}'
        chain = "" if rows else CHAIN
        text = PROJECT.format(unit=unit, neighbours=neighbours, bounds=bounds, chain=chain)
        self.write_lines()
        (folder / "sfumato.toml").write_text(text)
        fan = "".join(f"{d},{side},{n}\n" for n in range(9) for d, side in (("x", "north"), ("y", "south")))
        (folder / "fan.csv").write_text(f"d,side,n\nx,centre,0\n{fan}")

    def write_lines(self):
        """Lines that refer to what anybody may hold, and to nothing; marks that refer to lines."""
        held = [
            *(f"open{n}" for n in range(12)),
            *(f"value{n}" for n in range(9)),
            "a",
            "zebra",
            "n",
            "",
            None,
        ]
        rows = [(key, n) for key in held for n in range(4)]
        lines = {
            "no": [n // 2 for n in range(len(rows))],  # two lines have one number
            "o": [key for key, _ in rows],
            "w": [[-5.0, 9.5, math.nan, 3.25][n] for _, n in rows],
            "e": [["x", "y", "never", None][n] for _, n in rows],
        }
        pq.write_table(pa.table(lines), self.folder / "lines.parquet")
        marks = {"line": [n % 70 for n in range(200)], "h": [n % 6 for n in range(200)]}
        pq.write_table(pa.table(marks), self.folder / "marks.parquet")

    def write(self, records):
        kinds = {"p": pa.string(), "c": pa.float64(), "i": pa.int64(), "d": pa.string(), "o": pa.string()}
        columns = {
            name: pa.array([record[index] for record in records], kind)
            for index, (name, kind) in enumerate(kinds.items())
        }
        pq.write_table(pa.table(columns), self.folder / "t.parquet")

    def plan(self, statement):
        """The plans behind `statement`, as the curator makes them; they rest on public facts."""
        if statement not in self.plans:
            self.write(CROWD)
            plans = []

            def keep(plan, true_aggregates, *source):
                plans.append(plan)
                return original(plan, true_aggregates, *source)

            with self.monkeypatch.context() as patch:
                original = change_draws(patch, keep)
                sf.open(self.folder / "sfumato.toml").sql(statement)
            self.plans[statement] = plans
        return self.plans[statement]

    def record(self, records, statement):
        """The exact aggregates of every plan, and the requests for noise on them."""
        plans = self.plan(statement)
        self.write(records)
        curator = sf.open(self.folder / "sfumato.toml")
        tables = {**curator.project.tables, **curator.project.public}
        requests = []

        def add_noise(values, *, kind, scale):
            requests.append((kind, scale, values.copy()))
            return values

        def choose(kind):
            def draw(scores, *, rate):
                requests.append((kind, rate, scores.copy()))
                # Later choices depend on earlier answers, so the answers are the same for all tables.
                return (np.arange(len(scores)) * 389 + len(requests) * 97) % scores.shape[1]

            return draw

        answered = []
        with self.monkeypatch.context() as patch:
            patch.setattr("sfumato.core.noise.add_noise", add_noise)
            patch.setattr("sfumato.core.noise.exponential_choice", choose("exponential"))
            patch.setattr("sfumato.core.noise.permute_and_flip", choose("permute-and-flip"))
            for plan in plans:
                true_aggregates = curator._engine.aggregate(plan.query, tables, progress=lambda _: None)
                door.draw_groups(asks.ask_plan(plan), true_aggregates, sfumato.core.noise)
                answered.append((plan, true_aggregates))
        return answered, requests


def find_violation(one, two):
    """What is wrong between the records of two neighbouring tables, or None."""
    if [each[:2] for each in one[1]] != [each[:2] for each in two[1]]:
        return "neighbours ask for different noise"
    if fault := _find_other_noise(one[1], [cost for plan, _ in one[0] for cost in plan.costs]):
        return fault
    if any(plan.selection is not None for plan, _ in one[0]):
        # What was measured before, without groups, is a plan of its own, and looked at as one.
        pairs = list(zip(one[0], two[0], strict=True))
        found = [_open_violation(p, first, second) for (p, first), (_, second) in pairs if p.selection]
        before = [cost for plan, _ in one[0] if plan.selection is None for cost in plan.costs]
        first, second = (each[1][: len(before)] for each in (one, two))
        return next((each for each in found if each), None) or _find_distance(first, second, before)
    return _find_distance(one[1], two[1], [cost for plan, _ in one[0] for cost in plan.costs])


def _find_distance(one, two, costs):
    """Whether requests for noise, one for each of `costs`, draw another law, or on vectors too far apart."""
    if fault := _find_other_noise(one, costs):
        return fault
    for (kind, scale, a), (_, _, b), cost in zip(one, two, costs, strict=True):
        if a.shape != b.shape:
            return "neighbours ask for different numbers of draws"
        difference = np.abs((a - b).astype(float))
        if kind in CHOICES:
            # The logarithm of a likelihood ratio ranges from the least move of a score to the largest; what
            # nobody holds does not move, so the range holds 0.
            moves = (a - b).astype(float)
            spent = float(scale) * (np.maximum(moves.max(axis=1), 0) - np.minimum(moves.min(axis=1), 0)).sum()
            if spent > float(cost.scale) * (1 + 1e-12):
                return f"scores move by epsilon {spent}, above the declared {cost.scale}"
        elif _distance(difference, cost) > float(cost.sensitivity):
            return f"{cost.norm} distance {_distance(difference, cost)} above the declared {cost.sensitivity}"
    return None


def _find_other_noise(requests, costs):
    """Whether what is drawn is another law than that of its cost, or drawn another number of times."""
    if len(requests) != len(costs):
        return f"{len(requests)} draws of noise, and {len(costs)} costs"
    for (kind, scale, _), cost in zip(requests, costs, strict=True):
        stated = "laplace" if cost.kind == "selection" else cost.kind
        if kind != stated or (kind not in CHOICES and scale != cost.scale):
            return f"noise of kind {kind} and scale {scale}, declared {stated} and {cost.scale}"
    return None


def _distance(difference, cost):
    return difference.sum() if cost.norm == "L1" else math.sqrt((difference**2).sum())


def _open_violation(plan, first, second):
    """Groups that one table lacks hold one individual; shared ones are as near as declared."""
    people = [
        dict(zip(each.true_keys, each.true_individuals.tolist(), strict=True)) for each in (first, second)
    ]
    lone, shared = set(people[0]) ^ set(people[1]), sorted(set(people[0]) & set(people[1]))
    if any(people[0].get(key, 0) + people[1].get(key, 0) != 1 for key in lone):
        return "a group that one table lacks holds several individuals"
    moved = len(lone) + sum(abs(people[0][key] - people[1][key]) for key in shared)
    if moved > plan.selection.cost.sensitivity:
        return f"selection: {moved} groups above the declared {plan.selection.cost.sensitivity}"
    for noise, a, b in zip(plan.noises, first.true_values, second.true_values, strict=True):
        tables = [dict(zip(each.true_keys, v, strict=True)) for each, v in ((first, a), (second, b))]
        difference = np.array([float(tables[0][key]) - float(tables[1][key]) for key in shared])
        cost = noise.costs[0]
        if _distance(np.abs(difference), cost) > float(cost.sensitivity):
            return f"{noise.measure.describe()}: above the declared {cost.sensitivity}"
    return None


def person(name, who="somebody"):
    return [(who, *record) for record in INDIVIDUALS[name]]


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_individual_moves_an_aggregate_beyond_its_sensitivity(tmp_path, monkeypatch, name):
    bench = Bench(tmp_path, monkeypatch)
    statement = STATEMENTS[name]
    without = bench.record(CROWD, statement)
    for individual in INDIVIDUALS:
        moved = bench.record(CROWD[:7] + person(individual) + CROWD[7:], statement)
        assert find_violation(moved, without) is None, individual
    nobody = bench.record([], statement)
    for individual in ("over the cap, over groups", "over the cap, clamped above", "not a number"):
        assert find_violation(bench.record(person(individual), statement), nobody) is None, individual


@pytest.mark.parametrize(
    "name",
    [
        *("no group", "public groups", "public groups, Gaussian", "few groups", "open groups"),
        *("a row per individual, Gaussian", "inner rows, multiplied", "inner rows of inner rows"),
        # Their many measures are those of the groups above, of inner rows as in the line above.
        *(
            pytest.param(f"a row per individual{each}", marks=pytest.mark.slow)
            for each in ("", ", by its results", " and key")
        ),
        *("of those who are elsewhere", "one after the other", "along a reference", "along two references"),
        *("joined along references", "individuals of several tables"),
        *("private bounds", "several levels", "several levels, Gaussian", "all quantiles"),
        *("labels", "labels, alone"),
    ],
)
def test_exchanging_an_individual_stays_within_the_replace_bound(tmp_path, monkeypatch, name):
    bench = Bench(tmp_path, monkeypatch, neighbours="replace")
    records = [bench.record(CROWD + person(each), STATEMENTS[name]) for each in INDIVIDUALS]
    for index, one in enumerate(records):
        for other in records[index + 1 :]:
            assert find_violation(one, other) is None


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_a_row_that_a_join_multiplies_counts_once(tmp_path, monkeypatch, neighbours):
    bench = Bench(tmp_path, monkeypatch, rows=True, neighbours=neighbours)
    statement = (
        "DP-SELECT 8 fan.side, COUNT(*), SUM(t.c), COUNT(DISTINCT fan.n), MEDIAN(t.c) "
        "FROM t JOIN fan ON t.d = fan.d GROUP BY fan.side"
    )
    crowd = CROWD + CROWD
    with_row = bench.record([*crowd, ("", 1e9, 1, "x", "")], statement)
    others = [*crowd, ("", -1e9, 1, "y", "")] if neighbours == "replace" else crowd
    assert find_violation(with_row, bench.record(others, statement)) is None


@pytest.mark.parametrize("bounds", ["[-1.5, 0]", "[-2.5, 2.5]", "[0, 1.4999999999999999999]", "[-0.5, 0.5]"])
def test_fractional_bounds_of_whole_numbers_hold(tmp_path, monkeypatch, bounds):
    bench = Bench(tmp_path, monkeypatch, bounds=bounds)
    statement = "DP-SELECT 8 SUM(i), AVG(i), VARIANCE(i), MEDIAN(i) FROM t"
    without = bench.record(CROWD, statement)
    for value in (-(10**9), -2, 2, 10**9):
        records = [("somebody", 0.0, value, "x", "o")] * MAX_RECORDS
        assert find_violation(bench.record(CROWD + records, statement), without) is None


@pytest.mark.parametrize("statistic", ["AVG", "VARIANCE", "MEDIAN", "MIN"])
def test_bounds_that_doubles_cannot_tell_apart_hold_or_are_refused(tmp_path, monkeypatch, statistic):
    bench = Bench(tmp_path, monkeypatch)
    # The bounds are 4e-9 apart, and round to doubles that are 4.8e-7 apart.
    statement = f"DP-SELECT 8 {statistic}(i * 1e-9 + 4294967295.000000238) FROM t"
    records = [("somebody", 0.0, 2, "x", "o")] * MAX_RECORDS
    try:
        moved, without = bench.record(CROWD + records, statement), bench.record(CROWD, statement)
    except sf.UnsupportedQuery:
        return
    assert find_violation(moved, without) is None


@pytest.mark.parametrize(
    "statement",
    [
        "DP-SELECT 8 COUNT(*) FROM t WHERE i // 0 > 0 OR i > -1000",
        "DP-SELECT 8 COUNT(*) FROM t WHERE CAST(d AS INT) > 0 OR i > -1000",
        "DP-SELECT 8 i // 0 > 0 OR i > -1000 AS k, COUNT(*) FROM t GROUP BY k",
        "WITH s AS (SELECT i // 0 > 0 OR i > -1000 AS k FROM t) DP-SELECT 8 COUNT(k) FROM s",
    ],
)
def test_one_value_does_not_decide_whether_others_fail(tmp_path, monkeypatch, statement):
    # The least and largest value of a column may tell the engine that a condition always holds.
    bench = Bench(tmp_path, monkeypatch)
    moved = bench.record([*CROWD, ("somebody", 0.0, -(2**40), "x", "o")], statement)
    assert find_violation(moved, bench.record(CROWD, statement)) is None


def test_another_column_cannot_take_the_individuals_place(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    statement = 'WITH s AS (SELECT o AS "unit of sfumato" FROM t) DP-SELECT 8 COUNT(*) FROM s'
    try:
        moved = bench.record(CROWD + person("many values"), statement)
    except sf.UnsupportedQuery:
        return
    assert find_violation(moved, bench.record(CROWD, statement)) is None


def test_the_order_of_records_does_not_matter(tmp_path, monkeypatch):
    # The texts tie in any digest that is made of values with separators or with marks for NULL.
    bench = Bench(tmp_path, monkeypatch)
    records = [("somebody", 0.0, 1, "x", text) for text in ["~"] * 6 + [None] * 6]
    records += [("else", 0.0, 1, "x", "a:b")] * 6 + [("else", 0.0, 1, "x:a", "b")] * 6
    statement = "DP-SELECT 8 COUNT(DISTINCT o), COUNT(DISTINCT d) FROM t"
    ((_, one),), _ = bench.record(CROWD + records, statement)
    ((_, two),), _ = bench.record((CROWD + records)[::-1], statement)
    assert [each.tolist() for each in one.true_values] == [each.tolist() for each in two.true_values]


def test_the_bounds_are_tight(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    statement = "DP-SELECT 8 d, COUNT(*), SUM(c), COUNT(DISTINCT o), COUNT(DISTINCT p) FROM t GROUP BY d"
    over = [("somebody", 1e9, 1, "xyz"[n % 3], f"value{n}") for n in range(50)]
    (((plan, moved),), _), (((_, without),), _) = (
        bench.record(records, statement) for records in (CROWD + over, CROWD)
    )
    distances = [
        int(np.abs(a - b).sum()) for a, b in zip(moved.true_values, without.true_values, strict=True)
    ]
    declared = [int(noise.costs[0].sensitivity) for noise in plan.noises]
    assert distances[:3] == declared[:3]
    assert 1 < distances[3] <= declared[3] == MAX_RECORDS


def _loosen(monkeypatch, **facts):
    def loosen(original):
        def loose(connection, plan, *rest):
            unit = replace(plan.unit, max_records=facts.get("max_records", plan.unit.max_records))
            query = replace(plan.query, max_groups=facts.get("max_groups", plan.query.max_groups))
            return original(connection, replace(plan, unit=unit, query=query), *rest)

        return loose

    for name in ("_bound_rows", "_bound_crowd", "_bound_groups"):
        monkeypatch.setattr(execute, name, loosen(getattr(execute, name)))


@pytest.mark.parametrize(
    "name", ["no group", "public groups", "Gaussian", "rows multiplied", "open groups", "labels, alone"]
)
def test_rows_that_are_not_bounded_are_caught(tmp_path, monkeypatch, name):
    _loosen(monkeypatch, max_records=10**6, max_groups=10**6)
    bench = Bench(tmp_path, monkeypatch)
    moved = bench.record(CROWD + person("over the cap, in one group"), STATEMENTS[name])
    assert "above the declared" in find_violation(moved, bench.record(CROWD, STATEMENTS[name]))


@pytest.mark.parametrize("careless", [False, True])
def test_keys_that_others_hold_take_nothing_from_them(tmp_path, monkeypatch, careless):
    from sfumato.core.engine import chain

    original = chain._Holders.find

    def find_alone(self, keys):
        """Leaves out records whose key several people hold: then one person decides about others."""
        rows, people = original(self, keys)
        alone = np.bincount(rows, minlength=len(keys))[rows] == 1
        return rows[alone], people[alone]

    if careless:
        monkeypatch.setattr(chain._Holders, "find", find_alone)
    bench = Bench(tmp_path, monkeypatch)
    crowd = [(f"crowd{n}", 1.0, 1, "x", f"open{n}") for n in range(12)]
    greedy = [("somebody", 1.0, 1, "x", f"open{n}") for n in range(12)]
    statement = STATEMENTS["along a reference"]
    found = find_violation(bench.record(crowd + greedy, statement), bench.record(crowd, statement))
    assert ("above the declared" in found) if careless else found is None


def test_a_row_per_individual_costs_one_record(tmp_path, monkeypatch):
    bench = Bench(tmp_path, monkeypatch)
    statement = f"DP-SELECT 8 COUNT(*), SUM(n), SUM(total), COUNT(DISTINCT p) FROM {PER_PERSON}"
    over = person("over the cap, clamped above")
    (((plan, moved),), _), (((_, without),), _) = (
        bench.record(records, statement) for records in (CROWD + over, CROWD)
    )
    declared = [int(noise.costs[0].sensitivity) for noise in plan.noises]
    grid = plan.noises[2].measure.grid
    assert declared == [1, MAX_RECORDS, 50 * MAX_RECORDS * grid, 1]
    distances = [
        int(np.abs(a - b).sum()) for a, b in zip(moved.true_values, without.true_values, strict=True)
    ]
    assert distances == declared


@pytest.mark.parametrize("name", ["a row per individual and key", "inner rows, multiplied"])
def test_inner_rows_that_are_not_bounded_are_caught(tmp_path, monkeypatch, name):
    _loosen(monkeypatch, max_records=10**6, max_groups=10**6)
    bench = Bench(tmp_path, monkeypatch)
    # One group more than records may count: every row is another one.
    records = [("somebody", 50.0, n, "x", f"o{n}") for n in range(50)]
    statement = STATEMENTS[name].replace("GROUP BY p, d", "GROUP BY p, d, i")
    moved = bench.record(CROWD + records, statement)
    assert "above the declared" in find_violation(moved, bench.record(CROWD, statement))


def test_bounds_of_inner_results_are_enforced_where_they_are_measured(tmp_path, monkeypatch):
    from sfumato.sql.inner import _Group

    def claim(self, call, found, bounds, *, held):
        return self._add(call, replace(found, bounds=bounds if held else None))

    monkeypatch.setattr(_Group, "_hold", claim)
    bench = Bench(tmp_path, monkeypatch)
    statement = f"DP-SELECT 8 SUM(n), AVG(n), SUM(whole), MEDIAN(n) FROM {PER_PERSON}"
    moved = bench.record(CROWD + person("over the cap, clamped above"), statement)
    assert find_violation(moved, bench.record(CROWD, statement)) is None


@pytest.mark.parametrize("name", ["few groups", "few open groups"])
def test_groups_that_are_not_bounded_are_caught(tmp_path, monkeypatch, name):
    _loosen(monkeypatch, max_groups=10**6)
    bench = Bench(tmp_path, monkeypatch)
    moved = bench.record(CROWD + person("within the cap, over groups"), STATEMENTS[name])
    assert "above the declared" in find_violation(moved, bench.record(CROWD, STATEMENTS[name]))


@pytest.mark.parametrize("statistic", ["sum", "square"])
def test_a_forgotten_clamp_is_caught(tmp_path, monkeypatch, statistic):
    original = execute._value

    def careless(measure, raw):
        wide = replace(measure, low=measure.low - 10**6, high=measure.high + 10**6)
        text = original(wide if measure.statistic == statistic else measure, raw)
        # The wider range must not change the units in which squares are counted.
        return text.replace(repr(float((wide.high - wide.low) / 2)), "30.0")

    monkeypatch.setattr(execute, "_value", careless)
    bench = Bench(tmp_path, monkeypatch)
    statement = "DP-SELECT 8 SUM(c), VARIANCE(c) FROM t"
    moved = bench.record([*CROWD, ("somebody", 1e5, 1, "x", "o")], statement)
    assert "above the declared" in find_violation(moved, bench.record(CROWD, statement))


def _uncharged(bench, monkeypatch, statement):
    """The costs of all noise that is drawn for a statement, but for those that the ledger was charged."""
    charged, original = [], statements.answer_under_charge

    def keep(bill, **rest):
        charged.extend(bill.costs)
        return original(bill, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(statements, "answer_under_charge", keep)
        drawn = [cost for plan in bench.plan(statement) for cost in plan.costs]
    return Counter(drawn) - Counter(charged)


@pytest.mark.parametrize("name", [each for each in STATEMENTS if each.startswith("private bounds")])
def test_choosing_bounds_is_charged_with_what_is_measured_between_them(tmp_path, monkeypatch, name):
    assert not _uncharged(Bench(tmp_path, monkeypatch), monkeypatch, STATEMENTS[name])


def test_bounds_that_are_chosen_for_nothing_are_caught(tmp_path, monkeypatch):
    from sfumato.sql.plan import QueryPlan

    charge_less = property(lambda plan: tuple(cost for noise in plan.noises for cost in noise.costs))
    monkeypatch.setattr(QueryPlan, "costs", charge_less)
    with pytest.raises(ChargeKept, match="more is asked than was charged"):
        _uncharged(Bench(tmp_path, monkeypatch), monkeypatch, STATEMENTS["private bounds"])


@pytest.mark.parametrize("name", ["public groups", "open groups", "private bounds", "all quantiles"])
@pytest.mark.parametrize("cap", [1, 4, 64])
def test_a_chosen_number_of_records_is_the_one_that_is_enforced(tmp_path, monkeypatch, name, cap):
    monkeypatch.setattr(asks, "choose_records", lambda counts, plan: cap)
    bench = Bench(tmp_path, monkeypatch, records='"private"')
    statement = STATEMENTS[name]
    assert [plan.unit.max_records for plan in bench.plan(statement)][-1] == cap
    without = bench.record(CROWD, statement)
    for individual in INDIVIDUALS:
        moved = bench.record(CROWD[:7] + person(individual) + CROWD[7:], statement)
        assert find_violation(moved, without) is None, individual


@pytest.mark.parametrize("name", ["added up", "several levels"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_levels_of_what_is_held_to_a_norm_move_by_no_more(tmp_path, monkeypatch, name, neighbours):
    bench = Bench(tmp_path, monkeypatch, records='"private"', neighbours=neighbours)
    assert any(noise.measure.clip for plan in bench.plan(STATEMENTS[name]) for noise in plan.noises)
    # What holds to norms is charged with the counts of individuals by norm, which are a plan themselves.
    costs = [cost for plan in bench.plan(STATEMENTS[name]) for noise in plan.noises for cost in noise.costs]
    records = [bench.record(CROWD + person(each), STATEMENTS[name])[1] for each in INDIVIDUALS]
    others = [bench.record(CROWD, STATEMENTS[name])[1]] if neighbours == "add-remove" else records
    for moved in records:
        for other in others:
            assert _find_distance(moved, other, costs) is None


def test_exchanging_an_individual_moves_two_of_the_counts_by_records(tmp_path, monkeypatch):
    monkeypatch.setattr(asks, "choose_records", lambda counts, plan: 2)
    bench = Bench(tmp_path, monkeypatch, records='"private"', neighbours="replace")
    records = [bench.record(CROWD + person(each), STATEMENTS["public groups"]) for each in INDIVIDUALS]
    for index, one in enumerate(records):
        for other in records[index + 1 :]:
            assert find_violation(one, other) is None


@pytest.mark.parametrize("name", ["public groups", "open groups", "private bounds", "several levels"])
@pytest.mark.parametrize("cap", [1, 8, 1024])
def test_choosing_records_is_charged_with_all_that_follows(tmp_path, monkeypatch, name, cap):
    charged, original = [], statements.answer_under_charge

    def keep(bill, **rest):
        charged.extend(bill.costs)
        return original(bill, **rest)

    monkeypatch.setattr(asks, "choose_records", lambda counts, plan: cap)
    monkeypatch.setattr(statements, "answer_under_charge", keep)
    plans = Bench(tmp_path, monkeypatch, records='"private"').plan(STATEMENTS[name])
    chosen = [plan.selection.cost for plan in plans if plan.selection is not None]
    drawn = [cost for plan in plans for noise in plan.noises for cost in noise.costs]
    assert all(map(Allowance(charged).pay, [*chosen, *drawn]))
    assert not all(map(Allowance(charged[1:]).pay, [*chosen, *drawn]))
    dearer = replace(drawn[-1], scale=drawn[-1].scale * 99 / 100)
    assert not all(map(Allowance(charged).pay, [*chosen, *drawn[:-1], dearer])) or dearer.kind in CHOICES


def test_a_chosen_number_of_records_that_is_not_enforced_is_caught(tmp_path, monkeypatch):
    from sfumato.core.algebra import measures

    monkeypatch.setattr(measures, "cap_records", lambda table, most: table)
    monkeypatch.setattr(asks, "choose_records", lambda counts, plan: 2)
    bench = Bench(tmp_path, monkeypatch, records='"private"')
    statement = STATEMENTS["public groups, tallied"]
    with pytest.raises(sf.SfumatoError):
        bench.record(CROWD + person("over the cap, in one group"), statement)


def test_counting_records_in_place_of_individuals_is_caught(tmp_path, monkeypatch):
    original = execute.tally_individuals
    monkeypatch.setattr(execute, "tally_individuals", lambda sizes: original(sizes) * 2)
    bench = Bench(tmp_path, monkeypatch, records='"private"')
    statement = STATEMENTS["public groups, tallied"]
    moved = bench.record(CROWD + person("one record"), statement)
    assert "above the declared" in find_violation(moved, bench.record(CROWD, statement))


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_noise_for_other_bounds_than_are_enforced_is_caught(tmp_path, monkeypatch, neighbours):
    original = execute._value

    def wider(measure, raw):
        return original(replace(measure, low=measure.low * 4, high=measure.high * 4, private=None), raw)

    monkeypatch.setattr(asks, "choose_bounds", lambda values, noise: (30, 160))  # about [-1e4, 500]
    bench = Bench(tmp_path, monkeypatch, neighbours=neighbours)
    statement = "DP-SELECT 8 SUM(c BOUNDED PRIVATELY) FROM t"
    bench.plan(statement)
    monkeypatch.setattr(execute, "_value", wider)
    moved = bench.record(CROWD + [("somebody", -1e9, 1, "x", "o")] * MAX_RECORDS, statement)
    other = bench.record(CROWD + [("somebody", 1e9, 1, "x", "o")] * MAX_RECORDS, statement)
    pair = (moved, other) if neighbours == "replace" else (moved, bench.record(CROWD, statement))
    assert "above the declared" in find_violation(*pair)


def test_a_level_of_quantiles_that_counts_twice_is_caught(tmp_path, monkeypatch):
    original = core_asks.count_intervals
    monkeypatch.setattr(core_asks, "count_intervals", lambda *given: [2 * each for each in original(*given)])
    bench = Bench(tmp_path, monkeypatch)
    moved = bench.record(CROWD + person("over the cap, in one group"), STATEMENTS["all quantiles"])
    assert "above the declared" in find_violation(moved, bench.record(CROWD, STATEMENTS["all quantiles"]))


@pytest.mark.parametrize("name", ["several levels", "several levels, Gaussian"])
def test_levels_that_are_not_charged_are_not_drawn(tmp_path, monkeypatch, name):
    from sfumato.sql import planner

    original = planner.calibrate_noise
    monkeypatch.setattr(
        planner, "calibrate_noise", lambda *given, levels=1, **named: original(*given, **named)
    )
    with pytest.raises(sf.UnsupportedQuery, match="costs more than it says"):
        Bench(tmp_path, monkeypatch).record(CROWD, STATEMENTS[name])


@pytest.mark.parametrize("part", ["selection", "noises"])
@pytest.mark.parametrize("name", ["open groups", "several levels", "all quantiles", "private bounds", "bins"])
def test_noise_of_half_the_scale_is_caught(tmp_path, monkeypatch, name, part):
    def halve(each):
        if each is None or not hasattr(each, "scale"):
            return each
        return replace(each, scale=each.scale / 2)

    def draw(plan, exact, source):
        kept = halve(plan.selection) if part == "selection" else tuple(map(halve, plan.noises))
        return original(replace(plan, **{part: kept}), exact, source)

    bench = Bench(tmp_path, monkeypatch)
    plain = bench.record(CROWD, STATEMENTS[name])
    assert find_violation(plain, plain) is None
    original = change_draws(monkeypatch, draw)
    halved = bench.record(CROWD, STATEMENTS[name])
    if part == "selection" and name != "open groups":
        assert find_violation(halved, halved) is None
    else:
        assert "noise of kind laplace and scale" in find_violation(halved, halved)


def test_a_sensitivity_of_half_is_caught(tmp_path, monkeypatch):
    from sfumato.sql import plan

    original = plan.bound_measure
    for module in (core_asks, plan):  # in the core, and where the planner asks the core
        monkeypatch.setattr(module, "bound_measure", lambda *given, **named: original(*given, **named) / 2)
    bench = Bench(tmp_path, monkeypatch)
    statement = STATEMENTS["public groups, tallied"]
    moved = bench.record(CROWD + person("over the cap, in one group"), statement)
    assert "above the declared" in find_violation(moved, bench.record(CROWD, statement))


LIES = {
    "half the noise": lambda plan: {
        "noises": tuple(replace(each, scale=each.scale / 2) for each in plan.noises)
    },
    "a lower threshold": lambda plan: {"selection": replace(plan.selection, threshold=1)},
    "no selection": lambda plan: {"selection": None},
    "more groups": lambda plan: {"max_groups": plan.max_groups + 1},
}


@pytest.mark.parametrize("lie", LIES)
def test_plans_that_lie_are_refused_and_nothing_is_spent(tmp_path, monkeypatch, lie):
    original = statements.Desk.plan

    def wrong(*given, **named):
        plan = original(*given, **named)
        return replace(plan, **LIES[lie](plan))

    monkeypatch.setattr(statements.Desk, "plan", wrong)
    bench = Bench(tmp_path, monkeypatch)
    bench.write(CROWD)
    curator = sf.open(tmp_path / "sfumato.toml")
    statement = f"{LIMITED.format(delta='1e-7')} o, COUNT(DISTINCT p), SUM(c) FROM t GROUP BY o"
    with pytest.raises(sf.UnsupportedQuery):
        curator.sql(statement)
    assert curator.budget().spent == 0
