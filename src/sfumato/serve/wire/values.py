"""Values as PostgreSQL writes them: Arrow types to its types, and each type's text and binary form."""

from __future__ import annotations

import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import pyarrow as pa

from sfumato.core.dates import read_moment
from sfumato.serve.catalog.tables import read_description
from sfumato.sql.constants import read_array

BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, TEXT, OID = 16, 17, 18, 19, 20, 21, 23, 25, 26
JSON, FLOAT4, FLOAT8, BPCHAR, VARCHAR, DATE, TIME = 114, 700, 701, 1042, 1043, 1082, 1083
TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID, UNKNOWN, JSONB = 1114, 1184, 1186, 1700, 2950, 705, 3802
INT2VECTOR, OIDVECTOR = 22, 30

_NUMBERS = {INT2: "!h", INT4: "!i", INT8: "!q", OID: "!I", FLOAT4: "!f", FLOAT8: "!d"}
# Object identifiers under other names: transactions, commands, and registered names of things.
_NUMBERS |= dict.fromkeys((24, 28, 29, 2202, 2203, 2204, 2205, 2206, 4089, 4096), "!I")
_EPOCH = datetime(2000, 1, 1)  # where PostgreSQL begins to count
_DAY_ONE = date(2000, 1, 1).toordinal()
# A number with a larger exponent would be written out in full further on.
_MOST_DIGITS = 1000
# Wide enough that no shift of the point rounds.
_EXACT = Context(prec=4 * _MOST_DIGITS)
_QUOTED = re.compile(r'[{},"\\\s]|^$|^null$', re.IGNORECASE)


@lru_cache(maxsize=1000)  # clients name types as they like
def _find_type(oid: int) -> Mapping[str, Any]:
    """Returns the row of `pg_type` for a type, empty for one that is not known."""
    return next((row for row in read_description().types if row["oid"] == oid), {})


def _find_element(oid: int) -> int:
    """Returns the type of the elements of an array type, 0 for any other."""
    row = _find_type(oid)
    return int(row["typelem"]) if row.get("typcategory") == "A" else 0


def type_size(oid: int) -> int:
    """Returns the width of a type in bytes, -1 if it varies."""
    return int(_find_type(oid).get("typlen", -1))


def find_oid(kind: pa.DataType) -> int:
    """Returns the PostgreSQL type that holds the values of an Arrow type.

    >>> find_oid(pa.int64()), find_oid(pa.list_(pa.string()))
    (20, 1009)
    """
    types = pa.types
    if types.is_dictionary(kind):
        return find_oid(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind):
        return int(_find_type(find_oid(kind.value_type))["typarray"]) or TEXT
    if types.is_timestamp(kind):
        return TIMESTAMP if kind.tz is None else TIMESTAMPTZ
    if types.is_integer(kind):
        bits = kind.bit_width * 2 if types.is_unsigned_integer(kind) else kind.bit_width
        return {8: INT2, 16: INT2, 32: INT4, 64: INT8}.get(bits, NUMERIC)
    tests: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
        (types.is_boolean, BOOL),
        (types.is_float64, FLOAT8),
        (types.is_floating, FLOAT4),
        (types.is_decimal, NUMERIC),
        (types.is_date, DATE),
        (types.is_time, TIME),
        (types.is_duration, INTERVAL),
        (types.is_binary, BYTEA),
        (types.is_large_binary, BYTEA),
    )
    return next((oid for test, oid in tests if test(kind)), TEXT)


def find_arrow(oid: int) -> pa.DataType | None:
    """Returns the Arrow type of a parameter whose type a client has named; None if it says little."""
    return {
        BOOL: pa.bool_(),
        INT2: pa.int16(),
        INT4: pa.int32(),
        INT8: pa.int64(),
        DATE: pa.date32(),
        FLOAT4: pa.float32(),
        FLOAT8: pa.float64(),
        NUMERIC: pa.decimal128(38, 9),
        TIMESTAMP: pa.timestamp("us"),
        TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    }.get(oid)


def encode(value: object, oid: int, form: int) -> bytes | None:
    r"""Returns a value in text (`form` 0) or binary (1); None for NULL.

    >>> encode(3, 23, 1), encode([1, None], 1016, 0)
    (b'\x00\x00\x00\x03', b'{1,NULL}')
    """
    if value is None:
        return None
    return _encode_binary(value, oid) if form else _write(value, oid).encode()


def decode_value(data: bytes | None, oid: int, form: int) -> object:
    """Returns a parameter as a Python value; ValueError if `data` is no such value.

    Unknown types are text.
    """
    if data is None:
        return None
    try:
        return _decode_binary(data, oid) if form else _read(data.decode(), oid)
    except (struct.error, InvalidOperation, OverflowError, IndexError) as error:
        raise ValueError(type(error).__name__) from None


def _write(value: Any, oid: int) -> str:  # noqa: ANN401 - any value of any type
    element = _find_element(oid)
    if element and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = [None if item is None else _write(item, element) for item in value]
        if oid in (INT2VECTOR, OIDVECTOR):
            return " ".join(item or "" for item in items)
        return "{" + ",".join("NULL" if item is None else _quote(item) for item in items) + "}"
    match value:
        case bool():
            return ("t" if value else "f") if oid in (BOOL, TEXT) else str(int(value))
        case float():
            if oid in (INT2, INT4, INT8, OID) and math.isfinite(value):
                return str(round(value))
            if not math.isfinite(value):
                return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return repr(value).removesuffix(".0")
        case Decimal():
            return format(value, "f") if value.is_finite() else str(value)
        case datetime():
            plain = (value.astimezone(UTC) if value.tzinfo else value).replace(tzinfo=None)
            return _trim(plain.isoformat(" ")) + ("+00" if oid == TIMESTAMPTZ else "")
        case time():
            return _trim(value.isoformat())
        case date():
            return value.isoformat() + (" 00:00:00" if oid == TIMESTAMP else "")
        case timedelta():
            days, rest = divmod(value, timedelta(days=1))
            return f"{days} days {_trim((_EPOCH + rest).time().isoformat())}"
        case bytes():
            return "\\x" + value.hex()
        case dict() | list() | tuple():
            return json.dumps(value, default=str)
    return str(value)


def _trim(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def _quote(item: str) -> str:
    if not _QUOTED.search(item):
        return item
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _encode_binary(value: Any, oid: int) -> bytes:  # noqa: ANN401
    if element := _find_element(oid):
        return _encode_array(value if not isinstance(value, str) else _read(value, oid), element, oid)
    if oid in (FLOAT4, FLOAT8):
        return struct.pack(_NUMBERS[oid], float(value))
    if oid in _NUMBERS:
        return struct.pack(_NUMBERS[oid], round(value) if isinstance(value, float) else int(value))
    match oid:
        case 16:
            return b"\x01" if value else b"\x00"
        case 17:
            return bytes(value) if not isinstance(value, str) else value.encode()
        case 1082:
            return struct.pack("!i", _as_datetime(value).toordinal() - _DAY_ONE)
        case 1083:
            moment = value if isinstance(value, time) else _as_datetime(f"{_EPOCH.date()} {value}").time()
            since = datetime.combine(_EPOCH, moment.replace(tzinfo=None)) - _EPOCH
            return struct.pack("!q", since // timedelta(microseconds=1))
        case 1114 | 1184:
            return struct.pack("!q", (_as_datetime(value) - _EPOCH) // timedelta(microseconds=1))
        case 1186:
            return struct.pack("!qii", value // timedelta(microseconds=1), 0, 0)
        case 1700:
            return _encode_numeric(value if isinstance(value, Decimal) else Decimal(str(value)))
        case 2950:
            return uuid.UUID(str(value)).bytes
        case 3802:
            return b"\x01" + _write(value, oid).encode()
    return _write(value, oid).encode()


def _as_datetime(value: Any) -> datetime:  # noqa: ANN401
    if isinstance(value, str):
        value = _parse_moment(value)
    if not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value


def _encode_array(items: Any, element: int, oid: int) -> bytes:  # noqa: ANN401
    lower = 0 if oid in (INT2VECTOR, OIDVECTOR) else 1
    head = struct.pack("!iiI", 1 if items else 0, any(item is None for item in items), element)
    parts = [head, struct.pack("!ii", len(items), lower) if items else b""]
    for item in items:
        data = encode(item, element, 1)
        parts.append(b"\xff\xff\xff\xff" if data is None else struct.pack("!i", len(data)) + data)
    return b"".join(parts)


def _encode_numeric(value: Decimal) -> bytes:
    if not value.is_finite():
        sign = 0xC000 if value.is_nan() else 0xD000 if value > 0 else 0xF000
        return struct.pack("!hhHh", 0, 0, sign, 0)
    negative, _, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    places = -(-scale // 4)  # groups of four decimals behind the point
    whole = int(value.copy_abs().scaleb(4 * places, _EXACT))
    groups: list[int] = []
    while whole:
        whole, group = divmod(whole, 10_000)
        groups.append(group)
    weight = len(groups) - 1 - places
    while groups and groups[0] == 0:
        groups.pop(0)
    groups.reverse()
    head = struct.pack("!hhHh", len(groups), weight if groups else 0, 0x4000 if negative else 0, scale)
    return head + struct.pack(f"!{len(groups)}h", *groups)


def _decode_numeric(data: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", data)
    groups = struct.unpack(f"!{count}h", data[8:])
    if sign in (0xC000, 0xD000, 0xF000):
        return Decimal({0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}[sign])
    whole = 0
    if 4 * (abs(weight) + count) > _MOST_DIGITS or any(not 0 <= group < 10_000 for group in groups):
        raise ValueError("too many digits")
    for group in groups:
        whole = whole * 10_000 + group
    value = Decimal(-whole if sign == 0x4000 else whole).scaleb(4 * (weight + 1 - count), _EXACT)
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT) if 0 <= scale <= _MOST_DIGITS else value


def _read(text: str, oid: int) -> object:
    if element := _find_element(oid):
        return [None if item is None else _read(item, element) for item in read_array(text)]
    if oid in (INT2, INT4, INT8, OID):
        return _fit(int(text), oid)
    if oid in (FLOAT4, FLOAT8):
        return float(text)
    match oid:
        case 16:
            word = text.strip().lower()
            if word in ("t", "true", "on", "yes", "y", "1"):
                return True
            if word in ("f", "false", "off", "no", "n", "0"):
                return False
            raise ValueError("not a truth value")
        case 17:
            return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()
        case 1082:
            # JDBC writes a date with the zone that it was made in: 2025-02-01 +00.
            day = _parse_moment(text)
            if type(day) is not date:
                raise ValueError("a moment is no date")
            return day
        case 1114 | 1184:
            # PostgreSQL passes over the zone of a timestamp that has none.
            moment = _as_datetime(_parse_moment(text, local=oid == TIMESTAMP))
            return moment if oid == TIMESTAMP else moment.replace(tzinfo=UTC)
        case 1700:
            value = Decimal(text)
            if value.is_finite() and abs(value.adjusted()) + len(value.as_tuple().digits) > _MOST_DIGITS:
                raise ValueError("too many digits")
            return value
    return text


def _parse_moment(text: str, *, local: bool = False) -> date | datetime:
    found = read_moment(text, local=local)
    if found is None:
        raise ValueError("not a date")
    return found


def _fit(number: int, oid: int) -> int:
    struct.pack(_NUMBERS[oid], number)  # raises if it is too large
    return number


def _decode_binary(data: bytes, oid: int) -> object:
    if element := _find_element(oid):
        return _decode_array(data, element)
    if oid in _NUMBERS:
        return struct.unpack(_NUMBERS[oid], data)[0]
    match oid:
        case 16:
            return data != b"\x00"
        case 17:
            return data
        case 1082:
            return date.fromordinal(struct.unpack("!i", data)[0] + _DAY_ONE)
        case 1114 | 1184:
            moment = _EPOCH + timedelta(microseconds=struct.unpack("!q", data)[0])
            return moment if oid == TIMESTAMP else moment.replace(tzinfo=UTC)
        case 1700:
            return _decode_numeric(data)
        case 2950:
            return str(uuid.UUID(bytes=data))
        case 3802:
            return data[1:].decode()
    return data.decode()


def _decode_array(data: bytes, element: int) -> list[object]:
    dimensions, _, said = struct.unpack_from("!iiI", data)
    if dimensions == 0:
        return []
    count = struct.unpack_from("!i", data, 12)[0]
    if dimensions != 1 or not 0 <= count <= len(data):
        raise ValueError("not an array of one dimension")
    items: list[object] = []
    place = 20
    for _ in range(count):
        size = struct.unpack_from("!i", data, place)[0]
        place += 4
        items.append(None if size < 0 else _decode_binary(data[place : place + size], said or element))
        place += max(size, 0)
    return items
