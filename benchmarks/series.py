"""How far the noise of running totals and of levels reaches, beside other mechanisms at the same cost.

Run with `.venv/bin/python benchmarks/series.py`, or with `--alone` for the running totals without the peer,
as `benchmarks/printed/series.txt` has them. Every mechanism has the noise that makes one record cost
rho = 1/2, as unit Gaussian noise on one count would. The first part has the worst standard deviation of a
running total: of independent counts, of a binary tree, of Honaker's estimates from it, of OpenDP's
consistent tree (in an environment of its own, `.bench/series`), and of the recipe `running`, whose figure
is also measured from draws. The second has levels that add up: noise alone, OpenDP's consistent tree, and
what `hierarchy` makes of its levels. `--alone` also has what the recipe takes at epsilon 1, beside the simple
method, counts of each period with Laplace noise; and the levels of `hierarchy` by its shares, by equal ones,
and made of plain counts of the finest level, which are cut at zero and added up. Those are means of 30 runs.

OpenDP's tree answers all periods at once, at the end: it is the nearest that it has to either. Tumult
Analytics has neither running totals nor levels that add up, so it is not here.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

from peers import peer_python
from sfumato.core.facts.project import parse_project
from sfumato.core.questions.series import SERIES_GRID
from sfumato.inference.models.hierarchy import Level, fit_levels
from sfumato.inference.models.series import estimate_sums, root_weights
from sfumato.noise import discrete_gaussian, discrete_laplace
from sfumato.recipes import Hierarchy, Running
from sfumato.recipes.hierarchy import _Shape

REQUIREMENTS = ["opendp==0.16.0", "numpy>=2.0"]
PERIODS = (12, 60, 365, 1000)
RUNS = 2000
PEER_RUNS = 400
BRANCHES = 4
DEPTH = 5

# Sent to the peer's interpreter: noisy leaves of a consistent tree with no records, at rho = 1/2.
PEER = """
import json, sys, time
import opendp.prelude as dp
from opendp.transformations import choose_branching_factor, make_b_ary_tree, make_consistent_b_ary_tree
dp.enable_features("contrib")
leaves, branching, runs, counts = json.loads(sys.stdin.read())
branching = branching or choose_branching_factor(leaves)
domain, metric = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=int)
tree = make_b_ary_tree(domain, metric, leaves, branching)
def measure(scale):
    return tree >> dp.m.then_gaussian(scale=scale)
scale = dp.binary_search(lambda scale: measure(scale).map(1) <= 0.5, bounds=(0.1, 1e4))
mechanism, consistent = measure(scale), make_consistent_b_ary_tree(branching)
found, seconds = [], time.process_time()
for _ in range(runs):
    found.append(list(consistent(mechanism(counts))))
print(json.dumps([branching, scale, (time.process_time() - seconds) / runs, found]))
"""


def ask_peer(leaves, *, branching=None, runs, counts=None):
    """The branching, the scale, the seconds of one run, and the consistent leaves of every run."""
    python = peer_python("series", REQUIREMENTS)
    asked = json.dumps([leaves, branching, runs, [0] * leaves if counts is None else counts])
    done = subprocess.run([python, "-c", PEER], input=asked, capture_output=True, text=True, check=True)
    branching, scale, seconds, found = json.loads(done.stdout)
    return branching, scale, seconds, np.array(found)


def binary_tree(periods, *, honaker):
    """The worst standard deviation of a total, from the dyadic intervals that end by then.

    With `honaker`, each interval is estimated from all measurements inside it (Honaker 2015, from below).
    """
    levels = periods.bit_length()
    variances = [float(levels)]
    for _ in range(levels):
        below = 2 * variances[-1]
        variances.append(1 / (1 / levels + 1 / below) if honaker else float(levels))
    totals = [
        sum(variances[bit] for bit in range(levels) if period >> bit & 1) for period in range(1, periods + 1)
    ]
    return math.sqrt(max(totals))


def running(periods):
    """The worst standard deviation of a total by the recipe's own estimates, computed and measured."""
    weights = np.array(root_weights(periods, grid=SERIES_GRID))
    norm = math.sqrt(sum(int(each) ** 2 for each in weights))
    lags = np.ones(periods)
    noise = discrete_gaussian(sigma=round(norm), size=periods * RUNS).reshape(periods, RUNS)
    found = estimate_sums(noise / SERIES_GRID, weights / SERIES_GRID, norm / SERIES_GRID, answer=lags)
    return float(found.deviations.max()), float(found.values.std(axis=1).max())


def print_series():
    print("worst standard deviation of running totals, one record at rho = 1/2")
    print(
        f"{'periods':>8} {'independent':>12} {'binary tree':>12} {'Honaker':>9} {'OpenDP tree':>16} "
        f"{'running':>9} {'measured':>9} {'ratios to running':>30}"
    )
    for periods in PERIODS:
        ours, measured = running(periods)
        branching, _, _, leaves = ask_peer(periods, runs=PEER_RUNS)
        peer = float(np.cumsum(leaves, axis=1).std(axis=0).max())
        others = [math.sqrt(periods), *(binary_tree(periods, honaker=each) for each in (False, True)), peer]
        ratios = " ".join(f"{each / ours:7.2f}" for each in others)
        print(
            f"{periods:8,} {others[0]:12.2f} {others[1]:12.2f} {others[2]:9.2f} "
            f"{peer:10.2f} (b={branching:2}) {ours:9.3f} {measured:9.3f}   {ratios}"
        )


def print_alone():
    """The running totals of `print_series` without the peer, which needs an environment of its own."""
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores: benchmarks/series.py --alone")
    print("worst standard deviation of running totals, one record at rho = 1/2")
    print("periods independent binary_tree Honaker running measured")
    for periods in PERIODS:
        ours, measured = running(periods)
        trees = (binary_tree(periods, honaker=each) for each in (False, True))
        print(periods, *(f"{each:.2f}" for each in (math.sqrt(periods), *trees, ours, measured)))


def plan_running(periods, *, delta, noise="auto"):
    """The recipe's request at epsilon 1, and the worst deviation of a total by draws of its noise."""
    facts = {"source": "t.csv", "unit": "p", "max_records": 1, "columns": {"day": {"range": [1, periods]}}}
    project = parse_project({"budget": {"epsilon": 1}, "tables": {"t": facts}}, folder=Path())
    recipe = Running(table="t", period="day", through=1, noise=noise)
    (request,) = recipe.plan(project.tables["t"], epsilons=(Fraction(1),), delta=Fraction(delta)).requests
    if request.noise == "laplace":
        noise = discrete_laplace(scale=request.scale, size=periods * RUNS)
    else:
        noise = discrete_gaussian(sigma=request.scale, size=periods * RUNS)
    weights = np.array(request.counted.weights) / SERIES_GRID
    sums = noise.reshape(periods, RUNS) / SERIES_GRID
    found = estimate_sums(sums, weights, request.standard_deviation / SERIES_GRID, answer=np.ones(periods))
    return request.noise, float(found.deviations.max()), float(found.values.std(axis=1).max())


def print_taken():
    """What `running` takes at epsilon 1, beside the simple method and the other."""
    print("worst standard deviation of running totals, one record at epsilon 1")
    print("periods delta running laplace_counts weighted_sums measured taken")
    for delta in ("1e-9", "1e-6", "0"):
        for periods in (1, 12, 53, 120, 365, 1000):
            taken, ours, measured = plan_running(periods, delta=delta)
            simple = plan_running(periods, delta=delta, noise="laplace")[1]
            other = f"{plan_running(periods, delta=delta, noise='gaussian')[1]:.2f}" if delta != "0" else "-"
            print(periods, delta, f"{ours:.2f} {simple:.2f} {other} {measured:.2f} {taken}")


def print_shares():
    """Mean absolute errors of every level of made-up places by month, beside plain counts of the finest."""
    random = np.random.default_rng(1)
    print("mean absolute error of a count by level: balanced and equal shares, plain counts added up")
    print("epsilon nodes records_in_a_leaf balanced equal plain balanced/plain")
    for epsilon in ("0.1", "1"):
        for tops, middles, leaves, months in ((1, 8, 80, 12), (1, 50, 1000, 1), (4, 64, 1024, 1)):
            columns = {"leaf": {"range": [0, leaves - 1]}, "month": {"range": [1, months]}}
            facts = {"source": "t.csv", "unit": "p", "max_records": 1, "columns": columns}
            facts = {"budget": {"epsilon": 1}, "tables": {"t": facts}}
            table = parse_project(facts, folder=Path()).tables["t"]
            tree = [[n, f"m{n * middles // leaves}", f"t{n * tops // leaves}"] for n in range(leaves)]
            for mean in (1, 50):
                truth = random.gamma(0.5, 2 * mean, leaves * months).astype(np.int64)
                errors = {
                    shares: level_errors(table, [["leaf", "middle", "top"], *tree], truth, epsilon, shares)
                    for shares in ("balanced", "equal", "plain")
                }
                for (nodes, ours), *others in zip(*(found.items() for found in errors.values()), strict=True):
                    equal, plain = (other for _, other in others)
                    told = f"{ours:.2f} {equal:.2f} {plain:.2f} {ours / plain:.2f}"
                    print(epsilon, nodes, mean, told)


def level_errors(table, tree, truth, epsilon, shares, *, runs=30):
    """By the number of nodes of a level, the mean absolute error of a count."""
    recipe = Hierarchy(
        table="t",
        column="leaf",
        tree=tree,
        by=("month",),
        levels=None if tree[1][2] != tree[-1][2] else ("total", "middle", "middle x month", "leaf x month"),
        shares="equal" if shares == "plain" else shares,
    )
    shape = _Shape.of(recipe, table)
    places = range(len(shape.names) - 1, 0, -1)

    def add_up(values):
        sums = [values]
        for place in places:
            size = shape.size(shape.names[place - 1])
            sums.insert(0, np.bincount(shape.parents(place), sums[0], size))
        return sums

    exact, errors = add_up(truth), np.zeros(len(shape.names))
    requests = recipe.plan(table, epsilons=(Fraction(epsilon),), delta=Fraction(0)).requests
    for _ in range(runs):
        if shares == "plain":
            found = add_up(
                np.maximum(0, truth + discrete_laplace(scale=1 / Fraction(epsilon), size=truth.size))
            )
        else:
            levels = [
                Level(
                    values=values + 1.0 * discrete_laplace(scale=request.scale, size=values.size),
                    variance=request.standard_deviation**2,
                    parents=shape.parents(place),
                )
                for place, (request, values) in enumerate(zip(requests, exact, strict=True))
            ]
            found = [level.counts for level in fit_levels(levels)]
        errors += [np.abs(one - other).mean() / runs for one, other in zip(found, exact, strict=True)]
    return dict(zip((shape.size(name) for name in shape.names), errors, strict=True))


def print_levels():
    """Root mean square errors of every level of a complete tree whose leaves are mostly empty."""
    random = np.random.default_rng(1)
    leaves = BRANCHES**DEPTH
    truth = [np.where(random.random(leaves) < 0.7, 0, random.geometric(0.05, leaves)).astype(float)]
    for _ in range(DEPTH):
        truth.insert(0, truth[0].reshape(-1, BRANCHES).sum(axis=1))
    sigma = math.sqrt(len(truth))
    errors = np.zeros((3, len(truth)))
    _, scale, peer_seconds, found = ask_peer(
        leaves, branching=BRANCHES, runs=PEER_RUNS // 8, counts=truth[-1].astype(int).tolist()
    )
    runs = found.shape[0]
    seconds = 0.0
    for run in found:
        sums = [run]
        for _ in range(DEPTH):
            sums.insert(0, sums[0].reshape(-1, BRANCHES).sum(axis=1))
        levels = []
        for place, exact in enumerate(truth):
            noisy = exact + discrete_gaussian(sigma=1000, size=exact.size) * (sigma / 1000)
            parents = np.repeat(np.arange(exact.size // BRANCHES), BRANCHES) if place else None
            levels.append(Level(values=noisy, variance=sigma**2, parents=parents))
        start = time.process_time()
        fitted = fit_levels(levels)
        seconds += (time.process_time() - start) / runs
        for place, exact in enumerate(truth):
            for row, values in enumerate((levels[place].values, sums[place], fitted[place].counts)):
                errors[row, place] += ((values - exact) ** 2).mean() / runs
    roots = np.sqrt(errors)
    print(f"\nroot mean square error by level, {leaves:,} leaves, one record at rho = 1/2 in all levels")
    print(f"{'nodes':>8} {'alone':>8} {'OpenDP':>8} {'hierarchy':>10} {'alone/ours':>11} {'OpenDP/ours':>12}")
    for place, exact in enumerate(truth):
        alone, peer, ours = roots[:, place]
        print(
            f"{exact.size:8,} {alone:8.2f} {peer:8.2f} {ours:10.2f} {alone / ours:11.2f} {peer / ours:12.2f}"
        )
    print(
        f"OpenDP certifies its tree in L1 steps: noise {scale:.2f} per node, ours {sigma:.2f}. Seconds of "
        f"one tree: OpenDP with its noise {peer_seconds:.4f}, fitting ours {seconds:.4f}"
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--alone"]:
        print_alone()
        print_taken()
        print_shares()
        sys.exit()
    try:
        print_series()
        print_levels()
    except subprocess.CalledProcessError as error:
        print(f"the peer did not run: {error.stderr or error}", file=sys.stderr)
        raise
