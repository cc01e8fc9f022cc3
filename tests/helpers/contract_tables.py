"""The tables that every engine is compared on: made-up edges, and public tables where they are at hand."""

import random
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NAN, INF = float("nan"), float("inf")
TEXTS = [
    "2020-03-04 10:11:12+01:", " 2020-03-04 10:11:12+01:30:", "2020-03-04 10:11:12 +01: x", "2020-03-04 10:",
    "294247-01-10 04:00:54", "294247-01-10 04:00:54.775807", "2020-03-04 10:11:12+01: x",
    '5', ' 5', '5 ', '\t5', '+5', '-5', '+-5', '5.0', '.5', '5.', '1_0', '1__0', '1e1', '1E+1', '1e400',
    '-1e400', '1e-400', '1e99999', '0e99999', '0x5', 'nan', 'NaN', 'inf', '-Infinity', '+inf', 'infinit',
    '', ' ', 'abc', '\u0665', '5\xa0', '5d', '1,5', '2.5', '12.7', '0013', '-0', '9007199254740993', '1e15',
    '5.0e0', '0.30000000000000004', '2020-03-04', ' 2020-03-04', '2020-03-04 ', '2020/3/4', '2020-02-30',
    '2020-03-04 10:11:12', '2020-03-04T23:59:59Z', '2020-03-04 24:00:00', '2020-12-31 24:00',
    '2020-03-04 10:11:12+01:30', '2020-03-04 10', '0044-03-15 (BC)', 'epoch', '-epoch', 'infinity',
    '294247-01-10', '294247-01-11', '-5-1-1', '2020-03-04 10:11:12 UTC', '20-3-4', '99999-01-01', 'a', 'b',
    'é', 'e\u0301', 'ß', '\u96ea', '\U0001f328', 'A', "o'clock", 'q"q', 'back\\slash', '%s', '{}', 'x\x1fy',
    'NULL', '\\N',
]  # fmt: skip


def _edges():
    """Every kind of column, with NULLs and the far ends of its type."""
    rows = len(TEXTS) * 2
    chosen = random.Random(7)
    numbers = [0.0, -0.0, 0.1, 1.0, 2.5, 3.0, 5.0, NAN, INF, -INF, 1e300, 5e-324, 2.0**53, -1.0, None]
    whole = [0, 1, 2, 3, 5, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), None]
    small = [Decimal("0.00"), Decimal("1.00"), Decimal("2.50"), Decimal("-3.10"), Decimal("99999.99"), None]
    wide = [Decimal("0.1"), Decimal("12345678901234567890.123456789"), Decimal("-1"), Decimal("5"), None]
    moments = [
        datetime(2020, 1, 6, 23), datetime(2020, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1),
        datetime(69, 1, 1),
        datetime(9998, 1, 1), datetime(1969, 12, 31, 23), None,
    ]  # fmt: skip
    days = [date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(2021, 3, 1), None]
    people = ["ana", "ben", "Ana", "ana ", "1", "01", "é", "e\u0301", "", None, "a:1"]
    plus = [None if each is None else each.replace(tzinfo=timezone.utc) for each in moments]  # noqa: UP017

    def draw(values, kind):
        return pa.array([chosen.choice(values) for _ in range(rows)], kind)

    return pa.table(
        {
            "who": draw(people, pa.string()),
            "number": draw([1, 2, 3, -4, 2**62, None], pa.int64()),
            "day": draw(days, pa.date32()),
            "cash": draw(small, pa.decimal128(7, 2)),
            "flag": draw([True, False, None], pa.bool_()),
            "text": pa.array(TEXTS * 2, pa.string()),
            "double": draw(numbers, pa.float64()),
            "single": draw([0.1, 1.0, 2.5, NAN, INF, None], pa.float32()),
            "whole": draw(whole, pa.int64()),
            "short": draw([0, 1, 2, 3, None], pa.int16()),
            "wide": draw(wide, pa.decimal128(38, 9)),
            "moment": draw(moments, pa.timestamp("us")),
            "instant": draw(plus, pa.timestamp("us", tz="UTC")),
            "o\"d d'%s": draw(["o'clock", "x;--", "%s", None], pa.string()),
        }
    )


_EDGE_COLUMNS = {
    "t_bins": {"from": "text", "bins": [-5, 0, 0.3, 5, 100]},
    "t_clamp": {"from": "text", "bins": [0, 5, 12.7], "outside": "clamp"},
    "t_range": {"from": "text", "range": [-5, 20], "outside": "clamp"},
    "t_whole": {"from": "text", "range": [0, 20], "outside": "other"},
    "t_listed": {"from": "text", "values": [5, 13, 10, -5], "outside": "other"},
    "t_values": {
        "from": "text", "values": ["a", "é", "雪", "o'clock", "back\\slash", "%s", "", "x\x1fy", "5"],
    },
    "t_year": {"from": "text", "period": "year", "range": [-50, 2030], "outside": "clamp"},
    "t_month": {"from": "text", "period": "month", "outside": "other"},
    "t_day": {"from": "text", "period": "day_of_week", "outside": "other"},
    "t_hour": {"from": "text", "period": "hour", "outside": "other"},
    "d_bins": {"from": "double", "bins": [0, 0.1, 1, 3, 1e300], "outside": "other"},
    "d_clamp": {"from": "double", "range": [0, 3], "outside": "clamp"},
    "d_whole": {"from": "double", "values": [0, 1, 3, 5], "outside": "other"},
    "d_text": {
        "from": "double", "values": ["0.0", "-0.0", "0.1", "inf", "nan", "1e+300", "1", "2.5"],
        "outside": "other",
    },
    "s_text": {"from": "single", "values": ["0.1", "2.5", "inf"], "outside": "other"},
    "s_bins": {"from": "single", "bins": [0, 0.1, 1, 3]},
    "whole": {"range": [-1, 5], "outside": "clamp"},
    "w_text": {
        "from": "whole", "values": ["1", "9223372036854775807", "-9223372036854775808", "01"],
        "outside": "other",
    },
    "w_bins": {"from": "whole", "bins": [-10, 0, 2, 1e18], "outside": "other"},
    "short": {"values": [0, 1, 2, 3]},
    "c_bins": {"from": "cash", "bins": [-10, 0, 1, 2.5, 100000]},
    "c_text": {"from": "cash", "values": ["1.00", "0.00", "2.5"], "outside": "other"},
    "x_bins": {"from": "wide", "bins": [0, 0.1, 5, 1e30], "outside": "other"},
    "x_whole": {"from": "wide", "values": [-1, 0, 1, 2, 3, 4, 5], "outside": "other"},
    "m_year": {"from": "moment", "period": "year", "range": [60, 9999], "outside": "clamp"},
    "m_hour": {"from": "moment", "period": "hour"},
    "m_day": {"from": "moment", "period": "day_of_week"},
    "m_text": {
        "from": "moment", "values": ["2020-01-06 23:00:00", "2020-12-31 23:59:59.999999"],
        "outside": "other",
    },
    "i_month": {"from": "instant", "period": "month", "outside": "other"},
    "i_text": {
        "from": "instant", "values": ["2020-01-06 23:00:00", "2020-01-06 23:00:00+00"],
        "outside": "other",
    },
    "y_year": {"from": "day", "period": "year", "range": [1, 9999]},
    "y_day": {"from": "day", "period": "day_of_week"},
    "y_hour": {"from": "day", "period": "hour"},
    "y_text": {"from": "day", "values": ["2020-02-29", "0001-01-01", "2020-2-29"], "outside": "other"},
    "f_text": {"from": "flag", "values": ["true", "false"]},
    "f_range": {"from": "flag", "range": [0, 1]},
    "pair": {
        "from": ["short", "flag"], "values": [[0, "true"], [1, "false"], [2, "true"]],
        "outside": "other",
    },
    "three": {
        "from": ["text", "double", "whole"], "values": [["5", "0.1", 1], ["a", "1.0", 5]],
        "outside": "other",
    },
    'o"d d\'%s': {"values": ["o'clock", "x;--", "%s"], "outside": "other"},
}  # fmt: skip


def _people(rows, heaviest):
    """Individuals of whom one has most of the records."""
    chosen = random.Random(3)
    people = [0] * heaviest + [chosen.randrange(1, 40) for _ in range(rows - heaviest)]
    return pa.table(
        {
            "p": pa.array(people, pa.int64()),
            "a": pa.array([chosen.randrange(-1, 5) for _ in people], pa.int32()),
            "b": pa.array([chosen.choice(["x", "y", "z", None]) for _ in people], pa.string()),
            "c": pa.array([chosen.choice([0.5, 1.5, 9.0, NAN, None]) for _ in people], pa.float64()),
        }
    )


_PEOPLE_COLUMNS = {
    "a": {"range": [0, 3]},
    "b": {"values": ["x", "y"], "outside": "other"},
    "c": {"bins": [0, 1, 2]},
}
_PEOPLE_MARGINALS = [("a",), ("b", "a"), ("a", "b"), ("c",), ("a", "b", "c")]


def make_tables(shared=None):
    """Every table by name: its rows, what is described of it, and the marginals that are counted."""
    edges = _edges()
    alone = [(name,) for name in _EDGE_COLUMNS]
    several = [("t_hour", "t_day"), ("d_text",), ("m_hour",), ("y_text",), ("c_text", "t_whole")]
    tables = {
        f"edges by {unit}": (edges, {"unit": unit, "max_records": 3, "columns": _EDGE_COLUMNS}, several)
        for unit in ("who", "number", "day", "cash", "flag")
    }
    # A column whose policy is to drop would leave few records for the others, so each is counted by itself.
    tables["edges by row"] = (edges, {"unit": "row", "columns": _EDGE_COLUMNS}, [*alone, *several])
    some = {"unit": "p", "max_records": 4, "columns": _PEOPLE_COLUMNS}
    tables["skewed"] = (_people(3000, 2500), some, _PEOPLE_MARGINALS)
    tables["weighted"] = (_people(3000, 2500), {**some, "bounding": "weight"}, _PEOPLE_MARGINALS)
    tables["empty"] = (_people(0, 0), some, _PEOPLE_MARGINALS)
    tables["one row"] = (_people(1, 1), some, _PEOPLE_MARGINALS)
    return tables | (_public(Path(shared)) if shared else {})


def _public(shared):
    trips = _read(shared / "data/chicago_taxi/trips.parquet", 20_000)
    taxi = {
        "shift": {"range": [0, 20]},
        "pickup_community_area": {"range": [-1, 77]},
        "payment_type": {"range": [-1, 11]},
        "trip_hour_of_day": {"range": [0, 23]},
        "fare": {"bins": [0, 5, 10, 20, 50, 100], "outside": "clamp"},
        "month": {"from": "trip_date", "period": "month"},
    }
    pairs = [(one, other) for one in taxi for other in taxi if one < other]
    incidents = _read(shared / "data/stlouis/incidents.parquet", 20_000)
    residents = {
        "month": {"range": [1, 12]},
        "neighborhood": {"range": [0, 90], "outside": "other"},
        "incident_type": {"range": [0, 50], "outside": "other"},
    }
    adult = _read(shared / "data/adult/adult.parquet", 10_000)
    census = {
        "age": {"bins": [0, 18, 30, 50, 100]},
        "sex": {"values": ["Male", "Female"]},
        "education": {"values": ["Bachelors", "HS-grad", "Masters"], "outside": "other"},
    }
    return {
        "taxi": (trips, {"unit": "taxi_id", "max_records": 5, "columns": taxi}, pairs),
        "stlouis": (
            incidents,
            {"unit": "sim_resident", "max_records": 3, "columns": residents},
            [("month", "neighborhood"), ("incident_type",), ("neighborhood", "incident_type")],
        ),
        "adult": (adult, {"unit": "row", "columns": census}, [("age", "sex"), ("education", "sex", "age")]),
    }


def _read(path, rows):
    table = pq.read_table(path).slice(0, rows)
    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        # Types that not every server has.
        kind = {pa.int8(): pa.int16(), pa.uint8(): pa.int16(), pa.large_string(): pa.string()}.get(kind, kind)
        table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


def sources(tables):
    """What is stored, each once: tables that differ in their description share their rows."""
    return {name.split(" by ")[0].replace(" ", "_"): rows for name, (rows, *_) in tables.items()}


def source_name(name):
    """The name of what is stored of a table."""
    return name.split(" by ")[0].replace(" ", "_")
