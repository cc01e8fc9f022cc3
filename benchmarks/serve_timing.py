"""Whether reply times of a server tell that an individual is there: 1,000 interleaved runs of each.

    .venv/bin/python benchmarks/serve_timing.py [--runs 1000] [--reply-every 0.05]

Two servers have the same table, one with a further individual whose records are as many and whose texts are
as long as the schema admits. Statements that spend their time on that individual alone are asked of both in
turn, each a new one, and what the client's clock says is compared by a rank test. A p-value above 0.05 says
that the two were not told apart. What the grid of reply times hides is shown beside it: the CPU of the same
statements in one process, without a server.
"""

import argparse
import shutil
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import mannwhitneyu

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from helpers.served import add_user, serve

FOLDER = Path(".bench/serve_timing")
ROWS = 20_000
PROJECT = """
[budget]
epsilon = 1000000
[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 20
text_limit = 1000
[tables.visits.columns.clinic]
values = ["North", "South", "East"]
[tables.visits.columns.fee]
bounds = [0, 100]
[serve]
reply_every = {reply_every}
per_minute = 1000000
"""


def write_project(folder, *, present, reply_every):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    person = rng.integers(1000, 6000, ROWS)
    clinic = rng.choice(["North", "South", "East"], ROWS).tolist()
    fee = np.round(rng.random(ROWS) * 100, 2)
    if present:
        more = 20
        person = np.concatenate([person, np.full(more, 5)])
        clinic += ["w" * 1000] * more
        fee = np.concatenate([fee, np.full(more, 50.0)])
    pq.write_table(pa.table({"person": person, "clinic": clinic, "fee": fee}), folder / "visits.parquet")
    (folder / "sfumato.toml").write_text(PROJECT.format(reply_every=reply_every), encoding="utf-8")


def statement(number, *, steps):
    """A text that doubles `steps` times and is then searched, for the person 5 alone."""
    parts = ["a0 AS (SELECT CASE WHEN person = 5 THEN clinic ELSE '' END AS w, fee FROM visits)"]
    parts += [f"a{k} AS (SELECT w || w AS w, fee FROM a{k - 1})" for k in range(1, steps + 1)]
    chosen = f"UPPER(w) NOT LIKE '%W%W%W%W%X' AND fee > {number / 1000}"
    return f"WITH {', '.join(parts)} DP-SELECT 0.1 COUNT(*) AS n FROM a{steps} WHERE {chosen}"


def most_steps(folder):
    """The longest such statement that is admitted."""
    import sfumato

    curator, steps = sfumato.open(folder / "sfumato.toml"), 0
    while steps < 20:
        try:
            curator.sql(f"EXPLAIN {statement(0, steps=steps + 1)}")
        except sfumato.UnsupportedQuery:
            break
        steps += 1
    return steps


def compare(runs, reply_every):
    shutil.rmtree(FOLDER, ignore_errors=True)
    with ExitStack() as stack:
        servers, times = {}, {"present": [], "absent": []}
        for name in times:
            folder = FOLDER / name
            write_project(folder, present=name == "present", reply_every=reply_every)
            token = add_user(folder, share="900000")
            servers[name] = stack.enter_context(serve(folder)), token
        steps = most_steps(FOLDER / "present")
        for number in range(runs + 20):
            for name in ("present", "absent") if number % 2 else ("absent", "present"):
                served, token = servers[name]
                text = statement(number, steps=steps)
                begun = time.perf_counter()
                reply = served.post("/api/sql", {"sql": text}, token=token)
                seconds = time.perf_counter() - begun
                assert reply["spent"] > 0, reply
                if number >= 20:  # the first ones read and seal the source
                    times[name].append(1000 * seconds)
    text = f"{steps} doublings, replies on a grid from {reply_every * 1000:g} ms"
    return show(text, times)


def compare_work(runs):
    """The CPU of the statements themselves, on the tables that were served."""
    import sfumato

    curators = {name: sfumato.open(FOLDER / name / "sfumato.toml") for name in ("present", "absent")}
    steps = most_steps(FOLDER / "present")
    times = {"present": [], "absent": []}
    for number in range(runs + 20):
        for name in ("present", "absent") if number % 2 else ("absent", "present"):
            begun = time.process_time()
            curators[name].sql(statement(10**6 + number, steps=steps))
            if number >= 20:
                times[name].append(1000 * (time.process_time() - begun))
    return show("the work itself, CPU", times)


def show(text, times):
    p = mannwhitneyu(times["present"], times["absent"]).pvalue
    row = [f"{statistics.median(times[name]):8.2f}" for name in ("present", "absent")]
    medians = f"median {row[0]} ms present, {row[1]} ms absent"
    print(f"{text}: {medians}; p = {p:.3g}", flush=True)
    return p


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--reply-every", type=float, default=0.05)
    given = parser.parse_args()
    compare(given.runs, given.reply_every)
    compare_work(given.runs)
