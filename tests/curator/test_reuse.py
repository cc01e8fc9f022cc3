"""What was paid for is not paid for again: the same question, what follows from it, and what adds to it."""

import os
import subprocess
import sys
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.audit.noise_off import RecordingNoise
from sfumato.core.algebra.measures import Measure
from sfumato.core.facts.project import read_project
from sfumato.core.law import SHAPES as LAWS
from sfumato.curator import Curator, statements
from sfumato.curator.reuse import StoredQuestions
from sfumato.curator.statements import Desk
from sfumato.sql import question, reuse
from sfumato.sql.aggregates import Key
from sfumato.sql.laws import NoisePart, part_widths, sum_width
from sfumato.sql.plan import QueryPlan
from sfumato.sql.relation import Relation

LAPLACE, GAUSSIAN = LAWS["laplace"], LAWS["gaussian"]
COLUMNS = {
    "clinic": {"values": ["N", "S", "H"], "outside": "other"},
    "month": {"range": [1, 12]},
    "fee": {"bounds": [0, 100]},
}
FACTS = {"unit": "p", "max_records": 4, "epsilon": 10**6, "delta": 1e-6}


def make_rows(count=1200):
    return pa.table(
        {
            "p": np.arange(count) // 3,
            "clinic": pa.array(["N", "S", "H", "X", None][i % 5] for i in range(count)),
            "month": np.arange(count) % 12 + 1,
            "fee": (np.arange(count) * 7 % 100).astype(float),
        }
    )


@pytest.fixture
def curator(tmp_path):
    return sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(), **FACTS))


def charges(curator):
    return [entry for entry in curator.budget().entries if entry.kind == "charge"]


FIRST = (
    "DP-SELECT 0.5 clinic, COUNT(*) AS n, AVG(fee) AS a FROM t WHERE fee > 20 AND month < 6 GROUP BY clinic"
)


@pytest.mark.parametrize(
    "again",
    [
        "AVG(fee) AS x, clinic AS c, COUNT(*) AS y FROM t WHERE month < 6 AND fee > 20 GROUP BY c",
        "clinic, COUNT(1), AVG(v.fee) FROM t AS v WHERE NOT (v.fee <= 20 OR month >= 6) GROUP BY 1 LIMIT 2",
        "clinic, SUM(1), AVG(fee) FROM t WHERE 20.0 < fee AND 6 > month AND fee > 20 GROUP BY clinic",
        "clinic, COUNT(*) n, AVG(fee) FROM t WHERE fee > 20 AND month < 6 GROUP BY clinic HAVING n > -9999",
        "clinic, 2 * COUNT(*) AS n, ROUND(AVG(fee)) AS a FROM t WHERE fee > 20 AND month < 6 GROUP BY clinic",
    ],
)
def test_the_same_question_is_free_however_it_is_put(curator, again):
    first = curator.sql(FIRST)
    answer = curator.sql(f"DP-SELECT 0.5 {again}")
    assert (answer.spent, answer.repeated, len(charges(curator))) == (0, True, 1)
    told = {row["clinic"]: row["a"] for row in first.table.to_pylist()}
    names = answer.table.column_names
    key = "c" if "c" in names else "clinic"
    mean = next(name for name in names if name in ("x", "a", "AVG(fee)", "AVG(v.fee)"))
    for row in answer.table.to_pylist():
        assert row[mean] == pytest.approx(told[row[key]], abs=0.51 if "ROUND" in again else 0)


def test_keys_in_another_order_are_the_same_question(curator):
    first = curator.sql("DP-SELECT 1 clinic, month, COUNT(*) AS n, MEDIAN(fee) AS q FROM t GROUP BY 1, 2")
    again = curator.sql("DP-SELECT 1 MEDIAN(fee) AS q, month, clinic, COUNT(*) AS n FROM t GROUP BY 2, 3")
    assert again.spent == 0
    rows = {(row["clinic"], row["month"]): (row["n"], row["q"]) for row in first.table.to_pylist()}
    assert rows == {(row["clinic"], row["month"]): (row["n"], row["q"]) for row in again.table.to_pylist()}


def test_a_charge_whose_answer_is_missing_is_finished_in_its_own_order(curator, monkeypatch):
    engine = type(curator._engine)
    aggregate = engine.aggregate
    monkeypatch.setattr(engine, "aggregate", lambda *_, **__: 1 / 0)
    with pytest.raises(sf.SfumatoError):
        curator.sql("DP-SELECT 1000 clinic, month, COUNT(*) AS n, SUM(fee) AS s FROM t GROUP BY 1, 2")
    monkeypatch.setattr(engine, "aggregate", aggregate)
    text = "SUM(fee) AS s, month, clinic, COUNT(*) AS n FROM t GROUP BY 2, 3"
    answer = curator.sql(f"DP-SELECT 1000 {text}")
    assert answer.spent == 0
    again = curator.sql(f"DP-SELECT 1000 {text}")
    first = curator.sql("DP-SELECT 1000 clinic, month, COUNT(*) AS n, SUM(fee) AS s FROM t GROUP BY 1, 2")
    assert len(charges(curator)) == 1
    assert again.table.equals(answer.table)
    rows = {(row["clinic"], row["month"]): (row["n"], row["s"]) for row in first.table.to_pylist()}
    assert rows == {(row["clinic"], row["month"]): (row["n"], row["s"]) for row in answer.table.to_pylist()}
    assert rows["N", 1][0] == pytest.approx(20, abs=2)


def test_measured_groups_answer_conditions_and_sums_of_them(curator):
    groups = curator.sql("DP-SELECT 0.5 clinic, COUNT(*) AS n, SUM(fee) AS s FROM t GROUP BY clinic")
    rows = {row["clinic"]: row for row in groups.table.to_pylist()}
    one = curator.sql("DP-SELECT 0.25 COUNT(*) AS n FROM t WHERE clinic = 'N'")
    assert (one.spent, one.entries) == (0, (2,))
    assert one.table.to_pylist() == [{key: rows["N"][key] for key in ("n", "n_low", "n_high")}]
    assert "entry 2" in one.notes[0]
    assert "at most 4 records of one individual" in one.notes[1]
    total = curator.sql("DP-SELECT FREE COUNT(*) AS n, SUM(fee) AS s FROM t")
    assert total.table["n"][0].as_py() == sum(row["n"] for row in rows.values())
    assert total.table["s"][0].as_py() == pytest.approx(sum(row["s"] for row in rows.values()))
    assert (
        total.table["n_high"][0].as_py() - total.table["n"][0].as_py() > rows["N"]["n_high"] - rows["N"]["n"]
    )
    some = curator.sql(
        "DP-SELECT FREE SUM(fee) FILTER (WHERE clinic = 'S') AS s, COUNT_IF(clinic = 'H') AS h FROM t"
    )
    assert some.table["s"][0].as_py() == rows["S"]["s"]
    assert some.table["h"][0].as_py() == rows["H"]["n"]
    assert len(charges(curator)) == 1


def test_what_is_wider_than_what_is_paid_for_is_not_given(curator):
    curator.sql("DP-SELECT 0.5 clinic, COUNT(*) AS n FROM t GROUP BY clinic")
    answer = curator.sql("DP-SELECT 1 COUNT(*) AS n FROM t WHERE clinic = 'N'")
    assert (answer.spent, answer.entries) == (1, ())
    # Bounds hold over all groups of the first, so it does not measure the same.
    assert answer.notes == ("records beyond 4 per individual are not counted",)


def test_paying_more_improves(curator):
    text = "clinic, COUNT(*) AS n, AVG(fee) AS a FROM t GROUP BY clinic"
    curator.sql(f"DP-SELECT 0.5 {text}")
    second = curator.sql(f"DP-SELECT 0.6 {text}")
    assert second.spent == Fraction(3, 5)
    assert second.entries == (2, 4)
    alone = curator.sql(f"DP-SELECT FRESH 0.6 {text}")
    assert (alone.spent, alone.entries) == (0, ())
    for one, other in zip(second.table.to_pylist(), alone.table.to_pylist(), strict=True):
        assert one["n_high"] - one["n_low"] < other["n_high"] - other["n_low"]
    assert curator.sql(f"DP-SELECT 0.6 {text}").table.equals(second.table)
    assert curator.sql(f"DP-SELECT 0.7 {text}").spent == 0  # both together are as good
    assert curator.sql(f"DP-SELECT 2 {text}").spent == 2
    # What was answered stays as it is; the best of all is asked for by name.
    assert curator.sql(f"DP-SELECT 0.6 {text}").table.equals(second.table)
    best = curator.sql(f"DP-SELECT FREE {text}")
    assert (best.spent, best.entries) == (0, (2, 4, 6))


def test_free_is_never_charged(curator):
    for text in ("COUNT(*) FROM t", "clinic, month FROM t", "clinic, MEDIAN(fee) FROM t GROUP BY clinic"):
        with pytest.raises(sf.UnsupportedQuery, match="FREE"):
            curator.sql(f"DP-SELECT FREE {text}")
    assert not curator.has_ledger()
    curator.sql("DP-SELECT 1 month, COUNT(*) FROM t GROUP BY month")
    with pytest.raises(sf.UnsupportedQuery, match="nothing that was paid for"):
        curator.sql("DP-SELECT FREE COUNT(*) FROM t WHERE fee > 3")
    assert len(charges(curator)) == 1


def test_explain_offers_what_is_free_beside_the_price(curator):
    curator.sql("DP-SELECT 0.5 clinic, COUNT(*) AS n FROM t GROUP BY clinic")
    told = curator.sql("EXPLAIN DP-SELECT 2 COUNT(*) AS n FROM t WHERE clinic IN ('N', 'S')")
    assert "free         within +-32.91 from entry 2 of the ledger" in str(told)
    assert told.price.free["n"] > told.price.errors["n"]
    assert "free  " not in str(curator.sql("EXPLAIN DP-SELECT 2 COUNT(*) AS n FROM t WHERE fee > 1"))


def test_an_absolute_goal_is_reached_for_nothing_if_it_is_known(curator):
    curator.sql("DP-SELECT 2 clinic, COUNT(*) AS n FROM t GROUP BY clinic")
    assert curator.sql("DP-SELECT WITHIN 9 COUNT(*) AS n FROM t WHERE clinic IN ('N', 'S')").spent == 0
    assert curator.sql("DP-SELECT WITHIN 7 COUNT(*) AS n FROM t WHERE clinic IN ('N', 'S')").spent > 0


def test_few_groups_cut_more_and_are_given_on_request_only(tmp_path):
    curator = sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(), max_groups=2, **FACTS))
    curator.sql("DP-SELECT 0.5 clinic, COUNT(*) AS n FROM t GROUP BY clinic")
    assert curator.sql("DP-SELECT 0.25 COUNT(*) AS n FROM t WHERE clinic = 'N'").spent == Fraction(1, 4)
    free = curator.sql("DP-SELECT FREE COUNT(*) AS n FROM t WHERE clinic IN ('N', 'S')")
    assert "in at most 2 groups" in free.notes[1]


def test_other_people_get_it_for_nothing_too(curator):
    curator.sql("DP-SELECT 0.5 clinic, COUNT(*) AS n FROM t GROUP BY clinic", asked_by="ann")
    answer = curator.sql(
        "DP-SELECT 0.5 COUNT(*) AS n FROM t WHERE clinic = 'N'", asked_by="bob", at_most=Fraction(0)
    )
    assert answer.spent == 0


def test_a_changed_table_or_project_is_another_question(tmp_path):
    curator = sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(), **FACTS))
    curator.sql("DP-SELECT 0.5 clinic, COUNT(*) AS n FROM t GROUP BY clinic")
    text = "DP-SELECT FREE COUNT(*) AS n FROM t WHERE clinic = 'N'"
    assert curator.sql(text).spent == 0
    other = {**COLUMNS, "clinic": {"values": ["N", "S"], "outside": "other"}}
    changed = sf.open(write_project(tmp_path, other, **FACTS))
    with pytest.raises(sf.UnsupportedQuery):
        changed.sql(text)
    moved = sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(900), **FACTS))
    with pytest.raises(sf.UnsupportedQuery):
        moved.sql(text)


def test_neighbours_are_charged_alike_whatever_is_reused(tmp_path):
    """What is reused depends on public facts: without noise, neighbours have the same charges and shapes."""
    statements = [
        "DP-SELECT 1 clinic, COUNT(*) AS n, SUM(fee) AS s FROM t GROUP BY clinic",
        "DP-SELECT 0.5 COUNT(*) AS n FROM t WHERE clinic = 'N'",
        "DP-SELECT 2 clinic, COUNT(*) AS n FROM t GROUP BY clinic",
        "DP-SELECT 1 COUNT(*) AS n FROM t",
        "DP-SELECT FREE clinic, COUNT(*) AS n FROM t WHERE clinic IN ('S', 'H') GROUP BY clinic",
        "DP-SELECT WITHIN 30 SUM(fee) AS s FROM t WHERE clinic IN ('N', 'other')",
    ]
    told = []
    for name, rows in (("one", make_rows()), ("two", make_rows().filter(pa.array(np.arange(1200) > 2)))):
        folder = tmp_path / name
        folder.mkdir()
        project = read_project(write_project(folder, COLUMNS, rows=rows, **FACTS))
        curator = Curator(project, noise=RecordingNoise())
        answers = [curator.sql(text) for text in statements]
        told.append([(each.spent, each.entries, each.table.shape, each.notes) for each in answers])
    assert told[0] == told[1]
    assert [spent > 0 for spent, *_ in told[0]] == [True, False, True, True, False, True]


def test_a_plan_that_grows_is_looked_at():
    """A new field of a plan may change what is asked; whoever adds one decides here what it means."""
    known = {*question._FINISHING, *question._ASKED}
    assert {each.name for each in fields(QueryPlan)} == known
    assert {each.name for each in fields(Relation)} == {
        "rows",
        "fields",
        "described",
        "shape",
        "unit",
        "chosen",
        "listed",  # it decides the labels of keys, which a question has
    }
    assert {each.name for each in fields(Key)} == {"node", "tree", "labels", "type"}
    plain = {
        "statistic",
        "tree",
        "low",
        "high",
        "centre",
        "grid",
        "quantile",
        "steps",
        "whole",
        "is_number",
        "labels",
        "chosen",
    }
    by_text = {"numbered", "private", "edges", "parts", "clip"}  # found again by their text alone
    assert {each.name for each in fields(Measure)} == {*plain, *by_text}


@pytest.mark.parametrize(("scale", "count"), [(0.7, 2), (3.0, 3), (10.0, 40)])
def test_sums_of_discrete_noise_stay_within_their_width(scale, count):
    """Of 40,000 sums, so that 5 % and five standard deviations more are one alarm in millions."""
    random = np.random.default_rng(3)
    draws = 40_000
    q = np.exp(-1 / scale)
    noise = (random.geometric(1 - q, (draws, count)) - random.geometric(1 - q, (draws, count))).sum(axis=1)
    (width,) = part_widths((NoisePart(LAPLACE, scale, (count,)),), 0.0, 0.05)
    misses = float(np.mean(np.abs(noise) > np.ceil(width)))
    assert misses < 0.05 + 5 * np.sqrt(0.05 / draws)
    assert misses > 0.02 or scale < 1
    # A weighted mean of two lattices.
    other = random.geometric(1 - q**2, (draws, 2))
    mean = 0.3 * noise + 0.7 * (other[:, 0] - other[:, 1])
    parts = (
        NoisePart(LAPLACE, 0.3 * scale, (count,)),
        NoisePart(LAPLACE, 0.35 * scale, (1,)),
    )
    (width,) = part_widths(parts, 1.5, 0.05)
    assert float(np.mean(np.abs(np.rint(mean)) > width)) < 0.05 + 5 * np.sqrt(0.05 / draws)


def test_widths_of_known_laws():
    assert sum_width(((LAPLACE, 2.0, 1),), 0.05) == pytest.approx(2 * np.log(20))
    width = sum_width(((LAPLACE, 1.0, 2),), 0.05)
    assert (1 + width / 2) * np.exp(-width) == pytest.approx(0.05, rel=1e-3)
    assert sum_width(((GAUSSIAN, 3.0, 4),), 0.05) == pytest.approx(6 * 1.959964, rel=1e-6)
    # Rare misses by Chernoff's bound, which is never below the law.
    assert sum_width(((LAPLACE, 1.0, 2),), 1e-5) > sum_width(((LAPLACE, 1.0, 2),), 1.1e-4)


def test_noise_of_sums_that_is_said_to_be_that_of_one_is_noticed(curator, monkeypatch):
    add = reuse._sum_noise
    monkeypatch.setattr(
        reuse,
        "_sum_noise",
        lambda noise, sources, counts, **more: add(noise, sources, counts * 0 + 1, **more),
    )
    with pytest.raises(AssertionError):
        test_measured_groups_answer_conditions_and_sums_of_them(curator)


def test_an_answer_of_another_version_would_be_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Desk, "_version", lambda *_: "any")
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_changed_table_or_project_is_another_question(tmp_path)


def test_values_of_another_entry_would_be_noticed(curator, monkeypatch):
    load = statements.load_earlier

    def load_another(entry, plan, question, ledger):
        found = load(entry, plan, question, ledger)
        return replace(found, load=lambda: replace(found.load(), values=found.load().values[::-1]))

    monkeypatch.setattr(statements, "load_earlier", load_another)
    with pytest.raises(AssertionError):
        test_measured_groups_answer_conditions_and_sums_of_them(curator)


SHAPES = [
    "COUNT(*) AS n FROM t",
    "COUNT(*) AS n FROM t WHERE clinic = 'N'",
    "COUNT(*) AS n FROM t WHERE clinic = 'N' AND month >= 3 AND month < 7",
    "COUNT(*) FILTER (WHERE clinic = 'N') AS n FROM t WHERE fee > 20",
    "COUNT(*) FILTER (WHERE clinic = 'N' AND month = 3) AS n, SUM(fee) AS s FROM t",
    "COUNT_IF(fee > 30) AS n FROM t WHERE fee > 20",
    "COUNT(*) AS n FROM t WHERE fee > 30",
    "COUNT(*) AS n FROM t WHERE fee > 30 AND month IN (1, 2)",
    "SUM(fee) AS s FROM t WHERE month IN (1, 2)",
    "AVG(fee) AS s FROM t",
    "clinic, COUNT(*) AS n, AVG(fee) AS a FROM t GROUP BY clinic",
    "clinic, COUNT(*) AS n FROM t WHERE fee > 20 GROUP BY clinic",
    "clinic, COUNT(*) AS n FROM t WHERE month = 3 GROUP BY clinic",
    "month, SUM(fee) AS s FROM t GROUP BY month",
    "month, COUNT(*) AS n FROM t WHERE clinic = 'N' GROUP BY month",
    "month, COUNT(*) AS n FROM t WHERE clinic IN ('N', 'S') AND month > 2 GROUP BY month",
    "clinic, month, COUNT(*) AS n FROM t GROUP BY clinic, month",
    "clinic, month, COUNT(*) AS n FROM t WHERE fee > 20 GROUP BY clinic, month",
    "clinic, month, AVG(fee) AS a FROM t WHERE month > 2 GROUP BY month, clinic",
    "month < 4 AS early, COUNT(*) AS n FROM t GROUP BY early",
    "CASE WHEN clinic = 'N' THEN 'a' ELSE 'b' END AS k, COUNT(*) AS n FROM t GROUP BY k",
    "CASE WHEN fee > 20 THEN 'a' ELSE 'b' END AS k, COUNT(*) AS n FROM t WHERE month = 3 GROUP BY k",
    "fee > 20 AS k, COUNT(*) AS n FROM t GROUP BY k",
    "COUNT(DISTINCT p) AS people FROM t WHERE month = 3",
    "month, COUNT(DISTINCT p) AS people FROM t GROUP BY month",
    "month, MEDIAN(fee) AS q FROM t WHERE clinic = 'N' GROUP BY month",
    "MEDIAN(fee) AS q FROM t WHERE clinic = 'N' AND month = 3",
]


@pytest.mark.parametrize("unit", ["p", "row"])
def test_the_index_of_stored_answers_leaves_none_out_that_helps(tmp_path, monkeypatch, unit):
    facts = FACTS | ({"unit": "row", "max_records": 1} if unit == "row" else {})
    curator = sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(60), **facts))
    for each in SHAPES:
        curator.sql(f"DP-SELECT FRESH 1 {each}")
    linked = []

    def derive(plan, question, known, **given):
        linked.append({each.entry for each in known if each.link(plan, question)})
        # What is fitted to sums of its groups takes the same quantity alone.
        for each in known:
            links = each.link(plan, question, finer=True).values()
            linked[-1] |= {each.entry for link in links if link.same}

    def find_all(self, ledger, question, *, rows, version, before):
        with ledger.look_up() as index:
            places = {place for label in index.list_labels("? ") for place in index.find(label)}
            return [index.read(sequence) for _, sequence in sorted(places, reverse=True)]

    monkeypatch.setattr(reuse, "derive_answer", derive)
    for each in SHAPES:
        curator.sql(f"EXPLAIN DP-SELECT 2 {each}")
    found, linked[:] = list(linked), []
    monkeypatch.setattr(StoredQuestions, "find", find_all)
    for each in SHAPES:
        curator.sql(f"EXPLAIN DP-SELECT 2 {each}")
    assert found == linked
    assert sum(map(len, found)) > len(SHAPES)


def test_a_new_statement_looks_at_no_answer_that_cannot_help(curator, monkeypatch):
    for number in range(20):
        curator.sql(f"DP-SELECT FRESH 1 clinic, COUNT(*) AS n FROM t WHERE fee > {number} GROUP BY clinic")
    looked, linked = [], reuse.link_measures
    monkeypatch.setattr(reuse, "link_measures", lambda *given: looked.append(1) or linked(*given))
    again = sf.open(curator.ledger_path.with_name("sfumato.toml"))
    for one in (curator, again):
        one.sql("DP-SELECT 1 clinic, COUNT(*) AS n FROM t WHERE fee > 40 AND month = 3 GROUP BY clinic")
        one.sql("DP-SELECT 2 SUM(fee) AS s FROM t WHERE clinic = 'N'")
    assert looked == []
    assert curator.sql("DP-SELECT 0.5 COUNT(*) AS n FROM t WHERE clinic = 'N' AND fee > 3").spent == 0
    assert len(looked) == 1


LOADED = """
import sys

import sfumato as sf

sf.open(sys.argv[1]).sql("DP-SELECT 0.5 clinic, COUNT(*) FROM t GROUP BY clinic")
print(*(name for name in sys.modules if name.partition(".")[0] == "sfumato"))
"""


def test_a_first_statement_loads_nothing_of_reuse_workloads_recipes_and_releases(tmp_path):
    project = write_project(tmp_path, COLUMNS, rows=make_rows(60), **FACTS)
    run = [sys.executable, "-c", LOADED, str(project)]
    environment = {**os.environ, "PYTHONPATH": str(Path(sf.__file__).parents[1])}
    found = subprocess.run(run, check=True, capture_output=True, text=True, env=environment).stdout.split()
    rest = (
        "sfumato.inference",
        "sfumato.recipes",
        "sfumato.release",
        "sfumato.sql.reuse",
    )
    assert [name for name in found if name.startswith(rest)] == []
    assert len(found) <= 100
