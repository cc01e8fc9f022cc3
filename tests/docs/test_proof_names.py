"""Names of code in the proofs: each is found in the source, where the page says it is."""

import ast
import re
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "proofs").glob("*.md"))
SOURCES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "benchmarks").rglob("*.py"),
    *(ROOT / "tests").rglob("*.py"),
]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(.*\))?")
PATH = re.compile(r"[\w./-]+(\.py|/)")
PLACED = re.compile(r"`([A-Za-z_][\w.]*)`(?:\s+and\s+`([A-Za-z_][\w.]*)`)?\s+in\s+`([\w./-]+\.py)`")

EXCEPTIONS: set[str] = set()
"""Words of SQL or mathematics that look like names of code; none does today."""


@cache
def read_names(path):
    """What a module defines, gives or is given by name: functions, classes, variables, fields, arguments."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg | ast.keyword):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.update(node.name.split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value))
    return found


@cache
def read_classes(path):
    """The classes of a module: the names of their bases, and what their bodies define."""
    classes = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            bases = {
                each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "")
                for each in node.bases
            }
            members = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            members |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
            members |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            classes[node.name] = bases, members
    return classes


def has_member(name, member):
    """Whether a class of this name, or a base of it, has the member; True if it is none of ours."""
    found = [read_classes(path)[name] for path in SOURCES if name in read_classes(path)]
    if not found:
        return True
    return any(
        member in members or any(map(partial(has_member, member=member), bases)) for bases, members in found
    )


@cache
def all_names():
    packages = {path.stem for path in SOURCES} | {path.parent.name for path in SOURCES}
    return set().union(packages, *(read_names(path) for path in SOURCES if path != Path(__file__)))


def find_files(name):
    """The files that a page means by a path, which may begin at the root, in the package or anywhere."""
    direct = [
        folder / name for folder in (ROOT, ROOT / "src" / "sfumato", ROOT / "docs" / "proofs", ROOT / "docs")
    ]
    found = [path for path in direct if path.exists()]
    return found or [path for path in SOURCES if path.as_posix().endswith(f"/{name}")]


def is_defined(name, path):
    """Whether a module defines a name, or a class of it the member after the dot."""
    *owner, last = name.split(".")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if owner and owner[-1] in read_classes(path):
        tree = next(
            each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name == owner[-1]
        )
    made = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    targets = (
        each for each in ast.walk(tree) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    )
    return last in made | {each.id for each in targets}


def is_code(text):
    """Whether a quoted text looks like a name of code, not like a word, an option or mathematics."""
    return bool(NAME.fullmatch(text)) and ("_" in text or "." in text or "(" in text or text[:1].isupper())


def is_theorem(text):
    """Whether a name is that of a theorem in proofs/, after the name of its file."""
    module, _, name = text.partition(".")
    path = ROOT / "proofs" / f"{module}.v"
    named = path.exists() and re.search(rf"^(Theorem|Lemma) {name} :", path.read_text("utf-8"), re.MULTILINE)
    return bool(named)


def list_stale(text):
    text = FENCED.sub("", text)
    stale = []
    for quoted in QUOTED.findall(text):
        if quoted in EXCEPTIONS:
            continue
        if PATH.fullmatch(quoted):
            stale += [] if find_files(quoted) else [quoted]
        elif is_code(quoted):
            parts = quoted.split("(")[0].split(".")
            known = set(parts) <= all_names() and all(has_member(*pair) for pair in pairwise(parts))
            known = known or is_theorem(quoted)
            stale += [] if known else [quoted]
    for first, second, path in PLACED.findall(text):
        for name in filter(None, (first, second)):
            if not any(is_defined(name, each) for each in find_files(path)):
                stale.append(f"{name} in {path}")
    return stale


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_of_code_is_found(page):
    assert list_stale(page.read_text(encoding="utf-8")) == []


STALE = {
    "`parse_table` in `curator/statements.py`": ["parse_table in curator/statements.py"],
    "is `DuckDBEngine.count` in `src/sfumato/core/engine/duckdb.py`": [
        "DuckDBEngine.count in src/sfumato/core/engine/duckdb.py"
    ],
    "`state_accuracy`, `sf_plain` and `_create_encoded`": ["state_accuracy", "sf_plain", "_create_encoded"],
    "`curator/gone.py`, `Cost.gone`; `Cost.mu`, `DuckDBEngine.count`, `admits`": [
        "curator/gone.py",
        "Cost.gone",
    ],
}


@pytest.mark.parametrize("text", STALE)
def test_stale_names_are_noticed(text):
    assert list_stale(text) == STALE[text]
