"""Generalised values: what a published cell may stand for, and which two cells may mean the same.

    170        this value, also written 170.0
    180-190    a number from 180 to 190, both included; dates too, 1950-01-01-1954-12-31, and moments
    60+        60 or more
    12*        a text that begins with 12, of any length
    a|b        one of several, each of them any of these
    *          anything; so is an empty cell

Numbers have no leading zeros: 06-07 is a day of the year and 02138 a code. Two cells are compatible if
some value fits both, which for an exact value is containment.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

_NUMBER = r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]\d+)?"
_DATE = r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d+)?)?"
_ONE = re.compile(_NUMBER, re.ASCII)
_SPAN = re.compile(rf"({_NUMBER})\s*-\s*({_NUMBER})", re.ASCII)
_OPEN = re.compile(rf"({_NUMBER})\s*\+", re.ASCII)
_DATES = re.compile(rf"({_DATE})\s*-\s*({_DATE})", re.ASCII)
_DAY = re.compile(_DATE, re.ASCII)
_PREFIX = re.compile(r"([^*]*)\*+")


@dataclass(frozen=True, slots=True)
class Pattern:
    """What one cell may stand for: an exact text, a range of numbers, a prefix, or one of several.

    Exactly one of `text`, `prefix` and `members` is given, or none for a range alone; an exact text
    that is a number or a date has the range of that one point too.
    """

    text: str | None = None
    low: float = math.inf
    high: float = -math.inf
    prefix: str | None = None
    members: tuple[Pattern, ...] = ()

    @property
    def has_range(self) -> bool:
        """Whether it is a number or a range of numbers."""
        return self.low <= self.high


ANY = Pattern(prefix="")
"""The pattern that fits everything."""


def parse_pattern(cell: str | None) -> Pattern:
    """The pattern that a published cell is.

    >>> parse_pattern("180-190")
    Pattern(text=None, low=180.0, high=190.0, prefix=None, members=())
    >>> parse_pattern("12*").prefix, parse_pattern("").prefix, parse_pattern("06-07").text
    ('12', '', '06-07')
    """
    text = "" if cell is None else cell.strip()
    if not text:
        return ANY
    if "|" in text:
        return _join(tuple(parse_pattern(part) for part in text.split("|") if part.strip()))
    return _parse_one(text)


def is_exact(pattern: Pattern) -> bool:
    """Whether the pattern is one value.

    >>> is_exact(parse_pattern("1001")), is_exact(parse_pattern("1*"))
    (True, False)
    """
    return pattern.text is not None


def compatible(first: Pattern, second: Pattern) -> bool:
    """Whether some value fits both.

    >>> compatible(parse_pattern("180-190"), parse_pattern("185"))
    True
    >>> compatible(parse_pattern("1*"), parse_pattern("6732"))
    False
    >>> compatible(parse_pattern("60+"), parse_pattern("50-70"))
    True
    """
    if first.members or second.members:
        return any(compatible(a, b) for a in first.members or (first,) for b in second.members or (second,))
    if first.prefix is not None and second.prefix is not None:
        return first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)
    if first.prefix is not None:
        return _begins(first.prefix, second)
    if second.prefix is not None:
        return _begins(second.prefix, first)
    if first.text is not None and first.text == second.text:
        return True
    return first.has_range and second.has_range and first.low <= second.high and second.low <= first.high


def _begins(prefix: str, other: Pattern) -> bool:
    """Whether the other, an exact text or a range, may begin so."""
    if not prefix:
        return True
    if other.text is not None:
        return other.text.startswith(prefix)
    return _range_begins(prefix, other.low, other.high)


def _range_begins(prefix: str, low: float, high: float) -> bool:
    """Whether a whole number from low to high begins with `prefix`; yes, where it cannot be told."""
    if not prefix.isdecimal() or prefix.startswith("0") or low < 0:
        return True
    if math.isinf(high):
        return True  # there is always a longer number
    start = int(prefix)
    scale = 1
    while start * scale <= high:
        if (start + 1) * scale > low:
            return True
        scale *= 10
    return False


def _parse_one(text: str) -> Pattern:
    if found := _PREFIX.fullmatch(text):
        return Pattern(prefix=found[1])
    if _ONE.fullmatch(text):
        return Pattern(text=_plain(text), low=float(text), high=float(text))
    if text in ("inf", "-inf"):
        return Pattern(text=text, low=float(text), high=float(text))
    if found := _OPEN.fullmatch(text):
        return Pattern(low=float(found[1]), high=math.inf)
    if found := _SPAN.fullmatch(text):
        low, high = float(found[1]), float(found[2])
        if low <= high:
            return Pattern(low=low, high=high)
    if _DAY.fullmatch(text) and (day := _ordinal(text)) is not None:
        return Pattern(text=_plain(text), low=day, high=day)
    if found := _DATES.fullmatch(text):
        first, last = _ordinal(found[1]), _ordinal(found[2])
        if first is not None and last is not None and first <= last:
            return Pattern(low=first, high=last)
    return Pattern(text=text)


def _plain(number: str) -> str:
    """The number without zeros that say nothing, so that 180.0 and 180 are one text."""
    if "e" in number:
        return number
    plain = number.rstrip("0").rstrip(".") if "." in number else number
    return "0" if plain == "-0" else plain


def _ordinal(text: str) -> float | None:
    """The day, counted from the year 1, and the part of it that has gone by."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    gone = timedelta(hours=moment.hour, minutes=moment.minute, seconds=moment.second)
    return moment.toordinal() + (gone.total_seconds() + moment.microsecond / 1e6) / 86_400


def _join(members: tuple[Pattern, ...]) -> Pattern:
    flat = tuple(dict.fromkeys(each for member in members for each in member.members or (member,)))
    if not flat or ANY in flat:
        return ANY
    return flat[0] if len(flat) == 1 else Pattern(members=flat)
