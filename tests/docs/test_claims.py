"""The list of claims: numbered once, each page names its own, and write-ups cite what exists."""

import re
import tomllib
from pathlib import Path

import pytest

from sfumato.core.law import SHAPES
from sfumato.core.questions.measurement import COUNTS, SUMS
from sfumato.recipes.files import RECIPES

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "proofs"
ROWS = re.findall(r"^\| C(\d+) \| (.*) \|$", (PAGES / "README.md").read_text(), re.MULTILINE)
CITED = tomllib.loads((ROOT / "src/sfumato/recipes/writeups.toml").read_text())["claims"]


def numbers(text):
    return [int(each) for each in re.findall(r"\bC(\d+)\b", text)]


def test_claims_are_numbered_one_by_one():
    assert [int(number) for number, _ in ROWS] == list(range(1, len(ROWS) + 1))
    assert all(re.search(r"machine-checked|proved on paper|assumed|tested", row) for _, row in ROWS)


@pytest.mark.parametrize("page", sorted(each.name for each in PAGES.glob("*.md")))
def test_a_page_names_the_claims_that_link_it(page):
    if page in ("README.md", "notation.md"):
        return
    linked = [int(number) for number, row in ROWS if f"]({page}" in row]
    head = (PAGES / page).read_text().split("\n", 3)[2]
    assert linked
    assert numbers(head) == linked


def test_every_mechanism_has_a_claim_that_tells_of_it():
    rows = {f"C{number}": row for number, row in ROWS}
    for kind in RECIPES:
        assert f"[{kind}.md]" in rows[CITED[kind]], kind
    for kind in (*COUNTS, *SUMS):
        name = kind.__name__
        told = [rows[f"C{number}"] for number in numbers(CITED[name])]
        assert any(
            f"`{kind.__module__.removeprefix('sfumato.').replace('.', '/')}.py" in row for row in told
        ), name
    for kind in SHAPES:
        assert numbers(CITED[kind]), kind


def test_what_is_cited_exists():
    assert all(0 < number <= len(ROWS) for text in CITED.values() for number in numbers(text))
    for page in PAGES.glob("*.md"):
        assert all(0 < number <= len(ROWS) for number in numbers(page.read_text())), page.name
