"""Statements a second through a server, beside plain PostgreSQL under the same clients, in one run.

    .venv/bin/python benchmarks/serve.py [--seconds 8] [--clients 1 8 64] [--deep 5000]
    .venv/bin/python benchmarks/serve.py --greedy --mix 600

Clients are threads of another process with psycopg on the PostgreSQL wire, each with a connection of its
own. New statements are all different and each is charged durably; stored ones were answered before. The
peer is a PostgreSQL server that counts the same 4,000 rows plainly: what a database without privacy costs.
`--deep` repeats the new statements after so many charges. CPU is that of the server for one statement.
Pages are those of a steward at rest, asked for one after another over one connection each, after all of that.
`--greedy`: one person asks as fast as eight connections can, and another now and then something stored or
of the catalog, whose times are shown. `--mix`: so many seconds of 64 people at once, of whose statements
40 % are stored, 45 % the catalog's and 15 % new. Both leave the rates out.
"""

import argparse
import contextlib
import os
import re
import shutil
import sys
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from helpers.served import PASSWORD, add_user, serve
from sfumato.serve.web.exchange import WORDS

FOLDER = Path(".bench/serve")
ROWS = 4000
PROJECT = """
[budget]
epsilon = 1000000
[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 5
[tables.visits.columns.clinic]
values = ["North", "South", "East"]
[tables.visits.columns.fee]
bounds = [0, 100]
[serve]
per_minute = 100000000
"""


def prepare():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "person": rng.integers(0, 1500, ROWS),
            "clinic": rng.choice(["North", "South", "East"], ROWS),
            "fee": np.round(rng.random(ROWS) * 100, 2),
        }
    )
    pq.write_table(table, FOLDER / "visits.parquet")
    (FOLDER / "sfumato.toml").write_text(PROJECT, encoding="utf-8")
    return table


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(conninfo, clients, seconds, make, *, pid=None):
    """Statements a second, the median and the 99th percentile of their times, and CPU each."""
    times, guard, numbers = [], threading.Lock(), iter(range(10**9))
    stop = time.monotonic() + seconds + 1

    def work():
        mine = []
        with psycopg.connect(conninfo, autocommit=True, prepare_threshold=None) as connection:
            gate.wait()
            while time.monotonic() < stop:
                with guard:
                    number = next(numbers)
                begun = time.perf_counter()
                connection.execute(make(number)).fetchall()
                mine.append(time.perf_counter() - begun)
        with guard:
            times.extend(mine)

    gate = threading.Barrier(clients + 1)
    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    begun, cpu = time.monotonic(), cpu_seconds(pid) if pid else 0.0
    stop = begun + seconds
    for thread in threads:
        thread.join()
    spent = (cpu_seconds(pid) - cpu if pid else 0.0) / max(1, len(times))
    elapsed = time.monotonic() - begun
    low, high = np.percentile(times, [50, 99])
    return len(times) / elapsed, 1000 * low, 1000 * high, 1000 * spent


def show(name, clients, figures, peer=None):
    rate, median, last, cpu = figures
    ratio = "" if peer is None else f"  {peer[0] / rate:.1f} times plain PostgreSQL's time"
    speed = f"{rate:8.1f}/s {median:8.1f} / {last:8.1f} ms {cpu:6.1f} ms CPU"
    print(f"{name:28s} {clients:3d} clients {speed}{ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--deep", type=int, default=0)
    parser.add_argument("--greedy", action="store_true")
    parser.add_argument("--mix", type=float, default=0)
    given = parser.parse_args()
    table = prepare()
    if given.greedy or given.mix:
        for number in range(PEOPLE):
            add_user(FOLDER, f"p{number}", share="900000")
        with serve(FOLDER) as served:
            if given.greedy:
                measure_greedy(served, given.seconds)
            if given.mix:
                measure_mix(served, given.mix)
        return
    peers = measure_peer(table, given)
    add_user(FOLDER, share="900000")
    marks = iter(range(10**6))

    def ask(number):
        return f"DP-SELECT 0.01 clinic, COUNT(*) AS n FROM visits WHERE fee > {number} GROUP BY clinic"

    def fresh(_):
        return ask(next(marks) / 10**4)

    def measure(name, clients, make):
        figures = load(served.dsn(), clients, given.seconds, make, pid=served.process.pid)
        show(name, clients, figures, peers.get(clients))

    add_user(FOLDER, "ada", role="steward")
    with serve(FOLDER) as served:
        load(served.dsn(), 1, 1, fresh)
        for clients in given.clients:
            measure("catalog", clients, lambda _: "SELECT version()")
            measure("stored answer", clients, lambda _: ask(0.0))
            measure("new statement", clients, fresh)
        if given.deep:
            while next(marks) < given.deep:
                load(served.dsn(), 8, 10, fresh)
            measure(f"new, {given.deep:,} charges deep", 8, fresh)
        measure_pages(served, ask(0.0))


def measure_pages(served, paid):
    """Prints how long pages take, among them a dashboard of six answers and a basket of four questions."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def send(path, **form):
        body = urllib.parse.urlencode(form).encode() if form else None
        with opener.open(served.page + path, body) as reply:
            return reply.url, reply.read().decode()

    send("/login", name="ada", password=PASSWORD, next="/ask")
    csrf = re.search('name="csrf" value="([^"]+)"', send("/ask")[1])[1]
    board = ""
    for number in range(6):
        form = {"csrf": csrf, "sql": paid, "title": f"{number}", "onto": board, "name": "Board"}
        place = send("/dashboards", **form)[0].removeprefix(served.page)
        board = place.rpartition("/")[2]
    for number in range(4):
        asked = f"DP-SELECT 0.1 clinic, COUNT(*) AS n FROM visits WHERE fee > {number + 7} GROUP BY clinic"
        send("/ask", csrf=csrf, sql=asked, action="basket")
    places = [path for path, _ in WORDS["places"]["steward"]]
    for path in (*places, place, "/ask/choose", "/ask/basket", f"/ask?sql={urllib.parse.quote(paid)}"):
        times = []
        for _ in range(20):
            begun = time.perf_counter()
            send(path)
            times.append(time.perf_counter() - begun)
        middle, last = 1000 * np.median(times), 1000 * max(times)
        print(f"page {path.split('?')[0]:23s} {middle:8.1f} ms, at most {last:8.1f} ms", flush=True)


PEOPLE = 64
COLUMNS = """SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a JOIN pg_class c
ON c.oid = a.attrelid WHERE c.relname = 'visits' AND a.attnum > 0"""
GREEDY = {
    "nobody else": None,
    "new statements": lambda k: f"DP-SELECT 0.01 COUNT(*) AS n FROM visits WHERE fee > {k / 10**4 + 50}",
    "large catalog queries": lambda _: "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c",
    "stored answers": lambda _: STORED,
}
STORED = "DP-SELECT 0.01 clinic, COUNT(*) AS n FROM visits GROUP BY clinic"


def show_times(name, times):
    low, high, last = 1000 * np.percentile(times, [50, 99, 100])
    print(f"{name:52s} {len(times):7d} {low:8.1f} / {high:8.1f} / {last:8.1f} ms", flush=True)


def measure_greedy(served, seconds):
    """Times of a person who asks now and then while eight connections of another are never idle."""
    print(f"{'asked beside eight connections':52s} {'times':>7s}   median / 99th / longest")
    numbers = iter(range(10**9))
    for what, make in GREEDY.items():
        stop = threading.Event()

        def fill(make=make, stop=stop):
            with psycopg.connect(served.dsn("p1"), autocommit=True, prepare_threshold=None) as greedy:
                while not stop.is_set():
                    with contextlib.suppress(psycopg.Error):  # a query that is too large ends so
                        greedy.execute(make(next(numbers))).fetchall()

        threads = [threading.Thread(target=fill) for _ in range(8 if make else 0)]
        for thread in threads:
            thread.start()
        with psycopg.connect(served.dsn("p0"), autocommit=True, prepare_threshold=None) as calm:
            calm.execute(STORED).fetchall()
            for name, text in (("a stored answer", STORED), ("the catalog", COLUMNS)):
                times, ends = [], time.monotonic() + seconds
                while time.monotonic() < ends:
                    time.sleep(0.05)
                    begun = time.perf_counter()
                    calm.execute(text).fetchall()
                    times.append(time.perf_counter() - begun)
                show_times(f"{name}, beside {what}", times)
        stop.set()
        for thread in threads:
            thread.join()


def read_memory(pid):
    fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure_mix(served, seconds):
    """64 people at once: what each kind of statement takes, errors, and memory as time goes by."""
    times = {"stored": [], "catalog": [], "new": []}
    errors, guard, numbers = [], threading.Lock(), iter(range(10**9))
    begun, pid = time.monotonic(), served.process.pid

    def work(person):
        rng = np.random.default_rng(person)
        mine = {kind: [] for kind in times}
        with psycopg.connect(served.dsn(f"p{person}"), autocommit=True, prepare_threshold=None) as line:
            while time.monotonic() < begun + seconds:
                kind = str(rng.choice(list(times), p=[0.4, 0.45, 0.15]))
                with guard:
                    number = next(numbers)
                text = {"stored": STORED, "catalog": COLUMNS, "new": GREEDY["new statements"](number)}[kind]
                at = time.perf_counter()
                try:
                    line.execute(text).fetchall()
                except psycopg.Error as error:
                    errors.append(type(error).__name__)
                mine[kind].append(time.perf_counter() - at)
        with guard:
            for kind, found in mine.items():
                times[kind] += found

    with psycopg.connect(served.dsn("p0"), autocommit=True) as first:
        first.execute(STORED)
    cpu = cpu_seconds(pid)
    threads = [threading.Thread(target=work, args=(person,)) for person in range(PEOPLE)]
    for thread in threads:
        thread.start()
    memory = [read_memory(pid)]
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(60, seconds / 10))
        memory.append(read_memory(pid))
    for thread in threads:
        thread.join()
    elapsed, cpu = time.monotonic() - begun, cpu_seconds(pid) - cpu
    print(f"{PEOPLE} people, {elapsed:.0f} s, {len(errors)} errors, {100 * cpu / elapsed:.0f} % of a core")
    for kind, found in times.items():
        show_times(f"{kind}, {len(found) / elapsed:.1f}/s", found)
    print("memory, MiB:", " ".join(f"{each:.0f}" for each in memory))


def measure_peer(table, given):
    from helpers.postgres_server import PASSWORD, USER, Server, why_missing

    if why_missing():
        print(f"no ratios: {why_missing()}")
        return {}
    figures, server = {}, Server()
    conninfo = f"host={server.folder} user={USER} password='{PASSWORD}' dbname=postgres"
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("CREATE TABLE visits (person bigint, clinic text, fee float8)")
            with connection.cursor().copy("COPY visits FROM STDIN") as copy:
                for row in zip(*(table[name].to_pylist() for name in table.column_names), strict=True):
                    copy.write_row(row)
        for clients in given.clients:
            figures[clients] = load(conninfo, min(clients, 50), given.seconds / 2, plain)
            show("plain PostgreSQL", clients, figures[clients])
    finally:
        server.stop()
    return figures


def plain(number):
    return f"SELECT clinic, COUNT(*) FROM visits WHERE fee > {number / 10**4} GROUP BY clinic"


if __name__ == "__main__":
    main()
