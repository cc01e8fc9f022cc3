"""SQL that turns a stored value into its code, or NULL where the domain does not hold it.

Total by construction: whatever a record holds (NULL, NaN, infinity, text in place of a number), the
expression gives a code or NULL and never raises. Every cast that could fail is a TRY_CAST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.errors import SourceError
from sfumato.schema import Bins, IntegerRange, Period, Tuples, Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from fractions import Fraction

    from sfumato.engines.source import Kind, Stored
    from sfumato.schema import Column

_SEPARATOR = "\x1f"
_EPOCHS = {"epoch": 1, "epoch_ms": 1000}


def quote_name(name: str) -> str:
    """`name` as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """`text` as a string literal."""
    return "'" + text.replace("'", "''") + "'"


def code_type(size: int) -> str:
    """The smallest type that holds codes below `size`."""
    if size <= 2**8:
        return "UTINYINT"
    return "USMALLINT" if size <= 2**16 else "UINTEGER"


def value_list(column: Column) -> tuple[str, ...] | None:
    """The texts, in order of their codes, that the column's list type must know; None without one."""
    match column.domain:
        case Values(values) if not _is_run(values):
            return tuple(str(value) for value in values)
        case Tuples(values):
            return tuple(_SEPARATOR.join(str(part) for part in value) for value in values)
        case _:
            return None


def encode_column(column: Column, stored: Mapping[str, Stored], *, list_type: str) -> str:
    """The SQL expression for the code of `column`; `list_type` names its list type if it has one."""
    parts = _read_parts(column, stored)
    inside = _encode(column, parts, list_type)
    if column.outside == "other":
        inside = f"COALESCE({inside}, {column.size - 1})"
    if column.missing_label is not None:
        missing = " AND ".join(f"{value} IS NULL" for value, _ in parts)
        place = column.labels.index(column.missing_label)
        inside = f"CASE WHEN {missing} THEN {place} ELSE {inside} END"
    return f"CAST({inside} AS {code_type(column.size)})"


def value_column(column: Column, stored: Mapping[str, Stored]) -> str:
    """The SQL expression for the value of `column` as a query sees it, NULL where it has none."""
    parts = _read_parts(column, stored)
    name, kind = parts[0]
    match column.domain:
        case Period(part):
            return f"CAST({_part(name, kind, part, column=column.name)} AS BIGINT)"
        case Tuples(values):
            texts = [
                _text(part, part_kind) if isinstance(label, str) else _integer_text(part, part_kind)
                for (part, part_kind), label in zip(parts, values[0], strict=True)
            ]
            return " || '-' || ".join(texts)
        case IntegerRange() if kind not in ("integer", "boolean"):
            # A condition such as fee > 50 is about all numbers, though only whole ones have a code.
            return _number(name, kind)
        case IntegerRange():
            return _integer(name, kind)
        case Values(values):
            return _text(name, kind) if isinstance(values[0], str) else _integer(name, kind)
        case Bins():
            return _integer(name, kind) if kind == "integer" else _number(name, kind)
        case None if column.bounds is not None:
            return _integer(name, kind) if kind == "integer" else _number(name, kind)
        case _:
            return name


def _encode(column: Column, stored: list[tuple[str, Kind]], list_type: str) -> str:
    clamp = column.outside == "clamp"
    name, kind = stored[0]
    match column.domain:
        case Values(values) if _is_run(values):
            first = int(values[0])
            return encode_range(_integer(name, kind), first, first + len(values) - 1)
        case Values(values):
            text = _text(name, kind) if isinstance(values[0], str) else _integer_text(name, kind)
            return f"enum_code(TRY_CAST({text} AS {list_type}))"
        case Tuples(values):
            parts = [
                _text(part, part_kind) if isinstance(label, str) else _integer_text(part, part_kind)
                for (part, part_kind), label in zip(stored, values[0], strict=True)
            ]
            joined = f" || {quote_text(_SEPARATOR)} || ".join(parts)
            return f"enum_code(TRY_CAST({joined} AS {list_type}))"
        case Bins(edges):
            return encode_bins(_number(name, kind), edges, clamp=clamp)
        case IntegerRange(low, high):
            if clamp:
                return encode_clamped(_number(name, kind), low, high)
            return encode_range(_integer(name, kind), low, high)
        case Period(part):
            span = column.domain.span
            value = _part(name, kind, part, column=column.name)
            if clamp:
                return encode_clamped(value, span.low, span.high)
            return encode_range(value, span.low, span.high)
        case None:  # pragma: no cover - Table.column refuses a column without a domain
            raise AssertionError


def _read_parts(column: Column, stored: Mapping[str, Stored]) -> list[tuple[str, Kind]]:
    """The stored values of a column, read as its keys say: missing ones, decimal commas, formats of dates."""
    parts = []
    for name in column.stored:
        value, kind = quote_name(name), stored[name].kind
        if column.missing:
            listed = ", ".join(quote_text(text) for text in column.missing)
            value = f"CASE WHEN {_text(value, kind)} NOT IN ({listed}) THEN {value} END"
        if column.decimal == "," and kind == "text":
            value = f"replace(replace({value}, '.', ''), ',', '.')"
        if column.format in _EPOCHS:
            value, kind = _read_epoch(_number(value, kind), _EPOCHS[column.format]), "date"
        elif column.format is not None and kind == "text":
            value, kind = f"try_strptime({value}, {quote_text(column.format)})", "date"
        parts.append((value, kind))
    return parts


def _read_epoch(value: str, per_second: int) -> str:
    step = 10**6 // per_second
    within = f"{value} BETWEEN {-(6 * 10**16) // step} AND {25 * 10**16 // step}"
    return f"CASE WHEN {within} THEN make_timestamp(CAST({value} * {step} AS BIGINT)) END"


def _is_run(values: tuple[object, ...]) -> bool:
    if not isinstance(values[0], int):
        return False
    return all(value == values[0] + offset for offset, value in enumerate(values))


def encode_range(value: str, low: int, high: int) -> str:
    """The SQL for the code of a whole number; shared by engines that write it so."""
    return f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} - {_signed(low)} END"


def encode_clamped(value: str, low: int, high: int, *, code: str = "{}") -> str:
    """The SQL for the code of a number that is held to its range; `code` wraps the code itself."""
    inside = code.format(f"{value} - {_signed(low)}")
    return (
        f"CASE WHEN {value} < {low} THEN 0 WHEN {value} > {high} THEN {high - low} "
        f"WHEN {value} = floor({value}) THEN {inside} END"
    )


def encode_bins(
    value: str,
    edges: tuple[Fraction, ...],
    *,
    clamp: bool,
    double: Callable[[Fraction], str] = lambda edge: f"{float(edge)!r}::DOUBLE",
) -> str:
    """The SQL for the bin of a number, found by halving; `double` writes an edge."""

    def search(first: int, last: int) -> str:
        if first == last:
            return str(first)
        middle = (first + last + 1) // 2
        return (
            f"CASE WHEN {value} < {double(edges[middle])} THEN {search(first, middle - 1)} "
            f"ELSE {search(middle, last)} END"
        )

    codes = search(0, len(edges) - 2)
    if clamp:
        return f"CASE WHEN {value} IS NOT NULL THEN {codes} END"
    return f"CASE WHEN {value} BETWEEN {double(edges[0])} AND {double(edges[-1])} THEN {codes} END"


def _signed(number: int) -> str:
    return f"({number})" if number < 0 else str(number)


def _number(name: str, kind: Kind) -> str:
    value = f"TRY_CAST({name} AS DOUBLE)"
    if kind in ("date", "other"):
        return "NULL::DOUBLE"
    # A text may spell NaN, which is not a number and would compare as larger than every edge.
    return f"CASE WHEN NOT isnan({value}) THEN {value} END" if kind == "text" else value


def _integer(name: str, kind: Kind) -> str:
    if kind in ("date", "other"):
        return "NULL::BIGINT"
    if kind in ("integer", "boolean"):
        return f"TRY_CAST({name} AS BIGINT)"
    # A direct cast would round 12.7 to 13, and 13 may be a value of the domain.
    value = f"TRY_CAST({name} AS DOUBLE)"
    whole = f"{value} = floor({value}) AND abs({value}) <= {2**53}"
    return f"CASE WHEN {whole} THEN TRY_CAST({value} AS BIGINT) END"


def _integer_text(name: str, kind: Kind) -> str:
    return f"CAST({_integer(name, kind)} AS VARCHAR)"


def _text(name: str, kind: Kind) -> str:
    return name if kind == "text" else f"TRY_CAST({name} AS VARCHAR)"


def _part(name: str, kind: Kind, part: str, *, column: str) -> str:
    if kind not in ("date", "text"):
        raise SourceError(
            f"column {column!r}: period = {part!r} needs a stored date, timestamp or text, and "
            f"{name} is none; declare a range instead"
        )
    moment = f"TRY_CAST({name} AS TIMESTAMP)"
    if kind == "text":
        # After "+01:" at the end DuckDB looks at one character more, which is of another record.
        moment = f"CASE WHEN NOT ends_with({name}, ':') THEN {moment} END"
    if part == "day_of_week":
        return f"(isodow({moment}) - 1)"
    return f"{part}({moment})"
