"""Exact bounded counts of tables in Spark.

Spark reads, encodes to small integers and bounds contributions; its workers count the codes with numpy, all
marginals in one job, and what comes back are sparse counts. What counts individuals is SQL of `portable`.
For a DP-SELECT, the columns that it names are fetched and aggregated by DuckDB, which gives statements
their meaning.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.engines.base import (
    CountingEngine,
    TrueCounts,
    refuse_decimals,
    refuse_large_marginals,
    refuse_reading_keys,
)
from sfumato.engines.counts import (
    all_columns,
    bounded_query,
    clipped_query,
    fill_counts,
    individuals_query,
    list_pairs,
    list_weights,
    lost_query,
    render,
    within_query,
)
from sfumato.engines.source import check_unit
from sfumato.engines.spark.encode import encode_spark_column, identify
from sfumato.engines.spark.session import SparkRoom, open_room
from sfumato.engines.spark.source import (
    COUNTED,
    Layout,
    SparkSource,
    fetch_columns,
    find_source,
    lay_out,
    make_counter,
    name_source,
    source_version,
)
from sfumato.errors import SourceError
from sfumato.tables.arrays import to_arrow, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from sfumato.engines.base import Fetched
    from sfumato.questions import CapChoice, ClippedMarginal, IndividualCounts, NormChoice
    from sfumato.schema import Table


class SparkEngine(CountingEngine):
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
        columns = all_columns(marginals)
        refuse_reading_keys(table, columns)
        stored = [name for column in columns for name in table.column(column).stored]
        for name in stored:
            if name not in source.columns:
                known = ", ".join(source.columns)
                raise SourceError(f"{name_source(table)} has no column {name!r} (it has: {known})")
            if source.columns[name].kind == "other":
                raise SourceError(
                    f"table {table.name!r}: column {name!r} is an array, a map, a structure, binary or of "
                    "another type without single values; leave it out"
                )
        check_unit(table, source.columns, where=name_source(table))
        kinds = {name: each.type for name, each in source.columns.items() if each.type.startswith("decimal")}
        refuse_decimals(table, columns, [name for name, kind in kinds.items() if not kind.endswith(",0)")])
        for place, column in enumerate(columns):
            encode_spark_column(table.column(column), source.columns, place=place, limit=table.text_limit)

    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest that changes when the source does; `source_version` says what it can see."""
        # Never the source that is held: what is asked for is the state of now.
        return source_version(self._look_up(table), secret=secret)

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
        places, cells, counts = (to_numpy(column.combine_chunks()) for column in counted.columns)
        order = np.lexsort((cells, places))
        places, cells, counts = places[order], cells[order], counts[order]
        ends = np.searchsorted(places, np.arange(len(asked) + 1))
        answers = []
        for place, marginal in enumerate(asked):
            part = slice(ends[place], ends[place + 1])
            if place < len(marginals):
                answers.append(fill_counts(marginal, table.cells(marginal), cells[part], counts[part]))
            else:
                answers.append(_keep(marginal, cells[part], counts[part]))
        return tuple(answers)

    def _count_clipped(
        self, table: Table, questions: tuple[ClippedMarginal, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        columns = all_columns(tuple(question.columns for question in questions))
        answers = []
        with self._encoded(table, columns) as room:
            progress("bounding contributions and counting")
            for question in questions:
                side = {} if question.queries is None else {"weights": list_weights(question.queries)}
                rows, sums = _answer(room, table, clipped_query(table, columns, question), side)
                answers.append(fill_counts(question.columns, question.size(table), rows, sums))
        return tuple(answers)

    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        pairs = {"questions": list_pairs(question)}
        with self._encoded(table, question.columns) as room:
            progress("counting individuals")
            places, counts = _answer(room, table, individuals_query(table, question), pairs)
        return fill_counts(question.columns, question.rows, places, counts)

    def _count_within(self, table: Table, choice: NormChoice, progress: Callable[[str], None]) -> TrueCounts:
        with self._encoded(table, choice.columns) as room:
            progress("counting individuals")
            values = _answer(room, table, within_query(table, choice.columns, choice), {})
        return _one_row(choice.columns, values)

    def _count_lost(self, table: Table, choice: CapChoice, progress: Callable[[str], None]) -> TrueCounts:
        with self._encoded(table, choice.columns) as room:
            progress("bounding contributions")
            values = _answer(room, table, lost_query(table, choice), {})
        return _one_row(choice.columns, values)

    def describe(self, table: Table) -> dict[str, str]:
        """The kinds of the stored columns that a query may name, from the catalog and footers alone."""
        source = self._find(table)
        check_unit(table, source.columns, where=name_source(table))
        return {name: stored.kind for name, stored in source.columns.items() if stored.kind != "other"}

    def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """The wanted columns of a table for statements; they are read when asked for."""
        return fetch_columns(self._find(table), table, wanted)

    def _look_up(self, table: Table) -> SparkSource:
        source = find_source(open_room(), table, folder=self._folder, known=self._known.get(table.source))
        self._known[table.source] = source
        return source

    def _find(self, table: Table) -> SparkSource:
        with self._lock:
            held = self._held.get(table.source)
        return held or self._look_up(table)

    @contextmanager
    def _encoded(self, table: Table, columns: tuple[str, ...]) -> Iterator[SparkRoom]:
        """A session with the view `encoded`: the individual as u, the codes as c0, c1, ..."""
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


def _encode(room: SparkRoom, source: SparkSource, table: Table, columns: tuple[str, ...]) -> DataFrame:
    """The records as codes, NULL outside a domain. Long lists of values are joined."""
    import pyarrow as pa
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


def _answer(
    room: SparkRoom, table: Table, query: str, side: Mapping[str, Mapping[str, NDArray[np.integer[Any]]]]
) -> list[NDArray[np.int64]]:
    """The columns of the answer to a query that reads `encoded` and the relations of `side`."""
    import pyarrow as pa

    def job() -> pa.Table:
        for name, columns in side.items():
            rows = pa.table({each: to_arrow(values) for each, values in columns.items()})
            room.session.createDataFrame(rows).createOrReplaceTempView(name)
        return room.session.sql(render(query, dialect="spark")).toArrow()

    try:
        answer = room.run(job, what=name_source(table))
    finally:
        for name in side:
            room.session.catalog.dropTempView(name)
    return [to_numpy(column.combine_chunks()) for column in answer.columns]


def _keep(columns: tuple[str, ...], cells: NDArray[np.int64], counts: NDArray[np.int64]) -> TrueCounts:
    cells, counts = cells.astype(np.int64), counts.astype(np.int64)
    cells.flags.writeable = False
    counts.flags.writeable = False
    return TrueCounts(columns, counts, cells)


def _one_row(columns: tuple[str, ...], row: list[NDArray[np.int64]]) -> TrueCounts:
    values = np.concatenate(row).astype(np.int64)
    values.flags.writeable = False
    return TrueCounts(columns, values)
