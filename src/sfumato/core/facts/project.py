"""The project file, `sfumato.toml`: a budget, a ledger, and the tables it covers.

What a project takes for public must not be the records: `find_private` sees through links, patterns and
copies.
"""

from __future__ import annotations

import gzip
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

from sfumato.core.errors import RecipeError, SchemaError, SourceError
from sfumato.core.exact import parse_exact, parse_positive
from sfumato.core.facts.column import refuse_unknown_keys
from sfumato.core.facts.table import (
    PublicTable,
    Table,
    find_database,
    find_lake,
    find_place,
    parse_public,
    parse_table,
)
from sfumato.core.files import MOST_TEXT, read_regular

_COMPARED = 2**26  # bytes: files of one size that begin with as many equal ones are the same
_PIECE = 2**20
_PACKED = (".gz", ".zip")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project file, read: its folder, the total it may spend, the ledger's name, and its tables.

    `serve` has the settings of a server as they are written; only a server reads them. `views` are queries
    by their names, which only statements read.
    """

    folder: Path
    epsilon: Fraction
    delta: Fraction
    ledger: str
    tables: Mapping[str, Table]
    public: Mapping[str, PublicTable] = field(default_factory=dict)
    selection_delta: Fraction | None = None
    serve: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)

    def find_window(self) -> tuple[str, str] | None:
        """The first and the last period that are read of its table; None if no table has a window."""
        return next((table.unit.window for table in self.tables.values()), None)

    def table(self, name: str) -> Table:
        """The described table `name`."""
        if name not in self.tables:
            raise SchemaError(f"no table {name!r}; described: {', '.join(sorted(self.tables))}")
        return self.tables[name]


def read_project(path: Path | str) -> Project:
    """The project that the file at `path` describes; reads no record."""
    path = Path(path)
    return parse_project(read_toml(path, what="project file"), folder=path.resolve().parent)


def parse_project(document: Mapping[str, Any], *, folder: Path) -> Project:
    """The project that a parsed document describes."""
    refuse_unknown_keys(document, ("budget", "tables", "serve", "views"), where="project file")
    serve = document.get("serve", {})
    if not isinstance(serve, dict):
        raise SchemaError("[serve] is a section of settings, such as http_port = 8439")
    views = document.get("views", {})
    if not isinstance(views, dict) or not all(isinstance(each, str) for each in views.values()):
        raise SchemaError('[views] has a query for each name: north = "SELECT * FROM visits WHERE ..."')
    budget = document.get("budget")
    if not isinstance(budget, dict) or "epsilon" not in budget:
        raise SchemaError("the project file needs [budget] with epsilon, the most that may ever be spent")
    known = ("epsilon", "delta", "selection_delta", "ledger")
    refuse_unknown_keys(budget, known, where="[budget]")
    delta = parse_exact(budget.get("delta", 0), name="[budget] delta")
    if not 0 <= delta < 1:
        raise SchemaError("[budget] delta must be at least 0 and below 1")
    selection = budget.get("selection_delta")
    if selection is not None:
        selection = parse_exact(selection, name="[budget] selection_delta")
        if not 0 <= selection <= delta or selection == delta > 0:
            raise SchemaError("[budget] selection_delta must be at least 0 and below delta")
    tables = document.get("tables", {})
    if not isinstance(tables, dict) or not tables:
        raise SchemaError("the project file describes no table; add [tables.NAME]")
    taken = {name.lower() for name in tables} & {name.lower() for name in views}
    if taken:
        raise SchemaError(f"{', '.join(sorted(taken))} is the name of a table and of a view")
    _refuse_private_files(tables, folder)
    private = {
        name: parse_table(name, spec, folder=folder, others=tables)
        for name, spec in tables.items()
        if not _is_public(spec)
    }
    if len(private) > 1:
        for name, table in private.items():
            if table.unit.window is not None:
                raise SchemaError(
                    f"table {name!r}: a window needs a project of its own: what is asked of other tables "
                    "counts for all periods, also for those whose budget is spent"
                )
    return Project(
        folder=folder,
        epsilon=parse_positive(budget["epsilon"], name="[budget] epsilon"),
        delta=delta,
        ledger=str(budget.get("ledger", "ledger.db")),
        selection_delta=selection,
        serve=serve,
        views=views,
        tables=private,
        public={name: parse_public(name, spec) for name, spec in tables.items() if _is_public(spec)},
    )


def read_toml(path: Path, *, what: str) -> dict[str, Any]:
    """The content of a TOML file, decimals kept exact."""
    try:
        return parse_toml(read_regular(path, most=MOST_TEXT).decode(), what=f"{what} {path.name!r}")
    except FileNotFoundError:
        hint = "; `sfumato init` drafts one" if what == "project file" else ""
        raise SchemaError(f"{what} {path.name!r} does not exist{hint}") from None
    except OSError as error:
        reason = str(error) if isinstance(error, SourceError) else type(error).__name__
        raise SchemaError(f"{what} {path.name!r} cannot be read ({reason})") from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"{what} {path.name!r} is not valid TOML: {error}") from None


def parse_toml(text: str, *, what: str) -> dict[str, Any]:
    """The content of a text in TOML, decimals kept exact; errors call it `what`.

    >>> parse_toml("epsilon = 0.1", what="recipe")
    {'epsilon': Decimal('0.1')}
    """
    try:
        return tomllib.loads(text, parse_float=_parse_float)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SchemaError(f"{what} is not valid TOML: {error}") from None


def refuse_private_file(public: PublicTable | Path | str, project: Project) -> None:
    """Raises an error if `public` is a source of a private table: by any name, pattern, link or copy."""
    sources = {table.name: table.source for table in project.tables.values()}
    if isinstance(public, PublicTable):
        files = list(list_files(public.source, project.folder))
    else:
        files = [Path(public)]
    reason = find_private(files, sources, folder=project.folder)
    if reason is not None:
        raise RecipeError(reason)


def find_private(public: Iterable[Path], sources: Mapping[str, str], *, folder: Path) -> str | None:
    """Why a file among `public` is not, or None; `sources` are those of the private tables by name.

    Links, other spellings and patterns are seen through, and so is a copy, packed with gzip or zip or not. A
    copy in another form, such as Parquet written again or columns in another order, is not.
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
    database = find_database(source)
    if database is not None:
        source = database[0]
    lake = find_lake(source)
    if lake is not None:
        named = Path(lake[1])  # the table's folder, or a file in it that describes the table
        source = str(named.parent.parent if named.parent.name == "metadata" else named)
    path = folder / (source[len("spark:") :].removeprefix("file://") if place == "spark" else source)
    for found in match_files(path, only_stars=place != "spark"):
        yield from found.rglob("*") if found.is_dir() else (found,)


def match_files(path: Path, *, only_stars: bool = True) -> list[Path]:
    """The path itself, or in order all that it matches: `*` stands for any text, `**` for any folders.

    With `only_stars`, no other sign stands for anything but itself.

    >>> match_files(Path("no such folder") / "*.parquet"), match_files(Path("trips[1].csv"))
    ([], [PosixPath('trips[1].csv')])
    """
    plain = list(takewhile(lambda part: "*" not in part, path.parts))
    pattern = path.parts[len(plain) :]
    if only_stars:
        pattern = tuple(part.replace("[", "[[]").replace("?", "[?]") for part in pattern)
    return sorted(Path(*plain).glob(str(Path(*pattern)))) if pattern else [path]


def _refuse_private_files(tables: Mapping[str, Any], folder: Path) -> None:
    """Raises an error if a file that the tables take for public is a source of one that is not."""
    described = {name: spec for name, spec in tables.items() if isinstance(spec, dict)}
    sources = {name: str(spec.get("source")) for name, spec in described.items() if not _is_public(spec)}
    for name, spec in described.items():
        columns = spec.get("columns")
        rules = spec.get("rules")
        listed = [*columns.values()] if isinstance(columns, dict) else []
        listed += rules if isinstance(rules, list) else []
        # A column has its values in a file, a rule what decides what; `values_file` and `file` name it.
        named = [
            each.get(key) for each in listed if isinstance(each, dict) for key in ("values_file", "file")
        ]
        files = [folder / each for each in (*named, spec.get("parameters")) if isinstance(each, str)]
        if _is_public(spec):
            files += list_files(str(spec.get("source")), folder)
        reason = find_private(files, sources, folder=folder)
        if reason is not None:
            raise SchemaError(f"table {name!r}: {reason}")


def _is_public(spec: object) -> bool:
    return isinstance(spec, dict) and "public" in spec


def _are_equal(first: Path, second: Path) -> bool:
    """Whether two files hold the same bytes, packed or not; those that end later than is compared do, too."""
    plain = not any(each.suffix.lower() in _PACKED for each in (first, second))
    if plain and first.stat().st_size != second.stat().st_size:
        return False
    compared = 0
    try:
        with _unpack(first) as one, _unpack(second) as other:
            while compared < _COMPARED:
                piece = one.read(_PIECE)
                if piece != other.read(_PIECE):
                    return False
                if not piece:
                    break
                compared += len(piece)
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile):
        return False  # what cannot be unpacked is refused by who reads it
    return compared > 0


def _unpack(path: Path) -> IO[bytes]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix.lower() != ".zip":
        return path.open("rb")
    archive = zipfile.ZipFile(path)
    return archive.open(max(archive.infolist(), key=lambda each: each.file_size))


def _parse_float(text: str) -> Decimal:
    return Decimal(text.replace("_", ""))
