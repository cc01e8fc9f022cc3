"""A session on this machine, a cluster of real processes, and a table that both count."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import spark as spark_helper
from helpers.projects import project_text

PROJECT = project_text(
    {
        "clinic": {"values": ["North", "South"], "outside": "other"},
        "month": {"from": "visited", "period": "month"},
        "age": {"bins": [0, 20, 40, 60, 120], "outside": "clamp"},
    },
    table="visits",
    source="{source}",
    unit="person",
    epsilon=2,
    max_records=3,
)


@pytest.fixture(scope="session")
def helper():
    return spark_helper


@pytest.fixture(autouse=True)
def spark(monkeypatch):
    """Spark on this machine, or a skip that says what is missing."""
    if missing := spark_helper.why_missing():
        pytest.skip(missing)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    for key, value in spark_helper.environment(SPARK_MASTER="local[2]").items():
        monkeypatch.setenv(key, value)


@pytest.fixture(scope="session")
def rows():
    """Visits of people of whom some come very often, in more files than there are workers."""
    rng = np.random.default_rng(7)
    size = 60_000
    return pa.table(
        {
            "person": (rng.pareto(1.2, size) * 200).astype(np.int64) % 9000,
            "clinic": rng.choice(["North", "South", "Harbour"], size),
            "visited": pa.array(rng.integers(0, 1_700_000_000_000_000, size), pa.timestamp("us")),
            "age": rng.normal(40, 20, size),
        }
    )


@pytest.fixture
def make_project(tmp_path, rows):
    """Writes a project over the visits: in files for DuckDB, or the same files in Spark."""
    for part in range(12):
        pq.write_table(rows.slice(part * 5000, 5000), tmp_path / f"visits{part:02}.parquet")

    def make(source=None):
        source = source or f"spark:{tmp_path}/visits*.parquet"
        (tmp_path / "sfumato.toml").write_text(PROJECT.format(source=source))
        return tmp_path / "sfumato.toml"

    return make
