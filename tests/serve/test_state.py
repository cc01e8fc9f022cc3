"""What a server remembers: nothing that a thief of the file could use."""

import sqlite3
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction

import pytest

from sfumato.core.errors import AccessDenied, LedgerError
from sfumato.core.facts.project import parse_project
from sfumato.serve.clock import next_reply
from sfumato.serve.state import FileTables, State, User, make_verifier, open_state


@pytest.fixture(params=["file", "server"])
def make_state(request, tmp_path):
    """Opens one and the same state again and again, in a file or on a PostgreSQL server."""
    if request.param == "file":
        return lambda: State(FileTables(tmp_path / "serve.db"))
    document = {"budget": {"epsilon": 1}, "tables": {"t": {"source": "t.csv", "unit": "row"}}}
    document["budget"]["ledger"] = request.getfixturevalue("server").url()
    project = parse_project(document, folder=tmp_path)
    return lambda: open_state(project)


def test_the_file_holds_no_secret_in_the_clear(tmp_path):
    state = State(FileTables(tmp_path / "serve.db"))
    token = state.add_user("ana", "analyst", password="correct horse")
    session = state.open_session("ana")
    with sqlite3.connect(tmp_path / "serve.db") as connection:
        dump = "\n".join(connection.iterdump())
    for secret in (token, session, "correct horse"):
        assert secret not in dump
    assert stat.S_IMODE((tmp_path / "serve.db").stat().st_mode) == 0o600


def test_a_verifier_is_that_of_the_standard():
    # RFC 7677: user "user", password "pencil".
    import base64

    verifier = make_verifier("pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    assert base64.b64encode(verifier.stored_key) == b"WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(verifier.server_key) == b"wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_unknown_names_have_a_verifier_that_stays_and_fits_nothing(make_state):
    first, again = (make_state().find_verifier("nobody") for _ in range(2))
    assert first == again
    assert first != make_state().find_verifier("nobody else")
    assert not first.fits("")


def test_a_file_that_cannot_be_used_is_no_fault_of_who_asks(tmp_path):
    state = State(FileTables(tmp_path / "serve.db"))
    for file in tmp_path.iterdir():
        file.write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerError, match="cannot be used") as caught:  # 503
        state.find_user("ana")
    assert str(tmp_path) not in str(caught.value)


def test_names_roles_and_passwords_are_checked(make_state):
    state = make_state()
    for name, role, password in (
        ("", "viewer", None),
        ("a" * 64, "viewer", None),
        ("a", "king", None),
        ("a", "viewer", "short"),
    ):
        with pytest.raises(AccessDenied):
            state.add_user(name, role, password=password)
    assert state.users() == []


@pytest.mark.parametrize("elapsed", [0, 0.01, 0.05, 0.0500001, 0.07, 1, 17.3, 1000])
def test_reply_times_lie_on_a_grid_that_does_not_depend_on_the_work(elapsed):
    grid = [0.05 * 2 ** (step / 2) for step in range(60)]
    reply = next_reply(elapsed, first=0.05)
    assert reply >= elapsed
    assert min(abs(reply - each) for each in grid) < 1e-6
    assert reply <= max(0.05, elapsed * 2**0.5 + 1e-9)


def test_a_new_token_takes_the_place_of_the_old_one_as_a_password_too(make_state):
    state = make_state()
    old = state.add_user("ana", "analyst")
    state.add_user("ben", "analyst", password="correct horse")
    session = state.open_session("ana")
    new = state.new_token("ana")
    assert state.find_token(old) is None
    assert not state.find_verifier("ana").fits(old)
    assert state.find_verifier("ana").fits(new)
    assert state.find_session(session) is None
    state.new_token("ben")
    assert state.find_verifier("ben").fits("correct horse")


def test_a_file_of_the_version_before_is_upgraded_and_one_of_a_later_version_refused(tmp_path):
    path = tmp_path / "serve.db"
    token = State(FileTables(path)).add_user("ana", "analyst")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP INDEX subjects")
        for name in ("epsilon", "session_budget", "daily", "subject", "given", "ends_at"):
            connection.execute(f"ALTER TABLE people DROP COLUMN {name}")
        connection.execute("PRAGMA user_version = 0")
    state = State(FileTables(path))
    state.set_limits("ana", {"epsilon": Fraction(1, 3)})
    assert state.find_token(token) == User(name="ana", role="analyst", epsilon=Fraction(1, 3))
    assert State(FileTables(path)).find_token(token) == state.find_user("ana")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match="newer version"):
        State(FileTables(path))


def test_all_of_it_on_two_servers_at_once(make_state):
    one, other = make_state(), make_state()
    token = one.add_user("ana", "analyst", password="correct horse")
    assert other.find_token(token).name == "ana"
    for name, text in (("ana", "there is a user"), ("9", "letter")):
        with pytest.raises(AccessDenied, match=text):
            other.add_user(name, "viewer")
    assert other.find_user("a\0") is None
    one.set_limits("ana", {"daily": Fraction(1, 3)})
    assert other.users() == [User(name="ana", role="analyst", daily=Fraction(1, 3))]
    session = other.open_session("ana")
    assert one.find_session(session)[0].name == "ana"
    assert one.read_signed(other.sign("somebody")) == "somebody"
    assert [each.use_once("link", seconds=60) for each in (one, other)] == [True, False]

    asked = {"kind": "statement", "subject": "SELECT", "digest": "d", "epsilon": "1/2"}
    numbers = [each.ask_approval("ana", **asked) for each in (one, other)]
    assert numbers == [1, 1]
    with pytest.raises(AccessDenied, match="no request"):
        one.decide(1, approve=True, decided_by="ana")
    assert one.decide(1, approve=True, decided_by="sue")["person"] == "ana"
    with ThreadPoolExecutor(8) as threads:
        used = threads.map(lambda k: (one, other)[k % 2].use_approval("ana", "d"), range(16))
        assert sorted(used, key=str) == ["1/2", *[None] * 15]
    one.return_approval("ana", "d")
    assert other.use_approval("ana", "d") == "1/2"
    assert other.ask_approval("ana", **asked) == 2
    assert [each["status"] for each in one.approvals()] == ["waiting", "used"]

    job = {"recipe": "r", "status": "waiting"}
    number = one.add_job("ana", name="first", **job)
    with pytest.raises(AccessDenied, match="already"):
        other.add_job("ana", name="first", **job)
    with ThreadPoolExecutor(8) as threads:
        states = [(one, f"s{k}") if k % 2 else (other, f"s{k}") for k in range(16)]
        claims = threads.map(lambda each: each[0].claim_job(number, each[1], seconds=60), states)
        assert [claim for claim in claims if claim] == [("ana", "first", "r")]
    assert abs(one._tables.now() - time.time()) < 60
    for _, name in states:
        one.renew_claims([number], name, seconds=0)
    assert other.claim_job(number, "later", seconds=60) == ("ana", "first", "r")
    one.update_job(number, status="done", stages=["a"], server="s0")  # which has it no more
    assert other.jobs()[0]["status"] == "waiting"
    other.update_job(number, status="failed", stages=["a"], message="m", server="later")
    assert (one.jobs()[0]["name"], one.jobs()[0]["stages"]) == ("first #1", ["a"])
    assert one.add_job("ana", name="first", **job) == 2
    rows = [(4, "ana", "basket", "", "[1]"), (5, "ana", "viewers", "t", "[2]")]
    for row in rows:
        one.run("INSERT INTO dashboards VALUES (?, ?, ?, ?, ?)", *row)
    changed = "UPDATE dashboards SET items = ? WHERE number = ? AND items = ? RETURNING number"
    assert [other.run(changed, "[3]", 5, "[2]"), one.run(changed, "[4]", 5, "[2]")] == [[(5,)], []]
    other.remove_user("ana")
    assert one.run("SELECT number FROM dashboards") == [(5,)]
    assert one.find_token(token) is None
    assert one.find_session(session) is None


def test_people_in_a_file_move_to_the_database_of_the_ledger_once(tmp_path, server):
    file = State(FileTables(tmp_path / "serve.db"))
    token, session = file.add_user("ana", "analyst"), file.open_session("ana")
    number = file.ask_approval("ana", kind="statement", subject="s", digest="d", epsilon="1")
    document = {"budget": {"epsilon": 1}, "tables": {"t": {"source": "t.csv", "unit": "row"}}}
    document["budget"]["ledger"] = server.url()
    project = parse_project(document, folder=tmp_path)
    moved = open_state(project)
    assert moved.find_token(token) == moved.find_session(session)[0] == User(name="ana", role="analyst")
    assert moved.read_signed(file.sign("x")) == "x"
    moved.remove_user("ana")
    again = open_state(project)
    assert again.users() == []
    assert again.ask_approval("ben", kind="statement", subject="s", digest="e", epsilon="1") == number + 1
