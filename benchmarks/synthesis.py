"""Synthetic rows beside the reference library for graphical models, in one run, as ratios.

    .venv/bin/python benchmarks/synthesis.py    the taxi model, ours and mbi side by side

The taxi model: ten columns, seven outer marginals with all their parts (59 marginals, 66 measurements), a
million simulated rows, Gaussian noise of 895. mbi runs its mirror descent for 2,000 iterations; ours runs
to the loss that mbi has then. Both get the same noisy numbers, and each runs in a process of its own; the
loss of both is computed here, by one formula. mbi is installed into an environment of its own under .bench/
and is left out, with a message, where that fails.

Whole releases of real tables are compared by benchmarks/tables.py.
"""

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

FOLDER = Path(".bench/synthesis")
PEER = "mbi==2.0.0"
ITERATIONS = 2000
SIGMA = 895.0

SHARED = """
import json, resource, sys, time
import numpy as np
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
"""

SIMULATE = (
    SHARED
    + """
from itertools import combinations
SIZES = dict(shift=21, company=57, pickup=78, dropoff=78, payment=9)
SIZES |= dict.fromkeys(("fare", "tips", "total", "seconds", "miles"), 11)
OUTER = [("fare", "total"), ("total", "seconds"), ("dropoff", "fare"), ("payment", "total")]
OUTER += [("fare", "miles"), ("company",), ("tips", "total")]
rng = np.random.default_rng(7)
n = 1_000_000
def pick(weights, by):
    u = rng.random(n)
    out = np.empty(n, np.int64)
    for value in range(len(weights)):
        rows = by == value
        out[rows] = np.searchsorted(np.cumsum(weights[value]), u[rows] * weights[value].sum() * 0.999999)
    return out
areas = rng.dirichlet(np.full(78, 0.15))
rows = {"shift": rng.choice(21, n, p=rng.dirichlet(np.full(21, 3.0)))}
rows["pickup"] = pick(0.6 * areas + 0.4 * rng.dirichlet(np.full(78, 0.2), size=21), rows["shift"])
rows["dropoff"] = pick(0.5 * areas + 0.5 * rng.dirichlet(np.full(78, 0.15), size=78), rows["pickup"])
far = np.abs(rows["pickup"] * 7 % 13 - rows["dropoff"] * 7 % 13) + rng.exponential(1.5, n)
rows["miles"] = np.clip(far * 0.8 + rng.normal(0, 0.5, n), 0, 10).astype(int)
rows["fare"] = np.clip(rows["miles"] * 0.9 + 1 + rng.exponential(1, n), 0, 10).astype(int)
rows["seconds"] = np.clip(rows["miles"] * 0.8 + rng.gamma(2, 1, n), 0, 10).astype(int)
rows["payment"] = rng.choice(9, n, p=[0.01, 0.5, 0.4, 0.03, 0.02, 0.01, 0.01, 0.01, 0.01])
tips = np.clip(rows["fare"] * 0.2 + rng.exponential(0.7, n), 0, 10)
rows["tips"] = np.where(rows["payment"] == 2, tips, rng.random(n) < 0.02).astype(int)
rows["total"] = np.clip(rows["fare"] + rows["tips"] * 0.5 + rng.random(n), 0, 10).astype(int)
extra = (rows["pickup"] % 3 == 0) * (rng.random(n) < 0.3) * 5
rows["company"] = (rng.choice(57, n, p=rng.dirichlet(np.full(57, 0.3))) + extra) % 57
sets = set()
for outer in OUTER:
    full = ("pickup", "shift", *outer)
    for size in range(1, len(full) + 1):
        for part in combinations(full, size):
            sets.add(tuple(name for name in SIZES if name in part))
arrays, asked, truth = {}, [], {}
for columns in sorted(sets, key=lambda each: (len(each), each)):
    codes = np.zeros(n, np.int64)
    for name in columns:
        codes = codes * SIZES[name] + rows[name]
    counts = np.bincount(codes, minlength=int(np.prod([SIZES[name] for name in columns]))).astype(float)
    truth[",".join(columns)] = counts
    for _ in range(8 if set(columns) == {"pickup", "dropoff"} else 1):
        arrays[f"m{len(asked)}"] = counts + rng.normal(0, float(sys.argv[2]), counts.size)
        asked.append(columns)
np.savez(sys.argv[1] + "/noisy.npz", **arrays)
np.savez(sys.argv[1] + "/truth.npz", **truth)
about = {"sizes": SIZES, "asked": asked, "sigma": float(sys.argv[2])}
json.dump(about, open(sys.argv[1] + "/asked.json", "w"))
"""
)

LOAD = (
    SHARED
    + """
folder = sys.argv[1]
about = json.load(open(folder + "/asked.json"))
noisy = np.load(folder + "/noisy.npz")
truth = np.load(folder + "/truth.npz")
asked = [tuple(each) for each in about["asked"]]
values = [noisy[f"m{place}"] for place in range(len(asked))]
sizes, sigma = about["sizes"], about["sigma"]
outer = [each for each in set(asked) if not any(set(each) < set(other) for other in asked)]
def report(name, seconds, marginal, **more):
    loss = sum(0.5 * (((marginal(each) - given) / sigma) ** 2).sum() for each, given in zip(asked, values))
    error = np.mean([np.abs(marginal(each) - truth[",".join(each)]).sum() / 1e6 for each in outer])
    print(json.dumps({"name": name, "seconds": seconds, "mb": peak(), "loss": loss, "error": error, **more}))
"""
)

PEER_SCRIPT = (
    LOAD
    + """
import jax
jax.config.update("jax_enable_x64", True)
from mbi import Domain, LinearMeasurement, estimation
domain = Domain(tuple(sizes), tuple(sizes.values()))
measurements = [LinearMeasurement(given, each, sigma) for each, given in zip(asked, values)]
start = time.time()
model = estimation.MirrorDescent().estimate(domain, measurements, iters=int(sys.argv[2]))
seconds = time.time() - start
mb = peak()
report("mbi", seconds, lambda each: np.asarray(model.project(each).datavector()).ravel(), mb_fit=mb)
"""
)

OURS = (
    LOAD
    + """
from sfumato.inference import Domain, Measurement, estimate
measurements = [Measurement(columns=each, values=given, sigma=sigma) for each, given in zip(asked, values)]
warm = estimate(Domain({"a": 2, "b": 3}), [Measurement(columns=("a", "b"), values=np.arange(6.0), sigma=1.0)])
repeats = 0.0
for each in set(asked):
    same = [given for other, given in zip(asked, values) if other == each]
    mean = sum(same) / len(same)
    repeats += sum(0.5 * (((given - mean) / sigma) ** 2).sum() for given in same)
target = float(sys.argv[2]) - repeats if sys.argv[2] != "none" else None
start = time.time()
model = estimate(Domain(sizes), measurements, target=target)
seconds = time.time() - start
mb = peak()
flat = lambda each: model.marginal(each).ravel()
name = "ours" if target else "ours, stopped by itself"
report(name, seconds, flat, mb_fit=mb, evaluations=model.evaluations)
start = time.time()
model.sample(1_000_000, seed=1)
print(json.dumps({"name": "a million rows", "seconds": time.time() - start}))
"""
)


def run(python, script, *arguments):
    result = subprocess.run(
        [python, "-c", script, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if result.returncode:
        print(result.stderr[-2000:], file=sys.stderr)
        return []
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def install_peer():
    folder = Path(".bench/mbi")
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    found = subprocess.run([python, "-c", "import mbi"], capture_output=True, check=False)
    if found.returncode:
        subprocess.run([python, "-m", "pip", "install", "--quiet", PEER], capture_output=True, check=False)
        found = subprocess.run([python, "-c", "import mbi"], capture_output=True, check=False)
    return None if found.returncode else python


def show(line):
    told = [
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in line.items()
    ]
    print("  " + ", ".join(told[1:] and [str(line["name"]), *told[1:]]), flush=True)


def compare_taxi(iterations):
    FOLDER.mkdir(parents=True, exist_ok=True)
    run(sys.executable, SIMULATE, FOLDER, SIGMA)
    python = install_peer()
    peer = run(python, PEER_SCRIPT, FOLDER, iterations) if python else []
    if not peer:
        print("  mbi could not be installed or run; our side alone")
    for line in peer:
        show(line)
    ours = run(sys.executable, OURS, FOLDER, peer[0]["loss"] if peer else "none")
    for line in ours:
        show(line)
    if peer and ours:
        ratio = ours[0]["seconds"] / peer[0]["seconds"]
        print(
            f"  time to mbi's loss: {ratio:.3f} of mbi's; memory {ours[0]['mb_fit'] / peer[0]['mb_fit']:.2f}"
        )
        for line in run(sys.executable, OURS, FOLDER, "none")[:1]:
            show(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Synthetic rows beside mbi.")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="iterations of mbi")
    options = parser.parse_args()
    print("taxi model, 1,000,000 rows, 66 measurements")
    compare_taxi(options.iterations)
