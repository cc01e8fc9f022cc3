"""The search of the documentation's site, in a page that was opened from a disk."""

import html
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
PAGES = [
    {
        "location": "a.html",
        "title": "Noise",
        "text": "All of it: the ledger is charged before noise is drawn.",
    },
    {
        "location": "a.html#order",
        "title": "The order",
        "text": "The ledger is charged before noise is drawn.",
    },
    {"location": "a.html#law", "title": "Ledgers </script>", "text": "A chain of <b>entries</b>."},
    {"location": "b.html", "title": "Synthesis", "text": "Rows that nobody wrote; an Übersicht."},
]
PAGE = (
    '<html><head><meta charset="utf-8"></head><body>'
    '<form><input id="mkdocs-search-query"></form><div id="mkdocs-search-results"></div>'
    '<script>var base_url = ".";</script><script src="main.js"></script></body></html>'
)


def load_maker():
    spec = importlib.util.spec_from_file_location("make_search", DOCS / "make_search.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    return maker


def test_what_is_written_replaces_what_needs_a_server(tmp_path):
    (tmp_path / "search").mkdir()
    for name in ("main.js", "worker.js", "lunr.js"):
        (tmp_path / "search" / name).write_text("fetch")
    (tmp_path / "search" / "search_index.json").write_text('{"docs": []}')
    load_maker().on_post_build({"site_dir": str(tmp_path)})
    assert [each.name for each in (tmp_path / "search").iterdir()] == ["main.js"]
    assert not re.search(r"fetch|XMLHttpRequest|Worker", (tmp_path / "search" / "main.js").read_text())


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser here")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("ledger", ["a.html#law", "a.html#order"]),  # a title weighs most
        ("charg+NOISE", ["a.html#order"]),
        ("%C3%BCbersicht", ["b.html"]),
        ("harged", []),  # words are found by their beginnings
        ("", []),
    ],
)
def test_a_page_on_a_disk_finds_words(query, found, tmp_path):
    (tmp_path / "main.js").write_text(load_maker().build_script(PAGES), encoding="utf-8")
    (tmp_path / "index.html").write_text(PAGE, encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=2000", "--dump-dom", f"{(tmp_path / 'index.html').as_uri()}?q={query}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    results = done.stdout.partition('id="mkdocs-search-results"')[2].partition("<script>")[0]
    assert re.findall(r'href="\./([^"]*)"', html.unescape(results)) == found
    if query == "ledger":
        assert "&lt;/script&gt;" in results
        assert "<b>" not in results
    assert ("No page has all of these words." in results) == (query == "harged")
