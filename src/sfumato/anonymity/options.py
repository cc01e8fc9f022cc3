"""What is asked of a table: one record of all options, checked when it is made, and hierarchies from files.

A file of hierarchies is TOML with a section for each column, or CSV lists as other tools write them.
"""

from __future__ import annotations

import csv
import io
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, get_args

from sfumato.anonymity.check import Requirements
from sfumato.anonymity.hierarchy import Dates, Groups, Hierarchy, Intervals, Listed, Prefixes, Suppressed
from sfumato.core.errors import AnonymityError
from sfumato.core.files import MOST_TEXT, read_regular

Method = Literal["local", "cuts", "strict", "relaxed", "lattice", "microaggregate"]
METHODS: tuple[str, ...] = get_args(Method)

_PLAIN = ("relaxed", "microaggregate", "strict")
"""Methods that know k only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(Requirements):
    """What a table is made of and by which method, beside what it must have (see `Requirements`).

    quasi_identifiers     the columns that are made coarser until k records look the same
    sensitive             columns that are released as they are, and that l, t and the like are about
    keep                  further columns that are released as they are
    identifiers           columns that name people: they must be there, and do not come out
    individual            the column of people, if k counts people and not records
    rows_are_people       says that nobody has several records, so that no column is suspected to name people
    hierarchies           generalization hierarchies by column, or the path of a TOML file of them
    method                one of METHODS; docs/anonymity.md says what each does
    weights               how much the loss of a column counts, 1 by default
    max_suppressed        the largest share of records that are left out
    max_suppressed_cells  the largest share of cells that are `*`

    Columns may be given as one name or as a list of names; a tuple is kept.

    >>> Options(quasi_identifiers="age", k=5, sensitive=["ill"], l=2).released
    ('age', 'ill')
    >>> Options(quasi_identifiers="age", k=5, l=2)
    Traceback (most recent call last):
        ...
    sfumato.core.errors.AnonymityError: diversity and closeness are about sensitive columns; name one
    """

    quasi_identifiers: Sequence[str]
    sensitive: Sequence[str] = ()
    keep: Sequence[str] = ()
    identifiers: Sequence[str] = ()
    individual: str | None = None
    rows_are_people: bool = False
    hierarchies: Mapping[str, Hierarchy] = field(default_factory=dict)
    method: Method = "local"
    weights: Mapping[str, float] = field(default_factory=dict)
    max_suppressed: float = 0.0
    max_suppressed_cells: float = 1.0

    def __post_init__(self) -> None:
        for name in ("quasi_identifiers", "sensitive", "keep", "identifiers"):
            object.__setattr__(self, name, _read_names(getattr(self, name)))
        hierarchies = _read_hierarchies(self.hierarchies, self.quasi_identifiers)
        object.__setattr__(self, "hierarchies", hierarchies)
        object.__setattr__(self, "weights", dict(self.weights or {}))
        if self.method not in METHODS:
            _refuse(f"no method {self.method!r}; known: {', '.join(METHODS)}")
        Requirements.__post_init__(self)
        self._check_columns()
        self._check_numbers()
        self._check_method()

    @property
    def released(self) -> tuple[str, ...]:
        """The columns that come out."""
        return (*self.quasi_identifiers, *self.sensitive, *self.keep)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read."""
        return self.released if self.individual is None else (*self.released, self.individual)

    def to_record(self) -> dict[str, Any]:
        """Returns the options for JSON, hierarchies by the names of their columns."""
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        del record["identifiers"], record["rows_are_people"]
        if self.recursive is not None:
            record["recursive"] = dict(zip(("c", "l"), self.recursive, strict=True))
        return record | {"hierarchies": list(self.hierarchies)}

    def _check_columns(self) -> None:
        if not self.quasi_identifiers:
            _refuse("name at least one quasi-identifier")
        parts = {
            "a quasi-identifier": self.quasi_identifiers,
            "sensitive": self.sensitive,
            "kept": self.keep,
            "an identifier": self.identifiers,
        }
        seen: dict[str, str] = {}
        for part, names in parts.items():
            for name in names:
                if seen.setdefault(name, part) != part or names.count(name) > 1:
                    _refuse(f"column {name!r} is {seen[name]} and {part}; give it one part")
        if self.individual is not None and self.individual in self.released:
            _refuse(
                f"column {self.individual!r} names individuals and is {seen[self.individual]} too; "
                "identifiers are never released"
            )
        if self.individual is not None and self.rows_are_people:
            _refuse("either a column names the individuals, or rows are people; leave one out")
        unknown = [name for name in (*self.hierarchies, *self.weights) if name not in self.quasi_identifiers]
        if unknown:
            _refuse(f"a hierarchy or a weight is given for {unknown[0]!r}, which is not a quasi-identifier")

    def _check_numbers(self) -> None:
        for name, weight in self.weights.items():
            if not (isinstance(weight, (int, float)) and math.isfinite(weight) and weight > 0):
                _refuse(f"the weight of column {name!r} must be a number above 0")
        for name in ("max_suppressed", "max_suppressed_cells"):
            share = getattr(self, name)
            if not (isinstance(share, (int, float)) and 0 <= share <= 1):
                _refuse(f"{name} must be a share from 0 to 1")

    def _check_method(self) -> None:
        if self.needs_sensitive and not self.sensitive:
            _refuse("diversity and closeness are about sensitive columns; name one")
        if (self.needs_sensitive or self.individual is not None) and self.method in _PLAIN:
            _refuse(f"method {self.method!r} knows k only; use 'local', 'cuts' or 'lattice' for other models")
        if self.k_map and self.method not in ("local", "cuts", "strict"):
            _refuse(f"method {self.method!r} knows no register; use 'local', 'cuts' or 'strict'")
        if self.k_map and self.individual is not None:
            _refuse("k counts either the people of a register or distinct individuals; leave one out")
        if self.method == "lattice":
            bare = [name for name in self.quasi_identifiers if name not in self.hierarchies]
            if bare:
                _refuse(
                    f"method 'lattice' needs a hierarchy for every quasi-identifier; {bare[0]!r} has none"
                )
        if self.method == "microaggregate" and self.hierarchies:
            _refuse("method 'microaggregate' gives means and most frequent values; leave the hierarchies out")


def _read_names(given: Any) -> tuple[str, ...]:  # noqa: ANN401 - a name, or several
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given or ())
    if not all(isinstance(name, str) and name for name in names):
        _refuse("columns are given by their names")
    return names


def _read_hierarchies(given: Any, names: Sequence[str]) -> dict[str, Hierarchy]:  # noqa: ANN401
    if isinstance(given, (str, Path)):
        # A file may serve for several tables, so that it may tell of columns that are not used here.
        return {name: each for name, each in read_hierarchies(Path(given)).items() if name in names}
    hierarchies: dict[str, Any] = dict(given or {})
    for name, hierarchy in hierarchies.items():
        if not isinstance(hierarchy, Hierarchy):
            _refuse(f"the hierarchy of column {name!r} is none; build one, such as Intervals or Prefixes")
    return hierarchies


def _refuse(message: str) -> NoReturn:
    raise AnonymityError(message)


_DELIMITERS: Final = ";,\t"
# What a section is about, and the keys that may stand beside it.
_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "intervals": ("open_below", "open_above", "style"),
    "widths": ("origin", "style"),
    "dates": (),
    "prefixes": ("pad",),
    "groups": ("spelled",),
    "file": ("delimiter", "header"),
    "suppressed": (),
}
_FLAGS: Final = ("open_below", "open_above", "pad", "spelled", "header")


def read_hierarchies(path: Path | str) -> dict[str, Hierarchy]:
    r"""Returns the hierarchies in a TOML file, by column.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "levels.toml")
    ...     _ = path.write_text("[postcode]\nprefixes = [2, 1]\n[sex]\nsuppressed = true\n")
    ...     read_hierarchies(path)
    {'postcode': Prefixes(keep=(2, 1), pad=False), 'sex': Suppressed()}
    """
    path = Path(path)
    try:
        document = tomllib.loads(read_regular(path, most=MOST_TEXT).decode(), parse_float=Decimal)
    except OSError as error:
        raise AnonymityError(
            f"hierarchy file {path.name!r} cannot be read ({type(error).__name__}); check its name"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnonymityError(f"hierarchy file {path.name!r} is not valid TOML: {error}") from None
    for column, section in document.items():
        if not isinstance(section, dict):
            raise AnonymityError(
                f"hierarchy file {path.name!r}: {column!r} stands alone; write a section [{column}]"
            )
    return {
        column: parse_hierarchy(section, column=column, folder=path.parent)
        for column, section in document.items()
    }


def parse_hierarchy(spec: Mapping[str, Any], *, column: str, folder: Path | str) -> Hierarchy:
    """Returns the hierarchy that a section describes; a file that it names is looked for in `folder`.

    >>> parse_hierarchy({"prefixes": [2, 1], "pad": True}, column="postcode", folder=".")
    Prefixes(keep=(2, 1), pad=True)
    >>> parse_hierarchy({"prefixes": [2, 1], "stars": 2}, column="code", folder=".")
    Traceback (most recent call last):
        ...
    sfumato.core.errors.AnonymityError: column 'code': unknown key 'stars'; known beside 'prefixes': pad
    """
    where = f"column {column!r}"
    kind = _find_kind(spec, where)
    for key in spec:
        if key != kind and key not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind]) or "no other key"
            raise AnonymityError(f"{where}: unknown key {key!r}; known beside {kind!r}: {known}")
        if key in _FLAGS and not isinstance(spec[key], bool):
            raise AnonymityError(f"{where}: {key} must be true or false")
    options = {key: value for key, value in spec.items() if key != kind}
    try:
        return _build(kind, spec[kind], options, Path(folder))
    except AnonymityError as error:
        raise AnonymityError(f"{where}: {error}") from None


def read_listed(path: Path | str, *, delimiter: str | None = None, header: bool = False) -> Listed:
    r"""Returns the hierarchy in a CSV file: the value first, then its labels, coarser and coarser.

    The delimiter is a semicolon, a comma or a tab, whichever the first line has most of, unless it is given.
    With `header` the first line holds names and is left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "job.csv")
    ...     _ = path.write_text("Federal;Government;*\nPrivate;Private;*\n")
    ...     read_listed(path).label_levels(["Federal"], column="job")
    (('Government',), ('*',))
    """
    path = Path(path)
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise AnonymityError("delimiter must be one character, such as ';'")
    try:
        text = read_regular(path, most=MOST_TEXT).decode("utf-8-sig")
        chosen = delimiter or max(_DELIMITERS, key=text.partition("\n")[0].count)
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=chosen)
        rows = [row for row in lines if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise AnonymityError(
            f"{path.name!r} cannot be read ({type(error).__name__}); it must be a CSV file in UTF-8"
        ) from None
    try:
        return Listed(rows[1:] if header else rows)
    except AnonymityError as error:
        raise AnonymityError(f"{path.name!r}: {error}") from None


def _find_kind(spec: Mapping[str, Any], where: str) -> str:
    kinds = [key for key in spec if key in _OPTIONS]
    if len(kinds) == 1:
        return kinds[0]
    found = f"it has {' and '.join(kinds)}" if kinds else f"it has {', '.join(map(repr, spec)) or 'no key'}"
    raise AnonymityError(f"{where}: its section needs exactly one of {', '.join(_OPTIONS)}; {found}")


def _build(kind: str, main: Any, options: Mapping[str, Any], folder: Path) -> Hierarchy:  # noqa: ANN401
    """Gives the hierarchy of one kind; the builders say themselves what is wrong with what they are given."""
    match kind:
        case "intervals":
            return Intervals(main, **options)
        case "widths":
            return Intervals(widths=main, **options)
        case "dates":
            return Dates(main)
        case "prefixes":
            return Prefixes(main, **options)
        case "groups":
            return Groups(main, **options)
        case "file" if isinstance(main, str) and main:
            return read_listed(folder / main, **options)
        case "suppressed" if main is True:
            return Suppressed()
    required = "the name of a CSV file" if kind == "file" else "true, or its section left out"
    raise AnonymityError(f"{kind} must be {required}")
