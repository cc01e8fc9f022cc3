"""Generalization hierarchies: how the values of a column are made coarser, level by level, up to `*`.

Intervals    180-190, 60+        numbers
Dates        1950-01-*, 1950-*   dates, with or without a time
Prefixes     12*, 1*             codes and texts, redacted from the right
Groups       Government          texts with names for groups, and for groups of groups
Listed       as in the file      any values, one row each, as other tools write them
Suppressed   *                   the value or nothing
"""

from __future__ import annotations

import datetime
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from numbers import Integral
from typing import Final, Literal, Protocol, get_args, runtime_checkable

from sfumato.core.errors import AnonymityError

TOP: Final = "*"
"""The label that stands for everything; the last level of every hierarchy has no other."""

Levels = tuple[tuple[str, ...], ...]
"""For each level, finest first, one label for each value."""

_DECIMAL = re.compile(r"-?(?:0|[1-9]\d*)\.\d+", re.ASCII)

_LARGEST: Final = 10**300  # edges are turned into floats, which end at about 10^308
# In months, counted from the year 0: each divides the next, so any choice of them in this order is nested.
_MONTHS: Final[dict[str, int]] = {
    "day": 0,
    "month": 1,
    "quarter": 3,
    "half_year": 6,
    "year": 12,
    "five_years": 60,
    "decade": 120,
    "century": 1200,
}


@runtime_checkable
class Hierarchy(Protocol):
    """Coarser and coarser labels for the values of a column."""

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """Returns the labels of `values` at every level above the value itself; the last level is all `*`.

        `values` are the distinct values of the column, none of them missing; `column` is named in errors.
        """


def check_nested(levels: Sequence[Sequence[str]], *, column: str) -> Levels:
    """Returns the levels as they are, or an error if they are not nested or do not end in `*`.

    Nested means: values with one label at a level have one label at every later level.

    >>> check_nested([["1*", "1*", "6*"], ["*", "*", "*"]], column="postcode")
    (('1*', '1*', '6*'), ('*', '*', '*'))
    >>> check_nested([["a", "a"], ["b", "c"], ["*", "*"]], column="job")
    Traceback (most recent call last):
        ...
    sfumato.core.errors.AnonymityError: column 'job': the hierarchy is ambiguous: 1 label of level 1 ...
    """
    if not levels or any(label != TOP for label in levels[-1]):
        raise AnonymityError(
            f"column {column!r}: the last level of the hierarchy must be {TOP!r} for every value"
        )
    if any(len(level) != len(levels[0]) for level in levels):
        raise AnonymityError(
            f"column {column!r}: every level of the hierarchy must have one label for each value"
        )
    if any(not label.strip() for level in levels for label in set(level)):
        raise AnonymityError(
            f"column {column!r}: the hierarchy has an empty label; an empty cell reads as missing"
        )
    for number, (finer, coarser) in enumerate(pairwise(levels), start=1):
        above: dict[str, str] = {}
        split = {
            below
            for below, label in zip(finer, coarser, strict=True)
            if above.setdefault(below, label) != label
        }
        if split:
            raise AnonymityError(
                f"column {column!r}: the hierarchy is ambiguous: {_count(len(split), 'label')} of level "
                f"{number} {'has' if len(split) == 1 else 'have'} more than one label at level {number + 1}; "
                "give every label one that it belongs to"
            )
    return tuple(tuple(level) for level in levels)


def write_value(value: object) -> str:
    """Returns the text of a value as it would stand in a file: the number 180.0 as 180, a text as it is.

    >>> [write_value(value) for value in (180.0, Decimal("2.50"), "2.50", " Private ", True)]
    ['180', '2.5', '2.50', 'Private', 'true']
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (float, Decimal)) and math.isfinite(value):
        return _trim_zeros(format(Decimal(float.__repr__(value)) if isinstance(value, float) else value, "f"))
    return str(value)


def _trim_zeros(text: str) -> str:
    """Returns the text without zeros that say nothing, if it is a decimal number."""
    plain = text.rstrip("0").rstrip(".") if _DECIMAL.fullmatch(text) else text
    return "0" if plain == "-0" else plain


def _as_tuple(given: object) -> tuple[object, ...]:
    """Returns the members of a list, or what was given as the only one."""
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)):
        return tuple(given)
    return (given,)


def _refuse(count: int, total: int, *, column: str, what: str, remedy: str) -> None:
    """Raises an error, unless `count` is 0, that so many of `total` values are `what`, with a `remedy`."""
    if count:
        verb = "is" if count == 1 else "are"
        raise AnonymityError(
            f"column {column!r}: {count} of its {_count(total, 'different value')} {verb} {what}; {remedy}"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


Number = int | float | Decimal
Style = Literal["shared", "whole"]
Span = Literal["day", "month", "quarter", "half_year", "year", "five_years", "decade", "century"]

_Exact = int | Fraction


@dataclass(frozen=True, slots=True)
class Intervals:
    """Numbers as intervals: between `edges`, or of given `widths` that begin at `origin`; finest level first.

    A lower edge belongs to its interval. An upper edge belongs to the next one, except the last edge,
    which nothing follows. `open_above` adds `60+` for numbers from the last edge up. `open_below` adds `0-20`
    for numbers from 0 to a lowest edge of 20; there is no label without a lower end. Anything else outside is
    an error. Style `shared` writes 180-190 and 190-200; `whole` writes 20-24 and 25-29, for whole numbers.

    >>> Intervals(edges=[60, 80], open_above=True).label_levels([70, 80, 110], column="weight")
    (('60-80', '80+', '80+'), ('*', '*', '*'))
    >>> Intervals(widths=[5, 20], style="whole").label_levels([24, 25], column="age")
    (('20-24', '25-29'), ('20-39', '20-39'), ('*', '*'))
    """

    edges: Sequence[Number] | Sequence[Sequence[Number]] = ()
    widths: Number | Sequence[Number] = field(default=(), kw_only=True)
    origin: Number = field(default=0, kw_only=True)
    open_below: bool = field(default=False, kw_only=True)
    open_above: bool = field(default=False, kw_only=True)
    style: Style = field(default="shared", kw_only=True)
    _edges: tuple[tuple[_Exact, ...], ...] = field(init=False, repr=False, compare=False)
    _widths: tuple[_Exact, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        edges, widths = _as_tuple(self.edges), _as_tuple(self.widths)
        levels: tuple[tuple[object, ...], ...] = (edges,) if edges else ()
        if edges and isinstance(edges[0], Iterable):
            edges = levels = tuple(_as_tuple(level) for level in edges)
        if bool(levels) == bool(widths):
            raise AnonymityError("intervals: give either edges or widths")
        if self.style not in get_args(Style):
            raise AnonymityError(f"intervals: style must be one of {', '.join(get_args(Style))}")
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "_edges", tuple(self._read_level(level) for level in levels))
        object.__setattr__(self, "_widths", tuple(_public_number(width, "a width") for width in widths))
        _public_number(self.origin, "the origin")
        if levels:
            self._check_edges()
        else:
            self._check_widths()

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """Returns the intervals of `values` at every level, then `*`."""
        numbers = _read_numbers(values, column)
        if self.style == "whole":
            broken = sum(not isinstance(number, int) for number in numbers)
            remedy = "use style 'shared'"
            _refuse(broken, len(values), column=column, what="not a whole number", remedy=remedy)
        if self._edges:
            self._refuse_outside(numbers, column)
            levels = [self._label_between(numbers, edges) for edges in self._edges]
        else:
            levels = [self._label_widths(numbers, width) for width in self._widths]
        return check_nested([*levels, [TOP] * len(values)], column=column)

    def _read_level(self, level: tuple[object, ...]) -> tuple[_Exact, ...]:
        edges = tuple(_public_number(edge, "an edge") for edge in level)
        if self.open_below and (not edges or edges[0] <= 0):
            raise AnonymityError(
                "intervals: open_below begins at 0: it needs a lowest edge above 0; name a lower edge"
            )
        return (0, *edges) if self.open_below else edges

    def _check_edges(self) -> None:
        if self.origin != 0:
            raise AnonymityError("intervals: origin goes with widths, not with edges")
        for edges in self._edges:
            fewest = 1 if self.open_above else 2
            if len(edges) < fewest or any(low >= high for low, high in pairwise(edges)):
                raise AnonymityError(
                    "intervals: edges must increase, and there must be two, or one and open_above"
                )
            if self.style == "whole" and any(not isinstance(edge, int) for edge in edges):
                raise AnonymityError("intervals: style 'whole' needs whole numbers as edges")
        for number, (finer, coarser) in enumerate(pairwise(self._edges), start=2):
            ends = coarser[0] == finer[0] and (self.open_above or coarser[-1] == finer[-1])
            if not ends or not set(coarser) < set(finer):
                raise AnonymityError(
                    f"intervals: level {number} must have some, not all, of the edges of the level before, "
                    f"and the same first {'edge' if self.open_above else 'and last edge'}"
                )

    def _check_widths(self) -> None:
        if self.open_below or self.open_above:
            raise AnonymityError(
                "intervals: widths have no end and take no open_below or open_above; give edges instead"
            )
        if any(width <= 0 for width in self._widths):
            raise AnonymityError("intervals: a width must be above 0")
        if any(wider <= width or wider % width for width, wider in pairwise(self._widths)):
            raise AnonymityError(
                "intervals: each width must be a multiple of the one before, such as [5, 10, 20]"
            )
        public = (*self._widths, _exact(self.origin))
        if self.style == "whole" and any(not isinstance(each, int) for each in public):
            raise AnonymityError("intervals: style 'whole' needs whole numbers as widths and origin")

    def _refuse_outside(self, numbers: Sequence[_Exact], column: str) -> None:
        first, last = self._edges[0][0], self._edges[0][-1]
        below = sum(number < first for number in numbers)
        remedy = "name a lower edge"
        if first > 0:
            remedy += f", or set open_below to write 0-{_plain(first)}"
        what = f"below the first edge {_plain(first)}"
        _refuse(below, len(numbers), column=column, what=what, remedy=remedy)
        above = 0 if self.open_above else sum(number > last for number in numbers)
        remedy = f"name a higher edge, or set open_above to write {_plain(last)}+"
        _refuse(above, len(numbers), column=column, what=f"above the last edge {_plain(last)}", remedy=remedy)

    def _label_between(self, numbers: Sequence[_Exact], edges: tuple[_Exact, ...]) -> list[str]:
        last = len(edges) - 2
        names = [
            self._name(low, high, closed=place == last and not self.open_above)
            for place, (low, high) in enumerate(pairwise(edges))
        ]
        if self.open_above:
            names.append(f"{_plain(edges[-1])}+")
        places = [bisect_right(edges, number) for number in numbers]
        return [names[min(place, len(names)) - 1] for place in places]

    def _label_widths(self, numbers: Sequence[_Exact], width: _Exact) -> list[str]:
        origin = _exact(self.origin)
        assert origin is not None  # it was checked when made
        places = [(number - origin) // width for number in numbers]
        names = {
            place: self._name(origin + place * width, origin + (place + 1) * width, closed=False)
            for place in set(places)
        }
        return [names[place] for place in places]

    def _name(self, low: _Exact, high: _Exact, *, closed: bool) -> str:
        top = high - 1 if self.style == "whole" and not closed else high
        return _plain(low) if low == top else f"{_plain(low)}-{_plain(top)}"


@dataclass(frozen=True, slots=True)
class Dates:
    """Dates and times as spans, finest first.

    The spans are day, month, quarter, half_year, year, five_years, decade and century. A month is written
    1950-01-* and a year 1950-*. Other spans are written from day to day, 1950-01-01-1950-03-31. Columns
    with a time of day have no such ranges: there a day is 1950-01-31*, a quarter
    1950-01-*|1950-02-*|1950-03-*, a decade 195* and a century 19*.

    >>> born = [datetime.date(1950, 1, 31), datetime.date(1950, 3, 1)]
    >>> months = Dates(levels=["month", "quarter", "year"])
    >>> for labels in months.label_levels(born, column="born"):
    ...     print(labels)
    ('1950-01-*', '1950-03-*')
    ('1950-01-01-1950-03-31', '1950-01-01-1950-03-31')
    ('1950-*', '1950-*')
    ('*', '*')
    """

    levels: Sequence[Span] = ("month", "year", "decade")

    def __post_init__(self) -> None:
        levels, known = _as_tuple(self.levels), list[object](_MONTHS)
        order = [known.index(level) if level in known else -1 for level in levels]
        if not order or -1 in order or any(finer >= coarser for finer, coarser in pairwise(order)):
            raise AnonymityError(f"dates: levels must be some of {', '.join(_MONTHS)}, in this order")
        object.__setattr__(self, "levels", levels)

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """Returns the spans of `values` at every level, then `*`."""
        days = [value for value in values if isinstance(value, datetime.date)]
        texts = any(isinstance(value, str) for value in values)
        what = "text, not dates" if texts else "not dates"
        remedy = "read the column as dates" + (
            ", or use Prefixes(keep=(7, 4)) for 1950-01*, 1950*" if texts else ""
        )
        _refuse(len(values) - len(days), len(values), column=column, what=what, remedy=remedy)
        timed = any(isinstance(day, datetime.datetime) for day in days)
        levels = [_label_spans(days, _MONTHS[level], timed=timed) for level in self.levels]
        return check_nested([*levels, [TOP] * len(values)], column=column)


def _label_spans(days: Sequence[datetime.date], months: int, *, timed: bool) -> list[str]:
    if not months:
        return [day.isoformat()[:10] + ("*" if timed else "") for day in days]
    places = [(day.year * 12 + day.month - 1) // months for day in days]
    names = {place: _name_span(place * months, months, timed=timed) for place in set(places)}
    return [names[place] for place in places]


def _name_span(start: int, months: int, *, timed: bool) -> str:
    """Returns the label of the months from `start`, counted from the year 0."""
    year, month = divmod(start, 12)
    if months == 1:
        return f"{year:04}-{month + 1:02}-*"
    if months == 12:
        return f"{year:04}-*"
    if not timed:
        # A range of days and not 195*: a register of date ranges can be compared with it.
        first = datetime.date(year, month + 1, 1) if year else datetime.date.min
        after, rest = divmod(start + months, 12)
        end = (
            datetime.date(after, rest + 1, 1) - datetime.timedelta(1) if after < 10_000 else datetime.date.max
        )
        return f"{first.isoformat()}-{end.isoformat()}"
    if months >= 120:
        return f"{year:04}"[: 3 if months == 120 else 2] + "*"
    step = 1 if months < 12 else 12
    return "|".join(_name_span(each, step, timed=True) for each in range(start, start + months, step))


def _exact(value: object) -> _Exact | None:
    """Returns the number as it is written, so that 0.1 is a tenth; None for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (Integral, float, Decimal)):
        return None
    if isinstance(value, Integral):
        return int(value)
    try:
        number = Fraction(float.__repr__(value) if isinstance(value, float) else value)
    except (ValueError, OverflowError):
        return None
    return number.numerator if number.denominator == 1 else number


def _public_number(value: object, what: str) -> _Exact:
    number = _exact(value)
    if number is None or not -_LARGEST < number < _LARGEST:
        raise AnonymityError(f"intervals: {what} must be a finite number")
    return number


def _read_numbers(values: Sequence[object], column: str) -> list[_Exact]:
    numbers = [number for value in values if (number := _exact(value)) is not None]
    texts = any(isinstance(value, str) for value in values)
    what = "text, not numbers" if texts else "not finite numbers"
    remedy = (
        "read the column as numbers, or group the texts as they stand with Groups or Listed"
        if texts
        else "intervals are for numbers; use Dates for dates, and make what is not a number missing"
    )
    _refuse(len(values) - len(numbers), len(values), column=column, what=what, remedy=remedy)
    return numbers


def _plain(number: _Exact) -> str:
    """Returns the number in digits, never with an exponent, which a reader of ranges would not know."""
    if number.denominator == 1:
        return str(number.numerator)
    places = 1
    while 10**places % number.denominator:  # ends: edges were written as decimals
        places += 1
    digits = str(abs(number.numerator) * 10**places // number.denominator).rjust(places + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-places]}.{digits[-places:]}"


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The value or `*`, with nothing between.

    >>> Suppressed().label_levels(["a", "b"], column="sex")
    (('*', '*'),)
    """

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """Returns one level, all `*`."""
        return check_nested([[TOP] * len(values)], column=column)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The first `keep` characters and a star, most characters first.

    A value shorter than `keep` stays whole at that level: nothing of it is hidden, so it has no star.
    With `pad`, one star stands for each hidden character, and values of different length stay apart.

    >>> Prefixes(keep=[2, 1]).label_levels(["1001", "1243", "6"], column="postcode")
    (('10*', '12*', '6'), ('1*', '1*', '6*'), ('*', '*', '*'))
    >>> Prefixes(keep=[2], pad=True).label_levels(["1001", "10017"], column="postcode")
    (('10**', '10***'), ('*', '*'))
    """

    keep: int | Sequence[int]
    pad: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        given = _as_tuple(self.keep)
        keep = tuple(
            each for each in given if isinstance(each, int) and not isinstance(each, bool) and each > 0
        )
        if not keep or keep != given or any(longer <= shorter for longer, shorter in pairwise(keep)):
            raise AnonymityError(
                "prefixes: keep must be whole numbers above 0, the largest first, such as [3, 2, 1]"
            )
        object.__setattr__(self, "keep", keep)

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """Returns the beginnings of `values` at every level, then `*`."""
        texts = [write_value(value) for value in values]
        barred = sum("|" in text for text in texts)
        what = "text with '|', which means 'or' in a label"
        remedy = "replace it in the source, or list the values with Listed"
        _refuse(barred, len(values), column=column, what=what, remedy=remedy)
        keep = (self.keep,) if isinstance(self.keep, int) else self.keep
        levels = [[self._shorten(text, length) for text in texts] for length in keep]
        return check_nested([*levels, [TOP] * len(values)], column=column)

    def _shorten(self, text: str, length: int) -> str:
        # What follows a star is hidden already, as in 12* of a table that was generalized before.
        stem = text.partition(TOP)[0]
        kept = stem[:length]
        if self.pad:
            return kept + TOP * (len(text) - len(kept)) or TOP
        return kept if kept == text and len(text) < length and text else kept + TOP


@dataclass(frozen=True, slots=True)
class Groups:
    """Named groups of values, and with several mappings groups of groups, finest first.

    A value that is to stay itself is a group of its own. With `spelled`, a group is written as its values,
    `a|b`, which an attack can read; a name such as Government says nothing to a program.

    >>> jobs = Groups([{"State": ["City", "Court"], "Firm": ["Firm"]}, {"Paid": ["State", "Firm"]}])
    >>> jobs.label_levels(["City", "Firm"], column="job")
    (('State', 'Firm'), ('Paid', 'Paid'), ('*', '*'))
    >>> Groups({"20-60": ["30-40", "40-60"], "60+": ["60+"]}).label_levels(["60+", "30-40"], column="age")
    (('60+', '20-60'), ('*', '*'))
    """

    levels: Mapping[str, Sequence[object]] | Sequence[Mapping[str, Sequence[object]]]
    spelled: bool = field(default=False, kw_only=True)
    _labels: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = _as_tuple(self.levels)
        levels = [level for level in given if isinstance(level, Mapping) and level]
        if not levels or len(levels) != len(given):
            raise AnonymityError(
                "groups: give a mapping from the name of a group to its values, or a list of mappings"
            )
        parents = [_invert_groups(level, number) for number, level in enumerate(levels, start=1)]
        for number, (finer, coarser) in enumerate(zip(levels, parents[1:], strict=False), start=2):
            names = {write_value(name) for name in finer}
            if names != set(coarser):
                raise AnonymityError(
                    f"groups: level {number} must hold exactly the groups of level {number - 1}; left out: "
                    f"{_names(names - set(coarser))}; not known: {_names(set(coarser) - names)}"
                )
        labels: dict[str, tuple[str, ...]] = {}
        for value in parents[0]:
            path = [value]
            for parent in parents:
                path.append(write_value(parent[path[-1]]))
            labels[value] = tuple(path[1:])
        object.__setattr__(self, "_labels", _spell(labels) if self.spelled else labels)

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """Returns the groups of `values` at every level, then `*`."""
        return _look_up(self._labels, values, column=column, remedy="put them in a group")


@dataclass(frozen=True, slots=True)
class Listed:
    """Labels from a list: rows of a value and its coarser labels, with or without a last `*`.

    >>> Listed([["Federal", "Government"], ["Private", "Private"]]).label_levels(["Private"], column="job")
    (('Private',), ('*',))
    >>> Listed([["a", "x"], ["b", "x"], ["a", "y"]])
    Traceback (most recent call last):
        ...
    sfumato.core.errors.AnonymityError: listed: row 3 is ambiguous: its value has other labels ...
    """

    rows: Sequence[Sequence[object]] = field(repr=False)
    _labels: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = [tuple(write_value(cell) for cell in _as_tuple(row)) for row in self.rows]
        if not rows or len(rows[0]) < 2:
            raise AnonymityError("listed: give rows of a value and at least one label")
        labels: dict[str, tuple[str, ...]] = {}
        for number, row in enumerate(rows, start=1):
            if len(row) != len(rows[0]):
                raise AnonymityError(
                    f"listed: row {number} has {len(row)} cells and the first {len(rows[0])}; make them equal"
                )
            if not all(row[1:]):
                raise AnonymityError(
                    f"listed: row {number} has an empty label; repeat the label before it, or write *"
                )
            if labels.setdefault(row[0], row[1:]) != row[1:]:
                raise AnonymityError(
                    f"listed: row {number} is ambiguous: its value has other labels in a row before; keep one"
                )
        above: dict[tuple[int, str], str] = {}
        for number, row in enumerate(rows, start=1):
            for place, (finer, coarser) in enumerate(pairwise(row[1:]), start=1):
                if above.setdefault((place, finer), coarser) != coarser:
                    raise AnonymityError(
                        f"listed: row {number} is ambiguous: its label of level {place} has another label of "
                        f"level {place + 1} in a row before; give it one"
                    )
        object.__setattr__(self, "rows", tuple(rows))
        object.__setattr__(self, "_labels", labels)

    def label_levels(self, values: Sequence[object], *, column: str) -> Levels:
        """Returns the listed labels of `values` at every level, then `*`."""
        return _look_up(self._labels, values, column=column, remedy="add a row for each")


def _look_up(
    labels: Mapping[str, tuple[str, ...]], values: Sequence[object], *, column: str, remedy: str
) -> Levels:
    texts = [write_value(value) for value in values]
    if not all(isinstance(value, str) for value in values):
        labels = _index_numbers(labels, column)
    unknown = sum(text not in labels for text in texts)
    _refuse(unknown, len(values), column=column, what="unknown to the hierarchy", remedy=remedy)
    # The depth is that of the whole list, also for a column without values.
    depth = len(next(iter(labels.values())))
    levels = [[labels[text][place] for text in texts] for place in range(depth)]
    if any(row[-1] != TOP for row in labels.values()):
        levels.append([TOP] * len(texts))
    return check_nested(levels, column=column)


def _index_numbers(labels: Mapping[str, tuple[str, ...]], column: str) -> dict[str, tuple[str, ...]]:
    """Gives the labels by number, so that a listed 1.0 is 1; codes of text such as 250.10 are not numbers."""
    plain: dict[str, tuple[str, ...]] = {}
    for text, row in labels.items():
        if plain.setdefault(_trim_zeros(text), row) != row:
            raise AnonymityError(
                f"column {column!r}: the hierarchy is ambiguous: one number is listed twice, as 1 and 1.0"
            )
    return plain


def _invert_groups(level: Mapping[str, Sequence[object]], number: int) -> dict[str, str]:
    """Returns the group of each member; a member of two groups is ambiguous."""
    parents: dict[str, str] = {}
    for name, members in level.items():
        if not isinstance(name, str) or not name.strip():
            raise AnonymityError(f"groups: level {number} has a group without a name")
        if isinstance(members, str) or not isinstance(members, Sequence) or not members:
            raise AnonymityError(
                f"groups: {name!r} must be a list of what belongs to it, such as {name!r}: ['a', 'b']"
            )
        for member in members:
            other = parents.setdefault(write_value(member), name)
            if other != name:
                raise AnonymityError(
                    f"groups: ambiguous: {other!r} and {name!r} share a member; leave it in one of them"
                )
    return parents


def _spell(labels: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Returns the labels with each group written as the values in it."""
    if any("|" in value for value in labels):
        raise AnonymityError(
            "groups: spelled writes values with '|' between, so no value may hold one; use names instead"
        )
    members: dict[tuple[int, str], list[str]] = {}
    for value, path in labels.items():
        for place, label in enumerate(path):
            members.setdefault((place, label), []).append(value)
    return {
        value: tuple(
            TOP if label == TOP else "|".join(members[place, label]) for place, label in enumerate(path)
        )
        for value, path in labels.items()
    }


def _names(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"
