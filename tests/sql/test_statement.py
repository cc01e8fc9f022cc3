"""Statements: the private prefix, and what is refused before anything is planned."""

from fractions import Fraction

import pytest

import sfumato as sf
from sfumato.core.errors import RecipeError, UnsupportedQuery
from sfumato.sql.statement import read_statement

COUNT = "COUNT(*) FROM t"


def spelled(text):
    return read_statement(text).query.sql(dialect="duckdb")


@pytest.mark.parametrize(
    "text",
    [
        f"DP-SELECT 0.5 {COUNT}",
        f"dp-select 0.5 {COUNT}",
        f"Dp_Select 0.50 {COUNT}",
        f"  DP-SELECT\n\t.5\n{COUNT} ;  ",
        f"DP-SELECT 5e-1 {COUNT}",
        f"DP-SELECT 1/2 {COUNT}",
        f"-- a remark; with a semicolon\nDP-SELECT 0.5 /* DP-SELECT 9 */ {COUNT} -- the end",
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.5) {COUNT}",
        f"select with differential_privacy options(EPSILON=0.5)\n{COUNT}",
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = '0.5') {COUNT}",
    ],
)
def test_epsilon_is_read_in_every_spelling(text):
    statement = read_statement(text)
    assert (statement.mode, statement.epsilon, statement.delta) == ("private", Fraction(1, 2), 0)
    assert not statement.explain
    assert statement.query.sql(dialect="duckdb") == f"SELECT {COUNT}"


@pytest.mark.parametrize(
    "text",
    [
        f"DP-SELECT 0.1 DELTA 1e-9 {COUNT}",
        f"dp-select 0.1 delta 0.000000001 {COUNT}",
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (delta = 1e-9, epsilon = 0.1) {COUNT}",
    ],
)
def test_numbers_are_exact(text):
    statement = read_statement(text)
    assert (statement.epsilon, statement.delta) == (Fraction(1, 10), Fraction(1, 10**9))


def test_within_is_absolute_or_a_share():
    absolute = read_statement(f"DP-SELECT WITHIN 100 {COUNT}").within
    share = read_statement(f"DP-SELECT within 5 % {COUNT}").within
    assert (absolute.amount, absolute.relative) == (100, False)
    assert (share.amount, share.relative) == (Fraction(1, 20), True)
    assert read_statement(f"DP-SELECT WITHIN 100 {COUNT}").epsilon is None


def test_explain_goes_before_either_kind():
    assert read_statement(f"EXPLAIN DP-SELECT 1 {COUNT}").explain
    public = read_statement(f"explain SELECT {COUNT}")
    assert (public.mode, public.explain) == ("public", True)


@pytest.mark.parametrize("name", ["max_groups", "max_groups_contributed", "MAX_GROUPS"])
def test_options_may_bound_the_groups(name):
    text = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, {name} = 3) {COUNT}"
    assert read_statement(text).max_groups == 3


def test_a_plain_select_is_public():
    statement = read_statement("SELECT a FROM t WHERE b = 'DP-SELECT 5; -- no prefix'")
    assert (statement.mode, statement.epsilon) == ("public", None)


def test_quotes_hide_every_sign():
    statement = read_statement("""DP-SELECT 1 COUNT(*) AS "a, b; FROM" FROM t WHERE x = 'it''s -- /* ; */'""")
    assert statement.texts == ('COUNT(*) AS "a, b; FROM"',)
    assert "'it''s -- /* ; */'" in statement.query.sql(dialect="duckdb")


def test_the_prefix_may_follow_a_with_clause():
    text = "WITH x AS (SELECT a FROM t) DP-SELECT 2 a, COUNT(*) FROM x GROUP BY a"
    statement = read_statement(text)
    assert (statement.epsilon, statement.texts) == (2, ("a", "COUNT(*)"))


def test_select_items_are_kept_as_they_are_written():
    text = "DP-SELECT 1 count( * ) , Sum(a + f(b, c)) AS s, extract(month FROM d) FROM t"
    assert read_statement(text).texts == ("count( * )", "Sum(a + f(b, c)) AS s", "extract(month FROM d)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("   ;  ", "only SELECT|empty|parsed"),
        (f"DP-SELECT {COUNT}", "needs epsilon"),
        ("DP-SELECT * FROM t", "needs epsilon"),
        ("DP-SELECT a, COUNT(*) FROM t", "needs epsilon"),
        (f"DP-SELECT 1 {COUNT}; DROP TABLE t", "several statements"),
        (f"DP-SELECT 1 {COUNT} WHERE a = 'open", "not closed"),
        (f"DP-SELECT 1 {COUNT} /* open", "not closed"),
        ("SELECT COUNT(*) FROM (DP-SELECT 1 a FROM t) AS x", "outermost"),
        ("DP-SELECT 1 a FROM (DP-SELECT 1 a FROM t) AS x", "stands once"),
        ("DROP TABLE t", "only SELECT"),
        ("INSERT INTO t VALUES (1)", "only SELECT"),
        ("COPY t TO 'x.csv'", "only SELECT"),
        ("DP-SELECT 1 a FROM t UNION SELECT a FROM t", "only SELECT"),
        ("DP-SELECT 1 COUNT( FROM t", "cannot be parsed"),
        ("DP SELECT 1 COUNT(*) FROM t", "did you mean DP-SELECT"),
        (
            "DP-SELECT 1 COUNT(*) FORM t",
            "near 't' in line 1: Unexpected token; did you mean FROM in place of 'FORM'",
        ),
        (f"DP-SELECT 1 {COUNT} WERE a = 1", "did you mean WHERE in place of 'WERE'"),
        (f"DP-SELECT 1 {COUNT} GROUP a", "did you mean GROUP BY"),
        (f"DP-SELECT 1 {COUNT} WHERE", "nothing stands behind WHERE"),
        (f"DP-SELECT 1 {COUNT} GROUP BY", "nothing stands behind GROUP BY"),
        (f"DP-SELECT 1 {COUNT} WHERE a = NULL", "write IS NULL"),
        (f"DP-SELECT 1 {COUNT} WHERE (NULL) <> a", "write IS NULL"),
        (f"DP-SELECT 1,5 {COUNT}", "behind a point"),
        (f"DP-SELECT WITHIN -5 {COUNT}", "WITHIN needs a number above zero"),
        ("EXPLAIN", "followed by what is to be explained"),
        (f"DP-SELECT 1 {COUNT} WHERE a = '\x00'", "plain text"),
        (f"DP-SELECT 1 {COUNT} WHERE a = '{'x' * 100_001}'", "at most"),
        (f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (delta = 1e-9) {COUNT}", "needs epsilon"),
        (f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, unit = x) {COUNT}", "not known"),
        (f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon) {COUNT}", "cannot read the option"),
        (f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1 {COUNT}", "."),
    ],
)
def test_what_is_no_statement_is_refused_with_its_reason(text, reason):
    with pytest.raises(UnsupportedQuery, match=reason):
        read_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        f"DP-SELECT 0 {COUNT}",
        f"DP-SELECT -1 {COUNT}",
        "DP-SELECT a FROM t",
        f"DP-SELECT 1 DELTA 1 {COUNT}",
        f"DP-SELECT 1 DELTA -1e-9 {COUNT}",
        f"DP-SELECT WITHIN 0 {COUNT}",
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = nothing) {COUNT}",
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups = 1.5) {COUNT}",
        f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, max_groups = 0) {COUNT}",
    ],
)
def test_privacy_parameters_must_make_sense(text):
    with pytest.raises(RecipeError):
        read_statement(text)


def test_refusals_are_errors_of_the_package():
    with pytest.raises(sf.SfumatoError):
        read_statement("DROP TABLE t")


def test_a_trailing_comma_adds_no_item():
    assert read_statement("DP-SELECT 1 COUNT(*), FROM t").texts == ("COUNT(*)",)


def test_a_name_that_ends_like_the_prefix_is_a_name():
    assert read_statement("SELECT my_dp_select FROM t").mode == "public"
