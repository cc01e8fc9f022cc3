"""Columns that an engine brings from elsewhere into the embedded database, where statements are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sfumato.engines.encode import quote_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import duckdb
    import pyarrow as pa

    from sfumato.engines.source import Stored
    from sfumato.schema import Table

__all__ = ["Fetch", "Fetched", "keep_fetched"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Columns of a table: what is stored, the types of those that were asked for, and how to read them.

    `columns` tells all stored columns, with the patterns by which the embedded database reads the types
    of `schema`, which has the wanted ones. Nothing is read before `read` is called.
    """

    columns: Mapping[str, Stored]
    schema: pa.Schema
    read: Callable[[], Iterator[pa.RecordBatch]]


class Fetch(Protocol):
    """Gets the columns `wanted` of a table and the one that names individuals.

    A column is wanted if its stored name is listed, as it is or in lower case.
    """

    def __call__(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """The columns; reads no record yet."""


def keep_fetched(connection: duckdb.DuckDBPyConnection, fetched: Fetched, name: str, *, rows: bool) -> None:
    """Creates the table `name` with the fetched columns; without `rows`, with their types alone."""
    connection.register("fetched", fetched.schema.empty_table())
    connection.execute(f"CREATE TEMP TABLE {quote_name(name)} AS SELECT * FROM fetched")
    connection.unregister("fetched")
    if not rows:
        return
    for batch in fetched.read():
        connection.register("fetched", batch)
        connection.execute(f"INSERT INTO {quote_name(name)} SELECT * FROM fetched")
        connection.unregister("fetched")
