"""Seconds and peak memory of the metrics, beside a plain loop over the rows written from the specification.

Run with `.venv/bin/python benchmarks/metrics.py`. Each measurement runs in a process of its own, on
one core, so that its peak memory is its own. Times are those of the second call, after a first one
on a small table. The last line needs the public tables beside the project.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADULT = ROOT.parent / "shared" / "data" / "adult" / "adult.parquet"
ROWS, KINDS = 10_008, 174
TRIPS, TAXIS = 1_000_000, 20_000
PEOPLE = 1_000_000


def invent_counts(rows):
    """Counts of incidents with the sparse, skewed look of real ones, and a noisy release of them."""
    import numpy as np

    generator = np.random.default_rng(1)
    rates = 40 * generator.dirichlet(np.full(KINDS, 0.05), size=rows)
    truth = generator.poisson(rates * generator.lognormal(0, 1, (rows, 1)))
    return truth, np.maximum(truth + np.rint(generator.laplace(0, 2, truth.shape)).astype(np.int64), 0)


def score_row(truth, release):
    """One row of the pie chart metric, word for word."""
    import numpy as np

    if (truth == release).all():
        return 1.0
    bias = 0.25 if abs(int(truth.sum()) - int(release.sum())) > 500 else 0.0
    shown = []
    for side in (truth, release):
        total = side.sum()
        shares = side / total if total else np.zeros(side.size)
        shown.append(np.where(shares < 0.05, 0, side))
    p, q = ((side + 1e-9) / (side + 1e-9).sum() for side in shown)
    middle = (p + q) / 2
    divergence = (p * np.log2(p / middle)).sum() + (q * np.log2(q / middle)).sum()
    misleading = 0.2 * np.count_nonzero((shown[0] == 0) & (shown[1] > 0))
    return min(1.0, max(0.0, 1 - np.sqrt(max(divergence, 0.0) / 2) - misleading - bias))


def invent_trips(rows, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    areas = np.array([-1, *range(1, 78)])
    busy = generator.dirichlet(np.full(78, 0.3))
    return {
        "taxi_id": generator.integers(0, TAXIS, rows),
        "shift": generator.integers(0, 21, rows),
        "company_id": generator.integers(0, 57, rows),
        "pickup_community_area": areas[generator.choice(78, size=rows, p=busy)],
        "dropoff_community_area": areas[generator.choice(78, size=rows, p=busy)],
        "payment_type": generator.integers(-1, 8, rows),
        "fare": generator.integers(-1, 120, rows),
        "tips": generator.integers(-1, 40, rows),
        "trip_total": generator.integers(-1, 150, rows),
        "trip_seconds": generator.integers(-1, 3000, rows),
        "trip_miles": generator.integers(-1, 30, rows),
    }


def invent_people(rows, seed):
    import numpy as np

    generator = np.random.default_rng(seed)
    age = generator.integers(0, 20, rows)
    return {
        f"c{index}": (age + generator.integers(0, 3 + index, rows)) % (4 + 3 * index) for index in range(10)
    }


def prepare(task):
    """(a small call to warm up, the call to measure)."""
    from sfumato.metrics import compare_tables, pie_chart, taxi

    if task in ("pie", "loop"):
        truth, release = invent_counts(ROWS)
        if task == "pie":
            return lambda: pie_chart(truth[:10], release[:10]), lambda: pie_chart(truth, release).total
        return lambda: None, lambda: float(sum(map(score_row, truth, release)))
    if task == "taxi":
        small, truth, release = invent_trips(1000, 1), invent_trips(TRIPS, 2), invent_trips(TRIPS, 3)
        return lambda: taxi(small, small), lambda: taxi(truth, release).score
    small = invent_people(1000, 1)
    if task == "people":
        truth, release = invent_people(PEOPLE, 2), invent_people(PEOPLE, 3)
    else:
        import pyarrow.parquet as pq

        truth = pq.read_table(ADULT).drop_columns(["split"])
        release = truth.slice(0, truth.num_rows // 2)
    return (
        lambda: compare_tables(small, small),
        lambda: compare_tables(truth, release).marginals.marginals[0].tvd,
    )


def measure(task):
    """The figures of one task: seconds, the largest memory, memory before the call, the result."""
    warm, call = prepare(task)
    warm()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "peak": peak / 1024, "before": before / 1024, "result": result}


def use_one_core():
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main():
    use_one_core()
    if len(sys.argv) > 1:
        sys.path.insert(0, str(ROOT / "src"))
        print(json.dumps(measure(sys.argv[1])))
        return
    tasks = {
        "loop": f"pie chart, {ROWS:,} x {KINDS}, a loop over rows",
        "pie": f"pie chart, {ROWS:,} x {KINDS}",
        "taxi": f"taxi, {TRIPS:,} trips against {TRIPS:,}",
        "people": f"general, {PEOPLE:,} rows x 10 against {PEOPLE:,}",
    }
    if ADULT.is_file():
        tasks["adult"] = "general, Adult (48,842 x 15) against a half"
    figures = {}
    print(f"{'one core':58}{'seconds':>9}{'peak MB':>9}{'of it, by the call':>20}")
    for task, name in tasks.items():
        done = subprocess.run([sys.executable, __file__, task], check=True, capture_output=True, text=True)
        figures[task] = each = json.loads(done.stdout)
        grown = each["peak"] - each["before"]
        print(f"{name:58}{each['seconds']:>9.2f}{each['peak']:>9.0f}{grown:>20.0f}", flush=True)
    assert abs(figures["loop"]["result"] - figures["pie"]["result"]) < 1e-6
    ratio = figures["loop"]["seconds"] / figures["pie"]["seconds"]
    print(f"pie chart: {ratio:.1f} times as fast as the loop, and the same total")


if __name__ == "__main__":
    main()
