"""What the command line refuses: each case of `refusals/` has a command, its exit code and the words of it.

A case is a command after `$`, its exit code, and words that are printed, those after `!` that are not. Lines
after `<` are a file that stands there before, by its name. What is refused writes nothing and spends nothing.
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

FOLDER = Path(__file__).parent / "refusals"
RECIPE = 'recipe = "cell-counts"\ntable = "t"\nby = ["region", "month"]\nepsilon = 1.0\n'
CHECKED = "def count(table):\n    return table.num_rows\ndef pair():\n    return [1, 2], [1]\n"


@dataclass
class Case:
    """One command that is refused in the folder `place`."""

    place: str
    command: str
    code: int = 0
    words: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def __str__(self):
        return f"{self.place}: {self.command}"


def read_cases():
    cases = []
    for file in sorted(FOLDER.glob("*.txt")):
        files, name = {}, ""
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("< "):
                name = line[2:]
                files[name] = ""
            elif line.startswith("$ "):
                cases.append(Case(place=file.stem, command=line[2:], files=files))
                files, name = {}, ""
            elif name:
                files[name] += f"{line}\n"
            elif line.startswith("! "):
                cases[-1].hidden.append(line[2:])
            elif line and not line.startswith("#"):
                code, _, words = line.partition(" ")
                cases[-1].code = int(code)
                cases[-1].words += [words] if words else []
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


@pytest.mark.parametrize("case", read_cases(), ids=str)
def test_what_is_refused_says_why_and_leaves_nothing(case, places, tmp_path):
    folder = tmp_path / "here"
    shutil.copytree(places[case.place], folder)
    for name, content in case.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    before = list_files(folder)
    done = run_main(*shlex.split(case.command), cwd=folder, code=case.code)
    told = done.stdout + done.stderr
    for words in case.words:
        assert words in told
    for words in [*case.hidden, str(tmp_path)]:
        assert words not in told
    assert list_files(folder) == before
    assert not (folder / "ledger.db").exists() or sf.open(folder / "sfumato.toml").budget().spent == 0
