"""What the core lets into a query, whoever planned it: trees that no parser gives are tried, too."""

import pytest
from sqlglot import exp, parse_one

from sfumato.core.algebra.expressions import check_expression, check_public, make_total, shield
from sfumato.core.engine.encode import connect
from sfumato.core.errors import UnsupportedQuery

ALLOWED = [
    "t.a + 1.5e3 > 2 AND NOT t.b IN ('x', 'y')",
    "CASE WHEN t.a BETWEEN 1 AND 2 THEN 'low' ELSE UPPER(t.b) END",
    "CAST(t.a AS DOUBLE) / 0",
    "EXTRACT(month FROM CAST(t.b AS DATE))",
    "DATE_TRUNC('week', CAST(t.b AS TIMESTAMP))",
    "t.b LIKE 'a%' OR regexp_matches(t.b, '^a.*')",
    "TRIM(LEADING FROM t.b) || COALESCE(t.b, '')",
    "epoch_us(CAST(t.b AS TIMESTAMP))",
]
REFUSED = [
    "(SELECT 1)",
    "EXISTS (SELECT 1 FROM t)",
    "t.a IN (SELECT a FROM t)",
    "SUM(t.a) OVER ()",
    "SUM(t.a)",
    "RANDOM()",
    "CURRENT_DATE",
    "read_text('/etc/passwd')",
    "getenv('HOME')",
    "t.a LIKE t.b",
    "regexp_matches(t.b, t.b)",
    "CAST(t.a AS BLOB)",
    "CAST(t.a AS INTEGER[])",
    "a + 1",
    "main.t.a",
    "list_extract([1, t.a], 1)",
    "nextval('s')",
    "1e99999",
]


def column(name="a"):
    return exp.column(name, table="t", quoted=True)


# Trees whose text would be more than they say.
FORGED = {
    "a bare name": exp.column("a FROM t; DROP TABLE t; --", table="t", quoted=False),
    "a number": exp.Add(this=column(), expression=exp.Literal(this="1) FROM x --", is_string=False)),
    "no digits": exp.Literal(this=".", is_string=False),
    "a word": exp.Interval(this=exp.Literal.string("1"), unit=exp.var("day) , (SELECT 1")),
    "a list": exp.Anonymous(this="list_extract", expressions=[exp.var("[1], (SELECT 2"), column()]),
    "a trim": exp.Trim(this=column(), expression=exp.Literal.string("x"), position="BOTH 'x' FROM t.b) --"),
    "a text in an argument": exp.Round(this=column(), decimals="1) --"),
    "an argument of a cast": exp.Cast(
        this=column(), to=exp.DataType.build("DATE"), format=exp.Literal.string("%Y")
    ),
    "a type by a name": exp.Cast(this=column(), to=exp.DataType(this=exp.DataType.Type.USERDEFINED)),
    "a column of a list": exp.Column(this=exp.Star(), table=exp.to_identifier("t", quoted=True)),
    "no table": exp.column("a", quoted=True),
    "a remark": exp.Literal.number(1),
    "a call": exp.Anonymous(this="epoch_us); --", expressions=[column()]),
    "NUL": exp.column("a\x00b", table="t", quoted=True),
}
FORGED["a remark"].comments = ["*/ DROP TABLE t /*"]


def read(text):
    """A tree as the planner hands it over: with names in quotes."""
    tree = parse_one(text, read="duckdb")
    for name in tree.find_all(exp.Identifier):
        name.set("quoted", True)
    return tree


@pytest.mark.parametrize("text", ALLOWED)
def test_what_is_allowed_runs_and_never_fails(text):
    tree = read(text)
    check_expression(tree, where="WHERE")
    with connect(plainly=True) as connection:
        connection.execute("CREATE TEMP TABLE t (a DOUBLE, b VARCHAR)")
        connection.execute("INSERT INTO t VALUES (1, 'x'), ('nan', ''), (1e308, '2020-01-01'), (NULL, NULL)")
        total = shield(make_total(tree)).sql(dialect="duckdb")
        assert len(connection.execute(f"SELECT {total} FROM t").fetchall()) == 4


@pytest.mark.parametrize("text", REFUSED)
def test_what_looks_beyond_a_record_is_refused(text):
    tree = parse_one(text, read="duckdb")
    with pytest.raises(UnsupportedQuery):
        check_expression(tree, where="WHERE")


@pytest.mark.parametrize("name", FORGED)
def test_trees_that_hold_other_sql_are_refused(name):
    with pytest.raises(UnsupportedQuery):
        check_expression(FORGED[name], where="WHERE")


def test_every_operation_is_wrapped_by_itself():
    total = make_total(read("t.a / 0 > CAST(t.b AS INT)")).sql(dialect="duckdb")
    assert total.count("TRY(") >= 2
    assert "TRY_CAST" in total


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM p, LATERAL read_csv('t.csv')",
        "WITH s AS (SUMMARIZE 't.csv') SELECT * FROM s",
        "SELECT * FROM p UNION ALL SUMMARIZE 't.csv'",
        "SELECT x IN (SUMMARIZE 't.csv') FROM p",
        "ATTACH 't.db'",
        'WITH "t.csv" AS (SELECT 1) SELECT * FROM p, "t.csv"',
    ],
)
def test_beside_public_tables_nothing_reads_a_file(text):
    with pytest.raises(UnsupportedQuery):
        check_public(text, ["p"])


def test_public_tables_are_joined_and_nested():
    check_public(
        "SELECT * FROM (p JOIN UNNEST([1]) AS u(y) ON TRUE), LATERAL (SELECT p.x) UNION (VALUES (1))", ["p"]
    )
