"""The bound holds on any table: the distance of neighbouring counts never exceeds the contribution."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.asking import cells
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.table import parse_table

VALUES = st.one_of(st.integers(-2, 5), st.none(), st.floats(allow_nan=True, allow_infinity=True))
RECORDS = st.lists(
    st.tuples(st.integers(0, 6), VALUES, st.sampled_from(["x", "y", "z", None, ""])), max_size=60
)


def counts_of(records, *, bounding, max_records):
    table = pa.table(
        {
            "p": pa.array([person for person, _, _ in records], pa.int64()),
            "c": pa.array([None if v is None else float(v) for _, v, _ in records], pa.float64()),
            "d": pa.array([text for _, _, text in records], pa.string()),
        }
    )
    described = parse_table(
        "t",
        {
            "source": "t.parquet",
            "unit": "p",
            "max_records": max_records,
            "bounding": bounding,
            "columns": {
                "c": {"range": [0, 3], "outside": "clamp"},
                "d": {"values": ["x", "y"], "outside": "other"},
            },
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, Path(folder, "t.parquet"))
        return described, StatementEngine(Path(folder)).count(
            described, cells((("c", "d"), ("c",))), progress=lambda _: None
        )


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
@given(records=RECORDS, max_records=st.integers(1, 4), person=st.integers(0, 6))
def test_removing_one_individual_moves_counts_by_at_most_the_contribution(
    bounding, records, max_records, person
):
    described, with_person = counts_of(records, bounding=bounding, max_records=max_records)
    others = [record for record in records if record[0] != person]
    _, without = counts_of(others, bounding=bounding, max_records=max_records)
    for one, other in zip(with_person, without, strict=True):
        difference = one.true_values - other.true_values
        assert (difference >= 0).all(), "another individual's records changed"
        assert difference.sum() <= described.contribution


@given(records=RECORDS, max_records=st.integers(1, 3))
def test_ranking_individuals_in_groups_changes_no_count(records, max_records):
    _, whole = counts_of(records, bounding="truncate", max_records=max_records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sfumato.core.engine.bounded._RANKED_ROWS", 3)
        _, parts = counts_of(records, bounding="truncate", max_records=max_records)
    for one, other in zip(whole, parts, strict=True):
        assert one.true_values.tolist() == other.true_values.tolist()
