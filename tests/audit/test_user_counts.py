"""When user-counts sets numbers below zero to 0.

What the recipe asks is audited in test_questions.py.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

import sfumato as sf
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.measurement import Measurement


@pytest.mark.statistical
def test_clipping_before_adding_up_is_biased_upwards_and_after_is_not():
    # 20,000 cells in which 1000 individuals have one record and nobody has two.
    table = parse_table(
        "t",
        {"source": "t.parquet", "unit": "p", "max_records": 4, "columns": {"c": {"range": [1, 20_000]}}},
    )
    means, errors = {}, {}
    for rounding in ("after", "before"):
        recipe = sf.recipes.UserCounts(table="t", by=["c"], max_cells=4, rounding=rounding)
        plan = recipe.plan(table, epsilons=(Fraction(1),), delta=Fraction(0))
        (request,) = plan.requests
        noisy = add_noise(np.tile([1000, 0], 20_000), kind="laplace", scale=request.scale)
        run = recipe.run(plan, progress=lambda _: None)
        next(run)
        with pytest.raises(StopIteration) as done:
            run.send((Measurement(request=request, noisy_values=noisy),))
        counts = done.value.value.table["count"].to_numpy()
        means[rounding] = counts.mean() - 1000
        errors[rounding] = counts.std() / math.sqrt(counts.size)
    q = math.exp(-1 / 4)
    expected = 2 * q / (1 - q**2)  # two records times the mean of the noise above zero
    assert abs(means["after"]) < 5 * errors["after"]
    assert means["before"] > 5 * errors["before"]
    assert abs(means["before"] - expected) < 5 * errors["before"]
