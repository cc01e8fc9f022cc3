"""What a text file says of itself before its first record: how it is packed, its header, its separator."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path
from typing import BinaryIO

LONGEST_RECORD = 2**20
"""The most bytes of a record, and of a header line."""

_ADVICE = {
    ("xlsx", "xls", "xlsm", "ods"): "open it in a spreadsheet and save the sheet as CSV (UTF-8)",
    ("zip", "7z", "rar", "tar", "tgz"): "unpack it first",
    ("json", "jsonl", "ndjson"): "make a table of it: duckdb -c \"COPY (FROM 'NAME') TO 'table.parquet'\"",
    ("txt", "dat", "text"): "if it has a header line and a separator, rename it to .csv",
    ("sas7bdat", "xpt", "sav", "dta", "rds", "rdata"): "export it as CSV or Parquet from its own program",
    ("feather", "arrow", "orc", "pkl", "pickle"): "write it as Parquet: frame.to_parquet('table.parquet')",
    ("db", "duckdb"): "a table of a DuckDB database is duckdb:FILE?table=NAME",
    ("sqlite", "sqlite3"): "export the table as CSV: sqlite3 -header -csv NAME 'SELECT * FROM table'",
    ("bz2", "xz", "zst"): "pack it with gzip, or unpack it",
}


def advise_format(name: str) -> str:
    """What to do with a file that is neither Parquet nor a text file with separators, by its name.

    >>> advise_format("people.xlsx")
    'open it in a spreadsheet and save the sheet as CSV (UTF-8)'
    """
    ending = name.lower().rsplit(".", 1)[-1]
    found = (advice for endings, advice in _ADVICE.items() if ending in endings)
    return next(found, "save it as one of these").replace("NAME", name.replace("\\", "/").rsplit("/", 1)[-1])


def read_header(path: Path, *, encoding: str) -> str | None:
    """The first line of a text file without its end; None if it is longer than a record may be."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    with open_text(path) as file:
        # Only the first record is looked at: what follows is records, and may be anything.
        text = decoder.decode(file.read(LONGEST_RECORD)).removeprefix("\ufeff")
    start = 0
    while (stop := text.find("\n", start)) >= 0:
        if text.count('"', 0, stop) % 2 == 0:
            return text[:stop].removesuffix("\r")
        start = stop + 1
    return text if len(text) < LONGEST_RECORD else None


def find_delimiter(header: str) -> str:
    """The separator of a text file: the header is public, a sniffed row is not.

    >>> find_delimiter("name;street, number;city")
    ';'
    """
    return max(",;\t|", key=header.count)


def open_text(path: Path) -> BinaryIO:
    """The bytes of a text file, unpacked."""
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
