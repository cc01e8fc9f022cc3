r"""The types of Spark's columns, and SQL that reads them as DuckDB would.

The two patterns say which texts DuckDB takes for a number and for a moment. They were found by trying, and
tests try them again on texts made by chance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.engines.source import Kind

# Possessive (++ and *+), so that a long text is matched in a loop and not by recursion.
_DIGITS = r"[0-9]++(?:_[0-9]++)*+"
_POINT = r"\.(?!(?:[0-9]{8})+_)"  # DuckDB reads digits by eight, and no underscore right after them
NUMBER = (
    rf"^\s*+\+?-?(?:(?:{_DIGITS}(?:{_POINT}(?:{_DIGITS})?+)?+|{_POINT}{_DIGITS})(?:[eE][+-]?{_DIGITS})?+"
    r"|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?+)\s*+\z"
)
"""What DuckDB reads as a number, but for NaN, which is none."""

_MONTH_DAY = r"([-/\\ ])(0?[1-9]|1[0-2])\{}(0?[1-9]|[12][0-9]|3[01])"
_DATE = (
    rf"(?:(-?)0*([0-9]{{1,6}}){_MONTH_DAY.format(4)}"
    rf"|0*([1-9][0-9]{{0,5}}){_MONTH_DAY.format(8)}(\s\([bB][cC]\)))"
)
_CLOCK = (
    r"(?:0{0,8}([01]?[0-9]|2[0-3]):(?:[0-5]?[0-9](?::(?:[0-5]?[0-9](?:\.[0-9]*)?)?)?)?"
    r"|0{0,8}(24):(?:00?(?::(?:00?(?:\.0{0,6}|\.0{6}[0-9]*)?)?)?)?)"
)
_ZONE = (
    r"(?: ?Z\s*| ?[+-][0-9]{2}(?::?[0-9]{2}|:[0-9]{2}:[0-9]{2})?\s*"
    r"|(?:[+-][0-9]{2}:(?:[0-9]{2}:)?)? [A-Za-z0-9/_+:-]*\s*)?"
)
MOMENT = rf"^\s*(?:-?([eE][pP][oO][cC][hH])\s*|{_DATE}(?:[T\s]\s*{_CLOCK}{_ZONE})?)(?<!:)\z"
"""What DuckDB reads as a timestamp, but for infinity and days that a month does not have.

The zone is left out of account, as it does. A colon at the end is refused, as `encode` does.
"""

_LATE = (
    r"^\s*0*294247[-/\\ ]0?1[-/\\ ]10[T\s]\s*0*(?:[5-9]|1[0-9]|2[0-4]|4:0?[1-9]|4:[1-5][0-9]|4:00?:5[5-9]"
    r"|4:00?:54\.(?:77580[7-9]|7758[1-9]|7759|77[6-9]|7[89]|[89]))"
)
"""Moments of the last day that are later than DuckDB's last, 04:00:54.775806."""

_FIELDS = "$1|$2$3|$5|$6|$7|$9|$10|$12|$13"

_FAR, _FARTHER = -60_000_000_000_000_000, 250_000_000_000_000_000  # as `source` has them, in microseconds
_LAST_DAY = 106_751_991  # days from 1970 to either end of DuckDB's moments
_ENDLESS = 2**31 - 1  # days that DuckDB takes for infinity
_EXACT = 2**53

_KINDS: dict[str, Kind] = {
    "tinyint": "integer",
    "smallint": "integer",
    "int": "integer",
    "bigint": "integer",
    "float": "number",
    "double": "number",
    "string": "text",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "date",
    "timestamp_ntz": "date",
}


@dataclass(frozen=True, slots=True)
class SparkColumn:
    """A stored column: its kind, Spark's name of its type, and whether its values can name individuals."""

    kind: Kind
    type: str
    is_identifier: bool = False


def describe_type(name: str) -> SparkColumn:
    """The column of a type, by the name that Spark has for it; arrays, maps, structs, binary are `other`.

    >>> describe_type("decimal(12,2)")
    SparkColumn(kind='number', type='decimal(12,2)', is_identifier=True)
    """
    if re.fullmatch(r"(var)?char\(\d+\)", name):
        name = "string"
    is_decimal = name.startswith("decimal")
    kind: Kind = "number" if is_decimal else _KINDS.get(name, "other")
    exact = is_decimal or kind in ("integer", "text", "boolean") or name == "date"
    return SparkColumn(kind, name, is_identifier=exact)


def quote_spark_name(name: str) -> str:
    """`name` as a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def quote_spark_text(text: str) -> str:
    """`text` as a string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def text_of_identifier(name: str, kind: str) -> str:
    """The SQL for an individual: as it is where its text is the same everywhere, else as DuckDB's text."""
    if kind.startswith("decimal"):
        precision, scale = _digits(kind)
        # Without digits before the point, DuckDB writes no zero there.
        text = f"CAST({name} AS STRING)"
        return f"regexp_replace({text}, '^(-?)0', '$1')" if precision == scale else text
    if kind != "date":
        return name
    year = f"CAST(1 - year({name}) AS STRING)"
    return (
        f"CASE WHEN unix_date({name}) = {_ENDLESS} THEN 'infinity' "
        f"WHEN unix_date({name}) = -{_ENDLESS} THEN '-infinity' "
        f"WHEN year({name}) > 9999 THEN substring(CAST({name} AS STRING), 2) "
        f"WHEN year({name}) > 0 THEN CAST({name} AS STRING) "
        f"ELSE concat(lpad({year}, greatest(4, length({year})), '0'), "
        f"right(CAST({name} AS STRING), 6), ' (BC)') END"
    )


def number_of_decimal(name: str, kind: str) -> str:
    """The double nearest to a decimal, as DuckDB finds it: whole and fraction apart where it is long."""
    precision, scale = _digits(kind)
    plain = f"CAST({name} AS DOUBLE)"
    if precision <= 15 or scale == 0:
        return plain
    whole = f"(CASE WHEN {name} < 0 THEN ceil({name}) ELSE floor({name}) END)"
    digits = f"{_EXACT:0{scale + 1}d}"
    exact = f"{digits[:-scale]}.{digits[-scale:]}"
    return (
        f"CASE WHEN abs({name}) <= CAST('{exact}' AS DECIMAL(38,{scale})) THEN {plain} "
        f"ELSE CAST({whole} AS DOUBLE) + CAST({name} - {whole} AS DOUBLE) END"
    )


def _digits(kind: str) -> tuple[int, int]:
    precision, scale = re.findall(r"\d+", kind)
    return int(precision), int(scale)


def part_of_moment(name: str, kind: str, part: str) -> str:
    """The SQL for a part of a stored date or timestamp."""
    if kind == "date":
        inside = f"unix_date({name}) BETWEEN -{_LAST_DAY} AND {_LAST_DAY}"
        value = "0" if part == "hour" else _part(name, part)
    else:
        moment = name if kind == "timestamp" else f"CAST({name} AS TIMESTAMP)"
        inside = f"unix_micros({moment}) BETWEEN {_FAR} AND {_FARTHER}"
        value = _part(moment, part)
    return f"CASE WHEN {inside} THEN {value} END"


def split_moment(name: str) -> str:
    """The SQL for the fields of a text that is a moment, as an array of texts; NULL for any other text."""
    pattern = quote_spark_text(MOMENT)
    fields = f"split(regexp_replace({name}, {pattern}, '{_FIELDS}'), '[|]')"
    late = f"{name} RLIKE {quote_spark_text(_LATE)}"
    return f"CASE WHEN {name} RLIKE {pattern} AND NOT {late} THEN {fields} END"


def part_of_text(fields: str, part: str) -> str:
    """The SQL for a part of the moment in the array `fields` of `split_moment`."""

    def number(*places: int) -> str:
        # A month or day that is not there must not fail, even where it is not asked for.
        texts = ", ".join(f"nullif({fields}[{place}], '')" for place in places)
        return f"CAST(coalesce({texts}, '{len(places) - 1}') AS INT)"

    year = f"(CASE WHEN {fields}[4] = '' THEN {number(1)} ELSE 1 - {number(4)} END)"
    first = f"make_date({year}, {number(2, 5)}, 1)"
    day = f"date_add({first}, {number(3, 6)} - 1)"
    # Midnight may be written as 24:00, and is the beginning of the next day.
    date = f"date_add({first}, {number(3, 6)} - CASE WHEN {fields}[8] = '' THEN 1 ELSE 0 END)"
    value = number(7) if part == "hour" else _part(date, part)
    valid = f"{fields} IS NOT NULL AND day({day}) = {number(3, 6)} AND abs(unix_date({date})) <= {_LAST_DAY}"
    epoch = {"year": 1970, "month": 1, "day_of_week": 3, "hour": 0}[part]
    return f"CASE WHEN {fields}[0] <> '' THEN {epoch} WHEN {valid} THEN {value} END"


def _part(moment: str, part: str) -> str:
    return f"weekday({moment})" if part == "day_of_week" else f"{part}({moment})"
