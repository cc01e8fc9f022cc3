"""Every example in the documentation runs as it stands."""

import re
from pathlib import Path

import pytest

from helpers.walks import Walk

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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
    Walk(page).run()


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


def test_the_readme_can_be_followed_from_top_to_bottom(tmp_path, monkeypatch, seeded_noise):
    """Every block, in order, as a newcomer would: commands run, files are written, statements are asked."""
    monkeypatch.chdir(tmp_path)
    walk = Walk(ROOT / "README.md")
    walk.run()
    assert walk.languages == {"sh", "toml", "python", "sql", "text"}, "a block that no test runs"
    for file in ("table.csv", "table.parquet", "measurements.parquet", "certificate.json", "writeup.md"):
        assert (tmp_path / "out" / file).is_file()
    assert (tmp_path / "rows" / "model.parquet").is_file()
    assert list(tmp_path.rglob("*.html"))
