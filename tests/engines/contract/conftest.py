"""One engine after another on the same tables; a component that is missing is a skip that says so."""

import importlib.util
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sfumato.engines import DuckDBEngine, open_engine

TESTS = Path(__file__).resolve().parents[2]
SHARED = TESTS.parents[1] / "shared"


def load(path):
    """A module of the tests, by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES = load(TESTS / "helpers" / "contract_tables.py")


@pytest.fixture(scope="session")
def tables():
    """Every table by name: its rows, its description and its marginals."""
    return TABLES.make_tables(SHARED if SHARED.is_dir() else None)


@pytest.fixture(scope="session")
def folder(tables, tmp_path_factory):
    """A folder with a Parquet file for everything that is stored."""
    folder = tmp_path_factory.mktemp("contract")
    for name, rows in TABLES.sources(tables).items():
        pq.write_table(rows, folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="session")
def load_postgres(write_table, tables, folder):
    """The engine over the tables in PostgreSQL, and the source of each."""
    sources = {name: write_table(name, rows) for name, rows in TABLES.sources(tables).items()}
    return open_engine(folder), sources.__getitem__


@pytest.fixture(scope="session")
def load_spark(folder):
    """The engine over the tables in Spark, and the source of each."""
    path = Path(__file__).with_name("spark_fixture.py")
    if not path.exists():
        pytest.skip("there is no fixture for Spark")
    return load(path).load_spark(folder)


@pytest.fixture(
    params=[
        "duckdb",
        pytest.param("postgres", marks=pytest.mark.xdist_group("postgres")),
        pytest.param("spark", marks=pytest.mark.xdist_group("spark")),
    ]
)
def place(request, folder):
    """An engine, and the source of everything that is stored."""
    if request.param == "duckdb":
        return open_engine(folder), lambda name: f"{name}.parquet"
    return request.getfixturevalue(f"load_{request.param}")


@pytest.fixture
def file_engine(folder):
    """The engine that all others are compared with."""
    return DuckDBEngine(folder)
