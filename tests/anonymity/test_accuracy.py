"""Predictions before and after: by hand, in any order of rows, and on the public census table."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.anonymity.summary import measure_accuracy
from sfumato.errors import AnonymityError, SourceError


def measure(before, after=None, **options):
    return measure_accuracy(
        before, before if after is None else after, **{"features": ["a"], "target": "s", **options}
    )


def test_what_a_column_tells_is_learned_and_what_is_gone_is_not():
    before = {"a": ["x", "y"] * 20, "b": ["p", "p", "q", "q"] * 10, "s": ["u", "v"] * 20}
    found = measure(before, {**before, "a": ["*"] * 40}, features=["a", "b"])
    assert (found.before, found.after) == (1.0, 0.5)
    assert (found.baseline_before, found.baseline_after) == (0.5, 0.5)
    assert found.kept == 0
    assert found.to_record()["model"] == "k-anonymity, not differential privacy"


def test_the_baseline_is_the_most_frequent_target():
    rows = {"a": ["x"] * 10, "s": ["u"] * 7 + ["v", None, None]}
    found = measure(rows)
    assert (found.before, found.baseline_before, found.kept) == (0.7, 0.7, None)


def test_fewer_records_after_are_tested_by_themselves():
    before = {"a": ["x", "y"] * 20, "s": ["u", "v"] * 20}
    after = {"a": ["x", "y"] * 5 + ["x"] * 5, "s": ["u", "v"] * 5 + ["u"] * 5}
    found = measure(before, after)
    assert found.after == 1
    assert found.baseline_after == pytest.approx(2 / 3)
    empty = pa.table({"a": pa.array([], pa.string()), "s": pa.array([], pa.string())})
    assert measure(before, empty).after == 0


def test_each_record_is_predicted_by_the_others_only():
    # Every value occurs once: a memory of the record itself would be right, the others know nothing.
    rows = {"a": list(range(100)), "s": ["u", "v"] * 50}
    assert measure(rows).before <= 0.55


def test_a_full_grid_is_not_split_along_a_column():
    # Dealt out in sorted order, each fold would have one value of the last column and never learn it.
    grid = [(a, b) for a in range(50) for b in range(10)]
    rows = {"a": [a for a, _ in grid], "b": [b for _, b in grid], "s": ["uv"[b % 2] for _, b in grid]}
    assert measure(rows, features=["a", "b"]).before == 1


ROWS = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from("pq"), st.sampled_from("uvw")), min_size=1, max_size=40
)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, data=st.data())
def test_the_order_of_rows_does_not_matter(rows, data):
    def table(each):
        return {name: [row[at] for row in each] for at, name in enumerate("abs")}

    found = measure(table(rows), table(data.draw(st.permutations(rows))), features=["a", "b"])
    assert found.before == found.after
    assert 0 <= found.before <= 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"folds": 1}, "2 folds"),
        ({"features": ["s"]}, "named twice"),
        ({"features": []}, "at least one"),
        ({"target": "none"}, "no column 'none'"),
        ({"features": ["s"], "target": "a"}, "more than 200 different values"),
    ],
)
def test_impossible_options_are_refused(options, words):
    rows = {"a": list(range(300)), "s": ["u"] * 300}
    with pytest.raises((AnonymityError, SourceError), match=words):
        measure(rows, **options)


@pytest.mark.shared
def test_income_is_predicted_from_the_census(shared):
    table = pq.read_table(shared / "data" / "adult" / "adult.parquet")
    features = ["age", "workclass", "education", "marital-status", "occupation", "race", "sex"]
    decades = pc.multiply(pc.divide(table["age"], 10), 10)
    coarse = table.set_column(table.column_names.index("age"), "age", decades)
    found = measure_accuracy(table, coarse, features=features, target="income")
    assert 0.79 < found.before < 0.84
    assert abs(found.after - found.before) < 0.01
    assert found.baseline_before == pytest.approx(0.7607, abs=1e-4)
    assert found.kept > 0.8
