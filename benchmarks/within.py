"""Accuracy first: what `within` spends beside the least epsilon that would have done, and how often it holds.

    .venv/bin/python benchmarks/within.py [--tables nhanes,nltcs] [--runs 20] [--data DIR]

Every run is the whole recipe, with the engine's sums and exact noise, and without a ledger. The loss is that
of R2 or AUROC on the records that were fitted, against the same recipe with next to no noise. The oracle is
found afterwards, with the truth in hand: the least epsilon, in steps of a tenth, at which a release without
`within` keeps the goal in 95 of 100 runs. One row is one person, delta is 1e-6.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import learning
import sfumato as sf
from sfumato.core.engine.duckdb import DuckDBEngine
from sfumato.core.facts.table import parse_table
from sfumato.core.questions.measurement import Measurement, request_grid
from sfumato.learn import parse_model
from sfumato.noise import add_noise
from sfumato.recipes.base import follow_recipe

EXACT = 900  # epsilon at which noise is next to nothing


def nhanes(data):
    columns = {
        "Age": {"range": [0, 80]},
        "BMI": {"bounds": [10, 60]},
        "Gender": {"values": ["female", "male"]},
        "BPSysAve": {"range": [70, 230]},
    }
    table = pq.read_table(data / "nhanes/nhanes_2009_2012.parquet").select(list(columns))
    return table.drop_null(), columns, "BPSysAve"


def some_of(read, names):
    def pick(data):
        train, _, columns, target = read(data)
        return train, {name: columns[name] for name in (*names, target)}, target

    return pick


def hours(data):
    train, _, columns, _ = learning.adult(data)
    names = ("age", "education-num", "sex", "hours-per-week")
    return train, {name: columns[name] for name in names}, "hours-per-week"


def items(data):
    train, _, columns, target = learning.nltcs(data)
    return train, columns, target


GENERAL = ("AGEP", "SEX", "EDU", "MSP", "HISP", "RAC1P")
NUMBERS = ("age", "education-num", "hours-per-week", "sex")

CASES = {
    "nhanes": (nhanes, sf.learn.Linear, ("R2 0.05", "R2 0.02", "R2 0.01")),
    "adult hours": (hours, sf.learn.Linear, ("R2 0.02", "R2 0.01", "R2 0.005")),
    "us income": (some_of(learning.income("national"), GENERAL), sf.learn.Linear, ("R2 0.05", "R2 0.02")),
    "adult": (some_of(learning.adult, NUMBERS), sf.learn.Logistic, ("AUROC 0.02", "AUROC 0.01")),
    "nltcs": (items, sf.learn.Logistic, ("AUROC 0.01", "AUROC 0.005")),
}


def judge(model, table, target):
    """R2 or AUROC on the records that were fitted."""
    truth = table[target].to_numpy(zero_copy_only=False)
    if model.family == "classification":
        return learning.area_under_curve(truth == model.classes_[1], model.predict_proba(table)[:, 1])
    return 1 - ((truth - model.predict(table)) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()


class Fitting:
    """Models of one table; what is asked again is counted once."""

    def __init__(self, folder, columns):
        self.table = parse_table("t", {"source": "t.parquet", "unit": "row", "columns": columns})
        self.engine, self.counted = DuckDBEngine(folder), {}

    def fit(self, recipe, epsilon):
        delta = Fraction(1, 10**6)
        plan = recipe.plan(self.table, epsilons=(Fraction(epsilon),), delta=delta)

        def count(questions):
            if len(questions) == 1 and questions[0].link is None:
                known = questions[0].to_record()["moments"]["sha256"]
                if known not in self.counted:
                    self.counted[known] = self.engine.count(plan.table, questions, progress=lambda _: None)
                return self.counted[known]
            return self.engine.count(plan.table, questions, progress=lambda _: None)

        def answer(asks):
            counts = count(tuple(ask.counted for ask in asks))
            return tuple(
                Measurement(
                    request=ask,
                    noisy_values=add_noise(each.true_values, kind=ask.noise, scale=ask.scale),
                    grid=request_grid(plan.table, ask),
                )
                for ask, each in zip(asks, counts, strict=True)
            )

        _, product = follow_recipe(plan, answer=answer, progress=lambda _: None)
        return parse_model(product.files["model.json"])


def find_oracle(losses_at, goal, start):
    """The least epsilon, in steps of a tenth, at which 95 % of the losses keep the goal."""
    place, step = math.log(start), math.log(1.1)
    kept = np.quantile(losses_at(math.exp(place)), 0.95) <= goal
    while True:
        place += -step if kept else step
        again = np.quantile(losses_at(math.exp(place)), 0.95) <= goal
        if again != kept:
            return math.exp(place if again else place + step)


def run_case(name, data, runs):
    read, kind, goals = CASES[name]
    table, columns, target = read(data)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(table.select(list(columns)), folder / "t.parquet")
        fit = Fitting(folder, columns).fit
        plain = kind(table="t", target=target)
        best = judge(fit(plain, EXACT), table, target)
        known = {}

        def losses_at(epsilon):
            text = f"{epsilon:.5f}"
            if text not in known:
                known[text] = [best - judge(fit(plain, text), table, target) for _ in range(runs)]
            return known[text]

        for within in goals:
            goal = float(within.split()[1])
            models = [fit(kind(table="t", target=target, within=within), 10) for _ in range(runs)]
            losses = [best - judge(each, table, target) for each in models]
            spent = [float(json.loads(each.to_json())["epsilon"]) for each in models]
            oracle = find_oracle(losses_at, goal, float(np.median(spent)))
            print(
                f"{name}, {within}: spent {np.mean(spent):.3f} ({min(spent):.3f}, {max(spent):.3f}) | oracle "
                f"{oracle:.3f}, ratio {np.mean(spent) / oracle:.2f} | kept in "
                f"{np.mean(np.array(losses) <= goal):.0%}, mean loss {np.mean(losses):.4f}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default=",".join(CASES))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--data", type=Path, default=learning.ROOT.parent / "shared" / "data")
    options = parser.parse_args()
    for name in options.tables.split(","):
        run_case(name, options.data, options.runs)


if __name__ == "__main__":
    main()
