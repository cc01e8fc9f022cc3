"""Tables and files of Spark: found, described, pinned, and their version told."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.engines.spark_types import SparkColumn, describe_type
from sfumato.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sfumato.engines.spark_session import SparkRoom
    from sfumato.schema import Table

PREFIX = "spark:"


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A table as Spark sees it: its rows, its stored columns, and what its version follows from.

    The rows are those of the files that were listed when it was found: files that come later are not read.
    """

    room: SparkRoom
    frame: DataFrame
    columns: dict[str, SparkColumn]
    facts: tuple[str, ...]


def is_path(source: str) -> bool:
    """Whether `source` names Parquet on shared storage, and not a table of the catalog.

    >>> is_path("spark:s3a://bucket/taxi/*.parquet"), is_path("spark:main.city.taxi")
    (True, False)
    """
    return "/" in source or source.lower().endswith(".parquet")


def name_source(table: Table) -> str:
    """How errors call the source of `table`."""
    return f"table {table.name!r}: source {table.source!r}"


def find_source(
    room: SparkRoom, table: Table, *, folder: Path, known: SparkSource | None = None
) -> SparkSource:
    """The source of `table`, described by the catalog and the footers of files alone.

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


def source_version(source: SparkSource, *, secret: bytes) -> str:
    """A keyed digest of the facts about a source; it tells a change, and nothing else.

    For Parquet, and for tables of the catalog whose files Spark can name, the facts are the names, sizes
    and modification times (in milliseconds) of the files. For all else (views, tables of other databases,
    streams) they are the description of the table in the catalog: columns and properties, and not its rows.
    A change of the rows of such a table goes unseen.
    """
    # Keyed, because a file's size says how many people are in it.
    return hmac.new(secret, "\n".join(source.facts).encode(), hashlib.sha256).hexdigest()


def _absolute(address: str, folder: Path) -> str:
    """The path that Spark reads; one without a scheme or a leading slash is looked up from `folder`."""
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
    return SparkSource(room, frame, _describe(frame, name), tuple(files))


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
    return SparkSource(room, frame, columns, tuple(facts))


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


def _describe(frame: DataFrame, name: str) -> dict[str, SparkColumn]:
    columns: dict[str, SparkColumn] = {}
    seen: dict[str, str] = {}
    for field in frame.schema.fields:
        twin = seen.setdefault(field.name.casefold(), field.name)
        if twin != field.name or field.name in columns:
            raise SourceError(
                f"{name}: columns {twin!r} and {field.name!r} differ in case at most; rename one"
            )
        columns[field.name] = describe_type(field.dataType.simpleString())
    return columns


def _escape(path: str) -> str:
    """`path` such that Spark takes it for itself and not for a pattern."""
    return "".join(f"\\{sign}" if sign in "\\*?[]{}" else sign for sign in path)
