"""Bounding against what the theorems are about: weights, clips, scores and sensitivities."""

import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import cells
from sfumato.core.cost.curves import histogram_sensitivity
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.exact import round_up
from sfumato.core.facts.table import WEIGHT_GRID, parse_table
from sfumato.core.questions.choices import Candidate, NormChoice
from sfumato.core.questions.question import Queries

pytestmark = pytest.mark.slow


def read(text):
    return int(text, 2)


def test_weights_of_records_are_those_of_the_theorem_marginal_weighted(oracle, tmp_path):
    draw, most = random.Random(1), 3
    numbers = {person: draw.choice([1, 2, 3, 4, 7, 50, 1000]) for person in range(40)}
    places = {person: draw.randrange(5) for person in numbers}
    people = [person for person, count in numbers.items() for _ in range(count)]
    table = pa.table({"p": people, "c": [places[person] for person in people]})
    pq.write_table(table, tmp_path / "t.parquet")
    for bounding in ("weight", "truncate"):
        described = parse_table(
            "t",
            {
                "source": "t.parquet",
                "unit": "p",
                "max_records": most,
                "bounding": bounding,
                "columns": {"c": {"range": [0, 4]}},
            },
        )
        (found,) = StatementEngine(tmp_path).count(described, cells((("c",),)), progress=lambda _: None)
        known = [0] * 5
        for person, count in numbers.items():
            if bounding == "weight":
                known[places[person]] += count * read(oracle.ask("share", most, WEIGHT_GRID, count))
            else:
                known[places[person]] += min(count, most)
        assert found.true_values.tolist() == known, f"Bounds.marginal_{bounding}"


def test_sensitivities_are_those_of_the_theorems_sensitivity_L1_and_L2(oracle):
    for contribution in (Fraction(1), Fraction(20), Fraction(7, 3)):
        for norm in ("L1", "L2"):
            for relation in ("add-remove", "replace"):
                for signed in (False, True):
                    found = histogram_sensitivity(
                        contribution=contribution, norm=norm, neighbours=relation, signed=signed
                    )
                    factor = read(oracle.ask("factor", norm, relation, int(signed)))
                    least = factor * contribution if norm == "L1" else factor * contribution**2
                    stated = found if norm == "L1" else found**2
                    assert least <= stated <= round_up(least * (1 + Fraction(1, 10**12)), places=15), (
                        f"Bounds.sensitivity_{norm}"
                    )


def test_scores_are_those_of_the_theorems_about_choices(oracle):
    draw = random.Random(2)
    for _ in range(40):
        b = draw.randint(2, 9)
        a = draw.randint(1, b - 1)
        within = sorted(draw.randint(0, 50) for _ in range(3))
        norms = NormChoice(
            name="n", columns=("c",), norms=(1, 2, 3), quantile=Fraction(a, b), epsilon=Fraction(1)
        )
        everybody = within[-1] + draw.randint(0, 9)
        a, b = norms.quantile.numerator, norms.quantile.denominator
        known = [read(oracle.ask("norm score", a, b, each, everybody)) for each in within]
        assert norms.score(np.array([*within, everybody])) == known, "Bounds.norm_score_moves"
        counts, estimate = ([draw.randint(-99, 99) for _ in range(7)] for _ in range(2))
        candidate = Candidate(
            columns=("c",),
            estimate=lambda estimate=estimate: np.array(estimate),
            weight=draw.randint(1, 5),
            penalty=3,
        )
        distance = read(oracle.ask("distance", counts, estimate))
        assert candidate.score(np.array(counts)) == candidate.weight * distance - 3, "Bounds.distance_moves"


def test_sums_of_queries_are_those_of_the_theorem_queries_L2(oracle):
    draw = random.Random(3)
    for _ in range(20):
        weights = [draw.choice([-2, -1, 0, 1, 2]) for _ in range(6)]
        members = [cell for cell in range(6) if weights[cell]]
        if not members:
            continue
        queries = Queries(
            cells=6,
            grid=4,
            starts=np.array([0, len(members)]),
            members=np.array(members),
            weights=np.array([weights[cell] for cell in members]),
        )
        counts = [draw.randint(0, 1000) for _ in range(6)]
        known = read(oracle.ask("queried", counts, weights, 0))
        assert queries.apply(np.array(counts)).tolist() == [known], "Bounds.queries_L2"


def test_sums_are_held_as_in_the_theorem_held_closer(oracle):
    from sfumato.core.engine.counts import _SATURATED

    for value in (0, 5, -5, _SATURATED, _SATURATED + 1, -_SATURATED - 7):
        held = min(max(value, -_SATURATED), _SATURATED)
        assert read(oracle.ask("hold", _SATURATED, value)) == held, "Bounds.held_closer"
