"""One engine after another on the same tables; a component that is missing is a skip that says so."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers import contract_tables
from helpers import spark as spark_helper
from sfumato.core.engine.statements import StatementEngine
from sfumato.servers.project import open_engine

SHARED = Path(__file__).resolve().parents[5] / "shared"


@pytest.fixture(scope="session")
def tables():
    """Every table by name: its rows, its description and its marginals."""
    return contract_tables.make_tables(SHARED if SHARED.is_dir() else None)


@pytest.fixture(scope="session")
def folder(tables, tmp_path_factory):
    """A folder with a Parquet file for everything that is stored."""
    folder = tmp_path_factory.mktemp("contract")
    for name, rows in contract_tables.sources(tables).items():
        pq.write_table(rows, folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="session")
def load_postgres(write_table, tables, folder):
    """The engine over the tables in PostgreSQL, and the source of each."""
    sources = {name: write_table(name, rows) for name, rows in contract_tables.sources(tables).items()}
    return open_engine(folder), sources.__getitem__


@pytest.fixture(scope="session")
def load_spark(folder):
    """The engine over the tables in Spark, and the source of each."""
    if missing := spark_helper.why_missing():
        pytest.skip(missing)
    os.environ.pop("SPARK_REMOTE", None)
    os.environ.update(spark_helper.environment(SPARK_MASTER="local[2]"))
    return open_engine(folder), lambda name: f"spark:{folder}/{name}.parquet"


@pytest.fixture(params=["postgres", pytest.param("spark", marks=pytest.mark.slow)])
def place(request):
    """An engine, and the source of everything that is stored."""
    return request.getfixturevalue(f"load_{request.param}")


@pytest.fixture
def file_engine(folder):
    """The engine that all others are compared with."""
    return StatementEngine(folder)
