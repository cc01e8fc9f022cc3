"""A dashboard of 20 statements over one table: planned together, and asked one by one at the same total.

    .venv/bin/python benchmarks/workload.py [rows] [runs]

Prints how many times the squared error of asking one by one is larger: as planned, and measured over `runs`
drawings, each value relative to the variance that it has when it is asked alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np

import sfumato as sf

PROJECT = """
[budget]
epsilon = 100000000

[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 5
[tables.visits.columns.clinic]
values = ["North", "South", "Harbour", "Island"]
[tables.visits.columns.kind]
values = ["first", "again", "urgent"]
outside = "other"
[tables.visits.columns.month]
range = [1, 12]
[tables.visits.columns.fee]
bounds = [0, 100]
[tables.visits.columns.visited]
range = ["2025-01-01", "2025-12-31"]
"""

DASHBOARD = [
    "SELECT COUNT(*) AS n FROM visits",
    "SELECT SUM(fee) AS s FROM visits",
    "SELECT AVG(fee) AS a FROM visits",
    "SELECT COUNT(DISTINCT person) AS p FROM visits",
    "SELECT clinic, COUNT(*) AS n FROM visits GROUP BY clinic",
    "SELECT clinic, SUM(fee) AS s FROM visits GROUP BY clinic",
    "SELECT clinic, AVG(fee) AS a FROM visits GROUP BY clinic ORDER BY a DESC",
    "SELECT kind, COUNT(*) AS n FROM visits GROUP BY kind",
    "SELECT kind, clinic, COUNT(*) AS n FROM visits GROUP BY kind, clinic",
    "SELECT COUNT(*) AS n FROM visits WHERE clinic = 'North'",
    "SELECT AVG(fee) AS a FROM visits WHERE clinic = 'North'",
    "SELECT COUNT(*) AS n FROM visits WHERE kind = 'urgent'",
    "SELECT clinic, COUNT(*) AS n FROM visits WHERE kind = 'urgent' GROUP BY clinic",
    "SELECT DATE_TRUNC('month', visited) AS m, COUNT(*) AS n FROM visits GROUP BY m",
    "SELECT DATE_TRUNC('month', visited) AS m, SUM(fee) AS s FROM visits GROUP BY m",
    "SELECT DATE_TRUNC('quarter', visited) AS q, COUNT(*) AS n FROM visits GROUP BY q",
    "SELECT COUNT(*) AS n FROM visits WHERE visited >= '2025-07-01' AND visited <= '2025-12-31'",
    "SELECT COUNT(*) AS n FROM visits WHERE fee > 50",
    "SELECT clinic, COUNT(*) AS n FROM visits WHERE fee > 50 GROUP BY clinic",
    "SELECT 100.0 * COUNT_IF(fee > 50) / COUNT(*) AS share FROM visits",
]


def make_project(folder: Path, rows: int) -> Path:
    """Writes the table and its project file."""
    duckdb.execute(f"""COPY (
        SELECT i % {max(1, rows // 4)} AS person,
            ['North', 'South', 'Harbour', 'Island'][1 + i * 7 % 4] AS clinic,
            ['first', 'again', 'urgent', 'odd'][1 + i * 5 % 4] AS kind, 1 + i % 12 AS month,
            DATE '2025-01-01' + (i * 11 % 365)::INTEGER AS visited, (i * 37 % 10000) / 100.0 AS fee
        FROM range({rows}) AS t(i)) TO '{folder / "visits.parquet"}'""")
    file = folder / "sfumato.toml"
    file.write_text(PROJECT)
    return file


def read_values(answer: sf.Answer) -> np.ndarray:
    """The values of the aggregates of an answer, without their intervals and without keys."""
    table = answer.table
    names = [name for name in table.column_names if f"{name}_low" in table.column_names]
    return np.concatenate([np.asarray(table[name].to_pylist(), float) for name in names])


def main(rows: int = 40_000, runs: int = 20, epsilon: int = 1) -> float:
    """Prints the ratios and returns the measured one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = make_project(folder, rows)
        curator = sf.open(file)
        begin = time.perf_counter()
        workload = curator.sql_workload(DASHBOARD, epsilon=epsilon)
        print(workload)
        print(f"planned in {time.perf_counter() - begin:.1f} s")
        truth = [read_values(curator.sql(f"DP-SELECT FRESH 1000000 {each[7:]}")) for each in DASHBOARD]
        together, alone = np.zeros(len(DASHBOARD)), np.zeros(len(DASHBOARD))
        share = f"{epsilon}/{len(DASHBOARD)}"
        for _ in range(runs):
            (folder / "ledger.db").unlink()
            curator = sf.open(file)
            bought = curator.sql_workload(DASHBOARD, epsilon=epsilon).buy()
            (folder / "ledger.db").unlink()
            curator = sf.open(file)
            for number, each in enumerate(DASHBOARD):
                together[number] += np.mean((read_values(bought[number]) - truth[number]) ** 2)
                asked = curator.sql(f"DP-SELECT FRESH {share} {each[7:]}")
                alone[number] += np.mean((read_values(asked) - truth[number]) ** 2)
    ratios = alone / together
    for number, ratio in enumerate(ratios, start=1):
        print(f"{number:3} {ratio:8.1f} times  {DASHBOARD[number - 1]}")
    measured = 1 / float(np.mean(1 / ratios))
    planned = workload.improvement
    print(f"mean squared error one by one / planned together: {measured:.1f} (planned {planned:.1f})")
    return measured


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
