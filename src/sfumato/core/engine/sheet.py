"""The only visible sheet of an .xlsx workbook, row by row, each cell as the text that a CSV file would have.

What a cell becomes follows from the cell and the formats of the workbook alone. A number is as the file has
it; one with a format of dates is a date, a time, or both. Formulas are their stored results, errors missing.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

from sfumato.core.errors import SourceError

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
    """The place of a column, from none on: A, B, ..., Z, AA.

    >>> [_count_letters(each) for each in ("A", "Z", "AA")]
    [0, 25, 26]
    """
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
