"""Ledgers of earlier versions: they open, verify, and go on under the rule they were opened with."""

import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.errors import BudgetExceeded, LedgerError

FIXTURES = Path(__file__).parent / "fixtures"
HEADS = {
    "zcdp": ("0.957717", "667d0f1c8133c62152e10ee1140151e440754319913bd3edfd20656aa9bf5d51"),
    "gaussian": ("0.798548", "74e6d2f3ef00da29dd9621fba5520d48f19dd658739d95d9c43d3959b6212d63"),
}


@pytest.fixture(params=["zcdp", "gaussian"])
def old(request, tmp_path):
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript((FIXTURES / f"{request.param}.sql").read_text())
    connection.close()
    return request.param, path


def _charge(ledger, plan, *costs):
    return ledger.charge(
        description={"recipe": {}}, plan_digest=plan, table="residents", table_version="v1", costs=costs
    )


def test_it_verifies_with_the_hashes_and_sums_it_had(old):
    name, path = old
    ledger = Ledger(path)
    left, head = HEADS[name]
    assert ledger.verify() == head
    report = ledger.report()
    assert report.left == Fraction(left)
    assert report.budget == Budget(5, "1e-6", accounting=name)
    assert Ledger.read_only(path).verify(anchor=head) == head
    assert ledger.find_answer(plan_digest="p2", table_version="v1")[1] == b"noisy two"
    assert ledger.find_progress(plan_digest="p3", table_version="v1")[1] == b"first batch"


def test_it_goes_on_under_its_own_rule(old):
    name, path = old
    # A project file says nothing about the rule any more.
    ledger = Ledger(path, Budget(5, "1e-6"))
    assert ledger.budget.accounting == name
    entry = _charge(ledger, "p5", Cost(kind="laplace", scale=Fraction(20), unit="person"))
    ledger.store_answer(entry, b"noisy three")
    # Both rules read this as more than is left; one that has them all would admit it.
    with pytest.raises(BudgetExceeded):
        _charge(ledger, "p6", Cost(kind="pure", scale=Fraction(5, 2), unit="person"))
    assert Ledger(path, Budget(5, "1e-6")).verify(anchor=HEADS[name][1]) == ledger.verify()


def test_its_budget_changes_within_its_own_rule(old):
    name, path = old
    with pytest.raises(LedgerError, match="was opened with"):
        Ledger(path, Budget(6, "1e-6"))
    ledger = Ledger(path)
    with pytest.raises(LedgerError, match="cannot change"):
        ledger.change_budget(Budget(6, "1e-6"))
    ledger.change_budget(Budget(6, "1e-6").under(name))
    assert Ledger(path, Budget(6, "1e-6")).budget == Budget(6, "1e-6", accounting=name)


def test_a_reserve_that_was_written_down_is_still_recognised(tmp_path):
    path = tmp_path / "ledger.db"
    budget = Budget(1, "1e-6", accounting="zcdp", selection="5e-8")
    Ledger(path, budget)
    assert Ledger(path, Budget(1, "1e-6", selection="5e-8")).budget == budget
    with pytest.raises(LedgerError, match="was opened with"):
        Ledger(path, Budget(1, "1e-6", selection="6e-8"))
