"""The command `sfumato audit`."""

import json
from functools import partial

import pytest

from helpers.cli import invoke

FILE = """
from sfumato.core.noise import discrete_laplace
def count(table):
    return table.num_rows
def noisy(rows):
    return len(rows) + int(discrete_laplace(scale=1, size=1)[0])
def pair():
    return [1, 2], [1]
def fail(path):
    raise ValueError(open(path).read())
"""


@pytest.fixture
def run(project, monkeypatch):
    """Runs the command in the folder of a project."""
    monkeypatch.chdir(project.parent)
    (project.parent / "m.py").write_text(FILE)
    (project.parent / "with.csv").write_text("a\n1\n2\n")
    (project.parent / "without.csv").write_text("a\n1\n")
    return partial(invoke, "audit", code=None)


TABLES = ("--with", "with.csv", "--without", "without.csv")


def test_a_function_that_counts_exactly_is_refuted(run):
    result = run("m.py:count", *TABLES, "--epsilon", 1, "--runs", 60)
    assert result.exit_code == 4
    assert result.output.splitlines()[0].endswith("claim 1: VIOLATED")


@pytest.mark.statistical
def test_a_noisy_count_is_not(run):
    result = run(
        "m.py:noisy",
        *TABLES,
        "--as",
        "rows",
        "--epsilon",
        1,
        "--runs",
        60,
        "--confidence",
        0.999999,
        "--json",
    )
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["verdict"] == "not refuted"
    assert record["findings"][0]["name"] == "black box"


def test_a_pair_from_a_file(run):
    result = run("m.py:noisy", "--neighbours", "m.py:pair", "--epsilon", 0, "--runs", 20, "--memory", 4000)
    assert result.exit_code in (0, 4)


def test_errors_of_a_function_are_events(run):
    result = run("m.py:fail", *TABLES, "--as", "path", "--epsilon", 1, "--runs", 60, "--timeout", 60)
    assert result.exit_code == 4
    assert "error ValueError" in result.output


@pytest.mark.statistical
def test_a_recipe_and_a_statement(run):
    result = run("recipe.toml", "--fast", "--confidence", 0.999999)
    assert result.exit_code == 0
    assert "epsilon >= 1 by computation, claim 1: not refuted" in result.output
    statement = "DP-SELECT 0.5 region, COUNT(*) FROM t GROUP BY region"
    result = run("--sql", statement, "--fast", "--confidence", 0.999999, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["epsilon_lower"] == pytest.approx(0.5)
