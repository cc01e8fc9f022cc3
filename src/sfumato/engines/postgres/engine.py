"""Exact bounded counts of tables and views in PostgreSQL.

The server encodes, bounds and groups; what travels are sparse counts, read through a cursor. Everything
that is read under one `hold` is read in one read-only transaction, and so on one snapshot.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
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
    clipped_query,
    counted_query,
    individuals_query,
    list_pairs,
    list_weights,
    lost_query,
    render,
    within_query,
)
from sfumato.engines.postgres.encode import encode_table
from sfumato.engines.postgres.source import (
    Described,
    PostgresSource,
    begin,
    describe_relation,
    fetch_columns,
    fetch_rows,
    hide_server,
    parse_source,
    relation_facts,
    sign_facts,
)
from sfumato.engines.source import check_unit
from sfumato.errors import RecipeError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    import psycopg
    from numpy.typing import NDArray

    from sfumato.engines.base import Fetched
    from sfumato.questions import CapChoice, ClippedMarginal, IndividualCounts, NormChoice
    from sfumato.schema import Table


_MOST_LISTED = 2**24
"""Questions and weights that fit into one statement."""


@dataclass(slots=True)
class _Room:
    """One transaction on one server, and what is known of tables since it began."""

    connection: psycopg.Connection[tuple[Any, ...]]
    described: dict[tuple[str, str], Described] = field(default_factory=dict)
    facts: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict)


class PostgresEngine(CountingEngine):
    """An engine over tables and views of PostgreSQL servers; public tables are files of one folder."""

    def __init__(self, _folder: Path) -> None:
        self._rooms: dict[str, _Room] = {}

    @contextmanager
    def snapshot(self, table: Table) -> Iterator[None]:
        """Within it, the table is read in one transaction on one snapshot, and cannot be altered."""
        source = parse_source(table.source, table=table.name)
        with self._open(source) as room:
            self._look(room, source)
            self._learn(room, source)
            yield

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error that names the table, the column and the remedy. Reads no record."""
        refuse_large_marginals(table, marginals)
        columns = all_columns(marginals)
        refuse_reading_keys(table, columns)
        source = parse_source(table.source, table=table.name)
        with self._open(source) as room:
            stored = self._look(room, source).columns
            needed = [name for column in columns for name in table.column(column).stored]
            for name in [*needed, *([] if table.unit.column is None else [table.unit.column])]:
                if name not in stored:
                    what = "unit column" if name == table.unit.column else "column"
                    raise SourceError(f"{source.name} has no {what} {name!r} (it has: {', '.join(stored)})")
                if stored[name].kind == "other":
                    raise SourceError(
                        f"table {table.name!r}: column {name!r} has a nested or binary type, or one that is "
                        "no plain value; leave it out, or make a view that turns it into text or numbers"
                    )
            check_unit(table, stored, where=source.name)
            refuse_decimals(
                table, columns, [name for name, each in stored.items() if each.digits and each.digits[1]]
            )
            encoded = encode_table(table, columns, stored, source.relation)
            with hide_server(source):
                # Planned and not run: that the types fit and that it may be read is known from this.
                room.connection.execute(f"EXPLAIN {encoded}")

    def version(self, table: Table, *, secret: bytes) -> str:
        """A keyed digest of what the catalogues say; see `relation_facts` for what it can miss."""
        source = parse_source(table.source, table=table.name)
        with self._open(source) as room:
            return sign_facts(self._learn(room, source), secret=secret)

    def _count_cells(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        occupied: tuple[tuple[str, ...], ...],
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        # Grouped by the server, in one scan.
        asked = (*marginals, *occupied)
        dense = [np.zeros(table.cells(columns), np.int64) for columns in marginals]
        sparse: list[list[tuple[NDArray[np.int64], NDArray[np.int64]]]] = [[] for _ in occupied]
        with self._encoded(table, all_columns(asked)) as room:
            progress("bounding contributions")
            progress("counting")
            for rows in room.ask(counted_query(table, asked)):
                which, cells, counts = np.array(rows, np.int64).T
                for place in np.unique(which).tolist():
                    mine = which == place
                    if place < len(marginals):
                        dense[place][cells[mine]] = counts[mine]
                    else:
                        sparse[place - len(marginals)].append((cells[mine], counts[mine]))
        found = [_keep(columns, values) for columns, values in zip(marginals, dense, strict=True)]
        found += [_keep_occupied(columns, parts) for columns, parts in zip(occupied, sparse, strict=True)]
        return tuple(found)

    def _count_clipped(
        self, table: Table, questions: tuple[ClippedMarginal, ...], progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        columns = all_columns(tuple(question.columns for question in questions))
        with self._encoded(table, columns) as room:
            progress("bounding contributions")
            progress("counting")
            answers = []
            for question in questions:
                weights = list_weights(question.queries) if question.queries is not None else None
                beside = {} if weights is None else {"weights": _list_numbers(weights)}
                values = np.zeros(question.size(table), np.int64)
                room.fill(values, clipped_query(table, columns, question), beside)
                answers.append(_keep(question.columns, values))
        return tuple(answers)

    def _count_individuals(
        self, table: Table, question: IndividualCounts, progress: Callable[[str], None]
    ) -> TrueCounts:
        with self._encoded(table, question.columns) as room:
            progress("counting individuals")
            values = np.zeros(question.rows, np.int64)
            pairs = {"questions": _list_numbers(list_pairs(question))}
            room.fill(values, individuals_query(table, question), pairs)
            return _keep(question.columns, values)

    def _count_within(self, table: Table, choice: NormChoice, progress: Callable[[str], None]) -> TrueCounts:
        with self._encoded(table, choice.columns) as room:
            progress("bounding contributions")
            return room.one_row(choice.columns, within_query(table, choice.columns, choice))

    def _count_lost(self, table: Table, choice: CapChoice, progress: Callable[[str], None]) -> TrueCounts:
        with self._encoded(table, choice.columns) as room:
            progress("bounding contributions")
            return room.one_row(choice.columns, lost_query(table, choice))

    def describe(self, table: Table) -> dict[str, str]:
        """The kinds of the stored columns that a query may name, from the catalogues alone."""
        source = parse_source(table.source, table=table.name)
        with self._open(source) as room:
            stored = self._look(room, source).columns
        check_unit(table, stored, where=source.name)
        return {name: column.kind for name, column in stored.items() if column.kind != "other"}

    def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """The wanted columns of a table for statements; they are read when asked for."""
        source = parse_source(table.source, table=table.name)
        with self._open(source) as room:
            stored = self._look(room, source).columns

        def read(query: str) -> Iterator[list[tuple[Any, ...]]]:
            with self._open(source) as room, hide_server(source):
                yield from fetch_rows(room.connection, query)

        return fetch_columns(read, source, stored, wanted, table.unit.column)

    @contextmanager
    def _open(self, source: PostgresSource) -> Iterator[_Room]:
        """The transaction on the server of `source`: the one that is held, or one of its own."""
        held = self._rooms.get(source.conninfo)
        if held is not None:
            yield held
            return
        room = _Room(begin(source))
        self._rooms[source.conninfo] = room
        try:
            yield room
        finally:
            del self._rooms[source.conninfo]
            room.connection.close()

    def _look(self, room: _Room, source: PostgresSource) -> Described:
        key = (source.schema, source.table)
        if key not in room.described:
            with hide_server(source):
                described = describe_relation(room.connection, source)
                # From here to the end of the transaction nobody can alter or drop it.
                room.connection.execute(f"SELECT FROM {source.relation} LIMIT 0")
                room.described[key] = described
        return room.described[key]

    def _learn(self, room: _Room, source: PostgresSource) -> tuple[Any, ...]:
        key = (source.schema, source.table)
        if key not in room.facts:
            with hide_server(source):
                room.facts[key] = relation_facts(room.connection, source)
        return room.facts[key]

    @contextmanager
    def _encoded(self, table: Table, columns: tuple[str, ...]) -> Iterator[_Asking]:
        source = parse_source(table.source, table=table.name)
        with self._open(source) as room:
            stored = self._look(room, source).columns
            with hide_server(source):
                yield _Asking(room.connection, encode_table(table, columns, stored, source.relation))


@dataclass(frozen=True, slots=True)
class _Asking:
    """Queries of the portable core about one encoded table."""

    connection: psycopg.Connection[tuple[Any, ...]]
    encoded: str

    def ask(self, query: str, beside: Mapping[str, str] | None = None) -> Iterator[list[tuple[Any, ...]]]:
        relations = {"encoded": self.encoded, **(beside or {})}
        listed = ", ".join(f"{name} AS ({text})" for name, text in relations.items())
        rendered = render(query, dialect="postgres")
        yield from fetch_rows(self.connection, f"WITH {listed} SELECT * FROM ({rendered}) AS answered")

    def fill(self, values: NDArray[np.int64], query: str, beside: Mapping[str, str]) -> None:
        for rows in self.ask(query, beside):
            places, numbers = np.array(rows, np.int64).T
            values[places] = numbers

    def one_row(self, columns: tuple[str, ...], query: str) -> TrueCounts:
        ((row,),) = self.ask(query)
        return _keep(columns, np.array(row, np.int64))


def _list_numbers(columns: Mapping[str, NDArray[np.integer[Any]]]) -> str:
    """A relation of public whole numbers, written out: a read-only transaction can make no tables."""
    if max(values.size for values in columns.values()) > _MOST_LISTED:
        raise RecipeError(f"more than {_MOST_LISTED:,} questions or weights do not fit into one statement")
    arrays = ", ".join(
        f"'{{{','.join(map(str, values.tolist()))}}}'::bigint[]" for values in columns.values()
    )
    return f"SELECT * FROM unnest({arrays}) AS listed({', '.join(columns)})"


def _keep(columns: tuple[str, ...], values: NDArray[np.int64]) -> TrueCounts:
    values.flags.writeable = False
    return TrueCounts(columns, values)


def _keep_occupied(
    columns: tuple[str, ...], parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> TrueCounts:
    cells, counts = (
        np.concatenate([np.empty(0, np.int64), *(part[side] for part in parts)]) for side in (0, 1)
    )
    order = np.argsort(cells)
    cells, counts = cells[order], counts[order]
    cells.flags.writeable = counts.flags.writeable = False
    return TrueCounts(columns, counts, cells)
