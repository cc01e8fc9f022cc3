"""What can be typed, written or read is described: commands, options, keys, recipes, files, names."""

import dataclasses
import io
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer.main

import sfumato as sf
from sfumato.cli import app
from sfumato.core import errors
from sfumato.core.facts import column as column_module
from sfumato.core.facts import table as table_module
from sfumato.core.facts.project import parse_project
from sfumato.recipes.files import RECIPES, find_recipe

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = typer.main.get_command(app).commands


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def section(text, heading):
    """What stands under one heading, up to the next heading of its level."""
    level, _, _ = heading.partition(" ")
    match = re.search(rf"^{re.escape(heading)}$\n(.*?)(?=^{level} |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"no section {heading!r}"
    return match[1]


def known_keys(document):
    """The keys that the project file accepts at one place, as its own error lists them."""
    with pytest.raises(sf.SchemaError, match="known: ") as caught:
        parse_project(document, folder=Path())
    return str(caught.value).split("known: ")[1].split(", ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_option_is_described(command):
    told = section(read("docs/command-line.md"), f"## sfumato {command}")
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "argument":
            assert f"`{parameter.name.upper()}`" in told or f"`{parameter.metavar}`" in told
            continue
        for option in (*parameter.opts, *parameter.secondary_opts):
            if option != "--help":
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", told), f"{command} {option}"


def test_no_command_is_described_that_does_not_exist():
    told = re.findall(r"^## sfumato (\S+)$", read("docs/command-line.md"), re.MULTILINE)
    assert sorted(told) == sorted(COMMANDS)


def test_options_of_the_program_itself_are_described():
    for parameter in typer.main.get_command(app).params:
        for option in parameter.opts:
            assert f"{option}`" in read("docs/command-line.md")


def test_every_exit_code_is_described():
    told = section(read("docs/command-line.md"), "# The command line").split("\n## ")[0]
    codes = {each.exit_code for each in vars(errors).values() if hasattr(each, "exit_code")} | {0, 130}
    assert codes <= {int(code) for code in re.findall(r"^\| (\d+) \|", told, re.MULTILINE)}


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("## `budget`", known_keys({"budget": {"epsilon": 1, "qqqqqqqq": 1}})),
        ("## `tables.NAME`", table_module._KEYS),
        ("## `tables.NAME.columns.COLUMN`", column_module._KEYS),
    ],
)
def test_every_key_of_a_project_file_is_described(heading, keys):
    told = section(read("docs/schema.md"), heading)
    assert len(keys) > 3
    assert set(keys) == set(re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE))


def test_every_place_of_a_project_file_is_described():
    for key in known_keys({"qqqqqqqq": 1}):
        assert re.search(rf"^## `{key}", read("docs/schema.md"), re.MULTILINE), key


@pytest.mark.parametrize("kind", RECIPES)
def test_every_recipe_has_its_keys_and_its_proof(kind):
    told, page = read("docs/recipes.md"), read(f"docs/proofs/{kind}.md")
    own = section(told, f"## `{kind}`") if f"## `{kind}`" in told else page
    shared = re.findall(r"^\| `(\w+)` \| (.*?) \|", section(told, "## Keys of synthetic rows"), re.MULTILINE)
    of = {
        key
        for key, kinds in shared
        if f"`{kind}`" in kinds or (kinds.startswith("all") and f"but `{kind}`" not in kinds)
    }
    for field in dataclasses.fields(find_recipe(kind)):
        if field.name not in of:
            assert f"| `{field.name}` |" in (told if field.name == "table" else own), field.name
    for key in ("recipe", "table", "epsilon", "delta"):
        assert f"| `{key}` |" in told


def test_every_file_column_and_field_of_a_release_is_described(project, probe):
    release = sf.open(project).release(probe.Probe(table="t"), epsilon=1)
    told = section(read("docs/command-line.md"), "## The release folder")
    measurements = pq.read_schema(io.BytesIO(release.files["measurements.parquet"])).names
    rows = re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE)
    rows.remove("notes")  # only where the noise hides the total, which is a matter of chance
    assert rows == [*measurements, *(name for name in release.certificate if name != "notes")]
    for name in (*release.files, *release.certificate["total"], *release.certificate["ledger"]):
        assert f"`{name}`" in told


@pytest.mark.parametrize("name", sf.__all__)
def test_every_public_name_has_a_docstring(name):
    told = getattr(sf, name).__doc__
    assert told
    assert told.strip()
    assert not told.startswith(f"{name}("), "a dataclass without a docstring gets its signature"
