"""The file of a ledger: one SQLite database, and its errors in words.

Every operation opens its own connection. Nothing is shared between threads or inherited by a
forked process, so neither can hold a stale view of what was spent.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import sqlite3
import time
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from sfumato.accounting.chain import FORMAT, Entry
from sfumato.canonical import canonical_json
from sfumato.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "Row",
    "create_store",
    "drop_progress",
    "insert_answer",
    "insert_entry",
    "open_store",
    "parse_row",
    "read_answer",
    "read_answered",
    "read_progress",
    "read_rows",
    "read_secret",
    "replace_progress",
]

Row = tuple[object, ...]

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


def create_store(path: Path, *, secret: bytes, first: Entry) -> None:
    """Nothing; writes a complete new store at `path`, or leaves the one that is already there.

    It is built under another name and linked into place, so that a file at `path` is complete
    from its first instant and an empty one is always an error.
    """
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
                insert_entry(connection, first)
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
def open_store(
    path: Path, *, timeout: float, write: bool, read_only: bool = False
) -> Iterator[sqlite3.Connection]:
    """A connection inside one transaction, exclusive for writing; commits unless an error leaves.

    With `read_only` the file is opened such that SQLite itself refuses to write it.

    The commit is on disk when the block ends: write-ahead logging with synchronous = FULL syncs
    the log at every commit.
    """
    if not path.is_file():
        message = f"ledger {path.name!r} does not exist or is not a file"
        raise LedgerError(message)
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
            yield connection
        except BaseException:
            if connection.in_transaction:  # SQLite may have rolled back already
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def read_secret(connection: sqlite3.Connection) -> bytes:
    """The secret under which versions of tables are keyed; the chain holds its digest."""
    ((secret,),) = connection.execute("SELECT secret FROM meta")
    return secret if isinstance(secret, bytes) else b""


def read_rows(connection: sqlite3.Connection) -> list[Row]:
    """All rows of the chain as they are on disk, in order."""
    return connection.execute(
        "SELECT sequence, recorded_at, kind, description, plan_digest, table_name, table_version,"
        " previous, hash FROM entries ORDER BY sequence"
    ).fetchall()


def parse_row(row: Row) -> Entry:
    """The entry that a row spells, its seal not yet checked."""
    sequence, recorded_at, kind, description, plan, table, version, previous, seal = row
    texts = (recorded_at, kind, plan, table, version, previous, seal)
    message = f"entry {sequence} was edited"
    if not isinstance(sequence, int) or not isinstance(description, bytes):
        raise LedgerError(message)
    if not all(isinstance(text, str) for text in texts):
        raise LedgerError(message)
    try:
        bytes.fromhex(str(previous))
        tree = json.loads(description)
        canonical = canonical_json(tree) == description
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerError(message) from error
    if not canonical or not isinstance(tree, dict):
        raise LedgerError(message)
    return Entry(
        sequence=sequence,
        recorded_at=str(recorded_at),
        kind=kind,  # type: ignore[arg-type]  # the chain refuses kinds it does not know
        description_json=description,
        plan_digest=str(plan),
        table=str(table),
        table_version=str(version),
        previous=str(previous),
        hash=str(seal),
    )


def insert_entry(connection: sqlite3.Connection, entry: Entry) -> None:
    """Nothing; appends `entry` to the open transaction."""
    connection.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.sequence,
            entry.recorded_at,
            entry.kind,
            entry.description_json,
            entry.plan_digest,
            entry.table,
            entry.table_version,
            entry.previous,
            entry.hash,
        ),
    )


def insert_answer(connection: sqlite3.Connection, *, sequence: int, payload: bytes, sha256: str) -> None:
    """Nothing; stores the payload that answers the charge `sequence`."""
    connection.execute("INSERT INTO answers VALUES (?, ?, ?)", (sequence, payload, sha256))


def read_answer(connection: sqlite3.Connection, sequence: int) -> tuple[bytes, str] | None:
    """The payload stored for the charge `sequence` and its recorded digest."""
    row = connection.execute("SELECT payload, sha256 FROM answers WHERE sequence = ?", (sequence,)).fetchone()
    return None if row is None else (bytes(row[0]), str(row[1]))


def read_answered(connection: sqlite3.Connection) -> set[int]:
    """The charges for which a payload is stored."""
    return {row[0] for row in connection.execute("SELECT sequence FROM answers")}


def replace_progress(connection: sqlite3.Connection, *, sequence: int, payload: bytes, sha256: str) -> None:
    """Nothing; stores what is answered so far of the charge `sequence`, in place of what was there."""
    if not _has_progress(connection):
        connection.execute(_PROGRESS["progress"])
    connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?)", (sequence, payload, sha256))


def read_progress(connection: sqlite3.Connection, sequence: int) -> tuple[bytes, str] | None:
    """What is answered so far of the charge `sequence`, and its recorded digest."""
    if not _has_progress(connection):
        return None
    row = connection.execute(
        "SELECT payload, sha256 FROM progress WHERE sequence = ?", (sequence,)
    ).fetchone()
    return None if row is None else (bytes(row[0]), str(row[1]))


def drop_progress(connection: sqlite3.Connection, sequence: int) -> None:
    """Nothing; forgets the progress of a charge that is answered."""
    if _has_progress(connection):
        connection.execute("DELETE FROM progress WHERE sequence = ?", (sequence,))


def _has_progress(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'progress'").fetchone()
    return found is not None


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
        message = f"{name!r} is not a ledger, or its tables were changed; restore it from a backup"
        raise LedgerError(message)
    rows = connection.execute("SELECT format FROM meta").fetchall()
    if rows != [(FORMAT,)]:
        message = f"ledger {name!r} has a format this version does not know; use the one it is from"
        raise LedgerError(message)


@contextmanager
def _words(path: Path) -> Iterator[None]:
    """Turns what SQLite or a check says into an error that names the ledger and a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        remedy = next((text for start, text in _REMEDIES if name.startswith(start)), None)
        message = f"ledger {path.name!r} {remedy or 'is damaged; restore it from a backup'}"
        raise LedgerError(message) from error


def _refuse_second_name(path: Path) -> None:
    """Under two names a file has two logs, which do not know of each other's charges."""
    for _ in range(40):  # a ledger that is being created has a second name for an instant
        if path.stat().st_nlink == 1:
            return
        time.sleep(0.05)
    message = f"ledger {path.name!r} has a second name (a hard link); remove the other one"
    raise LedgerError(message)


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
