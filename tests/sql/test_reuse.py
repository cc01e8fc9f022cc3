"""What follows from an earlier answer, compared with the truth, without noise, over pairs of statements."""

import dataclasses
import datetime
import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.pairs import read_pairs
from helpers.projects import write_project
from sfumato.curator.statements import Desk
from sfumato.sql import cells, links
from sfumato.sql.links import link_measures, link_sources
from sfumato.sql.question import digest_question, read_question
from sfumato.sql.statement import read_statement

COLUMNS = {
    "clinic": {"values": ["N", "S", "H", "I"]},
    "kept": {"from": "clinic", "values": ["N", "S"], "outside": "other"},
    "told": {"from": "clinic", "values": ["N", "S"], "missing_label": "none"},
    "full": {"from": "clinic", "values": ["N", "S"], "missing_label": "none", "outside": "other"},
    "code": {"range": [1, 6]},
    "held": {"from": "code", "range": [2, 4], "outside": "clamp"},
    "part": {"from": "number", "range": [0, 5]},
    "bin": {"from": "number", "bins": [0, 1, 2.5, 5]},
    "most": {"from": "number", "bins": [0, 1, 2.5, 5], "outside": "clamp"},
    "fee": {"bounds": [0, 100]},
    "day": {"range": ["2024-12-10", "2025-06-20"]},
    "at": {"range": ["2024-12-10", "2025-06-20"]},
    "month": {"from": "day", "period": "month"},
}

ANSWERS = Path(__file__).with_name("fixtures") / "answers.sql"
KEYS = [key for key, _ in read_pairs(ANSWERS, section="keys of earlier answers")]

CONDITIONS = [each for each, _ in read_pairs(ANSWERS, section="conditions on them")]

DECIDED = read_pairs(ANSWERS, section="earlier keys and conditions that decide a later one")

MEASURES = "COUNT(*) AS n, SUM(fee) AS s, COUNT(fee) AS f, COUNT(DISTINCT clinic) AS d, MEDIAN(fee) AS q"


def make_rows(count=3000):
    """Records with values on every edge, beyond it, and missing."""
    random = np.random.default_rng(7)
    edges = [
        datetime.datetime(2025, 1, 1),
        datetime.datetime(2024, 12, 31, 23, 59, 59, 999_999),
        datetime.datetime(2025, 2, 28, 23, 59, 59, 999_999),
        datetime.datetime(2025, 3, 1),
        datetime.datetime(2025, 3, 1, 0, 0, 0, 1),
        datetime.datetime(2024, 12, 9, 23),
        datetime.datetime(2024, 12, 10),
        datetime.datetime(2025, 6, 20, 23, 59),
        datetime.datetime(2025, 6, 21),
        datetime.datetime(1999, 1, 1),
    ]
    begin = datetime.datetime(2024, 11, 20)
    spread = [begin + datetime.timedelta(seconds=int(s)) for s in random.integers(0, 230 * 86400, 60)]
    moments = [
        edges[i // 2 % len(edges)] if i % 2 else spread[i // 2 % 60] for i in random.integers(0, 120, count)
    ]
    moments = [None if random.random() < 0.05 else each for each in moments]
    clinics = [None, "N", "S", "H", "I", "X", "n"]
    numbers = [None, 0.0, 1.0, 2.0, 2.5, 3.0, 3.5, 5.0, 5.1, -0.1, float("nan"), float("inf")]
    return pa.table(
        {
            "p": random.integers(0, 400, count),
            "clinic": pa.array([clinics[i] for i in random.integers(0, 7, count)]),
            "code": pa.array(
                [None if i == 9 else int(i) for i in random.integers(-1, 10, count)], pa.int32()
            ),
            "number": pa.array([numbers[i] for i in random.integers(0, 12, count)]),
            "fee": pa.array([None if i > 140 else float(i - 20) for i in random.integers(0, 150, count)]),
            "flag": pa.array([[True, False, None][i] for i in random.integers(0, 3, count)]),
            "day": pa.array([None if each is None else each.date() for each in moments], pa.date32()),
            "at": pa.array(moments, pa.timestamp("us")),
        }
    )


class Truth:
    """Plans of statements, and their exact values."""

    def __init__(self, folder, **facts):
        curator = sf.open(
            write_project(folder, COLUMNS, rows=make_rows(), epsilon=10**6, delta=1e-6, **facts)
        )
        self.desk = Desk(
            project=curator.project,
            engine=curator._engine,
            find_budget=lambda: curator._budget,
            report=curator.budget,
            open_ledger=curator._ledger,
        )
        self.known = {}

    def ask(self, text):
        """The plan, the question and the exact values of a statement."""
        if text not in self.known:
            statement = self.desk.prepare(read_statement(f"DP-SELECT 1 {text}"), epsilon=None)
            plan = self.desk.plan(statement, self.desk.catalog(statement))
            exact = self.desk.engine.aggregate(plan.query, self.desk.tables, progress=str).true_values
            self.known[text] = plan, read_question(plan), exact
        return self.known[text]


@pytest.fixture(scope="module")
def find_truth(tmp_path_factory):
    """Finds the truth of one description of the table; tests that describe it alike share it."""
    return cache(lambda **facts: Truth(tmp_path_factory.mktemp("reuse"), **facts))


def write_statement(keys, condition):
    listed = ", ".join(f"{key} AS k{place}" for place, key in enumerate(keys))
    where = f" WHERE {condition}" if condition else ""
    group = f" GROUP BY {', '.join(f'k{place}' for place in range(len(keys)))}" if keys else ""
    return f"{f'{listed}, ' if keys else ''}{MEASURES} FROM t{where}{group}"


def list_pairs():
    """Earlier statements and later ones: keys with conditions, keys with coarser keys, several keys."""
    earlier = [((key,), "") for key in KEYS]
    earlier += [
        ((one, two), "") for one, two in (("clinic", "month"), ("full", "fee > 20"), ("kept", "code"))
    ]
    earlier += [(("full", "most"), ""), (("flag", "DATE_TRUNC('month', at)"), ""), ((), "")]
    ranges = [each for each in CONDITIONS if each.startswith(("day >=", "at >=", "code >="))]
    earlier += [((key,), each) for each in ranges for key in ("full", "DATE_TRUNC('month', at)", "day")]
    later = [((), each) for each in ("", *CONDITIONS)]
    later += [((key,), "") for key in KEYS]
    later += [
        ((key,), each) for key in ("clinic", "full", "DATE_TRUNC('month', at)") for each in CONDITIONS[::3]
    ]
    later += [((two, one), "") for one, two in (("clinic", "month"), ("full", "fee > 20"))]
    return itertools.product(earlier, later)


def compare(truth, first, later):
    """How many measures of `later` follow from `first`, each checked; with exact equality if `same`."""
    plan, question, values = truth.ask(write_statement(*first))
    wanted, asked, expected = truth.ask(write_statement(*later))
    links = link_measures(wanted, asked, plan, question)
    for number, link in links.items():
        measure = wanted.noises[number].measure
        taken = link.target >= 0
        if measure.statistic in ("quantile", "distinct"):
            found = np.zeros_like(expected[number])
            found[link.target[taken]] = values[link.measure][taken]
        else:
            found = np.zeros(wanted.groups, np.int64)
            np.add.at(found, link.target[taken], values[link.measure][taken])
        if link.counted is not None:
            # Moved from another centre: up to a unit of rounding for each record.
            counts = np.zeros(wanted.groups, np.int64)
            np.add.at(counts, link.target[taken], values[link.counted][taken])
            (_, one), (_, other) = link_sources(wanted.noises[number], link, plan)
            moved = one * found + other * counts
            assert (np.abs(moved - expected[number]) <= counts + 1).all() or not link.same
            continue
        yield measure, link, found, expected[number]


@pytest.mark.parametrize(
    "facts", [{"unit": "row"}, pytest.param({"unit": "p", "max_records": 200}, marks=pytest.mark.slow)]
)
def test_what_follows_is_what_would_be_measured(find_truth, facts):
    """Where nobody is cut by a bound, every value that follows is the exact one."""
    truth, count = find_truth(**facts), 0
    for first, later in list_pairs():
        for measure, _, found, expected in compare(truth, first, later):
            assert np.array_equal(found, expected), (first, later, measure.describe())
            count += 1
    assert count > 400


@pytest.mark.parametrize("groups", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_what_is_bounded_otherwise_is_said(find_truth, groups):
    """Where people are cut, what is called the same is the same, and other counts are never larger."""
    truth = find_truth(unit="p", max_records=3, max_groups=groups)
    same = others = 0
    for first, later in list_pairs():
        for measure, link, found, expected in compare(truth, first, later):
            if link.same:
                assert np.array_equal(found, expected), (first, later, measure.describe())
                same += 1
            elif measure.statistic == "records" and groups == 3 and not later[0]:
                assert (found <= expected).all(), (first, later)
                others += 1
    assert same > 100
    assert others > 30 or groups == 2


@pytest.mark.parametrize(
    ("keys", "condition", "later"),
    [
        # A condition that cuts a period, at both ends.
        ("DATE_TRUNC('month', at)", "", "at >= '2025-01-02' AND at < '2025-03-01'"),
        ("DATE_TRUNC('month', at)", "", "at >= '2025-01-01' AND at <= '2025-03-01'"),
        ("DATE_TRUNC('month', at)", "", "at > '2025-01-01' AND at < '2025-03-01'"),
        ("DATE_TRUNC('month', day)", "", "day BETWEEN '2025-01-01' AND '2025-03-01'"),
        # Records beyond the range, which no group holds.
        ("DATE_TRUNC('month', at)", "", "at >= '2025-01-01'"),
        ("DATE_TRUNC('month', at)", "", ""),
        (
            "DATE_TRUNC('month', at)",
            "at >= '2025-01-15' AND at < '2025-03-01'",
            "at >= '2025-01-01' AND at < '2025-02-01'",
        ),
        # Records without a label, NULL, and other values.
        ("clinic", "", ""),
        ("clinic", "", "clinic <> 'N'"),
        ("clinic", "", "clinic = 'X'"),
        ("kept", "", "clinic = 'X'"),
        ("kept", "", "clinic IS NULL"),
        ("told", "", ""),
        ("code", "", "code >= 3"),
        ("part", "", "part >= 1 AND part <= 3"),
        ("held", "", "held = 4"),
        ("most", "", "most >= 3"),
        ("fee > 20", "", ""),
        ("CASE WHEN fee < 50 THEN 'low' END", "", ""),
        ("CASE WHEN fee > 20 THEN 'yes' ELSE 'no' END", "", "fee <= 20"),
        ("CASE WHEN clinic = 'N' THEN 'x' ELSE 'z' END", "", "clinic = 'S'"),
    ],
)
def test_what_is_not_decided_does_not_follow(find_truth, keys, condition, later):
    truth = find_truth(unit="row")
    assert not list(compare(truth, ((keys,), condition), ((), later)))


@pytest.mark.parametrize(("keys", "later"), DECIDED)
def test_what_is_decided_follows(find_truth, keys, later):
    truth = find_truth(unit="row")
    found = [
        measure.statistic for measure, *_ in compare(truth, ((keys,), ""), ((), later.removeprefix("TRUE")))
    ]
    assert {"records", "sum", "present"} <= set(found)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at >= '2025-01-01'", "NOT at < '2025-01-01'"),
        ("at >= '2025-01-01' AND fee > 20", "NOT (at < '2025-01-01' OR fee <= 20)"),
        ("at >= '2025-01-01'", "at >= '2025-01-01' OR at >= '2025-01-01'"),
    ],
)
def test_conditions_that_leave_other_groups_are_other_questions(find_truth, one, other):
    """A stored answer has its values by the places of labels, and these follow from how WHERE is written."""
    truth = find_truth(unit="p", max_records=200)
    asked = [truth.ask(write_statement(("DATE_TRUNC('month', at)",), each)) for each in (one, other)]
    assert asked[0][1].to_record() == asked[1][1].to_record()
    assert asked[0][0].groups != asked[1][0].groups
    assert len({digest_question(plan, question) for plan, question, _ in asked}) == 2


def test_joined_rows_that_are_chosen_by_other_values_are_not_called_the_same(find_truth):
    """Which joined rows are kept follows from the numbers that are added up, not from their columns alone."""
    truth = find_truth(unit="p", max_records=3)
    both = "FROM (SELECT p, clinic, fee FROM t UNION ALL SELECT p, clinic, fee FROM t) AS u GROUP BY clinic"
    measures = [
        *("SUM(fee)", "AVG(fee)", "MEDIAN(fee)", "COUNT(fee)", "COUNT(DISTINCT fee)"),
        "SUM(fee) FILTER (WHERE TRUE)",
    ]
    asked = [truth.ask(f"clinic, COUNT(*), {each} {both}") for each in measures]
    apart = 0
    for (plan, question, values), (wanted, later, expected) in itertools.product(asked, repeat=2):
        link = link_measures(wanted, later, plan, question)[0]
        if link.same:
            assert np.array_equal(values[link.measure], expected[0]), (plan.text, wanted.text)
        apart += not link.same
    assert apart > 10


@pytest.mark.parametrize("unit", [{"unit": "row"}, {"unit": "p", "max_records": 200}])
def test_sums_and_means_follow_from_each_other(find_truth, unit):
    truth = find_truth(**unit)
    means = "full AS k, AVG(fee) AS a FROM t GROUP BY k"
    sums = "full AS k, SUM(fee) AS s, COUNT(fee) AS n FROM t GROUP BY k"
    pairs = [(means, sums), (sums, means), (means, "SUM(fee) AS s FROM t"), (sums, "AVG(fee) AS s FROM t")]
    for first, later in [*pairs, (means, "SUM(fee) AS s FROM t WHERE full = 'N'")]:
        plan, question, values = truth.ask(first)
        wanted, asked, expected = truth.ask(later)
        links = link_measures(wanted, asked, plan, question)
        assert len(links) == len(wanted.noises)
        link = next(each for each in links.values() if each.counted is not None)
        number = next(number for number, each in links.items() if each is link)
        taken = link.target >= 0
        (_, one), (_, other) = link_sources(wanted.noises[number], link, plan)
        moved, counts = np.zeros(wanted.groups), np.zeros(wanted.groups)
        np.add.at(moved, link.target[taken], values[link.measure][taken] * one)
        np.add.at(counts, link.target[taken], values[link.counted][taken])
        assert (np.abs(moved + other * counts - expected[number]) <= counts).all()


def forget_records_in_no_group(monkeypatch):
    read = links.read_axis

    def read_less(*given):
        axis = read(*given)
        kept = [place for place, owner in enumerate(axis.owners) if owner >= 0]
        cells, owners = (tuple(each[place] for place in kept) for each in (axis.cells, axis.owners))
        return dataclasses.replace(axis, cells=cells, owners=owners)

    monkeypatch.setattr(links, "read_axis", read_less)


def call_all_the_same(monkeypatch):
    monkeypatch.setattr(links._Grid, "_is_same", lambda *_, **__: True)


def take_conditions_for_implied(monkeypatch):
    monkeypatch.setattr(links, "implies", lambda *_: True)


def take_moments_for_days(monkeypatch):
    monkeypatch.setattr(cells, "is_day", lambda *_: True)


PEOPLE = {"unit": "p", "max_records": 3}


@pytest.mark.parametrize(
    ("plant", "keys", "condition", "later", "facts"),
    [
        (forget_records_in_no_group, "clinic", "", "", {}),
        (forget_records_in_no_group, "DATE_TRUNC('month', at)", "", "at >= '2025-01-01'", {}),
        (call_all_the_same, "clinic", "", "clinic = 'N'", PEOPLE),
        (take_conditions_for_implied, "code", "code >= 3", "code IN (1, 2)", {}),
        (
            take_moments_for_days,
            "DATE_TRUNC('month', at)",
            "",
            "at BETWEEN '2025-01-01' AND '2025-02-28'",
            {},
        ),
    ],
)
def test_a_rule_that_is_broken_is_noticed(tmp_path, monkeypatch, plant, keys, condition, later, facts):
    """Each rule of what follows, taken away: the comparison with the truth finds wrong values."""

    def find_wrong():
        truth = Truth(tmp_path, **{"unit": "row", **facts})
        return [
            measure.describe()
            for measure, link, found, expected in compare(truth, ((keys,), condition), ((), later))
            if link.same and not np.array_equal(found, expected)
        ]

    assert not find_wrong()
    plant(monkeypatch)
    assert find_wrong()
