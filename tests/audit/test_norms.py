"""Tries to break the bound of requests with a norm: adversarial individuals, noise off and noise on.

With the noise off, exact answers for neighbouring tables must differ by no more than the declared
sensitivity. With the noise on, an event that tells neighbours apart as well as possible must not prove a
larger epsilon than is claimed. Negative controls show that a clip that is skipped or too wide is noticed.
"""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.accounting import discrete_gaussian_sigma, mu_to_epsilon
from sfumato.core.engine import counts
from sfumato.core.exact import parse_exact
from sfumato.core.facts.table import parse_table
from sfumato.core.noise import add_noise
from sfumato.core.questions.choices import NormChoice
from sfumato.core.questions.counts import NORM_GRID, ClippedMarginal, Queries
from sfumato.core.questions.measurement import Request, ask_cost, request_sensitivity
from sfumato.statements.engine import StatementEngine

NORM = Fraction(7, 2)
CROWD = [(f"crowd{i}", float(i % 5), "xy"[i % 2]) for i in range(30)]
INDIVIDUALS = {
    "one record": [(1.0, "x")],
    "at the norm, in one cell": [(1.0, "x")] * 3,
    "over the norm, in one cell": [(2.0, "y")] * 5000,
    "a record in each cell": [(float(i % 5), "xy"[i % 2]) for i in range(10)],
    "over the norm, over cells": [(float(i % 5), "xy"[i % 2]) for i in range(5000)],
    "many in one cell, one in another": [(0.0, "x")] * 5000 + [(3.0, "y")],
    "not a number": [(math.nan, "x"), (math.inf, "x"), (-math.inf, "y"), (1e300, "x"), (2.5, "x")] * 9,
    "missing": [(None, None), (None, "x"), (1.0, None)] * 9,
    "nothing": [],
}


def describe(neighbours="add-remove"):
    spec = {
        "source": "t.parquet",
        "unit": "p",
        "max_records": 1,
        "neighbours": neighbours,
        "columns": {
            "c": {"range": [0, 4], "outside": "clamp"},
            "d": {"values": ["x", "y"], "outside": "other"},
        },
    }
    return parse_table("t", spec)


def make_queries(dense, grid):
    members = [np.flatnonzero(row) for row in dense]
    return Queries(
        cells=dense.shape[1],
        grid=grid,
        starts=np.cumsum([0, *(each.size for each in members)]),
        members=np.concatenate(members),
        weights=np.concatenate([row[each] for row, each in zip(dense, members, strict=True)]),
    )


CELLS = np.arange(15)
QUERIES = {
    "cells": None,
    "sums": make_queries(np.stack([CELLS >= 0, CELLS >= 7]).astype(np.int64) * 7, 10),
    "differences": make_queries(np.stack([(-1) ** CELLS, np.where(CELLS < 7, 1, -1)]) * 700_000, 2**20),
}


def ask(queries=None, scale=Fraction(10)):
    return Request(
        name="r", counted=ClippedMarginal(("c", "d"), NORM, queries), noise="gaussian", scale=scale
    )


def write(folder, records):
    table = pa.table(
        {
            "p": pa.array([p for p, _, _ in records], pa.string()),
            "c": pa.array([c for _, c, _ in records], pa.float64()),
            "d": pa.array([d for _, _, d in records], pa.string()),
        }
    )
    pq.write_table(table, folder / "t.parquet")
    return StatementEngine(folder)


def answer(folder, records, request):
    """The exact answers, as whole numbers of any size."""
    engine = write(folder, records)
    (counted,) = engine.count(describe(), tuple(each.counted for each in (request,)), progress=lambda _: None)
    return counted.true_values.astype(object)


def person(name):
    return [("somebody", c, d) for c, d in INDIVIDUALS[name]]


def find_violation(folder, records, others, request, *, neighbours="add-remove"):
    """What is wrong between two neighbouring tables, or None."""
    difference = answer(folder, records, request) - answer(folder, others, request)
    declared = request_sensitivity(describe(neighbours), request)
    if sum(difference**2) > declared**2:
        return f"distance above the declared {float(declared):g}"
    return None


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("name", INDIVIDUALS)
def test_no_individual_moves_the_answers_beyond_the_norm(tmp_path, name, queries):
    for crowd in (CROWD, []):
        assert find_violation(tmp_path, crowd + person(name), crowd, ask(QUERIES[queries])) is None


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("name", INDIVIDUALS)
def test_exchanging_an_individual_stays_within_the_replace_bound(tmp_path, name, queries):
    one = [("somebody", 2.0, "y")] * 5000
    request = ask(QUERIES[queries])
    found = find_violation(tmp_path, CROWD + one, CROWD + person(name), request, neighbours="replace")
    assert found is None


def test_the_bound_is_used_up(tmp_path):
    moved, without = (
        answer(tmp_path, records, ask()) for records in (CROWD + person("over the norm, over cells"), CROWD)
    )
    declared = float(request_sensitivity(describe(), ask()))
    assert math.sqrt(sum((moved - without) ** 2)) == pytest.approx(declared, rel=0.01)


def test_opposite_answers_need_twice_the_norm_and_are_declared_so(tmp_path):
    # Cells of even and odd number have opposite weights in both queries if they lie on either side.
    request = ask(QUERIES["differences"])
    one, other = ([("somebody", c, d)] * 100 for c, d in ((0.0, "x"), (4.0, "y")))
    difference = answer(tmp_path, CROWD + one, request) - answer(tmp_path, CROWD + other, request)
    distance = math.sqrt(sum(difference**2))
    single = float(request_sensitivity(describe(), request))
    assert math.sqrt(2) * single < distance <= float(request_sensitivity(describe("replace"), request))
    assert request_sensitivity(describe("replace"), request) == 2 * request_sensitivity(describe(), request)
    assert request_sensitivity(describe("replace"), ask()) < 2 * request_sensitivity(describe(), ask())


def skip_clip(monkeypatch):
    monkeypatch.setattr(counts, "scale_factor", lambda bound: f"CAST({NORM_GRID} AS BIGINT)")


@pytest.mark.parametrize("queries", QUERIES)
def test_a_clip_that_is_skipped_is_caught(tmp_path, monkeypatch, queries):
    skip_clip(monkeypatch)
    records = CROWD + person("over the norm, in one cell")
    assert "above the declared" in find_violation(tmp_path, records, CROWD, ask(QUERIES[queries]))


def test_a_clip_at_twice_the_norm_is_caught(tmp_path, monkeypatch):
    original = counts.scale_factor
    monkeypatch.setattr(counts, "scale_factor", lambda bound: original(2 * bound))
    records = CROWD + person("over the norm, in one cell")
    assert "above the declared" in find_violation(tmp_path, records, CROWD, ask())


def prove_epsilon(folder, records, others, request, *, delta, runs):
    """A lower bound of epsilon from noisy answers, five standard errors from what was seen."""
    exact = [answer(folder, each, request).astype(np.int64) for each in (records, others)]
    direction = (exact[0] - exact[1]).astype(np.float64)
    length = np.linalg.norm(direction)
    seen = []
    for values in exact:
        noisy = add_noise(np.tile(values, runs), kind="gaussian", scale=request.scale)
        moved = (noisy.reshape(runs, -1) - exact[1]).astype(np.float64)
        seen.append(moved @ direction / length)
    lower = []
    # The best test between two Gaussians is a threshold along the line between their means.
    for threshold in (length / 2, length, length / 2 + float(request.scale)):
        p, q = ((values >= threshold).mean() for values in seen)
        low = p - 5 * math.sqrt(p * (1 - p) / runs) - delta
        high = q + 5 * math.sqrt(max(q, 1 / runs) / runs)
        lower.append(math.log(low / high) if low > 0 else 0.0)
    return max(lower)


@pytest.mark.statistical
@pytest.mark.parametrize("broken", [False, True])
def test_noisy_answers_prove_no_more_than_is_claimed(tmp_path, monkeypatch, broken):
    delta = 1e-6
    sensitivity = request_sensitivity(describe(), ask())
    sigma = discrete_gaussian_sigma(epsilon=1, delta=delta, sensitivity=sensitivity)
    request = ask(scale=parse_exact(sigma, name="sigma"))
    claimed = mu_to_epsilon(float(ask_cost(describe(), request).mu), delta)
    assert claimed == pytest.approx(1, abs=1e-6)
    if broken:
        skip_clip(monkeypatch)
    # Records spread evenly over cells: no single cell shows much of this individual.
    records = CROWD + [("somebody", float(i % 5), "xy"[i % 2]) for i in range(200)]
    proved = prove_epsilon(tmp_path, records, CROWD, request, delta=delta, runs=60_000)
    assert (proved > claimed) == broken
    assert proved > 0.1, "an audit that proves nothing would not notice anything"


@pytest.mark.parametrize("name", INDIVIDUALS)
@pytest.mark.parametrize("quantile", [Fraction(1, 2), Fraction(9, 10), Fraction(2, 7)])
def test_no_individual_moves_the_score_of_a_norm_beyond_what_its_rate_covers(tmp_path, name, quantile):
    epsilon = Fraction(1, 2)
    choice = NormChoice(
        name="n",
        columns=("c", "d"),
        norms=tuple(Fraction(k, 2) for k in (1, 2, 3, 7, 20)),
        quantile=quantile,
        epsilon=epsilon,
    )
    seen = []
    others = [("somebody", 1.0, "x")]
    for replace, neighbours in ((False, [[], person(name)]), (True, [others, person(name)])):
        seen.clear()
        for records in neighbours:
            counted = write(tmp_path, CROWD + records).count(describe(), (choice,), progress=lambda _: None)[
                0
            ]
            table = describe(neighbours="replace" if replace else "add-remove")
            seen.append((choice.score(counted.true_values), choice.rate(table)))
        (one, rate), (two, same) = seen
        assert rate == same
        assert all(2 * rate * abs(a - b) <= epsilon for a, b in zip(one, two, strict=True))
        if not replace and name == "one record":
            assert any(2 * rate * abs(a - b) == epsilon for a, b in zip(one, two, strict=True))
