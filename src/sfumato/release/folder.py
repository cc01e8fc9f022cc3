"""A release on disk: written whole under its name, or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import ReleaseError
from sfumato.recipes import EXTRA_FILES

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = ("certificate.json", "measurements.parquet", "table.csv", "table.parquet", "writeup.md")
RESUME = "resume.json"


def check_folder(out: Path, *, force: bool, keep: tuple[Path, ...] = ()) -> None:
    """Raises an error that says why a release cannot be written to `out`.

    `keep` names files, such as the ledger, that a replaced folder must not hold.
    """
    held = {path.name for path in out.iterdir()} if out.is_dir() else set()
    # A folder of a release that was only begun holds nothing to lose.
    if out.exists() and not force and held != {RESUME}:
        raise ReleaseError(f"{out.name!r} exists already; choose another folder, or --force to replace it")
    if out.exists() and not out.is_dir():
        raise ReleaseError(f"{out.name!r} is a file, not a folder")
    # Only a release is ever replaced: never a folder that holds anything else.
    if not held <= {*FILES, *EXTRA_FILES, RESUME}:
        raise ReleaseError(
            f"{out.name!r} holds something that is not part of a release; choose another folder"
        )
    target = out.resolve()
    if any(target == path.resolve() or target in path.resolve().parents for path in keep):
        raise ReleaseError(
            f"{out.name!r} holds the ledger, the project file or the records; choose another folder"
        )
    _check_parent(out)


def write_folder(out: Path, files: Mapping[str, bytes], *, force: bool = False) -> None:
    """Writes `files` to a temporary folder beside `out` and renames it; never half a release."""
    check_folder(out, force=force)
    target = out.resolve()
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise _cannot_write(out, error) from None
    try:
        for name, content in files.items():
            (partial / name).write_bytes(content)
        partial.chmod(0o755)
        if target.exists():
            replaced = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            target.rename(replaced / "old")
            partial.rename(target)
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            partial.rename(target)
    except OSError as error:
        raise _cannot_write(out, error) from None
    finally:
        if partial.exists():
            shutil.rmtree(partial, ignore_errors=True)


def check_file(path: Path, *, force: bool) -> None:
    """Raises an error that says why a file cannot be written to `path`."""
    if path.exists() and not force:
        raise ReleaseError(f"{path.name!r} exists already; choose another name, or --force to replace it")
    _check_parent(path)


def write_file(path: Path, content: bytes, *, force: bool = False) -> None:
    """Writes one file under a temporary name and renames it."""
    check_file(path, force=force)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.rename(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise ReleaseError(
            f"{path.name!r} could not be written: {error.strerror or type(error).__name__}"
        ) from None


def _check_parent(path: Path) -> None:
    parent = path.resolve().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ReleaseError(f"cannot write to the folder that should hold {path.name!r}; create it first")


def _cannot_write(path: Path, error: OSError) -> ReleaseError:
    reason = error.strerror or type(error).__name__
    return ReleaseError(
        f"{path.name!r} could not be written: {reason}. The noisy measurements are kept in the ledger; "
        "run the same release again and it is finished free of charge"
    )
