"""PostgreSQL servers: why one lets nobody in, in words. Its own text may hold what nobody else should see."""

from __future__ import annotations

_REFUSALS = (
    ("database", "does not exist", "has no such database; create it, or correct the URL"),
    ("role", "does not exist", "refuses the user; create the role, or correct the URL or PGUSER"),
    ("service", "not found", "names a service that no service file has; correct the URL or the file"),
    (
        "password",
        "",
        "refuses the user or the password; check PGUSER, PGPASSWORD, ~/.pgpass or the service file",
    ),
    ("pg_hba", "", "does not admit this user from here; add a line to the server's pg_hba.conf"),
    ("authentication", "", "refuses the user; check how the server's pg_hba.conf admits it"),
    ("permission denied", "", "refuses the user; grant CONNECT on the database"),
    ("too many", "", "has no free connection; wait, or raise max_connections"),
    ("starting up", "", "is starting; wait, and run it again"),
    ("shutting down", "", "is shutting down; start it, and run it again"),
)


def describe_refusal(error: Exception) -> str:
    """Returns why a server, whose driver raised `error`, let nobody in, and what to do about it."""
    import psycopg

    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return "the server did not answer in time; check host and port in the URL, and that it runs"
    connection = getattr(error, "pgconn", None)
    if connection is not None and connection.needs_password:
        return "the server asks for a password; give it in PGPASSWORD, in ~/.pgpass or in a service file"
    text = str(error)
    for first, second, remedy in _REFUSALS:
        if first in text and second in text:
            return f"the server {remedy}"
    if connection is not None and connection.used_password:
        return "the server refuses the user, the password or the database; check all three"
    return "the server cannot be reached; check host and port in the URL, and that it runs"
