"""A tiny table through every command of an installed package.

`smoke.py make FOLDER` fails if a command does. `smoke.py verify FOLDER...` checks releases that another
version of Python or of a package made. `smoke.py notebook FOLDER` asks in a Jupyter kernel. Nothing but the
standard library is imported otherwise, so that what is missing from the package shows.
"""

import csv
import importlib.util
import random
import subprocess
import sys
from importlib import resources
from pathlib import Path

PROJECT = """
[budget]
epsilon = 100.0
delta = 1e-3

[tables.visits]
source = "visits.csv"
unit = "person"
max_records = 4

[tables.visits.columns.clinic]
values = ["North", "South", "Harbour"]

[tables.visits.columns.month]
range = [1, 12]

[tables.visits.columns.fee]
bins = [0, 10, 20, 40, 80]
bounds = [0, 80]
"""
RECIPES = {
    "cell-counts": 'by = ["clinic", "month"]\nepsilon = 1.0\n',
    "adaptive": "epsilon = 2.0\ndelta = 1e-6\n",
    "tree": "epsilon = 2.0\ndelta = 1e-6\n",
    "adaptive-grid": 'outer = [["clinic", "month"]]\nepsilon = 2.0\ndelta = 1e-6\n',
}
STATEMENT = (
    "DP-SELECT 1 clinic, COUNT(*) AS n, AVG(fee) AS mean, STDDEV(fee) AS spread, MEDIAN(fee) AS middle "
    "FROM visits GROUP BY clinic ORDER BY n DESC"
)


def run(*arguments: str, folder: Path) -> str:
    """Runs a command of the package; a failure or a warning ends everything."""
    command = [sys.executable, "-m", "sfumato", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or "Warning" in done.stderr or "Traceback" in done.stderr:
        sys.exit(f"sfumato {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def make(folder: Path) -> None:
    """Every kind of command on a table that is made here."""
    folder.mkdir(parents=True)
    draw = random.Random(7)
    with (folder / "visits.csv").open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["person", "clinic", "month", "fee"])
        for person in range(400):
            for _ in range(draw.randint(1, 5)):
                clinic = draw.choice(["North", "South", "South", "Harbour"])
                write.writerow([f"p{person}", clinic, draw.randint(1, 12), draw.randint(0, 79)])
    (folder / "sfumato.toml").write_text(PROJECT)
    run("demo", "--out", "demo", folder=folder)
    run("init", "visits.csv", folder=folder)
    run("sql", STATEMENT, folder=folder)
    for name, keys in RECIPES.items():
        (folder / f"{name}.toml").write_text(f'recipe = "{name}"\ntable = "visits"\n{keys}')
        run("check", f"{name}.toml", folder=folder)
        run("release", f"{name}.toml", "--out", name, folder=folder)
        run("verify", name, folder=folder)
    run("sql", "--model", "adaptive", "SELECT clinic, COUNT(*) FROM visits GROUP BY clinic", folder=folder)
    run("report", "adaptive", folder=folder)
    run("score", "adaptive", "--project", "sfumato.toml", folder=folder)
    run("budget", folder=folder)
    run("explain", "epsilon", "1", "--picture", "explain.svg", folder=folder)
    (folder / "public.csv").write_text("clinic,month\n" + "North,1\nSouth,2\nHarbour,3\n" * 50)
    run("groups", "public.csv", "--picture", "groups.svg", folder=folder)
    anonymize = ("anonymize", "visits.csv", "--quasi", "clinic,month", "--k", "3")
    run(*anonymize, "--out", "k.csv", "--report", "k.html", folder=folder)
    run("audit", "cell-counts.toml", "--fast", folder=folder)


def verify(folder: Path) -> None:
    """All releases in a folder that `make` made, with this version."""
    import sfumato

    for name in RECIPES:
        try:
            sfumato.verify(folder / name, ledger=folder / "ledger.db")
        except sfumato.SfumatoError as error:
            sys.exit(f"{folder.name}/{name}: {error}")


def ask_in_notebook(folder: Path) -> None:
    """A statement in a Jupyter kernel without ipywidgets: DuckDB cannot draw its bar there, sfumato can."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder), stderr=subprocess.DEVNULL)
    try:
        cell = 'import sfumato\nsfumato.open("sfumato.toml").sql("DP-SELECT 0.5 COUNT(*) FROM visits")'
        shown: list[str] = []

        def keep(message: dict) -> None:
            shown.append(message["content"].get("data", {}).get("text/html", ""))

        reply = client.execute_interactive(cell, output_hook=keep, timeout=120)["content"]
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    if reply["status"] != "ok":
        sys.exit(f"in a notebook: {reply.get('ename')}: {reply.get('evalue')}")
    if not any("<progress" in each for each in shown):
        sys.exit("in a notebook: no stage of the statement was shown")


if __name__ == "__main__":
    if not (resources.files("sfumato") / "py.typed").is_file():
        sys.exit("the package has no py.typed")
    if importlib.util.find_spec("pandas") is not None:
        sys.exit("pandas is installed here, so this shows nothing about those who have it not")
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    elif sys.argv[1] == "notebook":
        ask_in_notebook(Path(sys.argv[2]))
    else:
        for each in sys.argv[2:]:
            verify(Path(each))
