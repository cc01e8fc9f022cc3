"""Tables as the bytes of a Parquet or CSV file; the same table gives the same bytes."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

_SPECIAL = frozenset('",\r\n')
# What spreadsheets run: a text that begins so, after quotes that guard it; not a number with its sign.
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
        words = column.unique().to_pylist() if _holds_text(column.type) else []
        changed = {word: change(word) for word in words if word is not None and change(word) != word}
        if changed:
            known = pa.array(list(changed), pa.string())
            places = pc.index_in(column.cast(pa.string()), value_set=known)
            column = pc.coalesce(
                pa.array(changed.values(), pa.string()).take(places), column.cast(pa.string())
            )
        columns.append(column)
    return pa.table(columns, names=[change(name) for name in table.column_names])


def _holds_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind))


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
    texts = list(names)
    for column in table.columns:
        if pa.types.is_dictionary(column.type) and column.num_chunks:
            texts += column.chunk(0).dictionary.to_pylist()
        elif pa.types.is_string(column.type):
            texts += column.unique().drop_null().to_pylist()
    return any(map(_is_special, texts))


def _is_special(text: str) -> bool:
    # An empty text must not look like a missing value.
    return not text or not _SPECIAL.isdisjoint(text)
