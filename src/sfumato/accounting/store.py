"""The file of a ledger: one SQLite database, and its errors in words.

Every operation opens its own connection. Nothing is shared between threads or inherited by a
forked process, so neither can hold a stale view of what was spent.
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.accounting.chain import FORMAT, Entry
from sfumato.accounting.stores import Row, Session
from sfumato.accounting.turns import hold_byte
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLES = {
    "answers": """CREATE TABLE answers (
        sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL, sha256 TEXT NOT NULL)""",
    "entries": """CREATE TABLE entries (
        sequence INTEGER PRIMARY KEY, recorded_at TEXT NOT NULL, kind TEXT NOT NULL,
        description BLOB NOT NULL, plan_digest TEXT NOT NULL, table_name TEXT NOT NULL,
        table_version TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)""",
    "meta": "CREATE TABLE meta (format INTEGER NOT NULL, secret BLOB NOT NULL)",
}
# Made when it is first needed; ledgers without it are whole.
_PROGRESS = {
    "progress": """CREATE TABLE progress (
        sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL, sha256 TEXT NOT NULL)""",
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


@dataclass(frozen=True, slots=True)
class FileSession(Session):
    """One open transaction on a file."""

    connection: sqlite3.Connection

    def run(self, statement: str, *values: object) -> list[Row]:
        """The rows of one statement, which has a question mark for each of the values."""
        return self.connection.execute(statement, values).fetchall()

    def replace_progress(self, *, sequence: int, payload: bytes, sha256: str) -> None:
        """Stores what is answered so far of the charge `sequence`, in place of what was there."""
        if not self._has_progress():
            self.run(_PROGRESS["progress"])
        # Not through super(): a dataclass with slots is made twice, and it would name the first.
        Session.replace_progress(self, sequence=sequence, payload=payload, sha256=sha256)

    def read_progress(self, sequence: int) -> tuple[bytes, str] | None:
        """What is answered so far of the charge `sequence`, and its recorded digest."""
        return Session.read_progress(self, sequence) if self._has_progress() else None

    def drop_progress(self, sequence: int) -> None:
        """Forgets the progress of a charge that is answered."""
        if self._has_progress():
            Session.drop_progress(self, sequence)

    def _has_progress(self) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE name = 'progress'"))


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
                with _words(path), closing(_connect(draft, mode="mode=rw", timeout=5.0)) as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    for statement in _TABLES.values():
                        connection.execute(statement)
                    connection.execute("INSERT INTO meta VALUES (?, ?)", (FORMAT, secret))
                    FileSession(connection).insert_entry(first)
                    connection.execute("COMMIT")
                os.link(draft, path)
            finally:
                for suffix in ("", "-wal", "-shm"):
                    draft.with_name(draft.name + suffix).unlink(missing_ok=True)
            _sync_folder(path.parent)
        except FileExistsError:
            return
        except OSError as error:
            raise LedgerError(_explain_creation(path, error)) from error

    @contextmanager
    def hold_question(self, key: int, *, timeout: float) -> Iterator[None]:
        """Holds one question against other processes on this machine, by a file beside the ledger's."""
        path = self.place.resolve()
        with hold_byte(path.with_name(path.name + ".lock"), key):
            yield

    @contextmanager
    def open(self, *, timeout: float, write: bool, read_only: bool = False) -> Iterator[FileSession]:
        """One transaction, exclusive if it is to write; commits unless an error leaves.

        With `read_only` the file is opened such that SQLite itself refuses to write it.

        The commit is on disk when the block ends: write-ahead logging with synchronous = FULL syncs
        the log at every commit.
        """
        path = self.place
        if not path.is_file():
            raise LedgerError(f"ledger {path.name!r} does not exist or is not a file")
        _refuse_second_name(path)
        with _words(path), ExitStack() as stack:
            if read_only:
                connection = _connect_reader(path, timeout=timeout)
            else:
                connection = _connect(path, mode="mode=rw", timeout=timeout)
            stack.callback(connection.close)
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                _check_layout(connection, path.name)
                yield FileSession(connection)
            except BaseException:
                if connection.in_transaction:  # SQLite may have rolled back already
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


def _connect(path: Path, *, mode: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=timeout, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA synchronous = FULL")  # also the first look at the file
        connection.execute("PRAGMA fullfsync = ON")  # on macOS a plain sync may stop in the drive
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_reader(path: Path, *, timeout: float) -> sqlite3.Connection:
    try:
        return _connect(path, mode="mode=ro", timeout=timeout)
    except sqlite3.OperationalError as error:
        name = getattr(error, "sqlite_errorname", "")
        log = path.with_name(path.name + "-wal")
        if not name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) or log.exists():
            raise
    # In a folder that cannot be written SQLite cannot join the log; without one, nothing is being
    # written and the file alone is the whole truth.
    return _connect(path, mode="immutable=1", timeout=timeout)


def _check_layout(connection: sqlite3.Connection, name: str) -> None:
    """Refuses other databases, other formats, and triggers that could undo a charge."""
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master"))
    if found not in (_TABLES, _TABLES | _PROGRESS):
        raise LedgerError(f"{name!r} is not a ledger, or its tables were changed; restore it from a backup")
    rows = connection.execute("SELECT format FROM meta").fetchall()
    if rows != [(FORMAT,)]:
        raise LedgerError(f"ledger {name!r} has a format this version does not know; use the one it is from")


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


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder, and needs no sync for its names
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
