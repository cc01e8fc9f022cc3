"""What a lecture's toolboxes do, done here, beside peers that run: quantiles, clusters, composition.

    .venv/bin/python benchmarks/toolboxes.py [--runs 10] [--data DIR] [--only quantiles,clusters]

Peers are installed into an environment of their own under .bench/toolboxes on the first run, and get the same
numbers and the same public bounds. A run of ours is a whole release: charge, noise, certificate. One row is
one person. Ranks are shares of the records: an error of 0.01 puts the 50 % quantile at 49 or 51 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from peers import peer_python

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ["diffprivlib==0.6.6", "scikit-learn<1.6", "numpy"]
DELTA = 1e-6
SHARES = [0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95]

PEER = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
job = json.load(sys.stdin)
data = np.load(job["data"])
if job["what"] == "quantiles":
    from diffprivlib.tools import quantile
    start = time.perf_counter()
    options = {"epsilon": job["epsilon"] / len(job["shares"]), "bounds": tuple(job["bounds"])}
    found = [float(quantile(data, share, **options)) for share in job["shares"]]
elif job["what"] == "clusters":
    from diffprivlib.models import KMeans
    start = time.perf_counter()
    bounds = (np.full(data.shape[1], -1.0), np.full(data.shape[1], 1.0))
    found = KMeans(job["clusters"], epsilon=job["epsilon"], bounds=bounds).fit(data).cluster_centers_.tolist()
else:
    from sklearn.cluster import KMeans
    start = time.perf_counter()
    found = KMeans(job["clusters"], n_init=5, random_state=0).fit(data).cluster_centers_.tolist()
print(json.dumps({"found": found, "seconds": time.perf_counter() - start}))
"""


def ask_peer(folder, data, **job):
    np.save(folder / "data.npy", data)
    job |= {"data": str(folder / "data.npy")}
    done = subprocess.run(
        [peer_python("toolboxes", REQUIREMENTS), "-c", PEER],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def open_project(folder, columns, bounds):
    """A curator with a large budget over a new table."""
    import sfumato as sf

    for ledger in folder.glob("ledger.db*"):
        ledger.unlink()
    pq.write_table(pa.table(columns), folder / "t.parquet")
    lines = [
        "[budget]",
        "epsilon = 100000",
        "delta = 1e-3",
        "[tables.t]",
        'source = "t.parquet"',
        'unit = "row"',
    ]
    for name, (low, high) in bounds.items():
        lines += [f"[tables.t.columns.{name}]", f"bounds = [{low}, {high}]"]
    (folder / "sfumato.toml").write_text("\n".join(lines))
    return sf.open(folder / "sfumato.toml")


def rank_error(values, found, bounds):
    """The largest distance in rank of found values from their shares, but for one step of the range."""
    ordered, found = np.sort(values), np.array(found)
    step = (bounds[1] - bounds[0]) / 1024
    low = np.searchsorted(ordered, found - step, side="left") / values.size
    high = np.searchsorted(ordered, found + step, side="right") / values.size
    shares = np.array(SHARES)
    return float(np.maximum(0, np.maximum(low - shares, shares - high)).max())


def compare_quantiles(folder, data, runs):
    """Nine quantiles of a column for one epsilon: ours, pure and with delta; nine in SQL; nine of a peer."""
    from sfumato.recipes import Quantiles

    random = np.random.default_rng(1)
    adult = pq.read_table(data / "adult/adult.parquet")
    columns = {
        "adult hours (48,842)": (adult["hours-per-week"].to_numpy().astype(float), (0, 100)),
        "log-normal incomes (10,000)": (np.exp(random.normal(10, 0.7, 10_000)), (0, 200_000)),
        "log-normal incomes (1,000)": (np.exp(random.normal(10, 0.7, 1_000)), (0, 200_000)),
    }
    print("nine quantiles at once: mean of the largest error in rank")
    print(f"{'column':30s}{'epsilon':>8s}{'quantiles':>11s}{'Gaussian':>11s}{'SQL':>9s}{'diffprivlib':>12s}")
    listed = ", ".join(f"QUANTILE(x, {share}) AS q{place}" for place, share in enumerate(SHARES))
    for name, (values, bounds) in columns.items():
        clipped = np.clip(values, *bounds)
        for epsilon in (0.1, 1):
            errors = {"pure": [], "delta": [], "sql": [], "peer": []}
            for _ in range(runs):
                curator = open_project(folder, {"x": values}, {"x": bounds})
                for kind, delta in (("pure", 0), ("delta", DELTA)):
                    noise = "gaussian" if delta else "laplace"
                    recipe = Quantiles(table="t", column="x", noise=noise)
                    model = curator.learn(recipe, epsilon=epsilon, delta=delta)
                    try:
                        found = [model.quantile(share).value for share in SHARES]
                    except Exception:
                        found = [bounds[0]] * len(SHARES)
                    errors[kind].append(rank_error(clipped, found, bounds))
                row = curator.sql(f"DP-SELECT {epsilon} {listed} FROM t").to_arrow().to_pylist()[0]
                errors["sql"].append(
                    rank_error(clipped, [row[f"q{place}"] for place in range(len(SHARES))], bounds)
                )
                peer = ask_peer(
                    folder, values, what="quantiles", epsilon=epsilon, shares=SHARES, bounds=bounds
                )
                errors["peer"].append(rank_error(clipped, peer["found"], bounds))
            means = [float(np.mean(each)) for each in errors.values()]
            print(
                f"{name:30s}{epsilon:8g}{means[0]:11.4f}{means[1]:11.4f}{means[2]:9.4f}{means[3]:12.4f}",
                flush=True,
            )


def cost(points, centres):
    """The mean squared distance to the nearest centre."""
    total = 0.0
    for start in range(0, len(points), 10_000):
        part = points[start : start + 10_000]
        total += float(((part[:, None, :] - np.asarray(centres)[None]) ** 2).sum(axis=2).min(axis=1).sum())
    return total / len(points)


def compare_clusters(folder, data, runs):
    """Mean squared distances over those of k-means without noise: ours, and diffprivlib's KMeans."""
    from sfumato.recipes import Clusters

    random = np.random.default_rng(2)
    adult = pq.read_table(data / "adult/adult.parquet")
    bounds = {"age": (17, 90), "education-num": (1, 16), "hours-per-week": (1, 99)}
    scaled = [
        2 * (np.clip(adult[name].to_numpy().astype(float), low, high) - low) / (high - low) - 1
        for name, (low, high) in bounds.items()
    ]

    def heaps(people, dimensions, clusters):
        centres = random.uniform(-0.8, 0.8, (clusters, dimensions))
        points = centres[np.arange(people) % clusters] + random.normal(size=(people, dimensions)) * 0.08
        return np.clip(points, -1, 1), clusters

    tables = {
        "5,000 in 2 dimensions, 3 heaps": heaps(5_000, 2, 3),
        "20,000 in 5 dimensions, 5 heaps": heaps(20_000, 5, 5),
        "50,000 in 10 dimensions, 5 heaps": heaps(50_000, 10, 5),
        "adult: age, education, hours; 4": (np.stack(scaled, axis=1), 4),
    }
    print("\nk-means: mean squared distance over that of k-means without noise (mean of runs), seconds")
    print(
        f"{'table':34s}{'one':>7s}{'epsilon':>8s}{'clusters':>10s}{'found':>7s}{'s':>6s}{'diffprivlib':>13s}{'s':>6s}"
    )
    for name, (points, clusters) in tables.items():
        plain = cost(points, ask_peer(folder, points, what="plain", clusters=clusters)["found"])
        one = cost(points, points.mean(axis=0)[None]) / plain
        names = [f"x{place}" for place in range(points.shape[1])]
        for epsilon in (0.1, 1):
            ours, found, peer, seconds = [], [], [], [[], []]
            for _ in range(runs):
                curator = open_project(
                    folder, dict(zip(names, points.T, strict=True)), dict.fromkeys(names, (-1, 1))
                )
                start = time.perf_counter()
                model = curator.learn(
                    Clusters(table="t", columns=names, clusters=clusters), epsilon=epsilon, delta=DELTA
                )
                seconds[0].append(time.perf_counter() - start)
                ours.append(cost(points, model.centres) / plain)
                found.append(model.found)
                given = ask_peer(folder, points, what="clusters", clusters=clusters, epsilon=epsilon)
                peer.append(cost(points, given["found"]) / plain)
                seconds[1].append(given["seconds"])
            print(
                f"{name:34s}{one:7.2f}{epsilon:8g}{np.mean(ours):10.3f}{sum(found):4d}/{runs:<2d}"
                f"{np.mean(seconds[0]):6.1f}{np.mean(peer):13.3f}{np.mean(seconds[1]):6.1f}",
                flush=True,
            )


def compare_median(folder, data, runs):
    """The median of 1,695 numbers among 2^20: pydp's notebook says 56 seconds, and an error of 0 or 5."""
    from sfumato.choose import quantile

    del folder, data
    values = np.random.default_rng(3).normal(462_196, 60_000, 1_695).round().clip(0, 2**20 - 1)
    print("\nmedian of 1,695 numbers among 2^20 candidates, epsilon 0.5: error in rank, seconds")
    for _ in range(min(runs, 5)):
        start = time.perf_counter()
        found = quantile(lambda: values, range(2**20), "0.5", epsilon="0.5").candidate
        rank = float((values < found).mean())
        print(f"  {abs(rank - 0.5):.4f}  {time.perf_counter() - start:.2f}", flush=True)


def compare_compositions(folder, data, runs):
    """Rules of composition for some numbers of queries."""
    from sfumato.report.explain.composition import compare_compositions as compare
    from sfumato.report.explain.guarantee import Guarantee

    del folder, data, runs
    print(f"\ncomposition at delta {DELTA:g}")
    for epsilon, times in (("1", 5), ("0.1", 100), ("0.01", 1000), ("0.01", 10_000)):
        lines = compare(Guarantee(kind="epsilon", amount=epsilon, times=times), delta=str(DELTA))
        shown = [f"{line.rule} {'-' if line.epsilon is None else f'{line.epsilon:.3f}'}" for line in lines]
        print(f"  {times:6,} x {epsilon:5s} {'  '.join(shown)}", flush=True)


PARTS = {
    "quantiles": compare_quantiles,
    "clusters": compare_clusters,
    "median": compare_median,
    "composition": compare_compositions,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for part in options.only.split(","):
            PARTS[part](Path(folder), options.data, options.runs)


if __name__ == "__main__":
    sys.exit(main())
