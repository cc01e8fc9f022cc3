"""What is answered so far of a charge: kept beside the chain, heard once, gone with the answer."""

import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger, find_store
from sfumato.core.errors import LedgerError

PLAN = {"plan_digest": "p", "table_version": "v"}


only_file = pytest.mark.parametrize("path", ["file"], indirect=True)


@pytest.fixture
def ledger(path):
    return Ledger(path, Budget(1))


def charge(ledger, *, resumable=True, **facts):
    cost = Cost(kind="pure", scale=Fraction(1, 10))
    named = {"plan_digest": "p", "table_version": "v", **facts}
    return ledger.charge(description={}, table="t", costs=(cost,), resumable=resumable, **named)


def tables(ledger):
    with closing(sqlite3.connect(ledger.path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def execute(ledger, statement):
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute(statement)
        connection.commit()


def test_progress_grows_and_goes_with_the_answer(ledger):
    entry = charge(ledger)
    assert ledger.find_progress(**PLAN) == (entry, b"")
    ledger.store_progress(entry, b"one", after=b"")
    ledger.store_progress(entry, b"one two", after=b"one")
    assert Ledger(ledger.path).find_progress(**PLAN) == (entry, b"one two")
    ledger.store_answer(entry, b"one two", after=b"one two")
    assert ledger.find_progress(**PLAN) is None
    assert ledger.find_answer(**PLAN) == (entry, b"one two")
    with find_store(ledger.path).open(timeout=5, write=False) as session:
        assert session.run("SELECT count(*) FROM progress") == [(0,)]
    ledger.verify()


def test_a_charge_that_cannot_be_resumed_has_no_progress(ledger):
    entry = charge(ledger, resumable=False)
    assert ledger.find_progress(**PLAN) is None
    ledger.store_answer(entry, b"answer")
    Ledger(ledger.path).verify()
    Ledger.read_only(ledger.path).verify()


def test_progress_is_found_by_its_plan_and_version_only(ledger):
    charge(ledger)
    assert ledger.find_progress(plan_digest="q", table_version="v") is None
    assert ledger.find_progress(plan_digest="p", table_version="w") is None
    assert Ledger.read_only(ledger.path).find_progress(**PLAN) is not None


def test_a_charge_may_be_made_resumable_by_its_first_progress(ledger):
    entry = charge(ledger, resumable=False)
    ledger.store_progress(entry, b"one", after=None)
    assert ledger.find_progress(**PLAN) == (entry, b"one")


def test_only_one_of_two_is_heard(ledger):
    entry = charge(ledger)
    ledger.store_progress(entry, b"mine", after=b"")
    ledger.store_progress(entry, b"mine", after=b"")
    for store in (ledger.store_progress, ledger.store_answer):
        for after in (b"", None, b"yours"):
            with pytest.raises(LedgerError, match="another process"):
                store(entry, b"yours", after=after)
    assert ledger.find_progress(**PLAN) == (entry, b"mine")


def test_an_answered_charge_takes_no_progress(ledger):
    entry = charge(ledger)
    ledger.store_answer(entry, b"answer", after=b"")
    with pytest.raises(LedgerError, match="already has an answer"):
        ledger.store_progress(entry, b"more", after=b"")


def test_progress_needs_a_charge_of_this_ledger(ledger, tmp_path):
    other = charge(Ledger(tmp_path / "other", Budget(1)))
    with pytest.raises(LedgerError, match="no such charge"):
        ledger.store_progress(other, b"one", after=None)
    with pytest.raises(LedgerError, match="reading only"):
        Ledger.read_only(ledger.path).store_progress(other, b"one", after=None)


@only_file
def test_edited_progress_counts_as_none(ledger):
    entry = charge(ledger)
    ledger.store_progress(entry, b"one", after=b"")
    execute(ledger, "UPDATE progress SET payload = x'00'")
    assert ledger.find_progress(**PLAN) is None
    ledger.verify()


@only_file
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER refund AFTER INSERT ON progress BEGIN DELETE FROM entries; END",
        "ALTER TABLE progress ADD COLUMN note TEXT",
        "CREATE TABLE more (note TEXT)",
    ],
)
def test_a_changed_layout_is_still_refused(ledger, statement):
    charge(ledger)
    execute(ledger, statement)
    with pytest.raises(LedgerError, match="tables were changed"):
        Ledger(ledger.path)
