"""Workloads: statements planned together cost what was said, and err as was expected."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.accounting import Cost, Ledger, admits
from sfumato.core.facts.part import Window
from sfumato.curator.workload import divide_epsilon

COLUMNS = {
    "clinic": {"values": ["N", "S", "H"]},
    "kind": {"values": ["a", "b"], "outside": "other"},
    "fee": {"bounds": [0, 100]},
    "day": {"range": ["2025-01-01", "2025-12-31"]},
}
STATEMENTS = [
    "SELECT COUNT(*) AS n FROM t",
    "SELECT clinic, COUNT(*) AS n FROM t GROUP BY clinic",
    "SELECT COUNT(*) AS n FROM t WHERE clinic = 'N'",
    "SELECT clinic, kind, COUNT(*) AS n, AVG(fee) AS a FROM t GROUP BY clinic, kind ORDER BY n DESC",
    "SELECT AVG(fee) AS a FROM t AS v WHERE v.clinic = 'S'",
    "SELECT COUNT_IF(fee > 50) AS n, COUNT(*) AS m FROM t",
    "SELECT kind, COUNT(*) AS n FROM t WHERE fee > 50 GROUP BY kind",
    "SELECT DATE_TRUNC('month', day) AS m, COUNT(*) AS n FROM t GROUP BY m",
    "SELECT COUNT(*) AS n FROM t WHERE day >= '2025-04-01' AND day < '2025-07-01'",
    "SELECT MEDIAN(fee) AS q FROM t",
]


def make_rows(count=1500):
    places = np.arange(count)
    days = np.datetime64("2024-12-20") + places * 7 % 380
    return pa.table(
        {
            "p": places % 700,
            "clinic": pa.array(["N", "S", "H", "X", None][i * 3 % 5] for i in range(count)),
            "kind": pa.array(["a", "b", "c"][i % 3] for i in range(count)),
            "fee": pa.array(None if i % 11 == 0 else float(i * 37 % 100) for i in range(count)),
            "day": pa.array(days.astype("datetime64[D]")),
        }
    )


@pytest.fixture
def curator(tmp_path):
    facts = {"unit": "p", "max_records": 40, "epsilon": 10**9, "delta": 1e-6}
    return sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(), **facts))


def test_planning_spends_nothing_and_says_what_to_expect(curator):
    workload = curator.sql_workload(STATEMENTS, epsilon=1)
    assert not curator.has_ledger()
    assert sum(each.epsilon for each in workload.purchases) <= 1
    assert sum(each.epsilon for each in workload.purchases) > Fraction(999, 1000)
    assert len(workload.purchases) < len(STATEMENTS)
    assert workload.improvement > 1.5
    assert {number for each in workload.purchases for number in each.serves} == set(range(len(STATEMENTS)))
    # A plan is never worse, on the whole, than what it is compared with.
    ratios = [1 / each.variance_ratio for each in workload.statements]
    assert np.mean(ratios) == pytest.approx(1 / workload.improvement)
    assert "one by one" in str(workload)
    # What is bought is told in words of the statements, not in those that are sent.
    assert "t0" not in str(workload)
    assert "(else)" not in str(workload)
    assert all(each.about for each in workload.purchases)
    assert len(workload.to_record()["statements"]) == len(STATEMENTS)


def test_what_is_bought_answers_all_of_them(curator):
    """At an epsilon so large that noise is gone, the answers are those of asking one by one."""
    much = 10**6
    workload = curator.sql_workload(STATEMENTS, epsilon=much)
    answers = workload.buy()
    assert sum(answer.spent for answer in answers) <= much
    assert float(curator.budget().spent) <= much
    before = len(curator.budget().entries)
    for text, answer in zip(STATEMENTS, answers, strict=True):
        alone = curator.sql(f"DP-SELECT FRESH {much} {text[7:]}")
        assert answer.table.column_names == alone.table.column_names
        for name in answer.table.column_names:
            if f"{name}_low" in answer.table.column_names:
                one, other = (sorted(each.table[name].to_pylist()) for each in (answer, alone))
                assert one == pytest.approx(other, abs=0.2), text
    assert len(curator.budget().entries) > before
    # Bought again, it is what was stored.
    spent = curator.budget().spent
    again = curator.sql_workload(STATEMENTS, epsilon=much).buy()
    assert curator.budget().spent == spent
    assert [each.spent for each in again] == [0] * len(STATEMENTS)


def test_what_does_not_fit_is_refused_before_the_first_charge(tmp_path):
    curator = sf.open(write_project(tmp_path, COLUMNS, rows=make_rows(), unit="p", max_records=5, epsilon=1))
    workload = curator.sql_workload(STATEMENTS, epsilon=2)
    assert not workload.admitted
    with pytest.raises(sf.BudgetExceeded, match="nothing was spent"):
        workload.buy()
    assert curator.budget().spent == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("DP-SELECT 1 COUNT(*) FROM t", "plain SELECT"),
        ("SELECT clinic, kind FROM t", "aggregates private tables"),
        ("SELECT COUNT(x) FROM t", "no column"),
    ],
)
def test_what_is_no_part_of_a_workload_is_refused(curator, text, words):
    with pytest.raises(sf.UnsupportedQuery, match=f"^statement 2 of the workload: .*{words}"):
        curator.sql_workload([STATEMENTS[0], text], epsilon=1)
    with pytest.raises(sf.UnsupportedQuery, match="at least one"):
        curator.sql_workload([], epsilon=1)
    assert not curator.has_ledger()


def test_epsilon_is_divided_by_the_cube_roots_of_losses():
    class Lost:
        def __init__(self, loss):
            self.loss = loss

    shares = divide_epsilon([Lost(1.0), Lost(8.0)], Fraction(3))
    assert [float(share) for share in shares] == pytest.approx([1, 2], rel=1e-4)
    assert sum(shares) <= 3
    least = sum(loss / float(share) ** 2 for loss, share in zip((1, 8), shares, strict=True))
    for other in (0.8, 1.2):
        assert 1 / other**2 + 8 / (3 - other) ** 2 > least


def test_sums_that_follow_from_a_mean_alone_are_found(curator):
    """A sum about another centre has another text; what was paid for must be found all the same."""
    statements = [
        "SELECT SUM(fee) AS s FROM t",
        "SELECT AVG(fee) AS a FROM t",
        "SELECT COUNT(fee) AS n FROM t",
    ]
    workload = curator.sql_workload(statements, epsilon=10**6)
    assert len(workload.purchases) == 1
    total, mean, count = (answer.table.column(0)[0].as_py() for answer in workload.buy())
    assert total == pytest.approx(mean * count, rel=1e-3)


def test_what_is_expected_looks_at_every_period_that_a_ledger_was_charged_for(tmp_path):
    (tmp_path / "t.csv").write_text("name,kind\n" + "x,a\ny,b\n" * 50)
    curator = sf.open(
        write_project(tmp_path, {"kind": {"values": ["a", "b"]}}, source="t.csv", epsilon=3, delta=1e-6)
    )
    text = "name, COUNT(*) AS n FROM t GROUP BY name"
    costs = curator.sql(f"EXPLAIN DP-SELECT 0.5 DELTA 2e-8 {text}").price.costs
    (chosen,) = (cost for cost in costs if cost.kind == "selection")
    ledger = Ledger(curator.ledger_path, curator.budget().budget)
    # The first period has least left of epsilon, the second of what labels may fail with.
    for period, cost in (
        ("a", Cost(kind="pure", scale=Fraction(2), unit="row")),
        ("b", replace(chosen, delta=Fraction(498, 10**10))),
    ):
        ledger.charge(
            description={}, plan_digest=period, table="t", table_version="v", costs=(cost,),
            window=Window(axis="month of t: 1", periods=frozenset(period)),
        )  # fmt: skip
    report = curator.budget()
    assert report.beside
    assert admits(report.budget, report.sums, costs)
    price = curator.sql(f"EXPLAIN DP-SELECT 0.5 DELTA 2e-8 {text}").price
    assert not price.admitted
    assert curator.sql("EXPLAIN DP-SELECT 0.5 COUNT(*) FROM t").price.admitted
    assert not curator.sql_workload([f"SELECT {text}"], epsilon=0.5, delta=2e-8).admitted
    with pytest.raises(sf.BudgetExceeded):
        curator.sql(f"DP-SELECT 0.5 DELTA 2e-8 {text}")
