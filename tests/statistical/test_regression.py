"""Intervals of linear and logistic models hold the truth as often as they say, or are not given.

Records are drawn anew from a population for every run, and every run goes through the recipe's own questions,
the engine's own sums and exact noise. Each check would err in one case of ten thousand or less; noise and
records are seeded, so that it gives one verdict for ever.
"""

import numpy as np
import pytest

from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.measurement import Measurement, request_grid
from sfumato.core.questions.moments import Moments, MomentTally
from sfumato.recipes import Linear, Logistic
from sfumato.recipes.base import follow_recipe

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

RUNS, RECORDS = 60, 10_000


def release(recipe, table, codes, epsilon):
    """What `recipe` makes of records with these codes."""
    from fractions import Fraction

    plan = recipe.plan(table, epsilons=(Fraction(epsilon),), delta=Fraction(1, 10**6))

    def answer(asks):
        given = []
        for ask in asks:
            assert isinstance(ask.counted, Moments)
            tally = MomentTally(plan.table, ask.counted)
            tally.add(codes, None, rows=next(iter(codes.values())).size)
            noisy = add_noise(tally.finish(), kind=ask.noise, scale=ask.scale)
            given.append(Measurement(request=ask, noisy_values=noisy, grid=request_grid(plan.table, ask)))
        return tuple(given)

    _, product = follow_recipe(plan, answer=answer, progress=lambda _: None)
    return product.table.to_pydict()


def describe(columns):
    return parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})


def population(kind, count=300_000):
    """Codes of a population, the description of its columns, and its own coefficients."""
    random = np.random.default_rng(11)
    x = np.clip(np.rint(random.normal(50, 15, count)), 0, 100).astype(np.int64)
    label = random.choice(3, count, p=[0.6, 0.3, 0.1])
    spread = {"even": 8.0, "uneven": 0.2 * x, "linear": 8.0}.get(kind, 8.0)
    columns = {"x": {"range": [0, 100]}, "label": {"values": ["a", "b", "c"]}}
    inputs = np.column_stack([np.ones(count), x, label == 1, label == 2]).astype(float)
    if kind in ("even", "uneven"):
        y = 20 + 0.4 * x + 6 * (label == 1) - 4 * (label == 2) + spread * random.normal(size=count)
        y = np.clip(np.rint(y), 0, 100).astype(np.int64)
        columns["y"] = {"range": [0, 100]}
        truth = np.linalg.lstsq(inputs, y, rcond=None)[0]
    else:
        constant = {"common": -0.4, "rare": -3.0}[kind]
        predictor = constant + 0.04 * (x - 50) + 0.8 * (label == 1) - 0.6 * (label == 2)
        y = (random.random(count) < 1 / (1 + np.exp(-predictor))).astype(np.int64)
        columns["y"] = {"range": [0, 1]}
        truth = np.zeros(4)
        scaled = inputs * [1, 0.02, 1, 1]
        for _ in range(25):
            chance = 1 / (1 + np.exp(-scaled @ truth))
            hessian = (scaled * (chance * (1 - chance))[:, None]).T @ scaled
            truth = truth + np.linalg.solve(hessian, scaled.T @ (y - chance))
        truth = truth * [1, 0.02, 1, 1]
    return {"x": x, "label": label, "y": y}, describe(columns), truth


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3"])
@pytest.mark.parametrize("kind", ["even", "uneven", "common", "rare"])
def test_intervals_hold_the_truth_as_often_as_they_say(kind, epsilon):
    codes, table, truth = population(kind)
    recipe = (Linear if kind in ("even", "uneven") else Logistic)(table="t", target="y")
    random = np.random.default_rng(3)
    held = given = 0
    for _ in range(RUNS):
        drawn = random.integers(0, codes["x"].size, RECORDS)
        found = release(recipe, table, {name: each[drawn] for name, each in codes.items()}, epsilon)
        for place, known in enumerate(found["identified"]):
            given += known
            held += known and found["low_95"][place] <= truth[place] <= found["high_95"][place]
    if given < RUNS:
        return  # said plainly: not identified
    # Coefficients of one run are correlated, so that they count for half.
    slack = 4 * np.sqrt(0.05 * 0.95 / (given / 2))
    assert held / given > 0.95 - slack
    if kind != "rare":
        assert given == RUNS * 4 or epsilon == "0.5"


@pytest.mark.parametrize("kind", ["skewed", "even"])
def test_an_interval_holds_where_the_noise_hides_how_uneven_the_spread_is(kind):
    """A slope whose robust variance is three times that of equal variances, and is hardly seen."""
    random = np.random.default_rng(11)
    count, runs = 300_000, 400
    x = np.clip(np.rint(random.exponential(15, count)), 0, 100).astype(np.int64)
    spread = (5 + 1.5 * x) * random.exponential(1, count)
    y = spread if kind == "skewed" else 100 + 0.3 * x + 50 * random.normal(size=count)
    codes = {"x": x, "y": np.clip(np.rint(y), 0, 200).astype(np.int64)}
    table = describe({"x": {"range": [0, 100]}, "y": {"range": [0, 200]}})
    truth = np.polyfit(x, codes["y"], 1)[0]
    held = 0
    for _ in range(runs):
        drawn = random.integers(0, count, 5000)
        found = release(
            Linear(table="t", target="y"), table, {name: each[drawn] for name, each in codes.items()}, "2"
        )
        assert found["identified"][1]
        held += found["low_95"][1] <= truth <= found["high_95"][1]
    assert 0.93 <= held / runs <= 0.985
