"""`sfumato backup`: the ledger, its key and people, copied while they are in use, and put back."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from sfumato.cli.output import Json, ProjectOption, open_curator, print_result
from sfumato.core.errors import LedgerError, VerificationFailed
from sfumato.core.files import sync_folder

_PEOPLE = "serve.db"


def backup(
    folder: Annotated[str, Argument(help="The folder of the backup.")],
    restore: Annotated[
        bool, Option("--restore", help="Put the backup back; stop all servers first.")
    ] = False,
    anchor: Annotated[
        str | None, Option(help="With --restore: the newest anchor that was kept elsewhere.")
    ] = None,
    project: ProjectOption = "sfumato.toml",
    json: Json = False,
) -> None:
    """Copy the ledger, its key and the server's people into a folder, and check the copy; servers may run.

    It prints the anchor of the ledger: keep the newest one elsewhere. What was charged after a backup would
    be forgotten by restoring it, so that a backup without the entry of the anchor is not put back.
    """
    from sfumato.accounting import Ledger, find_key

    curator = open_curator(project)
    home, place, kept = curator.project.folder, curator.ledger_path, Path(folder)
    if not isinstance(place, Path):
        raise LedgerError("the ledger is in PostgreSQL, with people: back it up with its database")
    key = find_key(place)
    assert key is not None  # as for all ledgers in files
    files = {kept / place.name: place, kept / f"{place.name}.key": key, kept / _PEOPLE: home / _PEOPLE}
    if restore:
        if anchor is None:
            raise VerificationFailed(
                "give the newest anchor that was kept elsewhere, --anchor 'sfumato-anchor-1:...': nothing "
                "else shows whether the backup lacks charges that were made after it"
            )
        copy = Ledger(kept / place.name)
        found = str(copy.check_anchor(anchor, folder=kept))
        _refuse_older(place, Ledger, {entry.hash for entry in copy.entries()})
        for source, target in files.items():
            if source.exists():
                _put_back(source, target)
        print_result({"restored": found}, f"Restored {place.name} from {kept}.", json=json)
        return
    if not place.exists():
        raise LedgerError(f"there is no ledger {place.name!r} yet: nothing was charged")
    if kept.exists():
        raise LedgerError(f"{folder!r} is there already; name a new folder")
    found = str(Ledger(place).sign_anchor(folder=home))  # the copies are no older than that
    draft = kept.with_name(f".{kept.name}.new")
    draft.mkdir(mode=0o700)
    try:
        # People first: an approval that is used meanwhile is in the ledger at least.
        for target, source in reversed(files.items()):
            if source == key:
                shutil.copyfile(source, draft / target.name)
            elif source.exists():
                with (
                    closing(sqlite3.connect(source)) as one,
                    closing(sqlite3.connect(draft / target.name)) as other,
                ):
                    one.backup(other)
            if (draft / target.name).exists():
                (draft / target.name).chmod(0o600)
        Ledger(draft / place.name).check_anchor(found, folder=draft)
        sync_folder(draft)
        draft.rename(kept)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    copied = sorted(path.name for path in kept.iterdir())
    told = f"Copied {', '.join(copied)} to {kept}, and checked them. Keep this line elsewhere:"
    print_result({"folder": str(kept), "files": copied, "anchor": found}, told, found, json=json)


def _refuse_older(place: Path, ledger: type, hashes: set[str]) -> None:
    """Refuses to replace a ledger that has charges which the backup lacks; one that is damaged may go."""
    try:
        entries = ledger(place).entries() if place.exists() else []
    except LedgerError:
        return
    if entries and entries[-1].hash not in hashes:
        raise VerificationFailed(
            f"{place.name!r} has entries that the backup lacks, and is whole; nothing was changed"
        )


def _put_back(source: Path, target: Path) -> None:
    """Copies a file to its place; what was there is set aside with what SQLite keeps beside it."""
    for end in ("-wal", "-shm", ""):
        there = target.with_name(target.name + end)
        if there.exists():
            there.rename(there.with_name(f"{target.name}.before{end}"))
    draft = target.with_name(f".{target.name}.new")
    shutil.copyfile(source, draft)
    draft.chmod(0o600)
    with draft.open("rb+") as file:
        os.fsync(file.fileno())
    draft.rename(target)
    sync_folder(target.parent)
