"""Exact bounded counts of tables in Spark.

Spark reads, encodes to small integers and bounds contributions; its workers count the codes with numpy, all
marginals in one job, and what comes back are sparse counts. What counts individuals is portable SQL. A
DP-SELECT is aggregated by Spark where every expression means the same there; for others the columns that they
name are fetched, and DuckDB aggregates them as it does for files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.engine.arrays import to_numpy
from sfumato.core.engine.base import (
    Fetched,
    TrueCounts,
    all_columns,
    check_columns,
    describe_columns,
    name_source,
    refuse_large_marginals,
    refuse_reading_keys,
    sign_version,
)
from sfumato.core.engine.counts import (
    Ask,
    Beside,
    bounded_query,
    collect_cells,
    number_table,
    render,
)
from sfumato.core.engine.parts import encoded_columns
from sfumato.core.engine.source import Stored, describe_stored
from sfumato.core.errors import SourceError
from sfumato.servers.engine import ServerEngine
from sfumato.servers.push.plan import (
    add_aggregates,
    aggregate_queries,
    clipped_query,
    collect_aggregates,
    push_plan,
    spread_counts,
)
from sfumato.servers.spark.beyond import find_beyond
from sfumato.servers.spark.encode import describe_type, encode_spark_column, identify, quote_spark_name
from sfumato.servers.spark.push import SparkWords
from sfumato.servers.spark.session import SparkRoom, open_room

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sfumato.core.facts.table import Table
    from sfumato.servers.push.plan import PushedPlan
    from sfumato.sql.plan import QueryPlan
    from sfumato.statements.execute import TrueAggregates


PREFIX = "spark:"

COUNTED = "m INT, cell BIGINT, n BIGINT"
"""What a counter yields: the place of a marginal, a cell of it, and its count in this part."""
_WORD = 63  # bits of a whole number without its sign
_DENSE = 2**20  # the largest marginal that is counted with every cell in its place
_DENSE_TOTAL = 2**23  # and how many cells all those may have together
_HELD = 2**22  # cells that wait to be merged, over all marginals
_BATCH = 2**16
_AHEAD = 4  # batches that wait here
_STORED = "stored AS stored"


class SparkEngine(ServerEngine):
    """An engine over tables of Spark's catalog and Parquet on shared storage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, SparkSource] = {}
        self._known: dict[str, SparkSource] = {}
        self._lock = threading.RLock()

    @contextmanager
    def snapshot(self, table: Table) -> Iterator[None]:
        """Reads inside see the files that were listed when it was entered.

        Spark has no snapshots: a file that is written anew meanwhile is noticed by the version, which
        differs afterwards, and a file that is gone fails the job.
        """
        with self._lock:
            outer = self._held.get(table.source)
            self._held[table.source] = outer or self._look_up(table)
        try:
            yield
        finally:
            with self._lock:
                if outer is None:
                    self._held.pop(table.source, None)

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error that names the table, the column and the remedy. Reads no record."""
        refuse_large_marginals(table, marginals)
        source = self._look_up(table)
        refuse_reading_keys(table, marginals)
        columns = check_columns(
            table,
            marginals,
            source.columns,
            where=name_source(table),
            other="is an array, a map, a structure, binary or of another type without single values; "
            "leave it out",
        )
        for place, column in enumerate(columns):
            encode_spark_column(table.column(column), source.columns, place=place, limit=table.text_limit)

    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest that changes when the source does, as far as Spark can see.

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

    def describe(self, table: Table) -> dict[str, str]:
        """The kinds of the stored columns that a query may name, from the catalog and footers alone."""
        return describe_columns(table, self._find(table).columns, where=name_source(table))

    def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """The wanted columns of a table for statements; they are read when asked for."""
        return fetch_columns(self._find(table), table, wanted)

    def push(self, table: Table, plan: QueryPlan) -> PushedPlan | None:
        """The plan as Spark runs it, resolved there and not run; None if it is left to DuckDB."""
        source = self._find(table)
        # A session of Spark Connect resolves views when a frame is read at last, when these are gone.
        steady = source.is_steady and not source.room.is_remote
        pushed = push_plan(plan, SparkWords(table, source.columns)) if steady else None
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
        """The aggregates of all individuals within their bound, and the records of the others."""
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
            held = self._held.get(table.source)
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
        """A session with the view `encoded`: the individual as u, the codes as c0, c1, ..."""
        source = self._find(table)
        room = source.room
        with room.lock:
            room.run(
                lambda: _encode(room, source, table, encoded_columns(table, columns)).createOrReplaceTempView(
                    "encoded"
                ),
                what=name_source(table),
            )
            try:
                yield room
            finally:
                room.session.catalog.dropTempView("encoded")


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


@contextmanager
def _viewed(source: SparkSource, table: Table) -> Iterator[SparkRoom]:
    """A session with the view `stored`, the table as it is."""
    room = source.room
    with room.lock:
        room.run(lambda: source.frame.createOrReplaceTempView("stored"), what=name_source(table))
        try:
            yield room
        finally:
            for name in ("stored", "beyond"):
                room.session.catalog.dropTempView(name)


def is_path(source: str) -> bool:
    """Whether `source` names Parquet on shared storage, and not a table of the catalog.

    >>> is_path("spark:s3a://bucket/taxi/*.parquet"), is_path("spark:main.city.taxi")
    (True, False)
    """
    return "/" in source or source.lower().endswith(".parquet")


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


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the code of each column lies: in which word, from which bit on, in how many bits."""

    places: tuple[tuple[int, int, int], ...]
    words: int


def lay_out(sizes: tuple[int, ...]) -> Layout:
    """The codes of columns of these sizes packed into few words: what a worker reads is a tenth of it.

    >>> lay_out((12, 77, 2**40, 2**30))
    Layout(places=((0, 0, 4), (0, 4, 7), (0, 11, 40), (1, 0, 30)), words=2)
    """
    places: list[tuple[int, int, int]] = []
    word = used = 0
    for size in sizes:
        bits = max(1, (size - 1).bit_length())
        if used + bits > _WORD:
            word, used = word + 1, 0
        places.append((word, used, bits))
        used += bits
    return Layout(tuple(places), word + 1)


def make_counter(
    layout: Layout, marginals: tuple[tuple[tuple[int, int], ...], ...], *, weighted: bool, grid: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that counts one part of the records: batches of packed codes in, sparse counts out.

    A marginal is its columns, each with its size. The last column of a batch is the weight if it is
    `weighted`, else every record counts `grid`. It keeps little: small marginals whole, large ones until
    they have many cells, and then it hands these on to be added up elsewhere.
    """
    places, columns = layout.places, sorted({column for marginal in marginals for column, _ in marginal})
    totals = [1] * len(marginals)
    for place, marginal in enumerate(marginals):
        for _, size in marginal:
            totals[place] *= size
    dense: set[int] = set()
    room = _DENSE_TOTAL
    for place in sorted(range(len(marginals)), key=totals.__getitem__):
        if totals[place] <= min(_DENSE, room):
            dense.add(place)
            room -= totals[place]
    most_held = max(_BATCH, _HELD // max(1, len(marginals) - len(dense)))

    def find_cells(
        marginal: tuple[tuple[int, int], ...], codes: dict[int, Any], rows: int
    ) -> NDArray[np.int64]:
        if not marginal:
            return np.zeros(rows, np.int64)
        cells: NDArray[np.int64] = codes[marginal[0][0]]
        for column, size in marginal[1:]:
            cells = cells * size
            cells += codes[column]
        return cells

    def sum_by_cell(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        cells, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        order = np.argsort(cells, kind="stable")
        ordered = cells[order]
        first = np.ones(ordered.size, np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        return ordered[starts], np.add.reduceat(counts[order], starts)

    def hand_on(place: int, cells: NDArray[np.int64], counts: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        for start in range(0, cells.size, _BATCH):
            part = slice(start, start + _BATCH)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(np.full(cells[part].size, place, np.int32)),
                    pa.array(cells[part]),
                    pa.array(counts[part]),
                ],
                names=["m", "cell", "n"],
            )

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tallies = {place: np.zeros(totals[place], np.int64) for place in dense}
        waiting: dict[int, list[tuple[Any, Any]]] = {
            place: [] for place in range(len(marginals)) if place not in dense
        }
        held = dict.fromkeys(waiting, 0)
        for batch in batches:
            rows = batch.num_rows
            if not rows:
                continue
            arrays = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            weights = arrays[-1] if weighted else None
            codes = {}
            for column in columns:
                word, shift, bits = places[column]
                codes[column] = (arrays[word] >> shift) & (2**bits - 1)
            for place, marginal in enumerate(marginals):
                cells = find_cells(marginal, codes, rows)
                if place in tallies:
                    counts = tallies[place]
                    if weights is not None:
                        np.add.at(counts, cells, weights)
                    elif rows * 4 < counts.size:
                        np.add.at(counts, cells, grid)
                    else:
                        counts += np.bincount(cells, minlength=counts.size) * grid
                    continue
                each = np.full(rows, grid, np.int64) if weights is None else weights
                waiting[place].append(sum_by_cell([(cells, each)]))
                held[place] += waiting[place][-1][0].size
                if held[place] > most_held:
                    merged = sum_by_cell(waiting[place])
                    waiting[place], held[place] = [merged], merged[0].size
                    if held[place] * 2 > most_held:
                        yield from hand_on(place, *merged)
                        waiting[place], held[place] = [], 0
        for place, counts in tallies.items():
            cells = np.flatnonzero(counts)
            yield from hand_on(place, cells, counts[cells])
        for place, parts in waiting.items():
            if parts:
                yield from hand_on(place, *sum_by_cell(parts))

    return count


def pack_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every batch as one binary value, so that batches can be fetched one by one."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["b"])


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


def _encode(room: SparkRoom, source: SparkSource, table: Table, columns: tuple[str, ...]) -> DataFrame:
    """The records as codes, NULL outside a domain. Long lists of values are joined."""
    from pyspark.sql.functions import broadcast

    encodings = [
        encode_spark_column(table.column(name), source.columns, place=place, limit=table.text_limit)
        for place, name in enumerate(columns)
    ]
    unit = table.unit.column
    individual = [] if unit is None else [f"{identify(unit, source.columns[unit])} AS u"]
    prepared = [f"{encoding.prepared} AS p{place}" for place, encoding in enumerate(encodings)]
    frame = source.frame.selectExpr(*individual, *prepared, "1 AS one")
    refined = [f"{encoding.refined} AS p{place}" for place, encoding in enumerate(encodings)]
    frame = frame.selectExpr(*(["u"] if individual else []), *refined, "one")
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
    """The rows of `query` with their codes in few whole numbers."""
    words = [["CAST(0 AS BIGINT)"] for _ in range(layout.words)]
    for place, (word, shift, _) in enumerate(layout.places):
        words[word].append(f"shiftleft(CAST(c{place} AS BIGINT), {shift})")
    packed = [f"{' | '.join(parts)} AS p{word}" for word, parts in enumerate(words)]
    if weighted:
        packed.append("w")
    return f"SELECT {', '.join(packed)} FROM ({render(query, dialect='spark')})"


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
    columns: dict[str, Stored] = {}
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
