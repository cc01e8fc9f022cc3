"""Which columns are drawn as places and as time, if nobody says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sfumato.errors import RecipeError

if TYPE_CHECKING:
    from sfumato.report.facts import Facts
    from sfumato.report.fields import Field

_TIMES = frozenset(
    [
        "date",
        "day",
        "hour",
        "minute",
        "month",
        "period",
        "quarter",
        "season",
        "shift",
        "time",
        "week",
        "weekday",
        "year",
        "yearmonth",
    ]
)
_PLACES = frozenset(
    [
        "area",
        "borough",
        "city",
        "commune",
        "county",
        "district",
        "geo",
        "municipality",
        "neighborhood",
        "neighbourhood",
        "place",
        "postcode",
        "precinct",
        "province",
        "puma",
        "region",
        "state",
        "station",
        "tract",
        "ward",
        "zip",
        "zipcode",
        "zone",
    ]
)
_MOST_TIMES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """The column of places and the column of time, where there are such; `given` tells who chose."""

    place: Field | None
    time: Field | None
    given: bool = False


def choose_axes(facts: Facts, *, place: str | None = None, time: str | None = None) -> Axes:
    """The columns to draw as places and as time: the ones given, or the likeliest.

    Time is a column with a period, a combination that holds a year or a month, or one with such a name.
    The place is the largest column with a name like a place's, else the largest that is not cut into
    bins.
    """
    when = _find(facts, time, option="--time") if time else next(filter(_is_time, facts.shown), None)
    where = _find(facts, place, option="--place") if place else None
    if where is None:
        others = [field for field in facts.shown if field is not when and field.kind != "bins"]
        others = [field for field in others if not _is_time(field) or field.name == place]
        named = [field for field in others if _tokens(field.name) & _PLACES and field.size > 2]
        where = max(named or others, key=lambda field: field.size, default=None)
    if when is where and not (place or time):
        when = None
    return Axes(place=where, time=when, given=bool(place))


def _find(facts: Facts, name: str, *, option: str) -> Field:
    for field in facts.shown:
        if name == field.name or name in field.released:
            return field
    known = ", ".join(field.name for field in facts.shown[:30]) or "none"
    raise RecipeError(
        f"{option} names {name!r}, which is no described column of the release (described: {known})"
    )


def _is_time(field: Field) -> bool:
    if field.size > _MOST_TIMES:
        return False
    if field.kind == "period" or (field.kind == "combinations" and {"year", "month"} & set(field.released)):
        return True
    words = _words(field.name)
    return bool(words) and "per" not in words and words[-1] in _TIMES


def _tokens(name: str) -> set[str]:
    return set(_words(name))


def _words(name: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return [word for word in re.split(r"[^a-z]+", spaced.lower()) if word]
