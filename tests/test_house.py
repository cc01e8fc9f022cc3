"""The architecture is the privacy proof: these tests fail if a room is left out of it."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sfumato"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


MAKEFILE = (ROOT / "Makefile").read_text()


def modules():
    """Every direct child of the package: modules and packages."""
    names = {path.stem for path in SOURCE.glob("*.py")} | {
        path.parent.name for path in SOURCE.glob("*/__init__.py")
    }
    return {f"sfumato.{name}" for name in names - {"__init__", "__main__"}}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_in_the_curator_nothing_loads_the_noise():
    for path in (SOURCE / "curator").glob("*.py"):
        loaded = {
            name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in imported_names(node)
        }
        assert not any(name.startswith(("sfumato.noise", "sfumato.core.noise")) for name in loaded), path


def test_the_core_imports_nothing_else_of_the_house():
    for path in (SOURCE / "core").rglob("*.py"):
        for name in imports_of(path):
            assert not name.startswith("sfumato") or name.startswith("sfumato.core"), (path, name)
            assert name != "importlib", path  # nor by another road


def test_the_kit_of_pages_stands_on_the_core_alone():
    for path in (SOURCE / "report" / "pages").rglob("*.py"):
        for name in imports_of(path):
            assert not name.startswith("sfumato") or name.startswith(
                ("sfumato.core.", "sfumato.report.pages.")
            ), (path, name)


def imported_names(node):
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}


def room_of(path):
    """The room of a module; of the core, the package within."""
    parts = path.relative_to(SOURCE).parts
    return parts[1] if parts[0] == "core" else parts[0]


def test_only_the_noise_package_draws_randomness():
    # The simulators invent people, synthetic rows and samples to compare with are drawn, from public seeds.
    allowed = {"inference", "metrics", "noise", "city.py", "sql"}
    for path in SOURCE.rglob("*.py"):
        room = path.name if path.name == "city.py" else room_of(path)
        names = set(imports_of(path))
        assert room in allowed or not names & {"random", "numpy.random"}, path
        # The ledger makes one secret for keyed digests, the server makes tokens and nonces.
        if room not in {*allowed, "ledger", "serve"}:
            text = path.read_text()
            assert "urandom" not in text
            assert "np.random" not in text
            assert "secrets" not in names


def test_no_release_path_knows_a_seed():
    for room in ("core", "curator", "local", "servers"):
        for path in (SOURCE / room).rglob("*.py"):
            arguments = {
                argument.arg
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                for argument in [*node.args.args, *node.args.kwonlyargs]
            }
            assert not any("seed" in argument for argument in arguments), path


def test_only_audits_give_a_curator_other_noise():
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Curator"):
                given = {keyword.arg for keyword in node.keywords}
                room = path.relative_to(SOURCE).parts[0]
                assert room == "audit" or not given & {"noise", None}, path


# What may only fall: whoever lowers a count lowers its ceiling here.
CEILINGS = {
    "cycles between modules": 0,
    "modules with a single importer": 58,
    "class names in four modules or more": 0,
    "rooms at the top": 20,
    "lines of source": 103_319,
    "lines of tests": 72_966,
}


@cache
def find_imports():
    """For every module those that it imports, for types alone or not."""
    graph = grimp.build_graph("sfumato", cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in sorted(graph.modules)}


def find_reachable(module):
    imports, found, waiting = find_imports(), set(), [module]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return frozenset(found)


def count_lines(*folders):
    return sum(len(path.read_text().splitlines()) for each in folders for path in each.rglob("*.py"))


def count_cycles():
    """The groups of modules that all reach each other."""
    reachable = {module: find_reachable(module) for module in find_imports()}
    return len({reachable[module] for module in reachable if module in reachable[module]})


def count_single_importers():
    importers = Counter(imported for each in find_imports().values() for imported in each)
    return sum(count == 1 for count in importers.values())


def count_repeated_classes():
    names = Counter(
        name
        for path in SOURCE.rglob("*.py")
        for name in {
            node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
        }
    )
    return sum(count >= 4 for count in names.values())


@pytest.mark.parametrize(
    ("what", "count"),
    [
        ("cycles between modules", count_cycles),
        ("modules with a single importer", count_single_importers),
        ("class names in four modules or more", count_repeated_classes),
        ("rooms at the top", lambda: len(modules())),
        ("lines of source", lambda: count_lines(SOURCE)),
        ("lines of tests", lambda: count_lines(ROOT / "tests")),
    ],
)
def test_what_may_only_fall_does(what, count):
    assert count() <= CEILINGS[what]


def test_modules_hold_one_idea():
    for path in SOURCE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 700, path


def test_records_are_read_by_their_fields_and_not_by_signs_in_their_text():
    signs = re.compile(r"""\[then |b'"\w+"' in |b"\\"\w+\\"" in |description_json""")
    assert [path for path in SOURCE.rglob("*.py") if signs.search(path.read_text(encoding="utf-8"))] == []


def test_every_test_runs_in_ci_and_none_but_properties_twice():
    recipes = dict(re.findall(r"^([\w-]+): .venv/ready\n\t(.*)$", MAKEFILE, re.MULTILINE))
    assert recipes["test"] == '$(PYTEST) -m "not slow"'
    assert recipes["test-rest"] == '$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=many'
    assert recipes["test-all"] == "$(PYTEST)"
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    assert not {"-m", "-k", "--ignore", "--deselect"} & set(re.split(r"[ =]", options))
    steps = re.findall(r"^make (.*)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert [each for each in steps if each.startswith("test")] == ["test", "test-rest"]


def test_hooks_are_part_of_the_checks():
    hooks = re.findall(
        r"^ +entry: \.venv/bin/(.*)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE
    )
    assert len(hooks) == 3
    for hook in hooks:
        program, *words = hook.split()
        assert re.search(rf"^\t\$\(BIN\)/{program} *{' '.join(words)}", MAKEFILE, re.MULTILINE), hook
