"""Second tests of what must be right in the core: each fails for one planted fault of tests/mutants."""

import hashlib
from fractions import Fraction
from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.drawn import watch_draws
from helpers.projects import open_rows, write_project
from sfumato.accounting import Budget, Cost, Ledger, Spent, add_costs
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import BudgetExceeded, LedgerError
from sfumato.core.facts.part import Window
from sfumato.core.facts.table import parse_table
from sfumato.core.law import Law
from sfumato.core.noise.samplers import draw_wide
from sfumato.core.questions.measurement import Request, request_sensitivity
from sfumato.core.questions.moments import SCORE_GRID, Moments
from sfumato.core.questions.question import Queries
from sfumato.core.questions.residuals import Outcomes, Scorer, Term


def draw_exactly(curator, statement):
    """The exact values behind a statement, one list for each draw of noise."""
    with watch_draws() as charges:
        curator.sql(statement)
    return [draw.true_values.tolist() for charge in charges for draw in charge.draws]


def charge(ledger, epsilon, *, months=None, asked_by=None):
    return ledger.charge(
        description={},
        plan_digest="p",
        table="t",
        table_version="v",
        costs=(Cost(kind="pure", scale=Fraction(epsilon)),),
        asked_by=asked_by,
        window=None if months is None else Window(axis="month of t: 1", periods=frozenset(months)),
    )


# Costs and the ledger.


def test_gaussian_parameters_of_one_charge_and_of_many_add_up():
    costs = [Cost(kind="gaussian", scale=Fraction(each)) for each in (5, 7, 9)]
    total = sum(each.mu_squared for each in costs)
    assert add_costs(Spent(), costs).mu_squared == total
    spent = Spent()
    for each in costs:
        spent = add_costs(spent, [each])
    assert spent.mu_squared == total


@pytest.mark.parametrize("order", list(permutations("abc")), ids="".join)
def test_a_window_is_refused_for_its_fullest_period_wherever_that_stands(tmp_path, order):
    ledger = Ledger(tmp_path / "ledger.db", Budget(1))
    for month, epsilon in zip(order, ("0.2", "0.9", "0.3"), strict=True):
        charge(ledger, epsilon, months=month)
    with pytest.raises(BudgetExceeded):
        charge(ledger, "0.5", months="abc")
    charge(ledger, "0.5", months=set("abc") - {order[1]})


def test_a_share_that_is_set_late_is_filled_by_what_was_spent_before(tmp_path):
    path = tmp_path / "ledger.db"
    charge(Ledger(path, Budget(9)), "0.7", asked_by="ana")
    Ledger(path).set_share("ana", 1)
    assert Ledger(path).report_share("ana").left == Fraction(3, 10)
    with pytest.raises(BudgetExceeded):
        charge(Ledger(path), "0.4", asked_by="ana")
    charge(Ledger(path), "0.3", asked_by="ana")


def test_of_two_who_answer_one_charge_the_first_is_heard(tmp_path):
    path = tmp_path / "ledger.db"
    entry = charge(Ledger(path, Budget(9)), 1)
    first, second = Ledger(path), Ledger(path)
    first.store_answer(entry, b"noisy")
    with pytest.raises(LedgerError, match="already has another answer"):
        second.store_answer(entry, b"drawn again")
    second.store_answer(entry, b"noisy")
    assert second.find_answer(plan_digest="p", table_version="v") == (entry, b"noisy")
    assert [each.kind for each in second.entries()] == ["open", "charge", "answer"]


# Noise and sensitivities.


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_zero_comes_as_often_as_its_law_says_where_blocks_are_drawn(kind, seeded):
    law, places = Law(kind, Fraction(64)), np.arange(-2000.0, 2001.0)
    weights = np.exp(-np.abs(places) / 64 if kind == "laplace" else -(places**2) / (2 * 64**2))
    drawn = np.empty(200_000, np.int64)
    draw_wide(law, drawn, seeded(5), block_bits=3)
    chance = 1 / weights.sum()
    expected, deviation = chance * drawn.size, np.sqrt(chance * drawn.size)
    assert abs(np.count_nonzero(drawn == 0) - expected) < 6 * deviation


def outcomes(**more):
    term = Term(columns=("a",), scores=np.array([-5, 0, 5]))
    scorer = Scorer(intercept=0, terms=(term,))
    facts = {"target": "b", "targets": np.array([0, 1]), "scorers": (scorer,), "edges": np.array([-1, 1])}
    return Outcomes(columns=("a", "b"), **facts, **more)


def describe(**facts):
    columns = {"a": {"range": [0, 2]}, "b": {"range": [0, 1]}}
    return parse_table("t", {"source": "t.parquet", "unit": "p", "columns": columns, **facts})


@pytest.mark.parametrize("sign", [-1, 1])
def test_no_two_who_are_exchanged_differ_in_outcomes_by_more_than_the_sensitivity(sign):
    """Whatever the weights of the cells: opposite ones add up, equal ones are two sides of a triangle."""
    table = describe(max_records=2, neighbours="replace")
    answers = np.array([[6, 8 * sign], [8, 6 * sign], [10, 0], [0, 10], [-6 if sign < 0 else 6, 8], [0, 10]])
    queries = Queries(
        cells=6,
        grid=10,
        starts=np.array([0, 6, 12]),
        members=np.tile(np.arange(6), 2),
        weights=answers.T.ravel(),
    )
    request = Request(name="o", counted=outcomes(queries=queries), noise="gaussian", scale=1)
    furthest = max(2 * np.linalg.norm(one - other) for one in answers for other in answers)
    assert furthest <= float(request_sensitivity(table, request)) * (1 + 1e-12)
    assert sign > 0 or furthest > 1.6 * 20


# What is counted of one individual.


def count(folder, people, question, table):
    """The exact answer about records with these people, spread over all cells."""
    number = np.arange(len(people))
    rows = {"p": people, "a": number % 3, "b": number % 2}
    pq.write_table(
        pa.table({n: pa.array(each, pa.int64()) for n, each in rows.items()}), folder / "t.parquet"
    )
    (counts,) = StatementEngine(folder).count(table, (question,), progress=lambda _: None)
    return counts.true_values


def test_ten_weighed_records_of_one_add_no_more_outcomes_than_two(tmp_path):
    table = describe(bounding="weight", max_records=2)
    whole = count(tmp_path, [9] * 2, outcomes(), table).sum()
    assert 0.9 * whole < count(tmp_path, [9] * 10, outcomes(), table).sum() <= whole


@pytest.mark.parametrize("order", [1, 2])
def test_records_too_light_for_the_grid_of_moments_leave_sums_as_they_were(tmp_path, order):
    table = describe(bounding="weight", max_records=2)
    question = Moments(columns=("a",), scores=(np.array([[-SCORE_GRID], [0], [SCORE_GRID]]),), order=order)
    without = count(tmp_path, [1, 2], question, table)
    assert count(tmp_path, [1, 2] + [9] * 3000, question, table).tolist() == without.tolist()
    assert count(tmp_path, [1, 2] + [9] * 2, question, table).tolist() != without.tolist()


# Their hashes beside person 0 agree in 42 bits, and the larger number has the smaller hash.
ALIKE = [14137914, 8939334]


@pytest.mark.parametrize("others", [1, 50, 2000])
def test_which_record_of_one_counts_does_not_depend_on_how_many_others_there_are(tmp_path, others):
    people = [0, 0, *(each for each in range(1, others) for _ in range(2))]
    rows = {"p": pa.array(people, pa.int32()), "x": pa.array(ALIKE + [0] * (len(people) - 2), pa.int64())}
    curator = open_rows(tmp_path, {"x": {"bounds": [0, 2**24]}}, rows, unit="p", max_records=1)
    assert draw_exactly(curator, "DP-SELECT 1 SUM(x) FROM t") == [[max(ALIKE)]]


@pytest.mark.parametrize("statement", ["COUNT(DISTINCT p)", "COUNT(*)"])
def test_who_is_named_as_the_digest_of_another_is_counted_beside_that_one(tmp_path, statement):
    long = "x" * 200
    digest = f"sha256 {hashlib.sha256(long.encode()).hexdigest()}"
    curator = open_rows(tmp_path, {}, {"p": [long, digest]}, unit="p", max_records=1, text_limit=100)
    assert draw_exactly(curator, f"DP-SELECT 1 {statement} FROM t") == [[2]]


def test_a_release_counts_person_1_of_month_12_beside_person_11_of_month_2(tmp_path):
    rows = pa.table({"p": [1, 11], "m": [12, 2]})
    facts = {"unit": ["p", "m"], "max_records": 1, "epsilon": 9}
    curator = sf.open(write_project(tmp_path, {"m": {"range": [1, 12]}}, rows=rows, **facts))
    with watch_draws() as charges:
        curator.release(sf.recipes.CellCounts(table="t", by=("m",)), epsilon=1)
    ((drawn,),) = (each.draws for each in charges)
    assert np.flatnonzero(drawn.true_values).tolist() == [1, 11]
