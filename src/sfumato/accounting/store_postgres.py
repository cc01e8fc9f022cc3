"""A ledger in a schema of a PostgreSQL database, and its errors in words.

Every operation has its own connection and one transaction. One that writes first locks the table
`progress`, before it has a snapshot, so that it sees all that was charged before; it is serialisable
as well, and the entries' key admits each number once. What a server says is never shown: it may
hold what the statement held.
"""

from __future__ import annotations

import math
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sfumato.accounting.chain import FORMAT, Entry
from sfumato.accounting.postgres_layout import CREATE, EXISTS, LAYOUT, expected_layout
from sfumato.accounting.postgres_place import PostgresPlace, parse_place
from sfumato.accounting.postgres_words import explain_connection, explain_failure, is_lost, is_undone
from sfumato.accounting.stores import Row, Session
from sfumato.accounting.turns import wait_until
from sfumato.errors import Conflict, LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

_OLDEST = 120000
_PAUSE = 0.2
_TURN = "SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))"
_LOCK = "LOCK TABLE progress IN SHARE ROW EXCLUSIVE MODE"


@dataclass(slots=True)
class PostgresSession(Session):
    """One open transaction; it remembers the last thing written, which stands for all of them."""

    connection: psycopg.Connection[Row]
    written: tuple[str, int, str] | None = field(default=None, init=False)

    def run(self, statement: str, *values: object) -> list[Row]:
        """The rows of one statement, which has a question mark for each of the values."""
        cursor = self.connection.execute(statement.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description is not None else []

    def insert_entry(self, entry: Entry) -> None:
        """Appends `entry` to the open transaction."""
        Session.insert_entry(self, entry)
        self.written = ("SELECT hash FROM entries WHERE sequence = %s", entry.sequence, entry.hash)

    def replace_progress(self, *, sequence: int, payload: bytes, sha256: str) -> None:
        """Stores what is answered so far of the charge `sequence`, in place of what was there."""
        Session.replace_progress(self, sequence=sequence, payload=payload, sha256=sha256)
        if self.written is None:
            self.written = ("SELECT sha256 FROM progress WHERE sequence = %s", sequence, sha256)


class PostgresStore:
    """The ledger that a URL names."""

    __slots__ = ("_place",)

    def __init__(self, url: str) -> None:
        self._place: PostgresPlace = parse_place(url)

    @property
    def place(self) -> str:
        """The URL, which holds no password."""
        return self._place.url

    @property
    def name(self) -> str:
        """Server, database and schema, without the user."""
        return self._place.name

    def __repr__(self) -> str:
        return f"PostgresStore({self.name!r})"

    def exists(self, *, timeout: float) -> bool:
        """Whether the schema holds anything, a whole ledger or not."""
        with self._connect(timeout=timeout) as connection:
            return self._holds_any(connection)

    def create(self, *, secret: bytes, first: Entry, timeout: float) -> None:
        """Makes schema and tables in one transaction, or leaves what is already there.

        Of several that create at once, the others wait for the first and find its ledger.
        """
        schema = self._place.schema
        with self._connect(timeout=timeout) as connection:
            import psycopg

            # A snapshot for each statement: what follows the wait sees what was waited for.
            self._begin(connection, "ISOLATION LEVEL READ COMMITTED READ WRITE", timeout=timeout)
            connection.execute(
                "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))",
                (f"sfumato ledger {schema}",),
            )
            self._check_server(connection)
            if self._holds_any(connection):
                return
            known = connection.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,))
            if known.fetchone() is None:
                connection.execute(f'CREATE SCHEMA "{schema}"')
            # New tables go to the schema that comes first.
            connection.execute(f'SET LOCAL search_path = "{schema}", pg_catalog, pg_temp')
            for statement in CREATE:
                connection.execute(statement)
            connection.execute("INSERT INTO meta VALUES (%s, %s)", (FORMAT, secret))
            PostgresSession(connection).insert_entry(first)
            try:
                connection.execute("COMMIT")
            except psycopg.Error as error:
                if not is_lost(error):
                    raise
                # Lost: it was made whole or not at all, and whoever opens it next sees which.

    @contextmanager
    def hold_question(self, key: int, *, timeout: float) -> Iterator[None]:
        """Holds one question against all others on this server, by a lock that ends with its connection.

        The lock is that of a transaction, since a pooler may give every transaction another session.
        """
        with self._connect(timeout=timeout) as connection:
            self._begin(connection, "ISOLATION LEVEL READ COMMITTED READ ONLY", timeout=timeout)
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            turn = (f"sfumato question {self._place.schema} {key}",)

            def lock() -> bool:
                return connection.execute(_TURN, turn).fetchone() == (True,)

            wait_until(lock)
            try:
                yield
            finally:
                with suppress(Exception):  # a lost connection has let go already
                    connection.execute("ROLLBACK")

    @contextmanager
    def open(self, *, timeout: float, write: bool, read_only: bool = False) -> Iterator[PostgresSession]:
        """One transaction, exclusive if it is to write; durable when the block ends, undone by an error.

        The server itself refuses to write in a transaction that is to read, `read_only` or not.
        """
        del read_only
        with self._connect(timeout=timeout) as connection:
            session = PostgresSession(connection)
            try:
                self._begin_work(connection, write=write, timeout=timeout)
                self._check_layout(connection)
                if write:
                    self._check_server(connection)
                yield session
            except BaseException:
                with suppress(Exception):  # a lost connection has rolled back already
                    connection.execute("ROLLBACK")
                raise
            self._commit(session, timeout=timeout)

    def _commit(self, session: PostgresSession, *, timeout: float) -> None:
        import psycopg

        connection = session.connection
        try:
            done = connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            # A server that answers with an error has undone it. One that goes away may have done
            # either, and to write it again could charge twice: look, and never repeat.
            if session.written is None or not (connection.closed or is_lost(error)):
                raise
        else:
            if done == "COMMIT":
                return
            raise LedgerError(
                f"ledger {self.name!r} undid the transaction; nothing was written; run it again"
            )
        found = self._look_for(*session.written, timeout=timeout)
        if found:
            return
        if found is None:
            message = (
                f"the connection to ledger {self.name!r} was lost while it was written, and whether it "
                "was cannot be seen. A charge counts as made; look with `sfumato budget` when the server "
                "is back, before you run it again"
            )
        else:
            message = f"ledger {self.name!r}: the connection was lost; nothing was written; run it again"
        raise LedgerError(message)

    def _look_for(self, statement: str, sequence: int, digest: str, *, timeout: float) -> bool | None:
        """Whether it is in the ledger for good, or None if the server does not tell in time."""
        import psycopg

        deadline = time.monotonic() + timeout
        while True:
            try:
                with self._connect(timeout=timeout) as connection:
                    # The lock is free when the lost transaction has ended, one way or the other.
                    self._begin_work(connection, write=True, timeout=timeout)
                    return connection.execute(statement, (sequence,)).fetchone() == (digest,)
            except (psycopg.Error, LedgerError):
                if time.monotonic() >= deadline:
                    return None
                time.sleep(_PAUSE)

    @contextmanager
    def _connect(self, *, timeout: float) -> Iterator[psycopg.Connection[Row]]:
        """A connection that is closed after the block; errors of the server in words."""
        try:
            import psycopg
        except ImportError:
            raise LedgerError(
                "a ledger in PostgreSQL needs another package: pip install 'sfumato[postgres]'"
            ) from None
        try:
            opened = psycopg.connect(
                psycopg.conninfo.make_conninfo("", **self._place.parameters),
                application_name="sfumato",
                autocommit=True,
                client_encoding="utf8",
                connect_timeout=max(2, math.ceil(timeout)),
                keepalives_idle=15,  # a server that vanished is noticed within a minute, not in hours
                keepalives_interval=5,
                keepalives_count=3,
                prepare_threshold=None,
            )
        except psycopg.Error as error:
            raise LedgerError(explain_connection(error, name=self.name)) from None
        try:
            with closing(opened) as connection:
                yield connection
        except psycopg.Error as error:
            kind = Conflict if is_undone(error) else LedgerError
            raise kind(explain_failure(error, name=self.name)) from None

    def _begin_work(self, connection: psycopg.Connection[Row], *, write: bool, timeout: float) -> None:
        if not write:
            self._begin(connection, "ISOLATION LEVEL REPEATABLE READ READ ONLY", timeout=timeout)
            return
        self._begin(connection, "ISOLATION LEVEL SERIALIZABLE READ WRITE", timeout=timeout)
        connection.execute(_LOCK)

    def _begin(self, connection: psycopg.Connection[Row], mode: str, *, timeout: float) -> None:
        """Begins a transaction without a snapshot: neither SET nor LOCK takes one."""
        wait = max(1, math.ceil(timeout * 1000))  # zero would wait for ever
        # pg_catalog comes first, so that nobody's operator or function stands in for the server's.
        opening = (
            f"BEGIN {mode}; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = {wait};"
            f' SET LOCAL search_path = pg_catalog, "{self._place.schema}", pg_temp'
        )
        connection.execute(opening)

    def _check_layout(self, connection: psycopg.Connection[Row]) -> None:
        """Refuses other tables, other formats, and all that could undo or hide a charge."""
        found = sorted(str(line) for (line,) in connection.execute(LAYOUT, (self._place.schema,)))
        if not found:
            raise LedgerError(f"ledger {self.name!r} does not exist")
        if found != expected_layout():
            raise LedgerError(
                f"{self.name!r} is not a ledger, or its tables were changed; restore it from a backup"
            )
        if connection.execute("SELECT format FROM meta").fetchall() != [(FORMAT,)]:
            raise LedgerError(
                f"ledger {self.name!r} has a format this version does not know; use the one it is from"
            )

    def _check_server(self, connection: psycopg.Connection[Row]) -> None:
        """Refuses a server that may forget what it has confirmed, or cannot spell every name."""
        if connection.info.server_version < _OLDEST:
            raise LedgerError(f"ledger {self.name!r}: the server is too old; it needs PostgreSQL 12 or later")
        settings = "SELECT pg_catalog.current_setting('fsync'), pg_catalog.current_setting('server_encoding')"
        fsync, encoding = connection.execute(settings).fetchone() or ("", "")
        if fsync != "on":
            raise LedgerError(
                f"ledger {self.name!r}: the server runs with fsync = off and may forget a charge in a crash; "
                "set fsync = on, or keep the ledger elsewhere"
            )
        if encoding != "UTF8":
            raise LedgerError(f"ledger {self.name!r}: create its database with ENCODING 'UTF8'")

    def _holds_any(self, connection: psycopg.Connection[Row]) -> bool:
        return connection.execute(EXISTS, (self._place.schema,)).fetchone() != (0,)
