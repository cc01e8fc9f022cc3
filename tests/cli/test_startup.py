"""What a command loads: counted, not timed."""

import json
import subprocess
import sys

import pytest

from helpers.cli import PLAIN, SOURCE

HEAVY = {"duckdb", "jinja2", "numba", "numpy", "pandas", "pyarrow", "sqlglot"}
# Of these commands, all that they may load of what is slow to load.
ALLOWED = {
    "--help": set(),
    "--version": set(),
    "release --help": set(),
    "budget": set(),
    "explain epsilon 1": set(),
    "init people.csv": set(),
    "init people.csv --codebook codes.csv": set(),
    "init people.parquet": {"numpy", "pyarrow"},
    "check counts.toml": {"duckdb", "numpy", "pyarrow"},  # encodes no record, to know that it can
    "verify out": {"numpy", "pyarrow"},  # not pandas, which Arrow loads where it is installed, if it is let
    "report out --force": {"jinja2", "numpy", "pyarrow"},
    "report rows --force": {"jinja2", "numpy", "pyarrow"},
    "sql TWICE": {"duckdb", "numpy", "pyarrow", "sqlglot"},
    "release counts.toml --out again": {"duckdb", "numpy", "pyarrow"},
    "describe": {"duckdb", "numpy", "pyarrow", "sqlglot"},  # it answers as the statement DESCRIBE does
}
LOOK = (
    "import json, os, sys\n"
    "from sfumato.__main__ import start\n"
    "sys.argv = ['sfumato', *sys.argv[1:]]\n"
    "sys.stdout = open(os.devnull, 'w')\n"
    "try:\n    start()\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
    "sys.__stdout__.write(json.dumps(sorted(sys.modules)))\n"
)


def loaded_by(*arguments, cwd):
    """The modules that a command loads in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**PLAIN, "PYTHONPATH": SOURCE},
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import pyarrow.csv
    import pyarrow.parquet

    import sfumato

    folder = tmp_path_factory.mktemp("startup")
    people = folder / "people.csv"
    people.write_text("region,month\n" + "a,1\nb,2\n" * 50)
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(people), folder / "people.parquet")
    (folder / "codes.csv").write_text("column,type\nregion,text\nmonth,integer\n")
    (folder / "sfumato.toml").write_text(
        '[budget]\nepsilon = 4\ndelta = 1e-6\n[tables.people]\nsource = "people.csv"\nunit = "row"\n'
        '[tables.people.columns]\nregion = { values = ["a", "b"] }\nmonth = { range = [1, 12] }\n'
    )
    (folder / "counts.toml").write_text(
        'recipe = "cell-counts"\ntable = "people"\nby = ["region", "month"]\nepsilon = 1\n'
    )
    (folder / "rows.toml").write_text('recipe = "tree"\ntable = "people"\nepsilon = 1\ndelta = 1e-6\n')
    curator = sfumato.open(folder / "sfumato.toml")
    curator.release(folder / "counts.toml", out=folder / "out")
    curator.release(folder / "rows.toml", out=folder / "rows")
    return folder


@pytest.mark.parametrize("command", ALLOWED)
def test_a_command_loads_nothing_heavy_that_it_does_not_need(command, folder):
    words = command.replace("TWICE", "").split()
    if "TWICE" in command:  # the second looks at what the first has stored
        words.append("DP-SELECT 0.1 region, COUNT(*) AS n FROM people WHERE month > 1 GROUP BY region")
        loaded_by(*words, cwd=folder)
    loaded = loaded_by(*words, cwd=folder)
    assert loaded & HEAVY <= ALLOWED[command]


def test_a_command_loads_no_other_and_no_recipe_but_its_own(folder):
    loaded = loaded_by("check", "counts.toml", cwd=folder)
    assert {each for each in loaded if each.startswith("sfumato.cli.")} == {
        "sfumato.cli.check",
        "sfumato.cli.main",
        "sfumato.cli.output",
    }
    assert "sfumato.recipes.cell_counts" in loaded
    assert not {"sfumato.recipes.adaptive", "sfumato.recipes.network", "sfumato.inference.model"} & loaded
