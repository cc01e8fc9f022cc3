"""Public domains: what a column may hold, fixed before any record is read.

A domain has a size, a label for every code from 0 to size - 1, and nothing else. How a stored
value becomes a code is the engine's affair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from typing import Literal

from sfumato.core.errors import SchemaError
from sfumato.core.exact import format_exact

Label = int | str
Calendar = Literal["day", "week", "month"]
Part = Literal["year", "month", "day_of_week", "hour"]

_PART_RANGES: dict[str, tuple[int, int]] = {
    "month": (1, 12),
    "day_of_week": (0, 6),
    "hour": (0, 23),
}
_LARGEST_RANGE = 10**9
LARGEST_INTEGER = 2**53
_MOST_EDGES = 2001
_MOST_DATES = 100_000


@dataclass(frozen=True, slots=True)
class Values:
    """Listed values, all whole numbers or all text, with optional display names.

    `runs` tells that whole numbers were listed as ranges, and are written so again; `booleans` that the texts
    were listed as true and false.

    >>> Values(("north", "south")).size
    2
    """

    values: tuple[Label, ...]
    names: tuple[str, ...] | None = None
    runs: bool = False
    booleans: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        _refuse_repeats(self.values)
        kinds = {type(value) for value in self.values}
        if not kinds <= {int} and not kinds <= {str}:
            raise SchemaError("values must be all whole numbers or all text (for decimals declare bins)")
        if any(isinstance(value, int) and abs(value) > LARGEST_INTEGER for value in self.values):
            raise SchemaError(
                "whole numbers beyond 2^53 cannot be told apart in every file; list them as text"
            )
        if self.names is not None and len(self.names) != len(self.values):
            raise SchemaError(f"{len(self.names)} names for {len(self.values)} values")

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.values)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The value behind every code."""
        return self.values


@dataclass(frozen=True, slots=True)
class Tuples:
    """Listed combinations of several stored columns, such as (year, month).

    >>> Tuples(((2019, 1), (2019, 2))).size
    2
    """

    values: tuple[tuple[Label, ...], ...]

    def __post_init__(self) -> None:
        _refuse_repeats(self.values)
        if any("\x1f" in str(part) for value in self.values for part in value):
            raise SchemaError("combinations must not hold the character U+001F, which separates their parts")
        shapes = {tuple(type(part) for part in value) for value in self.values}
        if len(shapes) != 1 or not set(next(iter(shapes))) <= {int, str}:
            raise SchemaError("combinations must all have the same length and types (whole numbers, text)")

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.values)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The combination behind every code, as text."""
        return tuple("-".join(str(part) for part in value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Bins:
    """Numeric intervals between increasing edges, closed on the left; the last one also on the right.

    >>> Bins((Fraction(0), Fraction(10), Fraction(50))).labels
    ('[0, 10)', '[10, 50]')
    """

    edges: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not 2 <= len(self.edges) <= _MOST_EDGES:
            raise SchemaError(f"bins need at least two edges and at most {_MOST_EDGES:,}")
        if max(abs(edge) for edge in self.edges) > 10**300:
            raise SchemaError("bin edges beyond 1e300")
        for low, high in zip(self.edges, self.edges[1:], strict=False):
            if low >= high:
                raise SchemaError(
                    f"bin edges must increase, but {format_exact(low)} is followed by {format_exact(high)}"
                )

    @property
    def size(self) -> int:
        """The number of codes."""
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[Label, ...]:
        """The interval behind every code."""
        edges = [format_exact(edge) for edge in self.edges]
        ends = [")"] * (len(edges) - 2) + ["]"]
        return tuple(f"[{low}, {high}{end}" for low, high, end in zip(edges, edges[1:], ends, strict=False))


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """Whole numbers from low to high, both included.

    >>> IntegerRange(1, 12).size
    12
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise SchemaError(f"range [{self.low}, {self.high}] is empty")
        if self.size > _LARGEST_RANGE or max(abs(self.low), abs(self.high)) > LARGEST_INTEGER:
            raise SchemaError(f"range [{self.low}, {self.high}] is too wide; declare bins instead")

    @property
    def size(self) -> int:
        """The number of codes."""
        return self.high - self.low + 1

    @property
    def labels(self) -> tuple[Label, ...]:
        """The number behind every code."""
        return tuple(range(self.low, self.high + 1))


@dataclass(frozen=True, slots=True)
class Period:
    """One part of a date or timestamp: year, month (1-12), day of week (Monday 0) or hour (0-23).

    >>> Period("month").size
    12
    """

    part: Part
    years: IntegerRange | None = None

    def __post_init__(self) -> None:
        if self.part not in ("year", *_PART_RANGES):
            raise SchemaError(
                f"period must be year, month, day_of_week or hour, got {self.part!r}; with a range of two "
                "dates it may be day, week or month"
            )
        if (self.part == "year") != (self.years is not None):
            raise SchemaError(
                "period = 'year' needs range = [first, last], two years"
                if self.part == "year"
                else f"period = {self.part!r} has a range of its own; leave range out, or give it two dates"
            )

    @property
    def span(self) -> IntegerRange:
        """The whole numbers this part may take."""
        return self.years or IntegerRange(*_PART_RANGES[self.part])

    @property
    def size(self) -> int:
        """The number of codes."""
        return self.span.size

    @property
    def labels(self) -> tuple[Label, ...]:
        """The number behind every code."""
        return self.span.labels


Domain = Values | Tuples | Bins | IntegerRange | Period


def list_dates(calendar: Calendar, first: date, last: date) -> Values:
    """The days, weeks or months from that of `first` to that of `last`; a week is named by its Monday.

    >>> list_dates("month", date(2025, 11, 5), date(2026, 1, 1)).values
    ('2025-11', '2025-12', '2026-01')
    >>> list_dates("week", date(2025, 11, 5), date(2025, 11, 17)).values
    ('2025-11-03', '2025-11-10', '2025-11-17')
    """
    if calendar == "month":
        months = range(12 * first.year + first.month - 1, 12 * last.year + last.month)
        return Values(tuple(f"{month // 12:04}-{month % 12 + 1:02}" for month in months))
    start, step = first.toordinal(), 1
    if calendar == "week":
        start, step = start - (start - 1) % 7, 7  # the first day of all was a Monday
    if (last.toordinal() - start) // step >= _MOST_DATES:
        raise SchemaError(f"a range of more than {_MOST_DATES:,} {calendar}s; take larger periods")
    days = range(start, last.toordinal() + 1, step)
    return Values(tuple(date.fromordinal(day).isoformat() for day in days))


def take_domain(domain: Domain, first: int, last: int) -> Domain:
    """The domain of the codes from `first` to `last`; every value in it keeps its label.

    >>> take_domain(IntegerRange(2020, 2040), 5, 6)
    IntegerRange(low=2025, high=2026)
    """
    match domain:
        case Values(values, names, runs):
            shown = None if names is None else names[first : last + 1]
            return Values(values[first : last + 1], shown, runs)
        case Tuples(values):
            return Tuples(values[first : last + 1])
        case IntegerRange(low):
            return IntegerRange(low + first, low + last)
        case Period(part, IntegerRange(low)):
            return Period(part, IntegerRange(low + first, low + last))
        case _:
            # The last of all bins holds its upper edge, too, so that a value may be in two windows.
            raise SchemaError("a part of a domain needs listed values, a range of whole numbers, or years")


def _refuse_repeats(values: tuple[object, ...]) -> None:
    if not values:
        raise SchemaError("a domain needs at least one value")
    flat = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    if not all(isinstance(part, (int, str)) for part in flat):
        raise SchemaError("values must be whole numbers or text (for decimals declare bins)")
    if len(set(values)) != len(values):
        repeated = next(value for index, value in enumerate(values) if value in values[:index])
        raise SchemaError(f"value {repeated!r} is listed twice")
