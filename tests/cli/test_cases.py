"""What the command line prints and refuses: the cases of `cases/`, by the folder that they run in.

A case is one command after `$`, or several in one folder under a title after `==`. Behind each stand its exit
code and words that are printed, those after `!` that are not. Lines after `<` are a file that is written
before, by its name. What is refused writes nothing and spends nothing.
"""

import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.cli import run_main
from helpers.projects import PROJECT
from sfumato.audit.demonstrations import invent_town

FOLDER = Path(__file__).parent / "cases"
RECIPE = 'recipe = "cell-counts"\ntable = "t"\nby = ["region", "month"]\nepsilon = 1.0\n'
CHECKED = "def count(table):\n    return table.num_rows\ndef pair():\n    return [1, 2], [1]\n"


@dataclass
class Step:
    """One command, and what comes of it."""

    command: str
    files: dict[str, str]
    code: int = 0
    words: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)


@dataclass
class Case:
    """Commands in the folder `place`, one after the other."""

    place: str
    title: str
    steps: list[Step] = field(default_factory=list)

    def __str__(self):
        return f"{self.place}: {self.title or self.steps[0].command}"


def read_cases():
    cases = []
    for file in sorted(FOLDER.glob("*.txt")):
        files, name, title = {}, "", ""
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("< "):
                name = line[2:]
                files[name] = ""
            elif line.startswith("== "):
                title = line[3:]
            elif line.startswith("$ "):
                if not title or cases[-1].title != title:
                    cases.append(Case(place=file.stem, title=title))
                cases[-1].steps.append(Step(command=line[2:], files=files))
                files, name = {}, ""
            elif name:
                files[name] += f"{line}\n"
            elif line.startswith("! "):
                cases[-1].steps[-1].hidden.append(line[2:])
            elif not line:
                title = ""
            elif not line.startswith("#"):
                code, _, words = line.partition(" ")
                cases[-1].steps[-1].code = int(code)
                cases[-1].steps[-1].words += [words] if words else []
    return cases


def make_project(folder):
    rows = [{"person": n, "region": "abc"[n % 3], "month": 1 + n % 12} for n in range(10)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "t.parquet")
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "sfumato.toml").write_text(PROJECT)
    (folder / "m.py").write_text(CHECKED)
    (folder / "with.csv").write_text("a\n1\n2\n")
    (folder / "without.csv").write_text("a\n1\n")
    survey = {"state": list("aabb") * 50, "hour": [n % 24 for n in range(200)]}
    pa.csv.write_csv(pa.table(survey), folder / "survey.csv")
    (folder / "own.toml").write_text("mine")


def make_people(folder):
    """Patients of an invented town, and its register."""
    town = invent_town(240)
    columns = {"age": [2020 - int(day[:4]) for day in town.patients["birthday"].to_pylist()]}
    columns |= {name: town.patients[name] for name in ("name", "sex", "postcode", "diagnosis")}
    pa.csv.write_csv(pa.table(columns).slice(0, 80), folder / "people.csv")
    register = {"age": [2020 - int(day[:4]) for day in town.register["birthday"].to_pylist()]}
    register |= {name: town.register[name] for name in ("name", "sex", "postcode")}
    pa.csv.write_csv(pa.table(register), folder / "register.csv")
    pa.csv.write_csv(town.register, folder / "town.csv")
    pa.csv.write_csv(town.published, folder / "published.csv")


def make_answers(folder):
    (folder / "trees.csv").write_text("tree,code\n" + "ash,0\nbirch,1\ncedar,2\n" * 20)
    options = ("--column", "tree", "--values", "ash,cedar,birch", "--epsilon", "1")
    run_main("respond", "trees.csv", *options, "-o", "answers.csv", cwd=folder)
    run_main("respond", "trees.csv", *options, "-o", "empty.parquet", cwd=folder)


MAKERS = {"project": make_project, "anonymize": make_people, "local": make_answers}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A folder for each kind of case."""
    made = {}
    for name, make in MAKERS.items():
        made[name] = tmp_path_factory.mktemp(name)
        make(made[name])
    return made


def list_files(folder):
    """All files but the ledger, which may be begun."""
    files = (path for path in folder.rglob("*") if path.is_file() and "ledger.db" not in path.name)
    return {path.relative_to(folder): path.read_bytes() for path in files}


def find_spent(folder):
    """What the ledger of a project holds, if there is one."""
    return sf.open(folder / "sfumato.toml").budget().spent if (folder / "ledger.db").exists() else 0


@pytest.mark.parametrize("case", read_cases(), ids=str)
def test_commands_say_what_they_do_and_refusals_leave_nothing(case, places, tmp_path):
    folder = tmp_path / "here"
    shutil.copytree(places[case.place], folder)
    for step in case.steps:
        for name, content in step.files.items():
            (folder / name).write_text(content, encoding="utf-8")
        before, spent = list_files(folder), find_spent(folder)
        done = run_main(*shlex.split(step.command), cwd=folder, code=step.code)
        told = " ".join((done.stdout + done.stderr).split())
        for words in step.words:
            assert words in told
        for words in [*step.hidden, str(tmp_path)]:
            assert words not in told
        if step.code:
            assert list_files(folder) == before
            assert find_spent(folder) == spent
