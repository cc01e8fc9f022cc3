"""A whole private release beside the same non-private GROUP BY, in one run, as ratios.

    .venv/bin/python benchmarks/release.py              1.5 million simulated incidents
    .venv/bin/python benchmarks/release.py --large      and 100 million rows, for memory

The private side reads, bounds, counts, draws noise, charges a durable ledger, and writes Parquet, CSV,
measurements, certificate and write-up. The other side is DuckDB's GROUP BY to a Parquet file.
Each side runs in processes of its own; rounds alternate, so that a busy machine slows both.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(".bench/release")
ROUNDS = 5
REPEATS = 4
BY = ("neighbourhood", "month", "incident")

PROJECT = """
[budget]
epsilon = 1000
[tables.incidents]
source = "{source}"
unit = "resident"
max_records = 20
[tables.incidents.columns.neighbourhood]
range = [0, 277]
[tables.incidents.columns.month]
range = [1, 12]
[tables.incidents.columns.incident]
range = [0, 173]
"""


def write_incidents(path: Path, *, rows: int, residents: int) -> None:
    """Simulated incidents: codes with long tails, residents with 1 to about 20 records."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET memory_limit = '4GB'")
    connection.execute("SET preserve_insertion_order = false")
    skew = "CAST(floor({size} * pow((hash(i, {salt}) % 1000003) / 1000003.0, 2)) AS {kind})"
    connection.execute(
        f"COPY (SELECT CAST(hash(i, 1) % {residents} AS INTEGER) AS resident, "
        f"{skew.format(size=278, salt=2, kind='SMALLINT')} AS neighbourhood, "
        "CAST(1 + hash(i, 3) % 12 AS TINYINT) AS month, "
        f"{skew.format(size=174, salt=4, kind='SMALLINT')} AS incident "
        f"FROM range({rows}) AS t(i)) TO '{path}' (FORMAT parquet)"
    )


def plain(source: Path) -> list[float]:
    """Seconds of DuckDB's own GROUP BY to Parquet."""
    import duckdb

    seconds = []
    for _ in range(REPEATS):
        connection = duckdb.connect()
        start = time.perf_counter()
        connection.execute(
            f"COPY (SELECT {', '.join(BY)}, count(*) AS n FROM '{source}' GROUP BY ALL) "
            f"TO '{source.parent / 'plain.parquet'}' (FORMAT parquet)"
        )
        seconds.append(time.perf_counter() - start)
        connection.close()
    return seconds


def private(source: Path) -> list[float]:
    """Seconds of a whole release, from the opened project to the renamed folder."""
    import sfumato as sf

    folder = source.parent / f"project-{source.stem}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "sfumato.toml").write_text(PROJECT.format(source=f"../{source.name}"))
    recipe = sf.recipes.CellCounts(table="incidents", by=BY)
    seconds = []
    for repeat in range(REPEATS):
        start = time.perf_counter()
        release = sf.open(folder / "sfumato.toml").release(
            recipe, epsilon=1 + repeat, out=folder / f"out{repeat}"
        )
        seconds.append(time.perf_counter() - start)
        assert not release.repeated
    return seconds


def run(side: str, source: Path) -> dict:
    """One process of one side: seconds of each repeat, and peak memory."""
    done = subprocess.run(
        [sys.executable, __file__, "--side", side, "--source", str(source)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def compare(name: str, source: Path, *, rounds: int) -> None:
    """Prints both sides and their ratio."""
    results = {"plain": [], "private": []}
    for _ in range(rounds):
        for side in results:
            results[side].append(run(side, source))
    seconds = {side: [value for each in runs for value in each["seconds"]] for side, runs in results.items()}
    memory = {side: max(each["megabytes"] for each in runs) for side, runs in results.items()}
    for side in results:
        print(
            f"{name:14s} {side:8s} median {statistics.median(seconds[side]):8.3f} s   "
            f"best {min(seconds[side]):8.3f} s   peak memory {memory[side]:6.0f} MB"
        )
    median = statistics.median(seconds["private"]) / statistics.median(seconds["plain"])
    best = min(seconds["private"]) / min(seconds["plain"])
    print(f"{name:14s} ratio    median {median:8.2f} x   best {best:8.2f} x\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--side", choices=["plain", "private"])
    parser.add_argument("--source", type=Path)
    options = parser.parse_args()
    if options.side:
        seconds = {"plain": plain, "private": private}[options.side](options.source)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "megabytes": peak}))
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    sizes = [("1.5 million", 1_500_000, 300_000, ROUNDS)]
    if options.large:
        sizes.append(("100 million", 100_000_000, 12_000_000, 1))
    for name, rows, residents, rounds in sizes:
        source = FOLDER / f"incidents-{rows}.parquet"
        if not source.exists():
            write_incidents(source, rows=rows, residents=residents)
        compare(name, source, rounds=rounds)


if __name__ == "__main__":
    main()
