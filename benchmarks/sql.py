"""DP-SELECT beside plain DuckDB, OpenDP and smartnoise-sql, in one run, as ratios of CPU seconds.

    .venv/bin/python benchmarks/sql.py              10 million rows, sfumato and DuckDB
    .venv/bin/python benchmarks/sql.py --peers      and one million rows with the peers
    .venv/bin/python benchmarks/sql.py --statement d    one statement alone; d and e are of inner aggregates

One million individuals have up to about 40 rows. With max_records = 20 many exceed the bound and are cut;
with 100 nobody does. Our sides are the whole statement: planned, charged durably, bounded, aggregated,
noised and finished; the first of a curator, which reads and seals the source, and later ones. Each side
runs in a process of its own and rounds alternate. A peer is installed into an environment of its own under
.bench/ and is left out, with a message, where that fails or takes too long.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

FOLDER = Path(".bench/sql")
ROUNDS = 1
REPEATS = 2
PEER_REPEATS = 1
PATIENCE = 900
BOUNDS = (20, 100)
PEERS = {"opendp": "opendp[polars]==0.16.*", "smartnoise": "smartnoise-sql==1.0.10"}

STATEMENTS = {
    "a": "region, month_no, kind, COUNT(*) AS n FROM {trips} GROUP BY region, month_no, kind",
    "b": "region, SUM(amount) AS total, AVG(amount) AS mean FROM {trips} GROUP BY region",
    "c": "COUNT(*) AS n FROM {trips} WHERE amount > 50",
    "j": "zone, COUNT(*) AS n, SUM(amount) AS total FROM {trips} JOIN {zones} USING (region) GROUP BY zone",
    "r": "grade, COUNT(*) AS n, SUM(amount) AS total FROM {rides} JOIN {people} ON person = id "
    "GROUP BY grade",
    "d": "AVG(n) AS mean FROM (SELECT person, COUNT(*) AS n FROM {trips} GROUP BY person) AS p",
    "e": "n, COUNT(*) AS people, AVG(total) AS mean, SUM(kinds) AS kinds FROM (SELECT person, COUNT(*) AS n, "
    "SUM(amount) AS total, COUNT(DISTINCT kind) AS kinds FROM {trips} WHERE amount > 5 GROUP BY person "
    "HAVING COUNT(*) > 1) AS p GROUP BY n",
}

NAMES = {name: name for name in ("trips", "rides", "people", "zones")}

PROJECT = """
[budget]
epsilon = 100000
[tables.trips]
source = "{source}"
unit = "person"
max_records = {bound}
[tables.trips.columns.region]
range = [0, 277]
[tables.trips.columns.month_no]
range = [1, 12]
[tables.trips.columns.kind]
range = [0, 173]
[tables.trips.columns.amount]
bounds = [0, 100]
[tables.zones]
source = "{zones}"
public = true
[tables.people]
source = "{people}"
unit = "id"
max_records = 1
[tables.people.columns.grade]
range = [0, 9]
[tables.rides]
source = "{source}"
references = {{person = "people.id"}}
max_records = {bound}
[tables.rides.columns.amount]
bounds = [0, 100]
"""
# What a session asks, one after the other: each names a column more than those before, or none.
SESSION = (
    "COUNT(*) FROM trips",
    "month_no, COUNT(*) FROM trips GROUP BY month_no",
    "month_no, SUM(amount) FROM trips GROUP BY month_no",
    "region, AVG(amount) FROM trips GROUP BY region",
    "COUNT(*) FROM trips WHERE amount > 50",
    "region, month_no, kind, COUNT(*) FROM trips GROUP BY region, month_no, kind",
    "zone, SUM(amount) FROM trips JOIN zones USING (region) GROUP BY zone",
    "region, COUNT(DISTINCT person) FROM trips GROUP BY region",
    "month_no, MEDIAN(amount) FROM trips GROUP BY month_no",
    "kind, COUNT(*), SUM(amount) FROM trips GROUP BY kind",
)

METADATA = """
'':
  bench:
    trips:
      row_privacy: false
      max_ids: {bound}
      censor_dims: false
      clamp_counts: false
      person: {{type: int, private_id: true}}
      region: {{type: int, lower: 0, upper: 277}}
      month_no: {{type: int, lower: 1, upper: 12}}
      kind: {{type: int, lower: 0, upper: 173}}
      amount: {{type: float, lower: 0.0, upper: 100.0}}
"""


def write_trips(path: Path, *, rows: int) -> None:
    """Invented trips; half of all rows fall on half of the people, so that a few have many."""
    import duckdb

    people = rows // 10
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false")
    person = f"CASE WHEN hash(i, 1) % 2 = 0 THEN hash(i, 2) % {people} ELSE hash(i, 3) % {people // 2} END"
    connection.execute(
        f"COPY (SELECT CAST({person} AS INTEGER) AS person, CAST(hash(i, 4) % 278 AS INTEGER) AS region, "
        "CAST(1 + hash(i, 5) % 12 AS INTEGER) AS month_no, CAST(hash(i, 6) % 174 AS INTEGER) AS kind, "
        f"(hash(i, 7) % 10000) / 100.0::DOUBLE AS amount FROM range({rows}) AS t(i)) "
        f"TO '{path}' (FORMAT parquet)"
    )


def name_files(source: Path) -> dict[str, str]:
    """The files of the tables, quoted as in SQL; those beside the trips are written if they are missing."""
    import duckdb

    files = {"trips": source, "rides": source}
    for name, columns in (
        ("people", f"i AS id, hash(i) % 10 AS grade FROM range({10**6}) AS t(i)"),
        ("zones", "i AS region, 'zone ' || i % 20 AS zone FROM range(278) AS t(i)"),
    ):
        files[name] = source.with_name(f"{name}.parquet")
        if not files[name].exists():
            duckdb.sql(f"COPY (SELECT {columns}) TO '{files[name]}' (FORMAT parquet)")
    return {name: repr(str(path)) for name, path in files.items()}


def measure_duckdb(source: Path, name: str, bound: int) -> list[float]:
    import duckdb

    seconds = []
    for _ in range(REPEATS):
        connection = duckdb.connect()
        start = time.process_time()
        connection.sql(f"SELECT {STATEMENTS[name].format(**name_files(source))}").to_arrow_table()
        seconds.append(time.process_time() - start)
        connection.close()
    return seconds


def measure_first(source: Path, name: str, bound: int) -> list[float]:
    """Statements of which each is the first of its curator: the source is read and sealed."""
    import sfumato as sf

    project = write_project(source, f"{name}-first", bound)
    return [time_statement(sf.open(project), name, epsilon=1 + repeat) for repeat in range(REPEATS)]


def measure_later(source: Path, name: str, bound: int) -> list[float]:
    """Further statements to a curator that has sealed the source."""
    import sfumato as sf

    curator = sf.open(write_project(source, f"{name}-later", bound))
    return [time_statement(curator, name, epsilon=1 + repeat) for repeat in range(REPEATS + 1)][1:]


def write_project(source: Path, name: str, bound: int) -> Path:
    folder = source.parent / f"project-{source.stem}-{name}-{bound}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files = {name: f"../{Path(path.strip(chr(39))).name}" for name, path in name_files(source).items()}
    (folder / "sfumato.toml").write_text(PROJECT.format(source=files["trips"], bound=bound, **files))
    return folder / "sfumato.toml"


def measure_session(source: Path, name: str, bound: int) -> list[float]:
    """Ten statements to one curator, which seals what they name."""
    import sfumato as sf

    curator = sf.open(write_project(source, "session", bound))
    seconds = []
    for text in SESSION:
        start = time.process_time()
        curator.sql(f"DP-SELECT 1 {text}")
        seconds.append(time.process_time() - start)
    return seconds


def time_statement(curator, name: str, *, epsilon: int) -> float:
    start = time.process_time()
    answer = curator.sql(f"DP-SELECT {epsilon} {STATEMENTS[name].format(**NAMES)}")
    seconds = time.process_time() - start
    assert answer.spent == epsilon
    return seconds


def measure_opendp(source: Path, name: str, bound: int) -> list[float]:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    sizes = {"region": (0, 277), "month_no": (1, 12), "kind": (0, 173)}
    by = {"a": ["region", "month_no", "kind"], "b": ["region"], "c": []}[name]
    seconds = []
    for _ in range(PEER_REPEATS):
        start = time.perf_counter()
        context = dp.Context.compositor(
            data=pl.scan_parquet(source),
            privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("person")),
            privacy_loss=dp.loss_of(epsilon=1.0),
            split_evenly_over=1,
            margins=[dp.polars.Margin(by=by, max_length=10**8, max_groups=10**6)] if by else [],
        )
        query = context.query()
        if name == "c":
            query = query.filter(pl.col("amount") > 50)
        query = query.truncate_per_group(bound)
        amount = pl.col("amount").fill_nan(0).fill_null(0.0)
        wanted = [dp.len(signed=True)]
        if name == "b":
            wanted = [amount.dp.sum((0.0, 100.0)), dp.len(signed=True)]
        if by:
            keys = pl.LazyFrame({"one": [0]})
            for column in by:
                low, high = sizes[column]
                values = pl.LazyFrame({column: range(low, high + 1)}, schema={column: pl.Int32})
                keys = keys.join(values, how="cross")
            query = query.group_by(by).agg(*wanted).with_keys(keys.drop("one"))
        else:
            query = query.select(*wanted)
        query.release().collect()
        seconds.append(time.perf_counter() - start)
    return seconds


def measure_smartnoise(source: Path, name: str, bound: int) -> list[float]:
    import pandas
    import snsql

    metadata = source.parent / f"trips-{bound}.yaml"
    metadata.write_text(METADATA.format(bound=bound))
    frame = pandas.read_parquet(source)
    seconds = []
    for _ in range(PEER_REPEATS):
        start = time.perf_counter()
        reader = snsql.from_df(frame, privacy=snsql.Privacy(epsilon=1.0, delta=1e-9), metadata=str(metadata))
        reader.execute(f"SELECT {STATEMENTS[name].format(trips='bench.trips')}")
        seconds.append(time.perf_counter() - start)
    return seconds


SIDES = {
    "duckdb": measure_duckdb,
    "first": measure_first,
    "later": measure_later,
    "session": measure_session,
    "opendp": measure_opendp,
    "smartnoise": measure_smartnoise,
}


def run(side: str, source: Path, name: str, bound: int, *, python: str = sys.executable) -> dict | None:
    """One process of one side: seconds of each repeat and peak memory, or None with a message."""
    command = [python, __file__, "--side", side, "--source", str(source)]
    command += ["--statement", name, "--bound", str(bound)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    except subprocess.TimeoutExpired:
        print(f"   {side}: statement {name} left out, not done after {PATIENCE} s")
        return None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"   {side}: statement {name} left out, {last[:160]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def compare(source: Path, name: str, bound: int, sides: dict[str, str], *, rounds: int) -> None:
    """Prints every side, and its ratio to plain DuckDB and to ours."""
    results: dict[str, list[dict]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, python in sides.items():
            found = run(side, source, name, bound, python=python)
            results[side] += [found] if found is not None else []
    medians = {}
    for side, runs in results.items():
        if runs:
            medians[side] = statistics.median(value for each in runs for value in each["seconds"])
            ratios = "   ".join(
                f"{medians[side] / medians[other]:8.2f} x {other}"
                for other in ("duckdb", "first", "later")
                if other in medians and other != side
            )
            memory = max(each["megabytes"] for each in runs)
            print(f"{name}  {side:10s} {medians[side]:8.3f} s   {memory:6.0f} MB   {ratios}", flush=True)


def install(peer: str) -> str | None:
    """The Python of an environment that holds `peer`, made if there is none; None with a message."""
    folder = Path(".bench") / peer
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", PEERS[peer]]
    command += ["pandas", "pyarrow"] if peer == "smartnoise" else []
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        print(f"{peer} is left out: {PEERS[peer]} could not be installed")
        return None
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only-peers", action="store_true")
    parser.add_argument("--side", choices=list(SIDES))
    parser.add_argument("--source", type=Path)
    parser.add_argument("--statement", choices=list(STATEMENTS))
    parser.add_argument("--bound", type=int)
    options = parser.parse_args()
    if options.side:
        seconds = SIDES[options.side](options.source, options.statement, options.bound)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "megabytes": peak}))
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    ours = {"duckdb": sys.executable, "first": sys.executable, "later": sys.executable}
    plans = [] if options.only_peers else [(10_000_000, ours, ROUNDS)]
    if options.peers or options.only_peers:
        found = {peer: install(peer) for peer in PEERS}
        plans.append((1_000_000, ours | {peer: python for peer, python in found.items() if python}, 1))
    chosen = list(STATEMENTS) if options.statement is None else [options.statement]
    for rows, sides, rounds in plans:
        source = FOLDER / f"trips-{rows}.parquet"
        if not source.exists():
            write_trips(source, rows=rows)
        for bound in BOUNDS:
            print(f"\n{rows:,} rows, max_records = {bound}")
            for name in chosen:
                compare(source, name, bound, sides, rounds=rounds)
            session = run("session", source, "a", bound) if options.statement is None else None
            if session is not None:
                each = " ".join(f"{seconds:.1f}" for seconds in session["seconds"])
                print(f"session of ten statements: {each} s, {session['megabytes']:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
