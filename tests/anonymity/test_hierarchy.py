"""Hierarchies: the lecture's labels, what each builder writes and refuses."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.anonymity.attack import compatible, parse_pattern, read_text
from sfumato.anonymity.hierarchy import (
    Dates,
    Groups,
    Hierarchy,
    Intervals,
    Listed,
    Prefixes,
    Suppressed,
    check_nested,
)
from sfumato.core.errors import AnonymityError

DAY = datetime.date
TIME = datetime.datetime


def labels(hierarchy, values, column="c"):
    return hierarchy.label_levels(values, column=column)


@pytest.mark.parametrize(("hierarchy", "values", "expected"), [
    (Intervals([[0, 20, 40, 60], [0, 40, 60]]), [0, 20, 39.5, 60],
     [["0-20", "20-40", "20-40", "40-60"], ["0-40"] * 3 + ["40-60"]]),
    (Intervals([[0, 20, 40, 60], [0, 40], [0]], open_above=True), [5, 50, 90],
     [["0-20", "40-60", "60+"], ["0-40", "40+", "40+"], ["0+"] * 3]),
    (Intervals([20, 60], open_below=True), [0, 19, 20], [["0-20", "0-20", "20-60"]]),
    (Intervals([0, 20, 40], style="whole"), [0, 19.0, 20, Decimal("40.0")],
     [["0-19", "0-19", "20-40", "20-40"]]),
    (Intervals([0, 1, 5], style="whole", open_above=True), [0, 4, 5], [["0", "1-4", "5+"]]),
    (Intervals([-10, -5, 0]), [-10, -5, 0], [["-10--5", "-5-0", "-5-0"]]),
    (Intervals(widths=[5, 10], style="whole"), [-1, 0, 24, 25],
     [["-5--1", "0-4", "20-24", "25-29"], ["-10--1", "0-9", "20-29", "20-29"]]),
    (Intervals(widths=10), [180, 190], [["180-190", "190-200"]]),
    (Intervals(widths=10, origin=5), [4, 5], [["-5-5", "5-15"]]),
    (Intervals(widths=[0.1, 0.2]), [0.3, Decimal("0.15"), 0],
     [["0.3-0.4", "0.1-0.2", "0-0.1"], ["0.2-0.4", "0-0.2", "0-0.2"]]),
    (Intervals(np.arange(0, 40, 20), open_above=True), [1, 21], [["0-20", "20+"]]),
    (Intervals(range(0, 41, 20)), [1, 21], [["0-20", "20-40"]]),
    (Intervals([0, 1e-3, 1e20]), [0.0005, 5], [["0-0.001", "0.001-100000000000000000000"]]),
    (Suppressed(), ["a", 1], []),
])  # fmt: skip
def test_numbers_become_intervals(hierarchy, values, expected):
    assert labels(hierarchy, values) == (*map(tuple, expected), ("*",) * len(values))


def test_dates_become_spans():
    spans = ["day", "month", "quarter", "half_year", "year", "five_years", "decade", "century"]
    assert [level[0] for level in labels(Dates(spans), [DAY(1957, 8, 31)])] == [
        "1957-08-31",
        "1957-08-*",
        "1957-07-01-1957-09-30",
        "1957-07-01-1957-12-31",
        "1957-*",
        "1955-01-01-1959-12-31",
        "1950-01-01-1959-12-31",
        "1900-01-01-1999-12-31",
        "*",
    ]
    assert [level[0] for level in labels(Dates(spans), [TIME(1957, 8, 31, 23, 59)])] == [
        "1957-08-31*",
        "1957-08-*",
        "1957-07-*|1957-08-*|1957-09-*",
        "1957-07-*|1957-08-*|1957-09-*|1957-10-*|1957-11-*|1957-12-*",
        "1957-*",
        "1955-*|1956-*|1957-*|1958-*|1959-*",
        "195*",
        "19*",
        "*",
    ]
    assert labels(Dates("year"), [DAY(50, 1, 1)]) == (("0050-*",), ("*",))


@pytest.mark.parametrize(("hierarchy", "values", "expected"), [
    (Prefixes([3, 1]), ["1", "12", "123", "1234"], [["1", "12", "123*", "123*"], ["1*"] * 4]),
    (Prefixes([3, 1], pad=True), ["1", "12", "123", "1234"],
     [["1", "12", "123", "123*"], ["1", "1*", "1**", "1***"]]),
    (Prefixes([2]), ["12*", "1*", "", " 123 "], [["12*", "1*", "*", "12*"]]),
    (Prefixes([2], pad=True), ["", "1*3"], [["*", "1**"]]),
    (Prefixes([7, 4]), [DAY(1950, 1, 31)], [["1950-01*"], ["1950*"]]),
    (Prefixes([1]), [True, False], [["t*", "f*"]]),
    (Groups({"low": [1, 2.0], "high": [Decimal("3.50")]}), [1.0, 2, 3.5], [["low", "low", "high"]]),
    (Groups({"yes": [True], "no": ["false"]}), [True, False], [["yes", "no"]]),
    (Groups({"then": [DAY(1950, 1, 31)]}), [DAY(1950, 1, 31)], [["then"]]),
    (Groups([{"A": ["a", "b"], "C": ["c"]}, {"All": ["A", "C"]}], spelled=True), ["c", "a"],
     [["c", "a|b"], ["a|b|c"] * 2]),
    (Listed([["a", "A", "*"], ["b", "A", "*"]]), ["b"], [["A"]]),
    (Listed([["a", "A", "*"], ["b", "B", "All"]]), ["a", "b"], [["A", "B"], ["*", "All"]]),
    (Listed([["250.1", "x"], ["250.10", "y"]]), ["250.1", "250.10"], [["x", "y"]]),
    (Listed([["1.0", "x"], ["1.0", "x"], ["2.50", "y"]]), [1, 2.5], [["x", "y"]]),
])  # fmt: skip
def test_texts_become_coarser(hierarchy, values, expected):
    assert labels(hierarchy, values) == (*map(tuple, expected), ("*",) * len(values))


@pytest.mark.parametrize("hierarchy", [
    Intervals([0, 1]), Dates(), Prefixes([1]), Groups({"a": ["b"]}), Listed([["a", "b"]]), Suppressed(),
])  # fmt: skip
def test_a_column_without_values_has_all_levels(hierarchy):
    assert isinstance(hierarchy, Hierarchy)
    assert len(labels(hierarchy, [])) >= 1
    assert all(level == () for level in labels(hierarchy, []))


SECRET = "Zanzibar"


@pytest.mark.parametrize(("hierarchy", "values", "words"), [
    (Intervals([0, 60]), [61, 60, 5],
     "1 of its 3 different values is above the last edge 60; .*open_above to write 60[+]"),
    (Intervals([20, 60]), [1, 2, 30],
     "2 of its 3 different values are below the first edge 20; .*open_below to write 0-20"),
    (Intervals([20, 60], open_below=True), [-1], "is below the first edge 0; name a lower edge$"),
    (Intervals([0, 60]), ["1001", SECRET],
     "2 of its 2 .* are text, not numbers; read the column as numbers, or .* Groups or Listed"),
    (Intervals([0, 60]), [1, SECRET], "1 of its 2 .* is text, not numbers"),
    (Intervals([0, 60]), [1, True, float("nan"), float("inf"), DAY(1950, 1, 1), Decimal("NaN")],
     "5 of its 6 .* not finite numbers"),
    (Intervals([0, 60], style="whole"), [1, 1.5], "1 of its 2 .* not a whole number; use style 'shared'"),
    (Dates(), ["1950-01-31", SECRET], "2 of its 2 .* are text, not dates; .*dates, or use Prefixes"),
    (Dates(), [1950], "is not dates; read the column as dates$"),
    (Prefixes([1]), ["a|b", SECRET], "1 of its 2 .*'|'"),
    (Groups({"a": ["b"]}), ["b", SECRET], "1 of its 2 .* is unknown to the hierarchy; put them in a group"),
    (Listed([["a", "b"]]), ["a", SECRET, "c"], "2 of its 3 .* are unknown to the hierarchy; add a row"),
    (Listed([["1", "b"], ["1.0", "c"]]), [1], "ambiguous: one number is listed twice"),
])  # fmt: skip
def test_values_that_do_not_fit_are_counted_and_not_told(hierarchy, values, words):
    with pytest.raises(AnonymityError, match=words) as caught:
        labels(hierarchy, values, column="town")
    assert "column 'town'" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(("make", "words"), [
    (lambda: Intervals(), "either edges or widths"),
    (lambda: Intervals([1, 2], widths=2), "either edges or widths"),
    (lambda: Intervals([60]), "there must be two, or one and open_above"),
    (lambda: Intervals(60), "there must be two"),
    (lambda: Intervals([[]]), "there must be two"),
    (lambda: Intervals([1, 1]), "must increase"),
    (lambda: Intervals([2, 1]), "must increase"),
    (lambda: Intervals(["a", "b"]), "an edge must be a finite number"),
    (lambda: Intervals([0, [1, 2]]), "an edge must be a finite number"),
    (lambda: Intervals([0, float("inf")]), "an edge must be a finite number"),
    (lambda: Intervals([0, True]), "an edge must be a finite number"),
    (lambda: Intervals([0, 20], open_below=True), "open_below begins at 0"),
    (lambda: Intervals([0, 20], origin=5), "origin goes with widths"),
    (lambda: Intervals([0, 1.5], style="whole"), "whole numbers as edges"),
    (lambda: Intervals([0, 1], style="round"), "style must be one of shared, whole"),
    (lambda: Intervals([[0, 20, 40], [0, 30, 40]]), "level 2 must have some, not all"),
    (lambda: Intervals([[0, 20, 40], [0, 20]]), "same first and last edge"),
    (lambda: Intervals([[0, 20, 40], [20]], open_above=True), "same first edge"),
    (lambda: Intervals([[0, 20], [0, 20]]), "some, not all"),
    (lambda: Intervals(widths=0), "above 0"),
    (lambda: Intervals(widths=[5, 12]), "multiple of the one before"),
    (lambda: Intervals(widths=[10, 5]), "multiple of the one before"),
    (lambda: Intervals(widths="5"), "a width must be a finite number"),
    (lambda: Intervals(widths=5, origin="a"), "the origin must be a finite number"),
    (lambda: Intervals(widths=5, open_above=True), "widths have no end"),
    (lambda: Intervals(widths=0.5, style="whole"), "whole numbers as widths"),
    (lambda: Dates([]), "some of day, month"),
    (lambda: Dates(["week"]), "some of day, month"),
    (lambda: Dates(["year", "month"]), "in this order"),
    (lambda: Dates([["year"]]), "some of day, month"),
    (lambda: Prefixes([]), "keep must be"),
    (lambda: Prefixes([1, 2]), "largest first"),
    (lambda: Prefixes([0]), "above 0"),
    (lambda: Prefixes([True]), "keep must be"),
    (lambda: Prefixes("21"), "keep must be"),
    (lambda: Groups({}), "give a mapping"),
    (lambda: Groups([{"a": ["b"]}, {}]), "give a mapping"),
    (lambda: Groups("a"), "give a mapping"),
    (lambda: Groups({"a": "bc"}), "must be a list"),
    (lambda: Groups({"a": []}), "must be a list"),
    (lambda: Groups({" ": ["b"]}), "without a name"),
    (lambda: Groups({"a": ["x"], "b": ["x"]}), "ambiguous: 'a' and 'b' share a member"),
    (lambda: Groups([{"a": ["x"], "b": ["y"]}, {"c": ["a", "d"]}]),
     "level 2 .* left out: 'b'; not known: 'd'"),
    (lambda: Groups({"a": ["x|y"]}, spelled=True), "no value may hold one"),
    (lambda: Listed([]), "at least one label"),
    (lambda: Listed([["a"]]), "at least one label"),
    (lambda: Listed(["abc"]), "at least one label"),
    (lambda: Listed([["a", "b"], ["c"]]), "row 2 has 1 cells and the first 2"),
    (lambda: Listed([["a", " "]]), "row 1 has an empty label"),
    (lambda: Listed([["a", "b"], ["a", "c"]]), "row 2 is ambiguous: its value"),
    (lambda: Listed([["a", "b", "x"], ["c", "b", "y"]]), "row 2 is ambiguous: its label of level 1"),
    (lambda: Listed([["a", "*", "x"], ["c", "*", "y"]]), "row 2 is ambiguous"),
])  # fmt: skip
def test_hierarchies_are_checked_when_made(make, words):
    with pytest.raises(AnonymityError, match=words):
        make()


@pytest.mark.parametrize(("levels", "words"), [
    ([], "last level"),
    ([["a"]], "last level"),
    ([["a", "b"], ["*"]], "one label for each value"),
    ([[""], ["*"]], "empty label"),
    ([["a", "a", "b"], ["x", "y", "x"], ["*"] * 3], "ambiguous: 1 label of level 1 has .* at level 2"),
    ([["*", "*"], ["x", "y"], ["*", "*"]], "ambiguous"),
])  # fmt: skip
def test_levels_that_are_not_nested_are_refused(levels, words):
    with pytest.raises(AnonymityError, match=words):
        check_nested(levels, column="c")


def test_nothing_that_was_given_can_change_a_hierarchy_later():
    members, edges = {"a": ["x"]}, [0, 10]
    groups, intervals = Groups(members), Intervals(edges)
    members["a"].append("y")
    edges.append(20)
    with pytest.raises(AnonymityError, match="unknown"):
        labels(groups, ["y"])
    with pytest.raises(AnonymityError, match="above the last edge"):
        labels(intervals, [15])


SPANS = ["day", "month", "quarter", "half_year", "year", "five_years", "decade", "century"]
WHOLE = st.integers(-(10**6), 10**6)
# Few digits after the point: smaller numbers are written with an exponent, which no range of cells can hold.
PLACES = st.decimals(-(10**6), 10**6, places=3)
NUMBERS = st.one_of(WHOLE, PLACES, PLACES.map(float))
CODES = st.text("01279abZ *-. ", max_size=6)


def read_cell(value):
    """The text of a value in a register; decimals as in a CSV file, where none of their digits changes."""
    if isinstance(value, Decimal):
        return format(value, "f")
    return read_text(pa.table({"c": [value]}), side="register")["c"][0].as_py()


def check(hierarchy, values, *, readable=True):
    levels = hierarchy.label_levels(values, column="c")
    assert check_nested(levels, column="c") == levels
    assert levels[-1] == ("*",) * len(values)
    for level in levels:
        assert len(level) == len(values)
    if readable:
        cells = [read_cell(value) for value in values]
        for level in levels:
            for cell, label in zip(cells, level, strict=True):
                assert compatible(parse_pattern(cell), parse_pattern(label)), (cell, label)
    return levels


def distinct(values, **sizes):
    return st.lists(values, min_size=1, max_size=8, unique=True, **sizes)


@st.composite
def edge_levels(draw, numbers):
    # An edge is the number it is written as: 0.001 and Decimal("0.001") are one.
    written = st.lists(numbers, min_size=2, max_size=6, unique_by=lambda number: Decimal(str(number)))
    edges = sorted(draw(written), key=lambda number: Decimal(str(number)))
    kept = draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges)))
    coarser = [edge for edge, keep in zip(edges, kept, strict=True) if keep or edge in (edges[0], edges[-1])]
    return [edges, coarser] if len(coarser) < len(edges) else [edges]


@given(edge_levels(NUMBERS), distinct(NUMBERS), st.booleans())
def test_intervals_between_edges(levels, values, open_above):
    low, high = levels[0][0], levels[0][-1]
    inside = [value for value in [low, high, *values] if low <= value and (open_above or value <= high)]
    check(Intervals(levels, open_above=open_above), inside)


@given(edge_levels(WHOLE), distinct(WHOLE), st.booleans())
def test_whole_intervals_do_not_overlap(levels, values, open_above):
    low, high = levels[0][0], levels[0][-1]
    inside = [value for value in {low, high, *values} if low <= value and (open_above or value <= high)]
    for level in check(Intervals(levels, open_above=open_above, style="whole"), inside)[:-1]:
        for value, own in zip(inside, level, strict=True):
            fits = {label for label in level if compatible(parse_pattern(str(value)), parse_pattern(label))}
            assert fits == {own}


@given(
    st.decimals("0.001", 1000, places=3),
    st.lists(st.integers(2, 5), max_size=2),
    PLACES,
    distinct(NUMBERS),
)
def test_intervals_of_a_width(width, factors, origin, values):
    widths = [width]
    for factor in factors:
        widths.append(widths[-1] * factor)
    check(Intervals(widths=widths, origin=origin), values)


@given(st.integers(1, 50), st.integers(2, 5), WHOLE, distinct(WHOLE))
def test_whole_intervals_of_a_width(width, factor, origin, values):
    check(Intervals(widths=[width, width * factor], origin=origin, style="whole"), values)


@given(
    st.lists(st.sampled_from(SPANS), min_size=1, unique=True).map(
        lambda spans: sorted(spans, key=SPANS.index)
    ),
    st.one_of(distinct(st.dates()), distinct(st.datetimes())),
)
def test_spans_of_dates(spans, values):
    check(Dates(spans), values)


@given(
    st.lists(st.integers(1, 7), min_size=1, unique=True).map(lambda keep: sorted(keep, reverse=True)),
    st.booleans(),
    st.one_of(
        distinct(CODES), distinct(WHOLE), distinct(PLACES), distinct(st.dates()), distinct(st.booleans())
    ),
)
def test_prefixes(keep, pad, values):
    # Readers of cells drop the last zeros of a text such as 1.50, so a prefix with them is lost on them.
    readable = not any(isinstance(value, str) and "." in value for value in values)
    check(Prefixes(keep, pad=pad), values, readable=readable)


@given(distinct(st.text("abc1 ", min_size=1, max_size=4).map(str.strip).filter(bool)), st.data())
def test_groups_spelled_and_lists(values, data):
    chosen = data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values)))
    first, second = {}, {}
    for value, group in zip(values, chosen, strict=True):
        first.setdefault(f"g{group}", []).append(value)
        second.setdefault(f"h{group // 2}", set()).add(f"g{group}")
    second = {name: sorted(members) for name, members in second.items()}
    named = check(Groups([first, second]), values, readable=False)
    spelled = check(Groups([first, second], spelled=True), values)
    for names, spellings in zip(named, spelled, strict=True):
        assert len(set(zip(names, spellings, strict=True))) == len(set(names)) == len(set(spellings))
    rows = [[value, *row] for value, row in zip(values, zip(*named, strict=True), strict=True)]
    assert check(Listed(rows), values, readable=False) == named
    assert check(Listed([row[:-1] for row in rows]), values, readable=False) == named


@given(distinct(st.one_of(CODES, NUMBERS, st.dates())))
def test_suppressed(values):
    check(Suppressed(), values)


def test_times_with_a_zone_are_read_in_their_zone():
    late = datetime.datetime(1950, 12, 31, 23, 30, tzinfo=datetime.UTC)
    column = pa.table({"c": pa.array([late], pa.timestamp("us", "Europe/Paris"))})
    (cell,), (value,) = read_text(column, side="register")["c"].to_pylist(), column["c"].to_pylist()
    for level in Dates(SPANS).label_levels([value], column="c"):
        assert compatible(parse_pattern(cell), parse_pattern(level[0]))
