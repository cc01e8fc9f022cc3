"""Tables from wherever they are: Arrow, frames, dictionaries of columns, files.

One meaning of a text file: the separator is the one of `,;|` and tab that stands most often in the header
line, every cell is text, and an empty one is missing. Whether a text is a number, who asks decides: the
domain of a column, or `guess_kinds`. As bytes of a file, the same table gives the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from sfumato.core.engine.opening import (
    LONGEST_RECORD,
    READABLE,
    TEXT_FILES,
    UNREADABLE,
    advise_format,
    find_delimiter,
    open_text,
    read_header,
)
from sfumato.core.engine.textfile import csv_options
from sfumato.core.errors import SourceError
from sfumato.tables.arrays import read_parquet

TableLike = Any
"""An Arrow table, a pandas or polars frame, a mapping of columns, or the path of a Parquet or CSV file."""

_MOST_BYTES = 2**31
_PIECE = 2**20  # rows; a piece of a wide table stays well below the memory of a small machine

MOST_HEADER = 2**20
"""Bytes of a header line."""
_STEP = 2**24


def unpack_gzip(content: bytes, *, most: int) -> bytes:
    """What a .gz file holds, refused beyond `most` bytes.

    >>> unpack_gzip(gzip.compress(b"a,b"), most=3)
    b'a,b'
    """
    parts, size = [], 0
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while part := file.read(_STEP):
            size += len(part)
            if size > most:
                raise SourceError(f"it unpacks to more than {most:,} bytes")
            parts.append(part)
    return b"".join(parts)


def split_header(content: bytes) -> str:
    r"""The header line of a text file, refused beyond `MOST_HEADER` bytes.

    >>> split_header(b"a,b\r\n1,2\n")
    'a,b'
    """
    end = content.find(b"\n", 0, MOST_HEADER)
    if end < 0 and len(content) > MOST_HEADER:
        raise SourceError(f"its first line is longer than {MOST_HEADER:,} bytes")
    return content[: end if end >= 0 else None].decode("utf-8-sig").rstrip("\r")


def read_table(
    source: TableLike,
    *,
    side: str,
    columns: Iterable[str] | None = None,
    typed: bool = False,
    numbered: bool = False,
) -> pa.Table:
    """Returns `source` as an Arrow table.

    `side` is what messages call it, `columns` are those to read (all by default). With `typed`, columns of a
    text file that hold nothing but numbers are read as numbers; with `numbered`, text of a Parquet file stays
    a dictionary as the file has it, which takes less memory.

    >>> read_table({"age": [61, 72], "name": ["a", "b"]}, side="table", columns=["age"]).to_pylist()
    [{'age': 61}, {'age': 72}]
    """
    names = None if columns is None else tuple(dict.fromkeys(columns))
    if isinstance(source, (str, Path)):
        pieces = [
            _read_file(path, side=side, columns=names, numbered=numbered)
            for path in _find_files(Path(source), side)
        ]
        try:
            table = pa.concat_tables(pieces, promote_options="permissive") if len(pieces) > 1 else pieces[0]
        except pa.ArrowException:
            raise SourceError(f"{side}: its files do not have the same columns") from None
    else:
        table = _convert(source, side)
    table = table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
    _refuse_twins(table.column_names, side)
    if names is not None:
        # A text file without a header line would show its first record as names.
        require_columns(table, names, side=side, show=not _is_text_file(source))
        table = table.select(list(names))
    return guess_kinds(table) if typed and _is_text_file(source) else table


def read_pieces(source: TableLike, *, side: str, columns: Iterable[str]) -> Iterator[pa.Table]:
    """Yields the `columns` of some records after others: no large file is in memory at once.

    There is at least one piece, which may be empty.
    """
    names = list(dict.fromkeys(columns))
    if not isinstance(source, (str, Path)) or not str(source).lower().endswith(".parquet"):
        yield read_table(source, side=side, columns=names)
        return
    for path in _find_files(Path(source), side):
        with _hidden_failures(path, side):
            schema = pq.read_schema(path)
            _refuse_twins(schema.names, side)
            require_columns(schema.empty_table(), names, side=side, show=True)
            yield schema.empty_table().select(names)
            words = [name for name in names if is_text(schema.field(name).type)]
            with pq.ParquetFile(path, read_dictionary=words) as file:
                for batch in file.iter_batches(batch_size=_PIECE, columns=names):
                    yield pa.Table.from_batches([batch])


def parse_table(content: bytes, *, name: str) -> pa.Table:
    r"""Reads the bytes of a file called `name`; one that unpacks to far more is refused.

    >>> parse_table(b"code;n\n07;1\n;2\n", name="codes.csv").to_pylist()
    [{'code': '07', 'n': '1'}, {'code': None, 'n': '2'}]
    """
    with _hidden_failures(Path(name), "file"):
        if name.lower().endswith(".parquet"):
            return read_parquet(content, spelled=True)
        text = unpack_gzip(content, most=_MOST_BYTES) if name.lower().endswith(".gz") else content
        header = split_header(text)
        return _read_csv(pa.BufferReader(text), header, find_delimiter(header, Path("file.csv")))


def require_columns(table: pa.Table, names: Iterable[str], *, side: str, show: bool = False) -> None:
    """Raises an error that names the columns of `names` that `table` lacks, and with `show` those it has.

    >>> require_columns(pa.table({"age": ["61"]}), ["age", "sex"], side="register")
    Traceback (most recent call last):
        ...
    sfumato.core.errors.SourceError: register: no column 'sex'; is there a line with names?
    """
    missing = [name for name in names if name not in table.column_names]
    if missing:
        known = f" (it has: {', '.join(table.column_names)})" if show else "; is there a line with names?"
        raise SourceError(f"{side}: no column {', '.join(repr(name) for name in missing)}{known}")


def give_back(table: pa.Table, *, like: TableLike) -> TableLike:
    """Converts `table` to the kind of `like`: a frame, a mapping of columns, or an Arrow table.

    >>> give_back(pa.table({"age": ["60+"]}), like={"age": [61]})
    {'age': ['60+']}
    """
    module = type(like).__module__.split(".")[0]
    if isinstance(like, dict):
        return table.to_pydict()
    if module == "pandas":
        return _to_pandas(table)
    return to_polars(table) if module == "polars" else table


def to_polars(table: pa.Table) -> TableLike:
    """Returns `table` as a polars frame; polars must be installed."""
    try:
        import polars
    except ImportError:
        raise SourceError("polars is not installed; install it, or use to_arrow()") from None
    return polars.from_arrow(table)


def guess_kinds(table: pa.Table) -> pa.Table:
    """Returns `table` with text columns of nothing but numbers as numbers; a leading zero means a code.

    >>> guess_kinds(pa.table({"age": ["61", None], "code": ["07", "12"]})).to_pylist()
    [{'age': 61, 'code': '07'}, {'age': None, 'code': '12'}]
    """
    return pa.table([_guess_kind(column) for column in table.columns], names=table.column_names)


def spell_table(table: pa.Table, *, side: str) -> pa.Table:
    """Returns `table` with all cells as text, as they would be read.

    >>> spell_table(pa.table({"age": [61, None], "height": [1.5, 2.0]}), side="register").to_pylist()
    [{'age': '61', 'height': '1.5'}, {'age': None, 'height': '2'}]
    """
    return pa.table({name: _spell_column(table[name], name, side) for name in table.column_names})


def is_text(kind: pa.DataType) -> bool:
    """Returns whether an Arrow type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


@contextmanager
def _hidden_failures(path: Path, side: str) -> Iterator[None]:
    """Turns what Arrow raises into an error without its text, which may hold a value of a record."""
    try:
        yield
    except SourceError:
        raise
    except (*UNREADABLE, pa.ArrowException) as error:
        reason = f"cannot be read ({type(error).__name__})"
        if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
            reason = "is not UTF-8 text; save it as UTF-8"
        raise SourceError(f"{side}: {path.name!r} {reason}") from None


def _find_files(path: Path, side: str) -> list[Path]:
    paths = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
    if not paths or not all(each.is_file() for each in paths):
        raise SourceError(f"{side}: there is no file {path.name!r}")
    return paths


def _is_text_file(source: TableLike) -> bool:
    return isinstance(source, (str, Path)) and str(source).lower().endswith(TEXT_FILES)


def _read_file(path: Path, *, side: str, columns: tuple[str, ...] | None, numbered: bool) -> pa.Table:
    if _is_text_file(path):
        with _hidden_failures(path, side):
            header = read_header(path, encoding="utf-8")
            if header is None or "\ufffd" in header:
                raise SourceError(
                    f"{side}: the first line of {path.name!r} is not utf-8, or longer than "
                    f"{LONGEST_RECORD:,} bytes; a header line is needed"
                )
            with open_text(path) as file:
                return _read_csv(file, header, find_delimiter(header, path), columns=columns)
    if path.name.lower().endswith(".parquet"):
        with _hidden_failures(path, side):
            schema = pq.read_schema(path)
            _refuse_twins(schema.names, side)
            kept = [name for name in schema.names if columns is None or name in columns]
            words = [name for name in kept if numbered and is_text(schema.field(name).type)]
            return pq.read_table(path, columns=kept, read_dictionary=words)
    advice = advise_format(path.name)
    raise SourceError(f"{side}: {path.name!r} must end in {READABLE}; {advice}")


def _read_csv(
    source: BinaryIO | pa.BufferReader, header: str, delimiter: str, *, columns: tuple[str, ...] | None = None
) -> pa.Table:
    names = next(csv.reader([header], delimiter=delimiter), [])
    options = csv_options(dict.fromkeys(names, pa.string()), delimiter=delimiter)
    # Two columns of one name are all read, to be refused; so is everything where nothing asked for is there.
    if columns is not None and len(set(names)) == len(names):
        options["convert_options"].include_columns = [name for name in names if name in columns]
    return pyarrow.csv.read_csv(source, **options)


def _convert(source: TableLike, side: str) -> pa.Table:
    try:
        if isinstance(source, pa.Table):
            return source
        if isinstance(source, pa.RecordBatch):
            return pa.Table.from_batches([source])
        if isinstance(source, Mapping):
            return pa.table({str(name): values for name, values in source.items()})
        if hasattr(source, "__arrow_c_stream__"):
            return pa.table(source)
        if hasattr(source, "to_arrow"):
            return pa.table(source.to_arrow())
        return pa.Table.from_pandas(source, preserve_index=False)
    except Exception:  # its text may hold a value of a record
        raise SourceError(
            f"{side}: not a table; give an Arrow table, a pandas or polars frame, a mapping of columns of "
            "equal length, or the path of a file"
        ) from None


def _refuse_twins(names: list[str], side: str) -> None:
    if len(set(names)) != len(names):
        raise SourceError(f"{side}: two columns have the same name; rename one")


def _to_pandas(table: pa.Table) -> TableLike:
    """Returns the frame; whole numbers with missing ones stay whole, which as floats some would not."""
    frame = table.to_pandas()
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count:
            frame[name] = column.to_pandas(integer_object_nulls=True).astype(
                str(column.type).title().replace("Ui", "UI")
            )
    return frame


def _guess_kind(column: pa.ChunkedArray) -> pa.ChunkedArray:
    coded = is_text(column.type) and pc.any(pc.match_substring_regex(column, r"^-?0\d")).as_py()
    if coded or not is_text(column.type) or column.null_count == len(column):
        return column
    for kind in (pa.int64(), pa.float64()):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column


def _spell_column(column: pa.ChunkedArray, name: str, side: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_decimal(kind):
        # Decimals are exact, and a float of one may not be: 597.675 would lie beyond an edge of 597.675.
        text = pc.replace_substring_regex(column.cast(pa.string()), r"(\.\d*?)0+$", r"\1")
        return pc.replace_substring_regex(text, r"\.$", "")
    if pa.types.is_floating(kind):
        plain = column.cast(pa.float64())
        whole = pc.and_(pc.equal(plain, pc.floor(plain)), pc.less(pc.abs(plain), 2.0**53))
        numbers = pc.if_else(whole, plain, pa.scalar(None, pa.float64())).cast(pa.int64())
        return pc.if_else(whole, numbers.cast(pa.string()), plain.cast(pa.string()))
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        raise SourceError(f"{side}: column {name!r} has a nested or binary type; leave it out") from None


_SPECIAL = frozenset('",\r\n')
# What spreadsheets run: a text that begins so, after quotes that guard it; not a number with its sign.
_MAYBE = "^['=@\t\r\uff1d\uff20\uff0b\uff0d+-]"
_FORMULA = re.compile(r"'*(?:[=@\t\r\uff1d\uff20\uff0b\uff0d]|[+-](?![0-9.,%]*\Z))")


def table_to_parquet(table: pa.Table, *, varied: tuple[str, ...], statistics: bool = True) -> bytes:
    """Gives `table` as a Parquet file; `varied` names the whole-number columns whose values rarely repeat."""
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=[name for name in table.column_names if name not in varied],
        column_encoding=dict.fromkeys(varied, "DELTA_BINARY_PACKED"),
        write_statistics=statistics,
        store_schema=False,
    )
    return sink.getvalue()


def guard_formulas(table: pa.Table) -> pa.Table:
    """Gives `table` with a single quote before every text and name that a spreadsheet would run as a formula.

    Numbers stay as they are, and so does text that is a number with a sign, or a sign alone.

    >>> guard_formulas(pa.table({"a": ["=1+1", "-5", "+", "'@x"], "b": [-1, -2, -3, -4]})).to_pydict()
    {'a': ["'=1+1", '-5', '+', "''@x"], 'b': [-1, -2, -3, -4]}
    """
    return _change_words(table, lambda word: f"'{word}" if _FORMULA.match(word) else word)


def restore_formulas(table: pa.Table) -> pa.Table:
    """Returns `table` as it was before `guard_formulas`."""
    return _change_words(table, lambda word: word[1:] if word[:1] == "'" and _FORMULA.match(word) else word)


def _change_words(table: pa.Table, change: Callable[[str], str]) -> pa.Table:
    columns = []
    for column in table.columns:
        words = _list_words(column)
        odd = words.filter(pc.match_substring_regex(words, _MAYBE)).to_pylist()
        changed = {word: change(word) for word in odd if change(word) != word}
        if changed:
            known = pa.array(list(changed), pa.string())
            places = pc.index_in(column.cast(pa.string()), value_set=known)
            column = pc.coalesce(
                pa.array(changed.values(), pa.string()).take(places), column.cast(pa.string())
            )
        columns.append(column)
    return pa.table(columns, names=[change(name) for name in table.column_names])


def table_to_csv(table: pa.Table, *, bare_names: bool = False) -> bytes:
    """Returns `table` as CSV with a header line, text quoted only if some of it must be.

    With `bare_names`, a name is quoted only if it must be itself. Releases stay as they were written first.
    """
    table = guard_formulas(table)
    names = table.column_names
    quoting = "needed" if _needs_quotes(table, names=[] if bare_names else names) else "none"
    rows = max(1, -(-table.num_rows // (os.cpu_count() or 1)))
    slices = [table.slice(start, rows) for start in range(0, max(1, table.num_rows), rows)]

    def write(part: pa.Table) -> bytes:
        sink = io.BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=False, batch_size=65536, quoting_style=quoting)
        pyarrow.csv.write_csv(part, sink, options)
        return sink.getvalue()

    with ThreadPoolExecutor(len(slices)) as pool:
        quoted = [_is_special(name) if bare_names else quoting == "needed" for name in names]
        return _header_line(names, quoted) + b"".join(pool.map(write, slices))


def _header_line(names: list[str], quoted: list[bool]) -> bytes:
    # Written here, because older versions of Arrow quote names always.
    words = [
        '"{}"'.format(name.replace('"', '""')) if special else name
        for name, special in zip(names, quoted, strict=True)
    ]
    return (",".join(words) + "\n").encode()


def _needs_quotes(table: pa.Table, *, names: list[str]) -> bool:
    special = (pc.match_substring_regex(_list_words(column), '^$|[",\r\n]') for column in table.columns)
    return any(map(_is_special, names)) or any(pc.any(each).as_py() for each in special)


def _list_words(column: pa.ChunkedArray) -> pa.Array:
    """Returns the texts of a column, each once."""
    if pa.types.is_dictionary(column.type):
        chunks = column.unify_dictionaries().chunks
        column = pa.chunked_array([each.dictionary for each in chunks[:1]], column.type.value_type)
    return column.unique().drop_null() if pa.types.is_string(column.type) else pa.nulls(0, pa.string())


def _is_special(text: str) -> bool:
    # An empty text must not look like a missing value.
    return not text or not _SPECIAL.isdisjoint(text)
