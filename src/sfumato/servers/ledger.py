"""A ledger in a schema of a PostgreSQL database, and its errors in words.

Every operation is one transaction, on a connection that is kept for the next. One that writes first
locks the table `progress`, before it has a snapshot, so that it sees all that was charged before; it is
serialisable as well, and the entries' key admits each number once. What a server says is never shown: it
may hold what the statement held.
"""

from __future__ import annotations

import math
import re
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from sfumato.core.errors import Conflict, LedgerError
from sfumato.core.ledger.chain import FORMAT, Entry
from sfumato.core.ledger.store import Row, Session, connections, wait_until

if TYPE_CHECKING:
    import psycopg

_SAID = tomllib.loads(files("sfumato.servers").joinpath("postgres.toml").read_text("utf-8"))["ledger"]
_DEFAULT_SCHEMA = "sfumato"
_SECRETS = {"password", "sslpassword"}
_OLDEST = 120000  # server_version of PostgreSQL 12
_PAUSE = 0.2
_CONFLICTS = ("40001", "40P01", "23505", "42P06", "42P07")
_TURN = "SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))"
_LOCK = "LOCK TABLE progress IN SHARE ROW EXCLUSIVE MODE"

_TABLES = {
    "answers": (("sequence", "bigint"), ("payload", "bytea"), ("sha256", "text")),
    "entries": (("sequence", "bigint"), ("record", "bytea"), ("hash", "text")),
    "meta": (("format", "integer"), ("secret", "bytea")),
    "progress": (("sequence", "bigint"), ("payload", "bytea"), ("sha256", "text")),
}
_DERIVED = {
    "labels": (("label", "bytea"), ("charge", "bigint"), ("answered", "bigint")),
    "summary": (("sequence", "bigint"), ("record", "bytea"), ("mac", "text")),
}
_KEYS = {
    **dict.fromkeys(("answers", "entries", "progress", "summary"), "sequence"),
    "labels": "label, charge",
}


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class PostgresStore:
    """The ledger at the URL `place`, which holds no password.

    `parameters` say how to connect; `name` is for messages: server, database and schema, without the user.
    """

    place: str
    parameters: Mapping[str, str]
    schema: str
    name: str

    def __repr__(self) -> str:
        return f"PostgresStore({self.name!r})"

    def exists(self, *, timeout: float) -> bool:
        """Returns whether the schema holds anything, a whole ledger or not."""
        with self._connect(timeout=timeout) as connection:
            return self._has_relations(connection)

    def create(self, *, secret: bytes, first: Entry, timeout: float) -> None:
        """Makes schema and tables in one transaction, or leaves what is already there.

        Of several that create at once, the others wait for the first and find its ledger.
        """
        schema = self.schema
        with self._connect(timeout=timeout) as connection:
            import psycopg

            # A snapshot for each statement: what follows the wait sees what was waited for.
            self._begin(connection, "ISOLATION LEVEL READ COMMITTED READ WRITE", timeout=timeout)
            connection.execute(
                "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))",
                (f"sfumato ledger {schema}",),
            )
            self._check_server(connection)
            if self._has_relations(connection):
                return
            known = connection.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", (schema,))
            if known.fetchone() is None:
                connection.execute(f'CREATE SCHEMA "{schema}"')
            connection.execute(f'SET LOCAL search_path = pg_catalog, "{schema}", pg_temp')
            for table, columns in (_TABLES | _DERIVED).items():
                connection.execute(_create_table(schema, table, columns))
            connection.execute("INSERT INTO meta VALUES (%s, %s)", (FORMAT, secret))
            PostgresSession(connection, schema).insert_entry(first)
            try:
                connection.execute("COMMIT")
            except psycopg.Error as error:
                if not _is_lost(error):
                    raise
                # Lost: it was made whole or not at all, and whoever opens it next sees which.

    @contextmanager
    def lock_question(self, key: int, *, timeout: float) -> Iterator[None]:
        """Locks one question on this server, until the block ends; the lock ends with its connection.

        The lock is that of a transaction, since a pooler may give every transaction another session.
        """
        with self._connect(timeout=timeout) as connection:
            self._begin(connection, "ISOLATION LEVEL READ COMMITTED READ ONLY", timeout=timeout)
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            turn = (f"sfumato question {self.schema} {key}",)

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
            session = PostgresSession(connection, self.schema)
            try:
                self._begin_work(connection, write=write, timeout=timeout)
                session.bare = self._check_layout(connection)
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
            if session.written is None or not (connection.closed or _is_lost(error)):
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
        """Returns whether it is in the ledger for good, or None if the server does not tell in time."""
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
        """Yields a connection, kept for others after the block; errors of the server in words."""
        try:
            import psycopg
        except ImportError:
            raise LedgerError(
                "a ledger in PostgreSQL needs another package: pip install 'sfumato[postgres]'"
            ) from None
        try:
            opened = self._take_idle() or psycopg.connect(
                psycopg.conninfo.make_conninfo("", **self.parameters),
                application_name="sfumato",
                autocommit=True,
                client_encoding="utf8",
                connect_timeout=max(2, math.ceil(timeout)),
                keepalives_idle=15,  # a server that vanished is noticed within a minute, not in hours
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=30_000,
                prepare_threshold=None,
            )
        except psycopg.Error as error:
            raise LedgerError(f"ledger {self.name!r} cannot be opened: {describe_refusal(error)}") from None
        try:
            yield opened
        except psycopg.Error as error:
            # Undone by chance, if its commit was not sent: by others or by a lost line.
            lost = _is_lost(error)
            kind = Conflict if lost or error.sqlstate in _CONFLICTS else LedgerError
            colon = ":" if lost else ""
            raise kind(f"ledger {self.name!r}{colon} {_find_remedy(error)}") from None
        finally:
            if opened.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                connections.give_back(self.place, opened)
            else:
                opened.close()

    def _take_idle(self) -> psycopg.Connection[Row] | None:
        """Return a connection that still works, if one is idle."""
        import psycopg

        found: psycopg.Connection[Row] | None
        while (found := connections.take(self.place)) is not None:
            try:
                found.execute("SELECT 1")
            except psycopg.Error:  # the server has ended it meanwhile, and perhaps all of them
                found.close()
            else:
                return found
        return None

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
            " SET LOCAL tcp_keepalives_idle = 15; SET LOCAL tcp_keepalives_interval = 5;"  # a client that
            " SET LOCAL tcp_keepalives_count = 3;"  # vanished lets go of its locks
            f' SET LOCAL search_path = pg_catalog, "{self.schema}", pg_temp'
        )
        connection.execute(opening)

    def _check_layout(self, connection: psycopg.Connection[Row]) -> bool:
        """Refuses other tables, other formats, and all that could undo or hide a charge; returns if bare."""
        found = sorted(str(line) for (line,) in connection.execute(_SAID["layout"], (self.schema,)))
        if not found:
            raise LedgerError(f"ledger {self.name!r} does not exist")
        if found not in (_expected_layout(_TABLES), _expected_layout(_TABLES | _DERIVED)):
            raise LedgerError(
                f"{self.name!r} is not a ledger, or its tables were changed; restore it from a backup"
            )
        if connection.execute("SELECT format FROM meta").fetchall() != [(FORMAT,)]:
            raise LedgerError(
                f"ledger {self.name!r} has a format this version does not know; use the one it is from"
            )
        return found == _expected_layout(_TABLES)

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

    def _has_relations(self, connection: psycopg.Connection[Row]) -> bool:
        return connection.execute(_SAID["exists"], (self.schema,)).fetchone() != (0,)


@dataclass(slots=True)
class PostgresSession(Session):
    """One open transaction; it remembers the last thing written, which stands for all of them."""

    connection: psycopg.Connection[Row]
    schema: str
    bare: bool = False
    written: tuple[str, int, str] | None = field(default=None, init=False)

    def derive(self) -> None:
        """Makes the tables of what follows from the chain."""
        for table, columns in _DERIVED.items():
            self.connection.execute(_create_table(self.schema, table, columns))
        self.bare = False

    def run(self, statement: str, *values: object) -> list[Row]:
        """Returns the rows of one statement, which has a question mark for each of the values."""
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


class PostgresTables:
    """People, approvals and jobs of servers, in a schema beside that of the ledger at `url`."""

    def __init__(self, url: str, *, layout: str, version: int, timeout: float = 30.0) -> None:
        ledger = locate_store(url)
        self._store = replace(ledger, schema=f"{ledger.schema[:57]}_serve", name=f"{ledger.name}_serve")
        self._timeout = timeout
        with self.transact(write=True) as run:
            for words, kind in (("BLOB", "bytea"), ("REAL", "double precision")):
                layout = layout.replace(words, kind)
            if not run("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = ?", self._store.schema):
                run(f'CREATE SCHEMA "{self._store.schema}"')
            run(f'SET LOCAL search_path = "{self._store.schema}", pg_catalog, pg_temp')
            run("CREATE TABLE IF NOT EXISTS version (number INTEGER NOT NULL)")
            if not run("SELECT 1 FROM version"):
                run("INSERT INTO version VALUES (?)", version)
                run(layout)
            if run("SELECT number FROM version") != [(version,)]:
                raise LedgerError(f"{self._store.name!r} is of another version of sfumato; install that one")

    @contextmanager
    def transact(self, *, write: bool) -> Iterator[Callable[..., list[Row]]]:
        """Yields what runs the statements of one transaction; those that write take turns."""
        store, mode = self._store, "WRITE" if write else "ONLY"
        with store._connect(timeout=self._timeout) as connection:

            def run(statement: str, *values: object) -> list[Row]:
                # A server keeps no text with a zero in it, which nobody types.
                given = [each.replace("\0", "\ufffd") if isinstance(each, str) else each for each in values]
                return PostgresSession(connection, store.schema).run(statement, *given)

            try:
                # A snapshot for each statement: what follows the wait sees what was waited for.
                store._begin(connection, f"ISOLATION LEVEL READ COMMITTED READ {mode}", timeout=self._timeout)
                if write:
                    turn = f"sfumato people {store.schema}"
                    run("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(?, 0))", turn)
                yield run
                connection.execute("COMMIT")
            except BaseException:
                with suppress(Exception):  # a lost connection has rolled back already
                    connection.execute("ROLLBACK")
                raise

    def now(self) -> float:
        """The time of the server's clock, in seconds."""
        with self.transact(write=False) as run:
            ((seconds,),) = run("SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())")
            return float(seconds)  # type: ignore[arg-type]


def locate_store(url: str) -> PostgresStore:
    """Returns the store that a URL names; refuses one that holds a password. Nothing is opened yet.

    >>> locate_store("postgresql://ana@db.example.org:5433/privacy").name
    'postgresql://db.example.org:5433/privacy?schema=sfumato'
    """
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
        port, secret = parts.port, parts.password is not None
    except ValueError:
        raise LedgerError(_malformed("its URL cannot be read")) from None
    if secret or _SECRETS & {key for key, _ in given}:
        raise LedgerError(
            "the URL of a ledger must not hold a password; remove it, and give it in PGPASSWORD, "
            "in ~/.pgpass or in a service file (?service=NAME)"
        )
    query = dict(given)
    if parts.fragment or len(query) != len(given) or not set(query) <= {*_SAID["parameters"], "schema"}:
        allowed = ", ".join(("schema", *_SAID["parameters"]))
        raise LedgerError(_malformed(f"after the question mark it may say, each once: {allowed}"))
    schema = query.pop("schema", _DEFAULT_SCHEMA)
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema) or schema.startswith("pg_"):
        raise LedgerError(_malformed("schema is a name of small letters, digits and underscores, not pg_..."))
    if schema in ("public", "information_schema"):
        raise LedgerError(_malformed("a ledger has a schema to itself, which 'public' is not"))
    stated = {
        "user": unquote(parts.username or ""),
        "host": unquote(parts.hostname or ""),
        "port": "" if port is None else str(port),
        "dbname": unquote(parts.path.removeprefix("/")),
    }
    parameters = {key: value for key, value in {**stated, **query}.items() if value}
    if "," in parameters.get("host", "") or "," in parameters.get("port", ""):
        raise LedgerError(_malformed("it names several servers; a ledger has one"))
    return PostgresStore(
        place=url, parameters=parameters, schema=schema, name=_public_name(parameters, schema)
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
    for first, second, remedy in _SAID["refusals"]:
        if first in text and second in text:
            return f"the server {remedy}"
    if connection is not None and connection.used_password:
        return "the server refuses the user, the password or the database; check all three"
    return "the server cannot be reached; check host and port in the URL, and that it runs"


def _is_lost(error: psycopg.Error) -> bool:
    """Returns whether the connection has ended, by what the server or the client says."""
    return _find_remedy(error) == _SAID["lost"]


_Tables = dict[str, tuple[tuple[str, str], ...]]


def _expected_layout(tables: _Tables) -> list[str]:
    """Returns the lines that `layout` has for a ledger, sorted."""
    lines = []
    for table, columns in tables.items():
        lines.append(f"relation {table} r p f f")
        lines += [
            f"column {table} {number} {name} {kind} t f  "
            for number, (name, kind) in enumerate(columns, start=1)
        ]
        if table in _KEYS:
            lines.append(f"relation {table}_pkey i p f f")
            lines.append(f"constraint {table} PRIMARY KEY ({_KEYS[table]})")
    return sorted(lines)


def _create_table(schema: str, table: str, columns: tuple[tuple[str, str], ...]) -> str:
    spelled = [f"{name} {kind} NOT NULL" for name, kind in columns]
    if table in _KEYS:
        spelled.append(f"PRIMARY KEY ({_KEYS[table]})")
    return f'CREATE TABLE "{schema}".{table} ({", ".join(spelled)})'


def _public_name(parameters: Mapping[str, str], schema: str) -> str:
    host, port = parameters.get("host", ""), parameters.get("port", "")
    local = host.startswith("/")  # the folder of a socket, which tells nobody more than "here"
    where = ("" if local else host) + (f":{port}" if port else "")
    service = f"service={parameters['service']}&" if "service" in parameters else ""
    return f"postgresql://{where}/{parameters.get('dbname', '')}?{service}schema={schema}"


def _malformed(fault: str) -> str:
    return f"[budget] ledger: {fault}. It is written postgresql://USER@HOST/DATABASE?schema=NAME"


def _find_remedy(error: psycopg.Error) -> str:
    import psycopg

    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.OperationalError):
        state = "08"
    unknown = "could not be used; look at the log of the server"
    return next((text for start, text in _SAID["remedies"].items() if state.startswith(start)), unknown)
