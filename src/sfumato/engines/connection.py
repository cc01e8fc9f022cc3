"""DuckDB connections and scans: how files are read, within which limits."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb

from sfumato.engines.encode import quote_text, value_list
from sfumato.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from sfumato.engines.source import FileSource
    from sfumato.schema import Column

__all__ = [
    "SLOW_OPTIMIZER",
    "connect",
    "create_list_type",
    "escape_pattern",
    "hide_failures",
    "ignore_statistics",
    "read_counted",
    "scan_files",
    "sql_kind",
]

_MEMORY_LIMIT = "600MB"

SLOW_OPTIMIZER = "top_n_window_elimination"
"""It turns a cut by rank into an aggregate that is ten times slower and needs more memory."""


@contextmanager
def connect(*, plainly: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A fresh embedded database with limits, closed and cleaned up at the end.

    `plainly`, for expressions that people write: without optimisers that look at the smallest and largest
    value of a column, or move a part of an expression out of the TRY that guards it. With them one record
    could decide whether the others' expressions fail.
    """
    left_out = [SLOW_OPTIMIZER]
    if plainly:
        left_out += ["statistics_propagation", "common_subexpressions"]
    with tempfile.TemporaryDirectory(prefix="sfumato-") as spill:
        connection = duckdb.connect()
        try:
            # What does not fit into memory spills to a folder that only this user can read.
            for setting in (
                f"temp_directory = {quote_text(spill)}",
                f"memory_limit = '{_MEMORY_LIMIT}'",
                "preserve_insertion_order = false",
                "TimeZone = 'UTC'",
                "autoinstall_known_extensions = false",
                "enable_progress_bar = false",  # it would tell of the records, and mix with our output
                f"disabled_optimizers = '{','.join(left_out)}'",
            ):
                connection.execute(f"SET {setting}")
            yield connection
        finally:
            connection.close()


@contextmanager
def ignore_statistics(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Within it, no expression is simplified by the smallest and largest value that a file states.

    These leave NaN out, so that with them a test for NaN is answered by the other records of the file.
    """
    connection.execute(f"SET disabled_optimizers = '{SLOW_OPTIMIZER},statistics_propagation'")
    yield
    connection.execute(f"SET disabled_optimizers = '{SLOW_OPTIMIZER}'")


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
        message = f"{what} could not be read to the end"
        raise SourceError(message) from None


def read_counted(source: FileSource, used: set[str], counted: set[str]) -> pa.RecordBatchReader:
    """The used columns as a stream, those of `counted` as whole numbers."""
    import pyarrow as pa
    import pyarrow.dataset

    dataset = pyarrow.dataset.dataset([str(path) for path in source.paths], format="parquet")
    columns = {}
    for name in source.columns:
        if name in used:
            field = pyarrow.dataset.field(name)
            columns[name] = field.cast(pa.int64()) if name in counted else field
    return dataset.scanner(columns=columns, use_threads=True).to_reader()


def scan_files(source: FileSource) -> str:
    """The SQL that reads the files of `source` as they are."""
    files = ", ".join(quote_text(escape_pattern(str(path))) for path in source.paths)
    if source.format == "parquet":
        return f"read_parquet([{files}], hive_partitioning=false)"
    columns = ", ".join(f"{quote_text(name)}: 'VARCHAR'" for name in source.columns)
    return (
        f"read_csv([{files}], auto_detect=false, header=true, delim={quote_text(source.delimiter)}, "
        f"""quote='"', escape='"', columns={{{columns}}}, ignore_errors=true, strict_mode=false, """
        "hive_partitioning=false)"
    )


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
