"""Released tables on disk: written under another name, read again, judged, and only then handed over."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from sfumato.anonymity.check import measure_anonymity
from sfumato.anonymity.encode import encode_values
from sfumato.anonymity.values import is_text
from sfumato.anonymity.wanted import find_shortfalls
from sfumato.errors import AnonymityError, ReleaseError, VerificationFailed
from sfumato.tables.arrays import to_arrow

if TYPE_CHECKING:
    from sfumato.anonymity.check import Anonymity
    from sfumato.anonymity.plan import Plan
    from sfumato.anonymity.tables import TableLike

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
        raise VerificationFailed(
            f"the released table is not what was asked, and is not handed over: {'; '.join(shortfalls)}"
        )
    return measured


def refuse_target(out: Path | str, *, force: bool, apart: tuple[TableLike, ...] = ()) -> Path:
    """The path to write to, or an error if it cannot be written there; never one of the tables `apart`."""
    path = Path(out)
    if not path.name.lower().endswith(_FORMATS):
        raise AnonymityError(f"{path.name!r} must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}")
    for source in apart:
        given = isinstance(source, (str, Path)) and path.exists() and Path(source).exists()
        if given and path.samefile(source):
            raise ReleaseError(f"{path.name!r} is what is read; choose another name for what is written")
    if path.exists() and not force:
        raise ReleaseError(f"{path.name!r} exists; choose another name, or say to overwrite it (force)")
    if not path.absolute().parent.is_dir():
        raise ReleaseError(f"the folder of {path.name!r} does not exist; create it first")
    return path


def write_judged(
    table: pa.Table, path: Path, plan: Plan, *, register: pa.Table | None = None, force: bool = False
) -> Anonymity:
    """How anonymous the file at `path` is, once it is written, read again and found to be what was asked.

    A file that is not stays nowhere: it is written under another name first.
    """
    ending = next(each for each in _FORMATS if path.name.lower().endswith(each))
    if ending != ".parquet" and table.num_columns == 1 and table.column(0).null_count:
        raise AnonymityError(
            "a text file of one column cannot show a missing value; write Parquet, or keep another column"
        )
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}{ending}")
    try:
        _write(table, draft, ending)
        measured = judge_table(draft, plan, register=register)
        if measured.records != table.num_rows:
            raise VerificationFailed(
                "the written file has not the records that were written, and is not handed over"
            )
        _hand_over(draft, path, force=force)
    except pa.ArrowException as error:
        raise ReleaseError(
            f"{path.name!r} cannot hold a column of this kind ({type(error).__name__}); try Parquet or CSV"
        ) from None
    except FileExistsError:
        raise ReleaseError(
            f"{path.name!r} exists; choose another name, or say to overwrite it (force)"
        ) from None
    except OSError as error:
        raise ReleaseError(
            f"{path.name!r} could not be written ({type(error).__name__}); check the folder and the disk"
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    return measured


def _hand_over(draft: Path, path: Path, *, force: bool) -> None:
    if not force:
        # A link is refused where a file has appeared in the meantime.
        with suppress(NotImplementedError, PermissionError):
            os.link(draft, path)
            return
    draft.replace(path)


def _write(table: pa.Table, path: Path, ending: str) -> None:
    with path.open("xb") as file:
        if ending == ".parquet":
            # Without the stored Arrow schema, numbered text is read as the text it is.
            pq.write_table(compact_text(table), file, store_schema=False, compression="zstd")
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


def compact_text(table: pa.Table) -> pa.Table:
    """The table with numbered text that knows only the texts of its rows, in their order.

    A file keeps the list of texts as it is given, so that one of a record that was left out, or the order
    in which they came, would be told by it.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        columns[name] = column
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if is_text(kind):
            codes, values = encode_values(name, column)
            known = [value for value in values if value is not None]
            indices = (
                pa.array(codes, mask=codes == len(known)) if len(known) < len(values) else to_arrow(codes)
            )
            columns[name] = pa.DictionaryArray.from_arrays(indices, pa.array(known, pa.string()))
        elif pa.types.is_dictionary(column.type):
            columns[name] = column.cast(kind)
    return pa.table(columns)


def decode_text(table: pa.Table) -> pa.Table:
    """The table with numbered text as plain text."""
    columns = {
        name: column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return pa.table(columns)
