"""Draws per second of exact noise, beside OpenDP's and numpy's, on one core.

Run with `.venv/bin/python benchmarks/noise.py`. The peers live in an environment of their own,
`.bench/noise`, made on the first run. numpy's draws are rounded floats: fast, but neither exact
nor from a cryptographic generator, so they are a yardstick of speed and not an alternative.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from peers import peer_python

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ["opendp==0.16.0", "numpy>=2.0"]
KINDS = ["laplace", "gaussian"]
SCALES = [1, 20, 895, 5739]
ROUNDS = 5
OUR_SIZE = 10_000_000
PEER_SIZE = 100_000


def best_rate(draw, size):
    """Millions of draws per second, in the best of several rounds after one to warm up."""
    draw()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        draw()
        times.append(time.perf_counter() - start)
    return size / min(times) / 1e6


def measure_ours(kind, scale):
    """(seconds of the first call, millions of draws per second)."""
    from sfumato.noise import discrete_gaussian, discrete_laplace

    def draw(size=OUR_SIZE):
        if kind == "laplace":
            return discrete_laplace(scale=scale, size=size)
        return discrete_gaussian(sigma=scale, size=size)

    start = time.perf_counter()
    draw(size=1)
    return time.perf_counter() - start, best_rate(draw, OUR_SIZE)


def measure_peers(kind, scale):
    """(OpenDP's, numpy's) millions of draws per second; runs in the peers' environment."""
    import numpy as np
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if kind == "laplace":
        mechanism = dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=float(scale))
    else:
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=float(scale))
    zeros = [0] * PEER_SIZE
    generator = np.random.default_rng()
    rough = generator.laplace if kind == "laplace" else generator.normal
    return (
        best_rate(lambda: mechanism(zeros), PEER_SIZE),
        best_rate(lambda: np.rint(rough(scale=scale, size=OUR_SIZE)).astype(np.int64), OUR_SIZE),
    )


def use_one_core():
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main():
    use_one_core()
    if sys.argv[1:2] == ["peers"]:
        print(json.dumps(measure_peers(sys.argv[2], int(sys.argv[3]))))
        return
    sys.path.insert(0, str(ROOT / "src"))
    python = peer_python("noise", REQUIREMENTS)
    print("millions of draws per second, one core, best of", ROUNDS)
    print(f"{'law':10}{'scale':>6}{'build ms':>10}{'ours':>8}{'OpenDP':>9}{'numpy':>8}", end="")
    print(f"{'ours/OpenDP':>13}{'ours/numpy':>12}")
    for kind in KINDS:
        for scale in SCALES:
            build, ours = measure_ours(kind, scale)
            command = [python, __file__, "peers", kind, str(scale)]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            opendp, rough = json.loads(result.stdout)
            print(f"{kind:10}{scale:>6}{build * 1e3:>10.1f}{ours:>8.0f}{opendp:>9.3f}", end="")
            print(f"{rough:>8.0f}{ours / opendp:>13.0f}{ours / rough:>12.2f}", flush=True)


if __name__ == "__main__":
    main()
