"""A wide table through `field-groups`: time and memory beside the same groups counted without privacy.

    .venv/bin/python benchmarks/wide.py                                  98 invented columns
    .venv/bin/python benchmarks/wide.py --fields census1940/fields.json  the 98 fields of the 1940 census

800,000 rows are simulated, skewed as such fields are, and put into 39 groups, several of them with more bins
than could ever be listed. Each part runs in a process of its own, so that its peak memory is its own. The
plain part counts the occupied bins of every group with DuckDB and writes them to Parquet.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = 800_000
GROUPS = 39
SPECIAL = {
    "SUPDIST": [[10, 630, 10]],
    "MIGSEA5": [[1, 502], 990, 991, 997],
    "INCWAGE": [[0, 5000], 999998],
    "VALUEH": [[0, 30000], 9999998, 9999999],
    "EDSCOR50": [[0, 1000], 9999],
    "ERSCOR50": [[0, 1000], 9999],
    "NPBOSS50": [[0, 1000], 9999],
    "MIGMET5": [[0, 9600, 20], 9999],
    "MIGCOUNTY": [[0, 8000, 10], 9997, 9999],
    "IND": [[0, 231], 995, 998, 999],
}

PREPARE = """
import json, sys
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from sfumato.schema.column import parse_ranges
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


def read_columns(fields):
    """The 98 columns and their values, as ranges."""
    if fields is None:
        sizes = [2, 3, 5, 8, 10, 20, 60, 100, 200, 1000]
        columns = {f"field{i}": [[0, sizes[i * 7 % 10] - 1]] for i in range(94)}
        return columns | {f"long{i}": [[0, 30000], 9999998, 9999999] for i in range(4)}
    columns = {}
    for name, field in json.loads(fields.read_text())["fields"].items():
        codes = sorted({*map(int, field.get("codes") or ()), field["maxval"]})
        columns[name] = SPECIAL.get(name, codes if field.get("codes") else [[0, field["maxval"]]])
    return columns


def run(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout) if result.stdout else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fields", type=Path)
    parser.add_argument("--rows", type=int, default=ROWS)
    options = parser.parse_args()
    columns = read_columns(options.fields)
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
