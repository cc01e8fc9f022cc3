"""Gradients of individuals: right, held to their norm in whole numbers, and nobody else's concern."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.core.engine import gradients
from sfumato.core.engine.gradients import TrueRecords
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.gradients import GRADIENT_GRID, INPUT_GRID, WEIGHT_GRID, Gradients, Layers
from sfumato.inference.models.network import NetworkModel

PLACES = (np.array([-1, 0, 1]), np.full(5, 2))
VALUES = (np.array([0, 1, 1]) * INPUT_GRID, np.linspace(-1, 1, 5) * INPUT_GRID)
KERNELS = ("_add_gradients", "_clip_and_add", "_forward", "_backward", "_soften", "_rounded")


def ask(*, hidden=(4,), classes=True, clip=1, weights=None, size=2.0, sampling=1, seed=3):
    layers = Layers(inputs=3, hidden=hidden, outputs=2 if classes else 1)
    if weights is None:
        drawn = np.random.default_rng(seed).uniform(-size, size, layers.weights)
        weights = np.rint(drawn * WEIGHT_GRID).astype(int)
    return Gradients(
        columns=("a", "b", "t"),
        places=PLACES,
        values=tuple(each.astype(int) for each in VALUES),
        targets=np.array([0, 1]) if classes else np.array([-1, 1]) * INPUT_GRID,
        layers=layers,
        weights=weights,
        clip=Fraction(clip),
        classes=classes,
        sampling=Fraction(sampling),
    )


def records(rows, numbers=None):
    columns = np.array(rows, np.uint8).reshape(-1, 3).T
    codes = dict(zip(("a", "b", "t"), columns, strict=True))
    return TrueRecords(codes, None if numbers is None else np.array(numbers))


def add_up(rows, question, numbers=None):
    held = records(rows, numbers)
    return held.sum_gradients(question, np.ones(held.individuals, bool))


def loss(question, weights, row):
    matrices, first = [], 0
    for before, after in zip(question.layers.sizes, question.layers.sizes[1:], strict=False):
        last = first + (before + 1) * after
        matrices.append(weights[first:last].reshape(before + 1, after) / WEIGHT_GRID)
        first = last
    model = NetworkModel(
        family="classification" if question.classes else "regression",
        columns=("a", "b"),
        places=question.places,
        values=tuple(each / INPUT_GRID for each in question.values),
        layers=tuple(matrices),
    )
    codes = {"a": np.array([row[0]]), "b": np.array([row[1]])}
    if question.classes:
        return -math.log(model.probabilities(codes, 1)[0, row[2]])
    return (model.outputs(codes, 1)[0, 0] - question.targets[row[2]] / INPUT_GRID) ** 2 / 2


@pytest.mark.parametrize("hidden", [(), (4,), (3, 2)])
@pytest.mark.parametrize("classes", [True, False])
def test_gradients_are_those_of_the_loss(hidden, classes):
    question = ask(hidden=hidden, classes=classes, clip=10**4)
    row = (2, 3, 1)
    found = add_up([row], question) * 10**4 / GRADIENT_GRID
    weights = question.weights.astype(float)
    for place in range(weights.size):
        move = np.zeros(weights.size)
        move[place] = 8.0
        slope = (loss(question, weights + move, row) - loss(question, weights - move, row)) / (
            16 / WEIGHT_GRID
        )
        assert found[place] == pytest.approx(slope, abs=0.01)


def test_records_of_one_individual_are_added_before_they_are_clipped_and_others_apart():
    question = ask(clip=Fraction(1, 100))
    rows = [(1, 0, 1), (2, 4, 0), (0, 2, 1)]
    together = add_up(rows, question, [5, 5, 5])
    assert math.isqrt(int((together**2).sum())) <= GRADIENT_GRID
    apart = add_up(rows, question, [5, 9, 5])
    assert (apart == add_up([rows[0], rows[2]], question, [1, 1]) + add_up([rows[1]], question)).all()
    assert (add_up(rows, question) == sum(add_up([row], question) for row in rows)).all()
    nobody = records([], [])
    assert nobody.individuals == 0
    assert not nobody.sum_gradients(question, np.zeros(0, bool)).any()


def check_norms():
    """Whatever individuals hold, each moves the sum by at most GRADIENT_GRID, in whole numbers."""
    random = np.random.default_rng(4)
    for turn in range(60):
        clip = [Fraction(1, 10**6), Fraction(1), Fraction(GRADIENT_GRID), 10**6][turn % 4]
        question = ask(clip=clip, size=[0.1, 3.0, 500.0][turn % 3], classes=turn % 2 == 0, seed=turn)
        crowd = [(turn % 3, turn % 5, 0), (1, 2, 1)]
        own = [tuple(random.integers(0, (3, 5, 2))) for _ in range(1 + 40 * (turn % 2))]
        with_them = add_up(own + crowd, question, [0] * len(own) + [1, 2])
        moved = (with_them - add_up(crowd, question, [1, 2])).astype(object)
        assert sum(each * each for each in moved) <= GRADIENT_GRID**2
        # The norm is nearly used where gradients are large: else the test tries too little.
        if clip < 1 and turn % 3 < 2:
            assert sum(each * each for each in moved) > 0.99 * GRADIENT_GRID**2


def test_no_individual_exceeds_the_norm():
    check_norms()


LINES = "for one in range(place * width, (place + 1) * width):\n            total"
FAULTS = {
    "clipped before rounding": ("if square <= limit * limit:", "if True:"),
    "clip left out": ("factor = unit if norm <= limit else", "factor = unit if True else"),
    "inputs forgotten": (f"in listed:\n        {LINES}", f"in listed[:0]:\n        {LINES}"),
    "the one before kept": ("    gradient[rest:] = 0.0", "    gradient[rest:] *= 0.5"),
}


def round_up(value, towards_zero):
    return int(math.trunc(value) if towards_zero else math.copysign(math.ceil(abs(value)), value))


def interpret(monkeypatch, *, fault=None, rounded=None):
    """Runs the kernels as Python, with one line of the clip changed, or other rounding."""
    source = inspect.getsource(gradients._clip_and_add.py_func).partition("\n")[2]
    for name in KERNELS:
        monkeypatch.setattr(gradients, name, getattr(gradients, name).py_func)
    if rounded is not None:
        monkeypatch.setattr(gradients, "_rounded", rounded)
    if fault is not None:
        assert source.count(fault[0]) == 1
        space = dict(vars(gradients))
        exec(compile(source.replace(*fault), "broken", "exec"), space)
        monkeypatch.setattr(gradients, "_clip_and_add", space["_clip_and_add"])


def test_python_and_compiled_kernels_agree(monkeypatch):
    question, rows = ask(clip=Fraction(1, 3)), [(1, 0, 1), (2, 4, 0)]
    compiled = add_up(rows, question)
    interpret(monkeypatch)
    assert (add_up(rows, question) == compiled).all()


@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_the_clip_are_noticed(name, monkeypatch):
    # Numbers that all round up make the most of a norm that was met before they were rounded.
    interpret(monkeypatch, fault=FAULTS[name], rounded=round_up)
    with pytest.raises((AssertionError, OverflowError)):
        check_norms()


def test_rounding_up_is_undone_where_the_clip_is_checked_in_whole_numbers(monkeypatch):
    interpret(monkeypatch, rounded=round_up)
    check_norms()


def test_a_clipped_batch_is_no_sum_of_clipped_individuals():
    """Clipping the sum instead of each: one individual turns it around, twice as far as the norm."""
    question = ask(classes=False, hidden=(), weights=np.zeros(4, int), clip=Fraction(1, 10**3))

    def clip_batch(rows):
        whole = add_up(
            rows, ask(classes=False, hidden=(), weights=np.zeros(4, int), clip=10**4), [0] * len(rows)
        )
        return whole * (GRADIENT_GRID / max(np.linalg.norm(whole), 1e-9))

    crowd, other = [(0, 4, 1)], [(0, 4, 0)] * 3
    moved = np.linalg.norm(clip_batch(crowd + other) - clip_batch(crowd))
    assert moved > 1.9 * GRADIENT_GRID
    numbers = [0, 1, 1, 1]
    assert np.linalg.norm(add_up(crowd + other, question, numbers) - add_up(crowd, question)) <= GRADIENT_GRID


def test_records_are_read_by_individual_whatever_their_order(tmp_path):
    spec = {"a": {"range": [0, 2]}, "b": {"range": [0, 4]}, "t": {"range": [0, 1]}}
    table = parse_table("t", {"source": "t.parquet", "unit": "p", "max_records": 1, "columns": spec})
    people, rows = ["y", "x", "y", None, "z"], [(0, 1, 1), (2, 4, 0), (1, 1, 1), (1, 1, 1), (9, 1, 1)]
    columns = list(zip(*rows, strict=True))
    pq.write_table(pa.table([people, *columns], ["p", "a", "b", "t"]), tmp_path / "t.parquet")
    held = StatementEngine(tmp_path).read_records(table, ("a", "b", "t"), progress=lambda _: None)
    assert held.individuals == 2
    assert "withheld" in repr(held)
    question = ask()
    expected = add_up([rows[0], rows[2]], question, [0, 0]) + add_up([rows[1]], question)
    assert (held.sum_gradients(question, np.ones(2, bool)) == expected).all()
    with pytest.raises(TypeError):
        held.__reduce__()


@pytest.mark.parametrize(
    "wrong",
    [
        {"weights": np.zeros(3, int)},
        {"weights": np.full(26, 2**40)},
        {"weights": np.zeros(26)},
        {"clip": 0},
        {"sampling": 2},
    ],
)
def test_questions_that_make_no_sense_are_refused(wrong):
    with pytest.raises(RecipeError):
        ask(hidden=(4,), **wrong)
