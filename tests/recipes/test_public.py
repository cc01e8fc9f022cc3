"""Codes of public tables: those that the engine gives to the same values, for every kind of domain."""

import base64
import gzip
import math
import os
import zlib
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import cells
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError
from sfumato.core.facts.column import parse_column
from sfumato.core.facts.table import parse_table
from sfumato.recipes.shared.public import public_identifiers, read_public_table
from sfumato.tables.codes import encode_public

DATES = [date(2019, 1, 1), date(2024, 2, 29), date(2021, 12, 31), date(1999, 7, 4), None]
MOMENTS = [datetime(2019, 5, 6, hour, 59) for hour in (0, 7, 13, 23)] + [None]
INTEGERS = [0, 1, 2, 3, 9, 10, 15, 20, 99, -1, None]
NUMBERS = [0.0, 1.0, 1.5, 9.99, 10.0, 49.9, 50.0, 50.1, -0.5, None]
TEXTS = ["a", "b", "", "other", " a", "A", "1", None]

# A name, the keys of the column, and what is stored.
CASES = [
    ("texts", {"values": ["b", "a", ""]}, TEXTS),
    ("texts in other", {"values": ["b", "a"], "outside": "other"}, ["a", "b", "zebra", None]),
    ("listed numbers", {"values": [3, 1, 99]}, INTEGERS),
    ("ranges", {"ranges": [[0, 2], [10, 20, 10], 99]}, INTEGERS),
    ("ranges in other", {"ranges": [[0, 2], [10, 20, 10], 99], "outside": "other"}, INTEGERS),
    ("a range", {"range": [1, 15]}, INTEGERS),
    ("a range in other", {"range": [1, 15], "outside": "other"}, INTEGERS),
    ("a range of floats", {"range": [0, 15]}, NUMBERS),
    ("bins", {"bins": [0, 1, 10, 50]}, NUMBERS),
    ("bins of integers", {"bins": [0, 1, 10, 50]}, INTEGERS),
    ("bins in other", {"bins": [0, "0.5", 10, 50], "outside": "other"}, NUMBERS),
    ("month of dates", {"period": "month"}, DATES),
    ("day of week", {"period": "day_of_week"}, DATES),
    ("year", {"period": "year", "range": [2000, 2021]}, DATES),
    ("year in other", {"period": "year", "range": [2000, 2021], "outside": "other"}, DATES),
    ("hour", {"period": "hour"}, MOMENTS),
    ("month of texts", {"period": "month"}, ["2019-01-03", "2020-12-31", None]),
    ("texts of numbers", {"values": ["1", "2"]}, [1, 2, 3, None]),
]


def engine_codes(folder, keys, rows):
    """The code that the engine gives to every row, -1 where it drops it: one table per row."""
    table = parse_table(
        "t", {"source": "t.parquet", "unit": "row", "columns": {"row": {"range": [0, 99]}, "c": keys}}
    )
    rows = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
    pq.write_table(rows, folder / "t.parquet")
    (counts,) = StatementEngine(folder).count(table, cells((("row", "c"),)), progress=lambda _: None)
    grid = counts.true_values.reshape(100, -1)[: rows.num_rows]
    assert grid.max(initial=0) <= 1
    return np.where(grid.any(axis=1), grid.argmax(axis=1), -1)


@pytest.mark.parametrize(("keys", "stored"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_public_values_get_the_codes_of_private_ones(tmp_path, keys, stored):
    rows = pa.table({"c": pa.array(stored)})
    found = encode_public(parse_column("c", keys), rows)
    assert found.dtype == np.int64
    assert found.tolist() == engine_codes(tmp_path, keys, rows).tolist()


def test_combinations_get_the_codes_of_private_ones(tmp_path):
    keys = {"from": ["year", "part"], "values": [[2019, "a"], [2019, "b"], [2021, "a"]]}
    rows = pa.table(
        {
            "year": pa.array([2019, 2019, 2021, 2021, 2020, None, 2019]),
            "part": pa.array(["a", "b", "a", "b", "a", "a", None]),
        }
    )
    assert encode_public(parse_column("c", keys), rows).tolist() == [0, 1, 2, -1, -1, -1, -1]
    assert engine_codes(tmp_path, keys, rows).tolist() == [0, 1, 2, -1, -1, -1, -1]
    other = encode_public(parse_column("c", {**keys, "outside": "other"}), rows)
    assert other.tolist() == [0, 1, 2, 3, 3, 3, 3]


def test_several_chunks_and_dictionaries_are_read():
    column = parse_column("c", {"values": ["x", "y"]})
    chunks = pa.chunked_array([["x", "q"], ["y", None]])
    assert encode_public(column, pa.table({"c": chunks})).tolist() == [0, -1, 1, -1]
    assert encode_public(column, pa.table({"c": pa.array([], pa.string())})).tolist() == []


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("keys", [{"range": [0, 9]}, {"values": [1, 2]}, {"ranges": [[0, 5]]}])
def test_numbers_that_are_none_lie_outside(keys, odd):
    rows = pa.table({"c": pa.array([1.0, odd], pa.float64())})
    assert encode_public(parse_column("c", keys), rows)[1] == -1


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_lie_in_no_bin(odd):
    rows = pa.table({"c": pa.array([1.0, odd], pa.float64())})
    assert encode_public(parse_column("c", {"bins": [0, 5]}), rows).tolist() == [0, -1]


def test_booleans_get_the_codes_of_private_ones(tmp_path):
    keys = {"values": [False, True]}
    rows = pa.table({"c": pa.array([True, False, None])})
    assert engine_codes(tmp_path, keys, rows).tolist() == [1, 0, -1]
    assert encode_public(parse_column("c", keys), rows).tolist() == [1, 0, -1]


@pytest.mark.parametrize("keys", [{"range": [1, 15]}, {"bins": [1, 5, 10]}])
def test_clamped_values_get_the_codes_of_private_ones(tmp_path, keys):
    keys = {**keys, "outside": "clamp"}
    rows = pa.table({"c": pa.array(INTEGERS)})
    found = encode_public(parse_column("c", keys), rows)
    assert found.tolist() == engine_codes(tmp_path, keys, rows).tolist()


@pytest.mark.parametrize("keys", [{"range": [0, 9]}, {"bins": [0, 2, 9]}])
def test_numbers_stored_as_text_get_the_codes_of_private_ones(tmp_path, keys):
    rows = pa.table({"c": pa.array(["1", "1.0", "01", "2.5", "1e0", None])})
    found = encode_public(parse_column("c", keys), rows)
    assert found.tolist() == engine_codes(tmp_path, keys, rows).tolist()


def test_listed_numbers_stored_as_text_get_the_codes_of_private_ones(tmp_path):
    keys = {"values": [1, 7, 5]}
    rows = pa.table({"c": pa.array(["1", "1.0", "01", "5e0"])})
    found = encode_public(parse_column("c", keys), rows)
    assert found.tolist() == engine_codes(tmp_path, keys, rows).tolist()


def test_a_text_among_numbers_lies_outside(tmp_path):
    keys = {"range": [0, 9]}
    rows = pa.table({"c": pa.array(["1", "NA", "2"])})
    found = encode_public(parse_column("c", keys), rows)
    assert found.tolist() == engine_codes(tmp_path, keys, rows).tolist()


def test_combinations_of_many_parts_need_no_product_of_them():
    # 8,000 million cells, if all parts were crossed.
    keys = {"from": ["a", "b", "c"], "values": [[i, i, i] for i in range(2000)]}
    rows = pa.table({name: pa.array([5]) for name in "abc"})
    assert encode_public(parse_column("c", keys), rows).tolist() == [5]


@pytest.mark.parametrize(
    ("keys", "stored", "match"),
    [
        ({"from": "elsewhere", "range": [0, 9]}, [1], "no column 'elsewhere'"),
        ({"bins": [0, 5]}, [[1]], "numbers"),
        ({"period": "month"}, ["soon"], "dates"),
        ({"bounds": [0, 5]}, [1], "no domain"),
    ],
)
def test_public_tables_that_do_not_fit_are_refused(keys, stored, match):
    with pytest.raises(RecipeError, match=match):
        encode_public(parse_column("c", keys), pa.table({"c": pa.array(stored)}))


@pytest.mark.parametrize("name", ["p.parquet", "p.csv", "p.csv.gz"])
def test_a_file_that_is_none_is_refused(tmp_path, name):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_public_table(tmp_path / name)
    (tmp_path / "p.parquet").write_bytes(b"PAR1")
    with pytest.raises(RecipeError, match="cannot be read"):
        read_public_table(tmp_path / "p.parquet")


def test_files_are_read_with_their_bytes(tmp_path):
    (tmp_path / "p.csv").write_text("c,d\n1,x\n2,y\n")
    rows, content = read_public_table(tmp_path / "p.csv")
    assert encode_public(parse_column("c", {"range": [0, 9]}), rows).tolist() == [1, 2]
    assert encode_public(parse_column("d", {"values": ["y"]}), rows).tolist() == [-1, 0]
    assert content == (tmp_path / "p.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("long.csv", b"a" * (2**20 + 1), "first line is longer"),
        ("long.csv.gz", gzip.compress(b"a" * (2**20 + 1)), "first line is longer"),
        ("bomb.csv.gz", gzip.compress(b"a\n" * 2**20), "unpacks to more than"),
        ("large.csv", b"a\n" * 2**20, "larger than"),
        ("latin.csv", b"\xe9,b\n1,2\n", "not UTF-8"),
    ],
)
def test_public_files_are_read_within_limits(tmp_path, monkeypatch, name, content, words):
    for module in ("sfumato.recipes.shared.public", "sfumato.tables.read"):
        monkeypatch.setattr(f"{module}._MOST_BYTES", 2**20 + 2)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RecipeError, match=words):
        read_public_table(tmp_path / name)


@pytest.mark.parametrize("name", ["zero.csv", "zero.parquet", "pipe.csv", "folder.csv"])
def test_what_is_no_file_is_not_read_as_a_public_table(tmp_path, name):
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    (tmp_path / "zero.parquet").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RecipeError, match="not a regular file"):
        read_public_table(tmp_path / name)


def test_packed_identifiers_cannot_unpack_to_more_than_a_sample():
    bomb = base64.b64encode(zlib.compress(bytes(2**24), 9)).decode()
    with pytest.raises(RecipeError, match="cannot be read"):
        public_identifiers({"identifiers": bomb})
