"""What reaches a terminal: no label steers it, and an interrupt is one line."""

import json
import sys

import pyarrow.parquet as pq
import pytest

from sfumato.cli import main, output
from sfumato.cli.output import escape_controls, print_json

STEER = "\x1b]0;x\x07\x1b[2J\x9b31m\r\u202e"
LABEL = f"a{STEER}[/red]:sos:"


@pytest.fixture
def hostile(project, people):
    """A project whose labels, column names and statements hold controls."""
    label = json.dumps(LABEL)
    text = project.read_text().replace('["a", "b", "c"]', f'["b", {label}]')
    project.write_text(text.replace("columns.month]", f'columns.{label}]\nfrom = "month"'))
    pq.write_table(people, project.parent / "t.parquet")
    (project.parent / "recipe.toml").write_text(
        f'recipe = "cell-counts"\ntable = "t"\nby = ["region", {label}]\nepsilon = 1.0\n'
    )
    return project


def run(monkeypatch, capfd, *arguments, code=0):
    monkeypatch.setattr(sys, "argv", ["sfumato", *map(str, arguments)])
    with pytest.raises(SystemExit) as done:
        main()
    told = capfd.readouterr()
    assert done.value.code == code, told.err
    assert "Traceback" not in told.err
    return told.out + told.err


def commands(folder):
    project = ("--project", folder / "sfumato.toml")
    statement = "DP-SELECT 1 region, COUNT(*) AS n FROM t GROUP BY region"
    truth = folder / "t.parquet"
    return [
        ("check", folder / "recipe.toml", *project),
        ("release", folder / "recipe.toml", *project, "--out", folder / "out"),
        ("sql", statement, *project),
        ("sql", f'EXPLAIN DP-SELECT 1 COUNT(*) AS "{LABEL}" FROM t', *project),
        ("budget", *project),
        ("verify", folder / "out"),
        ("score", folder / "out", "--truth", truth),
        ("attack", "link", folder / "out", "--with", truth, "--on", "region"),
        ("groups", truth, "--columns", "region,month"),
        ("init", truth),
        ("report", folder / "out", "--out", folder / "report.html"),
    ]


def test_no_command_prints_a_control_character(hostile, monkeypatch, capfd):
    monkeypatch.chdir(hostile.parent.parent)
    shown = ""
    for arguments in commands(hostile.parent):
        for more in ((), ("--json",)):
            if more and arguments[0] in ("release", "report"):
                continue
            told = run(monkeypatch, capfd, *arguments, *more)
            assert told == escape_controls(told), arguments
            shown += told
    assert "\\u001b[2J" in shown
    assert "[/red]:sos:" in shown


def test_errors_are_escaped_too(hostile, monkeypatch, capfd):
    told = run(monkeypatch, capfd, "sql", f'SELECT "{LABEL}" FROM t', "-p", hostile, code=2)
    assert told == escape_controls(told)
    told = run(monkeypatch, capfd, "verify", f"no{STEER}where", code=1)
    assert told == escape_controls(told)


def test_json_with_controls_reads_back(capsys):
    print_json({LABEL: LABEL})
    assert json.loads(capsys.readouterr().out) == {LABEL: LABEL}


@pytest.mark.parametrize("where", ["a command", "before a command"])
def test_an_interrupt_is_one_line(project, monkeypatch, capfd, where):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    target = "sfumato.curator.Curator.budget" if where == "a command" else "typer.main.get_command"
    monkeypatch.setattr(target, interrupt)
    told = run(monkeypatch, capfd, "budget", "-p", project, code=130)
    assert told.splitlines()[-1].startswith("interrupted; a charge that was made is kept")
    assert len(told.splitlines()) == (1 if where != "a command" else 2)  # the ledger is missing


def test_an_interrupt_while_the_command_is_loaded_is_one_line(monkeypatch, capfd):
    from sfumato.__main__ import start

    class Interrupted:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "sfumato.cli", Interrupted())
    with pytest.raises(SystemExit) as done:
        start()
    assert done.value.code == 130
    assert capfd.readouterr().err == "interrupted; nothing was read or spent\n"


def test_what_is_compiled_for_the_first_time_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(output, "__file__", str(tmp_path / "cli" / "output.py"))
    output.note_compiling("inference")
    assert "compiled" in capsys.readouterr().err
    (tmp_path / "inference" / "__pycache__").mkdir(parents=True)
    (tmp_path / "inference" / "__pycache__" / "kernels.nbi").write_text("")
    output.note_compiling("inference")
    assert not capsys.readouterr().err
