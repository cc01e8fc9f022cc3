"""Statements and recipes of every kind with the noise off: what each is charged, and what it draws on.

`tests/pins/test_exact.py` pins both; `tests/audit/test_drawn.py` compares what is drawn with what is charged.
Nothing in the tables is random.
"""

import tomllib
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.drawn import watch_draws
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator
from sfumato.recipes.files import parse_recipe

COLUMNS = """
[tables.{name}.columns.region]
values = ["a", "b", "c"]
outside = "other"
[tables.{name}.columns.month]
range = [1, 12]
[tables.{name}.columns.age]
range = [0, 15]
outside = "clamp"
[tables.{name}.columns.fare]
bounds = [0, 60]
[tables.{name}.columns.debt]
bounds = [-20, 10]
[tables.{name}.columns.ok]
values = ["no", "yes"]
"""
TABLES = {
    "t": 'unit = "person"\nmax_records = 4\nmax_groups = 3',
    "weighted": 'unit = "person"\nmax_records = 2\nbounding = "weight"',
    "private": 'unit = "person"\nmax_records = "private"',
    "monthly": 'unit = ["person", "month"]\nmax_records = 2',
    "rows": 'unit = "row"',
}
REST = """
[tables.homes]
source = "homes.parquet"
unit = "person"
max_records = 1
[tables.homes.columns.height]
range = [0, 9]
[tables.lines]
source = "lines.parquet"
references = {home = "homes.home"}
max_records = 3
[tables.lines.columns.kind]
values = ["p", "q"]
[tables.lines.columns.paid]
bounds = [0, 9]
[tables.zones]
public = true
source = "zones.parquet"
"""


def write_project(folder, *, neighbours="add-remove"):
    """Writes the project and its tables; returns the project file."""
    rows = [
        (f"p{person}", "abcd"[(person + visit) % 4], 1 + n % 12, person % 17, n % 61 + 0.25, n % 41 - 25, n)
        for person in range(40)
        for visit in range(1 + person % 7)
        for n in [7 * person + 3 * visit]
    ]
    person, region, month, age, fare, debt, n = zip(*rows, strict=True)
    answer = {
        "person": person,
        "region": region,
        "month": month,
        "age": age,
        "fare": fare,
        "debt": debt,
        "ok": ["yes" if each % 3 else "no" for each in n],
        "note": [f"n{each % 3}" for each in n],
    }
    pq.write_table(pa.table(answer), folder / "t.parquet")
    homes = {
        "person": [f"p{each}" for each in range(0, 40, 2)],
        "home": [f"h{each % 15}" for each in range(20)],
        "height": [each % 11 for each in range(20)],
    }
    pq.write_table(pa.table(homes), folder / "homes.parquet")
    lines = {
        "home": [f"h{each % 17}" for each in range(60)],
        "kind": ["pq"[each % 2] for each in range(60)],
        "paid": [float(each % 12) for each in range(60)],
    }
    pq.write_table(pa.table(lines), folder / "lines.parquet")
    zones = {"name": ["a", "b", "c", "c"], "side": ["north", "south", "north", "south"]}
    pq.write_table(pa.table(zones), folder / "zones.parquet")
    text = "[budget]\nepsilon = 1000000\ndelta = 1e-3\n"
    for name, unit in TABLES.items():
        facts = f'source = "t.parquet"\n{unit}\nneighbours = "{neighbours}"'
        text += f"[tables.{name}]\n{facts}\n{COLUMNS.format(name=name)}"
    rest = REST.replace('unit = "person"', f'unit = "person"\nneighbours = "{neighbours}"')
    (folder / "sfumato.toml").write_text(text + rest)
    return folder / "sfumato.toml"


GAUSS = "DELTA 1e-7"
ADDED = [
    *("COUNT(*)", "COUNT(fare)", "COUNT(DISTINCT person)", "COUNT(DISTINCT note)", "COUNT_IF(fare > 20)"),
    *("COUNT(*) FILTER (WHERE debt < 0)", "SUM(fare)", "SUM(debt)", "AVG(fare)", "AVG(debt)"),
    *("VARIANCE(fare)", "STDDEV_POP(debt)", "CORR(fare, debt)", "HISTOGRAM(fare, 6)"),
]
CHOSEN = [
    *("MEDIAN(fare)", "MIN(debt)", "MAX(age)", "QUANTILE_CONT(fare, 0.9)", "APPROX_QUANTILES(fare, 4)"),
    *("MODE(region)", "TOP(month, 2)"),
]
BOUNDED = [
    *("SUM(fare BOUNDED PRIVATELY)", "AVG(debt BOUNDED PRIVATELY)", "STDDEV(fare BOUNDED PRIVATELY)"),
    *("MEDIAN(fare BOUNDED PRIVATELY)", "MAX(debt BOUNDED PRIVATELY)"),
]
INNER = ["COUNT(*)", "SUM(fare)", "AVG(debt)", "MIN(fare)", "MAX(debt)", "COUNT(DISTINCT note)", "SUM(age)"]
GROUPS = ["region", "ok", "region, ok", "month"]
WHERE = "WHERE fare > 20 AND (debt < 0 OR region = 'b')"


def list_statements():
    """The statements, by the table that they are about and what they are made of."""
    tables = [each for each in TABLES if each != "monthly"]  # statements protect whole individuals only
    yield from (f"{each} FROM {table}" for table in tables for each in ("COUNT(*)", "SUM(debt)"))
    yield from (f"{each} FROM t {WHERE}" for each in ADDED + CHOSEN)
    yield from (f"region, {each} FROM t GROUP BY region" for each in ADDED + CHOSEN + BOUNDED)
    yield from (f"{GAUSS} ok, {each} FROM t GROUP BY ok" for each in ADDED)
    yield from (f"{GAUSS} note, {each} FROM t GROUP BY note" for each in ADDED)
    yield from (f"{each} FROM {table}" for each in BOUNDED for table in ("t", "rows"))
    yield from (f"{GAUSS} note, {each} FROM t GROUP BY note" for each in BOUNDED[:2])
    for table, each in product(tables, ("COUNT(*), AVG(fare)", "MEDIAN(fare)", "COUNT(DISTINCT note)")):
        yield from (f"{keys}, {each} FROM {table} GROUP BY {keys}" for keys in GROUPS[:3:2])
    yield from (f"{keys}, COUNT(*), SUM(fare) FROM t GROUP BY {keys}" for keys in GROUPS)
    for sets, each in product(("ROLLUP(region, ok)", "CUBE(region, ok)"), ("COUNT(*)", "SUM(debt)")):
        yield from (f"{law}region, ok, {each} FROM t GROUP BY {sets}" for law in ("", f"{GAUSS} "))
        yield f"region, ok, {each} FROM private GROUP BY {sets}"
    yield "region, ok, COUNT(*), AVG(fare) FROM t GROUP BY GROUPING SETS ((region), (ok), ())"
    yield "ok, APPROX_QUANTILES(fare, 4), COUNT(*) FROM t GROUP BY ok"
    for inner in INNER:
        rows = f"(SELECT person, {inner} AS v FROM t GROUP BY person) AS q"
        yield from (f"{each} FROM {rows}" for each in ("SUM(v)", "AVG(v)", "MEDIAN(v)"))
        rows = f"(SELECT person, region, {inner} AS v FROM t GROUP BY person, region) AS q"
        yield f"region, COUNT(*), SUM(v) FROM {rows} GROUP BY region"
    for each in ("COUNT(*)", "SUM(fare)", "COUNT(DISTINCT person)", "MEDIAN(fare)"):
        yield f"side, {each} FROM t JOIN zones ON t.region = zones.name GROUP BY side"
        yield f"{each} FROM t LEFT JOIN zones ON t.region = zones.name"
    for each in ("COUNT(*)", "AVG(t.fare)", "COUNT(DISTINCT t.person)"):
        yield f"height, {each} FROM t JOIN homes ON t.person = homes.person GROUP BY height"
    for each in ("COUNT(*)", "SUM(paid)", "MEDIAN(paid)", "COUNT(DISTINCT person)"):
        yield f"kind, {each} FROM lines GROUP BY kind"
        yield f"{each} FROM lines WHERE paid > 2"
    yield "height, COUNT(*), SUM(paid) FROM homes JOIN lines ON lines.home = homes.home GROUP BY height"
    yield f"{GAUSS} COUNT(*), SUM(paid) FROM lines"
    for each in ("COUNT(*)", "SUM(fare)", "AVG(debt)"):
        yield f"ok, {each} FROM t WHERE person IN (SELECT person FROM homes WHERE height > 4) GROUP BY ok"
        both = "SELECT person, fare, debt FROM t UNION ALL SELECT person, debt, fare FROM t"
        yield f"{each} FROM ({both}) AS u"
        yield f"{each} FROM (SELECT DISTINCT person, fare, debt, ok FROM t) AS u"
    yield "CASE WHEN fare < 10 THEN 'low' ELSE 'high' END AS level, COUNT(*) FROM t GROUP BY level"
    yield "WIDTH_BUCKET(fare, 0, 60, 3) AS b, COUNT(*), AVG(age) FROM t GROUP BY b"
    yield "region, fare, age FROM t WHERE fare > 5"


def list_asked():
    """Every statement as it is asked, by its name: at a price, and with WITH before it or WITHIN."""
    asked = [f"DP-SELECT FRESH 2 {each}" for each in list_statements()]
    asked += [
        "WITH dear AS (SELECT region, fare - 20 AS above FROM rows WHERE fare > 20) "
        f"DP-SELECT FRESH 1 region, {each} FROM dear GROUP BY region"
        for each in ("SUM(above)", "AVG(above)", "COUNT(above)")
    ]
    asked += [f"DP-SELECT FRESH WITHIN {width} COUNT(*) FROM t" for width in ("30", "20%")]
    asked += [f"DP-SELECT FRESH WITHIN 500 DELTA 1e-7 SUM(fare) FROM {each}" for each in ("t", "rows")]
    limited = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 3, max_groups = 2, delta = {}) {} FROM t"
    asked += [
        limited.format(delta, f"{key}, {each}") + f" GROUP BY {key}"
        for delta, key in (("0", "region"), ("1e-7", "note"))
        for each in ("COUNT(*)", "SUM(debt)", "COUNT(DISTINCT person)")
    ]
    return list(dict.fromkeys(asked))


RECIPES = tomllib.loads(Path(__file__).parents[1].joinpath("pins", "exact.toml").read_text())["recipes"]


def name_recipe(recipe):
    """The settings of a recipe in one line, which is its name."""
    return ", ".join(str(each) if key == "recipe" else f"{key} {each}" for key, each in recipe.items())


class Exact:
    """A project whose answers have no noise, and what is charged and drawn for each."""

    def __init__(self, folder, *, neighbours="add-remove"):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.curator = Curator(read_project(write_project(folder, neighbours=neighbours)))

    def ask(self, statement):
        """The charges of a statement, each with what was drawn under it."""
        with watch_draws() as charges:
            self.curator.sql(statement)
        return charges

    def release(self, recipe):
        """The charges of a release, and the release."""
        file = parse_recipe({"table": "t", "epsilon": 2, **recipe}, folder=self.folder)
        with watch_draws() as charges:
            release = self.curator.release(file.recipe, epsilon=file.epsilons, delta=file.delta)
        return charges, release
