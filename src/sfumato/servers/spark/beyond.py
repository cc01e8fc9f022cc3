"""Who is over the bound, without a shuffle of all records.

Every individual has a place, by a hash of its name, and the workers count the records of each place. Where a
place has no more records than one individual may have, everybody in it is within the bound. The individuals
of all other places are listed and grouped, as many as they are. The names are read by Spark, or by pyarrow
where every worker sees the files as this machine does, which is many times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sfumato.core.errors import SourceError
from sfumato.servers.push.plan import EVERYTHING, PushedPlan, beyond_query
from sfumato.servers.spark.workers import count_places, list_units, read_batches, read_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sfumato.servers.spark.source import SparkSource

_PER_BOUND = 4
"""Places for as many records as one individual may have: then few share a place with too many others."""
_LEAST_BITS, _MOST_BITS = 12, 25
_MOST_BYTES = 2**30
"""Counts of all workers that may come back together."""
_LOCAL = "file:"


def find_beyond(
    source: SparkSource,
    pushed: PushedPlan,
    relation: str,
    unit: str,
    *,
    ask: Callable[[str], pa.Table],
    what: str,
) -> pa.Table:
    """The individuals over the bound of those records that a statement keeps, as u.

    `unit` is the stored column that names them, and `relation` the view of the records.
    """
    paths = find_local_files(source.facts, unit)
    suspects = _list_suspects(source, pushed, unit, paths, what) if paths else None
    if suspects is None:
        suspects = _list_suspects(source, pushed, unit, (), what)
    if suspects is None:
        return ask(beyond_query(pushed, relation))
    if isinstance(suspects, pa.Table):
        return suspects
    listed = suspects
    session = source.room.session

    def group() -> pa.Table:
        return listed.groupBy("u").count().where(f"count > {pushed.most}").select("u").toArrow()

    found = source.room.run(group, what=what)
    if pushed.condition == EVERYTHING or not found.num_rows:
        return found
    # They are over it in the whole of the table; a condition may leave less of them.
    source.room.run(lambda: session.createDataFrame(found).createOrReplaceTempView("beyond"), what=what)
    return ask(beyond_query(pushed, relation, among=True))


def find_local_files(facts: tuple[str, ...], unit: str) -> tuple[str, ...]:
    """The paths of the files of a source, if all are files of this machine's own and hold the column.

    Facts are the size, time and path of each. A column may also come of the name of a folder, which files
    with an equals sign in their path are not read for.

    >>> find_local_files(("12;5|file:/data/a.parquet",), "person")
    ('/data/a.parquet',)
    >>> find_local_files(("12;5|s3a://bucket/a.parquet",), "person")
    ()
    """
    paths = [fact.partition("|")[2] for fact in facts]
    if "." in unit or not all(path.startswith(_LOCAL) and "=" not in path for path in paths):
        return ()
    return tuple("/" + path.removeprefix(_LOCAL).lstrip("/") for path in paths)


def choose_bits(rows: int, most: int, tasks: int) -> int | None:
    """The places as a power of two, from the rows of a table; None if there would be too many.

    >>> choose_bits(100_000_000, 100, 2), choose_bits(10**10, 100, 200)
    (22, None)
    """
    wanted = -(-rows * _PER_BOUND // max(most, 1))
    bits = max(_LEAST_BITS, (max(wanted, 1) - 1).bit_length())
    return bits if bits <= _MOST_BITS and 4 * tasks * 2**bits <= _MOST_BYTES and rows < 2**32 else None


def _list_suspects(
    source: SparkSource, pushed: PushedPlan, unit: str, paths: tuple[str, ...], what: str
) -> DataFrame | pa.Table | None:
    """A frame of individuals, u, one row for each record of whoever may be over the bound.

    It is an empty table if nobody may be. With `paths`, the workers read these files by themselves. It is
    None if that fails, since some do not see the files or have no pyarrow, and if there are too many places
    to count.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    room = source.room
    session = room.session
    (field,) = (each for each in source.frame.schema.fields if each.name == unit)
    kind = to_arrow_type(field.dataType)

    def find() -> DataFrame | pa.Table | None:
        tasks = session.sparkContext.defaultParallelism
        rows = _count_rows(paths) if paths else source.frame.count()
        bits = choose_bits(rows, pushed.most, tasks)
        if bits is None:
            return None
        if paths:
            read, frame = read_files(unit, kind), _share_files(session, paths, tasks)
        else:
            read = read_batches
            frame = source.frame.selectExpr(f"{pushed.unit} AS u").coalesce(tasks)
        counted = frame.mapInArrow(count_places(read, bits), "counts BINARY, width INT").toArrow()
        totals = np.zeros(2**bits, np.int64)
        for counts, width in zip(*(column.to_pylist() for column in counted.columns), strict=True):
            totals += np.frombuffer(counts, np.dtype(f"u{width}"))
        crowded = totals > pushed.most
        if not crowded.any():
            return pa.table({"u": pa.array([], kind)})
        lister = list_units(read, np.packbits(crowded).tobytes(), bits)
        return frame.mapInArrow(lister, f"u {field.dataType.simpleString()}")

    try:
        return room.run(find, what=what)
    except SourceError:
        return None


def _share_files(session: SparkSession, paths: tuple[str, ...], tasks: int) -> DataFrame:
    """A frame with a row for each part of a file, spread over the tasks."""
    step = -(-tasks // len(paths))
    parts = [(path, first, step) for path in paths for first in range(step)]
    shared = session.sparkContext.parallelize(parts, min(tasks, len(parts)))
    return session.createDataFrame(shared, "path STRING, first INT, step INT")


def _count_rows(paths: tuple[str, ...]) -> int:
    import pyarrow.parquet as pq

    return sum(int(pq.read_metadata(path).num_rows) for path in paths)
