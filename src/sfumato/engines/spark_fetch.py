"""Columns of Spark's tables, brought batch by batch to where statements are computed."""

from __future__ import annotations

from queue import Queue
from threading import Event, Thread
from typing import TYPE_CHECKING

import pyarrow as pa

from sfumato.engines.fetched import Fetched
from sfumato.engines.source import Stored, describe_stored
from sfumato.engines.spark_source import name_source
from sfumato.engines.spark_tally import pack_batches
from sfumato.engines.spark_types import quote_spark_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfumato.engines.spark_source import SparkSource
    from sfumato.schema import Table

_AHEAD = 4  # batches that wait here


def fetch_columns(source: SparkSource, table: Table, wanted: frozenset[str]) -> Fetched:
    """The columns `wanted` of a table and the one that names individuals, as Arrow types."""
    from pyspark.sql.pandas.types import to_arrow_type

    names = [
        name
        for name, stored in source.columns.items()
        if stored.kind != "other" and (name in wanted or name.lower() in wanted or name == table.unit.column)
    ]
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


def _stream(source: SparkSource, chosen: list[str], what: str) -> Iterator[pa.RecordBatch]:
    """Batches as they come: a few of them wait here, and one part of the table on the driver."""
    waiting: Queue[pa.RecordBatch | BaseException | None] = Queue(_AHEAD)
    given_up = Event()

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

    thread = Thread(target=run, daemon=True)
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
