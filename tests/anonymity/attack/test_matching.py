"""Generalised values: what they are read as, and which fit together."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cases import read_cases
from sfumato.anonymity.attack import Pattern, compatible, is_exact, parse_pattern
from sfumato.anonymity.attack.matching import ANY, ValueIndex


@pytest.mark.parametrize(("cell", "expected"), [
    ("180-190", Pattern(low=180, high=190)),
    (" 180 - 190 ", Pattern(low=180, high=190)),
    ("-5--2", Pattern(low=-5, high=-2)),
    ("1.5-2.25", Pattern(low=1.5, high=2.25)),
    ("60+", Pattern(low=60, high=math.inf)),
    ("12*", Pattern(prefix="12")),
    ("12**", Pattern(prefix="12")),
    ("*", ANY),
    ("", ANY),
    (None, ANY),
    ("170", Pattern(text="170", low=170, high=170)),
    ("170.00", Pattern(text="170", low=170, high=170)),
    ("-0.0", Pattern(text="0", low=0, high=0)),
    ("-0.5", Pattern(text="-0.5", low=-0.5, high=-0.5)),
    ("02138", Pattern(text="02138")),
    ("06-07", Pattern(text="06-07")),
    ("06/07", Pattern(text="06/07")),
    ("190-180", Pattern(text="190-180")),
    ("North-East", Pattern(text="North-East")),
    ("a+", Pattern(text="a+")),
    ("a|b", Pattern(members=(Pattern(text="a"), Pattern(text="b")))),
    ("a|*", ANY),
    ("a|", Pattern(text="a")),
    ("a|a", Pattern(text="a")),
    ("1945-07-31", Pattern(text="1945-07-31", low=710243, high=710243)),
    ("1945-13-31", Pattern(text="1945-13-31")),
])  # fmt: skip
def test_cells_are_read(cell, expected):
    assert parse_pattern(cell) == expected


def test_intervals_of_dates_are_read():
    years = parse_pattern("1945-01-01-1949-12-31")
    assert compatible(years, parse_pattern("1945-07-31"))
    assert not compatible(years, parse_pattern("1950-01-01"))
    assert not is_exact(years)


@pytest.mark.parametrize(
    ("first", "second", "fits"), read_cases(__file__, "test_cells_fit_or_not_from_either_side")
)
def test_cells_fit_or_not_from_either_side(first, second, fits):
    one, other = parse_pattern(first), parse_pattern(second)
    assert compatible(one, other) is fits
    assert compatible(other, one) is fits


CELLS = st.one_of(
    st.integers(-5, 130).map(str),
    st.tuples(st.integers(0, 120), st.integers(0, 30)).map(lambda pair: f"{pair[0]}-{sum(pair)}"),
    st.integers(0, 99).map(lambda low: f"{low}+"),
    st.sampled_from(
        [
            "*",
            "",
            "1*",
            "12*",
            "a*",
            "a",
            "ab",
            "b",
            "a|b",
            "1|22-30",
            "02138",
            "1945-07-31",
            "-*",
            "2.50*",
            "2.5",
            "0",
        ]
    ),
)


@given(st.lists(CELLS, min_size=1, max_size=12, unique=True), CELLS)
def test_an_index_says_what_comparing_each_says(cells, other):
    patterns = list(dict.fromkeys(map(parse_pattern, cells)))
    pattern = parse_pattern(other)
    index = ValueIndex(patterns)
    expected = [compatible(each, pattern) for each in patterns]
    assert index.fits(pattern).tolist() == expected
