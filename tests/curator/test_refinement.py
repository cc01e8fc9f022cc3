"""`WITHIN n%` with Gaussian noise: fresh answers are averaged, and all steps together cost the last level."""

import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

import sfumato as sf
from helpers.projects import write_project
from sfumato.accounting import mu_to_epsilon

# How many steps it takes depends on the noise.
pytestmark = pytest.mark.usefixtures("seeded_noise")

COLUMNS = {"g": {"range": [1, 60]}}


@pytest.fixture
def curator(tmp_path):
    """Many people, each perhaps in many groups, so that Gaussian noise is the smaller one."""
    people = np.repeat(np.arange(40_000), 3)
    rows = pa.table({"p": people, "g": (people * 7 + np.tile([0, 1, 2], 40_000)) % 60 + 1})
    facts = {"unit": "p", "max_records": 60, "epsilon": 100, "delta": 1e-5}
    return sf.open(write_project(tmp_path, COLUMNS, rows=rows, **facts))


STATEMENT = "WITHIN 20% DELTA 0.000001 g, COUNT(DISTINCT p) AS n FROM t GROUP BY g"


def test_all_steps_together_cost_the_last_level(curator):
    answer = curator.sql(f"DP-SELECT {STATEMENT}")
    entries = [each for each in curator.budget().entries if each.kind == "charge"]
    assert len(entries) > 2
    charged = sum(cost.mu_squared for entry in entries for cost in entry.costs)
    assert float(answer.spent) == pytest.approx(mu_to_epsilon(math.sqrt(charged), 1e-6), abs=1e-5)
    assert float(answer.spent) <= 2.5 * 1.001


def test_the_average_is_as_good_as_its_interval_says(curator):
    rows = curator.sql(f"DP-SELECT {STATEMENT}").table.to_pylist()
    for row in rows:
        assert row["n_low"] <= row["n"] <= row["n_high"]
        assert abs(row["n"] - 2000) < 3 * (row["n_high"] - row["n_low"])


def test_asked_again_it_is_free(curator):
    first = curator.sql(f"DP-SELECT {STATEMENT}")
    before = curator.budget().spent
    again = curator.sql(f"DP-SELECT {STATEMENT}")
    assert again.table.equals(first.table)
    assert curator.budget().spent == before


def test_explain_says_which_way_it_goes(curator):
    assert "grows by what is surely lacking" in str(curator.sql(f"EXPLAIN DP-SELECT {STATEMENT}"))
    assert "grows by what is lacking" in str(curator.sql("EXPLAIN DP-SELECT WITHIN 5% COUNT(*) FROM t"))


def test_no_two_tries_have_the_same_noise(tmp_path):
    """A try at an epsilon that was asked before would bring the stored answer, which is no second one."""
    facts = {"unit": "row", "columns": {"a": ["x", "y"]}, "epsilon": 5, "ledger": tmp_path / "ledger.db"}
    curator = sf.from_frame({"a": ["x", "y"] * 50}, **facts)
    # A little less than twice the precision is wanted, which a second answer like the first one would have.
    lacks = iter([(2.0, 1.998**0.5), (0.5, 1.0)])
    with mock.patch("sfumato.curator.explain.find_lack", side_effect=lambda *_: next(lacks)):
        answer = curator.sql("DP-SELECT WITHIN 5% COUNT(*) AS n FROM t")
    assert len(curator.budget().charges) == 2
    assert answer.spent == curator.budget().spent < Fraction(2, 10_000)
