"""What must not be had from the catalog: files, functions of DuckDB, long work, words about this machine."""

import os
import random
import re
from contextlib import suppress
from types import SimpleNamespace

import pytest

from helpers.cases import read_cases
from helpers.catalog_queries import make_catalog, read_queries
from sfumato.core.errors import UnsupportedQuery

REFUSED = read_cases(__file__, "refused")
NOT_COVERED = [
    *read_cases(__file__, "not_covered"),
    "SELECT 1 FROM pg_class WHERE" + " (" * 4000 + "1 = 1" + ")" * 4000,
    "SELECT " + ", ".join("1" for _ in range(100_000)),
]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Statements end after half a second in place of two."""
    monkeypatch.setattr("sfumato.serve.catalog._LONGEST", 0.5)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    return make_catalog(tmp_path_factory.mktemp("secret"))


def ask(catalog, text, *parameters):
    settings = {"server_version": "15.0"}
    columns, rows = catalog.answer(
        text, user="ana", database="demo", settings=settings, parameters=parameters
    )
    return SimpleNamespace(columns=columns, rows=rows)


def check_words(message):
    """A refusal names no file, and nothing of what runs behind, but for what was asked."""
    message = re.sub(r"'[^']*'", "", message)
    assert not re.search(
        r"(?i)duckdb|/tmp|/home|/work|\.py|secret|sys\.|traceback|binder|catalog error", message
    ), message
    assert os.sep + "etc" not in message


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_of_the_catalog_is_refused(catalog, text):
    with pytest.raises(UnsupportedQuery) as refused:
        ask(catalog, text)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    check_words(str(refused.value))
    with suppress(UnsupportedQuery):  # or names and types, without running anything
        catalog.describe(text)


@pytest.mark.parametrize("text", NOT_COVERED, ids=lambda text: text[:40])
def test_what_is_no_question_is_not_covered_and_refused(catalog, text):
    assert not catalog.covers(text)
    with pytest.raises(UnsupportedQuery) as refused:
        ask(catalog, text)
    check_words(str(refused.value))


@pytest.mark.parametrize("step", ["w || w", "replace(w, 'p', 'pppppppppp')", "concat(w, w, w)"])
def test_texts_that_grow_stay_short(catalog, step):
    def grow(times):
        steps = ", ".join(f"a{n} AS (SELECT {step} AS w FROM a{n - 1})" for n in range(1, times))
        start = "a0 AS (SELECT relname AS w FROM pg_class WHERE relname = 'pg_proc')"
        return ask(catalog, f"WITH {start}, {steps} SELECT max(length(w)) FROM a{times - 1}").rows

    assert grow(30) == [(10_000,)]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT string_agg(a.attname || b.attname, ',') FROM pg_attribute a, pg_attribute b",
        "SELECT array_agg(a.attname) FROM pg_attribute a, pg_attribute b",
        "SELECT array_agg(a.attname) FILTER (WHERE true) FROM pg_attribute a, pg_attribute b",
        "SELECT array_agg(a.attname) OVER () FROM pg_attribute a",
        "SELECT a.attname, b.* FROM pg_attribute a, pg_attribute b",
        "SELECT " + "format_type(" * 12 + "oid" + ", 1)" * 12 + " FROM pg_class",
        "SELECT " + "quote_ident(" * 20 + "relname" + ")" * 20 + " FROM pg_class",
        "SELECT oid" + "::regclass::text" * 20 + " FROM pg_class",
        "SELECT "
        + "CASE " * 12
        + "oid"
        + " WHEN 1 THEN 2 WHEN 3 THEN 4 WHEN 5 THEN 6 END" * 12
        + " FROM pg_class",
        "SELECT count(*) FROM " + ", ".join(f"pg_class a{n}" for n in range(300)),
        "SELECT * FROM (" * 90 + "SELECT oid FROM pg_class" + ") q" * 90,
        " UNION ALL ".join("SELECT oid FROM pg_class" for _ in range(1000)),
        "SELECT 1 FROM pg_class WHERE " + " OR ".join(f"relname = '{n}'" for n in range(3000)),
        "WITH a0 AS (SELECT oid FROM pg_class), "
        + ", ".join(
            f"a{n} AS (SELECT x.oid FROM a{n - 1} x, a{n - 1} y WHERE x.oid = y.oid)" for n in range(1, 30)
        )
        + " SELECT count(*) FROM a29",
        "SELECT count(*) FROM pg_attribute WHERE attname ~ '(((a*)*)*)*b{1,500}{1,500}'",
    ],
    ids=lambda text: text[:40],
)
def test_work_and_answers_are_bounded(catalog, text):
    try:
        found = ask(catalog, text)
    except UnsupportedQuery as refused:
        check_words(str(refused))
    else:
        assert len(found.rows) <= 50_000
        assert all(
            len(value) <= 10_000 for row in found.rows for value in row if isinstance(value, str | list)
        )


@pytest.mark.parametrize(
    "value",
    ["'; DROP TABLE sys.pg_class; --", "x' OR 'a' = 'a", '"', "\\", "%", "/* */", "\x00"[:0], "{a,b}"],
)
def test_parameters_and_literals_stay_values(catalog, value):
    assert ask(catalog, "SELECT $1::text, count(*) FROM pg_class", value).rows[0][0] == value
    written = value.replace("'", "''")
    assert ask(catalog, f"SELECT '{written}', count(*) FROM pg_class").rows[0][0] == value
    assert ask(catalog, "SELECT relname FROM pg_class WHERE relname = $1", value).rows == []
    quoted = '"' + (value or "x").replace('"', '""') + '"'
    assert ask(catalog, f"SELECT 1 AS {quoted} FROM pg_class LIMIT 1").columns[0].name == (value or "x")


@pytest.mark.parametrize("seed", range(5))
def test_statements_in_disorder_are_answered_or_refused(catalog, seed):
    chance = random.Random(seed)
    known = [re.findall(r"'(?:[^']|'')*'|\w+|\S", query.text) for query in read_queries()]
    words = [word for text in known for word in text]
    for _ in range(100):
        text = list(chance.choice(known))[:200]
        for _ in range(chance.randint(1, 6)):
            place, other = chance.randrange(len(text)), chance.randrange(len(text))
            match chance.randrange(3):
                case 0:
                    text[place] = chance.choice(words)
                case 1:
                    text[place], text[other] = text[other], text[place]
                case 2:
                    text[place:place] = text[other : other + 20]
        statement = " ".join(text)
        try:
            if catalog.covers(statement):
                _, parameters = catalog.describe(statement)
                ask(catalog, statement, *[None] * len(parameters))
        except UnsupportedQuery as refused:
            check_words(str(refused))


def test_nothing_can_be_set_or_read_on_the_database_itself(catalog):
    """What stands behind the list of what may be asked."""
    import duckdb

    cursor = catalog._connect().cursor()
    for text in (
        "SET memory_limit = '1GB'",
        "SET enable_external_access = true",
        "ATTACH '/tmp/x.db'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/x'",
        "INSTALL httpfs",
        "LOAD httpfs",
    ):
        with pytest.raises(duckdb.Error):
            cursor.execute(text)


@pytest.mark.parametrize("statement", read_cases(__file__, "test_no_text_is_made_long_before_it_is_cut"))
def test_no_text_is_made_long_before_it_is_cut(catalog, statement):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(UnsupportedQuery):
        ask(catalog, statement.format(long="a" * 9000))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000
