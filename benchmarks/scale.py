"""All pairs of twelve columns of taxi trips, counted with bounds and without, as the table grows.

    .venv/bin/python benchmarks/scale.py                            1 and 10 million trips
    .venv/bin/python benchmarks/scale.py --rows 100000000           100 million
    .venv/bin/python benchmarks/scale.py --engines spark            one engine only

The trips have the columns of the Chicago taxi data, and taxis of which some make very many trips. The
bounded side holds every taxi to 200 trips and counts all 66 pairs; the plain side is the same engine's own
GROUP BY of the same pairs, over the same files, one statement after another, or in DuckDB all in one if that
is faster. Each runs in a process of its own. Memory is the peak of the process and of those it started.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(".bench/scale")
PART = 5_000_000  # trips in a file

# Name, number of values, and SQL for the value of trip i; h(salt) is a hash below a million.
COLUMNS = {
    "shift": (21, "h(2) % 21"),
    "company_id": (101, "pow(h(3) / 1e6, 2) * 101"),
    "pickup_community_area": (79, "pow(h(4) / 1e6, 2) * 79 - 1"),
    "dropoff_community_area": (79, "pow(h(5) / 1e6, 2) * 79 - 1"),
    "payment_type": (13, "pow(h(6) / 1e6, 3) * 13 - 1"),
    "trip_day_of_week": (7, "h(7) % 7 + 1"),
    "trip_hour_of_day": (24, "h(8) % 24"),
    "fare": (11, "pow(h(9) / 1e6, 3) * 120"),
    "tips": (11, "pow(h(10) / 1e6, 4) * 40"),
    "trip_total": (11, "pow(h(11) / 1e6, 3) * 150"),
    "trip_seconds": (11, "pow(h(12) / 1e6, 2) * 6000"),
    "trip_miles": (11, "pow(h(13) / 1e6, 2) * 40"),
}
BINS = {
    "fare": [*range(0, 110, 10), 1000],
    "tips": [*range(0, 22, 2), 1000],
    "trip_total": [*range(0, 110, 10), 1000],
    "trip_seconds": [*range(0, 5500, 500), 100_000],
    "trip_miles": [*range(0, 22, 2), 1000],
}
LOWEST = {
    "pickup_community_area": -1,
    "dropoff_community_area": -1,
    "payment_type": -1,
    "trip_day_of_week": 1,
}
PAIRS = tuple(itertools.combinations(COLUMNS, 2))


def write_trips(folder: Path, rows: int) -> None:
    """Simulated trips in files of five million."""
    import duckdb

    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    connection.execute("SET memory_limit = '2GB'")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("CREATE MACRO h(i, salt) AS CAST(hash(i, salt) % 1000000 AS DOUBLE)")
    taxis = max(100, rows // 100)
    values = ", ".join(
        f"CAST({text.replace('h(', 'h(i, ')} AS FLOAT) AS {name}"
        if name in BINS
        else f"CAST(floor({text.replace('h(', 'h(i, ')}) AS SMALLINT) AS {name}"
        for name, (_, text) in COLUMNS.items()
    )
    for part, start in enumerate(range(0, rows, PART)):
        connection.execute(
            f"COPY (SELECT CAST(pow((hash(i, 1) % 1000003) / 1000003.0, 3) * {taxis} AS INTEGER) AS taxi_id, "
            f"{values} FROM range({start}, {min(rows, start + PART)}) AS t(i)) "
            f"TO '{folder}/trips{part:03}.parquet' (FORMAT parquet)"
        )
    (folder / "done").touch()


def describe(source: str):
    """The table of trips as sfumato sees it."""
    from sfumato.core.facts.table import parse_table

    columns = {
        name: {"bins": BINS[name], "outside": "clamp"}
        if name in BINS
        else {"range": [LOWEST.get(name, 0), LOWEST.get(name, 0) + size - 1], "outside": "clamp"}
        for name, (size, _) in COLUMNS.items()
    }
    return parse_table("trips", {"source": source, "unit": "taxi_id", "max_records": 200, "columns": columns})


def bounded(engine: str, folder: Path) -> list[float]:
    """Seconds to count all pairs with every taxi held to its bound."""
    from sfumato.core.questions.counts import Marginal
    from sfumato.servers.project import open_engine

    table = describe(f"spark:{folder.resolve()}/*.parquet" if engine == "spark" else "*.parquet")
    opened = open_engine(folder)
    opened.check(table, PAIRS)
    start = time.perf_counter()
    counted = opened.count(table, tuple(map(Marginal, PAIRS)), progress=lambda _: None)
    assert len({int(each.true_values.sum()) for each in counted}) == 1
    return [time.perf_counter() - start]


def binned(column: str) -> str:
    """The SQL of a column's value: itself, or which bin it is in."""
    if column not in BINS:
        return column
    cases = " ".join(f"WHEN {column} < {edge} THEN {place}" for place, edge in enumerate(BINS[column][1:-1]))
    return f"CASE {cases} ELSE {len(BINS[column]) - 2} END"


def plain(engine: str, folder: Path) -> list[float]:
    """Seconds of the engine's own counts of all pairs, the faster of two ways to ask."""
    values = ", ".join(f"{binned(name)} AS {name}" for name in COLUMNS)
    sets = ", ".join(f"({one}, {other})" for one, other in PAIRS)
    together = f"SELECT {', '.join(COLUMNS)}, count(*) FROM coded GROUP BY GROUPING SETS ({sets})"
    each = [f"SELECT {one}, {other}, count(*) FROM coded GROUP BY {one}, {other}" for one, other in PAIRS]
    if engine == "duckdb":
        import duckdb

        connection = duckdb.connect()
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"CREATE VIEW coded AS SELECT {values} FROM '{folder}/*.parquet'")

        def ask(query):
            return connection.sql(query).to_arrow_table()

    else:
        from sfumato.servers.spark.session import open_room

        session = open_room().session
        session.read.parquet(f"{folder.resolve()}/*.parquet").selectExpr(
            *(f"{binned(name)} AS {name}" for name in COLUMNS)
        ).createOrReplaceTempView("coded")

        def ask(query):
            return session.sql(query).toArrow()

    ask("SELECT count(*) FROM coded")
    seconds = []
    # Spark writes every trip once per set before it groups, so that one statement for all takes far longer.
    for queries in (each, [together]) if engine == "duckdb" else (each,):
        start = time.perf_counter()
        for query in queries:
            ask(query)
            if seconds and time.perf_counter() - start > seconds[0]:
                break
        seconds.append(time.perf_counter() - start)
    return [min(seconds)]


def watch_memory(peak: list[int]) -> None:
    """Notes the largest memory of this process and all below it, in kB, again and again."""
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    while True:
        parents: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = status.read_text().rsplit(")", 1)[1].split()
                pid = int(status.parent.name)
                shared = int((status.parent / "statm").read_text().split()[2])
            except (OSError, IndexError):
                continue
            # Forked workers share pages with each other; only their own count.
            parents[pid] = int(fields[1])
            sizes[pid] = (int(fields[21]) - (shared if pid != os.getpid() else 0)) * page
        mine = {os.getpid()}
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in mine} - mine
            mine |= more
            grown = bool(more)
        peak[0] = max(peak[0], sum(sizes.get(pid, 0) for pid in mine))
        time.sleep(0.1)


def run(engine: str, side: str, folder: Path) -> dict:
    """One process of one side: its seconds, and the peak memory of it and those it started."""
    done = subprocess.run(
        [sys.executable, __file__, "--side", side, "--engines", engine, "--source", str(folder)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--engines", nargs="+", default=["duckdb", "spark"], choices=["duckdb", "spark"])
    parser.add_argument("--sides", nargs="+", default=["bounded", "plain"], choices=["bounded", "plain"])
    parser.add_argument("--side", choices=["bounded", "plain"])
    parser.add_argument("--source", type=Path)
    options = parser.parse_args()
    if options.side is not None:
        peak = [0]
        threading.Thread(target=watch_memory, args=(peak,), daemon=True).start()
        seconds = {"bounded": bounded, "plain": plain}[options.side](options.engines[0], options.source)
        print(json.dumps({"seconds": min(seconds), "megabytes": peak[0] / 1024}))
        return
    missing = "spark" in options.engines and not (find_spec("pyspark") and shutil.which("java"))
    if missing:
        print("spark is left out: it needs `make engines` and Java", file=sys.stderr)
        options.engines.remove("spark")
    for rows in options.rows:
        folder = FOLDER / str(rows)
        write_trips(folder, rows)
        for engine in options.engines:
            found = {}
            for side in options.sides:
                found[side] = result = run(engine, side, folder)
                print(
                    f"{rows:>12,} {engine:7s} {side:8s} {result['seconds']:9.2f} s   "
                    f"{rows / result['seconds'] / 1e6:7.2f} million/s   peak {result['megabytes']:6.0f} MB",
                    flush=True,
                )
            if len(found) == 2:
                ratio = found["bounded"]["seconds"] / found["plain"]["seconds"]
                print(f"{rows:>12,} {engine:7s} bounded / plain  {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
