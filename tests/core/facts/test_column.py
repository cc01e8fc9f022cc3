from fractions import Fraction

import pytest

from sfumato.core.errors import SchemaError
from sfumato.core.facts.column import column_spec, parse_column
from sfumato.core.facts.domain import Bins, IntegerRange, Period, Tuples, Values


@pytest.mark.parametrize(
    ("spec", "domain", "labels"),
    [
        ({"values": ["x", "y"]}, Values(("x", "y")), ("x", "y")),
        ({"values": [3, 1]}, Values((3, 1)), (3, 1)),
        ({"values": [False, True]}, Values(("false", "true")), ("false", "true")),
        ({"range": [-1, 1]}, IntegerRange(-1, 1), (-1, 0, 1)),
        ({"bins": [0, "0.5", 2]}, Bins((Fraction(0), Fraction(1, 2), Fraction(2))), ("[0, 0.5)", "[0.5, 2]")),
        ({"period": "day_of_week"}, Period("day_of_week"), tuple(range(7))),
        ({"period": "year", "range": [2019, 2020]}, Period("year", IntegerRange(2019, 2020)), (2019, 2020)),
        (
            {"from": ["year", "month"], "values": [[2019, 1], [2019, 2]]},
            Tuples(((2019, 1), (2019, 2))),
            ("2019-1", "2019-2"),
        ),
    ],
)
def test_domains_parse_and_read_back(spec, domain, labels):
    column = parse_column("c", spec)
    assert column.domain == domain
    assert column.labels == labels
    assert column.size == len(labels)
    assert parse_column("c", column_spec(column)) == column


def test_other_adds_a_code():
    column = parse_column("c", {"values": ["x"], "outside": "other"})
    assert column.labels == ("x", "other")
    assert column.size == 2


def test_values_come_from_a_file(tmp_path):
    (tmp_path / "regions.csv").write_text("region,note\nnorth,x\nsouth,y\n")
    column = parse_column("region", {"values_file": "regions.csv"}, folder=tmp_path)
    assert column.labels == ("north", "south")
    assert "regions.csv" in column.origin
    (tmp_path / "codes.csv").write_text("10\n20\n")
    assert parse_column("c", {"values_file": "codes.csv"}, folder=tmp_path).labels == (10, 20)
    (tmp_path / "zips.csv").write_text("01\n20\n")
    assert parse_column("c", {"values_file": "zips.csv"}, folder=tmp_path).labels == ("01", "20")


@pytest.mark.parametrize("header", ["region", "Region_Code", "value"])
def test_a_header_of_a_values_file_is_no_value(tmp_path, header):
    (tmp_path / "regions.csv").write_text(f"{header}\nnorth\nsouth\n")
    column = parse_column("region", {"from": "region_code", "values_file": "regions.csv"}, folder=tmp_path)
    assert column.labels == ("north", "south")


def test_a_missing_or_broken_values_file_is_named(tmp_path):
    with pytest.raises(SchemaError, match=r"gone\.csv"):
        parse_column("c", {"values_file": "gone.csv"}, folder=tmp_path)
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(SchemaError, match=r"bad\.csv"):
        parse_column("c", {"values_file": "bad.csv"}, folder=tmp_path)
