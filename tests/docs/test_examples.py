"""Every example in the documentation runs as it stands."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.served import serve

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

VISITS = "person,clinic,visited\n" + "".join(
    f"p{person},{clinic},2025-{1 + person % 12:02}-03\n"
    for person in range(40)
    for clinic in ("North", "South", "Harbour")[: 1 + person % 3]
)


class MarkdownParser(doctest.DocTestParser):
    """Reads examples out of fenced blocks: a closing fence is not expected output."""

    def parse(self, string, name="<string>"):
        return super().parse(re.sub(r"^```.*$", "", string, flags=re.MULTILINE), name)


def name(page):
    return str(page.relative_to(ROOT))


# The loops of this page are compiled where nothing is yet, which the tests of anonymity do at the same time.
COMPILES = {ROOT / "docs" / "anonymity.md"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page in COMPILES else page for page in PAGES],
    ids=name,
)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch, seeded_noise):
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(page), module_relative=False, parser=MarkdownParser(), optionflags=FLAGS)
    assert result.failed == 0


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/schema.md"])
def test_pages_that_promise_examples_have_them(page):
    assert (ROOT / page).read_text(encoding="utf-8").count(">>> ") > 20


def test_the_first_block_of_the_readme_is_the_two_commands():
    language, first = FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert language == "sh"
    commands = [line.split("#")[0].strip() for line in first.splitlines()]
    assert commands == ["make demo", "make test"]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_target_that_is_named_exists(page):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = "".join(body for language, body in FENCE.findall(text) if language == "sh")
    targets = re.findall(r"^make ([\w-]+)", blocks, re.MULTILINE)
    assert {"test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_readme_can_be_followed_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """Every block, in order, as a newcomer would: commands run, files are written, statements are asked."""
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text(VISITS, encoding="utf-8")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def run(command):
        shell = isinstance(command, str)
        done = subprocess.run(
            command, shell=shell, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert "Warning" not in done.stderr, f"{command}: {done.stderr}"
        return done.stdout

    commands, languages = [], []
    for language, body in FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8")):
        languages.append(language)
        if language == "sh":
            for line in body.splitlines():
                if line == "sfumato serve":
                    with serve(tmp_path) as served:
                        assert served.page.startswith("http://127.0.0.1:")
                elif not line.startswith("make "):
                    run(line)
                if not line.startswith("make "):
                    commands.append(line.split()[1])
        elif language == "toml":
            file = body.splitlines()[0].removeprefix("# ")
            assert file.endswith(".toml"), "a block of TOML begins with the name of its file"
            Path(file).write_text(body, encoding="utf-8")
        elif language == "python":
            exec(compile(body, "README.md", "exec"), {})
        elif language == "sql":
            answer = run(["sfumato", "sql", "--format", "csv", body])
            assert answer.splitlines()[0].startswith("clinic,visits,visits_low,visits_high,people")
            assert {line.split(",")[0] for line in answer.splitlines()[1:]} == {"North", "South", "Harbour"}
    assert set(languages) == {"sh", "toml", "python", "sql"}, "a block that no test runs"
    assert commands[:6] == ["init", "doctor", "check", "release", "verify", "budget"]
    assert commands[6:] == ["release", "sql", "report", "score", "user", "serve"]
    assert capsys.readouterr().out == "True\n['clinic', 'count'] 2.5\n"
    for file in ("table.csv", "table.parquet", "measurements.parquet", "certificate.json", "writeup.md"):
        assert (tmp_path / "out" / file).is_file()
    assert (tmp_path / "rows" / "model.parquet").is_file()
    assert list(tmp_path.rglob("*.html"))
