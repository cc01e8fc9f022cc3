"""A served project: visits to clinics, made up."""

import asyncio
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sfumato as sf
from sfumato.serve.service import Service, add_user
from sfumato.serve.settings import read_settings
from sfumato.serve.state import FileTables, State

PROJECT = """
[budget]
epsilon = 10.0
delta = 1e-6

[tables.visits]
source = "visits.parquet"
unit = "person"
max_records = 5

[tables.visits.columns.clinic]
values = ["North", "South", "East"]
[tables.visits.columns.fee]
bounds = [0, 100]
[tables.visits.columns.month]
range = [1, 12]
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(7)
    rows = 2000
    pq.write_table(
        pa.table(
            {
                "person": rng.integers(0, 700, rows),
                "clinic": rng.choice(["North", "South", "East"], rows, p=[0.5, 0.3, 0.2]),
                "fee": np.round(rng.gamma(2, 12, rows), 2),
                "month": rng.integers(1, 13, rows),
            }
        ),
        tmp_path / "visits.parquet",
    )
    (tmp_path / "sfumato.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def make_service(folder):
    """A service of the project with an analyst `ana`, a steward `sue` and a viewer `vic`; and its events."""

    def make(**settings):
        curator = sf.open(folder / "sfumato.toml")
        state = State(FileTables(folder / "serve.db"))
        if not state.users():
            add_user(state, curator, "ana", "analyst", Fraction(1), "ana's password")
            add_user(state, curator, "sue", "steward", None, "sue's password")
            add_user(state, curator, "vic", "viewer", None, "vic's password")
        events = []
        quick = {"reply_every": 0.001, **settings}
        service = Service(
            curator, settings=read_settings(curator.project, **quick), state=state, log=events.append
        )
        service.events = events
        return service

    return make


@pytest.fixture
def run():
    """Runs a coroutine to its end."""
    return asyncio.run
