"""What rows are looked for among: only rows of the same individual decide, and nothing is multiplied."""

import duckdb
import pytest
from sqlglot import exp

from sfumato.core.algebra.rows import FOUND, Among, Filter, Pair, Scan
from sfumato.core.algebra.writing import Writer
from sfumato.core.facts.table import UNIT, PrivacyUnit, Table


@pytest.fixture
def connection():
    found = duckdb.connect()
    rows = "('ana', 1, false), ('ana', 2, true), ('ben', 1, true), ('ben', 1, true)"
    found.execute(f'CREATE TABLE t AS SELECT * FROM (VALUES {rows}) AS v("{UNIT}", k, flag)')
    return found


def look(connection, pairs, apart=None, sign="<>"):
    unit = PrivacyUnit(column="person", max_records=5)
    writer = Writer({"t": Table(name="t", source="t.csv", unit=unit)})
    flagged = Filter(Scan("t", "y"), exp.column("flag", table="y", quoted=True))
    query = writer.select(Among(Scan("t", "x"), flagged, pairs, "test", apart, sign))
    columns = [exp.column(UNIT, table="x", quoted=True), exp.column("k", table="x", quoted=True)]
    query = query.select(*columns, exp.column(FOUND, table="test", quoted=True))
    return sorted(connection.sql(query.sql(dialect="duckdb")).fetchall(), key=str)


def test_an_individual_is_looked_for_among_its_own_rows(connection):
    assert look(connection, ()) == [("ana", 1, True), ("ana", 2, True), ("ben", 1, True), ("ben", 1, True)]


def test_a_value_that_only_another_individual_has_is_not_found(connection):
    same = Pair(exp.column("k", table="x", quoted=True), exp.column("k", table="y", quoted=True), "BIGINT")
    assert look(connection, (same,)) == [
        ("ana", 1, None),
        ("ana", 2, True),
        ("ben", 1, True),
        ("ben", 1, True),
    ]


def test_nobody_who_comes_changes_what_is_found_for_others_of_the_same_value(connection):
    same = Pair(exp.column("k", table="x", quoted=True), exp.column("k", table="y", quoted=True), "BIGINT")
    before = look(connection, (same,))
    connection.execute("INSERT INTO t VALUES ('cy', 1, true), ('cy', 2, true), ('cy', 7, true)")
    assert [each for each in look(connection, (same,)) if each[0] != "cy"] == before


@pytest.mark.parametrize(
    ("sign", "found"),
    [
        ("<>", [("ana", 1, True), ("ana", 2, None), ("ben", 1, None), ("ben", 1, None)]),
        ("<", [("ana", 1, True), ("ana", 2, None), ("ben", 1, None), ("ben", 1, None)]),
        ("<=", [("ana", 1, True), ("ana", 2, True), ("ben", 1, True), ("ben", 1, True)]),
        (">", [("ana", 1, None), ("ana", 2, None), ("ben", 1, None), ("ben", 1, None)]),
        (">=", [("ana", 1, None), ("ana", 2, True), ("ben", 1, True), ("ben", 1, True)]),
    ],
)
def test_one_that_differs_is_looked_for_among_own_rows_alone(connection, sign, found):
    connection.execute("INSERT INTO t VALUES ('cy', 0, true), ('cy', 9, true), ('cy', NULL, true)")
    apart = Pair(exp.column("k", table="x", quoted=True), exp.column("k", table="y", quoted=True), "BIGINT")
    assert [each for each in look(connection, (), apart, sign) if each[0] != "cy"] == found
