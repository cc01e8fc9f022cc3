"""CPU seconds of all threads and memory that recipes take as tables grow, beside a plain GROUP BY in one run.

    .venv/bin/python benchmarks/growth.py [NAME ...] [--profile]

Names are those of JOBS; all of them by default. Every job runs in a process of its own, on records that are
invented for it. `plain` is DuckDB counting what is released of the same file (where pairs are chosen, every
column) in the same process, before it. With --profile, the functions of the largest job, by CPU time.
"""

import argparse
import json
import subprocess
import sys
import tempfile

JOBS = {
    "cells": [{"rows": 1_500_000}],
    "adaptive rows": [{"rows": rows, "columns": 20} for rows in (10**4, 10**5, 10**6)],
    "tree rows": [{"rows": rows, "columns": 20} for rows in (10**4, 10**5, 10**6)],
    "adaptive columns": [{"rows": 20_000, "columns": columns} for columns in (10, 108, 500)],
    "tree columns": [{"rows": 20_000, "columns": columns} for columns in (10, 108, 500)],
    "hierarchy": [{"leaves": leaves} for leaves in (10**3, 10**4, 10**5, 10**6)],
    "running": [{"periods": periods, "by": by} for periods, by in ((12, 1000), (60, 1000), (365, 1000))],
    "field-groups": [{"rows": 100_000, "columns": 98}, {"rows": 800_000, "columns": 98}],
}

START = """
import json, sys, time
from pathlib import Path
import duckdb, numpy as np, pyarrow as pa, pyarrow.parquet as pq
given, folder, profiled = json.loads(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "profile"
random = np.random.default_rng(1)
def write(arrays, text, unit='unit = "row"'):
    pq.write_table(pa.table({name: pa.array(each) for name, each in arrays.items()}), folder / "t.parquet")
    head = f'[budget]\\nepsilon = 100\\ndelta = 0.001\\n[tables.t]\\nsource = "t.parquet"\\n{unit}\\n'
    (folder / "sfumato.toml").write_text(head + text)
def used():
    return time.process_time()
def count(*groups):
    begun = used()
    with duckdb.connect(config={"temp_directory": ""}) as connection:
        for group in groups:
            query = f"SELECT {group}, count(*) FROM '{folder / 't.parquet'}' GROUP BY ALL"
            connection.sql(query).to_arrow_table()
    return used() - begun
def mixed(rows, columns):
    "Neighbouring columns depend on each other; sizes from 2 to 20."
    sizes, codes = [2 + 3 * (place % 7) for place in range(columns)], {}
    before = random.integers(0, 20, rows)
    for place, size in enumerate(sizes):
        kept = random.random(rows) < 0.6
        before = np.where(kept, before, random.geometric(0.3, rows)) % size
        codes[f"c{place}"] = before
    text = "".join(f"[tables.t.columns.c{i}]\\nrange = [0, {s - 1}]\\n" for i, s in enumerate(sizes))
    return codes, text
import sfumato as sf
R = sf.recipes
"""

MAKE = {
    "cells": """
codes = {"place": random.integers(0, 278, given["rows"]), "month": random.integers(1, 13, given["rows"]),
    "kind": random.integers(0, 174, given["rows"])}
sizes = {"place": (0, 277), "month": (1, 12), "kind": (0, 173)}
write(codes, "".join(f"[tables.t.columns.{n}]\\nrange = {list(s)}\\n" for n, s in sizes.items()))
plain, recipe, delta = count("place, month, kind"), R.CellCounts(table="t", by=tuple(sizes)), 0
""",
    "adaptive": """
codes, text = mixed(given["rows"], given["columns"])
write(codes, text)
plain, recipe, delta = count(*codes), R.Adaptive(table="t"), 1e-9
""",
    "tree": """
codes, text = mixed(given["rows"], given["columns"])
write(codes, text)
plain, recipe, delta = count(*codes), R.Tree(table="t"), 1e-9
""",
    "field-groups": """
codes, text = mixed(given["rows"], given["columns"])
write(codes, text)
names = list(codes)
groups = [names[start : start + 3] for start in range(0, len(names) - 2, 3)]
plain = count(*(", ".join(group) for group in groups))
recipe, delta = R.FieldGroups(table="t", groups=groups, rows=given["rows"]), 1e-9
""",
    "hierarchy": """
leaves = given["leaves"]
names = [f"tract {i:07d}" for i in range(leaves)]
county = [f"county {i // 50:05d}" for i in range(leaves)]
state = [f"state {i // 5000:03d}" for i in range(leaves)]
pq.write_table(pa.table({"tract": names, "county": county, "state": state}), folder / "tree.parquet")
(folder / "tracts.csv").write_text("\\n".join(["tract", *names]) + "\\n")
codes = random.geometric(20 / leaves, 1_000_000) % leaves
tracts = pa.array(names).take(pa.array(codes))
write({"tract": tracts}, '[tables.t.columns.tract]\\nvalues_file = "tracts.csv"\\n')
plain = count("tract", "tract[:4]")
del names, county, state, codes
recipe, delta = R.Hierarchy(table="t", column="tract", tree=str(folder / "tree.parquet")), 1e-9
""",
    "running": """
periods, by = given["periods"], given["by"]
codes = {"day": random.integers(0, periods, 200_000), "place": random.integers(0, by, 200_000)}
write(codes, "".join(f"[tables.t.columns.{n}]\\nrange = [0, {s - 1}]\\n" for n, s in
    (("day", periods), ("place", by))))
plain = count("day, place")
recipe, delta = R.Running(table="t", period="day", by=("place",), through=periods - 1), 1e-9
""",
}

END = """
import cProfile, gc, pstats
curator = sf.open(folder / "sfumato.toml")
profile = cProfile.Profile(time.process_time)
Path("/proc/self/clear_refs").write_text("5")  # what made the records does not count
gc.collect()
begun, started = used(), time.perf_counter()
if profiled:
    profile.enable()
release = curator.release(recipe, epsilon=1, delta=delta, out=folder / "out")
profile.disable()
spent, passed = used() - begun, time.perf_counter() - started
if profiled:
    pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats("sfumato", 60)
print(json.dumps({"plain": plain, "seconds": spent, "wall": passed,
    "ledger": (folder / "ledger.db").stat().st_size / 1e6,
    "megabytes": int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1000}))
"""


def run(name, given, *, profiled=False):
    """The figures of one job in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", START + MAKE[name.split()[0]] + END, name, json.dumps(given), folder]
        done = subprocess.run(
            [*command, "profile" if profiled else "plain"], stdout=subprocess.PIPE, text=True, check=True
        )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(JOBS))
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    print("job                                        CPU     plain   ratio   wall/CPU   peak MB   ledger MB")
    for name in options.names:
        for given in JOBS[name]:
            found = run(name, given, profiled=options.profile and given == JOBS[name][-1])
            label = f"{name}, " + ", ".join(f"{key} {value:,}" for key, value in given.items())
            cpu, plain = found["seconds"], found["plain"]
            print(
                f"{label:38s} {cpu:7.2f} {plain:9.3f} {cpu / plain:7.1f} {found['wall'] / cpu:10.2f} "
                f"{found['megabytes']:9.0f} {found['ledger']:11.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
