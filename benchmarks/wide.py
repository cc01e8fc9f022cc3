"""A wide table through `field-groups`: time and memory beside the same groups counted without privacy.

    .venv/bin/python benchmarks/wide.py                                  98 invented columns
    .venv/bin/python benchmarks/wide.py --fields census1940/fields.json  the 98 fields of the 1940 census
    .venv/bin/python benchmarks/wide.py --fields census1940/fields.json --score columns field-groups-laplace
        field-groups tree adaptive --rows 100000

800,000 rows are simulated, skewed as such fields are, and put into 39 groups, several of them with more bins
than could ever be listed. Each part runs in a process of its own, so that its peak memory is its own. The
plain part counts the occupied bins of every group with DuckDB and writes them to Parquet.

With `--score`, records are simulated whose fields go together, and their releases are scored by the official
metric of the contest about that census, at its three epsilons and delta 1e-9; 1,000,000 is perfect. Groups of
fields are learnt from 20,000 other records of the same law, which stand for a public table.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sfumato.metrics.contests.packs import BINS_BY_HAND

ROWS = 800_000
GROUPS = 39

PREPARE = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from sfumato.core.facts.column import parse_ranges
folder, columns, rows = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[3])
random = np.random.default_rng(1)
lines = ['[budget]', 'epsilon = 1000', '[tables.t]', 'source = "t.parquet"', 'unit = "row"']
arrays = {}
for name, ranges in columns.items():
    values = np.array(parse_ranges(ranges))
    arrays[name] = pa.array(values[(random.zipf(1.5, rows) - 1) % values.size])
    lines += [f'[tables.t.columns.{name}]', f'ranges = {json.dumps(ranges)}']
pq.write_table(pa.table(arrays), folder / "t.parquet")
(folder / "sfumato.toml").write_text("\\n".join(lines))
"""

SHARED = """
import json, resource, sys, time
from pathlib import Path
folder, groups = Path(sys.argv[1]), json.loads(sys.argv[2])
def tell(seconds, **more):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"seconds": seconds, "gigabytes": peak, **more}))
"""

PRIVATE = (
    SHARED
    + """
import sfumato as sf
curator = sf.open(folder / "sfumato.toml")
recipe = sf.recipes.FieldGroups(table="t", groups=groups, rows=int(sys.argv[3]))
began = time.perf_counter()
release = curator.release(recipe, epsilon=8, out=folder / "out")
seconds = time.perf_counter() - began
kept = sum(len(each.noisy_values) for each in release.measurements if each.cells is not None)
tell(seconds, rows=release.table.num_rows, columns=release.table.num_columns, kept=kept)
"""
)

PLAIN = (
    SHARED
    + """
import duckdb
began = time.perf_counter()
for number, group in enumerate(groups):
    names = ", ".join(f'"{name}"' for name in group)
    query = f"SELECT {names}, count(*) AS n FROM '{folder / 't.parquet'}' GROUP BY ALL"
    duckdb.sql(f"COPY ({query}) TO '{folder / f'plain{number}.parquet'}'")
tell(time.perf_counter() - began)
"""
)


DELTA = 1e-9
EPSILONS = (0.3, 1, 8)
KINDS, STATES, BLOCK, CITIES = 10, 6, 4, 15
# Tree and adaptive cannot hold pairs of fields of 30,000 values: longer ones have bins here.
LONG = 60


def simulate(columns, rows, seed):
    """Records of the columns: people of ten kinds; four neighbouring fields follow a state of their own.

    The law is the same for every seed. Wages depend on city and sex, and a fifth of people have none.
    """
    from sfumato.core.facts.column import parse_ranges

    law, random = np.random.default_rng(1940), np.random.default_rng(seed)
    shares = 0.8 ** np.arange(KINDS)
    kind = random.choice(KINDS, rows, p=shares / shares.sum())
    records = {}
    for place, (name, ranges) in enumerate(columns.items()):
        values = np.array(parse_ranges(ranges))
        if place % BLOCK == 0:
            leaning = np.cumsum(law.dirichlet(np.full(STATES, 0.4), KINDS), axis=1)
            state = (random.random(rows)[:, None] > leaning[kind]).sum(axis=1).clip(max=STATES - 1)
        home = law.integers(0, min(values.size, 40), STATES)
        strayed = np.where(random.random(rows) < 0.2, random.zipf(1.7, rows), 0)
        records[name] = values[(home[state] + strayed) % values.size]
    if {"SEX", "CITY", "INCWAGE"} <= set(columns):
        sex, city = 1 + random.integers(0, 2, rows), random.zipf(1.5, rows) % CITIES
        wage = np.exp(random.normal(6.3 + 0.04 * city, 0.5 + 0.02 * city)) * np.where(
            sex == 1, 1, 0.5 + 0.02 * city
        )
        wage = np.minimum(10 * np.round(wage / 10), 5000).astype(np.int64)
        names = np.array(parse_ranges(columns["CITY"]))[: 7 * CITIES : 7]
        wage = np.where(random.random(rows) < 0.2, 999998, wage)
        records |= {"SEX": sex, "CITY": names[city], "INCWAGE": wage}
    return records


def learn_groups(columns, public, *, records, epsilon, delta):
    """Groups of columns by a public table, for so many private records."""
    from sfumato.core.facts.column import parse_ranges
    from sfumato.recipes.grouping.groups import find_groups

    values = {name: np.array(parse_ranges(ranges)) for name, ranges in columns.items()}
    codes = {name: np.searchsorted(values[name], public[name]) for name in columns}
    sizes = {name: each.size for name, each in values.items()}
    found = find_groups(codes, sizes, epsilon=epsilon, delta=delta, records=records)
    return [list(each.columns) for each in found.groups if len(each.columns) > 1]


def score(columns, rows, wanted):
    """Prints the score of every wanted recipe at every epsilon, and of two references."""
    import pyarrow as pa
    import pyarrow.parquet

    import sfumato as sf
    from sfumato.core.facts.column import parse_ranges
    from sfumato.metrics import match3

    truth = simulate(columns, rows, seed=1)
    random = np.random.default_rng(2)
    shuffled = {name: random.permutation(each) for name, each in truth.items()}
    few = random.choice(rows, rows // 10, replace=False)
    print(f"{rows:,} records, {len(columns)} fields: score, marginals, conjunctions, income")

    def tell(label, release, seconds):
        scored = match3(truth, release)
        parts = " ".join(f"{each:>9,.0f}" for each in (scored.marginals, scored.conjunctions, scored.income))
        print(f"  {label:32s} {scored.score:>9,.0f} {parts}  {seconds:.0f} s", flush=True)

    tell("columns shuffled", shuffled, 0)
    tell("a tenth of the records", {name: each[few] for name, each in truth.items()}, 0)
    public = simulate(columns, 20_000, seed=3)
    with tempfile.TemporaryDirectory() as folder:
        lines = ["[budget]", "epsilon = 1000", "delta = 0.1"]
        for table in ("t", "coarse"):
            lines += [f"[tables.{table}]", 'source = "t.parquet"', 'unit = "row"']
            for name, ranges in columns.items():
                values = parse_ranges(ranges)
                described = f"ranges = {json.dumps(ranges)}"
                if table == "coarse" and len(values) > LONG and name != "CITY":  # cities are ranked
                    edges = [*values[:: -(-len(values) // LONG)], values[-1], values[-1] + 1]
                    described = f"bins = {sorted(set(edges))}"
                lines += [f"[tables.{table}.columns.{name}]", described]
        (Path(folder) / "sfumato.toml").write_text("\n".join(lines))
        pa.parquet.write_table(pa.table(truth), Path(folder) / "t.parquet")
        pa.parquet.write_table(pa.table(public), Path(folder) / "public.parquet")
        curator = sf.open(Path(folder) / "sfumato.toml")
        for epsilon in EPSILONS:
            for name in wanted:
                delta = 0 if name == "field-groups-laplace" else DELTA
                began, groups = time.process_time(), []
                if name.startswith("field-groups"):
                    groups = learn_groups(columns, public, records=rows, epsilon=epsilon, delta=delta)
                if name in ("tree", "adaptive"):
                    kind = {"tree": sf.recipes.Tree, "adaptive": sf.recipes.Adaptive}[name]
                    recipe = kind(table="coarse", rows=rows, public=str(Path(folder) / "public.parquet"))
                else:
                    recipe = sf.recipes.FieldGroups(table="t", groups=groups, rows=rows)
                release = curator.release(recipe, epsilon=epsilon, delta=delta)
                label = f"{name}, {sum(map(len, groups))} fields grouped" if groups else name
                tell(f"{epsilon}: {label}", release.table, time.process_time() - began)


def read_columns(fields):
    """The 98 columns and their values, as ranges."""
    if fields is None:
        sizes = [2, 3, 5, 8, 10, 20, 60, 100, 200, 1000]
        columns = {f"field{i}": [[0, sizes[i * 7 % 10] - 1]] for i in range(94)}
        return columns | {f"long{i}": [[0, 30000], 9999998, 9999999] for i in range(4)}
    columns = {}
    for name, field in json.loads(fields.read_text())["fields"].items():
        codes = sorted({*map(int, field.get("codes") or ()), field["maxval"]})
        columns[name] = BINS_BY_HAND.get(name, codes if field.get("codes") else [[0, field["maxval"]]])
    return columns


def run(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout) if result.stdout else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fields", type=Path)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--score", nargs="+", metavar="RECIPE")
    options = parser.parse_args()
    columns = read_columns(options.fields)
    if options.score:
        score(columns, options.rows, options.score)
        return
    names = list(columns)
    several = [names[start : start + 3] for start in range(0, 3 * (len(names) - GROUPS) // 2, 3)]
    alone = [[name] for name in names if not any(name in group for group in several)]
    groups = several + alone
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "columns.json"
        listed.write_text(json.dumps(columns))
        run(PREPARE, folder, listed, options.rows)
        plain = run(PLAIN, folder, json.dumps(groups))
        private = run(PRIVATE, folder, json.dumps(groups), options.rows)
    print(f"{options.rows:,} rows, {len(names)} columns, {len(groups)} groups")
    print(f"  counted plainly  {plain['seconds']:6.1f} s  {plain['gigabytes']:.2f} GB")
    print(f"  field-groups     {private['seconds']:6.1f} s  {private['gigabytes']:.2f} GB, with its rows")
    print(f"  {private['kept']:,} bins of histograms too large to list passed their cut")
    print(f"  ratio {private['seconds'] / plain['seconds']:.1f}")


if __name__ == "__main__":
    main()
