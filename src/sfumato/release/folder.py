"""A release folder: what may be written there, how it is opened, and the note of one that is only begun.

Every command opens a release with `open_folder`: no file is used that differs from what the certificate
describes, and whatever fails is one of two errors.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core.errors import ReleaseError, SfumatoError, SourceError, VerificationFailed
from sfumato.core.exact import parse_delta
from sfumato.core.facts.table import Table, parse_table
from sfumato.core.files import (
    MOST_TEXT,
    check_parent,
    explain_fault,
    read_regular,
    sync_folder,
    write_bytes,
    write_file,
)
from sfumato.recipes.base import EXTRA_FILES, MOST_ANSWERS, Plan, Recipe, parse_epsilons, refuse_large_answers
from sfumato.recipes.files import RECIPES, parse_record
from sfumato.release.certificate import FORMAT, pack_json, read_costs, read_plan, sum_costs
from sfumato.tables.arrays import read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

FILES = ("certificate.json", "measurements.parquet", "table.csv", "table.parquet", "writeup.md")
RESUME = "resume.json"
_CERTIFICATE = "certificate.json"
_NOTE_FORMAT = "sfumato resume 1"
_MOST_BYTES = 2**33


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenedRelease:
    """A release as it lies in its folder: its certificate, and the files that were asked for."""

    name: str
    certificate: Mapping[str, Any]
    files: Mapping[str, bytes]

    @property
    def cells(self) -> int:
        """Return the cells that the certificate says were measured; no more than a release may have."""
        listed = self.certificate.get("measurements")
        stated = [each.get("cells", 0) for each in listed] if isinstance(listed, list) else []
        return min(sum(each for each in stated if isinstance(each, int)), MOST_ANSWERS)

    def table(self, file: str) -> pa.Table:
        """Return the table in the Parquet file `file`."""
        with failing_closed(f"{file} cannot be read"):
            return read_parquet(self.files[file], rows=self.cells)

    def described(self) -> Table:
        """Return table that the certificate describes, compared with its plan if the recipe is known here."""
        with failing_closed("certificate.json does not describe the table and its measurements"):
            (name, spec), *_ = self.certificate["plan"]["table"].items()
            table = parse_table(name, spec)
            kind = self.certificate["plan"]["recipe"]["recipe"]
        return self.plan().table if kind in RECIPES else table

    def plan(self) -> Plan:
        """Return the plan that the certificate states, which must cost what the certificate says."""
        with failing_closed("the certificate does not describe a release that could have been made"):
            plan = read_plan(self.certificate)
            refuse_large_answers(plan)
            spent = read_costs(self.certificate) if plan.stepwise else plan.costs
            total = sum_costs(spent, delta=plan.delta)
            same = (plan.digest, total) == (self.certificate["plan_sha256"], self.certificate["total"])
        if not same:
            raise VerificationFailed("certificate.json: what it says was spent is not what its plan costs")
        return plan


def open_folder(folder: Path | str, *, load: tuple[str, ...] = (*FILES, *EXTRA_FILES)) -> OpenedRelease:
    """Return release in `folder` with the files to `load`; all are compared with the certificate's digests.

    A folder without a certificate is no release (ReleaseError); one that holds another thing than its
    certificate describes fails verification.
    """
    folder = Path(folder)
    name = folder.resolve().name
    present = _list_files(folder, name)
    content = _read_file(folder / _CERTIFICATE, name, most=MOST_TEXT)
    with failing_closed(f"{name!r}: certificate.json is not valid JSON"):
        certificate = json.loads(content)
    stated = _check_form(certificate, name)
    others = sorted(present - {_CERTIFICATE, *stated})
    if others:
        raise VerificationFailed(f"{name!r} holds {others[0]!r}, which is not part of this release")
    files = {_CERTIFICATE: content}
    for file, digest in stated.items():
        if file not in present:
            raise VerificationFailed(f"{file} is missing from the release {name!r}")
        content = _read_file(folder / file, name, most=_MOST_BYTES)
        if hashlib.sha256(content).hexdigest() != digest:
            raise VerificationFailed(f"{file} in {name!r} is not the file that its certificate describes")
        if file in load:
            files[file] = content
    return OpenedRelease(name=name, certificate=certificate, files=files)


def check_folder(out: Path, *, force: bool, keep: tuple[Path, ...] = ()) -> None:
    """Raises an error that says why a release cannot be written to `out`.

    `keep` names files, such as the ledger, that a replaced folder must not hold.
    """
    present = {path.name for path in out.iterdir()} if out.is_dir() else set()
    # A folder of a release that was only begun holds nothing to lose.
    if out.exists() and not force and present != {RESUME}:
        raise ReleaseError(f"{out.name!r} exists already; choose another folder, or --force to replace it")
    if out.exists() and not out.is_dir():
        raise ReleaseError(f"{out.name!r} is a file, not a folder")
    # Only a release is ever replaced: never a folder that holds anything else.
    if not present <= {*FILES, *EXTRA_FILES, RESUME}:
        raise ReleaseError(
            f"{out.name!r} holds something that is not part of a release; choose another folder"
        )
    target = out.resolve()
    if any(target == path.resolve() or target in path.resolve().parents for path in keep):
        raise ReleaseError(
            f"{out.name!r} holds the ledger, the project file or the records; choose another folder"
        )
    check_parent(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A release that was begun: its recipe, its privacy parameters and the name of its project file."""

    recipe: Recipe
    epsilons: tuple[Fraction, ...]
    delta: Fraction
    project: str


def write_note(out: Path, plan: Plan, *, project: str, force: bool) -> None:
    """Leaves the note in `out`; a release that is there and is to be replaced stays until then."""
    check_folder(out, force=force)
    note = {
        "format": _NOTE_FORMAT,
        "recipe": plan.recipe.to_record(),
        "epsilons": [str(epsilon) for epsilon in plan.epsilons],
        "delta": str(plan.delta),
        "project": project,
    }
    if out.exists():
        write_file(out / RESUME, pack_json(note), force=True)
    else:
        write_folder(out, {RESUME: pack_json(note)})


def read_note(out: Path) -> Begun:
    """Return what the note in `out` says, or an error that says what to do instead."""
    try:
        note: dict[str, Any] = json.loads(read_regular(out / RESUME, most=MOST_TEXT))
    except FileNotFoundError:
        raise ReleaseError(
            f"{out.name!r} has no {RESUME}, so no unfinished release is kept there; run `sfumato release "
            "RECIPE --out FOLDER`: what was answered before on the unchanged table is free"
        ) from None
    except OSError as error:
        raise ReleaseError(f"{out.name!r}: {RESUME} cannot be read ({type(error).__name__})") from None
    except (ValueError, RecursionError):
        raise ReleaseError(f"{out.name!r}: {RESUME} is not valid JSON; run the same release again") from None
    try:
        begun = Begun(
            recipe=parse_record(note["recipe"]),
            epsilons=parse_epsilons(note["epsilons"]),
            delta=parse_delta(note["delta"]),
            project=str(note["project"]),
        )
        known = note["format"] == _NOTE_FORMAT
    except (SfumatoError, KeyError, TypeError, ValueError, AttributeError):
        known = False
    if not known:
        raise ReleaseError(
            f"{out.name!r}: {RESUME} is not a note of this version; run the same release again"
        )
    return begun


@contextmanager
def failing_closed(what: str) -> Iterator[None]:
    """Return whatever fails while a release is read is a failed verification, which says `what` and why."""
    try:
        yield
    except VerificationFailed:
        raise
    except Exception as error:  # what can fail in reading a damaged file is nowhere listed
        raise VerificationFailed(f"{what}: {str(error)[:300] or type(error).__name__}") from None


def _list_files(folder: Path, name: str) -> set[str]:
    try:
        present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    except OSError as error:
        raise ReleaseError(f"{name!r} cannot be read ({type(error).__name__})") from None
    if present == {RESUME}:
        raise ReleaseError(f"{name!r} holds a release that is not finished; run `sfumato release --resume`")
    if _CERTIFICATE not in present:
        raise ReleaseError(f"{name!r} is not a release: it has no {_CERTIFICATE}")
    return present


def _read_file(path: Path, name: str, *, most: int) -> bytes:
    try:
        return read_regular(path, most=most)
    except SourceError as error:
        raise VerificationFailed(f"the release {name!r}: {error}") from None
    except OSError as error:
        raise ReleaseError(f"{path.name} in {name!r} cannot be read ({type(error).__name__})") from None


def _check_form(certificate: object, name: str) -> dict[str, str]:
    """Return the digests that a certificate states of its files, if it has the form of one."""
    if not isinstance(certificate, dict) or certificate.get("format") != FORMAT:
        raise VerificationFailed(f"{name!r}: certificate.json is not of the format {FORMAT!r}")
    stated, needed = certificate.get("files"), set(FILES) - {_CERTIFICATE}
    if (
        not isinstance(certificate.get("plan"), dict)
        or not isinstance(stated, dict)
        or not needed <= set(stated) <= needed | set(EXTRA_FILES)
    ):
        raise VerificationFailed(
            f"{name!r}: certificate.json does not state its plan, or not the files of a release"
        )
    return stated


def write_folder(out: Path, files: Mapping[str, bytes]) -> None:
    """Writes `files` to a temporary folder beside `out` and renames it, in place of one that is there."""
    target = out.resolve()
    partial = None
    try:
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        for name, content in files.items():
            write_bytes(partial / name, content)
        partial.chmod(0o755)
        sync_folder(partial)
        if target.exists():
            replaced = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            target.rename(replaced / "old")
            partial.rename(target)
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            partial.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise ReleaseError(
            f"{out.name!r} could not be written: {explain_fault(error)}. The noisy measurements are kept in "
            "the ledger; run the same release again and it is finished free of charge"
        ) from None
    finally:
        if partial is not None and partial.exists():
            shutil.rmtree(partial, ignore_errors=True)
