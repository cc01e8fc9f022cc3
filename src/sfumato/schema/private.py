"""Public files that are not public: sources of people's records under another name.

A file that is read as public is compared with the sources first, by what file it is and by its bytes. That
is the one place outside the engines where bytes of records are read, and what leaves it is yes or no.
"""

from __future__ import annotations

import hashlib
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.schema.location import find_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_COMPARED = 2**26  # bytes: files of one size that begin with as many equal ones are the same


def find_private(public: Iterable[Path], sources: Mapping[str, str], *, folder: Path) -> str | None:
    """Why a file among `public` is not, or None; `sources` are those of the private tables by name.

    Links, other spellings and patterns are seen through, and so is a plain copy. A copy in another form,
    such as one with its columns in another order, is not.
    """
    named = [path for path in public if path.is_file()]
    for table, source in sources.items() if named else ():
        for private in list_files(source, folder):
            for path in named if private.is_file() else ():
                if path.samefile(private):
                    return f"{path.name!r} is the source of table {table!r} itself, which is not public"
                if _are_equal(path, private):
                    return f"{path.name!r} is a copy of the source of table {table!r}, which is not public"
    return None


def list_files(source: str, folder: Path) -> Iterator[Path]:
    """The files that a source may name: by a pattern, in a folder, or in storage that Spark shares."""
    place = find_place(source)
    if place == "postgres":
        return
    path = folder / (source[len("spark:") :].removeprefix("file://") if place == "spark" else source)
    plain = list(takewhile(lambda part: "*" not in part, path.parts))
    pattern = path.parts[len(plain) :]
    for found in Path(*plain).glob(str(Path(*pattern))) if pattern else (path,):
        yield from found.rglob("*") if found.is_dir() else (found,)


def _are_equal(first: Path, second: Path) -> bool:
    sizes = {path.stat().st_size for path in (first, second)}
    return len(sizes) == 1 and sizes != {0} and _digest(first) == _digest(second)


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.sha256(file.read(_COMPARED)).digest()
