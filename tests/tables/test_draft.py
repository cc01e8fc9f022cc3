"""Drafts: every line reads back as what was known, and what is not known stays a comment."""

import tomllib
from datetime import date
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import SchemaError
from sfumato.core.facts.project import parse_project
from sfumato.tables.draft import Known, describe_column, draft_project, merge_known, round_edges


def draft(kinds, known=None, source="people.parquet", **facts):
    text = draft_project(source, kinds, known=known, unit="row", **facts)
    return parse_project(tomllib.loads(text), folder=None).tables["people"]


def test_what_is_known_reads_back():
    known = {
        "sex": Known(origin="codes", values=("1", "2"), names=("male", "female"), nullable=False),
        "ward": Known(origin="codes", values=("N", "S"), complete=False),
        "age": Known(origin="codes", low=Fraction(0), high=Fraction(99)),
        "fare": Known(origin="codes", low=Fraction(0), high=Fraction(5, 2), missing=("NA",)),
        "seen": Known(origin="codes", low=date(2019, 1, 1), high=date(2020, 12, 31), format="%d.%m.%Y"),
        "id": Known(origin="codes", identifier=True),
    }
    kinds = {
        "sex": "integer",
        "ward": "text",
        "age": "integer",
        "fare": "number",
        "seen": "text",
        "id": "text",
    }
    table = draft(kinds, known)
    columns = table.columns
    assert columns["sex"].domain.values == (1, 2)
    assert columns["sex"].missing_label is None
    assert columns["sex"].domain.names == ("male", "female")
    assert columns["ward"].labels == ("N", "S", "missing", "other")
    # Nobody said that each has a value: a record without one counts all the same.
    assert (columns["age"].nullable, columns["age"].size) == (True, 101)
    assert (columns["fare"].bounds, columns["fare"].missing) == ((0, Fraction(5, 2)), ("NA",))
    assert columns["seen"].dates == (date(2019, 1, 1), date(2020, 12, 31))
    assert columns["seen_year"].size == 3
    assert (columns["seen_month"].size, columns["seen_month"].format) == (13, "%d.%m.%Y")
    assert "id" not in columns
    assert all(column.origin == "codes" for column in columns.values())


def test_types_alone_tell_what_is_to_do():
    kinds = {"a": "integer", "b": "number", "c": "text", "d": "date", "e": "boolean", "f": "other"}
    text = draft_project("people.parquet", kinds)
    assert text.count("TODO:") == 4
    assert "leave this column out" in text
    assert list(draft(kinds).columns) == ["e"]
    with pytest.raises(SchemaError, match="unit"):
        parse_project(tomllib.loads(text), folder=None)


def test_a_column_is_one_line():
    kinds = dict.fromkeys((f"c{number}" for number in range(3000)), "text")
    assert len(draft_project("wide.csv", kinds).splitlines()) < 3025


def test_texts_that_look_like_numbers_stay_texts_where_the_source_says_so():
    known = Known(origin="codes", values=("1", "2"))
    assert describe_column("a", "text", known)["a"]["values"] == ["1", "2"]
    assert describe_column("a", "text", known, text=True)["a"]["values"] == [1, 2]
    codes = Known(origin="codes", values=("01", "2"))
    assert describe_column("a", "text", codes, text=True)["a"]["values"] == ["01", "2"]


def test_an_incomplete_list_keeps_the_rest_apart():
    listed = Known(origin="2024", values=("N", "S"), complete=False)
    assert describe_column("ward", "text", listed)["ward"]["outside"] == "other"
    numbers = Known(origin="2024", low=Fraction(0), high=Fraction(9), complete=False)
    assert describe_column("age", "integer", numbers)["age"]["outside"] == "clamp"


def test_long_lists_belong_into_a_file():
    known = {"zip": Known(origin="codes", values=tuple(map(str, range(10_000, 10_600))))}
    assert "values_file" in draft_project("t.parquet", {"zip": "text"}, known=known)


def test_the_first_source_of_a_fact_counts():
    first, second = (
        {"a": Known(origin="x", values=("1",))},
        {"a": Known(origin="y", missing=("NA",)), "b": Known(origin="y")},
    )
    merged = merge_known(first, second)
    assert (merged["a"].origin, merged["a"].missing, merged["b"].origin) == ("x", ("NA",), "y")


@given(st.fractions(-(10**12), 10**12), st.fractions(Fraction(1, 10**6), 10**12))
def test_round_edges_hold_both_ends(low, width):
    edges = round_edges(low, low + width)
    assert edges[0] <= low
    assert low + width < edges[-1]
    assert 5 <= len(edges) <= 13
    assert len({after - before for before, after in pairwise(edges)}) == 1


def test_the_unit_has_no_line_and_a_kind_that_was_found_has_its_own_todo():
    text = draft_project(
        "visits.csv",
        {"person": "text", "seen": "text"},
        known={"seen": Known(origin="the records", kind="date")},
        unit="person",
        max_records=2,
    )
    assert "# person names the individual" in text
    assert "# TODO: dates" in text
