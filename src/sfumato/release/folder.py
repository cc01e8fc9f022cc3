"""A release on disk: written whole under its name, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import ReleaseError
from sfumato.recipes import EXTRA_FILES
from sfumato.tables.write import check_parent

if TYPE_CHECKING:
    pass

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
    check_parent(out)
