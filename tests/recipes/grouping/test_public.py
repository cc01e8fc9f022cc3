import datetime
import gzip
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.recipes.grouping.rules import BINS, encode_described, encode_values, read_columns

TABLE = parse_table(
    "t",
    {
        "source": "t.parquet",
        "unit": "row",
        "columns": {
            "region": {"values": ["a", "b", "c"]},
            "income": {"bins": [0, 10, 20, 50], "outside": "other"},
            "seen": {"range": [1, 4]},
            "bare": {},
        },
    },
)


def test_values_become_codes_and_a_missing_one_is_a_value():
    found = encode_values(pa.table({"a": ["x", None, "y", "x"], "b": [True, False, True, None]}))
    assert found.codes["a"].tolist() == [0, 2, 1, 0]
    assert dict(found.sizes) == {"a": 3, "b": 3}
    assert found.notes == ()


def test_many_numbers_are_cut_into_bins_of_equal_counts():
    numbers = np.random.default_rng(2).permutation(10_000) / 7
    found = encode_values(pa.table({"a": numbers}))
    assert found.sizes["a"] == BINS
    assert np.ptp(np.bincount(found.codes["a"])) <= 1
    assert numbers[found.codes["a"] == 3].max() < numbers[found.codes["a"] == 4].min()
    assert "cut into 20 bins" in found.notes[0]


def test_a_frequent_number_has_a_bin_of_its_own_and_missing_ones_another():
    numbers = np.concatenate([np.zeros(7000), np.arange(1, 2001), np.full(1000, np.nan)])
    found = encode_values(pa.table({"a": pa.array(numbers)}))
    codes = found.codes["a"]
    zero = codes[0]
    assert (codes == zero).sum() == 7000
    assert (codes == codes[-1]).sum() == 1000
    assert found.sizes["a"] <= BINS + 1


def test_dates_decimals_dictionaries_and_huge_numbers_are_read():
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(days=turn % 300) for turn in range(600)]
    table = pa.table(
        {
            "day": days,
            "moment": pa.array(days).cast(pa.timestamp("us")),
            "price": pa.array([Decimal(turn % 400) / 10 for turn in range(600)]),
            "kind": pa.array(["x", "y"] * 300).dictionary_encode(),
            "big": pa.array(np.arange(600, dtype=np.uint64) + np.uint64(2**63)),
        }
    )
    found = encode_values(table)
    assert {name: int(size) for name, size in found.sizes.items()} == {
        "day": BINS,
        "moment": BINS,
        "price": BINS,
        "kind": 2,
        "big": BINS,
    }


def test_numbers_and_dates_written_as_text_are_cut_like_others():
    numbers = [turn % 500 for turn in range(1000)]
    days = [f"2020-{1 + turn % 12:02}-{1 + turn % 27:02}" for turn in range(1000)]
    table = pa.table(
        {
            "whole": [str(each) for each in numbers],
            "decimal": ["NA" if each < 50 else f"{each}.5" for each in numbers],
            "day": days,
            "code": [f"x{each}" for each in numbers],
            "zip": [f"0{each % 90}" for each in numbers],
        }
    )
    found = encode_values(table)
    assert dict(found.sizes) == {"whole": BINS, "decimal": BINS + 1, "day": BINS, "code": 500, "zip": 90}
    assert (found.codes["whole"] == encode_values(pa.table({"a": numbers})).codes["a"]).all()
    assert found.notes[0].startswith("whole, decimal, day: cut into")


def test_columns_worth_a_word_are_named():
    table = pa.table(
        {
            "empty": pa.nulls(500),
            "same": ["x"] * 500,
            "name": [f"n{turn}" for turn in range(500)],
            "ok": [turn % 3 for turn in range(500)],
        }
    )
    found = encode_values(table)
    assert list(found.codes) == ["same", "name", "ok"]
    told = "\n".join(found.notes)
    assert "empty: left out" in told
    assert "same: one value" in told
    assert "name: nearly a value of its own" in told


def test_chosen_columns_come_in_the_order_of_the_table():
    table = pa.table({"a": [1], "b": [2], "c": [3]})
    assert list(encode_values(table, columns=["c", "a", "c"]).codes) == ["a", "c"]
    with pytest.raises(RecipeError, match="no column 'd'"):
        encode_values(table, columns=["d"])
    with pytest.raises(RecipeError, match="no column of the public table has a value"):
        encode_values(pa.table({"a": pa.nulls(3)}))
    with pytest.raises(RecipeError, match="neither numbers, text nor dates"):
        encode_values(pa.table({"a": [[1]]}))


def test_described_columns_take_their_domains():
    rows = pa.table({"region": ["a", "z", "c"], "income": [5, 50, 99], "seen": [9, 9, 9]})
    found = encode_described(rows, TABLE)
    assert found.codes["region"].tolist() == [0, -1, 2]
    assert found.codes["income"].tolist() == [0, 2, 3]
    assert dict(found.sizes) == {"region": 3, "income": 4, "seen": 4}
    assert found.notes == (
        "seen: no public row has a value of the domain, so they stay alone; are values written otherwise?",
    )


def test_numbers_that_are_none_are_outside_of_a_domain():
    rows = pa.table({"seen": [1.0, np.nan, np.inf, None, 4.0]})
    assert encode_described(rows, TABLE).codes["seen"].tolist() == [0, -1, -1, -1, 3]


def test_described_columns_that_the_public_table_lacks_stay():
    found = encode_described(pa.table({"region": ["a", "b"]}), TABLE)
    assert found.unknown == ("income", "seen")
    assert (found.codes["income"] == -1).all()
    with pytest.raises(RecipeError, match="none of the columns"):
        encode_described(pa.table({"x": [1]}), TABLE)
    with pytest.raises(RecipeError, match="'bare'"):
        encode_described(pa.table({"bare": [1]}), TABLE, columns=["bare"])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot be read"),
        (b"a,b\n", "has no rows"),
        (b"a,b,a\n1,2,3\n", "several columns named 'a'"),
        (b"\xe9,b\n1,2\n", "UTF-8"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path, content, told):
    path = tmp_path / "p.csv"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=told):
        read_columns(path)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"a,b\n\xe9,2\n")
    with pytest.raises(RecipeError, match="not UTF-8"):
        encode_values(read_columns(path))
    path = tmp_path / "p.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n\xe9,2\n"))
    with pytest.raises(RecipeError, match="not UTF-8"):
        encode_values(read_columns(path))
    path.write_bytes(b"not gzip")
    with pytest.raises(RecipeError, match="cannot be read"):
        read_columns(path)


def test_a_file_that_is_not_there_or_has_no_columns(tmp_path):
    with pytest.raises(RecipeError, match="cannot be read"):
        read_columns(tmp_path / "nothing.csv")
    pq.write_table(pa.table({}), tmp_path / "p.parquet")
    with pytest.raises(RecipeError, match="has no columns"):
        read_columns(tmp_path / "p.parquet")
