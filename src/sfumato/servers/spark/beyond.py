"""Who is over the bound, without a shuffle of all records.

Every individual has a place, by a hash of its name, and the workers count the records of each place. Where a
place has no more records than one individual may have, everybody in it is within the bound. The individuals
of all other places are listed and grouped, as many as they are. The names are read by Spark, or by pyarrow
where every worker sees the files as this machine does, which is many times faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.errors import SourceError
from sfumato.servers.push.plan import EVERYTHING, PushedPlan, beyond_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sfumato.servers.spark.engine import SparkSource

    Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.Array]]

_PER_BOUND = 4
"""Places for as many records as one individual may have: then few share a place with too many others."""
_LEAST_BITS, _MOST_BITS = 12, 25
_MOST_BYTES = 2**30
"""Counts of all workers that may come back together."""
_BATCH = 2**17
_ODD = 0x9E3779B97F4A7C15
_TEXT_BYTES = 64
"""Bytes from the start of a name that decide its place, beside its length and its last eight."""
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


def find_places(column: pa.Array, bits: int) -> NDArray[np.int64]:
    """A place below 2^bits for every individual of a column without NULL; equal ones have the same.

    Which places are equal beside that matters for speed alone.
    """
    kind = column.type
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind != pa.uint64()):
        hashed = column.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) * np.uint64(_ODD)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        hashed = _hash_texts(column)
    else:
        raise TypeError("individuals of this type are not placed")
    places: NDArray[np.int64] = (hashed >> np.uint64(64 - bits)).astype(np.int64)
    return places


def count_places(read: Read, bits: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What counts the records of every place, in one part of a table: one row of bytes, and their width."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = np.zeros(2**bits, np.uint32)
        records = 0
        for column in read(batches):
            records += len(column)
            np.add.at(counts, find_places(column, bits), np.uint32(1))
        if records >= 2**32:
            raise OverflowError("more records than are counted here")
        kind = np.min_scalar_type(int(counts.max()))
        yield pa.RecordBatch.from_arrays(
            [pa.array([counts.astype(kind).tobytes()], pa.binary()), pa.array([kind.itemsize], pa.int32())],
            names=["counts", "width"],
        )

    return count


def list_units(
    read: Read, crowded: bytes, bits: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What lists the individuals of crowded places, given as bits, once for each of their records."""

    def listed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chosen = np.unpackbits(np.frombuffer(crowded, np.uint8)).astype(np.bool_)
        for column in read(batches):
            kept = column.filter(pa.array(chosen[find_places(column, bits)]))
            if len(kept):
                yield pa.RecordBatch.from_arrays([kept], names=["u"])

    return listed


def read_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
    """The individuals of batches that Spark read."""
    for batch in batches:
        yield batch.column(0).drop_null()


def read_files(unit: str, kind: pa.DataType) -> Read:
    """Reads the individuals of files; batches name a file, the first of its parts to read, and a step."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Array]:
        import pyarrow.parquet as pq

        for batch in batches:
            for path, first, step in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                with pq.ParquetFile(path) as file:
                    if file.schema_arrow.names.count(unit) != 1:
                        raise KeyError("no such column, or several")
                    parts = list(range(first, file.num_row_groups, step))
                    found = file.iter_batches(_BATCH, row_groups=parts, columns=[unit], use_threads=False)
                    for each in found:
                        column = each.column(0).drop_null()
                        if pa.types.is_dictionary(column.type):
                            column = column.dictionary_decode()
                        find_places(column[:0], 1)  # raises for a type that Spark may read otherwise
                        yield column.cast(kind)

    return read


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


def _hash_texts(column: pa.Array) -> NDArray[np.uint64]:
    """A hash of each text: of its length, its first bytes and its last ones."""
    wide = pa.types.is_large_string(column.type)
    _, ends, data = column.buffers()
    if not len(column):
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(ends, np.int64 if wide else np.int32)[column.offset :][: len(column) + 1]
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    held: Any = b"" if data is None else data
    padded = np.concatenate((np.frombuffer(held, np.uint8), np.zeros(8, np.uint8)))
    # Eight bytes from every place on, as one number.
    words = np.ndarray((padded.size - 7,), "<u8", padded, 0, (1,))
    masks = np.array([2 ** (8 * kept) - 1 for kept in range(9)], np.uint64)
    hashed = lengths.astype(np.uint64)
    longest = int(lengths.max())
    places = [starts + at for at in range(0, min(longest, _TEXT_BYTES), 8)]
    lefts = [lengths - at for at in range(0, min(longest, _TEXT_BYTES), 8)]
    if longest > _TEXT_BYTES:
        places.append(starts + np.maximum(lengths - 8, 0))
        lefts.append(lengths)
    for place, left in zip(places, lefts, strict=True):
        word = words[np.minimum(place, words.size - 1)] & masks[np.clip(left, 0, 8)]
        hashed = (hashed ^ word) * np.uint64(_ODD)
        hashed ^= hashed >> np.uint64(32)
    return hashed * np.uint64(_ODD)
