"""Statements that PostgreSQL aggregates: which of them, what travels, and that the bound holds there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from helpers import corpus
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.table import cap_unit
from sfumato.servers.postgres import encode as asking
from sfumato.servers.postgres import engine as postgres
from sfumato.servers.project import open_engine
from sfumato.servers.push import plan as push

QUIET = {"progress": lambda stage: None}
COLUMNS = {"region": {"values": ["a", "b"]}, "fare": {"bounds": [0, 100]}, "month": {"range": [1, 12]}}
COUNT = "DP-SELECT 1 region, COUNT(*) AS n FROM t GROUP BY region"
# With a quantile records are cut, where counts alone have people clipped.
TALLIED = "DP-SELECT 1 region, COUNT(*) AS n, MEDIAN(fare) AS q FROM t GROUP BY region"


def make_rows(heavy):
    """Ten people with two records each, and one with `heavy` ones."""
    people = [place // 2 for place in range(20)] + [99] * heavy
    return pa.table(
        {
            "person": pa.array(people, pa.int32()),
            "region": ["ab"[place % 2] for place in range(len(people))],
            "month": pa.array([1 + place % 12 for place in range(len(people))], pa.int32()),
            "fare": [float(place % 120) for place in range(len(people))],
        }
    )


def make_project(source, folder, **facts):
    spec = {"source": source, "unit": "person", "max_records": 3, "columns": COLUMNS, **facts}
    return parse_project({"budget": {"epsilon": 100}, "tables": {"t": spec}}, folder=folder)


def aggregate(project, text, engine):
    plan = corpus.plan_statement(text, project, engine)
    return engine.aggregate(plan.query, project.tables, **QUIET)


def is_pushed(project, text, engine):
    query = corpus.plan_statement(text, project, engine).query
    return engine._push(engine.bind(query, project.tables))[2] is not None


@pytest.fixture
def heavy(write_table, tmp_path):
    """A project over a table with one individual over the bound, and the same in a file."""
    pq.write_table(make_rows(50), tmp_path / "t.parquet")
    return make_project(write_table("heavy", make_rows(50)), tmp_path), make_project("t.parquet", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        COUNT,
        "DP-SELECT 1 COUNT(*), COUNT(DISTINCT person) FROM t WHERE fare > 10",
        "DP-SELECT 1 COUNT(*), COUNT(DISTINCT person), COUNT(fare) FROM t WHERE fare > 10",
        "DP-SELECT 1 COUNT(*) FROM t WHERE fare > 1000",
        "DP-SELECT 1 region, SUM(fare), AVG(fare), VARIANCE(fare) FROM t GROUP BY region",
        "DP-SELECT 1 month, MEDIAN(fare) FROM t WHERE region = 'a' GROUP BY month",
    ],
)
def test_an_individual_over_the_bound_adds_as_much_as_for_a_file(heavy, text):
    there, here = heavy
    server, engine = open_engine(Path()), StatementEngine(here.folder)
    assert is_pushed(there, text, server)
    assert not corpus.differ(aggregate(here, text, engine), aggregate(there, text, server))


@pytest.mark.parametrize(
    "text",
    [
        "DP-SELECT 1 region, SUM(fare BOUNDED PRIVATELY) FROM t GROUP BY region",
        "DP-SELECT 1 AVG(fare BOUNDED PRIVATELY) FROM t",
    ],
)
def test_bounds_are_chosen_there_from_the_histogram_of_a_file(heavy, text):
    there, here = heavy
    server, engine = open_engine(Path()), StatementEngine(here.folder)
    plans = [
        corpus.plan_statement(text, each, one).choice_plan for each, one in ((here, engine), (there, server))
    ]
    assert server._push(server.bind(plans[1].query, there.tables))[2] is not None
    found = server.aggregate(plans[1].query, there.tables, **QUIET)
    expected = engine.aggregate(plans[0].query, here.tables, **QUIET)
    assert not corpus.differ(expected, found)
    assert sum(values.sum() for values in expected.true_values) == 23


@pytest.mark.parametrize("cap", [1, 2, 8, 64])
def test_a_chosen_number_of_records_is_held_there_as_for_a_file(write_table, tmp_path, cap):
    pq.write_table(make_rows(50), tmp_path / "t.parquet")
    facts = {"max_records": "private"}
    there = make_project(write_table("chosen", make_rows(50)), tmp_path, **facts)
    here = make_project("t.parquet", tmp_path, **facts)
    server, engine = open_engine(Path()), StatementEngine(here.folder)
    answers = []
    for project, one in ((here, engine), (there, server)):
        plan = corpus.plan_statement(TALLIED, project, one)
        unit = cap_unit(project.tables["t"].unit, cap)
        tallied = one.aggregate(plan.tally_plan.query, project.tables, **QUIET)
        bound = replace(
            plan, unit=unit, relation=replace(plan.relation, unit=unit), tally=None, max_groups=cap
        )
        answers.append((tallied, one.aggregate(bound.query, project.tables, **QUIET)))
    assert not corpus.differ(answers[0][0], answers[1][0])
    assert not corpus.differ(answers[0][1], answers[1][1])
    assert sum(int(values.sum()) for values in answers[1][1].true_values[:1]) == 10 * min(2, cap) + min(
        50, cap
    )


def test_a_server_that_forgets_who_is_over_the_bound_is_caught(heavy, monkeypatch):
    there, here = heavy
    monkeypatch.setattr(asking, "find_beyond", lambda connection, pushed, relation: [])
    found, expected = (
        aggregate(there, COUNT, open_engine(Path())),
        aggregate(here, COUNT, StatementEngine(here.folder)),
    )
    assert corpus.differ(found, expected)


def test_a_sum_that_rounds_halves_otherwise_is_caught(write_table, tmp_path, monkeypatch):
    # A step of the sum of fares is 1 / 8192.
    rows = make_rows(0).set_column(3, "fare", pa.array([(place + 0.5) / 8192 for place in range(20)]))
    pq.write_table(rows, tmp_path / "t.parquet")
    there, here = make_project(write_table("halves", rows), tmp_path), make_project("t.parquet", tmp_path)
    text = "DP-SELECT 1 SUM(fare) FROM t"
    expected = aggregate(here, text, StatementEngine(tmp_path))
    assert not corpus.differ(expected, aggregate(there, text, open_engine(Path())))
    monkeypatch.setattr(push, "_round_away", lambda value, words: f"CAST(round({value}) AS bigint)")
    assert corpus.differ(expected, aggregate(there, text, open_engine(Path())))


def test_who_is_over_the_bound_is_found_once_for_one_state_of_a_table(
    server, write_table, tmp_path, monkeypatch
):
    asked = []
    plain = asking.find_beyond

    def watch(*args):
        asked.append(args)
        return plain(*args)

    monkeypatch.setattr(asking, "find_beyond", watch)
    project, engine = make_project(write_table("state", make_rows(2)), tmp_path), open_engine(Path())
    (before,) = aggregate(project, COUNT, engine).true_values
    aggregate(project, "DP-SELECT 1 SUM(fare) FROM t WHERE month = 1", engine)
    assert len(asked) == 1
    # Any change, seen by the counters of the server or not, is another state.
    server.execute("INSERT INTO state SELECT 99, 'a', 1, 0.0 FROM generate_series(1, 10)")
    (after,) = aggregate(project, COUNT, engine).true_values
    assert len(asked) == 2
    assert (after - before).tolist() in ([1, 0], [2, -1])
    assert after.sum() == before.sum() + 1


def test_who_is_over_the_bound_under_a_condition_is_not_kept_for_the_whole(heavy):
    # Under the condition nobody is over the bound; in the whole one individual is.
    there, here = heavy
    server, engine = open_engine(Path()), StatementEngine(here.folder)
    for text in ("DP-SELECT 1 SUM(fare) FROM t WHERE fare < 1", "DP-SELECT 1 SUM(fare) FROM t", COUNT):
        assert is_pushed(there, text, server)
        assert not corpus.differ(aggregate(here, text, engine), aggregate(there, text, server))


def test_who_is_over_one_bound_is_not_who_is_over_another(write_table, tmp_path):
    source, server = write_table("bounds", make_rows(50)), open_engine(Path())
    for most in (100, 3, 1, 60):
        project = make_project(source, tmp_path, max_records=most)
        (found,) = aggregate(project, COUNT, server).true_values
        assert found.sum() == 10 * min(2, most) + min(50, most)


def test_what_is_kept_of_individuals_over_a_bound_is_of_one_bound_and_no_condition(monkeypatch):
    monkeypatch.setattr(asking, "find_state", lambda connection: ("one state",))
    monkeypatch.setattr(asking, "find_beyond", lambda connection, pushed, relation: [pushed])
    kept, plain = asking.BeyondKept(), push.PushedPlan("person", push.EVERYTHING, (), {}, {}, (), 3)
    some, more = replace(plain, condition="(month = 1)"), replace(plain, most=9)
    for pushed in (some, plain, more):
        assert kept.find(None, pushed, "t", "server") == [pushed]
    assert kept.find(None, some, "t", "server") == [plain]  # whoever is over it there is over it in the whole


@pytest.mark.parametrize("most", [1, 2])
def test_nobody_counts_in_more_groups_than_max_groups_on_a_server(write_table, tmp_path, most):
    facts = {"max_records": 12, "max_groups": most}
    text = "DP-SELECT 1 month, COUNT(*) AS n FROM t GROUP BY month"
    server = open_engine(Path())
    counts = []
    for records in (0, 12):
        # The one individual has a record in each of twelve months.
        project = make_project(write_table("groups", make_rows(records)), tmp_path, **facts)
        assert not is_pushed(project, text, server)
        counts.append(aggregate(project, text, server).true_values[0])
    assert np.count_nonzero(counts[1] - counts[0]) == most


def test_only_records_of_individuals_over_the_bound_travel(heavy, monkeypatch):
    there, _ = heavy
    travelled = []
    plain = postgres.fetch_rows

    def watch(*args, **options):
        for rows in plain(*args, **options):
            travelled.extend(rows)
            yield rows

    monkeypatch.setattr(postgres, "fetch_rows", watch)
    aggregate(there, COUNT, open_engine(Path()))
    assert len(travelled) == 50
    travelled.clear()
    # Where records are only counted, nothing has to be chosen of them.
    aggregate(there, "DP-SELECT 1 COUNT(*) FROM t", open_engine(Path()))
    assert not travelled
    # Those that the statement keeps are no more than may count.
    aggregate(there, "DP-SELECT 1 SUM(fare) FROM t WHERE month = 1 AND fare < 30", open_engine(Path()))
    assert not travelled


@pytest.mark.parametrize(
    ("text", "pushed"),
    [
        (COUNT, True),
        ("DP-SELECT 1 COUNT(*) FROM t WHERE fare BETWEEN 1 AND 2.5 OR NOT region IN ('a')", True),
        ("DP-SELECT 1 SUM(CASE WHEN month = 1 THEN fare ELSE 0 END) FROM t", True),
        ("DP-SELECT 1 COUNT(*) FROM (SELECT * FROM t WHERE month = 1) AS q WHERE fare > 2", True),
        ("DP-SELECT 1 COUNT(*) FROM t WHERE fare * 2 > 3", False),
        ("DP-SELECT 1 COUNT(*) FROM t WHERE LOWER(region) = 'a'", False),
        ("DP-SELECT 1 COUNT(*) FROM t WHERE person = 3", False),
        ("DP-SELECT 1 COUNT(DISTINCT region) FROM t", False),
    ],
)
def test_public_facts_decide_where_a_statement_is_aggregated(write_table, tmp_path, text, pushed):
    engine = open_engine(Path())
    for records in (0, 50):
        project = make_project(write_table("facts", make_rows(records)), tmp_path)
        assert is_pushed(project, text, engine) is pushed
    empty = make_project(write_table("facts", make_rows(0).slice(0, 0)), tmp_path)
    assert is_pushed(empty, text, engine) is pushed
    assert all(not values.any() for values in aggregate(empty, text, engine).true_values)


def test_what_may_give_other_rows_in_every_scan_is_fetched(server, write_table, tmp_path):
    source = write_table("steady", make_rows(5))
    engine = open_engine(Path())
    server.execute(
        "CREATE OR REPLACE VIEW unsteady AS "
        "SELECT floor(random() * 9)::int AS person, region, month, fare FROM steady",
        "DROP MATERIALIZED VIEW IF EXISTS kept",
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM steady",
    )
    for name, pushed in (("steady", True), ("unsteady", False), ("kept", True)):
        project = make_project(source.replace("public.steady", f"public.{name}"), tmp_path)
        assert is_pushed(project, COUNT, engine) is pushed
    server.execute("ALTER TABLE steady ENABLE ROW LEVEL SECURITY")
    assert not is_pushed(make_project(source, tmp_path), COUNT, engine)


def test_a_column_that_may_not_be_read_is_told_before_the_charge(server, write_table, tmp_path):
    source = write_table("closed", make_rows(5))
    server.execute(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN PASSWORD 'x'",
        "GRANT SELECT (person, month) ON closed TO reader",
    )
    project = make_project(source.replace("keeper@", "reader@"), tmp_path)
    curator = sf.Curator(project)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", "x")
        with pytest.raises(sf.SfumatoError, match="may not be read"):
            curator.sql(COUNT)
        assert curator.budget().spent == 0
        assert curator.sql("DP-SELECT 1 month, COUNT(*) FROM t GROUP BY month").spent == 1
