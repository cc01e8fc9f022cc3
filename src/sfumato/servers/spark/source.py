"""Tables as Spark sees them: how one is found and described, and how its columns are fetched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING

import pyarrow as pa

from sfumato.core.engine.base import Fetched, name_source
from sfumato.core.engine.encode import Stored
from sfumato.core.engine.source import describe_stored
from sfumato.core.errors import SourceError
from sfumato.servers.engine import refuse_twins, wanted_columns
from sfumato.servers.spark.encode import describe_type, quote_spark_name
from sfumato.servers.spark.session import SparkRoom
from sfumato.servers.spark.workers import pack_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sfumato.core.facts.table import Table


PREFIX = "spark:"
_AHEAD = 4  # batches that wait here


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A table as Spark sees it: its rows, its stored columns, and what its version follows from.

    The rows are those of the files that were listed when it was found: files that come later are not read.
    With `is_steady`, every job sees the same rows: not of views, which may compute anything, nor of other
    databases.
    """

    room: SparkRoom
    frame: DataFrame
    columns: dict[str, Stored]
    facts: tuple[str, ...]
    is_steady: bool = False


def is_path(source: str) -> bool:
    """Returns whether `source` names Parquet on shared storage, and not a table of the catalog.

    >>> is_path("spark:s3a://bucket/taxi/*.parquet"), is_path("spark:main.city.taxi")
    (True, False)
    """
    return "/" in source or source.lower().endswith(".parquet")


def find_source(
    room: SparkRoom, table: Table, *, folder: Path, known: SparkSource | None = None
) -> SparkSource:
    """Returns the source of `table`, described by the catalog and the footers of files alone.

    It is the one that is `known` if that was found in the same session and nothing changed since.
    """
    name = name_source(table)
    address = table.source.removeprefix(PREFIX)

    def find() -> SparkSource:
        if is_path(table.source):
            same = known if known is not None and known.room is room else None
            return _find_files(room, _absolute(address, folder), name, same)
        return _find_table(room, address, name)

    return room.run(find, what=name)


def fetch_columns(source: SparkSource, table: Table, wanted: frozenset[str]) -> Fetched:
    """Returns the columns `wanted` of a table and the one that names individuals, as Arrow types."""
    from pyspark.sql.pandas.types import to_arrow_type

    names = wanted_columns(source.columns, wanted, table.unit.column)
    types = {
        field.name: to_arrow_type(field.dataType, timezone="UTC")
        for field in source.frame.schema.fields
        if source.columns[field.name].kind != "other"
    }
    columns = {
        name: describe_stored(types[name]) if name in types else Stored("other") for name in source.columns
    }
    schema = pa.schema([(name, types[name]) for name in names])

    def read() -> Iterator[pa.RecordBatch]:
        chosen = [quote_spark_name(name) for name in names] or ["1 AS one"]
        return _stream(source, chosen, name_source(table))

    return Fetched(columns, schema if names else pa.schema([("one", pa.int32())]), read)


def _absolute(address: str, folder: Path) -> str:
    """Gives the path that Spark reads; one without a scheme or a leading slash is looked up from `folder`."""
    return address if "://" in address or address.startswith("/") else str(folder / address)


def _find_files(room: SparkRoom, path: str, name: str, known: SparkSource | None) -> SparkSource:
    files = _list_files(room.session, [path])
    if not files:
        raise SourceError(f"{name} has no files")
    if known is not None and known.facts == tuple(files):
        return known
    paths = [_escape(file.split("|", 1)[1]) for file in files]
    # Merging looks at every footer, so that a file with other types is found before it is counted.
    reader = room.session.read.option("mergeSchema", "true")
    if not any(sign in path for sign in "*?[{") and not path.endswith(".parquet"):
        reader = reader.option("basePath", path)  # columns in the names of folders count as columns
    frame = reader.parquet(*paths)
    return SparkSource(room, frame, _describe(frame, name), tuple(files), is_steady=True)


def _find_table(room: SparkRoom, address: str, name: str) -> SparkSource:
    session = room.session
    frame = session.table(address)
    columns = _describe(frame, name)
    facts = [address, *(f"{column} {stored.type}" for column, stored in columns.items())]
    files = sorted(set(frame.inputFiles()))
    if files:
        facts += _list_files(session, [_escape(file) for file in files])
    else:
        facts += _describe_table(session, address)
    is_table = session.catalog.getTable(address).tableType in ("MANAGED", "EXTERNAL")
    return SparkSource(room, frame, columns, tuple(facts), is_steady=bool(files) and is_table)


def _list_files(session: SparkSession, paths: list[str]) -> list[str]:
    """Size, time and path of every file, in a fixed order. No file is opened."""
    listing = session.read.format("binaryFile").option("recursiveFileLookup", "true").load(paths)
    rows = listing.selectExpr("path", "length", "unix_micros(modificationTime) AS changed").collect()
    return sorted(f"{row['length']};{row['changed']}|{row['path']}" for row in rows)


def _describe_table(session: SparkSession, address: str) -> list[str]:
    rows = session.sql(f"DESCRIBE TABLE EXTENDED {address}").collect()
    # What changes when a table is merely looked at is no part of its version.
    return [
        f"{row['col_name']}|{row['data_type']}"
        for row in rows
        if row["col_name"] not in ("Last Access", "Statistics")
    ]


def _describe(frame: DataFrame, name: str) -> dict[str, Stored]:
    refuse_twins((field.name for field in frame.schema.fields), where=name)
    return {field.name: describe_type(field.dataType.simpleString()) for field in frame.schema.fields}


def _escape(path: str) -> str:
    """Returns `path` such that Spark takes it for itself and not for a pattern."""
    return "".join(f"\\{sign}" if sign in "\\*?[]{}" else sign for sign in path)


def _stream(source: SparkSource, chosen: list[str], what: str) -> Iterator[pa.RecordBatch]:
    """Batches as they come: a few of them wait here, and one part of the table on the driver."""
    waiting: Queue[pa.RecordBatch | BaseException | None] = Queue(_AHEAD)
    given_up = threading.Event()

    def job() -> None:
        packed = source.frame.selectExpr(*chosen).mapInArrow(pack_batches, "b BINARY")
        for row in packed.toLocalIterator(prefetchPartitions=True):
            with pa.ipc.open_stream(bytes(row[0])) as reader:
                for batch in reader:
                    waiting.put(batch)
            if given_up.is_set():
                return

    def run() -> None:
        try:
            source.room.run(job, what=what)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while True:
            item = waiting.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        given_up.set()
        while thread.is_alive():
            while not waiting.empty():
                waiting.get()
            thread.join(0.05)
