"""How far quantiles err and how wide their intervals are, beside OpenDP's private quantile at equal epsilon.

Run with `.venv/bin/python benchmarks/quantiles.py`, or with `--few` for a part of it. Both draw from the
same made-up values, once fixed for each law: the error is the root mean square over draws of noise alone.
OpenDP (in an environment of its own, `.bench/quantiles`) chooses among every whole number between the bounds,
or the middles of 1,000 equal steps. Where one of these lies next to the true quantile by chance, its error is
small for that alone; so `fine` is the ratio to its mechanism, drawn by numpy, among as many candidates as
there are here. It has no intervals; `alone` is the ratio to `fine` where nothing is spent on them
(`SET sfumato.intervals = off`).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np

from peers import peer_python
from sfumato.core import noise
from sfumato.core.door import draw_groups
from sfumato.core.engine.aggregates import TrueAggregates
from sfumato.core.facts.project import parse_project
from sfumato.sql.asks import ask_plan
from sfumato.sql.bands import find_quantile
from sfumato.sql.plan import MISS
from sfumato.sql.planner import prepare_query
from sfumato.sql.relation import Source
from sfumato.sql.statement import read_statement

REQUIREMENTS = ["opendp==0.16.0", "numpy>=2.0"]
RUNS = 200
PEER_RUNS = 100
PEER_CANDIDATES = 1_000
SIZES = (500, 20_000)
EPSILONS = ("0.1", "1")
SHARES = ("0.5", "0.9", "0.99")

# Sent to the peer's interpreter: private quantiles of the same values, so many times for each case.
PEER = """
import json, sys
import opendp.prelude as dp
dp.enable_features("contrib")
found = []
for values, candidates, cases, runs in json.load(sys.stdin):
    kind = type(candidates[0])
    domain = dp.atom_domain(T=int) if kind is int else dp.atom_domain(T=float, nan=False)
    space = dp.vector_domain(domain), dp.symmetric_distance()
    for share, epsilon in cases:
        def measure(scale):
            quantile = dp.m.make_private_quantile
            return quantile(*space, dp.max_divergence(), candidates=candidates, alpha=share, scale=scale)
        mechanism = measure(measure(1.0).map(1) / epsilon)
        assert abs(mechanism.map(1) - epsilon) < 1e-6
        found.append([mechanism(values) for _ in range(runs)])
print(json.dumps(found))
"""

LAWS = {
    "lognormal": ((0, 500_000), False, lambda random, size: random.lognormal(10.5, 0.8, size)),
    "uniform": ((0, 100), False, lambda random, size: 100 * random.random(size)),
    "two peaks": (
        (0, 100),
        False,
        lambda random, size: np.where(
            random.random(size) < 0.4, random.normal(20, 3, size), random.normal(80, 3, size)
        ),
    ),
    "wide bounds": ((0, 1_000), False, lambda random, size: random.normal(50, 10, size)),
    "heavy tail": ((0, 2_000), False, lambda random, size: 10 * random.pareto(2, size)),
    "many zeros": (
        (0, 200),
        False,
        lambda random, size: np.where(random.random(size) < 0.35, 0, random.exponential(20, size)),
    ),
    "ages": ((0, 100), True, lambda random, size: random.gamma(6, 6, size)),
    "15 levels": ((1, 15), True, lambda random, size: 1 + random.binomial(14, 0.4, size)),
    "heaped": (
        (0, 200),
        True,
        lambda random, size: np.where(
            random.random(size) < 0.5, random.gamma(4, 12, size), 10 * np.rint(random.gamma(4, 1.2, size))
        ),
    ),
    "whole incomes": ((0, 500_000), True, lambda random, size: random.lognormal(10.5, 0.8, size)),
}


def make_values(law, size):
    (low, high), whole, draw = LAWS[law]
    values = np.clip(draw(np.random.default_rng([size, *law.encode()]), size), low, high)
    return np.floor(values) if whole else values


def list_candidates(law, most):
    (low, high), whole, _ = LAWS[law]
    if whole and high - low <= most:
        return list(range(low, high + 1))
    edges = low + (np.arange(most) + 0.5) * (high - low) / most
    return [int(each) for each in edges] if whole else edges.tolist()


def draw_fine(law, values, share, epsilon):
    """The peer's mechanism by its definition: the best of scores with exponential noise."""
    candidates = np.array(list_candidates(law, 2**14))
    fewer, upto = (np.searchsorted(values, candidates, side=side) for side in ("left", "right"))
    scores = -np.abs((1 - share) * fewer - share * (values.size - upto))
    scale = 2 * max(share, 1 - share) / epsilon
    random = np.random.default_rng(1)
    near = scores > scores.max() - 30 * scale  # what is farther wins once in 10^13 draws
    noisy = scores[near] + random.exponential(scale, (RUNS, near.sum()))
    return candidates[near][np.argmax(noisy, axis=1)]


def ask_peer(tasks):
    """The peer's quantiles: for each of the tasks and of its cases those of all runs."""
    python = peer_python("quantiles", REQUIREMENTS)
    done = subprocess.run(
        [python, "-c", PEER], input=json.dumps(tasks), capture_output=True, text=True, check=True
    )
    return np.array(json.loads(done.stdout), float)


def measure_ours(law, values, share, epsilon, *, intervals=True):
    """Values and ends of so many answers, as of groups that are alike: rows are answers."""
    (low, high), whole, _ = LAWS[law]
    columns = {"x": {"bounds": [low, high]}}
    described = {"source": "t.parquet", "unit": "row", "max_records": 1, "columns": columns}
    document = {"budget": {"epsilon": 100}, "tables": {"t": described}}
    table = parse_project(document, folder=None).tables["t"]
    catalog = {"t": Source(name="t", stored={"x": "integer" if whole else "number"}, table=table)}
    statement = read_statement(f"DP-SELECT {epsilon} QUANTILE_CONT(x, {share}) AS q FROM t")
    make = prepare_query(statement, catalog, selection_delta=Fraction(0), intervals=intervals)
    plan = make(statement.epsilon)
    (measure,) = (each.measure for each in plan.noises)
    cells = np.floor((values - low) * measure.steps / (high - low)).astype(np.int64)
    counts = np.tile(np.bincount(cells, minlength=measure.steps + 1), (RUNS, 1))
    (steps,) = draw_groups(ask_plan(plan), TrueAggregates((counts,), None, None), noise).values
    return np.stack(find_quantile(plan.noises[0], steps, MISS), axis=1).astype(float)


def root_mean_square(numbers):
    return math.sqrt(np.mean(np.square(numbers)))


def print_ratio(ours, theirs):
    return "exact" if ours == theirs == 0 else f"{ours / theirs:.2f}" if theirs else "inf"


def main():
    few = "--few" in sys.argv
    sizes, epsilons, shares = (SIZES[1:], EPSILONS, SHARES[:2]) if few else (SIZES, EPSILONS, SHARES)
    cases = [(float(share), float(epsilon)) for share in shares for epsilon in epsilons]
    settings = [(law, size) for law in LAWS for size in sizes]
    data = {setting: make_values(*setting) for setting in settings}
    tasks = []
    for law, size in settings:
        candidates = list_candidates(law, PEER_CANDIDATES)
        values = data[law, size].tolist()
        tasks.append([list(map(type(candidates[0]), values)), candidates, cases, PEER_RUNS])
    theirs = iter(ask_peer(tasks))
    print(
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores: benchmarks/quantiles.py, {RUNS} draws, "
        f"{PEER_RUNS} of OpenDP"
    )
    print("error: root mean square; ratio: to OpenDP's; coverage and half width (median, in errors) of 95 %")
    head = (
        "law",
        "records",
        "share",
        "epsilon",
        "OpenDP",
        "ours",
        "ratio",
        "fine",
        "alone",
        "coverage",
        "width",
    )
    print(("{:14}" + "{:>9}" * 10).format(*head))
    table = []
    for law, size in settings:
        values = np.sort(data[law, size])
        for share, epsilon in cases:
            place = share * size
            ends = values[max(0, math.ceil(place) - 1)], values[min(size - 1, math.floor(place))]
            truth = np.mean(ends) if not LAWS[law][1] else ends[0]
            peer = root_mean_square(next(theirs) - truth)
            fine = root_mean_square(draw_fine(law, values, share, float(epsilon)) - truth)
            alone = root_mean_square(measure_ours(law, values, share, epsilon, intervals=False)[:, 0] - truth)
            found = measure_ours(law, values, share, epsilon)
            error = root_mean_square(found[:, 0] - truth)
            covered = np.mean((found[:, 1] <= ends[1]) & (found[:, 2] >= ends[0]))
            half = np.median(found[:, 2] - found[:, 1]) / 2
            width = f"{half / error:.2f}" if error else "-"
            table.append((error, peer, fine, alone, covered, half))
            print(
                f"{law:14}{size:9,}{share:9}{epsilon:9}{peer:9.3g}{error:9.3g}{print_ratio(error, peer):>9}"
                f"{print_ratio(error, fine):>9}{print_ratio(alone, fine):>9}{covered:9.1%}{width:>9}",
                flush=True,
            )
    print_summary(np.array(table))


def print_summary(table):
    """How often an answer errs more than the peer's, and how good the intervals are, over all cases."""
    for name, sizes in (("OpenDP", table[:, 1]), ("fine", table[:, 2])):
        for ours, kind in ((table[:, 0], "with intervals"), (table[:, 3], "alone")):
            seen = (ours > 0) | (sizes > 0)
            ratios = ours[seen] / np.maximum(sizes[seen], 1e-300)
            above = [int((ratios > most).sum()) for most in (1, 1.1, 1.25)]
            print(
                f"{kind} beside {name}: of {ratios.size} with an error {above[0]} above 1, {above[1]} above "
                f"1.1, {above[2]} above 1.25; median {np.median(ratios):.2f}"
            )
    covered, wide = table[:, 4], table[:, 5] / np.maximum(table[:, 0], 1e-300)
    exact = table[:, 0] == 0
    shares = " ".join(f"{np.quantile(wide[~exact], part):.2f}" for part in (0.1, 0.25, 0.5, 0.75, 0.9))
    print(
        f"coverage below 93 % in {int((covered < 0.93).sum())} of {covered.size}, least {covered.min():.1%}; "
        f"half widths, at 10, 25, 50, 75, 90 % of the cases: {shares} errors"
    )


if __name__ == "__main__":
    main()
