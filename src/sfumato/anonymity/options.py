"""What is asked of a table: one record of all options, checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from sfumato.anonymity.check import Requirements
from sfumato.anonymity.hierarchy import Hierarchy
from sfumato.anonymity.hierarchy_files import read_hierarchies
from sfumato.core.errors import AnonymityError

Method = Literal["local", "cuts", "strict", "relaxed", "lattice", "microaggregate"]
METHODS: tuple[str, ...] = get_args(Method)

_RECORDED = (
    *("quasi_identifiers", "sensitive", "keep", "individual", "method", "hierarchies", "k", "k_map", "l"),
    *(
        "entropy_l",
        "recursive",
        "t",
        "distance",
        "delta",
        "weights",
        "max_suppressed",
        "max_suppressed_cells",
    ),
)

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
        record = {name: getattr(self, name) for name in _RECORDED}
        for name in ("quasi_identifiers", "sensitive", "keep", "hierarchies"):
            record[name] = list(record[name])
        if self.recursive is not None:
            record["recursive"] = dict(zip(("c", "l"), self.recursive, strict=True))
        if isinstance(self.distance, Mapping):
            record["distance"] = dict(self.distance)
        return record | {"weights": dict(self.weights)}

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
