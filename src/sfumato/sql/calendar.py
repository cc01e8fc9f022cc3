"""The calendar: periods of time, the moments at which they begin, and how dates are written.

All of it is arithmetic in Python over public constants. Moments are in UTC, weeks begin on Monday.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

SECONDS: dict[str, int] = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
"""Periods of one length, in seconds."""

MONTHS: dict[str, int] = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
"""Periods of whole months."""

EPOCH = datetime(1970, 1, 1)
MONDAY = datetime(1970, 1, 5)

# What to_char and to_timestamp of PostgreSQL call what strftime calls otherwise; longest first.
_TOKENS = {
    "HH24": "%H",
    "HH12": "%I",
    "YYYY": "%Y",
    "IYYY": "%G",
    "MONTH": None,
    "FMDAY": "%A",
    "FMMONTH": "%B",
    "MON": "%b",
    "DAY": None,
    "DDD": "%j",
    "DY": "%a",
    "MM": "%m",
    "MI": "%M",
    "DD": "%d",
    "SS": "%S",
    "US": "%f",
    "YY": "%y",
    "IW": "%V",
    "ID": "%u",
    "AM": "%p",
    "PM": "%p",
    "HH": "%I",
    "TZH": None,
    "Q": "%q",
}
_TOKEN = re.compile(
    r'"[^"]*"|' + "|".join(sorted(_TOKENS, key=len, reverse=True)) + r"|MS|[^A-Za-z\"]|T|Z",
    re.IGNORECASE,
)
_FINEST: dict[str, str] = {
    **dict.fromkeys("Yy", "year"),
    "q": "quarter",
    **dict.fromkeys("mbB", "month"),
    **dict.fromkeys("GV", "week"),
    **dict.fromkeys("djaAuw", "day"),
    **dict.fromkeys("HIp", "hour"),
    "M": "minute",
    "S": "second",
}


def read_format(form: str) -> str:
    """A format of to_char and to_timestamp as one of strftime; raises ValueError if there is none.

    >>> read_format("YYYY-MM-DD HH24:MI:SS.US")
    '%Y-%m-%d %H:%M:%S.%f'
    """
    written, place = [], 0
    while place < len(form):
        match = _TOKEN.match(form, place)
        if match is None:
            raise ValueError
        token = match[0]
        known = _TOKENS.get(token.upper(), token.strip('"').replace("%", "%%"))
        if known is None or token.upper() == "MS":
            raise ValueError
        written.append(known)
        place = match.end()
    return "".join(written)


def format_unit(form: str) -> str:
    """The period that a format of strftime tells apart: the longest in which it stays one text.

    >>> format_unit("%Y-%m")
    'month'
    """
    units = []
    for name in re.findall(r"%(.)", form):
        if name == "%":
            continue
        if name not in _FINEST:
            raise ValueError
        units.append(_FINEST[name])
    unit = units[0] if units else "year"
    for other in units[1:]:
        unit = common_unit(unit, other)
    return unit


def write_moment(moment: datetime, form: str) -> str:
    """A moment by a format of strftime, in which %q is the quarter."""
    return moment.strftime(form.replace("%q", str((moment.month - 1) // 3 + 1)))


def common_unit(one: str, other: str) -> str:
    """The longest period whose cells are cut by neither of two others.

    >>> common_unit("week", "month")
    'day'
    """
    if one == other or divides(one, other):
        return one
    return other if divides(other, one) else "day"


def divides(fine: str, coarse: str) -> bool:
    """Whether every period of `coarse` is made of whole periods of `fine`."""
    if fine in SECONDS and coarse in SECONDS:
        return SECONDS[coarse] % SECONDS[fine] == 0
    if fine in MONTHS:
        return coarse in MONTHS and MONTHS[coarse] % MONTHS[fine] == 0
    return fine != "week" and coarse in MONTHS


def truncate(moment: datetime, unit: str) -> datetime:
    """The beginning of the period that a moment is in; raises ValueError for an unknown one.

    >>> truncate(datetime(2025, 5, 17, 8), "quarter")
    datetime.datetime(2025, 4, 1, 0, 0)
    """
    if unit in SECONDS:
        start = MONDAY if unit == "week" else EPOCH
        return start + (moment - start) // timedelta(seconds=SECONDS[unit]) * timedelta(seconds=SECONDS[unit])
    if unit in ("decade", "century"):
        width = MONTHS[unit] // 12
        first = (moment.year - 1) // width * width + 1 if unit == "century" else moment.year // width * width
        return datetime(first, 1, 1)
    if unit not in MONTHS:
        raise ValueError
    place = (moment.year * 12 + moment.month - 1) // MONTHS[unit] * MONTHS[unit]
    return datetime(place // 12, place % 12 + 1, 1)


def list_periods(first: datetime, stop: datetime, unit: str) -> Iterator[datetime]:
    """The beginnings of all periods that meet the time from `first` to before `stop`."""
    moment = truncate(first, unit)
    while moment < stop:
        yield moment
        moment = next_period(moment, unit)


def count_periods(first: datetime, stop: datetime, unit: str) -> int:
    """The number of periods that meet the time from `first` to before `stop`."""
    start, last = truncate(first, unit), truncate(stop - timedelta(microseconds=1), unit)
    if unit in SECONDS:
        return (last - start) // timedelta(seconds=SECONDS[unit]) + 1
    return ((last.year - start.year) * 12 + last.month - start.month) // MONTHS[unit] + 1


def next_period(moment: datetime, unit: str) -> datetime:
    """The beginning of the next period."""
    if unit in SECONDS:
        return moment + timedelta(seconds=SECONDS[unit])
    place = moment.year * 12 + moment.month - 1 + MONTHS[unit]
    return datetime(place // 12, place % 12 + 1, 1)


def date_part(moment: datetime, part: str) -> int:
    """A part of a moment as a whole number; raises ValueError for an unknown one.

    >>> date_part(datetime(2025, 5, 17), "dow"), date_part(datetime(2025, 5, 17), "quarter")
    (6, 2)
    """
    match part:
        case "year" | "month" | "day" | "hour" | "minute" | "second":
            return int(getattr(moment, part))
        case "quarter":
            return (moment.month - 1) // 3 + 1
        case "dow" | "dayofweek":
            return moment.isoweekday() % 7
        case "isodow":
            return moment.isoweekday()
        case "doy" | "dayofyear":
            return moment.timetuple().tm_yday
        case "week" | "weekofyear":
            return moment.isocalendar().week
        case "isoyear":
            return moment.isocalendar().year
        case "epoch":
            return (moment - EPOCH) // timedelta(seconds=1)
    raise ValueError


def part_unit(part: str) -> str:
    """The longest period in which a part of a moment stays one number; ValueError for an unknown one."""
    known = {
        "year": "year",
        "quarter": "quarter",
        "month": "month",
        "hour": "hour",
        "minute": "minute",
        **dict.fromkeys(("second", "epoch"), "second"),
        **dict.fromkeys(("week", "weekofyear", "isoyear"), "week"),
        **dict.fromkeys(("day", "dow", "dayofweek", "isodow", "doy", "dayofyear"), "day"),
    }
    if part not in known:
        raise ValueError
    return known[part]


def to_moment(day: date) -> datetime:
    """The beginning of a day; a moment as it is."""
    return day if isinstance(day, datetime) else datetime.combine(day, time())


def to_days(moment: date) -> int:
    """The days from 1970 to a date."""
    return moment.toordinal() - EPOCH.toordinal()


def to_microseconds(moment: datetime) -> int:
    """The microseconds from 1970 to a moment."""
    return (moment - EPOCH) // timedelta(microseconds=1)
