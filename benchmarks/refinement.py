"""What `DP-SELECT WITHIN n%` spends beside the least epsilon that would have done, and how often it holds.

Run with `.venv/bin/python benchmarks/refinement.py`. Only noise is drawn, beside true values that are made
up. The oracle takes the least epsilon at which every 95 % interval reaches at most n % of its true value;
`missed` is how often the interval of the least value misses it, `off` how often the answer is further from it
than n %.
"""

import os
import time
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa

import sfumato as sf
from sfumato.core.noise import add_noise
from sfumato.curator.explain import answer_within
from sfumato.sql.plan import NoisyAggregates, least_epsilon
from sfumato.sql.statement import read_statement

RUNS = 100
SIZES = {
    "one of 100,000": [100_000],
    "60 of 2,000": [2000] * 60,
    "10 of 5,000": [5000] * 10,
    "60 of 1,000 to 20,000": np.geomspace(1000, 20_000, 60).astype(int).tolist(),
}
STATEMENTS = {
    "laplace": ("WITHIN {share}% g, COUNT(*) AS n FROM t GROUP BY g", 1),
    "gaussian": ("WITHIN {share}% DELTA 0.000001 g, COUNT(DISTINCT p) AS n FROM t GROUP BY g", 60),
}


def run_statement(text, records, true_values, share):
    columns = {"g": range(1, len(true_values) + 1)}
    facts = {"unit": "p", "max_records": records, "epsilon": 1, "delta": 1e-4, "columns": columns}
    desk = sf.from_frame(pa.table({"p": [1], "g": [1]}), name="t", **facts)._desk()
    statement = read_statement("DP-SELECT " + text.format(share=share))
    catalog = desk.catalog(statement)

    @cache
    def plan_at(epsilon):
        return desk.plan(replace(statement, within=None, epsilon=epsilon), catalog, clip=False)

    def measure(plan, **_):
        (noise,) = plan.noises
        noisy = add_noise(np.array(true_values), kind=noise.kind, scale=noise.scale)
        return NoisyAggregates(values=(noisy,)), plan.epsilon, None

    least = int(np.argmin(true_values))
    oracle = float(least_epsilon(plan_at, Fraction(share, 100) * true_values[least]))
    spent, missed, off = [], 0, 0
    for _ in range(RUNS):
        answer = answer_within(statement.within, statement.delta, plan_at, measure)
        value, low, high = (answer.table[f"n{end}"][least].as_py() for end in ("", "_low", "_high"))
        missed += not low <= true_values[least] <= high
        off += abs(value - true_values[least]) > share / 100 * true_values[least]
        spent.append(float(answer.spent))
    return np.array(spent), oracle, missed / RUNS, off / RUNS


def main():
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores: benchmarks/refinement.py, {RUNS} runs")
    head = ("groups", "noise", "within", "oracle", "spent", "ratio", "missed", "off")
    print(("{:24}" + "{:>10}" * 7).format(*head))
    for name, true_values in SIZES.items():
        for kind, (text, records) in STATEMENTS.items():
            for share in (2, 5, 10, 20):
                spent, oracle, missed, off = run_statement(text, records, true_values, share)
                ratio = spent.mean() / oracle
                print(
                    f"{name:24}{kind:>10}{share:>9}%{oracle:10.4f}{spent.mean():10.4f}{ratio:10.2f}"
                    f"{missed:10.1%}{off:10.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
