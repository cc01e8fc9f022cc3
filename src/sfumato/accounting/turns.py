"""One at a time: equal questions wait for each other, among threads and, on one machine, processes.

A process holds a byte of a lock file for each question that it is answering. The system lets go of it when
the process ends, however it ends. Locks of this kind belong to the process and go with the first
descriptor that is closed, so a file is opened once and stays open; threads exclude each other by
locks of their own.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sfumato.errors import LedgerError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["hold_byte", "take_turn", "wait_until"]

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.2


class _Turns:
    """The questions that threads of this process are answering, and the lock files it has open."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.forget()

    def forget(self) -> None:
        """A forked process has none of its parent's threads, hence none of their turns; files stay open."""
        self.guard = threading.Lock()
        self.locks: dict[tuple[str, int], tuple[threading.Lock, int]] = {}


_turns = _Turns()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.forget)


@contextmanager
def take_turn(place: str, key: int) -> Iterator[None]:
    """Holds the turn of this thread for one question to the ledger at `place`."""
    name = place, key
    with _turns.guard:
        lock, users = _turns.locks.get(name, (threading.Lock(), 0))
        _turns.locks[name] = lock, users + 1
    try:
        with lock:
            yield
    finally:
        with _turns.guard:
            lock, users = _turns.locks.get(name, (lock, 1))
            if users > 1:
                _turns.locks[name] = lock, users - 1
            else:
                _turns.locks.pop(name, None)


@contextmanager
def hold_byte(path: Path, key: int) -> Iterator[None]:
    """Holds byte `key` of the lock file at `path`, against other processes."""
    if sys.platform == "win32":  # only threads wait for each other
        yield
        return
    descriptor = _open_once(path)

    def lock() -> bool:
        # Not the lock that waits: the system would see a deadlock between processes where two threads of
        # one of them wait for different things.
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


def _open_once(path: Path) -> int:
    with _turns.guard:
        try:
            there = path.stat()
            descriptor = _turns.files.get(str(path))
            if descriptor is not None and os.path.samestat(os.fstat(descriptor), there):
                return descriptor
        except FileNotFoundError:
            pass  # made below; one that was removed is left to those who hold a part of it
        try:
            opened = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            message = f"{path.name!r} cannot be opened ({error.strerror}); allow writing to its folder"
            raise LedgerError(message) from None
        _turns.files[str(path)] = opened
        return opened
