"""Synthetic rows: what recipes share that make a table of rows out of codes.

All draws here are post-processing from a public seed: the same codes and the same seed give the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.core.dates import read_day
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import RecipeError
from sfumato.core.exact import parse_whole
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, Period, Values
from sfumato.core.facts.table import Table
from sfumato.inference.domain import Columns, Domain
from sfumato.inference.model import draw_places
from sfumato.recipes.base import Recipe, column_labels, released_names
from sfumato.recipes.shared.public import WithinBins, has_numbers, parse_public, public_values, read_public
from sfumato.recipes.shared.repair import check_rules, settle_numbers
from sfumato.recipes.shared.rules import active_rules
from sfumato.tables.arrays import Floats, Whole, hide_values, label_array

_FINE = 1000  # steps in the narrowest bin, for numbers that are not whole
_DATES = 2**25  # turns of draws of dates, beyond those of columns and of rules


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions(Recipe):
    """What recipes that release synthetic rows have in common.

    `public` names a table for values within bins; in a planned recipe it is what was read of that table.
    `seed` is the public seed of all draws, `rows` the number of rows, by default the estimated one.
    `types` says which columns are released as "boolean", "date" or "timestamp", by default all that
    `find_types` finds and that are described so; in a planned recipe it is what was found.
    """

    drawn_by: ClassVar[tuple[str, ...]] = ("seed", "rows", "types")

    public: Any = None
    seed: int = 0
    rows: int | None = None
    types: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self._keep(public=parse_public(self.public, where=f"{self.kind}: public"))
        self._keep(seed=parse_whole(self.seed, name=f"{self.kind}: seed", low=0))
        if self.rows is not None:
            self._keep(rows=parse_whole(self.rows, name=f"{self.kind}: rows", low=0))
        if self.types is not None:
            if not isinstance(self.types, Mapping) or not all(
                str(kind).partition(" ")[0] in _TYPES and _read_ends(kind).size
                for kind in self.types.values()
            ):
                raise RecipeError(
                    f"{self.kind}: types must name columns with {', '.join(_TYPES)}, such as "
                    "{visited = 'date'}; {} leaves all columns as they are described"
                )
            self._keep(types=dict(self.types))

    @property
    def within_bins(self) -> WithinBins:
        """Return the public values within bins, once the recipe is planned."""
        return public_values(self.public if isinstance(self.public, Mapping) else None)

    def with_public(
        self, table: Table, columns: Sequence[str], *, identifiers_by: Sequence[str] | None = None
    ) -> Self:
        """Return the recipe with what it needs of its public table in place of the file's name.

        So the plan alone states all that the release depends on. Rules that leave no row are refused.
        """
        check_rules(table, columns)
        if not isinstance(self.public, str):
            return self
        return replace(self, public=read_public(self.public, table, columns, groups=identifiers_by))

    def with_types(
        self,
        *described: tuple[Table, Sequence[str]],
        taken: Sequence[str] = (),
        dated: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the recipe with the types of columns of the `described` tables in place.

        What is given is checked. `taken` are names of further released columns, which no date can have;
        `dated` are columns that are dates, each with its type.
        """
        found: dict[str, tuple[str, ...]] = {}
        usual: dict[str, str] = {}
        for table, columns in described:
            possible = find_types(table, columns)
            found |= possible
            for name, (kind, *_) in possible.items():
                if kind == "boolean":
                    domain = table.column(name).domain
                    if not isinstance(domain, Values) or not domain.booleans:
                        continue
                elif name in columns and name not in (dated or {}):
                    column = table.column(name)
                    if column.calendar != "day" or (column.extras and not column.nullable):
                        continue
                elif name.casefold() in {each.casefold() for each in ("epsilon", *taken)}:
                    continue
                usual[name] = (dated or {}).get(name, kind)
        if self.types is None:
            return replace(self, types=usual)
        for name, kind in self.types.items():
            if kind.partition(" ")[0] not in found.get(name, ()):
                raise RecipeError(
                    f"{self.kind}: types: {name!r} cannot be released as {kind}: {_TYPES[kind]}"
                )
        drawn = {name for _, names in described for name in names}
        made = [name for name in self.types if name not in drawn]
        # Of two tables, both may have a key of one name.
        self.refuse_clash([*{"epsilon", *taken}, *made])
        return self


def choose_columns(recipe: Recipe, given: Sequence[str] | None, table: Table, *, least: int = 1) -> Columns:
    """Return the columns that are listed, or all of `table` that have a domain."""
    described = (name for name, column in table.columns.items() if column.domain is not None)
    names = tuple(described if given is None else given)
    if len(names) < least:
        raise RecipeError(f"{recipe.kind}: table {table.name!r} describes no column with a domain")
    for name in names:
        table.column(name)
    return names


def model_domain(table: Table, columns: Sequence[str]) -> Domain:
    """Return the domain of a model of `columns`."""
    return Domain({name: table.column(name).size for name in columns})


def find_types(table: Table, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return what columns of synthetic rows may be released as, beside labels and numbers; the finest first.

    A column of true and false may be boolean, one of days, weeks or months a date. A stored column whose year
    and month are among `columns` may be released too, as a date, or as a timestamp if its hour is there.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name in columns:
        column = table.column(name)
        listed = column.domain.values if isinstance(column.domain, Values) else ("",)
        if {*listed} <= {"false", "true"} and (column.nullable or not column.extras):
            found[name] = ("boolean",)
        elif column.calendar is not None:
            found[name] = ("date",)
    names = {name.casefold() for name in released_names(table, tuple(columns))}
    for stored, parts in _find_parts(table, columns).items():
        if {"year", "month"} <= set(parts) and stored.casefold() not in names:
            years = table.column(parts["year"]).domain
            assert isinstance(years, Period)
            if years.span.low >= 1 and years.span.high <= 9999:
                found[stored] = ("timestamp", "date") if "hour" in parts else ("date",)
    return found


def find_undescribed(table: Table, columns: Sequence[str]) -> list[str]:
    """Return columns of `table` with dates or bounds and no domain that rows of `columns` say nothing of."""
    dated = find_types(table, columns)
    return [
        name
        for name, column in table.columns.items()
        if column.domain is None
        and (column.dates is not None or column.bounds is not None)
        and not {name, *column.stored} & {*dated, *columns}
    ]


def _find_parts(table: Table, columns: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the columns that are periods of a stored one: by its name, and by what part of it they are."""
    found: dict[str, dict[str, str]] = {}
    for name in columns:
        column = table.column(name)
        if isinstance(column.domain, Period):
            found.setdefault(column.stored[0], {}).setdefault(column.domain.part, name)
    return found


def build_rows(
    table: Table,
    columns: Sequence[str],
    codes: Mapping[str, Whole],
    *,
    seed: int,
    places: Mapping[str, int] | None = None,
    public: WithinBins | None = None,
    types: Mapping[str, str] | None = None,
) -> pa.Table:
    """Return the rows that `codes` stand for, in the `columns` of `table`.

    `seed` decides what is drawn, for every column by its number, which `places` may give.
    Listed values, ranges and periods are released as they are, combinations as the columns they
    combine. A bin becomes a number within it: one of the values of `public` in that bin, if there are
    any, otherwise any number of it with equal chance, or along the column's smooth density. Numbers are
    whole if all edges of the column are.
    The first and the last bin may be wider than their neighbours only to catch the rest; where they
    are, numbers are drawn next to the neighbour, over its width. A binned column with
    `outside = "other"` is released as text, the interval, because no number stands for `other`. Numbers
    obey the rules of the table. A missing value of a nullable column is NULL. With `types` of `find_types`
    truth values are booleans, and dates follow the other columns.
    """
    turns = places or {name: place for place, name in enumerate(columns, start=1)}

    def draw_numbers(name: str, drawn: Whole, turn: int = 0) -> NDArray[Any]:
        chances = draw_places(drawn.size, seed=seed, turn=turn + turns[name])
        column = table.column(name)
        known = np.minimum(drawn, column.size - len(column.extras) - 1)
        if name in tilts:
            chances = _tilt_places(chances, tilts[name][known])
        return _place_in_bins(column, known, chances, (public or {}).get(name))

    codes = dict(codes)
    tilts = {
        name: _find_tilts(table.column(name), codes[name])
        for name in columns
        if table.column(name).density == "smooth" and name not in (public or {})
    }
    numbers = {name: draw_numbers(name, codes[name]) for name in columns if has_numbers(table.column(name))}
    settle_numbers(table, columns, codes, numbers, draw_numbers, seed=seed)
    released: dict[str, pa.Array] = {}
    possible = find_types(table, columns)
    kinds = {
        name: kind for name, kind in (types or {}).items() if kind.partition(" ")[0] in possible.get(name, ())
    }
    for name in columns:
        column = table.column(name)
        if kinds.get(name) == "boolean":
            released[name] = _hide_missing(column, codes[name], None, boolean=True)
            continue
        if name in kinds:
            chances = draw_places(codes[name].size, seed=seed, turn=_DATES + turns[name])
            released[name] = _draw_days(column, codes[name], chances, _read_ends(kinds[name]))
            continue
        if name in numbers or column.nullable:
            released[name] = _hide_missing(column, codes[name], numbers.get(name))
            continue
        for label_name, labels in column_labels(column).items():
            released[label_name] = label_array(codes[name].astype(np.int32), labels)
    for stored, parts in _find_parts(table, columns).items():
        if stored in kinds:
            chances = draw_places(len(codes[parts["year"]]), seed=seed, turn=_DATES + turns[parts["year"]])
            released[stored] = _draw_dates(table, parts, codes, chances, kind=kinds[stored])
    return pa.table(released)


def _read_ends(kind: str) -> Whole:
    """The first day and the last of a type such as "date 2024-01-01 2025-12-31", counted from 1970."""
    ends = [read_day(each) for each in str(kind).split()[1:]] or [date.min, date.max]
    if len(ends) != 2 or None in ends:
        return np.empty(0, np.int64)
    return np.array(ends, "datetime64[D]").astype(np.int64)


def _draw_days(column: Column, codes: Whole, places: Floats, ends: Whole) -> pa.Array:
    """Days in the weeks or months that `codes` stand for, none beyond the `ends`; NULL for other codes."""
    assert column.domain is not None
    grain, step = ("M", 1) if column.calendar == "month" else ("D", 7 if column.calendar == "week" else 1)
    begin = np.array(column.domain.labels, f"datetime64[{grain}]")
    first, end = (each.astype("datetime64[D]").astype(np.int64) for each in (begin, begin + step))
    first, end = np.maximum(first, ends[0]), np.minimum(end, ends[1] + 1)
    known = np.minimum(codes, begin.size - 1)
    days = first[known] + np.floor(places * (end - first)[known]).astype(np.int64)
    return hide_values(to_arrow(days.astype(np.int32)).view(pa.date32()), codes >= begin.size)


def _draw_dates(
    table: Table,
    parts: Mapping[str, str],
    codes: Mapping[str, Whole],
    places: Floats,
    *,
    kind: str,
) -> pa.Array:
    """Days of the month that `codes` stand for, with the same chance each, NULL where a part is unknown.

    Days have the day of the week, and seconds the hour, that the codes of such columns stand for.
    """
    unknown = np.zeros(places.size, np.bool_)
    numbers: dict[str, Whole] = {}
    for part, name in parts.items():
        domain = table.column(name).domain
        assert isinstance(domain, Period)
        if part != "hour" or kind == "timestamp":
            unknown |= codes[name] >= domain.size
            numbers[part] = domain.span.low + np.minimum(codes[name], domain.size - 1)
    month = (12 * (numbers["year"] - 1970) + numbers["month"] - 1).astype("datetime64[M]")
    first, end = (each.astype("datetime64[D]").astype(np.int64) for each in (month, month + 1))
    step = 1
    if "day_of_week" in numbers:
        first += (numbers["day_of_week"] - first - 3) % 7  # day 0 was a Thursday
        step = 7
    grain = 3600 if kind == "timestamp" else 1
    drawn, second = np.divmod(np.floor(places * (-(-(end - first) // step) * grain)).astype(np.int64), grain)
    days = first + step * drawn
    if kind == "date":
        return hide_values(to_arrow(days.astype(np.int32)).view(pa.date32()), unknown)
    seconds = 86400 * days + 3600 * numbers["hour"] + second
    return hide_values(to_arrow(seconds).view(pa.timestamp("s")), unknown)


def _hide_missing(
    column: Column, codes: Whole, numbers: NDArray[Any] | None, *, boolean: bool = False
) -> pa.Array:
    """Return the numbers, or labels in their own type, with NULL where a value is missing."""
    assert column.domain is not None
    size = column.domain.size
    if numbers is not None:
        return hide_values(to_arrow(numbers), codes >= size)
    labels = column.domain.labels
    if boolean:
        labels = tuple(label == "true" for label in labels)
    return hide_values(label_array(np.minimum(codes, size - 1).astype(np.int32), labels), codes >= size)


def describe_bins(
    table: Table, columns: Sequence[str], public: WithinBins | None, types: Mapping[str, str] | None = None
) -> str:
    """Return what the write-up says of numbers within bins, of dates and of rules, if there are any."""
    ruled = len(active_rules(table, columns))
    told = (
        f"Rows obey {ruled} stated {'rule' if ruled == 1 else 'rules'}, by public knowledge. "
        if ruled
        else ""
    )
    made = [name for name, kind in (types or {}).items() if kind != "boolean" and name not in columns]
    if made:
        told += f"Dates are drawn with equal chance within what other columns say ({', '.join(made)}). "
    dated = [name for name in columns if table.column(name).calendar and name in (types or {})]
    if dated:
        told += f"Dates are days within the periods that were counted ({', '.join(dated)}). "
    numbers = [name for name in columns if has_numbers(table.column(name))]
    if not numbers:
        return told.rstrip()
    known = [name for name in numbers if name in (public or {})]
    smooth = [name for name in numbers if name not in known and table.column(name).density == "smooth"]
    drawn = [name for name in numbers if name not in (*known, *smooth)]
    parts = []
    if known:
        parts.append(f"from the values of a public table ({', '.join(known)})")
    if smooth:
        parts.append(f"along lines that follow the counts of neighbouring bins ({', '.join(smooth)})")
    if drawn:
        parts.append(f"with equal chance ({', '.join(drawn)})")
    return f"{told}Numbers within bins are drawn {' or '.join(parts)}."


def _place_in_bins(
    column: Column,
    codes: Whole,
    places: Floats,
    public: tuple[tuple[float, ...], ...] | None,
) -> NDArray[Any]:
    assert isinstance(column.domain, Bins)
    edges = column.domain.edges
    whole = all(edge.denominator == 1 for edge in edges) and max(map(abs, edges)) < 2**53
    if whole:
        ends = np.array([int(edge) for edge in edges], np.int64)
        first, count = _clip_outer_bins(ends)
        if count[-1] == ends[-1] - ends[-2]:
            count[-1] += 1  # the last bin holds its upper edge
        values = first[codes] + np.floor(places * count[codes]).astype(np.int64)
        return values if public is None else _replace_known(values, codes, places, public)
    ends = np.array([float(edge) for edge in edges])
    low, width = _clip_outer_bins(ends)
    digits = int(max(0, np.ceil(-np.log10(width.min() / _FINE))))
    numbers = low[codes] + places * width[codes]
    if digits <= 15:
        numbers = np.round(numbers, digits)
    last = codes == ends.size - 2
    highest = np.where(last, ends[codes + 1], np.nextafter(ends[codes + 1], -np.inf))
    numbers = np.clip(numbers, ends[codes], highest)
    return numbers if public is None else _replace_known(numbers, codes, places, public)


def _find_tilts(column: Column, codes: Whole) -> Floats:
    """Return for every bin how its density rises, from -1 (to nothing at its upper end) to 1 (from nothing).

    The density is a line within a bin that keeps the bin's count. Its slope is the smaller of those to the
    densities of both neighbours, or none between a rise and a fall (the minmod limiter of finite volumes),
    so that no bump appears that the counts do not have. An outer bin of which only a part is used stays
    even: it holds the numbers of the rest, too, and a line would move them further from where they are.
    """
    assert isinstance(column.domain, Bins)
    ends = np.array([float(edge) for edge in column.domain.edges])
    low, width = _clip_outer_bins(ends)
    bins = width.size
    height = np.bincount(codes[codes < bins], minlength=bins) / width
    if bins == 1:
        return np.zeros(1)
    slopes = np.diff(height) / np.diff(low + width / 2)
    before, after = np.append(slopes[0], slopes), np.append(slopes, slopes[-1])
    nearer = np.where(np.abs(before) < np.abs(after), before, after)
    slope = np.where(before * after > 0, nearer, 0.0)
    rise = np.divide(slope * width, 2 * height, out=np.zeros(bins), where=height > 0)
    return np.where(width < np.diff(ends), 0.0, np.clip(rise, -1.0, 1.0))


def _tilt_places(places: Floats, tilts: Floats) -> Floats:
    """Return places in [0, 1) with the density 1 + tilt (2 place - 1), from evenly spread ones."""
    level = 1 - tilts
    root = level + np.sqrt(level**2 + 4 * tilts * places)
    tilted = np.divide(2 * places, root, out=np.zeros_like(places), where=root > 0)
    return np.minimum(tilted, np.nextafter(1.0, 0.0))


def _clip_outer_bins(ends: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The lower end of every bin, and its width; the outer bins are as wide as their neighbours at most."""
    low, width = ends[:-1].copy(), np.diff(ends)
    if width.size > 1:
        if width[0] > width[1]:
            low[0] += width[0] - width[1]
            width[0] = width[1]
        width[-1] = min(width[-1], width[-2])
    return low, width


def _replace_known(
    values: NDArray[Any],
    codes: Whole,
    places: Floats,
    public: tuple[tuple[float, ...], ...],
) -> NDArray[Any]:
    sizes = np.array([len(each) for each in public], np.int64)
    starts = np.cumsum(sizes) - sizes
    flat = np.array([value for each in public for value in each], values.dtype)
    if flat.size:
        known = sizes[codes] > 0
        chosen = starts[codes] + np.floor(places * sizes[codes]).astype(np.int64)
        values[known] = flat[chosen[known]]
    return values


_TYPES = {
    "boolean": "it must be one of the columns, with values true and false, and nullable if it can be missing",
    "date": "it must be a column with a range of dates, or one whose year and month, as `period`, are among "
    "the columns, under other names than its own",
    "timestamp": "its year, month and hour must be among the columns, each a `period` under another name",
}
