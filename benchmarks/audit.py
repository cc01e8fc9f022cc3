"""Audits at length: how many runs each specimen takes, and everything that is shipped, thoroughly.

Run with `.venv/bin/python benchmarks/audit.py [specimens|recipes|statements|fuzz] [--cases N] [--seed TEXT]`.
Exit code 1 if a specimen is missed, something that is shipped is refuted, or a made-up case tells neighbours
apart. At 95 % about one thorough audit in twenty may be refuted by chance, so that audits of what is shipped
run at 99.99 %. Made-up cases (tests/helpers/fuzz.py) leave nothing to chance; a seed makes them again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import sfumato as sf
from sfumato.audit import audit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from helpers.as_written import as_written
from helpers.specimens import SPECIMENS

LADDER = (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
REPEATS = 20
CONFIDENCE = 0.9999
PROJECT = """
[budget]
epsilon = 1
delta = 1e-5
[tables.t]
source = "t.parquet"
unit = "p"
max_records = {max_records}
neighbours = "{neighbours}"
bounding = "{bounding}"
[tables.t.columns.c]
range = [0, 19]
[tables.t.columns.d]
values = ["x", "y", "z"]
outside = "other"
[tables.t.columns.b]
bins = [0, 10, 20, 30]
bounds = [0, 30]
outside = "clamp"
[tables.t.columns.m]
from = "at"
period = "month"
"""
COLUMNS = {
    "p": pa.string(),
    "c": pa.int64(),
    "d": pa.string(),
    "b": pa.float64(),
    "at": pa.timestamp("us"),
    "o": pa.string(),
}
UNITS = [("add-remove", "truncate"), ("replace", "truncate"), ("add-remove", "weight")]
RECIPES = [
    (sf.recipes.CellCounts(table="t", by=("c", "d", "m")), 0),
    (sf.recipes.CellCounts(table="t", by=("c", "d"), noise="gaussian"), 1e-6),
    (sf.recipes.CappedCounts(table="t", by=("c", "d")), 0),
    (sf.recipes.Map(table="t", by=("c", "d", "m")), 0),
    (sf.recipes.UserCounts(table="t", by=("c", "d")), 0),
    (sf.recipes.UserCounts(table="t", by=("c", "d"), noise="gaussian"), 1e-6),
    (sf.recipes.FieldGroups(table="t", groups=(("c", "d"), ("b", "m"))), 0),
    (sf.recipes.Tree(table="t"), 1e-6),
    (sf.recipes.AdaptiveGrid(table="t", outer=(("c", "d"), ("c", "b"))), 1e-6),
    (sf.recipes.Adaptive(table="t"), 1e-6),
]
STATEMENTS = [
    "DP-SELECT 1 COUNT(*) FROM t",
    "DP-SELECT 1 d, COUNT(*), SUM(b), AVG(b), VARIANCE(b), COUNT(DISTINCT p) FROM t GROUP BY d",
    "DP-SELECT 1 DELTA 1e-6 d, SUM(b), COUNT(c) FROM t WHERE c > 1 GROUP BY d",
    "DP-SELECT 1 MEDIAN(b), MIN(b), MAX(b) FROM t",
    "DP-SELECT 1 d, QUANTILE_CONT(b, 0.9) FROM t GROUP BY d",
    "DP-SELECT 1 DELTA 1e-6 o, COUNT(*), SUM(b) FROM t GROUP BY o",
    "DP-SELECT 1 DELTA 1e-6 o, d, COUNT(DISTINCT p) FROM t GROUP BY o, d",
    "DP-SELECT 1 d, c FROM t",
    "DP-SELECT WITHIN 50 COUNT(*) FROM t",
    "DP-SELECT WITHIN 50% COUNT(*) FROM t",
]


def write_project(folder, *, neighbours="add-remove", bounding="truncate", max_records=4):
    file = Path(folder) / "sfumato.toml"
    file.write_text(PROJECT.format(neighbours=neighbours, bounding=bounding, max_records=max_records))
    empty = pa.table({name: pa.array([], kind) for name, kind in COLUMNS.items()})
    pq.write_table(empty, file.parent / "t.parquet")
    return file


def runs_needed(specimen):
    """The first number of runs of the ladder at which 19 of 20 audits catch the specimen."""
    for runs in LADDER:
        caught = sum(
            audit(
                specimen.mechanism, neighbours=specimen.neighbours, epsilon=specimen.claim, runs=runs
            ).verdict
            == "VIOLATED"
            for _ in range(REPEATS)
        )
        if caught >= 19:
            return f"{runs:,}"
    return f"> {LADDER[-1]:,}"


def bench_specimens():
    missed = 0
    print("specimen | claim | truth | runs on each side for 19 of 20 | default: bound, runs, seconds")
    for specimen in SPECIMENS:
        start = time.perf_counter()
        found = audit(specimen.mechanism, neighbours=specimen.neighbours, epsilon=specimen.claim)
        took = time.perf_counter() - start
        missed += found.verdict != "VIOLATED"
        print(
            f"{specimen.name} | {specimen.claim:g} | {specimen.truth:g} | {runs_needed(specimen)} | "
            f"{found.epsilon_lower:.2f}, {found.runs // 2:,}, {took:.0f}",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        found = audit(as_written("c", "d", "m"), project=write_project(folder, max_records=20))
        missed += found.verdict != "VIOLATED"
        print(f"the recipe as written: {time.perf_counter() - start:.0f} s\n{found}")
    return missed


def bench_shipped(mechanisms):
    refuted = 0
    for neighbours, bounding in UNITS:
        with tempfile.TemporaryDirectory() as folder:
            file = write_project(folder, neighbours=neighbours, bounding=bounding)
            for mechanism, options in mechanisms:
                if bounding == "weight" and isinstance(
                    mechanism, (str, sf.recipes.CappedCounts, sf.recipes.Map)
                ):
                    continue
                start = time.perf_counter()
                found = audit(mechanism, project=file, effort="thorough", confidence=CONFIDENCE, **options)
                took = time.perf_counter() - start
                refuted += found.verdict == "VIOLATED"
                print(f"{took:.0f} s, {neighbours}, {bounding}: {found.mechanism}\n{found}\n", flush=True)
    return refuted


def bench_fuzz(cases, seed):
    from helpers import fuzz

    start, counts, found = time.perf_counter(), Counter(), 0
    print(f"{cases:,} made-up cases, seed {seed!r}", flush=True)
    for fault in fuzz.run_cases(cases, seed=seed, counts=counts):
        found += 1
        print(fault, flush=True)
    took = time.perf_counter() - start
    refused = sum(count for told, count in counts.items() if told.startswith("refused"))
    print(f"{took:.0f} s, {counts['answered']:,} answered, {refused:,} refused, {found:,} faults", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("wanted", nargs="*", help="specimens, recipes, statements, fuzz; all by default")
    parser.add_argument("--cases", type=int, default=20_000, help="made-up cases")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="the seed of made-up cases")
    given = parser.parse_args()
    wanted = given.wanted or ["specimens", "recipes", "statements", "fuzz"]
    wrong = 0
    if "specimens" in wanted:
        wrong += bench_specimens()
    if "recipes" in wanted:
        wrong += bench_shipped([(recipe, {"epsilon": 1, "delta": delta}) for recipe, delta in RECIPES])
    if "statements" in wanted:
        wrong += bench_shipped([(statement, {}) for statement in STATEMENTS])
    if "fuzz" in wanted:
        wrong += bench_fuzz(given.cases, given.seed)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
