"""Cuts: every class has k people and satisfies all models; relaxed ones have fewer than 2k rows."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from helpers.diversity import holds
from sfumato.anonymity.divide import cut_with_models, divide_relaxed
from sfumato.anonymity.encode import build_space, collapse_rows, encode_quasi_identifier
from sfumato.anonymity.hierarchy import Prefixes
from sfumato.anonymity.kernels.mondrian import cut_tuples, make_cuts, make_scratch
from sfumato.anonymity.models import (
    Model,
    Models,
    count_values,
)


def make(rows):
    numbers, words, codes, sensitive = zip(*rows, strict=True)
    columns = [
        encode_quasi_identifier("number", pa.chunked_array([numbers])),
        encode_quasi_identifier("word", pa.chunked_array([words])),
        encode_quasi_identifier("code", pa.chunked_array([codes]), hierarchy=Prefixes(keep=[1])),
    ]
    tuples = collapse_rows([column.codes for column in columns], [column.size for column in columns])
    counted = count_values("s", tuples.tuple_of_row, np.array(sensitive, np.int32), tuples=tuples.size)
    return tuples, build_space(columns), counted


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 9)),
        st.sampled_from("abcd"),
        st.sampled_from(["10", "11", "20", "21", "31"]),
        st.integers(0, 3),
    ),
    min_size=8,
    max_size=60,
)
# The first rows give every column two values, as encoding asks for.
SEED = [(1, "a", "10", 0), (2, "b", "20", 1)]
MODELS = st.sampled_from(
    [
        (),
        (Model("distinct", "s", 2),),
        (Model("entropy", "s", 1.5),),
        (Model("recursive", "s", 3, 2),),
        (Model("equal", "s", 0.2),),
        (Model("ordered", "s", 0.15),),
        (Model("delta", "s", 1.2),),
        (Model("distinct", "s", 2), Model("equal", "s", 0.3)),
    ]
)


@given(rows=ROWS, models=MODELS, k=st.integers(1, 6))
def test_every_class_holds(rows, models, k):
    rows = SEED + rows
    tuples, space, counted = make(rows)
    table = [row[3] for row in rows]
    if not all(holds(model, table, table) for model in models):
        return
    found = cut_with_models(tuples, tuples.rows, space, k, Models(models, (counted,)))
    assert found.classes.min() == 0
    assert set(found.classes.tolist()) == set(range(found.count))
    class_of_row = found.classes[tuples.tuple_of_row]
    for each in range(found.count):
        values = [table[row] for row in np.flatnonzero(class_of_row == each)]
        assert len(values) >= k
        assert all(holds(model, values, table) for model in models)


@given(rows=ROWS, k=st.integers(1, 6))
def test_without_models_it_is_the_cuts_with_the_lowest_loss(rows, k):
    tuples, space, _ = make(SEED + rows)
    found = cut_with_models(tuples, tuples.rows, space, k, Models((), ()))
    rows = tuples.rows
    order, starts = cut_tuples(
        tuples.codes, rows, rows, space, k, True, make_scratch(space), make_cuts(space)
    )
    parts = np.split(order, starts[1:-1])
    assert {frozenset(part.tolist()) for part in parts} == {
        frozenset(np.flatnonzero(found.classes == each).tolist()) for each in range(found.count)
    }


def test_a_cut_that_fits_is_found_behind_many_that_do_not():
    # The sensitive value is the word's; only the number parts the table with both values on both sides.
    rows = [
        (number, word, "10" if number < 5 else "20", "ab".index(word))
        for number in range(10)
        for word in "ab"
    ]
    tuples, space, counted = make(rows)
    found = cut_with_models(tuples, tuples.rows, space, 2, Models((Model("distinct", "s", 2),), (counted,)))
    assert found.count == 10


def test_k_may_count_people_of_a_register():
    tuples, space, counted = make(SEED + [(number, "a", "10", number % 2) for number in range(8)])
    people = np.zeros(tuples.size, np.int64)
    people[[0, -1]] = 5
    found = cut_with_models(tuples, people, space, 5, Models((Model("distinct", "s", 2),), (counted,)))
    assert np.bincount(found.classes, people).min() >= 5


@given(rows=ROWS, k=st.integers(1, 6))
def test_a_relaxed_class_has_k_rows_and_fewer_than_twice_as_many(rows, k):
    tuples, space, _ = make(SEED + rows)
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
    rows = [(number, word, "10" if word == "a" else "20", 0) for number in range(4) for word in "ab"]
    tuples, space, _ = make(rows)
    found = divide_relaxed(tuples, space, 4)
    words = tuples.codes[found.tuple_of_entry, 1]
    assert found.count == 2
    assert all(len(set(words[found.classes == each].tolist())) == 1 for each in range(2))
