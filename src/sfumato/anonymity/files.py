"""Released tables on disk: written under another name, read again, judged, and only then handed over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from sfumato.anonymity.check import measure_anonymity
from sfumato.anonymity.errors import AnonymityError
from sfumato.anonymity.wanted import find_shortfalls
from sfumato.errors import ReleaseError, VerificationFailed

if TYPE_CHECKING:
    from sfumato.anonymity.check import Anonymity
    from sfumato.anonymity.plan import Plan
    from sfumato.anonymity.tables import TableLike

__all__ = ["judge_table", "refuse_target", "write_judged"]

_FORMATS = (".parquet", ".csv", ".csv.gz")


def judge_table(table: TableLike, plan: Plan, *, register: pa.Table | None = None) -> Anonymity:
    """How anonymous the table is as it stands; VerificationFailed if that is less than the plan wants.

    Nothing of how it was made is used: `table` may be a path, and what is read there is what counts.
    """
    measured = measure_anonymity(
        table,
        quasi_identifiers=plan.quasi_identifiers,
        sensitive=plan.sensitive or None,
        register=register if plan.wanted.k_map is not None else None,
        distance=plan.wanted.distance,
    )
    shortfalls = find_shortfalls(measured, plan.wanted)
    if shortfalls:
        message = f"the released table is not what was asked, and is not handed over: {'; '.join(shortfalls)}"
        raise VerificationFailed(message)
    return measured


def refuse_target(out: Path | str, *, force: bool, apart: tuple[TableLike, ...] = ()) -> Path:
    """The path to write to, or an error if it cannot be written there; never one of the tables `apart`."""
    path = Path(out)
    if not path.name.lower().endswith(_FORMATS):
        message = f"{path.name!r} must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
        raise AnonymityError(message)
    for source in apart:
        given = isinstance(source, (str, Path)) and path.exists() and Path(source).exists()
        if given and path.samefile(source):
            message = f"{path.name!r} is what is read; choose another name for what is written"
            raise ReleaseError(message)
    if path.exists() and not force:
        message = f"{path.name!r} exists; choose another name, or say to overwrite it (force)"
        raise ReleaseError(message)
    if not path.absolute().parent.is_dir():
        message = f"the folder of {path.name!r} does not exist; create it first"
        raise ReleaseError(message)
    return path


def write_judged(table: pa.Table, path: Path, plan: Plan, *, register: pa.Table | None = None) -> Anonymity:
    """How anonymous the file at `path` is, once it is written, read again and found to be what was asked.

    A file that is not stays nowhere: it is written under another name first.
    """
    ending = next(each for each in _FORMATS if path.name.lower().endswith(each))
    draft = path.with_name(f".{path.name}.{os.getpid()}{ending}")
    try:
        _write(table, draft, ending)
        measured = judge_table(draft, plan, register=register)
        draft.replace(path)
    except OSError as error:
        message = (
            f"{path.name!r} could not be written ({type(error).__name__}); check the folder and the disk"
        )
        raise ReleaseError(message) from None
    finally:
        draft.unlink(missing_ok=True)
    return measured


def _write(table: pa.Table, path: Path, ending: str) -> None:
    with path.open("xb") as file:
        if ending == ".parquet":
            # Without the stored Arrow schema, numbered text is read as the text it is.
            pq.write_table(table, file, store_schema=False, compression="zstd")
        else:
            plain = decode_text(table)
            if ending == ".csv":
                pa_csv.write_csv(plain, file)
            else:
                with pa.CompressedOutputStream(file, "gzip") as packed:
                    pa_csv.write_csv(plain, packed)
        if not file.closed:
            file.flush()
            os.fsync(file.fileno())


def decode_text(table: pa.Table) -> pa.Table:
    """The table with numbered text as plain text."""
    columns = {
        name: column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns)
