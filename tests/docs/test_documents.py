"""Every row of docs/documents.md: its command runs, its expression gives the figure that the page states."""

import re
from pathlib import Path

import pytest

from helpers.cli import run_main as run
from helpers.walks import Walk

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "documents.md"
PEOPLE = {"city": 2000, "taxis": 200, "census": 1000}
"""People in the packs of the tests; what the page states does not depend on their number."""


def read_rows():
    """The document, what runs it and what it gives here, of every row."""
    document, found = "", []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        document = line.removeprefix("## ") if line.startswith("## ") else document
        cells = [cell.strip() for cell in re.split(r" \|(?= )| \|$", line.removeprefix("|"))]
        if (
            document.startswith(("0", "Bad"))
            and line.startswith("| ")
            and len(cells) >= 5
            and cells[2] != "what runs it"
        ):
            found.append((document.partition(":")[0], cells[2], cells[4]))
    return found


ROWS = read_rows()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the packs that the page makes, every command run in the order of the page."""
    folder = tmp_path_factory.mktemp("documents")
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if made := re.fullmatch(r" +sfumato (contest make \w+ (\w+))", line):
            run(*made[1].split(), "--people", str(PEOPLE[made[2]]), cwd=folder)
    said = {}
    for _, what, _ in ROWS:
        if command := re.fullmatch(r"`sfumato (.*)`", what):
            done = run(*command[1].split(), cwd=folder)
            said[what] = done.stdout + done.stderr
    return folder, said


@pytest.fixture(scope="module")
def names():
    """What the examples of the page define."""
    walk = Walk(PAGE)
    walk.run()
    return walk.names


def test_all_five_documents_have_their_rows():
    assert {document for document, _, _ in ROWS} == {"000", "001", "002", "003", "004", "Bad packs"}
    assert len(ROWS) > 200


@pytest.mark.parametrize(("document", "what", "here"), ROWS, ids=[f"{d} {w[:60]}" for d, w, _ in ROWS])
def test_a_row_is_what_the_code_gives(document, what, here, place, names, monkeypatch):
    folder, said = place
    monkeypatch.chdir(folder)
    if what in said:
        assert here.strip("`") in said[what] or here == "runs"
    elif code := re.fullmatch(r"`(.*)`", what):
        assert str(eval(code[1], names)) == here
    else:
        assert re.match(r"\[[^]]+\]\([\w.#-]+\)", what), "a link to where it is done"
