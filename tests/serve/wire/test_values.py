"""Every type there and back, as text and as binary."""

import contextlib
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.serve.wire import values

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
KINDS = {
    values.BOOL: st.booleans(),
    values.INT2: st.integers(-(2**15), 2**15 - 1),
    values.INT4: st.integers(-(2**31), 2**31 - 1),
    values.INT8: st.integers(-(2**63), 2**63 - 1),
    values.OID: st.integers(0, 2**32 - 1),
    values.FLOAT8: st.floats(allow_nan=False),
    values.FLOAT4: st.floats(width=32, allow_nan=False),
    values.NUMERIC: st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20),
    values.TEXT: TEXTS,
    values.VARCHAR: TEXTS,
    values.NAME: TEXTS,
    values.BYTEA: st.binary(),
    values.DATE: st.dates(),
    values.TIMESTAMP: st.datetimes(),
    values.TIMESTAMPTZ: st.datetimes(timezones=st.just(UTC)),
    values.UUID: st.uuids().map(str),
    values.JSON: TEXTS,
    values.JSONB: TEXTS,
    1016: st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
    1009: st.lists(st.none() | TEXTS),
    1028: st.lists(st.integers(0, 2**32 - 1)),
}


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("oid", KINDS)
def test_there_and_back(oid, form):
    @given(KINDS[oid])
    def check(value):
        data = values.encode(value, oid, form)
        assert values.decode_value(data, oid, form) == value
        size = values.type_size(oid)
        assert not form or size in (-1, 64, len(data))

    check()


@given(st.binary(max_size=60), st.sampled_from([*KINDS, 0, 705, 1186, 2275, 99999]), st.sampled_from([0, 1]))
def test_nonsense_is_a_value_error_or_a_value(data, oid, form):
    with contextlib.suppress(ValueError):
        values.decode_value(data, oid, form)


def test_numbers_that_would_fill_the_memory_are_refused():
    for text in ("1e999999999", "1e-999999999", "1" * 2000):
        with pytest.raises(ValueError, match="digits"):
            values.decode_value(text.encode(), values.NUMERIC, 0)
    with pytest.raises(ValueError, match="digits"):
        values.decode_value(b"\x00\x01\x7f\xff\x00\x00\x00\x00\x00\x01", values.NUMERIC, 1)
    with pytest.raises(ValueError):  # noqa: PT011 - Python's own words
        values.decode_value(b"9" * 10_000, values.INT8, 0)


@pytest.mark.parametrize(
    ("value", "oid", "text"),
    [
        (1.0, values.FLOAT8, "1"),
        (1e100, values.FLOAT8, "1e+100"),
        (float("-inf"), values.FLOAT8, "-Infinity"),
        (2.0, values.INT8, "2"),
        (Decimal("1E+3"), values.NUMERIC, "1000"),
        (datetime(2025, 1, 2, 3, 4, 5, 600000), values.TIMESTAMP, "2025-01-02 03:04:05.6"),
        (datetime(2025, 1, 2, tzinfo=UTC), values.TIMESTAMPTZ, "2025-01-02 00:00:00+00"),
        (time(1, 2, 3), values.TIME, "01:02:03"),
        (timedelta(days=-1, hours=2), values.INTERVAL, "-1 days 02:00:00"),
        (b"\x00\xff", values.BYTEA, "\\x00ff"),
        (["a b", "", "NULL", None, "{}"], 1009, '{"a b","","NULL",NULL,"{}"}'),
        ([1, 2], values.INT2VECTOR, "1 2"),
        ({"a": 1}, values.JSON, '{"a": 1}'),
        (True, values.INT4, "1"),
    ],
)
def test_text_is_as_postgresql_writes_it(value, oid, text):
    assert values.encode(value, oid, 0) == text.encode()


def test_a_date_with_a_zone_is_a_date():
    for text in ("2025-02-01", "2025-02-01 +00", "2025-02-01 -08:00"):
        assert values.decode_value(text.encode(), values.DATE, 0) == date(2025, 2, 1)
    for text in ("2025-02-01 10:00:00+02", "2025-02-01 08:00:00 +00"):
        moment = values.decode_value(text.encode(), values.TIMESTAMPTZ, 0)
        assert moment == datetime(2025, 2, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "oid"),
    [
        (pa.bool_(), 16),
        (pa.int8(), 21),
        (pa.uint16(), 23),
        (pa.uint32(), 20),
        (pa.uint64(), 1700),
        (pa.float32(), 700),
        (pa.dictionary(pa.int8(), pa.string()), 25),
        (pa.large_string(), 25),
        (pa.timestamp("ns", "UTC"), 1184),
        (pa.date32(), 1082),
        (pa.decimal128(5, 2), 1700),
        (pa.list_(pa.float64()), 1022),
        (pa.null(), 25),
        (pa.binary(), 17),
    ],
)
def test_arrow_types(kind, oid):
    assert values.find_oid(kind) == oid


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(
    ("kind", "oid", "value"),
    [
        ("bool", 16, True),
        ("int2", 21, -32768),
        ("int8", 20, 2**62),
        ("float4", 700, 0.5),
        ("float8", 701, 0.1),
        ("float8", 701, 1e300),
        ("float8", 701, 12345678.0),
        ("float8", 701, float("nan")),
        ("float8", 701, float("-inf")),
        ("numeric", 1700, Decimal("-12345678.000100")),
        ("numeric", 1700, Decimal("0.00001")),
        ("numeric", 1700, Decimal("10000")),
        ("numeric", 1700, Decimal(0)),
        ("numeric", 1700, Decimal("NaN")),
        ("text", 25, "é 'quoted' \\ \n"),
        ("bytea", 17, b"\x00\xffa"),
        ("date", 1082, date(1969, 7, 20)),
        ("timestamp", 1114, datetime(1999, 12, 31, 23, 59, 59, 120000)),
        ("timestamptz", 1184, datetime(2025, 6, 1, 12, tzinfo=UTC)),
        ("time", 1083, time(1, 2, 3, 450000)),
        ("uuid", 2950, "00112233-4455-6677-8899-aabbccddeeff"),
        ("jsonb", 3802, '{"a": [1, 2]}'),
        ("int8[]", 1016, [1, None, -(2**62)]),
        ("text[]", 1009, ["a b", "", "null", None, '"', "\\", "{x}", "plain"]),
        ("float8[]", 1022, []),
        ("oid", 26, 2**32 - 1),
        ("int2vector", 22, [1, 2, 3]),
    ],
)
def test_values_are_written_as_a_real_server_writes_them(server, kind, oid, value, form):
    written = values.encode(value, oid, 0).decode()
    with server.connect() as real:
        real.execute("SET timezone = 'UTC'")
        literal = "'" + written.replace("'", "''") + "'"
        found = real.execute(f"SELECT {literal}::{kind}", binary=bool(form)).pgresult
    assert found.ftype(0) == oid
    assert found.get_value(0, 0) == values.encode(value, oid, form)
