"""The file of a ledger: how it is opened and what it promises about the disk."""

import os
import sqlite3
from contextlib import closing
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.errors import LedgerError
from sfumato.core.ledger.store import FileStore


def test_every_connection_syncs_the_log_at_each_commit(tmp_path):
    ledger = Ledger(tmp_path / "l", Budget(1))
    with FileStore(ledger.path).open(timeout=1, write=True) as session:
        connection = session.connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.in_transaction


def test_an_error_inside_rolls_back(tmp_path):
    ledger = Ledger(tmp_path / "l", Budget(1))

    def interrupted():
        with FileStore(ledger.path).open(timeout=1, write=True) as session:
            session.run("DELETE FROM entries")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    ledger.verify()


def test_a_second_creator_leaves_the_first_store_alone(tmp_path):
    ledger = Ledger(tmp_path / "l", Budget(1))
    (first,) = ledger.entries()
    before = ledger.path.read_bytes()
    FileStore(ledger.path).create(secret=bytes(32), first=first, timeout=1)
    assert ledger.path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [ledger.path, tmp_path / "l.key"]


def test_a_reader_cannot_write(tmp_path):
    ledger = Ledger(tmp_path / "l", Budget(1))
    with (
        pytest.raises(LedgerError, match="cannot be written"),
        FileStore(ledger.path).open(timeout=1, write=False, read_only=True) as session,
    ):
        session.run("DELETE FROM entries")


def test_a_second_name_of_the_file_is_refused(tmp_path):
    ledger = Ledger(tmp_path / "one.db", Budget(1))
    os.link(tmp_path / "one.db", tmp_path / "two.db")
    for name in ("one.db", "two.db"):
        with pytest.raises(LedgerError, match="second name"):
            Ledger(tmp_path / name, Budget(1))
    (tmp_path / "two.db").unlink()
    assert ledger.report().left == 1


def test_an_open_ledger_notices_that_its_end_was_cut(tmp_path):
    ledger = Ledger(tmp_path / "one.db", Budget(1))
    cost = Cost(kind="pure", scale=Fraction(1, 2))
    ledger.charge(description={}, plan_digest="p", table="t", table_version="v", costs=(cost,))
    assert ledger.report().left == Fraction(1, 2)
    with closing(sqlite3.connect(tmp_path / "one.db")) as connection:
        connection.execute("DELETE FROM entries WHERE sequence > 1")
        connection.commit()
    with pytest.raises(LedgerError, match="are gone"):
        ledger.charge(description={}, plan_digest="q", table="t", table_version="v", costs=(cost,))
