"""How often intervals from releases of synthetic rows hold what the records say.

    .venv/bin/python benchmarks/inference.py DIR [--tables adult nltcs] [--runs 10] [--epsilon 1] [--measured]

DIR has coded tables: NAME.csv.gz with NAME-domain.json, every column holding 0..size-1. Each run is a release
by `adaptive` with fresh noise, of which the model is asked: the counts of all cells of combinations of one,
two and three columns, means of one column by the values of another, shares, and linear and logistic
regressions. `given` is the share of questions of which some answer has an interval. For the others
measurements do not tell enough, and the answer says so. With `--measured` regressions are chosen among those
whose columns were measured pair by pair, so that more intervals are looked at. What is `held` has the
standard error between runs, because intervals of one run share its noise. `naive` is how often the interval
of textbooks on the synthetic rows holds, which knows of no noise. What should be held is what the records
themselves say.
"""

import argparse
import json
import tempfile
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pyarrow.csv as csv

import sfumato as sf

MOST = 60  # combinations of a kind that are asked about, chosen at random but the same for every run


def solve(inputs, target, *, logistic=False):
    """The coefficients of a regression and their textbook standard errors."""
    if not logistic:
        inverse = np.linalg.pinv(inputs.T @ inputs)
        values = inverse @ (inputs.T @ target)
        residual = target - inputs @ values
        return values, np.sqrt(np.diag(inverse) * (residual @ residual) / len(target))
    values = np.zeros(inputs.shape[1])
    for _ in range(30):
        chances = 1 / (1 + np.exp(-np.clip(inputs @ values, -500, 500)))
        inverse = np.linalg.pinv((inputs * (chances * (1 - chances))[:, None]).T @ inputs)
        values = values + inverse @ (inputs.T @ (target - chances))
    return values, np.sqrt(np.diag(inverse))


class Tally:
    """Intervals that were asked for, were given, and held; by kind and run."""

    def __init__(self):
        self.runs = []

    def add(self, kind, low, high, exact, naive=None):
        """Adds answers of the last run; ends that are NaN were not given."""
        low, high, exact = (np.asarray(each, float) for each in (low, high, exact))
        given = ~np.isnan(low)
        held = (low <= exact + 1e-9) & (exact <= high + 1e-9)
        row = self.runs[-1].setdefault(kind, np.zeros(6))
        row[:4] += 1, given.any(), given.sum(), held[given].sum()
        if naive is not None:
            row[4:] += naive.size, naive.sum()

    def show(self, table, epsilon):
        """Prints a line for each kind."""
        for kind in dict.fromkeys(kind for run in self.runs for kind in run):
            rows = np.array([run[kind] for run in self.runs if kind in run])
            asked, some, given, held, tried, lucky = rows.sum(axis=0)
            shares = rows[rows[:, 2] > 0, 3] / rows[rows[:, 2] > 0, 2]
            error = f"{shares.std(ddof=1) / shares.size**0.5:.3f}" if shares.size > 1 else "-"
            share = f"{held / given:.3f}" if given else "-"
            naive = f"{lucky / tried:.3f}" if tried else "-"
            print(
                f"{table:8} epsilon {epsilon:<5} {kind:22} given to {some / asked:6.1%} of {asked:6,.0f}"
                f"  intervals {given:8,.0f}  held {share} +- {error}  naive {naive}",
                flush=True,
            )


def choose(options, random):
    options = list(options)
    return [options[place] for place in random.permutation(len(options))[:MOST]]


def interval(table, name):
    return (table[f"{name}{end}"].to_numpy(zero_copy_only=False).astype(float) for end in ("_low", "_high"))


def ask_counts(model, codes, sizes, columns, tally):
    names = ", ".join(f'"{name}"' for name in columns)
    found = model.sql(f"SELECT {names}, COUNT(*) AS n FROM {model.table.name} GROUP BY {names}").table
    shape = [sizes[name] for name in columns]
    cells = np.ravel_multi_index([codes[name] for name in columns], shape)
    tally.add(f"counts of {len(columns)}", *interval(found, "n"), np.bincount(cells, minlength=len(found)))


def ask_means(model, codes, sizes, by, of, tally):
    text = (
        f'SELECT "{by}", AVG("{of}") AS a, AVG(CASE WHEN "{of}" > 0 THEN 1 ELSE 0 END) AS s '
        f'FROM {model.table.name} GROUP BY "{by}"'
    )
    found = model.sql(text).table
    counts = np.bincount(codes[by], minlength=sizes[by])
    for kind, name, weights in (("means", "a", codes[of]), ("shares", "s", codes[of] > 0)):
        sums = np.bincount(codes[by], weights=weights, minlength=sizes[by])
        some = counts > 0  # nobody has no mean
        ends = [each[some] for each in interval(found, name)]
        tally.add(f"{kind} by one column", *ends, sums[some] / counts[some])


def ask_regression(model, codes, rows, columns, tally, *, logistic):
    target, *inputs = columns
    cut = int(np.median(codes[target]))
    asked = f'"{target}" > {cut}' if logistic else target
    exact, naive = [], []
    for source in (codes, rows):
        design = np.column_stack([np.ones(len(source[target])), *(source[name] for name in inputs)]).astype(
            float
        )
        values = (source[target] > cut) if logistic else source[target]
        if np.linalg.matrix_rank(design) < design.shape[1] or values.min() == values.max():
            return
        found = solve(design, values.astype(float), logistic=logistic)
        exact, naive = (found[0], naive) if source is codes else (exact, found)
    if not np.isfinite(exact).all() or np.abs(exact).max() > 50:
        return  # separated classes have no coefficients
    try:
        found = model.regress(asked, inputs, family="logistic" if logistic else "linear")
    except sf.RecipeError:
        return
    kind = "logistic" if logistic else "linear"
    held = np.abs(naive[0] - exact) <= 1.96 * naive[1]
    tally.add(kind, *interval(found.table, "coefficient"), exact, held)


def ask_all(model, codes, sizes, tally, *, measured):
    """All questions to one release."""
    tally.runs.append({})
    rows = model.model.sample()
    random = np.random.default_rng(0)
    for size in (1, 2, 3):
        for chosen in choose(combinations(sizes, size), random):
            if np.prod([sizes[each] for each in chosen]) <= 2**16:
                ask_counts(model, codes, sizes, chosen, tally)
    for by, of in choose(permutations(sizes, 2), random):
        ask_means(model, codes, sizes, by, of, tally)
    known = {pair for pair in combinations(sizes, 2) if not measured or is_given(model, pair)}
    for logistic in (False, True):
        for size in (2, 3):
            options = [each for each in permutations(sizes, size) if known >= {*in_order(each, sizes)}]
            for chosen in choose(options, random):
                ask_regression(model, codes, rows, chosen, tally, logistic=logistic)


def is_given(model, pair):
    """Whether counts of a pair of columns have intervals."""
    names = ", ".join(f'"{name}"' for name in pair)
    found = model.sql(f"SELECT {names}, COUNT(*) AS n FROM {model.table.name} GROUP BY {names}").table
    return found["n_low"].null_count < len(found)


def in_order(columns, sizes):
    """All pairs of `columns`, in the order of the table."""
    return combinations([name for name in sizes if name in columns], 2)


def run(folder, name, epsilon, tally, place, *, measured):
    """One release of one table, and all questions to it."""
    table = csv.read_csv(folder / f"{name}.csv.gz")
    sizes = json.loads((folder / f"{name}-domain.json").read_text())
    codes = {each: table[each].to_numpy() for each in sizes}
    columns = {each: {"range": [0, size - 1]} for each, size in sizes.items()}
    curator = sf.from_frame(
        table.select(list(sizes)), unit="row", max_records=1, columns=columns,
        epsilon=epsilon, delta=1e-9, ledger=place / "ledger.db",
    )  # fmt: skip
    recipe = sf.recipes.Adaptive(table=next(iter(curator.project.tables)))
    curator.release(recipe, epsilon=epsilon, delta=1e-9, out=place / "out")
    ask_all(sf.open_release(place / "out"), codes, sizes, tally, measured=measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="*", default=["nltcs", "adult"])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0])
    parser.add_argument("--measured", action="store_true")
    given = parser.parse_args()
    for name in given.tables:
        for epsilon in given.epsilon:
            tally = Tally()
            for _ in range(given.runs):
                with tempfile.TemporaryDirectory() as place:
                    run(given.folder, name, epsilon, tally, Path(place), measured=given.measured)
            tally.show(name, epsilon)


if __name__ == "__main__":
    main()
