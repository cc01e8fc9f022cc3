"""Released values get the codes of the domain that the certificate describes."""

import numpy as np
import pyarrow as pa
import pytest

from sfumato.report.fields import encode_column, read_fields


def field_of(spec, name="a"):
    (field,) = read_fields({name: {"origin": "x", "outside": "drop", **spec}})
    return field


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_listed_text(kind):
    field = field_of({"values": ["x", "y"], "names": ["Ex", "Why"]})
    table = pa.table({"a": pa.array(["y", "x", None, "z"], pa.string()).cast(kind)})
    assert encode_column(field, table).tolist() == [1, 0, -1, -1]
    assert field.labels == ("Ex", "Why")


def test_numbers_in_ranges_and_lists():
    assert encode_column(field_of({"range": [-1, 3]}), pa.table({"a": [3, -1, 9]})).tolist() == [4, 0, -1]
    assert encode_column(field_of({"values": [7, 5]}), pa.table({"a": [5, 7]})).tolist() == [1, 0]


def test_numbers_within_bins_and_bins_as_text():
    field = field_of({"bins": ["0", "10", "50"]})
    assert encode_column(field, pa.table({"a": [0.0, 9.9, 10.0, 50.0, 51.0, -1.0]})).tolist() == [
        0,
        0,
        1,
        1,
        -1,
        -1,
    ]
    assert encode_column(field, pa.table({"a": ["[10, 50]", "[0, 10)"]})).tolist() == [1, 0]


def test_combinations_are_released_as_their_parts():
    field = field_of({"from": ["year", "month"], "values": [[2019, 1], [2019, 2], [2020, 1]]}, name="period")
    table = pa.table({"year": [2020, 2019, 2020, 2021], "month": [1, 2, 2, 1]})
    assert field.released == ("year", "month")
    assert encode_column(field, table).tolist() == [2, 1, -1, -1]


def test_other_is_a_code_of_its_own():
    field = field_of({"values": ["x"], "outside": "other"})
    assert field.labels == ("x", "other")
    assert encode_column(field, pa.table({"a": ["other", "x"]})).tolist() == [1, 0]


def test_chunks_are_joined():
    table = pa.concat_tables([pa.table({"a": ["x"]}), pa.table({"a": ["y"]})])
    assert encode_column(field_of({"values": ["x", "y"]}), table).tolist() == [0, 1]
    assert encode_column(field_of({"values": ["x"]}), table.slice(0, 0)).size == 0


def test_what_cannot_be_read_is_left_out():
    specs = {"a": {"values": []}, "b": {"nonsense": 1}, "c": {"outside": "drop"}, "d": {"range": [1, 2]}}
    assert [field.name for field in read_fields(specs)] == ["d"]


def test_facts_of_the_certificate_are_told():
    field = field_of({"values": ["x"], "origin": "a census", "drafted_from_data": True})
    assert (field.origin, field.drafted) == ("a census", True)
    assert np.array_equal(encode_column(field, pa.table({"a": ["x"]})), [0])


def test_listed_dates_months_and_weekdays_keep_their_order():
    def ordered(*values):
        return field_of({"values": list(values)}).ordered

    assert ordered("2019-01", "2019-02", "2019-03")
    assert ordered("2024", "2025", "2026")
    assert ordered("Mon", "Tuesday", "wed")
    assert not ordered("2019-02", "2019-01", "2019-03")
    assert not ordered("Mayfair", "Marylebone", "Augusta")
