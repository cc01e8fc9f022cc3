"""What goes wrong between a ledger and a PostgreSQL server, in fixed words.

A server's own text may hold names, values or hosts. It is looked at to choose the words, and not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

_LOST = "the connection was lost; nothing was written; run it again"
_GONE = "does not exist, is not a ledger, or its tables were changed; restore it from a backup"
# By the first characters of the state that the server reports, longest first.
_REMEDIES = (
    ("22021", "cannot keep a name with a NUL character; rename the table or the column"),
    ("25006", "cannot be written: the server or the database is read-only; use the primary server"),
    ("25P03", _LOST),
    ("3F000", _GONE),
    ("40", "is being written by others; run it again"),
    ("23505", "is being written by others; run it again"),
    ("42501", "is closed to this user; grant what docs/ledger.md lists"),
    ("42P01", _GONE),
    ("42P06", "is being made by others; run it again"),
    ("42P07", "is being made by others; run it again"),
    ("42", "is not a ledger, or its tables were changed; restore it from a backup"),
    ("53100", "could not be written because the server's disk is full; free some space"),
    ("53", "could not be used: the server is out of memory or connections; run it again later"),
    ("54", "cannot keep so large an answer; release fewer cells at once"),
    ("55P03", "is locked by another process; wait for it, or raise the timeout"),
    ("57014", "was stopped by the server's statement_timeout; raise it for this user"),
    ("57", _LOST),
    ("58", "could not be read or written; check the server's disk"),
    ("08", _LOST),
    ("XX00", "is damaged; look at the server's log, or restore it from a backup"),
)
_REFUSALS = (
    ("database", "does not exist", "has no such database; create it, or correct the URL"),
    ("role", "does not exist", "refuses the user; create the role, or correct the URL or PGUSER"),
    ("service", "not found", "names a service that no service file has; correct the URL or the file"),
    ("password", "authentication", "refuses the user or the password; check PGUSER, PGPASSWORD or ~/.pgpass"),
    ("pg_hba", "", "does not admit this user from here; add a line to the server's pg_hba.conf"),
    ("authentication", "", "refuses the user; check how the server's pg_hba.conf admits it"),
    ("permission denied", "", "refuses the user; grant CONNECT on the database"),
    ("too many", "", "has no free connection; wait, or raise max_connections"),
    ("starting up", "", "is starting; wait, and run it again"),
    ("shutting down", "", "is shutting down; start it, and run it again"),
)
_CONFLICTS = ("40001", "40P01", "23505", "42P06", "42P07")


def is_undone(error: psycopg.Error) -> bool:
    """Whether a transaction is undone by chance, if its commit was not sent: by others or by a lost line."""
    return error.sqlstate in _CONFLICTS or is_lost(error)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection has ended, by what the server or the client says."""
    return _find_remedy(error) == _LOST


def explain_failure(error: psycopg.Error, *, name: str) -> str:
    """What went wrong after connecting, and what to do."""
    remedy = _find_remedy(error)
    return f"ledger {name!r}: {remedy}" if remedy == _LOST else f"ledger {name!r} {remedy}"


def explain_connection(error: psycopg.Error, *, name: str) -> str:
    """Why no connection came about, and what to do."""
    start = f"ledger {name!r} cannot be opened: the server"
    connection = error.pgconn
    if connection is not None and connection.needs_password:
        return f"{start} asks for a password; give it in PGPASSWORD, in ~/.pgpass or in a service file"
    text = str(error)
    for first, second, remedy in _REFUSALS:
        if first in text and second in text:
            return f"{start} {remedy}"
    if connection is not None and connection.used_password:
        return f"{start} refuses the user, the password or the database; check all three"
    return f"{start} cannot be reached; check host and port in the URL, and that it runs"


def _find_remedy(error: psycopg.Error) -> str:
    import psycopg

    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.DataError):  # refused here, before it was sent
        state = "22021"
    elif not state and isinstance(error, psycopg.OperationalError):
        state = "08"
    unknown = "could not be used; look at the log of the server"
    return next((text for start, text in _REMEDIES if state.startswith(start)), unknown)
