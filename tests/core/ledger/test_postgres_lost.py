"""Connections and servers that are lost before, while and after a ledger in PostgreSQL is written."""

import os
import socket
import threading
import time
from contextlib import contextmanager
from fractions import Fraction

import pytest

from sfumato.accounting import Budget, Cost, Ledger
from sfumato.core.errors import LedgerError
from sfumato.core.ledger import chain
from sfumato.servers.ledger import PostgresStore

TENTH = Cost(kind="pure", scale=Fraction(1, 10))
PLAN = {"plan_digest": "p", "table_version": "v"}
LEFT = Fraction(9, 10)
KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sfumato'"


def charge(ledger, *, resumable=False):
    return ledger.charge(description={}, table="t", costs=(TENTH,), resumable=resumable, **PLAN)


def backend(session):
    return session.connection.info.backend_pid


def cut(session):
    """What a broken cable does: the server still works at it, and the client hears no more."""
    with socket.socket(fileno=os.dup(session.connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def ledger(server):
    return Ledger(server.url(), Budget(1), timeout=20)


@pytest.fixture
def before_commit(monkeypatch):
    """Calls what it is given with the session, just before the next commit."""
    commit = PostgresStore._commit

    def plan(act):
        def acted(store, session, *, timeout):
            monkeypatch.setattr(PostgresStore, "_commit", commit)
            act(session)
            commit(store, session, timeout=timeout)

        monkeypatch.setattr(PostgresStore, "_commit", acted)

    return plan


@contextmanager
def commits_wait(server):
    """Commits are on this server's disk and wait for another server, which does not exist."""
    server.configure("synchronous_standby_names", "'nobody'")
    try:
        yield
    finally:
        server.configure("synchronous_standby_names", None)


def waiting(server):
    """The process of the server that waits in a commit."""
    for _ in range(200):
        found = server.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'sfumato'"
        )
        if found:
            return found[0][0]
        time.sleep(0.05)
    raise AssertionError("nothing waits")


class Work(threading.Thread):
    """A call in a thread, and what came of it."""

    def __init__(self, call):
        super().__init__()
        self._call, self.result = call, None
        self.start()

    def run(self):
        try:
            self.result = self._call()
        except LedgerError as error:
            self.result = error

    def wait(self):
        self.join(60)
        return self.result


@pytest.mark.parametrize("times", [1, 4, 5])
def test_killed_before_the_commit_it_is_tried_again_and_then_nothing_is_spent(
    server, ledger, monkeypatch, times
):
    killed = []
    check = chain.refuse_other_neighbours

    def kill(history, costs, *, name):
        if len(killed) < times:
            killed.append(server.execute(KILL))
        check(history, costs, name=name)

    monkeypatch.setattr("sfumato.core.ledger.ledger.refuse_other_neighbours", kill)
    if times == 5:
        with pytest.raises(LedgerError, match="lost; nothing was written; run it again"):
            charge(ledger)
        assert ledger.report().left == 1
    charge(ledger)
    assert len(killed) == times
    assert ledger.report().left == LEFT
    ledger.verify()


def test_killed_as_the_commit_is_sent_nothing_is_spent(server, ledger, before_commit):
    before_commit(lambda session: server.execute(f"SELECT pg_terminate_backend({backend(session)}, 5000)"))
    with pytest.raises(LedgerError, match="lost; nothing was written; run it again"):
        charge(ledger)
    assert ledger.report().left == 1
    ledger.verify()


class Unaware:
    """A connection that has not yet noticed its end: the server's last word arrives before it does."""

    closed = False

    def __init__(self, connection):
        self.execute = connection.execute


@pytest.mark.parametrize("noticed", [True, False])
def test_killed_in_the_commit_the_charge_is_found_and_made_once(server, ledger, before_commit, noticed):
    if not noticed:
        before_commit(lambda session: setattr(session, "connection", Unaware(session.connection)))
    with commits_wait(server):
        work = Work(lambda: charge(ledger))
        server.execute(f"SELECT pg_terminate_backend({waiting(server)})")
        entry = work.wait()
    assert ledger.entries()[1:] == (entry,)
    assert ledger.report().left == LEFT


def test_killed_after_the_commit_changes_nothing(server, ledger, monkeypatch):
    commit = PostgresStore._commit

    def killed(store, session, *, timeout):
        commit(store, session, timeout=timeout)
        server.execute(f"SELECT pg_terminate_backend({backend(session)}, 5000)")

    monkeypatch.setattr(PostgresStore, "_commit", killed)
    entry = charge(ledger)
    monkeypatch.undo()
    assert ledger.entries()[1:] == (entry,)


def test_a_cut_wire_waits_for_the_end_of_the_lost_commit(server, ledger, before_commit):
    sessions = []
    before_commit(sessions.append)
    with commits_wait(server):
        work = Work(lambda: charge(ledger))
        waiting(server)
        cut(sessions[0])
        time.sleep(0.5)
        assert work.is_alive()  # whether it was written is not yet decided
    entry = work.wait()
    assert ledger.entries()[1:] == (entry,)


def test_what_cannot_be_seen_counts_as_charged(server, ledger, before_commit):
    hasty, sessions = Ledger(ledger.path, timeout=0.5), []
    before_commit(sessions.append)
    with commits_wait(server):
        work = Work(lambda: charge(hasty))
        waiting(server)
        cut(sessions[0])
        error = work.wait()
    assert isinstance(error, LedgerError)
    assert "counts as made" in str(error)
    assert "sfumato budget" in str(error)
    assert ledger.report().left == LEFT


def test_a_server_that_stays_away_leaves_it_open(server, ledger, before_commit):
    hasty = Ledger(ledger.path, timeout=0.5)
    before_commit(lambda _: server.halt(mode="immediate"))
    try:
        with pytest.raises(LedgerError, match="counts as made"):
            charge(hasty)
        with pytest.raises(LedgerError, match="cannot be reached"):
            ledger.report()
    finally:
        server.start()
    assert ledger.report().left == 1


def test_a_server_that_comes_back_is_asked(server, ledger, before_commit):
    def crash(_):
        server.halt(mode="immediate")
        threading.Timer(1.0, server.start).start()

    before_commit(crash)
    with pytest.raises(LedgerError, match="nothing was written"):
        charge(ledger)
    assert ledger.report().left == 1


@pytest.mark.parametrize("attempt", range(3))
def test_a_crash_right_after_a_charge_keeps_it(server, ledger, attempt):
    entry = charge(ledger, resumable=True)
    server.halt(mode="immediate")
    server.start()
    assert ledger.find_progress(**PLAN) == (entry, b"")
    ledger.store_progress(entry, b"one", after=b"")
    server.halt(mode="immediate")
    server.start()
    assert Ledger(ledger.path).find_progress(**PLAN) == (entry, b"one")
    ledger.store_answer(entry, b"one two", after=b"one")
    server.halt(mode="immediate")
    server.start()
    assert Ledger(ledger.path).find_answer(**PLAN) == (entry, b"one two")
    ledger.verify()


def test_progress_and_answers_lost_in_the_commit_are_found(server, ledger):
    entry = charge(ledger, resumable=True)
    with commits_wait(server):
        work = Work(lambda: ledger.store_progress(entry, b"one", after=b""))
        server.execute(f"SELECT pg_terminate_backend({waiting(server)})")
        assert work.wait() is None
    assert ledger.find_progress(**PLAN) == (entry, b"one")
    with commits_wait(server):
        work = Work(lambda: ledger.store_answer(entry, b"one two", after=b"one"))
        server.execute(f"SELECT pg_terminate_backend({waiting(server)})")
        assert work.wait() is None
    assert ledger.find_answer(**PLAN) == (entry, b"one two")
    ledger.verify()


def test_progress_that_was_not_written_is_not_taken_for_written(server, ledger, before_commit):
    entry = charge(ledger, resumable=True)
    before_commit(lambda session: server.execute(f"SELECT pg_terminate_backend({backend(session)}, 5000)"))
    with pytest.raises(LedgerError, match="nothing was written"):
        ledger.store_progress(entry, b"one", after=b"")
    assert ledger.find_progress(**PLAN) == (entry, b"")


def test_a_ledger_lost_while_it_is_made_is_whole_or_not_there(server):
    url = server.url()
    with commits_wait(server):
        work = Work(lambda: Ledger(url, Budget(1)))
        server.execute(f"SELECT pg_terminate_backend({waiting(server)})")
        assert isinstance(work.wait(), Ledger)
    assert Ledger(url, Budget(1)).report().left == 1
