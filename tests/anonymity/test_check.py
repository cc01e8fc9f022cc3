"""The judge of k, l and t: by hand on small tables, against plain dictionaries on any, and on bad input."""

import math
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cases import read_cases
from sfumato.anonymity.attack import compatible, parse_pattern
from sfumato.anonymity.check import NOT_DP, Requirements, find_shortfalls, measure_anonymity
from sfumato.core.errors import AnonymityError, SourceError

PEOPLE = {
    "height": ["190", "185", "180", "170", "175"],
    "weight": ["80", "110", "82", "70", "72"],
    "age": ["63", "72", "61", "40", "33"],
    "postcode": ["1001", "1001", "1243", "6732", "6910"],
    "profession": ["Politician", "Rentier", "Politician", "Time Traveller", "Policeman"],
}
LECTURE = {
    "height": ["180-190"] * 3 + ["170-180"] * 2,
    "weight": ["80+"] * 3 + ["60-80"] * 2,
    "age": ["60+"] * 3 + ["20-60"] * 2,
    "postcode": ["1*"] * 3 + ["6*"] * 2,
    "profession": PEOPLE["profession"],
}
KNOWN = ["height", "weight", "age", "postcode"]


def judge(rows, quasi, sensitive):
    """k, and per sensitive column l, exp of entropy, t (equal), t (ordered), delta: the plainest way."""
    classes = defaultdict(list)
    for row in rows:
        classes[tuple(row[name] for name in quasi)].append(row)
    found = {}
    for name in sensitive:
        whole = Counter(row[name] for row in rows)
        values = sorted(whole, key=lambda value: (value is None, value))
        least, entropy, equal, ordered, delta = math.inf, math.inf, 0.0, 0.0, 0.0
        for members in classes.values():
            mine = Counter(row[name] for row in members)
            p = {value: mine[value] / len(members) for value in values}
            q = {value: whole[value] / len(rows) for value in values}
            least = min(least, len(mine))
            entropy = min(entropy, -sum(x * math.log(x) for x in p.values() if x))
            equal = max(equal, sum(abs(p[v] - q[v]) for v in values) / 2)
            running = moved = 0.0
            for value in values:
                running += p[value] - q[value]
                moved += abs(running)
            ordered = max(ordered, moved / max(1, len(values) - 1))
            delta = max(delta, *(abs(math.log(p[v] / q[v])) if p[v] else math.inf for v in values))
        found[name] = (least, math.exp(entropy), equal, ordered, delta)
    return min(map(len, classes.values())), len(classes), found


def is_recursive(rows, quasi, name, c, least):
    classes = defaultdict(Counter)
    for row in rows:
        classes[tuple(row[each] for each in quasi)][row[name]] += 1
    for counts in classes.values():
        ranked = sorted(counts.values(), reverse=True)
        if not ranked[0] < c * sum(ranked[least - 1 :]):
            return False
    return True


def test_five_people_as_they_are_and_as_the_lecture_publishes_them():
    before = measure_anonymity(PEOPLE, quasi_identifiers=KNOWN, sensitive="profession")
    assert (before.k, before.l, before.classes) == (1, 1, 5)
    assert before.entropy_l == 1.0
    assert before.t == pytest.approx(4 / 5)
    after = measure_anonymity(LECTURE, quasi_identifiers=KNOWN, sensitive="profession")
    assert (after.k, after.l, after.classes, after.records) == (2, 2, 2, 5)
    # Two politicians and a rentier: entropy (2/3) log(3/2) + (1/3) log 3.
    assert after.entropy_l == pytest.approx(1.5 ** (2 / 3) * 3 ** (1 / 3))
    # The last two have 1/2, 1/2 where the table has 1/5, 1/5: 3/5 too much.
    assert after.t == pytest.approx(0.6)
    assert after.delta_disclosure == math.inf
    # 2 < c (2 + 1) and 1 < c (1 + 1) for l = 1; 2 < 3 * 1 and 1 < 3 * 1 for l = 2.
    assert after.recursive(2.5, 2)
    assert not after.recursive(2, 2)
    assert not after.recursive(100, 3)


def test_the_ordered_distance_of_the_published_example():
    # Salaries of 3 to 11 thousand in three classes of three: 0.167 for 6, 8, 11 and 0.375 for 3, 4, 5.
    rows = {"a": ["x"] * 3 + ["y"] * 3 + ["z"] * 3, "pay": [3, 4, 5, 6, 8, 11, 7, 9, 10]}
    by_class = {"x": 0.375, "y": 1 / 6, "z": 0.2361}
    found = measure_anonymity(rows, quasi_identifiers=["a"], sensitive="pay", distance="ordered")
    assert found.t == pytest.approx(max(by_class.values()))
    assert found.by_column["pay"].distance == "ordered"
    again = measure_anonymity(
        {**rows, "pay": [str(pay) for pay in rows["pay"]]},
        quasi_identifiers=["a"],
        sensitive="pay",
        distance="ordered",
    )
    assert again.t == found.t


def test_text_has_no_order():
    rows = {"a": ["x", "x", "y"], "ill": ["mild", "severe", "mild"]}
    with pytest.raises(AnonymityError, match="column 'ill' is text"):
        measure_anonymity(rows, quasi_identifiers=["a"], sensitive="ill", distance="ordered")


def test_missing_matches_missing_only_and_a_star_is_a_label():
    rows = pa.table({"a": ["*", "*", None, None, None, ""], "s": [None, "u", None, None, "u", "u"]})
    found = measure_anonymity(rows, quasi_identifiers=["a"], sensitive="s")
    assert (found.k, found.classes, found.l) == (1, 3, 1)
    assert found.by_column["s"].values == 2
    numbers = pa.table({"a": [1.5, float("nan"), None, 1.5]})
    assert measure_anonymity(numbers, quasi_identifiers=["a"]).classes == 2


def test_several_sensitive_columns_are_as_weak_as_the_weakest():
    rows = {"a": ["x", "x", "y", "y"], "s": ["u", "v", "u", "v"], "r": [1, 1, 1, 2]}
    found = measure_anonymity(rows, quasi_identifiers=["a"], sensitive=["s", "r"], distance={"r": "ordered"})
    assert (found.l, found.by_column["s"].l, found.by_column["r"].l) == (1, 2, 1)
    assert found.t == found.by_column["r"].t == pytest.approx(0.25)
    assert found.by_column["s"].t == 0
    assert found.delta_disclosure == math.inf
    assert not found.recursive(2, 2)
    assert found.by_column["s"].is_recursive(2, 2)


def test_k_counts_people_where_they_are_named():
    rows = {"a": ["x"] * 4 + ["y"] * 3, "person": [1, 1, 2, 3, 4, None, None]}
    assert measure_anonymity(rows, quasi_identifiers=["a"]).k == 3
    found = measure_anonymity(rows, quasi_identifiers=["a"], individual="person")
    assert found.k == 2
    assert "2 people" in str(found)


def test_a_table_without_records_protects_nobody():
    rows = pa.table({"a": pa.array([], pa.string()), "s": pa.array([], pa.int64())})
    found = measure_anonymity(rows, quasi_identifiers=["a"], sensitive="s", register={"a": ["x"]})
    assert (found.k, found.l, found.t, found.classes, found.records, found.k_map) == (0, 0, 0, 0, 0, 0)
    assert measure_anonymity(rows, quasi_identifiers=["a"], individual="s").k == 0
    assert measure_anonymity(rows, quasi_identifiers=["a"], sensitive="s", distance="ordered").t == 0


def test_cells_of_any_plain_kind_are_compared():
    table = pa.table(
        {
            "day": pa.array([1, 1, 2], pa.date32()),
            "flag": [True, True, None],
            "word": pa.array(["u", "u", "v"]).dictionary_encode(),
            "none": pa.nulls(3),
            "time": pa.array([1, 1, 2], pa.timestamp("us", tz="UTC")),
            "money": pa.array([1, 1, 2], pa.decimal128(9, 2)),
            "s": pa.array([5, 6, 7], pa.uint8()),
        }
    )
    found = measure_anonymity(
        table, quasi_identifiers=table.column_names[:-1], sensitive="s", distance="ordered"
    )
    assert (found.k, found.classes) == (1, 2)
    dates = measure_anonymity(table, quasi_identifiers=["flag"], sensitive="day", distance="ordered")
    assert dates.t == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("options", "words"), read_cases(__file__, "test_what_cannot_be_measured_is_refused")
)
def test_what_cannot_be_measured_is_refused(options, words):
    table = pa.table({"age": [61, 72], "ill": ["flu", "gout"], "many": [[1], [2]]})
    with pytest.raises(SourceError if "no column" in words else AnonymityError, match=words):
        measure_anonymity(table, **options)


def test_asking_for_diversity_without_a_sensitive_column_is_reported():
    found = measure_anonymity({"a": [1, 1]}, quasi_identifiers=["a"])
    assert (found.l, found.t, found.entropy_l, found.delta_disclosure) == (None, None, None, None)
    with pytest.raises(AnonymityError, match="sensitive"):
        found.recursive(2, 2)


def test_what_is_told_holds_no_value_and_says_what_it_is_not():
    found = measure_anonymity(LECTURE, quasi_identifiers=KNOWN, sensitive="profession")
    record = found.to_record()
    assert record["model"] == NOT_DP
    assert "not differential privacy" in str(found)
    assert record["delta_disclosure"] is None
    assert "Politician" not in f"{found}{found!r}{record}"
    assert "180-190" not in f"{found}{found!r}{record}"


CELL = st.one_of(st.none(), st.sampled_from(["a", "b", "*", "1-2"]))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "p": CELL,
            "q": st.one_of(st.none(), st.integers(0, 2)),
            "s": st.one_of(st.none(), st.integers(0, 6)),
            "r": st.sampled_from(["u", "v", "w"]),
        }
    ),
    min_size=1,
    max_size=40,
)


@given(rows=ROWS, c=st.sampled_from([0.5, 1, 1.5, 2, 4]), least=st.integers(1, 4))
def test_every_measure_is_that_of_plain_dictionaries(rows, c, least):
    kinds = {"p": pa.string(), "q": pa.int64(), "s": pa.int64(), "r": pa.string()}
    table = pa.Table.from_pylist(rows, schema=pa.schema(kinds.items()))
    k, classes, expected = judge(rows, ["p", "q"], ["s", "r"])
    equal = measure_anonymity(table, quasi_identifiers=["p", "q"], sensitive=["s", "r"])
    ordered = measure_anonymity(
        table, quasi_identifiers=["p", "q"], sensitive=["r", "s"], distance={"s": "ordered"}
    )
    assert (equal.k, equal.classes, equal.records) == (k, classes, len(rows))
    for name, (least_values, entropy, total, _, delta) in expected.items():
        found = equal.by_column[name]
        assert found.l == least_values
        assert found.entropy_l == pytest.approx(entropy)
        assert found.t == pytest.approx(total, abs=1e-12)
        assert found.delta_disclosure == pytest.approx(delta, abs=1e-12)
        assert found.is_recursive(c, least) == is_recursive(rows, ["p", "q"], name, c, least)
    assert ordered.by_column["s"].t == pytest.approx(expected["s"][3], abs=1e-12)
    assert equal.l == min(each[0] for each in expected.values())
    assert equal.t == pytest.approx(max(each[2] for each in expected.values()), abs=1e-12)


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["60+", "20-40", "*", "33"]), st.sampled_from(["1*", "12*", "6"])),
        min_size=1,
        max_size=12,
    ),
    people=st.lists(st.tuples(st.integers(20, 80), st.sampled_from(["1", "12", "123", "6"])), max_size=12),
)
def test_k_map_is_that_of_comparing_all_with_all(rows, people):
    table = pa.table({"age": [row[0] for row in rows], "post": [row[1] for row in rows]})
    register = pa.table(
        {
            "age": pa.array([row[0] for row in people], pa.int64()),
            "post": pa.array([row[1] for row in people], pa.string()),
        }
    )
    found = measure_anonymity(table, quasi_identifiers=["age", "post"], register=register)
    fits = [
        sum(
            all(
                compatible(parse_pattern(mine), parse_pattern(str(theirs)))
                for mine, theirs in zip(row, person, strict=True)
            )
            for person in people
        )
        for row in rows
    ]
    assert found.k_map == min(fits)


@given(
    first=st.lists(st.integers(0, 12), min_size=2, max_size=6),
    second=st.lists(st.integers(0, 12), min_size=2, max_size=6),
)
def test_the_ordered_distance_crosses_gaps(first, second):
    rows = [{"a": "x", "s": value} for value in first] + [{"a": "y", "s": value} for value in second]
    found = measure_anonymity(
        pa.Table.from_pylist(rows), quasi_identifiers=["a"], sensitive="s", distance="ordered"
    )
    assert found.t == pytest.approx(judge(rows, ["a"], ["s"])[2]["s"][3], abs=1e-12)


SENSITIVE_ROWS = {
    "a": ["x"] * 4 + ["y"] * 3,
    "s": ["u", "u", "u", "v", "u", "v", "v"],
    "r": [1, 2, 3, 4, 1, 2, 3],
}


def measure(**options):
    return measure_anonymity(SENSITIVE_ROWS, quasi_identifiers=["a"], **{"sensitive": ["s", "r"], **options})


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
    found = measure_anonymity(SENSITIVE_ROWS, quasi_identifiers=["a"])
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
