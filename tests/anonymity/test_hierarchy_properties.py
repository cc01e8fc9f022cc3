"""For any values: labels fit their values as an attacker reads them, levels are nested, the last is `*`."""

import datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.anonymity.hierarchy import Dates, Groups, Intervals, Listed, Prefixes, Suppressed, check_nested
from sfumato.attack import compatible, parse_pattern, read_text

SPANS = ["day", "month", "quarter", "half_year", "year", "five_years", "decade", "century"]
WHOLE = st.integers(-(10**6), 10**6)
# Few digits after the point: smaller numbers are written with an exponent, which no range of cells can hold.
PLACES = st.decimals(-(10**6), 10**6, places=3)
NUMBERS = st.one_of(WHOLE, PLACES, PLACES.map(float))
CODES = st.text("01279abZ *-. ", max_size=6)
SETTINGS = settings(max_examples=120, deadline=None)


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


@SETTINGS
@given(edge_levels(NUMBERS), distinct(NUMBERS), st.booleans())
def test_intervals_between_edges(levels, values, open_above):
    low, high = levels[0][0], levels[0][-1]
    inside = [value for value in [low, high, *values] if low <= value and (open_above or value <= high)]
    check(Intervals(levels, open_above=open_above), inside)


@SETTINGS
@given(edge_levels(WHOLE), distinct(WHOLE), st.booleans())
def test_whole_intervals_do_not_overlap(levels, values, open_above):
    low, high = levels[0][0], levels[0][-1]
    inside = [value for value in {low, high, *values} if low <= value and (open_above or value <= high)]
    for level in check(Intervals(levels, open_above=open_above, style="whole"), inside)[:-1]:
        for value, own in zip(inside, level, strict=True):
            fits = {label for label in level if compatible(parse_pattern(str(value)), parse_pattern(label))}
            assert fits == {own}


@SETTINGS
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


@SETTINGS
@given(st.integers(1, 50), st.integers(2, 5), WHOLE, distinct(WHOLE))
def test_whole_intervals_of_a_width(width, factor, origin, values):
    check(Intervals(widths=[width, width * factor], origin=origin, style="whole"), values)


@SETTINGS
@given(
    st.lists(st.sampled_from(SPANS), min_size=1, unique=True).map(
        lambda spans: sorted(spans, key=SPANS.index)
    ),
    st.one_of(distinct(st.dates()), distinct(st.datetimes())),
)
def test_spans_of_dates(spans, values):
    check(Dates(spans), values)


@SETTINGS
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


@SETTINGS
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


@SETTINGS
@given(distinct(st.one_of(CODES, NUMBERS, st.dates())))
def test_suppressed(values):
    check(Suppressed(), values)


def test_times_with_a_zone_are_read_in_their_zone():
    late = datetime.datetime(1950, 12, 31, 23, 30, tzinfo=datetime.UTC)
    column = pa.table({"c": pa.array([late], pa.timestamp("us", "Europe/Paris"))})
    (cell,), (value,) = read_text(column, side="register")["c"].to_pylist(), column["c"].to_pylist()
    for level in Dates(SPANS).label_levels([value], column="c"):
        assert compatible(parse_pattern(cell), parse_pattern(level[0]))
