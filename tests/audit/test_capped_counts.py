"""Tries to break capped-counts: adversarial neighbours, with everything recorded, and drawn.

Recorded, the scores and the rate of the choice, and the vectors and scales of the noise, must differ
between neighbours by no more than is declared. Drawn, neither the choice nor the counts may prove a larger
epsilon than is claimed. Negative controls show that a wrong rate, bound or scale is noticed.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato.core.noise
from helpers.asking import cells, converse
from sfumato.accounting import Cost
from sfumato.core.engine import counts
from sfumato.core.errors import RecipeError
from sfumato.core.facts.table import cap_records, parse_table
from sfumato.core.noise import add_noise, exponential_choice
from sfumato.core.questions.choices import CapChoice
from sfumato.core.questions.counts import CappedMarginal
from sfumato.core.questions.measurement import Request
from sfumato.recipes import CappedCounts
from sfumato.recipes.base import Plan, Product
from sfumato.statements.engine import StatementEngine

MAX_RECORDS = 6
EPSILON = Fraction(1)
SHARE = Fraction(1, 10)
RECIPE = CappedCounts(table="t", by=("c", "d"))
CROWD = [(f"crowd{i % 9}", i % 5, "xy"[i % 2]) for i in range(40)]
INDIVIDUALS = {
    "one record": [(1, "x")],
    "full, in one cell": [(1, "x")] * MAX_RECORDS,
    "full, over cells": [(i % 5, "xy"[i % 2]) for i in range(MAX_RECORDS)],
    "one over the cap": [(i % 5, "x") for i in range(MAX_RECORDS + 1)],
    "far over the cap, in one cell": [(2, "y")] * 200,
    "far over the cap, over cells": [(i % 5, "xy"[i % 2]) for i in range(200)],
    "missing": [(None, None), (None, "x"), (1, None)],
    "never seen": [(99, "zebra"), (-7, ""), (3, "x")] * 4,
}
UNITS = [("add-remove", "truncate"), ("add-remove", "weight"), ("replace", "truncate"), ("replace", "weight")]


def describe(neighbours="add-remove", bounding="truncate", **facts):
    spec = {
        "source": "t.parquet",
        "unit": "p",
        "max_records": MAX_RECORDS,
        "neighbours": neighbours,
        "bounding": bounding,
        "columns": {"c": {"range": [0, 4]}, "d": {"values": ["x", "y"], "outside": "other"}},
    }
    return parse_table("t", {**spec, **facts})


@dataclass
class Seen:
    """What was about to be chosen and noised."""

    scores: list[int] = field(default_factory=list)
    rate: Fraction = Fraction(0)
    noised: list[tuple[np.ndarray, Fraction]] = field(default_factory=list)


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


def run(folder, table, records, recipe=RECIPE, plan=None):
    engine = write(folder, records)
    plan = plan or recipe.plan(table, epsilons=(EPSILON,), delta=Fraction(0))
    with converse(plan, engine) as conversation:
        return conversation.run()


def record(folder, table, records, monkeypatch, *, index=2):
    """What a conversation hands to the noise, when the choice comes out as `index`."""
    seen = Seen()

    def choose(scores, *, rate):
        seen.scores, seen.rate = scores[0].tolist(), rate
        return np.array([index])

    def noise(values, *, kind, scale):
        assert kind == "laplace"
        seen.noised.append((values.copy(), scale))
        return values.copy()

    with monkeypatch.context() as patch:
        patch.setattr("sfumato.core.noise.exponential_choice", choose)
        patch.setattr("sfumato.core.noise.add_noise", noise)
        run(folder, table, records)
    return seen


def losses(one, two):
    """The part of epsilon that each of choice, total and counts costs between two recorded neighbours."""
    assert one.rate == two.rate
    assert [scale for _, scale in one.noised] == [scale for _, scale in two.noised]
    moved = [abs(a - b) for a, b in zip(one.scores, two.scores, strict=True)]
    parts = [2 * one.rate * max(moved)]
    for (first, scale), (second, _) in zip(one.noised, two.noised, strict=True):
        parts.append(Fraction(int(np.abs(first - second).sum())) / scale)
    return parts


ALLOWED = [EPSILON * SHARE / 2, EPSILON * SHARE / 2, EPSILON * (1 - SHARE)]


@pytest.mark.parametrize(("neighbours", "bounding"), UNITS)
@pytest.mark.parametrize("name", INDIVIDUALS)
def test_no_individual_costs_more_than_each_part_is_charged(
    tmp_path, monkeypatch, name, neighbours, bounding
):
    table = describe(neighbours, bounding)
    person = [("somebody", c, d) for c, d in INDIVIDUALS[name]]
    other = [("somebody", 0, "x")] * 50 if neighbours == "replace" else []
    for index in (0, 3) if name.startswith("far") else (3,):
        one = record(tmp_path, table, CROWD + person, monkeypatch, index=index)
        two = record(tmp_path, table, other + CROWD[::-1], monkeypatch, index=index)
        parts = losses(one, two)
        assert all(part <= most for part, most in zip(parts, ALLOWED, strict=True)), parts


def probabilities(scores, rate):
    logs = np.array([float(rate * (score - max(scores))) for score in scores])
    return logs - math.log(np.exp(logs).sum())


HEAVY = [("somebody", 2, "y")] * 200


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_every_part_is_reached(tmp_path, monkeypatch, bounding):
    table = describe(bounding=bounding)
    one = record(tmp_path, table, CROWD + HEAVY, monkeypatch)
    two = record(tmp_path, table, CROWD, monkeypatch)
    parts = losses(one, two)
    assert max(abs(a - b) for a, b in zip(one.scores, two.scores, strict=True)) == MAX_RECORDS - 1
    assert parts[0] == ALLOWED[0]
    assert all(part > 0.99 * most for part, most in zip(parts[1:], ALLOWED[1:], strict=True))


def test_replacing_reaches_every_part_of_the_counts(tmp_path, monkeypatch):
    table = describe("replace")
    other = [("somebody", 0, "x")] * 200
    one, two = (record(tmp_path, table, CROWD + each, monkeypatch) for each in (HEAVY, other))
    assert losses(one, two)[2] == ALLOWED[2]
    # By the number of records that are cut off, to replace is no worse than to remove.
    one, two = (record(tmp_path, table, CROWD + each, monkeypatch) for each in (HEAVY, other[:1]))
    assert losses(one, two)[0] == ALLOWED[0]


def test_the_choice_stays_within_its_epsilon_and_twice_the_rate_is_caught(tmp_path, monkeypatch):
    table = describe()
    one = record(tmp_path, table, CROWD + HEAVY, monkeypatch)
    two = record(tmp_path, table, CROWD, monkeypatch)

    def worst(times):
        first, second = (probabilities(each.scores, times * each.rate) for each in (one, two))
        return float(np.abs(first - second).max())

    assert worst(1) <= ALLOWED[0] + 1e-9
    # All scores fall together, so that no ratio uses more than half of what is allowed.
    assert worst(1) > 0.2 * ALLOWED[0]
    assert losses(one, two)[0] * 2 > ALLOWED[0]


def test_records_that_are_not_held_in_the_choice_are_caught(tmp_path, monkeypatch):
    def unbounded(table, choice):
        return original(describe(max_records=10**6), choice)

    original = counts.lost_query
    monkeypatch.setattr("sfumato.core.engine.counts.lost_query", unbounded)
    table = describe()
    one = record(tmp_path, table, CROWD + HEAVY, monkeypatch)
    two = record(tmp_path, table, CROWD, monkeypatch)
    assert losses(one, two)[0] > ALLOWED[0]


def test_counts_that_are_held_to_the_wrong_bound_are_caught(tmp_path, monkeypatch):
    monkeypatch.setattr("sfumato.core.engine.base.cap_records", lambda table, most: table)
    table = describe()
    one = record(tmp_path, table, CROWD + HEAVY, monkeypatch, index=2)
    two = record(tmp_path, table, CROWD, monkeypatch, index=2)
    assert losses(one, two)[2] == 2 * ALLOWED[2]


class Asks:
    """A recipe that asks what it is given."""

    kind, table = "asks", "t"

    def __init__(self, *asks):
        self.asks = asks

    def to_record(self):
        return {"recipe": self.kind}

    def run(self, plan, *, progress):
        yield self.asks
        return Product(table=pa.table({"one": [1]}))


def plan_of(table, *asks, epsilon=EPSILON):
    cost = Cost(kind="pure", scale=epsilon, neighbours=table.unit.neighbours, unit="p")
    return Plan(
        recipe=Asks(*asks),
        table=table,
        requests=(),
        epsilons=(epsilon,),
        delta=Fraction(0),
        allowance=(cost,),
        counted=(),
        clipped=(("c", "d"),),
    )


def test_more_records_than_the_table_counts_buy_no_less_noise(tmp_path, monkeypatch):
    table = describe()
    ask = Request(
        name="n", counted=CappedMarginal(("c", "d"), 10**6), noise="laplace", scale=Fraction(MAX_RECORDS)
    )
    seen = []
    monkeypatch.setattr(
        "sfumato.core.noise.add_noise", lambda values, *, kind, scale: seen.append(values) or values.copy()
    )
    for records in (CROWD + HEAVY, CROWD):
        run(tmp_path, table, records, plan=plan_of(table, ask))
    assert np.abs(seen[0] - seen[1]).sum() == MAX_RECORDS
    less = Request(name="n", counted=CappedMarginal(("c", "d"), 10**6), noise="laplace", scale=Fraction(5))
    with pytest.raises(RecipeError, match="more than its plan charges"):
        run(tmp_path, table, CROWD, plan=plan_of(table, less))


@pytest.mark.parametrize("caps", [(MAX_RECORDS, MAX_RECORDS + 1), (MAX_RECORDS + 3, MAX_RECORDS + 5)])
def test_bounds_beyond_the_records_of_the_table(tmp_path, caps):
    choice = CapChoice(name="n", columns=("c",), caps=caps, penalties=(0, 0), epsilon=EPSILON)
    table = describe()
    with pytest.raises(RecipeError, match="beyond max_records"):
        run(tmp_path, table, CROWD, plan=plan_of(table, choice))


def draw_counts(folder, table, records, runs, *, bound, factor=1):
    """Noisy counts under one bound, `runs` times."""
    engine = write(folder, records)
    plan = RECIPE.plan(table, epsilons=(EPSILON,), delta=Fraction(0))
    ask = RECIPE._counts(table, EPSILON, "", bound=bound)
    with (
        converse(plan, engine) as conversation,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(
            "sfumato.core.noise.add_noise",
            lambda values, *, kind, scale: add_noise(values, kind=kind, scale=scale * factor),
        )
        (capped,) = engine.count(cap_records(table, bound), cells((ask.columns,)), progress=lambda _: None)
        drawn = [conversation._add_noise(ask, capped, sfumato.core.noise).noisy_values for _ in range(runs)]
    return np.stack(drawn), capped.true_values, ask.scale


def noise_is_right(drawn, scale):
    """Whether the mean of |noise| is that of its law, to 5 standard errors (false alarm below 1e-6)."""
    q = math.exp(-1 / float(scale))
    mean = 2 * q / (1 - q**2)
    deviation = math.sqrt(2 * q / (1 - q) ** 2 - mean**2)
    return abs(np.abs(drawn).mean() - mean) < 5 * deviation / math.sqrt(drawn.size)


@pytest.mark.statistical
@pytest.mark.parametrize("bound", [1, 3, 6])
@pytest.mark.parametrize(("factor", "right"), [(1, True), (Fraction(1, 2), False), (2, False)])
def test_counts_carry_the_noise_of_the_bound(tmp_path, bound, factor, right):
    table = describe()
    drawn, true, scale = draw_counts(tmp_path, table, CROWD, 400, bound=bound, factor=factor)
    assert scale == bound / (EPSILON * (1 - SHARE))
    assert noise_is_right(drawn - true, scale) == right


@pytest.mark.statistical
def test_whole_conversations_carry_the_noise_of_the_bound_they_chose(tmp_path):
    """Residuals of 12 releases, each divided by the scale of its own bound."""
    table, residuals = describe(), []
    exact = {}
    for _ in range(12):
        (_, total, counts), _ = run(tmp_path, table, CROWD)
        bound = counts.request.counted.max_records
        if bound not in exact:
            _, exact[bound], _ = draw_counts(tmp_path, table, CROWD, 1, bound=bound)
        residuals.append((counts.noisy_values - exact[bound]) / float(counts.request.scale))
        assert total.request.scale == MAX_RECORDS / ALLOWED[1]
    # The mean of |noise| / scale is near 1 with deviation near 1; the lattice moves it by less than 15 %.
    mean = np.abs(np.concatenate(residuals)).mean()
    assert abs(mean - 1) < 0.15 + 5 / math.sqrt(12 * 15)


def lower_bound(first, second, runs):
    """The epsilon that an event of these shares proves, each taken five standard errors the safe way."""
    high, low = max(first, second), min(first, second)
    lower = high - 5 * math.sqrt(high * (1 - high) / runs)
    upper = low + 5 * math.sqrt(max(low, 1 / runs) / runs)
    return math.log(lower / upper)


@pytest.mark.statistical
@pytest.mark.parametrize(("factor", "caught"), [(1, False), (Fraction(1, 3), True)])
def test_the_black_box_sees_wrong_counts_and_not_right_ones(tmp_path, factor, caught):
    """The individual's cell, above its expected value, on the worst neighbours."""
    runs, table, cell = 3000, describe(), 2 * 3 + 1
    shares = []
    for records in (CROWD + HEAVY, CROWD):
        drawn, _, _ = draw_counts(tmp_path, table, records, runs, bound=4, factor=factor)
        shares.append(drawn[:, cell])
    line = np.median(shares[0])
    epsilon = lower_bound((shares[0] >= line).mean(), (shares[1] >= line).mean(), runs)
    assert (epsilon > EPSILON * (1 - SHARE)) == caught


@pytest.mark.statistical
@pytest.mark.parametrize(("times", "caught"), [(1, False), (3, True)])
def test_the_black_box_sees_a_wrong_rate_and_not_a_right_one(times, caught):
    """Two bounds of which the individual moves one alone, by all it can; the other is rare."""
    runs, epsilon = 200_000, Fraction(1)
    choice = CapChoice(name="n", columns=("c",), caps=(1, 6), penalties=(0, 0), epsilon=epsilon)
    rate = times * choice.epsilon / (2 * (MAX_RECORDS - 1))
    shares = []
    for moved in (0, MAX_RECORDS - 1):
        scores = np.tile(np.array([-40 // times - moved, 0]), (runs, 1))
        shares.append((exponential_choice(scores, rate=rate) == 0).mean())
    assert (lower_bound(*shares, runs) > epsilon) == caught


@pytest.mark.statistical
def test_conversations_choose_by_the_scores_they_record(tmp_path, monkeypatch):
    table = describe()
    seen = record(tmp_path, table, CROWD + HEAVY, monkeypatch)
    chances = np.exp(probabilities(seen.scores, seen.rate))
    choice, _ = RECIPE._first_asks(table, EPSILON, "")
    runs = 4000
    plan = RECIPE.plan(table, epsilons=(EPSILON,), delta=Fraction(0))
    (lost,) = StatementEngine(tmp_path).count(table, (choice,), progress=lambda _: None)
    with converse(plan, StatementEngine(tmp_path)) as conversation:
        chosen = [
            conversation._choose(choice, {(None, choice): lost}, sfumato.core.noise).index
            for _ in range(runs)
        ]
    shares = np.bincount(chosen, minlength=MAX_RECORDS) / runs
    # 5.5 standard errors: for the six together, less than one false alarm in a million.
    assert (np.abs(shares - chances) < 5.5 * np.sqrt(chances * (1 - chances) / runs)).all()
