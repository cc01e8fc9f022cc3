"""Made-up statements and recipes over neighbouring, nasty tables; `make audit` runs many more."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from helpers import fuzz
from sfumato.accounting import Cost


@pytest.mark.parametrize(
    ("seed", "cases", "answered"),
    [
        ("a few", 30, 15),
        pytest.param("always the same", 250, 170, marks=pytest.mark.slow),
        pytest.param("c074c608", 300, 200, marks=pytest.mark.slow),
    ],
)
def test_no_case_tells_neighbours_apart(seed, cases, answered):
    counts = Counter()
    faults = list(fuzz.run_cases(cases, seed=seed, counts=counts))
    assert not faults, f"seed {seed!r}, {len(faults)} faults\n" + "\n".join(map(str, faults[:5]))
    assert counts["answered"] > answered, counts.most_common(5)


def test_the_same_seed_makes_the_same_cases():
    def made():
        world = fuzz.make_world("any")
        return world.toml, [fuzz.Statements(world, fuzz.random.Random(seed)).make() for seed in range(20)]

    assert made() == made()
    assert len(set(made()[1])) == 20


@pytest.mark.slow
def test_control_half_the_noise_is_noticed(monkeypatch):
    from sfumato.core.algebra import asks, measures
    from sfumato.sql import plan

    original = measures.bound_measure
    for module in (asks, plan):  # in the core, and where the planner asks the core
        monkeypatch.setattr(module, "bound_measure", lambda *given, **named: original(*given, **named) / 2)
    assert any("distance" in fault.what for fault in fuzz.run_cases(100, seed="half", broken=0))


@pytest.mark.slow
def test_control_an_error_that_one_record_decides_about_is_noticed(monkeypatch):
    from sfumato.core.engine.statements import StatementEngine
    from sfumato.core.errors import SourceError

    original = StatementEngine.aggregate_checked

    def fail_for_some(self, checked, **options):
        found = original(self, checked, **options)
        if sum(int(values.sum()) for values in found.true_values) % 2:
            raise SourceError("an odd number")
        return found

    monkeypatch.setattr(StatementEngine, "aggregate_checked", fail_for_some)
    message = "the outcome depends on the records"
    assert any(message in fault.what for fault in fuzz.run_cases(100, seed="odd", broken=0))


def outcome(*vectors):
    noise = fuzz.RecordingNoise()
    for values in vectors:
        noise.add_noise(np.array(values), kind="laplace", scale=2)
    cost = Cost(kind="laplace", scale=Fraction(2), sensitivity=Fraction(2))
    return fuzz.Outcome(noise, shown="same", charged=(cost,) * len(vectors), declared=(cost,) * len(vectors))


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (([1, 2],), ([3, 2],), None),
        (([1, 2],), ([3, 3],), "L1 distance 3"),
        (([1, 2],), ([1, 2, 0],), "different noise"),
        (([1, 2],), ([1, 2], [1]), "charged differently"),
    ],
)
def test_control_vectors_too_far_apart_are_reported(one, two, message):
    what = fuzz.find_fault(outcome(*one), outcome(*two), opened=0, is_statement=True)
    assert what is None if message is None else message in what


def test_control_what_the_order_of_rows_changes_is_reported():
    assert fuzz.find_change(outcome([1, 2]), outcome([1, 2]), opened=0) is None
    assert "the order of rows" in fuzz.find_change(outcome([1, 2]), outcome([2, 1]), opened=0)


def test_statements_have_every_form():
    """Joins, inner queries, semi-joins, unions and casts, each often enough to be tried in every run."""
    found = Counter()
    for name in range(30):
        world = fuzz.make_world(f"forms {name}")
        for case in range(10):
            text, _ = fuzz.Statements(world, fuzz.random.Random(f"{name} {case}")).make()
            forms = ("JOIN", "CAST(", "GROUP BY", "IN (SELECT", "EXISTS (", "UNION ALL", "FROM (SELECT")
            found.update(form for form in forms if form in text)
    assert min(found.values()) >= 10, found
    assert len(found) == 7
