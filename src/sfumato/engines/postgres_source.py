"""A table in PostgreSQL: where it is, a transaction that reads it, and what goes wrong in fixed words.

A server's own text may hold values of records, so it is looked at to choose the words, and never shown.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from sfumato.engines.encode import quote_name
from sfumato.errors import SfumatoError, SourceError
from sfumato.schema.location import check_location, public_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

_CONNECT_SECONDS = 10
_LOCK_SECONDS = 30

# Fixed for every session, so that no setting of a user, a database or a server changes what the SQL means.
_SETTINGS = {
    "search_path": "pg_catalog, pg_temp",  # names of functions and types mean the server's own
    "standard_conforming_strings": "on",
    "transform_null_equals": "off",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "extra_float_digits": "3",
    "application_name": "sfumato",
    "jit": "off",  # it takes long to compile expressions of many columns
    "lock_timeout": f"{_LOCK_SECONDS}s",
    # A limit that strikes after the charge would lose it.
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}

# Many marginals are grouped at once by hash tables that must fit, or the server sorts for each of them.
_MEMORY = (
    "SELECT set_config('work_mem', '128MB', true) "
    "WHERE pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('128MB')"
)

_GONE = "has no such table or view; check the schema, the name and the database"
_LOST = "was cut off: the connection was lost; run it again when the server is back"
# By the first characters of the state that the server reports, longest first.
_STATES = (
    ("3F000", _GONE),
    ("42P01", _GONE),
    ("42501", "may not be read by this user; grant USAGE on its schema and SELECT on it"),
    ("42703", "has other columns than when it was checked; run it again"),
    ("42", "was altered since it was checked, or its types do not fit the description; check both"),
    ("0A000", "was altered since it was checked; run it again"),
    (
        "55P03",
        f"is locked by somebody who changes it; wait for that, it was tried for {_LOCK_SECONDS} seconds",
    ),
    ("57014", "was stopped by a time limit of the server; raise statement_timeout for this user"),
    ("25P03", _LOST),
    ("40", "cannot be read on one snapshot while the server recovers; run it again"),
    ("53", "could not be read: the server is out of memory, disk or connections; run it again later"),
    ("57", _LOST),
    ("08", _LOST),
)
_REFUSALS = (
    ("database", "does not exist", "has no such database; create it, or correct the URL"),
    ("role", "does not exist", "does not know this user; correct the URL or PGUSER"),
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


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """A table or view: how its server is reached, without a password, and what messages call it."""

    conninfo: str = field(repr=False)
    schema: str
    table: str
    name: str

    @property
    def relation(self) -> str:
        """The table as SQL names it."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"


def parse_source(location: str, *, table: str) -> PostgresSource:
    """The table that a URL names: postgresql://host/database?table=schema.name; by default of `public`.

    >>> parse_source("postgresql://db/city?table=trips", table="t").relation
    '"public"."trips"'
    """
    where = f"table {table!r}: source"
    check_location(location, where=where)
    parts = urlsplit(location)
    given = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for key, value in given if key == "table"]
    schema, _, relation = named[0].rpartition(".") if len(named) == 1 else ("", "", "")
    if not relation or "." in schema or "\x00" in named[0]:
        raise SourceError(f"{where} must name one table: postgresql://host/database?table=schema.name")
    rest = urlencode([(key, value) for key, value in given if key != "table"], quote_via=quote, safe="")
    conninfo = f"postgresql://{parts.netloc}{parts.path}" + (f"?{rest}" if rest else "")
    name = f"table {table!r}: source {public_location(location)!r}"
    return PostgresSource(conninfo, schema or "public", relation, name)


def begin(source: PostgresSource) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection in a read-only transaction that sees one snapshot, with settings of its own."""
    try:
        import psycopg
    except ImportError:
        raise SourceError(f"{source.name} needs another package: pip install 'sfumato[postgres]'") from None
    limits: dict[str, Any] = {}
    if "connect_timeout" not in source.conninfo and "PGCONNECT_TIMEOUT" not in os.environ:
        limits["connect_timeout"] = _CONNECT_SECONDS
    try:
        connection = psycopg.connect(
            source.conninfo, client_encoding="UTF8", prepare_threshold=None, **limits
        )
    except (psycopg.Error, UnicodeError) as error:
        raise SourceError(_explain_connection(error, source)) from None
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    try:
        with hide_server(source):
            settings = ", ".join("set_config(%s, %s, true)" for _ in _SETTINGS)
            connection.execute(f"SELECT {settings}", [each for pair in _SETTINGS.items() for each in pair])
            connection.execute(_MEMORY)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def hide_server(source: PostgresSource) -> Iterator[None]:
    """Turns any failure into a fixed sentence about `source`."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        raise SourceError(_explain(error, source)) from None


def _explain(error: Exception, source: PostgresSource) -> str:
    import psycopg

    state = getattr(error, "sqlstate", None) or ""
    if not state and isinstance(error, psycopg.OperationalError):
        state = "08"
    words = next((text for start, text in _STATES if state.startswith(start)), None)
    return f"{source.name} {words or 'could not be read to the end'}"


def _explain_connection(error: Exception, source: PostgresSource) -> str:
    import psycopg

    start = f"{source.name}: the server"
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return f"{start} did not answer in time; check host and port in the URL, and that it runs"
    connection = getattr(error, "pgconn", None)
    if connection is not None and connection.needs_password:
        return f"{start} asks for a password; give it in PGPASSWORD, in ~/.pgpass or in a service file"
    if isinstance(error, psycopg.ProgrammingError):
        return f"{source.name} has a URL that cannot be used; check its options"
    text = str(error)
    for first, second, words in _REFUSALS:
        if first in text and second in text:
            return f"{start} {words}"
    return f"{start} cannot be reached; check host and port in the URL, and that it runs"
