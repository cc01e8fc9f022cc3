"""What a server remembers: nothing that a thief of the file could use."""

import sqlite3
import stat
from contextlib import closing
from fractions import Fraction

import pytest

from sfumato.core.errors import AccessDenied, LedgerError
from sfumato.serve.clock import next_reply
from sfumato.serve.state import State, User, make_verifier


def test_the_file_holds_no_secret_in_the_clear(tmp_path):
    state = State(tmp_path / "serve.db")
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


def test_unknown_names_have_a_verifier_that_stays_and_fits_nothing(tmp_path):
    state = State(tmp_path / "serve.db")
    first, again = state.find_verifier("nobody"), State(tmp_path / "serve.db").find_verifier("nobody")
    assert first == again
    assert first != state.find_verifier("nobody else")
    assert not first.fits("")


def test_a_file_that_cannot_be_used_is_no_fault_of_who_asks(tmp_path):
    state = State(tmp_path / "serve.db")
    for file in tmp_path.iterdir():
        file.write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerError, match="cannot be used") as caught:  # 503
        state.find_user("ana")
    assert str(tmp_path) not in str(caught.value)


def test_names_roles_and_passwords_are_checked(tmp_path):
    state = State(tmp_path / "serve.db")
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


def test_a_new_token_takes_the_place_of_the_old_one_as_a_password_too(tmp_path):
    state = State(tmp_path / "serve.db")
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
    token = State(path).add_user("ana", "analyst")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP INDEX subjects")
        for name in ("epsilon", "session_budget", "daily", "subject", "given", "ends_at"):
            connection.execute(f"ALTER TABLE people DROP COLUMN {name}")
        connection.execute("PRAGMA user_version = 0")
    state = State(path)
    state.set_limits("ana", {"epsilon": Fraction(1, 3)})
    assert state.find_token(token) == User(name="ana", role="analyst", epsilon=Fraction(1, 3))
    assert State(path).find_token(token) == state.find_user("ana")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match="newer version"):
        State(path)
