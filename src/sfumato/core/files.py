"""Files: written durably, whole under their name or not at all; read within limits.

A file is written under a temporary name in the same folder, forced to disk, and renamed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sfumato.core.errors import ReleaseError, SourceError


def check_file(path: Path, *, force: bool) -> None:
    """Raises an error that says why a file cannot be written to `path`."""
    if path.exists() and not force:
        raise ReleaseError(f"{path.name!r} exists already; choose another name, or --force to replace it")
    check_parent(path)


def check_parent(path: Path) -> None:
    """Raises an error if the folder that should hold `path` is not there, or not writable."""
    parent = path.resolve().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ReleaseError(f"cannot write to the folder that should hold {path.name!r}; create it first")


def write_file(path: Path, content: bytes, *, force: bool = False) -> None:
    """Writes one file under a temporary name and renames it."""
    check_file(path, force=force)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_bytes(partial, content)
        partial.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise ReleaseError(f"{path.name!r} could not be written: {explain_fault(error)}") from None
    finally:
        partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Forces the names in `folder` to disk: a rename is durable only then."""
    if os.name == "nt":  # Windows cannot open a folder, and needs no sync for its names
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file and forces it to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def explain_fault(error: OSError) -> str:
    """What went wrong, in the words of the system."""
    return error.strerror or type(error).__name__


MOST_TEXT = 2**28
"""Bytes of a file that is read whole into Python: a list of values, a certificate."""


def read_regular(path: Path, *, most: int) -> bytes:
    """The bytes of the regular file at `path`; anything else, or more than `most`, is refused unread."""
    # A pipe would otherwise wait for a writer before it can be told from a file.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{path.name!r} is not a regular file")
        if status.st_size > most:
            raise SourceError(f"{path.name!r} is larger than {most:,} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(status.st_size + 1)
    finally:
        os.close(descriptor)
    if len(content) != status.st_size:
        raise SourceError(f"{path.name!r} changed while it was read")
    return content
