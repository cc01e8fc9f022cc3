"""SQL that turns a stored value into its code, or NULL where the domain does not hold it.

Total by construction: whatever a record holds (NULL, NaN, infinity, text in place of a number), the
expression gives a code or NULL and never raises. Every cast that could fail is a TRY_CAST.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from sfumato.core.dates import EPOCH_FORMATS, epoch_cell, formatted_cell, label_cell, moment_cell
from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values

if TYPE_CHECKING:
    import duckdb


_SEPARATOR = "\x1f"

Kind = Literal["integer", "number", "text", "boolean", "date", "other"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored column: its kind, and whether it keeps different values apart, as a unit column must.

    `type` is the name that a server has for its type, `digits` are precision and scale of a decimal;
    `zoned` timestamps are of another day in another zone.
    """

    kind: Kind
    is_identifier: bool = False
    type: str = ""
    digits: tuple[int, int] | None = None
    zoned: bool = False


_MEMORY_LIMIT = "600MB"
# What turns a cut by rank into an aggregate is ten times slower and needs more memory. Not every version
# has it.
_SLOW_OPTIMIZERS = ("top_n_window_elimination",)

_TRUSTED_OPTIMIZERS = ("expression_rewriter", "unused_columns", "column_lifetime")
"""Those that look at the text of a query alone: not at values or numbers of records, and not inside a TRY."""
_opening = threading.Lock()
_instances: dict[tuple[int, bool], duckdb.DuckDBPyConnection] = {}
_drawing: set[tuple[int, bool]] = set()  # the instances whose connections would draw a progress bar


def quote_name(name: str) -> str:
    """`name` as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """`text` as a string literal."""
    return "'" + text.replace("'", "''") + "'"


def code_type(size: int) -> str:
    """The smallest type that holds codes below `size`."""
    if size <= 2**8:
        return "UTINYINT"
    return "USMALLINT" if size <= 2**16 else "UINTEGER"


def value_list(column: Column) -> tuple[str, ...] | None:
    """The texts, in order of their codes, that the column's list type must know; None without one."""
    match column.domain:
        case Values(values) if not _is_run(values):
            return tuple(str(value) for value in values)
        case Tuples(values):
            return tuple(_SEPARATOR.join(str(part) for part in value) for value in values)
        case _:
            return None


def encode_column(column: Column, stored: Mapping[str, Stored], *, list_type: str) -> str:
    """The SQL expression for the code of `column`; `list_type` names its list type if it has one."""
    parts = _read_parts(column, stored)
    inside = _encode(column, parts, list_type)
    if column.outside == "other":
        inside = f"COALESCE({inside}, {column.size - 1})"
    if column.missing_label is not None:
        missing = " AND ".join(f"{value} IS NULL" for value, _ in parts)
        place = column.labels.index(column.missing_label)
        inside = f"CASE WHEN {missing} THEN {place} ELSE {inside} END"
    return f"CAST({inside} AS {code_type(column.size)})"


def value_column(column: Column, stored: Mapping[str, Stored]) -> str:
    """The SQL expression for the value of `column` as a query sees it, NULL where it has none."""
    parts = _read_parts(column, stored)
    name, kind = parts[0]
    match column.domain:
        case Period(part):
            return f"CAST({_part(name, kind, part, column=column.name)} AS BIGINT)"
        case Tuples(values):
            return " || '-' || ".join(_spell_parts(parts, values[0]))
        case IntegerRange() if kind not in ("integer", "boolean"):
            # A condition such as fee > 50 is about all numbers, though only whole ones have a code.
            return _number(name, kind)
        case IntegerRange():
            return _integer(name, kind)
        case Values() if column.calendar is not None:
            return _date_label(name, kind, column)
        case Values(values):
            return _text(name, kind) if isinstance(values[0], str) else _integer(name, kind)
        case Bins():
            return _integer(name, kind) if kind == "integer" else _number(name, kind)
        case None if column.bounds is not None:
            return _integer(name, kind) if kind == "integer" else _number(name, kind)
        case None if column.dates is not None and kind == "text":
            return moment_cell(name, text=True)
        case _:
            return name


def encode_range(value: str, low: int, high: int) -> str:
    """The SQL for the code of a whole number; shared by engines that write it so."""
    return f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} - {_signed(low)} END"


def encode_clamped(value: str, low: int, high: int, *, code: str = "{}") -> str:
    """The SQL for the code of a number that is held to its range; `code` wraps the code itself."""
    inside = code.format(f"{value} - {_signed(low)}")
    return (
        f"CASE WHEN {value} < {low} THEN 0 WHEN {value} > {high} THEN {high - low} "
        f"WHEN {value} = floor({value}) THEN {inside} END"
    )


def _spell_double(number: float) -> str:
    return f"{number!r}::DOUBLE"


def find_interval(
    edges: Sequence[Fraction], value: str, *, spell: Callable[[float], str] = _spell_double, first: int = 0
) -> str:
    """The SQL for the number of the interval that holds a value, by halving; the outermost if none does.

    `spell` writes a floating number. Made of comparisons alone, so that every engine finds the same one.
    """
    if len(edges) <= 2:
        return str(first)
    middle = len(edges) // 2
    below = find_interval(edges[: middle + 1], value, spell=spell, first=first)
    above = find_interval(edges[middle:], value, spell=spell, first=first + middle)
    return f"CASE WHEN {value} >= {spell(float(edges[middle]))} THEN {above} ELSE {below} END"


def encode_bins(
    value: str, edges: tuple[Fraction, ...], *, clamp: bool, spell: Callable[[float], str] = _spell_double
) -> str:
    """The SQL for the bin of a number; `spell` writes a floating number."""
    low, high = (spell(float(edge)) for edge in (edges[0], edges[-1]))
    kept = f"{value} IS NOT NULL" if clamp else f"{value} BETWEEN {low} AND {high}"
    return f"CASE WHEN {kept} THEN {find_interval(edges, value, spell=spell)} END"


def refuse_period(kind: Kind, column: str, part: str, name: str) -> None:
    """Refuses a period of a stored column that holds no moments; `name` is how SQL calls it."""
    if kind not in ("date", "text"):
        raise SourceError(
            f"column {column!r}: period = {part!r} needs a stored date, timestamp or text, and "
            f"{name} is none; declare a range instead"
        )


@contextmanager
def connect(*, plainly: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an embedded database with limits; whatever is made in it is gone at the end.

    `plainly`, for expressions that people write: with the few optimisers that are trusted. Others look at
    the smallest and largest value of a column, let one side of a join decide which records of the other are
    read, or move a part of an expression out of the TRY that guards it; with them one record could decide
    what becomes of the others.
    """
    import duckdb

    # An instance is dear to open, so that two of them are kept: the optimisers are a setting of the whole
    # instance. A forked process must not share one with its parent.
    with _opening:
        key = (os.getpid(), plainly)
        if key not in _instances:
            # What does not fit into memory spills to a folder that only this user can read.
            spill = tempfile.mkdtemp(prefix="sfumato-")
            atexit.register(_close_instance, key, spill)
            _instances[key] = _open_instance(spill, plainly=plainly)
            if _draws_bar(_instances[key]):
                _drawing.add(key)
        connection, draws = _instances[key].cursor(), key in _drawing
    try:
        if draws:
            connection.execute("SET enable_progress_bar = false")
        yield connection
    except (duckdb.FatalException, duckdb.InternalException):
        # An instance that failed in itself answers nothing any more; the next question gets a new one.
        _instances.pop(key, None)
        raise
    finally:
        connection.close()


@contextmanager
def connect_walled(views: Mapping[str, str], files: Iterable[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own to `views`, which no statement can make read a file but these."""
    allowed = ", ".join(map(quote_text, files))
    with (
        tempfile.TemporaryDirectory(prefix="sfumato-") as spill,
        _open_instance(spill, plainly=False) as connection,
    ):
        for name, query in views.items():
            connection.execute(f"CREATE TEMP VIEW {quote_name(name)} AS {query}")
        for setting in (f"allowed_paths = [{allowed}]", "enable_external_access = false"):
            connection.execute(f"SET GLOBAL {setting}")
        if _draws_bar(connection):
            connection.execute("SET enable_progress_bar = false")
        connection.execute("SET GLOBAL lock_configuration = true")
        yield connection


@contextmanager
def hide_failures(what: str) -> Iterator[None]:
    """Turns any failure into one sentence about `what`: a message from below may quote a record."""
    import duckdb

    try:
        yield
    except duckdb.InterruptException:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt from None
        # In a worker nobody pressed a key: it would end the loop that the worker works for.
        raise SourceError(f"reading {what} was interrupted") from None
    except (SchemaError, SourceError):
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


def create_list_type(
    connection: duckdb.DuckDBPyConnection, column: Column, name: str, *, rows: bool = True
) -> None:
    """Creates the type `name` that numbers the values of a listed column; without `rows`, of the first."""
    texts = value_list(column) or ()
    listed = ", ".join(quote_text(text) for text in texts[:1000])
    if rows and len(texts) > 1000:
        # As a table: a statement of a million words takes seconds to be read.
        from pyarrow import array, table

        connection.register("words", table([array(texts), array(range(len(texts)))], ["word", "place"]))
        listed = "SELECT word FROM words ORDER BY place"
    if texts:
        connection.execute(f"CREATE TEMP TYPE {name} AS ENUM ({listed})")


def _encode(column: Column, stored: list[tuple[str, Kind]], list_type: str) -> str:
    clamp = column.outside == "clamp"
    name, kind = stored[0]
    match column.domain:
        case Values(values) if _is_run(values):
            first = int(values[0])
            return encode_range(_integer(name, kind), first, first + len(values) - 1)
        case Values(values):
            text = _text(name, kind) if isinstance(values[0], str) else _integer_text(name, kind)
            if column.calendar is not None:
                text = _date_label(name, kind, column)
            return f"enum_code(TRY_CAST({text} AS {list_type}))"
        case Tuples(values):
            joined = f" || {quote_text(_SEPARATOR)} || ".join(_spell_parts(stored, values[0]))
            return f"enum_code(TRY_CAST({joined} AS {list_type}))"
        case Bins(edges):
            return encode_bins(_number(name, kind), edges, clamp=clamp)
        case IntegerRange(low, high):
            if clamp:
                return encode_clamped(_number(name, kind), low, high)
            return encode_range(_integer(name, kind), low, high)
        case Period(part):
            span = column.domain.span
            value = _part(name, kind, part, column=column.name)
            if clamp:
                return encode_clamped(value, span.low, span.high)
            return encode_range(value, span.low, span.high)
        case None:  # pragma: no cover - Table.column refuses a column without a domain
            raise AssertionError


def _read_parts(column: Column, stored: Mapping[str, Stored]) -> list[tuple[str, Kind]]:
    """The stored values of a column, read as its keys say: missing ones, commas, formats, loose spellings."""
    parts = []
    for name in column.stored:
        value, kind = quote_name(name), stored[name].kind
        if column.missing:
            listed = ", ".join(quote_text(text) for text in column.missing)
            value = f"CASE WHEN {_text(value, kind)} NOT IN ({listed}) THEN {value} END"
        if column.decimal == "," and kind == "text":
            value = f"replace(replace({value}, '.', ''), ',', '.')"
        if column.format in EPOCH_FORMATS:
            value, kind = epoch_cell(_number(value, kind), column.format), "date"
        elif column.format is not None and kind == "text":
            value, kind = formatted_cell(value, column.format), "date"
        if column.match == "loose" and kind == "text":
            texts = [quote_text(text) for text in value_list(column) or ()]
            spelled = " ".join(f"WHEN lower(trim({text})) THEN {text}" for text in texts)
            value = f"CASE lower(trim({value})) {spelled} ELSE {value} END"
        parts.append((value, kind))
    return parts


def _is_run(values: tuple[object, ...]) -> bool:
    if not isinstance(values[0], int):
        return False
    return all(value == values[0] + offset for offset, value in enumerate(values))


def _signed(number: int) -> str:
    return f"({number})" if number < 0 else str(number)


def _number(name: str, kind: Kind) -> str:
    value = f"TRY_CAST({name} AS DOUBLE)"
    if kind in ("date", "other"):
        return "NULL::DOUBLE"
    # A text may spell NaN, which is not a number and would compare as larger than every edge.
    return f"CASE WHEN NOT isnan({value}) THEN {value} END" if kind == "text" else value


def _integer(name: str, kind: Kind) -> str:
    if kind in ("date", "other"):
        return "NULL::BIGINT"
    if kind in ("integer", "boolean"):
        return f"TRY_CAST({name} AS BIGINT)"
    # A direct cast would round 12.7 to 13, and 13 may be a value of the domain.
    value = f"TRY_CAST({name} AS DOUBLE)"
    whole = f"{value} = floor({value}) AND abs({value}) <= {2**53}"
    return f"CASE WHEN {whole} THEN TRY_CAST({value} AS BIGINT) END"


def _integer_text(name: str, kind: Kind) -> str:
    return f"CAST({_integer(name, kind)} AS VARCHAR)"


def _spell_parts(parts: list[tuple[str, Kind]], labels: tuple[object, ...]) -> list[str]:
    """The SQL for the texts of the parts of a combination, of which one has these `labels`."""
    pairs = zip(parts, labels, strict=True)
    return [_text(*part) if isinstance(label, str) else _integer_text(*part) for part, label in pairs]


def _text(name: str, kind: Kind) -> str:
    return name if kind == "text" else f"TRY_CAST({name} AS VARCHAR)"


def _part(name: str, kind: Kind, part: str, *, column: str) -> str:
    refuse_period(kind, column, part, name)
    moment = moment_cell(name, text=kind == "text")
    if part == "day_of_week":
        return f"(isodow({moment}) - 1)"
    return f"{part}({moment})"


def _date_label(name: str, kind: Kind, column: Column) -> str:
    refuse_period(kind, column.name, str(column.calendar), name)
    return label_cell(moment_cell(name, text=kind == "text"), str(column.calendar))


def _open_instance(spill: str, *, plainly: bool) -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(config={"temp_directory": spill})
    known = [name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()]
    left_out = [
        name for name in known if name in _SLOW_OPTIMIZERS or (plainly and name not in _TRUSTED_OPTIMIZERS)
    ]
    for setting in (
        f"memory_limit = '{_MEMORY_LIMIT}'",
        f"preserve_insertion_order = {str(plainly).lower()}",
        "autoinstall_known_extensions = false",
        "python_enable_replacements = false",  # no name of a query is a variable of this program
        f"disabled_optimizers = '{','.join(left_out)}'",
        "TimeZone = 'UTC'",
    ):
        connection.execute(f"SET GLOBAL {setting}")
    return connection


def _draws_bar(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a bar would tell of the records, and mix with our output.

    Where none can be drawn, as in a notebook without ipywidgets, it is off, and cannot be turned off.
    """
    return connection.sql("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]


def _close_instance(key: tuple[int, bool], spill: str) -> None:
    connection = _instances.pop(key, None)
    if connection is not None:
        connection.close()
    shutil.rmtree(spill, ignore_errors=True)
