"""The shell of `sfumato sql`: in a terminal, from pipes and files."""

import csv
import io
import json

import pytest

from helpers.cases import read_cases
from helpers.cli import run_main, run_process
from helpers.terminal import Terminal
from sfumato.cli.shell import Vocabulary, complete, split_script

PROMPT, MORE, QUOTED = "sfumato> ", "    ...> ", "   '...> "
COUNT = "DP-SELECT 1 region, COUNT(*) AS n FROM t GROUP BY region;"


@pytest.fixture
def folder(project):
    return project.parent


def run(*arguments, **options):
    return run_main("sql", *arguments, **options)


# In a terminal


def test_a_statement_over_several_lines_with_what_is_left(folder):
    with Terminal("sql", cwd=folder) as terminal:
        terminal.wait(PROMPT)
        terminal.type("DP-SELECT 1 region,\n", MORE)
        answer = terminal.type("COUNT(*) AS n FROM t -- all; of them\n GROUP BY region;\n", f"┘\n{PROMPT}")
        assert "this cost epsilon 1; about " in answer
        assert "more like it fit" in answer
        assert "│ region │" in answer
        again = terminal.type(COUNT + "\n", f"┘\n{PROMPT}")
        assert "answered before: nothing spent; epsilon 19 left" in again
        assert terminal.end() == 0


def test_keys_complete_names_and_public_values(folder):
    with Terminal("sql", cwd=folder) as terminal:
        terminal.wait(PROMPT)
        typed = terminal.type("DP-SEL\t 1 regi\t, COU\t*) AS n FR\t t GR\t region;\n", f"┘\n{PROMPT}")
        assert "DP-SELECT 1 region, COUNT(*) AS n FROM t GROUP BY region;" in typed
        assert "this cost epsilon 1;" in typed
        typed = terminal.type(".sch\t t\n", f"┘\n{PROMPT}")
        assert "max_records" not in typed
        assert "region" in typed
        assert terminal.end(".quit\n") == 0


def test_errors_are_told_and_the_shell_goes_on(folder):
    with Terminal("sql", cwd=folder) as terminal:
        terminal.wait(PROMPT)
        assert "write DP-SELECT epsilon" in terminal.type("SELECT * FROM t;\n", f"spent\n{PROMPT}")
        assert "did you mean '.mode'?" in terminal.type(".moed\n", f"?\n{PROMPT}")
        terminal.type("DP-SELECT 1 'open\n", QUOTED)
        terminal.interrupt(f"forgotten\n{PROMPT}")
        terminal.type(".mode line\n.timing on\n", f".timing on\n{PROMPT}")
        told = terminal.type("DP-SELECT 1 COUNT(*) AS n FROM t;\n", f" s\n{PROMPT}")
        assert "\n     n = " in told
        assert "\ntook 0." in told or "\ntook " in told
        assert "epsilon 19 of 20 left" in terminal.type(".budget\n", f")\n{PROMPT}")
        assert terminal.end() == 0
    assert (folder / ".sfumato_history").stat().st_mode & 0o077 == 0


def test_words_of_other_shells_are_understood(folder):
    with Terminal("sql", cwd=folder) as terminal:
        terminal.wait(PROMPT)
        assert ".schema [TABLE]" in terminal.type("help\n", f".quit\n{PROMPT}")
        assert terminal.end("exit;\n") == 0


def test_an_answer_that_would_be_noise_is_asked_about(folder):
    with Terminal("sql", cwd=folder) as terminal:
        terminal.wait(PROMPT)
        terminal.type("DP-SELECT 10 COUNT(*) FROM t;\n", f"┘\n{PROMPT}")
        text = "DP-SELECT 0.00001 region, COUNT(*) AS n FROM t GROUP BY region;\n"
        warned = terminal.type(text, "buy it all the same? [y/N] ")
        assert "warning: the noise exceeds what is asked: n +-" in warned
        assert "not bought: nothing spent" in terminal.type("\n", PROMPT)
        terminal.type(text, "[y/N] ")
        assert "this cost epsilon 0.00001" in terminal.type("y\n", f"┘\n{PROMPT}")
        assert terminal.end() == 0


def test_long_answers_go_through_the_pager(folder):
    with Terminal("sql", cwd=folder, LINES="5", PAGER="sed s/^/paged:/") as terminal:
        terminal.wait(PROMPT)
        assert "paged:│ a " in terminal.type(COUNT + "\n", PROMPT)
        assert "paged:" not in terminal.type(".pager off\n" + COUNT + "\n", f"┘\n{PROMPT}")
        assert terminal.end() == 0


def test_data_goes_to_a_pipe_and_the_prompt_does_not(folder, tmp_path):
    # A terminal for the keys, a file for the data.
    script = f"exec 1>{tmp_path / 'data.csv'}; exec {{python}} -m sfumato sql --format csv"
    with Terminal("sql", cwd=folder, script=script) as terminal:
        terminal.wait(PROMPT)
        terminal.type(COUNT + "\n", f"fit\n{PROMPT}")
        assert terminal.end(".quit\n") == 0
    assert (tmp_path / "data.csv").read_text().splitlines()[0] == "region,n,n_low,n_high"


# Scripts


def test_a_script_stops_at_its_first_error_and_names_the_line(folder):
    (folder / "all.sql").write_text(
        f"-- two; remarks\n\n{COUNT}\n/* epsilon = 1 */\nSELECT\n  COUNT(*) AS m\n"
        "FROM t; SELECT *\nFROM t;\n.budget\n"
    )
    done = run("-f", "all.sql", "--format", "csv", cwd=folder, code=2)
    assert "all.sql, line 7: not answered: a plain SELECT" in done.stderr
    assert "of 20 left" not in done.stderr
    assert done.stdout.splitlines()[0] == "region,n,n_low,n_high"
    assert "m,m_low,m_high" in done.stdout


def test_a_script_may_keep_going_and_still_fails(folder):
    text = f"DP-SELECT 1 COUNT(*) FROM tt;\n{COUNT}\nDP-SELECT 99 COUNT(*) FROM t;\n.budget\n.nonsense"
    done = run("--keep-going", cwd=folder, text=text, code=2)
    assert "line 1: not answered: no table 'tt'; did you mean 't'?" in done.stderr
    assert "line 3: " in done.stderr
    assert "line 5: no command '.nonsense'" in done.stderr
    assert "epsilon 19 of 20 left" in done.stderr
    assert "region" in done.stdout


@pytest.mark.parametrize(("statement", "code"), [("DP-SELECT 21 COUNT(*) FROM t", 3), ("DROP TABLE t", 2)])
def test_the_exit_code_is_that_of_the_error(folder, statement, code):
    run(cwd=folder, text=f"{statement};\n", code=code)
    run("--keep-going", cwd=folder, text=f"{statement};\nSHOW TABLES;", code=code)


def test_a_pipe_takes_statements_over_lines_without_a_last_semicolon(folder):
    done = run_process(
        "sql", "--json", cwd=folder, text="DP-SELECT 1\n COUNT(*)\n AS n\nFROM t;\n\nSHOW TABLES\n"
    )
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["columns"] == ["n", "n_low", "n_high"]
    assert (first["spent"], first["left"]) == (1, "19")
    assert second["rows"][0][:2] == ["t", "private"]


def test_a_file_may_be_read_from_a_script_or_stdin(folder):
    (folder / "inner.sql").write_text("\nSELECT 1 FROM nowhere;\n")
    done = run("-f", "-", cwd=folder, text=".read inner.sql\n", code=2)
    assert "inner.sql, line 2: " in done.stderr
    run("-f", "gone.sql", cwd=folder, code=2)


def test_the_last_answer_is_not_written_after_an_error(folder):
    run("-o", "n.csv", cwd=folder, text=f"{COUNT}\nnonsense;", code=2)
    assert not (folder / "n.csv").exists()
    run("-o", "n.csv", cwd=folder, text=COUNT)
    assert (folder / "n.csv").read_text().startswith("region,n,")


def test_every_form_shows_the_same_answer(folder):
    def told(mode):
        return run("--format", mode, cwd=folder, text=COUNT).stdout

    (_, *rows) = csv.reader(io.StringIO(told("csv")))
    assert json.loads(told("json"))["rows"] == [[row[0], *map(int, row[1:])] for row in rows]
    assert told("table") == told("box")
    assert told("markdown").splitlines()[:3] == [
        "| region | n | n_low | n_high |",
        "| --- | ---: | ---: | ---: |",
        f"| {' | '.join(rows[0])} |",
    ]
    assert f"region = {rows[0][0]}\n     n = {rows[0][1]}\n" in told("line")
    assert f"│ {rows[0][0]} " in told("box")


def test_names_have_no_quotes_unless_they_must(folder):
    text = 'SELECT "t"."region", COUNT("month") FROM "t" GROUP BY 1'
    told = run("--format", "csv", f"/* epsilon = 1 */ {text}", cwd=folder).stdout
    assert told.splitlines()[0] == "region,COUNT(month),COUNT(month)_low,COUNT(month)_high"
    record = json.loads(run("--json", f"/* epsilon = 1 */ {text}", cwd=folder).stdout)
    assert record["columns"][:2] == ["region", "COUNT(month)"]


def test_only_names_that_need_quotes_have_them(folder):
    told = run("--format", "csv", "SHOW TABLES", cwd=folder).stdout.splitlines()
    assert told[0] == "name,kind,unit,max_records,max_groups,columns"
    text = 'DP-SELECT 1 COUNT(*) AS "a, b", COUNT(month) AS c FROM t'
    told = run("--format", "csv", text, cwd=folder).stdout.splitlines()
    assert told[0] == '"a, b","a, b_low","a, b_high",c,c_low,c_high'
    assert '"' not in told[1]


def test_the_time_is_told_on_request(folder):
    assert "took" not in run("-c", COUNT, cwd=folder).stderr
    assert "took" in run("-c", COUNT, "--timing", cwd=folder).stderr


# Its parts


@pytest.mark.parametrize(
    ("script", "pieces"), read_cases(__file__, "test_scripts_are_split_at_semicolons_with_their_lines")
)
def test_scripts_are_split_at_semicolons_with_their_lines(script, pieces):
    found = split_script(script.splitlines(keepends=True))
    assert [(piece.line, piece.text) for piece in found] == pieces


VOCABULARY = Vocabulary(
    tables={"Visits": ("person", "clinic", "fee"), "clinics": ("name", "side")},
    values={"clinic": ("North", "St. Mary's", "South End"), "sex": ("f", "m")},
)


@pytest.mark.parametrize(("text", "start", "candidates"), read_cases(__file__, "test_what_is_completed"))
def test_what_is_completed(text, start, candidates):
    found = complete(text, VOCABULARY)
    assert found[0] == start
    assert [each for each in found[1] if each in candidates] == candidates
    assert len(found[1]) == len(candidates) or "WHERE S" in text


@pytest.mark.parametrize(
    ("text", "start", "candidates"),
    read_cases(__file__, "test_names_that_need_quotes_are_completed_with_them"),
)
def test_names_that_need_quotes_are_completed_with_them(text, start, candidates):
    names = Vocabulary(tables={"drug-deaths": ("Death City", "Death County", "sex")})
    assert complete(text, names) == (start, candidates)
