"""Pages point at what exists, every page is reachable, and none names a machine."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_IN = re.compile(r"`([A-Za-z_][\w.]*)`\s(?:in|\()\s?`(src/[\w./]+\.py)`")
CODE_PATH = re.compile(r"`((?:src|tests|docs|benchmarks)/[\w./-]*)`")


def name(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page):
    return [link for link in LINK.findall(prose(page)) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_exist(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page):
    for path in CODE_PATH.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_is_said_to_be_in_a_module_is_there(page):
    text = page.read_text(encoding="utf-8")
    for names, path in NAMED_IN.findall(text):
        for each in re.findall(r"\w+", names):
            assert re.search(rf"\b{each}\b", (ROOT / path).read_text(encoding="utf-8")), (each, path)
    for path in re.findall(r"`(\w+\.py)`", text) if page.parent.name == "proofs" else ():
        assert list((ROOT / "src").rglob(path)) or list((ROOT / "tests").rglob(path)), path


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_tests_that_are_named_exist(page):
    defined = {
        test
        for file in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    for test in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")):
        assert test in defined, test


def test_every_page_is_reachable_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
            waiting += [target for target in targets if target.suffix == ".md"]
    assert seen >= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_names_a_path_of_a_machine(page):
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users)/", page.read_text(encoding="utf-8"))


def test_every_page_has_its_place_in_the_site():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]
    listed = set(re.findall(r": ([\w/.-]+\.md)$", nav, re.MULTILINE)) - {"index.md"}
    written = {name(page) for page in PAGES if page.parent.name != "proofs"} - {"README.md"}
    assert listed == written | {"CHANGELOG.md", "docs/proofs/README.md"}
