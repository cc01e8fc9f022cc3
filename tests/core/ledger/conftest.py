"""Ledgers in files and in PostgreSQL, for the tests that hold for both."""

import pytest

from sfumato.core.ledger import ledger as module


@pytest.fixture(params=["file", "postgresql"])
def path(request, tmp_path):
    """A place for a new ledger: a file, and a schema of a database."""
    if request.param == "file":
        return tmp_path / "a budget 100%.ledger"
    return request.getfixturevalue("server").url()


@pytest.fixture
def forget():
    """Lets this process open ledgers as a new one does."""
    return module._verified.clear
