"""Inner aggregates, references, semi-joins and unions: without noise, the answers of plain SQL."""

import math
import tomllib
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.audit.noise_off import RecordingNoise
from sfumato.core.errors import SchemaError, SourceError, UnsupportedQuery
from sfumato.core.facts.project import read_project
from sfumato.curator import Curator

MUCH = 100_000

ITEMS = '[tables.i]\nsource = "i.parquet"\n'
VISITS = '[tables.v]\nsource = "v.parquet"\nunit = "person"\nmax_records = 3\n'

PROJECT = """
[budget]
epsilon = 1000000000
delta = 1e-6

[tables.people]
source = "people.parquet"
unit = "person"
max_records = 1
[tables.people.columns.sex]
values = ["f", "m"]

[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 9
[tables.visits.columns.clinic]
values = ["north", "south", "island"]
[tables.visits.columns.fee]
bounds = [0, 100]
[tables.visits.columns.points]
bounds = [-3, 5]
[tables.visits.columns.day]
range = ["2025-01-01", "2025-12-31"]

[tables.items]
source = "items.parquet"
references = {visit = "visits.id"}
max_records = 40
[tables.items.columns.kind]
range = [0, 4]
[tables.items.columns.price]
bounds = [0, 20]

[tables.notes]
source = "notes.csv"
references = {item = "texts.no"}
max_records = 60

[tables.texts]
source = "texts.csv"
references = {visit = "visits.code"}
max_records = 60

[tables.tight]
source = "visits.parquet"
unit = "person"
max_records = 2
[tables.tight.columns.fee]
bounds = [0, 100]

[tables.rows]
source = "visits.parquet"
unit = "row"

[tables.clinics]
public = true
source = "clinics.csv"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inner")
    (folder / "sfumato.toml").write_text(PROJECT)
    people = (
        "SELECT 'p' || i AS person, CASE WHEN i % 3 = 0 THEN 'f' ELSE 'm' END AS sex FROM range(70) AS t(i)"
    )
    visits = """SELECT i AS id, 'v' || i AS code, 'p' || (i * i) % 47 AS person,
        CASE WHEN i % 5 < 3 THEN 'north' WHEN i % 5 = 3 THEN 'south' END AS clinic,
        CASE WHEN i % 11 > 0 THEN (i * 37 % 9000) / 100.0 END AS fee, (i % 8 - 3)::INTEGER AS points,
        DATE '2025-01-01' + ((i * 7) % 365)::INTEGER AS day FROM range(120) AS t(i)"""
    items = """SELECT i AS no, ((i * 7) % 160)::INTEGER AS visit, i % 5 AS kind,
        (i * 13 % 200) / 10.0 AS price FROM range(400) AS t(i)"""
    for name, query in (("people", people), ("visits", visits), ("items", items)):
        duckdb.execute(f"COPY ({query}) TO '{folder / name}.parquet'")
    texts = "".join(f"n{i},v{i % 130}\n" for i in range(200))
    (folder / "texts.csv").write_text("no,visit\n" + texts)
    (folder / "notes.csv").write_text("item,word\n" + "".join(f"n{i % 250},w{i % 4}\n" for i in range(300)))
    (folder / "clinics.csv").write_text("name,side\nnorth,city\nsouth,coast\nwest,\n")
    return folder


@pytest.fixture(scope="module")
def curator(folder):
    return sf.open(folder / "sfumato.toml")


@pytest.fixture(scope="module")
def plain(folder):
    connection = duckdb.connect()
    for name in (
        "people.parquet",
        "visits.parquet",
        "items.parquet",
        "texts.csv",
        "notes.csv",
        "clinics.csv",
    ):
        table = name.partition(".")[0]
        connection.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder / name}'")
    # As the project describes them: a record without a parent is nobody's.
    connection.execute("CREATE VIEW owned AS SELECT i.*, person FROM items i JOIN visits v ON i.visit = v.id")
    return connection


STATEMENTS = tomllib.loads((Path(__file__).parent / "fixtures" / "inner.toml").read_text())
SAME = [each.replace("{per_person}", STATEMENTS["per_person"]) for each in STATEMENTS["same"]]


def ask(curator, statement):
    before, _, after = statement.partition("SELECT ") if statement.startswith("WITH") else ("", "", statement)
    answer = curator.sql(f"{before}DP-SELECT {MUCH} {after}")
    names = [name for name in answer.table.column_names if not name.endswith(("_low", "_high"))]
    return answer.table.select(names)


def rows(table, statement):
    """Rows by their group, if there are groups; texts stand for labels."""
    plain = [
        tuple(str(v).lower() if isinstance(v, bool) else v for v in row.values()) for row in table.to_pylist()
    ]
    return {"" if statement.startswith(("COUNT", "SUM", "AVG")) else row[0]: row for row in plain}


@pytest.mark.parametrize("statement", SAME)
def test_answers_are_those_of_plain_sql(curator, plain, statement):
    found = rows(ask(curator, statement), statement)
    wanted = rows(plain.sql(f"SELECT {statement}").to_arrow_table(), statement)
    wanted.pop(None, None)
    assert set(wanted) <= set(found)
    for key, row in wanted.items():
        for one, other in zip(found[key], row, strict=True):
            if isinstance(one, str):
                assert one == str(other)
            else:
                assert one == pytest.approx(float(other), rel=2e-3, abs=2e-2)
    for key in set(found) - set(wanted):
        counted = [value for value in found[key][1:] if isinstance(value, int)]
        assert all(value == 0 for value in counted)


@pytest.mark.parametrize(("ours", "theirs"), STATEMENTS["owned"])
def test_records_are_of_whoever_they_refer_to(curator, plain, ours, theirs):
    wanted = rows(plain.sql(f"SELECT {ours.replace('FROM items', theirs)}").to_arrow_table(), ours)
    found = rows(ask(curator, ours), ours)
    wanted.pop(None, None)
    for key, row in wanted.items():
        for one, other in zip(found[key], row, strict=True):
            assert one == (other if isinstance(one, str) else pytest.approx(float(other), rel=2e-3, abs=2e-2))


def test_references_lead_through_text_files(curator, plain):
    wanted = plain.sql(
        "SELECT COUNT(*), COUNT(DISTINCT person) FROM notes JOIN texts ON notes.item = texts.no "
        "JOIN visits ON texts.visit = visits.code"
    ).fetchall()
    found = ask(curator, "COUNT(*) AS n, COUNT(DISTINCT person) AS p FROM notes")
    assert [tuple(row.values()) for row in found.to_pylist()] == wanted


def test_recipes_count_along_references(folder, plain, tmp_path):
    curator = sf.open(folder / "sfumato.toml")
    recipe = sf.recipes.CellCounts(table="items", by=("kind",))
    release = curator.release(recipe, epsilon=MUCH, out=tmp_path / "out")
    wanted = plain.sql("SELECT kind, COUNT(*) FROM owned GROUP BY kind ORDER BY kind").fetchall()
    assert release.table["count"].to_pylist() == [count for _, count in wanted]
    assert "consistent" in sf.verify(tmp_path / "out").verdict
    assert "counts once for everybody who holds its key" in (tmp_path / "out" / "writeup.md").read_text()


def test_parameters_inside_are_read_as_what_they_meet(curator):
    inner = (
        "(SELECT person, COUNT(*) AS n FROM visits WHERE day >= $1 GROUP BY person HAVING COUNT(*) > $2) AS p"
    )
    statement = (
        f"SELECT COUNT(*) AS k FROM {inner} WHERE person IN (SELECT person FROM visits WHERE fee > $3)"
    )
    described = curator.describe(statement, epsilon=1)
    assert [str(kind) for kind in described.parameters] == ["date32[day]", "int64", "double"]
    bound = curator.sql(statement, epsilon=MUCH, parameters=("2025-02-01", "1", "20"))
    written = statement.replace("$1", "DATE '2025-02-01'").replace("$2", "1").replace("$3", "20")
    again = curator.sql(written, epsilon=MUCH)
    assert bound.table["k"].to_pylist() == again.table["k"].to_pylist()


def test_a_join_past_the_reference_is_refused_with_the_reference(curator):
    with pytest.raises(sf.SfumatoError, match=r"a reference with its key \(ON i.visit = visits.id\)"):
        curator.sql("EXPLAIN DP-SELECT 1 COUNT(*) FROM items AS i JOIN visits ON i.kind = visits.id")


def test_a_record_is_copied_for_everybody_who_holds_its_key(tmp_path):
    visits = {"person": ["a", "a", "b", None, "c"], "id": [1, 1, 1, 2, None]}
    items = {"visit": [1, 1, 2, 9, None], "w": [1.0, 1.0, 2.0, 3.0, 4.0]}
    pq.write_table(pa.table(visits), tmp_path / "v.parquet")
    pq.write_table(pa.table(items), tmp_path / "i.parquet")
    (tmp_path / "sfumato.toml").write_text(
        f"[budget]\nepsilon = 1e9\n{VISITS}{ITEMS}" + 'references = {visit = "v.id"}\nmax_records = 5\n'
    )
    curator = sf.open(tmp_path / "sfumato.toml")
    found = ask(curator, "COUNT(*) AS n, COUNT(DISTINCT person) AS p FROM i").to_pylist()
    assert found == [{"n": 4, "p": 2}]  # two items, for a and for b, though a holds the key twice


LONG = "z" * 3000


@pytest.mark.parametrize(
    ("people", "keys", "refers", "wanted"),
    [
        (pa.array([], pa.string()), pa.array([], pa.int64()), pa.array([1, 2]), (0, 0)),
        (["a", "b"], pa.array([1, 2], pa.int32()), pa.array([], pa.int64()), (0, 0)),
        (["a", "b"], pa.array([1, 2], pa.int32()), pa.array([1, 2, 2, 7], pa.int64()), (3, 2)),
        (
            pa.array(["a", "b", None, "b"]).dictionary_encode(),
            pa.array(["x", "y", "x", None]).dictionary_encode(),
            pa.array(["x", "y", "y", None, "q"]).dictionary_encode(),
            (3, 2),
        ),
        (["a", "b"], ["x", "y"], pa.array(["y"], pa.large_string()), (1, 1)),
        ([LONG, LONG + "1"], [LONG, LONG + "2"], [LONG, LONG + "2", LONG + "3"], (2, 2)),
    ],
)
def test_keys_are_compared_however_they_are_stored(tmp_path, people, keys, refers, wanted):
    pq.write_table(pa.table({"person": people, "id": keys}), tmp_path / "v.parquet")
    pq.write_table(pa.table({"visit": refers, "more": refers}), tmp_path / "i.parquet")
    (tmp_path / "sfumato.toml").write_text(
        f"[budget]\nepsilon = 1e9\n{VISITS}{ITEMS}" + 'references = {visit = "v.id"}\nmax_records = 5\n'
    )
    curator = sf.open(tmp_path / "sfumato.toml")
    found = ask(
        curator, "COUNT(*) AS n, COUNT(DISTINCT person) AS p FROM i WHERE more IS NULL OR visit IS NOT NULL"
    )
    assert [tuple(row.values()) for row in found.to_pylist()] == [wanted]


def test_what_is_answered_changes_with_the_table_it_refers_to(tmp_path):
    def write(keys):
        pq.write_table(pa.table({"person": ["a", "b"], "id": keys}), tmp_path / "v.parquet")

    pq.write_table(pa.table({"visit": [1, 2, 3]}), tmp_path / "i.parquet")
    (tmp_path / "sfumato.toml").write_text(
        f"[budget]\nepsilon = 1e9\n{VISITS}{ITEMS}" + 'references = {visit = "v.id"}\nmax_records = 5\n'
    )
    write([1, 2])
    curator = sf.open(tmp_path / "sfumato.toml")
    statement = f"DP-SELECT {MUCH} COUNT(*) AS n FROM i"
    first, again = curator.sql(statement), curator.sql(statement)
    assert (first.repeated, again.repeated) == (False, True)
    write([1, 7])
    other = curator.sql(statement)
    assert not other.repeated
    assert (first.table["n"].to_pylist(), other.table["n"].to_pylist()) == ([2], [1])


def test_counts_are_held_to_their_bounds_and_having_sees_them_as_they_are(curator, plain):
    found = ask(
        curator,
        "n, COUNT(*) AS k FROM (SELECT person, COUNT(*) AS n FROM tight GROUP BY person) AS p GROUP BY n",
    )
    ((ones, more),) = plain.sql(
        "SELECT COUNT_IF(n = 1), COUNT_IF(n > 1) FROM (SELECT COUNT(*) AS n FROM visits GROUP BY person)"
    ).fetchall()
    assert found.to_pylist() == [{"n": 1, "k": ones}, {"n": 2, "k": more}]
    busy = "COUNT(*) AS k FROM (SELECT person FROM {} GROUP BY person HAVING COUNT(*) >= 4) AS p"
    wanted = plain.sql(f"SELECT {busy.format('visits')}").fetchall()[0][0]
    assert wanted > 0
    assert ask(curator, busy.format("tight"))["k"].to_pylist() == [wanted]


def test_noise_is_that_of_one_record(curator):
    inner = "(SELECT person, COUNT(*) AS n, SUM(fee) AS t FROM visits GROUP BY person) AS p"
    plan = curator.sql(f"EXPLAIN DP-SELECT 1 COUNT(*) FROM {inner}").explanation
    assert "sensitivity 1 (L1)" in plan
    assert "one row for each individual" in plan
    assert "sensitivity 9 (L1)" in curator.sql(f"EXPLAIN DP-SELECT 1 SUM(n) FROM {inner}").explanation
    assert "sensitivity 9 (L1)" in curator.sql("EXPLAIN DP-SELECT 1 COUNT(*) FROM visits").explanation
    both = "(SELECT person FROM visits UNION ALL SELECT person FROM people) AS u"
    assert "sensitivity 10 (L1)" in curator.sql(f"EXPLAIN DP-SELECT 1 COUNT(*) FROM {both}").explanation
    assert "sensitivity 40 (L1)" in curator.sql("EXPLAIN DP-SELECT 1 COUNT(*) FROM items").explanation


@pytest.mark.parametrize(
    ("names", "limit", "other"),
    [(["somebody"], 5, ["somebody"]), ([1], 1000, [Decimal("1.0")]), ([1], 1000, ["1"])],
)
def test_unions_of_tables_that_spell_individuals_differently_are_refused(tmp_path, names, limit, other):
    """Somebody who is two to the union would bring twice as many rows as are accounted for."""
    for name, people in (("v", names), ("w", other)):
        pq.write_table(pa.table({"p": people * 20}), tmp_path / f"{name}.parquet")
    facts = [("v", f"max_records = 2\ntext_limit = {limit}"), ("w", "max_records = 3")]
    tables = [f'[tables.{name}]\nsource = "{name}.parquet"\nunit = "p"\n{more}' for name, more in facts]
    (tmp_path / "sfumato.toml").write_text("\n".join(["[budget]", "epsilon = 1e9", *tables]))
    curator = sf.open(tmp_path / "sfumato.toml")
    for inner in ("SELECT 1 AS x FROM {}", "SELECT p, COUNT(*) AS x FROM {} GROUP BY p"):
        both = " UNION ALL ".join(inner.format(name) for name in ("v", "w"))
        with pytest.raises(UnsupportedQuery, match=r"two names|types differ"):
            curator.sql(f"DP-SELECT {MUCH} COUNT(*) FROM ({both}) AS u")
    assert curator.budget().spent == 0


def open_rows(folder, table, columns):
    (folder / "ledger.db").unlink(missing_ok=True)
    return sf.open(write_project(folder, columns, rows=table, unit="p", max_records=50, epsilon=1e9))


def test_sums_do_not_depend_on_the_order_of_records(tmp_path):
    values = [0.1, 0.2, 0.3, 33.3, 0.7, 12.1, 7.9] * 3
    inner = (
        "(SELECT p, SUM(x) AS s, AVG(x) AS m, SUM(x * 3) AS t FROM t GROUP BY p HAVING SUM(x) = 163.8) AS q"
    )
    seen = set()
    for order in (values, values[::-1], sorted(values)):
        rows = pa.table({"p": ["a"] * len(order), "x": order})
        noise = RecordingNoise(mode="off")
        open_rows(tmp_path, rows, {"x": {"bounds": [0, 100]}})
        project = read_project(tmp_path / "sfumato.toml")
        Curator(project, noise=noise).sql(f"DP-SELECT 1 COUNT(*), SUM(s), SUM(m), SUM(t) FROM {inner}")
        seen.add(tuple(int(each.true_values.sum()) for each in noise.requests))
    assert len(seen) == 1
    assert next(iter(seen))[0] == 1  # decimals are added as decimals


def test_ties_go_to_the_value_itself(tmp_path):
    table = pa.table(
        {"p": ["a"] * 4, "d": [1, 1, 2, 2], "x": [3.0, 2.0, 5.0, math.nan], "g": ["c", "b", "a", "b"]}
    )
    for each in (table, table.take([3, 2, 1, 0])):
        columns = {"x": {"bounds": [0, 9]}, "g": {"values": ["a", "b", "c"]}}
        curator = open_rows(tmp_path, each, columns)
        parts = "FIRST(x ORDER BY d) AS f, LAST(x ORDER BY d) AS l, FIRST(g ORDER BY d) AS g"
        inner = f"(SELECT p, {parts} FROM t GROUP BY p) AS q"
        found = curator.sql(f"DP-SELECT {MUCH} SUM(f) AS f, SUM(l) AS l FROM {inner}").table
        assert [round(found[name].to_pylist()[0]) for name in ("f", "l")] == [2, 5]
        groups = curator.sql(f"DP-SELECT {MUCH} g, COUNT(*) AS n FROM {inner} GROUP BY g").table
        assert groups["n"].to_pylist() == [0, 1, 0]


@pytest.mark.parametrize(("statement", "words"), STATEMENTS["refused"])
def test_refusals_name_the_nearest_accepted_form_and_cost_nothing(curator, statement, words):
    left = curator.budget().left
    with pytest.raises(UnsupportedQuery) as refused:
        curator.sql(f"DP-SELECT 1 {statement}")
    assert words in str(refused.value)
    assert curator.budget().left == left


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        (ITEMS + 'references = {visit = "w.id"}\nmax_records = 5', "no table 'w'"),
        (ITEMS + 'references = {visit = "id"}\nmax_records = 5', 'such as "visits.id"'),
        (ITEMS + 'references = "v.id"\nmax_records = 5', "references names one column"),
        (ITEMS + 'references = {visit = "v.id"}', "max_records"),
        (ITEMS + 'references = {visit = "v.id"}\nunit = "x"\nmax_records = 5', "unit comes from"),
        (
            ITEMS + 'references = {a = "j.a"}\nmax_records = 5\n'
            '[tables.j]\nsource = "j.parquet"\nreferences = {b = "i.b"}\nmax_records = 5',
            "circle: i -> j -> i",
        ),
        (
            ITEMS + 'references = {a = "r.a"}\nmax_records = 5\n'
            '[tables.r]\nsource = "r.parquet"\nunit = "row"',
            'unit = "row"',
        ),
        (
            ITEMS + 'references = {a = "z.a"}\nmax_records = 5\n'
            '[tables.z]\nsource = "z.csv"\npublic = true',
            "nobody",
        ),
    ],
)  # fmt: skip
def test_references_are_checked_when_the_project_is_opened(tmp_path, tables, words):
    (tmp_path / "sfumato.toml").write_text(f"[budget]\nepsilon = 1\n{VISITS}{tables}\n")
    with pytest.raises(SchemaError) as refused:
        sf.open(tmp_path / "sfumato.toml")
    assert words in str(refused.value)


def test_keys_and_units_that_are_views_of_text_are_followed(tmp_path):
    def view(values):
        return pa.array(values, pa.string_view())

    pq.write_table(pa.table({"person": view(["a", "b"]), "id": view(["k1", "k2"])}), tmp_path / "v.parquet")
    items = {"visit": view(["k1", "k2", "k2", None]), "o": [1, 1, 2, 2], "name": view(["x", "y", "z", "x"])}
    pq.write_table(pa.table(items), tmp_path / "i.parquet")
    table = (
        ITEMS
        + 'references = {visit = "v.id"}\nmax_records = 5\n[tables.i.columns.name]\nvalues = ["x", "y"]\n'
    )
    (tmp_path / "sfumato.toml").write_text(f"[budget]\nepsilon = 1e9\n{VISITS}{table}")
    curator = sf.open(tmp_path / "sfumato.toml")
    found = curator.sql("DP-SELECT 1000000 name, COUNT(*) AS n FROM i GROUP BY name").table
    assert dict(zip(found["name"].to_pylist(), found["n"].to_pylist(), strict=True)) == {"x": 1, "y": 1}


@pytest.mark.parametrize(
    ("visits", "items", "words"),
    [
        ({"person": ["a"], "id": [1]}, {"other": [1]}, "no such column"),
        ({"person": ["a"], "no": [1]}, {"visit": [1]}, "no column 'id'"),
        ({"person": ["a"], "id": ["1"]}, {"visit": [1]}, "keys are stored as"),
        ({"person": ["a"], "id": [1.5]}, {"visit": [1.5]}, "keys are stored as"),
        ({"person": ["a"], "id": [1]}, {"visit": [1], "Person": ["a"]}, "name of the unit"),
        ({"id": [1]}, {"visit": [1]}, "person"),
        ({"person": ["a"], "id": [b"1"]}, {"visit": [b"1"], "o": [1]}, "nested or binary"),
    ],
)
def test_references_that_do_not_fit_the_sources_are_refused_before_the_charge(tmp_path, visits, items, words):
    pq.write_table(pa.table(visits), tmp_path / "v.parquet")
    pq.write_table(pa.table(items), tmp_path / "i.parquet")
    table = ITEMS + 'references = {visit = "v.id"}\nmax_records = 5\n'
    columns = "[tables.i.columns.visit]\nrange = [1, 3]\n"
    (tmp_path / "sfumato.toml").write_text(f"[budget]\nepsilon = 1\n{VISITS}{table}{columns}")
    curator = sf.open(tmp_path / "sfumato.toml")
    with pytest.raises(SourceError, match=words):
        curator.sql("DP-SELECT 1 COUNT(*) FROM i")
    with pytest.raises(SourceError, match=words):
        curator.release(sf.recipes.CellCounts(table="i", by=("visit",)), epsilon=1)
    assert curator.budget().left == 1


def test_a_reference_to_the_individual_stands_for_it(tmp_path):
    customers = pa.table({"key": [1, 2, 3], "kind": ["x", "y", "x"]})
    orders = pa.table({"number": list(range(7)), "customer": [1, 1, 1, 2, 2, 9, None], "paid": [1.0] * 7})
    for name, table in (("customers", customers), ("orders", orders)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    (tmp_path / "sfumato.toml").write_text(
        '[budget]\nepsilon = 1e9\n[tables.customers]\nsource = "customers.parquet"\nunit = "key"\n'
        'max_records = 1\n[tables.customers.columns.kind]\nvalues = ["x", "y"]\n[tables.orders]\n'
        'source = "orders.parquet"\nreferences = {customer = "customers.key"}\nmax_records = 5\n'
        "[tables.orders.columns.paid]\nbounds = [0, 9]\n"
    )
    curator = sf.open(tmp_path / "sfumato.toml")
    for text, expected in (
        ("AVG(n) AS a FROM (SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer) AS o", [2.5]),
        ("COUNT(*) AS a FROM (SELECT DISTINCT customer FROM orders) AS o", [2]),
        (
            "kind, SUM(n) AS a FROM customers JOIN (SELECT customer, SUM(paid) AS n FROM orders GROUP BY "
            "customer) AS o ON key = customer GROUP BY kind",
            [3, 2],
        ),
    ):
        answer = curator.sql(f"DP-SELECT 10000000 {text}")
        assert answer.table["a"].to_pylist() == pytest.approx(expected, abs=0.01), text
    with pytest.raises(UnsupportedQuery, match="single people out"):
        curator.sql("DP-SELECT 1 customer, COUNT(*) FROM orders GROUP BY customer")
