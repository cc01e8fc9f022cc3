"""DP-SELECT on PostgreSQL and Spark beside the engine's own plain GROUP BY, in one run, as ratios.

    .venv/bin/python benchmarks/pushdown.py postgres                 10 million rows
    .venv/bin/python benchmarks/pushdown.py spark --rows 20000000    Parquet, Spark on this machine

One individual for ten rows, half of all rows on half of the people. With max_records = 20 some exceed the
bound; with 100 nobody does. Our side is the whole statement: planned, charged durably, bounded, aggregated,
noised and finished. `fetched` is the same statement with its columns fetched and aggregated here. The
PostgreSQL server is one of the tests' own, with the settings that it comes with. Rounds alternate.
"""

import argparse
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, "tests")

FOLDER = Path(".bench/pushdown")
STATEMENTS = {
    "count": "region, month_no, COUNT(*) AS n FROM trips GROUP BY region, month_no",
    "sum": "region, SUM(amount) AS total, AVG(amount) AS mean FROM trips GROUP BY region",
    "where": "COUNT(*) AS n FROM trips WHERE amount > 50 AND kind IN (1, 2, 3)",
}


def write_trips(path: Path, *, rows: int) -> None:
    """The trips of benchmarks/sql.py, in one Parquet file."""
    from benchmarks.sql import write_trips

    write_trips(path, rows=rows)


def write_project(source: str, bound: int) -> Path:
    from benchmarks.sql import PROJECT

    folder = FOLDER / f"project-{bound}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "sfumato.toml").write_text(PROJECT.format(source=source, bound=bound))
    return folder / "sfumato.toml"


def time_ours(curator, name: str, epsilon: int) -> float:
    start = time.perf_counter()
    assert curator.sql(f"DP-SELECT {epsilon} {STATEMENTS[name]}").spent == epsilon
    return time.perf_counter() - start


def compare(source: str, plain, options) -> None:
    import sfumato as sf
    from sfumato.servers.postgres.engine import PostgresEngine
    from sfumato.servers.spark.engine import SparkEngine

    for name in options.statements:
        sides: dict[str, list[float]] = {"plain": []}
        curators = {
            f"ours, max_records = {bound}": sf.open(write_project(source, bound)) for bound in options.bounds
        }
        sides |= {side: [] for side in curators}
        for round_ in range(options.rounds):
            start = time.perf_counter()
            plain(f"SELECT {STATEMENTS[name]}")
            sides["plain"].append(time.perf_counter() - start)
            for side, curator in curators.items():
                sides[side].append(time_ours(curator, name, 1 + round_))
        if options.fetched:
            kept = [(each, each.push) for each in (PostgresEngine, SparkEngine)]
            for each, _ in kept:
                each.push = lambda self, table, plan: None
            sides["fetched"] = [time_ours(sf.open(write_project(source, options.bounds[0])), name, 50)]
            for each, push in kept:
                each.push = push
        plainly = statistics.median(sides["plain"])
        for side, seconds in sides.items():
            later = statistics.median(seconds[1:] or seconds)
            print(
                f"{name:6} {side:24} first {seconds[0]:7.2f} s, {seconds[0] / plainly:6.2f} x plain, "
                f"later {later:7.2f} s, {later / plainly:6.2f} x plain",
                flush=True,
            )


def run_postgres(options) -> None:
    import psycopg

    from helpers.postgres_server import PASSWORD, Server

    os.environ["PGPASSWORD"] = PASSWORD
    server = Server()
    rows = options.rows
    try:
        people = rows // 10
        with server.connect() as connection:
            start = time.perf_counter()
            connection.execute(
                "CREATE UNLOGGED TABLE trips AS SELECT CAST(CASE WHEN random() < 0.5 THEN "
                f"floor(random() * {people}) ELSE floor(random() * {people // 2}) END AS integer) AS person, "
                "CAST(floor(random() * 278) AS integer) AS region, "
                "CAST(1 + floor(random() * 12) AS integer) AS month_no, "
                "CAST(floor(random() * 174) AS integer) AS kind, floor(random() * 10000) / 100 AS amount "
                f"FROM generate_series(1, {rows})"
            )
            connection.commit()
            connection.autocommit = True
            connection.execute("VACUUM ANALYZE trips")
            print(f"{rows:,} rows written in {time.perf_counter() - start:.0f} s", flush=True)
        source = server.url(schema="x").replace("&schema=x", "&table=public.trips")
        with psycopg.connect(source.split("&table=")[0]) as connection:
            compare(source, lambda query: connection.execute(query).fetchall(), options)
    finally:
        server.stop()


def run_spark(options) -> None:
    from pyspark.sql import SparkSession

    FOLDER.mkdir(parents=True, exist_ok=True)
    path = (FOLDER / f"trips-{options.rows}.parquet").resolve()
    if not path.exists():
        write_trips(path, rows=options.rows)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--conf spark.driver.memory=4g pyspark-shell")
    session = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    session.read.parquet(str(path)).createOrReplaceTempView("trips")
    compare(f"spark:{path}", lambda query: session.sql(query).toArrow(), options)


if __name__ == "__main__":
    sys.path.insert(0, ".")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["postgres", "spark"])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bounds", nargs="+", type=int, default=[20, 100])
    parser.add_argument("--statements", nargs="+", choices=list(STATEMENTS), default=list(STATEMENTS))
    parser.add_argument("--fetched", action="store_true", help="also fetch the columns, once")
    options = parser.parse_args()
    {"postgres": run_postgres, "spark": run_spark}[options.engine](options)
