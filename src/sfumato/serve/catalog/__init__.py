"""What PostgreSQL's clients ask of its system tables, answered from names and types alone.

`tables` makes a small database of its own that holds no record and no path; `statement` lets through what is
about it and writes that for DuckDB. Nothing here can reach a source.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from sfumato.core.errors import UnsupportedQuery
from sfumato.serve.catalog.grammar import is_about_system, read_list, read_statement
from sfumato.serve.catalog.statement import MOST_ROWS, Written, write_statement
from sfumato.serve.catalog.tables import KEPT, Column, kept_as, make_tables, read_description

if TYPE_CHECKING:
    import duckdb

    from sfumato.core.facts.project import Project

__all__ = ["Catalog"]

_LONGEST_KEPT = 10_000  # signs of a statement whose reading is kept for the next client
_MOST_SIGNS = 4_000_000  # of all texts in an answer, which a client holds at once
_LONGEST = 2.0  # seconds; a client's own take milliseconds
# The PostgreSQL type of what DuckDB gives: the first that it keeps so.
_GIVEN = {kept: type_ for type_, kept in reversed(KEPT.items())}
_GIVEN |= {"TINYINT": "int2", "UBIGINT": "int8", "HUGEINT": "int8"}


class Catalog:
    """The system tables of a project.

    `stored` has the kinds of the stored columns by table, as `describe_source` gives them. Without it a table
    shows its described columns and the one that names individuals. `types` has the numbers of the types that
    columns have in answers, which is what clients must be told.
    """

    def __init__(
        self,
        project: Project,
        *,
        stored: Mapping[str, Mapping[str, str]] | None = None,
        types: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._project = project
        self._stored = stored or {}
        self._types = types or {}
        self._lock = threading.Lock()
        self._made: duckdb.DuckDBPyConnection | None = None

    def covers(self, text: str) -> bool:
        """Returns whether a statement names a system table, or no table and only known functions."""
        return _prepare(text) is not None

    def describe(self, text: str) -> tuple[tuple[Column, ...], tuple[int, ...]]:
        """Returns the columns of a statement's answer and the types of its parameters; runs nothing."""
        written = _find(text)
        session = {"user": "", "database": "", "names": [""], "settings": [""], "version": ""}
        _, rows = self._run(f"DESCRIBE {written.sql}", session, [None] * len(written.parameters))
        oids = read_description().oids
        columns = _columns(written, [str(row[1]) for row in rows])
        return columns, tuple(oids[each] for each in written.parameters)

    def answer(
        self,
        text: str,
        *,
        user: str,
        database: str,
        settings: Mapping[str, str],
        parameters: Sequence[object] = (),
    ) -> tuple[tuple[Column, ...], list[tuple[object, ...]]]:
        """Returns the columns and rows of the answer to a statement that the catalog covers.

        `user` and `database` are what `current_user` and `current_database()` give, `settings` those of the
        session, by their names in small letters; `parameters` are the values of $1, $2, ...: texts, numbers,
        lists, None.
        """
        written = _find(text)
        session = {
            "user": user,
            "database": database,
            "names": list(settings),
            "settings": list(settings.values()),
            "version": f"PostgreSQL {settings['server_version']}",
        }
        kinds, rows = self._run(written.sql, session, _bind(written, parameters))
        columns = _columns(written, kinds)
        aware = [place for place, column in enumerate(columns) if column.oid == 1184]
        if aware:
            rows = [_make_aware(row, aware) for row in rows]
        return columns, rows

    def _run(
        self, sql: str, session: Mapping[str, object], parameters: list[object]
    ) -> tuple[list[str], list[tuple[object, ...]]]:
        """Runs a statement for a bounded time on a connection of its own; returns types and rows."""
        import duckdb

        cursor = self._connect().cursor()
        timer = threading.Timer(_LONGEST, cursor.interrupt)
        timer.daemon = True
        timer.start()
        found = None
        try:
            cursor.execute("SET VARIABLE session = $1", [session])
            result = cursor.execute(sql, parameters)
            found = [str(each[1]) for each in result.description or ()], _fetch(result)
        except (duckdb.Error, RuntimeError, MemoryError):
            pass  # what DuckDB says may name its own tables, functions and folders, so nothing is kept of it
        finally:
            timer.cancel()
            timer.join()  # or it might interrupt a connection that is closed
            cursor.close()
        if found is None:
            raise UnsupportedQuery(
                "the catalog cannot answer this statement; ask for names and types of tables and columns"
            )
        return found

    def _connect(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._made is None:
                self._made = make_tables(self._project, self._stored, self._types)
            return self._made


def _prepare(text: str) -> Written | UnsupportedQuery | None:
    """Returns what DuckDB is to run, why it is not, or None for what is not about the catalog."""
    return _remember(text) if len(text) < _LONGEST_KEPT else _remember.__wrapped__(text)


@lru_cache(maxsize=512)
def _remember(text: str) -> Written | UnsupportedQuery | None:
    try:
        tree = read_statement(text)
        return None if tree is None or not is_about_system(tree) else write_statement(tree)
    except UnsupportedQuery as refused:
        return UnsupportedQuery(str(refused))  # without the frames that it came through
    except (AttributeError, IndexError, KeyError, TypeError):  # of nonsense the parser makes odd trees
        return UnsupportedQuery("the catalog cannot read this statement")


def _find(text: str) -> Written:
    found = _prepare(text)
    if not isinstance(found, Written):
        raise UnsupportedQuery("this is no statement about the catalog" if found is None else str(found))
    return found


def _bind(written: Written, parameters: Sequence[object]) -> list[object]:
    """Returns the values of parameters for DuckDB; lists may come in PostgreSQL's spelling."""
    if len(parameters) != len(written.parameters):
        raise UnsupportedQuery(
            f"the statement has {len(written.parameters)} parameters, {len(parameters)} were given"
        )
    return [
        read_list(value) if isinstance(value, str) and kept_as(type_).endswith("[]") else value
        for value, type_ in zip(parameters, written.parameters, strict=True)
    ]


def _fetch(result: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    """Returns the rows of an answer, if they are not too many and hold not too much."""
    rows: list[tuple[object, ...]] = []
    size = 0
    while chunk := result.fetchmany(500):
        rows += chunk
        size += sum(len(value) for row in chunk for value in row if isinstance(value, str | list))
        if len(rows) > MOST_ROWS or size > _MOST_SIGNS:
            raise UnsupportedQuery("this answer is too long for the catalog; ask for less")
    return rows


def _columns(written: Written, kinds: Sequence[str]) -> tuple[Column, ...]:
    """Gives the columns of an answer: as the statement says where it does, by what DuckDB gives elsewhere."""
    oids = read_description().oids
    known = written.types if len(written.types) == len(kinds) else (None,) * len(kinds)
    columns = []
    for place, (kind, type_) in enumerate(zip(kinds, known, strict=True)):
        name = written.columns[place] if len(written.columns) == len(kinds) else f"column{place + 1}"
        columns.append(Column(name, oids["text" if type_ == "unknown" else type_ or _given(kind)]))
    return tuple(columns)


def _given(kind: str) -> str:
    if kind.endswith("[]"):
        return f"_{_given(kind[:-2])}"
    return "numeric" if kind.startswith("DECIMAL") else _GIVEN.get(kind, "text")


def _make_aware(row: tuple[object, ...], places: Sequence[int]) -> tuple[object, ...]:
    return tuple(
        value.replace(tzinfo=UTC) if place in places and isinstance(value, datetime) else value
        for place, value in enumerate(row)
    )
