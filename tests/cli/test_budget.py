"""`sfumato budget`: what is left by kind, and anchors that are printed and checked."""

import json
import sqlite3

import pytest

import sfumato as sf
from helpers.cli import run_main as run


@pytest.fixture
def folder(project):
    sf.open(project).sql("DP-SELECT 0.5 region, COUNT(*) AS n FROM t GROUP BY region")
    return project.parent


def test_an_anchor_is_printed_checked_and_missed(folder):
    printed = run("budget", "--anchor", cwd=folder)
    line = printed.stdout.strip()
    assert line.startswith("sfumato-anchor-1:3:")
    assert "\n" not in line
    checked = run("budget", "--anchor", line, cwd=folder)
    assert "holds entry 3" in checked.stdout
    record = json.loads(run("budget", "--json", "--anchor", line, cwd=folder).stdout)
    assert record["verified"]
    assert record["anchor"] == line
    with sqlite3.connect(folder / "ledger.db") as connection:
        connection.execute("DELETE FROM entries WHERE sequence = 3")
        connection.execute("DELETE FROM answers")
    connection.close()
    missed = run("budget", "--anchor", line, cwd=folder, code=4)
    assert "cut off" in missed.stderr
    run("budget", "--anchor", "something", cwd=folder, code=4)
    run("budget", line, cwd=folder, code=2)


def test_a_remainder_is_not_rounded_away(project):
    done = run("sql", "-c", "DP-SELECT 0.9999999999 COUNT(*) FROM t", cwd=project.parent)
    assert "this cost epsilon 0.9999999999" in done.stderr
    told = run(
        "sql", "-c", "EXPLAIN DP-SELECT 1 DELTA 0.9999999999 COUNT(*) FROM t", cwd=project.parent, code=2
    )
    assert "delta 1)" not in told.stdout + told.stderr


def test_where_a_table_has_a_window_every_period_is_told(tmp_path):
    (tmp_path / "t.csv").write_text("p,month\na,2025-01\nb,2025-02\n")
    (tmp_path / "sfumato.toml").write_text("""
[budget]
epsilon = 1
[tables.t]
source = "t.csv"
unit = ["p", "month"]
window = ["2025-01", "2025-02"]
max_records = 1
[tables.t.columns.month]
values = ["2025-01", "2025-02", "2025-03"]
""")
    (tmp_path / "r.toml").write_text('recipe = "cell-counts"\ntable = "t"\nby = ["month"]\nepsilon = 0.4\n')
    run("release", "r.toml", "--out", "out", cwd=tmp_path)
    moved = (
        (tmp_path / "sfumato.toml")
        .read_text()
        .replace('["2025-01", "2025-02"]\nmax', '["2025-02", "2025-03"]\nmax')
    )
    (tmp_path / "sfumato.toml").write_text(moved)
    shown = run("budget", cwd=tmp_path).stdout
    assert "epsilon 0.6 of 1 left, 0.4 spent" in shown
    assert "this is of the window, 2025-02 to 2025-03" in shown
    assert json.loads(run("budget", "--json", cwd=tmp_path).stdout)["periods"] == [
        ["2025-01", "2025-02", "0.6"]
    ]


def test_the_last_charges_are_listed_and_all_of_them_if_asked(project, monkeypatch):
    monkeypatch.setattr("sfumato.cli.release._LISTED", 2)
    curator = sf.open(project)
    for epsilon in ("0.0123", "0.0234", "0.0345"):
        curator.sql(f"DP-SELECT {epsilon} COUNT(*) FROM t")
    shown = run("budget", cwd=project.parent)
    assert "0.0345" in shown.stdout
    assert "0.0123" not in shown.stdout
    assert "not listed: 1" in shown.stdout + shown.stderr
    for option in ("--verbose", "--json"):
        assert "0.0123" in run("budget", option, cwd=project.parent).stdout
