"""What is asked of a table, and what is told when it is lacking."""

import pyarrow as pa
import pytest

from sfumato.anonymity.check import Requirements, find_shortfalls, measure_anonymity
from sfumato.errors import AnonymityError

ROWS = {
    "a": ["x"] * 4 + ["y"] * 3,
    "s": ["u", "u", "u", "v", "u", "v", "v"],
    "r": [1, 2, 3, 4, 1, 2, 3],
}


def measure(**options):
    return measure_anonymity(ROWS, quasi_identifiers=["a"], **{"sensitive": ["s", "r"], **options})


def test_nothing_is_lacking_where_all_is_met():
    required = Requirements(k=3, l=2, entropy_l=1.7, recursive=(3.1, 2), t=0.3)
    assert find_shortfalls(measure(), required) == ()
    assert find_shortfalls(measure(register={"a": ["x", "y"]}), Requirements(k=1, k_map=True)) == ()
    assert required.needs_sensitive
    assert not Requirements(k=3, k_map=True).needs_sensitive


def test_each_shortfall_is_told_in_words():
    required = Requirements(k=5, l=3, entropy_l=2, recursive=(3, 2), t=0.1, delta=0.2)
    found = measure(sensitive="s", register={"a": ["x", "x", "y"]})
    assert find_shortfalls(found, Requirements(k=2, k_map=True)) == ("k-map is 1, asked 2",)
    assert find_shortfalls(found, required) == (
        "k is 3, asked 5",
        "l is 2, asked 3 (column 's')",
        "entropy l is 1.75477, asked 2 (column 's')",
        "recursive (3, 2)-diversity does not hold (column 's')",
        "t is 0.238095, asked 0.1 (column 's')",
        "delta is 0.538997, asked below 0.2 (column 's')",
    )


def test_one_record_too_few_is_too_few():
    assert find_shortfalls(measure(), Requirements(k=4)) == ("k is 3, asked 4",)


def test_an_infinite_delta_is_never_enough():
    (fault,) = find_shortfalls(measure(sensitive="r"), Requirements(k=1, delta=1e9))
    assert fault == "delta is inf, asked below 1e+09 (column 'r')"


def test_rounding_is_no_shortfall():
    rows = {"a": ["x"] * 3 + ["y"] * 3, "s": ["u", "v", "w"] * 2}
    found = measure_anonymity(rows, quasi_identifiers=["a"], sensitive="s")
    assert find_shortfalls(found, Requirements(k=3, l=3, entropy_l=3, t=0)) == ()


def test_an_empty_table_lacks_everything():
    empty = pa.table({"a": pa.array([], pa.string())})
    found = measure_anonymity(empty, quasi_identifiers=["a"])
    assert find_shortfalls(found, Requirements(k=1)) == ("the table has no records",)


def test_what_was_not_measured_cannot_be_judged():
    found = measure_anonymity(ROWS, quasi_identifiers=["a"])
    with pytest.raises(AnonymityError, match="no sensitive column"):
        find_shortfalls(found, Requirements(k=1, l=2))
    with pytest.raises(AnonymityError, match="no register"):
        find_shortfalls(found, Requirements(k=2, k_map=True))
    with pytest.raises(AnonymityError, match="column 's' is asked by the ordered distance"):
        find_shortfalls(measure(), Requirements(k=1, t=0.5, distance={"s": "ordered"}))
    assert (
        find_shortfalls(
            measure(distance={"r": "ordered"}), Requirements(k=1, t=0.5, distance={"r": "ordered"})
        )
        == ()
    )


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0},
        {"k": 2.5},
        {"k": True},
        {"k": 2, "l": 0},
        {"k": 2, "l": 1.5},
        {"k": 2, "entropy_l": 0.5},
        {"k": 2, "entropy_l": float("nan")},
        {"k": 2, "t": 0.5, "distance": "other"},
        {"k": 2, "t": 0.5, "distance": {"s": "other"}},
        {"k": 2, "delta": float("inf")},
        {"k": 2, "recursive": (1001, 2)},
        {"k": 2, "t": 1.5},
        {"k": 2, "t": float("nan")},
        {"k": 2, "delta": 0},
        {"k": 2, "recursive": (0, 2)},
        {"k": 2, "recursive": (2, 0)},
    ],
)
def test_impossible_requirements_are_refused(options):
    with pytest.raises(AnonymityError):
        Requirements(**options)
