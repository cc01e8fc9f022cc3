"""Tries to break the bound of what is asked of a guide: sums with signs, adversarial people, planted faults.

With the noise off, exact sums of neighbouring tables must differ by no more than the declared sensitivity.
With the noise on, the best event must not prove more than is charged. Half the noise is noticed, and the
bound is met where signs are opposite.
"""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.accounting import mu_to_delta
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.counts import Marginal, Queries
from sfumato.core.questions.measurement import ask_cost, request_sensitivity
from sfumato.recipes.selection import calibrate
from sfumato.statements.engine import StatementEngine

SIGNS = Queries(
    cells=9,
    grid=1,
    starts=np.array([0, 6]),
    members=np.array([0, 1, 3, 4, 5, 8]),
    weights=np.array([1, -1, -1, 1, -1, 1]),
)
EVES = {
    "nothing": [],
    "one": [(0, 0)],
    "many where the sign is 1": [(0, 0)] * 400,
    "many where it is -1": [(0, 1)] * 400,
    "where no sign is": [(2, 0)] * 9,
    "everywhere": [(a, b) for a in range(3) for b in range(3)] * 5,
    "outside": [(7, 0), (0, -1), (None, 1), (0, 0)],
}


def describe(neighbours):
    columns = {"a": {"range": [0, 2]}, "b": {"range": [0, 2]}}
    unit = {"unit": "p", "max_records": 4, "neighbours": neighbours}
    return parse_table("t", {"source": "t.parquet", **unit, "columns": columns})


def add_up(folder, table, eve):
    """The exact sum with signs of a table with `eve` in it."""
    others = [(f"p{place}", place % 3, place % 2) for place in range(30)]
    rows = [*others, *(("eve", *each) for each in eve)]
    arrays = zip(*rows, strict=True)
    kinds = (pa.string(), pa.int64(), pa.int64())
    values = [pa.array(each, kind) for each, kind in zip(arrays, kinds, strict=True)]
    pq.write_table(pa.table(dict(zip(("p", "a", "b"), values, strict=True))), folder / "t.parquet")
    (counts,) = StatementEngine(folder).count(table, (Marginal(("a", "b")),), progress=lambda _: None)
    return int(SIGNS.apply(counts.true_values)[0])


def find_sums(folder, table):
    return {name: add_up(folder, table, eve) for name, eve in EVES.items()}


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_no_individual_moves_a_sum_further_than_declared(tmp_path, neighbours):
    table = describe(neighbours)
    request = calibrate(table, "guide: a x b", Marginal(("a", "b"), SIGNS), Fraction(1))
    sums = find_sums(tmp_path, table)
    other = sums.values() if neighbours == "replace" else [sums["nothing"]]
    moved = max(abs(one - two) for one in sums.values() for two in other)
    assert moved <= request_sensitivity(table, request)
    # The bound is met, so that half of it would be noticed.
    assert moved == (8 if neighbours == "replace" else 4) * table.grid


def prove_delta(one, two, epsilon):
    """The share of draws by which one table exceeds the other beyond epsilon, at the best threshold."""
    ends = np.quantile(np.concatenate((one, two)), np.linspace(0, 1, 200))
    above = [((one >= end).mean(), (two >= end).mean()) for end in ends]
    return max(first - math.exp(epsilon) * second for first, second in above)


@pytest.mark.statistical
@pytest.mark.parametrize("fault", [None, "half the noise"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_draws_prove_no_more_than_is_charged(tmp_path, neighbours, fault):
    table = describe(neighbours)
    request = calibrate(table, "guide: a x b", Marginal(("a", "b"), SIGNS), Fraction(1))
    mu = math.sqrt(ask_cost(table, request).mu_squared)
    scale = request.scale / (2 if fault else 1)
    sums = find_sums(tmp_path, table)
    pair = [
        sums["many where the sign is 1"],
        sums["many where it is -1" if neighbours == "replace" else "nothing"],
    ]
    draws = [add_noise(np.full(20_000, each), kind="gaussian", scale=scale) for each in pair]
    proven = [prove_delta(*draws, epsilon) - mu_to_delta(mu, epsilon) for epsilon in (0.0, 0.5, 1.0)]
    # Five standard deviations of a share of draws, twice.
    slack = 5 * math.sqrt(0.25 / 20_000) * (1 + math.e)
    assert (max(proven) > slack) == (fault is not None)
