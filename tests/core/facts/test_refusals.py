"""What no description may say, each with what to do: the cases are in fixtures/refusals.txt."""

import tomllib
from pathlib import Path

import pytest

from helpers.pairs import read_pairs
from sfumato.core.errors import RecipeError, SchemaError
from sfumato.core.facts.column import parse_column
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.table import parse_table

FILE = Path(__file__).with_name("fixtures") / "refusals.txt"
COLUMNS = {
    "age": {"range": [0, 99]},
    "income": {"bins": [0, 10, 100], "missing_label": "none"},
    "job": {"values": ["it's", "teacher"]},
    "start": {"range": [0, 9]},
    "end": {"range": [0, 9]},
    "total": {"range": [0, 18]},
    "free": {"bounds": [0, 1]},
}


def parse_with(**rules):
    return parse_table("t", {"source": "t.parquet", "unit": "row", "columns": COLUMNS, **rules})


def parse_changed(change):
    table = {"source": "t.csv", "unit": "p", "max_records": 3}
    return parse_project({"budget": {"epsilon": 1}, "tables": {"t": table}, **change}, folder=FILE.parent)


READERS = {
    "columns": lambda spec: parse_column("c", spec),
    "columns of ranges": lambda spec: parse_column("c", spec),
    "columns of dates": lambda spec: parse_column("c", spec),
    "conditions": lambda text: parse_with(impossible=[text]),
    "rules": lambda rule: parse_with(rules=[rule]),
    "impossible combinations": lambda rule: parse_with(impossible=[rule]),
    "projects": parse_changed,
}


@pytest.mark.parametrize(
    ("kind", "written", "words"),
    [(kind, *pair) for kind in READERS for pair in read_pairs(FILE, section=kind)],
)
def test_what_is_no_description_is_refused_with_what_to_do(kind, written, words):
    with pytest.raises((SchemaError, RecipeError)) as caught:
        READERS[kind](tomllib.loads(f"it = {written}")["it"])
    assert words in str(caught.value)
    assert caught.value.exit_code == 2
    if kind.startswith("columns"):
        assert "column 'c'" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        ("columns", {"bins": list(range(3000))}, "at most"),
        ("columns of ranges", {"ranges": None}, "ranges"),
        ("conditions", "age < 1 " * 500, "characters"),
    ],
)
def test_what_no_file_can_say_is_refused_too(kind, spec, words):
    with pytest.raises(SchemaError, match=words):
        READERS[kind](spec)
