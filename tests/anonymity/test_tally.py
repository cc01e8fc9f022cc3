"""Counting of different rows: the same from memory, from a file in pieces, and from plain dictionaries."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.anonymity.check import measure_anonymity, tally_rows
from sfumato.core.errors import SourceError

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "word": st.one_of(st.none(), st.sampled_from(["b", "a", "", "*"])),
            "group": st.one_of(st.none(), st.sampled_from(["g", "h"])),
            "number": st.one_of(st.none(), st.sampled_from([1.5, -2.0, 0.0])),
            "flag": st.one_of(st.none(), st.booleans()),
            "nothing": st.none(),
            "weight": st.integers(0, 5),
        }
    ),
    max_size=30,
)
SCHEMA = pa.schema(
    {
        "word": pa.large_string(),
        "group": pa.dictionary(pa.int8(), pa.string()),
        "number": pa.float32(),
        "flag": pa.bool_(),
        "nothing": pa.null(),
        "weight": pa.int16(),
    }.items()
)
NAMES = SCHEMA.names[:-1]


def listed(found):
    """The rows of a tally with their counts and weights, as a dictionary."""
    cells = [
        [values[code].as_py() for code in codes.tolist()]
        for codes, values in zip(found.codes, found.values, strict=True)
    ]
    rows = list(zip(*cells, strict=True))
    assert len(set(rows)) == len(rows)
    codes = list(zip(*(each.tolist() for each in found.codes), strict=True))
    assert codes == sorted(codes)
    return dict(zip(rows, zip(found.counts.tolist(), found.weights.tolist(), strict=True), strict=True))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_a_file_in_pieces_is_counted_as_a_table_in_memory(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("sfumato.tables.read._PIECE", 4)
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=7)
    expected, weights = Counter(), Counter()
    for row in rows:
        flag = None if row["flag"] is None else str(row["flag"]).lower()
        key = (row["word"], row["group"], row["number"], flag, None)
        expected[key] += 1
        weights[key] += row["weight"]
    for source in (table, tmp_path / "t.parquet"):
        found = tally_rows(source, NAMES, side="table", weights="weight")
        assert listed(found) == {key: (count, weights[key]) for key, count in expected.items()}
        assert found.records == len(rows)
        for values in found.values:
            known = values.drop_null().to_pylist()
            assert known == sorted(known)
            assert not values[: len(known)].null_count


def test_many_wide_columns_are_told_apart():
    # Of 32 values each, the first column is 2^65 in a number that packs all: more than 64 bits hold.
    columns = {f"c{place}": [*range(32), *range(32)] for place in range(14)}
    found = measure_anonymity(columns, quasi_identifiers=list(columns))
    assert (found.k, found.classes) == (2, 32)
    columns["c0"][0] = 1
    found = measure_anonymity(columns, quasi_identifiers=list(columns))
    assert (found.k, found.classes) == (1, 33)


def test_words_of_a_dictionary_that_no_row_has_do_not_count():
    words = pa.DictionaryArray.from_arrays(pa.array([0, 2, None, 2]), pa.array(["9", "5", "1"]))
    table = pa.table({"a": ["x", "x", "y", "y"], "s": words})
    found = measure_anonymity(table, quasi_identifiers=["a"], sensitive="s", distance="ordered")
    plain = table.set_column(1, "s", words.cast(pa.string()))
    assert found.by_column["s"].values == 3
    assert found == measure_anonymity(plain, quasi_identifiers=["a"], sensitive="s", distance="ordered")


def test_a_dictionary_may_hold_a_word_twice_and_a_missing_one():
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(["x", "x", None]))
    assert measure_anonymity(pa.table({"a": words}), quasi_identifiers=["a"]).k == 2


def test_chunks_with_dictionaries_of_their_own_are_one_column():
    chunks = [pa.array(words, pa.string()).dictionary_encode() for words in (["x", "y"], ["y", "x"], [])]
    table = pa.table({"a": pa.chunked_array(chunks, pa.dictionary(pa.int32(), pa.string()))})
    assert measure_anonymity(table, quasi_identifiers=["a"]).k == 2


def test_a_file_with_two_columns_of_one_name_is_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "t.parquet")
    for source in (table, tmp_path / "t.parquet"):
        with pytest.raises(SourceError, match="same name"):
            tally_rows(source, ["a"], side="table")


def test_frames_are_read_too():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame({"a": [1.0, float("nan"), None], "s": ["u", "v", "u"]})
    found = measure_anonymity(frame, quasi_identifiers=["a"], sensitive="s")
    assert (found.k, found.classes) == (1, 2)
