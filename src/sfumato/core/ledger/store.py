"""Keep a ledger in one SQLite file with its transactions, and turns among those who ask the same.

A process keeps a connection open for its next transaction. One thread uses it at a time, no forked process
inherits it, and between transactions it holds no lock, so nobody acts on a stale view of what was spent.
A ledger in a database is in `servers.ledger`.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import secrets
import sqlite3
import sys
import threading
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sfumato.core.errors import Conflict, LedgerError
from sfumato.core.files import sync_folder
from sfumato.core.ledger.chain import FORMAT, Entry

if sys.platform != "win32":
    import fcntl

from collections.abc import Callable, Iterable, Iterator

Row = tuple[object, ...]

_URL = re.compile(r"postgres(ql)?:|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_TABLES = {
    "answers": """CREATE TABLE answers (
        sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL, sha256 TEXT NOT NULL)""",
    "entries": """CREATE TABLE entries (
        sequence INTEGER PRIMARY KEY, record BLOB NOT NULL, hash TEXT NOT NULL)""",
    "meta": "CREATE TABLE meta (format INTEGER NOT NULL, secret BLOB NOT NULL)",
    "progress": """CREATE TABLE progress (
        sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL, sha256 TEXT NOT NULL)""",
}
# What follows from the chain: a ledger from before version 0.4 gets it when it is opened.
_DERIVED = {
    "labels": """CREATE TABLE labels (
        label BLOB NOT NULL, charge INTEGER NOT NULL, answered INTEGER NOT NULL,
        PRIMARY KEY (label, charge)) WITHOUT ROWID""",
    "summary": """CREATE TABLE summary (
        sequence INTEGER PRIMARY KEY, record BLOB NOT NULL, mac TEXT NOT NULL)""",
}
_REMEDIES = (
    ("SQLITE_BUSY", "is locked by another process; wait for it, or raise the timeout"),
    ("SQLITE_LOCKED", "is locked by another process; wait for it, or raise the timeout"),
    ("SQLITE_NOTADB", "is not a ledger or is corrupt; restore it from a backup"),
    ("SQLITE_CORRUPT", "is corrupt; restore it from a backup"),
    ("SQLITE_READONLY", "cannot be written; allow writing to the file and to its folder"),
    ("SQLITE_CANTOPEN", "cannot be opened; allow reading and writing the file and its folder"),
    ("SQLITE_PERM", "cannot be opened; allow reading and writing the file and its folder"),
    ("SQLITE_TOOBIG", "cannot keep so large an answer; release fewer cells at once"),
    ("SQLITE_FULL", "could not be written because the disk is full; free some space"),
    ("SQLITE_IOERR", "could not be read or written; check the disk and its free space"),
)
# Of a transaction that another one undid: how often it is tried, and the first pause in seconds.
_TRIES = 5
_PAUSE = 0.05
# Connections that are kept open, of all ledgers in one process. Windows removes no file that is open.
_MOST_IDLE = 0 if os.name == "nt" else 8
# Between two looks whether a lock is free, in seconds.
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.2

_Self = TypeVar("_Self")
_Given = ParamSpec("_Given")
_Got = TypeVar("_Got")


class Store(Protocol):
    """Where a ledger is kept."""

    @property
    def place(self) -> Path | str:
        """A path, or a URL without a password."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def exists(self, *, timeout: float) -> bool:
        """Whether anything is there, a whole ledger or not."""

    def create(self, *, secret: bytes, first: Entry, timeout: float) -> None:
        """Writes a complete new store, or leaves the one that is already there."""

    def lock_question(self, key: int, *, timeout: float) -> AbstractContextManager[None]:
        """Locks one question against all others who ask it."""

    def open(
        self, *, timeout: float, write: bool, read_only: bool = False
    ) -> AbstractContextManager[Session]:
        """One transaction."""


_SERVERS: list[Callable[[str], Store]] = []


def register_server(locate: Callable[[str], Store]) -> None:
    """Lets `find_store` give what `locate` makes of a URL; the core itself knows files alone."""
    _SERVERS[:] = [locate]


def find_store(place: str | os.PathLike[str]) -> Store:
    """The store at a path or at a URL `postgresql://`. Nothing is opened yet.

    >>> find_store("postgresql://db.example.org/privacy?schema=team").name
    'postgresql://db.example.org/privacy?schema=team'
    """
    if isinstance(place, str) and place.startswith(("postgresql://", "postgres://")):
        if _SERVERS:
            return _SERVERS[-1](place)
        raise LedgerError("a ledger in PostgreSQL needs the room of servers: import sfumato.servers")
    if isinstance(place, str) and _URL.match(place):
        raise LedgerError(
            "a ledger is a file, or a schema of a database: postgresql://HOST/DATABASE?schema=NAME"
        )
    return FileStore(Path(place).absolute())


def locate_ledger(ledger: str, *, folder: Path) -> Path | str:
    """What `[budget] ledger` names: a path from the project's folder, or a URL as it is.

    >>> locate_ledger("ledger.db", folder=Path("project")).as_posix()
    'project/ledger.db'
    """
    return ledger if _URL.match(ledger) else folder / ledger


class Session(ABC):
    """One open transaction on a store."""

    __slots__ = ()

    bare: bool  # whether it has not got the tables of what follows from the chain

    @abstractmethod
    def derive(self) -> None:
        """Makes the tables of what follows from the chain."""

    @abstractmethod
    def run(self, statement: str, *values: object) -> list[Row]:
        """The rows of one statement, which has a question mark for each of the values."""

    def read_secret(self) -> bytes:
        """The secret under which versions of tables are keyed; the chain holds its digest."""
        ((secret,),) = self.run("SELECT secret FROM meta")
        return secret if isinstance(secret, bytes) else b""

    def read_rows(self, *, start: int, end: int = 2**62) -> list[Row]:
        """Return the rows of the chain from entry `start` on, before `end`, as they are stored, in order."""
        return self.run(
            "SELECT sequence, record, hash FROM entries"
            " WHERE sequence >= ? AND sequence < ? ORDER BY sequence",
            start,
            end,
        )

    def read_summary(self) -> tuple[bytes, str] | None:
        """The summary of the chain up to an entry, with its authentication code, if there is one."""
        return None if self.bare else _read_payload(self.run("SELECT record, mac FROM summary"))

    def read_summarised(self) -> int:
        """The last entry that the summary is about; 0 if there is none."""
        return max(
            (int(str(sequence)) for (sequence,) in self.run("SELECT sequence FROM summary")), default=0
        )

    def replace_summary(self, sequence: int, record: bytes, mac: str) -> None:
        """Keeps another summary in place of the one that is there."""
        self.run("DELETE FROM summary")
        self.run("INSERT INTO summary VALUES (?, ?, ?)", sequence, record, mac)

    def label(self, charge: int, labels: Iterable[str], *, answered: int = 0) -> None:
        """Lets a charge be found by `labels`, `answered` in that entry, or not yet."""
        for each in labels:
            self.run("DELETE FROM labels WHERE label = ? AND charge = ?", each.encode(), charge)
            self.run("INSERT INTO labels VALUES (?, ?, ?)", each.encode(), charge, answered)

    def find_label(self, start: str, *, after: str = "") -> str | None:
        """The first label that begins so and comes after another."""
        rows = self.run(
            "SELECT label FROM labels WHERE label >= ? AND label > ? ORDER BY label LIMIT 1",
            start.encode(),
            after.encode(),
        )
        found = bytes(rows[0][0]).decode() if rows else ""  # type: ignore[call-overload]
        return found if rows and found.startswith(start) else None

    def find_labelled(self, label: str) -> list[tuple[int, int]]:
        """The charges with a label, each by the entry of its answer, 0 if there is none, and its number."""
        asked = "SELECT answered, charge FROM labels WHERE label = ?"
        rows = [] if self.bare else self.run(asked, label.encode())
        return sorted((int(str(answered)), int(str(charge))) for answered, charge in rows)

    def insert_entry(self, entry: Entry) -> None:
        """Append `entry` to the open transaction."""
        self.run("INSERT INTO entries VALUES (?, ?, ?)", entry.sequence, entry.record, entry.hash)

    def insert_answer(self, *, sequence: int, payload: bytes, sha256: str) -> None:
        """Stores the payload that answers the charge `sequence`."""
        self.run("INSERT INTO answers VALUES (?, ?, ?)", sequence, payload, sha256)

    def read_answer(self, sequence: int) -> tuple[bytes, str] | None:
        """The payload stored for the charge `sequence` and its recorded digest."""
        return _read_payload(self.run("SELECT payload, sha256 FROM answers WHERE sequence = ?", sequence))

    def list_answered(self) -> set[object]:
        """The charges for which a payload is stored."""
        return {sequence for (sequence,) in self.run("SELECT sequence FROM answers")}

    def read_answered(self, sequence: int) -> set[object]:
        """The recorded digest of the payload that is stored for the charge `sequence`, if there is one."""
        return {sha256 for (sha256,) in self.run("SELECT sha256 FROM answers WHERE sequence = ?", sequence)}

    def replace_progress(self, *, sequence: int, payload: bytes, sha256: str) -> None:
        """Stores what is answered so far of the charge `sequence`, in place of what was there."""
        self.run("DELETE FROM progress WHERE sequence = ?", sequence)
        self.run("INSERT INTO progress VALUES (?, ?, ?)", sequence, payload, sha256)

    def read_progress(self, sequence: int) -> tuple[bytes, str] | None:
        """What is answered so far of the charge `sequence`, and its recorded digest."""
        return _read_payload(self.run("SELECT payload, sha256 FROM progress WHERE sequence = ?", sequence))

    def drop_progress(self, sequence: int) -> None:
        """Forgets the progress of a charge that is answered."""
        self.run("DELETE FROM progress WHERE sequence = ?", sequence)


@dataclass(slots=True)
class FileSession(Session):
    """One open transaction on a file."""

    connection: sqlite3.Connection
    bare: bool = False

    def derive(self) -> None:
        """Makes the tables of what follows from the chain."""
        for statement in _DERIVED.values():
            self.connection.execute(statement)
        self.bare = False

    def run(self, statement: str, *values: object) -> list[Row]:
        """The rows of one statement, which has a question mark for each of the values."""
        return self.connection.execute(statement, values).fetchall()


@dataclass(frozen=True, slots=True)
class FileStore:
    """A ledger's file at `place`."""

    place: Path

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.place.name

    def exists(self, *, timeout: float) -> bool:
        """Whether anything is there, a whole ledger or not."""
        return self.place.exists()

    def create(self, *, secret: bytes, first: Entry, timeout: float) -> None:
        """Writes a complete new store, or leaves the one that is already there.

        It is built under another name and linked into place, so that a file at `place` is complete
        from its first instant and an empty one is always an error.
        """
        path = self.place
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            try:
                with _words(path), closing(_connect(draft, mode="rw")) as connection:
                    connection.execute("BEGIN IMMEDIATE")
                    for statement in (*_TABLES.values(), *_DERIVED.values()):
                        connection.execute(statement)
                    connection.execute("INSERT INTO meta VALUES (?, ?)", (FORMAT, secret))
                    FileSession(connection).insert_entry(first)
                    connection.execute("COMMIT")
                os.link(draft, path)
            finally:
                for suffix in ("", "-journal"):
                    draft.with_name(draft.name + suffix).unlink(missing_ok=True)
            sync_folder(path.parent)
        except FileExistsError:
            return
        except OSError as error:
            raise LedgerError(_explain_creation(path, error)) from error

    @contextmanager
    def lock_question(self, key: int, *, timeout: float) -> Iterator[None]:
        """Locks one question against other processes on this machine, by a file beside the ledger's."""
        path = self.place.resolve()
        with lock_byte(path.with_name(path.name + ".lock"), key):
            yield

    @contextmanager
    def open(self, *, timeout: float, write: bool, read_only: bool = False) -> Iterator[FileSession]:
        """One transaction, exclusive if it is to write; commits unless an error leaves.

        With `read_only` the file is opened such that SQLite itself refuses to write it.

        The commit is on disk when the block ends: synchronous = EXTRA syncs the log, the file and, once the
        log is removed, the folder.
        """
        path = self.place
        if not path.is_file():
            raise LedgerError(f"ledger {path.name!r} does not exist or is not a file")
        _refuse_second_name(path)
        with _words(path), _take_connection(path, mode="ro" if read_only else "rw") as connection:
            connection.execute(f"PRAGMA busy_timeout = {round(timeout * 1000)}")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield FileSession(connection, bare=_check_layout(connection, path.name))
            connection.execute("COMMIT")


def try_again(
    method: Callable[Concatenate[_Self, _Given], _Got],
) -> Callable[Concatenate[_Self, _Given], _Got]:
    """The method, run again from its start a few times while its transaction is undone by a `Conflict`."""

    @wraps(method)
    def repeated(self: _Self, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Got:
        for number in range(_TRIES - 1):
            try:
                return method(self, *args, **kwargs)
            except Conflict:
                time.sleep(_PAUSE * 2**number)
        return method(self, *args, **kwargs)

    return repeated


@contextmanager
def take_turn(place: str, key: int) -> Iterator[bool]:
    """Waits for the turn of this thread with one question to the ledger at `place`; gives whether it is new.

    A thread that asks the same once more during its turn, from a callback for progress, say, goes on at once.
    """
    # A file has one set of turns, by whatever link it was opened.
    name = place if "://" in place else str(Path(place).resolve()), key
    with _turns.guard:
        turn = _turns.locks.setdefault(name, _Turn())
        turn.users += 1
    try:
        with turn.lock:
            turn.depth += 1
            try:
                yield turn.depth == 1
            finally:
                turn.depth -= 1
    finally:
        with _turns.guard:
            turn.users -= 1
            if turn.users == 0:
                _turns.locks.pop(name, None)


@contextmanager
def lock_byte(path: Path, key: int) -> Iterator[None]:
    """Locks byte `key` of the lock file at `path`, against other processes."""
    if sys.platform == "win32":  # only threads wait for each other
        yield
        return
    with _open_once(path) as descriptor:

        def lock() -> bool:
            # Not the lock that waits: the system would see a deadlock between processes where two threads
            # of one of them wait for different things.
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, key)
            except (BlockingIOError, PermissionError):
                return False
            return True

        wait_until(lock)
        try:
            yield
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, key)


def wait_until(done: Callable[[], bool]) -> None:
    """Asks again and again until it is `done`."""
    pause = _FIRST_PAUSE
    while not done():
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


class _Turn:
    """One question: who answers it, how many wait or answer, and how often the one has begun."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users = 0
        self.depth = 0


class _Turns:
    """The questions that threads of this process are answering, and the lock files it has open."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """A forked process has none of its parent's threads, hence none of their turns."""
        self.guard = threading.Lock()
        self.locks: dict[tuple[str, int], _Turn] = {}
        self.files: dict[tuple[int, int], tuple[int, int]] = {}  # by device and inode: descriptor, users


_turns = _Turns()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.forget)


@contextmanager
def _open_once(path: Path) -> Iterator[int]:
    """The descriptor of the file at `path`, which all threads of this process share."""
    with _turns.guard:
        name = _identify(path)
        if name not in _turns.files:
            try:
                opened = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise LedgerError(
                    f"{path.name!r} cannot be opened ({error.strerror}); allow writing to its folder"
                ) from None
            name = _identify(opened)
            _turns.files[name] = opened, 0
        descriptor, users = _turns.files[name]
        _turns.files[name] = descriptor, users + 1
    try:
        yield descriptor
    finally:
        with _turns.guard:
            _, users = _turns.files.get(name, (descriptor, 0))
            if users > 1:
                _turns.files[name] = descriptor, users - 1
            elif users == 1:
                del _turns.files[name]
                os.close(descriptor)


def _identify(file: Path | int) -> tuple[int, int]:
    """The file itself, whatever its name; nothing that exists if there is none."""
    try:
        found = os.fstat(file) if isinstance(file, int) else file.stat()
    except FileNotFoundError:
        return (-1, -1)
    return found.st_dev, found.st_ino


class _Connections:
    """The open and idle connections of this process, each with what it leads to, the last used last."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.idle: list[tuple[object, Any]] = []

    def take(self, place: object) -> Any:  # noqa: ANN401 - what was given back for this place
        """Return an idle connection to a place, None if there is none."""
        with self.guard:
            places = [each for each, _ in self.idle]
            return self.idle.pop(places.index(place))[1] if place in places else None

    def give_back(self, place: object, connection: Any) -> None:  # noqa: ANN401 - it can be closed
        """Keep a connection for whoever goes to the place next; of too many, end those used longest ago."""
        with self.guard:
            self.idle.append((place, connection))
            ended = [self.idle.pop(0) for _ in range(len(self.idle) - _MOST_IDLE)]
        for _, each in ended:
            each.close()

    def close(self) -> None:
        """End all that are idle."""
        while self.idle:
            self.idle.pop()[1].close()

    def close_before_fork(self) -> None:
        """End all before the process is forked: neither SQLite's nor a server's can be used by two."""
        self.guard.acquire()
        self.close()


connections = _Connections()
atexit.register(connections.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=connections.close_before_fork,
        after_in_parent=lambda: connections.guard.release(),
        after_in_child=connections.__init__,  # type: ignore[misc]  # the child begins with none
    )


@contextmanager
def _take_connection(path: Path, *, mode: str) -> Iterator[sqlite3.Connection]:
    """Lend a connection to the file at `path`, and undo the transaction that an error leaves.

    Raises LedgerError if another file stands there at the end: what was written is where nobody finds it.
    """
    place = path.resolve(), _identify(path), mode
    connection = connections.take(place) or _connect(place[0], mode=mode)
    try:
        yield connection
        # What comes next reads the file anew, even where it was edited by something other than SQLite.
        connection.execute("PRAGMA shrink_memory")
        _refuse_moved(path, place[1])
    except BaseException as error:
        with suppress(sqlite3.Error):  # SQLite may have rolled back already
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error) or connection.in_transaction:
            connection.close()
        else:
            connections.give_back(place, connection)
        raise
    connections.give_back(place, connection)


def _connect(path: Path, *, mode: str) -> sqlite3.Connection:
    # Whichever thread takes it has it alone.
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = EXTRA")  # also the first look at the file
        connection.execute("PRAGMA fullfsync = ON")  # on macOS a plain sync may stop in the drive
        # A log that is removed at each commit leaves one file, and no lock between transactions. With a
        # write-ahead log a connection holds one, which this process loses when it closes the file elsewhere.
        _refuse_other_log(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_layout(connection: sqlite3.Connection, name: str) -> bool:
    """Refuses other databases, other formats, and triggers that could undo a charge; returns if bare."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    if found not in (_TABLES, _TABLES | _DERIVED):
        raise LedgerError(f"{name!r} is not a ledger, or its tables were changed; restore it from a backup")
    rows = connection.execute("SELECT format FROM meta").fetchall()
    if rows != [(FORMAT,)]:
        raise LedgerError(f"ledger {name!r} has a format this version does not know; use the one it is from")
    return found == _TABLES


@contextmanager
def _words(path: Path) -> Iterator[None]:
    """Turns what SQLite or a check says into an error that names the ledger and a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        remedy = next((text for start, text in _REMEDIES if name.startswith(start)), None)
        raise LedgerError(
            f"ledger {path.name!r} {remedy or 'is damaged; restore it from a backup'}"
        ) from error


def _refuse_other_log(path: Path, connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone() != ("delete",):
        raise LedgerError(f"{path.name!r} is not a ledger, or was changed; restore it from a backup")


def _refuse_moved(path: Path, file: tuple[int, int]) -> None:
    if _identify(path) != file:
        raise LedgerError(f"ledger {path.name!r} was moved or replaced while it was used; run it again")


def _refuse_second_name(path: Path) -> None:
    """Under two names a file has two logs, which do not know of each other's charges."""
    for _ in range(40):  # a ledger that is being created has a second name for an instant
        if path.stat().st_nlink == 1:
            return
        time.sleep(0.05)
    raise LedgerError(f"ledger {path.name!r} has a second name (a hard link); remove the other one")


def _explain_creation(path: Path, error: OSError) -> str:
    start = f"ledger {path.name!r} could not be created: "
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return start + "its folder does not exist; create the folder first"
    if error.errno in (errno.EACCES, errno.EROFS):
        return start + "its folder cannot be written; allow writing or choose another folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return start + "the disk is full; free some space"
    return start + f"{error.strerror}; choose a folder on a local disk"


def _read_payload(rows: list[Row]) -> tuple[bytes, str] | None:
    for payload, sha256 in rows:
        # An edit may have left something else than bytes, which then matches no digest.
        return (payload if isinstance(payload, bytes) else str(payload).encode()), str(sha256)
    return None
