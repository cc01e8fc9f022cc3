import json
import re
import subprocess
import sys

import pyarrow.csv
import pyarrow.parquet

from helpers.cli import run_main as run

COMMANDS = (
    "init",
    "describe",
    "export",
    "groups",
    "check",
    "release",
    "sql",
    "budget",
    "verify",
    "report",
    "score",
    "audit",
    "anonymize",
    "explain",
    "respond",
    "estimate",
    "demo",
    "contest",
)


def as_json(*arguments, cwd=None, code=0):
    return json.loads(run(*arguments, "--json", cwd=cwd, code=code).stdout)


def test_help_names_every_command_and_each_has_help_and_json():
    text = run("--help").stdout
    for command in COMMANDS:
        assert command in text
        own = ("contest", "run") if command == "contest" else (command,)
        assert "--json" in run(*own, "--help").stdout
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", run("--version").stdout)


def test_the_whole_flow(project):
    folder = project.parent
    checked = as_json("check", "recipe.toml", cwd=folder)
    assert checked["admitted"]
    assert checked["measurements"][0]["scale"] == 3
    assert checked["measurements"][0]["epsilon"] == "1"
    assert not (folder / "ledger.db").exists()
    released = as_json("release", "recipe.toml", "--out", "out", cwd=folder)
    assert released["left"] == "19"
    assert as_json("release", "recipe.toml", "--out", "again", cwd=folder)["repeated"]
    spent = as_json("budget", cwd=folder)
    assert (spent["spent"], spent["left"], len(spent["charges"])) == ("1", "19", 1)
    assert as_json("verify", "out", cwd=folder)["verified"]


def test_flags_win_over_the_recipe(project):
    arguments = ("--epsilon", "1", "--epsilon", "0.5", "--out", "out")
    assert as_json("release", "recipe.toml", *arguments, cwd=project.parent)["total"]["epsilon"] == "1.5"


def test_exit_codes(project):
    folder = project.parent
    run("release", "recipe.toml", "--out", "out", cwd=folder)
    run("release", "recipe.toml", "--out", "out", "--epsilon", "2", cwd=folder, code=1)
    with (folder / "out" / "table.csv").open("a") as file:
        file.write("x\n")
    assert "table.csv" in run("verify", "out", cwd=folder, code=4).stderr


def test_errors_are_json_where_answers_are(project):
    told = run(
        "release", "recipe.toml", "--out", "o", "--epsilon", "99", "--json", cwd=project.parent, code=3
    )
    error = json.loads(told.stderr.splitlines()[-1])
    assert (error["kind"], error["exit_code"]) == ("BudgetExceeded", 3)
    assert "Nothing was spent" in error["error"]


def test_init_drafts_a_project_that_names_what_is_missing(project):
    folder = project.parent
    draft = run("init", "t.parquet", cwd=folder)
    (folder / "new.toml").write_text(draft.stdout)
    assert "max_records" in draft.stdout
    assert "unit" in run("check", "recipe.toml", "--project", "new.toml", cwd=folder, code=2).stderr
    assert as_json("init", "t.parquet", cwd=folder)["columns"] == {
        "person": "integer",
        "region": "text",
        "month": "integer",
    }


def test_init_tells_nothing_about_the_records(tmp_path, people):
    from sfumato.tables.draft import draft_project

    pyarrow.csv.write_csv(people, tmp_path / "t.csv")
    first = run("init", "t.csv", cwd=tmp_path).stdout
    pyarrow.csv.write_csv(people.slice(0, 1), tmp_path / "t.csv")
    assert run("init", "t.csv", cwd=tmp_path).stdout == first
    assert first == draft_project("t.csv", dict.fromkeys(("person", "region", "month"), "text"))


def test_the_demo_runs_and_can_run_again(tmp_path):
    first = run("demo", cwd=tmp_path)
    assert "SIMULATED" in first.stdout
    assert "next: sfumato" in first.stdout
    for line in re.findall(r"^  (\S+\.\S+) ", first.stdout, re.MULTILINE):
        assert (tmp_path / "demo" / line).exists(), line
    run("demo", cwd=tmp_path, code=1)
    assert as_json("demo", "--force", cwd=tmp_path)["left"] == "1.860946"
    (tmp_path / "mine").mkdir()
    run("demo", "--force", "--out", "mine", cwd=tmp_path, code=1)


def test_a_changed_budget_is_accepted_by_name(project):
    folder = project.parent
    run("release", "recipe.toml", "--out", "out", cwd=folder)
    project.write_text(project.read_text().replace("epsilon = 20.0", "epsilon = 25.0"))
    assert "--accept" in run("budget", cwd=folder, code=1).stderr
    assert as_json("budget", "--accept", cwd=folder)["left"] == "24"
    assert as_json("budget", cwd=folder)["left"] == "24"


def test_sql_answers_in_every_format(project):
    folder = project.parent
    statement = "DP-SELECT 1 region, COUNT(*) AS n FROM t GROUP BY region"
    answer = as_json("sql", "-c", statement, cwd=folder)
    assert answer["columns"] == ["region", "n", "n_low", "n_high"]
    assert answer["spent"] == 1
    assert "laplace" in answer["noise"]["n"]
    lines = run("sql", "-c", statement, "--format", "csv", cwd=folder).stdout.splitlines()
    assert lines[0] == "region,n,n_low,n_high"
    assert [line.split(",")[:2] for line in lines[1:]] == [[row[0], str(row[1])] for row in answer["rows"]], (
        "the same statement has the same answer"
    )
    assert "region" in run("sql", "-c", statement, cwd=folder).stdout
    run("sql", "-c", statement, "--out", "answer.parquet", cwd=folder)
    assert pyarrow.parquet.read_table(folder / "answer.parquet").num_rows == 3
    run("sql", "-c", statement, "--out", "answer.parquet", cwd=folder, code=1)
    assert as_json("budget", cwd=folder)["spent"] == "1"


def test_sql_reads_files_and_pipes(project):
    folder = project.parent
    (folder / "all.sql").write_text(
        "-- two; statements\nDP-SELECT 1 COUNT(*) FROM t;\nEXPLAIN DP-SELECT 1 COUNT(*) FROM t;\n"
    )
    text = run("sql", "-f", "all.sql", cwd=folder).stdout
    assert "COUNT(*)" in text
    assert "nothing was spent" in text
    done = subprocess.run(
        [sys.executable, "-m", "sfumato", "sql", "--format", "csv", "--keep-going"],
        input="DP-SELECT 1 COUNT(*) FROM t;\nSELECT * FROM t;\n.budget\n",
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout.splitlines()[0] == "COUNT(*),COUNT(*)_low,COUNT(*)_high"
    assert "DP-SELECT epsilon in place of SELECT" in done.stderr
    assert "epsilon 19 of 20 left" in done.stderr


def test_a_file_of_statements_is_planned_and_bought_together(project):
    folder = project.parent
    (folder / "dashboard.sql").write_text(
        "SELECT COUNT(*) AS n FROM t;\nSELECT region, COUNT(*) AS n FROM t GROUP BY region;\n"
        "SELECT COUNT(*) AS n FROM t WHERE region = 'a';"
    )
    told = run("sql", "-f", "dashboard.sql", "--epsilon", "1", "--plan", cwd=folder).stdout
    assert "3 statements from" in told
    planned = as_json("sql", "-f", "dashboard.sql", "--epsilon", "1", "--plan", cwd=folder)
    assert len(planned["statements"]) == 3
    assert not (folder / "ledger.db").exists()
    done = run("sql", "-f", "dashboard.sql", "--epsilon", "1", "--json", cwd=folder).stdout
    answers = [json.loads(line) for line in done.splitlines()]
    assert [answer["columns"][0] for answer in answers] == ["n", "region", "n"]
    assert sum(answer["spent"] for answer in answers) <= 1
    assert as_json("budget", cwd=folder)["spent"] == "1"
    (folder / "dashboard.sql").write_text("SELECT COUNT(*) FROM t;\n\nSELECT COUNT(nothing)\nFROM t;\n")
    wrong = run("sql", "-f", "dashboard.sql", "--epsilon", "1", "--plan", cwd=folder, code=2).stderr
    assert "dashboard.sql, line 3: statement 2 of the workload" in wrong
