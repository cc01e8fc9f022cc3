"""A release folder: what may be written there, how it is opened, and the note of one that is only begun.

Every command opens a release with `open_folder`: no file is used that differs from what the certificate
describes, and whatever fails is one of two errors. Noisy answers are one Parquet file, and the same answers
give the same bytes; what is read back is checked against the questions, row by row.
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
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_arrow, to_numpy
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
from sfumato.core.questions.choices import Chosen
from sfumato.core.questions.measurement import Answer, Ask, Measurement, Request, request_grid, request_size
from sfumato.recipes.base import EXTRA_FILES, MOST_ANSWERS, Plan, Recipe, parse_epsilons, refuse_large_answers
from sfumato.recipes.files import RECIPES, parse_record
from sfumato.release.certificate import FORMAT, pack_json, read_costs, read_plan, sum_costs
from sfumato.tables.arrays import label_array, read_parquet
from sfumato.tables.read import table_to_parquet

_COLUMNS = ("measurement", "cell", "noisy_value", "noise_scale")


def pack_measurements(answers: tuple[Answer, ...]) -> bytes:
    """Return all answers as one Parquet file: noisy values, unclipped, with the scale of their noise.

    Value and scale are in units of 1 / grid; the certificate states the grid. A choice is one row: the
    index that was drawn, with a scale of 0. An answer in which no cell passed its threshold is one row,
    of cell -1.
    """
    parts = [_parts(answer) for answer in answers]
    names = tuple(name for name, _, _ in parts)
    scales = np.array([scale for _, _, scale in parts])
    which = np.repeat(np.arange(len(names), dtype=np.int32), [values.size for _, values, _ in parts])
    cells = [_cells(answer, values.size) for answer, (_, values, _) in zip(answers, parts, strict=True)]
    table = pa.table(
        {
            "measurement": label_array(which, names),
            "cell": to_arrow(np.concatenate(cells)),
            "noisy_value": to_arrow(np.concatenate([values for _, values, _ in parts])),
            "noise_scale": to_arrow(scales[which]),
        }
    )
    return table_to_parquet(table, varied=("cell", "noisy_value"), statistics=False)


def pack_step(answers: tuple[Answer, ...]) -> bytes:
    """Return the noisy values of one batch, as 64 bits each: what the ledger keeps of a step."""
    return b"".join(_parts(answer)[1].astype("<i8").tobytes() for answer in answers)


def unpack_step(packed: bytes, asks: tuple[Ask, ...], table: Table) -> tuple[Answer, ...]:
    """Return the answers to `asks` that `pack_step` packed."""
    values = np.frombuffer(packed, "<i8").astype(np.int64)
    sizes = [request_size(table, ask) if isinstance(ask, Request) else 1 for ask in asks]
    if sum(sizes) != values.size:
        raise ReleaseError("what the ledger keeps of a step is not the answer to what is asked now")
    answers: list[Answer] = []
    for ask, part in zip(asks, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
        if isinstance(ask, Request):
            answers.append(Measurement(request=ask, noisy_values=part, grid=request_grid(table, ask)))
        else:
            answers.append(Chosen(choice=ask, index=int(part[0])))
    return tuple(answers)


def append_answers(kept: bytes, answers: tuple[Answer, ...]) -> bytes:
    """What is kept of a charge with one more batch of answers, which is packed by itself after its length."""
    packed = pack_measurements(answers)
    return kept + len(packed).to_bytes(8, "big") + packed


def split_answers(kept: bytes) -> tuple[bytes, ...]:
    """Return the packed batches of `append_answers`.

    >>> split_answers((3).to_bytes(8, "big") + b"abc" + (1).to_bytes(8, "big") + b"d")
    (b'abc', b'd')
    """
    parts, start = [], 0
    while start < len(kept):
        stop = start + 8 + int.from_bytes(kept[start : start + 8], "big")
        parts.append(kept[start + 8 : stop])
        start = stop
    return tuple(parts)


def split_values(answers: pa.Table) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Returns the noisy values and the cells of every measurement in packed `answers`, by its name."""
    named = answers["measurement"].unify_dictionaries().combine_chunks()
    named = named.dictionary_encode()
    which = to_numpy(named.indices)
    order = np.argsort(which, kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(named.dictionary)))[:-1]
    values, cells = (
        np.split(to_numpy(answers[name].combine_chunks())[order], ends) for name in ("noisy_value", "cell")
    )
    return dict(zip(named.dictionary.to_pylist(), zip(values, cells, strict=True), strict=False))


class PackedAnswers:
    """The rows of packed files, taken one batch of questions after the other; at most `rows` of each."""

    __slots__ = ("_rows", "_start", "_table")

    def __init__(self, payloads: tuple[bytes, ...], table: Table, *, rows: int = MOST_ANSWERS) -> None:
        self._table = table
        self._start = 0
        try:
            parts = [read_parquet(payload, rows=rows) for payload in payloads]
            self._rows = pa.concat_tables(parts).unify_dictionaries()
        except (pa.ArrowException, OSError) as error:
            raise ReleaseError(f"measurements.parquet cannot be read ({type(error).__name__})") from None
        if self._rows.column_names != list(_COLUMNS):
            raise ReleaseError(
                f"measurements.parquet must have the columns {', '.join(_COLUMNS)} and no other"
            )

    @property
    def left(self) -> int:
        """Return the number of rows that were not taken yet."""
        return int(self._rows.num_rows - self._start)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all answers, in no particular order."""
        return tuple(pc.unique(self._rows["measurement"]).to_pylist())

    def take(self, asks: tuple[Ask, ...]) -> tuple[Answer, ...]:
        """Return the answers to `asks`, which the next rows must be, in order."""
        return tuple(self._take(ask) for ask in asks)

    def _take(self, ask: Ask) -> Answer:
        if isinstance(ask, Request):
            size = request_size(self._table, ask) if ask.threshold is None else self._run(ask.name)
        else:
            size = 1
        if size > self.left:
            raise ReleaseError(f"measurements.parquet ends before the answer to {ask.name!r}")
        part = self._rows.slice(self._start, size)
        self._start += size
        scale = float(ask.scale) if isinstance(ask, Request) else 0.0
        for name, expected in (("measurement", ask.name), ("noise_scale", scale)):
            if pc.unique(part[name]).to_pylist() != [expected]:
                raise ReleaseError(f"measurements.parquet: {ask.name!r} states another {name} than its plan")
        cells, values = (_whole_numbers(part[name], ask.name) for name in ("cell", "noisy_value"))
        if isinstance(ask, Request) and ask.threshold is not None:
            return self._sparse(ask, ask.threshold, cells, values)
        if not np.array_equal(cells, np.arange(size)):
            raise ReleaseError(f"measurements.parquet: the cells of {ask.name!r} are not in their order")
        if isinstance(ask, Request):
            return Measurement(request=ask, noisy_values=values, grid=request_grid(self._table, ask))
        if not 0 <= values[0] < ask.options:
            raise ReleaseError(f"measurements.parquet: {ask.name!r} has no candidate of that index")
        return Chosen(choice=ask, index=int(values[0]))

    def _run(self, name: str) -> int:
        """Return the number of next rows that belong to the measurement `name`."""
        named = pc.equal(self._rows["measurement"].slice(self._start), name)
        first = pc.index(named, value=False).as_py()
        return self.left if first < 0 else int(first)

    def _sparse(
        self, ask: Request, threshold: int, cells: NDArray[np.int64], values: NDArray[np.int64]
    ) -> Measurement:
        if cells.tolist() == [-1] and values.tolist() == [0]:
            cells, values = cells[:0], values[:0]
        elif not (
            cells.size
            and cells[0] >= 0
            and cells[-1] < self._table.cells(ask.columns)
            and (cells[1:] > cells[:-1]).all()
            and values.min() >= threshold
        ):
            raise ReleaseError(
                f"measurements.parquet: {ask.name!r} has cells out of order or below its threshold"
            )
        grid = request_grid(self._table, ask)
        return Measurement(request=ask, noisy_values=values, grid=grid, cells=cells)


def _parts(answer: Answer) -> tuple[str, NDArray[np.int64], float]:
    if isinstance(answer, Measurement):
        values = answer.noisy_values
        if answer.cells is not None and not values.size:
            values = np.zeros(1, np.int64)
        return answer.ask.name, values, float(answer.request.scale)
    return answer.ask.name, np.array([answer.index], np.int64), 0.0


def _cells(answer: Answer, size: int) -> NDArray[np.int64]:
    """Return the cells of an answer's rows."""
    if not isinstance(answer, Measurement) or answer.cells is None:
        return np.arange(size, dtype=np.int64)
    return answer.cells if answer.cells.size else np.array([-1], np.int64)


def _whole_numbers(column: pa.ChunkedArray, name: str) -> NDArray[np.int64]:
    values = column.combine_chunks()
    if values.type != pa.int64() or values.null_count:
        raise ReleaseError(f"measurements.parquet: {name!r} holds values that are not whole numbers")
    return to_numpy(values)


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
