"""Tries to break the parts of a judged model: whole runs on neighbouring tables, noise off and on; faults.

The exact answers of a run are compared with those of the same questions on a neighbouring table. The squares
of their distances in units of the noise add up to the mu^2 that an attacker who knows everything else can
see, and it must not exceed what is charged.
"""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import answer_zeros
from sfumato.core.engine import duckdb
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import Measurement, find_part, request_grid
from sfumato.recipes import Additive, Linear, Logistic
from sfumato.recipes.base import follow_recipe
from sfumato.recipes.shared import evaluation

DELTA = Fraction(1, 10**6)
random = np.random.default_rng(12)
CROWD = [
    (f"c{place // 2}", int(a), "xy"[b], int(t))
    for place, (a, b, t) in enumerate(random.integers(0, (8, 2, 7), (400, 3)))
]
OWN = [(7, "y", 6), (0, "x", 0), (7, "y", 6), (3, "x", 6)]
RECIPES = {
    "additive": Additive(table="t", target="b", inputs=("a", "t"), holdout="0.4"),
    "logistic": Logistic(table="t", target="b", inputs=("a", "t"), holdout="0.4"),
    "linear": Linear(table="t", target="t", inputs=("a", "b"), holdout="0.4", groups="b"),
    "chosen": Linear(table="t", target="t", holdout="0.4", choose=[{"inputs": ["a"]}, {"inputs": ["b"]}]),
}
FORMS = [{"unit": "p", "max_records": 3}, {"unit": "row"}]


def describe(**facts):
    columns = {"a": {"range": [0, 7]}, "b": {"values": ["x", "y"]}, "t": {"range": [0, 6]}}
    return parse_table("t", {"source": "t.parquet", "columns": columns, **facts})


class Watched:
    """The exact answers of one table to whatever is asked."""

    def __init__(self, folder, records, plan):
        folder.mkdir()
        people, *columns = zip(*records, strict=True)
        kinds = (pa.int64(), pa.string(), pa.int64())
        arrays = [
            pa.array(people),
            *(pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)),
        ]
        pq.write_table(pa.table(arrays, ["p", "a", "b", "t"]), folder / "t.parquet")
        self.engine, self.plan = StatementEngine(folder), plan
        self.tables = {part: replace(plan.table, part=part) for part in (None, *plan.parts)}

    def read(self, ask):
        question = ask.counted
        if isinstance(question, Marginal):
            question = Marginal(ask.columns, ask.queries)
        (found,) = self.engine.count(self.tables[find_part(ask)], (question,), progress=lambda _: None)
        return found.true_values.astype(np.float64)


def run(plan, tables, *, noise=add_noise):
    """What each table moves the answers of a run on the first by, squared, in units of the noise; by part."""
    moved = [{part.name: 0.0 for part in plan.parts} | {"": 0.0} for _ in tables]

    def answer(asks):
        given = []
        for ask in asks:
            exact = tables[0].read(ask)
            for found, other in zip(moved, tables, strict=True):
                part = find_part(ask)
                gap = float(((other.read(ask) - exact) ** 2).sum())
                found["" if part is None else part.name] += gap / (float(ask.scale) ** 2 - 4)
            noisy = noise(exact.astype(np.int64), kind="gaussian", scale=ask.scale)
            given.append(Measurement(request=ask, noisy_values=noisy, grid=request_grid(plan.table, ask)))
        return tuple(given)

    follow_recipe(plan, answer=answer, progress=lambda _: None)
    return moved


def neighbours_of(plan, folder):
    """The crowd, and tables that differ from it by one individual: of one part or of another."""
    people = plan.table.unit.column is not None
    base = CROWD + ([] if people else [("d", 7, "y", 6)])
    tables = [Watched(folder / "0", base, plan)]
    for number in range(6):
        own = [(f"eve{number}", *row) for row in (OWN if people else [OWN[number % 4]])]
        kept = base
        if plan.table.unit.neighbours == "replace":
            gone = base[number * 7][0]
            kept = (
                [each for each in base if each[0] != gone] if people else base[:number] + base[number + 1 :]
            )
        tables.append(Watched(folder / str(number + 1), [*own, *kept], plan))
    return tables


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("form", FORMS, ids=["people", "rows"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_individual_moves_a_whole_run_further_than_charged(tmp_path, name, form, neighbours):
    plan = RECIPES[name].plan(describe(neighbours=neighbours, **form), epsilons=(Fraction(3),), delta=DELTA)
    (cost,) = plan.costs
    found = run(plan, neighbours_of(plan, tmp_path))
    for moved in found:
        assert sum(moved.values()) <= float(cost.mu_squared)
        assert moved[""] == 0.0
        if neighbours == "add-remove":
            assert sum(each > 0 for each in moved.values()) <= 1
    if neighbours == "replace":
        assert any(sum(each > 0 for each in moved.values()) > 1 for moved in found), "none was in two parts"
    assert max(sum(moved.values()) for moved in found) > 0.02 * float(cost.mu_squared)


def test_a_fit_that_sees_everybody_is_noticed(tmp_path, monkeypatch):
    """If parts were not kept, one individual would be in the fit and in the judgement."""
    plan = RECIPES["linear"].plan(describe(**FORMS[0]), epsilons=(Fraction(3),), delta=DELTA)
    monkeypatch.setattr(duckdb, "restrict_sealed", lambda sealed, table: sealed)
    found = run(plan, neighbours_of(plan, tmp_path))
    assert all(sum(each > 0 for each in moved.values()) == 2 for moved in found[1:])


def test_noise_for_one_is_not_enough_for_two(tmp_path):
    """Where people are exchanged, parts with noise for one who comes or goes would cost the sum of both."""
    narrow = describe(**FORMS[0])
    recipe = RECIPES["linear"]
    plan = recipe.plan(narrow, epsilons=(Fraction(3),), delta=DELTA)
    exchanged = recipe.plan(describe(neighbours="replace", **FORMS[0]), epsilons=(Fraction(3),), delta=DELTA)
    sums = {}
    for kind, each in (("one", plan), ("two", exchanged)):
        spent = dict.fromkeys((part.name for part in each.parts), 0.0)

        def answer(asks, spent=spent, each=each):
            given = []
            for ask in asks:
                # The most that one who comes or goes moves the answers by, in units of the noise.
                one = float(ask.counted.contribution(each.table, "L2"))
                spent[ask.part.name] += one**2 / (float(ask.scale) ** 2 - 4)
                noisy = np.zeros(ask.counted.size(each.table), np.int64) + 50 * request_grid(each.table, ask)
                given.append(Measurement(request=ask, noisy_values=noisy, grid=request_grid(each.table, ask)))
            return tuple(given)

        follow_recipe(each, answer=answer, progress=lambda _: None)
        sums[kind] = spent
    charged = float(plan.costs[0].mu_squared)
    assert sum(sums["one"].values()) > 1.2 * charged
    assert sum(sums["two"].values()) <= charged


def test_a_question_to_people_of_no_part_of_the_plan_is_refused(monkeypatch):
    plain = evaluation.take_part

    def wider(ask, part, *, label=""):
        return plain(ask, replace(part, low=part.low / 2) if part.name == "held out" else part, label=label)

    monkeypatch.setattr(evaluation, "take_part", wider)
    plan = RECIPES["linear"].plan(describe(**FORMS[1]), epsilons=(Fraction(1),), delta=DELTA)

    with pytest.raises(RecipeError, match="no part of its plan"):
        follow_recipe(plan, answer=partial(answer_zeros, plan), progress=lambda _: None)
