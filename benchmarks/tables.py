"""Synthetic rows of real tables: ours, simpler methods and the reference library, in one run.

    .venv/bin/python benchmarks/tables.py ../shared/data      all tables, five runs, epsilon 1
    .venv/bin/python benchmarks/tables.py ../shared/data --names nltcs,ma --runs 3 --epsilon 0.3

A table is coded first, as its codebook would have it: numbers of more than twenty values in ten bins of about
equal counts, other columns by their 24 most frequent values and one for the rest, missing values as a value.
That looks at the records, which no release may, and is the same for all methods. The error is the mean L1
distance between true and synthetic frequencies of three columns, over all triples or a fixed 600 of them.

Without privacy: columns shuffled each by itself, a sample of a tenth, and rows drawn again with replacement.
With the same (epsilon, delta 1e-9): single columns alone with all of the budget, `tree`, `adaptive`, and MST
(McKenna, Miklau and Sheldon 2021) on mbi, which is installed in an environment of its own and gets the exact
Gaussian budget, somewhat more than its own conversion would give it. Every run is a process of its own;
seconds are those of the processor.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from peers import peer_python

FOLDER = Path(".bench/tables")
MBI = ["mbi==2.0.0"]
TABLES = {
    "adult": ("coded_benchmarks/adult.csv.gz", ()),
    "nltcs": ("coded_benchmarks/nltcs.csv.gz", ()),
    "ma": ("diverse_communities/ma2019.csv.gz", ()),
    "tx": ("diverse_communities/tx2019.csv.gz", ()),
    "ct": ("ct_drug_deaths/accidental_drug_deaths.csv.gz", ("Date",)),
    "nhanes": ("nhanes/nhanes_2009_2012.parquet", ("ID",)),
    "acs": ("acs_pums_oregon_households/households.csv.gz", ("SERIALNO",)),
    "kdd": ("census_income_kdd/census_income_test.parquet", ()),
    "small": ("coded_benchmarks/adult.csv.gz", ()),  # 1,300 rows of it
}

SCORE = """
import json, resource, sys
from itertools import combinations
import numpy as np
folder, name, kind, epsilon, seed = sys.argv[1:6]
sizes = json.load(open(f"{folder}/{name}.json"))
true = dict(np.load(f"{folder}/{name}.npz"))
rows, random = len(next(iter(true.values()))), np.random.default_rng(int(seed))
def frequencies(columns, each):
    codes = np.zeros(len(columns[each[0]]), np.int64)
    for column in each:
        codes = codes * sizes[column] + columns[column]
    return np.bincount(codes, minlength=int(np.prod([sizes[column] for column in each]))) / max(1, codes.size)
def report(made):
    used = resource.getrusage(resource.RUSAGE_SELF)
    triples = list(combinations(sizes, 3))
    chosen = np.random.default_rng(0).permutation(len(triples))[:600]
    errors = [np.abs(frequencies(true, triples[i]) - frequencies(made, triples[i])).sum() for i in chosen]
    print(json.dumps({"error": float(np.mean(errors)), "cpu": used.ru_utime, "mb": used.ru_maxrss / 1000}))
"""

PLAIN = (
    SCORE
    + """
if kind == "shuffled":
    report({column: random.permutation(values) for column, values in true.items()})
else:
    drawn = random.integers(0, rows, rows if kind == "again" else rows // 10)
    report({column: values[drawn] for column, values in true.items()})
"""
)

SINGLES = (
    SCORE
    + """
from sfumato.accounting import gaussian_sigma
sigma = gaussian_sigma(epsilon=float(epsilon), delta=1e-9, count=len(sizes))
made = {}
for column, size in sizes.items():
    noisy = np.bincount(true[column], minlength=size) + random.normal(0, sigma, size)
    shares = np.maximum(noisy, 0.0) + 1e-9
    made[column] = random.choice(size, rows, p=shares / shares.sum())
report(made)
"""
)

OURS = (
    SCORE
    + """
import sfumato as sf
from pathlib import Path
Path(f"{folder}/ledger.db").unlink(missing_ok=True)
recipe = {"tree": sf.recipes.Tree, "adaptive": sf.recipes.Adaptive}[kind](table="t", seed=int(seed))
release = sf.open(f"{folder}/{name}.toml").release(recipe, epsilon=epsilon, delta="1e-9")
report({column: release.table[column].to_numpy() for column in sizes})
"""
)

PEER = (
    SCORE
    + """
from mbi import Domain, LinearMeasurement, estimation
mu = float(sys.argv[6])
domain = Domain(tuple(sizes), tuple(sizes.values()))
def measure(each, share):
    deviation = 1 / (mu * share**0.5)
    counts = frequencies(true, each) * rows
    return LinearMeasurement(counts + random.normal(0, deviation, counts.size), each, deviation)
def fit(measurements):
    return estimation.MirrorDescent().estimate(domain, measurements, iters=2500)
singles = [measure((column,), 1 / 3 / len(sizes)) for column in sizes]
# Values below three deviations are joined, as the published mechanism does.
kept = {}
for each in singles:
    (column,) = each.clique
    noisy, rare = np.asarray(each.noisy_measurement), 3 * each.stddev
    codes = np.full(sizes[column], int((noisy >= rare).sum()), np.int64)
    codes[noisy >= rare] = np.arange(int((noisy >= rare).sum()))
    if (noisy < rare).sum() < 2:
        codes = np.arange(sizes[column])
    kept[column] = (codes, np.maximum(noisy, 0.0))
full, whole = sizes, true
true = {column: kept[column][0][values] for column, values in whole.items()}
sizes = {column: int(codes.max()) + 1 for column, (codes, _) in kept.items()}
domain = Domain(tuple(sizes), tuple(sizes.values()))
def join(each):
    (column,) = each.clique
    codes = kept[column][0]
    weights = 1 / np.sqrt(np.bincount(codes, minlength=sizes[column]))
    sums = np.bincount(codes, weights=np.asarray(each.noisy_measurement), minlength=sizes[column])
    weigh = lambda marginal: marginal.datavector() * weights
    return LinearMeasurement(sums * weights, each.clique, each.stddev, query=weigh)
measurements = [join(each) for each in singles]
shares = {}
for each in measurements:
    weights = 1 / np.sqrt(np.bincount(kept[each.clique[0]][0], minlength=sizes[each.clique[0]]))
    counts = np.maximum(np.asarray(each.noisy_measurement) / weights, 0.0) + 1e-9
    shares[each.clique[0]] = counts / counts.sum()
pairs = list(combinations(sizes, 2))
gaps = np.array([np.abs(frequencies(true, (a, b)) - np.outer(shares[a], shares[b]).ravel()).sum() * rows
                 for a, b in pairs])
trees, edges = {column: column for column in sizes}, []
rate = 2 * mu * (1 / 3 / (len(sizes) - 1)) ** 0.5
while len(edges) < len(sizes) - 1:
    apart = np.array([trees[a] != trees[b] for a, b in pairs])
    drawn = np.where(apart, rate * gaps / 2 + random.gumbel(size=len(pairs)), -np.inf)
    a, b = edge = pairs[int(np.argmax(drawn))]
    edges.append(edge)
    trees = {column: trees[a] if root == trees[b] else root for column, root in trees.items()}
measurements += [measure(edge, 1 / 3 / len(edges)) for edge in edges]
np.random.seed(int(seed))
drawn = fit(measurements).synthetic_data(rows).to_dict()
made = {}
for column, size in full.items():
    codes, noisy = kept[column]
    made[column] = np.empty(rows, np.int64)
    for value in range(sizes[column]):
        places, members = np.flatnonzero(np.asarray(drawn[column]) == value), np.flatnonzero(codes == value)
        chances = noisy[members] + 1e-9
        made[column][places] = random.choice(members, places.size, p=chances / chances.sum())
sizes, true = full, whole
report(made)
"""
)

METHODS = (
    ("shuffled", PLAIN),
    ("tenth", PLAIN),
    ("again", PLAIN),
    ("singles", SINGLES),
    ("tree", OURS),
    ("adaptive", OURS),
)


def code_table(path, dropped, *, rows=None):
    """The columns of a file as codes, and their numbers of values."""
    if path.suffix == ".parquet":
        table = pa.parquet.read_table(path)
    else:
        names = pa.csv.open_csv(path).schema.names
        texts = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        table = pa.csv.read_csv(path, convert_options=texts)
    codes, sizes = {}, {}
    for name in table.column_names:
        if name in dropped:
            continue
        values = ["" if value is None else str(value) for value in table[name].to_pylist()[:rows]]
        codes[name], sizes[name] = code_column(values)
    return codes, sizes


def code_column(values):
    known = [value for value in set(values) if value != ""]
    try:
        numbers = {value: float(value) for value in known}
    except ValueError:
        numbers = {}
    if len(numbers) > 20:
        given = np.array([numbers[value] for value in values if value != ""])
        inner = np.unique(np.quantile(given, np.linspace(0, 1, 11)[1:-1]))
        places = {
            value: int(np.searchsorted(inner, number, side="right")) for value, number in numbers.items()
        }
    else:
        counts = dict.fromkeys(known, 0)
        for value in values:
            counts[value] = counts.get(value, 0) + (value != "")
        common = sorted(sorted(known), key=lambda value: -counts[value])[:24]
        places = {value: common.index(value) if value in common else len(common) for value in known}
    places[""] = max(places.values(), default=-1) + 1
    codes = np.array([places[value] for value in values])
    used = {code: place for place, code in enumerate(sorted(set(codes.tolist())))}
    return np.array([used[code] for code in codes.tolist()]), len(used)


def prepare(name, source):
    file, dropped = TABLES[name]
    codes, sizes = code_table(source / file, dropped, rows=1300 if name == "small" else None)
    np.savez(FOLDER / f"{name}.npz", **codes)
    (FOLDER / f"{name}.json").write_text(json.dumps(sizes))
    pa.parquet.write_table(pa.table(codes), FOLDER / f"{name}.parquet")
    text = f'[budget]\nepsilon = 1000\ndelta = 1e-6\n[tables.t]\nsource = "{name}.parquet"\nunit = "row"\n'
    for column, size in sizes.items():
        text += f"[tables.t.columns.{json.dumps(column)}]\nrange = [0, {size - 1}]\n"
    (FOLDER / f"{name}.toml").write_text(text)
    return len(next(iter(codes.values()))), len(sizes)


def run(python, script, *arguments, minutes=15):
    """What a process of its own printed, or None where it failed or did not end."""
    command = [python, "-c", script, *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60 * minutes)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(done.stderr[-1500:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def compare(name, source, *, epsilon, runs, peer):
    rows, columns = prepare(name, source)
    print(f"{name}: {rows:,} rows, {columns} columns, epsilon {epsilon}", flush=True)
    errors = {}
    methods = [(kind, script, sys.executable, ()) for kind, script in METHODS]
    if peer is not None:
        from sfumato.accounting import max_mu

        mu = max_mu(float(epsilon), 1e-9)
        methods.append(("mbi MST", PEER, peer, (mu,)))
    for kind, script, python, more in methods:
        found = [run(python, script, FOLDER, name, kind, epsilon, seed, *more) for seed in range(runs)]
        found = [each for each in found if each is not None]
        if not found:
            print(f"  {kind:9} did not finish", flush=True)
            continue
        mean = {key: sum(each[key] for each in found) / len(found) for key in found[0]}
        errors[kind] = mean["error"]
        used = f"{mean['cpu']:.1f} s, {mean['mb']:.0f} MB, {len(found)} runs"
        print(f"  {kind:9} error {mean['error']:.4f}, {used}", flush=True)
    ours = errors.get("adaptive")
    if ours:
        print(
            "  ratios " + ", ".join(f"{kind} {ours / each:.2f}" for kind, each in errors.items()), flush=True
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Synthetic rows of real tables beside other methods.")
    parser.add_argument("source", nargs="?", default="../shared/data", type=Path, help="folder of the tables")
    parser.add_argument("--names", default=",".join(TABLES), help="tables, with commas")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true", help="leave mbi out")
    options = parser.parse_args()
    if not options.source.is_dir():
        print(f"no tables in {options.source}")
        sys.exit(0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    python = None if options.no_peer else peer_python("mbi", MBI)
    for each in options.names.split(","):
        compare(each, options.source, epsilon=options.epsilon, runs=options.runs, peer=python)
