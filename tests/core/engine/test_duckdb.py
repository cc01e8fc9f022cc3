import gzip
import math
import pickle
from collections import Counter
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from helpers.asking import cells
from sfumato.core.engine.base import LARGEST_MARGINAL, TrueCounts
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.table import parse_table

SILENT = {"progress": lambda _: None}


def make(folder, table, *, name="t.parquet", unit="row", columns, **facts):
    if name.endswith(".parquet"):
        pq.write_table(table, folder / name)
    else:
        pyarrow.csv.write_csv(table, folder / name)
    if unit != "row":
        facts.setdefault("max_records", 100)
    return parse_table("t", {"source": name, "unit": unit, "columns": columns, **facts})


def describe(source, values, **facts):
    """A table with one column of listed values, and rows for individuals where nothing else is said."""
    return parse_table("t", {"source": source, "unit": "row", "columns": {"c": {"values": values}}, **facts})


def count(folder, table, *columns):
    (counts,) = StatementEngine(folder).count(table, cells((columns,)), **SILENT)
    return counts.true_values


def encode(folder, values, spec, *, name="t.parquet"):
    """The counts of one stored column under one description."""
    table = pa.table({"c": pa.array(values)}) if not isinstance(values, pa.Array) else pa.table({"c": values})
    described = make(folder, table, name=name, columns={"c": spec})
    StatementEngine(folder).check(described, (("c",),))
    return count(folder, described, "c").tolist()


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "spec", "expected"),
    [
        (["a", "b", "a", "z", None, ""], {"values": ["a", "b"]}, [2, 1]),
        (["a", "z", None], {"values": ["a", "b"], "outside": "other"}, [1, 0, 2]),
        ([1, 5, 1, 9, None], {"values": [1, 5]}, [2, 1]),
        ([1, 2, 3, 0, 4, None], {"values": [1, 2, 3]}, [1, 1, 1]),
        ([1, 2, 3, -7, 99, None], {"range": [1, 3]}, [1, 1, 1]),
        ([1, 2, 3, -7, 99, None], {"range": [1, 3], "outside": "clamp"}, [2, 1, 2]),
        ([-3, -2, -1], {"range": [-3, -1]}, [1, 1, 1]),
        ([1.0, 2.5, 3.0, NAN, INF, -INF, None], {"range": [1, 3]}, [1, 0, 1]),
        ([1.0, 2.5, 3.0, NAN, INF, -INF, None], {"range": [1, 3], "outside": "clamp"}, [2, 0, 2]),
        ([0.0, 9.99, 10.0, 50.0, -1.0, 51.0, NAN, INF, None], {"bins": [0, 10, 50]}, [2, 2]),
        ([0.0, 10.0, 50.0, -1.0, 51.0, NAN, INF, -INF], {"bins": [0, 10, 50], "outside": "clamp"}, [3, 4]),
        ([0.0, 60.0, NAN, None], {"bins": [0, 10, 50], "outside": "other"}, [1, 0, 3]),
        ([True, False, True, None], {"values": [False, True]}, [1, 2]),
        ([True, False, None], {"range": [0, 1]}, [1, 1]),
        ([date(2020, 1, 1), date(2021, 2, 28), None], {"period": "year", "range": [2020, 2021]}, [1, 1]),
        (
            [datetime(2020, 1, 6, 23), datetime(2020, 1, 12, 0)],
            {"period": "day_of_week"},
            [1] + [0] * 5 + [1],
        ),
        ([datetime(2020, 1, 6, 23), None], {"period": "hour"}, [0] * 23 + [1]),
        (["2020-03-01", "bad", "2020-13-01", None], {"period": "month"}, [0, 0, 1] + [0] * 9),
        (["3", "3.0", " 2 ", "2.5", "x", "1e400", "nan", ""], {"range": [1, 3]}, [0, 1, 2]),
        (["12.7", "13", "0013"], {"values": [11, 13]}, [0, 2]),
        (["1.5", "bad", "inf", "-inf", "nan"], {"bins": [0, 1, 2], "outside": "clamp"}, [1, 2]),
    ],
)
def test_any_value_gets_a_code_or_its_policy(tmp_path, values, spec, expected):
    assert encode(tmp_path, values, spec) == expected


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_text_and_columnar_files_count_alike(tmp_path, name):
    assert encode(tmp_path, [1, 2, 2, None, 7], {"range": [1, 2]}, name=name) == [1, 2]


def test_decimals_and_wide_integers_are_read(tmp_path):
    assert encode(tmp_path, [Decimal("1.00"), Decimal("1.50")], {"values": [1, 2]}) == [1, 0]
    with pytest.raises(SourceError, match="stored with decimals"):
        encode(tmp_path, [Decimal("1.00"), Decimal("1.50")], {"range": [1, 2]})
    assert encode(tmp_path, pa.array([2**63, 1], pa.uint64()), {"range": [1, 2]}) == [1, 0]


def test_combinations_of_columns(tmp_path):
    table = pa.table({"year": [2019, 2019, 2020, None], "month": [1, 2, 1, 1]})
    spec = {"from": ["year", "month"], "values": [[2019, 1], [2019, 2]]}
    assert count(tmp_path, make(tmp_path, table, columns={"period": spec}), "period").tolist() == [1, 1]


def test_names_and_values_may_hold_quotes(tmp_path):
    table = pa.table({'it\'s "odd"': ["o'clock", "x;--"]})
    described = make(tmp_path, table, columns={'it\'s "odd"': {"values": ["o'clock", "x;--"]}})
    assert count(tmp_path, described, 'it\'s "odd"').tolist() == [1, 1]


def test_a_table_without_rows_counts_zero(tmp_path):
    table = pa.table({"p": pa.array([], pa.int64()), "c": pa.array([], pa.string())})
    for name in ("t.parquet", "t.csv"):
        described = make(tmp_path, table, name=name, unit="p", columns={"c": {"values": ["a"]}})
        assert count(tmp_path, described, "c").tolist() == [0]


def test_malformed_text_never_raises(tmp_path):
    lines = b'p,c\n1,a\n2\n3,a,extra\n4,"b""\n5,\xff\xfe\n6,' + b"z" * 3_000_000 + b"\n7,a\n"
    (tmp_path / "t.csv").write_bytes(lines)
    described = describe("t.csv", ["a"], unit="p", max_records=2)
    assert count(tmp_path, described, "c")[0] >= 1


def test_compressed_text_and_other_delimiters(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"p;c\n1;a\n2;b,b\n"))
    described = describe("t.csv.gz", ["a", "b,b"])
    assert count(tmp_path, described, "c").tolist() == [1, 1]


def test_line_breaks_inside_quotes_are_text(tmp_path):
    (tmp_path / "t.csv").write_text('p,c\n1,"a\nb"\n2,a\n3\n4,b,extra\n')
    described = describe("t.csv", ["a", "a\nb"])
    assert count(tmp_path, described, "c").tolist() == [1, 1]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize("folder", ["p=7", "c=1"])
def test_a_folder_name_does_not_stand_for_a_column(tmp_path, name, folder):
    place = tmp_path / folder
    place.mkdir()
    table = pa.table({"p": [1, 2, 3], "c": [0, 0, 0]})
    described = make(place, table, name=name, unit="p", max_records=1, columns={"c": {"range": [0, 1]}})
    assert count(place, described, "c").tolist() == [3, 0]


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_of_every_kind_are_read_and_never_fail(tmp_path, unit, zone):
    moment = 1583020800 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    extremes = [] if unit == "s" else [2**60, -(2**60), 2**63 - 1, -(2**63) + 1]
    values = pa.array([moment, None, *extremes]).cast(pa.timestamp(unit, zone))
    table = pa.table({"p": ["x"] * len(values), "c": values})
    described = make(
        tmp_path, table, unit="p", columns={"year": {"from": "c", "period": "year", "range": [2020, 2020]}}
    )
    assert count(tmp_path, described, "year").tolist() == [1]


def test_several_files_are_one_table(tmp_path):
    for part in range(3):
        pq.write_table(pa.table({"c": ["a"] * (part + 1)}), tmp_path / f"part{part}.parquet")
    described = describe("part*.parquet", ["a"])
    assert count(tmp_path, described, "c").tolist() == [6]


def test_many_marginals_come_from_one_call(tmp_path, people):
    columns = {"region": {"values": ["a", "b", "c"]}, "month": {"range": [1, 12]}}
    described = make(tmp_path, people, unit="person", columns=columns)
    both, region, month = StatementEngine(tmp_path).count(
        described, cells((("region", "month"), ("region",), ("month",))), **SILENT
    )
    grid = both.true_values.reshape(3, 12)
    assert (grid.sum(1) == region.true_values).all()
    assert (grid.sum(0) == month.true_values).all()
    expected = Counter(zip(people["region"].to_pylist(), people["month"].to_pylist(), strict=True))
    assert grid[1, 3] == expected[("b", 4)]


def test_truncation_keeps_exactly_the_bound(tmp_path):
    table = pa.table({"p": ["x"] * 50 + ["y"] * 2 + [None] * 9, "c": list(range(50)) + [0, 1] + [3] * 9})
    described = make(tmp_path, table, unit="p", max_records=7, columns={"c": {"range": [0, 49]}})
    assert count(tmp_path, described, "c").sum() == 9


def test_weights_are_exact_and_bounded(tmp_path):
    table = pa.table({"p": ["x"] * 7 + ["y"] * 2, "c": [0] * 7 + [1] * 2})
    described = make(
        tmp_path, table, unit="p", max_records=3, bounding="weight", columns={"c": {"range": [0, 1]}}
    )
    grid = described.grid
    assert count(tmp_path, described, "c").tolist() == [7 * (3 * grid // 7), 2 * grid]
    assert 7 * (3 * grid // 7) <= described.contribution


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_the_order_of_records_does_not_matter(tmp_path, bounding):
    random = np.random.default_rng(3)
    table = pa.table({"p": random.integers(0, 20, 400), "c": random.integers(0, 9, 400)})
    facts = {"unit": "p", "max_records": 5, "bounding": bounding, "columns": {"c": {"range": [0, 8]}}}
    first = count(tmp_path, make(tmp_path, table, **facts), "c")
    shuffled = table.take(pa.array(random.permutation(400)))
    assert (count(tmp_path, make(tmp_path, shuffled, **facts), "c") == first).all()


def test_dropped_records_do_not_use_up_the_bound(tmp_path):
    table = pa.table({"p": ["x"] * 6, "c": [0, 0, 0, 99, 99, 99]})
    described = make(tmp_path, table, unit="p", max_records=3, columns={"c": {"range": [0, 1]}})
    assert count(tmp_path, described, "c").tolist() == [3, 0]


def test_exact_counts_print_without_values_and_do_not_pickle(tmp_path):
    counts = TrueCounts(("c",), np.array([123456789]))
    assert "123456789" not in repr(counts)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(counts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"source": "gone.parquet"}, "does not exist"),
        ({"source": "gone*.parquet"}, "does not exist"),
        ({"source": "t.xls"}, "must end in"),
        ({"source": "t.xlsx"}, "cannot be read as xlsx"),
        ({"source": "broken.parquet"}, "cannot be read"),
        ({"source": "broken.csv.gz"}, "cannot be read"),
        ({"source": "twice.csv"}, "distinct name"),
        ({"source": "case.csv"}, "differ in case only"),
        ({"source": "case.parquet"}, "differ in case only"),
        ({"unit": "id", "max_records": 2}, "no unit column 'id'"),
        ({"columns": {"c": {"from": "d", "values": ["a"]}}}, "no column 'd'"),
        ({"columns": {"c": {"from": "nested", "values": ["a"]}}}, "nested or binary"),
        ({"columns": {"c": {"from": "n", "period": "month"}}}, "needs a stored date"),
    ],
)
def test_public_faults_are_found_before_anything_is_read(tmp_path, change, words):
    pq.write_table(pa.table({"c": ["a"], "n": [1], "nested": [[1]]}), tmp_path / "t.parquet")
    (tmp_path / "t.xlsx").write_text("x")
    (tmp_path / "t.xls").write_text("x")
    (tmp_path / "broken.parquet").write_text("not parquet")
    (tmp_path / "broken.csv.gz").write_text("not gzip")
    (tmp_path / "twice.csv").write_text("c,c\n1,2\n")
    (tmp_path / "case.csv").write_text("c,C\n1,2\n")
    pq.write_table(pa.table({"c": ["a"], "C": ["b"]}), tmp_path / "case.parquet")
    spec = {"source": "t.parquet", "unit": "row", "columns": {"c": {"values": ["a"]}}, **change}
    with pytest.raises(SourceError) as caught:
        StatementEngine(tmp_path).check(parse_table("t", spec), (("c",),))
    assert words in str(caught.value)
    assert "table 't'" in str(caught.value) or "column 'c'" in str(caught.value)


def test_a_marginal_too_large_is_refused_with_its_size(tmp_path):
    table = make(tmp_path, pa.table({"c": [1]}), columns={"c": {"range": [0, LARGEST_MARGINAL]}})
    with pytest.raises(SchemaError, match="fewer columns or coarser domains"):
        StatementEngine(tmp_path).check(table, (("c",),))


def test_a_file_that_breaks_off_does_not_quote_a_record(tmp_path):
    table = make(tmp_path, pa.table({"c": ["secret"] * 50_000}), columns={"c": {"values": ["secret"]}})
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[:4] + b"\xff" * 60 + content[64:])
    with pytest.raises(SourceError) as caught:
        count(tmp_path, table, "c")
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "sibling"),
    [("p[1]/d.parquet", "p1/d.parquet"), ("d[1].parquet", "d1.parquet"), ("d?.parquet", "dx.parquet")],
)
def test_a_path_is_not_a_pattern(tmp_path, name, sibling):
    for path, text in ((name, "a"), (sibling, "b")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"c": [text]}), tmp_path / path)
    described = describe(name, ["a", "b"])
    assert count(tmp_path, described, "c").tolist() == [1, 0]


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.decimal256(45, 0), pa.timestamp("ns"), pa.timestamp("ms"), pa.timestamp("us")]
)
def test_units_that_cannot_be_told_apart_exactly_are_refused(tmp_path, kind):
    table = pa.table({"p": pa.array([1, 2]).cast(kind), "c": ["a", "a"]})
    described = make(tmp_path, table, unit="p", columns={"c": {"values": ["a"]}})
    with pytest.raises(SourceError, match="unit column 'p'"):
        StatementEngine(tmp_path).check(described, (("c",),))


def test_a_missing_header_line_is_not_shown(tmp_path):
    (tmp_path / "t.csv").write_text("Jane Doe,HIV positive\nJohn,none\n")
    described = describe("t.csv", ["a"])
    with pytest.raises(SourceError) as caught:
        StatementEngine(tmp_path).check(described, (("c",),))
    assert "Jane" not in str(caught.value)
    assert StatementEngine(tmp_path).describe(described) == {}
    (tmp_path / "t.csv").write_text("n,c\nJane Doe,HIV positive\n")
    assert set(StatementEngine(tmp_path).describe(described)) == {"n", "c"}


def test_the_version_changes_with_the_file_and_hides_its_size(tmp_path, people):
    described = make(tmp_path, people, columns={"month": {"range": [1, 12]}})
    engine = StatementEngine(tmp_path)
    first = engine.version(described, secret=b"k")
    assert engine.version(described, secret=b"k") == first
    assert engine.version(described, secret=b"other") != first
    pq.write_table(people.slice(1), tmp_path / "t.parquet")
    assert engine.version(described, secret=b"k") != first


@pytest.mark.parametrize(
    "spec", [{"range": [0, 3], "outside": "clamp"}, {"bins": [0, 1, 3], "outside": "clamp"}]
)
def test_what_is_no_number_is_none_whatever_the_others_hold(tmp_path, spec):
    # A file states the smallest and largest value without NaN, and an engine may believe it.
    for others in ([0.0], [0.0, 3.0], [7.0], []):
        counted = encode(tmp_path, pa.array([NAN, *others], pa.float64()), spec)
        assert counted == encode(tmp_path, pa.array(others, pa.float64()), spec)
