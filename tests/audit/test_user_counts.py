"""The calibration of the contest's write-up of user-counts: what it costs, and that it cannot release.

What the recipe asks is audited in test_questions.py.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.audit.specimens import UserCountsAsWritten
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.measurement import Measurement, ask_cost


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


# The calibration as it was written.


def test_the_write_up_s_calibration_costs_twenty_times_what_it_claims(tmp_path):
    table = parse_table(
        "t",
        {"source": "t.parquet", "unit": "p", "max_records": 20, "columns": {"c": {"range": [0, 49]}}},
    )
    specimen = UserCountsAsWritten(table="t", by=("c",))
    request = specimen.specimen_request(table, Fraction(1))
    crowd = [(f"crowd{i}", i % 50) for i in range(200)]
    vectors = []
    for records in ([*crowd, *(("somebody", c) for c in range(20))], crowd):
        people, cells = zip(*records, strict=True)
        pq.write_table(pa.table({"p": people, "c": cells}), tmp_path / "t.parquet")
        counted = StatementEngine(tmp_path).count(table, (request.counted,), progress=lambda _: None)[0]
        vectors.append(counted.true_values)
    moved = vectors[0] - vectors[1]
    claimed = specimen.specimen_cost(table, Fraction(1))
    assert (claimed.sensitivity, claimed.epsilon, request.scale) == (1, 1, 1)
    assert np.abs(moved).sum() == 20
    assert math.isclose(math.sqrt((moved**2).sum()), math.sqrt(20))
    # The loss of the output that favours one table most: 20 answers with scale 1.
    assert np.abs(moved).sum() / request.scale == 20 * claimed.epsilon
    assert ask_cost(table, request).epsilon == 20 * claimed.epsilon
    replaced = replace(table, unit=replace(table.unit, neighbours="replace"))
    assert ask_cost(replaced, request).epsilon == 40 * claimed.epsilon


@pytest.mark.statistical
@pytest.mark.parametrize("honest", [True, False])
def test_the_black_box_sees_the_write_up_s_calibration(honest):
    """The event `noisy sum of twenty answers above 10` on neighbours that differ by one in each of them."""
    runs, scale = 20_000, Fraction(20 if honest else 1)
    means = []
    for each in (1, 0):
        noisy = add_noise(np.full(20 * runs, each), kind="laplace", scale=scale)
        means.append(float((noisy.reshape(runs, 20).sum(axis=1) >= 10).mean()))
    p, q = means
    low = p - 5 * math.sqrt(p * (1 - p) / runs)
    high = q + 5 * math.sqrt(q * (1 - q) / runs)
    assert (math.log(low / high) > 1) == (not honest)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_the_write_up_s_calibration_cannot_release(tmp_path, neighbours):
    columns = {"c": {"range": [0, 4]}, "d": {"values": ["x", "y"]}}
    rows = pa.table({"p": ["ana"], "c": [1], "d": ["x"]})
    file = write_project(tmp_path, columns, rows=rows, unit="p", max_records=9, neighbours=neighbours)
    curator = sf.open(file)
    factor = 18 if neighbours == "replace" else 9
    with pytest.raises(sf.RecipeError, match=f"specimen for audits .* {factor} times"):
        curator.release(UserCountsAsWritten(table="t", by=("c", "d")), epsilon=1)
    assert curator.budget().spent == 0
    assert not curator.ledger_path.exists()
