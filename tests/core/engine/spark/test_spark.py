"""Spark on one machine: releases, errors that say what to do, and nothing that Spark says."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato
from helpers.asking import cells
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import SourceError
from sfumato.core.facts.project import read_project
from sfumato.recipes import CellCounts
from sfumato.servers.project import open_engine
from sfumato.servers.spark.engine import SparkEngine
from sfumato.servers.spark.workers import COUNTED, lay_out, make_counter

pytestmark = pytest.mark.slow
MARGINALS = (("clinic", "month"), ("month", "age"), ("age",))


def quiet(_):
    """Progress is not looked at."""


def test_a_release_from_spark_is_verified_and_repeated_for_nothing(make_project, tmp_path, capfd):
    curator = sfumato.open(make_project())
    recipe = CellCounts(table="visits", by=("clinic", "month"))
    release = curator.release(recipe, epsilon="0.5", out=tmp_path / "out")
    assert release.table.num_rows == 36
    result = sfumato.verify(tmp_path / "out", ledger=curator.ledger_path)
    assert result.unchecked == ()
    assert curator.release(recipe, epsilon="0.5").repeated
    assert curator.budget().spent == 0.5
    answer = curator.sql("DP-SELECT 0.5 clinic, COUNT(*) FROM visits GROUP BY clinic")
    assert answer is not None
    assert curator.budget().spent == 1
    written = capfd.readouterr()
    assert written.out == ""
    assert written.err == ""


def test_bounds_and_counts_are_those_of_files(make_project, tmp_path):
    table = read_project(make_project()).table("visits")
    found = open_engine(tmp_path).count(table, cells(MARGINALS), progress=quiet)
    there = StatementEngine(tmp_path).count(
        replace(table, source="visits*.parquet"), cells(MARGINALS), progress=quiet
    )
    for one, other in zip(found, there, strict=True):
        assert one.true_values.tolist() == other.true_values.tolist()


def test_a_table_of_the_catalog_is_counted_and_has_a_version(make_project, tmp_path):
    from sfumato.servers.spark.session import open_room

    files = read_project(make_project()).table("visits")
    engine = open_engine(tmp_path)
    engine.check(files, MARGINALS)
    session = open_room().session
    session.read.parquet(f"{tmp_path}/visits*.parquet").createOrReplaceTempView("visits_seen")
    table = replace(files, source="spark:visits_seen")
    engine.check(table, MARGINALS)
    one, other = (
        engine.count(table, cells(MARGINALS), progress=quiet),
        engine.count(files, cells(MARGINALS), progress=quiet),
    )
    assert [each.true_values.tolist() for each in one] == [each.true_values.tolist() for each in other]
    before = engine.version(table, secret=b"s")
    assert engine.version(table, secret=b"s") == before
    pq.write_table(pq.read_table(tmp_path / "visits00.parquet").slice(1), tmp_path / "visits00.parquet")
    assert engine.version(table, secret=b"s") != before
    assert engine.version(files, secret=b"s") != before


def test_files_that_come_later_are_not_read_under_hold(make_project, tmp_path):
    table = read_project(make_project()).table("visits")
    engine = open_engine(tmp_path)
    (before,) = engine.count(table, cells((("age",),)), progress=quiet)
    with engine.snapshot(table):
        version = engine.version(table, secret=b"s")
        pq.write_table(pq.read_table(tmp_path / "visits00.parquet"), tmp_path / "visits99.parquet")
        (held,) = engine.count(table, cells((("age",),)), progress=quiet)
        assert engine.version(table, secret=b"s") != version  # and so the release is refused
    assert held.true_values.tolist() == before.true_values.tolist()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("spark:no_such_table", "does not exist in Spark's catalog"),
        ("spark:nowhere.no_such_table", "does not exist in Spark's catalog"),
        ("spark:not a name", "is not the name of a table"),
        ("spark:/no/such/*.parquet", "does not exist, or the cluster cannot see it"),
        ("spark:text/broken.parquet", "cannot be read as Parquet"),
    ],
)
def test_a_source_that_is_not_there_costs_nothing(make_project, tmp_path, source, words):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "broken.parquet").write_text("Ana, 42, a secret")
    curator = sfumato.open(make_project(source))
    with pytest.raises(SourceError, match=words) as caught:
        curator.release(CellCounts(table="visits", by=("clinic",)), epsilon="0.5")
    shown = str(caught.value)
    assert "java" not in shown.lower()
    assert "Ana" not in shown
    assert caught.value.__cause__ is None
    assert curator.budget().spent == 0


def test_columns_without_single_values_are_named(make_project, tmp_path):
    project = make_project(f"spark:{tmp_path}/odd.parquet")
    odd = {"person": [1.5], "clinic": [["North"]], "visited": [b"x"], "age": [{"a": 1}]}
    pq.write_table(pa.table(odd), tmp_path / "odd.parquet")
    engine = open_engine(tmp_path)
    table = read_project(project).table("visits")
    for column, name in (("clinic", "clinic"), ("month", "visited"), ("age", "age")):
        with pytest.raises(SourceError, match=f"column '{name}' is an array, a map"):
            engine.check(table, ((column,),))
    with pytest.raises(SourceError, match="unit column 'person' must hold text"):
        engine.describe(table)
    pq.write_table(pa.table({"clinic": ["North"], "Clinic": ["South"]}), tmp_path / "odd.parquet")
    with pytest.raises(SourceError, match="differ in case at most"):
        engine.check(table, (("clinic",),))


def test_files_with_other_types_are_refused(make_project, tmp_path):
    table = read_project(make_project()).table("visits")
    pq.write_table(
        pa.table({"person": ["ana"], "clinic": [1], "age": ["old"]}), tmp_path / "visits50.parquet"
    )
    with pytest.raises(SourceError, match="files whose columns have different types"):
        open_engine(tmp_path).check(table, (("clinic",),))


def test_a_job_that_fails_says_no_more_than_that(capfd):
    from sfumato.servers.spark.session import open_room

    secret = "Ana Svensson"
    with pytest.raises(SourceError, match=r"^the table could not be read to the end: its Spark job failed$"):
        open_room().run(
            lambda: open_room().session.sql(f"SELECT CAST('{secret}' AS INT) AS n").collect(),
            what="the table",
        )
    assert capfd.readouterr() == ("", "")


def test_no_java_is_said_so(make_project, monkeypatch, tmp_path):
    script = (
        "import os, sfumato\nfrom sfumato.recipes import CellCounts\n"
        f"curator = sfumato.open({str(make_project())!r})\n"
        "try: curator.check(CellCounts(table='visits', by=('clinic',)), epsilon='0.5')\n"
        "except sfumato.core.errors.SourceError as error: print(error)"
    )
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Spark needs Java 17" in done.stdout


def test_workers_need_no_sfumato(tmp_path):
    import pyspark.cloudpickle

    from sfumato.servers.spark import engine

    pyspark.cloudpickle.register_pickle_by_value(engine)
    layout = lay_out((3, 5))
    counter = make_counter(layout, (((0, 3), (1, 5)), ((1, 5),)), weighted=False, grid=1)
    (tmp_path / "counter").write_bytes(pyspark.cloudpickle.dumps(counter))
    script = (
        "import sys, pickle, pyarrow as pa\nsys.modules['sfumato'] = None\n"
        f"count = pickle.load(open({str(tmp_path / 'counter')!r}, 'rb'))\n"
        "batch = pa.RecordBatch.from_pydict({'p0': pa.array([2 + 4 * 4, 2 + 4 * 4, 0], pa.int64())})\n"
        "print([row for found in count(iter([batch])) for row in found.to_pylist()])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    rows = [tuple(row.values()) for row in eval(done.stdout)]
    assert sorted(rows) == [(0, 0, 1), (0, 14, 2), (1, 0, 1), (1, 4, 2)]


@pytest.mark.parametrize("weighted", [False, True])
def test_large_marginals_are_handed_on_and_add_up(monkeypatch, weighted):
    from sfumato.servers.spark import workers

    for name, small in (("_DENSE", 100), ("_HELD", 64), ("_BATCH", 16)):
        monkeypatch.setattr(workers, name, small)
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 1000, (3000, 2))
    weights = rng.integers(1, 9, 3000)
    layout = lay_out((1000, 1000))
    counter = make_counter(layout, (((0, 1000), (1, 1000)), ()), weighted=weighted, grid=6)
    columns = {"p0": codes[:, 0] | (codes[:, 1] << 10)} | ({"w": weights} if weighted else {})
    batches = pa.table(columns).to_batches(max_chunksize=100)
    expected: dict[tuple[int, int], int] = {}
    for (one, other), weight in zip(codes.tolist(), weights.tolist(), strict=True):
        for key in ((0, one * 1000 + other), (1, 0)):
            expected[key] = expected.get(key, 0) + (weight if weighted else 6)
    found: dict[tuple[int, int], int] = {}
    for batch in counter(iter(batches)):
        assert batch.num_rows <= 16
        assert batch.schema.names == [part.split()[0] for part in COUNTED.split(", ")]
        for row in batch.to_pylist():
            found[row["m"], row["cell"]] = found.get((row["m"], row["cell"]), 0) + row["n"]
    assert found == expected


def test_who_leaves_a_snapshot_takes_it_from_no_other_thread(monkeypatch):
    engine, table = SparkEngine(Path()), SimpleNamespace(source="spark:t")
    monkeypatch.setattr(engine, "_look_up", lambda _: object())
    entered, left = Event(), Event()

    def read_beside():
        with engine.snapshot(table):
            before = engine._find(table)
            entered.set()
            left.wait(60)
            return engine._find(table) is before

    with ThreadPoolExecutor(1) as pool:
        with engine.snapshot(table):
            beside = pool.submit(read_beside)
            assert entered.wait(60)
            assert engine._find(table) is engine._find(table)
        left.set()
        assert beside.result(60)
