"""The engine of a project: every table is counted where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock, local
from typing import TYPE_CHECKING

from sfumato.core.engine.base import all_columns, name_source, sign_version
from sfumato.core.engine.bounded import list_codes
from sfumato.core.engine.duckdb import seal_fetched
from sfumato.core.engine.encode import connect, hide_failures
from sfumato.core.engine.sealed import Sealed, needed_columns
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SourceError
from sfumato.core.facts.table import PublicTable, Table, find_lake, find_place
from sfumato.servers.lake import find_source

if TYPE_CHECKING:
    from sfumato.core.algebra.measures import Checked, Query
    from sfumato.core.algebra.rows import Tables
    from sfumato.core.engine.aggregates import TrueAggregates
    from sfumato.core.engine.base import Fetched, TrueCounts
    from sfumato.core.engine.source import FileSource
    from sfumato.core.facts.table import Table
    from sfumato.core.questions.choices import AnyQuestion
    from sfumato.servers.engine import ServerEngine
    from sfumato.servers.push.plan import PushedPlan

# The engine of a place that is no file, and the package it needs.
_SERVERS = {
    "postgres": ("sfumato.servers.postgres.engine", "PostgresEngine", "psycopg"),
    "spark": ("sfumato.servers.spark.engine", "SparkEngine", "pyspark"),
}


class Servers:
    """The engines of the servers that have tables of a project, opened once each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._engines: dict[str, ServerEngine] = {}
        self._finding = Lock()

    def find(self, table: Table | PublicTable) -> ServerEngine | None:
        """Returns the engine of the server that has the table; None if it is in files."""
        place = find_place(table.source)
        if place == "file":
            return None
        if isinstance(table, PublicTable):
            raise SourceError(f"public table {table.name!r}: source must be a file")
        with self._finding:  # one engine for a place, whoever asks first
            if place not in self._engines:
                module, name, package = _SERVERS[place]
                try:
                    import_module(package)
                except ImportError:
                    raise SourceError(
                        f"table {table.name!r}: its source needs another package: "
                        f"pip install 'sfumato[{place}]'"
                    ) from None
                self._engines[place] = getattr(import_module(module), name)(self._folder)
            return self._engines[place]


class FetchingEngine(StatementEngine):
    """Counts and aggregates here: tables in files, and columns that are fetched from servers."""

    def __init__(self, folder: Path, servers: Servers) -> None:
        super().__init__(folder)
        self._servers = servers
        self._fetched = (
            local()
        )  # what is sealed of servers' tables within a snapshot, which is a thread's own

    @contextmanager
    def snapshot(self, table: Table) -> Iterator[None]:
        """As the engine of the table's place has it, and of those that its references lead to."""
        outer = getattr(self._fetched, "sealed", None)
        with ExitStack() as held:
            for each in list_chain(table):
                server = self._servers.find(each)
                if server is not None:
                    held.enter_context(server.snapshot(each))
            self._fetched.sealed = {} if outer is None else outer
            held.callback(setattr, self._fetched, "sealed", outer)
            yield

    def version(self, table: Table | PublicTable, *, secret: bytes) -> str:
        """Returns a keyed digest, as the engine of the table's place makes it."""
        server = self._servers.find(table)
        if server is None or isinstance(table, PublicTable):
            return super().version(table, secret=secret)
        own = server.version(table, secret=secret)
        if table.reference is None:
            return own
        return sign_version(f"{own}\n{self.version(table.reference.table, secret=secret)}", secret=secret)

    def _find(self, table: Table | PublicTable) -> FileSource:
        if find_lake(table.source) is None:
            return super()._find(table)
        return find_source(table, folder=self._folder)

    def packed(self, table: Table | PublicTable) -> tuple[Path, ...]:
        """Returns the packed files of a table, and of those that its references lead to."""
        tables = [table] if isinstance(table, PublicTable) else list_chain(table)
        files = [path for each in tables if not self._servers.find(each) for path in self._find(each).paths]
        return tuple(path for path in files if is_packed(path))

    def describe(self, table: Table | PublicTable) -> dict[str, str]:
        """Returns the kinds of the stored columns that a query may name."""
        server = self._servers.find(table)
        if server is None or isinstance(table, PublicTable) or table.reference is not None:
            return super().describe(table)
        return server.describe(table)

    def wanted(self, table: Table, names: frozenset[str]) -> frozenset[str]:
        """Returns the columns that a server is asked for, stored or not."""
        described = {part for column in table.columns.values() for part in column.stored}
        found = needed_columns(table, names, described) | names
        # Rows that are only counted have no column to be sent, and one is sent all the same.
        return found or frozenset(name.lower() for name in list(self.describe(table))[:1])

    def check_fetched(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Refuses fetched columns that cannot be encoded; reads no record."""
        names = list_codes(all_columns(marginals))
        with hide_failures(name_source(table)):
            seal_fetched(table, self._open(table, names), names, rows=False)

    def _seal(self, table: Table, names: frozenset[str]) -> Sealed:
        # Of a part of the people, the whole is sealed, and the part is cut out of it.
        if table.part is not None or not any(self._servers.find(each) for each in list_chain(table)):
            return super()._seal(table, names)
        held = getattr(self._fetched, "sealed", None)
        kept: dict[str, tuple[Table, Sealed]] = {} if held is None else held
        known = kept.get(table.name)
        if known is None or known[0] is not table or not names <= known[1].names:
            kept[table.name] = known = (table, seal_fetched(table, self._open(table, names), names))
        return known[1]

    def _open_stored(self, table: Table, names: frozenset[str]) -> Fetched:
        server = self._servers.find(table)
        if server is None:
            return super()._open_stored(table, names)
        return server.fetch(table, self.wanted(table, names))


class ProjectEngine:
    """Sends every question to who answers it: `here` for files and statements, or the server of the table.

    Statements about one table of a server are aggregated there as far as it can; for all others the columns
    that they name are fetched, and aggregated `here`.
    """

    def __init__(self, folder: Path) -> None:
        self._servers = Servers(folder)
        self.here = here = FetchingEngine(folder, self._servers)
        # These look at each table's place themselves, or read records here wherever they are stored.
        self.snapshot, self.version = here.snapshot, here.version
        self.packed, self.describe = here.packed, here.describe
        self.column_types, self.select = here.column_types, here.select
        self.read_records = here.read_records
        self.check_arrivals, self.sum_arrivals = here.check_arrivals, here.sum_arrivals

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        """Raises an error about public facts, as the engine of the table's place does."""
        server = self._servers.find(table)
        if server is not None and table.unit.period is not None:
            raise SourceError(
                f"table {table.name!r}: a unit over time is counted from files only; make a view on the "
                "server whose unit column names who and when together"
            )
        if server is not None and table.reference is not None:
            raise SourceError(
                f"table {table.name!r}: recipes count a table with references from files only; make a view "
                "on the server that has the unit column"
            )
        if table.family is not None and any(self._servers.find(each) for each in list_chain(table)):
            raise SourceError(
                f"table {table.name!r}: related counts tables in files only; export it, and its parents too"
            )
        (server or self.here).check(table, marginals)
        if server is not None and not server.encodes(table, all_columns(marginals)):
            self.here.check_fetched(table, marginals)

    def count(
        self, table: Table, questions: tuple[AnyQuestion, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        """Returns the exact answer to every question, counted where the table is if its server can."""
        server = self._servers.find(table)
        # All questions of a part go one way: who is in it may not depend on what is asked.
        if server is None or table.part is not None:
            return self.here.count(table, questions, progress=progress)
        for each in questions:
            each.check(table)  # all of them before a record is read for one
        there = tuple(each for each in questions if each.stated.tally not in ("streamed", "residuals"))
        if not server.encodes(table, all_columns(tuple(each.columns for each in there))):
            there = ()
        here = tuple(each for each in questions if each not in there)
        found = dict(zip(there, server.count(table, there, progress=progress), strict=True))
        found |= zip(here, self.here.count(table, here, progress=progress), strict=True)
        return tuple(found[each] for each in questions)

    def aggregate(self, query: Query, tables: Tables, *, progress: Callable[[str], None]) -> TrueAggregates:
        """Returns the exact aggregates of a query, made where its table is if the server can.

        Privacy: docs/proofs/engines.md; individuals over their bound are bounded here, as for files.
        """
        from sfumato.core.engine.aggregates import count_aggregates, names_in, open_sealed

        checked = self.here.find_bound(query, tables)
        server, table, pushed = self._push(checked)
        if server is None or table is None or pushed is None:
            return self.here.aggregate_checked(checked, progress=progress)
        from sfumato.servers.push.plan import add_aggregates

        names = names_in(checked)
        with hide_failures(f"the table {table.name}"):
            progress("aggregating on the server")
            inside, beyond = server.aggregate(table, pushed, self.here.wanted(table, names))
            if beyond is None:
                return inside
            progress("bounding contributions")
            sealed = seal_fetched(table, beyond, names)
            with connect(plainly=True) as connection:
                open_sealed(connection, checked, table, sealed)
                return add_aggregates(inside, count_aggregates(connection, checked, {table.name: sealed}))

    def bind(self, query: Query, tables: Tables) -> Checked:
        """Refuses a query that could only fail, here or on the server that has its table."""
        checked = self.here.bind(query, tables)
        self._push(checked)
        return checked

    def _push(self, checked: Checked) -> tuple[ServerEngine | None, Table | None, PushedPlan | None]:
        """Returns the server, the table and the query as the server runs it, if there is one."""
        named = [checked.tables[name] for name in dict.fromkeys(checked.shape.tables)]
        if len(named) != 1 or isinstance(named[0], PublicTable) or named[0].reference is not None:
            return None, None, None
        server = self._servers.find(named[0])
        return server, named[0], None if server is None else server.push(named[0], checked)


Engine = ProjectEngine
"""What `open_engine` gives: counts of all tables of a project, statements, and public tables as they are."""


def open_engine(folder: Path) -> Engine:
    """Returns the engine for the tables of a project in `folder`.

    Nothing is opened before a table is read.
    """
    return ProjectEngine(folder)


def list_chain(table: Table) -> Iterator[Table]:
    """A table, and those that its references lead to."""
    yield table
    while table.reference is not None:
        table = table.reference.table
        yield table


def is_packed(path: Path) -> bool:
    """Whether the file is packed, so that whether it is damaged shows when it is unpacked."""
    return path.name.lower().endswith((".gz", ".zip", ".xlsx", ".parquet"))
