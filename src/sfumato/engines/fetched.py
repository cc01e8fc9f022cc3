"""Columns of a source, wherever it is, as they are read to be sealed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from sfumato.engines.source import Stored
    from sfumato.schema import Table


@dataclass(frozen=True, slots=True)
class Fetched:
    """Columns of a table: what is stored, the types of those that were asked for, and how to read them.

    `columns` has all stored columns, `schema` the wanted ones. Nothing is read before `read` is called.
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
