r"""Spark SQL that turns a stored value into its code, or NULL where the domain does not hold it.

The codes are those of `encode`, bit for bit, and the expressions are as total: whatever a record holds, they
give a code or NULL and never raise. Spark reads fewer and other texts as numbers and moments than DuckDB, so
that patterns decide what is one; and it writes numbers and dates in other words, so that a listed text
is turned into the value that DuckDB would write that way, and values are compared.

A column is encoded in steps, so that no expression grows out of hand. Before the last one a long list of
values is joined, which is faster than any expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from sfumato.engines.clean import UNSTORED
from sfumato.engines.encode import encode_bins, encode_clamped, encode_range
from sfumato.engines.spark_types import (
    NUMBER,
    SparkColumn,
    number_of_decimal,
    part_of_moment,
    part_of_text,
    quote_spark_name,
    quote_spark_text,
    split_moment,
    text_of_identifier,
)
from sfumato.errors import SourceError
from sfumato.schema import Bins, IntegerRange, Period, Tuples, Values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from sfumato.schema import Column

_SEPARATOR = "\x1f"
_SHORT_LIST = 16
_WHOLE = "CAST({} AS BIGINT)"
_UNREAD = r"[_\s]|^\s*\+"
_FAR, _FARTHER = -60_000_000_000_000_000, 250_000_000_000_000_000  # moments that are read, as in `source`


@dataclass(frozen=True, slots=True)
class SparkEncoding:
    """The SQL of one column's code in steps, each from what the step before it named.

    `prepared` reads stored columns, `refined` what was prepared, `code` what was refined. With `keys`, the
    code is the place of the refined value in that list, and is looked up by a join.
    """

    prepared: str
    refined: str
    code: str
    keys: tuple[str, ...] | tuple[int, ...] | None = None


def code_type(size: int) -> str:
    """The smallest type of Spark that holds codes below `size`."""
    for kind, most in (("TINYINT", 2**7), ("SMALLINT", 2**15), ("INT", 2**31)):
        if size <= most:
            return kind
    return "BIGINT"


def identify(name: str, column: SparkColumn) -> str:
    """The SQL for an individual, such that its text is the one that every engine has for it."""
    return text_of_identifier(quote_spark_name(name), column.type)


def encode_spark_column(
    column: Column, stored: Mapping[str, SparkColumn], *, place: int, limit: int = 1000
) -> SparkEncoding:
    """The encoding of `column`, whose prepared value is named p followed by `place`.

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
    prepared, refined, code, keys = _encode(column, parts, f"p{place}")
    if keys is not None:
        if len(keys) > _SHORT_LIST:
            code = f"k{place}_code"
        else:
            code, keys = _choose(f"p{place}", keys), None
    if column.outside == "other":
        code = f"COALESCE({code}, {column.size - 1})"
    return SparkEncoding(prepared, refined, f"CAST({code} AS {code_type(column.size)})", keys)


def _encode(
    column: Column, stored: list[tuple[str, SparkColumn]], value: str
) -> tuple[str, str, str, tuple[str, ...] | tuple[int, ...] | None]:
    clamp = column.outside == "clamp"
    name, kind = stored[0]
    match column.domain:
        case Values(values) if isinstance(values[0], int):
            numbers = tuple(int(each) for each in values)
            low, high = numbers[0], numbers[0] + len(numbers) - 1
            if numbers == tuple(range(low, high + 1)):
                return _integer(name, kind), value, encode_range(value, low, high), None
            return _integer(name, kind), value, "", numbers
        case Values(values):
            texts = tuple(str(each) for each in values)
            return _text(name, kind, texts), value, "", texts
        case Tuples(values):
            written = [
                _text(part, part_kind, tuple(dict.fromkeys(str(each[place]) for each in values)))
                if isinstance(values[0][place], str)
                else f"CAST({_integer(part, part_kind)} AS STRING)"
                for place, (part, part_kind) in enumerate(stored)
            ]
            joined = f", {quote_spark_text(_SEPARATOR)}, ".join(written)
            return f"concat({joined})", value, "", tuple(_SEPARATOR.join(map(str, each)) for each in values)
        case Bins(edges):
            return _number(name, kind), value, encode_bins(value, edges, clamp=clamp, double=_double), None
        case IntegerRange(low, high):
            if clamp:
                return _number(name, kind), value, encode_clamped(value, low, high, code=_WHOLE), None
            return _integer(name, kind), value, encode_range(value, low, high), None
        case Period(part):
            span = column.domain.span
            prepared, refined = _part(name, kind, part, value, column=column.name)
            low, high = span.low, span.high
            code = encode_clamped(value, low, high, code=_WHOLE) if clamp else encode_range(value, low, high)
            return prepared, refined, code, None
        case None:  # pragma: no cover - Table.column refuses a column without a domain
            raise AssertionError


def _choose(value: str, keys: tuple[str, ...] | tuple[int, ...]) -> str:
    cases = " ".join(
        f"WHEN {quote_spark_text(key) if isinstance(key, str) else key} THEN {code}"
        for code, key in enumerate(keys)
    )
    return f"CASE {value} {cases} END"


def _double(edge: Fraction | float) -> str:
    return f"CAST('{float(edge)!r}' AS DOUBLE)"


def _number(name: str, column: SparkColumn) -> str:
    match column.kind:
        case "date" | "other":
            return "CAST(NULL AS DOUBLE)"
        case "text":
            # What the pattern lets through is cleaned of signs and spaces that only DuckDB reads.
            cleaned = f"regexp_replace({name}, {quote_spark_text(_UNREAD)}, '')"
            return f"CASE WHEN {name} RLIKE {quote_spark_text(NUMBER)} THEN try_cast({cleaned} AS DOUBLE) END"
        case "integer" | "boolean":
            return f"CAST({name} AS DOUBLE)"
    if column.type.startswith("decimal"):
        return number_of_decimal(name, column.type)
    # NaN is not a number: without this it would compare as larger than every edge.
    return f"CASE WHEN NOT isnan({name}) THEN CAST({name} AS DOUBLE) END"


def _integer(name: str, column: SparkColumn) -> str:
    if column.kind in ("date", "other"):
        return "CAST(NULL AS BIGINT)"
    if column.kind in ("integer", "boolean"):
        return f"CAST({name} AS BIGINT)"
    # A direct cast would cut 12.7 to 12, and 12 may be a value of the domain.
    value = _number(name, column)
    whole = f"abs({value}) <= {_double(2.0**53)} AND {value} = floor({value})"
    return f"CASE WHEN {whole} THEN CAST({value} AS BIGINT) END"


def _text(name: str, column: SparkColumn, wanted: Sequence[str]) -> str:
    """The text of a value as DuckDB writes it, if it is among the `wanted` ones."""
    if column.kind == "text":
        return name
    if column.kind in ("integer", "boolean"):
        return f"CAST({name} AS STRING)"
    if column.kind == "other":
        return "CAST(NULL AS STRING)"
    value = name
    if column.type in ("float", "double"):
        most = (
            f"CAST('{np.finfo(np.float32 if column.type == 'float' else np.float64).max!s}' AS {column.type})"
        )
        value = f"CASE WHEN NOT isnan({name}) THEN greatest(least({name}, {most}), -{most}) END"
        wanted = [text for text in wanted if text not in UNSTORED]
    elif column.type == "date":
        value = f"unix_date({name})"
    elif column.kind == "date":
        value = _micros(name, column)
    cases = "".join(
        f" WHEN {value} = {literal} THEN {quote_spark_text(text)}"
        for text, literal in _literals(wanted, column.type)
    )
    return f"CASE{cases} END" if cases else "CAST(NULL AS STRING)"


def _literals(texts: Sequence[str], kind: str) -> list[tuple[str, str]]:
    """The texts that DuckDB writes for some value of type `kind`, each with that value in Spark's SQL."""
    moment = ("TIMESTAMP", "epoch_us(v)", "isfinite(v)")
    literals = {
        "timestamp": moment,
        "timestamp_ntz": moment,
        "date": ("DATE", "v - DATE '1970-01-01'", "isfinite(v)"),
    }
    in_duckdb, literal, finite = literals.get(kind, (kind, "t", "true"))
    values = f"SELECT t, TRY_CAST(t AS {in_duckdb}) AS v FROM (SELECT unnest(?::VARCHAR[]) AS t)"
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT t, CAST({literal} AS VARCHAR) FROM ({values}) WHERE CAST(v AS VARCHAR) = t AND {finite}",
            [list(texts)],
        ).fetchall()
    if kind in literals:
        return [(str(text), str(value)) for text, value in found]
    return [(str(text), f"CAST({quote_spark_text(value)} AS {kind})") for text, value in found]


def _micros(name: str, column: SparkColumn) -> str:
    """Microseconds since 1970, NULL for the moments that are none."""
    moment = name if column.type == "timestamp" else f"CAST({name} AS TIMESTAMP)"
    return f"CASE WHEN unix_micros({moment}) BETWEEN {_FAR} AND {_FARTHER} THEN unix_micros({moment}) END"


def _part(name: str, stored: SparkColumn, part: str, value: str, *, column: str) -> tuple[str, str]:
    """What is prepared, and the SQL for the part from the name of that."""
    if stored.kind == "text":
        return split_moment(name), part_of_text(value, part)
    if stored.kind != "date":
        raise SourceError(
            f"column {column!r}: period = {part!r} needs a stored date, timestamp or text, and "
            f"{name} is none; declare a range instead"
        )
    return part_of_moment(name, stored.type, part), value
