"""Texts that stand for numbers and moments, made by chance, numbers without a value, and types."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import cells
from sfumato.core.facts.table import parse_table
from sfumato.servers.spark.encode import describe_type, encode_spark_column

pytestmark = pytest.mark.slow

MOMENTS = [
    "2020-01-02 03:04:05.123+01:30", "2020/1/2T3:4", "1999-12-31", "0044-03-15 (BC) 03:04:05 Z",
    "2020 2 29 24:00:00", "epoch", "2021-02-29 23:59:59 UTC", "2020-01-02 03:04:05-0330 ", "-0001-01-01",
    "2020-12-31 24:00", "2020-04-31", "10000-01-01", "infinity", "2020\\1\\2 0003:", "999999-01-01",
]  # fmt: skip
NUMBERS = [
    "1",
    "-1.5e3",
    " +.5 ",
    "1_000.2_5",
    "inf",
    "-Infinity",
    "nan",
    "1e400",
    "0x1",
    "1d",
    "9007199254740993",
]


def make_texts(bases, alphabet, *, size):
    chance = random.Random(11)
    texts = set(bases)
    while len(texts) < size:
        text = chance.choice(bases)
        for _ in range(chance.randint(1, 3)):
            place, way = chance.randint(0, len(text)), chance.random()
            after = place if way < 0.4 else place + 1
            text = text[:place] + ("" if 0.4 <= way < 0.7 else chance.choice(alphabet)) + text[after:]
        texts.add(text)
    return sorted(texts)


def spark_texts(size):
    return make_texts(NUMBERS, "+-._eE019 \tinfa", size=size) + make_texts(
        MOMENTS, "-/: T\t+Z.0129aBC()_\\xé|$", size=size
    )


def test_spark_reads_texts_as_duckdb_does(spark, tmp_path):
    from sfumato.core.engine.statements import StatementEngine
    from sfumato.servers.project import open_engine

    texts = [*spark_texts(500), None, "9" * 100_000, "1_" * 50_000 + "1", "2020-01-02 " + " " * 100_000]
    rows = pa.table({"t": texts, "n": list(range(len(texts)))})
    pq.write_table(rows, tmp_path / "texts.parquet")
    columns = {
        "n": {"range": [0, len(texts) - 1]},
        "whole": {"from": "t", "range": [-10, 1000], "outside": "other"},
        "clamped": {"from": "t", "range": [-10, 1000], "outside": "clamp"},
        "binned": {"from": "t", "bins": [-1000, -1, 0, 0.5, 1, 10, 1e9], "outside": "other"},
        "year": {"from": "t", "period": "year", "range": [-50, 2100], "outside": "other"},
        "month": {"from": "t", "period": "month", "outside": "other"},
        "weekday": {"from": "t", "period": "day_of_week", "outside": "other"},
        "hour": {"from": "t", "period": "hour", "outside": "other"},
    }
    asked = tuple(("n", name) for name in columns if name not in ("n", "clamped"))
    found = []
    for engine, source in (
        (open_engine(tmp_path), f"spark:{tmp_path}/texts.parquet"),
        (StatementEngine(tmp_path), "texts.parquet"),
    ):
        table = parse_table("t", {"source": source, "unit": "row", "columns": columns})
        engine.check(table, (("n",),))
        answers = engine.count(table, cells((), asked), progress=lambda _: None)
        answers += engine.count(table, cells((), (("n", "clamped"),)), progress=lambda _: None)
        found.append(answers)
    for name, one, other in zip([*asked, "clamped"], *found, strict=True):
        assert one.cells.tolist() == other.cells.tolist(), name


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_missing_number_is_not_the_largest_one(spark, tmp_path, kind):
    from sfumato.core.engine.statements import StatementEngine
    from sfumato.servers.project import open_engine

    most = {pa.float64(): "1.7976931348623157e+308", pa.float32(): "3.4028235e+38"}[kind]
    numbers = [None, float("nan"), float("inf"), 1.5, None]
    pq.write_table(pa.table({"x": pa.array(numbers, kind)}), tmp_path / "numbers.parquet")
    found = []
    for engine, source in (
        (open_engine(tmp_path), f"spark:{tmp_path}/numbers.parquet"),
        (StatementEngine(tmp_path), "numbers.parquet"),
    ):
        columns = {"x": {"values": [most, "1.5"], "outside": "other"}}
        table = parse_table("t", {"source": source, "unit": "row", "columns": columns})
        (counted,) = engine.count(table, cells((("x",),)), progress=lambda _: None)
        found.append(counted.true_values.tolist())
    assert found == [[1, 1, 3]] * 2


def test_types_that_have_no_single_value_are_other():
    for name in (
        "array<int>",
        "map<string,int>",
        "struct<a:int>",
        "binary",
        "interval day",
        "void",
        "variant",
    ):
        assert describe_type(name).kind == "other"
    assert describe_type("varchar(3)").kind == "text"
    assert describe_type("string collate UNICODE").kind == "other"


def test_a_long_list_is_joined_and_a_short_one_is_not():
    columns = {"a": {"values": [f"v{n}" for n in range(40)]}, "b": {"values": ["x", "y"]}}
    table = parse_table("t", {"source": "spark:t", "unit": "row", "columns": columns})
    stored = {name: describe_type("string") for name in columns}
    assert encode_spark_column(table.column("a"), stored, place=0).keys is not None
    assert encode_spark_column(table.column("b"), stored, place=1).keys is None
