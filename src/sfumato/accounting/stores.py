"""Where ledgers are kept: what a ledger asks of a file or of a database, whichever it is."""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from sfumato.accounting.chain import Entry
from sfumato.errors import Conflict, LedgerError
from sfumato.exact import canonical_json

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from contextlib import AbstractContextManager

Row = tuple[object, ...]

_SCHEMES = ("postgresql://", "postgres://")
_URL = re.compile(r"postgres(ql)?:|[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_TRIES = 5
_PAUSE = 0.05

_Self = TypeVar("_Self")
_Given = ParamSpec("_Given")
_Got = TypeVar("_Got")


class Session(ABC):
    """One open transaction on a store."""

    __slots__ = ()

    @abstractmethod
    def run(self, statement: str, *values: object) -> list[Row]:
        """The rows of one statement, which has a question mark for each of the values."""

    def read_secret(self) -> bytes:
        """The secret under which versions of tables are keyed; the chain holds its digest."""
        ((secret,),) = self.run("SELECT secret FROM meta")
        return secret if isinstance(secret, bytes) else b""

    def read_rows(self) -> list[Row]:
        """All rows of the chain as they are stored, in order."""
        return self.run(
            "SELECT sequence, recorded_at, kind, description, plan_digest, table_name, table_version,"
            " previous, hash FROM entries ORDER BY sequence"
        )

    def insert_entry(self, entry: Entry) -> None:
        """Appends `entry` to the open transaction."""
        self.run(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            entry.sequence,
            entry.recorded_at,
            entry.kind,
            entry.description_json,
            entry.plan_digest,
            entry.table,
            entry.table_version,
            entry.previous,
            entry.hash,
        )

    def insert_answer(self, *, sequence: int, payload: bytes, sha256: str) -> None:
        """Stores the payload that answers the charge `sequence`."""
        self.run("INSERT INTO answers VALUES (?, ?, ?)", sequence, payload, sha256)

    def read_answer(self, sequence: int) -> tuple[bytes, str] | None:
        """The payload stored for the charge `sequence` and its recorded digest."""
        return _read_payload(self.run("SELECT payload, sha256 FROM answers WHERE sequence = ?", sequence))

    def read_answered(self) -> set[object]:
        """The charges for which a payload is stored."""
        return {sequence for (sequence,) in self.run("SELECT sequence FROM answers")}

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


class Store(Protocol):
    """What a ledger needs: to be made once and whole, and transactions that are durable when they end."""

    @property
    def place(self) -> Path | str:
        """The path of the file, or the URL, which holds no password."""

    @property
    def name(self) -> str:
        """What messages call the store; it holds no credentials."""

    def exists(self, *, timeout: float) -> bool:
        """Whether anything is there, a whole ledger or not."""

    def create(self, *, secret: bytes, first: Entry, timeout: float) -> None:
        """Makes a complete new store, or leaves the one that is already there."""

    def hold_question(self, key: int, *, timeout: float) -> AbstractContextManager[None]:
        """Holds one question, a number below 2^62, against other processes that ask it of this ledger."""

    def open(
        self, *, timeout: float, write: bool, read_only: bool = False
    ) -> AbstractContextManager[Session]:
        """One transaction, exclusive if it is to write; durable when the block ends, undone by an error."""


def find_store(place: str | os.PathLike[str]) -> Store:
    """The store at a path or at a URL `postgresql://`. Nothing is opened yet.

    >>> find_store("postgresql://db.example.org/privacy?schema=team").name
    'postgresql://db.example.org/privacy?schema=team'
    """
    if isinstance(place, str) and place.startswith(_SCHEMES):
        from sfumato.accounting.store_postgres import PostgresStore

        return PostgresStore(place)
    if isinstance(place, str) and _URL.match(place):
        raise LedgerError(
            "a ledger is a file, or a schema of a database: postgresql://HOST/DATABASE?schema=NAME"
        )
    from sfumato.accounting.store import FileStore

    return FileStore(Path(place).absolute())


def locate_ledger(ledger: str, *, folder: Path) -> Path | str:
    """What `[budget] ledger` names: a path from the project's folder, or a URL as it is.

    >>> locate_ledger("ledger.db", folder=Path("project")).as_posix()
    'project/ledger.db'
    """
    return ledger if _URL.match(ledger) else folder / ledger


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


def _read_payload(rows: list[Row]) -> tuple[bytes, str] | None:
    for payload, sha256 in rows:
        # An edit may have left something else than bytes, which then matches no digest.
        return (payload if isinstance(payload, bytes) else str(payload).encode()), str(sha256)
    return None
