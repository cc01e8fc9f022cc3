"""Responses in files: columns read and encoded, answers packed together with their mechanism.

A Parquet file holds the description of its mechanism in its metadata, a CSV file has it beside it, in a file
of the same name with `.json` added. So a server needs no options and notices a mismatch.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sfumato.core.errors import RecipeError, SchemaError, SourceError
from sfumato.core.exact import format_exact
from sfumato.core.files import MOST_TEXT, read_regular
from sfumato.local.categories import SubsetSelection, UnaryEncoding
from sfumato.local.planning import read_mechanism
from sfumato.local.rappor import Rappor
from sfumato.tables.read import is_text, read_table, spell_table

if TYPE_CHECKING:
    from sfumato.local.means import MeanMechanism
    from sfumato.local.mechanism import FrequencyMechanism

_KEY: Final = b"sfumato.local"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What travels with responses: their mechanism, and the names of the categories if they have any."""

    mechanism: FrequencyMechanism | MeanMechanism
    values: tuple[str, ...] | None

    def to_record(self) -> dict[str, Any]:
        """Returns the description as a plain record."""
        return {
            "format": _FORMAT,
            "mechanism": self.mechanism.to_record(),
            "exact_epsilon": format_exact(self.mechanism.exact_epsilon),
            "values": None if self.values is None else list(self.values),
        }


def is_csv(path: Path) -> bool:
    """Returns whether the name is that of a text file; refused if it is neither that nor Parquet.

    >>> is_csv(Path("answers.parquet")), is_csv(Path("people.csv.gz"))
    (False, True)
    """
    name = path.name.lower()
    if not name.endswith((".parquet", ".csv", ".csv.gz", ".tsv", ".tsv.gz")):
        raise RecipeError(f"{path.name!r} must be a .parquet, .csv, .csv.gz, .tsv or .tsv.gz file")
    return not name.endswith(".parquet")


def side_file(path: Path) -> Path:
    """Returns the file that describes the responses of a CSV file.

    >>> side_file(Path("answers.csv")).name
    'answers.csv.json'
    """
    return path.with_name(path.name + ".json")


def read_column(path: Path, column: str | None) -> pa.ChunkedArray:
    """Returns one column of a file, as text if it is a text file; the only one if no name is given."""
    text = is_csv(path)
    table = read_table(path, side="file") if text else _read_schema(path).empty_table()
    names = table.column_names
    if column not in names and (column is not None or len(names) != 1):
        # A text file without a header line would show its first record as names.
        known = "is there a line with names?" if text else f"it has: {', '.join(names)[:200]}"
        raise SchemaError(f"name one column of {path.name!r} with --column; {known}")
    name = names[0] if column is None else column
    return table[name] if text else read_table(path, side="file", columns=[name])[name]


def _read_schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path.name!r} could not be read ({type(error).__name__})") from None


def encode_labels(
    column: pa.ChunkedArray, labels: tuple[str, ...] | int, *, default: str | None
) -> NDArray[np.int64]:
    """Returns the code of each value: its place among the labels, or the value itself.

    >>> encode_labels(pa.chunked_array([["b", "a", "b"]]), ("a", "b"), default=None).tolist()
    [1, 0, 1]
    """
    names = tuple(map(str, range(labels))) if isinstance(labels, int) else labels
    if len(set(names)) != len(names):
        raise RecipeError("--values names a category twice")
    if default is not None and default not in names:
        raise RecipeError("--default must be one of the categories")
    texts = spell_table(pa.table([column], names=["values"]), side="file")["values"]
    codes = pc.index_in(texts, value_set=pa.array(names, pa.string()))
    if codes.null_count:
        if default is None:
            raise SchemaError(
                "a value is missing or none of the categories; correct it, or state one with --default "
                "for such values"
            )
        codes = pc.fill_null(codes, names.index(default))
    return np.asarray(codes, np.int64)


def encode_numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Returns the values as floats, missing ones as NaN.

    >>> encode_numbers(pa.chunked_array([[1, None]])).tolist()
    [1.0, nan]
    """
    plain = pc.utf8_trim_whitespace(column) if is_text(column.type) else column
    try:
        numbers = pc.fill_null(pc.cast(plain, pa.float64(), safe=False), float("nan"))
    except pa.ArrowException:
        raise SchemaError("the column holds something that is not a number") from None
    return np.asarray(numbers, np.float64)


def pack_responses(
    responses: NDArray[Any], described: Described, *, column: str, csv: bool
) -> tuple[bytes, bytes | None]:
    """Returns the responses as the bytes of a file, and for CSV those of the file beside it."""
    content: pa.Array
    mechanism = described.mechanism
    if isinstance(mechanism, UnaryEncoding | SubsetSelection | Rappor):
        rows = np.packbits(responses, axis=1)
        width = rows.shape[1]
        if csv:
            content = pa.array([row.tobytes().hex() for row in rows], pa.string())
        else:
            content = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows))]
            )
    else:
        content = pa.array(responses.astype(np.int64))
    table = pa.table({column: content})
    record = json.dumps(described.to_record(), ensure_ascii=False).encode()
    buffer = io.BytesIO()
    if csv:
        pa.csv.write_csv(table, buffer)
        return buffer.getvalue(), record + b"\n"
    pq.write_table(table.replace_schema_metadata({_KEY: record}), buffer)
    return buffer.getvalue(), None


def read_described(path: Path) -> Described | None:
    """Returns what the file, or the one beside it, says about its responses; None if it says nothing."""
    if is_csv(path):
        beside = side_file(path)
        content = read_regular(beside, most=MOST_TEXT) if beside.is_file() else None
    else:
        content = (_read_schema(path).metadata or {}).get(_KEY)
    if content is None:
        return None
    try:
        record = json.loads(content)
        labels = record["values"]
        found = Described(
            mechanism=read_mechanism(record["mechanism"]),
            values=None if labels is None else tuple(map(str, labels)),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        found = None
    if found is None or found.to_record() != record:
        raise SchemaError(f"the description that travels with {path.name!r} is damaged or of another version")
    return found


def unpack_responses(column: pa.ChunkedArray, mechanism: FrequencyMechanism | MeanMechanism) -> NDArray[Any]:
    """Returns the responses as the array that the mechanism's `estimate` takes."""
    if column.null_count:
        raise SchemaError("a response is missing; drop such rows, which hold no answer")
    if not isinstance(mechanism, UnaryEncoding | SubsetSelection | Rappor):
        try:
            numbers = column.cast(pa.int64()) if is_text(column.type) else column
        except pa.ArrowException:
            numbers = column
        if not pa.types.is_integer(numbers.type):
            raise SchemaError(
                f"responses of {mechanism.name} are whole numbers; this column holds {column.type}"
            )
        return np.asarray(numbers)
    width = mechanism.categories
    rows = _read_rows(column, -(-width // 8))
    if (np.unpackbits(rows, axis=1)[:, width:]).any():
        raise SchemaError(f"a response has more than the {width} bits of this mechanism")
    return np.unpackbits(rows, axis=1, count=width).view(np.bool_)


def _read_rows(column: pa.ChunkedArray, size: int) -> NDArray[np.uint8]:
    if pa.types.is_fixed_size_binary(column.type) and column.type.byte_width == size and len(column):
        rows = pa.concat_arrays(column.chunks)
        flat = np.frombuffer(rows.buffers()[1], np.uint8)
        return flat[rows.offset * size : (rows.offset + len(rows)) * size].reshape(-1, size)
    cells = column.to_pylist()
    try:
        if is_text(column.type):
            cells = [bytes.fromhex(cell) for cell in cells]
        good = all(isinstance(cell, bytes) and len(cell) == size for cell in cells)
    except ValueError:
        good = False
    if not good:
        raise SchemaError(
            f"responses of this mechanism are rows of {size} bytes, as hexadecimal text in CSV files"
        )
    return np.frombuffer(b"".join(cells), np.uint8).reshape(-1, size)
