"""Where records are stored: files found, their columns and types read, their version told."""

from __future__ import annotations

import csv
import gzip
import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from sfumato.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.schema import Table

__all__ = ["FileSource", "Kind", "Stored", "check_unit", "describe_stored", "file_version", "find_files"]

Kind = Literal["integer", "number", "text", "boolean", "date", "other"]

_FAR, _FARTHER = 60_000_000_000_000, 250_000_000_000_000
"""The moments that are read, in milliseconds before and after 1970."""

_DELIMITERS = ",;\t|"


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored column: its kind, and a pattern for the SQL that reads it without ever failing.

    Milliseconds since 1970 are `counted`: a reader that turned them into moments would stop at one
    that lies too far off, so they are read as whole numbers and turned by the pattern. An
    `identifier` keeps different values apart, as one that names individuals must.
    """

    kind: Kind
    pattern: str = "{}"
    counted: bool = False
    is_identifier: bool = False


class _Stored(Protocol):
    """A column as any engine describes it."""

    @property
    def is_identifier(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """The files of a table, their format, and every stored column."""

    paths: tuple[Path, ...]
    format: Literal["parquet", "csv"]
    columns: dict[str, Stored]
    delimiter: str = ","


def find_files(source: str, *, folder: Path, table: str) -> FileSource:
    """The files behind `source`, described by their headers and footers alone."""
    path = folder / source
    paths = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
    name = f"table {table!r}: source {source!r}"
    if not paths or not all(each.is_file() for each in paths):
        message = f"{name} does not exist; it is looked up from the folder of the project file"
        raise SourceError(message)
    lowered = source.lower()
    try:
        if lowered.endswith(".parquet"):
            return _refuse_twins(_describe_parquet(tuple(paths), name), name)
        if lowered.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
            return _refuse_twins(_describe_csv(tuple(paths), name), name)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, pa.ArrowInvalid) as error:
        if isinstance(error, SourceError):
            raise
        message = f"{name} cannot be read as {lowered.rsplit('.', 1)[-1]} ({type(error).__name__})"
        raise SourceError(message) from None
    message = f"{name} must end in .parquet, .csv or .csv.gz"
    raise SourceError(message)


def check_unit(table: Table, stored: Mapping[str, _Stored], *, where: str) -> None:
    """Nothing, or an error if the unit column is not stored there, or cannot name individuals."""
    name = table.unit.column
    if name is None:
        return
    if name not in stored:
        message = f"{where} has no unit column {name!r}"
        raise SourceError(message)
    if not stored[name].is_identifier:
        message = (
            f"table {table.name!r}: the unit column {name!r} must hold text, whole numbers, decimals, "
            "booleans or dates: values of other types cannot be told apart exactly"
        )
        raise SourceError(message)


def file_version(source: FileSource, *, secret: bytes) -> str:
    """A keyed digest of names, sizes and modification times."""
    facts = []
    for path in source.paths:
        status = path.stat()
        facts.append(f"{path.resolve()}|{status.st_size}|{status.st_mtime_ns}|{status.st_ino}")
    # Keyed, because a file's size says how many people are in it.
    return hmac.new(secret, "\n".join(facts).encode(), hashlib.sha256).hexdigest()


def _refuse_twins(source: FileSource, name: str) -> FileSource:
    # SQL does not tell such names apart, and would bound the wrong column.
    seen: dict[str, str] = {}
    for column in source.columns:
        twin = seen.setdefault(column.casefold(), column)
        if twin != column:
            shown = f"columns {twin!r} and {column!r}" if source.format == "parquet" else "two columns"
            message = f"{name}: {shown} differ in case only; rename one"
            raise SourceError(message)
    return source


def _describe_parquet(paths: tuple[Path, ...], name: str) -> FileSource:
    first = pq.read_schema(paths[0])
    for path in paths[1:]:
        if not pq.read_schema(path).equals(first):
            message = f"{name}: its files do not have the same columns"
            raise SourceError(message)
    if len(set(first.names)) != len(first.names) or not all(first.names):
        message = f"{name} has two columns of the same name, or one without a name; rename one"
        raise SourceError(message)
    columns = {field.name: describe_stored(field.type) for field in first}
    return FileSource(paths=paths, format="parquet", columns=columns)


def _describe_csv(paths: tuple[Path, ...], name: str) -> FileSource:
    headers = []
    for path in paths:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as lines:
            # Only the first line is decoded: what follows is records, and may be anything.
            headers.append(lines.readline().decode("utf-8-sig"))
    # The header is public, a sniffed row is not: the delimiter is taken from the header alone.
    delimiter = max(_DELIMITERS, key=headers[0].count)
    names = next(csv.reader([headers[0]], delimiter=delimiter), [])
    if not names or len(set(names)) != len(names) or not all(names):
        message = f"{name} needs a header line with one distinct name per column"
        raise SourceError(message)
    if any(header != headers[0] for header in headers):
        message = f"{name}: its files do not have the same header"
        raise SourceError(message)
    columns = dict.fromkeys(names, Stored("text", is_identifier=True))
    return FileSource(paths=paths, format="csv", columns=columns, delimiter=delimiter)


def describe_stored(kind: pa.DataType) -> Stored:
    """A stored column of an Arrow type, as the embedded database reads it."""
    if pa.types.is_dictionary(kind):
        return describe_stored(kind.value_type)
    if pa.types.is_timestamp(kind):
        return _describe_moment(kind)
    exact = (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or (pa.types.is_decimal(kind) and kind.precision <= 38)
        or _arrow_kind(kind) == "text"
    )
    return Stored(_arrow_kind(kind), is_identifier=exact)


def _describe_moment(kind: pa.DataType) -> Stored:
    # Not every moment that can be stored can be written as text; those outside the years 70 to 9891 are none.
    if kind.unit in ("s", "ms"):
        within = f"CASE WHEN {{0}} BETWEEN {-_FAR} AND {_FARTHER} THEN {{0}} END"
        return Stored("date", f"TRY(epoch_ms({within}))", counted=True)
    if kind.unit == "us":
        count = "epoch_us({0})"
        within = f"CASE WHEN {count} BETWEEN {-_FAR * 1000} AND {_FARTHER * 1000} THEN {count} END"
        return Stored("date", f"TRY(make_timestamp({within}))")
    return Stored("date", "TRY_CAST({0} AS TIMESTAMPTZ)" if kind.tz is not None else "{0}")


def _arrow_kind(kind: pa.DataType) -> Kind:
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    return "other"
