"""Text files read strictly and in order: where a record ends follows from its own bytes alone.

One meaning of CSV, with no guess: a quote opens or closes, separators between an opening and a closing
quote belong to the field, and a line break outside quotes ends the record. Whoever reads is in the same
state at the end of every record, so that the bytes of one record cannot change how another is read.

A record whose quotes stand elsewhere than around a field is spelled again by itself; one with another
number of fields than the header, or longer than `LONGEST_RECORD`, is none. The rest is cut into fields by
Arrow, which reads what is well-formed in the same way.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from sfumato.tables.opening import LONGEST_RECORD, open_text

_CHUNK = 2**23
_APART = "sfumato.apart"
_QUOTE, _BREAK, _RETURN = b'"'[0], b"\n"[0], b"\r"[0]


def read_text(
    path: Path, *, columns: tuple[str, ...], include: tuple[str, ...], delimiter: str, encoding: str
) -> Iterator[pa.RecordBatch]:
    """The columns to `include` of all records of the file at `path`, as bytes; an empty field is missing.

    `columns` are all its columns in order, parted by `delimiter`; `encoding` is that of its text.
    """
    options = csv_options(dict.fromkeys(columns, pa.binary()), delimiter=delimiter)
    options["read_options"] = pyarrow.csv.ReadOptions(
        column_names=list(columns), block_size=4 * LONGEST_RECORD, use_threads=True
    )
    options["parse_options"].invalid_row_handler = lambda _: "skip"
    options["convert_options"].include_columns = list(include) or [columns[0]]
    chunks = _read_chunks(path, encoding, columns)
    for block in _split_records(chunks, delimiter.encode()[0], fields=len(columns)):
        if block:
            yield from pyarrow.csv.read_csv(pa.BufferReader(block), **options).to_batches()


def csv_options(kinds: dict[str, pa.DataType], *, delimiter: str) -> dict[str, Any]:
    """The options of Arrow for a text file whose columns are of these `kinds`; an empty field is missing."""
    return {
        "parse_options": pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": pyarrow.csv.ConvertOptions(
            column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=True
        ),
    }


def _read_chunks(path: Path, encoding: str, names: tuple[str, ...]) -> Iterator[bytes]:
    """The file after its header, as UTF-8 where another encoding is declared."""
    decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)(errors=_APART)
    with open_text(path, names=names) as file:
        while chunk := file.read(_CHUNK):
            yield chunk if decoder is None else decoder.decode(chunk).encode("utf-8", "surrogatepass")
    if decoder is not None:
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")


def _keep_bytes(error: UnicodeError) -> tuple[str, int]:
    """Bytes that mean nothing in their encoding as halves of surrogate pairs, of which no text has one."""
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_APART, _keep_bytes)


def _split_records(chunks: Iterator[bytes], delimiter: int, *, fields: int) -> Iterator[bytes]:
    """Blocks of whole, well-formed records, without the first, which is the header."""
    rest, quoted, skipping, dropping = b"", False, False, True
    for chunk in chunks:
        block = rest + chunk
        text = np.frombuffer(block, np.uint8)
        quotes = np.flatnonzero(text == _QUOTE)
        breaks = np.flatnonzero(text == _BREAK)
        ends = breaks[_parity(quotes, breaks) == quoted]
        last = int(ends[-1]) + 1 if ends.size else 0
        if ends.size:
            first = int(ends[0]) + 1 if dropping else 0
            if first < last:
                yield _mend(block[first:last], delimiter, fields=fields)
            quoted = skipping = dropping = False
        rest = block[last:]
        if skipping or len(rest) > LONGEST_RECORD:
            # A record that is too long goes by: all that is kept of it is the parity of its quotes.
            quoted ^= rest.count(b'"') % 2 == 1
            skipping, dropping, rest = True, True, b""
    # A quote that is never closed makes no record.
    if rest and not dropping and rest.count(b'"') % 2 == 0:
        yield _mend(rest + b"\n", delimiter, fields=fields)


def _parity(quotes: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether an odd number of quotes stands before each place."""
    if not quotes.size:
        return np.zeros(places.size, np.bool_)
    return (np.searchsorted(quotes, places) & 1).astype(np.bool_)


def _mend(block: bytes, delimiter: int, *, fields: int) -> bytes:
    """`block`, which ends with a record, with every odd record spelled again, or left out if it is none."""
    text = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    breaks = np.flatnonzero(text == _BREAK)
    ends = breaks[~_parity(quotes, breaks)]
    starts = np.concatenate(([0], ends[:-1] + 1))
    marks = np.flatnonzero(text == delimiter)
    marks = marks[~_parity(quotes, marks)]
    found = np.diff(np.searchsorted(marks, np.append(ends, len(block))), prepend=0)[:-1]
    empty = (ends - starts) <= (text[starts] == _RETURN)
    odd = ((found != fields - 1) & ~empty) | (ends - starts >= LONGEST_RECORD)
    strange = [_misplaced_quotes(text, quotes, delimiter)]
    returns = np.flatnonzero(text == _RETURN)
    if returns.size:
        returns = returns[~_parity(quotes, returns)]
        strange.append(returns[text[np.minimum(returns + 1, len(block) - 1)] != _BREAK])
    odd[np.searchsorted(ends, np.concatenate(strange))] = True
    if not odd.any():
        return block
    pieces, last = [], 0
    for place in np.flatnonzero(odd).tolist():
        start, stop = int(starts[place]), int(ends[place]) + 1
        pieces += [block[last:start], _spell_record(block[start:stop], delimiter, fields=fields)]
        last = stop
    return b"".join([*pieces, block[last:]])


def _misplaced_quotes(
    text: NDArray[np.uint8], quotes: NDArray[np.int64], delimiter: int
) -> NDArray[np.int64]:
    """The quotes that neither open a field at its beginning, nor close one at its end, nor stand twice."""
    opening, closing = quotes[::2], quotes[1::2]
    before = np.where(opening > 0, text[opening - 1], _BREAK)
    after = text[np.minimum(closing + 1, text.size - 1)]
    opens = (before == delimiter) | (before == _BREAK) | (before == _QUOTE)
    closes = (after == delimiter) | (after == _BREAK) | (after == _QUOTE) | (after == _RETURN)
    return np.concatenate((opening[~opens], closing[~closes]))


def _spell_record(record: bytes, delimiter: int, *, fields: int) -> bytes:
    """One record with a quote around every field, or nothing if it is none."""
    if len(record) > LONGEST_RECORD or record.count(b'"') % 2:
        return b""
    parts, start, quoted = [], 0, False
    body = record.removesuffix(b"\n").removesuffix(b"\r")
    for place, byte in enumerate(body):
        quoted ^= byte == _QUOTE
        if byte == delimiter and not quoted:
            parts.append(body[start:place])
            start = place + 1
    parts.append(body[start:])
    if len(parts) != fields:
        return b""
    return bytes([delimiter]).join(_spell_field(part) for part in parts) + b"\n"


def _spell_field(field: bytes) -> bytes:
    if len(field) >= 2 and field[:1] == field[-1:] == b'"':
        field = field[1:-1].replace(b'""', b'"')
    return b'"' + field.replace(b'"', b'""') + b'"'
