"""What the tests of engines share: a PostgreSQL server of their own."""

import importlib.util
from pathlib import Path

import pytest

HELPERS = Path(__file__).resolve().parents[1] / "helpers"


def load(name):
    """A helper of the tests, by its name."""
    spec = importlib.util.spec_from_file_location(name, HELPERS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, or a skip that says what is missing."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'sfumato[postgres]'")
    module = load("postgres_server")
    if missing := module.why_missing():
        pytest.skip(missing)
    server = module.Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", module.PASSWORD)
        yield server
    server.stop()


@pytest.fixture(scope="session")
def write_table(server):
    """What creates a table with the rows of an Arrow table, and returns its source."""
    module = load("postgres_tables")

    def write(name, rows):
        with server.connect() as connection:
            module.write_table(connection, name, rows)
        return source_of(server, name)

    return write


def source_of(server, name):
    """The source of a table of schema `public`."""
    return server.url(schema="x").replace("&schema=x", f"&table=public.{name}")
