"""How a server spells the columns of a table, such that they are what DuckDB makes of them.

Every expression gives one value for one record, and can fail for none. Whatever a server may compute in
another way than DuckDB, bit for bit, is an `UnpushedError`: such a statement is left to DuckDB.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Literal

from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values

if TYPE_CHECKING:
    from sfumato.core.engine.encode import Stored
    from sfumato.core.facts.table import Table

PushedKind = Literal["integer", "double", "text", "boolean", "date", "timestamp", "null"]

_LARGEST_CODE = 2**31
_EXACT_DIGITS = 15  # of a decimal, that a floating number tells apart


class UnpushedError(Exception):
    """A part of a statement that the server may evaluate in another way than DuckDB."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """An expression as a server spells it, its kind, and for whole numbers the range where it is known.

    DuckDB computes in 64 bits with whole numbers that are `wide`, and in 32 bits with constants alone.
    `loose` is a floating number as it is stored, infinite or NaN, which is cheaper to clamp.
    """

    sql: str
    kind: PushedKind
    ends: tuple[int, int] | None = None
    wide: bool = False
    loose: str | None = None


@dataclass(frozen=True, slots=True)
class PushedKey:
    """A group key: what the server groups by, and the code of each label if that is text.

    Without `codes`, what is grouped by is the code, after `low` is taken off. What has none counts for
    `other`, or is left out.
    """

    sql: str
    size: int
    codes: Mapping[str, int] | None = None
    other: int | None = None
    low: int = 0


def is_plain(column: Column, stored: Mapping[str, Stored]) -> bool:
    """Returns whether a server can tell the codes of a column from the values that it stores.

    Where a text stands for a number or a moment, texts of numbers or moments are listed, a decimal is too
    long, or a key of the description says how values are read, only `encode` does it, of fetched columns.
    """
    kinds = [stored[name].kind for name in column.stored]
    match column.domain:
        case Values(values):
            labels: tuple[object, ...] = (values[0],)
        case Tuples(values):
            labels = values[0]
        case _:
            labels = (0,)
    unread = {True: ("number", "date"), False: ("text",)}
    read = any(kind in unread[isinstance(label, str)] for kind, label in zip(kinds, labels, strict=True))
    read |= any(is_long(stored[name]) for name in column.stored)
    return not read and _is_as_stored(column)


def is_long(stored: Stored) -> bool:
    """Returns whether a decimal may have more digits than a floating number tells apart."""
    if stored.digits is None:
        return stored.type == "numeric"
    return stored.digits[0] > _EXACT_DIGITS or not 0 <= stored.digits[1] <= stored.digits[0]


def _is_as_stored(column: Column) -> bool:
    read = column.format or column.decimal != "." or column.missing or column.missing_label is not None
    return not read and column.calendar is None and column.match == "exact"


class Words(ABC):
    """How a server spells what DuckDB means, for the columns of one table."""

    double: str
    whole: str
    divided: str
    """The operator that divides whole numbers, and cuts off what is left."""

    def __init__(self, table: Table, stored: Mapping[str, Stored]) -> None:
        self.table = table
        self.stored = stored
        self._described = {name.lower(): column for name, column in table.columns.items()}
        self._plain = {name.lower(): name for name in stored}

    def unit(self) -> str | None:
        """Returns the individual of a record, or None where every record is one."""
        name = self.table.unit.column
        return None if name is None else self.spell_unit(name, self.stored[name])

    def value(self, name: str) -> Pushed:
        """Returns the value of a column as a statement sees it, as `value_column` in `encode` has it."""
        column = self._described.get(name.lower())
        if column is None:
            return self._raw(name)
        stored = self._find(column)
        whole = stored.kind in ("integer", "boolean")
        match column.domain:
            case Period(part):
                return self.spell_period(column.stored[0], stored, part)
            case IntegerRange() | Bins() if whole:
                return self.spell_whole(column.stored[0], stored)
            case Values(values) if isinstance(values[0], int) and whole:
                return self.spell_whole(column.stored[0], stored)
            case None if column.bounds is not None and stored.kind == "integer":
                return self.spell_whole(column.stored[0], stored)
            case IntegerRange() | Bins():
                return self.spell_number(column.stored[0], stored)
            case None if column.bounds is not None:
                return self.spell_number(column.stored[0], stored)
            case Values(values) if isinstance(values[0], str):
                return self.spell_text(column.stored[0], stored)
            case None if stored.kind != "text":
                return self._raw(column.stored[0])
            case _:
                raise UnpushedError

    def key(self, name: str) -> PushedKey:
        """Returns the code of a described column as a group key."""
        column, stored = self._find_coded(name)
        other = column.size - 1 if column.outside == "other" else None
        match column.domain:
            case Values(values) if isinstance(values[0], str):
                listed = [str(value) for value in values]
                if any("\x00" in each or "\ufffd" in each for each in listed):
                    raise UnpushedError
                text = self.spell_label(column.stored[0], stored)
                found = f"CASE WHEN {text} IN ({', '.join(map(self.spell_literal, listed))}) THEN {text} END"
                codes = {each: code for code, each in enumerate(listed)}
                return PushedKey(found, column.size, codes=codes, other=other)
            case IntegerRange(low, high) if stored.kind == "integer" and column.outside != "clamp":
                # As stored, which is cheaper to group by than a code.
                value = self.spell_whole(column.stored[0], stored).sql
                found = f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} END"
                return PushedKey(found, column.size, other=other, low=low)
            case _:
                return PushedKey(self.code(name), column.size)

    def code(self, name: str) -> str:
        """Returns the code of a described column that is no list of texts, a whole number or NULL."""
        column, stored = self._find_coded(name)
        if stored.kind == "text" or (
            isinstance(column.domain, Values) and isinstance(column.domain.values[0], str)
        ):
            raise UnpushedError
        if stored.kind == "date" and not isinstance(column.domain, Period):
            raise UnpushedError
        if stored.digits is not None:
            raise UnpushedError
        return self.spell_code(column)

    def _find(self, column: Column) -> Stored:
        """Returns the one stored column that a described one is read of, as it is stored."""
        if not _is_as_stored(column) or len(column.stored) != 1:
            raise UnpushedError
        if column.stored[0] not in self.stored or column.stored[0] == self.table.unit.column:
            raise UnpushedError
        return self.stored[column.stored[0]]

    def _find_coded(self, name: str) -> tuple[Column, Stored]:
        """Returns the described column called `name`, which has codes, and how it is stored."""
        column = self._described.get(name.lower())
        if column is None or column.domain is None or column.size > _LARGEST_CODE:
            raise UnpushedError
        return column, self._find(column)

    def _raw(self, name: str) -> Pushed:
        stored = self._plain.get(name.lower())
        if stored is None or stored == self.table.unit.column:
            raise UnpushedError
        return self.spell_raw(stored, self.stored[stored])

    @abstractmethod
    def spell_unit(self, name: str, stored: Stored) -> str:
        """Returns an individual, NULL for nobody; two that a sealed table keeps apart are apart."""

    @abstractmethod
    def spell_raw(self, name: str, stored: Stored) -> Pushed:
        """Returns a stored value made plain, as `clean_column` in `sealed` does it."""

    @abstractmethod
    def spell_whole(self, name: str, stored: Stored) -> Pushed:
        """Returns a stored whole number or truth value as a whole number."""

    @abstractmethod
    def spell_number(self, name: str, stored: Stored) -> Pushed:
        """Returns a stored floating number made plain."""

    @abstractmethod
    def spell_text(self, name: str, stored: Stored) -> Pushed:
        """Returns the text of a stored text or whole number, compared by its bytes."""

    def spell_label(self, name: str, stored: Stored) -> str:
        """As `spell_text`, for a comparison with labels."""
        return self.spell_text(name, stored).sql

    def spell_total(self, value: str, largest: int) -> str:
        """Returns the sum of whole numbers, each of which is at most `largest` from zero."""
        return f"sum({value})"

    @abstractmethod
    def spell_period(self, name: str, stored: Stored, part: str) -> Pushed:
        """Returns a part of a stored date or moment, as a described column has it."""

    @abstractmethod
    def spell_code(self, column: Column) -> str:
        """Returns the code of a column, as recipes count it."""

    def spell_present(self, number: str, loose: str | None) -> str:
        """Returns whether there is a number; `loose` is how it is stored, if that is a floating number."""
        return f"{number} IS NOT NULL"

    @abstractmethod
    def spell_part(self, value: str, kind: PushedKind, part: str) -> str:
        """Returns a part of a plain date or moment; EPOCH_US are microseconds from 1970."""

    @abstractmethod
    def spell_literal(self, text: str) -> str:
        """Returns a text in quotes."""

    def spell_double(self, number: float) -> str:
        """Returns a floating number, bit for bit."""
        return f"CAST('{number!r}' AS {self.double})"

    def spell_day(self, days: int) -> str:
        """Returns a date, in days from 1970."""
        return f"DATE '{(date(1970, 1, 1) + timedelta(days=days)).isoformat()}'"

    @abstractmethod
    def spell_moment(self, microseconds: int) -> str:
        """Returns a moment, in microseconds from 1970."""
