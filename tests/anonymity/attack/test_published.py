"""Files as text: what is read, and what is said of files that cannot be."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cases import read_cases
from sfumato.anonymity.attack import AttackError, open_published, read_text
from sfumato.core.errors import SfumatoError, SourceError

CSV = 'name;age;postcode\nAda;061;02138\n"Bo; B.";;1*\n'


def test_csv_keeps_every_sign(tmp_path):
    (tmp_path / "a.csv").write_text(CSV)
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write(CSV)
    for name in ("a.csv", "b.csv.gz"):
        table = read_text(tmp_path / name, side="register")
        assert table.column_names == ["name", "age", "postcode"]
        assert table["postcode"].to_pylist() == ["02138", "1*"]
        assert table["age"].to_pylist()[0] == "061"
        assert table["name"].to_pylist()[1] == "Bo; B."


@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
def test_an_empty_cell_is_missing_and_a_code_stays_a_code(tmp_path, separator):
    (tmp_path / "a.csv").write_text(f"age{separator}code\n61{separator}07\n{separator}1\n")
    table = read_text(tmp_path / "a.csv", side="register")
    assert table.to_pydict() == {"age": ["61", None], "code": ["07", "1"]}


def test_parquet_of_any_kind_becomes_text(tmp_path):
    import datetime

    table = pa.table(
        {
            "whole": [1, 2],
            "number": [1.0, 2.5],
            "day": [datetime.date(1945, 7, 31), None],
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "yes": [True, False],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    read = read_text(tmp_path / "t.parquet", side="release")
    assert read.to_pylist()[0] == {
        "whole": "1",
        "number": "1",
        "day": "1945-07-31",
        "kind": "a",
        "yes": "true",
    }
    assert read["number"].to_pylist() == ["1", "2.5"]


def test_a_release_folder_is_a_table_of_counts(project):
    out = project.parent / "out"
    recipe = sf.recipes.CellCounts(table="t", by=("region", "month"))
    release = sf.open(project).release(recipe, epsilon=1, out=out)
    published = open_published(out)
    assert published.records == sum(release.table["count"].to_pylist())
    assert published.table.column_names == ["region", "month"]
    sf.open(project).release(recipe, epsilon=[2, 3], out=project.parent / "two")
    with pytest.raises(AttackError, match="several epsilons"):
        open_published(project.parent / "two")


@pytest.mark.parametrize(("name", "words"), read_cases(__file__, "test_files_that_cannot_be_read"))
def test_files_that_cannot_be_read(tmp_path, name, words):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "a.parquet").write_text("secret-value")
    (tmp_path / "ragged.csv").write_text("a,b\nsecret-value\n")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(SfumatoError, match=words) as caught:
        open_published(tmp_path / name)
    assert "secret-value" not in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("counts", [["x"], [1.5], [None]])
def test_counts_are_whole_numbers(counts):
    with pytest.raises(AttackError, match="whole numbers"):
        open_published(pa.table({"a": ["1"], "n": counts}), count="n")


def test_nested_columns_are_refused():
    with pytest.raises(SourceError, match="nested"):
        read_text(pa.table({"a": [{"b": 1}]}), side="register")
