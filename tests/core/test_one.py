"""What there is one of, read off the syntax of the source: a law's meaning, a maker of costs, a drawer."""

import ast
from pathlib import Path

import pytest

import sfumato
from sfumato.core.questions import question

SOURCE = Path(sfumato.__file__).parent
KINDS = {"laplace", "gaussian"}

# Who asks for a kind: what it means, what it costs, how it is drawn; what a user wrote.
MEANING = {"core/law.py", "core/noise/thresholds.py", "core/cost/cost.py", "core/cost/parallel.py"}
USER_INPUT = {"recipes/field_groups.py", "recipes/shared/counts.py"}
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
    assert asking - apart == MEANING | USER_INPUT


def list_calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rpartition(".")[2], node


# Costs that are no question's: what a whole plan, or what is left, may cost; what-ifs; what audits make up.
OTHER_COSTS = {
    "core/cost/budget.py": "what is left, as one pure item",
    "core/ledger/ledger.py": "what shares leave, as one pure item",
    "recipes/network.py": "all steps of a network together, held to at the door",
    "recipes/shared/budget.py": "all that a recipe may ask, held to at the door",
    "report/explain/composition.py": "what a reader would pay",
}


def test_one_function_makes_the_cost_of_a_question():
    making = {name for name, tree in read_sources() if any(call == "Cost" for call, _ in list_calls(tree))}
    apart = {name for name in making if name.split("/")[0] in APART}
    # Of requests and choices, and of what statements ask.
    makers = {"core/questions/measurement.py", "core/algebra/asks.py"}
    assert making - apart - set(OTHER_COSTS) == makers


DRAWS = {"add_noise", "add_sparse_noise", "exponential_choice", "permute_and_flip", "poisson_sample"}


def test_one_module_draws_noise_for_a_release():
    drawing = {
        name
        for name, tree in read_sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in DRAWS
    }
    assert {each for each in drawing if each.split("/")[0] not in APART} == {"core/door.py"}


def test_engines_and_recipes_rarely_ask_for_the_kind_of_a_question():
    kinds = {each.__name__ for each in question.Question.__subclasses__()} | {"NormChoice"}
    found = []
    for name, tree in read_sources():
        checked = {
            id(each) for node in ast.walk(tree) if isinstance(node, ast.Assert) for each in ast.walk(node)
        }
        for call, node in list_calls(tree):
            if call == "isinstance" and id(node) not in checked:
                names = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
                found += [f"{name}:{node.lineno}"] if names & kinds else []
        counts = name.startswith(("core/engine/base", "core/engine/counts"))
        assert not (counts and any(call == "id" for call, _ in list_calls(tree)))
    assert len(found) <= 10, found


@pytest.mark.parametrize("member", question.MEMBERS)
def test_a_kind_of_question_that_leaves_something_out_cannot_be_made(member):
    stated = dict.fromkeys(question.MEMBERS, 0)
    type("Whole", (question.Question,), stated)
    del stated[member]
    with pytest.raises(TypeError, match=f"does not state {member}"):
        type("Partial", (question.Question,), stated)


def test_what_holds_for_a_kind_has_no_default():
    with pytest.raises(TypeError, match="signed"):
        question.Stated(bounding="records", tally="cells", norms=("L1",), sampled=False)
