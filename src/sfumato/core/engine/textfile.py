"""Text files read strictly and in order: where a record ends follows from its own bytes alone.

One meaning of CSV, with no guess: a quote at the start of a field opens it, the next one that is not doubled
closes it, and separators and line breaks between them belong to the field. Any other quote is text. So the
bytes of one record cannot change how another is read, if whoever wrote the file closed its quotes: one that
is not closed takes what follows with it. Where that is not sure, a record is a line: with `quoting = "line"`
a quote that its line does not close is text, and with "none" every quote is.

A record whose quotes stand elsewhere than around a field is spelled again by itself; one with another
number of fields than the header, or longer than `LONGEST_RECORD`, is none. The rest is cut into fields by
Arrow, which reads what is well-formed in the same way.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from sfumato.core.engine.opening import (
    LONGEST_RECORD,
    Quoting,
    find_quoting,
    open_text,
    split_fields,
    unquote,
)

_CHUNK = 2**23
_APART = "sfumato.apart"
_QUOTE, _BREAK, _RETURN = b'"'[0], b"\n"[0], b"\r"[0]


def read_text(
    path: Path,
    *,
    columns: tuple[str, ...],
    include: tuple[str, ...],
    delimiter: str,
    encoding: str,
    quoting: Quoting | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns to `include` of all records of the file at `path`, as bytes; an empty field is missing.

    `columns` are all its columns in order, parted by `delimiter`; `encoding` is that of its text, `quoting`
    what its quotes mean, by default what they mean in files of such a name.
    """
    options = csv_options(dict.fromkeys(columns, pa.binary()), delimiter=delimiter)
    options["read_options"] = pyarrow.csv.ReadOptions(
        column_names=list(columns), block_size=4 * LONGEST_RECORD, use_threads=True
    )
    options["parse_options"].invalid_row_handler = lambda _: "skip"
    options["convert_options"].include_columns = list(include) or [columns[0]]
    chunks = _read_chunks(path, encoding, columns)
    rule = _Rule(delimiter.encode(), len(columns), find_quoting(path, quoting))
    for block in _split_records(chunks, rule):
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


@dataclass(frozen=True)
class _Rule:
    """How bytes become records of so many `fields`."""

    delimiter: bytes
    fields: int
    quoting: Quoting

    @cached_property
    def record(self) -> re.Pattern[bytes]:
        """The fields of a record that may have line breaks between quotes, and the one that ends it."""
        mark = re.escape(self.delimiter)
        # Possessive quantifiers: a record that does not match fails at once, whatever its bytes are.
        plain = rb"[^\n%b]*+" % mark
        field = rb'(?:"(?:[^"]++|"")*+"%b|(?!")%b)' % (plain, plain)
        return re.compile(rb"(?:%b%b)*+(?:%b(\n))?" % (field, mark, field))

    def find_ends(self, block: bytes) -> NDArray[np.int64]:
        """The line breaks that end records, in bytes that begin with a record."""
        text = np.frombuffer(block, np.uint8)
        breaks = np.flatnonzero(text == _BREAK)
        if self.quoting != "multiline":
            return breaks
        # Where every quote stands right, counting them is enough; the pattern is many times slower.
        quotes = np.flatnonzero(text == _QUOTE)
        if not _misplaced_quotes(text, quotes, np.arange(quotes.size) % 2 == 1, self.delimiter[0]).size:
            outside: NDArray[np.bool_] = np.searchsorted(quotes, breaks) % 2 == 0
            return breaks[outside]
        ends, place = [], 0
        while (found := self.record.match(block, place)) and found[1]:
            place = found.end()
            ends.append(place - 1)
        return np.array(ends, np.int64)

    def shorten(self, start: bytes) -> bytes:
        """A short start of a record, after which what follows means the same as after `start`."""
        if self.quoting != "multiline":
            return b"x"
        known = self.record.match(start)
        last = start[known.end() :] if known else start
        closed = re.match(rb'"(?:[^"]++|"")*+("?)', last)
        if closed is None:
            return last[:1] and b"x"
        return b'"' if not closed[1] else b'""' if closed.end() == len(last) else b"x"


def _split_records(chunks: Iterator[bytes], rule: _Rule) -> Iterator[bytes]:
    """Blocks of whole, well-formed records, without the first, which is the header."""
    rest, dropping = b"", True
    for chunk in chunks:
        rest += chunk
        ends = rule.find_ends(rest)
        if ends.size:
            first, last = int(ends[0]) + 1 if dropping else 0, int(ends[-1]) + 1
            if first < last:
                yield _mend(rest[first:last], ends[int(dropping) :] - first, rule)
            rest, dropping = rest[last:], False
        if len(rest) > LONGEST_RECORD:
            # A record that is too long goes by.
            rest, dropping = rule.shorten(rest), True
    # With "multiline", a quote that is never closed makes no record.
    if rest and not dropping and (ends := rule.find_ends(rest + b"\n")).size:
        yield _mend(rest + b"\n", ends, rule)


def _mend(block: bytes, ends: NDArray[np.int64], rule: _Rule) -> bytes:
    """`block`, whose records have these `ends`, with every odd one spelled again, or left out."""
    text = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(text == _QUOTE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    # Odd records are spelled anew one by one, so that Arrow's own rules never meet one.
    odd = ends - starts >= LONGEST_RECORD
    if rule.quoting == "none":
        odd[np.searchsorted(ends, quotes)] = True
        quotes = quotes[:0]
    before = np.searchsorted(quotes, np.append(starts, len(block)))
    odd |= np.diff(before) % 2 == 1
    shift = before % 2 == 1

    def is_quoted(places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether an odd number of quotes stands before each place in its record."""
        if not quotes.size:
            return np.zeros(places.size, np.bool_)
        found: NDArray[np.bool_] = np.searchsorted(quotes, places) % 2 == 1
        return found ^ shift[np.searchsorted(ends, places)] if shift.any() else found

    marks = np.flatnonzero(text == rule.delimiter[0])
    marks = marks[~is_quoted(marks)]
    found = np.diff(np.searchsorted(marks, ends), prepend=0)
    # Arrow leaves out empty lines; a record of one empty field looks the same and says nothing.
    empty = (ends - starts) <= (text[starts] == _RETURN)
    odd |= (found != rule.fields - 1) & ~empty
    strange = [_misplaced_quotes(text, quotes, is_quoted(quotes), rule.delimiter[0])]
    returns = np.flatnonzero(text == _RETURN)
    if returns.size:
        returns = returns[~is_quoted(returns)]
        strange.append(returns[text[np.minimum(returns + 1, len(block) - 1)] != _BREAK])
    odd[np.searchsorted(ends, np.concatenate(strange))] = True
    if not odd.any():
        return block
    pieces, last = [], 0
    for place in np.flatnonzero(odd).tolist():
        start, stop = int(starts[place]), int(ends[place]) + 1
        pieces += [block[last:start], _spell_record(block[start:stop], rule)]
        last = stop
    return b"".join([*pieces, block[last:]])


def _misplaced_quotes(
    text: NDArray[np.uint8], quotes: NDArray[np.int64], closes: NDArray[np.bool_], delimiter: int
) -> NDArray[np.int64]:
    """The quotes that neither open a field at its beginning, nor close one at its end, nor stand twice."""
    opening, closing = quotes[~closes], quotes[closes]
    before = np.where(opening > 0, text[opening - 1], _BREAK)
    after = text[np.minimum(closing + 1, text.size - 1)]
    starts = (before == delimiter) | (before == _BREAK) | (before == _QUOTE)
    ends = (after == delimiter) | (after == _BREAK) | (after == _QUOTE) | (after == _RETURN)
    return np.concatenate((opening[~starts], closing[~ends]))


def _spell_record(record: bytes, rule: _Rule) -> bytes:
    """One record with a quote around every field, or nothing if it is none."""
    if len(record) > LONGEST_RECORD:
        return b""
    body = record.removesuffix(b"\n").removesuffix(b"\r")
    parts = split_fields(body, rule.delimiter, rule.quoting)
    if len(parts) != rule.fields:
        return b""
    if rule.quoting != "none":
        parts = [unquote(part) for part in parts]
    return rule.delimiter.join(b'"' + part.replace(b'"', b'""') + b'"' for part in parts) + b"\n"
