"""Files as they come: text with separators, also packed, and JSON lines and sheets, opened as such text.

What a file says of itself before its first record is here, too: its header and its separator. A line of JSON
and a row of a sheet are each spelled as one record, from their own bytes and the names of the columns alone,
so that whatever one holds changes no other. Values are their text: who asks decides what is a number.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import IO, BinaryIO, Literal
from xml.etree import ElementTree

from sfumato.core.errors import SourceError

Quoting = Literal["line", "multiline", "none"]
"""What a quote at the start of a field opens: the field in its line, also beyond it, or nothing."""

LONGEST_RECORD = 2**20
"""The most bytes of a record, and of a header line."""

_LINES = (".jsonl", ".ndjson")
_PLAIN = (".csv", ".tsv", *_LINES)
TEXT_FILES = (*_PLAIN, *(f"{each}.gz" for each in _PLAIN), ".zip", ".xlsx")
"""How the names of files end that are read as text."""

UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    csv.Error,
    zlib.error,
    zipfile.BadZipFile,
    ElementTree.ParseError,
)
"""What is raised where a file is damaged, or is not what its name says."""

READABLE = ".parquet, .csv, .tsv or .jsonl (also with .gz), .zip or .xlsx"

_HALVES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""Halves of surrogate pairs in JSON; in a line that is not UTF-8 they might be taken for its bytes."""

_ADVICE = {
    ("xls", "xlsm", "xlsb", "ods"): "open it in a spreadsheet and save the sheet as .xlsx or CSV (UTF-8)",
    ("7z", "rar", "tar", "tgz"): "unpack it first",
    ("json",): "write a line for each record: jq -c '.[]' NAME > table.jsonl",
    ("txt", "dat", "text"): "if it has a header line and a separator, rename it to .csv",
    ("sas7bdat", "xpt", "sav", "dta", "rds", "rdata"): "export it as CSV or Parquet from its own program",
    ("feather", "arrow", "orc", "pkl", "pickle"): "write it as Parquet: frame.to_parquet('table.parquet')",
    ("db", "duckdb"): "a table of a DuckDB database is duckdb:FILE?table=NAME",
    ("sqlite", "sqlite3"): "export the table as CSV: sqlite3 -header -csv NAME 'SELECT * FROM table'",
    ("bz2", "xz", "zst"): "pack it with gzip, or unpack it",
}


def advise_format(name: str) -> str:
    """What to do with a file that is not readable, by its name.

    >>> advise_format("people.xls")
    'open it in a spreadsheet and save the sheet as .xlsx or CSV (UTF-8)'
    """
    ending = name.lower().rsplit(".", 1)[-1]
    found = (advice for endings, advice in _ADVICE.items() if ending in endings)
    return next(found, "save it as one of these").replace("NAME", name.replace("\\", "/").rsplit("/", 1)[-1])


def read_header(
    path: Path, *, encoding: str, names: tuple[str, ...] = (), quoting: Quoting = "multiline"
) -> str | None:
    """The first record of a text file without its end; None if it is longer than a record may be.

    `names` are as for `open_text`.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    with open_text(path, names=names) as file:
        # Only the first record is looked at: what follows is records, and may be anything.
        text = decoder.decode(file.read(LONGEST_RECORD)).removeprefix("\ufeff")
    start = 0
    while (stop := text.find("\n", start)) >= 0:
        if quoting != "multiline" or text.count('"', 0, stop) % 2 == 0:
            return text[:stop].removesuffix("\r")
        start = stop + 1
    return text if len(text) < LONGEST_RECORD else None


def find_delimiter(header: str, path: Path) -> str:
    """The separator of the text file at `path`: its header is public, a sniffed row is not.

    >>> find_delimiter("name;street, number;city", Path("people.csv"))
    ';'
    """
    return "," if is_spelled(path) else max(",;\t|", key=header.count)


def find_quoting(path: Path, declared: Quoting | None = None) -> Quoting:
    """What quotes mean in the text file at `path`: what is declared, or what they mean in its format.

    >>> find_quoting(Path("people.csv.gz")), find_quoting(Path("people.tsv")), find_quoting(Path("a.xlsx"))
    ('multiline', 'none', 'multiline')
    """
    # Programs that write CSV put line breaks between quotes: read by lines, one record would become several,
    # of whomever they name. What is written without quotes, as .tsv often is, must say so.
    plain = not is_spelled(path) and _inner_name(path).endswith(".tsv")
    return declared or ("none" if plain else "multiline")


def split_fields(record: bytes, delimiter: bytes, quoting: Quoting) -> list[bytes]:
    """The fields of a record as they stand there; a quote that is not closed in it is text.

    >>> split_fields(b'1,"a, b",2" pipe,"c', b",", "line")
    [b'1', b'"a, b"', b'2" pipe', b'"c']
    """
    return _field_pattern(delimiter, quoted=quoting != "none").findall(record)


def unquote(field: bytes) -> bytes:
    """What a field says that stands between quotes; any other as it is.

    >>> unquote(b'"a ""b"" c"'), unquote(b'2"')
    (b'a "b" c', b'2"')
    """
    quoted = len(field) > 1 and field[:1] == field[-1:] == b'"'
    return field[1:-1].replace(b'""', b'"') if quoted else field


def has_odd_quote(field: bytes, quoting: Quoting) -> bool:
    """Whether a field has a quote that may be read as opening one, and stands elsewhere than around it."""
    odd = field[:1] == b'"' if quoting == "line" else quoting != "none" and b'"' in field
    return odd and not re.fullmatch(rb'"(?:[^"]++|"")*+"', field)


@lru_cache(maxsize=16)
def _field_pattern(delimiter: bytes, *, quoted: bool) -> re.Pattern[bytes]:
    mark = re.escape(delimiter)
    field = rb'"(?:[^"]++|"")*+"[^%b]*+|[^%b]*+' % (mark, mark) if quoted else rb"[^%b]*+" % mark
    return re.compile(rb"(?:\A|%b)(%b)" % (mark, field))


def has_lines(path: Path) -> bool:
    """Whether the file holds JSON lines, packed or not."""
    return _inner_name(path).endswith(_LINES)


def is_spelled(path: Path) -> bool:
    """Whether the file is no text with separators, but opened as if it were."""
    return path.name.lower().endswith(".xlsx") or has_lines(path)


def open_text(path: Path, *, names: tuple[str, ...] = ()) -> BinaryIO:
    """The bytes of a text file, unpacked; of JSON lines and of a sheet the same records as such text.

    JSON lines have no header: `names` are their columns, by default the keys of the first line. Which keys
    a record has may be private, so that where records are, the names must be given.
    """
    if path.name.lower().endswith(".xlsx"):
        return _stream(_spell_record(row) for row in spell_sheet(path))
    file = _unpack(path)
    return _stream(_spell_lines(file, names), file) if has_lines(path) else file


def count_lines(path: Path, delimiter: str, quoting: Quoting | None) -> tuple[int, int] | None:
    """The lines that hold something, without a header, and those that leave a quote open; None for a sheet.

    Only where a record is a line and has quotes, one may be left open.
    """
    if path.name.lower().endswith(".xlsx"):
        return None
    lines, open_quotes, plain = 0, 0, find_quoting(path, quoting) != "line"
    with _unpack(path) as file:
        for line in file:
            lines += not line.isspace()
            if plain or line.count(b'"') % 2 == 0:
                continue
            fields = split_fields(line.rstrip(b"\r\n"), delimiter.encode(), "line")
            open_quotes += any(has_odd_quote(field, "line") for field in fields)
    return lines if has_lines(path) else max(0, lines - 1), open_quotes


def check_whole(path: Path) -> None:
    """Raises an error if a packed file is damaged; nothing of what it holds is kept, or told.

    Privacy: a program that writes such a file spells whatever records hold such that it is read again. So
    whether it is whole is a fact of the file, and the same for every content; all of it is looked at.
    """
    status = path.stat()
    _check_whole(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _check_whole(path: Path, _size: int, _changed: int) -> None:
    """Unpacks a file up to its end; once, since it is asked before every charge."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.types import is_nested

    try:
        if path.name.lower().endswith(".parquet"):
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                plain = [each.name for each in file.schema_arrow if not is_nested(each.type)]
                for _ in file.iter_batches(batch_size=2**17, columns=plain):
                    pass
            return
        if path.name.lower().endswith(".xlsx"):
            # Its sums may be right and its sheet cut before it was packed.
            for _ in spell_sheet(path):
                pass
            with zipfile.ZipFile(path) as archive:
                pieces = [archive.open(each) for each in archive.namelist()]
        else:
            pieces = [_unpack(path)]
        for piece in pieces:
            with piece:
                while piece.read(2**20):
                    pass
    except (*UNREADABLE, pa.ArrowException) as error:
        raise SourceError(
            f"{path.name!r} is damaged: it cannot be unpacked to its end ({type(error).__name__}); copy it "
            "again, or save it again where it comes from"
        ) from None


def _inner_name(path: Path) -> str:
    """The name of the file, or of the one that a .zip file holds, in lower case and without .gz."""
    name = path.name.lower().removesuffix(".gz")
    if not name.endswith(".zip"):
        return name
    with zipfile.ZipFile(path) as archive:
        return _find_member(archive, path).lower()


def _unpack(path: Path) -> BinaryIO:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if not path.name.lower().endswith(".zip"):
        return path.open("rb")
    archive = zipfile.ZipFile(path)
    try:
        return archive.open(_find_member(archive, path))  # type: ignore[return-value]
    except RuntimeError:
        raise SourceError(f"{path.name!r} is locked with a password; unpack it first") from None


def _find_member(archive: zipfile.ZipFile, path: Path) -> str:
    """The name of the only file in an archive, but for what a system puts beside it."""
    parts = [(each, Path(each).parts) for each in archive.namelist() if not each.endswith("/")]
    found = [each for each, names in parts if names[0] != "__MACOSX" and not names[-1].startswith(".")]
    if len(found) != 1:
        raise SourceError(
            f"{path.name!r} holds {len(found)} files and should hold one; unpack it, and name them together "
            'if they have the same columns: source = "folder/*.csv"'
        )
    if not found[0].lower().endswith(_PLAIN):
        raise SourceError(f"{path.name!r} must hold a .csv, .tsv or .jsonl file; unpack it first")
    return found[0]


def _spell_lines(file: IO[bytes], names: tuple[str, ...]) -> Iterator[bytes]:
    """Every line that is a JSON object as a record of its values, after a header."""
    if names:
        yield _spell_record(names)
    for line in _read_lines(file):
        # What is no UTF-8 is kept as bytes that are none, so that names that differ in it stay apart.
        errors = "surrogatepass"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            if _HALVES.search(line):
                continue
            errors = "surrogateescape"
            text = line.decode("utf-8", errors)
        try:
            # Numbers as they are written: what a float would make of one depends on nobody's description.
            found = json.loads(
                text.removeprefix("\ufeff"), parse_float=str, parse_int=str, parse_constant=lambda _: None
            )
        except (ValueError, RecursionError):
            continue
        if not isinstance(found, dict):
            continue
        if not names:
            names = tuple(found)
            yield _spell_record(names)
        yield _spell_record((_spell_value(found.get(name)) for name in names), errors)


def _read_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines, but for those that are longer than a record may be."""
    short = True
    while piece := file.readline(LONGEST_RECORD):
        if short and (piece.endswith(b"\n") or len(piece) < LONGEST_RECORD):
            yield piece
        short = piece.endswith(b"\n")


def _spell_value(value: object) -> str:
    """A value of JSON as text; what has parts of its own is missing."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else ""


def _spell_record(values: Iterable[str], errors: str = "surrogatepass") -> bytes:
    quoted = ['"' + value.replace('"', '""') + '"' for value in values]
    return (",".join(quoted) + "\n").encode("utf-8", errors)


def _stream(pieces: Iterator[bytes], file: IO[bytes] | None = None) -> BinaryIO:
    """A file to read from that consists of `pieces`, and closes the one they come from."""
    return io.BufferedReader(_Pieces(pieces, file), 2**16)


class _Pieces(io.RawIOBase):
    """What an iterator gives, as a raw file."""

    def __init__(self, pieces: Iterator[bytes], file: IO[bytes] | None) -> None:
        self._pieces, self._file, self._rest = pieces, file, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


# The numbers that stand for dates and times, of all and of East Asian versions.
_DATES = frozenset((*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)))
_QUOTED = re.compile(r'"[^"]*"|\\.|_.|\[(?![hms]+\])[^\]]*\]')
_WIDEST = 2**14


def spell_sheet(path: Path) -> Iterator[list[str]]:
    """The rows of the only visible sheet, of which the first has the names of the columns.

    Cells beyond the last name belong to no column, and a row without a value is none.
    """
    with zipfile.ZipFile(path) as archive:
        sheet, first_day = _find_sheet(archive, path)
        texts, dates = _read_texts(archive), _read_dates(archive)
        width: int | None = None
        with archive.open(sheet) as file:
            for row in _read_rows(file):
                found = _spell_row(row, texts, dates, first_day, most=_WIDEST if width is None else width)
                if width is None:
                    width = len(found)
                if any(found):
                    yield found + [""] * (width - len(found))


def _find_sheet(archive: zipfile.ZipFile, path: Path) -> tuple[str, datetime]:
    """The part of the archive that has the sheet, and the day from which dates are counted."""
    book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
    sheets = [each for each in _all(book, "sheet") if each.get("state", "visible") == "visible"]
    if len(sheets) != 1:
        raise SourceError(
            f"{path.name!r} has {len(sheets)} visible sheets and should have one; hide the others, or save "
            "the one with the records as a file of its own"
        )
    (link,) = (value for key, value in sheets[0].attrib.items() if _plain(key) == "id")
    links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    (target,) = (each.get("Target", "") for each in links if each.get("Id") == link)
    late = any(each.get("date1904") in ("1", "true") for each in _all(book, "workbookPr"))
    part = target.removeprefix("/") if target.startswith("/") else f"xl/{target}"
    return part, datetime(1904, 1, 1) if late else datetime(1899, 12, 30)


def _read_texts(archive: zipfile.ZipFile) -> list[str]:
    """The texts that cells share, by number."""
    if "xl/sharedStrings.xml" not in archive.namelist():
        return []
    return [_text(each) for each in ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))]


def _read_dates(archive: zipfile.ZipFile) -> frozenset[str]:
    """The styles, by number, that show a number as a date or a time."""
    if "xl/styles.xml" not in archive.namelist():
        return frozenset()
    styles = ElementTree.fromstring(archive.read("xl/styles.xml"))
    own = {each.get("numFmtId"): each.get("formatCode", "") for each in _all(styles, "numFmt")}
    dates = {str(each) for each in _DATES}
    dates |= {number for number, code in own.items() if number and _is_date(code)}
    dates -= {number for number, code in own.items() if number and not _is_date(code)}
    (formats,) = list(_all(styles, "cellXfs")) or [ElementTree.Element("cellXfs")]
    return frozenset(str(place) for place, each in enumerate(formats) if each.get("numFmtId") in dates)


def _is_date(code: str) -> bool:
    return bool(re.search("[ymdhs]", _QUOTED.sub("", code.lower().split(";")[0])))


def _read_rows(file: IO[bytes]) -> Iterator[ElementTree.Element]:
    """The rows, each forgotten when the next is asked for."""
    rows: ElementTree.Element | None = None
    for event, element in ElementTree.iterparse(file, events=("start", "end")):
        if event == "start" and _plain(element.tag) == "sheetData":
            rows = element
        elif event == "end" and _plain(element.tag) == "row" and rows is not None:
            yield element
            rows.clear()


def _spell_row(
    row: ElementTree.Element, texts: list[str], dates: frozenset[str], first_day: datetime, *, most: int
) -> list[str]:
    found: dict[int, str] = {}
    place = -1
    for cell in row:
        letters = re.match("[A-Z]{1,3}", cell.get("r", ""))
        place = _count_letters(letters[0]) if letters else place + 1
        if place < most:
            found[place] = _spell_cell(cell, texts, dates, first_day)
    filled = [place for place, text in found.items() if text]
    return [found.get(each, "") for each in range(max(filled, default=-1) + 1)]


def _spell_cell(
    cell: ElementTree.Element, texts: list[str], dates: frozenset[str], first_day: datetime
) -> str:
    kind, value = cell.get("t", "n"), next((each.text or "" for each in _all(cell, "v")), "")
    if kind == "inlineStr":
        return next((_text(each) for each in _all(cell, "is")), "")
    if kind == "s":
        known = value.isdecimal() and len(value) < 10 and int(value) < len(texts)
        return texts[int(value)] if known else ""
    if kind == "b":
        return {"1": "true", "0": "false"}.get(value, "")
    if kind == "e":
        return ""
    if kind == "n" and cell.get("s") in dates:
        return _spell_date(value, first_day)
    return value.removesuffix(".0") if kind == "n" else value


def _spell_date(value: str, first_day: datetime) -> str:
    """The date, the time of a day, or both, that a number of days stands for."""
    try:
        days = float(value)
        if 0 < days < 1:
            return (first_day + timedelta(seconds=round(days * 86400))).strftime("%H:%M:%S")
        # In 1900 there is a 29th of February, the 60th day, that never was.
        shift = 1 if first_day.year < 1900 and days < 60 else 0
        moment = first_day + timedelta(days=int(days) + shift, seconds=round(days % 1 * 86400))
    except (ValueError, OverflowError):
        return ""
    if days < 0:
        return ""
    return moment.strftime("%Y-%m-%d" if days == int(days) else "%Y-%m-%d %H:%M:%S")


def _count_letters(letters: str) -> int:
    """The place of a column, from none on: A, B, ..., Z, AA."""
    place = 0
    for letter in letters:
        place = 26 * place + ord(letter) - ord("A") + 1
    return place - 1


def _text(element: ElementTree.Element) -> str:
    """The text of a cell without that which says how to speak it."""
    spoken = {id(each) for part in _all(element, "rPh") for each in part.iter()}
    return "".join(each.text or "" for each in _all(element, "t") if id(each) not in spoken)


def _all(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (each for each in element.iter() if _plain(each.tag) == name)


def _plain(tag: str) -> str:
    """A name without its namespace, of which there are two."""
    return tag.rpartition("}")[2]
