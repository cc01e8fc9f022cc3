"""Answers per second of local mechanisms, on the client and on the server, beside two peers, on one core.

Run with `.venv/bin/python benchmarks/local.py`. The peers, multi-freq-ldpy and pure-ldp, live in an
environment of their own, `.bench/local`, made on the first run. They answer one person per call, from
generators that are not cryptographic and with thresholds in floats; ours are exact, on the operating
system's entropy. `benchmarks/local.py errors` prints errors of estimates alone.
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
REQUIREMENTS = [
    "multi-freq-ldpy==0.2.5",
    "pure-ldp==1.2.0",
    "xxhash<4",
    "scikit-learn",
    "statsmodels",
    "bitarray",
    "bitstring",
]
CASES = [
    ("krr", 2),
    ("krr", 16),
    ("krr", 128),
    ("oue", 16),
    ("oue", 128),
    ("olh", 16),
    ("olh", 128),
    ("olh", 1024),
    ("hadamard", 128),
    ("hadamard", 1024),
]
MEANS = ["laplace", "duchi", "piecewise"]
PEERS = ["multi-freq-ldpy", "pure-ldp"]
ROUNDS = 5
OUR_SIZE = 1_000_000
PEER_SIZE = 5_000
REPEATS = 200


def best_time(work, rounds=ROUNDS):
    """Seconds of the best of several rounds after one to warm up."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def measure_ours(name, k):
    """(client, server) millions of answers per second, and the delivered epsilon."""
    import numpy as np

    from sfumato.local import make_mechanism

    size = 10 * OUR_SIZE if name == "krr" else OUR_SIZE
    values = (np.arange(size) % k).astype(np.uint8 if k <= 256 else np.uint16)
    mechanism = make_mechanism(name, epsilon=1, categories=k)
    answers = mechanism.respond(values)
    client = best_time(lambda: mechanism.respond(values))
    server = best_time(lambda: mechanism.estimate(answers))
    return size / client / 1e6, size / server / 1e6, float(mechanism.exact_epsilon)


def measure_mean(name):
    import numpy as np

    from sfumato.local import make_mechanism

    values = np.linspace(0, 100, OUR_SIZE)
    mechanism = make_mechanism(name, epsilon=1, low=0, high=100)
    answers = mechanism.respond(values)
    client = best_time(lambda: mechanism.respond(values))
    server = best_time(lambda: mechanism.estimate(answers))
    return OUR_SIZE / client / 1e6, OUR_SIZE / server / 1e6


def measure_error(name, k, people=20_000):
    """Mean squared error over many repeats, divided by its theory."""
    import numpy as np

    from sfumato.local import make_mechanism

    values = np.minimum(np.arange(people) % (2 * k), k - 1)
    truth = np.bincount(values, minlength=k) / people
    mechanism = make_mechanism(name, epsilon=1, categories=k)
    found = [mechanism.estimate(mechanism.respond(values)).frequencies for _ in range(REPEATS)]
    theory = np.mean([mechanism.variance(share) for share in truth]) / people
    return float(np.mean((np.array(found) - truth) ** 2) / theory)


def compare_errors(people=20_000, repeats=20):
    """Mean squared errors of shares, times 100,000: unbiased, nearest consistent and likeliest ones."""
    import numpy as np

    from sfumato.local import choose_mechanism, make_mechanism

    print(
        f"mean squared error of shares times 100,000; {people:,} people, shares as 1 / rank, {repeats} runs"
    )
    print(f"{'k':>5} {'epsilon':>8} {'mechanism':10} {'none':>8} {'simplex':>8} {'bayes':>8}  chosen")
    for k, epsilon in ((8, 1), (32, 0.5), (32, 1), (32, 2), (100, 1)):
        weights = 1 / np.arange(1, k + 1)
        values = np.repeat(np.arange(k), np.round(people * weights / weights.sum()).astype(int))
        truth = np.bincount(values, minlength=k) / values.size
        chosen = choose_mechanism(epsilon=epsilon, categories=k).mechanism.name
        for name in ("krr", "subset", "olh"):
            made = make_mechanism(name, epsilon=epsilon, categories=k)
            answers = [made.respond(values) for _ in range(repeats)]
            errors = [
                1e5
                * np.mean([(made.estimate(each, project=way).frequencies - truth) ** 2 for each in answers])
                for way in ("none", "simplex", "bayes")
            ]
            told = " ".join(f"{error:8.2f}" for error in errors)
            print(f"{k:>5} {epsilon:>8} {name:10} {told}  {'chosen' if name == chosen else ''}", flush=True)


def measure_peer(peer, name, k):
    """(client, server) millions of answers per second, or None; runs in the peers' environment."""
    functions = _multi_freq(name, k) if peer == "multi-freq-ldpy" else _pure(name, k)
    if functions is None:
        return None
    client, server = functions
    values = [i % k for i in range(PEER_SIZE)]
    client(values[:10])
    client_time = best_time(lambda: client(values), rounds=2)
    server_times = []
    for _ in range(2):
        answers = client(values)
        start = time.perf_counter()
        server(answers)
        server_times.append(time.perf_counter() - start)
    return PEER_SIZE / client_time / 1e6, PEER_SIZE / min(server_times) / 1e6


def _multi_freq(name, k):
    if name == "krr":
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client

        return lambda values: [GRR_Client(v, k, 1.0) for v in values], lambda r: GRR_Aggregator_MI(r, k, 1.0)
    if name == "oue":
        from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Aggregator_MI, UE_Client

        return lambda values: [UE_Client(v, k, 1.0) for v in values], lambda r: UE_Aggregator_MI(r, 1.0)
    if name == "olh":
        from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI, LH_Client

        return lambda values: [LH_Client(v, k, 1.0) for v in values], lambda r: LH_Aggregator_MI(r, k, 1.0)
    return None


def _pure(name, k):
    from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
    from pure_ldp.frequency_oracles.hadamard_mechanism import HadamardMechClient, HadamardMechServer
    from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    made = {
        "krr": (lambda: DEClient(1.0, k), lambda: DEServer(1.0, k)),
        "oue": (lambda: UEClient(1.0, k, use_oue=True), lambda: UEServer(1.0, k, use_oue=True)),
        "olh": (lambda: LHClient(1.0, k, use_olh=True), lambda: LHServer(1.0, k, use_olh=True)),
        "hadamard": (lambda: HadamardMechClient(1.0, k, 1), lambda: HadamardMechServer(1.0, k, 1)),
    }[name]
    client = made[0]()
    shift = 0 if name == "hadamard" else 1  # its other clients count categories from 1

    def serve(answers):
        server = made[1]()
        server.aggregate_all(answers)
        server.estimate_all(list(range(shift, k + shift)), suppress_warnings=True)

    return lambda values: [client.privatise(v + shift) for v in values], serve


def ask_peer(python, peer, name, k):
    command = [python, "-W", "ignore", __file__, "peers", peer, name, str(k)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    return json.loads(result.stdout.splitlines()[-1]) if result.returncode == 0 else None


def use_one_core():
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main():
    use_one_core()
    if sys.argv[1:2] == ["peers"]:
        print(json.dumps(measure_peer(sys.argv[2], sys.argv[3], int(sys.argv[4]))))
        return
    sys.path.insert(0, str(ROOT / "src"))
    if sys.argv[1:2] == ["errors"]:
        compare_errors()
        return
    python = peer_python("local", REQUIREMENTS)
    print("millions of answers per second (client / server), epsilon 1, one core, best of", ROUNDS)
    print(f"{'':10}{'k':>5}{'ours':>16}{'epsilon':>22}{'error':>7}", end="")
    print("".join(f"{peer:>20}{'ours/peer':>16}" for peer in PEERS))
    for name, k in CASES:
        client, server, epsilon = measure_ours(name, k)
        error = measure_error(name, k) if k <= 128 else float("nan")
        print(
            f"{name:10}{k:>5}{client:>8.1f}{server:>8.0f}{epsilon:>22.17g}{error:>7.3f}", end="", flush=True
        )
        for peer in PEERS:
            found = ask_peer(python, peer, name, k)
            if found is None:
                print(f"{'-':>20}{'-':>16}", end="")
            else:
                ratios = f"{client / found[0]:.0f} / {server / found[1]:.0f}"
                print(f"{found[0]:>11.3f} /{found[1]:>7.3f}{ratios:>16}", end="", flush=True)
        print()
    for name in MEANS:
        client, server = measure_mean(name)
        print(f"{name:15}{client:>8.1f}{server:>8.0f}", flush=True)
    print("error: squared error of", REPEATS, "repeats over its theory; epsilon: delivered for a claim of 1")


if __name__ == "__main__":
    main()
