"""One at a time: equal questions wait for each other, among threads and, on one machine, processes.

A process holds a byte of a lock file for each question that it is answering. The system lets go of it when
the process ends, however it ends. Locks of this kind belong to the process and go with the first
descriptor that is closed, so a file is opened once for all threads that hold a part of it, and closed by the
last; threads exclude each other by locks of their own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import LedgerError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.2


class _Turn:
    """One question: who answers it, how many wait or answer, and how often the one has begun."""

    __slots__ = ("depth", "lock", "users")

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
def take_turn(place: str, key: int) -> Iterator[bool]:
    """Holds the turn of this thread for one question to the ledger at `place`.

    Whether it is the first: a thread that asks the same once more while it has its turn, from a function
    that is told of the progress, say, goes on at once.
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
def hold_byte(path: Path, key: int) -> Iterator[None]:
    """Holds byte `key` of the lock file at `path`, against other processes."""
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
