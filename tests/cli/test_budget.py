"""`sfumato budget`: what is left by kind, and anchors that are printed and checked."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import sfumato as sf

SOURCE = str(Path(sf.__file__).parents[1])


def run(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "sfumato", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCE, "COLUMNS": "200"},
    )


@pytest.fixture
def folder(project):
    sf.open(project).sql("DP-SELECT 0.5 region, COUNT(*) AS n FROM t GROUP BY region")
    return project.parent


def test_what_is_left_is_told_in_releases_like_the_last(folder):
    shown = run("budget", cwd=folder).stdout
    assert "epsilon 19.5 of 20 left, 0.5 spent" in shown
    assert "epsilon 19.5 of 20 left, or 39 more like the last one (epsilon 0.5)" in shown.replace("\n", " ")
    assert json.loads(run("budget", "--json", cwd=folder).stdout)["more_like_last"] == 39


def test_an_anchor_is_printed_checked_and_missed(folder):
    printed = run("budget", "--anchor", cwd=folder)
    line = printed.stdout.strip()
    assert printed.returncode == 0
    assert line.startswith("sfumato-anchor-1:3:")
    assert "\n" not in line
    checked = run("budget", "--anchor", line, cwd=folder)
    assert (checked.returncode, "holds entry 3" in checked.stdout) == (0, True)
    record = json.loads(run("budget", "--json", "--anchor", line, cwd=folder).stdout)
    assert record["verified"]
    assert record["anchor"] == line
    with sqlite3.connect(folder / "ledger.db") as connection:
        connection.execute("DELETE FROM entries WHERE sequence = 3")
        connection.execute("DELETE FROM answers")
    connection.close()
    missed = run("budget", "--anchor", line, cwd=folder)
    assert missed.returncode == 4
    assert "cut off" in missed.stderr
    assert run("budget", "--anchor", "something", cwd=folder).returncode == 4
    assert run("budget", line, cwd=folder).returncode == 2


def test_a_remainder_is_not_rounded_away(project):
    done = run("sql", "-c", "DP-SELECT 0.9999999999 COUNT(*) FROM t", cwd=project.parent)
    assert "spent epsilon 0.9999999999" in done.stderr
    told = run("sql", "-c", "EXPLAIN DP-SELECT 1 DELTA 0.9999999999 COUNT(*) FROM t", cwd=project.parent)
    assert "delta 1)" not in told.stdout + told.stderr
