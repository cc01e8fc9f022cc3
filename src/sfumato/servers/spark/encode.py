"""Spark SQL that turns a stored value into its code, or NULL where the domain does not hold it.

The codes are those of `encode`, bit for bit, and the expressions are as total: whatever a record holds, they
give a code or NULL and never raise. Spark reads other texts as numbers and moments than DuckDB, and writes
numbers and dates in other words; columns that ask for either are fetched (`is_plain`).

A column is encoded in steps, so that no expression grows out of hand. Before the last one a long list of
values is joined, which is faster than any expression. `SparkWords` spells in the same way what statements
aggregate there; moments are microseconds from 1970 in these.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np

from sfumato.core.engine.encode import Kind, Stored, encode_bins, encode_clamped, encode_range, refuse_period
from sfumato.core.engine.sealed import FIRST_MOMENT, LAST_MOMENT
from sfumato.core.facts.column import Column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values
from sfumato.servers.push.words import Pushed, PushedKind, UnpushedError, Words, is_long

_LAST_DAY = 106_751_991  # days from 1970 to either end of DuckDB's moments
_ENDLESS = 2**31 - 1  # days that DuckDB takes for infinity
_SAID = tomllib.loads(files("sfumato.servers").joinpath("spark.toml").read_text("utf-8"))
_KINDS: dict[str, Kind] = _SAID["kinds"]
_SEPARATOR = "\x1f"
_SHORT_LIST = 16  # a longer list of values is joined
_WHOLE = "CAST({} AS BIGINT)"


def describe_type(name: str) -> Stored:
    """The column of a type, by the name that Spark has for it; arrays, maps, structs, binary are `other`.

    >>> describe_type("decimal(12,2)")
    Stored(kind='number', is_identifier=True, type='decimal(12,2)', digits=(12, 2), zoned=False)
    """
    if re.fullmatch(r"(var)?char\(\d+\)", name):
        name = "string"
    is_decimal = name.startswith("decimal")
    kind: Kind = "number" if is_decimal else _KINDS.get(name, "other")
    exact = is_decimal or kind in ("integer", "text", "boolean") or name == "date"
    return Stored(kind, is_identifier=exact, type=name, digits=_digits(name) if is_decimal else None)


def quote_spark_name(name: str) -> str:
    """Returns `name` as a quoted identifier."""
    return "`" + name.replace("`", "``") + "`"


def quote_spark_text(text: str) -> str:
    """Returns `text` as a string literal."""
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


def part_of_moment(name: str, kind: str, part: str) -> str:
    """Returns the SQL for a part of a stored date or timestamp."""
    if kind == "date":
        inside = f"unix_date({name}) BETWEEN -{_LAST_DAY} AND {_LAST_DAY}"
        value = "0" if part == "hour" else _date_part(name, part)
    else:
        moment = name if kind == "timestamp" else f"CAST({name} AS TIMESTAMP)"
        inside = f"unix_micros({moment}) BETWEEN {FIRST_MOMENT} AND {LAST_MOMENT}"
        value = _date_part(moment, part)
    return f"CASE WHEN {inside} THEN {value} END"


@dataclass(frozen=True, slots=True)
class SparkEncoding:
    """The SQL of one column's code in two steps: `prepared` reads stored columns, `code` what was prepared.

    With `keys`, the code is the place of the prepared value in that list, and is looked up by a join.
    """

    prepared: str
    code: str
    keys: tuple[str, ...] | tuple[int, ...] | None = None


def code_type(size: int) -> str:
    """Returns the smallest type of Spark that holds codes below `size`."""
    for kind, most in (("TINYINT", 2**7), ("SMALLINT", 2**15), ("INT", 2**31)):
        if size <= most:
            return kind
    return "BIGINT"


def identify(name: str, column: Stored) -> str:
    """Returns the SQL for an individual, such that its text is the one that every engine has for it."""
    return text_of_identifier(quote_spark_name(name), column.type)


def encode_spark_column(
    column: Column, stored: Mapping[str, Stored], *, place: int, limit: int = 1000
) -> SparkEncoding:
    """Returns the encoding of `column`, whose prepared value is named p followed by `place`.

    Texts are cut at `limit` characters, as in a sealed table.
    """
    parts = [
        (
            f"left({quote_spark_name(name)}, {limit})"
            if stored[name].kind == "text"
            else quote_spark_name(name),
            stored[name],
        )
        for name in column.stored
    ]
    found = _encode(column, parts, f"p{place}")
    code, keys = found.code, found.keys
    if keys is not None:
        if len(keys) > _SHORT_LIST:
            code = f"k{place}_code"
        else:
            code, keys = _choose(f"p{place}", keys), None
    if column.outside == "other":
        code = f"COALESCE({code}, {column.size - 1})"
    return replace(found, code=f"CAST({code} AS {code_type(column.size)})", keys=keys)


def _digits(kind: str) -> tuple[int, int]:
    precision, scale = re.findall(r"\d+", kind)
    return int(precision), int(scale)


def _date_part(moment: str, part: str) -> str:
    return f"weekday({moment})" if part == "day_of_week" else f"{part}({moment})"


def _encode(column: Column, stored: list[tuple[str, Stored]], value: str) -> SparkEncoding:
    clamp = column.outside == "clamp"
    name, kind = stored[0]
    match column.domain:
        case Values(values) if isinstance(values[0], int):
            numbers = tuple(int(each) for each in values)
            low, high = numbers[0], numbers[0] + len(numbers) - 1
            if numbers == tuple(range(low, high + 1)):
                return SparkEncoding(_integer(name, kind), encode_range(value, low, high))
            return SparkEncoding(_integer(name, kind), "", numbers)
        case Values(values):
            texts = tuple(str(each) for each in values)
            return SparkEncoding(_text(name, kind), "", texts)
        case Tuples(values):
            written = [
                _text(part, part_kind)
                if isinstance(label, str)
                else f"CAST({_integer(part, part_kind)} AS STRING)"
                for (part, part_kind), label in zip(stored, values[0], strict=True)
            ]
            joined = f", {quote_spark_text(_SEPARATOR)}, ".join(written)
            keys = tuple(_SEPARATOR.join(map(str, each)) for each in values)
            return SparkEncoding(f"concat({joined})", "", keys)
        case Bins(edges):
            return SparkEncoding(_number(name, kind), encode_bins(value, edges, clamp=clamp, spell=_double))
        case IntegerRange(low, high):
            if clamp:
                return SparkEncoding(_number(name, kind), encode_clamped(value, low, high, code=_WHOLE))
            return SparkEncoding(_integer(name, kind), encode_range(value, low, high))
        case Period(part):
            span = column.domain.span
            refuse_period(kind.kind, column.name, part, name)
            low, high = span.low, span.high
            code = encode_clamped(value, low, high, code=_WHOLE) if clamp else encode_range(value, low, high)
            return SparkEncoding(part_of_moment(name, kind.type, part), code)
        case None:  # pragma: no cover - Table.column refuses a column without a domain
            raise AssertionError


def _choose(value: str, keys: tuple[str, ...] | tuple[int, ...]) -> str:
    cases = " ".join(
        f"WHEN {quote_spark_text(key) if isinstance(key, str) else key} THEN {code}"
        for code, key in enumerate(keys)
    )
    return f"CASE {value} {cases} END"


def _double(number: float) -> str:
    return f"CAST('{number!r}' AS DOUBLE)"


def _number(name: str, column: Stored) -> str:
    match column.kind:
        case "date" | "text" | "other":
            return "CAST(NULL AS DOUBLE)"
        case "integer" | "boolean":
            return f"CAST({name} AS DOUBLE)"
    if column.type.startswith("decimal"):
        return f"CAST({name} AS DOUBLE)"
    # NaN is not a number: without this it would compare as larger than every edge.
    return f"CASE WHEN NOT isnan({name}) THEN CAST({name} AS DOUBLE) END"


def _integer(name: str, column: Stored) -> str:
    if column.kind in ("date", "other"):
        return "CAST(NULL AS BIGINT)"
    if column.kind in ("integer", "boolean"):
        return f"CAST({name} AS BIGINT)"
    # A direct cast would cut 12.7 to 12, and 12 may be a value of the domain.
    value = _number(name, column)
    whole = f"abs({value}) <= {_double(2.0**53)} AND {value} = floor({value})"
    return f"CASE WHEN {whole} THEN CAST({value} AS BIGINT) END"


def _text(name: str, column: Stored) -> str:
    return name if column.kind == "text" else f"CAST({name} AS STRING)"


_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_ENDLESS_DAYS = 2**31 - 2
_FINAL_DAY = 106_751_990  # from 1970, where moments end
_NARROW = 2**22
"""What is added up of a record as it is, up to this: 2^40 records stay below 2^63."""


class SparkWords(Words):
    """Columns of a table that is read as `stored`."""

    double = "DOUBLE"
    whole = "BIGINT"
    divided = "DIV"

    def spell_unit(self, name: str, stored: Stored) -> str:
        """Returns an individual, NULL for nobody."""
        if stored.type not in (*_INTEGERS, "string", "boolean"):
            raise UnpushedError
        return quote_spark_name(name)

    def spell_raw(self, name: str, stored: Stored) -> Pushed:
        """Returns a stored value made plain."""
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
            case kind if kind in _INTEGERS:
                return Pushed(value, "integer")
            case _:
                raise UnpushedError

    def spell_whole(self, name: str, stored: Stored) -> Pushed:
        """Returns a stored whole number or truth value as a whole number."""
        if stored.type == "boolean":
            return Pushed(f"CAST({quote_spark_name(name)} AS BIGINT)", "integer", (0, 1), wide=True)
        if stored.type not in _INTEGERS:
            raise UnpushedError
        return Pushed(f"CAST({quote_spark_name(name)} AS BIGINT)", "integer")

    def spell_number(self, name: str, stored: Stored) -> Pushed:
        """A stored floating number made plain: NaN is missing, an infinity the largest number of its sign."""
        value = f"CAST({quote_spark_name(name)} AS DOUBLE)"
        if stored.digits is not None:
            if is_long(stored):
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
        if stored.type in (*_INTEGERS, "boolean"):
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
        """Returns a part of a stored date or moment, as a described column has it."""
        if stored.kind != "date" or (stored.type == "date" and part == "hour"):
            raise UnpushedError
        return Pushed(
            f"(CAST({part_of_moment(quote_spark_name(name), stored.type, part)} AS BIGINT))", "integer"
        )

    def spell_code(self, column: Column) -> str:
        """Returns the code of a column, as recipes count it."""
        found = encode_spark_column(column, self.stored, place=0, limit=self.table.text_limit)
        if found.keys is not None:
            raise UnpushedError
        return "(" + re.sub(r"\bp0\b", lambda _: f"({found.prepared})", found.code) + ")"

    def spell_part(self, value: str, kind: PushedKind, part: str) -> str:
        """Returns a part of a plain date or moment."""
        if part == "EPOCH_US" and kind == "date":
            days = f"CAST(unix_date({value}) AS BIGINT)"
            return f"(CASE WHEN {days} BETWEEN -{_FINAL_DAY} AND {_FINAL_DAY} THEN {days} * 86400000000 END)"
        if part == "EPOCH_US":
            return value
        moment = value if kind == "date" else f"timestamp_micros({value})"
        if part == "ISODOW":
            return f"CAST(weekday({moment}) + 1 AS BIGINT)"
        if part in ("DOW", "DAYOFWEEK"):
            return f"CAST(dayofweek({moment}) - 1 AS BIGINT)"
        return f"CAST({_SAID['functions'][part]}({moment}) AS BIGINT)"

    def spell_literal(self, text: str) -> str:
        """Returns a text in quotes."""
        return quote_spark_text(text)

    def spell_moment(self, microseconds: int) -> str:
        """Returns a moment, in microseconds from 1970."""
        return f"CAST({microseconds} AS BIGINT)"

    def spell_total(self, value: str, largest: int) -> str:
        """Returns the sum of whole numbers up to `largest`, which no number of records makes overflow."""
        return f"sum({value})" if largest <= _NARROW else f"sum(CAST({value} AS DECIMAL(20, 0)))"
