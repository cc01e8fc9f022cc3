"""Intervals of evaluations hold the truth as often as they say, or are not given.

People are drawn anew from a population for every run, and every run goes through the recipe's own questions,
the engine's own counts and exact noise. The model is fixed: the truth is how it does on the population. Each
check would err in one case of a thousand or less; noise and people are seeded, so that it gives one verdict
for ever.
"""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from sfumato.core.facts.part import Part
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.measurement import Measurement, request_grid
from sfumato.inference.models.document import pack_model
from sfumato.recipes import Linear, Logistic
from sfumato.recipes.shared import evaluation

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

RUNS, PEOPLE = 400, 400_000
MU_SQUARED = {"0.5": 0.1241**2, "1": 0.2367**2, "3": 0.6477**2}  # at delta 1e-6
HELD = Part(name="held out", low=Fraction(0), high=Fraction(1), columns=("x", "y"))


def judge(plan, document, codes, budget):
    """How the model of `document` is judged by records with these codes."""
    product = SimpleNamespace(files={"model.json": pack_model(document)})
    run = evaluation._judge(plan, product, HELD, Fraction(budget))
    asks = next(run)
    while True:
        given = []
        for ask in asks:
            tally = ask.counted.start(plan.table)
            tally.add(codes, None, rows=codes["x"].size)
            noisy = add_noise(tally.finish(), kind=ask.noise, scale=ask.scale)
            given.append(Measurement(request=ask, noisy_values=noisy, grid=request_grid(plan.table, ask)))
        try:
            asks = run.send(tuple(given))
        except StopIteration as done:
            return done.value


def describe(recipe, **target):
    columns = {"x": {"range": [0, 200]}, "y": target}
    table = parse_table("t", {"source": "t", "unit": "row", "columns": columns})
    return recipe.plan(table, epsilons=(Fraction(1),), delta=Fraction(1, 10**6))


def header(plan, recipe, coefficient, constant, **more):
    from sfumato.core.facts.column import column_spec

    terms = [
        {"column": None, "coefficient": constant},
        {"column": "x", "low": "0", "high": "200", "coefficient": coefficient},
    ]
    columns = {"x": column_spec(plan.table.columns["x"])}
    return {"recipe": recipe, "target": "y", "columns": columns, "terms": terms, **more}


def covered(found, key, truth):
    return None if key not in found else found[key]["low_95"] <= truth <= found[key]["high_95"]


def share(held):
    """The share of intervals that hold the truth, of those that were given, and how many were not."""
    given = [each for each in held if each is not None]
    return float(np.mean(given)) if given else None, 1 - len(given) / len(held)


# The population of log odds: their mean, their spread, and how steep the truth is along them.
CLASSES = {
    "common": (-1.2, 1.8, 1.0),
    "rare": (-3.0, 1.5, 1.0),
    "weak": (0.0, 0.4, 1.0),
    "steep": (0.0, 1.8, 0.6),
}


def cover(plan, document, x, y, truths, epsilon, random):
    """For every figure how often its interval holds the truth, and how often there is none."""
    held = {key: [] for key in truths}
    for _ in range(RUNS):
        chosen = random.integers(0, PEOPLE, random.poisson(6000))
        found = judge(plan, document, {"x": x[chosen], "y": y[chosen]}, MU_SQUARED[epsilon])
        for key, truth in truths.items():
            held[key].append(covered(found, key, truth))
    return [(key, *share(each)) for key, each in held.items()]


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("epsilon", MU_SQUARED)
def test_intervals_of_classifications_cover(kind, epsilon):
    mean, spread, slope = CLASSES[kind]
    random = np.random.default_rng([11, *kind.encode(), *epsilon.encode()])
    plan = describe(Logistic(table="t", target="y"), values=["no", "yes"])
    x = np.clip(np.rint(random.normal(100, 30, PEOPLE)), 0, 200).astype(np.int64)
    odds = mean + spread * (x - 100) / 30
    y = (random.random(PEOPLE) < 1 / (1 + np.exp(-(mean + slope * (odds - mean))))).astype(np.int64)
    document = header(
        plan,
        "logistic",
        spread / 30,
        mean - spread * 100 / 30,
        family="classification",
        classes=["no", "yes"],
    )
    positive, negative = np.bincount(x[y == 1], minlength=201), np.bincount(x[y == 0], minlength=201)
    below = np.cumsum(negative) - negative / 2
    truths = {
        "auroc": float((positive * below).sum() / (positive.sum() * negative.sum())),
        "accuracy": float(((odds > 0) == (y == 1)).mean()),
        "log_loss": float(np.log1p(np.exp(np.where(y == 1, -odds, odds))).mean()),
    }
    for key, coverage, missing in cover(plan, document, x, y, truths, epsilon, random):
        # 400 runs move the share by about 0.011; 0.95 gives less in one case of ten thousand.
        assert coverage is None or coverage > 0.905, (key, coverage)
        assert missing < 0.05 or (kind == "rare" and epsilon == "0.5"), (key, missing)


@pytest.mark.parametrize("kind", ["even", "uneven"])
@pytest.mark.parametrize("epsilon", MU_SQUARED)
def test_intervals_of_numbers_cover(kind, epsilon):
    plan = describe(Linear(table="t", target="y"), range=[0, 1000])
    random = np.random.default_rng([11, *kind.encode(), *epsilon.encode()])
    x = np.clip(np.rint(random.normal(100, 30, PEOPLE)), 0, 200).astype(np.int64)
    predicted = 200.0 + 2.0 * x
    spread = 60.0 if kind == "even" else 0.6 * x
    y = np.clip(np.rint(predicted + spread * random.normal(size=PEOPLE)), 0, 1000).astype(np.int64)
    document = header(plan, "linear", 2.0, 200.0, family="regression", bounds=["0", "1000"])
    rmse = float(np.sqrt(((y - predicted) ** 2).mean()))
    truths = {"rmse": rmse, "r_squared": 1 - rmse**2 / float(y.var())}
    for key, coverage, missing in cover(plan, document, x, y, truths, epsilon, random):
        assert coverage is None or coverage > 0.905, (key, coverage)
        assert missing < 0.1 or epsilon == "0.5", (key, missing)


def test_an_interval_of_the_noise_or_of_the_draw_alone_is_noticed(monkeypatch):
    """A control: without the noise in it, an interval at epsilon 0.5 holds far too seldom."""
    from sfumato.inference.models import evaluation as figures

    plain = figures._vary
    monkeypatch.setattr(
        figures, "_vary", lambda counts, slopes, _, effect: plain(counts, slopes, 0.0, effect)
    )
    with pytest.raises(AssertionError):
        test_intervals_of_classifications_cover("common", "0.5")
