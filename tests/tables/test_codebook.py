"""Codebooks in the forms in which people have them."""

import json
from datetime import date
from fractions import Fraction

import pytest

from helpers.cases import read_cases
from sfumato.core.errors import SchemaError
from sfumato.tables.codebook import find_kind, read_codebook


def read(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_codebook(path)


def test_an_entry_for_each_column(tmp_path):
    known = read(
        tmp_path,
        "codes.json",
        {
            "sex": {"description": "Sex", "values": {"1": "Male", "2": "Female"}},
            "age": {"dtype": "int64", "min": 0.0, "max": 99},
            "ward": {"dtype": "object", "has_null": True, "values": ["N", "S"]},
            "income": {"values": {"X": "not asked", "min": -9000, "max": 250000, "999999": "more"}},
            "code": 12,
            "what": {"distinct": 4},
        },
    )
    assert known["sex"].values == ("1", "2")
    assert known["sex"].names == ("Male", "Female")
    assert (known["age"].low, known["age"].high, known["age"].kind) == (0, 99, "integer")
    assert known["ward"].values == ("N", "S")
    assert (known["income"].low, known["income"].high) == (-9000, 999999)
    assert known["income"].missing == ("X",)
    assert (known["code"].low, known["code"].high) == (0, 11)
    assert not known["what"].values
    assert all(each.origin == "codes.json" for each in known.values())


def test_the_layouts_of_contests(tmp_path):
    schema = {
        "periods": [{"year": 2019, "month": 1}],
        "place": [{"name": "Hill", "code": 7}, {"code": 8}],
        "taxi": {"kind": "id", "min": 1, "max": 9},
        "fare": {"dtype": "int16", "kind": "numeric", "min": -1, "max": 9900},
    }
    known = read(tmp_path, "parameters.json", {"runs": [], "schema": schema})
    assert known["place"].values == ("7", "8")
    assert known["place"].names == ("Hill", "8")
    assert known["taxi"].identifier
    assert known["fare"].high == 9900
    fields = {"fields": {"AGE": {"maxval": 120, "label": "Age"}}}
    assert read(tmp_path, "fields.json", fields)["AGE"].high == 120


@pytest.mark.parametrize("packed", [False, True])
def test_frictionless_schemas(tmp_path, packed):
    schema = {
        "missingValues": ["", "NA"],
        "fields": [
            {
                "name": "seen",
                "type": "date",
                "format": "%d/%m/%Y",
                "constraints": {"minimum": "2019-01-01", "maximum": "2020-12-31"},
            },
            {"name": "kind", "type": "string", "constraints": {"enum": ["a", "b"], "required": True}},
            {
                "name": "share",
                "type": "number",
                "decimalChar": ",",
                "constraints": {"minimum": 0, "maximum": 1.5},
            },
        ],
    }
    known = read(tmp_path, "package.json", {"resources": [{"schema": schema}]} if packed else schema)
    assert (known["seen"].low, known["seen"].high) == (date(2019, 1, 1), date(2020, 12, 31))
    assert (known["seen"].format, known["seen"].missing) == ("%d/%m/%Y", ("NA",))
    assert known["kind"].values == ("a", "b")
    assert (known["share"].high, known["share"].decimal) == (Fraction(3, 2), ",")


def test_tables_of_codes(tmp_path):
    known = read(
        tmp_path,
        "codes.csv",
        "Variable;Code;Label\nsex;1;male\nsex;2;female\nage;0..99;years\nward;N|S=South;\n",
    )
    assert (known["sex"].values, known["sex"].names) == (("1", "2"), ("male", "female"))
    assert (known["age"].low, known["age"].high) == (0, 99)
    assert known["ward"].values == ("N", "S")
    known = read(tmp_path, "wide.csv", 'name,type,min,max,values\nage,int,0,99,\nward,text,,,"N, S, H"\n')
    assert known["age"].high == 99
    assert known["ward"].values == ("N", "S", "H")


def test_tables_of_a_database(tmp_path):
    known = read(
        tmp_path,
        "tables.sql",
        """CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE TABLE people (
            id serial PRIMARY KEY,
            age int NOT NULL CHECK (age BETWEEN 0 AND 120),
            how mood,
            sex char(1) CHECK (sex IN ('f', 'm')),
            income numeric CHECK (income >= 0 AND income <= 1000000),
            born date,
            CHECK (born >= '1900-01-01' AND born <= '2025-12-31')
        );""",
    )
    assert known["id"].identifier
    assert (known["age"].low, known["age"].high, known["age"].nullable) == (0, 120, False)
    assert (known["how"].values, known["how"].nullable) == (("sad", "ok"), True)
    assert known["sex"].values == ("f", "m")
    assert (known["income"].high, known["income"].kind) == (1_000_000, "number")
    assert known["born"].low == date(1900, 1, 1)
    known = read(tmp_path, "mysql.sql", "CREATE TABLE `t` (`size` ENUM('s','m') NOT NULL, `n` int)")
    assert known["size"].values == ("s", "m")
    assert known["n"].kind == "integer"


@pytest.mark.parametrize(
    ("name", "content"), read_cases(__file__, "test_what_is_no_codebook_is_refused_with_advice")
)
def test_what_is_no_codebook_is_refused_with_advice(tmp_path, name, content):
    with pytest.raises(SchemaError, match="codebook"):
        read(tmp_path, name, content)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SchemaError, match=r"gone\.json"):
        read_codebook(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("given", "kind"),
    [("Int32", "integer"), ("character varying", "text"), ("bool", "boolean"), (None, None)],
)
def test_types_of_any_language(given, kind):
    assert find_kind(given) == kind
