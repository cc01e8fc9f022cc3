"""Reads dates that are written as text: the only module that does.

A constant of a statement, a project file or a client and a column of a public table are read here in Python.
A cell of a private table is read by an expression of the engine, which is total: it gives a moment or NULL
and never raises, whatever the text of a record says. Constants with a zone are moved to UTC; a cell keeps
the hour that it spells.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH_FORMATS = {"epoch": 1, "epoch_ms": 1000}
"""Formats that count from 1970, and how many steps of each make a second."""

_MOMENT = re.compile(
    r"\s*(\d{4})([-/])(\d{1,2})\2(\d{1,2})"
    r"(?:[T ]\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?)?"
    r"\s*(Z|UTC|[+-]\d{2}(?::?\d{2})?)?\s*",
    re.IGNORECASE,
)


def read_moment(text: str, *, local: bool = False) -> date | datetime | None:
    """Return the date or the moment that a text spells, or None if it spells none.

    A moment is moved from its zone to UTC, or with `local` keeps the hour that is written.

    >>> read_moment("2025-02-01 +00"), read_moment("2025-01-01T01:00:00+01:00")
    (datetime.date(2025, 2, 1), datetime.datetime(2025, 1, 1, 0, 0))
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, _, month, day, hour, minute, second, part, zone = match.groups()
    try:
        found = date(int(year), int(month), int(day))
        if hour is None:
            return found  # a zone behind a date says where it was written, not when
        clock = time(int(hour), int(minute), int(second or 0), int((part or "0").ljust(6, "0")[:6]))
        moment = datetime.combine(found, clock)
        if zone is not None and zone.upper() not in ("Z", "UTC"):
            digits = zone[1:].replace(":", "").ljust(4, "0")
            shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            # A shift of a day or more is no zone, whether or not it is applied.
            there = moment.replace(tzinfo=timezone(shift if zone[0] == "+" else -shift))
            moment = moment if local else there.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return moment


def is_dated(text: str) -> bool:
    """Return whether a text has the form of a date or a moment, even of one that does not exist."""
    return _MOMENT.fullmatch(text) is not None


def read_day(text: str) -> date | None:
    """Return the day that a text spells, alone or with an hour behind it, or None.

    >>> read_day("2025-01-31T23:00:00-05:00"), read_day("January")
    (datetime.date(2025, 1, 31), None)
    """
    found = read_moment(text, local=True)
    return found.date() if isinstance(found, datetime) else found


def read_formatted(text: str, form: str) -> datetime:
    """Return the moment that a text spells in a format of strptime; raises ValueError if it spells none."""
    moment = datetime.strptime(text, form)
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment


def read_column(values: pa.ChunkedArray, form: str) -> pa.ChunkedArray:
    """Return the moments that a column of public text spells in a format of strptime, null where none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Arrow's own strptime takes 31 February for 3 March, so each distinct text is read by itself.
    texts = values.unique()
    moments: dict[str | None, datetime | None] = dict.fromkeys(texts.to_pylist())
    for text in moments:
        if text is not None:
            with suppress(ValueError):
                moments[text] = read_formatted(text, form)
    return pa.array(list(moments.values()), pa.timestamp("us")).take(pc.index_in(values, value_set=texts))


def format_label(calendar: str) -> str:
    """Return the strftime format of the labels of the days, weeks or months of a calendar."""
    return "%Y-%m" if calendar == "month" else "%Y-%m-%d"


def moment_cell(cell: str, *, text: bool) -> str:
    """Return the SQL for the moment in a stored `cell`, which holds a moment or a text."""
    moment = f"TRY_CAST({cell} AS TIMESTAMP)"
    if not text:
        return moment
    # After "+01:" at the end DuckDB looks at one character more, which is of another record.
    return f"CASE WHEN NOT ends_with({cell}, ':') THEN {moment} END"


def formatted_cell(cell: str, form: str) -> str:
    """Return the SQL for the moment in a cell of text that is written in a format of strptime."""
    quoted = form.replace("'", "''")
    return f"try_strptime({cell}, '{quoted}')"


def epoch_cell(number: str, form: str) -> str:
    """Return the SQL for the moment that a cell's number counts from 1970, in the steps of `form`."""
    step = 10**6 // EPOCH_FORMATS[form]
    # Outside of these years make_timestamp raises.
    within = f"{number} BETWEEN {-(6 * 10**16) // step} AND {25 * 10**16 // step}"
    return f"CASE WHEN {within} THEN make_timestamp(CAST({number} * {step} AS BIGINT)) END"


def label_cell(moment: str, calendar: str) -> str:
    """Return the SQL for the label of the day, week or month that a moment is in."""
    # Labels have years of four digits, and the very first moment has no month that DuckDB can name.
    return (
        f"CASE WHEN {moment} BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999' "
        f"THEN strftime(date_trunc('{calendar}', {moment}), '{format_label(calendar)}') END"
    )
