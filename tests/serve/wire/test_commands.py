"""Statements are told apart before anybody is asked, in time linear in their text."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.serve.wire.answers import move_cursor
from sfumato.serve.wire.commands import (
    count_parameters,
    find_set_config,
    read_command,
    read_options,
    split_statements,
)
from sfumato.serve.wire.messages import Refusal


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        (" ; -- nothing\n ; /* ; /* ; */ */", 0),
        ("SELECT ';'; SELECT \";\"", 2),
        ("SELECT $$;$$; SELECT $a$ ; $$ $a$, a$b$c; SELECT E'\\';'", 3),
        ("SELECT 'it''s; one'", 1),
        ("DP-SELECT 0.1 COUNT(*) FROM t; -- the end", 1),
    ],
)
def test_splitting(text, count):
    assert len(split_statements(text)) == count


@pytest.mark.parametrize("text", ["'", '"', "/*", "$$", "$a$ $b$", "E'\\'", "SELECT '''"])
def test_what_is_not_closed_is_refused(text):
    with pytest.raises(Refusal, match="not closed"):
        split_statements(text)


def test_parameters_are_counted_outside_quotes():
    assert count_parameters("SELECT $1, '$9', \"$8\", $$ $7 $$, a$6 -- $5\n, $2 /* $4 */") == 2


@pytest.mark.parametrize(
    ("text", "kind", "facts"),
    [
        ("/* x */ DP-SELECT 0.1 COUNT(*) FROM t", "question", {}),
        ("SHOW TABLES", "question", {}),
        ("show columns from visits", "question", {}),
        ("DESCRIBE visits", "question", {}),
        ("SHOW server_version", "show", {"name": "server_version"}),
        ("begin isolation level serializable", "begin", {}),
        ("START TRANSACTION READ ONLY", "begin", {"tag": "START TRANSACTION"}),
        ("end", "commit", {}),
        ("rollback work to savepoint A", "rollback to", {"name": "a"}),
        ("ROLLBACK", "rollback", {}),
        ("set session sfumato.epsilon = '0.1' -- cheap", "set", {"name": "sfumato.epsilon", "value": "0.1"}),
        ("SET LOCAL search_path TO a, \"B\"", "set", {"value": "a, B", "local": True}),
        ("SET TIME ZONE 'UTC'", "set", {"name": "timezone", "value": "UTC"}),
        ("SET NAMES 'UTF8'", "set", {"name": "client_encoding"}),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "nothing", {}),
        ("SET DateStyle=ISO", "set", {"name": "datestyle", "value": "ISO"}),
        ("SET extra_float_digits = -3", "set", {"value": "-3"}),
        ("SET a TO DEFAULT", "reset", {"name": "a"}),
        ("SHOW TRANSACTION ISOLATION LEVEL", "show", {"name": "transaction_isolation"}),
        ('declare "C" scroll cursor with hold for select 1', "declare", {"name": "C", "query": "select 1"}),
        ("FETCH 10 IN c", "fetch", {"direction": ("forward", 10), "name": "c"}),
        ("fetch forward all from \"C\"", "fetch", {"direction": ("forward", None), "name": "C"}),
        ("MOVE ABSOLUTE -1 c", "move", {"direction": ("absolute", -1)}),
        ("CLOSE ALL", "close", {"name": ""}),
        ("DEALLOCATE PREPARE s1", "deallocate", {"name": "s1"}),
        ("DISCARD ALL", "discard", {"tag": "DISCARD ALL"}),
        ("LISTEN x", "nothing", {"tag": "LISTEN"}),
        ("EXPLAIN (COSTS) DP-SELECT 1 n FROM t", "explain", {"query": "DP-SELECT 1 n FROM t"}),
        ("COPY (SELECT ')' FROM (SELECT 1)) TO STDOUT", "copy", {"query": "SELECT ')' FROM (SELECT 1)"}),
    ],
)  # fmt: skip
def test_commands(text, kind, facts):
    command = read_command(text)
    assert command.kind == kind
    assert {key: getattr(command, key) for key in facts} == facts


@pytest.mark.parametrize(
    "text",
    [
        "SET",
        "SET a",
        "SET ROLE root",
        "SHOW",
        "FETCH 1.5 c",
        "FETCH",
        "DECLARE c",
        "DECLARE c CURSOR FOR SET a = 1",
        "COPY t FROM STDIN",
        "COPY (SELECT 1) TO '/etc/passwd'",
        "COPY (SELECT 1) TO PROGRAM 'sh'",
        "COPY (SELECT 1) TO STDOUT (FORMAT parquet)",
        "COPY (SET a = 1) TO STDOUT",
    ],
)
def test_commands_that_are_refused(text):
    with pytest.raises(Refusal):
        read_command(text)


def test_old_and_new_options_of_copy():
    for options in (
        "WITH CSV HEADER DELIMITER AS ';' NULL 'x'",
        "(FORMAT csv, HEADER true, DELIMITER ';', NULL 'x')",
    ):
        form = read_command(f"COPY (SELECT 1) TO STDOUT {options}").form
        assert (form.style, form.header, form.delimiter, form.null) == ("csv", True, ";", "x")
        assert form.write([b"a;b", b"x", None, b'q"', b""]) == b'"a;b";"x";x;"q""";\n'
    form = read_command("COPY (SELECT 1) TO STDOUT DELIMITER E'|'").form
    assert form.write([b"a|b\\\n", None]) == b"a\\|b\\\\\\n|\\N\n"


def test_options_and_set_config():
    assert read_options(" -c a.b=1  --c-d=2 ") == [("a.b", "1"), ("c_d", "2")]
    for text in ("-d 5", "-c", "-c a", "x"):
        with pytest.raises(Refusal):
            read_options(text)
    text = "SELECT pg_catalog.set_config('A', $1, false), set_config($2::text, 'it''s', true)"
    assert find_set_config(text, ("x", "B")) == [("a", "x"), ("b", "it's")]
    with pytest.raises(Refusal):
        find_set_config(text, ("x",))


@pytest.mark.parametrize(
    "piece", ["'", "''", "$a$", "$1", "/*", "*/", "--\n", "E'\\", ";", "(", '"', "a$", " set_config("]
)
def test_reading_is_linear(piece):
    text = (piece * 100_000)[:99_000]  # what is quadratic in it would take minutes
    for read in (split_statements, count_parameters, read_command):
        with contextlib.suppress(Refusal):
            read(text)
    find = "SELECT " + " set_config( '" * 6_000
    with contextlib.suppress(Refusal):
        find_set_config(find, ())


@given(st.text(st.sampled_from("sSeEtT='\"$1a;-/*() \n\\"), max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        for statement in split_statements(text):
            read_command(statement)
            count_parameters(statement)
    except Refusal:
        pass


@given(
    st.integers(0, 6),
    st.integers(0, 5),
    st.sampled_from(["forward", "backward", "absolute", "relative"]),
    st.integers(-8, 8) | st.none(),
)
def test_a_cursor_stays_on_its_rows(place, count, way, steps):
    if steps is None and way in ("absolute", "relative"):
        return
    stretch, after = move_cursor(min(place, count + 1), count, (way, steps))
    assert 0 <= after <= count + 1
    assert all(0 <= row < count for row in stretch)
    if len(stretch) and 0 < after <= count:
        assert stretch[-1] == after - 1
