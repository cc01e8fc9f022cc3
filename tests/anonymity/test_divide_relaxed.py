"""Relaxed Mondrian: every class has k to 2k - 1 rows, and no row is lost."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.anonymity.divide import divide_relaxed
from sfumato.anonymity.encode import build_space, collapse_rows, encode_quasi_identifier
from sfumato.anonymity.hierarchy import Prefixes

ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 9)),
        st.sampled_from("abcd"),
        st.sampled_from(["10", "11", "20", "21", "31"]),
    ),
    min_size=4,
    max_size=80,
)
SEED = [(1, "a", "10"), (2, "b", "20")]


def make(rows):
    numbers, words, codes = zip(*rows, strict=True)
    columns = [
        encode_quasi_identifier("number", pa.chunked_array([numbers])),
        encode_quasi_identifier("word", pa.chunked_array([words])),
        encode_quasi_identifier("code", pa.chunked_array([codes]), hierarchy=Prefixes(keep=[1])),
    ]
    return collapse_rows(
        [column.codes for column in columns], [column.size for column in columns]
    ), build_space(columns)


@settings(max_examples=200, deadline=None)
@given(rows=ROWS, k=st.integers(1, 6))
def test_every_class_has_k_rows_and_fewer_than_twice_as_many(rows, k):
    tuples, space = make(SEED + rows)
    found = divide_relaxed(tuples, space, k)
    assert found.weights.min() > 0
    sizes = np.bincount(found.classes, found.weights, minlength=found.count)
    assert sizes.min() >= k
    for each in range(found.count):
        different = set(found.tuple_of_entry[found.classes == each].tolist())
        assert sizes[each] < 2 * k or len(different) == 1
    # Every row is in exactly one entry, and a class has a tuple once.
    assert np.bincount(found.tuple_of_entry, found.weights).tolist() == tuples.rows.tolist()
    pairs = list(zip(found.tuple_of_entry.tolist(), found.classes.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)


def test_the_column_is_halved_that_loses_least():
    # Halving words keeps each half at one word and code; halving numbers leaves both of both everywhere.
    rows = [(number, word, "10" if word == "a" else "20") for number in range(4) for word in "ab"]
    tuples, space = make(rows)
    found = divide_relaxed(tuples, space, 4)
    words = tuples.codes[found.tuple_of_entry, 1]
    assert found.count == 2
    assert all(len(set(words[found.classes == each].tolist())) == 1 for each in range(2))
