"""Ranges of whole numbers: read, written shorter than lists, and refused where they mean nothing."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from helpers.asking import cells
from helpers.projects import write_project
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SchemaError
from sfumato.core.facts.column import _MOST_VALUES, column_spec, find_ranges, parse_column, parse_ranges
from sfumato.core.facts.domain import Values
from sfumato.core.facts.table import parse_table


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([[0, 3]], [0, 1, 2, 3]),
        ([[10, 40, 10]], [10, 20, 30, 40]),
        ([[10, 45, 10]], [10, 20, 30, 40]),
        ([7], [7]),
        ([[7]], [7]),
        ([[7, 7]], [7]),
        ([[-3, -1], 0, [5, 9, 4]], [-3, -2, -1, 0, 5, 9]),
        ([[0, 2], [1, 3]], [0, 1, 2, 1, 2, 3]),
    ],
)
def test_ranges_stand_for_numbers(written, expected):
    assert list(parse_ranges(written)) == expected


def test_as_many_values_as_are_allowed():
    assert len(parse_ranges([[1, _MOST_VALUES]])) == _MOST_VALUES


@given(st.lists(st.integers(-(2**53), 2**53), max_size=80))
def test_any_numbers_that_are_shortened_read_back(numbers):
    assert not numbers or list(parse_ranges(find_ranges(tuple(numbers)))) == numbers


RUNS = st.lists(
    st.tuples(st.integers(-1000, 1000), st.integers(1, 60), st.integers(1, 9)), min_size=1, max_size=5
)


@given(RUNS)
def test_runs_read_back_and_are_shorter(runs):
    numbers = tuple(first + step * place for first, count, step in runs for place in range(count))
    found = find_ranges(numbers)
    assert parse_ranges(found) == numbers
    assert len(found) <= len(numbers)
    if len(numbers) > 20 * len(runs):
        assert len(found) * 3 < len(numbers)


@pytest.mark.parametrize("values", [["a", "b"], list(range(100)), list(map(str, range(100)))])
def test_listed_values_are_written_out(values):
    assert column_spec(parse_column("c", {"values": values}))["values"] == values


@given(RUNS, st.sampled_from(["drop", "other"]))
def test_a_column_of_ranges_is_a_column_of_values(runs, outside):
    written = [[first, first + step * (count - 1), step] for first, count, step in runs]
    numbers = list(parse_ranges(written))
    if len(set(numbers)) != len(numbers):
        with pytest.raises(SchemaError, match="listed twice"):
            parse_column("c", {"ranges": written})
        return
    by_ranges = parse_column("c", {"ranges": written, "outside": outside})
    by_values = parse_column("c", {"values": numbers, "outside": outside})
    assert by_ranges.labels == by_values.labels
    assert by_ranges.domain == Values(tuple(numbers), runs=True)
    assert parse_column("c", column_spec(by_ranges)) == by_ranges


def test_names_go_with_ranges():
    names = [f"code {number}" for number in range(30)]
    column = parse_column("c", {"ranges": [[0, 28], 99], "names": names})
    assert column.domain.names == tuple(names)
    assert parse_column("c", column_spec(column)) == column
    with pytest.raises(SchemaError, match="names"):
        parse_column("c", {"ranges": [[0, 28], 99], "names": names[1:]})


def test_the_longest_lists_read_back(monkeypatch):
    monkeypatch.setattr("sfumato.core.facts.column._MOST_VALUES", 50)
    column = parse_column("c", {"values": list(range(0, 200, 2))})
    assert parse_column("c", column_spec(column)) == column


def test_the_engine_counts_what_ranges_say(tmp_path):
    stored = [0, 1, 5, 10, 15, 20, 30, 99, 99, 100, None, -1]
    pq.write_table(pa.table({"c": pa.array(stored, pa.int64())}), tmp_path / "t.parquet")
    spec = {"source": "t.parquet", "unit": "row", "columns": {"c": {"ranges": [[0, 2], [10, 30, 10], 99]}}}
    (counts,) = StatementEngine(tmp_path).count(
        parse_table("t", spec), cells((("c",),)), progress=lambda _: None
    )
    assert counts.true_values.tolist() == [1, 1, 0, 1, 1, 1, 2]


def test_a_release_with_ranges_verifies(tmp_path):
    columns = {"c": {"ranges": [[0, 40], [100, 900, 100], 9999]}}
    file = write_project(tmp_path, columns, rows=pa.table({"c": [0, 7, 9999, 12]}))
    recipe = sf.recipes.CellCounts(table="t", by=("c",))
    release = sf.open(file).release(recipe, epsilon=1, out=tmp_path / "out")
    written = release.certificate["plan"]["table"]["t"]["columns"]["c"]
    assert written["ranges"] == [[0, 40], [100, 900, 100], 9999]
    assert release.table["c"].to_pylist()[-2:] == [900, 9999]
    sf.verify(tmp_path / "out", ledger=tmp_path / "ledger.db")
