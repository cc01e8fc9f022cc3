"""PostgreSQL as a place of records: one snapshot, total encoding, faults in fixed words."""

import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sfumato as sf
from helpers import projects
from helpers.asking import cells
from helpers.cli import run_process
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SchemaError, SourceError
from sfumato.core.facts.project import read_project
from sfumato.core.facts.table import parse_table
from sfumato.curator import Curator
from sfumato.recipes.shared.evaluation import split_people
from sfumato.servers.postgres import engine
from sfumato.servers.postgres.engine import begin, parse_source
from sfumato.servers.project import open_engine

SILENT = {"progress": lambda _: None}
COLUMNS = {"region": {"values": ["a", "b", "c"]}, "month": {"range": [1, 12]}}
PROJECT = projects.PROJECT.replace("t.parquet", "{source}")
RECIPE = 'recipe = "cell-counts"\ntable = "t"\nby = ["region", "month"]\nepsilon = 1.0\n'
CAPPED = 'recipe = "capped-counts"\ntable = "t"\nby = ["region", "month"]\nepsilon = 1.0\n'


class Exact:
    """No noise, as an audit may have it on invented tables."""

    def add_noise(self, values, *, kind, scale):
        return values.copy()

    def add_sparse_noise(self, cells, values, *, size, scale, threshold):
        kept = values >= threshold
        return cells[kept], values[kept]

    def exponential_choice(self, scores, *, rate):
        return scores.argmax(axis=1)

    permute_and_flip = exponential_choice


@pytest.fixture
def place(server, write_table, people, tmp_path):
    """The table of people in the server, and a project about it; returns its source and the project file."""
    source = write_table("t", people)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "capped.toml").write_text(CAPPED)
    file = tmp_path / "sfumato.toml"
    file.write_text(PROJECT.format(source=source))
    return source, file


def describe(source, **facts):
    return parse_table(
        "t", {"source": source, "unit": "person", "max_records": 3, "columns": COLUMNS, **facts}
    )


def spent(file):
    return sf.open(file).budget().spent


def release(file, *, recipe="recipe.toml", out=None, progress=lambda _: None):
    return sf.open(file).release(file.parent / recipe, out=out, progress=progress)


# Faults of public facts cost nothing.


def change(file, old, new):
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("table=public.t", "table=public.missing", "no such table"),
        ("table=public.t", "table=nowhere.t", "no such table"),
        ("&table=public.t", "", "must name one table"),
        ("table=public.t", "table=a.b.c", "must name one table"),
        ("/postgres?", "/elsewhere?", "no such database"),
        ("keeper@", "stranger@", "refuses the user"),
        ("host=", "host=/nowhere", "cannot be reached"),
        ("table=public.t", "table=public.t&service=nobody", "no service file"),
        ("table=public.t", "table=public.t&colour=red", "cannot be used"),
        ('unit = "person"', 'unit = "nobody"', "no unit column"),
        ("[tables.t.columns.month]", '[tables.t.columns.month]\nfrom = "missing"', "no column 'missing'"),
    ],
)
def test_a_fault_of_public_facts_is_told_and_costs_nothing(place, old, new, words):
    _, file = place
    assert old in file.read_text()
    change(file, old, new)
    with pytest.raises(sf.SfumatoError, match=words) as caught:
        release(file)
    assert "secret" not in str(caught.value)
    assert "keeper" not in str(caught.value)
    assert spent(file) == 0


def test_a_wrong_or_missing_password_is_told_and_costs_nothing(place, monkeypatch):
    _, file = place
    monkeypatch.setenv("PGPASSWORD", "guessed")
    with pytest.raises(SourceError, match="refuses the user or the password") as caught:
        release(file)
    assert "guessed" not in str(caught.value)
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSFILE", "/nowhere")
    with pytest.raises(SourceError, match="asks for a password"):
        release(file)
    assert spent(file) == 0


def test_a_server_that_does_not_answer_is_told(place, monkeypatch):
    _, file = place
    # An address that is kept for documentation: nobody answers there.
    file.write_text(PROJECT.format(source="postgresql://192.0.2.1/db?table=t&connect_timeout=2"))
    with pytest.raises(SourceError, match=r"cannot be reached|did not answer"):
        release(file)
    assert spent(file) == 0


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:hush@db/x?table=t",
        "postgres://db/x?table=t&password=hush",
        "postgresql:db?password=hush",
    ],
)
def test_a_password_in_the_project_file_is_refused(place, url):
    _, file = place
    file.write_text(PROJECT.format(source=url))
    with pytest.raises(SchemaError, match="PGPASSWORD") as caught:
        sf.open(file)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("kind", ["json", "jsonb", "integer[]", "bytea", "interval", "point", "xml", "time"])
def test_types_that_are_no_plain_values_are_refused(server, place, kind):
    source, _ = place
    server.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (person int, region {kind}, month int)")
    table = describe(source.replace("public.t", "public.odd"))
    engine = open_engine(Path())
    with pytest.raises(SourceError, match=r"'region' has a nested or binary type"):
        engine.check(table, (("region",),))
    engine.check(table, (("month",),))
    assert set(engine.describe(table)) == {"person", "month"}


@pytest.mark.parametrize("kind", ["double precision", "timestamp", "numeric(50, 2)"])
def test_a_unit_that_cannot_be_told_apart_is_refused(server, place, kind):
    source, _ = place
    server.execute("DROP TABLE IF EXISTS odd", f"CREATE TABLE odd (person {kind}, region text, month int)")
    with pytest.raises(SourceError, match="told apart exactly"):
        open_engine(Path()).check(describe(source.replace("public.t", "public.odd")), (("region",),))


def test_what_a_user_may_not_read_is_told(server, place):
    source, _ = place
    server.execute("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN PASSWORD 'a secret of the tests'")
    with pytest.raises(SourceError, match="grant USAGE"):
        open_engine(Path()).check(describe(source.replace("keeper@", "guest@")), (("region",),))


def test_a_locked_table_is_told_in_time(server, place, monkeypatch):
    _, file = place
    monkeypatch.setitem(engine._SETTINGS, "lock_timeout", "200ms")
    with server.connect() as other, other.transaction():
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceError, match="is locked"):
            release(file)
    assert spent(file) == 0


@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE t", "ALTER TABLE t DROP COLUMN month", "ALTER TABLE t ALTER region TYPE json USING NULL"],
)
def test_a_table_that_is_altered_after_the_check_costs_nothing(server, place, statement):
    _, file = place
    curator = sf.open(file)
    assert curator.check(file.parent / "recipe.toml").admitted
    server.execute(statement)
    with pytest.raises(SourceError):
        curator.release(file.parent / "recipe.toml")
    assert spent(file) == 0


def test_a_table_cannot_be_altered_while_it_is_read(server, place):
    import psycopg

    _, file = place
    tried = []

    def alter(stage):
        if stage == "charging the ledger":
            with server.connect() as other:
                other.execute("SET lock_timeout = '100ms'")
                try:
                    other.execute("DROP TABLE t")
                except psycopg.errors.LockNotAvailable:
                    tried.append(stage)

    assert release(file, progress=alter).table.num_rows == 36
    assert tried


def test_a_connection_lost_after_the_charge_keeps_it(server, place):
    _, file = place

    def cut(stage):
        if stage == "counting":
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sfumato'"
            )

    with pytest.raises(SourceError, match=r"connection was lost.*The charge is kept"):
        release(file, progress=cut)
    assert spent(file) == 1
    assert release(file).table.num_rows == 36


def test_a_connection_lost_before_a_statement_is_computed_keeps_its_charge(server, place):
    _, file = place

    def cut(stage):
        if stage == "charging the ledger":
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sfumato'"
            )

    with pytest.raises(SourceError, match=r"connection was lost.*The charge is kept"):
        sf.open(file).sql("DP-SELECT 0.5 COUNT(*) FROM t", progress=cut)
    assert spent(file) == 0.5
    change(file, "public.t", "public.missing")
    with pytest.raises(SourceError, match="no such table"):
        sf.open(file).sql("DP-SELECT 0.5 COUNT(*) FROM t")
    assert spent(file) == 0.5


def test_the_command_line_tells_the_same(place):
    _, file = place
    run = partial(run_process, cwd=file.parent)
    done = run("release", "recipe.toml", "--out", "out")
    run("verify", "out")
    change(file, "host=", "host=/nowhere")
    failed = run("release", "recipe.toml", "--out", "more", code=1)
    assert "cannot be reached" in " ".join(failed.stderr.split())
    told = done.stdout + done.stderr + failed.stdout + failed.stderr
    assert "keeper" not in told
    assert os.environ["PGPASSWORD"] not in told
    assert "Traceback" not in told
    assert spent(file) == 1


def test_without_the_package_the_remedy_is_told(place, monkeypatch):
    from sfumato.servers import project

    source, _ = place
    missing = {"postgres": ("sfumato.servers.postgres.engine", "PostgresEngine", "no_such_package")}
    monkeypatch.setattr(project, "_SERVERS", missing)
    with pytest.raises(SourceError, match=r"pip install 'sfumato\[postgres\]'"):
        open_engine(Path()).check(describe(source), (("region",),))


# One snapshot.


def test_what_others_write_is_not_seen_while_it_is_held(server, place):
    source, _ = place
    table, engine = describe(source), open_engine(Path())
    before = engine.version(table, secret=b"k")
    with engine.snapshot(table):
        (first,) = engine.count(table, cells((("region",),)), **SILENT)
        server.execute("INSERT INTO t SELECT 1000 + i, 'a', 1 FROM generate_series(1, 20000) AS i")
        (second,) = engine.count(table, cells((("region",),)), **SILENT)
        assert engine.version(table, secret=b"k") == before
    assert first.true_values.tolist() == second.true_values.tolist()
    assert engine.version(table, secret=b"k") != before
    (after,) = engine.count(table, cells((("region",),)), **SILENT)
    assert after.true_values[0] == first.true_values[0] + 20_000


def test_a_release_that_asks_twice_is_about_one_snapshot(server, place, people, tmp_path):
    _, file = place
    pq.write_table(people, tmp_path / "t.parquet")
    plain = tmp_path / "plain.toml"
    plain.write_text(PROJECT.format(source="t.parquet").replace("[budget]", '[budget]\nledger = "plain.db"'))

    def write(stage):
        if stage == "adding noise":
            server.execute("INSERT INTO t SELECT 1000 + i, 'a', 1 FROM generate_series(1, 5000) AS i")

    held = Curator(read_project(file), noise=Exact()).release(tmp_path / "capped.toml", progress=write)
    files = Curator(read_project(plain), noise=Exact()).release(tmp_path / "capped.toml")
    assert len(held.answers) > 1
    assert held.table.equals(files.table)
    # The table has changed since, so that the same question is a new one.
    assert not sf.open(file).check(tmp_path / "capped.toml").answered


def test_who_leaves_its_snapshot_takes_it_from_nobody_else(server, place):
    source, _ = place
    table, engine = describe(source), open_engine(Path())

    def count():
        return engine.count(table, cells((("region",),)), **SILENT)[0].true_values.tolist()

    entered, left = Event(), Event()

    def read_beside():
        with engine.snapshot(table):
            entered.set()
            left.wait(60)
            return count()

    before = count()
    with ThreadPoolExecutor(1) as pool:
        with engine.snapshot(table):
            beside = pool.submit(read_beside)
            assert entered.wait(60)
            server.execute("INSERT INTO t SELECT 1000 + i, 'a', 1 FROM generate_series(1, 5000) AS i")
            assert count() == before
        left.set()
        assert beside.result(60) == before  # and neither an error nor what was written meanwhile


def test_columns_are_fetched_within_the_snapshot_by_whichever_thread_reads_them(server, place):
    source, _ = place
    table, engine = describe(source), open_engine(Path())
    server_engine = engine._servers.find(table)
    with engine.snapshot(table), ThreadPoolExecutor(1) as pool:
        fetched = server_engine.fetch(table, frozenset({"region"}))
        before = sum(batch.num_rows for batch in fetched.read())
        server.execute("INSERT INTO t SELECT 1000 + i, 'a', 1 FROM generate_series(1, 5000) AS i")
        assert pool.submit(lambda: sum(batch.num_rows for batch in fetched.read())).result(60) == before
    assert sum(batch.num_rows for batch in fetched.read()) == before + 5000


def test_it_is_read_in_one_transaction_that_cannot_write(place):
    source, _ = place
    table, engine = describe(source), open_engine(Path())
    engine.check(table, (("region",),))
    with engine.snapshot(table):
        (room,) = engine._servers._engines["postgres"]._rooms.values()
        row = room.connection.execute(
            "SELECT current_setting('transaction_read_only'), current_setting('transaction_isolation'), "
            "current_setting('search_path'), current_setting('application_name')"
        ).fetchone()
    assert row == ("on", "repeatable read", "pg_catalog, pg_temp", "sfumato")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t SELECT 1000 + i, 'a', 1 FROM generate_series(1, 5000) AS i",
        "TRUNCATE t",
        "ALTER TABLE t ADD COLUMN more int",
    ],
)
def test_a_change_is_a_new_version_of_the_table_and_of_its_views(server, place, statement):
    source, _ = place
    server.execute(
        "DROP VIEW IF EXISTS v", "CREATE VIEW v AS SELECT person, region, month FROM t WHERE month > 0"
    )
    engine = open_engine(Path())
    tables = [describe(source), describe(source.replace("public.t", "public.v"))]
    before = [engine.version(table, secret=b"k") for table in tables]
    assert before == [engine.version(table, secret=b"k") for table in tables]
    server.execute(statement)
    after = [engine.version(table, secret=b"k") for table in tables]
    assert after[0] != before[0]
    # A column that a view does not show is none of its.
    assert (after[1] != before[1]) == ("COLUMN" not in statement)


# The same numbers.


def test_a_whole_release_is_that_of_the_same_file(place, people, tmp_path):
    _, file = place
    pq.write_table(people, tmp_path / "t.parquet")
    plain = tmp_path / "plain.toml"
    plain.write_text(PROJECT.format(source="t.parquet").replace("[budget]", '[budget]\nledger = "plain.db"'))
    here, there = (Curator(read_project(each), noise=Exact()) for each in (file, plain))
    one, other = (each.release(tmp_path / "recipe.toml") for each in (here, there))
    assert one.table.equals(other.table)
    assert one.measurements[0].noisy_values.tolist() == other.measurements[0].noisy_values.tolist()
    for text in (
        "DP-SELECT 1.0 region, COUNT(*) FROM t GROUP BY region",
        "DP-SELECT 1.0 COUNT(DISTINCT person) FROM t WHERE month > 2",
    ):
        assert here.sql(text).table.equals(there.sql(text).table)


def test_a_release_is_verified_and_tells_no_credentials(place, tmp_path):
    _, file = place
    release(file, out=tmp_path / "out")
    assert sf.verify(tmp_path / "out", ledger=tmp_path / "ledger.db").unchecked == ()
    assert release(file).repeated
    told = "".join(path.read_text(errors="replace") for path in (tmp_path / "out").iterdir())
    assert "keeper" not in told
    assert os.environ["PGPASSWORD"] not in told
    assert "table=public.t" in told


def test_a_service_file_names_the_server(server, place, tmp_path, monkeypatch):
    services = tmp_path / "services"
    services.write_text(f"[city]\nhost={server.folder}\nuser=keeper\ndbname=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    engine = open_engine(tmp_path)
    table = describe("postgresql:///?service=city&table=t")
    assert engine.count(table, cells((("region",),)), **SILENT)[0].true_values.sum() > 0


def test_names_of_functions_mean_the_servers_own(server, place):
    source, _ = place
    table, engine = describe(source), open_engine(Path())
    (before,) = engine.count(table, cells((("region", "month"),)), **SILENT)
    server.execute(
        "CREATE SCHEMA evil",
        "CREATE FUNCTION evil.md5(text) RETURNS text LANGUAGE sql AS 'SELECT ''same'''",
        "CREATE FUNCTION evil.concat_ws(text, text, text, text) RETURNS text LANGUAGE sql AS 'SELECT ''x'''",
        "ALTER ROLE keeper SET search_path = evil, pg_catalog",
        "ALTER ROLE keeper SET TimeZone = 'Asia/Tokyo'",
        "ALTER ROLE keeper SET DateStyle = 'German'",
        "ALTER ROLE keeper SET standard_conforming_strings = off",
        "ALTER ROLE keeper SET statement_timeout = '30s'",
    )
    try:
        (after,) = engine.count(table, cells((("region", "month"),)), **SILENT)
        with begin(parse_source(source, table="t")) as connection:
            limit = connection.execute("SHOW statement_timeout").fetchone()
    finally:
        with server.connect() as other:
            other.execute("ALTER ROLE keeper RESET ALL")
            other.execute("DROP SCHEMA evil CASCADE")
    assert before.true_values.tolist() == after.true_values.tolist()
    assert limit == ("0",)  # a role's own limit never stops a count that was paid for


def test_views_partitions_and_other_names_of_types_are_read(server, place):
    source, _ = place
    server.execute(
        "DROP TABLE IF EXISTS parts CASCADE",
        "DROP TYPE IF EXISTS area CASCADE",
        "DROP DOMAIN IF EXISTS moon CASCADE",
        "CREATE TYPE area AS ENUM ('c', 'b', 'a')",
        "CREATE DOMAIN moon AS smallint CHECK (VALUE > 0)",
        "CREATE TABLE parts (person uuid, region area, month moon) PARTITION BY LIST (region)",
        "CREATE TABLE part_a PARTITION OF parts FOR VALUES IN ('a')",
        "CREATE TABLE part_b PARTITION OF parts DEFAULT",
        "INSERT INTO parts SELECT gen_random_uuid(), 'a', 3 FROM generate_series(1, 5)",
        "INSERT INTO parts SELECT '00000000-0000-0000-0000-000000000001', 'b', 4 FROM generate_series(1, 5)",
        "CREATE MATERIALIZED VIEW seen AS SELECT * FROM parts",
        "CREATE VIEW chars AS SELECT person, region::text::char(5) AS region, month FROM parts",
    )
    engine = open_engine(Path())
    for name in ("parts", "seen", "chars"):
        table = describe(source.replace("public.t", f"public.{name}"))
        engine.check(table, (("region",), ("month",)))
        counts = engine.count(table, cells((("region",), ("month",))), **SILENT)
        assert counts[0].true_values.tolist() == [5, 3, 0]
        assert counts[1].true_values.tolist() == [0, 0, 5, 3, *[0] * 8]


def test_values_that_no_file_holds_get_a_code_or_their_policy(server, place):
    source, _ = place
    server.execute(
        "DROP TABLE IF EXISTS far",
        "CREATE TABLE far (person numeric, n numeric, d date, s timestamp, z timestamptz)",
        "INSERT INTO far VALUES (1.0, 'NaN', 'infinity', 'infinity', '-infinity'), "
        "(1.00, 'Infinity', '-infinity', '-infinity', 'infinity'), (1, '-Infinity', '4713-01-01 BC', "
        "'4713-01-01 BC', '4713-01-01 BC'), ('NaN', 1e400, '5874897-12-31', '294276-12-31', '294276-12-31'), "
        "('Infinity', -1e400, '0001-01-01', '0001-01-01', '2020-01-01'), (1e300, 1e-400, NULL, NULL, NULL), "
        "(NULL, 1.5, '2020-02-29', '2020-02-29 10:00', '2020-02-29 10:00')",
    )
    spec = {
        "n": {"bins": [0, 1, 2], "outside": "other"},
        "clamped": {"from": "n", "range": [0, 3], "outside": "clamp"},
        "year": {"from": "d", "period": "year", "range": [-5000, 6000]},
        "hour": {"from": "s", "period": "hour", "outside": "other"},
        "text": {"from": "d", "values": ["infinity", "4713-01-01 (BC)", "2020-02-29"], "outside": "other"},
        "month": {"from": "z", "period": "month", "outside": "other"},
    }
    table = describe(source.replace("public.t", "public.far"), unit="row", max_records=1, columns=spec)
    engine = open_engine(Path())
    asked = tuple((name,) for name in spec)
    engine.check(table, asked)
    found = {
        marginal[0]: engine.count(table, cells((marginal,)), **SILENT)[0].true_values for marginal in asked
    }
    assert found["n"].tolist() == [1, 1, 5]
    assert found["clamped"].tolist() == [3, 0, 0, 2]
    assert {int(cell) - 5000 for cell in np.flatnonzero(found["year"])} == {-4712, 1, 2020}
    assert found["hour"].tolist() == [0] * 10 + [1] + [0] * 13 + [6]
    assert found["text"].tolist() == [0, 1, 1, 5]  # an infinite date has no text, as in statements
    assert found["month"].tolist() == [1, 1, *[0] * 10, 5]
    people = describe(source.replace("public.t", "public.far"), max_records=1, columns=spec)
    engine.check(people, (("month",),))
    # 1.0, 1.00 and 1 are one individual.
    assert engine.count(people, cells((("month",),)), **SILENT)[0].true_values.sum() == 4


NUMBERS = st.from_regex(
    re.compile(
        r"\s?[+-]{0,2}[0-9]{0,4}(\.[0-9]{0,20})?([eE][+-]?[0-9]{0,5})?\s?|[+-]?inf(inity)?|nan", re.ASCII
    ),
    fullmatch=True,
)
MOMENTS = st.from_regex(
    re.compile(
        r"\s?-?[0-9]{1,6}[-/ ][0-9]{1,2}[-/ ][0-9]{1,2}( \(BC\))?"
        r"([T ] ?[0-9]{1,2}:[0-9]{0,2}(:[0-9]{1,2}(\.[0-9]{0,7})?)?( ?Z|[+-][0-9]{2}(:[0-9]{2})?| UTC)?)?\s?",
        re.ASCII,
    ),
    fullmatch=True,
)
ANY = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=12)
TEXT_COLUMNS = {
    "bins": {"from": "x", "bins": [-10, -0.5, 0, 0.1, 5, 1e9], "outside": "other"},
    "clamped": {"from": "x", "range": [-3, 40], "outside": "clamp"},
    "year": {"from": "x", "period": "year", "range": [-2000, 3000], "outside": "clamp"},
    "month": {"from": "x", "period": "month", "outside": "other"},
    "day": {"from": "x", "period": "day_of_week", "outside": "other"},
    "hour": {"from": "x", "period": "hour", "outside": "other"},
}


@given(texts=st.lists(st.one_of(NUMBERS, MOMENTS, ANY), min_size=1, max_size=80))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_read_as_by_duckdb(write_table, texts):
    rows = pa.table({"x": pa.array(texts, pa.string())})
    asked = tuple((name,) for name in TEXT_COLUMNS)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(rows, Path(folder, "x.parquet"))
        spec = {"unit": "row", "columns": TEXT_COLUMNS}
        files = parse_table("t", {"source": "x.parquet", **spec})
        server = parse_table("t", {"source": write_table("fuzz", rows), **spec})
        for marginal in asked:
            (here,) = open_engine(Path(folder)).count(server, cells((marginal,)), **SILENT)
            (there,) = StatementEngine(Path(folder)).count(files, cells((marginal,)), **SILENT)
            assert here.true_values.tolist() == there.true_values.tolist(), marginal


def test_many_weights_do_not_fit_into_a_statement(place, monkeypatch):
    from sfumato.core.errors import RecipeError
    from sfumato.core.questions.counts import IndividualCounts

    source, _ = place
    monkeypatch.setattr(engine, "_MOST_LISTED", 2)
    times = np.ones(3, np.int64)
    asked = IndividualCounts(columns=("region",), max_cells=1, cells=np.arange(3), times=times)
    with pytest.raises(RecipeError, match="do not fit"):
        open_engine(Path()).count(describe(source), (asked,), **SILENT)


# Rows of individuals, references, semi-joins and unions: computed here, of columns that are fetched.

SEVERAL = """
[budget]
epsilon = 1000
[tables.visits]
source = "{visits}"
unit = "person"
max_records = 3
[tables.items]
source = "{items}"
references = {{visit = "visits.id"}}
max_records = 4
[tables.items.columns.kind]
range = [0, 2]
"""
QUESTIONS = [
    "n, COUNT(*) FROM (SELECT person, COUNT(*) AS n FROM visits GROUP BY person) AS p GROUP BY n",
    "kind, COUNT(*), COUNT(DISTINCT person) FROM items GROUP BY kind",
    "COUNT(*) FROM visits JOIN items ON items.visit = visits.id",
    "COUNT(*) FROM visits WHERE person IN (SELECT person FROM items WHERE kind = 1)",
    "COUNT(*) FROM (SELECT person FROM visits UNION ALL SELECT person FROM items) AS u",
    "SUM(n) FROM (SELECT person, COUNT(DISTINCT kind) AS n FROM items GROUP BY person) AS p",
]


def test_several_tables_are_asked_as_files_are(write_table, tmp_path):
    visits = pa.table({"id": [*range(12), 3], "person": [f"p{n % 5}" for n in range(12)] + [None]})
    items = pa.table({"visit": [n * 7 % 15 for n in range(40)], "kind": [n % 4 for n in range(40)]})
    found = []
    for where in ("server", "files", "both"):
        folder = tmp_path / where
        folder.mkdir()
        pq.write_table(visits, folder / "v.parquet")
        pq.write_table(items, folder / "i.parquet")
        place = write_table("several_visits", visits) if where == "server" else "v.parquet"
        other = "i.parquet" if where == "files" else write_table("several_items", items)
        (folder / "sfumato.toml").write_text(SEVERAL.format(visits=place, items=other))
        curator = Curator(read_project(folder / "sfumato.toml"), noise=Exact())
        found.append([curator.sql(f"DP-SELECT 1 {each}").table.to_pydict() for each in QUESTIONS])
        recipe = sf.recipes.CellCounts(table="items", by=("kind",))
        if where == "files":
            assert sum(curator.release(recipe, epsilon=1).table["count"].to_pylist()) > 0
            continue
        spent = curator.budget().spent
        with pytest.raises(SourceError, match="from files only"):
            curator.release(recipe, epsilon=1)
        assert curator.budget().spent == spent
    assert found[0] == found[1] == found[2]


READ_COLUMNS = {
    "kind": {"from": "a", "values": ["x", "y"], "missing": ["-"], "missing_label": "none"},
    "day": {"from": "b", "format": "%d.%m.%Y", "period": "month", "outside": "other"},
    "fee": {"from": "c", "decimal": ",", "bins": [0, 1, 2.5]},
    "when": {"from": "d", "period": "day", "range": ["2025-01-01", "2025-01-03"], "outside": "other"},
}


def test_columns_that_are_read_by_a_key_are_counted_as_of_files(write_table, tmp_path):
    """The server would take what is stored for what it stands for, so such columns are fetched."""
    rows = pa.table(
        {
            "who": ["ana", "ana", "ben", None, "eva"],
            "a": ["x", "-", None, "y", "y"],
            "b": ["03.01.2025", "04.01.2025", "2025-01-03", "1.2.2025", ""],
            "c": ["0,5", "1,0", "2.5", "2,5", "x"],
            "d": [date(2025, 1, 1), date(2025, 1, 3), date(2025, 1, 4), None, date(2025, 1, 2)],
        }
    )
    pq.write_table(rows, tmp_path / "read.parquet")
    spec = {"unit": "who", "max_records": 1, "columns": READ_COLUMNS}
    files = parse_table("t", {"source": "read.parquet", **spec})
    server = parse_table("t", {"source": write_table("read", rows), **spec})
    here, there = open_engine(tmp_path), StatementEngine(tmp_path)
    for name in READ_COLUMNS:
        here.check(server, ((name,),))
        (one,) = here.count(server, cells(((name,),)), **SILENT)
        (other,) = there.count(files, cells(((name,),)), **SILENT)
        assert one.true_values.tolist() == other.true_values.tolist(), name


def test_records_of_a_part_are_those_of_its_people(write_table, tmp_path):
    rows = pa.table({"who": [f"p{n % 9}" for n in range(30)], "a": [n % 3 for n in range(30)]})
    spec = {"unit": "who", "max_records": 9, "columns": {"a": {"range": [0, 2]}}}
    server = parse_table("t", {"source": write_table("parts_of", rows), **spec})
    engine = open_engine(tmp_path)
    parts = split_people({"fit": Fraction(1, 2), "held": Fraction(1, 2)}, columns=("a",))
    read = (engine.read_records(replace(server, part=each), ("a",), **SILENT) for each in parts)
    sizes = [len(each._codes) for each in read]
    assert sum(sizes) == 30
    assert 0 < sizes[0] < 30
