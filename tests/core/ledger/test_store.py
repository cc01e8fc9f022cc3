"""The file of a ledger: how it is opened and what it promises about the disk."""

import os
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction

import pyarrow as pa
import pytest
from tests.helpers.projects import write_project

import sfumato as sf
from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.errors import LedgerError
from sfumato.core.ledger.store import FileStore

HALF = Cost(kind="pure", scale=Fraction(1, 2))


def charge(ledger, name="p"):
    return ledger.charge(description={}, plan_digest=name, table="t", table_version="v", costs=(HALF,))


@pytest.fixture
def opened(monkeypatch):
    """The files that SQLite is asked to open."""
    found, connect = [], sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda place, **options: found.append(place) or connect(place, **options)
    )
    return found


def test_every_connection_syncs_the_log_at_each_commit(tmp_path):
    ledger = Ledger(tmp_path / "l", Budget(1))
    with FileStore(ledger.path).open(timeout=1, write=True) as session:
        connection = session.connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
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


def test_a_statement_opens_the_ledger_once_and_the_next_one_not_at_all(tmp_path, opened):
    rows = pa.table({"a": [1, 3]})
    curator = sf.open(write_project(tmp_path, {"a": {"range": [1, 3]}}, rows=rows))
    Ledger(tmp_path / "elsewhere", Budget(20))
    (tmp_path / "elsewhere").rename(tmp_path / "ledger.db")
    opened.clear()
    curator.sql("DP-SELECT 1 COUNT(*), a FROM t GROUP BY a")
    assert len(opened) == 1
    curator.sql("DP-SELECT 1 SUM(a) FROM t")
    assert len(opened) == 1


def test_a_file_that_is_replaced_is_opened_anew(tmp_path):
    ledger, other = Ledger(tmp_path / "l", Budget(1)), Ledger(tmp_path / "other", Budget(2))
    charge(ledger)
    charge(other)
    shutil.copy(tmp_path / "other", tmp_path / "copy")
    (tmp_path / "copy").replace(tmp_path / "l")
    assert Ledger(tmp_path / "l").budget == Budget(2)
    with pytest.raises(LedgerError, match="cannot be trusted"):
        charge(ledger)
    (tmp_path / "l").unlink()
    with pytest.raises(LedgerError, match="does not exist"):
        charge(ledger)


def test_what_is_written_to_a_file_that_was_moved_away_is_an_error(tmp_path):
    ledger = Ledger(tmp_path / "l", Budget(1))

    def move():
        with FileStore(ledger.path).open(timeout=1, write=True) as session:
            session.run("DELETE FROM progress")
            (tmp_path / "l").rename(tmp_path / "m")
            Ledger(tmp_path / "l", Budget(1))

    with pytest.raises(LedgerError, match="moved or replaced"):
        move()


def test_a_file_with_another_log_is_refused(tmp_path):
    Ledger(tmp_path / "l", Budget(1))
    with closing(sqlite3.connect(tmp_path / "l")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    shutil.copy(tmp_path / "l", tmp_path / "m")
    with pytest.raises(LedgerError, match="is not a ledger, or was changed"):
        Ledger(tmp_path / "m")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_opens_a_connection_of_its_own(tmp_path, opened):
    ledger = Ledger(tmp_path / "l", Budget(10))
    opened.clear()
    child = os.fork()
    if child == 0:
        try:
            charge(ledger)
            charge(ledger)
        finally:
            os._exit(0 if len(opened) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    charge(ledger)
    assert len(opened) == 1  # the parent closed its own before the fork
    assert len([entry for entry in ledger.entries() if entry.kind == "charge"]) == 3
