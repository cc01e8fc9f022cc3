"""Tries to break choices among gaps: on adversarial neighbours, with the choice recorded and drawn.

Recorded, the scores and the rate of neighbouring tables give the exact probabilities of every candidate,
whose ratio must not exceed the claim. Drawn, no candidate may prove a larger epsilon than is claimed.
Negative controls show that a rate of twice what the claim allows is caught by both.
"""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.asking import converse
from sfumato.accounting import Cost
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import exponential_choice
from sfumato.core.questions import choices
from sfumato.core.questions.choices import Candidate, Choice, Chosen
from sfumato.core.questions.counts import Queries
from sfumato.recipes.base import Plan, Product
from sfumato.statements.engine import StatementEngine

MAX_RECORDS = 4
EPSILON = Fraction(1)
CROWD = [(f"crowd{i}", i % 5, "xy"[i % 2]) for i in range(30)]
INDIVIDUALS = {
    "one record": [(1, "x")],
    "full, in one cell": [(1, "x")] * MAX_RECORDS,
    "full, over cells": [(i, "xy"[i % 2]) for i in range(MAX_RECORDS)],
    "over the cap, in one cell": [(2, "y")] * 50,
    "over the cap, over cells": [(i % 5, "xy"[i % 2]) for i in range(50)],
    "missing": [(None, None), (None, "x"), (1, None)],
    "never seen": [(99, "zebra"), (-7, ""), (3, "x")],
}
UNITS = [("add-remove", "truncate"), ("add-remove", "weight"), ("replace", "truncate"), ("replace", "weight")]


def describe(neighbours, bounding):
    return parse_table(
        "t",
        {
            "source": "t.parquet",
            "unit": "p",
            "max_records": MAX_RECORDS,
            "neighbours": neighbours,
            "bounding": bounding,
            "columns": {
                "c": {"range": [0, 4], "outside": "clamp"},
                "d": {"values": ["x", "y"], "outside": "other"},
            },
        },
    )


def halves(cells):
    """Sums of the first and of the last cells."""
    middle = cells // 2
    return Queries(
        cells=cells,
        grid=1,
        starts=np.array([0, middle, cells]),
        members=np.arange(cells),
        weights=np.ones(cells, np.int64),
    )


def constant(size, value):
    return np.full(size, value, np.int64)


def offer(table):
    """Gaps that one individual pulls apart: of some estimates it brings counts nearer, of others farther."""
    far = 10**6 * table.grid
    return (
        Candidate(columns=("c",), estimate=partial(constant, 5, 0), weight=3, penalty=7),
        Candidate(columns=("c",), estimate=partial(constant, 5, far), weight=3, penalty=-(3 * 5 * far)),
        Candidate(columns=("d",), estimate=partial(constant, 3, 10 * table.grid), weight=1),
        Candidate(columns=("c", "d"), estimate=partial(constant, 15, 2 * table.grid), weight=2, penalty=5),
        Candidate(columns=("c", "d"), estimate=partial(constant, 2, 0), weight=3, queries=halves(15)),
    )


class Asks:
    """A recipe that makes one choice."""

    kind, table = "asks", "t"

    def __init__(self, gaps):
        self.gaps = gaps

    def to_record(self):
        return {"recipe": self.kind}

    def run(self, plan, *, progress):
        (chosen,) = yield (Choice(name="choice", candidates=self.gaps, epsilon=EPSILON),)
        assert isinstance(chosen, Chosen)
        return Product(table=pa.table({"index": [chosen.index]}))


def write(folder, records):
    table = pa.table(
        {
            "p": pa.array([p for p, _, _ in records], pa.string()),
            "c": pa.array([c for _, c, _ in records], pa.int64()),
            "d": pa.array([d for _, _, d in records], pa.string()),
        }
    )
    pq.write_table(table, folder / "t.parquet")
    return StatementEngine(folder)


def run(folder, table, records, gaps):
    """The index that one conversation about `records` gives."""
    engine = write(folder, records)
    plan = Plan(
        recipe=Asks(gaps),
        table=table,
        requests=(),
        epsilons=(EPSILON,),
        delta=Fraction(1, 10**6),
        allowance=(Cost(kind="pure", scale=EPSILON, neighbours=table.unit.neighbours, unit="p"),),
        counted=(("c",), ("d",), ("c", "d")),
    )
    with converse(plan, engine) as conversation:
        (answer,), _ = conversation.run()
    return answer.index


def record(folder, table, records, gaps, monkeypatch):
    """The scores and the rate that a conversation hands to the noise."""
    seen = []

    def stand_in(scores, *, rate):
        seen.append((scores[0].tolist(), rate))
        return np.zeros(1, np.int64)

    with monkeypatch.context() as patch:
        patch.setattr("sfumato.core.noise.exponential_choice", stand_in)
        run(folder, table, records, gaps)
    (found,) = seen
    return found


def probabilities(scores, rate):
    logs = np.array([float(rate * (score - max(scores))) for score in scores])
    return logs - math.log(np.exp(logs).sum())


def worst_ratio(one, two):
    """The largest logarithm of a ratio of probabilities between two recorded choices."""
    assert one[1] == two[1], "neighbours choose at the same rate"
    return float(np.abs(probabilities(*one) - probabilities(*two)).max())


@pytest.mark.parametrize(("neighbours", "bounding"), UNITS)
@pytest.mark.parametrize("name", INDIVIDUALS)
def test_no_individual_moves_a_choice_beyond_its_epsilon(tmp_path, monkeypatch, name, neighbours, bounding):
    table = describe(neighbours, bounding)
    person = [("somebody", c, d) for c, d in INDIVIDUALS[name]]
    other = [("somebody", 0, "x")] * 50 if neighbours == "replace" else []
    one = record(tmp_path, table, CROWD + person, offer(table), monkeypatch)
    two = record(tmp_path, table, CROWD + other, offer(table), monkeypatch)
    moved = [abs(a - b) for a, b in zip(one[0], two[0], strict=True)]
    assert all(2 * one[1] * each <= EPSILON for each in moved)
    assert worst_ratio(one, two) <= EPSILON + 1e-9


# The individual brings the counts of c nearer to the first estimate, and those of d farther from the other:
# so the log of the odds moves by all of epsilon. The penalty makes the first rare, where odds are chances.
HEAVY = [("somebody", 2, "y")] * 50


def pull(penalty):
    return (
        Candidate(columns=("c",), estimate=partial(constant, 5, 0), penalty=penalty),
        Candidate(columns=("d",), estimate=partial(constant, 3, 1000)),
    )


def pulled(folder, monkeypatch):
    table = describe("add-remove", "truncate")
    scores, rate = record(folder, table, CROWD, pull(0), monkeypatch)
    gaps = pull(scores[0] - scores[1] + int(4 / rate))
    return [record(folder, table, records, gaps, monkeypatch) for records in (CROWD + HEAVY, CROWD)]


def test_the_claim_is_tight_and_twice_the_rate_is_caught(tmp_path, monkeypatch):
    one, two = pulled(tmp_path, monkeypatch)
    assert 0.9 < worst_ratio(one, two) <= 1
    assert worst_ratio((one[0], 2 * one[1]), (two[0], 2 * two[1])) > 1.9


def test_a_sensitivity_that_forgets_weights_is_caught(tmp_path, monkeypatch):
    table = describe("add-remove", "truncate")
    original = choices.find_sensitivity

    def too_small(*count, **facts):
        return original(*count, **facts) / 3

    monkeypatch.setattr(choices, "find_sensitivity", too_small)
    one = record(tmp_path, table, CROWD + HEAVY, offer(table), monkeypatch)
    two = record(tmp_path, table, CROWD, offer(table), monkeypatch)
    assert any(2 * one[1] * abs(a - b) > EPSILON for a, b in zip(one[0], two[0], strict=True))


@pytest.mark.statistical
@pytest.mark.parametrize(("times", "caught"), [(1, False), (2, True)])
def test_the_black_box_sees_a_wrong_rate_and_not_a_right_one(tmp_path, monkeypatch, times, caught):
    """How often the rare candidate is chosen with the individual and without."""
    runs = 200_000
    shares = []
    for scores, rate in pulled(tmp_path, monkeypatch):
        drawn = exponential_choice(np.tile(np.array(scores, np.int64), (runs, 1)), rate=times * rate)
        shares.append((drawn == 0).mean())
    high, low = max(shares), min(shares)
    # Bounds five standard errors wide: a false alarm in less than one of a million audits.
    lower = high - 5 * math.sqrt(high * (1 - high) / runs)
    upper = low + 5 * math.sqrt(max(low, 1 / runs) / runs)
    assert (math.log(lower / upper) > EPSILON) == caught


@pytest.mark.statistical
def test_conversations_draw_by_the_scores_they_record(tmp_path, monkeypatch):
    table = describe("add-remove", "truncate")
    gaps = (
        Candidate(columns=("c",), estimate=partial(constant, 5, 0)),
        Candidate(columns=("d",), estimate=partial(constant, 3, 2)),
    )
    chances = np.exp(probabilities(*record(tmp_path, table, CROWD, gaps, monkeypatch)))
    assert 0.1 < chances[0] < 0.9
    runs = 60
    share = np.mean([run(tmp_path, table, CROWD, gaps) == 0 for _ in range(runs)])
    # Five standard errors: false alarm below 1e-6.
    assert abs(share - chances[0]) < 5 * math.sqrt(chances[0] * chances[1] / runs)
