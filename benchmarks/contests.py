"""The pie-chart score of every recipe that can give counts, on real tables of incidents, beside references.

    .venv/bin/python benchmarks/contests.py TABLES                 TABLES holds stlouis/ and baltimore/
    .venv/bin/python benchmarks/contests.py TABLES --only pooled   only tables whose name has this in it
    .venv/bin/python benchmarks/contests.py TABLES --taxi 5        examples/taxi on chicago_taxi/, five runs

One line per table, one number per recipe and epsilon: the mean score of a neighbourhood and month, 1 being
perfect. All recipes run with their default settings, on the same records and bounds. Recipes of rows need a
delta; it is that of the table's parameter file. References: a release of zeros, and the counts of half of
the individuals. The scores compare with the records, so none of them is private.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq

import sfumato as sf
from sfumato.metrics import pie_chart, taxi

TABLES = {
    "stlouis pooled": ("stlouis/incidents.parquet", "stlouis/parameters_pooled.json", None),
    "stlouis 2016": ("stlouis/incidents.parquet", "stlouis/parameters.json", 2016),
    "stlouis 2018": ("stlouis/incidents.parquet", "stlouis/parameters.json", 2018),
    "stlouis 2019": ("stlouis/incidents.parquet", "stlouis/parameters.json", 2019),
    "baltimore crime 2019": ("baltimore/crime_reports.parquet", "baltimore/parameters_crime.json", 2019),
    "baltimore crime pooled": ("baltimore/crime_reports.parquet", "baltimore/parameters_crime.json", None),
    "baltimore arrests 2019": ("baltimore/arrests.parquet", "baltimore/parameters_arrests.json", 2019),
    "baltimore arrests pooled": ("baltimore/arrests.parquet", "baltimore/parameters_arrests.json", None),
}
BY = ["neighborhood", "month", "incident_type"]
EPSILONS = (1, 2, 10)


def recipes():
    """Every recipe by its name, and whether it needs a delta."""
    options = {"table": "t", "by": BY}
    return {
        "cell-counts": (sf.recipes.CellCounts(**options), False),
        "cell-counts, threshold 3": (sf.recipes.CellCounts(**options, threshold=3), False),
        "user-counts": (sf.recipes.UserCounts(**options), False),
        "user-counts, gaussian": (sf.recipes.UserCounts(**options, noise="gaussian"), True),
        "user-counts, 2 cells, threshold 3": (
            sf.recipes.UserCounts(**options, max_cells=2, threshold=3),
            False,
        ),
        "capped-counts": (sf.recipes.CappedCounts(**options), False),
        "map": (sf.recipes.Map(**options), False),
        "tree": (sf.recipes.Tree(table="t", columns=BY), True),
        "adaptive": (sf.recipes.Adaptive(table="t", columns=BY), True),
    }


class Contest:
    """One table: its project, its truth, and the score of a release of it."""

    def __init__(self, tables, name, folder):
        records, parameters, year = TABLES[name]
        described = json.loads((tables / parameters).read_text())
        schema = described["schema"]
        self.labels = {
            "neighborhood": [each["code"] for each in schema["neighborhood"]],
            "month": list(range(1, 13)),
            "incident_type": [each["code"] for each in schema["incident_type"]],
        }
        self.delta = described["runs"][0]["delta"]
        where = "" if year is None else f"WHERE year = {year}"
        self.path = folder / "t.parquet"
        duckdb.sql(
            f"COPY (SELECT sim_resident, {', '.join(BY)} FROM '{tables / records}' {where}) TO '{self.path}'"
        )
        columns = "".join(f"[tables.t.columns.{key}]\nvalues = {self.labels[key]}\n" for key in BY)
        (folder / "sfumato.toml").write_text(
            f'[budget]\nepsilon = 1e6\ndelta = 0.1\n[tables.t]\nsource = "t.parquet"\nunit = "sim_resident"\n'
            f"max_records = 20\n{columns}"
        )
        self.curator = sf.open(folder / "sfumato.toml")
        self.truth = self.count(pq.read_table(self.path))

    def count(self, table):
        """The counts of a table of rows, or of counts, as one line per neighbourhood and month."""
        shape = [len(self.labels[key]) for key in BY]
        cells = np.zeros(table.num_rows, np.int64)
        for key in BY:
            order = np.argsort(self.labels[key])
            values = np.array(table[key].to_pylist())
            places = np.searchsorted(np.array(self.labels[key])[order], values)
            cells = cells * len(self.labels[key]) + order[places]
        weights = table["count"].to_numpy() if "count" in table.column_names else None
        counts = np.bincount(cells, weights=weights, minlength=int(np.prod(shape)))
        return counts.astype(np.int64).reshape(-1, shape[-1])

    def score(self, counts):
        return pie_chart(self.truth, counts).mean

    def half(self, seed):
        """The counts of every second individual, drawn by a public seed."""
        table = pq.read_table(self.path)
        names = table["sim_resident"].to_numpy()
        people = np.unique(names)
        chosen = np.random.default_rng(seed).random(people.size) < 0.5
        return self.count(table.filter(chosen[np.searchsorted(people, names)]))


TAXI = Path(__file__).resolve().parents[1] / "examples" / "taxi"
TAXI_RUNS = [("adaptive-grid", 1), ("small-budget", 1), ("adaptive-grid", 10), ("large-budget", 10)]


def score_taxi(tables, runs):
    """The taxi score of the recipes of examples/taxi, each run with a ledger and noise of its own."""
    truth = pq.read_table(tables / "chicago_taxi" / "trips.parquet")
    print(
        f"{truth.num_rows:,} trips: score, k-marginal, graph edge, conjunction; spread of the score, seconds"
    )
    for name, epsilon in TAXI_RUNS:
        scores, began = [], time.process_time()
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                for file in ("sfumato.toml", f"{name}.toml"):
                    (place / file).write_bytes((TAXI / file).read_bytes())
                (place / "trips.parquet").symlink_to((tables / "chicago_taxi" / "trips.parquet").resolve())
                curator = sf.open(place / "sfumato.toml")
                scored = taxi(truth, curator.release(place / f"{name}.toml", epsilon=epsilon).table)
            scores.append([scored.score, scored.k_marginal, scored.graph_edge, scored.conjunction])
        took = (time.process_time() - began) / runs
        total, *parts = np.mean(scores, axis=0)
        spread = np.std([each[0] for each in scores], ddof=min(1, runs - 1))
        told = " ".join(f"{part:.3f}" for part in parts)
        print(
            f"  {name:14s} epsilon {epsilon:<3} {total:.0f}  {told}  +- {spread:.1f}  {took:.1f}", flush=True
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--taxi", type=int, metavar="RUNS")
    options = parser.parse_args()
    if options.taxi:
        score_taxi(options.tables, options.taxi)
        return
    for name in TABLES:
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            contest = Contest(options.tables, name, Path(folder))
            rows, records = contest.truth.shape[0], int(contest.truth.sum())
            print(f"\n{name}: {records:,} records, {rows:,} x {contest.truth.shape[1]} cells")
            print(f"  {'all zeros':36s} {contest.score(0 * contest.truth):.3f}")
            print(f"  {'half of the individuals':36s} {contest.score(contest.half(1)):.3f}")
            print(f"  {'':36s} " + " ".join(f"eps {epsilon:<4}" for epsilon in EPSILONS) + " seconds")
            for label, (recipe, needs_delta) in recipes().items():
                scores, began = [], time.perf_counter()
                for epsilon in EPSILONS:
                    delta = contest.delta if needs_delta else 0
                    release = contest.curator.release(recipe, epsilon=epsilon, delta=delta)
                    scores.append(contest.score(contest.count(release.table)))
                took = (time.perf_counter() - began) / len(EPSILONS)
                print(f"  {label:36s} " + " ".join(f"{score:<8.3f}" for score in scores) + f" {took:.1f}")


if __name__ == "__main__":
    main()
