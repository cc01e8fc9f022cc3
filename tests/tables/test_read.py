"""The one reader: files and frames become the same Arrow table, and messages hold no value."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.cases import read_cases
from sfumato.core.errors import SourceError
from sfumato.tables.read import guess_kinds, parse_table, read_pieces, read_table, spell_table

ROWS = [{"code": "07", "note": "a, b"}, {"code": None, "note": 'say "x"'}]


def spell_file(separator: str) -> str:
    return f'code{separator}note\n07{separator}"a, b"\n""{separator}"say ""x"""\n'


@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv"])
def test_any_separator_is_found_in_the_header(tmp_path, separator, ending):
    path = tmp_path / f"t{ending}"
    content = spell_file(separator).encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    assert read_table(path, side="table").to_pylist() == ROWS
    assert parse_table(path.read_bytes(), name=path.name).to_pylist() == ROWS


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfcode,note\r\n07,x\r\n")
    assert read_table(tmp_path / "t.csv", side="table").to_pylist() == [{"code": "07", "note": "x"}]


def test_numbers_are_guessed_from_all_values_where_asked(tmp_path):
    (tmp_path / "t.csv").write_text("age,code,share\n61,07,0.5\n,12,1\n", encoding="utf-8")
    assert read_table(tmp_path / "t.csv", side="table", typed=True).to_pylist() == [
        {"age": 61, "code": "07", "share": 0.5},
        {"age": None, "code": "12", "share": 1.0},
    ]
    assert guess_kinds(pa.table({"a": [1]})).to_pylist() == [{"a": 1}]


def test_frames_mappings_and_batches_are_tables():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"a": [1, 2]}
    for source in (
        columns,
        pa.table(columns),
        pa.record_batch(columns),
        pandas.DataFrame(columns),
        polars.DataFrame(columns),
    ):
        assert read_table(source, side="table").to_pydict() == columns


def test_several_files_are_one_table(tmp_path):
    for name in ("a1.csv", "a2.csv"):
        (tmp_path / name).write_text("x\n1\n", encoding="utf-8")
    assert read_table(tmp_path / "a*.csv", side="table").num_rows == 2


@pytest.mark.parametrize(
    ("name", "content", "message"), read_cases(__file__, "test_what_cannot_be_read_is_said_without_a_value")
)
def test_what_cannot_be_read_is_said_without_a_value(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message) as failure:
        read_table(tmp_path / name, side="table")
    assert "secret" not in str(failure.value)


def test_missing_columns_are_named_and_those_of_a_text_file_are_not(tmp_path):
    with pytest.raises(SourceError, match=r"no column 'b' \(it has: a\)"):
        read_table({"a": [1]}, side="table", columns=["b"])
    (tmp_path / "t.csv").write_text("Ann,1970\nBob,1980\n", encoding="utf-8")
    with pytest.raises(SourceError, match="no column 'b'; is there a line with names") as failure:
        read_table(tmp_path / "t.csv", side="table", columns=["b"])
    assert "Ann" not in str(failure.value)


def test_pieces_are_the_table(tmp_path):
    table = pa.table({"a": np.arange(10), "b": ["x", None] * 5})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    pieces = list(read_pieces(tmp_path / "t.parquet", side="table", columns=["b"]))
    assert (
        pa.concat_tables([spell_table(piece, side="table") for piece in pieces])["b"].to_pylist()
        == table["b"].to_pylist()
    )


def test_decimals_and_whole_floats_are_spelled_as_people_write_them():
    table = pa.table({"d": pa.array([1.5]).cast(pa.decimal128(9, 3)), "f": [2.0]})
    assert spell_table(table, side="table").to_pylist() == [{"d": "1.5", "f": "2"}]


def test_pieces_of_a_file_without_a_column_say_what_it_has(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"no column 'b' \(it has: a\)"):
        list(read_pieces(tmp_path / "t.parquet", side="table", columns=["b"]))
