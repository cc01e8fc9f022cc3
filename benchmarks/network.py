"""Small private networks: digits, tables, and the accounting of samples beside dp_accounting.

    .venv/bin/python benchmarks/network.py [--runs 10] [--tables digits,adult] [--epsilons 1,3] [--held-in]

First the delta of sampled Gaussian steps, ours and that of dp_accounting's PLD accountant. Then accuracy on
held-out parts: of scikit-learn's digits (delta 1e-5) the share that is right, of tables (delta 1e-6) what
benchmarks/learning.py judges by. Both peers are in an environment of their own under .bench/network, which is
made on the first run. A run is a whole release. With --held-in, parts of the training parts are judged
instead: defaults for classes were set there, on digits, adult and nltcs, and those for numbers on the test
part of "ma income"; "tx income" was not looked at before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import learning
from peers import peer_python

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ["scikit-learn", "dp-accounting"]
RUNS = [(1.0, "1/100", 1000), (2.8, "1/8", 200), (5.0, "1/2", 60), (1.1, "1/100", 10000), (1.5, "1/8", 50)]
EPSILONS = [0.5, 1, 2, 3, 4]

PEER = """
import fractions, json, sys, time
import dp_accounting as dp
from dp_accounting import pld
for sigma, rate, count in json.loads(sys.argv[1]):
    start = time.perf_counter()
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    step = dp.PoissonSampledDpEvent(float(fractions.Fraction(rate)), dp.GaussianDpEvent(sigma))
    accountant.compose(dp.SelfComposedDpEvent(step, count))
    deltas = [accountant.get_delta(epsilon) for epsilon in json.loads(sys.argv[2])]
    print(json.dumps([deltas, time.perf_counter() - start]))
"""
DIGITS = """
import sys
import numpy as np
from sklearn.datasets import load_digits
images, digits = load_digits(return_X_y=True)
np.savez(sys.argv[1], images=images.astype(int), digits=digits.astype(int))
"""


def ask_peer(text, *arguments):
    """What the peer's interpreter prints, in lines."""
    python = peer_python("network", REQUIREMENTS)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", text, *arguments], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout.splitlines()


def compare_accounting():
    from sfumato.accounting import sampled_delta

    print("sigma, rate, steps: delta at epsilon 0.5, 1, 2, 3, 4 as ours / dp_accounting's, seconds of both")
    for (sigma, rate, count), line in zip(
        RUNS, ask_peer(PEER, json.dumps(RUNS), json.dumps(EPSILONS)), strict=True
    ):
        theirs, seconds = json.loads(line)
        start = time.perf_counter()
        ours = [
            sampled_delta(epsilon=each, sigma=sigma, sampling=Fraction(rate), count=count)
            for each in EPSILONS
        ]
        taken = time.perf_counter() - start
        shown = ", ".join(f"{one:.3g} / {two:.3g}" for one, two in zip(ours, theirs, strict=True))
        print(f"{sigma:g}, {rate}, {count}: {shown}; {taken:.2f} s, {seconds:.2f} s", flush=True)


def digits(seed):
    with tempfile.TemporaryDirectory() as folder:
        ask_peer(DIGITS, f"{folder}/digits.npz")
        held = np.load(f"{folder}/digits.npz")
        columns = {f"p{place}": held["images"][:, place] for place in range(64)}
        table = pa.table({**columns, "digit": held["digits"]})
    order = np.random.default_rng(seed).permutation(table.num_rows)
    cut = int(0.8 * table.num_rows)
    spec = {name: {"range": [0, 16]} for name in columns} | {"digit": {"values": list(range(10))}}
    return table.take(order[:cut]), table.take(order[cut:]), spec, "digit"


def run(train, test, columns, target, *, epsilon, delta, options):
    """The released model's predictions and the seconds of the release."""
    import sfumato as sf

    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(train.select(list(columns)), Path(folder, "t.parquet"))
        Path(folder, "sfumato.toml").write_text(learning.project_text(columns), encoding="utf-8")
        curator = sf.open(Path(folder, "sfumato.toml"))
        recipe = sf.learn.Network(table="t", target=target, **options)
        start = time.perf_counter()
        model = curator.learn(recipe, epsilon=epsilon, delta=delta, out=Path(folder, "model"))
        return model, time.perf_counter() - start


def judge(name, model, test, columns, target):
    if name == "digits":
        return float((model.predict(test) == test[target].to_numpy()).mean())
    if model.family == "regression":
        return learning.judge(test, target, model.predict(test), None)
    positive = columns[target]["values"][1] if "values" in columns[target] else 1
    return learning.judge(test, target, model.predict_proba(test)[:, 1], positive)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--tables", default="digits,adult,nltcs,ma income,tx income")
    parser.add_argument("--epsilons", default="1,3")
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--held-in", action="store_true")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options = parser.parse_args()
    if not options.held_in:
        compare_accounting()
    print("table, epsilon: mean (least, most), seconds")
    for name in options.tables.split(","):
        for text in options.epsilons.split(","):
            scores, times = [], []
            for seed in range(options.runs):
                parts = digits(seed) if name == "digits" else learning.TABLES[name](options.data)
                train, test, columns, target = parts
                if options.held_in:
                    train, test = learning.halves(train, seed)
                delta = "1e-5" if name == "digits" else "1e-6"
                model, seconds = run(
                    train, test, columns, target, epsilon=text, delta=delta, options=options.options
                )
                scores.append(judge(name, model, test, columns, target))
                times.append(seconds)
            ends = f"({min(scores):.4f}, {max(scores):.4f})"
            print(f"{name}, {text}: {np.mean(scores):.4f} {ends} {np.median(times):.1f} s", flush=True)


if __name__ == "__main__":
    main()
