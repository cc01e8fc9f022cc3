"""Ledgers in files and in PostgreSQL, for the tests that hold for both."""

import importlib.util
from pathlib import Path

import pytest

HELPER = Path(__file__).parents[1] / "helpers" / "postgres_server.py"


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, or a skip that says what is missing."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: pip install 'sfumato[postgres]'")
    spec = importlib.util.spec_from_file_location("postgres_server", HELPER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if missing := module.why_missing():
        pytest.skip(missing)
    server = module.Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", module.PASSWORD)
        yield server
    server.stop()


@pytest.fixture(params=["file", pytest.param("postgresql", marks=pytest.mark.xdist_group("postgres"))])
def path(request, tmp_path):
    """A place for a new ledger: a file, and a schema of a database."""
    if request.param == "file":
        return tmp_path / "a budget 100%.ledger"
    return request.getfixturevalue("server").url()
