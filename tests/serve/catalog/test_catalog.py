"""Clients' statements about the catalog: all are answered, with what PostgreSQL itself answers."""

import re
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.cases import read_cases
from helpers.catalog_queries import TABLES, fill, make_catalog, read_queries
from helpers.describe_postgres import describe
from helpers.postgres_server import USER, Server, why_missing
from sfumato.core.errors import UnsupportedQuery
from sfumato.core.facts.project import parse_project
from sfumato.serve.catalog import Catalog
from sfumato.serve.catalog.tables import Column, _read
from sfumato.serve.wire.commands import read_command
from sfumato.serve.wire.session_settings import SessionSettings

QUERIES = list(read_queries())


@pytest.fixture(scope="module")
def catalog():
    return make_catalog()


@pytest.fixture(scope="module")
def numbers(catalog):
    return {
        name: find_number(catalog, quoted)
        for name, quoted in (("visits", "visits"), ("clinics", '"Clinics"'))
    }


@pytest.fixture(scope="module")
def server():
    if why_missing():
        pytest.skip(why_missing())
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    server = Server()
    yield server
    server.stop()


def ask(catalog, text, *parameters, user="ana", given=()):
    settings = SessionSettings(list(given), user=user).to_dict()
    columns, rows = catalog.answer(text, user=user, database="demo", settings=settings, parameters=parameters)
    return SimpleNamespace(columns=columns, rows=rows)


def find_number(catalog, name):
    return ask(catalog, f"SELECT '{name}'::regclass::oid").rows[0][0]


@pytest.mark.parametrize("client", sorted({each.client for each in QUERIES}))
def test_every_statement_of_a_client_is_answered(catalog, numbers, client):
    for query in (each for each in QUERIES if each.client == client):
        text, parameters = fill(query.text, numbers), query.parameters
        command = read_command(text)
        if command.kind == "show":  # answered by the session itself
            assert SessionSettings([], user="ana").show(command.name).columns, text
            continue
        assert catalog.covers(text), text
        columns, oids = catalog.describe(text)
        result = ask(catalog, text, *(fill(each, numbers) for each in parameters))
        assert result.columns == columns, text
        assert len(oids) == len(parameters), text
        assert all(len(row) == len(columns) for row in result.rows)


def test_answers_are_those_of_postgresql(catalog, numbers, server):
    import psycopg

    server.execute("CREATE DATABASE demo")
    same = 0
    with server.connect(dbname="demo") as connection:
        for statement in (*TABLES, *comment(catalog)):
            connection.execute(statement)
        theirs = {
            name: connection.execute("SELECT %s::regclass::oid", [quoted]).fetchone()[0]
            for name, quoted in (("visits", "visits"), ("clinics", '"Clinics"'))
        }
        for query in QUERIES:
            text, parameters = query.text, query.parameters
            if text.lower().startswith("show") or "set_config" in text or "hstore" in parameters:
                continue
            cursor = psycopg.RawCursor(connection)
            cursor.execute(fill(text, theirs), [fill(each, theirs) for each in parameters] or None)
            given = [fill(each, numbers) for each in parameters]
            result = ask(catalog, fill(text, numbers), *given, user=USER)
            expected = [(column.name, column.type_code) for column in cursor.description]
            assert [(column.name, column.oid) for column in result.columns] == expected, text
            if not query.differs:
                assert alike(result.rows, numbers) == alike(cursor.fetchall(), theirs), text
                same += 1
    assert same > 170  # of about 240; the others are marked in their files


def comment(catalog):
    """The statements that give PostgreSQL's tables the comments of the catalog's."""
    rows = ask(
        catalog,
        "SELECT objoid::regclass::text, attname, replace(description, '''', '''''') FROM pg_description "
        "LEFT JOIN pg_attribute ON attrelid = objoid AND attnum = objsubid",
    ).rows
    for table, column, text in rows:
        what = f"TABLE {table}" if column is None else f"COLUMN {table}.{column}"
        yield f"COMMENT ON {what} IS '{text}'"


def alike(rows, numbers):
    """Rows without order, and with one name for what is numbered or named by chance."""

    def plain(value):
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        if isinstance(value, str):
            for number in numbers.values():
                value = value.replace(str(number), "N")
            return value.replace(USER, "sfumato")
        return "N" if type(value) is int and value > 13000 else value

    return sorted(repr(plain(row)) for row in rows)


def test_the_description_is_that_of_postgresql(server):
    version = int(server.execute("SHOW server_version_num")[0][0]) // 10_000
    if version != 15:
        pytest.skip(f"the description is of PostgreSQL 15, not {version}")
    with server.connect() as connection:
        made = list(describe(connection))

    def plain(line):  # the information schema is numbered anew in each version
        return re.sub(r"^R \d+ i", "R i", line)

    assert [plain(line) for line in made] == [plain(line) for line in _read("postgres.txt").splitlines()]


@pytest.mark.parametrize(
    ("text", "columns"), read_cases(__file__, "test_columns_have_postgresqls_names_and_types")
)
def test_columns_have_postgresqls_names_and_types(catalog, text, columns):
    expected = tuple(Column(name, oid) for name, oid in columns.items())
    assert catalog.describe(text) == (expected, ())
    assert ask(catalog, text).columns == expected


def test_parameters_have_the_types_of_what_they_meet(catalog):
    text = (
        "SELECT $1::int FROM pg_class WHERE oid = $2 AND relname = $3 AND relkind = ANY($4) "
        "AND oid IN ($5, $6) AND oid = $7::regclass AND relname LIKE $8 LIMIT $9"
    )
    assert catalog.describe(text)[1] == (23, 26, 19, 1002, 26, 26, 25, 19, 25)
    text = "SELECT relname FROM pg_class WHERE relname = ANY($1)"
    found = ask(catalog, text, ["visits", "nope"]).rows
    assert found == ask(catalog, text, "{visits,nope}").rows == [("visits",)]
    with pytest.raises(UnsupportedQuery, match="1 parameters"):
        ask(catalog, "SELECT $1")


def test_public_facts_are_shown_as_types_and_comments(catalog):
    rows = ask(
        catalog,
        "SELECT column_name, data_type, col_description('visits'::regclass, ordinal_position) "
        "FROM information_schema.columns WHERE table_name = 'visits' ORDER BY ordinal_position",
    ).rows
    assert rows == [
        ("person", "bigint", "names the individual whom answers protect"),
        ("clinic", "text", "one of North, South"),
        ("visited", "timestamp without time zone", None),
        ("fee", "double precision", "from 0 to 100"),
        ("ward", "text", None),
        ("regular", "boolean", None),
        ("month", "bigint", "month of visited"),
    ]


def test_domains_drafted_from_records_are_not_shown():
    columns = {
        "clinic": {"values": ["North", "Secret"], "drafted_from_data": True},
        "rooms": {"range": [3, 77], "drafted_from_data": True},
        "ward": {"values": ["a"], "drafted_from_data": True, "accept_drafted": True},
    }
    table = {"source": "t.parquet", "unit": "row", "columns": columns}
    project = parse_project({"budget": {"epsilon": 1}, "tables": {"t": table}}, folder=Path("/nowhere"))
    catalog = Catalog(project, stored={"t": {"clinic": "text", "rooms": "text", "ward": "text"}})
    text = (
        "SELECT a.attname, format_type(atttypid, -1), col_description(attrelid, attnum) FROM pg_attribute a "
    )
    rows = ask(catalog, text + "WHERE attrelid = 't'::regclass ORDER BY attnum").rows
    assert rows == [("clinic", "text", None), ("rooms", "text", None), ("ward", "text", "one of a")]


def test_dates_that_a_text_file_writes_are_dates_to_clients():
    columns = {"seen": {"range": ["2019-01-01", "2020-12-31"], "format": "%m/%d/%Y"}}
    table = {"source": "t.csv", "unit": "row", "columns": columns}
    project = parse_project({"budget": {"epsilon": 1}, "tables": {"t": table}}, folder=Path("/nowhere"))
    catalog = Catalog(project, stored={"t": {"seen": "text", "born": "text"}})
    text = (
        "SELECT a.attname, format_type(atttypid, -1), col_description(attrelid, attnum) FROM pg_attribute a "
    )
    assert ask(catalog, text + "WHERE attrelid = 't'::regclass ORDER BY attnum").rows == [
        ("seen", "timestamp without time zone", "dates from 2019-01-01 to 2020-12-31"),
        ("born", "text", None),
    ]


def test_a_session_is_told_of_itself(catalog):
    text = (
        "SELECT current_user, current_database(), current_setting('sfumato.epsilon'), "
        "current_setting('x', true)"
    )
    assert ask(catalog, text, given=[("sfumato.epsilon", "0.1")]).rows == [("ana", "demo", "0.1", None)]
    assert ("ana", False) in ask(catalog, "SELECT rolname, rolsuper FROM pg_roles").rows
    assert ask(catalog, "SELECT datname FROM pg_database").rows == [("demo",)]


@pytest.mark.parametrize(("text", "covered"), read_cases(__file__, "test_which_statements_are_the_catalogs"))
def test_which_statements_are_the_catalogs(catalog, text, covered):
    assert catalog.covers(text) is covered


def test_threads_share_a_catalog():
    catalog = make_catalog()
    found = []

    def run(name):
        text = "SELECT current_user, count(*) FROM pg_class"
        found.extend(ask(catalog, text, user=name).rows[0] for _ in range(20))

    threads = [threading.Thread(target=run, args=(f"u{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted({name for name, _ in found}) == [f"u{number}" for number in range(8)]
    assert len({count for _, count in found}) == 1
    assert len(found) == 160


def test_columns_have_the_types_that_statements_see():
    columns = {"opened": {"format": "%d.%m.%Y"}, "fee": {"bounds": "private"}, "rooms": {"bounds": [0, 9]}}
    table = {"source": "t.csv", "unit": "row", "columns": columns}
    project = parse_project({"budget": {"epsilon": 1}, "tables": {"t": table}}, folder=Path("/nowhere"))
    catalog = Catalog(project, stored={"t": dict.fromkeys(columns, "text")})
    text = "SELECT attname, format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 't'::regclass"
    assert ask(catalog, f"{text} ORDER BY attnum").rows == [
        ("opened", "timestamp without time zone"),
        ("fee", "double precision"),
        ("rooms", "double precision"),
    ]
