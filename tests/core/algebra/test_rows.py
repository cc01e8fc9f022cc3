"""Each part of the algebra keeps a row with its individual, whatever the rest of a tree claims."""

from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp, parse_one

from sfumato.core.algebra.measures import Group, Measure, Query, check_query, find_sensitivity
from sfumato.core.algebra.rows import (
    Among,
    Counted,
    Filter,
    Individuals,
    Item,
    Join,
    Named,
    Pair,
    Project,
    Scan,
)
from sfumato.core.algebra.rows import Union as United
from sfumato.core.engine.statements import StatementEngine
from sfumato.core.errors import UnsupportedQuery
from sfumato.core.facts.project import parse_project
from sfumato.core.facts.table import UNIT

COUNT = (Measure(statistic="records"),)
PEOPLE = Measure(statistic="individuals")


def column(name, table="a"):
    return exp.column(name, table=table, quoted=True)


def read(text):
    tree = parse_one(text, read="duckdb")
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", True)
    return tree


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Answers queries about two tables, of which the second names its people by decimals."""
    folder = tmp_path_factory.mktemp("rows")
    person = ["ana", "ana", "ana", "ben", "cy"]
    pq.write_table(pa.table({"p": person, "x": [1, 2, 3, 4, 5]}), folder / "t.parquet")
    pq.write_table(pa.table({"p": [1, 1, 2], "x": [7, 8, 9]}), folder / "n.parquet")
    facts = {"unit": "p", "max_records": 2}
    tables = {name: {"source": f"{name}.parquet", **facts} for name in ("t", "n")}
    project = parse_project({"budget": {"epsilon": 1}, "tables": tables}, folder=folder)
    engine = StatementEngine(folder)

    def ask(rows, *measures, groups=(), max_groups=9):
        query = Query(rows=rows, groups=groups, measures=measures or COUNT, max_groups=max_groups)
        found = engine.aggregate(query, project.tables, progress=str)
        return [values.tolist() for values in found.true_values], check_query(query, project.tables)

    return ask


def test_private_rows_meet_rows_of_the_same_individual_alone(asked):
    found, checked = asked(Join(Scan("t", "a"), Scan("t", "b"), ()), PEOPLE)
    assert found == [[3]]
    assert checked.unit.max_records == 2
    of_cy = Filter(Join(Scan("t", "a"), Scan("t", "b"), ()), read("b.x = 5"))
    assert asked(of_cy, PEOPLE)[0] == [[1]]
    pair = Pair(column("x"), column("x", "b"), "BIGINT")
    assert asked(Join(Scan("t", "a"), Scan("t", "b"), (pair,)))[0] == [[4]]


def test_a_row_is_looked_for_among_those_of_its_individual(asked):
    others = Filter(Scan("t", "b"), read("b.x > 3"))
    found = Filter(Among(Scan("t", "a"), others, (), "m"), read("m.found"))
    assert asked(found, PEOPLE)[0] == [[2]]
    same = Pair(column("x"), column("x", "b"), "BIGINT")
    others = Filter(Scan("t", "b"), read("b.x > 2"))
    for pairs, count in (((), 4), ((same,), 3)):  # of ana's three rows one is above 2, and two count at most
        assert asked(Filter(Among(Scan("t", "a"), others, pairs, "m"), read("m.found")))[0] == [[count]]


def test_one_row_of_an_individual_counts_once_whatever_the_plan_says(asked):
    rows = Named(Individuals(Scan("t", "a"), (), (("n", Counted()),)), "q")
    found, checked = asked(rows, max_groups=10**6)
    assert found == [[3]]
    assert find_sensitivity(COUNT[0], checked, norm="L1") == 1


def test_bounds_of_parts_add_up(asked):
    part = Project(Scan("t", "a"), (Item("x", column("x")),))
    found, checked = asked(Named(United((part, part, part)), "u"))
    assert found == [[3 + 3 + 6]]  # ana's nine rows are held to six
    assert find_sensitivity(COUNT[0], checked, norm="L1") == 6


def test_tables_that_could_name_one_individual_twice_are_not_united(asked):
    parts = [Project(Scan(name, "a"), (Item("x", column("x")),)) for name in ("t", "n")]
    with pytest.raises(UnsupportedQuery, match="two names"):
        asked(Named(United(tuple(parts)), "u"))


@pytest.mark.parametrize("name", [UNIT, "number of sfumato", "unknown"])
def test_nothing_names_the_individual_or_what_is_not_offered(asked, name):
    for query in ({"groups": (Group(column(name), None),)}, {}):
        rows = (
            Scan("t", "a")
            if query
            else Filter(Scan("t", "a"), exp.Is(this=column(name), expression=exp.Null()))
        )
        with pytest.raises(UnsupportedQuery):
            asked(rows, **query)


def test_the_name_of_an_individual_is_no_group(asked):
    with pytest.raises(UnsupportedQuery):
        asked(Join(Scan("t", "a"), Scan("t", "b"), ()), groups=(Group(column(UNIT, "b"), None),))


def test_codes_that_are_no_group_are_dropped(asked):
    assert asked(Scan("t", "a"), groups=(Group(column("x"), 2),))[0] == [[0, 1]]
    assert asked(Scan("t", "a"), groups=(Group(read("CAST(a.x AS VARCHAR) || '!'"), 2),))[0] == [[0, 0]]


def test_what_is_no_condition_is_refused(asked):
    with pytest.raises(UnsupportedQuery):
        asked(Filter(Scan("t", "a"), column("p")))
    with pytest.raises(UnsupportedQuery):
        asked(Filter(Scan("t", "a"), read("a.x > 1 AND a.p")))


@pytest.mark.parametrize(
    "facts",
    [
        {"statistic": "sum", "low": 1, "high": 1},
        {"statistic": "sum", "low": 2, "high": 1},
        {"statistic": "sum", "low": 2**60, "high": 2**60 + 1},
        {"statistic": "square", "low": 0, "high": 4, "centre": 9, "grid": 8},
        {"statistic": "quantile", "low": 10**20, "high": 10**20 + 1},
        {"statistic": "sum", "low": 0, "high": 2**50, "grid": 2**10},
    ],
)
def test_bounds_that_doubles_do_not_keep_are_refused(facts):

    numbers = {
        name: Fraction(each) if name in ("low", "high", "centre") else each for name, each in facts.items()
    }
    with pytest.raises(ValueError, match="bounds"):
        Measure(tree=column("x"), **numbers)
