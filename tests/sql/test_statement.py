"""Statements: the private prefix, and what is refused before anything is planned."""

from fractions import Fraction

import pytest

from sfumato.core.errors import UnsupportedQuery
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
        (f"DP-SELECT 1 {COUNT} WHERE a = '\x00'", "plain text"),
        (f"DP-SELECT 1 {COUNT} WHERE a = '{'x' * 100_001}'", "at most"),
    ],
)
def test_what_is_no_text_of_a_statement_is_refused(text, reason):
    with pytest.raises(UnsupportedQuery, match=reason):
        read_statement(text)


def test_a_trailing_comma_adds_no_item():
    assert read_statement("DP-SELECT 1 COUNT(*), FROM t").texts == ("COUNT(*)",)


def test_a_name_that_ends_like_the_prefix_is_a_name():
    assert read_statement("SELECT my_dp_select FROM t").mode == "public"
