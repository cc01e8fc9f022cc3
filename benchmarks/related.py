"""Synthetic parents and children together beside each table by itself, in one run, on three figures.

    .venv/bin/python benchmarks/related.py --tables DIR      taxis and their trips, places and their incidents

DIR holds chicago_taxi/trips.parquet and stlouis/incidents.parquet. `related` spends epsilon once on both
tables. Alone, each table gets half of it by `adaptive`, at the same bound on records, and every child is
given to a parent by chance: nothing else is known. Figures are L1 distances between true and synthetic
shares, from 0 to 2: of the numbers of children, and means over all pairs of columns, one of the parent
and one of the child, and one of a child and one of the next.
"""

import argparse
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sfumato as sf
from sfumato.recipes import Adaptive, Related

DELTA = "1e-7"

TAXIS = {
    "parents": "SELECT taxi_id AS id, any_value(company_id) AS company, any_value(trip_day_of_week) AS day "
    "FROM '{dir}/chicago_taxi/trips.parquet' GROUP BY taxi_id",
    "children": "SELECT taxi_id AS parent, trip_hour_of_day AS hour, pickup_community_area AS pickup, "
    "dropoff_community_area AS dropoff, payment_type AS payment, fare // 5 AS fare, trip_miles AS miles "
    "FROM '{dir}/chicago_taxi/trips.parquet'",
    "above": {"company": (0, 37), "day": (0, 6)},
    "below": {
        "hour": (0, 23),
        "pickup": (-1, 77),
        "dropoff": (-1, 77),
        "payment": (-1, 8),
        "fare": (0, 12),
        "miles": (0, 20),
    },
    "order": "hour",
    "most": 40,
}
PLACES = {
    "parents": "SELECT sim_resident AS id, any_value(neighborhood) AS area, any_value(year) AS year "
    "FROM '{dir}/stlouis/incidents.parquet' GROUP BY sim_resident",
    "children": "SELECT sim_resident AS parent, month, incident_type AS type, day_of_week AS day, "
    "hour // 3 AS hour FROM '{dir}/stlouis/incidents.parquet'",
    "above": {"area": (0, 88), "year": (2015, 2019)},
    "below": {"month": (1, 12), "type": (1, 26), "day": (-1, 6), "hour": (0, 7)},
    "order": "month",
    "most": 20,
}


def write_project(folder: Path, task: dict, tables: Path) -> None:
    """Both tables and a project file that describes them."""
    for name in ("parents", "children"):
        rows = duckdb.sql(task[name].format(dir=tables)).to_arrow_table()
        pq.write_table(rows, folder / f"{name}.parquet")
    lines = ["[budget]", "epsilon = 1000", f"delta = {DELTA}", "[tables.parents]"]
    lines += [
        'source = "parents.parquet"',
        'unit = "id"',
        "max_records = 1",
        *describe("parents", task["above"]),
    ]
    lines += ["[tables.children]", 'source = "children.parquet"', f"max_records = {task['most']}"]
    lines += ['references = {parent = "parents.id"}', *describe("children", task["below"])]
    (folder / "sfumato.toml").write_text("\n".join(lines))


def describe(table: str, columns: dict) -> list[str]:
    """The columns of a table in a project file."""
    return [
        f'[tables.{table}.columns.{name}]\nrange = [{low}, {high}]\noutside = "clamp"'
        for name, (low, high) in columns.items()
    ]


def encode(rows: pa.Table, columns: dict) -> dict[str, np.ndarray]:
    """The codes of columns, clamped as the project file says."""
    return {
        name: np.clip(rows[name].to_numpy().astype(np.int64), low, high) - low
        for name, (low, high) in columns.items()
    }


def measure(task: dict, parents: pa.Table, children: pa.Table) -> dict[str, np.ndarray]:
    """The shares of all that is compared: by number of children, parent x child, child x next child."""
    above, below = encode(parents, task["above"]), encode(children, task["below"])
    ids, of = parents["id"].to_numpy(), children["parent"].to_numpy()
    place = np.argsort(ids)
    home = place[np.searchsorted(ids[place], of)]
    order = np.lexsort((np.arange(of.size), below[task["order"]], home))
    home, below = home[order], {name: codes[order] for name, codes in below.items()}
    starts = np.flatnonzero(np.concatenate(([True], home[1:] != home[:-1])))
    rank = np.arange(home.size) - np.repeat(starts, np.diff(np.append(starts, home.size)))
    kept = rank < task["most"]
    home, rank, below = home[kept], rank[kept], {name: codes[kept] for name, codes in below.items()}
    found = {"number": np.bincount(np.bincount(home, minlength=ids.size), minlength=task["most"] + 1)}
    sizes = {name: high - low + 1 for name, (low, high) in (task["above"] | task["below"]).items()}
    for one, other in product(above, below):
        cells = above[one][home] * sizes[other] + below[other]
        found[f"parent {one} {other}"] = np.bincount(cells, minlength=sizes[one] * sizes[other])
    later = np.flatnonzero(rank > 0)
    for one, other in product(below, below):
        cells = below[one][later - 1] * sizes[other] + below[other][later]
        found[f"sibling {one} {other}"] = np.bincount(cells, minlength=sizes[one] * sizes[other])
    return {name: counts / max(1, counts.sum()) for name, counts in found.items()}


def compare(true: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[float]:
    """The three figures."""
    distances = {name: float(np.abs(shares - other[name]).sum()) for name, shares in true.items()}
    kinds = ("number", "parent", "sibling")
    return [
        float(np.mean([value for name, value in distances.items() if name.startswith(kind)]))
        for kind in kinds
    ]


def alone(curator: sf.Curator, epsilon: float) -> tuple[pa.Table, pa.Table]:
    """Each table by itself, children given to parents by chance."""
    half = str(epsilon / 2)
    parents, children = (
        curator.release(Adaptive(table=name), epsilon=half, delta=DELTA).table
        for name in ("parents", "children")
    )
    ids = np.arange(parents.num_rows)
    given = np.random.default_rng(0).integers(parents.num_rows, size=children.num_rows)
    return parents.append_column("id", pa.array(ids)), children.append_column("parent", pa.array(given))


def _line(name: str, epsilon: float, label: str, figures: list[float], digits: int) -> str:
    columns = (f"{value:{width}.{digits}f}" for value, width in zip(figures, (8, 14, 12), strict=True))
    return f"{name:8}{epsilon:8g}  {label:9}{''.join(columns)}"


def main() -> int:
    """Prints the figures of every table and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, help="the folder of the tables")
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 4.0])
    parser.add_argument("--only", choices=("taxis", "places"), help="one of the two")
    options = parser.parse_args()
    if options.tables is None or not options.tables.is_dir():
        print("benchmarks/related.py: no tables; give --tables DIR", file=sys.stderr)
        return 0
    head = f"{'':8}{'epsilon':>8}  {'':9}{'number':>8}{'parent-child':>14}{'child-next':>12}{'CPU s':>8}"
    print(head, flush=True)
    for name, task in {"taxis": TAXIS, "places": PLACES}.items():
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as kept:
            folder = Path(kept)
            write_project(folder, task, options.tables)
            curator = sf.open(folder / "sfumato.toml")
            true = measure(
                task, *(pq.read_table(folder / f"{each}.parquet") for each in ("parents", "children"))
            )
            for epsilon in options.epsilons:
                begun = time.process_time()
                recipe = Related(table="children", order=task["order"])
                release = curator.release(recipe, epsilon=str(epsilon), delta=DELTA)
                spent = time.process_time() - begun
                together = compare(true, measure(task, release.parents, release.table))
                begun = time.process_time()
                apart = compare(true, measure(task, *alone(curator, epsilon)))
                rows = [("related", together, spent), ("alone", apart, time.process_time() - begun)]
                ratios = [two / one for one, two in zip(together, apart, strict=True)]
                for label, figures, seconds in rows:
                    print(_line(name, epsilon, label, figures, 3), f"{seconds:7.1f}")
                print(_line(name, epsilon, "ratio", ratios, 2), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
