"""Microaggregation: every class has k people, near records are together, centres are of the column's kind."""

import datetime
import decimal
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.anonymity.divide import microaggregate
from sfumato.anonymity.encode import Partition, build_space, collapse_rows, encode_quasi_identifier
from sfumato.anonymity.labels import centre_labels

ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(-9, 9)), st.sampled_from("abcd")), min_size=4, max_size=80
)
SEED = [(1, "a"), (2, "b")]


def make(rows):
    numbers, words = zip(*rows, strict=True)
    columns = [
        encode_quasi_identifier("number", pa.chunked_array([numbers])),
        encode_quasi_identifier("word", pa.chunked_array([words])),
    ]
    return columns, collapse_rows([column.codes for column in columns], [column.size for column in columns])


@given(rows=ROWS, k=st.integers(1, 6))
def test_every_class_has_k_people_and_its_own_centre(rows, k):
    rows = SEED + rows
    columns, tuples = make(rows)
    found = microaggregate(tuples, tuples.rows, build_space(columns), k)
    class_of_row = found.classes[tuples.tuple_of_row]
    numbers, words = centre_labels(columns, tuples, found)
    assert len(numbers) == len(words) == found.count
    for each in range(found.count):
        members = [rows[row] for row in np.flatnonzero(class_of_row == each)]
        assert len(members) >= k
        known = [number for number, _ in members if number is not None]
        if 2 * len(known) < len(members):
            assert numbers[each] is None
        else:
            assert abs(Fraction(sum(known), len(known)) - numbers[each]) <= Fraction(1, 2)
            assert isinstance(numbers[each], int)
        often = Counter(word for _, word in members)
        assert words[each] == min(often, key=lambda word: (-often[word], word))


def gather_by_definition(points, k):
    """MDAV as it is written down, for points on a line that are all different."""
    left, classes = sorted(points), []

    def gather(seed):
        nearest = sorted(left, key=lambda point: (abs(point - seed), point))[:k]
        for point in nearest:
            left.remove(point)
        classes.append(frozenset(nearest))

    while len(left) >= 3 * k:
        middle = Fraction(sum(left), len(left))
        first = max(left, key=lambda point: (abs(point - middle), -point))
        gather(first)
        gather(max(left, key=lambda point: (abs(point - first), -point)))
    if len(left) >= 2 * k:
        middle = Fraction(sum(left), len(left))
        gather(max(left, key=lambda point: (abs(point - middle), -point)))
    classes.append(frozenset(left))
    return set(classes)


@given(
    points=st.sets(st.integers(0, 2**40), min_size=6, max_size=60),
    k=st.integers(2, 5),
)
def test_one_block_is_divided_as_the_algorithm_is_written_down(points, k):
    column = encode_quasi_identifier("number", pa.chunked_array([sorted(points)]))
    tuples = collapse_rows([column.codes], [column.size])
    found = microaggregate(tuples, tuples.rows, build_space([column]), k)
    classes = {
        frozenset(column.values[code] for code in np.flatnonzero(found.classes == each))
        for each in range(found.count)
    }
    assert classes == gather_by_definition(points, k)


def test_near_records_are_together():
    rows = [(base + step, word) for base, word in ((0, "a"), (500, "b"), (900, "c")) for step in range(4)]
    columns, tuples = make(rows)
    found = microaggregate(tuples, tuples.rows, build_space(columns), 4)
    assert found.classes[:4].max() == found.classes[:4].min()
    assert found.classes[4:8].max() == found.classes[4:8].min()
    assert found.count == 3
    assert sorted(centre_labels(columns, tuples, found)[0]) == [2, 502, 902]


def test_blocks_keep_the_cost_low_and_k_holds_in_each():
    rows = [(number, "abcd"[number % 4]) for number in range(3000)]
    columns, tuples = make(rows)
    found = microaggregate(tuples, tuples.rows, build_space(columns), 7)
    sizes = np.bincount(found.classes)
    assert sizes.min() >= 7
    assert sizes.max() < 14


@pytest.mark.parametrize(
    ("values", "centre"),
    [
        ([1, 2, 4], 2),
        ([1, 2], 2),
        ([-4, -1], -2),
        ([2**62, 2**62 + 2], 2**62 + 1),
        ([1.0, 2.0, 4.0], 2.0),
        ([1.25, 2.5, 2.5], 2.08),
        ([decimal.Decimal("1.10"), decimal.Decimal("1.30")], decimal.Decimal("1.2")),
        ([datetime.date(2020, 2, 27), datetime.date(2020, 3, 2)], datetime.date(2020, 2, 29)),
        (
            [datetime.datetime(2020, 1, 1, 10), datetime.datetime(2020, 1, 1, 11)],
            datetime.datetime(2020, 1, 1, 10, 30),
        ),
        ([1.5, float("inf"), float("inf")], float("inf")),
        ([1, None, None, 3, 3], 2),
        ([1, None, None, None, 3], None),
        (["a", "b", "b"], "b"),
        (["b", "a"], "a"),
        ([True, True, False], True),
    ],
)
def test_centres_are_of_the_kind_of_the_column(values, centre):
    column = encode_quasi_identifier("a", pa.chunked_array([values]))
    tuples = collapse_rows([column.codes], [column.size])
    whole = Partition(np.arange(tuples.size, dtype=np.int32), tuples.rows, np.zeros(tuples.size, np.int32), 1)
    ((found,),) = centre_labels([column], tuples, whole)
    assert found == centre
    assert type(found) is type(centre)
