"""What judging a model by held-out people gives and takes: figures on the test parts of public tables.

    .venv/bin/python benchmarks/evaluation.py [--tables adult,kdd] [--epsilons 0.5,1] [--runs 5] [--data DIR]

For every table and epsilon: the figure on the test part of a model fitted to all of the training part, and of
one that leaves a fifth of it out; the mean figure and the mean width of the interval that the held-out people
give of the latter; and in how many runs that interval meets the figure on the test part, whose own error of
sampling is counted in. Tables, splits and formulas are those of `learning.py`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import sfumato as sf
from learning import DELTA, ROOT, TABLES, judge, project_text


def release(train, test, columns, target, epsilon, positive, **options):
    """The figure of a model on the test part, what it says of itself, and the seconds of its release."""
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(train.select(list(columns)), Path(folder, "t.parquet"))
        Path(folder, "sfumato.toml").write_text(project_text(columns), encoding="utf-8")
        start = time.perf_counter()
        recipe = sf.learn.Additive(table="t", target=target, **options)
        model = sf.open(Path(folder, "sfumato.toml")).learn(recipe, epsilon=epsilon, delta=DELTA)
        seconds = time.perf_counter() - start
    predicted = model.predict(test) if positive is None else model.predict_proba(test)[:, 1]
    return judge(test, target, predicted, positive), model.evaluation, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="adult,kdd,nltcs,ma income,tx income")
    parser.add_argument("--epsilons", default="0.5,1,3")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options = parser.parse_args()
    print("table, epsilon: test figure, all fitted | a fifth held out | said (width) | met | seconds of both")
    for name in options.tables.split(","):
        train, test, columns, target = TABLES[name](options.data)
        spec = columns[target]
        positive = None if "bounds" in spec else spec["values"][1] if "values" in spec else 1
        key = "r_squared" if positive is None else "auroc"
        for text in options.epsilons.split(","):
            asked = (train, test, columns, target, float(text), positive)
            whole = [release(*asked) for _ in range(options.runs)]
            held = [release(*asked, holdout="0.2") for _ in range(options.runs)]
            said = [(figure, found[key]) for figure, found, _ in held if key in found]
            widths = [each["high_95"] - each["low_95"] for _, each in said]
            # The test part is a sample too: about as large an error as held-out people of its number have.
            own = np.mean(widths or [0.0]) * np.sqrt(0.2 * train.num_rows / test.num_rows) / 2
            met = sum(each["low_95"] - own <= figure <= each["high_95"] + own for figure, each in said)
            figures = [float(np.mean([figure for figure, _, _ in each])) for each in (whole, held)]
            shown = (
                f"{np.mean([each['value'] for _, each in said]):.4f} ({np.mean(widths):.4f})" if said else "-"
            )
            seconds = [float(np.median([each[2] for each in one])) for one in (whole, held)]
            print(
                f"{name}, {text}: {figures[0]:.4f} | {figures[1]:.4f} | {shown} | {met} of {options.runs} "
                f"| {seconds[0]:.1f} {seconds[1]:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
