"""Counts where records are: the same as counts over all cells, however they are read and merged."""

import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.asking import cells
from sfumato.core.engine import bounded as engine_module
from sfumato.core.engine.counts import OccupiedTally, Tally
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.table import parse_table

# Their product is 2^63 - 1.
FACTORS = (49, 73, 127, 337, 92_737, 649_657)


def describe(sizes, *, bounding="truncate", max_records=2, unit="p", outside="drop"):
    columns = {f"c{i}": {"range": [0, size - 1], "outside": outside} for i, size in enumerate(sizes)}
    facts = {"source": "t.parquet", "unit": unit, "bounding": bounding, "columns": columns}
    return parse_table("t", facts if unit == "row" else {**facts, "max_records": max_records})


def spread_out(counts, cells):
    dense = np.zeros(cells, np.int64)
    dense[counts.cells] = counts.true_values
    return dense


@given(data=st.data())
def test_both_tallies_agree_on_any_batches(data):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    bounding = data.draw(st.sampled_from(["truncate", "weight"]))
    table = describe(sizes, bounding=bounding)
    columns = tuple(table.columns)
    dense, occupied = Tally(table, columns), OccupiedTally(table, columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.core.engine.counts._HELD", data.draw(st.sampled_from([0, 2, 2**22])))
        for rows in data.draw(st.lists(st.integers(0, 12), max_size=6)):
            codes = {
                name: np.array(
                    data.draw(st.lists(st.integers(0, size - 1), min_size=rows, max_size=rows)), np.uint8
                )
                for name, size in zip(columns, sizes, strict=True)
            }
            weights = None
            if bounding == "weight" and data.draw(st.booleans()):
                drawn = data.draw(st.lists(st.integers(0, 2**20), min_size=rows, max_size=rows))
                weights = np.array(drawn, np.int64)
            dense.add(codes, weights, rows=rows)
            occupied.add(codes, weights, rows=rows)
        expected, found = dense.finish(), occupied.finish()
    assert (np.diff(found.cells) > 0).all()
    assert found.cells.dtype == found.true_values.dtype == np.int64
    assert np.array_equal(spread_out(found, math.prod(sizes)), expected.true_values)


def test_no_batch_at_all_leaves_no_cell():
    found = OccupiedTally(describe([3]), ("c0",)).finish()
    assert found.cells.size == found.true_values.size == 0


def test_codes_of_large_cells_are_read_back():
    table = describe(FACTORS)
    columns = tuple(table.columns)
    random = np.random.default_rng(5)
    codes = {
        name: random.integers(0, size, 500).astype(np.uint32)
        for name, size in zip(columns, FACTORS, strict=True)
    }
    counted = OccupiedTally(table, columns)
    counted.add(codes, None, rows=500)
    bins = counted.finish().cells.copy()
    again = {}
    for name, size in reversed(list(zip(columns, FACTORS, strict=True))):
        bins, again[name] = np.divmod(bins, size)
    assert set(zip(*(again[name].tolist() for name in columns), strict=True)) == set(
        zip(*(codes[name].tolist() for name in columns), strict=True)
    )


def test_what_is_counted_is_read_only_prints_no_value_and_cannot_be_pickled():
    counted = OccupiedTally(describe([10]), ("c0",))
    counted.add({"c0": np.array([7, 7, 3])}, None, rows=3)
    found = counted.finish()
    for array in (found.cells, found.true_values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert repr(found) == "TrueCounts(columns=('c0',), values withheld)"
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(found)


def write(folder, rows):
    table = pa.table(
        {
            "p": pa.array([row[0] for row in rows], pa.string()),
            "c0": pa.array([row[1] for row in rows], pa.int64()),
            "c1": pa.array([row[2] for row in rows], pa.int64()),
        }
    )
    pq.write_table(table, folder / "t.parquet")


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["ana", "ben", "cy", "", None]),
        st.sampled_from([0, 1, 2, 3, 7, -1, None]),
        st.sampled_from([0, 1, 2, 9, None]),
    ),
    max_size=40,
)


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@pytest.mark.parametrize("outside", ["drop", "clamp", "other"])
@given(rows=ROWS, unit=st.sampled_from(["p", "row"]), held=st.sampled_from([0, 3]))
@settings(
    max_examples=4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
def test_the_engine_counts_occupied_cells_as_it_counts_all(tmp_path, bounding, outside, rows, unit, held):
    write(tmp_path, rows)
    table = describe([4, 3], bounding=bounding, outside=outside, unit=unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.core.engine.counts._HELD", held)
        patch.setattr(engine_module, "_BATCH_ROWS", 5)
        dense, two, one, occupied = StatementEngine(tmp_path).count(
            table, cells((("c0", "c1"), ("c1",)), (("c1",), ("c0", "c1"))), progress=lambda _: None
        )
    assert np.array_equal(spread_out(occupied, table.cells(("c0", "c1"))), dense.true_values)
    assert np.array_equal(spread_out(one, table.cells(("c1",))), two.true_values)
    assert occupied.true_values.sum() == two.true_values.sum()


def test_huge_domains_are_counted_through_the_engine(tmp_path):
    """A group of 2^63 - 1 cells, with records in its first and its last."""
    sizes = FACTORS
    columns = {f"c{i}": pa.array([0, size - 1, size - 1, size]) for i, size in enumerate(sizes)}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = describe(sizes, unit="row")
    (counts,) = StatementEngine(tmp_path).count(table, cells((), (tuple(columns),)), progress=lambda _: None)
    assert counts.cells.tolist() == [0, 2**63 - 2]
    assert counts.true_values.tolist() == [1, 2]
