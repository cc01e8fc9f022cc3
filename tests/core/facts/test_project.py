import tomllib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.errors import SchemaError
from sfumato.core.facts.project import parse_project, read_project
from sfumato.core.facts.table import parse_table, table_spec
from sfumato.tables import quote_toml
from sfumato.tables.draft import Known, draft_project

BUDGET = "[budget]\nepsilon = 1\n"
TABLE = '[tables.t]\nsource = "t.csv"\nunit = "p"\nmax_records = 3\n'


def write(folder, text):
    file = folder / "sfumato.toml"
    file.write_text(text)
    return file


def test_a_project_reads_exactly(tmp_path):
    project = read_project(write(tmp_path, "[budget]\nepsilon = 0.1\ndelta = 1e-9\n" + TABLE))
    assert (project.epsilon, project.delta) == (Fraction(1, 10), Fraction(1, 10**9))
    assert project.table("t").unit.max_records == 3
    assert project.ledger == "ledger.db"
    assert project.selection_delta is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("2e-10", Fraction(2, 10**10)), ('"1/9000000000"', Fraction(1, 9 * 10**9))],
)
def test_the_part_of_delta_for_selection_reads_exactly(tmp_path, text, expected):
    budget = f"[budget]\nepsilon = 1\ndelta = 1e-9\nselection_delta = {text}\n"
    assert read_project(write(tmp_path, budget + TABLE)).selection_delta == expected


@pytest.mark.parametrize(("text", "words"), [(TABLE, "needs [budget]"), ("[budget\n", "not valid TOML")])
def test_a_file_that_is_no_project_is_refused(tmp_path, text, words):
    with pytest.raises(SchemaError) as caught:
        read_project(write(tmp_path, text))
    assert words in str(caught.value)


def test_a_missing_project_file_names_init(tmp_path):
    with pytest.raises(SchemaError, match="sfumato init"):
        read_project(tmp_path / "sfumato.toml")


def test_an_unknown_table_lists_the_known_ones(tmp_path):
    with pytest.raises(SchemaError, match="described: t"):
        read_project(write(tmp_path, BUDGET + TABLE)).table("u")


def test_a_column_must_be_described_and_have_a_domain():
    table = parse_table("t", {"source": "t.csv", "unit": "row", "columns": {"c": {"bounds": [0, 1]}}})
    with pytest.raises(SchemaError, match="describes no column 'd'"):
        table.column("d")
    with pytest.raises(SchemaError, match="no public domain"):
        table.column("c")


def test_a_drafted_domain_is_refused_until_it_is_accepted():
    spec = {"values": ["x"], "drafted_from_data": True}
    table = parse_table("t", {"source": "t.csv", "unit": "row", "columns": {"c": spec}})
    with pytest.raises(SchemaError, match="drafted from the data"):
        table.column("c")
    accepted = {**spec, "accept_drafted": True}
    table = parse_table("t", {"source": "t.csv", "unit": "row", "columns": {"c": accepted}})
    assert table.column("c").drafted


def test_a_table_reads_back_from_its_description():
    spec = {
        "source": "t.csv",
        "unit": "p",
        "max_records": 4,
        "neighbours": "replace",
        "bounding": "weight",
        "columns": {"c": {"bins": ["0", "1"], "outside": "clamp", "origin": "a law"}, "d": {"range": [1, 2]}},
    }
    table = parse_table("t", spec)
    assert parse_table("t", table_spec(table, ("c", "d"))) == table
    assert table.contribution == 4 * table.grid


def test_a_draft_holds_names_and_types_only():
    text = draft_project("data/my calls.parquet", {"id": "integer", "a b": "text", "blob": "other"})
    document = tomllib.loads(text)
    assert document["tables"]["my_calls"]["columns"] == {}
    assert all(f"# {name} =" in text for name in ("id", '"a b"', "blob"))
    with pytest.raises(SchemaError, match="unit"):
        parse_project(document, folder=None)


NASTY = [
    "\U0001f600",
    "a\x7fb",
    'a"b',
    "a\\b",
    "a\nb",
    "\t\r\b\f\x00\x1b\x85\u2028",
    "",
    " ",
    "ä.ö",
    "a.b",
    "'",
    '"""',
    "#",
]


@pytest.mark.parametrize("name", NASTY)
def test_a_draft_of_any_name_is_valid(name):
    known = {name: Known(origin=name, values=(name,))}
    document = tomllib.loads(draft_project(f"data/{name}.csv", {name: "text", "b": "integer"}, known=known))
    ((table, spec),) = document["tables"].items()
    assert table
    assert spec["source"] == f"data/{name}.csv"
    assert spec["columns"] == {name: {"values": [name], "nullable": True, "origin": name}}


@given(st.text())
def test_every_text_survives_its_quotes(text):
    assert tomllib.loads(f"{quote_toml(text)} = {quote_toml(text)}") == {text: text}


def test_half_a_character_is_replaced():
    assert tomllib.loads(f"a = {quote_toml('x' + chr(0xDC80))}") == {"a": "x\ufffd"}


def test_a_draft_of_a_text_file_says_how_numbers_and_dates_are_described():
    assert 'period = "month"' in draft_project("visits.csv.gz", {"visited": "text"})
    assert 'period = "month"' not in draft_project("visits.parquet", {"clinic": "text"})
