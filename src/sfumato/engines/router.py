"""One engine for all tables of a project: each table is read where its source says it is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from sfumato.engines.duckdb import DuckDBEngine
from sfumato.errors import SourceError
from sfumato.schema import PublicTable
from sfumato.schema.table import find_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    import pyarrow as pa
    from sqlglot import exp

    from sfumato.engines.base import CountingEngine, Engine, Fetched, Question, TrueCounts
    from sfumato.engines.examine import TableFit
    from sfumato.engines.query import TrueAggregates
    from sfumato.schema import Label, Table
    from sfumato.schema.table import Place
    from sfumato.sql import QueryPlan

    class _Remote(CountingEngine):
        def fetch(self, table: Table, wanted: frozenset[str]) -> Fetched: ...


# The engine of a place, and the package it needs.
_ENGINES = {
    "postgres": ("sfumato.engines.postgres.engine", "PostgresEngine", "psycopg"),
    "spark": ("sfumato.engines.spark.engine", "SparkEngine", "pyspark"),
}


def open_engine(folder: Path) -> Engine:
    """The engine for the tables of a project in `folder`. Nothing is opened before a table is read."""
    return _Router(folder)


class _Router:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = DuckDBEngine(folder, fetch=self._fetch)
        self._remotes: dict[str, _Remote] = {}

    def snapshot(self, table: Table) -> AbstractContextManager[None]:
        return self._find(table).snapshot(table)

    def check(self, table: Table, marginals: tuple[tuple[str, ...], ...]) -> None:
        self._find(table).check(table, marginals)

    def version(self, table: Table | PublicTable, *, secret: bytes) -> str:
        if isinstance(table, PublicTable):
            return self._find_public(table).version(table, secret=secret)
        return self._find(table).version(table, secret=secret)

    def count(
        self, table: Table, questions: tuple[Question, ...], *, progress: Callable[[str], None]
    ) -> tuple[TrueCounts, ...]:
        return self._find(table).count(table, questions, progress=progress)

    def describe(self, table: Table | PublicTable) -> dict[str, str]:
        if isinstance(table, PublicTable):
            return self._find_public(table).describe(table)
        return self._find(table).describe(table)

    def list_labels(self, table: PublicTable) -> dict[str, tuple[Label, ...]]:
        return self._files.list_labels(table)

    def aggregate(
        self, plan: QueryPlan, tables: Mapping[str, Table | PublicTable], *, progress: Callable[[str], None]
    ) -> TrueAggregates:
        return self._files.aggregate(plan, tables, progress=progress)

    def bind(self, plan: QueryPlan, tables: Mapping[str, Table | PublicTable]) -> None:
        self._files.bind(plan, tables)

    def select(self, tree: exp.Select, tables: Mapping[str, PublicTable]) -> pa.Table:
        return self._files.select(tree, tables)

    def examine(self, table: Table) -> TableFit:
        with self.snapshot(table):
            return self._files.examine(table)

    def _fetch(self, table: Table, wanted: frozenset[str]) -> Fetched:
        return self._open(find_place(table.source), table).fetch(table, wanted)

    def _find(self, table: Table) -> CountingEngine:
        place = find_place(table.source)
        return self._files if place == "file" else self._open(place, table)

    def _find_public(self, table: PublicTable) -> Engine:
        if find_place(table.source) != "file":
            raise SourceError(f"public table {table.name!r}: source must be a file")
        return self._files

    def _open(self, place: Place, table: Table) -> _Remote:
        if place not in self._remotes:
            module, name, package = _ENGINES[place]
            try:
                import_module(package)
            except ImportError:
                raise SourceError(
                    f"table {table.name!r}: its source needs another package: pip install 'sfumato[{place}]'"
                ) from None
            engine = getattr(import_module(module), name)(self._folder)
            self._remotes[place] = cast("_Remote", engine)
        return self._remotes[place]
