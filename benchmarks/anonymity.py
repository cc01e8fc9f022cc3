"""Loss and time of k-anonymous tables of Adult, beside anonypy and pycanon, and 3 million rows end to end.

Run with `.venv/bin/python benchmarks/anonymity.py`; `--methods` compares the default's methods alone. The
peers live in an environment of their own, `.bench/anonymity`, made on the first run. Loss is NCP, the mean
over cells of (range or values - 1) / (whole range or all values - 1), scored here on the equivalence classes
of every tool in the same way; with hierarchies it is the share of the other values that a released node holds
too. It needs the public tables beside the project.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADULT = ROOT.parent / "shared" / "data" / "adult" / "adult.parquet"
ENVIRONMENT = ROOT / ".bench" / "anonymity"
REQUIREMENTS = ["anonypy==0.2.1", "pycanon==1.3.5", "setuptools<80", "pyarrow"]
QUASI = ["age", "workclass", "education-num", "marital-status", "occupation", "race", "sex", "native-country"]
KS = (5, 10, 50)
BARS = {"sets": (2.6, 4.7, 12.2), "hierarchies": (5.5, 7.8, 15.0)}
BIG_COPIES = 100
CHOSEN = (
    ("adult", "adult/adult.parquet", QUASI),
    ("ma", "diverse_communities/ma2019.csv.gz", ["PUMA", "AGEP", "SEX", "MSP", "RAC1P", "EDU"]),
    ("tx", "diverse_communities/tx2019.csv.gz", ["PUMA", "AGEP", "SEX", "DENSITY"]),
    (
        "kdd",
        "census_income_kdd/census_income_test.parquet",
        ["age", "education", "race", "sex", "wage_per_hour"],
    ),
)


def load_adult():
    """The complete rows of the training part."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(ADULT)
    kept = pc.equal(table["split"], "train")
    for name in ("workclass", "occupation", "native-country"):
        kept = pc.and_(kept, pc.not_equal(table[name], "?"))
    return table.filter(kept).select([*QUASI, "income"])


def adult_hierarchies():
    """Hierarchies of 5, 3, 4, 3, 3, 2, 2 and 3 levels: 6,480 full-domain generalisations."""
    from sfumato.anonymity import Groups, Intervals, Suppressed

    fives = list(range(1, 102, 5))
    ages = [fives, fives[::2], fives[::4]]
    education = [
        {
            "primary school": [1, 2, 3],
            "high school": [4, 5, 6, 7, 8, 9],
            "undergraduate": [10, 13],
            "professional": [11, 12, 15],
            "graduate": [14, 16],
        },
        {
            "primary": ["primary school"],
            "secondary": ["high school"],
            "higher": ["undergraduate", "professional", "graduate"],
        },
    ]
    work = {
        "government": ["Federal-gov", "Local-gov", "State-gov"],
        "other employers": ["Private", "Self-emp-inc", "Self-emp-not-inc"],
        "without pay": ["Never-worked", "Without-pay"],
    }
    marital = {
        "with spouse": ["Married-civ-spouse", "Married-AF-spouse"],
        "without spouse": ["Divorced", "Married-spouse-absent", "Never-married", "Separated", "Widowed"],
    }
    jobs = {
        "technical": ["Craft-repair", "Machine-op-inspct", "Prof-specialty", "Tech-support"],
        "not technical": ["Exec-managerial", "Handlers-cleaners", "Sales"],
        "other": [
            "Adm-clerical",
            "Armed-Forces",
            "Farming-fishing",
            "Other-service",
            "Priv-house-serv",
            "Protective-serv",
            "Transport-moving",
        ],
    }
    countries = {
        "Africa": "South",
        "Asia": "Cambodia China Hong India Iran Japan Laos Philippines Taiwan Thailand Vietnam",
        "England": "England",
        "Europe": "France Germany Greece Holand-Netherlands Hungary Ireland Italy Poland Portugal Scotland "
        "Yugoslavia",
        "North America": "Canada Cuba Dominican-Republic El-Salvador Guatemala Haiti Honduras Jamaica Mexico "
        "Outlying-US(Guam-USVI-etc) Puerto-Rico United-States",
        "South America": "Columbia Ecuador Nicaragua Peru Trinadad&Tobago",
    }
    return {
        "age": Intervals(edges=ages, style="whole"),
        "workclass": Groups([work]),
        "education-num": Groups(education),
        "marital-status": Groups([marital]),
        "occupation": Groups([jobs]),
        "race": Suppressed(),
        "sex": Suppressed(),
        "native-country": Groups([{place: names.split() for place, names in countries.items()}]),
    }


def score_classes(table, classes):
    """Set-valued NCP in percent of any division of the rows into classes."""
    import numpy as np

    total = 0.0
    for name in QUASI:
        values = table[name].to_numpy(zero_copy_only=False)
        different, codes = np.unique(values, return_inverse=True)
        if values.dtype.kind in "if":
            low, high = np.full(classes.max() + 1, np.inf), np.full(classes.max() + 1, -np.inf)
            np.minimum.at(low, classes, values)
            np.maximum.at(high, classes, values)
            lost = (high - low) / (different[-1] - different[0])
        else:
            pairs = np.unique(classes.astype(np.int64) * different.size + codes)
            lost = (np.bincount(pairs // different.size) - 1) / (different.size - 1)
        total += lost[classes].mean()
    return 100 * total / len(QUASI)


def number_classes(released):
    """The class of every released row, by its cells."""
    import numpy as np

    keys = list(zip(*(released[name].to_pylist() for name in QUASI), strict=True))
    numbers = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def best_time(work, rounds=5):
    """Seconds of the best of several rounds after one to warm up, and what it gave."""
    given = work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        given = work()
        times.append(time.perf_counter() - start)
    return min(times), given


def measure_ours(table):
    """Rows of the table: method, k, seconds of the division alone and of everything, loss, class size."""
    from sfumato.anonymity import Options, release_table
    from sfumato.anonymity.divide import divide_tuples
    from sfumato.anonymity.encode import build_space
    from sfumato.anonymity.release import _collapse

    for kind, trees in (("sets", None), ("hierarchies", adult_hierarchies())):
        for method in ("local", "cuts", "strict"):
            for k, bar in zip(KS, BARS[kind], strict=True):
                plan = Options(
                    quasi_identifiers=QUASI, k=k, sensitive="income", hierarchies=trees, method=method
                )
                columns, tuples, people = _collapse(table, plan, None)
                space = build_space(columns)

                def divide(parts=(plan, table, columns, tuples, people, space)):
                    return divide_tuples(*parts, progress=lambda _: None)

                seconds, _ = best_time(divide)
                whole, released = best_time(lambda plan=plan: release_table(table, plan), rounds=2)
                loss = released.made.loss
                print(
                    f"{method:9s} {kind:12s} k={k:<3d} {seconds:7.3f} s ({whole:.2f} s with labels and the "
                    f"check)  NCP {100 * loss.ncp:6.2f} % (bar {bar})  "
                    f"class/k {loss.average_class_size_by_k:.2f} (bar 1.38)  k found {released.measured.k}",
                    flush=True,
                )
    for limit in (0.0, 0.05):
        for k in KS:
            plan = Options(
                quasi_identifiers=QUASI,
                k=k,
                sensitive="income",
                hierarchies=adult_hierarchies(),
                method="lattice",
                max_suppressed=limit,
            )
            whole, released = best_time(lambda plan=plan: release_table(table, plan), rounds=2)
            print(
                f"lattice   {limit:4.0%} left out  k={k:<3d} {whole:7.3f} s (bar 1)  "
                f"NCP {100 * released.made.loss.ncp:6.2f} %  k found {released.measured.k}",
                flush=True,
            )


def compare_methods():
    """NCP in percent of both methods that the default tries, on public tables it was not made with."""
    import pyarrow.compute as pc

    from sfumato.anonymity import Options, release_table
    from sfumato.tables.read import read_table

    for name, file, columns in CHOSEN:
        table = read_table(ROOT.parent / "shared" / "data" / file, side="table", typed=True)
        table = table.select(columns).filter(pc.is_valid(table[columns[0]])).slice(0, 20_000)
        for k in (5, 20, 50, 100):
            tried = release_table(table, Options(quasi_identifiers=columns, k=k)).made.tried
            told = "  ".join(f"{method} {100 * tried[method]:6.2f}" for method in ("local", "cuts"))
            print(
                f"{name:7s} {table.num_rows:6d} rows  k={k:<4d} {told}  released: {next(iter(tried))}",
                flush=True,
            )


def peer_python():
    """The interpreter of the peers' environment, made if it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        print("installing the peers", file=sys.stderr)
        venv.create(ENVIRONMENT, with_pip=True)
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
        subprocess.run(command, check=True)
        (ENVIRONMENT / "ready").touch()
    return python


ANONYPY = """
import json, sys, time
import pandas as pd
from anonypy import mondrian
data = pd.read_parquet(sys.argv[1])
names = json.loads(sys.argv[2])
for name in data.columns:
    if data[name].dtype.kind not in "if":
        data[name] = data[name].astype("category")
model = mondrian.Mondrian(data, names, "income")
start = time.perf_counter()
parts = model.partition(int(sys.argv[3]))
seconds = time.perf_counter() - start
classes = [0] * len(data)
for number, part in enumerate(parts):
    for row in part:
        classes[row] = number
print(json.dumps({"seconds": seconds, "classes": classes}))
"""

PYCANON = """
import json, sys, time
import pandas as pd
from pycanon import anonymity
data = pd.read_parquet(sys.argv[1])
names = json.loads(sys.argv[2])
found = {}
for name, work in (
    ("k", lambda: anonymity.k_anonymity(data, names)),
    ("l", lambda: anonymity.l_diversity(data, names, ["income"])),
    ("t", lambda: anonymity.t_closeness(data, names, ["income"])),
):
    start = time.perf_counter()
    value = work()
    found[name] = [float(value), time.perf_counter() - start]
print(json.dumps(found))
"""


SECOND_JUDGE = """
import json, sys
from pathlib import Path
import pandas as pd
from pycanon import anonymity
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.parquet")):
    data = pd.read_parquet(path)
    found[path.name] = int(anonymity.k_anonymity(data, list(data.columns)))
print(json.dumps(found))
"""


def ask_peer(script, *arguments):
    answer = subprocess.run(
        [peer_python(), "-W", "ignore", "-c", script, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def measure_peers(table, folder):
    """anonypy on the same table; pycanon as a second judge of our file."""
    import numpy as np
    import pyarrow.parquet as pq

    from sfumato.anonymity import anonymize, measure_anonymity

    source = folder / "adult.parquet"
    pq.write_table(table.replace_schema_metadata(), source)
    for k in KS:
        found = ask_peer(ANONYPY, source, json.dumps(QUASI), k)
        classes = np.array(found["classes"])
        sizes = np.bincount(classes)
        print(
            f"anonypy   sets         k={k:<3d} {found['seconds']:7.3f} s  NCP "
            f"{score_classes(table, classes):6.2f} %  class/k {sizes.mean() / k:.2f}  k found {sizes.min()}",
            flush=True,
        )
    for k in KS:
        released = folder / f"released{k}.parquet"
        anonymize(source, quasi_identifiers=QUASI, k=k, sensitive="income", out=released)
        seconds, own = best_time(
            lambda path=released: measure_anonymity(path, quasi_identifiers=QUASI, sensitive="income"),
            rounds=3,
        )
        peer = ask_peer(PYCANON, released, json.dumps(QUASI))
        slower = sum(each[1] for each in peer.values()) / seconds
        print(
            f"judges    k={k:<3d} ours k {own.k} l {own.l} t {own.t:.4f} in {seconds:.3f} s; pycanon "
            f"k {peer['k'][0]:g} l {peer['l'][0]:g} t {peer['t'][0]:.4f}, {slower:.0f} times as long",
            flush=True,
        )


def judge_many(folder):
    """Random small tables, any k and every method: what pycanon finds in each file."""
    import numpy as np
    import pyarrow as pa

    from sfumato.anonymity import anonymize

    draw = np.random.default_rng(11)
    folder.mkdir()
    asked = {}
    for number in range(200):
        rows = int(draw.integers(10, 200))
        columns = {"n": draw.integers(0, 30, rows), "x": draw.normal(size=rows).round(1)}
        columns |= {f"c{place}": draw.choice(list("abcdefg"), rows) for place in range(draw.integers(1, 4))}
        k = int(draw.integers(1, rows // 2))
        method = ("local", "cuts", "strict", "relaxed", "microaggregate")[number % 5]
        path = folder / f"{number:03d}.parquet"
        anonymize(pa.table(columns), quasi_identifiers=list(columns), k=k, method=method, out=path)
        asked[path.name] = k
    found = ask_peer(SECOND_JUDGE, folder)
    short = sum(found[name] < k for name, k in asked.items())
    print(f"pycanon on {len(asked)} files of random tables, any k, five methods: {short} below k", flush=True)


def write_big(table, path):
    """Adult a hundred times over, ages moved by up to two years and a twentieth of other cells redrawn."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = np.random.default_rng(7)
    columns = {}
    for name in table.column_names:
        values = table[name].to_numpy(zero_copy_only=False)
        known = np.unique(values)
        many = np.tile(values, BIG_COPIES)
        if name == "age":
            many = np.clip(many + draw.integers(-2, 3, many.size), known[0], known[-1])
        elif name != "income":
            moved = draw.random(many.size) < 0.05
            many[moved] = draw.choice(known, moved.sum())
        columns[name] = pa.array(many) if many.dtype.kind in "if" else pa.array(many, pa.string())
    pq.write_table(pa.table(columns), path)


def run_big(source, out, kind):
    """In a process of its own: one whole release and one check, as JSON on the last line."""
    from sfumato.anonymity import Options, measure_anonymity, release_table

    trees = adult_hierarchies() if kind == "hierarchies" else None
    plan = Options(quasi_identifiers=QUASI, k=10, sensitive="income", hierarchies=trees)
    warm = load_adult()
    release_table(warm, plan)  # compiled loops are on disk, and are read once
    start = time.perf_counter()
    released = release_table(source, plan, out=out, force=True)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    found = measure_anonymity(out, quasi_identifiers=QUASI, sensitive="income")
    checked = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        json.dumps(
            {
                "seconds": seconds,
                "checked": checked,
                "peak": peak,
                "ncp": 100 * released.made.loss.ncp,
                "k": found.k,
                "classes": released.measured.classes,
            }
        )
    )


def measure_big(table, folder):
    source = folder / "big.parquet"
    write_big(table, source)
    for kind in ("sets", "hierarchies"):
        best = None
        for _ in range(3):
            command = [sys.executable, __file__, "--big", source, folder / "out.parquet", kind]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(answer.stdout.splitlines()[-1])
            best = found if best is None or found["seconds"] < best["seconds"] else best
        print(
            f"3 million rows, k=10, {kind}: {best['seconds']:.2f} s from Parquet to checked Parquet (bar 4), "
            f"{best['peak']:.2f} GiB (bar 1), NCP {best['ncp']:.2f} %, {best['classes']:,} classes, "
            f"k found {best['k']}; k, l and t alone {best['checked']:.2f} s (bar 2)",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--big", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--methods", action="store_true", help="the two methods that are tried, and no more")
    options = parser.parse_args()
    if options.big:
        run_big(*options.big)
        return
    if not ADULT.exists():
        print("skipped: the public tables are not beside the project")
        return
    if options.methods:
        compare_methods()
        return
    table = load_adult()
    compare_methods()
    measure_ours(table)
    with tempfile.TemporaryDirectory() as name:
        if not options.no_peers:
            measure_peers(table, Path(name))
            judge_many(Path(name) / "many")
        measure_big(table, Path(name))


if __name__ == "__main__":
    main()
