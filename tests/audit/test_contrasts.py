"""Tries to break the bound of contrasts: signed sums of one marginal, adversarial people, planted faults.

With the noise off, exact contrasts of neighbouring tables must differ by no more than the declared
sensitivity. With the noise on, the direction in which an individual moves them must not prove more than is
charged; half the noise is noticed.
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
from sfumato.core.questions.counts import Marginal
from sfumato.core.questions.measurement import ask_cost, request_sensitivity
from sfumato.inference import Domain
from sfumato.recipes.contrasts import take_contrasts
from sfumato.recipes.selection import Compression, calibrate
from sfumato.statements.engine import StatementEngine

SIZES = {"a": 2, "b": 3}
EVES = {
    "nothing": [],
    "one": [(0, 0)],
    "many alike": [(1, 2)] * 400,
    "many apart": [(0, 0), (1, 1)] * 200,
    "everywhere": [(a, b) for a in range(2) for b in range(3)] * 5,
    "outside": [(7, 0), (0, -1), (None, 1), (0, 0)],
}


def describe(bounding):
    columns = {name: {"range": [0, size - 1]} for name, size in SIZES.items()}
    unit = {"unit": "p", "max_records": 4, "bounding": bounding}
    return parse_table("t", {"source": "t.parquet", **unit, "columns": columns})


def ask(table):
    """The request for contrasts along both columns."""
    singles = {name: (np.full(size, 100.0), 1.0) for name, size in SIZES.items()}
    contrasts = take_contrasts(Compression(Domain(SIZES), singles), ("a", "b"))
    assert contrasts.along == ("a", "b")
    return calibrate(table, "pair 1: a x b", Marginal(("a", "b"), contrasts.queries), Fraction(1))


def find_contrasts(folder, table, request):
    """The exact contrasts of tables, each with another Eve in it."""
    found = {}
    for name, eve in EVES.items():
        rows = [(f"p{place}", place % 2, place % 3) for place in range(30)]
        columns = zip(*rows, *(("eve", *each) for each in eve), strict=True)
        kinds = (pa.string(), pa.int64(), pa.int64())
        values = [pa.array(each, kind) for each, kind in zip(columns, kinds, strict=True)]
        pq.write_table(pa.table(dict(zip(("p", "a", "b"), values, strict=True))), folder / "t.parquet")
        (counts,) = StatementEngine(folder).count(table, (Marginal(("a", "b")),), progress=lambda _: None)
        found[name] = request.queries.apply(counts.true_values)
    return found


@pytest.mark.parametrize("bounding", ["truncate", "weight"])
def test_no_individual_moves_contrasts_further_than_declared(tmp_path, bounding):
    table = describe(bounding)
    request = ask(table)
    found = find_contrasts(tmp_path, table, request)
    moved = max(float(np.linalg.norm((each - found["nothing"]).astype(float))) for each in found.values())
    declared = float(request_sensitivity(table, request))
    assert moved <= declared
    assert moved > 0.98 * declared, "the bound is met, so that half of it would be noticed"


@pytest.mark.statistical
@pytest.mark.parametrize("fault", [None, "half the noise"])
def test_draws_prove_no_more_than_is_charged(tmp_path, fault):
    table = describe("truncate")
    request = ask(table)
    mu = math.sqrt(ask_cost(table, request).mu_squared)
    found = find_contrasts(tmp_path, table, request)
    direction = (found["many alike"] - found["nothing"]).astype(float)
    draws = []
    for exact in (found["many alike"], found["nothing"]):
        noisy = add_noise(np.tile(exact, 20_000), kind="gaussian", scale=request.scale / (2 if fault else 1))
        draws.append(noisy.reshape(20_000, -1) @ direction)
    ends = np.quantile(np.concatenate(draws), np.linspace(0, 1, 200))
    above = [tuple((each >= end).mean() for each in draws) for end in ends]
    proven = [
        max(first - math.exp(epsilon) * second for first, second in above) - mu_to_delta(mu, epsilon)
        for epsilon in (0.0, 0.5, 1.0)
    ]
    # Five standard deviations of a share of draws, twice.
    slack = 5 * math.sqrt(0.25 / 20_000) * (1 + math.e)
    assert (max(proven) > slack) == (fault is not None)
