"""A small project for recipes that select their marginals."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HEAD = """
[budget]
epsilon = {budget}
delta = {delta}

[tables.t]
source = "t.parquet"
{unit}
"""
COLUMNS = """
[tables.t.columns.a]
range = [0, 15]
[tables.t.columns.b]
range = [0, 15]
[tables.t.columns.c]
values = ["x", "y", "z"]
[tables.t.columns.d]
bins = [0, 10, 50, 100]
[tables.t.columns.one]
values = ["only"]
"""


def make_rows(count=3000):
    """Rows in which b is a, c depends on a, d lies within bins and one column has one value."""
    random = np.random.default_rng(17)
    a = random.integers(0, 16, count)
    return pa.table(
        {
            "p": np.arange(count) // 3,
            "a": a,
            "b": a,
            "c": np.array(["x", "y", "z"])[(a // 6 + (random.random(count) < 0.1)) % 3],
            "d": random.uniform(0, 100, count).round(2),
            "one": np.full(count, "only"),
        }
    )


@pytest.fixture
def lay_out(tmp_path):
    """Writes a project and its table; returns the project file."""

    def write(rows=None, *, columns=COLUMNS, unit='unit = "row"', budget=100, delta="1e-6"):
        pq.write_table(make_rows() if rows is None else rows, tmp_path / "t.parquet")
        file = tmp_path / "sfumato.toml"
        file.write_text(HEAD.format(unit=unit, budget=budget, delta=delta) + columns)
        return file

    return write
