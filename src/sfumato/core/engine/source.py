"""Where records are stored: files found, their columns and types read, their version told."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sfumato.core.engine.encode import Kind, Stored, quote_name
from sfumato.core.engine.opening import (
    LONGEST_RECORD,
    READABLE,
    TEXT_FILES,
    UNREADABLE,
    Quoting,
    advise_format,
    count_lines,
    find_delimiter,
    find_quoting,
    has_lines,
    has_odd_quote,
    is_spelled,
    read_header,
    split_fields,
    unquote,
)
from sfumato.core.errors import SfumatoError, SourceError
from sfumato.core.facts.project import match_files
from sfumato.core.facts.table import find_database
from sfumato.core.files import write_file

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from sfumato.core.engine.base import Fetched


_BATCH_ROWS = 2**17
# Whatever a database file says, nothing but it is read, nothing loaded for it, no record spilled beside it.
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "temp_directory": "",
}
_PLAIN = (".parquet", *TEXT_FILES)
_LONG = 2**26  # bytes that take a tenth of a second to digest: so much is not read again by every process
_WIDE = ("HUGEINT", "UHUGEINT")  # whole numbers that no Arrow type holds


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """The files of a table, their format, and every stored column with its type.

    Of a text file, all columns are bytes and it has no `schema`. Of a database, `relation` is the table in
    it, as SQL names it. Of a table on a lake, `version` tells its content, and `rows` reads it.
    """

    paths: tuple[Path, ...]
    format: Literal["parquet", "csv", "duckdb", "lake"]
    columns: dict[str, Stored]
    schema: pa.Schema | None = None
    delimiter: str = ","
    encoding: str = "utf-8"
    quoting: Quoting | None = None
    relation: str = ""
    version: str = ""
    rows: Callable[[pa.Schema], Iterator[pa.RecordBatch]] | None = None

    def fetch(self, wanted: frozenset[str]) -> Fetched:
        """The `wanted` columns, to be read file by file and in order."""
        import pyarrow as pa

        from sfumato.core.engine.base import Fetched

        plain = [name for name, stored in self.columns.items() if stored.kind != "other"]
        # Where nothing is asked of records but that they are there, any column tells.
        names = [name for name in plain if name in wanted] or plain[:1]
        stored = self.schema or pa.schema(dict.fromkeys(names, pa.binary()))
        schema = pa.schema([stored.field(name) for name in names])
        return Fetched(self.columns, schema, lambda: self._read(schema))

    def count_lines(self) -> tuple[int | None, int]:
        """The lines of text files, records or not, and those that leave a quote open; else None."""
        paths = self.paths if self.format == "csv" else ()
        found = [each for path in paths if (each := count_lines(path, self.delimiter, self.quoting))]
        return sum(lines for lines, _ in found) if found else None, sum(quotes for _, quotes in found)

    def _read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        from sfumato.core.engine.textfile import read_text

        if self.rows is not None:
            yield from self.rows(schema)
            return
        if self.format == "duckdb":
            yield from self._read_database(schema)
            return
        names = schema.names
        for path in self.paths:
            if self.format == "csv":
                yield from read_text(
                    path,
                    columns=tuple(self.columns),
                    include=tuple(names),
                    delimiter=self.delimiter,
                    encoding=self.encoding,
                    quoting=self.quoting,
                )
                continue
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=names, use_threads=True):
                    yield batch.select(names)

    def _read_database(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # All columns as they are, without a condition: what the file knows of its values decides nothing.
        selected = [
            quote_name(each.name) if each.type != pa.float64() else _as_double(each.name) for each in schema
        ]
        with _open_database(self.paths[0]) as connection:
            found = connection.sql(f"SELECT {', '.join(selected)} FROM {self.relation}")
            for batch in found.to_arrow_reader(_BATCH_ROWS):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def find_files(
    source: str,
    *,
    folder: Path,
    table: str,
    encoding: str = "utf-8",
    quoting: Quoting | None = None,
    names: tuple[str, ...] = (),
) -> FileSource:
    """The files behind `source`, described by their headers and footers alone.

    JSON lines have no header, and which keys a record has may be private: `names` are then the columns.
    """
    name = f"table {table!r}: source {source!r}"
    database = find_database(source)
    paths = [folder / database[0]] if database is not None else match_files(folder / source)
    if not paths or not all(each.is_file() for each in paths):
        what = "no file matches it" if "*" in source else "there is no such file"
        raise SourceError(
            f"{name} does not exist: {what}; it is looked up from the folder of the project file"
        )
    if database is not None:
        return _describe_database(paths[0], database[1], name, file_facts(paths))
    lowered = source.lower()
    try:
        if lowered.endswith(_PLAIN):
            return _describe(tuple(paths), name, encoding, quoting, names, file_facts(paths))
    except UNREADABLE as error:  # what Arrow cannot read is a ValueError
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            f"{name} cannot be read as {lowered.rsplit('.', 1)[-1]} ({type(error).__name__})"
        ) from None
    raise SourceError(f"{name} must end in {READABLE}; {advise_format(source)}")


def sign_contents(source: FileSource, *, secret: bytes, known: dict[str, str], kept_in: Path) -> str:
    """A keyed digest of what the files hold, wherever they are, whatever they are called and however old.

    A file is read once: `known` has its digest, by a keyed one of its name, size and times, and where
    reading took a while so has the file `kept_in`, for other processes. A file that changed just now is read
    again, since a further change might leave its times as they are.
    """
    from sfumato.core.engine.base import sign_version
    from sfumato.core.engine.sealed import make_private

    if source.version:
        return sign_version(source.version, secret=secret)
    begun, paths = time.time_ns(), _list_files(source.paths)
    states = [sign_version(file_facts([path]), secret=secret) for path in paths]
    if not all(state in known for state in states):
        with suppress(OSError, ValueError):
            known.update(json.loads(kept_in.read_text(encoding="ascii")))
    signed, read = [], 0
    for path, state in zip(paths, states, strict=True):
        content = known.get(state)
        if content is None:
            status = path.stat()
            with path.open("rb") as file:
                content = hashlib.file_digest(file, lambda: hmac.new(secret, digestmod="sha256")).hexdigest()
            if sign_version(file_facts([path]), secret=secret) != state:
                raise SourceError(f"{path.name!r} changed while it was read; ask again when it is complete")
            # A file system may tell times in whole seconds, even ones alone, or by a clock's ticks.
            if begun - status.st_ctime_ns > (10**8 if status.st_ctime_ns % 10**9 else 2 * 10**9):
                known[state] = content
                read += status.st_size
        signed.append(content)
    if read >= _LONG:
        kept = {state: known[state] for state in states if state in known}
        with suppress(OSError, SfumatoError):  # a folder that cannot be written costs time alone
            make_private(kept_in.parent)
            write_file(kept_in, json.dumps(kept).encode(), force=True)
    return sign_version("\n".join(sorted(signed)), secret=secret)


def _list_files(paths: Sequence[Path]) -> list[Path]:
    # What was written last may still be in a file beside a database.
    beside = [path.with_name(f"{path.name}.wal") for path in paths if not _is_plain(path)]
    return [*paths, *(each for each in beside if each.is_file())]


def file_facts(paths: Sequence[Path]) -> str:
    """Names, sizes and times of files: they change when a file does."""
    facts = []
    for path in _list_files(paths):
        status = path.stat()
        # The time of change of a file's description cannot be set back, as that of its content can.
        times = f"{status.st_mtime_ns}|{status.st_ctime_ns}"
        facts.append(f"{path.resolve()}|{status.st_size}|{times}|{status.st_ino}")
    return "\n".join(facts)


def _is_plain(path: Path) -> bool:
    return path.name.lower().endswith(_PLAIN)


@lru_cache(maxsize=64)
def _describe(
    paths: tuple[Path, ...],
    name: str,
    encoding: str,
    quoting: Quoting | None,
    names: tuple[str, ...],
    _facts: str,
) -> FileSource:
    """The files described; one statement asks many times, and the facts change when a file does."""
    if paths[0].name.lower().endswith(".parquet"):
        return refuse_twins(_describe_parquet(paths, name), name)
    return refuse_twins(_describe_csv(paths, name, encoding, quoting, names), name)


def refuse_twins(source: FileSource, name: str) -> FileSource:
    """The source as it is, or an error that calls it `name` if it has no columns, or such as SQL mixes up."""
    # SQL does not tell such names apart, and would bound the wrong column.
    seen: dict[str, str] = {}
    if not any(stored.kind != "other" for stored in source.columns.values()):
        raise SourceError(f"{name} has no column of plain values")
    for column in source.columns:
        twin = seen.setdefault(column.casefold(), column)
        if twin != column:
            shown = f"columns {twin!r} and {column!r}" if source.format != "csv" else "two columns"
            raise SourceError(f"{name}: {shown} differ in case only; rename one")
    return source


def _describe_parquet(paths: tuple[Path, ...], name: str) -> FileSource:
    import pyarrow.parquet as pq

    first = pq.read_schema(paths[0])
    stored = {field.name: field.type for field in first}
    for path in paths[1:]:
        other = {field.name: field.type for field in pq.read_schema(path)}
        for column in [*stored, *other]:
            if stored.get(column) != other.get(column):
                raise SourceError(
                    f"{name}: its files do not have the same columns: {column!r} is "
                    f"{_show_type(stored.get(column))} in {_show_path(paths[0])} and "
                    f"{_show_type(other.get(column))} in {_show_path(path)}"
                )
    if len(set(first.names)) != len(first.names) or not all(first.names):
        raise SourceError(f"{name} has two columns of the same name, or one without a name; rename one")
    columns = {field.name: describe_stored(field.type) for field in first}
    return FileSource(paths=paths, format="parquet", columns=columns, schema=first)


def _show_path(path: Path) -> str:
    return repr("/".join(path.parts[-2:]))


def _show_type(kind: pa.DataType | None) -> str:
    return "missing" if kind is None else str(kind)


@contextmanager
def _open_database(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb

    connection = duckdb.connect(str(path), read_only=True, config=dict(_CLOSED))
    try:
        connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        yield connection
    finally:
        connection.close()


@lru_cache(maxsize=64)
def _describe_database(path: Path, table: str, name: str, _facts: str) -> FileSource:
    """A table of a database file; the file is opened for reading alone."""
    import duckdb

    schema, _, relation = table.rpartition(".")
    found = "SELECT table_schema, table_name, table_type FROM information_schema.tables"
    try:
        with _open_database(path) as connection:
            listed = {
                (each.lower(), one.lower()): kind for each, one, kind in connection.sql(found).fetchall()
            }
            kind = listed.get(((schema or "main").lower(), relation.lower()))
            if kind is None:
                raise SourceError(f"{name}: the database has no such table; check the schema and the name")
            if kind != "BASE TABLE":
                # A view may read other files, whose changes nobody would notice.
                raise SourceError(f"{name} is a view; make a table of it: CREATE TABLE ... AS FROM {table}")
            quoted = f"{quote_name(schema or 'main')}.{quote_name(relation)}"
            kinds = {each: str(type_) for each, type_, *_ in connection.sql(f"DESCRIBE {quoted}").fetchall()}
            selected = [_as_double(each) if kinds[each] in _WIDE else quote_name(each) for each in kinds]
            read = (
                connection.sql(f"SELECT {', '.join(selected)} FROM {quoted} LIMIT 0").to_arrow_table().schema
            )
    except duckdb.Error:
        raise SourceError(
            f"{name} cannot be opened as a DuckDB database: it is none, of another version, needs an "
            "extension, or a program has it open for writing; close that program"
        ) from None
    columns = {field.name: describe_stored(field.type) for field in read}
    described = FileSource(paths=(path,), format="duckdb", columns=columns, schema=read, relation=quoted)
    return refuse_twins(described, name)


def _as_double(name: str) -> str:
    return f"CAST({quote_name(name)} AS DOUBLE) AS {quote_name(name)}"


def _describe_csv(
    paths: tuple[Path, ...], name: str, encoding: str, quoting: Quoting | None, given: tuple[str, ...]
) -> FileSource:
    if (encoding != "utf-8" or quoting) and any(map(is_spelled, paths)):
        raise SourceError(f"{name}: JSON lines and .xlsx files are UTF-8; leave encoding and quoting out")
    kinds = [find_quoting(path, quoting) for path in paths]
    headers = [
        read_header(path, encoding=encoding, names=given, quoting=kind)
        for path, kind in zip(paths, kinds, strict=True)
    ]
    first = headers[0]
    if first is None:
        raise SourceError(
            f"{name}: its first line is longer than {LONGEST_RECORD:,} bytes; a header line is needed"
        )
    if "\ufffd" in first or "\x00" in first:
        raise SourceError(
            f'{name}: its header is not {encoding}; say which it is, such as encoding = "latin-1" or "utf-16"'
        )
    delimiter = find_delimiter(first, paths[0])
    fields = split_fields(first.encode(), delimiter.encode(), kinds[0])
    if any(has_odd_quote(each, kinds[0]) for each in fields):
        raise SourceError(
            f'{name}: a quote in its header is not closed where the name ends; say quoting = "none" if '
            'quotes are plain text, "multiline" if names hold line breaks, or rename that column'
        )
    names = [unquote(each).decode() if kinds[0] != "none" else each.decode() for each in fields]
    if not first and has_lines(paths[0]):
        raise SourceError(f'{name}: no line of it is a JSON object, such as {{"age": 61}}')
    if len(set(names)) != len(names) or not all(names):
        raise SourceError(f"{name} needs a header line with one distinct name per column{_name_fault(names)}")
    if any(header != first for header in headers):
        raise SourceError(f"{name}: its files do not have the same header")
    return FileSource(
        paths=paths,
        format="csv",
        columns=dict.fromkeys(names, Stored("text", is_identifier=True)),
        delimiter=delimiter,
        encoding=encoding,
        quoting=quoting,
    )


def _name_fault(names: list[str]) -> str:
    """Which columns lack a name of their own, by place: a file without a header has records for names."""
    faults = [place for place, each in enumerate(names, start=1) if not each or names.index(each) < place - 1]
    if not faults:
        return ""
    remedy = ""
    if faults == [len(names)] and not names[-1]:
        # Records are not looked at, so that either may be right.
        remedy = (
            ": the line ends with a separator. If records do, too, name that last column; if not, take it off"
        )
    return f"; column {', '.join(map(str, faults[:5]))} of {len(names)} has none{remedy}"


def describe_stored(kind: pa.DataType) -> Stored:
    """A stored column of an Arrow type."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return describe_stored(kind.value_type)
    exact = (
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or (pa.types.is_decimal(kind) and kind.precision <= 38)
        or _arrow_kind(kind) == "text"
    )
    digits = (kind.precision, kind.scale) if pa.types.is_decimal(kind) else None
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return Stored(_arrow_kind(kind), is_identifier=exact, digits=digits, zoned=zoned)


def _arrow_kind(kind: pa.DataType) -> Kind:
    import pyarrow as pa

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
