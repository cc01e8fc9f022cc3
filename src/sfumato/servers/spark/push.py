"""Statements that Spark aggregates: what DuckDB means, in Spark's words.

No expression here can raise, whatever a record holds. Moments are microseconds from 1970 here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.engine.sealed import FIRST_MOMENT, LAST_MOMENT
from sfumato.servers.push.words import Pushed, PushedKind, UnpushedError, Words
from sfumato.servers.spark.encode import (
    encode_spark_column,
    part_of_moment,
    quote_spark_name,
    quote_spark_text,
)

if TYPE_CHECKING:
    from sfumato.core.engine.source import Stored
    from sfumato.core.facts.column import Column

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_EXACT_DIGITS = 15
_ENDLESS_DAYS = 2**31 - 2
_LAST_DAY = 106_751_990  # from 1970, where moments end
_NARROW = 2**22
"""What is added up of a record as it is, up to this: 2^40 records stay below 2^63."""
_FUNCTIONS = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "DAY": "day",
    "DOY": "dayofyear",
    "HOUR": "hour",
    "MINUTE": "minute",
    "WEEK": "weekofyear",
    "WEEKOFYEAR": "weekofyear",
}


class SparkWords(Words):
    """Columns of a table that is read as `stored`."""

    double = "DOUBLE"
    whole = "BIGINT"
    divided = "DIV"

    def spell_unit(self, name: str, stored: Stored) -> str:
        """An individual, NULL for nobody."""
        if stored.type not in (*_WHOLE, "string", "boolean"):
            raise UnpushedError
        return quote_spark_name(name)

    def spell_raw(self, name: str, stored: Stored) -> Pushed:
        """A stored value made plain."""
        value = quote_spark_name(name)
        match stored.type:
            case "boolean":
                return Pushed(value, "boolean")
            case "double":
                return self.spell_number(name, stored)
            case "string":
                return self.spell_text(name, stored)
            case "date":
                finite = f"unix_date({value}) BETWEEN -{_ENDLESS_DAYS} AND {_ENDLESS_DAYS}"
                return Pushed(f"(CASE WHEN {finite} THEN {value} END)", "date")
            case "timestamp" | "timestamp_ntz":
                moment = value if stored.type == "timestamp" else f"CAST({value} AS TIMESTAMP)"
                micros = f"unix_micros({moment})"
                inside = f"{micros} BETWEEN {FIRST_MOMENT} AND {LAST_MOMENT}"
                return Pushed(f"(CASE WHEN {inside} THEN {micros} END)", "timestamp")
            case kind if kind in _WHOLE:
                return Pushed(value, "integer")
            case _:
                raise UnpushedError

    def spell_whole(self, name: str, stored: Stored) -> Pushed:
        """A stored whole number or truth value as a whole number."""
        if stored.type == "boolean":
            return Pushed(f"CAST({quote_spark_name(name)} AS BIGINT)", "integer", (0, 1), wide=True)
        if stored.type not in _WHOLE:
            raise UnpushedError
        return Pushed(f"CAST({quote_spark_name(name)} AS BIGINT)", "integer")

    def spell_number(self, name: str, stored: Stored) -> Pushed:
        """A stored floating number made plain: NaN is missing, an infinity the largest number of its sign."""
        value = f"CAST({quote_spark_name(name)} AS DOUBLE)"
        if stored.digits is not None:
            precision, scale = stored.digits
            if precision > _EXACT_DIGITS or not 0 <= scale <= precision:
                raise UnpushedError
            return Pushed(value, "double")
        if stored.type not in ("float", "double"):
            raise UnpushedError
        most = float(np.finfo(np.float64 if stored.type == "double" else np.float32).max)
        high, low = self.spell_double(most), self.spell_double(-most)
        # Adding zero turns the negative zero into zero, which a list of constants would not find.
        plain = (
            f"(CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} + {self.spell_double(0.0)} "
            f"WHEN {value} < {low} THEN {low} WHEN {value} > {high} AND NOT isnan({value}) THEN {high} END)"
        )
        return Pushed(plain, "double")

    def spell_text(self, name: str, stored: Stored) -> Pushed:
        """The text of a stored text or whole number, cut as in a sealed table, compared by its bytes."""
        value = quote_spark_name(name)
        if stored.type in (*_WHOLE, "boolean"):
            return Pushed(f"CAST({value} AS STRING)", "text")
        if stored.type != "string":
            raise UnpushedError
        return Pushed(f"left(make_valid_utf8({value}), {self.table.text_limit})", "text")

    def spell_label(self, name: str, stored: Stored) -> str:
        """As `spell_text`, for a comparison with labels: a text that is not UTF-8 is none of them."""
        if stored.type != "string":
            return self.spell_text(name, stored).sql
        return f"left({quote_spark_name(name)}, {self.table.text_limit})"

    def spell_period(self, name: str, stored: Stored, part: str) -> Pushed:
        """A part of a stored date or moment, as a described column has it."""
        if stored.kind != "date" or (stored.type == "date" and part == "hour"):
            raise UnpushedError
        return Pushed(
            f"(CAST({part_of_moment(quote_spark_name(name), stored.type, part)} AS BIGINT))", "integer"
        )

    def spell_code(self, column: Column) -> str:
        """The code of a column, as recipes count it."""
        found = encode_spark_column(column, self.stored, place=0, limit=self.table.text_limit)
        if found.keys is not None or found.refined != "p0":
            raise UnpushedError
        return "(" + re.sub(r"\bp0\b", lambda _: f"({found.prepared})", found.code) + ")"

    def spell_part(self, value: str, kind: PushedKind, part: str) -> str:
        """A part of a plain date or moment."""
        if part == "EPOCH_US" and kind == "date":
            days = f"CAST(unix_date({value}) AS BIGINT)"
            return f"(CASE WHEN {days} BETWEEN -{_LAST_DAY} AND {_LAST_DAY} THEN {days} * 86400000000 END)"
        if part == "EPOCH_US":
            return value
        moment = value if kind == "date" else f"timestamp_micros({value})"
        if part == "ISODOW":
            return f"CAST(weekday({moment}) + 1 AS BIGINT)"
        if part in ("DOW", "DAYOFWEEK"):
            return f"CAST(dayofweek({moment}) - 1 AS BIGINT)"
        return f"CAST({_FUNCTIONS[part]}({moment}) AS BIGINT)"

    def spell_literal(self, text: str) -> str:
        """A text in quotes."""
        return quote_spark_text(text)

    def spell_moment(self, microseconds: int) -> str:
        """A moment, in microseconds from 1970."""
        return f"CAST({microseconds} AS BIGINT)"

    def spell_total(self, value: str, largest: int) -> str:
        """The sum of whole numbers up to `largest`, which no number of records makes overflow."""
        return f"sum({value})" if largest <= _NARROW else f"sum(CAST({value} AS DECIMAL(20, 0)))"
