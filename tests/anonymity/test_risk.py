"""Risks of three attackers and the columns that identify: by hand, and against plain counting."""

from collections import Counter
from itertools import combinations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cases import read_cases
from sfumato.anonymity.risk import find_identifying_subsets, measure_risk
from sfumato.core.errors import AnonymityError, SourceError

TABLE = {"age": ["60+"] * 6 + ["20-60"] * 3 + ["0-20"], "weight": [2.0] * 6 + [10.0] * 3 + [0.5]}


def test_the_prosecutor_knows_that_the_person_is_there():
    found = measure_risk(TABLE, quasi_identifiers=["age"])
    assert (found.records, found.classes, found.unique) == (10, 3, 0.1)
    assert found.prosecutor.largest == 1
    assert found.prosecutor.average == pytest.approx(0.3)
    assert found.prosecutor.above_threshold == pytest.approx(0.4)
    assert found.journalist == found.prosecutor
    assert found.marketer == pytest.approx(0.3)
    assert (found.population, found.unmatched) == ("table", None)
    assert found.to_record()["model"] == "k-anonymity, not differential privacy"


def test_a_class_at_the_threshold_is_not_above_it():
    found = measure_risk({"a": ["x"] * 5}, quasi_identifiers=["a"], threshold=0.2)
    assert found.prosecutor.above_threshold == 0
    assert (
        measure_risk({"a": ["x"] * 5}, quasi_identifiers=["a"], threshold=0.19).prosecutor.above_threshold
        == 1
    )


def test_the_journalist_looks_at_the_register():
    register = {"age": [61] * 12 + [30] * 2 + [25] * 4}
    found = measure_risk(TABLE, quasi_identifiers=["age"], register=register)
    # 60+ fits 12 people and 20-60 fits 6; nobody is up to 20.
    assert found.population == "register"
    assert found.journalist.largest == pytest.approx(1 / 6)
    assert found.journalist.average == pytest.approx((6 / 12 + 3 / 6) / 10)
    assert found.marketer == found.journalist.average
    assert found.journalist.above_threshold == 0
    assert found.unmatched == pytest.approx(0.1)


def test_a_population_is_no_smaller_than_the_table():
    found = measure_risk(TABLE, quasi_identifiers=["age"], register={"age": [61, 15, 33]})
    assert found.journalist.average == pytest.approx(0.3)
    assert found.unmatched == 0


def test_weights_stand_for_the_population():
    found = measure_risk(TABLE, quasi_identifiers=["age"], weights="weight")
    assert found.population == "weights"
    assert found.journalist.largest == 1  # half a person in the population, but one in the table
    assert found.journalist.average == pytest.approx((6 / 12 + 3 / 30 + 1) / 10)


@pytest.mark.parametrize("weights", [[1.0, -1.0], [1.0, None], [1.0, float("nan")], ["a", "b"]])
def test_weights_must_be_numbers_of_people(weights):
    with pytest.raises(AnonymityError, match="'w' must hold weights"):
        measure_risk({"a": ["x", "y"], "w": weights}, quasi_identifiers=["a"], weights="w")


def test_sizes_are_counted_in_bins():
    rows = {"a": [0] + [1] + [2] * 2 + [3] * 4 + [4] * 1500}
    bins = {each.size: each for each in measure_risk(rows, quasi_identifiers=["a"]).class_sizes}
    assert list(bins) == ["1", "2", "3-4", "5-9", "10-19", "20-49", "50-99", "100-999", "1000+"]
    assert {name: (each.classes, each.records) for name, each in bins.items() if each.classes} == {
        "1": (2, 2),
        "2": (1, 2),
        "3-4": (1, 4),
        "1000+": (1, 1500),
    }


def test_an_empty_table_has_no_risk():
    found = measure_risk(pa.table({"a": pa.array([], pa.string())}), quasi_identifiers=["a"])
    assert (found.prosecutor.largest, found.marketer, found.records) == (0, 0, 0)


@pytest.mark.parametrize("options", read_cases(__file__, "test_impossible_options_are_refused"))
def test_impossible_options_are_refused(options):
    with pytest.raises((AnonymityError, SourceError)):
        measure_risk(TABLE, **{"quasi_identifiers": ["age"], **options})


CELLS = st.lists(
    st.tuples(*(st.one_of(st.none(), st.integers(0, 3)) for _ in range(4))), min_size=1, max_size=60
)


@given(rows=CELLS, limit=st.integers(2, 6), largest=st.integers(1, 5))
def test_subsets_are_those_of_plain_counting(rows, limit, largest):
    names = ["a", "b", "c", "d"]
    columns = {name: pa.array([row[at] for row in rows], pa.int64()) for at, name in enumerate(names)}
    found = find_identifying_subsets(pa.table(columns), quasi_identifiers=names, largest=largest, limit=limit)
    expected = {}
    for size in range(1, min(4, largest) + 1):
        for chosen in combinations(range(4), size):
            counts = Counter(tuple(row[at] for at in chosen) for row in rows).values()
            expected[tuple(names[at] for at in chosen)] = (
                sum(count == 1 for count in counts) / len(rows),
                sum(count for count in counts if count < limit) / len(rows),
                len(counts),
            )
    assert {each.columns: (each.unique, each.small, each.classes) for each in found} == expected
    ranks = [(-each.unique, -each.small, len(each.columns)) for each in found]
    assert ranks == sorted(ranks)


def test_a_column_of_many_values_costs_no_table_of_all_pairs():
    size = 3000
    rows = {"a": list(range(size)), "b": [7 * each % size for each in range(size)], "c": [0] * size}
    found = find_identifying_subsets(rows, quasi_identifiers=["a", "b", "c"])
    assert found[0].columns == ("a",)
    assert [each.unique for each in found] == [1.0] * 6 + [0.0]


def test_too_many_subsets_are_reported():
    rows = {f"c{place}": [1] for place in range(60)}
    with pytest.raises(AnonymityError, match="subsets"):
        find_identifying_subsets(rows, quasi_identifiers=list(rows))
    with pytest.raises(AnonymityError, match="at least 1 column"):
        find_identifying_subsets(rows, quasi_identifiers=["c1"], largest=0)
