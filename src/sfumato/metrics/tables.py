"""Tables from wherever they are: Arrow, frames, dictionaries of columns, files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.errors import MetricError
from sfumato.tables.write import restore_formulas

TableLike = Any
"""An Arrow table, a pandas or polars frame, a mapping of columns, or the path of a Parquet or CSV file."""

_DELIMITERS = ",;\t|"
_TEXT_FILES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_LARGEST_WHOLE = 2**53


def read_table(source: TableLike, *, side: str) -> pa.Table:
    """`source` as an Arrow table; `side` is what messages call it.

    >>> read_table({"a": [1, 2]}, side="truth").num_rows
    2
    """
    if isinstance(source, pa.Table):
        table = source
    elif isinstance(source, (str, Path)):
        table = _read_files(Path(source), side)
    else:
        table = _convert(source, side)
    names = table.column_names
    if len(set(names)) != len(names):
        raise MetricError(f"{side}: two columns have the same name; rename one")
    return table.drop_columns([name for name in names if name.startswith("__index_level_")])


def require_columns(table: pa.Table, names: Iterable[str], *, side: str) -> None:
    """Raises an error that names the columns of `names` that `table` lacks."""
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise MetricError(f"{side}: no column {', '.join(repr(name) for name in missing)}")


def plain_column(table: pa.Table, name: str) -> pa.Array:
    """The column `name` as one array of numbers, text or a dictionary of text; NaN becomes missing."""
    column = table.column(name)
    kind = column.type
    if pa.types.is_dictionary(kind) and not _is_text(kind.value_type):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_dictionary(kind):
        column = _plain_words(column).unify_dictionaries()
    elif pa.types.is_boolean(kind) or pa.types.is_null(kind):
        column = column.cast(pa.string())
    elif pa.types.is_temporal(kind):
        column = (
            column.cast(pa.timestamp("us")).cast(pa.int64()) if _has_date(kind) else column.cast(pa.string())
        )
    elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        column = column.cast(pa.float64())
    elif _is_text(kind) and kind != pa.string():
        column = column.cast(pa.string())
    elif not (_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise MetricError(f"column {name!r} has a nested or binary type; leave it out")
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    return array


def to_numbers(array: pa.Array) -> NDArray[Any]:
    """An array of numbers as numpy holds it; missing ones become NaN."""
    return np.asarray(array.to_numpy(zero_copy_only=False))


def measure(table: pa.Table, name: str, *, side: str) -> NDArray[np.float64]:
    """The numbers of the column `name`, all of them finite, or an error."""
    array = plain_column(table, name)
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        raise MetricError(f"{side}: column {name!r} must hold numbers")
    numbers = to_numbers(array).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise MetricError(f"{side}: column {name!r} has missing or infinite values")
    return numbers


def whole_numbers(table: pa.Table, name: str, *, side: str) -> NDArray[np.int64]:
    """The whole numbers of the column `name`, none of them missing, or an error."""
    array = plain_column(table, name)
    if pa.types.is_integer(array.type) and not array.null_count:
        return to_numbers(array).astype(np.int64)
    numbers = measure(table, name, side=side)
    if (np.abs(numbers) > _LARGEST_WHOLE).any() or (numbers != np.floor(numbers)).any():
        raise MetricError(f"{side}: column {name!r} must hold whole numbers")
    return numbers.astype(np.int64)


def _convert(source: TableLike, side: str) -> pa.Table:
    try:
        if isinstance(source, pa.RecordBatch):
            return pa.Table.from_batches([source])
        if isinstance(source, Mapping):
            return pa.table({str(name): values for name, values in source.items()})
        if hasattr(source, "__arrow_c_stream__"):
            return pa.table(source)
        if hasattr(source, "to_arrow"):
            return pa.table(source.to_arrow())
        return pa.Table.from_pandas(source, preserve_index=False)
    except Exception:  # what is wrong may be told with a value of a record
        raise MetricError(
            f"{side}: not a table; give an Arrow table, a pandas or polars frame, a mapping of columns of "
            "equal length, or the path of a file"
        ) from None


def _read_files(path: Path, side: str) -> pa.Table:
    paths = sorted(path.parent.glob(path.name)) if "*" in path.name else []
    if not paths:
        return _read_file(path, side)
    try:
        return pa.concat_tables([_read_file(each, side) for each in paths], promote_options="permissive")
    except pa.ArrowException:
        raise MetricError(f"{side}: the files {path.name!r} do not have the same columns") from None


def _read_file(path: Path, side: str) -> pa.Table:
    name = path.name.lower()
    if not path.is_file():
        raise MetricError(f"{side}: there is no file {path.name!r}")
    try:
        if name.endswith(".parquet"):
            return pq.read_table(path)
        if name.endswith(_TEXT_FILES):
            return _read_text(path, side)
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
        raise MetricError(f"{side}: {path.name!r} cannot be read ({type(error).__name__})") from None
    raise MetricError(f"{side}: {path.name!r} must end in .parquet, .csv or .csv.gz")


def _read_text(path: Path, side: str) -> pa.Table:
    """The file read as text first: the kind of a column follows from all its values, not from the first."""
    with pa.input_stream(str(path)) as stream:
        header = bytes(stream.read(2**16)).split(b"\n", 1)[0].decode("utf-8-sig")
    delimiter = max(_DELIMITERS, key=header.count)
    names = next(csv.reader([header], delimiter=delimiter), [])
    options = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    table = pyarrow.csv.read_csv(path, parse_options=_parse(delimiter), convert_options=options)
    table = restore_formulas(table) if side == "release" else table
    return pa.table([_guess_kind(column) for column in table.columns], names=table.column_names)


def _parse(delimiter: str) -> pyarrow.csv.ParseOptions:
    return pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


def _guess_kind(column: pa.ChunkedArray) -> pa.ChunkedArray:
    filled = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    # A leading zero means a code, not a number.
    if filled.null_count == len(filled) or pc.any(pc.match_substring_regex(filled, r"^-?0\d")).as_py():
        return column
    for kind in (pa.int64(), pa.float64()):
        try:
            return filled.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _plain_words(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary of text whose words are plain strings: not every kernel takes other layouts."""
    if column.type.value_type == pa.string():
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.string()))


def _has_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))
