"""From typed facts to the two files, and what the wizard must not read."""

import html
import re
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from sfumato.core.errors import SchemaError
from sfumato.core.facts.project import parse_project
from sfumato.serve.web.wizard import Facts, simulate_records, write_project_file, write_recipe_file

KINDS = {
    "who": "text",
    "ward": "text",
    "age": "integer",
    "fee": "number",
    "seen": "date",
    "new": "boolean",
    'a"b.c': "text",
}


def state(by=("ward",), **columns):
    """Facts about a table with these columns: `ward=("values", "a, b")`."""
    return Facts(
        source="visits.csv",
        served=False,
        name="visits",
        unit="who",
        max_records="3",
        epsilon="0.5",
        by=tuple(by),
        columns={name: columns.get(name, ("", "")) for name in KINDS},
    )


def read(facts):
    document = tomllib.loads(write_project_file(facts, KINDS), parse_float=Decimal)
    return parse_project({"budget": {"epsilon": 2}, **document}, folder=Path())


def test_each_way_of_stating_a_domain():
    facts = state(
        ward=("values", 'North, "St. John, East"\nSouth'),
        age=("range", "0..99"),
        fee=("bins", "0, 10.5, 50"),
        seen=("month", ""),
        new=("values", "true, false"),
        **{'a"b.c': ("values", 'x "y", z')},
    )
    table = read(facts).table("visits")
    assert table.unit.describe() == "who, at most 3 records, add-remove"
    assert table.columns["ward"].labels == ("North", "St. John, East", "South")
    assert table.columns["age"].size == 100
    assert table.columns["fee"].labels == ("[0, 10.5)", "[10.5, 50]")
    assert table.columns["seen_month"].stored == ("seen",)
    assert table.columns["new"].labels == ("true", "false")
    assert 'a"b.c' in table.columns
    records = simulate_records(table, KINDS, records=300)
    assert records.num_rows == 300
    assert set(records["ward"].to_pylist()) == {"North", "St. John, East", "South"}
    assert records == simulate_records(table, KINDS, records=300)


def test_bounds_years_and_ends():
    table = read(
        state(fee=("bounds", "-5 to 100"), seen=("year", "2020, 2025"), age=("values", "1, 2"))
    ).table("visits")
    assert [int(end) for end in table.columns["fee"].bounds] == [-5, 100]
    assert table.columns["seen_year"].labels == (2020, 2021, 2022, 2023, 2024, 2025)
    assert table.columns["age"].labels == (1, 2)
    records = simulate_records(table, KINDS, records=50)
    assert all(-5 <= fee <= 100 for fee in records["fee"].to_pylist())


@pytest.mark.parametrize(
    "columns",
    [
        {"age": ("range", "young to old")},
        {"age": ("values", "one, two")},
        {"ward": ("values", " , ")},
        {"fee": ("bins", "a, b")},
        {"fee": ("bins", "1]\nx = [2")},
        {"seen": ("year", "")},
        {"fee": ("bins", "0, nan, inf")},
        {"fee": ("bounds", "0..1e999")},
        {"age": ("range", "1..\u0663")},
        {"ward": ("values", "x" * 200_000)},
    ],
)
def test_what_cannot_be_meant_is_said_with_its_column(columns):
    with pytest.raises(SchemaError, match=f"column '{next(iter(columns))}'"):
        write_project_file(state(**columns), KINDS)


def test_texts_stay_texts():
    nasty = 'x"]\n[budget]\nepsilon = 99\n#'
    facts = state(ward=("values", f'"{nasty.replace(chr(34), chr(34) * 2)}"'))
    assert read(facts).epsilon == 2
    assert write_recipe_file(state(ward=("values", "a"))).count("\n") == 5
    with pytest.raises(SchemaError, match="count by it"):
        write_recipe_file(state(by=("fee",), fee=("bounds", "0..1")))
    with pytest.raises(SchemaError, match="choose the columns"):
        write_recipe_file(state(by=()))


@pytest.mark.parametrize(
    "source", ["../../etc/passwd", "/etc/hostname", "serve.db", "nothing.csv", "sfumato.toml", "."]
)
def test_only_tables_in_the_projects_folder_are_described(site, source):
    cookie = site.login("ada")
    csrf = site.call("GET", "/wizard", cookie=cookie).csrf
    got = site.call("POST", "/wizard", cookie=cookie, form={"csrf": csrf, "source": source, "step": "facts"})
    assert got.status == 422
    assert "here is no file" in got.text


@pytest.mark.parametrize("file", ["visits.parquet", "../serve.db", "private.csv", "/etc/passwd", "serve.db"])
def test_lists_of_values_are_public_files(site, file):
    # A copy of the records under another name is found out.
    (site.folder / "private.csv").write_text("ward\nNorth\n")
    (site.folder / "described.csv").write_text("ward\nNorth\n")
    cookie = site.login("ada")
    csrf = site.call("GET", "/wizard", cookie=cookie).csrf
    form = {"csrf": csrf, "source": "described.csv", "unit": "row", "step": "preview", "by": "ward"}
    form |= {"way.0": "values_file", "words.0": file, "epsilon": "0.5", "name": "described"}
    assert site.call("POST", "/wizard", cookie=cookie, form=form).status == 422


def test_nothing_is_shown_of_a_file_that_is_not_declared_public(site):
    """A private file that no table describes yet, whose first cells are no code of anything public."""
    (site.folder / "patients.csv").write_text("patient,diagnosis\nzoltan quark,C34\nwilma plenum,F20\n")
    (site.folder / "described.csv").write_text("ward\nNorth\n")
    cookie = site.login("ada")
    csrf = site.call("GET", "/wizard", cookie=cookie).csrf
    form = {"csrf": csrf, "source": "described.csv", "unit": "row", "by": "ward", "name": "described"}
    form |= {"way.0": "values_file", "words.0": "patients.csv", "epsilon": "0.5"}
    for step in ("preview", "project", "recipe", "release"):
        got = site.call("POST", "/wizard", cookie=cookie, form={**form, "step": step, "release": "r"})
        assert got.status == 422
        assert "quark" not in got.text
        assert "plenum" not in got.text
        assert "is not declared public" in got.text


def test_a_public_list_is_taken(site):
    (site.folder / "described.csv").write_text("ward\nNorth\n")
    cookie = site.login("ada")
    csrf = site.call("GET", "/wizard", cookie=cookie).csrf
    form = {"csrf": csrf, "source": "described.csv", "unit": "row", "step": "preview", "by": "ward"}
    form |= {
        "way.0": "values_file",
        "words.0": "clinics.csv",
        "epsilon": "0.5",
        "name": "described",
    }
    got = site.call("POST", "/wizard", cookie=cookie, form=form)
    assert got.status == 200
    assert "values_file" in got.text
    assert 'value="serve"' in got.text


def test_a_served_table_needs_its_columns_and_a_price_only(site):
    cookie = site.login("ada")
    csrf = site.call("GET", "/wizard", cookie=cookie).csrf
    form = {"csrf": csrf, "table": "visits", "source": ""}
    page = site.call("POST", "/wizard", cookie=cookie, form=form).text
    assert 'name="by" value="clinic"' in page
    assert 'name="by" value="fee"' not in page
    got = site.call(
        "POST", "/wizard", cookie=cookie, form={**form, "by": "clinic", "epsilon": "0.25", "step": "preview"}
    ).text
    assert "Begin the release" in got
    assert (
        site.call("POST", "/wizard", cookie=cookie, form={**form, "by": "fee", "step": "preview"}).status
        == 422
    )
    taken = {**form, "by": "clinic", "epsilon": "0.1", "step": "release", "release": "no/name"}
    assert site.call("POST", "/wizard", cookie=cookie, form=taken).status == 422


CODEBOOKS = {
    "notes": 'Age: 0..110\nward: North, "St. John, East"\nopened: 2020-01-01..2024-12-31\nfee: 0..2500',
    "json": '{"Age": {"min": 0, "max": 110}, "ward": ["North", "St. John, East"],'
    ' "opened": {"type": "date", "min": "2020-01-01", "max": "2024-12-31"}, "fee": {"min": 0, "max": 2500}}',
    "csv": "name,min,max,values\nAge,0,110,\nward,,,North|St. John\\, East\nfee,0,2500,\n",
}


@pytest.mark.parametrize("written", CODEBOOKS)
def test_a_codebook_says_what_columns_of_a_text_file_are(site, written):
    (site.folder / "people.csv").write_text(
        'Age,ward,opened,fee\n7,North,2021-05-01,10.5\n80,"St. John, East",2022-06-01,20\n'
    )
    cookie = site.login("ada")
    csrf = site.call("GET", "/wizard", cookie=cookie).csrf
    form = {"csrf": csrf, "source": "people.csv", "unit": "row", "step": "codebook"}
    page = site.call("POST", "/wizard", cookie=cookie, form={**form, "codebook": CODEBOOKS[written]})
    ways = re.findall(r'name="way\.(\d)".*?<option value="(\w*)" selected>', page.text, re.DOTALL)
    words = dict(re.findall(r'name="words\.(\d)" value="([^"]*)"', page.text))
    expected = {"0": "range", "1": "values", "2": "" if written == "csv" else "year", "3": "bins"}
    assert dict(ways) == expected
    assert words["0"] == "0..110"
    if written == "csv":
        return
    assert html.unescape(words["1"]) == 'North, "St. John, East"'
    stated = {f"words.{place}": html.unescape(each) for place, each in words.items()}
    stated |= {f"way.{place}": way for place, way in ways} | {"step": "preview", "by": ["ward", "opened"]}
    before = site.spent()
    shown = html.unescape(site.call("POST", "/wizard", cookie=cookie, form={**form, **stated}).text)
    assert "range = [0, 110]" in shown
    assert "range = [2020, 2024]" in shown
    assert "simulated records" in shown
    # The project has its own budget and settings, which the wizard neither asks for nor changes.
    assert "[budget]" not in shown
    assert 'name="total"' not in shown
    assert site.spent() == before
    for epsilon, status in (("61", 422), ("59", 200)):
        form |= {**stated, "epsilon": epsilon}
        assert site.call("POST", "/wizard", cookie=cookie, form=form).status == status


def test_a_codebook_that_cannot_be_read_says_so(site):
    (site.folder / "people.csv").write_text("Age\n7\n")
    cookie = site.login("ada")
    csrf = site.call("GET", "/wizard", cookie=cookie).csrf
    for text in ("{", "nothing here", "CREATE TABLE ("):
        form = {"csrf": csrf, "source": "people.csv", "step": "codebook", "codebook": text}
        got = site.call("POST", "/wizard", cookie=cookie, form=form)
        assert (got.status, "codebook" in got.text) == (422, True)
