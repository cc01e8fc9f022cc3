"""Statements are told apart before anybody is asked, in time linear in their text."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cases import read_cases
from sfumato.serve.wire.answers import move_cursor
from sfumato.serve.wire.commands import (
    count_parameters,
    find_set_config,
    read_command,
    read_options,
    split_statements,
)
from sfumato.serve.wire.messages import Refusal


@pytest.mark.parametrize(("text", "count"), read_cases(__file__, "test_splitting"))
def test_splitting(text, count):
    assert len(split_statements(text)) == count


@pytest.mark.parametrize("text", ["'", '"', "/*", "$$", "$a$ $b$", "E'\\'", "SELECT '''"])
def test_what_is_not_closed_is_refused(text):
    with pytest.raises(Refusal, match="not closed"):
        split_statements(text)


def test_parameters_are_counted_outside_quotes():
    assert count_parameters("SELECT $1, '$9', \"$8\", $$ $7 $$, a$6 -- $5\n, $2 /* $4 */") == 2


@pytest.mark.parametrize(("text", "kind", "facts"), read_cases(__file__, "test_commands"))
def test_commands(text, kind, facts):
    command = read_command(text)
    assert command.kind == kind
    assert {key: getattr(command, key) for key in facts} == facts


@pytest.mark.parametrize("text", read_cases(__file__, "test_commands_that_are_refused"))
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
