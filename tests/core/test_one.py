"""What there is one of, read off the syntax of the source: the meaning of a law of noise."""

import ast
from pathlib import Path

import sfumato

SOURCE = Path(sfumato.__file__).parent
KINDS = {"laplace", "gaussian"}

# Who asks for a kind: what it means, what it costs, how it is drawn; what a user wrote, or reads of it.
MEANING = {"core/law.py", "core/noise/thresholds.py", "core/cost/cost.py", "core/cost/parallel.py"}
USER_INPUT = {
    f"recipes/{name}.py" for name in ("cell_counts", "field_groups", "hierarchy", "quantiles", "user_counts")
}
WORDS = {"release/writeup.py"}
# Audits find out for themselves what a law is; the others release no table, and name mechanisms so.
APART = {"audit", "choose.py", "holdout", "local"}


def read_sources():
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def asks_kind(node):
    match node:
        case ast.Compare(left, _, comparators):
            given = [left, *comparators]
        case ast.Dict(keys):
            given = keys
        case ast.MatchValue(value) | ast.Subscript(slice=ast.Constant() as value):
            given = [value]
        case _:
            return False
    plain = [each for each in given if isinstance(each, ast.Constant | ast.Tuple | ast.List | ast.Set)]
    words = [leaf.value for each in plain for leaf in ast.walk(each) if isinstance(leaf, ast.Constant)]
    return any(isinstance(word, str) and word in KINDS for word in words)


def test_only_one_module_says_what_a_kind_of_noise_means():
    asking = {name for name, tree in read_sources() if any(map(asks_kind, ast.walk(tree)))}
    apart = {name for name in asking if name.split("/")[0] in APART}
    assert asking - apart == MEANING | USER_INPUT | WORDS
