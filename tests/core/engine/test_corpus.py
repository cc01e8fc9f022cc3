"""Statements made up at random: exact aggregates of all engines are the same, to the last bit."""

import os

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from helpers import corpus
from helpers import spark as spark_helper
from sfumato.core.engine.statements import StatementEngine
from sfumato.servers.project import open_engine
from sfumato.servers.push.plan import push_plan
from sfumato.sql.plan import PrivateChoice

QUIET = {"progress": lambda stage: None}
BATCH = 25
LONG = int(os.environ.get("SFUMATO_CORPUS", "800"))  # statements of the slow tests; 4000 for a long look


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    pq.write_table(corpus.make_table("edges"), folder / "t.parquet")
    return folder


def compare(folder, sources, *, count, seed):
    """How many statements were compared, and how many of them the server aggregated; raises if any differ."""
    here = corpus.make_project(["t.parquet"] * 3, folder)
    there = corpus.move(here, sources)
    engine, server = StatementEngine(folder), open_engine(folder)
    compared = pushed = 0
    faults = []
    for text in corpus.make_statements(count, seed):
        plan = corpus.plan_statement(text, here, engine)
        if plan is None:
            continue
        tables = {name: here.tables[name] for name in plan.relation.tables}
        moved = {name: there.tables[name] for name in plan.relation.tables}
        expected = engine.aggregate(plan.query, tables, **QUIET)
        compared += 1
        pushed += server._push(server.bind(plan.query, moved))[2] is not None
        if corpus.differ(expected, server.aggregate(plan.query, moved, **QUIET)):
            faults.append(text)
    assert not faults, f"{len(faults)} of {compared} differ, such as\n" + "\n".join(faults[:5])
    return compared, pushed


@pytest.mark.parametrize(
    "count", [pytest.param(80, id="some"), pytest.param(LONG, id="many", marks=pytest.mark.slow)]
)
def test_postgres_agrees_on_every_statement(folder, write_table, count, record_property):
    source = write_table("corpus", corpus.make_table("edges"))
    compared, pushed = compare(folder, [source] * 3, count=count, seed=count)
    record_property("compared", compared)
    record_property("pushed", pushed)
    assert compared > count * 2 / 3
    assert (
        pushed > compared / 3
    )  # the others: of max_groups below max_records, or of what a server says otherwise


@pytest.fixture(scope="module")
def spark_source(folder):
    if missing := spark_helper.why_missing():
        pytest.skip(missing)
    os.environ.pop("SPARK_REMOTE", None)
    os.environ.update(spark_helper.environment(SPARK_MASTER="local[2]"))
    return f"spark:{folder}/t.parquet"


@pytest.mark.slow
def test_spark_agrees_on_whole_statements(folder, spark_source):
    compared, pushed = compare(folder, [spark_source] * 3, count=80, seed=80)
    assert compared > 50
    assert (
        pushed > compared / 3
    )  # the others: of max_groups below max_records, or of what a server says otherwise


@pytest.mark.slow
def test_spark_agrees_on_every_record_of_every_statement(folder, spark_source):
    """What each record adds, of many statements in one job: to start a job takes longer than to run it."""
    from sfumato.servers.spark.encode import SparkWords

    here = corpus.make_project(["t.parquet"] * 3, folder)
    table = corpus.move(here, [spark_source] * 3).tables["r"]
    engine, server = StatementEngine(folder), open_engine(folder)
    waiting, faults, compared = [], [], 0
    for text in corpus.make_statements(LONG, "records", about=[("r", "c")]):
        plan = corpus.plan_statement(text, here, engine)
        spark = server._servers.find(table)
        checked = None if plan is None else engine.bind(plan.query, here.tables)
        pushed = checked and push_plan(checked, SparkWords(table, spark._find(table).columns))
        if pushed is not None:
            waiting.append((text, pushed, corpus.list_rows(plan, here.tables["r"], engine)))
        if len(waiting) == BATCH:
            faults += ask_together(spark._find(table), waiting)
            compared, waiting = compared + len(waiting), []
    assert not faults, f"{len(faults)} of {compared} differ, such as\n" + "\n".join(faults[:5])
    assert compared >= LONG / 2 - BATCH


def ask_together(source, waiting):
    items = {}
    for place, (_, pushed, _) in enumerate(waiting):
        items |= {f"i{place}_{at}": sql for at, sql in enumerate(corpus.pushed_items(pushed))}
    listed = [f"{sql} AS {name}" for name, sql in items.items()]
    found = source.frame.selectExpr("id", *listed).orderBy("id").drop("id").toArrow()
    faults = []
    for place, (text, pushed, expected) in enumerate(waiting):
        columns = [found[name].to_pylist() for name in items if name.startswith(f"i{place}_")]
        if corpus.read_rows(pushed, columns) != expected:
            faults.append(text)
    return faults


def test_one_individual_moves_what_a_server_aggregates_by_no_more_than_is_charged_for(
    folder, write_table, tmp_path
):
    """Neighbouring tables in PostgreSQL, with the noise off: whoever has most records is in one only."""
    whole = corpus.make_table("edges", rows=200)
    source, other = (
        write_table(name, rows)
        for name, rows in (("whole", whole), ("without", whole.filter(pc.field("person") != "ana")))
    )
    here = corpus.make_project(["t.parquet"] * 3, folder)
    projects = [corpus.move(here, [each] * 3) for each in (source, other)]
    engine, server, moved = StatementEngine(folder), open_engine(tmp_path), 0
    for text in corpus.make_statements(60, "neighbours", about=[("t", "person")]):
        plan = corpus.plan_statement(text, here, engine)
        if plan is None or server._push(server.bind(plan.query, projects[0].tables))[2] is None:
            continue
        one, two = (server.aggregate(plan.query, each.tables, **QUIET) for each in projects)
        for noise, a, b in zip(plan.noises, one.true_values, two.true_values, strict=True):
            difference = np.abs((a - b).astype(object))
            moved += bool(difference.any())
            if isinstance(noise, PrivateChoice):
                assert difference.sum() <= plan.unit.max_records, text
                continue
            (cost,) = noise.costs
            if noise.kind == "laplace":
                assert difference.sum() <= cost.sensitivity, text
            else:
                assert (difference**2).sum() <= cost.sensitivity**2, text
    assert moved > 20
