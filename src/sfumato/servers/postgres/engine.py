"""Exact bounded counts of tables and views in PostgreSQL.

The server encodes, bounds and groups; what travels are sparse counts, read through a cursor. Everything
that is read under one `snapshot` is read in one read-only transaction. A server's own text may hold values of
records, so it is looked at to choose the words of an error, and never shown.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.engine.base import (
    Fetched,
    TrueCounts,
    all_columns,
    sign_version,
)
from sfumato.core.engine.counts import Ask, Beside, render
from sfumato.core.engine.encode import Stored, quote_name
from sfumato.core.engine.source import describe_stored
from sfumato.core.errors import RecipeError, SfumatoError, SourceError
from sfumato.core.facts.table import check_location, public_location
from sfumato.servers.engine import ServerEngine, collect_cells, counted_query, refuse_twins, wanted_columns
from sfumato.servers.ledger import describe_refusal
from sfumato.servers.postgres.encode import (
    BeyondKept,
    PostgresWords,
    ask_beside,
    describe_type,
    encode_table,
    identify,
    stored_name,
    text_of,
    with_beyond,
)
from sfumato.servers.push.plan import (
    aggregate_queries,
    clipped_query,
    collect_aggregates,
    push_plan,
    spread_counts,
)

if TYPE_CHECKING:
    import psycopg

    from sfumato.core.algebra.measures import Checked
    from sfumato.core.engine.aggregates import TrueAggregates
    from sfumato.core.facts.table import Table
    from sfumato.servers.push.plan import PushedPlan


_MOST_LISTED = 2**24
"""Questions and weights that fit into one statement."""
_CONNECT_SECONDS = 10
# Many marginals are grouped at once by hash tables that must fit, or the server sorts for each of them.
_MEMORY = (
    "SELECT set_config('work_mem', '128MB', true) "
    "WHERE pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('128MB')"
)
_SAID = tomllib.loads(files("sfumato.servers").joinpath("postgres.toml").read_text("utf-8"))["engine"]
_SETTINGS: dict[str, str] = _SAID["settings"]
_BATCH_ROWS = 2**16
_DAYS, _MICROSECONDS = 10_957, 946_684_800_000_000  # from 1970 to 2000, where the server begins to count
_ENDLESS = 2**31 - 1  # the days by which the server means infinity
_MOST = 2**63 - 1
_TYPES = {
    "bool": pa.bool_(),
    "date": pa.date32(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}


@dataclass(slots=True)
class _Room:
    """One transaction on one server, and what is known of tables since it began."""

    connection: psycopg.Connection[tuple[Any, ...]]
    described: dict[tuple[str, str], Described] = field(default_factory=dict)
    facts: dict[tuple[str, str], tuple[Any, ...]] = field(default_factory=dict)


class PostgresEngine(ServerEngine):
    """An engine over tables and views of PostgreSQL servers; public tables are files of one folder."""

    unplain = (
        "has a nested or binary type, or one that is no plain value; leave it out, or make a view that turns "
        "it into text or numbers"
    )

    def __init__(self, _folder: Path) -> None:
        self._local = local()  # a transaction is of the thread that began it, and ends there
        self._beyond = BeyondKept()

    @contextmanager
    def snapshot(self, table: Table) -> Iterator[None]:
        """Within it, the table is read in one transaction on one snapshot, and cannot be altered."""
        with self._open(table) as (room, source):
            self._look(room, source)
            self._learn(room, source)
            yield

    @contextmanager
    def _describe(self, table: Table) -> Iterator[tuple[str, Mapping[str, Stored]]]:
        with self._open(table) as (room, source):
            yield source.name, self._look(room, source).columns

    def _check_encoding(self, table: Table, columns: tuple[str, ...], stored: Mapping[str, Stored]) -> None:
        with self._open(table) as (room, source):
            encoded = encode_table(table, columns, stored, source.relation)
            with hide_server(source):
                # Planned and not run: that the types fit and that it may be read is known from this.
                room.connection.execute(f"EXPLAIN {encoded}")

    def version(self, table: Table, *, secret: bytes) -> str:
        """Returns a keyed digest of what the catalogues say; see `relation_facts` for what it can miss."""
        with self._open(table) as (room, source):
            return sign_version(json.dumps(self._learn(room, source)), secret=secret)

    def _count_cells(
        self,
        table: Table,
        marginals: tuple[tuple[str, ...], ...],
        occupied: tuple[tuple[str, ...], ...],
        progress: Callable[[str], None],
    ) -> tuple[TrueCounts, ...]:
        # Grouped by the server, in one scan.
        asked = (*marginals, *occupied)
        with self._ask(table, all_columns(asked)) as ask:
            progress("bounding contributions")
            progress("counting")
            return collect_cells(table, marginals, occupied, ask(counted_query(table, asked), {}))

    def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        """Returns the wanted columns of a table for statements; they are read when asked for."""
        with self._open(table) as (room, source):
            stored = self._look(room, source).columns

        def read(query: str) -> Iterator[list[tuple[Any, ...]]]:
            with _reopen(room, source) as connection, hide_server(source):
                yield from fetch_rows(connection, query)

        return fetch_columns(read, source, stored, wanted, table.unit.column)

    def push(self, table: Table, checked: Checked) -> PushedPlan | None:
        """Returns the query as the server runs it, planned and not run; None if it is left to DuckDB."""
        with self._open(table) as (room, source):
            described = self._look(room, source)
            if not _is_steady(described, self._learn(room, source)):
                return None
            pushed = push_plan(checked, PostgresWords(table, described.columns))
            if pushed is not None:
                with hide_server(source):
                    for query in aggregate_queries(pushed, _relation(source), bounded=False).values():
                        room.connection.execute(f"EXPLAIN {query}")
            return pushed

    def aggregate(
        self, table: Table, pushed: PushedPlan, wanted: frozenset[str]
    ) -> tuple[TrueAggregates, Fetched | None]:
        """Returns the aggregates of all individuals within their bound, and the records of the others."""
        with self._open(table) as (room, source), hide_server(source):
            if pushed.only_counts:
                (row,) = room.connection.execute(clipped_query(pushed, _relation(source))).fetchall()
                return spread_counts(pushed, row), None
            stored = self._look(room, source).columns
            kind = "" if table.unit.column is None else stored[table.unit.column].type
            beyond = self._beyond.find(room.connection, pushed, _relation(source), source.conninfo)
            queries = aggregate_queries(pushed, _relation(source), bounded=bool(beyond))
            answers = {
                places: ask_beside(room.connection, query, beyond, kind) for places, query in queries.items()
            }
            inside = collect_aggregates(pushed, answers)
            if not beyond:
                return inside, None

            def read(query: str) -> Iterator[list[tuple[Any, ...]]]:
                among = f"EXISTS (SELECT 1 FROM beyond WHERE beyond.u = {pushed.unit})"
                chosen = with_beyond(f"{query} WHERE ({pushed.condition}) AND {among}", kind)
                with _reopen(room, source) as connection, hide_server(source):
                    yield from fetch_rows(connection, chosen, given=[beyond])

            return inside, fetch_columns(read, source, stored, wanted, table.unit.column)

    @property
    def _rooms(self) -> dict[str, _Room]:
        """The transactions that this thread has under way, by how their servers are reached."""
        rooms: dict[str, _Room] = self._local.__dict__.setdefault("rooms", {})
        return rooms

    @contextmanager
    def _open(self, table: Table) -> Iterator[tuple[_Room, PostgresSource]]:
        """The transaction on the server of a table, that of a snapshot or one of its own, and its source."""
        source = parse_source(table.source, table=table.name)
        rooms = self._rooms
        if source.conninfo in rooms:
            yield rooms[source.conninfo], source
            return
        rooms[source.conninfo] = room = _Room(begin(source))
        try:
            yield room, source
        finally:
            del rooms[source.conninfo]
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
    def _ask(self, table: Table, columns: tuple[str, ...]) -> Iterator[Ask]:
        with self._open(table) as (room, source):
            encoded = encode_table(table, columns, self._look(room, source).columns, source.relation)

            def ask(query: str, beside: Beside) -> Iterator[NDArray[np.int64]]:
                relations = {"encoded": encoded}
                relations |= {name: _list_numbers(numbers) for name, numbers in beside.items()}
                listed = ", ".join(f"{name} AS ({text})" for name, text in relations.items())
                answered = f"WITH {listed} SELECT * FROM ({render(query, dialect='postgres')}) AS answered"
                for rows in fetch_rows(room.connection, answered):
                    yield np.array(rows, np.int64).T

            with hide_server(source):
                yield ask


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """A table or view: how its server is reached, without a password, and what messages call it."""

    conninfo: str = field(repr=False)
    schema: str
    table: str
    name: str

    @property
    def relation(self) -> str:
        """The table as SQL names it."""
        return f"{quote_name(self.schema)}.{quote_name(self.table)}"


def parse_source(location: str, *, table: str) -> PostgresSource:
    """Gives the table that a URL names: postgresql://host/database?table=schema.name; by default of `public`.

    >>> parse_source("postgresql://db/city?table=trips", table="t").relation
    '"public"."trips"'
    """
    where = f"table {table!r}: source"
    check_location(location, where=where)
    parts = urlsplit(location)
    given = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for key, value in given if key == "table"]
    schema, _, relation = named[0].rpartition(".") if len(named) == 1 else ("", "", "")
    if not relation or "." in schema or "\x00" in named[0]:
        raise SourceError(f"{where} must name one table: postgresql://host/database?table=schema.name")
    rest = urlencode([(key, value) for key, value in given if key != "table"], quote_via=quote, safe="")
    conninfo = f"postgresql://{parts.netloc}{parts.path}" + (f"?{rest}" if rest else "")
    name = f"table {table!r}: source {public_location(location)!r}"
    return PostgresSource(conninfo, schema or "public", relation, name)


def begin(source: PostgresSource) -> psycopg.Connection[tuple[Any, ...]]:
    """Opens a connection in a read-only transaction that sees one snapshot, with settings of its own."""
    try:
        import psycopg
    except ImportError:
        raise SourceError(f"{source.name} needs another package: pip install 'sfumato[postgres]'") from None
    limits: dict[str, Any] = {}
    if "connect_timeout" not in source.conninfo and "PGCONNECT_TIMEOUT" not in os.environ:
        limits["connect_timeout"] = _CONNECT_SECONDS
    try:
        connection = psycopg.connect(
            source.conninfo, client_encoding="UTF8", prepare_threshold=None, **limits
        )
    except psycopg.ProgrammingError:
        raise SourceError(f"{source.name} has a URL that cannot be used; check its options") from None
    except (psycopg.Error, UnicodeError) as error:
        raise SourceError(f"{source.name}: {describe_refusal(error)}") from None
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    try:
        with hide_server(source):
            settings = ", ".join("set_config(%s, %s, true)" for _ in _SETTINGS)
            connection.execute(f"SELECT {settings}", [each for pair in _SETTINGS.items() for each in pair])
            connection.execute(_MEMORY)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _reopen(room: _Room, source: PostgresSource) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """The connection of `room`, or a new one if that is closed by now; whoever reads may be in any thread."""
    if not room.connection.closed:
        yield room.connection
        return
    with closing(begin(source)) as connection:
        yield connection


@contextmanager
def hide_server(source: PostgresSource) -> Iterator[None]:
    """Turns any failure into a fixed sentence about `source`."""
    try:
        yield
    except SfumatoError:
        raise
    except Exception as error:
        raise SourceError(_explain(error, source)) from None


def _is_steady(described: Described, facts: tuple[Any, ...]) -> bool:
    """Whether every scan within a transaction gives the same rows: not of views, policies, foreign tables.

    Individuals are counted in one scan and aggregated in another. A view may draw random numbers.
    """
    kinds = {oid: kind for oid, kind, *_ in facts[2]}
    stored = kinds[described.oid] == "m" or set(kinds.values()) <= {"r", "p"}
    return stored and not any(row[-1] for row in facts[2])


def _relation(source: PostgresSource) -> str:
    return f"{source.relation} AS stored"


def fetch_rows(
    connection: psycopg.Connection[tuple[Any, ...]],
    query: str,
    *,
    given: list[Any] | None = None,
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of `query` in batches, through a cursor that the server keeps; `given` are parameters."""
    _register(connection)
    with connection.cursor("sfumato", binary=True) as cursor:
        cursor.itersize = _BATCH_ROWS
        cursor.execute(query, given)
        while rows := cursor.fetchmany(_BATCH_ROWS):
            yield rows


def fetch_columns(
    rows_of: Callable[[str], Iterator[list[tuple[Any, ...]]]],
    source: PostgresSource,
    columns: Mapping[str, Stored],
    wanted: frozenset[str],
    unit: str | None,
) -> Fetched:
    """The `wanted` columns of `source`, and `unit`, the one that names individuals; read when asked for.

    `columns` are all that are stored, and `rows_of` gives the rows of a query, some at a time.
    """
    fields = {}
    selected = []
    for name in wanted_columns(columns, wanted, unit):
        column = columns[name]
        # A decimal of any length names individuals by its text, and is a number otherwise.
        endless = column.type == "numeric" and _arrow_type(column) == pa.float64()
        is_name = name == unit and endless
        fields[name] = pa.string() if is_name else _arrow_type(column)
        value = identify(name, column) if is_name else stored_name(name)
        selected.append(text_of(value, column) if column.kind == "text" else value)
    schema = pa.schema(list(fields.items()))
    query = f"SELECT {', '.join(selected) or '1'} FROM {source.relation} AS stored"

    def read() -> Iterator[pa.RecordBatch]:
        for rows in rows_of(query):
            columns_in = zip(*rows, strict=True)
            arrays = [_to_arrow(values, field) for values, field in zip(columns_in, schema, strict=False)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    described = {name: describe_stored(kind) for name, kind in fields.items()}
    stored = {name: described.get(name) or Stored(column.kind) for name, column in columns.items()}
    return Fetched(columns=stored, schema=schema, read=read)


@dataclass(frozen=True, slots=True)
class Described:
    """A table or view as the catalogues have it."""

    oid: int
    columns: dict[str, Stored]


def describe_relation(connection: psycopg.Connection[tuple[Any, ...]], source: PostgresSource) -> Described:
    """Returns the columns of a table or view, or an error about public facts."""
    row = connection.execute(_SAID["relation"], [source.schema, source.table]).fetchone()
    if row is None:
        raise SourceError(
            f"{source.name} has no such table or view; check the schema, the name and the database"
        )
    oid, kind, encoding = row
    if kind not in ("r", "p", "m", "v"):
        raise SourceError(f"{source.name} is no table or view, such as a foreign table; copy it into a table")
    if encoding != "UTF8":
        raise SourceError(
            f"{source.name}: its database is in {encoding}; only UTF8 keeps all texts apart, convert it"
        )
    columns: dict[str, Stored] = {}
    rows = connection.execute(_SAID["columns"], [oid]).fetchall()
    refuse_twins((row[0] for row in rows), where=source.name)
    for name, kind, modifier, category, schema in rows:
        known = kind if schema == "pg_catalog" and category == "b" else ""
        columns[name] = describe_type(known, modifier, is_enum=category == "e")
    return Described(oid, columns)


def relation_facts(
    connection: psycopg.Connection[tuple[Any, ...]], source: PostgresSource
) -> tuple[Any, ...]:
    """Returns what changes when the table does: its columns, its files, and the server's counters of changes.

    The counters are those of the whole life of the table, of its parts and of what a view is made of. A
    server may tell of a change some seconds late, after a crash it begins anew, and a view that looks at
    the clock or at a sequence changes without a trace. Where functions, foreign tables or row
    security come in, any change to anything on the server counts. Too old a version gives a stored
    answer once more, which tells nothing new; a needless new one costs a new charge.
    """
    described = describe_relation(connection, source)
    connection.execute("SELECT pg_stat_clear_snapshot()")
    members = connection.execute(_SAID["members"], [described.oid]).fetchall()
    columns = [(name, column.type, column.digits) for name, column in described.columns.items()]
    strict = connection.execute(_SAID["anything"]).fetchone() if any(row[-1] for row in members) else None
    return (source.conninfo, columns, members, strict)


def _list_numbers(columns: Mapping[str, NDArray[np.integer[Any]]]) -> str:
    """Returns a relation of public whole numbers, written out: a read-only transaction can make no tables."""
    if max(values.size for values in columns.values()) > _MOST_LISTED:
        raise RecipeError(f"more than {_MOST_LISTED:,} questions or weights do not fit into one statement")
    arrays = ", ".join(
        f"'{{{','.join(map(str, values.tolist()))}}}'::bigint[]" for values in columns.values()
    )
    return f"SELECT * FROM unnest({arrays}) AS listed({', '.join(columns)})"


def _explain(error: Exception, source: PostgresSource) -> str:
    import psycopg

    state = getattr(error, "sqlstate", None) or ""
    if not state and isinstance(error, psycopg.OperationalError):
        state = "08"
    words = next((text for start, text in _SAID["states"].items() if state.startswith(start)), None)
    return f"{source.name} {words or 'could not be read to the end'}"


def _arrow_type(column: Stored) -> pa.DataType:
    if column.kind == "text":
        return pa.string()
    if column.type != "numeric":
        return _TYPES[column.type]
    if column.digits is None or column.digits[0] > 38 or not 0 <= column.digits[1] <= column.digits[0]:
        return pa.float64()
    return pa.decimal128(*column.digits)


def _to_arrow(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    if pa.types.is_decimal(field.type):
        values = tuple(each if each is None or each.is_finite() else None for each in values)
    elif pa.types.is_floating(field.type):
        values = tuple(float(each) if isinstance(each, Decimal) else each for each in values)
    return pa.array(values, field.type)


def _register(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Days and moments as numbers: Python's own dates end long before the server's."""
    from psycopg.adapt import Buffer, Loader
    from psycopg.pq import Format

    class Day(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> int:
            days = int.from_bytes(bytes(data), "big", signed=True)
            if abs(days) >= _ENDLESS:
                return _ENDLESS if days > 0 else -_ENDLESS
            return days + _DAYS

    class Moment(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> int:
            return min(int.from_bytes(bytes(data), "big", signed=True) + _MICROSECONDS, _MOST)

    connection.adapters.register_loader("date", Day)
    connection.adapters.register_loader("timestamp", Moment)
    connection.adapters.register_loader("timestamptz", Moment)
