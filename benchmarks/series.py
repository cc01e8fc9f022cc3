"""How far the noise of running totals and of levels reaches, beside other mechanisms at the same cost.

Run with `.venv/bin/python benchmarks/series.py`, or with `--alone` for the running totals without the peer,
as `benchmarks/printed/series.txt` has them. Every mechanism has the noise that makes one record cost
rho = 1/2, as unit Gaussian noise on one count would. The first part has the worst standard deviation of a
running total: of independent counts, of a binary tree, of Honaker's estimates from it, of OpenDP's
consistent tree (in an environment of its own, `.bench/series`), and of the recipe `running`, whose figure
is also measured from draws. The second has levels that add up: noise alone, OpenDP's consistent tree, and
what `hierarchy` makes of its levels.

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

import numpy as np

from peers import peer_python
from sfumato.core.questions.series import SERIES_GRID
from sfumato.inference.models.hierarchy import Level, fit_levels
from sfumato.inference.models.series import estimate_sums, root_weights
from sfumato.noise import discrete_gaussian

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
        sys.exit()
    try:
        print_series()
        print_levels()
    except subprocess.CalledProcessError as error:
        print(f"the peer did not run: {error.stderr or error}", file=sys.stderr)
        raise
