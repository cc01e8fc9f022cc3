"""DuckDB connections: within which limits the embedded database computes, and what it may not look at."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from sfumato.engines.encode import quote_text, value_list
from sfumato.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfumato.schema import Column

_MEMORY_LIMIT = "600MB"

# What turns a cut by rank into an aggregate is ten times slower and needs more memory. Not every version
# has it.
_SLOW_OPTIMIZERS = ("top_n_window_elimination",)

_TRUSTED_OPTIMIZERS = ("expression_rewriter", "unused_columns", "column_lifetime")
"""Those that look at the text of a query alone: not at values or numbers of records, and not inside a TRY."""


_opening = threading.Lock()
_instances: dict[tuple[int, bool], duckdb.DuckDBPyConnection] = {}


@contextmanager
def connect(*, plainly: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an embedded database with limits; whatever is made in it is gone at the end.

    `plainly`, for expressions that people write: with the few optimisers that are trusted. Others look at
    the smallest and largest value of a column, let one side of a join decide which records of the other are
    read, or move a part of an expression out of the TRY that guards it; with them one record could decide
    what becomes of the others.
    """
    # An instance is dear to open, so that two of them are kept: the optimisers are a setting of the whole
    # instance. A forked process must not share one with its parent.
    with _opening:
        key = (os.getpid(), plainly)
        if key not in _instances:
            _instances[key] = _open_instance(plainly=plainly)
        connection = _instances[key].cursor()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        # It would tell of the records, and mix with our output. Where none can be drawn, as in a notebook
        # without ipywidgets, it is off already, and DuckDB refuses to be told so.
        if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
            connection.execute("SET enable_progress_bar = false")
        yield connection
    except (duckdb.FatalException, duckdb.InternalException):
        # An instance that failed in itself answers nothing any more; the next question gets a new one.
        _instances.pop(key, None)
        raise
    finally:
        connection.close()


def _open_instance(*, plainly: bool) -> duckdb.DuckDBPyConnection:
    # What does not fit into memory spills to a folder that only this user can read.
    spill = tempfile.mkdtemp(prefix="sfumato-")
    atexit.register(_close_instance, (os.getpid(), plainly), spill)
    connection = duckdb.connect()
    known = [name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
    left_out = [
        name for name in known if name in _SLOW_OPTIMIZERS or (plainly and name not in _TRUSTED_OPTIMIZERS)
    ]
    for setting in (
        f"temp_directory = {quote_text(spill)}",
        f"memory_limit = '{_MEMORY_LIMIT}'",
        f"preserve_insertion_order = {str(plainly).lower()}",
        "autoinstall_known_extensions = false",
        "python_enable_replacements = false",  # no name of a query is a variable of this program
        f"disabled_optimizers = '{','.join(left_out)}'",
    ):
        connection.execute(f"SET GLOBAL {setting}")
    return connection


def _close_instance(key: tuple[int, bool], spill: str) -> None:
    connection = _instances.pop(key, None)
    if connection is not None:
        connection.close()
    shutil.rmtree(spill, ignore_errors=True)


@contextmanager
def hide_failures(what: str) -> Iterator[None]:
    """Turns any failure into one sentence about `what`: a message from below may quote a record."""
    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except SourceError:
        raise  # one of ours, in words that are fixed
    except Exception:
        raise SourceError(f"{what} could not be read to the end") from None


def escape_pattern(path: str) -> str:
    """`path` such that the engine takes it for itself."""
    # The engine takes a path for a pattern of paths.
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


def sql_kind(kind: str) -> str:
    """The kind of a column from the engine's name of its type."""
    if kind.endswith("INT") or kind == "INTEGER":
        return "integer"
    if kind in ("FLOAT", "DOUBLE") or kind.startswith("DECIMAL"):
        return "number"
    if kind == "BOOLEAN":
        return "boolean"
    return "date" if kind == "DATE" or kind.startswith("TIMESTAMP") else "text"


def create_list_type(connection: duckdb.DuckDBPyConnection, column: Column, name: str) -> None:
    """Creates the type `name` that numbers the values of a listed column, if it is one."""
    texts = value_list(column)
    if texts is not None:
        listed = ", ".join(quote_text(text) for text in texts)
        connection.execute(f"CREATE TEMP TYPE {name} AS ENUM ({listed})")
