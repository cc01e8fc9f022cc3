"""Figures in the documentation are those that a named benchmark printed.

`benchmarks/printed/NAME.txt` holds what `benchmarks/NAME.py` printed last; its first line has the date and
the number of cores. A paragraph or table that names `benchmarks/NAME.py` may quote numbers from there only,
rounded as it likes. The benchmarks in `UNSTORED` have no such file yet; the list may only get shorter, and so
may the number of paragraphs of a page that state times or memory and name no benchmark.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "benchmarks" / "printed"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
NAMED = re.compile(r"benchmarks/(\w+)\.py")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
MEASURED = re.compile(r"\d (ms|seconds|minutes|MB|MiB|GB|GiB)\b")
UNSTORED = {
    *(
        "audit",
        "contests",
        "evaluation",
        "holdout",
        "inference",
        "learning",
        "network",
        "pushdown",
        "related",
    ),
    *("scale", "serve_timing", "sql", "tables", "toolboxes", "wide", "within"),
}
UNNAMED = {
    "audit.md": 2,
    "command-line.md": 1,
    "distributions.md": 1,
    "learning.md": 1,
    "maps.md": 2,
    "postgres.md": 1,
    "report.md": 2,
    "scale.md": 7,
    "schema.md": 1,
    "serve.md": 3,
}


def split_paragraphs(page):
    """The paragraphs and tables of a page, without its examples, whose output is tested elsewhere."""
    return re.split(r"\n\s*\n", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))


def read_numbers(text):
    return [each.replace(",", "") for each in NUMBER.findall(text)]


def round_like(number, quoted):
    return f"{float(number):.{len(quoted.partition('.')[2])}f}"


QUOTES = [
    (page.name, name, paragraph)
    for page in PAGES
    for paragraph in split_paragraphs(page)
    for name in NAMED.findall(paragraph)
]


@pytest.mark.parametrize(("page", "name", "paragraph"), QUOTES)
def test_quoted_figures_were_printed(page, name, paragraph):
    stored = PRINTED / f"{name}.txt"
    if not stored.exists():
        assert name in UNSTORED, f"store what benchmarks/{name}.py prints in benchmarks/printed/{name}.txt"
        return
    head, _, rest = stored.read_text(encoding="utf-8").partition("\n")
    assert re.match(r"20\d\d-\d\d-\d\d, \d+ cores?: benchmarks/" + name, head)
    printed = read_numbers(rest)
    missing = [
        quoted
        for quoted in read_numbers(paragraph)
        if float(quoted) >= 2
        and round_like(quoted, quoted) not in {round_like(each, quoted) for each in printed}
    ]
    assert not missing, f"{page} quotes what benchmarks/printed/{name}.txt does not hold"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_states_more_times_without_a_benchmark(page):
    unnamed = [each for each in split_paragraphs(page) if MEASURED.search(each) and not NAMED.search(each)]
    assert len(unnamed) <= UNNAMED.get(page.name, 0), [each[:80] for each in unnamed]
