"""The published experiment in small: adaptive selection fools a plain holdout, and not a guarded one.

Rows and noise come from fixed seeds. The bounds on what the guard does are wide: the mean of a few runs would
have to err by five of its standard deviations or more.
"""

import math

import numpy as np
import pytest

from sfumato.holdout import HoldoutPlan, ReusableHoldout, plan_holdout

pytestmark = pytest.mark.statistical

ROWS, FEATURES, CHOSEN, RUNS = 1000, 1000, 60, 4


def invent(generator, signals):
    y = np.where(generator.random(ROWS) < 0.5, -1, 1)
    X = generator.standard_normal((ROWS, FEATURES))
    X[:, :signals] += 6 / math.sqrt(ROWS) * y[:, None]
    return X, y


def agreement(X, y, feature):
    return X[:, feature] * y > 0


def vote(X, y, weights):
    return (X @ weights > 0) == (y > 0)


def select(train, answer):
    """Signs for the features on which training rows and answers agree, largest first."""
    ours = np.array([agreement(*train, feature).mean() for feature in range(FEATURES)]) - 0.5
    theirs = np.array([answer(feature) for feature in range(FEATURES)]) - 0.5
    agree = (np.sign(ours) == np.sign(theirs)) & (np.minimum(abs(ours), abs(theirs)) >= 0.5 / math.sqrt(ROWS))
    best = np.argsort(-np.where(agree, abs(ours), 0))[:CHOSEN]
    weights = np.zeros(FEATURES)
    weights[best[agree[best]]] = np.sign(ours[best[agree[best]]])
    return weights


def gaps(signals, make_plan, runs=RUNS):
    """The mean over runs of a plain gap, a guarded gap, and the noise of the guard's report.

    A gap is the exact accuracy on the holdout minus that on fresh rows, of the features that were selected.
    """
    found = []
    for run in range(runs):
        generator = np.random.default_rng([run, signals])
        train, holdout, fresh = (invent(generator, signals) for _ in range(3))
        plain = select(train, lambda feature, rows=holdout: agreement(*rows, feature).mean())
        guard = ReusableHoldout(train, holdout, plan=make_plan())
        kept = select(train, lambda feature, guard=guard: guard.query(lambda X, y: agreement(X, y, feature)))
        reported = guard.query(lambda X, y, weights=kept: vote(X, y, weights))
        found.append(
            (
                vote(*holdout, plain).mean() - vote(*fresh, plain).mean(),
                vote(*holdout, kept).mean() - vote(*fresh, kept).mean(),
                reported - vote(*holdout, kept).mean(),
            )
        )
    return np.mean(found, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("signals", [0, 5])
def test_the_guard_reports_what_fresh_rows_show(signals):
    plain, guarded, noise = gaps(signals, lambda: plan_holdout(ROWS, questions=2000, budget=500))
    assert plain > 0.07
    # Two accuracies of 1000 rows differ by chance with a standard deviation of 0.022; the noise has 0.032.
    assert abs(guarded) < 5 * 0.022 / math.sqrt(RUNS)
    assert abs(noise) < 5.5 * 0.032 / math.sqrt(RUNS)


def test_without_noise_and_threshold_the_guard_is_a_plain_holdout():
    def bare():
        return HoldoutPlan(rows=ROWS, questions=2000, budget=2000, threshold=0, sigma="1e-9")

    plain, guarded, noise = gaps(0, bare, runs=1)
    assert guarded > 0.07
    assert guarded == pytest.approx(plain, abs=0.03)
    assert abs(noise) < 1e-6


def test_answers_have_the_noise_that_is_planned():
    plan = HoldoutPlan(rows=100, questions=1500, budget=1500, threshold=0, sigma="0.05")
    guard = ReusableHoldout(np.zeros(10), np.ones(100), plan=plan)
    errors = np.array([guard.query(lambda rows: rows / 2) for _ in range(1500)]) - 0.5
    assert abs(errors.mean()) < 5.5 * 0.05 / math.sqrt(1500)
    assert abs(errors.std() / 0.05 - 1) < 5.5 / math.sqrt(2 * 1500)


def test_laplace_answers_have_the_noise_that_is_planned():
    plan = HoldoutPlan(rows=100, questions=1500, budget=1500, threshold=0, sigma="0.01", noise="laplace")
    guard = ReusableHoldout(np.zeros(10), np.ones(100), plan=plan)
    errors = np.array([guard.query(lambda rows: rows / 2) for _ in range(1500)]) - 0.5
    assert abs(np.abs(errors).mean() / 0.01 - 1) < 5.5 / math.sqrt(1500)
