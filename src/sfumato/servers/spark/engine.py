"""Exact bounded counts of tables in Spark.

Spark reads, encodes to small integers and bounds contributions; its workers count the codes with numpy, all
marginals in one job, and what comes back are sparse counts. What counts individuals is portable SQL. A
DP-SELECT is aggregated by Spark where every expression means the same there; for others the columns that they
name are fetched, and DuckDB aggregates them as it does for files.

Who is over the bound is found without a shuffle of all records. Every individual has a place, by a hash of
its name, and the workers count the records of each place. Where a place has no more records than one
individual may have, everybody in it is within the bound; those of all other places are listed and grouped.
The names are read by Spark, or by pyarrow where every worker sees the files as this machine does, which is
many times faster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.engine.base import Fetched, TrueCounts, all_columns, name_source, sign_version
from sfumato.core.engine.counts import Ask, Beside, bounded_query, number_table, render
from sfumato.core.errors import SourceError
from sfumato.servers.engine import ServerEngine, collect_cells
from sfumato.servers.push.plan import (
    EVERYTHING,
    PushedPlan,
    add_aggregates,
    aggregate_queries,
    beyond_query,
    clipped_query,
    collect_aggregates,
    push_plan,
    spread_counts,
)
from sfumato.servers.spark.encode import SparkWords, encode_spark_column, identify
from sfumato.servers.spark.session import SparkRoom, SparkSource, fetch_columns, find_source, open_room
from sfumato.servers.spark.workers import (
    COUNTED,
    Layout,
    count_places,
    lay_out,
    list_units,
    make_counter,
    read_batches,
    read_files,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sfumato.core.algebra.measures import Checked
    from sfumato.core.engine.aggregates import TrueAggregates
    from sfumato.core.engine.encode import Stored
    from sfumato.core.facts.table import Table


_STORED = "stored AS stored"


class SparkEngine(ServerEngine):
    """An engine over tables of Spark's catalog and Parquet on shared storage."""

    unplain = "is an array, a map, a structure, binary or of another type without single values; leave it out"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[tuple[int, str], SparkSource] = {}  # by thread: a snapshot is of whoever entered it
        self._known: dict[str, SparkSource] = {}
        self._lock = threading.RLock()

    @contextmanager
    def snapshot(self, table: Table) -> Iterator[None]:
        """Reads inside see the files that were listed when it was entered.

        Spark has no snapshots: a file that is written anew meanwhile is noticed by the version, which
        differs afterwards, and a file that is gone fails the job.
        """
        key = threading.get_ident(), table.source
        with self._lock:
            outer = self._held.get(key)
            self._held[key] = outer or self._look_up(table)
        try:
            yield
        finally:
            with self._lock:
                if outer is None:
                    del self._held[key]

    @contextmanager
    def _describe(self, table: Table) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        yield name_source(table), self._find(table).columns

    def _check_encoding(self, table: Table, columns: tuple[str, ...], stored: Mapping[str, Stored]) -> None:
        for place, column in enumerate(columns):
            encode_spark_column(table.column(column), stored, place=place, limit=table.text_limit)

    def version(self, table: Table, *, secret: bytes) -> str:
        """Returns a keyed digest that changes when the source does, as far as Spark can see.

        For Parquet, and for tables of the catalog whose files Spark can name, it follows the names, sizes and
        modification times (in milliseconds) of the files. For all else (views, tables of other databases,
        streams) it follows the description of the table in the catalog: columns and properties, and not its
        rows. A change of the rows of such a table goes unseen.
        """
        # Never the source of a snapshot: what is asked for is the state of now.
        return sign_version("\n".join(self._look_up(table).facts), secret=secret)

    def _count_cells(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        occupied: tuple[tuple[str, ...], ...],
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        # All of them in one job.
        asked = (*marginals, *occupied)
        columns = all_columns(asked)
        sizes = tuple(table.column(name).size for name in columns)
        layout = lay_out(sizes)
        weighted = table.unit.column is not None and table.bounding == "weight"
        counter = make_counter(
            layout,
            tuple(tuple((columns.index(name), table.column(name).size) for name in each) for each in asked),
            weighted=weighted,
            grid=table.grid,
        )
        with self._encoded(table, columns) as room:
            progress("bounding contributions and counting")
            packed = _pack(bounded_query(table, columns), layout, weighted=weighted)

            def job() -> pa.Table:
                rows = room.session.sql(packed).mapInArrow(counter, COUNTED)
                return rows.groupBy("m", "cell").sum("n").toArrow()

            counted = room.run(job, what=name_source(table))
        part = [to_numpy(column.combine_chunks()) for column in counted.columns]
        return collect_cells(table, marginals, occupied, [part])

    def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """Returns the wanted columns of a table for statements; they are read when asked for."""
        return fetch_columns(self._find(table), table, wanted)

    def push(self, table: Table, checked: Checked) -> PushedPlan | None:
        """Returns the query as Spark runs it, resolved there and not run; None if it is left to DuckDB."""
        source = self._find(table)
        # A session of Spark Connect resolves views when a frame is read at last, when these are gone.
        steady = source.is_steady and not source.room.is_remote
        pushed = push_plan(checked, SparkWords(table, source.columns)) if steady else None
        if pushed is not None:
            queries = aggregate_queries(pushed, _STORED, bounded=False).values()
            with _viewed(source, table) as room:
                room.run(
                    lambda: [room.session.sql(query).schema for query in queries], what=name_source(table)
                )
        return pushed

    def aggregate(
        self, table: Table, pushed: PushedPlan, wanted: frozenset[str]
    ) -> tuple[TrueAggregates, Fetched | None]:
        """Returns the aggregates of all individuals within their bound, and the records of the others."""
        source, what = self._find(table), name_source(table)
        with _viewed(source, table) as room:

            def ask(query: str) -> pa.Table:
                return room.run(lambda: room.session.sql(query).toArrow(), what=what)

            if pushed.only_counts and any(each.statistic == "individuals" for each in pushed.measures):
                (row,) = ask(clipped_query(pushed, _STORED)).to_pylist()
                return spread_counts(pushed, tuple(row.values())), None
            unit = table.unit.column
            # Found anew for every statement: a file may change and keep its size and time.
            beyond = None if unit is None else find_beyond(source, pushed, _STORED, unit, ask=ask, what=what)
            bounded = beyond is not None and beyond.num_rows > 0
            if bounded:
                room.run(
                    lambda: room.session.createDataFrame(beyond).createOrReplaceTempView("beyond"),
                    what=what,
                )
            answers = {
                places: zip(*(column.to_pylist() for column in ask(query).columns), strict=True)
                for places, query in aggregate_queries(pushed, _STORED, bounded=bounded).items()
            }
            inside = collect_aggregates(pushed, answers)
            if beyond is None or not beyond.num_rows:
                return inside, None
            if pushed.only_counts:
                # Of each of them as many records count as may, whichever they are.
                people = beyond.num_rows
                return add_aggregates(inside, spread_counts(pushed, (people * pushed.most, people))), None
            among = f"EXISTS (SELECT 1 FROM beyond WHERE beyond.u = stored.{pushed.unit})"
            chosen = f"SELECT * FROM {_STORED} WHERE ({pushed.condition}) AND {among}"
            frame = room.run(lambda: room.session.sql(chosen), what=what)
            return inside, fetch_columns(replace(source, frame=frame), table, wanted)

    def _look_up(self, table: Table) -> SparkSource:
        source = find_source(open_room(), table, folder=self._folder, known=self._known.get(table.source))
        self._known[table.source] = source
        return source

    def _find(self, table: Table) -> SparkSource:
        with self._lock:
            held = self._held.get((threading.get_ident(), table.source))
        return held or self._look_up(table)

    @contextmanager
    def _ask(self, table: Table, columns: tuple[str, ...]) -> Iterator[Ask]:
        with self._encoded(table, columns) as room:

            def ask(query: str, beside: Beside) -> list[list[NDArray[np.int64]]]:
                def job() -> pa.Table:
                    for name, numbers in beside.items():
                        rows = room.session.createDataFrame(number_table(numbers))
                        rows.createOrReplaceTempView(name)
                    return room.session.sql(render(query, dialect="spark")).toArrow()

                try:
                    answer = room.run(job, what=name_source(table))
                finally:
                    for name in beside:
                        room.session.catalog.dropTempView(name)
                return [[to_numpy(column.combine_chunks()) for column in answer.columns]]

            yield ask

    @contextmanager
    def _encoded(self, table: Table, columns: tuple[str, ...]) -> Iterator[SparkRoom]:
        """Yields a session with the view `encoded`: the individual as u, the codes as c0, c1, ..."""
        source = self._find(table)
        room = source.room
        with room.lock:
            room.run(
                lambda: _encode(room, source, table, columns).createOrReplaceTempView("encoded"),
                what=name_source(table),
            )
            try:
                yield room
            finally:
                room.session.catalog.dropTempView("encoded")


@contextmanager
def _viewed(source: SparkSource, table: Table) -> Iterator[SparkRoom]:
    """Yields a session with the view `stored`, the table as it is."""
    room = source.room
    with room.lock:
        room.run(lambda: source.frame.createOrReplaceTempView("stored"), what=name_source(table))
        try:
            yield room
        finally:
            for name in ("stored", "beyond"):
                room.session.catalog.dropTempView(name)


def _encode(room: SparkRoom, source: SparkSource, table: Table, columns: tuple[str, ...]) -> DataFrame:
    """Returns the records as codes, NULL outside a domain. Long lists of values are joined."""
    from pyspark.sql.functions import broadcast

    encodings = [
        encode_spark_column(table.column(name), source.columns, place=place, limit=table.text_limit)
        for place, name in enumerate(columns)
    ]
    unit = table.unit.column
    individual = [] if unit is None else [f"{identify(unit, source.columns[unit])} AS u"]
    prepared = [f"{encoding.prepared} AS p{place}" for place, encoding in enumerate(encodings)]
    frame = source.frame.selectExpr(*individual, *prepared, "1 AS one")
    for place, encoding in enumerate(encodings):
        if encoding.keys is not None:
            listed = pa.table(
                {f"k{place}": list(encoding.keys), f"k{place}_code": list(range(len(encoding.keys)))}
            )
            values = room.session.createDataFrame(listed)
            frame = frame.join(broadcast(values), frame[f"p{place}"] == values[f"k{place}"], "left")
    codes = [f"{encoding.code} AS c{place}" for place, encoding in enumerate(encodings)]
    frame = frame.selectExpr(*(["u"] if individual else []), *codes, "one")
    # As a row of one list, what reads the codes is not moved to before them, where they would be computed
    # again for every question asked of them.
    return frame.selectExpr("inline(array(struct(*)))")


def _pack(query: str, layout: Layout, *, weighted: bool) -> str:
    """Returns the rows of `query` with their codes in few whole numbers."""
    words = [["CAST(0 AS BIGINT)"] for _ in range(layout.words)]
    for place, (word, shift, _) in enumerate(layout.places):
        words[word].append(f"shiftleft(CAST(c{place} AS BIGINT), {shift})")
    packed = [f"{' | '.join(parts)} AS p{word}" for word, parts in enumerate(words)]
    if weighted:
        packed.append("w")
    return f"SELECT {', '.join(packed)} FROM ({render(query, dialect='spark')})"


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
    """Returns the individuals over the bound of those records that a statement keeps, as u.

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
    """Returns the paths of the files of a source, if all are files of this machine's own and hold the column.

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
    """Returns the places as a power of two, from the rows of a table; None if there would be too many.

    >>> choose_bits(100_000_000, 100, 2), choose_bits(10**10, 100, 200)
    (22, None)
    """
    wanted = -(-rows * _PER_BOUND // max(most, 1))
    bits = max(_LEAST_BITS, (max(wanted, 1) - 1).bit_length())
    return bits if bits <= _MOST_BITS and 4 * tasks * 2**bits <= _MOST_BYTES and rows < 2**32 else None


def _list_suspects(
    source: SparkSource, pushed: PushedPlan, unit: str, paths: tuple[str, ...], what: str
) -> DataFrame | pa.Table | None:
    """Returns a frame of individuals, u, one row for each record of whoever may be over the bound.

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
    """Returns a frame with a row for each part of a file, spread over the tasks."""
    step = -(-tasks // len(paths))
    parts = [(path, first, step) for path in paths for first in range(step)]
    shared = session.sparkContext.parallelize(parts, min(tasks, len(parts)))
    return session.createDataFrame(shared, "path STRING, first INT, step INT")


def _count_rows(paths: tuple[str, ...]) -> int:
    import pyarrow.parquet as pq

    return sum(int(pq.read_metadata(path).num_rows) for path in paths)
