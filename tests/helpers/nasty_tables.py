"""Tables as nasty as files can hold them: values of every stored type, and what writes them.

For tests of what one record may do to others. Texts may be bytes that are no text; a text file is well formed
all the same.
"""

import gzip
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

# fmt: off
PLAIN_TEXTS = ["a", "b", "c", "a", "b", "zz", "other", None]
TEXTS = [
    *("", " ", "a", "A", " a", "other", "NULL", "\\N", "5", " 5 ", "05", "5.0", "5_0", "0x10", "1e400"),
    *("-1e400", "1e-400", "٣٤", "infinity", "-Infinity", "nan", "NaN", "-0.0", "+3", "true", "t", "f"),
    *("2020-01-01", "2020-01-01 12:34:56+01:", "2020-01-01 12:34:56+01", "2020-02-30", "2020-1-1", "epoch"),
    *("9" * 400, "1,5", "294247-01-10 04:00:54", "99999-12-31"),
    *("2020-01-01T24:00:00", "12:34", "01/02/2020", "0001-01-01 (BC)"),
    *('say "no"', "a,b", "line\nbreak", "cr\rhere", "crlf\r\n", "nul\x00here", "tab\t", "semi;colon"),
    *(" of somebody else, for sure", "x" * 32),
    *("e\u0301", "\u00e9", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\ufeffbom"),
    *("\u202eback", "ß", "İ", "ǅ"),
    *("%", "_", "\\", "';--", "$$", "{}", None, None),
]
BROKEN_TEXTS = [b"\xff", b"\xed\xa0\x80", b"ok \xc3", b"\xf4\x90\x80\x80", b"\xc0\x80"]
LONG_TEXT = "x" * 100_000
NUMBERS = [
    *(math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -5e-324, 1.7976931348623157e308, -1e300, 0.1, 1 / 3),
    *(1.0, 2.5, 3.0, 7.0, 7.000000001, 10.0, 20.0, 29.999999999999996, 30.0, -5.0, -5.5, 2.0**53, 1e19, None),
    *(9.223372036854775807e18, -9.223372036854775808e18, 1.5, 4.5, 15.0, 25.0, 12.0),
]
INTEGERS = [0, 1, 2, 3, 5, 6, 12, 20, -1, -5, 30, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), None]
BYTES = [0, 1, 2, 3, 5, 7, 30, -1, 127, -128, None]
NATURALS = [0, 1, 2, 3, 5, 30, 2**63, 2**64 - 1, None]
DECIMALS = [
    None if text is None else Decimal(text)
    for text in ("0", "1", "2.5", "-5", "30", "0.0000000001", "9" * 28, "-" + "9" * 28, "7.0000000001", None)
]
DAYS = [0, 18_262, 19_000, 19_001, -1, 200_000_000, -200_000_000, 2**31 - 1, -(2**31 - 1), 2_932_896, None]
MOMENTS = [
    *(0, 1_577_836_800_000_000, 1_600_000_000_000_000, -1, 2**63 - 1, -(2**63 - 1), None),
    *(253_402_300_800_000_000, 1_700_000_000_123_456, -62_135_596_800_000_001, 2**62),
]
TRUTHS = [True, False, None]

KINDS = {
    "text": (pa.string(), TEXTS),
    "plain": (pa.string(), PLAIN_TEXTS),
    "large": (pa.large_string(), TEXTS),
    "double": (pa.float64(), NUMBERS),
    "float": (pa.float32(), NUMBERS),
    "integer": (pa.int64(), INTEGERS),
    "byte": (pa.int8(), BYTES),
    "natural": (pa.uint64(), NATURALS),
    "decimal": (pa.decimal128(38, 10), DECIMALS),
    "day": (pa.date32(), DAYS),
    "moment": (pa.timestamp("us"), MOMENTS),
    "zoned": (pa.timestamp("us", tz="UTC"), MOMENTS),
    "milli": (pa.timestamp("ms"), MOMENTS),
    "second": (pa.timestamp("s"), MOMENTS),
    "nano": (pa.timestamp("ns"), MOMENTS),
    "truth": (pa.bool_(), TRUTHS),
}
TAME = {
    **dict.fromkeys(("double", "float"), (0.5, 1.0, 2.0, 3.0, 5.0, 12.0, 25.0)),
    **dict.fromkeys(("integer", "byte", "natural"), (0, 1, 2, 3, 4, 5, 12)),
    **dict.fromkeys(("text", "large"), ("a", "b", "c", "1", "2.5", "2020-05-05", "2021-01-02 03:04:05")),
    **dict.fromkeys(("moment", "zoned", "nano"), (1_577_836_800_000_000, 1_600_000_000_000_000)),
}
# What a statement takes a stored column for.
SEEN_AS = {
    **dict.fromkeys(("text", "plain", "large"), "text"),
    **dict.fromkeys(("double", "float", "integer", "byte", "natural", "decimal"), "number"),
    **dict.fromkeys(("day", "moment", "zoned", "milli", "second", "nano"), "date"),
    "truth": "boolean",
}
# fmt: on


def write_table(path, columns, rows, size, *, dictionary=True):
    """Writes `rows`, pairs of an individual and a record, to a file of the kind that its name tells."""
    arrays = {}
    for place, (name, kind) in enumerate(columns):
        values = [person if place == 0 else record[place - 1] for person, record in rows]
        arrays[name] = make_array(values, kind)
    if path.suffix == ".parquet":
        pq.write_table(pa.table(arrays), path, row_group_size=size, use_dictionary=dictionary)
    else:
        write_text(path, arrays)


def make_array(values, kind):
    """An Arrow array, also of what Arrow would refuse to make: text that is not UTF-8."""
    stored = KINDS[kind][0]
    if SEEN_AS[kind] == "text":
        raw = [each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each for each in values]
        wide = stored == pa.large_string()
        return pa.array(raw, pa.large_binary() if wide else pa.binary()).view(stored)
    if pa.types.is_timestamp(stored) and stored.unit != "us":
        parts = {"s": 10**6, "ms": 10**3, "ns": 1}[stored.unit]
        # Far milliseconds stay far: what has no place in microseconds is the nastier.
        far = stored.unit != "s"  # Parquet keeps seconds as milliseconds
        values = [each if each is None or (far and abs(each) > 2**61) else each // parts for each in values]
    if pa.types.is_timestamp(stored):
        return pa.array(values, pa.int64()).view(stored)
    if pa.types.is_date32(stored):
        return pa.array(values, pa.int32()).view(stored)
    return pa.array(values, stored, from_pandas=False)


def write_text(path, arrays):
    """A well-formed text file: what needs quotes is quoted, line breaks and all."""
    lines = [",".join(arrays).encode()]
    columns = [[field_bytes(each) for each in show(array)] for array in arrays.values()]
    lines += [b",".join(fields) for fields in zip(*columns, strict=True)]
    content = b"\r\n".join([*lines, b""]) if len(lines) % 2 else b"\n".join([*lines, b""])
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)


def show(array):
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        numbers = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
        return [None if each is None else str(each) for each in numbers.to_pylist()]
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        wide = pa.types.is_large_string(array.type)
        return array.view(pa.large_binary() if wide else pa.binary()).to_pylist()
    return array.to_pylist()


def field_bytes(value):
    if value is None:
        return b""
    raw = value if isinstance(value, bytes) else str(value).encode()
    if raw == b"" or any(each in raw for each in b',"\r\n;\t|') or raw != raw.strip():
        return b'"' + raw.replace(b'"', b'""') + b'"'
    return raw
