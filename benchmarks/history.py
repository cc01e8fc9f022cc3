"""CPU of a new statement by how many answers the ledger holds, beside FRESH, which looks at none of them.

    .venv/bin/python benchmarks/history.py [--stored 0 20 100 300 1000 10000] [--repeats 12]

The statements are those of a dashboard: counts, sums and means under other conditions and by other keys, each
a new question, over 4,000 rows. Both kinds alternate in one process; each is charged durably. The first of a
new curator on the same ledger reads the chain, too, unless the process read it before. Commands are
whole processes of the command line, start-up included: `sql` of a new statement, `sql` of a
stored one, `budget`.
"""

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(".bench/history")
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
[tables.visits.columns.month]
range = [1, 12]
[tables.visits.columns.fee]
bounds = [0, 100]
"""
SHAPES = (
    "COUNT(*) AS n FROM visits WHERE fee > {low}",
    "clinic, COUNT(*) AS n FROM visits WHERE fee > {low} AND month = {month} GROUP BY clinic",
    "clinic, month, COUNT(*) AS n, AVG(fee) AS mean FROM visits WHERE fee < {low} GROUP BY clinic, month",
    "month, SUM(fee) AS total FROM visits WHERE clinic = '{clinic}' AND fee > {low} GROUP BY month",
    "clinic, COUNT(DISTINCT person) AS people FROM visits WHERE fee BETWEEN {low} AND 60 GROUP BY clinic",
)


def prepare():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    rng = np.random.default_rng(0)
    table = {
        "person": rng.integers(0, 1500, ROWS),
        "clinic": rng.choice(["North", "South", "East"], ROWS),
        "month": rng.integers(1, 13, ROWS),
        "fee": np.round(rng.random(ROWS) * 100, 2),
    }
    pq.write_table(pa.table(table), FOLDER / "visits.parquet")
    (FOLDER / "sfumato.toml").write_text(PROJECT, encoding="utf-8")


def make_statement(number, *, fresh=False):
    chosen = random.Random(number)
    shape = SHAPES[number % len(SHAPES)].format(
        low=1 + number / 1000, month=chosen.randint(1, 12), clinic=chosen.choice(("North", "South", "East"))
    )
    return f"DP-SELECT{' FRESH' if fresh else ''} {1 + number / 10**6:.6f} {shape}"


def measure(curator, text):
    begun = time.process_time()
    answer = curator.sql(text)
    assert answer.spent > 0, text
    return 1000 * (time.process_time() - begun)


def measure_command(*words):
    """CPU milliseconds of a command in a process of its own."""
    command = [sys.executable, "-m", "sfumato", *words, "--project", str(FOLDER / "sfumato.toml")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, words
    return 1000 * (used.ru_utime + used.ru_stime)


def main(counts, repeats):
    import sfumato

    prepare()
    numbers = iter(range(10**9))
    curator = sfumato.open(FOLDER / "sfumato.toml")
    curator.sql("DP-SELECT 2 COUNT(*) AS n FROM visits WHERE fee < 50")  # seals the table
    stored = 0
    print(
        "stored    FRESH      new    ratio    first of a new curator: FRESH, new    stored    commands",
        flush=True,
    )
    for count in counts:
        while stored < count:
            curator.sql(make_statement(next(numbers), fresh=True))
            stored += 1
        first = []
        for fresh in (True, False):
            other = sfumato.open(FOLDER / "sfumato.toml")
            first.append(measure(other, make_statement(next(numbers), fresh=fresh)))
        plain, news = [], []
        for _ in range(repeats):
            plain.append(measure(curator, make_statement(next(numbers), fresh=True)))
            news.append(measure(curator, make_statement(next(numbers))))
        stored += 2 + 2 * repeats
        median, new = statistics.median(plain), statistics.median(news)
        text = make_statement(next(numbers))
        commands = [measure_command("sql", text), measure_command("sql", text), measure_command("budget")]
        begun = time.process_time()
        for _ in range(repeats):
            assert curator.sql(text).repeated
        again = 1000 * (time.process_time() - begun) / repeats
        line = (
            f"{count:6d} {median:7.1f}  {new:7.1f}  {new / median:7.2f}    {first[0]:.0f}, {first[1]:.0f} ms"
        )
        print(f"{line}    {again:.1f} ms    {', '.join(f'{each:.0f}' for each in commands)} ms", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--stored", type=int, nargs="+", default=[0, 20, 100, 300, 1000, 10000])
    parser.add_argument("--repeats", type=int, default=12)
    given = parser.parse_args()
    sys.exit(main(given.stored, given.repeats))
