"""Intervals of `WITHIN n%` miss in 5 % of all answers at most, although noisy values decide when to stop.

And what is spent is little more than what the least epsilon would have been, were the values known.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.core.noise import add_noise
from sfumato.curator.explain import answer_within
from sfumato.sql.plan import NoisyAggregates, least_epsilon
from sfumato.sql.statement import read_statement

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

LAPLACE = "DP-SELECT WITHIN {share}% COUNT(*) AS n FROM t"
# An individual may be in each of many groups, so that Gaussian noise is the smaller one.
GAUSSIAN = "DP-SELECT WITHIN {share}% DELTA 0.00001 g, COUNT(DISTINCT p) AS n FROM t GROUP BY g"


@pytest.mark.parametrize(
    ("text", "share", "count", "runs"),
    [
        (LAPLACE, 100, 20, 400),
        (LAPLACE, 50, 560, 400),
        (LAPLACE, 10, 5000, 400),
        (GAUSSIAN, 20, 2000, 100),
        (GAUSSIAN, 100, 1000, 40),
    ],
)
def test_intervals_miss_as_often_as_they_say_wherever_it_stops(text, share, count, runs):
    columns, rows = {"g": range(1, 61)}, pa.table({"p": [1], "g": [1]})
    curator = sf.from_frame(rows, name="t", unit="p", max_records=60, columns=columns, epsilon=1, delta=1e-4)
    desk = curator._desk()
    statement = read_statement(text.format(share=share))
    catalog = desk.catalog(statement)

    def measure(plan, **_):
        (noise,) = plan.noises
        # All groups but one are so large that they are never waited for.
        true_values = np.array([count] + [10**9] * (plan.groups - 1))
        noisy = add_noise(true_values, kind=noise.kind, scale=noise.scale)
        return NoisyAggregates(values=(noisy,)), plan.epsilon, None

    known = {}

    def plan_at(epsilon):
        if epsilon not in known:
            bare = replace(statement, within=None, epsilon=epsilon)
            known[epsilon] = desk.plan(bare, catalog, clip=False)
        return known[epsilon]

    oracle = float(least_epsilon(plan_at, statement.within.amount * count))
    missed, spent = 0, 0.0
    for _ in range(runs):
        answer = answer_within(statement.within, statement.delta, plan_at, measure)
        spent += float(answer.spent) / runs
        low, high = (answer.table[f"n_{end}"][0].as_py() for end in ("low", "high"))
        missed += not low <= count <= high
    assert missed / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    if share < 50:
        assert spent <= oracle * (1.1 if text == GAUSSIAN else 1.8)
